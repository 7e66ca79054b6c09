#!/usr/bin/env bash
# Several processes under mpirun, of Open MPI and of MPICH: `make test-dist`. What cannot be had here is skipped, by name and with the reason.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

tests=$build_dir/tests
export CT_BACKEND_PATH=$tests:$build_dir/lib CT_DIST_TIMEOUT=20
cd "$work" || exit 1

# ranks N COMMAND...: by the launcher of $mpi. There may be fewer processors than ranks, and CI may run as root.
ranks() {
    local n=$1
    shift
    export RANKS=$n
    case $mpi in
    openmpi)
        env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 2 "${limit:-120}" mpirun.openmpi --oversubscribe --bind-to none --quiet \
            -x CT_BACKEND_PATH -x CT_DIST_TIMEOUT -x RANKS ${recovery:+--enable-recovery} -n "$n" "$@"
        ;;
    mpich) timeout -k 2 "${limit:-120}" mpirun.mpich ${recovery:+-disable-auto-cleanup} -n "$n" "$@" ;;
    esac
}

# Every one of the ranks says the text: all but `silent`.
tells() {
    local n=$1 silent=$2 what=$3 text=$4 r
    CT_DIST_TIMEOUT=3 ranks "$n" "$tests/dist_faults" "$what" >"told.$mpi.$what" 2>&1
    cat "told.$mpi.$what"
    for r in $(seq 0 $((n - 1))); do
        [ "$r" = "$silent" ] || grep -E "^rank $r: .*$text" "told.$mpi.$what" || return 1
    done
}

# by PROGRAM N: it says at its end by how many ranks it ran.
by() { ranks "$2" "$tests/dist_$1" >"out.$mpi.$2" 2>&1 || { cat "out.$mpi.$2" && return 1; } && grep -q "^$2 ranks" "out.$mpi.$2"; }
# The bits of every loss and of the running statistics are those of one process.
same_losses() {
    ranks "$1" "$tests/dist_parallel" losses >"losses.$mpi.$1" 2>&1
    [ "$(grep -c shard "losses.$mpi.$1")" -eq 24 ] && diff losses.1 "losses.$mpi.$1"
}

# A GPT by four processes, its matrices cut in CUT parts and each of these divided among the rest, learns as one process does.
gpt() {
    "$build_dir/examples/10_gpt_many" "$source_dir/README.md" 10 >gpt.1 && ranks 4 "$build_dir/examples/10_gpt_many" "$source_dir/README.md" 10 "$1" >gpt.4 2>&1
    cat gpt.1 gpt.4
    awk '{ for (i = 1; i < NF; i++) if ($i == "loss") loss[NR] = $(i + 1) } END { d = loss[1] - loss[2]; exit !(NR == 2 && loss[1] > 0 && d < 1e-3 && d > -1e-3) }' gpt.1 gpt.4
}

ends_the_job() { # of itself, long before the time limit of the ranks
    local began=$SECONDS
    ! ranks 4 "$tests/dist_faults" "$1" && [ $((SECONDS - began)) -lt 15 ]
}

# All ranks end long before their time limit. Open MPI's launcher may wait for ever after a death at that moment, with no rank left.
killed_on_its_way() {
    local limit=15 began=$SECONDS launcher gone=no
    ranks 4 "$tests/dist_faults" init &
    launcher=$!
    sleep 1
    while kill -0 $launcher 2>/dev/null && [ $gone = no ] && [ $((SECONDS - began)) -lt 12 ]; do
        sleep 0.2
        # shellcheck disable=SC2010 # of processes that have ended nothing is there to be read
        ls -l /proc/[0-9]*/exe 2>/dev/null | grep -q "$tests/dist_faults" || gone=yes
    done
    ! wait $launcher && { [ $gone = yes ] || [ $((SECONDS - began)) -lt 12 ]; }
}

