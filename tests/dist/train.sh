# `cotangent train` by several processes; sourced by tests/dist.sh, once for each MPI.

cotangent=$build_dir/bin/cotangent
cat >tiny.yaml <<'YAML'
about: Drawn shapes
model: {name: cnn, width: 4, stages: 2, depth: 0, dropout: 0.1}
data: {kind: shapes, count: 200, size: 16, validation: 0.3}
transforms:
  - {name: random_crop, height: 16, pad: 1}
  - flip
optimizer: {name: adamw, lr: 0.01}
schedule: {name: one_cycle}
ema: 0.9
metrics: [f1, auc]
epochs: 3
batch: 16
seed: 7
checkpoint_seconds: 0
YAML
awk 'BEGIN { srand(3); print "a,b,size"; for (i = 0; i < 200; i++) { x = rand(); y = rand(); printf "%f,%f,%f\n", x, y, x + 2 * y } }' >sizes.csv
for i in $(seq 60); do echo "Line $i says what line $((i * 7 % 60)) said before."; done >text.txt

# Each epoch is told once, whatever the number of processes, and there is one report.
told_once() { [ "$(tr '\r' '\n' <"$1.txt" | grep -c 'epoch  *1/.*train loss')" -eq 1 ] && [ -s "$1/report.html" ] && grep -q "<span>Processes</span><b>$2<" "$1/report.html" &&
    grep -q "a second, by $2 processes of [0-9]* thread" "$1/report.html" && grep -q '<span>Communication</span><b>[0-9.]* %<' "$1/report.html" && grep -q '<span>Imbalance</span><b>[0-9.]* %<' "$1/report.html"; }
