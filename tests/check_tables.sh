#!/usr/bin/env bash
# Tables from the shell: what `cotangent predict` prints of them, and how a table that cannot be learned from is refused.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

# Three classes that the columns decide, one with a separator in its name.
awk 'BEGIN {
    srand(3)
    print "height,color,kind"
    for (i = 0; i < 200; i++) {
        a = rand(); c = rand() < 0.5 ? "red" : "blue"
        printf "%f,%s,%s\n", a, c, (a > 0.5 ? "tall" : c == "red" ? "\"small, red\"" : "\"the \"\"small\"\" one\"")
    }
}' >kinds.csv
"$cotangent" train csv-classification --data kinds.csv --out kinds --epochs 20 >kinds.txt 2>&1
"$cotangent" predict kinds/best.safetensors kinds.csv >predicted.csv 2>predicted.err
check "predict prints a line for each row, and one of names" test "$(wc -l <predicted.csv)" -eq 201
check "the names are those of the target and its classes" test "$(head -n 1 predicted.csv)" = 'predicted_kind,"probability_small, red",probability_tall,"probability_the ""small"" one"'
cut -d, -f1,2 kinds.csv >unlabeled.csv
"$cotangent" predict kinds/best.safetensors unlabeled.csv >unlabeled.out 2>&1
check "the target's column may be absent" same predicted.csv unlabeled.out
awk 'NR == 1 { print $0 ",kind"; next } { print $0 "," }' unlabeled.csv >blank.csv
"$cotangent" predict kinds/best.safetensors blank.csv >blank.out 2>&1
check "or empty" same predicted.csv blank.out
# What eval counts as right is what predict says, row by row.
cat >agree.py <<'PYTHON'
import csv, json, math, sys
truth = [row["kind"] for row in csv.DictReader(open("kinds.csv"))]
said = list(csv.DictReader(open("predicted.csv")))
right = sum(a == b["predicted_kind"] for a, b in zip(truth, said))
accuracy = json.loads(sys.argv[1])["accuracy"]
assert len(truth) == len(said) and abs(right / len(truth) - accuracy) < 1e-9, (right, accuracy)
for row in said:
    values = {name[12:]: float(value) for name, value in row.items() if name != "predicted_kind"}
    assert math.isclose(sum(values.values()), 1, abs_tol=1e-5), values
    assert max(values, key=values.get) == row["predicted_kind"], row
lines = [json.loads(line) for line in open("predicted.json")]
assert [line["predicted"] for line in lines] == [row["predicted_kind"] for row in said]
assert [line["row"] for line in lines] == list(range(1, len(said) + 1))
assert all(line["probabilities"].keys() == lines[0]["probabilities"].keys() for line in lines)
PYTHON
if command -v python3 >/dev/null; then
    "$cotangent" predict kinds/best.safetensors unlabeled.csv --json >predicted.json 2>&1
    check "predictions are what eval counts" python3 agree.py "$("$cotangent" eval kinds/best.safetensors --data kinds.csv --json)"
    # A number beyond what the network computes with.
    { head -n 1 unlabeled.csv && echo '3e38,red'; } >huge.csv
    "$cotangent" predict kinds/best.safetensors huge.csv --json >huge.json 2>&1
    check "probabilities that are no numbers are null" python3 -c 'import json; line = json.loads(open("huge.json").read(), parse_constant=int); assert None in line["probabilities"].values()'
else
    skip agree "no python3"
fi
"$cotangent" predict kinds/best.safetensors nothing.csv unlabeled.csv kinds.csv >several.out 2>several.err
check "several tables have one line of names" test "$(grep -c predicted_ several.out)-$(wc -l <several.out)" = 1-401
check "one that cannot be read is named" has several.err '^error: .*nothing.csv'

# A class that is neither there nor said has no figures: those that are right of one class are the whole table here.
paste -d'|' kinds.csv predicted.csv | awk -F'|' 'NR == 1 || ($1 ~ /,tall$/ && $2 ~ /^tall,/) { print $1 }' >tall.csv
"$cotangent" eval kinds/best.safetensors --data tall.csv >tall.txt 2>&1
check "eval has a dash for a class that occurs nowhere" test "$(grep -c '^small, red  *-  *-  *-  *0$' tall.txt)" -eq 1
check "and figures for one that does" has tall.txt '^tall  *100.00 %  *100.00 %  *100.00 %  *[1-9]'
# One row of a class that looks like the others of another, and is trained on.
awk 'NR == 2 { print "0.75,red,rare" } { print }' kinds.csv >rare.csv
"$cotangent" train csv-classification --data rare.csv --out rare --epochs 20 >rare.txt 2>&1
check "so has the report" has rare/report.html '<tr><td>rare</td><td>–</td><td>–</td><td>–</td><td class="extra"><span class="bar"><i style="width:0.0%"></i></span></td><td>0</td></tr>'

# Columns by number, another separator, and a number to predict.
awk 'BEGIN { srand(1); for (i = 0; i < 150; i++) { a = rand(); b = rand(); printf "%f;%f;%f\n", 3 * a - 2 * b + 1, a, b } }' >numbers.txt
"$cotangent" train csv-regression --data numbers.txt --set data.header=false --set 'data.separator=";"' --set data.target=0 --out numbers --epochs 40 >numbers.out 2>&1
"$cotangent" predict numbers/best.safetensors numbers.txt >with.out 2>&1
cut -d';' -f2,3 numbers.txt >bare.txt
"$cotangent" predict numbers/best.safetensors bare.txt >without.out 2>&1
check "a table without names is answered by one without names" test "$(wc -l <with.out)" -eq 150
check "the first column may be the absent one" same with.out without.out
near() { # the root of the mean squared error is what eval says
    local rmse
    rmse=$("$cotangent" eval numbers/best.safetensors --data numbers.txt | sed -n 's/^rmse *//p' | head -n 1)
    paste -d';' with.out numbers.txt | awk -F';' -v rmse="$rmse" '{ e = $1 - $2; s += e * e } END { r = sqrt(s / NR); exit !(r > 0 && (r - rmse) / r < 1e-3 && (rmse - r) / r < 1e-3) }'
}
check "the numbers are in the units of the table" near

# How a table is refused.
{ head -n 3 unlabeled.csv && echo ',red'; } >missing.csv
check "a value that is missing" refuses 1 "dataset_csv: missing.csv, line 4, column height: the value is missing" predict kinds/best.safetensors missing.csv
{ head -n 2 unlabeled.csv && echo '0.1,green'; } >green.csv
check "a category that is new" refuses 1 "dataset_csv: green.csv, line 3, column color: 'green' is not one of the 2 categories that are known" predict kinds/best.safetensors green.csv
cut -d, -f1 unlabeled.csv >narrow.csv
check "a column that is missing" refuses 1 "dataset_csv: narrow.csv: has no column color; the dataset that it is to be like has one" predict kinds/best.safetensors narrow.csv
check "--top of a table" refuses 1 "--top is for images; of a table every class is printed" predict kinds/best.safetensors kinds.csv --top 2
check "--max-pixels of a table" refuses 1 "--max-pixels is for images; this network is for tables" predict kinds/best.safetensors kinds.csv --max-pixels 9
check "predict without files" refuses 2 "'cotangent predict' needs a checkpoint and files; --help says more" predict kinds/best.safetensors
awk 'NR == 1 || /tall/' kinds.csv >one.csv
check "a table with one class" refuses 1 "one.csv: the column kind holds 'tall' in every row: there is nothing to tell apart; data.target names another column" train csv-classification --data one.csv --out one
check "leaves nothing behind" test ! -e one
finish
