#!/usr/bin/env bash
# `cotangent train`, `eval`, `predict` and `generate`: what they print, what they write, going on after a stop, and how they refuse.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

# What a run leaves behind.
for file in best.safetensors last.safetensors log.jsonl report.html; do check "a run writes $file" test -s first/$file; done
check "a run writes events for TensorBoard" test -n "$(ls first | grep '^events.out.tfevents')"
check "an epoch is a line without a terminal" has first.txt '^epoch  3/3  train loss'
check "the end says where the report is" has first.txt '^report: first/report.html'
check "the log has three epochs" test "$(grep -c '"event":"epoch"' first/log.jsonl)" -eq 3
check "the log has the figures of the recipe" has first/log.jsonl '"metric_f1":'
for part in 'Training report' 'What is taken for what' 'first layer' '<svg' 'Parameters' 'random_crop' '--set'; do
    [ "$part" = --set ] || check "the report shows $part" has first/report.html "$part"
done
check "the report needs nothing from elsewhere" lacks first/report.html 'src="http\|href="http\|<script'

# The same again: at another number of threads, stopped and resumed, killed and resumed.
"$cotangent" train tiny.yaml --out second --threads 2 >second.txt 2>&1
check "the same bytes at another number of threads" same first/last.safetensors second/last.safetensors
check "the same best network at another number of threads" same first/best.safetensors second/best.safetensors

stop TERM third '"step":13'
status=$?
# A fast machine may be done before the signal arrives.
check "a stopped run ends with status 130" test $status -eq 130 -o $status -eq 0
"$cotangent" train --resume --out third >third.more 2>&1
check "a stopped run goes on to the same bytes" same first/last.safetensors third/last.safetensors
check "and to the same best network" same first/best.safetensors third/best.safetensors
check "its log has every epoch once" test "$(grep -c '"event":"epoch"' third/log.jsonl)" -eq 3
stop KILL fourth '"step":14'
"$cotangent" train tiny.yaml --resume --out fourth >fourth.more 2>&1
check "a killed run goes on to the same bytes" same first/last.safetensors fourth/last.safetensors
check "a finished run can be resumed: it has nothing to do" "$cotangent" train --resume --out first

if [ "$("$cotangent" info | sed -n 's/^isa *//p')" != base ]; then
    cp -r first moved
    CT_ISA=base "$cotangent" train --resume --out moved >moved.txt 2>&1
    check "other vector instructions are said to be others" has moved.txt '^note: written under .*, this is base'
fi

# Killed twenty times at any moment, with a checkpoint after every step.
often="tiny.yaml --epochs 12 --set checkpoint_seconds=0"
began=$(date +%s%N)
"$cotangent" train $often --out whole >whole.txt 2>&1
third=$((($(date +%s%N) - began) / 3000000 + 1)) # of the time that all of it takes, in milliseconds
kills=0
while [ $kills -lt 20 ]; do
    resume=
    [ ! -s torn/last.safetensors ] || resume=--resume
    # The moments are spread over what a start and some steps take, on this machine.
    moment=$((RANDOM % third + 1))
    timeout -s KILL "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))" "$cotangent" train $often --out torn $resume >torn.txt 2>&1
    status=$?
    kills=$((kills + 1))
    [ $status -eq 137 ] || [ $status -eq 0 ] || { cat torn.txt && break; }
done 2>/dev/null
check "a run can be killed at any moment" test $kills -eq 20
resume=
[ ! -s torn/last.safetensors ] || resume=--resume
"$cotangent" train $often --out torn $resume >torn.txt 2>&1
check "and goes on to the same bytes" same whole/last.safetensors torn/last.safetensors
check "and to the same best network again" same whole/best.safetensors torn/best.safetensors
check "its log has every epoch once as well" test "$(grep -o '"event":"epoch","epoch":[0-9]*' torn/log.jsonl | sort | uniq -c | grep -c ' 1 "')" -eq 12 -a "$(grep -c '"event":"epoch"' torn/log.jsonl)" -eq 12
check "the report says how the run was begun, also after a resume" has torn/report.html '<pre>cotangent train tiny.yaml --set epochs=12 --set checkpoint_seconds=0</pre>'

