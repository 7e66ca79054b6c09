/* cast: any dtype to any other, and nothing at all to the same one. */
#include "ops/op_impl.h"

bool cast_infer(ct_infer *infer) {
    const cast_attrs *a = infer->attrs;
    ct__infer_like(infer, 0, infer->in[0], a->to);
    return true;
}

void cast_vjp(ct_vjp *v) {
    if (v->need[0]) v->grad[0] = cast(v->cot[0], ct_dtype_of(v->in[0]));
}

/* The kernels of cast refuse to copy x to its own dtype, so that such a call comes here. */
void cast_lower(ct_lower *l) {
    const cast_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    l->out[0] = ct_dtype_of(x) == a->to ? x : convert(x, a->to);
}

bool convert_infer(ct_infer *infer) {
    ct__infer_like(infer, 0, infer->in[0], ((const convert_attrs *)infer->attrs)->to);
    return true;
}

void convert_vjp(ct_vjp *v) {
    if (v->need[0]) v->grad[0] = cast(v->cot[0], ct_dtype_of(v->in[0]));
}

bool cast_all_infer(ct_infer *infer) {
    const cast_all_attrs *a = infer->attrs;
    if (infer->n_out != infer->n_in)
        return ct_infer_fail(infer, CT_ERR_VALUE, "gives as many results as there are tensors: %d, not %d", infer->n_in,
                             infer->n_out);
    for (int i = 0; i < infer->n_in; i++) {
        if (infer->in[i]->dtype != infer->in[0]->dtype)
            return ct_infer_fail(infer, CT_ERR_DTYPE, "tensor %d is %s and tensor 0 %s; they have to be of one dtype",
                                 i, ct_view_text(infer->in[i]), ct_view_text(infer->in[0]));
        ct__infer_like(infer, i, infer->in[i], a->to);
    }
    return true;
}

void cast_all_lower(ct_lower *l) {
    const cast_all_attrs *a = l->attrs;
    for (int i = 0; i < l->n_in; i++)
        if (l->want[i]) l->out[i] = cast(l->in[i], a->to);
}
