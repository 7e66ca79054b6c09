/* pad: constant frames are pad_constant, the other modes pad_repeat, whose gradient is closed under differentiation.
 * */
#include "ops/op_impl.h"

static const char *const mode_names[] = {"constant", "reflect", "replicate", "circular"};

/* pads as the caller wrote them, for every axis of x. */
static bool spread(const ct_tensor *x, ct_dims pads, ct_dims *all) {
    const int ndim = ct_ndim(x), axes = pads.n % 2 ? pads.n : pads.n / 2;
    if (axes > ndim)
        return ct_fail(CT_ERR_SHAPE, "pad", "x is %s and pads %s, which is for %d axes", ct_tensor_text(x),
                       ct_dims_text(pads), axes);
    *all = (ct_dims){.n = 2 * ndim};
    for (int i = 0; i < axes; i++)
        for (int side = 0; side < 2; side++)
            all->d[2 * (ndim - axes + i) + side] = pads.d[pads.n % 2 ? i : 2 * i + side];
    return true;
}

void pad_lower(ct_lower *l) {
    const pad_attrs *at = l->attrs;
    ct_tensor *x = l->in[0];
    ct_dims pads;
    bool any = false;
    if (!spread(x, at->pads, &pads)) return;
    for (int i = 0; i < pads.n; i++) any |= pads.d[i] != 0;
    if (!any) {
        l->out[0] = clone(x);
        return;
    }
    if (at->mode != CT_PAD_CONSTANT) {
        l->out[0] = pad_repeat(x, pads, (ct_pad_kind)at->mode);
        return;
    }
    if (!ct__scalar_for(x, at->value, "pad")) return; /* a fraction does not go into integers */
    l->out[0] = pad_constant(x, pads, at->value);
}

/* With pads that repeat elements of an axis of `size`, which is of image: its input, or its own gradient. */
static bool repeat_fits(const ct_infer *infer, int mode, const ct_dims *pads, int axis, int64_t size,
                        const char *name) {
    const int64_t before = pads->d[2 * axis], after = pads->d[2 * axis + 1], most = before > after ? before : after;
    const int64_t limit = mode == CT_PAD_REFLECT    ? size - 1
                          : mode == CT_PAD_CIRCULAR ? size
                          : size > 0                ? INT64_MAX / 4
                                                    : 0;
    if (size >= 0 && before >= 0 && after >= 0 && (most == 0 || most <= limit)) return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE,
                         "pads %lld and %lld of axis %d: with mode %s they are 0 to %lld for %s, which is %s",
                         (long long)before, (long long)after, axis, mode_names[mode],
                         (long long)(limit < 0 ? 0 : limit), name, ct_view_text(infer->in[0]));
}

static bool two_pads_an_axis(const ct_infer *infer, int mode, const ct_dims *pads, const char *name) {
    if (mode == CT_PAD_CONSTANT)
        return ct_infer_fail(infer, CT_ERR_VALUE, "mode is constant, which repeats nothing: pad_constant does it");
    return pads->n == 2 * infer->in[0]->ndim ||
           ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s and pads is %s: two numbers for each axis are expected", name,
                         ct_view_text(infer->in[0]), ct_dims_text(*pads));
}

bool pad_repeat_infer(ct_infer *infer) {
    const pad_repeat_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    int64_t dims[CT_MAX_DIMS];
    if (!two_pads_an_axis(infer, at->mode, &at->pads, "x")) return false;
    for (int i = 0; i < x->ndim; i++) {
        if (!repeat_fits(infer, at->mode, &at->pads, i, x->dims[i], "x")) return false;
        dims[i] = x->dims[i] + at->pads.d[2 * i] + at->pads.d[2 * i + 1];
    }
    ct__infer_set(infer, 0, x->dtype, x->ndim, dims);
    return true;
}

void pad_repeat_vjp(ct_vjp *v) {
    const pad_repeat_attrs *at = v->attrs;
    v->grad[0] = pad_repeat_grad(v->cot[0], at->pads, (ct_pad_kind)at->mode);
}

bool pad_repeat_grad_infer(ct_infer *infer) {
    const pad_repeat_grad_attrs *at = infer->attrs;
    const ct_view *g = infer->in[0];
    int64_t dims[CT_MAX_DIMS];
    if (!two_pads_an_axis(infer, at->mode, &at->pads, "g")) return false;
    for (int i = 0; i < g->ndim; i++) {
        dims[i] = ct__sub(g->dims[i], ct__add(at->pads.d[2 * i], at->pads.d[2 * i + 1]));
        if (!repeat_fits(infer, at->mode, &at->pads, i, dims[i], "g")) return false;
    }
    ct__infer_set(infer, 0, g->dtype, g->ndim, dims);
    return true;
}

void pad_repeat_grad_vjp(ct_vjp *v) {
    const pad_repeat_grad_attrs *at = v->attrs;
    v->grad[0] = pad_repeat(v->cot[0], at->pads, (ct_pad_kind)at->mode);
}