# --json is for machines.
if command -v python3 >/dev/null; then
    "$cotangent" train tiny.yaml --out fifth --epochs 1 --json >fifth.txt 2>&1
    check "--json prints a JSON object a line" python3 -c 'import json; [json.loads(line) for line in open("fifth.txt")]'
    check "log.jsonl holds a JSON object a line" python3 -c 'import json; [json.loads(line) for line in open("first/log.jsonl")]'
else
    skip json "no python3"
fi

# The records of the event file: lengths and checksums (CRC-32C, masked) hold, and TensorBoard itself reads it where it is installed.
cat >records.py <<'PYTHON'
import glob, struct, sys
def masked(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return (crc >> 15 | crc << 17) + 0xa282ead8 & 0xffffffff
data, at, count = open(sorted(glob.glob(sys.argv[1] + "/events*"))[0], "rb").read(), 0, 0
while at < len(data):
    length, check = struct.unpack_from("<QI", data, at)
    assert check == masked(data[at : at + 8]), "length"
    assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(data[at + 12 : at + 12 + length]), "event"
    at, count = at + 16 + length, count + 1
assert at == len(data) and count > 30, count
PYTHON
cat >board.py <<'PYTHON'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "images": 0})
events.Reload()
assert [e.step for e in events.Scalars("loss/valid")] == [10, 20, 30]
assert events.Images("filters")[0].width > 0
assert events.Tensors("recipe")
PYTHON
if command -v python3 >/dev/null; then
    check "the records of the event file are sound" python3 records.py first
    if python3 -c 'import tensorboard' 2>/dev/null; then check "TensorBoard reads them" python3 board.py first; else skip tensorboard "not installed"; fi
else
    skip records "no python3"
fi

# Half precision, and stopping early.
for precision in bf16 f16; do
    "$cotangent" train tiny.yaml --set precision=$precision --out $precision >$precision.txt 2>&1
    check "trains in $precision" has $precision.txt '^best: accuracy'
    check "a network in $precision is read again" "$cotangent" eval $precision/best.safetensors
done
"$cotangent" train tiny.yaml --epochs 50 --set early_stopping=1 --set schedule.name=plateau --set optimizer.lr=1e-12 --out early >early.txt 2>&1
check "a run that gets no better stops early" test "$(grep -c '"event":"epoch"' early/log.jsonl)" -lt 50
check "and is not called unfinished" lacks early/report.html 'Not finished'

# A log that says more than the checkpoint knows, and ends in the middle of a line.
printf '{"event":"step","epoch":4,"step":31,"loss":1,"lr":1}\n{"event":"epoch","epoch":4,"step":30,"valid_loss":1}\n{"event":"ep' >>second/log.jsonl
check "a log with more than the checkpoint knows" "$cotangent" train --resume --out second
check "loses what is beyond it" test "$(grep -c '"event":"epoch"' second/log.jsonl)" -eq 3

# One process a folder, and no other folder in its place.
"$cotangent" train tiny.yaml --epochs 100000 --out busy >busy.txt 2>&1 &
job=$!
until [ -s busy/last.safetensors ]; do sleep 0.01; done
check "two processes in one folder" refuses 1 "busy: another process is training in this folder" train --resume --out busy
mv busy gone
wait $job
check "a run whose folder is taken away fails" test $? -eq 1
check "and names it" has busy.txt '^error: .*busy' # gone, or not to be written to when it goes during a checkpoint

# Small sets: a warm-up of more steps than there are is cut.
"$cotangent" train tiny.yaml --epochs 1 --set data.count=20 --set schedule.name=cosine --set schedule.warmup=0.1 --out small >small.txt 2>&1
check "a run of one step with a warm-up" has small.txt '^best: accuracy'
"$cotangent" train tiny.yaml --epochs 1 --set schedule.name=cosine --set schedule.warmup=500 --out cut >cut.txt 2>&1
check "a warm-up that is too long is cut, and that is said" has cut.txt '^note: the warm-up is cut to 9, since there are 10 steps in all'
check "so is a class of which there is nothing" has small.txt '^note: there is nothing to train on of '

