/* Views that give an axis a stride of their own: diagonal, unfold, as_strided. Where their elements overlap, the
 * gradient sums; one op, strided_grad, does that for all of them, and as_strided is its derivative. */
#include "ops/view/view.h"

#include "ops/op_impl.h"

/* ---- diagonal ---- */

/* The two axes, and where the diagonal starts and how long it is. */
static bool diagonal_axes(const ct_infer *infer, const diagonal_attrs *at, int ndim, int *a, int *b) {
    if (!ct__infer_axis(infer, at->axis1, ndim, a) || !ct__infer_axis(infer, ct__whole(at->axis2), ndim, b))
        return false;
    return *a != *b || ct_infer_fail(infer, CT_ERR_SHAPE, "axis1 and axis2 are both %d", *a);
}

static int64_t diagonal_length(int64_t rows, int64_t columns, int64_t offset, int64_t *row, int64_t *column) {
    *row = *column = 0;
    if (offset <= -rows || offset >= columns) return 0;
    *row = offset < 0 ? -offset : 0;
    *column = offset > 0 ? offset : 0;
    return rows - *row < columns - *column ? rows - *row : columns - *column;
}

bool diagonal_infer(ct_infer *infer) {
    const diagonal_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    int a, b, n = 0;
    int64_t row, column;
    if (x->ndim < 2) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a diagonal needs two axes", ct_view_text(x));
    if (!diagonal_axes(infer, at, x->ndim, &a, &b)) return false;
    const int64_t length = diagonal_length(x->dims[a], x->dims[b], at->offset, &row, &column);
    out->dtype = x->dtype;
    out->offset = x->offset + row * x->strides[a] + column * x->strides[b];
    out->ndim = x->ndim - 1;
    for (int i = 0; i < x->ndim; i++) {
        if (i == a || i == b) continue;
        out->dims[n] = x->dims[i];
        out->strides[n++] = x->strides[i];
    }
    out->dims[n] = length;
    out->strides[n] = x->strides[a] + x->strides[b];
    return true;
}

void diagonal_vjp(ct_vjp *v) {
    const diagonal_attrs *at = v->attrs;
    const ct_dims shape = ct_shape(v->in[0]), whole = dense_strides(shape);
    const int a = ct__axis(at->axis1, shape.n), b = ct__axis(ct__whole(at->axis2), shape.n);
    int64_t row, column;
    ct_dims strides = {0};
    diagonal_length(shape.d[a], shape.d[b], at->offset, &row, &column);
    for (int i = 0; i < shape.n; i++)
        if (i != a && i != b) strides.d[strides.n++] = whole.d[i];
    strides.d[strides.n++] = whole.d[a] + whole.d[b];
    v->grad[0] = strided_grad(v->cot[0], shape, strides, row * whole.d[a] + column * whole.d[b]);
}

/* ---- unfold ---- */

/* How far windows are apart: a single one is no distance from the next, however far the option says. */
static int64_t window_step(const unfold_attrs *at, int64_t length) {
    return at->step > length - at->size ? 1 : at->step;
}

bool unfold_infer(ct_infer *infer) {
    const unfold_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    int axis;
    if (!ct__infer_axis(infer, at->axis, x->ndim, &axis)) return false;
    const int64_t length = x->ndim ? x->dims[axis] : 1, stride = x->ndim ? x->strides[axis] : 1;
    if (x->ndim == CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and has %d dimensions already, the most there can be",
                             ct_view_text(x), CT_MAX_DIMS);
    if (at->step < 1 || at->size < 0 || at->size > length)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "windows of %lld elements, %lld apart, do not fit axis %d of x, which is %s",
                             (long long)at->size, (long long)at->step, axis, ct_view_text(x));
    view_keep(out, x);
    if (x->ndim) {
        out->dims[axis] = (length - at->size) / at->step + 1;
        out->strides[axis] = window_step(at, length) * stride;
    }
    out->dims[x->ndim] = at->size;
    out->strides[x->ndim] = stride;
    out->ndim = x->ndim + 1;
    return true;
}

void unfold_vjp(ct_vjp *v) {
    const unfold_attrs *at = v->attrs;
    const ct_dims shape = ct_shape(v->in[0]);
    ct_dims strides = dense_strides(shape);
    const int axis = ct__axis(at->axis, shape.n);
    const int64_t stride = shape.n ? strides.d[axis] : 1;
    if (shape.n) strides.d[axis] *= window_step(at, shape.d[axis]);
    strides.d[strides.n++] = stride;
    v->grad[0] = strided_grad(v->cot[0], shape, strides, 0);
}

