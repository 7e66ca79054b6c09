#!/bin/sh
# What mkops refuses, and where it says so; and a few things that it has to accept. usage: test.sh [MKOPS]
# Without an argument it builds mkops first. Ends with "N passed, N failed".
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkops=$1
if [ -z "$mkops" ]; then
    mkops=$work/mkops
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 "$here"/*.c -o "$mkops" || exit 1
fi
passed=0
failed=0

# run DEF [FILE...]: mkops on one folder with that definition, and with these files in it, empty.
run() {
    rm -rf "$work/ops" "$work/out"
    mkdir -p "$work/ops/foo"
    printf '%s\n' "$1" > "$work/ops/foo/foo.def"
    shift
    for file; do
        mkdir -p "$work/ops/foo/$(dirname "$file")"
        : > "$work/ops/foo/$file"
    done
    "$mkops" "$work/ops" "$work/out" > "$work/log" 2>&1
}

pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' "$work/log"
}

# refuses NAME PATTERN DEF: the message must match "foo.def:LINE: ...PATTERN".
refuses() {
    name=$1 pattern=$2
    shift 2
    if run "$@"; then
        fail "$name: accepted"
    elif grep -Eq "foo\.def:[0-9]+: .*$pattern" "$work/log"; then
        pass
    else
        fail "$name: expected $pattern"
    fi
}

accepts() {
    name=$1
    shift
    if run "$@"; then pass; else fail "$name"; fi
}

# contains NAME FILE TEXT: of the last accepted run.
contains() {
    if grep -Fq -- "$3" "$work/out/$2"; then pass; else
        : > "$work/log"
        fail "$1: $2 lacks $3"
    fi
}

op() { # op SIGNATURE [CLAUSES]: with enough samples and an infer
    printf '/// Doc.\nop %s\n    infer\n    samples 0\n' "$1"
    [ -n "$2" ] && printf '    %s\n' "$2"
}

# Attributes: zero means default.
refuses "a default other than zero" "zero means default" "$(op 'foo(tensor x, int k = 1) -> y')"
refuses "a double other than zero" "opt eps = 1e-5" "$(op 'foo(tensor x, double eps = 1e-5) -> y')"
refuses "a bool that is true" "no_keep" "$(op 'foo(tensor x, bool keep = true) -> y')"
refuses "an enum whose default is not its first value" "first value" "enum mode { a = CT_A, b = CT_B }
$(op 'foo(tensor x, mode m = b) -> y')"
refuses "nonzero beside a zero" "nonzero" "$(op 'foo(tensor x, int k = 0 nonzero) -> y')"
refuses "a list with a default" "only default of a list" "$(op 'foo(tensor x, dims axes = {1}) -> y')"
refuses "an unknown dtype" "unknown dtype f31" "$(op 'foo(tensor x, dtype d = f31) -> y')"
refuses "a default that is no integer" "not an integer" "$(op 'foo(tensor x, int k = 0.5) -> y')"
refuses "opt without a default" "needs a default" "$(op 'foo(tensor x, opt p) -> y')"
accepts "all the ways to have a default" "$(op 'foo(tensor x, int k = 1 nonzero, opt c = 1, opt m = none, axes stride = 1, bool b = false, dims d = {}) -> y')"
contains "a nonzero default" gen/ops_api.c "o_->k != 0 ? o_->k : 1"
contains "an option that may be zero" gen/ops_api.c "o_->c.set ? o_->c.value : 1.0"
contains "both spellings of axes" include/cotangent/ops.h "ct_dims strides;"

# Signatures.
refuses "an unknown type" "unknown type blob" "$(op 'foo(blob x) -> y')"
refuses "the same name twice" "two arguments named x" "$(op 'foo(tensor x, int x) -> y')"
refuses "an input behind a list" "last input" "$(op 'foo(tensor xs[], tensor y) -> z')"
refuses "text behind the outputs" "after the outputs" "$(op 'foo(tensor x) -> y z')"
refuses "an unknown clause" "unknown clause" "$(op 'foo(tensor x) -> y' 'fast')"
refuses "saving what is not there" "named z" "$(op 'foo(tensor x) -> y' 'saves x z')"
refuses "a changed input without mutates" "mutates" "$(op 'foo(tensor x!) -> y')"
refuses "an enum twice" "defined twice" "enum mode { a = CT_A }
enum mode { a = CT_A }"
refuses "an op twice" "defined twice" "$(op 'foo(tensor x) -> y')
$(op 'foo(tensor x) -> y')"
refuses "no documentation" "no documentation" "op foo(tensor x) -> y
    samples 0"
accepts "a signature over two lines" "/// Doc.
op foo(tensor x,
       int axis) -> y, indices?
    lower
    samples 0"
contains "a further output" include/cotangent/ops.h "ct_tensor **indices;"
refuses "a first output that nobody has to want" "the first output cannot be optional" "$(op 'foo(tensor x) -> y?')"
refuses "of an op that others call too" "the first output cannot be optional" "$(op 'foo(tensor x!) -> y?' 'mutates')"
accepts "of what changes its input" "$(op 'foo(tensor x!) -> y?' 'mutates, internal')"
contains "a function that does not ask for it" gen/ops_decl.h "bool ct__foo(ct_tensor *x);"

# Functions and samples.
refuses "neither infer nor lower" "neither infer nor lower" "/// Doc.
op foo(tensor x) -> y
    vjp
    samples 0"
refuses "no samples" "has 0 samples; it needs 6" "/// Doc.
op foo(tensor x) -> y
    infer"
refuses "too few samples" "has 1 samples; it needs 2" "/// Doc.
op foo(tensor x) -> y
    infer
    samples 2
    sample [3]"
refuses "a sample with too many inputs" "has 1 inputs" "$(op 'foo(tensor x) -> y' 'sample [1] [2]')"
refuses "a sample without its input" "no input x" "$(op 'foo(tensor x, int k) -> y' 'sample k=1')"
refuses "a sample with an unknown attribute" "no attribute .axis" "$(op 'foo(tensor x) -> y' 'sample [1] axis=1')"
refuses "a sample with an unknown domain" "unknown domain .big" "$(op 'foo(tensor x) -> y' 'sample [1]:big')"
refuses "a sample that is no shape" "not a shape" "$(op 'foo(tensor x) -> y' 'sample [1,x]')"
refuses "skipping a required input" "not optional" "$(op 'foo(tensor x) -> y' 'sample -')"
accepts "samples of every kind" "$(op 'foo(tensor x, index i, tensor b?, tensor xs[], axes pad = 0) -> y' 'sample [2,0]:pos [4]:int<5 - @[2,3],[4,3]:unit pads=1,2 outputs=1')"

accepts "an op with its functions" "$(op 'foo(tensor x) -> y' 'vjp, lower')"
contains "the derivative" gen/ops_decl.h "void foo_vjp(ct_vjp *v);"
contains "the lowering in the table" gen/ops_table.c ".lower = foo_lower"

# Kernels: by place, for any backend; folders below a backend's hold none, nor do headers.
accepts "kernels" "$(op 'foo(tensor x) -> y')" cpu/foo.c cpu/rows.h cpu/once/walk.c cuda/tiles.c cuda/tiles.cu
contains "the CPU's" gen/kernels_cpu.inc "CT_KERNEL_FILE(foo_foo)"
contains "another backend's" gen/kernels_cuda.inc "CT_KERNEL_FILE(foo_tiles)"
contains "the name for its rows" gen/foo.attrs.h '#define CT_OP_NAME_foo "foo"'
if grep -q 'rows\|walk' "$work"/out/gen/kernels_*.inc; then fail "what lists no kernels"; else pass; fi

# Elementwise lines.
refuses "a word outside the vocabulary" "not in the vocabulary" 'foo(x) : float = gamma(x) ; dx = g ; "Doc."'
refuses "a bare number" "bare number" 'foo(x) : float = 2 * x ; dx = g ; "Doc."'
refuses "an unknown name" "neither an input nor an attribute" 'foo(x) : float = z ; dx = g ; "Doc."'
refuses "the cotangent in a value" "neither an input" 'foo(x) : float = g ; dx = g ; "Doc."'
refuses "an unknown class" "unknown class" 'foo(x) : real = x ; dx = g ; "Doc."'
refuses "an unknown domain" "unknown domain" 'foo(x) : float = x ; dx = g ; in big ; "Doc."'
refuses "no gradient" "has no dx" 'foo(x) : float = x ; "Doc."'
refuses "a gradient of integers" "cannot have a gradient" 'foo(x) : int = bnot(x) ; dx = g ; "Doc."'
refuses "no documentation of a line" "no documentation" 'foo(x) : float = x ; dx = g'
refuses "an unknown clause of a line" "unknown clause" 'foo(x) : float = x ; dz = g ; "Doc."'
refuses "a number where a truth value goes" "truth value" 'foo(x) : float = select(x, x, x) ; dx = g ; "Doc."'
refuses "a truth value where a number goes" "truth value" 'foo(x) : float = eq(x, x) ; dx = g ; "Doc."'
refuses "a fraction among integers" "takes integers" 'foo(x) : num = x * K(0.5) ; dx = g ; "Doc."'
refuses "division of integers" "takes integers" 'foo(a, b) : num = a / b ; da = g ; db = g ; "Doc."'
refuses "subtraction of bool" "takes bool" 'foo(a, b) : all = a - b ; da = g ; db = g ; "Doc."'
refuses "too few arguments of a word" "expected ." 'foo(x) : float = max(x) ; dx = g ; "Doc."'
refuses "a positional attribute without a sample value" "samples need" 'foo(x, double k) : float = x * k ; dx = g ; "Doc."'
refuses "a gradient in ops that do not exist" "no op mul" 'foo(x) : float = x ; dx = g * x ; "Doc."'
refuses "a mask behind a number" "a mask comes before" 'foo(a, mask c) : all = select(c, a, K(0)) ; da = 0 ; "Doc."'
refuses "a second mask" "know 1 mask" 'foo(mask c, mask e, a) : all = select(c, a, select(e, a, K(0))) ; da = 0 ; "Doc."'
refuses "more attributes than there is room for" "room for 4" 'foo(x, opt k = 1, opt l = 1, opt m = 1, opt n = 1, opt o = 1) : float = x * k ; dx = 0 ; "Doc."'
refuses "an unknown word" "unknown word" 'fop foo(x) -> y'
accepts "a line with everything" 'enum way { up = CT_UP, down = CT_DOWN }
mul(a, b) : all = a * b ; da = g * b ; db = g * a ; "Doc."
foo(x, way w = up, opt k = 2) : float = choose(w, x * t, t) ; dx = choose(w, g * t, g * x * t) ; \
    let t = x * k ; in pos ; with w=down k=3 ; "Doc."'
contains "the fused gradient" gen/ops_decl.h "extern const ct_op ct__op_foo_grad_x;"
contains "its lowering" gen/elementwise.c "void foo_grad_x_lower(ct_lower *l)"
contains "the scalar form" include/cotangent/ops.h "ct_mul_s("
contains "the formula in WGSL" gen/webgpu/elementwise.inc 'let at_k = ct_from_words(p.attrs[0].zw);\n    if (at_w == 0) {\n        return ct_mul(x_x, ct_mul(x_x, at_k));'

# Public headers: the last accepted definition with one more argument.
header() {
    mkdir -p "$work/include"
    printf '%s\n' "$1" > "$work/include/nn.h"
    "$mkops" "$work/ops" "$work/out" "$work/include" nn > "$work/log" 2>&1
}
refuses_header() {
    if header "$3"; then
        fail "$1: accepted"
    elif grep -Eq "nn\.h:[0-9]+: .*$2" "$work/log"; then pass; else fail "$1: expected $2"; fi
}
layers='/* ---- Layers ---- */

