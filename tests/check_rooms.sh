#!/usr/bin/env bash
# The rooms of the source: an include points down (cli -> nn, optim, data, io, metrics -> support, and by public headers to ops
# -> core <- backends), and what is built on the public headers takes its memory from the host's allocator.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cd "$source_dir" || exit 1

# only_includes ROOM ALLOWED...: each file of the room that the room includes lies in one of these folders.
only_includes() {
    local room=$1 wrong
    shift
    wrong=$(grep -rnE '^ *# *include "' "$room" | grep -vE "# *include \"($(IFS='|' && echo "$*"))/")
    [ -z "$wrong" ] || { echo "$wrong" && return 1; }
}
above="nn optim data io metrics"
check "core includes core" only_includes core core gen
check "backends include core" only_includes backends backends core gen
check "ops include core and the backends' machinery" only_includes ops ops core backends gen
check "support includes public headers" only_includes support support
for room in nn data io metrics; do
    check "$room includes its own files and support" only_includes "$room" "$room" support
done
# The steps of optimizers are ops that no program calls; their functions are declared where all internal ones are.
check "optim includes its own files, support, and the ops of its steps" only_includes optim optim support gen
# A rule that lets everything pass would be no test.
mkdir -p "$work/tree/data" && printf '#include "io/npy.h"\n' >"$work/tree/data/wrong.c"
finds_wrong_include() { (cd "$work/tree" && ! only_includes data data support); }
check "an include that points sideways is found" finds_wrong_include

# Comments and strings may speak of malloc. What other libraries allocate, they free.
takes_memory() {
    ! grep -rnE '(^|[^A-Za-z0-9_.>"])(malloc|calloc|realloc|reallocarray|free|strdup|strndup|aligned_alloc|posix_memalign|asprintf|vasprintf|getline|getdelim|open_memstream|scandir)( *\(|[,;)])' \
        "$@" | grep -vE ':[0-9]+: *(/?\*|//)'
}
for room in support $above; do check "$room takes no memory past the host's allocator" takes_memory "$room"; done
printf 'void *f(void) { return malloc(3); }\n' >"$work/tree/data/wrong.c"
finds_malloc() { ! takes_memory "$work/tree"; }
check "a bare malloc is found" finds_malloc
finish
