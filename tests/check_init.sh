#!/usr/bin/env bash
# Trainings that begin with the weights of a file, all of them or those that fit, and leave some of them as they are.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

"$cotangent" train tiny.yaml --set init=first/best.safetensors --epochs 2 --out all >all.txt 2>&1
check "a training begins with the weights of another" has all.txt '^best: accuracy'
first_loss() { grep -m 1 '"event":"step"' "$1/log.jsonl" | sed 's/.*"loss":\([0-9.]*\).*/\1/'; }
check "and is better from the start" test "$(printf '%s < %s\n' "$(first_loss all)" "$(first_loss first)" | awk '{ print ($1 < $3) }')" = 1

# A network that is deeper than that of the file, its beginning frozen: 0, 4 and 8 are convolutions, 2, 6 and 10 their norms.
cat >tiny.yaml <<'YAML'
about: One stage more
model: {name: cnn, width: 4, stages: 3, depth: 0}
init: {file: first/best.safetensors, partial: true, freeze: ["0.*", "2.*"]}
data: {kind: shapes, count: 200, size: 16, validation: 0.3}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}
ema: 0.9
epochs: 2
batch: 20
seed: 7
YAML
"$cotangent" train tiny.yaml --out part >part.txt 2>&1
check "what fits is taken, and what does not is told" has part.txt '^note: init: 10 of 17 tensors are those of first/best.safetensors; random as before: 10.weight (is f32\[10,8\], the module.s is f32\[16\]), 10.bias (is f32\[10\], the module.s is f32\[16\]), 8.weight, 10.running_mean and 3 more$'
check "what is frozen is told" has part.txt '^note: frozen: [0-9]* of [0-9]* parameters$'
check "the report marks it" has part/report.html '<code>0.weight</code> (frozen)'

# same.py OTHER FILE NAME...: whether these tensors of a network are, byte for byte, those of another.
cat >same.py <<'PYTHON'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + length])
    at = lambda place: data[8 + length + place["data_offsets"][0] : 8 + length + place["data_offsets"][1]]
    return {name: at(place) for name, place in header.items() if name != "__metadata__"}
a, b = read(sys.argv[1]), read(sys.argv[2])
for name in sys.argv[3:]:
    wanted = not name.startswith("!")
    name = name.lstrip("!")
    assert (a["net." + name] == b["net." + name]) == wanted, name
PYTHON
if command -v python3 >/dev/null; then
    frozen="0.weight 2.weight 2.bias 2.running_mean 2.running_var"
    check "frozen parameters and the statistics of their norms stay" python3 same.py first/best.safetensors part/last.safetensors $frozen '!4.weight' '!6.running_mean' '!6.weight'
    check "in the best network as well" python3 same.py first/best.safetensors part/best.safetensors $frozen
    # The optimizer has no state for them.
    states() { python3 -c 'import sys; sys.argv[1:] = sys.argv[1:] * 2; exec(open("same.py").read()); print(sum(name.startswith("optim.") and "'"$2"'" in name for name in a))' "$1"; }
    check "the optimizer keeps nothing for what is frozen" test "$(states part/last.safetensors optim.0.weight.exp)" -eq 0
    check "and does for the rest" test "$(states part/last.safetensors optim.4.weight.exp)" -eq 2
else
    skip frozen "no python3"
fi

# It goes on as if it had not been stopped, also without the file.
stop TERM stopped '"step":13'
mv first/best.safetensors gone.safetensors
"$cotangent" train --resume --out stopped >stopped.more 2>&1
check "a run with frozen parts goes on to the same bytes, without the file" same part/last.safetensors stopped/last.safetensors
check "and is evaluated without it" "$cotangent" eval part/best.safetensors
mv gone.safetensors first/best.safetensors

# Names of the file that are others: everything below "0" is called "first" there, and the head is not wanted.
cat >renamed.py <<'PYTHON'
import json, struct
data = open("first/best.safetensors", "rb").read()
length = struct.unpack_from("<Q", data)[0]
header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
tensors, at, out = {}, 0, b""
for name, place in header.items():
    if not name.startswith("net."):
        continue
    name = name[4:].replace("0.weight", "first.weight") if name == "net.0.weight" else "old." + name[4:]
    begin, end = place["data_offsets"]
    tensors[name] = {**place, "data_offsets": [len(out), len(out) + end - begin]}
    out += body[begin:end]
text = json.dumps(tensors).encode()
open("renamed.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + out)
PYTHON
if command -v python3 >/dev/null; then
    python3 renamed.py
    sed 's/^init: .*/init: {file: renamed.safetensors, partial: true, freeze: ["0.*", "2.*"], rename: {"first.*": "0.*", "old.10.*": "", "old.*": "*"}}/' tiny.yaml >renamed.yaml
    "$cotangent" train renamed.yaml --epochs 1 --out renamed >renamed.txt 2>&1
    check "tensors are found under other names" has renamed.txt '^note: init: 10 of 17 tensors are those of renamed.safetensors; random as before: 8.weight, 10.weight, 10.bias, 10.running_mean and 3 more$'
    check "and taken" python3 same.py first/best.safetensors renamed/last.safetensors $frozen
fi

# How init is refused.
bad 's/freeze: .*/freeze: "head.*"}/'
check "a pattern that fits nothing" refuses 1 "bad.yaml:3: the pattern head.* fits none of the 11 parameters, of which the first is 0.weight" train bad.yaml --out never
bad 's/freeze: .*/freeze: "*"}/'
check "everything frozen" refuses 1 "bad.yaml:3: every parameter is frozen: there is nothing left to learn" train bad.yaml --out never
bad 's/partial: true, //'
check "a file that does not fit" refuses 1 "bad.yaml:3: load: first/best.safetensors: $("$cotangent" train bad.yaml --out never 2>&1 | sed 's/.*best.safetensors: //')" train bad.yaml --out never
check "says what does not" test "$("$cotangent" train bad.yaml --out never 2>&1 | grep -c '"net.10.weight" is f32.10,8., the module.s is f32.16.')" -eq 1
bad 's/init: .*/init: nothing.safetensors/'
check "a file that is not there" test "$("$cotangent" train bad.yaml --out never 2>&1 | grep -c '^error: bad.yaml:3: .*nothing.safetensors')" -eq 1
bad 's/partial: true/partal: true/'
check "a slip" refuses 1 "bad.yaml:3: init has no 'partal'; did you mean 'partial'?" train bad.yaml --out never
bad 's/init: .*/init: {partial: true}/'
check "no file" refuses 1 "bad.yaml:3: init needs a file, as in init: {file: weights.safetensors}" train bad.yaml --out never
bad 's/freeze: .*/freeze: [a, [b]]}/'
check "a list in the list" refuses 1 "bad.yaml:3: what is frozen is a pattern of parameters' names, as in \"features.*\"" train bad.yaml --out never
awk 'BEGIN { srand(1); print "a,y"; for (i = 0; i < 120; i++) { a = rand(); printf "%f,%f\n", a, 2 * a } }' >table.csv
check "a file that has nothing of the network's" test "$("$cotangent" train csv-regression --data table.csv --set 'init={file: first/best.safetensors, partial: true}' --out never 2>&1 | grep -c '^error: --set init={file: first/best.safetensors, partial: true}: load: first/best.safetensors: nothing in the state fits')" -eq 1
bad 's/partial: true/rename: {"a.*": [b]}/'
check "a new name that is none" refuses 1 "bad.yaml:3: a new name is a text, not this" train bad.yaml --out never
check "nothing is left of these" test ! -e never
finish
