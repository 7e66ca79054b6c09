#!/usr/bin/env bash
# A training that something ends: a closed terminal, a reader that is gone, a limit on the size of files, no descriptors.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

# Each of these saves and can be gone on from. A fast machine may be done before the signal arrives.
for signal in TERM HUP PIPE; do
    stop $signal by_$signal '"step":13'
    status=$?
    check "SIG$signal ends a run with status 130" test $status -eq 130 -o $status -eq 0
    "$cotangent" train --resume --out by_$signal >more.txt 2>&1
    check "what SIG$signal stopped goes on to the same bytes" same first/last.safetensors by_$signal/last.safetensors
done
# Long enough that the signal arrives in the middle: it is the save that is looked at, not the end.
stop HUP long '"step":13' --epochs 100000
check "SIGHUP is caught, not survived" test $? -eq 130
check "and the log says that it stopped" has long/log.jsonl '"event":"stopped"'

# nohup: a signal that is ignored from the start stays so.
(trap '' HUP && exec "$cotangent" train tiny.yaml --out nohup >nohup.txt 2>&1) &
job=$!
until [ -s nohup/log.jsonl ] || ! kill -0 $job 2>/dev/null; do sleep 0.005; done
kill -HUP $job 2>/dev/null
wait $job
check "a run under nohup goes on to its end" test $? -eq 0 -a -s nohup/report.html

# A reader that reads one line.
"$cotangent" train tiny.yaml --epochs 100000 --out piped 2>piped.txt | head -n 1 >/dev/null
check "a run whose reader is gone is saved" test -s piped/last.safetensors
check "and says so in its log" has piped/log.jsonl '"event":"stopped"'

# A limit on the size of files that the log still fits and a checkpoint does not.
stop TERM limited '"step":13' --epochs 12 --set checkpoint_seconds=0
cp limited/last.safetensors limited.before
size=$(($(stat -c %s limited.before) / 1024 - 1))
(ulimit -f $size && exec "$cotangent" train --resume --out limited) >limited.txt 2>&1
check "a checkpoint that is too large for the limit is an error" test $? -eq 1
check "with a text" has limited.txt '^error: .*limited/last.safetensors.*: File too large'
check "and the checkpoint before it stays" same limited.before limited/last.safetensors
"$cotangent" train --resume --out limited >limited.more 2>&1
"$cotangent" train tiny.yaml --epochs 12 --set checkpoint_seconds=0 --out unlimited >unlimited.txt 2>&1
check "from which the run goes on to the same bytes" same unlimited/last.safetensors limited/last.safetensors

# No standard input, output, errors: files that are opened must not take their places.
"$cotangent" train tiny.yaml --out closed <&- >&- 2>&-
check "a run without descriptors is trained" test $? -eq 0
check "its log holds JSON alone" lacks closed/log.jsonl '^[^{]'
check "and it ends with the same bytes" same first/last.safetensors closed/last.safetensors
check "a refusal without descriptors has its status" test "$("$cotangent" train nothing <&- 2>&- >&-; echo $?)" -eq 2
finish