# A recipe that fails in its first step leaves nothing in the way of a better one.
check "a loss that does not fit" test "$("$cotangent" train tiny.yaml --set loss=mse_loss --out mended 2>&1 >/dev/null | grep -c mse_loss)" -eq 1
check "its folder can be used again" "$cotangent" train tiny.yaml --epochs 1 --out mended

# Standard output that cannot be written.
if [ -w /dev/full ]; then
    for command in "train tiny.yaml --epochs 1 --json --out full" "eval first/best.safetensors" "train --list"; do
        check "'$command' on a full disk" test "$("$cotangent" $command 2>&1 >/dev/full; echo $?)" = "error: not everything could be written to standard output
1"
    done
fi

# Runs are numbered where no folder is named; two at once get two numbers.
"$cotangent" train tiny.yaml --epochs 1 >numbered.txt 2>&1 &
"$cotangent" train tiny.yaml --epochs 1 >>numbered.txt 2>&1
wait
check "the first run is number 1" test -s runs/tiny-1/report.html
check "the second run is number 2" test -s runs/tiny-2/report.html

# How recipes are refused.
bad 's/^epochs:/epoch:/'
check "an unknown key" refuses 1 "bad.yaml:11: a recipe has no key 'epoch'; did you mean 'epochs'?" train bad.yaml
bad 's/name: cnn/name: cnm/'
check "an unknown model" refuses 1 "bad.yaml:2: there is no model 'cnm'; did you mean 'cnn'?" train bad.yaml
bad 's/width: 4/widht: 4/'
check "an unknown setting" refuses 1 "bad.yaml:2: the model cnn has no setting 'widht'; did you mean 'width'?" train bad.yaml
bad 's/width: 4/width: four/'
check "a setting that is no number" refuses 1 "bad.yaml:2: width of cnn is a whole number, not four" train bad.yaml
bad 's/name: cnn.*/name: mlp, width: 9223372036854775807}/'
check "a setting that no size can be" refuses 1 "bad.yaml:2: width of mlp is a whole number of at most 2^53, not 9223372036854775807" train bad.yaml
bad 's/name: cnn.*/name: mlp, width: 10000000000}/'
check "a setting that no network can have" refuses 1 "bad.yaml:2: model_build: mlp: width is 1e+10; it has to be at most 1e9" train bad.yaml
bad 's/width: 4/width: 0.5/'
check "half a channel" refuses 1 "bad.yaml:2: width of cnn is a whole number, not 0.5" train bad.yaml
bad 's/width: 4/width: true/'
check "true channels" refuses 1 "bad.yaml:2: width of cnn is a whole number, not true" train bad.yaml
bad 's/pad: 1/pad: 1.5/'
check "a pixel and a half" refuses 1 "bad.yaml:5: pad of random_crop is a whole number, not 1.5" train bad.yaml
bad 's/lr: 0.01/lr: 0.01, amsgrad: 2/'
check "a flag of 2" refuses 1 "bad.yaml:7: amsgrad of adamw is true or false, not 2" train bad.yaml
bad 's/one_cycle/cosine, warmup: 1.5/'
check "a step and a half" refuses 1 "bad.yaml:8: warmup of cosine is a whole number, or below 1 a part of all steps, not 1.5" train bad.yaml
bad 's/^epochs:.*/epochs: 2.5/'
check "half an epoch" refuses 1 "bad.yaml:11: epochs is a whole number from 1 to 1000000, not 2.5" train bad.yaml
bad 's/size: 16/size: 5/'
check "images too small for a shape" refuses 1 "bad.yaml:3: dataset_shapes: size is 5; expected 12 to 4096" train bad.yaml
for separator in ab '""' é; do
    check "a separator of $separator" refuses 2 "--set data={kind: csv, separator: $separator}: separator is one character, neither a quote nor a line end, not $separator" train tiny.yaml --set "data={kind: csv, separator: $separator}"
