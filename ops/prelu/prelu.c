/* prelu: weight is shaped to broadcast along the channels. */
#include "ops/op_impl.h"

bool prelu_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *w = infer->in[1];
    int64_t channels = x->ndim >= 2 ? x->dims[1] : 1;
    if (w->ndim > 1 || (ct__count(w->ndim, w->dims) != 1 && w->dims[0] != channels))
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "weight is %s; x is %s, so weight has to have 1 element or %lld, one for each channel (axis 1)",
            ct_view_text(w), ct_view_text(x), (long long)channels);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void prelu_lower(ct_lower *l) {
    ct_tensor *x = l->in[0], *w = l->in[1];
    if (ct_ndim(x) >= 2 && ct_ndim(w) == 1) {
        ct_dims along = {.n = ct_ndim(x) - 1};
        for (int i = 0; i < along.n; i++) along.d[i] = 1;
        along.d[0] = ct_numel(w);
        w = reshape(w, along);
    } else {
        w = reshape(w, CT_DIMS0);
    }
    l->out[0] = channel_relu(x, w);
}
