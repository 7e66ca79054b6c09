#!/usr/bin/env bash
# Tensors go to NumPy and PyTorch and come back, where these are installed (PYTHON names another interpreter).
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

python=${PYTHON:-python3}
for module in numpy torch; do
    name="tensors are exchanged with $module"
    if [ -n "$sanitize" ]; then
        skip "$name" "an instrumented library cannot be loaded into python"
    elif ! command -v "$python" >/dev/null; then
        skip "$name" "no python3"
    elif ! "$python" -c "import $module; $module.from_dlpack" 2>/dev/null; then
        skip "$name" "no $module that has from_dlpack"
    else
        check "$name" "$python" "$source_dir/tests/dlpack/exchange.py" "$build_dir/lib/libcotangent.so" $module
    fi
done
finish
