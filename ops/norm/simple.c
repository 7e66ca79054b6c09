/* Normalizations that are formulas in other ops: shapes, options, lowerings. */
#include "ops/op_impl.h"

/* ---- l2_normalize ---- */

bool l2_normalize_infer(ct_infer *infer) {
    const l2_normalize_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    int axis;
    if (!ct__infer_axis(infer, a->axis, x->ndim, &axis)) return false;
    if (!(a->eps >= 0) || !(a->p > 0))
        return ct_infer_fail(infer, CT_ERR_VALUE, "eps is %g and p is %g; eps cannot be negative, p has to be positive",
                             a->eps, a->p);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void l2_normalize_lower(ct_lower *l) {
    const l2_normalize_attrs *a = l->attrs;
    const ct_dims axes = ct_ndim(l->in[0]) ? CT_DIMS(a->axis) : CT_DIMS0;
    ct_tensor *length = norm(l->in[0], .p = CT_SET(a->p), .axes = axes, .keepdim = true);
    l->out[0] = div(l->in[0], clamp(length, .min = CT_SET(a->eps)));
}

/* ---- local_response_norm ---- */

bool local_response_norm_infer(ct_infer *infer) {
    const local_response_norm_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (x->ndim < 2)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to be %s", ct_view_text(x),
                             a->channels_last ? "[batch, ..., channels]" : "[batch, channels, ...]");
    if (a->size < 1 || a->size > INT32_MAX)
        return ct_infer_fail(infer, CT_ERR_VALUE, "size is %lld; it has to be at least 1 and below 2^31",
                             (long long)a->size);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void local_response_norm_lower(ct_lower *l) {
    const local_response_norm_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    const int n = ct_ndim(x);
    if (ct_numel(x) == 0) {
        l->out[0] = mul_s(x, 1);
        return;
    }
    const int64_t channels = ct_dim(x, a->channels_last ? n - 1 : 1), items = ct_dim(x, 0);
    const ct_dims shape = a->channels_last ? CT_DIMS(ct_numel(x) / channels, channels, 1)
                                           : CT_DIMS(items, channels, ct_numel(x) / (items * channels));
    ct_tensor *padded = pad(reshape(square(x), shape), CT_DIMS(0, 0, a->size / 2, (a->size - 1) / 2, 0, 0));
    ct_tensor *response = reshape(mean(unfold(padded, 1, a->size, 1), .axes = CT_DIMS(-1)), ct_shape(x));
    l->out[0] = div(x, pow_s(add_s(mul_s(response, a->alpha), a->k), a->beta));
}

/* ---- weight_norm ---- */

bool weight_norm_infer(ct_infer *infer) {
    const weight_norm_attrs *a = infer->attrs;
    const ct_view *v = infer->in[0], *g = infer->in[1];
    int axis;
    if (!ct__infer_axis(infer, a->axis, v->ndim, &axis)) return false;
    const int64_t norms = a->whole || v->ndim == 0 ? 1 : v->dims[axis];
    bool fits = ct__count(g->ndim, g->dims) == norms;
    if (g->ndim == v->ndim && v->ndim) fits = fits && (a->whole || g->dims[axis] == norms);
    else fits = fits && g->ndim <= 1;
    if (!fits)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "g is %s; v is %s, so it has to have %lld values, one a norm",
                             ct_view_text(g), ct_view_text(v), (long long)norms);
    ct__infer_like(infer, 0, v, v->dtype);
    return true;
}

void weight_norm_lower(ct_lower *l) {
    const weight_norm_attrs *a = l->attrs;
    ct_tensor *v = l->in[0], *g = l->in[1];
    const int n = ct_ndim(v), axis = ct__axis(a->axis, n);
    const bool whole = a->whole || n == 0;
    ct_dims others = {0}, kept = {.n = n};
    for (int i = 0; i < n; i++) {
        kept.d[i] = !whole && i == axis ? ct_dim(v, i) : 1;
        if (whole || i != axis) others.d[others.n++] = i;
    }
    ct_tensor *length = others.n || n == 0 ? norm(v, .axes = others, .keepdim = true) : ct_abs(v);
    l->out[0] = mul(v, div(reshape(g, kept), length));
}
