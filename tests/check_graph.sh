#!/usr/bin/env bash
# Drawings of captured steps: a box for each thing that a replay does, lines between them, and how the command refuses.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cotangent=$build_dir/bin/cotangent
cd "$work" || exit 1

cat >tiny.yaml <<'YAML'
about: Two & three
model: {name: mlp, width: 8, depth: 2}
data: {kind: shapes, count: 60, size: 12, validation: 0.2}
optimizer: {name: adamw, lr: 0.01}
epochs: 1
batch: 10
seed: 3
YAML
# An element of SVG that is opened is closed, and each text stands in one.
well_formed() {
    python3 - "$1" <<'PYTHON'
import sys, xml.dom.minidom
xml.dom.minidom.parse(sys.argv[1])
PYTHON
}
count() { grep -c -e "$1" "$2"; }

check "a step is drawn as SVG" "$cotangent" graph tiny.yaml --out step.svg
if command -v python3 >/dev/null; then check "which is XML" well_formed step.svg; else skip "which is XML" "there is no python3"; fi
check "and as DOT, by the name of the file" "$cotangent" graph tiny.yaml --out step.dot
check "which begins as DOT does" grep -q '^digraph step {$' step.dot
boxes=$(count '<rect' step.svg)
check "both have a box for each step" test "$boxes" -eq "$(count '^  s[0-9]* \[label' step.dot)"
check "the title tells how many they are" grep -q ">tiny: $boxes steps, [0-9]* bytes of its own<" step.svg
check "and as many lines" test "$(count '^<path' step.svg)" -eq "$(count "->" step.dot)"
check "no line goes up" awk '/->/ { sub("s", "", $1); sub("s", "", $3); if ($1 + 0 >= $3 + 0) exit 1 }' step.dot
for op in linear relu class_nll optim_adam; do check "the step has $op" grep -q "label=\"[a-z_]*$op" step.dot; done
check "what the mouse shows: kernel, shapes, memory" grep -q 'reads f32\[10,144\], memory [0-9]* of 5760 bytes' step.svg
check "weights are changed" grep -q 'class="lasting"' step.svg
"$cotangent" graph tiny.yaml --dot >printed.dot
check "without a file it is printed" cmp printed.dot step.dot
"$cotangent" graph tiny.yaml --dot --passes none >recorded.dot
check "as recorded there is more" test "$(count label recorded.dot)" -gt "$(count label step.dot)"

"$cotangent" graph tiny.yaml --dot --passes none --set accumulate=2 >parts.dot
losses() { grep -c '\[label="class_nll[ "\\]' "$1"; }
check "a batch in two parts has two losses" test "$(losses parts.dot)" -eq 2
check "of which there is one otherwise" test "$(losses recorded.dot)" -eq 1

# refuses TEXT ARGUMENTS...: exit status 2 and that on standard error.
refuses() {
    local text=$1
    shift
    "$cotangent" graph "$@" >out 2>err
    [ $? -eq 2 ] && grep -qF "$text" err || { cat err && return 1; }
}
check "no recipe" refuses "needs a recipe"
check "two recipes" refuses "one recipe at a time" a b
check "an unknown option" refuses "did you mean --out?" tiny.yaml --outt x
check "an unknown pass" refuses "there is no pass named nosuch" tiny.yaml --passes nosuch
check "a recipe that is not there fails" bash -c "! '$cotangent' graph nosuch >out 2>err && grep -q nosuch err"
finish
