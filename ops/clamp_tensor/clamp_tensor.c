/* clamp_tensor: one elementwise op for each bound. */
#include "ops/op_impl.h"

void clamp_tensor_lower(ct_lower *l) {
    ct_tensor *x = l->in[0], *lo = l->in[1], *hi = l->in[2];
    if (!lo && !hi) {
        ct_fail(CT_ERR_NULL, "clamp_tensor", "both min and max are NULL; one bound at least is needed");
        return;
    }
    if (lo) x = clamp_min(x, lo);
    l->out[0] = hi ? clamp_max(x, hi) : x;
}