done
bad 's/width: 4/width: 4, classes: 12/'
check "classes that the data has not" refuses 1 "bad.yaml:2: classes of cnn is 12, and by the data it is 10" train bad.yaml
check "a group that learns at no rate" refuses 2 "--set groups=[{pattern: x, lr: 0}]: lr is a number above 0, not 0" train tiny.yaml --set 'groups=[{pattern: x, lr: 0}]'
check "a metric twice" refuses 2 "--set metrics=[f1, f1]: the metric 'f1' stands here twice" train tiny.yaml --set 'metrics=[f1, f1]'
bad 's/width: 4/width: 0/'
check "a setting out of range" refuses 1 "bad.yaml:2: cnn: width is from 1 to 4096, not 0" train bad.yaml
bad 's/- flip/- flap/'
check "an unknown transform" refuses 1 "bad.yaml:6: there is no transform 'flap'; did you mean 'flip'?" train bad.yaml
bad 's/adamw/admw/'
check "an unknown optimizer" refuses 1 "bad.yaml:7: there is no optimizer 'admw'; did you mean 'adamw'?" train bad.yaml
bad 's/one_cycle/onecycle/'
check "an unknown schedule" refuses 1 "bad.yaml:8: there is no schedule 'onecycle'; did you mean 'one_cycle'?" train bad.yaml
bad 's/kind: shapes/kind: shape/'
check "an unknown kind of data" refuses 1 "bad.yaml:3: there is no kind of data 'shape'; did you mean 'shapes'?" train bad.yaml
bad 's/count: 200/path: x/'
check "a key that this kind of data has not" refuses 1 "bad.yaml:3: data of kind shapes has no 'path'; there are validation, limit, count, size" train bad.yaml
bad 's/batch: 20/batch: 0/'
check "a batch of nothing" refuses 1 "bad.yaml:12: batch is a whole number from 1 to 16777216, not 0" train bad.yaml
bad 's/f1, top5/f2/'
check "an unknown metric" refuses 1 "bad.yaml:10: there is no metric 'f2'; did you mean 'f1'?" train bad.yaml
bad 's/^seed:.*/loss: cross_entropy_los/'
check "an unknown loss" refuses 1 "bad.yaml:13: there is no loss 'cross_entropy_los'; did you mean 'cross_entropy_loss'?" train bad.yaml
bad 's/^ema.*/seed: [1/'
check "not YAML" refuses 1 "bad.yaml:10: this is not YAML: did not find expected ',' or ']'" train bad.yaml
check "an unknown recipe" refuses 2 "there is no recipe 'fashion-mnist-cn', nor a file of that name; did you mean 'fashion-mnist-cnn'?" train fashion-mnist-cn
check "--set of an unknown key" refuses 2 "--set modl.width=3: a recipe has no key 'modl'; did you mean 'model'?" train tiny.yaml --set modl.width=3
check "--set of a bad value" refuses 2 "--set batch=x: batch is a whole number from 1 to 16777216, not x" train tiny.yaml --batch x
check "--lr of a bad value" refuses 2 "--set optimizer.lr=-1: adamw: lr is -1; it has to be above 0" train tiny.yaml --lr -1
check "--set into a number" refuses 2 "--set epochs.x=5: epochs is a whole number from 1 to 1000000, not {name: 3, x: 5}" train tiny.yaml --set epochs.x=5
check "--set without a value" refuses 2 "--set model: this is not of the form key=value" train tiny.yaml --set model
check "--set of half a path" refuses 2 "--set model.=1: 'model.' is not a path of keys with dots between them" train tiny.yaml --set model.=1
check "--set of what is not YAML" refuses 2 "--set optimizer={name: sgd: this is not YAML: did not find expected ',' or '}'" train tiny.yaml --set 'optimizer={name: sgd'
bad 's/f1, top5/mae/'
check "a metric of another task" refuses 1 "bad.yaml:10: the metric mae is not for a task of classification" train bad.yaml
check "numbers for other channels" refuses 2 "--set normalize={mean: [0, 0], std: [1, 1]}: normalize has 2 numbers and the data 1 channels" train tiny.yaml --set 'normalize={mean: [0, 0], std: [1, 1]}'
check "no items at all" refuses 1 "tiny: 0 items to train on and 1 to validate on are too few" train tiny.yaml --set data.count=0
check "a device's number" refuses 2 "--device cpu:x: 'cpu:x' is not a device: a name such as cpu or cuda, or with a number, cuda:1" train tiny.yaml --device cpu:x
check "--out of nothing" refuses 2 "--out needs a value" train tiny.yaml --out ''
check "--resume of nothing" refuses 2 "--resume without a recipe needs --out FOLDER, that of the run" train --resume
check "--show without a name" refuses 2 "'--show' is used as: cotangent train --show RECIPE" train --show
check "--list of something" refuses 2 "'--list' is used as: cotangent train --list" train --list x
check "data that is not there" refuses 1 "csv-regression: where is the data? --data FILE says so" train csv-regression
check "nothing is left of a run that could not begin" test ! -e runs/csv-regression-1
check "an unknown option" refuses 2 "'cotangent train' has no option --epoch; did you mean --epochs?" train tiny.yaml --epoch
check "a folder that holds a run" refuses 1 "first already holds a run; --resume goes on with it, and another --out begins a new one" train tiny.yaml --out first
check "another recipe on --resume" refuses 1 "the run in first was begun with another recipe: optimizer was {name: adamw, lr: 0.01}, and is {name: adamw, lr: 0.5} now; to go on with it leave the recipe away, to begin anew choose another --out" train tiny.yaml --lr 0.5 --out first --resume
check "a device that is not there" test "$("$cotangent" train tiny.yaml --device cuda 2>&1 | head -c 22)" = 'error: --device cuda: '

