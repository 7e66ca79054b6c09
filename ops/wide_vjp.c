/* Derivatives of several steps in half precision. */
#include "ops/wide_vjp.h"

#include "core/dtype.h"

#include "ops/op_impl.h"

enum { MOST = 8 };

static ct_tensor *widened(ct_tensor *x) { return x && ct__dtype_is_half(ct_dtype_of(x)) ? cast(x, CT_F32) : x; }

bool ct__vjp_wide(ct_vjp *v, void (*vjp)(ct_vjp *v)) {
    const ct_dtype half = ct_dtype_of(v->cot[0]);
    if (!ct__dtype_is_half(half) || v->n_in > MOST || v->n_out > MOST) return false;
    ct_tensor *in[MOST], *out[MOST], *cot[MOST], *grad[MOST] = {NULL};
    for (int i = 0; i < v->n_in; i++) in[i] = widened(v->in[i]);
    for (int i = 0; i < v->n_out; i++) out[i] = v->out[i], cot[i] = widened(v->cot[i]);
    if (v->op->saves_out && !ct_apply(v->op, in, v->n_in, v->attrs, out, v->n_out)) return true;
    ct_vjp wide = *v;
    wide.in = in, wide.out = out, wide.cot = cot, wide.grad = grad;
    vjp(&wide);
    for (int i = 0; i < v->n_in; i++)
        if (grad[i]) v->grad[i] = cast(grad[i], ct_dtype_of(v->in[i]));
    return true;
}
