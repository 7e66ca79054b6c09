/* glu: two views of x, one elementwise op. */
#include "ops/op_impl.h"

bool glu_infer(ct_infer *infer) {
    const glu_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    int axis;
    if (x->ndim == 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar has no halves", ct_view_text(x));
    if (!ct__infer_axis(infer, a->axis, x->ndim, &axis)) return false;
    if (x->dims[axis] % 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; the size of axis %d has to be even, to have two halves",
                             ct_view_text(x), axis);
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[axis] /= 2;
    return true;
}

void glu_lower(ct_lower *l) {
    const glu_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    int axis = ct__axis(a->axis, ct_ndim(x));
    int64_t half = ct_dim(x, axis) / 2;
    l->out[0] = sigmoid_gate(narrow(x, axis, 0, half), narrow(x, axis, half, half));
}