checkpoints() {
    mkdir -p "saved.$mpi.$1"
    ranks "$1" "$tests/dist_checkpoint" "saved.$mpi.$1" >"out.$mpi.$1" 2>&1 || { cat "out.$mpi.$1" && return 1; } && grep -q "^$1 ranks" "out.$mpi.$1"
}
# The checkpoint before it stays, and goes on with another number of ranks.
killed_in_save() {
    mkdir -p "torn.$mpi"
    ! ranks 4 "$tests/dist_checkpoint" "torn.$mpi" kill && ls "torn.$mpi" && [ -n "$(find "torn.$mpi" -name '*.tmp-*')" ] &&
        ranks 2 "$tests/dist_checkpoint" "torn.$mpi" after
}

# owns_mpi PROGRAM: of tests/dist/owner.
owns_mpi() {
    "mpicc.$mpi" "$source_dir/tests/dist/owner/$1.c" -I"$source_dir/include" -I"$build_dir/generated/include" -L"$build_dir/lib" -lcotangent -Wl,-rpath,"$build_dir/lib" -o "$1.$mpi" &&
        ranks 3 "$PWD/$1.$mpi" && ranks 3 "$PWD/$1.$mpi" | grep -q '^3 ranks'
}

. "$source_dir/tests/dist/train.sh"
. "$source_dir/tests/dist/hosts.sh"

# A rank that is not there in time: the others do not wait in MPI_Init for ever.
late() {
    local r
    CT_DIST_TIMEOUT=3 ranks 4 "$tests/dist_faults" late >"told.$mpi.late" 2>&1
    cat "told.$mpi.late"
    for r in 0 1 2; do
        grep "dist_init: rank $r waits in MPI_Init: not all ranks of 4 have come to it within 3 s" "told.$mpi.late" || return 1
    done
}

faults() {
    local recovery=yes # the launcher would end the others before they can tell
    check "$mpi: other shapes" tells 4 none shape 'dist_all_reduce: ranks disagree: ranks 0, 1 and 2 call all_reduce \(sum\) of f32\[3,4\], call 1; rank 3 calls all_reduce \(sum\) of f32\[3,5\], call 1'
    check "$mpi: other dtypes" tells 2 none dtype 'ranks disagree: rank 0 calls all_reduce \(sum\) of f32\[2\], call 1; rank 1 calls all_reduce \(sum\) of f64\[2\]'
    check "$mpi: another op" tells 2 none op 'ranks disagree: rank 0 calls all_reduce \(sum\) of f32\[3,4\], call 1; rank 1 calls all_gather of f32\[3,4\]'
    check "$mpi: another step" tells 2 none order 'ranks disagree: rank 0 calls broadcast from rank 0 of f32\[3,4\], call 1; rank 1 calls all_reduce'
    check "$mpi: a rank that ends early" tells 4 none end 'ranks disagree: ranks 0, 1 and 2 call all_reduce \(sum\) of f32\[7\], call 1; rank 3 calls end, call 1'
    check "$mpi: a message of another shape" tells 2 none message 'ranks disagree: .*rank 0 calls send to rank 1 of f32\[3,4\]'
    check "$mpi: two ranks that wait for each other" tells 2 none deadlock 'dist_receive: receive from rank [01] of f32\[3,4\]: rank [01] waits in receive from rank [01] of f32\[3,4\] instead'
    check "$mpi: a call that has begun" tells 2 none begun 'ranks disagree: rank 0 calls all_reduce \(sum\) of f32\[5\], call 2; rank 1 calls all_reduce \(sum\) of f32\[2\], call 2'
    check "$mpi: calls while a rank is slow to say what it calls" tells 2 none meanwhile 'ranks disagree: rank 0 calls all_reduce \(sum\) of f32\[5\], call 1; rank 1 calls all_reduce \(sum\) of f32\[2\], call 1'
    check "$mpi: another network" tells 2 none network "ranks disagree: rank 0 calls broadcast from rank 0 of '1.weight', f32\\[2,4\\], call 3; rank 1 calls broadcast from rank 0 of '1.weight', f32\\[5,4\\]"
    check "$mpi: a rank that hangs in a step" tells 2 1 layer "dist_all_reduce: all_reduce \\(sum\\) of '1.bias to 0.weight', f32\\[30\\], call 5: rank 1 has not come to it within 3 s"
    check "$mpi: a rank that hangs" tells 4 3 sleep 'dist_all_reduce: all_reduce \(sum\) of f32\[3,4\], call 1: rank 3 has not come to it within 3 s, and does not answer'
    check "$mpi: a rank that hangs before it joins" late
    # MPICH's launcher does not outlive this
    [ $mpi = mpich ] || check "$mpi: a rank that is killed" tells 4 3 kill 'dist_all_reduce: all_reduce \(sum\) of f32\[3,4\], call 1: rank 3 has not come to it within 3 s, and does not answer'
}

