#!/usr/bin/env bash
# Runs the tests and adds up their counts. ctest schedules; each test program prints `N passed, N failed`
# (optionally `, N skipped`) as its last line.
#   tests/run.sh all BUILD_DIR [CTEST_ARGUMENT...]    everything; the last line is the sum
#   tests/run.sh one RESULTS NAME COMMAND...          what ctest calls: runs COMMAND and stores its counts
set -u

run_one() {
    local results=$1 name=$2 log counts passed failed skipped status
    shift 2
    mkdir -p "$results"
    log=$results/$name.log
    "$@" >"$log" 2>&1
    status=$?
    cat "$log"
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed\(, \([0-9]*\) skipped\)\{0,1\}$/\1 \2 \4/p' "$log" | tail -n 1)
    read -r passed failed skipped <<<"${counts:-0 0 0}"
    if [ -z "$counts" ]; then
        echo "$name: ended with status $status and without a line 'N passed, N failed'"
        failed=1
    elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        echo "$name: exit status $status although no test failed"
        failed=1
    fi
    echo "$passed $failed ${skipped:-0}" >"$results/$name.count"
    [ "$failed" -eq 0 ]
}

run_all() {
    local build=$1 results passed=0 failed=0 skipped=0 name p f s
    shift
    results=$build/tests/results
    rm -rf "$results"
    cd "$build" || return 1
    results=$PWD/tests/results
    mkdir -p "$results"
    ctest -j "${JOBS:-2}" --output-on-failure "$@"
    # A program that crashed the runner or ran into the time limit left no counts: that is one failure.
    while read -r name; do
        if [ -f "$results/$name.count" ]; then
            read -r p f s <"$results/$name.count"
        else
            echo "$name: did not finish"
            p=0 f=1 s=0
        fi
        [ "$f" -eq 0 ] || echo "failed: $name ($f; output in $results/$name.log)"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done < <(ctest -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p')
    if [ $((passed + failed)) -eq 0 ]; then
        echo "no test ran"
        failed=1
    fi
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi | tee "$results/summary"
    [ "$failed" -eq 0 ]
}

case ${1:-} in
one) shift && run_one "$@" ;;
all) shift && run_all "$@" ;;
*)
    echo "usage: tests/run.sh all BUILD_DIR [CTEST_ARGUMENT...] | one RESULTS NAME COMMAND..." >&2
    exit 2
    ;;
esac
