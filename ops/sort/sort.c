/* Sorts and selections: shapes, and gradients, which go back to where each value came from. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

/* Values and indices like x, with `length` along the axis. */
static bool infer_lines(ct_infer *infer, int64_t axis, int64_t length) {
    const ct_view *x = infer->in[0];
    int at;
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_axis(infer, axis, x->ndim, &at)) return false;
    for (int k = 0; k < infer->n_out; k++) {
        ct__infer_like(infer, k, x, k == 0 ? x->dtype : CT_I64);
        if (x->ndim && length >= 0) infer->out[k].dims[at] = length;
    }
    return true;
}

bool sort_infer(ct_infer *infer) { return infer_lines(infer, ((const sort_attrs *)infer->attrs)->axis, -1); }

bool argsort_infer(ct_infer *infer) {
    if (!infer_lines(infer, ((const argsort_attrs *)infer->attrs)->axis, -1)) return false;
    infer->out[0].dtype = CT_I64;
    return true;
}

static int64_t line_length(const ct_infer *infer, int64_t axis) {
    const ct_view *x = infer->in[0];
    int at = ct__axis(axis, x->ndim);
    return x->ndim == 0 ? 1 : at >= 0 && at < x->ndim ? x->dims[at] : 0;
}

bool topk_infer(ct_infer *infer) {
    const topk_attrs *attrs = infer->attrs;
    int at;
    if (!ct__infer_axis(infer, attrs->axis, infer->in[0]->ndim, &at)) return false;
    int64_t n = line_length(infer, attrs->axis);
    if (attrs->k < 0 || attrs->k > n)
        return ct_infer_fail(infer, CT_ERR_VALUE, "k is %lld, but x is %s, with %lld elements along axis %d",
                             (long long)attrs->k, ct_view_text(infer->in[0]), (long long)n, at);
    if (infer->in[0]->ndim == 0 && attrs->k == 0)
        return ct_infer_fail(infer, CT_ERR_VALUE, "k is 0 and x is a scalar, of which there is no empty part");
    return infer_lines(infer, attrs->axis, attrs->k);
}

static bool infer_one_of_line(ct_infer *infer, int64_t axis, bool keepdim, const char *needs) {
    ct_dims axes = {.n = 1, .d = {axis}};
    if (!ct__infer_reduction(infer, &axes, keepdim, infer->in[0]->dtype, needs)) return false;
    if (infer->n_out > 1) ct__infer_like(infer, 1, &infer->out[0], CT_I64);
    return true;
}

bool kthvalue_infer(ct_infer *infer) {
    const kthvalue_attrs *attrs = infer->attrs;
    if (!infer_one_of_line(infer, attrs->axis, attrs->keepdim, NULL)) return false;
    int64_t n = line_length(infer, attrs->axis);
    if (attrs->k >= 1 && attrs->k <= n) return true;
    return ct_infer_fail(
        infer, CT_ERR_VALUE, "k is %lld, but x is %s, with %lld elements along axis %d; k counts from 1",
        (long long)attrs->k, ct_view_text(infer->in[0]), (long long)n, ct__axis(attrs->axis, infer->in[0]->ndim));
}

bool median_infer(ct_infer *infer) {
    const median_attrs *attrs = infer->attrs;
    return infer_one_of_line(infer, attrs->axis, attrs->keepdim, "there is no median of nothing");
}

/* ---- By sort ---- */

void argsort_lower(ct_lower *l) {
    const argsort_attrs *attrs = l->attrs;
    sort(l->in[0], attrs->axis, .descending = attrs->descending, .indices = &l->out[0]);
}

static bool wants_indices(const ct_lower *l) { return l->n_out > 1 && l->want[1]; }

void topk_lower(ct_lower *l) {
    const topk_attrs *attrs = l->attrs;
    ct_tensor *places = NULL, *values = sort(l->in[0], attrs->axis, .descending = !attrs->smallest, .indices = &places);
    if (ct_ndim(l->in[0])) { /* of a scalar there is but one */
        values = contiguous(narrow(values, (int)attrs->axis, 0, attrs->k));
        if (wants_indices(l)) places = contiguous(narrow(places, (int)attrs->axis, 0, attrs->k));
    }
    l->out[0] = values;
    if (wants_indices(l)) l->out[1] = places;
}