# eval, predict and generate.
"$cotangent" eval first/best.safetensors >eval.txt 2>&1
check "eval prints the accuracy" has eval.txt '^accuracy  *[0-9.]* %'
check "eval finds what the training found" test "$(sed -n 's/^accuracy *//p' eval.txt)" = "$(sed -n 's/^best: accuracy \(.*\) in.*/\1/p' first.txt)"
head -c 3000 first/best.safetensors >torn.safetensors
check "a torn checkpoint is refused" test "$("$cotangent" eval torn.safetensors >/dev/null 2>&1; echo $?)" -eq 1
cp first/best.safetensors bent.safetensors
printf '\xff\xff\xff' | dd of=bent.safetensors bs=1 seek=$(($(stat -c %s bent.safetensors) - 9)) conv=notrunc 2>/dev/null
check "a changed checkpoint is refused" test "$("$cotangent" eval bent.safetensors >/dev/null 2>&1; echo $?)" -eq 1
# Checkpoints that are whole but say what cannot be: bend.py FROM TO NAME INDEX VALUE changes a number, and the checksum with it.
cat >bend.py <<'PYTHON'
import json, struct, sys
source, target, name, index, value = sys.argv[1:]
data = bytearray(open(source, "rb").read())
length = struct.unpack_from("<Q", data)[0]
place = json.loads(data[8 : 8 + length])[name]
form, read = ("<d", float) if place["dtype"] == "F64" else ("<q", int)
struct.pack_into(form, data, 8 + length + place["data_offsets"][0] + 8 * int(index), read(value))
at = data.index(b'crc64":"') + 8
data[at : at + 16] = b"0" * 16
crc = 2**64 - 1
for byte in data:
    crc ^= byte
    for _ in range(8):
        crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
