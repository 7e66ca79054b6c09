#!/usr/bin/env bash
# The public headers and the examples compile without a warning: C11 and C17, gcc and clang; the headers as C++17 too.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"
include="-I$source_dir/include -I$build_dir/generated/include"
headers="cotangent.h $(cd "$source_dir/include" && ls cotangent/*.h) cotangent/ops.h"

for header in $headers; do
    name=${header//[\/.]/_}
    # Twice, for the guard; and scopes within scopes, which must not shadow each other.
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$work/$name.cc"
    cp "$work/$name.cc" "$work/$name.c"
    cat >>"$work/$name.c" <<'C'
int nested(void);
int nested(void) {
    ct_scope {
        ct_no_grad {
            ct_scope {
                ct_no_grad { return ct_ok(); }
            }
        }
    }
    return 0;
}
C
    for compiler in gcc clang; do
        for standard in c11 c17; do
            if ! command -v $compiler >/dev/null; then
                skip "$header $standard" "no $compiler"
            else
                check "$header as $standard in $compiler" $compiler -std=$standard $warnings $include -fsyntax-only "$work/$name.c"
            fi
        done
    done
    for compiler in g++ clang++; do
        if ! command -v $compiler >/dev/null; then
            skip "$header c++17" "no $compiler"
        else
            check "$header as C++17 in $compiler" $compiler -std=c++17 $warnings $include -fsyntax-only "$work/$name.cc"
        fi
    done
done

for example in "$source_dir"/examples/*.c; do
    for compiler in gcc clang; do
        for standard in c11 c17; do
            name="$(basename "$example") as $standard in $compiler"
            if ! command -v $compiler >/dev/null; then
                skip "$name" "no $compiler"
            else
                check "$name" $compiler -std=$standard $warnings $include -fsyntax-only "$example"
            fi
        done
    done
done

finish
