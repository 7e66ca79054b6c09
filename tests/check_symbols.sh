#!/usr/bin/env bash
# The libraries export what the public headers declare with CT_API, nothing else, and are good guests: the shared one needs
# only libc, libm and what the compiler brings, and has a SONAME.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

library=$build_dir/lib/libcotangent.so
if ! command -v nm >/dev/null || ! command -v readelf >/dev/null; then
    skip "all" "no binutils"
    finish
fi

# Declarations may run over several lines: join them, then take the name before the first parenthesis or semicolon.
cat "$source_dir"/include/cotangent.h "$source_dir"/include/cotangent/*.h "$build_dir"/generated/include/cotangent/ops.h |
    sed 's,/\*.*\*/,,' | grep -v '^ *#' | tr '\n' ' ' | sed 's/;/;\n/g' |
    sed -n 's/.*CT_API [^(;]*[ *]\(ct_[A-Za-z0-9_]*\) *[(;\[].*/\1/p' | sort -u >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u >"$work/exported"

same_lists() {
    diff "$work/declared" "$work/exported" | sed -n 's/^</declared but not exported:/p; s/^>/exported but not declared:/p'
    cmp -s "$work/declared" "$work/exported"
}
one_prefix() { ! grep -v '^ct_' "$work/exported"; }
has_soname() { readelf -d "$library" | grep -q 'SONAME.*\[libcotangent\.so\.0\]'; }
few_needs() { ! readelf -d "$library" | grep NEEDED | grep -vE '\[(libc|libm|libpthread|libgcc_s|ld-linux[-a-z0-9]*)\.so'; }
# The same for the archive, which knows no visibility: the build makes hidden names local.
archive_same() {
    nm -g --defined-only "$build_dir/lib/libcotangent.a" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u >"$work/archived"
    diff "$work/declared" "$work/archived" | sed -n 's/^</declared but not there:/p; s/^>/there but not declared:/p'
    cmp -s "$work/declared" "$work/archived"
}
# A program that runs a saved graph, with the static library, takes in no layers, optimizers and loaders.
links_what_it_needs() {
    printf '#include <cotangent/graph.h>\nint main(int n, char **path) { return !(n > 1 && ct_replay(ct_graph_load(path[1], (ct_device){0}))); }\n' >"$work/runs.c"
    "$cc" -O1 "$work/runs.c" "-I$source_dir/include" "-I$build_dir/generated/include" "$build_dir/lib/libcotangent.a" -lm -lpthread -ldl -Wl,--gc-sections \
        -o "$work/runs" && nm "$work/runs" >"$work/linked" && grep -q ' ct_graph_load$' "$work/linked" || return 1
    ! grep -E ' (ct_nn_resnet_p|ct_sgd_p|ct_batches_p|ct_run_load)$' "$work/linked"
}

# What it promises on x86, which has the most levels, with every compiler that builds it.
is_small() {
    strip -o "$work/stripped.so" "$library" && size=$(stat -c %s "$work/stripped.so") && echo "$size bytes" && [ "$size" -lt 6000000 ]
}

# A part of a vector that is stored under a mask as one instruction faults on what the mask leaves out; gcc makes it of two that do not.
no_faulting_stores() { ! objdump -d --no-show-raw-insn "$library" | grep -E 'vextract[fi](32|64)x[248] .*\(.*\)\{%k' | head -n 3 | grep .; }

check "exports are the declared names" same_lists
check "exports have one prefix" one_prefix
check "the SONAME is libcotangent.so.0" has_soname
if [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    check "no store under a mask touches what the mask leaves out" no_faulting_stores
else
    skip "no store under a mask touches what the mask leaves out" "not x86-64, or no objdump"
fi
if [ -n "$sanitize" ]; then
    skip "needs only libc and libm" "sanitizers need their own"
    skip "the archive has the declared names alone" "sanitizers add their own"
    skip "a program that runs a saved graph links what it needs" "sanitizers need their own"
    skip "the stripped library is smaller than 6 MB" "sanitizers add their own"
else
    case "$(uname -m) $(grep CMAKE_BUILD_TYPE:STRING "$build_dir/CMakeCache.txt")" in
    x86_64*=Release) check "the stripped library is smaller than 6 MB" is_small ;;
    *) skip "the stripped library is smaller than 6 MB" "not a release on x86-64" ;;
    esac
    check "needs only libc and libm" few_needs
    check "the archive has the declared names alone" archive_same
    check "a program that runs a saved graph links what it needs" links_what_it_needs
fi
finish
