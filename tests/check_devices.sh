#!/usr/bin/env bash
# Every op, and the trainer, on the guarded device: memory that the host must not touch, behind a module that the core knows
# nothing of. A hidden read of a device ends the process here.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
export CT_BACKEND_PATH=$build_dir/tests
jobs=${JOBS:-2}

# The module is a shared object like any other, so the sanitized command takes it too; only its time does not fit there.
ops() { "$cotangent" check --device guard --values --gradients --jobs "$jobs"; }
primitives() { CT_GUARD_PRIMITIVES=1 "$cotangent" check --device guard --values --gradients --jobs "$jobs"; }
# The same with work that is held back until a wait needs it: missing waits, memory used again too early, records that point at
# what is gone.
ops_queued() { CT_GUARD_QUEUE=1 ops; }
ops_without_f64() { CT_GUARD_F64=0 ops; }
if [ -n "$sanitize" ]; then
    skip "every op on the guarded device" "takes too long under sanitizers"
else
    check "every op on the guarded device" ops
    check "every op on the guarded device, queued" ops_queued
    check "every op on a device without f64" ops_without_f64
    # Without fused kernels everything runs in primitives: what a new backend begins with.
    check "every op in primitives on the guarded device" primitives
fi

if ! grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt" || ! grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
    skip "training on the guarded device" "this build has no libyaml or no jansson"
    finish
fi

# The same recipe on both devices gives the same numbers.
curve() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p; s/.*"valid_loss":\([^,}]*\).*/\1/p' "$1/log.jsonl"; }
trains_alike() {
    local recipe=$1 device
    shift
    for device in cpu guard; do
        "$cotangent" train "$recipe" --out "$work/$recipe-$device" --device "$device" "$@" || return 1
        curve "$work/$recipe-$device" >"$work/$device.curve"
    done
    [ -s "$work/cpu.curve" ] && diff "$work/cpu.curve" "$work/guard.curve" || return 1
    local mode # the loader uploads on a stream of its own, whose work is done last, or first
    for mode in 1 2; do
        CT_GUARD_QUEUE=$mode "$cotangent" train "$recipe" --out "$work/$recipe-queued-$mode" --device guard "$@" || return 1
        diff "$work/cpu.curve" <(curve "$work/$recipe-queued-$mode") || return 1
    done
}
check "random calls on the guarded device" env FUZZ_DEVICE=guard "$build_dir/tests/fuzz_ops" 4000
check "random calls, queued" env FUZZ_DEVICE=guard CT_GUARD_QUEUE=1 "$build_dir/tests/fuzz_ops" 4000 2
check "a classifier trains on the guarded device" trains_alike shapes-cnn --epochs 2 --set data.count=160 --set batch=32
in_primitives() { CT_GUARD_PRIMITIVES=1 "$cotangent" train shapes-cnn --out "$work/primitives" --device guard --epochs 1 --set data.count=64 --set batch=32; }
check "a classifier trains in primitives" in_primitives
without_f64() {
    CT_GUARD_F64=0 "$cotangent" train shapes-cnn --out "$work/without" --device guard --epochs 1 --set data.count=64 --set batch=32 --set precision=f16 \
        --set clip_norm=1 --set ema=0.9 && CT_GUARD_F64=0 "$cotangent" train --out "$work/without" --resume --epochs +1 --device guard
}
check "a classifier trains without f64" without_f64
check "a U-Net trains on the guarded device" trains_alike shapes-unet --epochs 1 --set data.count=24 --set batch=8

run=$work/shapes-cnn-guard
goes_on() { "$cotangent" train --out "$run" --resume --epochs +1 --device guard; }
judges() { diff <("$cotangent" eval "$run/best.safetensors" --json) <("$cotangent" eval "$run/best.safetensors" --json --device guard); }
check "a run on the guarded device goes on" goes_on
check "eval on the guarded device" judges

refused() { ! "$cotangent" train shapes-cnn --out "$work/none" --device "$1" >"$work/text" 2>&1 && grep -q "$2" "$work/text"; }
check "a device that is not there is refused" refused nowhere "there is no device named nowhere"
check "a device beyond the last is refused" refused guard:7 "there is 1 guard device, not guard:7"
finish
