/* pad_constant: a frame of one value around x, or (negative) a cut. Its gradient is itself with the pads negated. */
#include "ops/op_impl.h"

bool pad_constant_infer(ct_infer *infer) {
    const pad_constant_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    int64_t dims[CT_MAX_DIMS];
    if (at->pads.n != 2 * x->ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and pads is %s: two numbers for each axis are expected",
                             ct_view_text(x), ct_dims_text(at->pads));
    for (int i = 0; i < x->ndim; i++) {
        const int64_t before = at->pads.d[2 * i], after = at->pads.d[2 * i + 1];
        if (__builtin_add_overflow(x->dims[i], before, &dims[i]) || __builtin_add_overflow(dims[i], after, &dims[i]) ||
            dims[i] < 0 || before < -x->dims[i] || after < -x->dims[i])
            return ct_infer_fail(infer, CT_ERR_SHAPE, "pads %lld and %lld of axis %d cut more than there is: x is %s",
                                 (long long)before, (long long)after, i, ct_view_text(x));
    }
    ct__infer_set(infer, 0, x->dtype, x->ndim, dims);
    return true;
}

void pad_constant_lower(ct_lower *l) {
    const pad_constant_attrs *at = l->attrs;
    ct_tensor *y = l->in[0];
    ct_dims shape = ct_shape(y);
    for (int i = 0; i < shape.n; i++) {
        const int64_t before = at->pads.d[2 * i], after = at->pads.d[2 * i + 1], start = before < 0 ? -before : 0;
        shape.d[i] -= start + (after < 0 ? -after : 0);
        if (before < 0 || after < 0) y = narrow(y, i, start, shape.d[i]);
    }
    for (int i = 0; i < shape.n; i++) {
        const int64_t before = at->pads.d[2 * i] > 0 ? at->pads.d[2 * i] : 0,
                      after = at->pads.d[2 * i + 1] > 0 ? at->pads.d[2 * i + 1] : 0;
        if (!before && !after) continue;
        shape.d[i] += before + after;
        y = slice_put(full(shape, at->value, .dtype = ct_dtype_of(y)), y, i, before, 1);
    }
    l->out[0] = y == l->in[0] ? clone(y) : contiguous(y);
}

/* What was padded is cut off, as a view; what was cut off gets zeros. */
void pad_constant_vjp(ct_vjp *v) {
    const ct_dims pads = ((const pad_constant_attrs *)v->attrs)->pads;
    const ct_dims shape = ct_shape(v->in[0]);
    ct_tensor *g = v->cot[0];
    ct_dims rest = {.n = pads.n};
    bool cut = false;
    for (int i = 0; i < shape.n; i++) {
        const int64_t before = pads.d[2 * i], after = pads.d[2 * i + 1], start = before > 0 ? before : 0,
                      end = after > 0 ? after : 0;
        if (start || end) g = narrow(g, i, start, ct_dim(v->out[0], i) - start - end);
        rest.d[2 * i] = before < 0 ? -before : 0;
        rest.d[2 * i + 1] = after < 0 ? -after : 0;
        cut |= before < 0 || after < 0;
    }
    v->grad[0] = cut ? pad_constant(g, rest, 0) : g;
}
