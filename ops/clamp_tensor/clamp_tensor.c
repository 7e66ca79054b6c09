/* clamp_tensor: one elementwise op for each bound. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

bool clamp_tensor_infer(ct_infer *infer) {
    if (!infer->in[1] && !infer->in[2])
        return ct_infer_fail(infer, CT_ERR_NULL, "both min and max are NULL; one bound at least is needed");
    if (!ct__infer_arithmetic(infer, 0)) return false; /* the bounds are of the same dtype by now */
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

void clamp_tensor_lower(ct_lower *l) {
    ct_tensor *x = l->in[0], *lo = l->in[1], *hi = l->in[2];
    if (lo) x = clamp_min(x, lo);
    l->out[0] = hi ? clamp_max(x, hi) : x;
}
