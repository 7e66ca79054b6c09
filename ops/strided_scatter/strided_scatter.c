/* strided_scatter: the graph's view of a change in place (core/inplace.c). */
#include "ops/op_impl.h"

bool strided_scatter_infer(ct_infer *infer) {
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

void strided_scatter_lower(ct_lower *l) {
    const strided_scatter_attrs *attrs = l->attrs;
    ct_tensor *y = clone(l->in[0]);
    ct_tensor *part = as_strided(y, attrs->shape, attrs->strides, attrs->offset);
    l->out[0] = ct_assign(part, l->in[1]) ? y : NULL;
}

void strided_scatter_vjp(ct_vjp *v) {
    const strided_scatter_attrs *attrs = v->attrs;
    ct_tensor *g = v->cot[0];
    if (v->need[0])
        v->grad[0] = strided_scatter(g, zeros(attrs->shape, .dtype = ct_dtype_of(g)), attrs->shape, attrs->strides,
                                     attrs->offset);
    if (v->need[1]) v->grad[1] = as_strided(contiguous(g), attrs->shape, attrs->strides, attrs->offset);
}
