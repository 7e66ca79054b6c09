#!/usr/bin/env bash
# From the start of a process to the end of its first training step (and its exit), median of 41:  bash bench/first_step.sh [BUILD]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
program=$build/bin/first_step
${CC:-cc} -O2 -std=c11 -I"$root/include" -I"$build/generated/include" "$root/bench/first_step.c" -L"$build/lib" -lcotangent \
    -Wl,-rpath,"$build/lib" -o "$program"
for _ in $(seq 41); do
    start=${EPOCHREALTIME/./}
    "$program"
    echo $((${EPOCHREALTIME/./} - start))
done | sort -n | awk '{ at[NR] = $1 } END { printf "%.1f ms (fastest %.1f)\n", at[int((NR + 1) / 2)] / 1000, at[1] / 1000 }'
