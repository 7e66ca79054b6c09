/* Rows by a vector of indices: index_select, index_add, embedding, and the sums that are their gradients. Choosing
 * and summing are each other's derivative. */
#include "ops/index/fit.h"

#include "ops/op_impl.h"

static bool is_vector(ct_infer *infer, const ct_view *index) {
    return index->ndim <= 1 ||
           ct_infer_fail(infer, CT_ERR_SHAPE, "index is %s; a vector is expected", ct_view_text(index));
}

/* src is x's shape with the length of index along axis. */
static bool rows_fit(ct_infer *infer, int ndim, const int64_t *dims, const ct_view *src, const ct_view *index,
                     int axis) {
    const int64_t length = index->ndim ? index->dims[0] : 1;
    bool fits = src->ndim == ndim && (ndim || length == 1);
    for (int i = 0; fits && i < ndim; i++) fits = src->dims[i] == (i == axis ? length : dims[i]);
    if (fits) return true;
    const ct_view whole = {.dtype = src->dtype, .ndim = ndim};
    ct_view expected = whole;
    for (int i = 0; i < ndim; i++) expected.dims[i] = i == axis ? length : dims[i];
    return ct_infer_fail(infer, CT_ERR_SHAPE, "src is %s; with index %s along axis %d it has to be %s",
                         ct_view_text(src), ct_view_text(index), axis, ct_view_text(&expected));
}

/* ---- index_select ---- */

bool index_select_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *index = infer->in[1];
    int axis;
    if (!is_vector(infer, index) ||
        !ct__infer_axis(infer, ((const index_select_attrs *)infer->attrs)->axis, x->ndim, &axis))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    const int64_t length = index->ndim ? index->dims[0] : 1;
    if (x->ndim) infer->out[0].dims[axis] = length;
    else if (length != 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; of a scalar only one element can be chosen, index is %s",
                             ct_view_text(x), ct_view_text(index));
    return true;
}

void index_select_vjp(ct_vjp *v) {
    const index_select_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = index_select_grad(v->cot[0], v->in[1], ct_shape(v->in[0]), at->axis);
}

bool index_select_grad_infer(ct_infer *infer) {
    const index_select_grad_attrs *at = infer->attrs;
    const ct_view *src = infer->in[0], *index = infer->in[1];
    int axis;
    if (!ct__has_arithmetic(infer, src, "src") || !is_vector(infer, index) ||
        !ct__infer_shape(infer, &at->shape, src->dtype) || !ct__infer_axis(infer, at->axis, at->shape.n, &axis))
        return false;
    return rows_fit(infer, at->shape.n, at->shape.d, src, index, axis);
}

void index_select_grad_lower(ct_lower *l) {
    const index_select_grad_attrs *at = l->attrs;
    l->out[0] = index_add(zeros(at->shape, .dtype = ct_dtype_of(l->in[0])), at->axis, l->in[1], l->in[0]);
}

void index_select_grad_vjp(ct_vjp *v) {
    const index_select_grad_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = index_select(v->cot[0], at->axis, v->in[1]);
}

/* ---- index_add ---- */

bool index_add_infer(ct_infer *infer) {
    const index_add_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0], *index = infer->in[1], *src = infer->in[2];
    int axis;
    if (!ct__has_arithmetic(infer, x, "x") || !is_vector(infer, index) ||
        !ct__infer_axis(infer, at->axis, x->ndim, &axis))
        return false;
    if (!rows_fit(infer, x->ndim, x->dims, src, index, axis)) return false;
    if (!ct_dtype_is_float(x->dtype) && at->alpha != (double)(int64_t)at->alpha)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "alpha is %g and x %s; convert x first: ct_cast(x, CT_F32)",
                             at->alpha, ct_view_text(x));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void index_add_vjp(ct_vjp *v) {
    const index_add_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = v->cot[0];
    if (!v->need[2]) return;
    ct_tensor *g = index_select(v->cot[0], at->axis, v->in[1]);
    v->grad[2] = at->alpha == 1 ? g : mul_s(g, at->alpha);
}

