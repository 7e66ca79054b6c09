# A little data of each kind that recipes read, made in the current folder, so that nothing has to be fetched; and what a run has to say of
# itself. Sourced by scripts that train every recipe in small.

pixels() { yes "$1 is $((${1} * 7919 % 1009))." 2>/dev/null | head -c "$2"; }
cifar() { # FIRST LAST
    local i
    for i in $(seq "$1" "$2"); do
        printf "\\x0$((i % 10))"
        pixels "$i" 3072
    done
}
mkdir cifar mnist images images/a images/b
for k in 1 2 3 4 5; do cifar $((k * 4)) $((k * 4 + 3)) >cifar/data_batch_$k.bin; done
cifar 40 47 >cifar/test_batch.bin

count() { printf "\\x00\\x00\\x00\\x$(printf %02x "$1")"; }
digits() { # NAME N
    local i
    { printf '\x00\x00\x08\x03' && count "$2" && count 28 && count 28 && for i in $(seq "$2"); do pixels "$i" 784; done; } >"mnist/$1-images-idx3-ubyte"
    { printf '\x00\x00\x08\x01' && count "$2" && for i in $(seq "$2"); do printf "\\x0$((i % 10))"; done; } >"mnist/$1-labels-idx1-ubyte"
}
digits train 24
digits t10k 8

awk 'BEGIN { srand(3); print "a,b,kind,size"; for (i = 0; i < 60; i++) { x = rand(); y = rand(); printf "%f,%f,%s,%f\n", x, y, (x > y ? "more" : "less"), x + 2 * y } }' >table.csv
cut -d, -f1-3 table.csv >kinds.csv
cut -d, -f1,2,4 table.csv >sizes.csv
times() { cat "$1" && for i in 1 2 3 4 5; do tail -n +2 "$1"; done; }
times kinds.csv >many.csv
times sizes.csv >more.csv
for i in $(seq 60); do echo "Line $i says what line $((i * 7 % 60)) said before."; done >text.txt
for i in 1 2 3; do
    cp "$source_dir/tests/files/rgb.png" images/a/$i.png
    cp "$source_dir/tests/files/turned_$((i * 2)).png" images/b/$i.png 2>/dev/null || cp "$source_dir/tests/files/filters.png" images/b/$i.png
done

# curve RUN: the losses of its steps and epochs.
curve() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),"loss":\([^,]*\).*/\1 \2/p; s/.*"valid_loss":\([^,}]*\).*/\1/p' "$1/log.jsonl"; }

# each_recipe COMMAND...: calls it with NAME RECIPE OPTIONS... for every recipe that the command has, at its smallest.
each_recipe() {
    "$@" shapes-cnn shapes-cnn --set data.count=60 --batch 12
    "$@" shapes-unet shapes-unet --set data.count=18 --set data.size=24 --batch 6
    "$@" fashion-mnist-cnn fashion-mnist-cnn --data mnist --batch 8
    "$@" fashion-mnist-mlp fashion-mnist-mlp --data mnist --batch 8
    "$@" mnist-lenet mnist-lenet --data mnist --batch 8
    "$@" cifar-resnet18 cifar-resnet18 --data cifar --batch 10
    "$@" cifar-mobilenet cifar-mobilenet --data cifar --batch 10
    "$@" cifar-vit cifar-vit --data cifar --batch 10
    "$@" csv-classification csv-classification --data kinds.csv --batch 12
    "$@" csv-regression csv-regression --data sizes.csv --batch 12
    "$@" char-lstm char-lstm --data text.txt --batch 8 --set model.hidden=24 --set data.limit=40
    "$@" gpt-divided gpt-divided --data text.txt --batch 8 --set model.layers=1 --set data.limit=40
    "$@" char-gpt char-gpt --data text.txt --batch 8 --set model.layers=2 --set data.limit=40
}
