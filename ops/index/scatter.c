/* scatter, scatter_reduce, index_copy. Sums and means stand on scatter_add (gather.c); products and extremes on
 * scatter_extreme. */
#include "ops/index/fit.h"

#include "ops/op_impl.h"

static bool scatter_infer_any(ct_infer *infer, int64_t wanted) {
    const ct_view *x = infer->in[0], *index = infer->in[1], *src = infer->in[2];
    int axis;
    if (!ct__infer_axis(infer, wanted, x->ndim, &axis) || !ct__index_fits(infer, x, index, axis, "x") ||
        !ct__index_fits(infer, src, index, -1, "src"))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

/* ---- scatter ---- */

bool scatter_infer(ct_infer *infer) { return scatter_infer_any(infer, ((const scatter_attrs *)infer->attrs)->axis); }

static ct_tensor *zero_of(const ct_tensor *like, ct_dims shape) {
    return expand(ct_scalar(0, ct_dtype_of(like)), shape);
}

/* Which elements of index stayed: each leaves its number at its place, and then looks whether it is still there. */
static ct_tensor *winners(ct_tensor *index, ct_dims shape, int64_t axis) {
    const ct_dims places = ct_shape(index);
    ct_dims along = {.n = places.n};
    for (int i = 0; i < along.n; i++) along.d[i] = 1;
    const int at = ct__axis(axis, places.n);
    if (along.n) along.d[at] = places.d[at];
    ct_tensor *numbers =
        expand(reshape(arange(0, along.n ? (double)places.d[at] : 1, 1, .dtype = CT_I64), along), places);
    ct_tensor *left = scatter(expand(ct_scalar(0, CT_I64), shape), axis, index, numbers);
    return eq(gather(left, axis, index), numbers);
}

void scatter_vjp(ct_vjp *v) {
    const int64_t axis = ((const scatter_attrs *)v->attrs)->axis;
    ct_tensor *g = v->cot[0], *index = v->in[1];
    if (v->need[0]) v->grad[0] = scatter(g, axis, index, zero_of(g, ct_shape(index)));
    if (v->need[2])
        v->grad[2] = ct__grown(
            where(winners(index, ct_shape(v->in[0]), axis), gather(g, axis, index), ct_scalar(0, ct_dtype_of(g))),
            v->in[2]);
}

/* ---- scatter_reduce ---- */

static double smallest(ct_dtype dtype) {
    switch (dtype) {
    case CT_I8: return INT8_MIN;
    case CT_I16: return INT16_MIN;
    case CT_I32: return INT32_MIN;
    case CT_I64: return -0x1p63;
    case CT_U8:
    case CT_BOOL: return 0;
    default: return -__builtin_inf();
    }
}

static double largest(ct_dtype dtype) {
    switch (dtype) {
    case CT_I8: return INT8_MAX;
    case CT_I16: return INT16_MAX;
    case CT_I32: return INT32_MAX;
    case CT_I64: return 0x1p63; /* saturates */
    case CT_U8: return UINT8_MAX;
    case CT_BOOL: return 1;
    default: return __builtin_inf();
    }
}

static double neutral(int fold, ct_dtype dtype) {
    switch (fold) {
    case CT_FOLD_PROD: return 1;
    case CT_FOLD_MAX: return smallest(dtype);
    case CT_FOLD_MIN: return largest(dtype);
    default: return 0;
    }
}

/* y = scatter of one value, of x's dtype, to the places that index names. */
static ct_tensor *put_value(ct_tensor *x, int64_t axis, ct_tensor *index, double value) {
    return scatter(x, axis, index, expand(ct_scalar(value, ct_dtype_of(x)), ct_shape(index)));
}

/* The part of src that index covers. */
static ct_tensor *covered(ct_tensor *src, const ct_tensor *index) {
    const ct_dims part = ct_shape(index), shape = ct_shape(src);
    for (int i = 0; part.n == shape.n && i < shape.n; i++)
        if (part.d[i] != shape.d[i]) src = narrow(src, i, 0, part.d[i]);
    return src;
}

bool scatter_reduce_infer(ct_infer *infer) {
    return ct__has_arithmetic(infer, infer->in[0], "x") &&
           scatter_infer_any(infer, ((const scatter_reduce_attrs *)infer->attrs)->axis);
}

void scatter_reduce_lower(ct_lower *l) {
    const scatter_reduce_attrs *at = l->attrs;
    ct_tensor *x = l->in[0], *index = l->in[1], *src = l->in[2];
    const ct_dtype dtype = ct_dtype_of(x);
    if (at->exclude_self) x = put_value(x, at->axis, index, neutral(at->reduce, dtype));
    if (at->reduce == CT_FOLD_SUM) {
        l->out[0] = scatter_add(x, at->axis, index, src);
    } else if (at->reduce == CT_FOLD_MEAN) {
        const ct_dtype counts =
            ct_dtype_is_float(dtype) ? dtype : CT_I64; /* integers are summed where they do not wrap */
        if (counts != dtype) x = cast(x, counts), src = cast(src, counts);
        ct_tensor *one = ct_scalar(1, counts), *base = expand(one, ct_shape(x));
        if (at->exclude_self) base = put_value(base, at->axis, index, 0);
        ct_tensor *count = scatter_add(base, at->axis, index, expand(one, ct_shape(index))),
                  *total = scatter_add(x, at->axis, index, src);
        l->out[0] = ct_dtype_is_float(dtype) ? div(total, count) : cast(floor_div(total, count), dtype);
    } else {
        l->out[0] = scatter_extreme(x, at->axis, index, src, (ct_scatter_fold)at->reduce);
    }
}

bool scatter_extreme_infer(ct_infer *infer) {
    const scatter_extreme_attrs *at = infer->attrs;
    if (!ct__has_arithmetic(infer, infer->in[0], "x")) return false;
    if (at->reduce == CT_FOLD_SUM || at->reduce == CT_FOLD_MEAN)
        return ct_infer_fail(infer, CT_ERR_VALUE, "sums and means are not made here");
    return scatter_infer_any(infer, at->axis);
}

/* Those equal to the result share its gradient. */
static void extreme_gradient(ct_vjp *v, int64_t axis, ct_tensor *src) {
    ct_tensor *x = v->in[0], *index = v->in[1], *y = v->out[0];
    const ct_dtype dtype = ct_dtype_of(x);
    ct_tensor *from_x = cast(eq(x, y), dtype), *from_src = cast(eq(src, gather(y, axis, index)), dtype);
    ct_tensor *share = div(v->cot[0], scatter_add(from_x, axis, index, from_src));
    if (v->need[0]) v->grad[0] = mul(from_x, share);
    if (v->need[2]) v->grad[2] = ct__grown(mul(from_src, gather(share, axis, index)), v->in[2]);
}

/* x along axis moved by one place, towards the end or the start; the place that falls free is 0. */
static ct_tensor *shifted(ct_tensor *x, int axis, bool towards_end) {
    ct_dims pads = {.n = 2 * ct_ndim(x)};
    pads.d[2 * axis + !towards_end] = 1;
    return pad_constant(narrow(x, axis, !towards_end, ct_dim(x, axis) - 1), pads, 0);
}

/* Of factors that lie in runs, the products of those before each in its run, or after it: a recurrence that starts anew, with
 * 1, wherever a run does. */
static ct_tensor *others_of_run(ct_tensor *factors, ct_tensor *places, int axis, bool before) {
    const ct_dtype dtype = ct_dtype_of(factors);
    ct_tensor *goes_on = logical_and(eq(shifted(places, axis, before), places),
                                     shifted(expand(ct_scalar(1, CT_BOOL), ct_shape(places)), axis, before));
    ct_tensor *step = where(goes_on, shifted(factors, axis, before), ct_scalar(0, dtype));
    return linear_scan(step, cast(logical_not(goes_on), dtype), axis, .reverse = !before);
}

/* Every product but for one factor. Sorted by where they are sent, the factors of one product are a run, and those before and
 * after each are multiplied: nothing is divided, so that zeros do no harm at any order. */
static void product_gradient(ct_vjp *v, int64_t wanted, ct_tensor *src) {
    ct_tensor *x = v->in[0], *index = v->in[1], *g = v->cot[0];
    if (ct_ndim(index) == 0) index = reshape(index, CT_DIMS(1)), src = reshape(src, CT_DIMS(1));
    const ct_dims places = ct_shape(index);
    const int axis = ct__axis(wanted, places.n);
    if (ct_numel(index) == 0) { /* nothing is sent */
        if (v->need[0]) v->grad[0] = g;
        return;
    }
    ct_tensor *order = argsort(index, axis), *sent = gather(index, axis, order), *factors = gather(src, axis, order);
    ct_tensor *others = mul(others_of_run(factors, sent, axis, true), others_of_run(factors, sent, axis, false));
    if (v->need[0]) /* of a run all products are the same, and the last one stays */
        v->grad[0] = mul(g, scatter(ones_like(x), axis, sent, mul(factors, others)));
    if (v->need[2])
        v->grad[2] = ct__grown(gather_grad(mul(gather(mul(g, x), axis, sent), others), order, places, axis), v->in[2]);
}

void scatter_extreme_vjp(ct_vjp *v) {
    const scatter_extreme_attrs *at = v->attrs;
    ct_tensor *src = covered(v->in[2], v->in[1]);
    if (at->reduce == CT_FOLD_PROD) product_gradient(v, at->axis, src);
    else extreme_gradient(v, at->axis, src);
}

/* ---- index_copy ---- */

void index_copy_lower(ct_lower *l) {
    const int64_t wanted = ((const index_copy_attrs *)l->attrs)->axis;
    ct_tensor *x = l->in[0], *index = l->in[1], *src = l->in[2];
    const ct_dims shape = ct_shape(src);
    const int axis = ct__axis(wanted, shape.n);
    bool fits = shape.n == ct_ndim(x) && ct_ndim(index) <= 1 && axis >= 0 && axis < (shape.n ? shape.n : 1) &&
                ct_numel(index) == (shape.n ? shape.d[axis] : 1);
    for (int i = 0; fits && i < shape.n; i++) fits = i == axis || shape.d[i] == ct_dim(x, i);
    if (!fits) {
        ct_fail(
            CT_ERR_SHAPE, "index_copy",
            "x is %s, index %s and src %s: src has to be x's shape, but along axis %lld as long as the vector index",
            ct_tensor_text(x), ct_tensor_text(index), ct_tensor_text(src), (long long)wanted);
        return;
    }
    ct_dims along = {.n = shape.n};
    for (int i = 0; i < shape.n; i++) along.d[i] = i == axis ? shape.d[i] : 1;
    l->out[0] = scatter(x, axis, expand(reshape(index, along), shape), src);
}