/* The element that stands at `place` when x is sorted along axis. Where there is a NaN, with passes_nan, the first of them:
 * behind all numbers. */
static void take_sorted(ct_lower *l, int64_t wanted, int64_t place, bool keepdim, bool passes_nan) {
    ct_tensor *x = l->in[0], *order = NULL;
    const int axis = ct__axis(wanted, ct_ndim(x));
    const ct_dims axes = ct_ndim(x) ? CT_DIMS(axis) : CT_DIMS0;
    ct_dims kept = ct__kept_shape(x, &axes), shape = {0};
    for (int i = 0; i < kept.n; i++)
        if (i != axis || keepdim) shape.d[shape.n++] = kept.d[i];
    ct_tensor *sorted = sort(x, axis, .indices = &order), *places = expand(ct_scalar((double)place, CT_I64), kept);
    if (passes_nan && ct_dtype_is_float(ct_dtype_of(x))) {
        ct_tensor *nans = sum(ct_isnan(x), .axes = axes, .keepdim = true);
        places = where(gt_s(nans, 0), rsub_s(nans, (double)ct__reduced_count(x, &axes)), places);
    }
    if (ct_numel(places) == 0) { /* there may be nothing along axis then */
        l->out[0] = zeros(shape, .dtype = ct_dtype_of(x));
        if (wants_indices(l)) l->out[1] = zeros(shape, .dtype = CT_I64);
        return;
    }
    l->out[0] = reshape(gather(sorted, axis, places), shape);
    if (wants_indices(l)) l->out[1] = reshape(gather(order, axis, places), shape);
}

void kthvalue_lower(ct_lower *l) {
    const kthvalue_attrs *attrs = l->attrs;
    take_sorted(l, attrs->axis, attrs->k - 1, attrs->keepdim, false);
}

void median_lower(ct_lower *l) {
    const median_attrs *attrs = l->attrs;
    const ct_dims axes = ct_ndim(l->in[0]) ? CT_DIMS(attrs->axis) : CT_DIMS0;
    take_sorted(l, attrs->axis, (ct__reduced_count(l->in[0], &axes) - 1) / 2, attrs->keepdim, true);
}

/* ---- Gradients ---- */

static ct_tensor *given_indices(const ct_vjp *v) { return v->n_out > 1 ? v->out[1] : NULL; }

void sort_vjp(ct_vjp *v) {
    const sort_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) places = argsort(v->in[0], attrs->axis, .descending = attrs->descending);
    v->grad[0] = gather_grad(v->cot[0], places, ct_shape(v->in[0]), attrs->axis);
}

void topk_vjp(ct_vjp *v) {
    const topk_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) topk(ct_detach(v->in[0]), attrs->k, attrs->axis, .smallest = attrs->smallest, .indices = &places);
    v->grad[0] = gather_grad(v->cot[0], places, ct_shape(v->in[0]), attrs->axis);
}

static ct_tensor *put_back(const ct_vjp *v, ct_tensor *places, int64_t axis) {
    ct_dims axes = ct_ndim(v->in[0]) ? CT_DIMS(axis) : CT_DIMS0;
    return ct__put_reduced(v->cot[0], places, v->in[0], &axes);
}

void kthvalue_vjp(ct_vjp *v) {
    const kthvalue_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) kthvalue(ct_detach(v->in[0]), attrs->k, attrs->axis, .keepdim = attrs->keepdim, .indices = &places);
    v->grad[0] = put_back(v, places, attrs->axis);
}

void median_vjp(ct_vjp *v) {
    const median_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) median(ct_detach(v->in[0]), attrs->axis, .keepdim = attrs->keepdim, .indices = &places);
    v->grad[0] = put_back(v, places, attrs->axis);
}
