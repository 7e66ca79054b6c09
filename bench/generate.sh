#!/usr/bin/env bash
# Tokens a second of `cotangent generate`, 512 tokens of a GPT of 6 layers and 384 features, with the cache of keys and values
# and without, one run after the other, medians of REPEATS (5):  bash bench/generate.sh [BUILD] [REPEATS]
# What is timed is the whole command; loading and building the network, the time of a run of one token, is taken off.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cotangent=${1:-$root/build}/bin/cotangent
repeats=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$root"/include/cotangent/*.h >"$work/text"
# One step is enough: the time does not depend on what the weights are.
"$cotangent" train char-gpt --data "$work/text" --out "$work/run" --epochs 1 --batch 1 --set data.length=513 \
    --set data.limit=1 --set data.validation=0.01 --set data.stride=513 --set data.bytes=true \
    --set 'model={name: gpt, dim: 384, layers: 6, heads: 6}' >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
run() { # TOKENS [OPTION]: microseconds
    local start=${EPOCHREALTIME/./}
    "$cotangent" generate "$work/run/last.safetensors" --prompt a --temperature 0 --tokens "$@" >/dev/null || return
    echo $((${EPOCHREALTIME/./} - start))
}
for _ in $(seq "$repeats"); do
    for kind in cache anew; do
        all=$(run 512 $([ $kind = cache ] || echo --no-cache))
        one=$(run 1)
        echo $kind $((all - one))
    done
done | sort -k1,1 -k2,2n | awk '{ at[$1, ++n[$1]] = $2 }
    END { for (kind in n) { us = at[kind, int((n[kind] + 1) / 2)]; printf "%-5s %8.1f tokens/s\n", kind, 511e6 / us } }'
