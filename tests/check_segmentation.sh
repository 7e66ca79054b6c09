#!/usr/bin/env bash
# Segmentation from the shell: a small U-Net on drawn shapes with masks is trained, resumed, evaluated, and writes masks.
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"

cat >tiny.yaml <<'YAML'
about: Pixels
model: {name: unet, levels: 2, base: 8}
data: {kind: shape_masks, count: 400, size: 16, validation: 0.2}
transforms:
  - flip
  - {name: random_crop, height: 16, pad: 1}
optimizer: {name: adamw, lr: 0.02}
schedule: {name: one_cycle}
metrics: [accuracy, f1, iou]
epochs: 4
batch: 20
seed: 7
YAML
"$cotangent" train tiny.yaml --out pixels >pixels.txt 2>&1
check "a segmentation is trained" has pixels.txt '^best: iou'
value() { grep "\"event\":\"epoch\",\"epoch\":$1," pixels/log.jsonl | sed "s/.*\"$2\":\([0-9.e+-]*\).*/\1/"; }
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }
# Saying background everywhere is right for most pixels, and overlaps with one class of six: an IoU below 1 / 6.
check "it learns more than the background" above "$(value 4 valid_iou)" 0.2
check "the training's overlap is near that of the validation" above 0.15 "$(awk -v a="$(value 4 train_iou)" -v b="$(value 4 valid_iou)" 'BEGIN { print a > b ? a - b : b - a }')"
check "the score is the metric of that name" test "$(value 4 valid_iou)" = "$(value 4 metric_iou)"
for part in 'What it sees' 'of the pixels are right' 'Mean IoU' '<th>IoU</th>' '<th>Pixels</th>' 'background'; do
    check "the report shows $part" has pixels/report.html "$part"
done
stop TERM stopped '"step":33'
"$cotangent" train --resume --out stopped >stopped.more 2>&1
check "a stopped run goes on to the same bytes" same pixels/last.safetensors stopped/last.safetensors
"$cotangent" eval pixels/best.safetensors >eval.txt 2>&1
check "eval finds what the training found" test "$(sed -n 's/^iou *\([0-9.]* %\)/\1/p' eval.txt)" = "$(sed -n 's/^best: iou \(.*\) in.*/\1/p' pixels.txt)"
check "eval tells the overlap of each class" has eval.txt '^class  *precision  *recall  *iou  *pixels'
check "eval counts every pixel" test "$(awk '/^class/ { on = 1; next } on { n += $NF } END { print n }' eval.txt)" -eq $((80 * 16 * 16))

# The first picture of the report is an image, the third what the network says of it.
picture() { grep -o 'base64,[^"]*' pixels/report.html | sed -n "$1p" | cut -d, -f2 | base64 -d; }
picture 1 >image.png
picture 3 >said.png
mkdir masks
if "$cotangent" predict pixels/best.safetensors image.png --out masks >predict.txt 2>&1; then
    check "predict writes the classes in colors, as the report does" same said.png masks/image-colors.png
    check "and as numbers" test -s masks/image-mask.png
    check "it prints the shares of the classes" has predict.txt '^  *[0-9.]* %  background'
    cat >numbers.py <<'PYTHON'
