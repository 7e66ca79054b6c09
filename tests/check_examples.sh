#!/usr/bin/env bash
# Every example runs and ends with status 0. The training examples run for a moment only, on drawn digits.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

for source in "$source_dir"/examples/*.c; do
    name=$(basename "$source" .c)
    case $name in
    mnist_two_layer | convnet) check "$name" "$build_dir/examples/$name" "$work/no-such-folder" 1 ;;
    *) check "$name" "$build_dir/examples/$name" ;;
    esac
done
finish
