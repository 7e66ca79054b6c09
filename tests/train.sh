# What the scripts that train share; they source it. A small recipe, tiny.yaml, and how answers are looked at.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cotangent=$build_dir/bin/cotangent
cd "$work" || exit 1

cat >tiny.yaml <<'YAML'
about: Drawn shapes
model: {name: cnn, width: 4, stages: 2, depth: 0}
data: {kind: shapes, count: 200, size: 16, validation: 0.3}
transforms:
  - {name: random_crop, height: 16, pad: 1}
  - flip
optimizer: {name: adamw, lr: 0.01}
schedule: {name: one_cycle}
ema: 0.9
metrics: [f1, top5]
epochs: 3
batch: 20
seed: 7
YAML
if ! "$cotangent" train tiny.yaml --out first >first.txt 2>&1; then
    if grep -q 'libyaml\|jansson' first.txt; then
        skip train "$(cat first.txt)"
        finish
    fi
    echo "FAILED the first training:" && cat first.txt
    failed=1
    finish
fi
passed=1

# refuses STATUS TEXT ARGUMENTS...: the command ends with that status and exactly that line on standard error.
refuses() {
    local status=$1 text=$2 got
    shift 2
    got=$("$cotangent" "$@" 2>&1 >/dev/null)
    [ $? -eq "$status" ] || { echo "another exit status, and: $got" && return 1; }
    [ "$got" = "error: $text" ] || { echo "got:      $got" && echo "expected: error: $text" && return 1; }
}
same() { cmp "$1" "$2"; }
has() { grep -q -- "$2" "$1" || { echo "no '$2' in $1:" && head -c 2000 "$1" && return 1; }; }
lacks() { ! grep -q -- "$2" "$1" || { echo "'$2' is in $1" && return 1; }; }
# bad SED-COMMAND: tiny.yaml changed so, as bad.yaml.
bad() { sed "$1" tiny.yaml >bad.yaml; }

# stop SIGNAL FOLDER EVENT OPTIONS...: trains tiny.yaml until the log has that line, then sends the signal.
stop() {
    local signal=$1 folder=$2 event=$3
    shift 3
    # A signal that a script's background job ignores cannot be caught by what it starts, so SIGTERM stands for Ctrl-C.
    "$cotangent" train tiny.yaml --out "$folder" --json "$@" >"$folder.txt" 2>&1 &
    local job=$! tries=0
    until grep -q "$event" "$folder/log.jsonl" 2>/dev/null || [ $tries -gt 2000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    kill -"$signal" $job 2>/dev/null
    { wait $job; } 2>/dev/null
}
