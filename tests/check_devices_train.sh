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

# ---- Data ----

pixels() { yes "$1 is $((${1} * 7919 % 1009))." 2>/dev/null | head -c "$2"; }
cifar() { # FIRST LAST
    local i
    for i in $(seq "$1" "$2"); do
        printf "\\x0$((i % 10))"
        pixels "$i" 3072
    done
}
mkdir cifar mnist images images/a images/b
for k in 1 2 3 4 5; do cifar $((k * 4)) $((k * 4 + 3)) >cifar/data_batch_$k.bin; done
cifar 40 47 >cifar/test_batch.bin

count() { printf "\\x00\\x00\\x00\\x$(printf %02x "$1")"; }
digits() { # NAME N
    local i
    { printf '\x00\x00\x08\x03' && count "$2" && count 28 && count 28 && for i in $(seq "$2"); do pixels "$i" 784; done; } >"mnist/$1-images-idx3-ubyte"
    { printf '\x00\x00\x08\x01' && count "$2" && for i in $(seq "$2"); do printf "\\x0$((i % 10))"; done; } >"mnist/$1-labels-idx1-ubyte"
}
digits train 24
digits t10k 8

awk 'BEGIN { srand(3); print "a,b,kind,size"; for (i = 0; i < 60; i++) { x = rand(); y = rand(); printf "%f,%f,%s,%f\n", x, y, (x > y ? "more" : "less"), x + 2 * y } }' >table.csv
cut -d, -f1-3 table.csv >kinds.csv
cut -d, -f1,2,4 table.csv >sizes.csv
times() { cat "$1" && for i in 1 2 3 4 5; do tail -n +2 "$1"; done; }
times kinds.csv >many.csv
times sizes.csv >more.csv
for i in $(seq 60); do echo "Line $i says what line $((i * 7 % 60)) said before."; done >text.txt
for i in 1 2 3; do
    cp "$source_dir/tests/files/rgb.png" images/a/$i.png
    cp "$source_dir/tests/files/turned_$((i * 2)).png" images/b/$i.png 2>/dev/null || cp "$source_dir/tests/files/filters.png" images/b/$i.png
done

# ---- The same recipe on both devices gives the same numbers ----

curve() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p; s/.*"valid_loss":\([^,}]*\).*/\1/p' "$1/log.jsonl"; }
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

trains shapes-cnn shapes-cnn --set data.count=60 --batch 12
trains shapes-unet shapes-unet --set data.count=18 --set data.size=24 --batch 6
trains fashion-mnist-cnn fashion-mnist-cnn --data mnist --batch 8
trains fashion-mnist-mlp fashion-mnist-mlp --data mnist --batch 8
trains mnist-lenet mnist-lenet --data mnist --batch 8
trains cifar-resnet18 cifar-resnet18 --data cifar --batch 10
trains cifar-mobilenet cifar-mobilenet --data cifar --batch 10
trains cifar-vit cifar-vit --data cifar --batch 10
trains csv-classification csv-classification --data kinds.csv --batch 12
trains csv-regression csv-regression --data sizes.csv --batch 12
trains char-lstm char-lstm --data text.txt --batch 8 --set model.hidden=24 --set data.limit=40
trains char-gpt char-gpt --data text.txt --batch 8 --set model.layers=2 --set data.limit=40
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
