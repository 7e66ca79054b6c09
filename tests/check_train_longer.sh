#!/usr/bin/env bash
# A run that is trained for more epochs, or fewer, than it was begun with.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

# The numbers of an epoch, without what the clock says.
epoch() { grep "\"event\":\"epoch\",\"epoch\":$2," "$1/log.jsonl" | sed 's/,"seconds.*//'; }
rate() { epoch "$1" "$2" | sed 's/.*"lr"://'; }
epochs() { grep -c '"event":"epoch"' "$1/log.jsonl"; }

# Without a schedule nothing depends on the number of epochs: a longer run is the same run.
constant="tiny.yaml --set schedule.name=constant"
"$cotangent" train $constant --epochs 5 --out five >five.txt 2>&1
"$cotangent" train $constant --epochs 2 --out two >two.txt 2>&1
"$cotangent" train --resume --out two --epochs +2 >two.more 2>&1
check "a finished run goes on for two more" test "$(epochs two)" -eq 4
check "and says so" has two.more '^note: 4 epochs in place of 2; the learning rate goes on'
"$cotangent" train --resume --out two --epochs 5 >two.again 2>&1
check "to five in all" test "$(epochs two)" -eq 5
for i in 3 4 5; do check "epoch $i is that of a run of five" test "$(epoch two $i)" = "$(epoch five $i)"; done
check "what was asked for is in the checkpoint" has two/report.html '^epochs: 5$'
check "the report has every command" test "$(grep -c '^cotangent train --resume --out two --epochs [45]\|<pre>cotangent train tiny.yaml --set' two/report.html)" -eq 3
"$cotangent" train --resume --out two >two.done 2>&1
check "after that there is nothing to do" test $? -eq 0 -a "$(epochs two)" -eq 5

# A schedule goes on where that of the new length is.
cosine="tiny.yaml --set schedule.name=cosine"
"$cotangent" train $cosine --epochs 2 --out short >short.txt 2>&1
"$cotangent" train $cosine --epochs 4 --out long >long.txt 2>&1
"$cotangent" train --resume --out short --epochs +2 >short.more 2>&1
check "the rates of the second half are those of a run that was as long from the start" test "$(rate short 3)-$(rate short 4)" = "$(rate long 3)-$(rate long 4)"
check "which are not those of its first half" test "$(rate short 1)" != "$(rate long 1)"

# Stopped in the middle, and then to go on for longer; killed and gone on with again.
stop TERM middle '"step":13'
"$cotangent" train tiny.yaml --resume --out middle --epochs +1 >middle.txt 2>&1
check "a run that was stopped can be made longer" test "$(epochs middle)" -eq 4
stop TERM fewer '"step":3' --epochs 100000
shorter=$(($(epochs fewer) + 2)) # it may have got further before the signal came
"$cotangent" train --resume --out fewer --epochs $shorter >fewer.txt 2>&1
check "and shorter" test "$(epochs fewer)" -eq $shorter
check "but not shorter than it is" refuses 2 "--epochs 2: the run in five has done 5 already" train --resume --out five --epochs 2

# Without --resume it is added to the recipe's.
"$cotangent" train tiny.yaml --epochs +1 --out added >added.txt 2>&1
check "--epochs +1 of a recipe" test "$(epochs added)" -eq 4
check "the report says how it was begun" has added/report.html '<pre>cotangent train tiny.yaml --epochs +1</pre>'

# A run that was stopped early gets a new chance, from where it ended.
"$cotangent" train tiny.yaml --epochs 50 --set early_stopping=2 --set schedule.name=constant --set optimizer.lr=1e-12 --out early >early.txt 2>&1
done=$(epochs early)
check "a run is stopped early" test "$done" -lt 50
"$cotangent" train --resume --out early >early.same 2>&1
check "by itself it does not go on" test "$(epochs early)" -eq "$done"
"$cotangent" train --resume --out early --epochs +1 >early.more 2>&1
check "but for one more epoch it does" test "$(epochs early)" -eq $((done + 1))
"$cotangent" train --resume --out early --epochs +20 >early.much 2>&1
check "and is stopped early again" test "$(epochs early)" -lt $((done + 21)) -a "$(epochs early)" -gt $((done + 1))

check "more epochs than there can be" refuses 2 "--epochs: that makes 1000003 epochs, and 1000000 are the most" train tiny.yaml --epochs +1000000 --out never
both="--epochs is either the number of all epochs or +N for so many more, not both"
check "epochs in all and more of them" refuses 2 "$both" train --resume --out five --epochs 10 --epochs +1
check "and without --resume" refuses 2 "$both" train tiny.yaml --epochs +1 --set epochs=10 --out never
check "no more epochs" refuses 2 "--epochs +N is a whole number from 1 to 1000000, not '+0'" train tiny.yaml --epochs +0 --out never
check "half an epoch more" refuses 2 "--epochs +N is a whole number from 1 to 1000000, not '+1.5'" train tiny.yaml --epochs +1.5 --out never
sed 's/one_cycle/constant/' tiny.yaml >constant.yaml
check "another number of epochs in the recipe is not taken for a wish" refuses 1 "the run in five was begun with another recipe: epochs was 5, and is 3 now; to go on with it leave the recipe away or say --epochs, to begin anew choose another --out" train constant.yaml --resume --out five
finish
