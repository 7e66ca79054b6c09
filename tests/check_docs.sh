#!/usr/bin/env bash
# Every program in README.md and docs/*.md, a block marked c, compiles as it stands there without a warning, and runs. One that
# resumes is killed as well, and has to end with the bytes of a run that was left alone.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

compile() {
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror ${sanitize:+-fsanitize=$sanitize} \
        "-I$source_dir/include" "-I$build_dir/generated/include" "$1.c" -o "$1" \
        "-L$build_dir/lib" -lcotangent -lm -lpthread "-Wl,-rpath,$build_dir/lib"
}
run() { mkdir "$1.run" && (cd "$1.run" && "$1"); }

# The newest checkpoint below a folder: its name.
newest() { (cd "$1" && find . -name 'step-*.safetensors' | sort -V | tail -n 1); }
# Killed once its first checkpoint is there, then run to the end.
killed_and_resumed() {
    mkdir "$1.killed" && cd "$1.killed" || return 1
    "$1" >first.txt 2>&1 &
    local job=$! tries=0
    until [ -n "$(newest .)" ] || [ $tries -gt 4000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    kill -KILL $job 2>/dev/null
    { wait $job; } 2>/dev/null
    "$1" && [ "$(newest .)" = "$(newest "$1.run")" ] && cmp "$(newest .)" "$1.run/$(newest .)"
}
# The same from the last checkpoint but one, whatever the moment of the kill was.
one_step_back() {
    cp -r "$1.run" "$1.back" && cd "$1.back" && rm "$(newest .)" && [ -n "$(newest .)" ] && "$1" &&
        [ "$(newest .)" = "$(newest "$1.run")" ] && cmp "$(newest .)" "$1.run/$(newest .)"
}
nothing_left_to_do() {
    cp -r "$1.run" "$1.again" && cd "$1.again" && [ -z "$("$1" 2>&1)" ] && diff -r "$1.run" "$1.again"
}

programs=0 resuming=0
for page in "$source_dir/README.md" "$source_dir"/docs/*.md; do
    name=$(basename "$page" .md)
    awk -v base="$work/$name" '/^```c$/ {file = base "_" ++n ".c"; next} /^```$/ {file = ""} file {print >file}' "$page"
    for program in "$work/${name}"_*.c; do
        [ -f "$program" ] || continue
        programs=$((programs + 1))
        program=${program%.c}
        check "$(basename "$program") compiles" compile "$program"
        check "$(basename "$program") runs" run "$program"
        grep -q ct_run_resume "$program.c" || continue
        resuming=$((resuming + 1))
        if ! grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
            skip "$(basename "$program") goes on after a kill" "this build has no jansson"
            continue
        fi
        check "$(basename "$program") goes on after a kill" killed_and_resumed "$program"
        check "$(basename "$program") goes on from the last checkpoint but one" one_step_back "$program"
        check "$(basename "$program") has nothing to do once it is done" nothing_left_to_do "$program"
    done
done
# The table of primitives is the one that the library has.
primitives() {
    sed -n '/^| what | primitives |/,/^$/p' "$source_dir/docs/howto-backend.md" | grep -o '`[a-z_]*`' | tr -d '`' | grep -vx cast | sort >"$work/told"
    "$build_dir/bin/cotangent" ops --primitives | cut -d' ' -f1 | sort | diff - "$work/told" &&
        grep -q "these $1:" "$source_dir/docs/howto-backend.md" && [ "$(wc -l <"$work/told")" -eq "$2" ]
}
check "howto-backend.md lists the primitives" primitives thirty 30

some() { [ "$programs" -ge 5 ]; }
check "there are programs in the pages" some
check "one of them resumes" test "$resuming" -ge 1
finish