data[at : at + 16] = b"%016x" % (crc ^ 2**64 - 1)
open(target, "wb").write(data)
PYTHON
if command -v python3 >/dev/null; then
    mkdir bent
    bends() { # WHAT NUMBER NAME INDEX VALUE
        python3 bend.py first/last.safetensors bent/last.safetensors "$2" "$3" "$4"
        check "a checkpoint with another $1" refuses 1 "bent/last.safetensors: the checkpoint $5" train --resume --out bent
    }
    bends epoch run.counters 0 1000000000 "contradicts itself"
    bends "epoch below 0" run.counters 0 -1 "contradicts itself"
    bends step run.counters 1 -1 "contradicts itself"
    bends "count of items" extra.progress 3 nan "contradicts itself"
    bends "best epoch" extra.counts 0 7 "contradicts itself"
    bends form extra.form 0 4 "is of the form 4, and this program knows 3"
    # Killed after an epoch was written down, with a checkpoint of its last step only: it is evaluated again, and written once.
    cp -r second open
    python3 bend.py second/last.safetensors half.safetensors run.counters 0 2
    python3 bend.py half.safetensors open/last.safetensors extra.counts 0 1
    check "a run that was killed between log and checkpoint" "$cotangent" train --resume --out open
    check "has every epoch once in its log" test "$(grep -o '"event":"epoch","epoch":[0-9]*' open/log.jsonl | sort -u | wc -l)-$(grep -c '"event":"epoch"' open/log.jsonl)" = 3-3
    for value in -9223372036854775808 9223372036854775807 0; do
        python3 bend.py first/best.safetensors bent/best.safetensors extra.facts 3 $value
        check "a checkpoint of items of size $value" refuses 1 "bent/best.safetensors: the checkpoint contradicts itself" eval bent/best.safetensors
    done
fi
check "generate wants a language model" refuses 1 "first/best.safetensors: this is not a language model but a classification" generate first/best.safetensors

# A picture out of the report.
grep -o 'base64,[^"]*' first/report.html | head -n 1 | cut -d, -f2 | base64 -d >picture.png
if "$cotangent" predict first/best.safetensors picture.png >predict.txt 2>&1; then
    check "predict prints three classes" test "$(grep -c ' %  ' predict.txt)" -eq 3
    check "predict refuses more pixels than it may read" refuses 1 "image: picture.png: 16 x 16 pixels are more than the 3 that max_pixels allows" predict first/best.safetensors picture.png --max-pixels 3
    check "predict --top 1 --json prints one" test "$("$cotangent" predict first/best.safetensors picture.png --top 1 --json | grep -o '"label"' | wc -l)" -eq 1
elif grep -q libpng predict.txt; then
    skip predict "$(cat predict.txt)"
else
    check "predict reads a picture" cat predict.txt
    check "predict reads a picture" false
fi

# Folders of images with names that a folder may have and a page or a terminal should not.
if [ -s predict.txt ] && ! grep -q libpng predict.txt; then
    long=$(printf 'x%.0s' $(seq 78))
    for name in "${long}é" $'bad\xff' $'two\nlines' $'esc\e[31m'; do
        mkdir -p "folder/$name"
        for i in 1 2 3; do cp picture.png "folder/$name/$i.png"; done
    done
    mkdir folder/none
    "$cotangent" train image-folder --data folder --out folders --epochs 1 --batch 8 --set data.size=16 --set transforms=[] --set 'model={name: cnn, width: 4, stages: 2}' >folders.txt 2>&1
    check "an image folder with few images and odd names" has folders.txt '^best: accuracy'
    check "an empty class is said, with its folder" has folders.txt '^note: no PNG or JPEG files are in folder/none, so nothing is learned of that class$'
    check "and once" test "$(grep -c '^note:' folders.txt)" -eq 1
    mkdir -p single && cp -r folder/none single && mkdir single/one && cp picture.png single/one/1.png && cp picture.png single/one/2.png
    rm -r single/none
    check "a folder with one class" refuses 1 "single: there is only one class, one: nothing to tell apart" train image-folder --data single --out single.run
    "$cotangent" eval folders/best.safetensors >folders.eval 2>&1
    "$cotangent" predict folders/best.safetensors picture.png --top 9 >folders.predict 2>&1
    "$cotangent" predict folders/best.safetensors picture.png --top 9 --json >folders.json 2>&1
    for file in folders.eval folders.predict folders.json folders/report.html; do
        check "$file is UTF-8" iconv -f UTF-8 -t UTF-8 $file
        check "$file has no control characters" lacks $file $'[\x01-\x08\x0b-\x1f]'
    done
    mkdir -p other/a other/none && cp picture.png other/a/1.png && cp picture.png other/a/2.png
    check "other classes" refuses 1 "other: the data has 2 classes and the network 5; class 0 is a in the data and $(sed -n '/^class /{n;s/ .*//p}' folders.eval) in the network" eval folders/best.safetensors --data other
    check "class names are not shifted" has folders.eval '^two.*lines '