/* ---- embedding ---- */

static bool padding_ok(ct_infer *infer, ct_opt padding, int64_t rows) {
    if (!padding.set ||
        (padding.value >= 0 && padding.value < (double)rows && padding.value == (double)(int64_t)padding.value))
        return true;
    return ct_infer_fail(infer, CT_ERR_INDEX, "padding_idx is %.15g, not one of the %lld rows of weight", padding.value,
                         (long long)rows);
}

bool embedding_infer(ct_infer *infer) {
    const ct_view *weight = infer->in[0], *index = infer->in[1];
    ct_view *out = &infer->out[0];
    if (weight->ndim < 1 || index->ndim + weight->ndim - 1 > CT_MAX_DIMS)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "weight is %s and index %s: rows along the first axis are expected, and a result of at most %d dimensions",
            ct_view_text(weight), ct_view_text(index), CT_MAX_DIMS);
    if (!padding_ok(infer, ((const embedding_attrs *)infer->attrs)->padding_idx, weight->dims[0])) return false;
    out->dtype = weight->dtype;
    out->ndim = index->ndim + weight->ndim - 1;
    for (int i = 0; i < out->ndim; i++)
        out->dims[i] = i < index->ndim ? index->dims[i] : weight->dims[i - index->ndim + 1];
    return true;
}

void embedding_lower(ct_lower *l) {
    ct_tensor *weight = l->in[0], *index = l->in[1];
    const ct_dims row = ct_shape(weight);
    ct_dims shape = ct_shape(index);
    for (int i = 1; i < row.n; i++) shape.d[shape.n++] = row.d[i];
    l->out[0] = reshape(index_select(weight, 0, flatten(index)), shape);
}

void embedding_vjp(ct_vjp *v) {
    const embedding_attrs *at = v->attrs;
    if (v->need[0])
        v->grad[0] = embedding_grad(v->cot[0], v->in[1], ct_shape(v->in[0]), .padding_idx = at->padding_idx);
}

bool embedding_grad_infer(ct_infer *infer) {
    const embedding_grad_attrs *at = infer->attrs;
    const ct_view *g = infer->in[0], *index = infer->in[1];
    bool fits = at->shape.n >= 1 && g->ndim == index->ndim + at->shape.n - 1;
    for (int i = 0; fits && i < g->ndim; i++)
        fits = g->dims[i] == (i < index->ndim ? index->dims[i] : at->shape.d[i - index->ndim + 1]);
    if (!fits)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "g is %s and index %s: they do not belong to a weight of shape %s",
                             ct_view_text(g), ct_view_text(index), ct_dims_text(at->shape));
    return ct__has_arithmetic(infer, g, "g") && padding_ok(infer, at->padding_idx, at->shape.d[0]) &&
           ct__infer_shape(infer, &at->shape, g->dtype);
}

/* Rows, one for each index, but zeros for padding_idx. */
static ct_tensor *without_padding(ct_tensor *rows, ct_tensor *index, const embedding_grad_attrs *at) {
    if (!at->padding_idx.set) return rows;
    ct_dims shape = ct_shape(index);
    for (int i = 1; i < at->shape.n; i++) shape.d[shape.n++] = 1;
    return where(reshape(eq_s(index, at->padding_idx.value), shape), ct_scalar(0, ct_dtype_of(rows)), rows);
}

void embedding_grad_lower(ct_lower *l) {
    const embedding_grad_attrs *at = l->attrs;
    ct_tensor *index = l->in[1], *rows = without_padding(l->in[0], index, at);
    ct_dims shape = at->shape;
    shape.d[0] = ct_numel(index);
    l->out[0] = index_add(zeros(at->shape, .dtype = ct_dtype_of(rows)), 0, flatten(index), reshape(rows, shape));
}

void embedding_grad_vjp(ct_vjp *v) {
    if (v->need[0]) v->grad[0] = without_padding(embedding(v->cot[0], v->in[1]), v->in[1], v->attrs);
}