import struct, sys, zlib
def pixels(path):
    data, at, raw, size = open(path, "rb").read(), 8, b"", None
    while at < len(data):
        n, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR": size = struct.unpack_from(">IIBB", data, at + 8)
        if kind == b"IDAT": raw += data[at + 8 : at + 8 + n]
        at += 12 + n
    width, height, depth, color = size
    assert depth == 8
    each = {0: 1, 2: 3}[color]
    raw, rows, before = zlib.decompress(raw), [], [0] * (width * each)
    for y in range(height):  # the five filters of PNG
        line = raw[y * (width * each + 1) : (y + 1) * (width * each + 1)]
        row = []
        for x, byte in enumerate(line[1:]):
            a, b = row[x - each] if x >= each else 0, before[x]
            c = before[x - each] if x >= each else 0
            p = a + b - c
            near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row.append((byte + [0, a, b, (a + b) // 2, near][line[0]]) % 256)
        rows.append(row)
        before = row
    return width, height, [tuple(row[i : i + each]) for row in rows for i in range(0, len(row), each)]
numbers, colors = pixels(sys.argv[1]), pixels(sys.argv[2])
assert numbers[:2] == colors[:2] == (int(sys.argv[3]), int(sys.argv[3])), numbers[:2]
assert all(number[0] < 6 for number in numbers[2])
assert len(set(zip(numbers[2], colors[2]))) == len(set(numbers[2])) == len(set(colors[2]))  # a color for each number
PYTHON
    if command -v python3 >/dev/null; then
        check "numbers and colors say the same" python3 numbers.py masks/image-mask.png masks/image-colors.png 16
        "$cotangent" predict pixels/best.safetensors image.png --out masks --json >predict.json 2>&1
        check "--json prints shares that make the whole" python3 -c 'import json; line = json.load(open("predict.json")); assert abs(sum(c["share"] for c in line["classes"]) - 1) < 1e-5 and line["mask"] == "masks/image-mask.png"'
    fi
    # An image of another size gets a mask of its own size.
    "$cotangent" train tiny.yaml --set data.size=32 --set 'transforms=[]' --epochs 1 --set data.count=60 --out larger >larger.txt 2>&1
    grep -o 'base64,[^"]*' larger/report.html | sed -n 1p | cut -d, -f2 | base64 -d >large.png
    "$cotangent" predict pixels/best.safetensors large.png >large.txt 2>&1
    ! command -v python3 >/dev/null || check "a mask is as large as its image" python3 numbers.py large-mask.png large-colors.png 32
    mkdir other && cp image.png other/image.png
    check "two images of one name" refuses 1 "image.png and other/image.png would have the same mask, image-mask.png" predict pixels/best.safetensors image.png other/image.png
    cp image.png image-mask.png
    for input in image-mask.png ./image-mask.png image-colors.png; do # there or not
        check "a mask in the place of an image, $input" refuses 1 "$input would be replaced by what is said of image.png; --out names another folder" predict pixels/best.safetensors image.png $input
    done
    check "which stays as it is" same image.png image-mask.png
    check "in another folder it is none" "$cotangent" predict pixels/best.safetensors image.png image-mask.png --out masks
    check "a folder that is not there is named" test "$("$cotangent" predict pixels/best.safetensors image.png --out nowhere 2>&1 | grep -c 'nowhere/image-mask.png')" -eq 1
elif grep -q libpng predict.txt; then
    skip predict "$(cat predict.txt)"
else
    check "predict writes a mask" cat predict.txt
    check "predict writes a mask" false
fi

# What does not go together.
bad 's/name: unet.*/name: cnn}/'
check "a model for images and data for pixels" refuses 1 "bad.yaml:2: the model cnn gives a class for each item and the data has one for each pixel" train bad.yaml --out never
bad 's/kind: shape_masks/kind: shapes/'
check "a model for pixels and data for images" refuses 1 "bad.yaml:2: the model unet gives a class for each pixel and the data has one for each item" train bad.yaml --out never
bad 's/- flip/- {name: rotate, degrees: 10}/'
check "a transform that leaves masks behind" refuses 1 "bad.yaml:5: the transform rotate would leave the classes of the pixels behind" train bad.yaml --out never
bad 's/accuracy, f1, iou/auc/'
check "a metric of another task" refuses 1 "bad.yaml:9: the metric auc is not for a task of segmentation" train bad.yaml --out never
bad 's/size: 16/size: 18/; s/height: 16/height: 18/'
check "a size that cannot be halved" test "$("$cotangent" train bad.yaml --out never 2>&1 | grep -c 'nn_unet: an image of 18 x 18 cannot be halved 2 times; its sides have to be multiples of 4')" -eq 1
check "--out for a network without masks" refuses 1 "--out is for masks; this network is for a task of classification" predict first/best.safetensors image.png --out masks
finish