fi
check "predict names a file that is not there" test "$("$cotangent" predict first/best.safetensors nothing.png 2>&1 | grep -c nothing.png)" -ge 1

for i in $(seq 60); do echo "the cat sat on the mat and the dog sat on the log. "; done >text.txt
"$cotangent" train char-lstm --data text.txt --out text --epochs 6 --batch 8 --lr 0.02 --set model.dim=16 --set model.hidden=32 --set data.length=32 >text.out 2>&1
check "a language model is trained" has text.out '^best: perplexity'
check "its report shows what it writes" has text/report.html 'What it writes'
"$cotangent" generate text/best.safetensors --prompt 'the ' --tokens 20 --seed 3 >a.txt 2>&1
"$cotangent" generate text/best.safetensors --prompt 'the ' --tokens 20 --seed 3 >b.txt 2>&1
check "generate goes on from the prompt" test "$(head -c 4 a.txt)" = 'the ' -a "$(wc -c <a.txt)" -eq 25
check "generate gives the same for the same seed" same a.txt b.txt
check "a character that the text never had" test "$("$cotangent" generate text/best.safetensors --prompt 'Z' 2>&1 | head -c 25)" = 'error: vocabulary_encode:'
for i in $(seq 40); do echo "the Zebra"; done >zebra.txt
check "nor has a text to evaluate on: the file is named" test "$("$cotangent" eval text/best.safetensors --data zebra.txt 2>&1 | grep -c "^error: zebra.txt: .*'Z'")" -eq 1
# A recurrent network remembers: text that goes on from text of its own is the same as text in one go.
go_on() { "$cotangent" generate text/best.safetensors --prompt "$1" --tokens "$2" --temperature 0; }
check "what a network remembers is what it has read" test "$(go_on "$(go_on 'the ' 30)" 30)" = "$(go_on 'the ' 60)"
# A transformer keeps keys and values: the same text as without them, also past the length that it was trained on.
"$cotangent" train char-gpt --data text.txt --out gpt --epochs 3 --batch 8 --set data.length=32 --set 'model={name: gpt, dim: 24, layers: 2, heads: 3}' >gpt.out 2>&1
write() { "$cotangent" generate gpt/best.safetensors --tokens 80 "$@"; }
for how in "--temperature 0" "--temperature 0.7 --seed 5" "--temperature 1 --top-k 4 --seed 6"; do
    write --prompt 'the ' $how >a.txt 2>&1
    write --prompt 'the ' $how --no-cache >b.txt 2>&1
    check "with the cache and without, the same text: $how" test "$(wc -c <a.txt)" -eq 85 -a "$(cat a.txt)" = "$(cat b.txt)"
done
long=$(head -c 100 text.txt | tr -d '\n')
check "a prompt longer than the context" test "$(write --prompt "$long" --temperature 0)" = "$(write --prompt "$long" --temperature 0 --no-cache)"
"$cotangent" train char-lstm --data text.txt --out bytes --epochs 1 --batch 8 --set data.bytes=true --set model.dim=16 --set model.hidden=32 --set data.length=32 >bytes.out 2>&1
check "the report of a network of bytes is UTF-8" iconv -f UTF-8 -t UTF-8 bytes/report.html
check "and has no control characters" lacks bytes/report.html $'[\x01-\x08\x0e-\x1f]'

awk 'BEGIN { srand(1); print "a,b,y"; for (i = 0; i < 120; i++) { a = rand(); b = rand(); printf "%f,%f,%f\n", a, b, 3 * a - 2 * b + 1 } }' >table.csv
"$cotangent" train csv-regression --data table.csv --out table --epochs 5 >table.out 2>&1
check "a regression is trained" has table.out '^best: rmse'
check "its report shows predicted against true" has table/report.html 'Predicted and true'
marked() { grep -o '>[a-z, ]*epoch [0-9]*: [^<]*</text>' "$1" | grep -o 'epoch [0-9]*' | sort -u | wc -l; }
check "both curves mark the same epoch" test "$(marked table/report.html)" -eq 1
awk 'BEGIN { srand(1); print "a,y"; for (i = 0; i < 120; i++) { a = rand(); printf "%f,%f\n", a, 300000 * a + 20000 * rand() } }' >prices.csv
"$cotangent" train csv-regression --data prices.csv --out prices --epochs 3 >prices.out 2>&1
check "large numbers are written in full in the report" lacks prices/report.html '>[^<]*[0-9]e+[0-9][^<]*<'
check "and on the terminal" lacks prices.out 'e+0'
check "eval reads another table" "$cotangent" eval table/best.safetensors --data table.csv --json

