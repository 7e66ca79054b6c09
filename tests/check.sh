# What the tests/check_*.sh scripts share; they source it. CT_SOURCE_DIR and CT_BUILD_DIR are set by ctest, and default
# to this tree and its build folder for a run by hand.
set -u
source_dir=${CT_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
build_dir=${CT_BUILD_DIR:-$source_dir/build}
cc=${CC:-cc}
sanitize=${CT_SANITIZE:-}
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME COMMAND...: one test. What the command prints is shown when it fails.
check() {
    local name=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        passed=$((passed + 1))
    else
        echo "FAILED $name: $*"
        cat "$work/output"
        failed=$((failed + 1))
    fi
}

skip() {
    echo "skipped $1: $2"
    skipped=$((skipped + 1))
}

# The closing line, and the exit status.
finish() {
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" -eq 0 ]
    exit
}
