#!/usr/bin/env bash
# tools/new-op.sh NAME: a folder ops/NAME with an op that builds and passes its tests, to be filled in.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:-}
if ! [[ $name =~ ^[a-z][a-z0-9_]*$ ]]; then
    echo "usage: make new-op NAME=foo   (a C name in lower case)" >&2
    exit 2
fi
if [ -e "ops/$name" ]; then
    echo "ops/$name is there already" >&2
    exit 1
fi
if grep -qsE "^(op )?$name\(" ops/*/*.def; then
    echo "an op named $name is there already: $(grep -lE "^(op )?$name\(" ops/*/*.def)" >&2
    exit 1
fi

mkdir "ops/$name"
cat >"ops/$name/$name.def" <<DEF
# The language of this file: tools/mkops/README.md.

/// x times itself. (Say what $name computes: this text is its documentation everywhere.)
op $name(float x) -> y
    infer, vjp, lower
    saves x
    # Inputs worth testing: around the vector width, above one tile, zero-size, a scalar.
    sample [1]
    sample [7]
    sample [67]
    sample [3,17]
    sample [2,0,3]
    sample []
DEF
cat >"ops/$name/$name.c" <<C
/* $name: shapes, value in simpler ops, derivative. A kernel, when speed asks for one, goes into
 * cpu/$name.c. */
#include "ops/op_impl.h"

/* The only place that complains about shapes and options: ct_infer_fail. */
bool ${name}_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

/* y in simpler ops: what runs where there is no kernel, and what kernels are tested against. */
void ${name}_lower(ct_lower *lower) { lower->out[0] = mul(lower->in[0], lower->in[0]); }

/* dx = g * 2x, in ops, so that it can be differentiated again. */
void ${name}_vjp(ct_vjp *vjp) {
    ct_tensor *g = vjp->cot[0], *x = vjp->in[0];
    vjp->grad[0] = mul(g, mul_s(x, 2));
}
C
echo "made ops/$name/$name.def and ops/$name/$name.c: an op that squares. Now make it $name, and run 'make test'."