losses() { sed -n 's/.*"event":"epoch".*"train_loss":\([^,]*\),.*"valid_loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl"; }
# A network without batch norm and dropout, and an optimizer that is linear in the gradient: the losses are those of one process, but for rounding.
near() { paste -d' ' <(losses "$1") <(losses "$2") | awk '{ for (i = 1; i <= 2; i++) { d = $i - $(i + 2); if (d < 0) d = -d; if (!(d <= 1e-4 * ($i < 0 ? -$i : $i))) bad = 1 } n++ } END { exit bad || !n }'; }
trains() { # NAME N ARGUMENTS...
    local name=$1.$mpi.$2 one=$1.one n=$2
    shift 2
    set -- "$@" --set 'optimizer={name: sgd, lr: 0.02, momentum: 0.9}'
    [ -d "$one" ] || "$cotangent" train "$@" --out "$one" >"$one.txt" 2>&1 || { cat "$one.txt" && return 1; }
    ranks "$n" "$cotangent" train "$@" --out "$name" >"$name.txt" 2>&1 || { cat "$name.txt" && return 1; }
    told_once "$name" "$n" && near "$one" "$name" || { paste <(losses "$one") <(losses "$name") && return 1; }
}
# The last and the best checkpoint have the bytes of one process's.
same_bytes() {
    [ -d exact ] || "$cotangent" train tiny.yaml --deterministic --out exact >exact.txt 2>&1 || { cat exact.txt && return 1; }
    ranks "$1" "$cotangent" train tiny.yaml --deterministic --out "exact.$mpi.$1" >"exact.$mpi.$1.txt" 2>&1 || { cat "exact.$mpi.$1.txt" && return 1; }
    cmp exact/last.safetensors "exact.$mpi.$1/last.safetensors" && cmp exact/best.safetensors "exact.$mpi.$1/best.safetensors"
}
# One of two processes is killed in the middle of many epochs; four go on, and end with the bytes of one that was left alone.
killed_and_resumed() {
    local tries=0 name=killed.$mpi long="--deterministic --epochs 60"
    # shellcheck disable=SC2086
    [ -d long ] || "$cotangent" train tiny.yaml $long --out long >long.txt 2>&1 || { cat long.txt && return 1; }
    # shellcheck disable=SC2086
    ranks 2 "$cotangent" train tiny.yaml $long --out "$name" >"$name.txt" 2>&1 &
    local job=$!
    until [ -e "$name/last.safetensors" ] || [ $tries -gt 2000 ]; do
        tries=$((tries + 1))
        sleep 0.01
    done
    local victim
    victim=$(pgrep -f -- "$cotangent train tiny.yaml $long --out $name\$" | tail -n 1)
    [ -z "$victim" ] || kill -KILL "$victim" 2>/dev/null
    { wait $job; } 2>/dev/null
    ranks 4 "$cotangent" train --resume --out "$name" >>"$name.txt" 2>&1 || { cat "$name.txt" && return 1; }
    cat "$name.txt"
    [ -n "$victim" ] && grep -q 'going on in .* after step' "$name.txt" && ! grep -q 'after step \([0-9]*\) of \1$' "$name.txt" &&
        cmp long/last.safetensors "$name/last.safetensors" && cmp long/best.safetensors "$name/best.safetensors"
}

# A GPT whose layers are cut and sharded learns as that of one process; its checkpoint is one of a whole network, that one process evaluates,
# and that goes on divided in another way.
divided() {
    local name=divided.$mpi.$1 told
    trains divided "$1" gpt-divided --data text.txt --batch 8 --epochs 2 --set model.layers=2 --set model.dim=16 --set model.heads=2 --set model.dropout=0 --set data.length=16 || return 1
    told=$(losses "$name" | tail -n 1 | cut -d' ' -f2)
    "$cotangent" eval "$name/last.safetensors" --json >"$name.json" 2>&1 || { cat "$name.json" && return 1; }
    sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$name.json" | awk -v told="$told" '{ d = $1 - told } END { exit !(NR == 1 && d < 1e-5 && d > -1e-5) }' || { cat "$name.json" && return 1; }
    ranks 2 "$cotangent" train --resume --out "$name" --epochs +1 --set distributed.tensor=1 >"$name.txt" 2>&1 && "$cotangent" train --resume --out "$name" --epochs +1 >>"$name.txt" 2>&1 &&
        ranks "$1" "$cotangent" train --resume --out "$name" --epochs +1 --set distributed.tensor=2 --set distributed.shard=1 >>"$name.txt" 2>&1
    cat "$name.txt"
    [ "$(grep -c 'going on in .* after step' "$name.txt")" -eq 3 ] && [ "$(losses "$name" | wc -l)" -eq 5 ] &&
        grep -q "; layers are cut among 2; the optimizer's state is divided among $(($1 / 2))" "$name.txt"
}

# Four processes that divide the optimizer's state of any network end with the bytes of one that has all of it, and so do two that go on without.
# A checkpoint tells the commands that made it, so all write to a folder of one name.
state_divided() {
    local more="train --resume --epochs +1 --set distributed.shard=0 --out run" same="train ../tiny.yaml --deterministic --set distributed.shard=1 --out run"
    mkdir -p "state.$mpi"
    # shellcheck disable=SC2086
    [ -d state ] || { mkdir state && (cd state && "$cotangent" $same && cp -r run first && "$cotangent" $more) >state.txt 2>&1; } || { cat state.txt && return 1; }
    # shellcheck disable=SC2086
    (cd "state.$mpi" && ranks 4 "$cotangent" $same && cp -r run first && ranks 2 "$cotangent" $more) >"state.$mpi.txt" 2>&1 || { cat "state.$mpi.txt" && return 1; }
    for file in first/last first/best run/last run/best; do cmp "state/$file.safetensors" "state.$mpi/$file.safetensors" || return 1; done
}

# A recipe of its own by one, two and four processes: the same bytes. NAME ARGUMENTS...
same_recipe() {
    local name=$1 n
    shift
    for n in 1 2 4; do
        mkdir -p "same.$mpi/$name.$n"
        (cd "same.$mpi/$name.$n" && if [ "$n" -eq 1 ]; then "$cotangent" train "$@" --deterministic --out run; else ranks "$n" "$cotangent" train "$@" --deterministic --out run; fi) >same.txt 2>&1 || { cat same.txt && return 1; }
        cmp "same.$mpi/$name.1/run/last.safetensors" "same.$mpi/$name.$n/run/last.safetensors" && cmp "same.$mpi/$name.1/run/best.safetensors" "same.$mpi/$name.$n/run/best.safetensors" || return 1
    done
}

# One of two processes was given another recipe, other data, or goes on from another step.
told_by_first() { # TEXT ARGUMENTS...: what is wrong on all ranks is told once
    local text=$1 recovery=yes
    shift
    ranks 3 "$cotangent" train "$@" --out wrong >"wrong.$mpi.txt" 2>&1
    cat "wrong.$mpi.txt"
    [ "$(grep -c 'error: ' "wrong.$mpi.txt")" -eq 1 ] && grep -q "^rank 0: error: .*$text" "wrong.$mpi.txt"
}
disagrees() { # TEXT ARGUMENTS...
    local text=$1 recovery=yes
    shift
    cat >odd.sh <<END
[ "\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" = 0 ] || set -- "\$@" $*
exec "$cotangent" train tiny.yaml --out odd.\$\$ "\$@"
END
    ranks 2 sh odd.sh >"odd.$mpi.txt" 2>&1
    cat "odd.$mpi.txt"
    [ "$(grep -c ': error: ' "odd.$mpi.txt")" -eq 2 ] && grep -q '^rank 0: error: rank 1 could not begin' "odd.$mpi.txt" && grep -q "^rank 1: error: $text" "odd.$mpi.txt"
}
other_step() { # each machine has a folder of that name of its own, from another save
    local recovery=yes rank
    for rank in 0 1; do
        rm -rf "step.$rank" && mkdir "step.$rank" && (cd "step.$rank" && "$cotangent" train ../tiny.yaml --out run >/dev/null) || return 1
    done
    (cd step.0 && "$cotangent" train --resume --epochs 4 --out run >/dev/null) || return 1
    # shellcheck disable=SC2016
    ranks 2 sh -c 'cd step.${OMPI_COMM_WORLD_RANK:-$PMI_RANK} && exec "$0" train --resume --epochs 5 --out run' "$cotangent" >"step.$mpi.txt" 2>&1
    cat "step.$mpi.txt"
    [ "$(grep -c 'error: ranks disagree: steps done: 36 on rank 1, and 48 on rank 0' "step.$mpi.txt")" -eq 2 ]
}

train_checks() {
    if ! grep -q 'CT_HEADER_JANSSON.*=1' "$build_dir/CMakeCache.txt" || ! grep -q 'CT_HEADER_LIBYAML.*=1' "$build_dir/CMakeCache.txt"; then
        skip "$mpi: cotangent train" "this build has no libyaml or no jansson"
        return
    fi
    for n in 2 4; do
        check "$mpi: a classification by $n processes" trains shapes $n tiny.yaml --set model=mlp --set ema=0
        check "$mpi: the same bytes by $n processes" same_bytes $n
    done
    check "$mpi: batch norm over all processes" trains normed 3 tiny.yaml --set 'model={name: cnn, width: 4, stages: 2, depth: 0, dropout: 0}' --set ema=0 --set distributed.sync_batch_norm=true
    check "$mpi: a batch that three processes cannot divide evenly" trains shapes 3 tiny.yaml --set model=mlp --set ema=0
    check "$mpi: a process with another recipe" disagrees 'ranks disagree about the recipe: optimizer is .*lr: 0.03.* on rank 1, and .*lr: 0.01.* on rank 0' --lr 0.03
    check "$mpi: a recipe that is not there" told_by_first "there is no recipe 'nothing.yaml'" nothing.yaml
    check "$mpi: more processes than items of a batch" told_by_first 'a batch of 2 items cannot be cut into 3 parts' tiny.yaml --batch 2
    check "$mpi: processes that do not divide into those of a layer" told_by_first 'tensor is 2, and 3 processes are no multiple of it' gpt-divided --data text.txt
    check "$mpi: a process that goes on from another step" other_step
    check "$mpi: a regression by 2 processes" trains sizes 2 csv-regression --data sizes.csv --batch 16 --epochs 2
    check "$mpi: a language model by 2 processes" trains text 2 char-gpt --data text.txt --batch 8 --epochs 2 --set model.layers=1 --set model.dim=16 --set model.heads=2 --set model.dropout=0 --set data.length=16
    check "$mpi: a divided language model by 4 processes" divided 4
    check "$mpi: a divided optimizer's state has the same bytes" state_divided
    local small=$PWD/tiny.yaml
    check "$mpi: the same bytes of a language model" same_recipe gpt char-gpt --data "$PWD/text.txt" --batch 8 --epochs 2 --set model.layers=1 --set model.dim=16 --set model.heads=2 --set data.length=16
    check "$mpi: the same bytes of batch norm, dropout and clipping" same_recipe norm "$small" --set 'model={name: cnn, width: 4, stages: 2, depth: 1, dropout: 0.2}' --set clip_norm=0.3
    check "$mpi: the same bytes in f16, with shards that are not as large" same_recipe half "$small" --set precision=f16 --batch 22
    check "$mpi: the same bytes of bf16 and captured steps, if they were" same_recipe captured "$small" --set precision=bf16 --capture true
    check "$mpi: a run goes on with another number of processes" killed_and_resumed
}
