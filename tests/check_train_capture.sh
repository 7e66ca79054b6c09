#!/usr/bin/env bash
# Captured training of every recipe's model, in small: the losses and the checkpoint of eager steps, bit for bit, through evaluations, a
# schedule, averages, accumulated gradients, a checkpoint and a resume. CAPTURE_STEPS is how many steps each recipe takes at least
# (make capture-long: 200).
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
cd "$work" || exit 1

if ! grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt"; then
    skip "captured training" "this build has no libyaml"
    finish
fi
if [ -n "$sanitize" ]; then
    skip "captured training" "takes too long under sanitizers"
    finish
fi

. "$source_dir/tests/small_data.sh"

steps_of() { grep -c '"event":"step"' "$1/log.jsonl"; }

# Trains NAME captured and not; the epochs are as many as give the steps that are wanted.
trains_alike() { # NAME RECIPE OPTIONS...
    local name=$1 recipe=$2 mode epochs=2
    shift 2
    if [ -n "${CAPTURE_STEPS:-}" ]; then
        "$cotangent" train "$recipe" --out "$name-one" --capture false --epochs 1 "$@" >/dev/null || return 1
        epochs=$(((CAPTURE_STEPS + $(steps_of "$name-one") - 1) / $(steps_of "$name-one")))
    fi
    for mode in true false; do
        "$cotangent" train "$recipe" --out "$name-$mode" --capture $mode --epochs $epochs "$@" >"$name-$mode.txt" 2>&1 ||
            { cat "$name-$mode.txt" && return 1; }
        curve "$name-$mode" >"$mode.curve"
    done
    grep 'not captured' "$name-true.txt" && return 1
    grep -q '"event":"done".*"replayed":[1-9]' "$name-true/log.jsonl" && grep -q '"replayed":0,' "$name-false/log.jsonl" || return 1
    [ -s true.curve ] && diff true.curve false.curve && cmp "$name-true/last.safetensors" "$name-false/last.safetensors"
}
trains() { check "$1 has the bits of eager steps" trains_alike "$@"; }

each_recipe trains
trains f16 shapes-cnn --set data.count=60 --batch 12 --set precision=f16 --set clip_norm=1 --set ema=0.9 --set accumulate=3
trains bf16 char-gpt --data text.txt --batch 8 --set model.layers=1 --set data.limit=40 --set precision=bf16 --set accumulate=2

# A run of which one half is captured and the other is not is the run that it would be.
if grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt"; then
    goes_on() {
        local recipe="csv-classification --data kinds.csv --batch 12 --set schedule.name=constant"
        "$cotangent" train $recipe --epochs 6 --capture false --out whole &&
            "$cotangent" train $recipe --epochs 3 --capture true --out halves &&
            "$cotangent" train --resume --epochs 6 --capture true --out halves && diff <(curve whole) <(curve halves)
    }
    check "a captured run goes on from its checkpoint" goes_on
else
    skip "a captured run goes on from its checkpoint" "this build has no jansson"
fi

# What cannot be captured is trained all the same, and said.
says_so() {
    "$cotangent" train csv-classification --data kinds.csv --batch 12 --epochs 2 --capture true --set 'optimizer={name: sgd}' --out plain >plain.txt &&
        ! grep -q 'not captured' plain.txt
}
check "a step that can be captured is not said to be eager" says_so
by_shards() {
    "$cotangent" train csv-classification --data kinds.csv --batch 12 --epochs 2 --capture "$1" --set shards=2 --out "shards-$1" >shards.txt || return 1
    grep -q 'note: steps are not captured: gradients are those of several processes, or of shards' shards.txt
}
check "shards are trained eagerly, and said to be where a capture was asked for" by_shards true
check "and not where it was not" eval '! by_shards auto'
refused() { "$cotangent" train csv-classification --data kinds.csv --capture maybe 2>&1 | grep -q "^error: --capture is true, false or auto, not 'maybe'$"; }
check "another word for --capture is refused" refused
in_recipe() { "$cotangent" train csv-classification --data kinds.csv --set capture=maybe --out never 2>&1 | grep -q "true, false or auto"; }
check "and in a recipe" in_recipe
finish
