#!/usr/bin/env bash
# Every example runs, ends with status 0 and prints what it should. Those that train do so for a moment only.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# prints NAME PATTERN ARGUMENT...: the example's output has a line that fits.
prints() {
    local name=$1 pattern=$2
    shift 2
    (cd "$work" && timeout 300 "$build_dir/examples/$name" "$@") >"$work/$name.out" 2>&1 && grep -Eq "$pattern" "$work/$name.out" ||
        { cat "$work/$name.out"; return 1; }
}

for source in "$source_dir"/examples/*.c; do
    name=$(basename "$source" .c)
    case $name in
    00_tensor) check $name prints $name '^mean of squares: 15\.1667$' ;;
    01_autograd) check $name prints $name '^step 6: \(1\.000000, 1\.000000\)$' ;;
    02_regression) check $name prints $name '^largest distance .*: 0\.0[0-9]+$' 500 ;;
    03_fashion_mnist) check $name prints $name '^epoch 1: loss [0-9.]+, test accuracy [0-9.]+ %$' "$work/no-such-folder" 1 ;;
    04_char_gpt) check $name prints $name '^loss [0-9.]+ after 20 steps; it writes:$' "$source" 20 ;;
    05_custom_op) check $name prints $name '^right to second order$' ;;
    06_custom_module) check $name prints $name '^the copy gives the same$' ;;
    07_physics) check $name prints $name '^largest error against the exact solution: [0-9.]+e-0[3-9]$' 60 ;;
    08_embed) check $name prints $name "^the host's threads ran the library's jobs; its memory stayed below the limit: yes$" ;;
    10_gpt_many) check $name prints $name '^1 processes, [0-9]+ numbers each; loss [0-9.]+ after 20 steps$' "$source" 20 ;;
    09_saved_graph)
        if grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
            check $name prints $name '^largest distance from the sine: 0\.0[0-9]+$'
        else
            skip $name "this build has no jansson"
        fi
        ;;
    *) check "$name is listed in this script" false ;;
    esac
done
finish
