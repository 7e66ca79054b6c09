#!/usr/bin/env bash
# cotangent.hpp compiles without a warning as C++17 and C++20, and a program that uses it works, with exceptions and without.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# GCC's -Wextra would have every option named in C++, though not in C.
warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror -Wno-missing-field-initializers"
include="-I$source_dir/include -I$build_dir/generated/include"
for compiler in g++ clang++; do
    for standard in c++17 c++20; do
        for mode in "" -fno-exceptions -DCT_NO_EXCEPTIONS; do
            name="the program as $standard in $compiler ${mode:-with exceptions}"
            if ! command -v $compiler >/dev/null; then
                skip "$name" "no $compiler"
            elif [ -n "$sanitize" ]; then
                skip "$name" "an instrumented library wants the compiler that made it"
            else
                check "$name: compiled" $compiler -std=$standard $warnings $mode $include "$source_dir/tests/cpp/program.cc" -o "$work/program" "-L$build_dir/lib" -lcotangent -pthread "-Wl,-rpath,$build_dir/lib"
                check "$name" "$work/program"
                rm -f "$work/program"
            fi
        done
    done
done
finish
