#!/usr/bin/env bash
# The program in README.md compiles as it stands there, and runs.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source_dir/README.md" >"$work/readme.c"
compile() {
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror ${sanitize:+-fsanitize=$sanitize} \
        "-I$source_dir/include" "-I$build_dir/generated/include" "$work/readme.c" -o "$work/readme" \
        "-L$build_dir/lib" -lcotangent -lm "-Wl,-rpath,$build_dir/lib"
}
not_empty() { grep -q main "$work/readme.c"; }
check "README.md has a program" not_empty
check "the program compiles without a warning" compile
check "the program runs" "$work/readme"
finish
