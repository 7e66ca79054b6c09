#!/usr/bin/env bash
# The rooms of the source: an include points down (cli -> nn, optim, data, io, metrics, dist -> support, and by public headers to ops
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
above="nn optim data io metrics dist"
check "core includes core" only_includes core core gen
check "backends include core" only_includes backends backends core gen
check "ops include core and the backends' machinery" only_includes ops ops core backends gen
check "support includes public headers" only_includes support support
for room in nn data io metrics dist; do
    check "$room includes its own files and support" only_includes "$room" "$room" support
done
# The steps of optimizers are ops that no program calls; their functions are declared where all internal ones are.
check "optim includes its own files, support, and the ops of its steps" only_includes optim optim support gen
# A rule that lets everything pass would be no test.
mkdir -p "$work/tree/data" && printf '#include "io/npy.h"\n' >"$work/tree/data/wrong.c"
finds_wrong_include() { (cd "$work/tree" && ! only_includes data data support); }
check "an include that points sideways is found" finds_wrong_include

# What an op means knows nothing of how a backend computes it.
means_alone() { ! grep -nE '^ *# *include "(backends/|ops/[a-z_]*/[a-z_]*/)' ops/*.[ch] ops/*/*.[ch]; }
check "definitions of ops include no kernels" means_alone

# A place decides how a source is compiled: kernels once per level of vector instructions, the rest once; what runs once per
# element fast, what runs once per call small. The baseline of x86 is small everywhere.
commands=$build_dir/compile_commands.json
compiled() { sed -n 's/^ *"command": "\(.*\)",*$/\1/p' "$commands" | grep -E "$1"; }
only_kernels_per_level() {
    compiled ' -DCT_ISA=' >"$work/per_level" && ! grep -vE ' -c [^ ]*/(ops/[a-z_]+/cpu/|backends/cpu/|gen/cpu/|tests/)[^ ]*$' "$work/per_level" &&
        ! grep -E '/cpu/once/[^ ]*$' "$work/per_level"
}
fast_kernels() { ! compiled '/ops/[a-z_]+/cpu/[^ ]*$' | grep -v -- '-DCT_ISA=base' | grep -E -- ' -Os( |$)'; }
small_definitions() { ! compiled ' -c [^ ]*/ops/[a-z_]+/[a-z_]+\.c$' | grep -vE -- ' -Os '; }
if [ ! -f "$commands" ]; then
    skip "how sources are compiled" "no compile_commands.json"
else
    check "only kernels are compiled per level" only_kernels_per_level
    case "$(grep CMAKE_BUILD_TYPE:STRING "$build_dir/CMakeCache.txt")$sanitize" in
    *=Release)
        check "kernels and their drivers are built fast" fast_kernels
        check "definitions of ops are built small" small_definitions
        ;;
    *) skip "what is built fast and what small" "not a release" ;;
    esac
fi

# A debugger cannot step through a macro, and an error in it has no line.
long_macros() { git ls-files -- core ops backends nn optim data io metrics dist cli support include | grep '\.[ch]$' |
    xargs awk -v most=15 -f tests/long_macros.awk; }
no_long_macros() { [ -z "$(long_macros)" ] || { long_macros && return 1; }; }
if git ls-files --error-unmatch core/tensor.c >/dev/null 2>&1; then
    check "no macro holds a long function" no_long_macros
else
    skip "no macro holds a long function" "not a checkout"
fi
{ printf '#define LONG(T) \\\n    T f(T x) { \\\n' && for _ in $(seq 16); do printf '        x++; \\\n'; done && printf '    }\n'; } >"$work/long.h"
finds_long_macro() { awk -v most=15 -f tests/long_macros.awk "$work/long.h" | grep -q 'long.h:1: LONG'; }
check "a macro with a long function is found" finds_long_macro

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
