/* pixel_shuffle and its inverse: a reshape, a permutation, a reshape. */
#include "ops/op_impl.h"

static bool check_factor(const ct_infer *infer, int64_t factor) {
    const ct_view *x = infer->in[0];
    if (x->ndim != 4)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have 4 dimensions", ct_view_text(x));
    if (factor < 1 || factor > 1 << 20)
        return ct_infer_fail(infer, CT_ERR_VALUE, "factor is %lld; it has to be positive", (long long)factor);
    return true;
}

bool pixel_shuffle_infer(ct_infer *infer) {
    const pixel_shuffle_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    const int channel = a->channels_last ? 3 : 1, row = a->channels_last ? 1 : 2;
    const int64_t r = a->factor;
    if (!check_factor(infer, r)) return false;
    if (x->dims[channel] % (r * r))
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "the %lld channels of x, %s, are not a multiple of factor * factor, %lld",
                             (long long)x->dims[channel], ct_view_text(x), (long long)(r * r));
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[channel] /= r * r;
    infer->out[0].dims[row] *= r;
    infer->out[0].dims[row + 1] *= r;
    return true;
}

bool pixel_unshuffle_infer(ct_infer *infer) {
    const pixel_unshuffle_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    const int channel = a->channels_last ? 3 : 1, row = a->channels_last ? 1 : 2;
    const int64_t r = a->factor;
    if (!check_factor(infer, r)) return false;
    if (x->dims[row] % r || x->dims[row + 1] % r)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "the height %lld and the width %lld of x, %s, are not multiples of factor, %lld",
                             (long long)x->dims[row], (long long)x->dims[row + 1], ct_view_text(x), (long long)r);
    ct__infer_like(infer, 0, x, x->dtype);
    infer->out[0].dims[channel] *= r * r;
    infer->out[0].dims[row] /= r;
    infer->out[0].dims[row + 1] /= r;
    return true;
}

void pixel_shuffle_lower(ct_lower *l) {
    const pixel_shuffle_attrs *a = l->attrs;
    const ct_dims d = ct_shape(l->in[0]);
    const int64_t r = a->factor;
    if (a->channels_last) { /* (n, h, w, c, i, j) to (n, h, i, w, j, c) */
        const int64_t n = d.d[0], h = d.d[1], w = d.d[2], c = d.d[3] / (r * r);
        ct_tensor *x = reshape(l->in[0], CT_DIMS(n, h, w, c, r, r));
        l->out[0] = reshape(permute(x, CT_DIMS(0, 1, 4, 2, 5, 3)), CT_DIMS(n, h * r, w * r, c));
    } else { /* (n, c, i, j, h, w) to (n, c, h, i, w, j) */
        const int64_t n = d.d[0], c = d.d[1] / (r * r), h = d.d[2], w = d.d[3];
        ct_tensor *x = reshape(l->in[0], CT_DIMS(n, c, r, r, h, w));
        l->out[0] = reshape(permute(x, CT_DIMS(0, 1, 4, 2, 5, 3)), CT_DIMS(n, c, h * r, w * r));
    }
}

void pixel_unshuffle_lower(ct_lower *l) {
    const pixel_unshuffle_attrs *a = l->attrs;
    const ct_dims d = ct_shape(l->in[0]);
    const int64_t r = a->factor;
    if (a->channels_last) { /* (n, h, i, w, j, c) to (n, h, w, c, i, j) */
        const int64_t n = d.d[0], h = d.d[1] / r, w = d.d[2] / r, c = d.d[3];
        ct_tensor *x = reshape(l->in[0], CT_DIMS(n, h, r, w, r, c));
        l->out[0] = reshape(permute(x, CT_DIMS(0, 1, 3, 5, 2, 4)), CT_DIMS(n, h, w, c * r * r));
    } else { /* (n, c, h, i, w, j) to (n, c, i, j, h, w) */
        const int64_t n = d.d[0], c = d.d[1], h = d.d[2] / r, w = d.d[3] / r;
        ct_tensor *x = reshape(l->in[0], CT_DIMS(n, c, h, r, w, r));
        l->out[0] = reshape(permute(x, CT_DIMS(0, 1, 3, 5, 2, 4)), CT_DIMS(n, c * r * r, h, w));
    }
}