/* ---- as_strided ---- */

/* Every element that shape, strides and offset reach is one of the `count` elements of x. */
static bool inside(const ct_infer *infer, int64_t count, ct_dims shape, ct_dims strides, int64_t offset) {
    int64_t last = offset;
    bool overflow = false;
    if (shape.n != strides.n || shape.n > CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "shape is %s and strides %s: one stride for each of at most %d dimensions",
                             ct_dims_text(shape), ct_dims_text(strides), CT_MAX_DIMS);
    for (int i = 0; i < shape.n; i++)
        if (shape.d[i] < 0 || strides.d[i] < 0)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "shape is %s and strides %s: both are 0 or more",
                                 ct_dims_text(shape), ct_dims_text(strides));
    for (int i = 0; i < shape.n; i++) {
        int64_t way;
        if (shape.d[i] == 0) return true;
        overflow |=
            __builtin_mul_overflow(shape.d[i] - 1, strides.d[i], &way) || __builtin_add_overflow(last, way, &last);
    }
    if (offset >= 0 && last < count && !overflow) return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE,
                         "shape %s with strides %s from element %lld on leaves the %lld elements there are",
                         ct_dims_text(shape), ct_dims_text(strides), (long long)offset, (long long)count);
}

bool as_strided_view_infer(ct_infer *infer) {
    const as_strided_view_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    if (!ct__view_is_dense(x)) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and not contiguous", ct_view_text(x));
    if (!inside(infer, ct__count(x->ndim, x->dims), at->shape, at->strides, at->offset) ||
        !ct__infer_shape(infer, &at->shape, x->dtype))
        return false;
    /* where there is one place or none the stride says nothing, and may be anything */
    const ct_dims usual = dense_strides(at->shape);
    const bool any = ct__count(out->ndim, out->dims) > 0;
    for (int i = 0; i < at->shape.n; i++) out->strides[i] = any && at->shape.d[i] > 1 ? at->strides.d[i] : usual.d[i];
    out->offset = x->offset + (ct__count(out->ndim, out->dims) ? at->offset : 0);
    return true;
}

void as_strided_view_vjp(ct_vjp *v) {
    const as_strided_view_attrs *at = v->attrs;
    v->grad[0] = strided_grad(v->cot[0], ct_shape(v->in[0]), at->strides, at->offset);
}

bool as_strided_infer(ct_infer *infer) {
    const as_strided_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    if (!inside(infer, ct__count(x->ndim, x->dims), at->shape, at->strides, at->offset)) return false;
    ct__infer_set(infer, 0, x->dtype, at->shape.n, at->shape.d);
    return true;
}

void as_strided_lower(ct_lower *l) {
    const as_strided_attrs *at = l->attrs;
    l->out[0] = as_strided_view(contiguous(l->in[0]), at->shape, at->strides, at->offset);
}

/* ---- strided_grad ---- */

bool strided_grad_infer(ct_infer *infer) {
    const strided_grad_attrs *at = infer->attrs;
    const ct_view *g = infer->in[0];
    ct_dims shape = {.n = g->ndim};
    for (int i = 0; i < g->ndim; i++) shape.d[i] = g->dims[i];
    return ct__infer_shape(infer, &at->shape, g->dtype) &&
           inside(infer, ct__count(at->shape.n, at->shape.d), shape, at->strides, at->offset);
}

void strided_grad_vjp(ct_vjp *v) {
    const strided_grad_attrs *at = v->attrs;
    v->grad[0] = as_strided(v->cot[0], ct_shape(v->in[0]), at->strides, at->offset);
}

/* The places, as numbers, and a sum over them. */
void strided_grad_lower(ct_lower *l) {
    const strided_grad_attrs *at = l->attrs;
    const int64_t count = ct__count(at->shape.n, at->shape.d);
    ct_tensor *places =
        as_strided(arange(0, (double)count, 1, .dtype = CT_I64), ct_shape(l->in[0]), at->strides, at->offset);
    ct_tensor *y = gather_grad(flatten(l->in[0]), flatten(places), CT_DIMS(count), 0);
    l->out[0] = reshape(y, at->shape);
}
