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

/* Products whose gradient is wanted although they contain zeros: every one is written out, [..., result, ..., index],
 * so that prod, which is right with zeros to any order, does the work. */
static ct_tensor *dense_prod(ct_tensor *x, ct_tensor *index, ct_tensor *src, int64_t wanted) {
    const ct_dims shape = ct_shape(x);
    const int axis = ct__axis(wanted, shape.n);
    if (shape.n == 0) return mul(x, reshape(src, shape));
    /* outside index the result is x: work on the part that index covers */
    const ct_dims places = ct_shape(index);
    ct_tensor *part = x;
    for (int i = 0; i < shape.n; i++)
        if (i != axis && places.d[i] != shape.d[i]) part = narrow(part, i, 0, places.d[i]);
    ct_dims column = {.n = shape.n + 1};
    for (int i = 0; i < column.n; i++) column.d[i] = 1;
    column.d[axis] = shape.d[axis];
    ct_tensor *numbers = reshape(arange(0, (double)shape.d[axis], 1, .dtype = CT_I64), column); /* [1.., K, 1.., 1] */
    ct_tensor *sent = unsqueeze(movedim(index, CT_DIMS(axis), CT_DIMS(-1)), axis);              /* [.., 1, .., J] */
    ct_tensor *values = unsqueeze(movedim(src, CT_DIMS(axis), CT_DIMS(-1)), axis);
    ct_tensor *terms =
        where(eq(cast(sent, CT_I64), numbers), values, ct_scalar(1, ct_dtype_of(src))); /* [.., K, .., J] */
    ct_tensor *made = mul(part, prod(terms, .axes = CT_DIMS(-1)));
    bool whole = true;
    for (int i = 0; i < shape.n; i++) whole &= i == axis || places.d[i] == shape.d[i];
    if (whole) return made;
    ct_dims pads = {.n = 2 * shape.n};
    for (int i = 0; i < shape.n; i++)
        if (i != axis) pads.d[2 * i + 1] = shape.d[i] - places.d[i];
    ct_tensor *inside = pad_constant(expand(ct_scalar(1, CT_BOOL), ct_shape(made)), pads, 0);
    return where(inside, pad_constant(made, pads, 0), x);
}

static bool has_zero(ct_tensor *x) {
    bool found = false;
    const bool before = ct_set_grad_enabled(false);
    ct_scope {
        found = ct_numel(x) && ct_item(any(eq_s(x, 0))) != 0;
    }
    ct_set_grad_enabled(before);
    return found;
}

/* The error of an index that leads nowhere, where what follows would not see it. */
static bool indices_fit(ct_tensor *x, int64_t axis, ct_tensor *index, ct_tensor *src) {
    bool fit = false;
    const bool before = ct_set_grad_enabled(false);
    ct_scope {
        fit = scatter(x, axis, index, src) != NULL;
    }
    ct_set_grad_enabled(before);
    return fit;
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
    } else if (at->reduce == CT_FOLD_PROD && ct_grad_enabled() && (ct_requires_grad(x) || ct_requires_grad(src)) &&
               (has_zero(x) || has_zero(src))) {
        if (indices_fit(x, at->axis, index, src)) l->out[0] = dense_prod(x, index, covered(src, index), at->axis);
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

/* Every product but for one factor; scatter_reduce sees to it that none is zero. */
static void product_gradient(ct_vjp *v, int64_t axis, ct_tensor *src) {
    ct_tensor *gy = mul(v->cot[0], v->out[0]);
    if (v->need[0]) v->grad[0] = div(gy, v->in[0]);
    if (v->need[2]) v->grad[2] = ct__grown(div(gather(gy, axis, v->in[1]), src), v->in[2]);
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
