#!/usr/bin/env bash
# Every program in README.md and docs/*.md, a block marked c, compiles as it stands there without a warning, and runs.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

compile() {
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror ${sanitize:+-fsanitize=$sanitize} \
        "-I$source_dir/include" "-I$build_dir/generated/include" "$1.c" -o "$1" \
        "-L$build_dir/lib" -lcotangent -lm -lpthread "-Wl,-rpath,$build_dir/lib"
}
run() { (cd "$work" && "$1"); }

programs=0
for page in "$source_dir/README.md" "$source_dir"/docs/*.md; do
    name=$(basename "$page" .md)
    awk -v base="$work/$name" '/^```c$/ {file = base "_" ++n ".c"; next} /^```$/ {file = ""} file {print >file}' "$page"
    for program in "$work/${name}"_*.c; do
        [ -f "$program" ] || continue
        programs=$((programs + 1))
        program=${program%.c}
        check "$(basename "$program") compiles" compile "$program"
        check "$(basename "$program") runs" run "$program"
    done
done
some() { [ "$programs" -ge 5 ]; }
check "there are programs in the pages" some
finish