check "one process needs no MPI" env RANKS=1 "$tests/dist_collectives"
refuses_timeout() { ! env CT_DIST_TIMEOUT="$1" "$tests/dist_collectives" >timeout.txt && grep -q "dist_init: CT_DIST_TIMEOUT is '$1'; expected seconds, more than 0" timeout.txt; }
check "a time limit that is no number" refuses_timeout abc
check "a time limit with something behind it" refuses_timeout 5abc
check "a time limit below zero" refuses_timeout -2
check "data parallel training by one process" "$tests/dist_parallel"
check "sharded parameters of one process" "$tests/dist_sharded"
check "tensor parallel layers of one process" "$tests/dist_tensor"
mkdir -p saved && check "checkpoints of one process" "$tests/dist_checkpoint" saved
"$tests/dist_parallel" losses >losses.1
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null; then
        skip "$mpi" "there is no mpirun.$mpi"
        continue
    elif [ ! -e "$build_dir/lib/libcotangent_mpi_$mpi.so" ]; then
        skip "$mpi" "its header was not there when this was built"
        continue
    fi
    for n in 2 4; do
        check "$mpi: every collective by $n ranks" by collectives $n
        check "$mpi: data parallel training by $n ranks" by parallel $n
        check "$mpi: sharded parameters by $n ranks" by sharded $n
        check "$mpi: tensor parallel layers by $n ranks" by tensor $n
        check "$mpi: the same bits by $n ranks" same_losses $n
        check "$mpi: checkpoints by $n ranks" checkpoints $n
    done
    if [ -e "$build_dir/lib/libcotangent.so" ] && command -v "mpicc.$mpi" >/dev/null; then
        check "$mpi: a program that has initialized MPI itself" owns_mpi owner
        check "$mpi: a rank that comes after it was given up" owns_mpi late
    else
        skip "$mpi: a program that has initialized MPI itself" "there is no mpicc.$mpi, or no shared library"
    fi
    check "$mpi: a GPT by sharded and tensor parallel layers" gpt 2
    train_checks
    faults
    check "$mpi: a rank that is killed ends the job" ends_the_job kill
    check "$mpi: a rank that is killed on its way into the job" killed_on_its_way
    check "$mpi: a rank that is killed while it saves" killed_in_save
done
if [ -e "$build_dir/lib/libcotangent_mpi_openmpi.so" ]; then
    host_checks
else
    skip "two hosts" "Open MPI's header was not there when this was built"
