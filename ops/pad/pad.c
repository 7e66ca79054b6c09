/* pad: constant frames are pad_constant, the other modes pad_repeat, whose gradient is closed under differentiation.
 * */
#include "ops/op_impl.h"

static const char *const mode_names[] = {"constant", "reflect", "replicate", "circular"};

/* pads as the caller wrote them, for every axis of ndim. */
static ct_dims spread(int ndim, ct_dims pads) {
    const int axes = pads.n % 2 ? pads.n : pads.n / 2;
    ct_dims all = {.n = 2 * ndim};
    for (int i = 0; i < axes; i++)
        for (int side = 0; side < 2; side++)
            all.d[2 * (ndim - axes + i) + side] = pads.d[pads.n % 2 ? i : 2 * i + side];
    return all;
}

/* The most that may be repeated of an axis: reflect and replicate see all of it, circular what cutting leaves. */
static int64_t most_repeated(int mode, int64_t size, int64_t left) {
    if (mode == CT_PAD_CONSTANT || (mode == CT_PAD_REPLICATE && size)) return INT64_MAX / 4;
    return mode == CT_PAD_REFLECT ? (size ? size - 1 : 0) : mode == CT_PAD_CIRCULAR ? left : 0;
}

static int64_t above_zero(int64_t pad) { return pad > 0 ? pad : 0; }
static int64_t below_zero(int64_t pad) { return pad < 0 ? pad : 0; }

bool pad_infer(ct_infer *infer) {
    const pad_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    const int axes = at->pads.n % 2 ? at->pads.n : at->pads.n / 2;
    if (axes > x->ndim)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and pads %s, which is for %d axes", ct_view_text(x),
                             ct_dims_text(at->pads), axes);
    const ct_dims pads = spread(x->ndim, at->pads);
    int64_t dims[CT_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        const int64_t before = pads.d[2 * i], after = pads.d[2 * i + 1], size = x->dims[i],
                      more = before > after ? before : after;
        int64_t left = 0; /* of x after the cuts alone */
        bool over = __builtin_add_overflow(size, below_zero(before), &left) ||
                    __builtin_add_overflow(left, below_zero(after), &left) ||
                    __builtin_add_overflow(left, above_zero(before), &dims[i]) ||
                    __builtin_add_overflow(dims[i], above_zero(after), &dims[i]);
        const int64_t most = most_repeated(at->mode, size, left);
        if (more > 0 && more > most)
            return ct_infer_fail(infer, CT_ERR_SHAPE,
                                 "pads %lld and %lld of axis %d: with mode %s they are at most %lld for x, which is %s",
                                 (long long)before, (long long)after, i, mode_names[at->mode], (long long)most,
                                 ct_view_text(x));
        /* A frame of a constant does not stand in for what was cut off, nor does one of what is not there. */
        bool gone = at->mode == CT_PAD_CONSTANT || at->mode == CT_PAD_CIRCULAR ? left < 0 : dims[i] < 0;
        if (over || gone)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "pads %lld and %lld of axis %d cut more than there is: x is %s",
                                 (long long)before, (long long)after, i, ct_view_text(x));
    }
    ct__infer_set(infer, 0, x->dtype, x->ndim, dims);
    return true;
}

/* What negative pads leave of x, as a view. */
static ct_tensor *cut(ct_tensor *x, const ct_dims *pads) {
    for (int i = 0; i < ct_ndim(x); i++) {
        const int64_t before = -below_zero(pads->d[2 * i]), after = -below_zero(pads->d[2 * i + 1]);
        if (before || after) x = narrow(x, i, before, ct_dim(x, i) - before - after);
    }
    return x;
}

void pad_lower(ct_lower *l) {
    const pad_attrs *at = l->attrs;
    ct_tensor *x = l->in[0];
    const ct_dims pads = spread(ct_ndim(x), at->pads);
    ct_dims more = {.n = pads.n};
    bool any = false, cuts = false;
    for (int i = 0; i < pads.n; i++) {
        more.d[i] = above_zero(pads.d[i]);
        any |= more.d[i] != 0, cuts |= pads.d[i] < 0;
    }
    if (!any && !cuts) {
        l->out[0] = clone(x);
    } else if (at->mode == CT_PAD_CONSTANT) {
        if (ct__scalar_for(x, at->value, "pad")) /* a fraction does not go into integers */
            l->out[0] = pad_constant(x, pads, at->value);
    } else if (!any) {
        l->out[0] = clone(cut(x, &pads));
    } else if (at->mode == CT_PAD_CIRCULAR) {
        l->out[0] = pad_repeat(cut(x, &pads), more, (ct_pad_kind)at->mode);
    } else {
        ct_tensor *whole = pad_repeat(x, more, (ct_pad_kind)at->mode);
        l->out[0] = cuts ? clone(cut(whole, &pads)) : whole;
    }
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

/* Which element of an axis of `size` stands at each place of its padded form. */
static ct_tensor *sources(int mode, int64_t size, int64_t before, int64_t after) {
    const double last = (double)(size - 1);
    ct_tensor *place = arange(-(double)before, (double)size + (double)after, 1, .dtype = CT_I64);
    switch (mode) {
    case CT_PAD_REFLECT: return rsub_s(ct_abs(rsub_s(ct_abs(place), last)), last); /* at both ends */
    case CT_PAD_REPLICATE: return clamp(place, .min = CT_SET(0), .max = CT_SET(last));
    default: return remainder_s(place, (double)size);
    }
}

void pad_repeat_lower(ct_lower *l) {
    const pad_repeat_attrs *at = l->attrs;
    ct_tensor *y = l->in[0];
    for (int i = 0; i < ct_ndim(l->in[0]); i++) {
        const int64_t before = at->pads.d[2 * i], after = at->pads.d[2 * i + 1];
        if (before || after) y = index_select(y, i, sources(at->mode, ct_dim(l->in[0], i), before, after));
    }
    l->out[0] = y == l->in[0] ? clone(y) : y;
}

void pad_repeat_grad_lower(ct_lower *l) {
    const pad_repeat_grad_attrs *at = l->attrs;
    ct_tensor *y = l->in[0];
    ct_dims shape = ct_shape(y);
    for (int i = 0; i < shape.n; i++) {
        const int64_t before = at->pads.d[2 * i], after = at->pads.d[2 * i + 1];
        if (!before && !after) continue;
        shape.d[i] -= before + after;
        y = index_add(zeros(shape, .dtype = ct_dtype_of(y)), i, sources(at->mode, shape.d[i], before, after), y);
    }
    l->out[0] = y == l->in[0] ? clone(y) : y;
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
