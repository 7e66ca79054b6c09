#!/usr/bin/env bash
# `cotangent inspect`: what it prints of each kind of file, and how it refuses.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cotangent=$build_dir/bin/cotangent
files=$source_dir/tests/files
cd "$work" || exit 1
unset LC_ALL LC_CTYPE
export LANG=C.UTF-8

prints() { # prints TEXT ARGUMENTS...: that line is among what the command prints
    local text=$1
    shift
    "$cotangent" inspect "$@" >printed || return 1
    grep -qxF "$text" printed || { cat printed && return 1; }
}
refuses() {
    local status=$1 text=$2 got
    shift 2
    got=$("$cotangent" inspect "$@" 2>&1 >/dev/null)
    [ $? -eq "$status" ] || { echo "another exit status, and: $got" && return 1; }
    [ "$got" = "$text" ] || { echo "got: $got" && return 1; }
}

printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" >x.npy
printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\xc0\x7f\x00\x00\x80\x7f\x00\x00\x80\xff' >>x.npy
check "npy" prints "x.npy: npy, 1 tensors, 6 numbers, 24 bytes" x.npy
check "statistics leave out what is not finite" prints \
    'array   f32       [2,3]                     2     0.8165          1          3  |█       █      █|  1 NaN  2 infinite' x.npy
check "letters where the terminal has no blocks" env LANG=C bash -c \
    "'$cotangent' inspect x.npy | grep -qF '|@       @      @|  1 NaN  2 infinite'"
check "JSON" prints '{"name":"array","dtype":"f32","shape":[2,3],"elements":6,"mean":2,"std":0.81649658092772603,"min":1,"max":3,"nan":1,"infinite":2,"histogram":[1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,1]}]}' x.npy --json

if "$cotangent" inspect "$files/all.safetensors" 2>&1 | grep -q jansson; then
    skip "safetensors" "no jansson"
else
    cp "$files/all.safetensors" "$files/nothing.safetensors" .
    check "safetensors" prints 'all.safetensors: safetensors, 19 tensors, 102 numbers, 366 bytes' all.safetensors
    check "its metadata" prints '  author = someone "else"' all.safetensors
    check "an empty tensor" prints 'empty              f32       [0,4]             empty' all.safetensors
    check "complex numbers" prints 'complex64          complex64 [2,3]             no statistics of complex64' all.safetensors
    check "a name cannot move the cursor" prints \
        'a "quoted\" näme?  f32       [5]                       2      1.414          0          4  |█   █   █   █  █|' all.safetensors
    printf '\x4d\0\0\0\0\0\0\0{"\\u001b[2J\xc2\x9b2J\xe2\x80\xaex":{"dtype":"F\\u001b[31m","shape":[],"data_offsets":[0,0]}}' >escapes.safetensors
    check "nor can a name in an error" refuses 1 \
        'error: inspect: escapes.safetensors: tensor "?[2J?2J?x": dtype F?[31m is not supported' escapes.safetensors
    check "no tensors" prints 'nothing.safetensors: safetensors, 0 tensors, 0 numbers, 0 bytes' nothing.safetensors
    if command -v python3 >/dev/null; then
        check "JSON is well-formed" bash -c "'$cotangent' inspect all.safetensors --json | python3 -m json.tool"
    else
        skip "JSON is well-formed" "no python3"
    fi
    cp "$files/run.safetensors" .
    check "a checkpoint" prints 'run.safetensors: checkpoint, 3 tensors, 13 numbers, 68 bytes, checksum right' run.safetensors
    check "where it is" prints '  step = 34' run.safetensors
    check "a checkpoint as JSON" bash -c "'$cotangent' inspect run.safetensors --json | grep -qF '\"epoch\":2,\"step\":34,\"seed\":11,\"position\":5'"
    { cat run.safetensors && printf x; } >long.safetensors
    check "a damaged one" refuses 1 "error: inspect: long.safetensors: is damaged: its checksum does not fit what is in it" long.safetensors
    head -c 100 all.safetensors >cut.safetensors
    check "a file that is cut" refuses 1 "error: inspect: cut.safetensors: ends inside its header" cut.safetensors
fi
name=$(printf 'odd\xff.npy')
cp x.npy "$name"
check "a name that is not UTF-8" prints 'odd?.npy: npy, 1 tensors, 6 numbers, 24 bytes' "$name"
check "the same as JSON" bash -c "'$cotangent' inspect '$name' --json | grep -qF '{\"file\":\"odd\\ufffd.npy\",'"
if [ -e /dev/full ]; then
    check "an output that cannot be written" bash -c "! '$cotangent' inspect x.npy 2>said >/dev/full &&
        grep -qx 'error: inspect: the output cannot be written: No space left on device' said"
fi
check "a pipe" bash -c "! '$cotangent' inspect <(cat x.npy) 2>said && grep -q 'is a pipe; inspect needs a file$' said"
if "$cotangent" inspect "$files/stored.npz" 2>&1 | grep -q libzip; then
    skip "npz" "no libzip"
else
    cp "$files/compressed.npz" .
    check "npz" prints 'compressed.npz: npz, 5 tensors, 10013 numbers, 40.1 kB' compressed.npz
fi

echo hello >text
check "a file of something else" refuses 1 "error: inspect: text: is none of safetensors, checkpoint, .npy and .npz" text
check "no such file" refuses 1 "error: inspect: none: cannot be opened: No such file or directory" none
check "a folder" refuses 1 "error: inspect: .: cannot be read: Is a directory" .
check "two files" refuses 2 "error: inspect takes one file; 'text' is one too many" x.npy text
check "an unknown option" refuses 2 "error: inspect has no option --yaml; it has --json" --yaml x.npy
check "no file" refuses 2 "error: inspect: which file?"
check "help" bash -c "'$cotangent' inspect --help | grep -q usage"
finish