fi
if [ -e "$tests/standin/libnccl.so.2" ]; then
    standin() (
        export LD_LIBRARY_PATH="$tests/standin" CT_BACKEND_PATH="$tests/standin:$CT_BACKEND_PATH"
        "$@"
    )
    # As torchrun starts them: N COMMAND...
    torchrun() {
        local n=$1 r status=0 list=()
        shift
        mkdir -p "meet" && rm -f meet/*
        for r in $(seq 0 $((n - 1))); do
            env RANK="$r" WORLD_SIZE="$n" LOCAL_RANK="$r" LOCAL_WORLD_SIZE="$n" MASTER_ADDR=localhost MASTER_PORT=29500 RANKS="$n" CT_STANDIN="$PWD/meet" \
                timeout -k 2 60 "$@" >"torchrun.$r" 2>&1 &
            list+=($!)
        done
        for r in "${list[@]}"; do wait "$r" || status=1; done
        for r in $(seq 0 $((n - 1))); do cat "torchrun.$r"; done
        return $status
    }
    # Under the guarded device's own name only the host's memory is tried by the programs; CUDA's is the stand-in.
    by_nccl_alone() { torchrun "$1" "$tests/dist_$2" >alone.txt 2>&1 && cat alone.txt && grep -q "^$1 ranks" alone.txt; }
    train_by_nccl() { # the losses are those of one process
        rm -rf alone.one alone.two
        "$cotangent" train tiny.yaml --set model=mlp --set ema=0 --set 'optimizer={name: sgd, lr: 0.02, momentum: 0.9}' --out alone.one &&
            torchrun 2 "$cotangent" train tiny.yaml --set model=mlp --set ema=0 --set 'optimizer={name: sgd, lr: 0.02, momentum: 0.9}' --device cuda --out alone.two &&
            grep -q '2 processes by NCCL' torchrun.0 && near alone.one alone.two
    }
    check "CUDA tensors go by NCCL: a stand-in" standin "$tests/dist_nccl"
    for n in 2 4; do
        for program in collectives parallel sharded tensor; do
            check "NCCL alone: $program by $n ranks: a stand-in" standin by_nccl_alone $n $program
        done
    done
    losses_by_nccl() { torchrun "$1" "$tests/dist_parallel" losses && diff losses.1 torchrun.0; }
    saves_by_nccl() {
        mkdir -p "saved.nccl.$1"
        torchrun "$1" "$tests/dist_checkpoint" "saved.nccl.$1" >alone.txt 2>&1 || { cat alone.txt && return 1; } && grep -q "^$1 ranks" alone.txt
    }
    for n in 2 4; do
        check "NCCL alone: the same bits by $n ranks: a stand-in" standin losses_by_nccl $n
        check "NCCL alone: checkpoints by $n ranks: a stand-in" standin saves_by_nccl $n
    done
    check "NCCL alone: cotangent train by 2 processes: a stand-in" standin train_by_nccl
    # One of two does not come, or comes to one call less: the other ends within the time limit, with a text.
    nccl_hangs() {
        CT_DIST_TIMEOUT=2 torchrun 2 "$tests/dist_faults" "$1" >alone.txt 2>&1
        cat alone.txt
        grep -q "$2" alone.txt
    }
    check "NCCL alone: a rank that does not join: a stand-in" standin nccl_hangs late 'dist: rank 0 waits until NCCL has joined 2 ranks: not all have come to it within 2 s'
    check "NCCL alone: a rank that hangs: a stand-in" standin nccl_hangs one_less 'rank 0: dist_all_reduce: .*all_reduce (sum) of f32\[3,4\]: it has not ended on the device of rank 0 within 2 s: another rank has not come'
    mpi=openmpi
    [ ! -e "$build_dir/lib/libcotangent_mpi_openmpi.so" ] || check "ranks that NCCL does not join go through the host: a stand-in" standin by collectives 2
else
    skip "CUDA tensors go by NCCL: a stand-in" "there was no nccl.h, or no CUDA, when this was built"
fi
by_nccl() {
    "$tests/dist_nccl" >nccl.txt 2>&1
    status=$?
}
by_nccl
if [ $status -eq 77 ]; then
    skip "CUDA tensors by NCCL" "$(cat nccl.txt)"
else
    cat nccl.txt
    check "CUDA tensors by NCCL" [ $status -eq 0 ]
fi
finish
