#!/usr/bin/env bash
# Random calls of every op, in several processes, each with a seed of its own; the last line is their sum.
#   tests/fuzz.sh PROGRAM CALLS SEED JOBS
set -u
program=$1 calls=$2 seed=$3 jobs=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for ((i = 0; i < jobs; i++)); do
    "$program" $(((calls + jobs - 1) / jobs)) $((seed + i)) >"$work/$i" 2>&1 &
done
wait

passed=0 failed=0
for ((i = 0; i < jobs; i++)); do
    sed '/^[0-9]* passed, [0-9]* failed$/d' "$work/$i"
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$work/$i") || p=0 f=1
    passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
