#!/usr/bin/env bash
# What needs an NVIDIA device: `make test-cuda`. Without one everything is skipped, by name and with the reason, but for what can be said of
# the module alone.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
tests=$build_dir/tests
export CT_BACKEND_PATH=$build_dir/lib
why=$("$cotangent" info | sed -n 's/^cuda *//p')
case $why in
"no: there is no module"*)
    skip "the module opens, or says why it cannot be used" "make cuda has not built it"
    skip "every primitive has a kernel" "make cuda has not built it"
    skip "copies by a driver of the tests' own" "make cuda has not built it"
    skip "random calls by a driver of the tests' own" "make cuda has not built it"
    ;;
*)
    check "the module opens, or says why it cannot be used" [ -n "$why" ]
    check "every primitive has a kernel" "$tests/test_cuda_coverage"
    # Its kernels do nothing (tests/cuda/driver.c): what is tried is what the host does around them.
    own=$tests/cuda:$tests/cuda/without
    check "copies by a driver of the tests' own" env LD_LIBRARY_PATH="$own" "$tests/test_cuda_copies"
    check "random calls by a driver of the tests' own" env LD_LIBRARY_PATH="$own" FUZZ_DEVICE=cuda "$tests/fuzz_ops" "${CALLS:-10000}" 2
    ;;
esac

programs=$(cd "$tests" && ls test_cuda*)
tools="memcheck racecheck initcheck"
if [ "$why" != yes ]; then
    skip "every op on an NVIDIA device" "$why"
    for program in $programs; do skip "$program" "$why"; done
    skip "random calls" "$why"
    skip "the driver alone is enough" "$why"
    for tool in $tools; do skip "$tool" "$why"; done
    skip "a training follows that on the CPU" "$why"
    skip "tensors are exchanged with PyTorch on the device" "$why"
    finish
fi

check "every op on an NVIDIA device" "$cotangent" check --device cuda --values --gradients
for program in $programs; do check "$program" "$tests/$program"; done
"$tests/dist_nccl" >"$work/nccl.txt" 2>&1
case $? in
77) skip "collectives by NCCL" "$(cat "$work/nccl.txt")" ;;
0) passed=$((passed + 1)) ;;
*) check "collectives by NCCL" eval "cat $work/nccl.txt && false" ;;
esac
check "random calls" env FUZZ_DEVICE=cuda "$tests/fuzz_ops" "${CALLS:-10000}"

# Without cuBLASLt, cuDNN and the others the module's own kernels serve.
alone() (
    export LD_LIBRARY_PATH=$tests/cuda/without
    "$cotangent" info | grep 'no cuBLASLt, no cuDNN' && "$tests/test_cuda" &&
        "$cotangent" check --device cuda --values matmul linear conv conv_input_grad conv_weight_grad conv_transpose2d sdpa lstm gru
)
check "the driver alone is enough" alone

# ---- A recipe, with the loader, the checkpoints and the report around it ----

curve() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p' "$1/log.jsonl"; }
follows() (
    cd "$work" || return 1
    for device in cpu cuda; do
        "$cotangent" train shapes-cnn --set data.count=2000 --batch 50 --epochs 2 --device $device --out "run-$device" || return 1
    done
    "$cotangent" train shapes-cnn --set data.count=2000 --batch 50 --epochs 2 --device cuda --out run-again || return 1
    diff <(curve run-cuda) <(curve run-again) || return 1 # the same bits every time
    # sums in another order differ by rounding, which training makes larger
    paste <(curve run-cpu) <(curve run-cuda) |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 0.05 * $2 + 0.02) bad++; n++ } END { print n, bad + 0; exit !(n > 10 && bad <= n / 10) }'
)
if grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt" && grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
    check "a training follows that on the CPU" follows
else
    skip "a training follows that on the CPU" "this build has no libyaml or no jansson"
fi

# ---- Other libraries ----

python=${PYTHON:-python3}
if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    check "tensors are exchanged with PyTorch on the device" "$python" "$source_dir/tests/dlpack/exchange.py" "$build_dir/lib/libcotangent.so" torch cuda
else
    skip "tensors are exchanged with PyTorch on the device" "no torch that has CUDA"
fi

# ---- compute-sanitizer over each op's smallest samples ----

# under_tool TOOL SECONDS OP...: all ops where none is named.
under_tool() {
    timeout -k 5 "$2" compute-sanitizer --tool "$1" --error-exitcode 1 --target-processes all \
        "$cotangent" check --device cuda --values --smallest --at-once 128 "${@:3}"
}
# Of all ops, or of those that OPS names; at most 8 minutes each. Without the vendor's libraries, so that kernels of our own do
# everything; then with them what has kernels of our own around theirs. Engines are not measured: many of them would run under the tool.
sanitized() (
    around="conv conv_fused conv_fused_grad conv_input_grad conv_weight_grad matmul linear_fused linear_grad"
    export CT_TUNE=0
    # shellcheck disable=SC2086 # lists of names
    LD_LIBRARY_PATH=$tests/cuda/without under_tool "$1" 360 ${OPS:-} && under_tool "$1" 120 ${OPS:-$around}
)
for tool in $tools; do
    if command -v compute-sanitizer >/dev/null; then
        check "$tool" sanitized "$tool"
    else
        skip "$tool" "compute-sanitizer is not installed"
    fi
done
finish
