#!/usr/bin/env bash
# Training of every recipe's model on the guarded device, in small: the same losses and checkpoints as on the CPU; and from what was
# trained there evaluation, prediction and generation. Data of each kind are made here, so that nothing has to be fetched.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
export CT_BACKEND_PATH=$build_dir/tests
cd "$work" || exit 1

if ! grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt" || ! grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
    skip "training on the guarded device" "this build has no libyaml or no jansson"
    finish
fi
if [ -n "$sanitize" ]; then
    skip "training on the guarded device" "takes too long under sanitizers"
    finish
fi

. "$source_dir/tests/small_data.sh"

# ---- The same recipe on both devices gives the same numbers ----

trains_alike() { # NAME RECIPE OPTIONS...
    local name=$1 recipe=$2 device
    shift 2
    for device in cpu guard; do
        "$cotangent" train "$recipe" --out "$name-$device" --device "$device" --epochs 1 "$@" || return 1
        curve "$name-$device" >"$device.curve"
    done
    # and once more with work that the device holds back until somebody waits for it
    CT_GUARD_QUEUE=1 "$cotangent" train "$recipe" --out "$name-queued" --device guard --epochs 1 "$@" || return 1
    [ -s cpu.curve ] && diff cpu.curve guard.curve && diff cpu.curve <(curve "$name-queued")
}
trains() { check "$1 trains on the guarded device" trains_alike "$@"; }

each_recipe trains
if grep -q 'CT_HEADER_LIBPNG.*=1' "$build_dir/CMakeCache.txt"; then
    trains image-folder image-folder --data images --batch 2 --set 'model={name: cnn, stages: 2}'
else
    skip "image-folder trains on the guarded device" "this build has no libpng"
fi

# ---- Around the steps: precision with a loss scaler, averages, clipping, other schedules and optimizers ----

trains f16 shapes-cnn --set data.count=60 --batch 12 --set precision=f16 --set clip_norm=1 --set ema=0.9
trains bf16 shapes-cnn --set data.count=60 --batch 12 --set precision=bf16
for optimizer in sgd radam nadam rmsprop adagrad adadelta lamb lars lion; do
    trains $optimizer csv-classification --data kinds.csv --batch 12 --set "optimizer={name: $optimizer}" --set 'schedule={name: cosine}' --set clip_norm=1
done

# ---- A step waits for nothing ----

# Losses are read when they are written down, several at once; saving and validating read what they show. So twice as many steps
# read hardly more.
reads_little() { # NAME RECIPE OPTIONS...
    local name=$1 batch steps=0 reads=0 before_steps before_reads
    shift
    for batch in 6 3; do
        before_steps=$steps before_reads=$reads
        CT_GUARD_READS=reads.txt "$cotangent" train "$@" --batch $batch --out "reads-$name-$batch" --device guard --epochs 1 || return 1
        steps=$(grep -c '"event":"step"' "reads-$name-$batch/log.jsonl")
        reads=$(cat reads.txt)
    done
    echo "$reads reads in $steps steps, and $before_reads in $before_steps"
    [ $((steps - before_steps)) -ge 50 ] && [ $((reads - before_reads)) -lt $(((steps - before_steps) / 2)) ]
}
check "a classifier is trained without a read per step" reads_little classifier shapes-cnn --set data.count=400 --set data.validation=0.01 --set clip_norm=1 --set ema=0.9
check "with a loss scaler too" reads_little scaled csv-classification --data many.csv --set data.validation=0.01 --set precision=f16
check "a regression too" reads_little regression csv-regression --data more.csv --set data.validation=0.01
check "a U-Net too" reads_little unet shapes-unet --set data.count=330 --set data.size=16 --set data.validation=0.01
check "a language model too" reads_little text char-gpt --data text.txt --set model.layers=1 --set model.dim=16 --set model.heads=2 --set data.length=8 --set data.stride=4 --set data.validation=0.01

# ---- What was trained there ----

run=cifar-resnet18-guard
again() { "$cotangent" train --out f16-guard --resume --epochs +1 --device guard && "$cotangent" train --out f16-cpu --resume --epochs +1 && diff <(curve f16-cpu) <(curve f16-guard); }
check "a run with averages and a loss scaler goes on there" again
both() { diff <("$cotangent" "$@") <("$cotangent" "$@" --device guard); }
check "eval says the same" both eval shapes-unet-guard/best.safetensors --json
check "eval of a language model says the same" both eval char-gpt-guard/best.safetensors --json
check "predict says the same of a table" both predict csv-regression-guard/best.safetensors sizes.csv
check "generate writes the same" both generate char-gpt-guard/best.safetensors --prompt Line --tokens 40 --seed 3
check "and without its cache" both generate char-lstm-guard/best.safetensors --prompt Line --tokens 20 --seed 3
if grep -q 'CT_HEADER_LIBPNG.*=1' "$build_dir/CMakeCache.txt"; then
    check "predict says the same of an image" both predict $run/best.safetensors images/a/1.png
fi

# ---- A loss that is not finite ----

# It is found later than it came, with the step in which it did, and nothing that it has ruined is saved.
ruined() {
    ! "$cotangent" train csv-regression --data sizes.csv --batch 12 --device "$1" --out "ruined-$1" --set 'optimizer={name: sgd, lr: 1e30}' --set 'schedule={name: exponential, gamma: 1}' --epochs 3 >"$1.txt" 2>&1 &&
        grep -q '^error: the loss became \(NaN\|infinite\) in step [2-4];' "$1.txt"
}
check "a loss that is not finite is told with its step" ruined cpu
check "and on the guarded device" ruined guard
check "with the same words" diff <(grep ^error cpu.txt) <(grep ^error guard.txt)
finish
