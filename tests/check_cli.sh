#!/usr/bin/env bash
# The `cotangent` command: what it prints, what it writes, and how it refuses.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
cotangent=$build_dir/bin/cotangent
cd "$work" || exit 1

# npy FILE DESCR SHAPE BYTES: a .npy file; BYTES as \x escapes.
npy() {
    local dict="{'descr': '$2', 'fortran_order': False, 'shape': $3, }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$dict" >"$1"
    printf "$4" >>"$1"
}
# values FILE TYPE: the elements behind the 128 bytes of header that the library writes, as od prints that type.
values() { tail -c +129 "$1" | od -An -v -t"$2" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'; }

one='\x00\x00\x80\x3f' two='\x00\x00\x00\x40' three='\x00\x00\x40\x40' four='\x00\x00\x80\x40'
npy A.npy '<f4' '(2,)' "$one$two"
npy B.npy '<f4' '(2,)' "$three$four"
npy C.npy '<f4' '(1,)' "$four"
npy G.npy '<f4' '(2,)' "$one$one"
npy M.npy '<f4' '(2, 2)' "$one$two$three$four"
npy T.npy '<f4' '(3,)' "$one$two$three"
npy I.npy '<i8' '(2,)' '\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
npy H.npy '<u2' '(2,)' '\x80\x3f\x00\x40'

# writes FILE TYPE VALUES ARGUMENTS...: that call of apply succeeds and FILE then holds VALUES.
writes() {
    local file=$1 type=$2 expected=$3 got
    shift 3
    rm -f "$file"
    "$cotangent" apply "$@" || return 1
    got=$(values "$file" "$type")
    [ "$got" = "$expected" ] || { echo "expected '$expected', got '$got'" && return 1; }
}
# refuses STATUS TEXT ARGUMENTS...: the command ends with that status and exactly that line on standard error.
refuses() {
    local status=$1 text=$2 got
    shift 2
    got=$("$cotangent" "$@" 2>&1 >/dev/null)
    [ $? -eq "$status" ] || { echo "another exit status, and: $got" && return 1; }
    [ "$got" = "$text" ] || { echo "got: $got" && return 1; }
}
prints() {
    local pattern=$1
    shift
    "$cotangent" "$@" >printed || return 1
    grep -qE "$pattern" printed || { cat printed && return 1; }
}

check "info names version, instructions and threads" prints '^version   [0-9]+\.[0-9]+\.[0-9]+$' info
check "info says why a backend is missing" prints '^cuda +(yes|no: .+)$' info
check "ops lists" prints '^matmul ' ops
check "ops hides helpers" bash -c "! '$cotangent' ops | grep -q _grad_"
check "ops describes one" prints '^gradient yes' ops add
mkdir broken && echo "this is no module" >broken/libcotangent_other.so
check "a module that cannot be loaded says why" bash -c "CT_BACKEND_PATH=broken '$cotangent' ops --backend other 2>&1 | grep 'the device other cannot be used: broken/libcotangent_other.so: '"
check "ops tells what each backend covers" prints '^matmul +kernel' ops --coverage
check "of one backend alone" env CT_BACKEND_PATH="$build_dir/tests" CT_GUARD_PRIMITIVES=1 bash -c "'$cotangent' ops --internal --backend guard >covered && grep -q '^softmax  *lowered' covered && grep -q '^none  *0 ' covered"
check "of one that is not there" bash -c "! '$cotangent' ops --backend nowhere"
check "ops as JSON" prints '^\{"name":"add",.*"differentiable":true' ops add --json
check "layers lists" prints '^conv2d ' layers
check "layers describes one" prints '^  kernel +integer, required$' layers conv2d
check "layers gives defaults" prints '^  stride +integer, default 1$' layers conv2d
check "layers leaves out what a layer does not take" bash -c "! '$cotangent' layers conv2d | grep -q multiplier"
check "layers makes one" prints '^linear\(3, 4, no_bias\) .* 12$' layers linear in=3 out=4 no_bias=true
check "layers suggests" refuses 2 "error: there is no layer 'conf2d'; did you mean 'conv2d'?" layers conf2d
check "layers names what is missing" refuses 1 "error: nn_linear: out has to be given" layers linear in=3
check "layers names what is too much" refuses 1 "error: nn_linear: has no argument named width" layers linear in=3 width=4
check "layers as JSON" prints '^\{"name":"linear",.*"name":"in","type":"int","required":true' layers linear --json
check "help of every command" bash -c "for c in info ops layers apply; do '$cotangent' \$c --help | grep -q usage || exit 1; done"
if command -v python3 >/dev/null; then
    check "layers JSON is well-formed" bash -c "'$cotangent' layers --json | python3 -m json.tool"
    check "ops JSON is well-formed" bash -c "'$cotangent' ops --json --internal | python3 -m json.tool"
else
    skip "ops JSON is well-formed" "no python3"
fi

check "apply runs an op" writes Y.npy f4 "4 6" add A.npy B.npy -o Y.npy
check "apply broadcasts" writes Y.npy f4 "5 6" add A.npy C.npy --output Y.npy
check "apply takes options" writes Y.npy f4 "3 7" sum M.npy --axes 1 -o Y.npy
check "apply takes options with =" writes Y.npy f4 "4 6" sum M.npy --axes=0 --keepdim=true -o Y.npy
check "a bare bool is true" writes Y.npy f4 "4 6" sum M.npy --axes 0 --keepdim -o Y.npy
check "apply takes a list" writes Y.npy f4 "1 2 3 4" cat @A.npy,B.npy --axis 0 -o Y.npy
check "apply gives further outputs" writes J.npy d8 "1 1" max M.npy --axis 1 -o - -o J.npy
check "apply writes what an op changes" writes V2.npy f4 "2.5 3" batch_norm M.npy A.npy B.npy --training true --momentum 0.5 \
    --mutated M2.npy --mutated V2.npy
check "apply gives several outputs" writes Z.npy f4 "2 4" split M.npy --axis 1 --sizes 1 -o Y.npy -o Z.npy
check "apply reads bf16" writes Y.npy u2 "$((0x4000)) $((0x4080))" add H.npy H.npy --bf16 -o Y.npy
check "apply writes gradients" writes DB.npy f4 "1 2" mul A.npy B.npy --cotangent G.npy --grad DA.npy --grad DB.npy
check "apply skips gradients" writes DB.npy f4 "1 2" mul A.npy B.npy --cotangent G.npy --grad - --grad DB.npy
# S = sum(g b va + g a vb), so dS/da = g vb and dS/db = g va
check "apply writes the second order" writes D0.npy f4 "3 4" \
    mul A.npy B.npy -o Y.npy --cotangent G.npy --direction A.npy --direction B.npy --second D0.npy --second D1.npy
check "the second order of a linear op is zero" writes D0.npy f4 "0 0" \
    add A.npy B.npy --cotangent G.npy --direction A.npy --direction B.npy --second D0.npy
same_seed() {
    "$cotangent" apply rand --shape 5 --seed 7 -o R1.npy && "$cotangent" apply rand --shape 5 --seed 7 -o R2.npy &&
        "$cotangent" apply rand --shape 5 --seed 8 -o R3.npy && cmp R1.npy R2.npy && ! cmp -s R1.npy R3.npy
}
check "a seed fixes randomness" same_seed

op_error() {
    "$cotangent" apply matmul M.npy T.npy -o Y.npy 2>message
    [ $? -eq 1 ] && cat message && grep -qE '^error: matmul: .*f32\[2,2\].*f32\[3\]' message
}
check "an op's error is status 1" op_error
check "what has no gradient says so" refuses 1 "error: argmax: is not differentiable" \
    apply argmax A.npy --cotangent C.npy --grad D.npy
check "an integer output takes no cotangent" refuses 1 "error: max: output 1 is i64[2]: it takes no cotangent" \
    apply max M.npy --axis 1 -o V.npy -o J.npy --cotangent G.npy --cotangent G.npy --grad D.npy
check "a missing file is status 1" refuses 1 "error: npy: none.npy: cannot be opened: No such file or directory" apply exp none.npy -o Y.npy
check "an unknown command suggests" refuses 2 "error: there is no command 'aply'; did you mean 'apply'?" aply
check "an unknown op suggests" refuses 2 "error: there is no op 'matmull'; did you mean 'matmul'?" apply matmull A.npy B.npy -o Y.npy
check "an unknown option suggests" refuses 2 "error: sum has no option --keepdims; did you mean --keepdim?" \
    apply sum M.npy --keepdims true -o Y.npy
check "a missing input is named" refuses 2 "error: add: input 1 (b) is missing" apply add A.npy -o Y.npy
check "one input too many is named" refuses 2 "error: add takes 2 inputs; 'C.npy' is one too many" apply add A.npy B.npy C.npy -o Y.npy
check "a missing option is named" refuses 2 "error: softmax: option --axis is required" apply softmax M.npy -o Y.npy
check "too many outputs are refused" refuses 2 "error: add: -o is given 2 times, at most 1 fit: one for each output" apply add A.npy B.npy -o Y.npy -o Z.npy
check "nothing to write is refused" refuses 2 "error: add: nothing to write: give -o FILE" apply add A.npy B.npy
check "a value of the wrong kind is refused" refuses 2 'error: softmax: axis = "x" is not an integer' apply softmax M.npy --axis x -o Y.npy
check "--second needs --direction" refuses 2 "error: mul: --second needs --direction" apply mul A.npy B.npy --cotangent G.npy --second D.npy
check "an integer input has no gradient" refuses 2 "error: add: input 1 (b) is i64[2]: it has no gradient" \
    apply add A.npy I.npy --cotangent G.npy --grad - --grad D.npy

lines() {
    printf '%s\n' 'add A.npy B.npy -o "Y.npy"' '' '# a comment' 'nonsense' "cotangent apply exp 'none.npy' -o Y.npy" 'mul A.npy B\.npy -o Z.npy' |
        "$cotangent" apply - >answers || return 1
    printf '%s\n' ok "error: there is no op 'nonsense'; 'cotangent ops' lists them" \
        'error: npy: none.npy: cannot be opened: No such file or directory' ok | diff - answers && [ "$(values Z.npy f4)" = "3 8" ]
}
check "apply - answers each line and goes on" lines
finish