"$cotangent" train csv-classification --data table.csv --out many --epochs 1 >many.out 2>&1
check "a class for each row is wondered at" has many.out '^note: the target has .* classes; where it is a number, data.regression=true predicts that'

# Categories have the numbers of the training set, whatever the other table has.
awk 'BEGIN { srand(1); print "color,b,y"; for (i = 0; i < 120; i++) { a = rand() < 0.5; b = rand(); printf "%s,%f,%f\n", a ? "red" : "green", b, 10 * a - 2 * b } }' >colors.csv
"$cotangent" train csv-regression --data colors.csv --out colors --epochs 25 >colors.out 2>&1
grep 'color\|red' colors.csv >reds.csv
check "a table with some of the categories" test "$("$cotangent" eval colors/best.safetensors --data reds.csv | sed -n 's/^rmse *\([0-9]\).*/\1/p')" = 0
sed 's/green/blue/' colors.csv >blues.csv
line=$(grep -n -m 1 blue blues.csv | cut -d: -f1)
check "a category that is new" refuses 1 "dataset_csv: blues.csv, line $line, column color: 'blue' is not one of the 2 categories that are known" eval colors/best.safetensors --data blues.csv
cut -d, -f1,3 colors.csv >without.csv
check "a column that is missing" refuses 1 "dataset_csv: without.csv: has no column b; the dataset that it is to be like has one" eval colors/best.safetensors --data without.csv
cp blues.csv colors.csv
check "a table that has changed under a run" test "$("$cotangent" train --resume --out colors 2>&1 | grep -c "'blue' is not one of")" -eq 1

check "every recipe that ships is listed" test "$("$cotangent" train --list | wc -l)" -ge 12
check "--describe names the settings of a model" test "$("$cotangent" train --describe cnn | grep -c width)" -ge 1
for model in resnet18 resnet50 vgg11 mobilenet_v2; do check "$model has a width" test "$("$cotangent" train --describe $model | grep -c '^ *width ')" -eq 1; done
# Of 64, 128, 256 and 512 channels a sixteenth: the last layer, of ten classes, has 32 weights for each.
for model in resnet18 vgg11; do
    "$cotangent" train tiny.yaml --epochs 1 --set data.count=40 --set data.size=32 --set 'transforms=[]' --set "model={name: $model, width: 0.0625}" --out $model >$model.txt 2>&1
    "$cotangent" inspect $model/best.safetensors >$model.txt 2>&1
    check "a recipe may set that of $model" has $model.txt '^net\.[a-z.0-9]*\.weight .*\[10,32\]'
done
check "the manual page is there" test -s "$source_dir/docs/man/cotangent.1"
for command in train eval predict generate; do
    for option in $("$cotangent" $command --help | grep -o -- '--[a-z][a-z-]*' | sort -u); do
        check "it has $option, of $command" grep -q -- "${option//-/\\\\-}\b" "$source_dir/docs/man/cotangent.1"
    done
done
completes() {
    PATH=$build_dir/bin:$PATH bash -c '. "$0"; COMP_WORDS=(cotangent "$@"); COMP_CWORD=$#; _cotangent; echo "${COMPREPLY[*]}"' "$source_dir/tools/completion/cotangent.bash" "$@"
}
check "bash completes commands" test "$(completes pre)" = predict
check "bash completes recipes" test "$(completes train fashion-mnist-c)" = fashion-mnist-cnn
check "bash completes options" test "$(completes train tiny.yaml --ep)" = --epochs
check "the completion for bash is sound" bash -n "$source_dir/tools/completion/cotangent.bash"
finish