/* One thing. */
typedef struct ct_nn_thing_options {
    size_t size;
    int64_t width; /* 3; how wide */
    bool loud;     /* for other_thing: aloud */
    way ct_ignored[2];
} ct_nn_thing_options;
CT_API ct_module *ct_nn_thing_p(int64_t in, const ct_nn_thing_options *options);
/* Another. */
CT_API ct_module *ct_nn_other_thing_p(int64_t in, double p, const ct_nn_thing_options *options); /* louder */
CT_API ct_module *ct_nn_silent(void);
CT_API ct_module *ct_nn_made_of(ct_module *inner);'
if header "$layers"; then pass; else fail "a header"; fi
contains "a macro" include/cotangent/nn_options.h '#define ct__nn_other_thing_x(in_, p_, ...) ct_nn_other_thing_p((in_), (p_), &(ct_nn_thing_options){__VA_ARGS__})'
contains "a function for C++" include/cotangent/nn_options.h 'static inline ct_module *ct_nn_thing(int64_t in, ct_nn_thing_options options = ct_nn_thing_options())'
contains "a default" gen/layers_table.c '.number = 3.0, .doc = "how wide"}'
contains "a layer that takes one option" gen/layers_table.c '{{"thing", "One thing."}, in_list, ct_nn_thing_options_list, 0x1,'
contains "a layer that takes both" gen/layers_table.c '{{"other_thing", "louder\nAnother."}, in_p_list, ct_nn_thing_options_list, 0x3,'
contains "a layer without arguments" gen/layers_table.c '{{"silent", "Another."}, no_list, no_list, 0x0, 0, 0, silent_build}'
if grep -q made_of "$work/out/gen/layers_table.c"; then : > "$work/log"; fail "a container is no layer of the table"; else pass; fi
refuses_header "a pattern that fits no layer" "no layer with ct_nn_thing_options is called odd" "$(printf '%s' "$layers" | sed 's/for other_thing/for odd/')"
refuses_header "an option that no text can give" "which no text can give" "$(printf '%s' "$layers" | sed 's/int64_t width/ct_tensor *width/')"
refuses_header "a layer without documentation" "a layer without a comment" "$(printf '%s' "$layers" | sed 's,^/\* One thing. \*/$,,; s,^/\* Another. \*/$,,')"
refuses_header "a header without options" "needs no nn_options.h" "/* Nothing. */"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
