/* masked_fill, masked_select, nonzero. Where the size of a result depends on values, a first op counts, lower reads
 * the count, and a second op gets it as an attribute: so every single op knows its shapes beforehand. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

bool masked_fill_infer(ct_infer *infer) {
    if (!ct__infer_arithmetic(infer, 0)) return false;
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

void masked_fill_lower(ct_lower *l) {
    ct_tensor *x = l->in[0], *value = ct__scalar_for(x, ((const masked_fill_attrs *)l->attrs)->value, "masked_fill");
    if (value) l->out[0] = where(l->in[1], value, x);
}

bool masked_fill_tensor_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *value = infer->in[2];
    if (!ct__infer_arithmetic(infer, 0)) return false;
    if (ct_dtype_is_float(value->dtype) && !ct_dtype_is_float(x->dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "value is %s, but x is %s; ct_cast one of them first",
                             ct_view_text(value), ct_view_text(x));
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void masked_fill_tensor_lower(ct_lower *l) {
    l->out[0] = where(l->in[1], cast(l->in[2], ct_dtype_of(l->in[0])), l->in[0]);
}

/* ---- Counting ---- */

bool nonzero_count_infer(ct_infer *infer) {
    ct__infer_set(infer, 0, CT_I64, 0, NULL);
    return true;
}

static bool count(ct_tensor *x, int64_t *n) {
    const double found = ct_item(nonzero_count(x));
    if (!ct_ok()) return false;
    *n = (int64_t)found;
    return true;
}

void nonzero_count_lower(ct_lower *l) { l->out[0] = count_nonzero(l->in[0]); }

/* The row-major places of the n elements that are true: each goes to as many as were true before it, all others behind them. */
static ct_tensor *true_places(ct_tensor *mask, int64_t n) {
    ct_tensor *chosen = flatten(mask),
              *total = check_range(sum(chosen), (double)n, (double)n, "masked_take", .what = CT_CHECKED_CHOSEN);
    ct_tensor *to = where(chosen, sub_s(cumsum(chosen, 0), 1), total);
    return narrow(scatter(zeros(CT_DIMS(ct__add(n, 1)), .dtype = CT_I64), 0, to, ct__counted(ct_numel(mask))), 0, 0, n);
}

/* ---- masked_select ---- */

void masked_select_lower(ct_lower *l) {
    int64_t n;
    if (count(l->in[1], &n)) l->out[0] = masked_take(l->in[0], l->in[1], n);
}

static bool same_shape(const ct_infer *infer, const ct_view *x, const ct_view *mask) {
    bool same = x->ndim == mask->ndim;
    for (int i = 0; same && i < x->ndim; i++) same = x->dims[i] == mask->dims[i];
    return same || ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and mask %s", ct_view_text(x), ct_view_text(mask));
}

bool masked_take_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    const int64_t n = ((const masked_take_attrs *)infer->attrs)->n;
    if (!same_shape(infer, x, infer->in[1])) return false;
    if (n < 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "n is %lld", (long long)n);
    ct__infer_set(infer, 0, x->dtype, 1, &n);
    return true;
}

void masked_take_lower(ct_lower *l) {
    l->out[0] = gather(flatten(l->in[0]), 0, true_places(l->in[1], ((const masked_take_attrs *)l->attrs)->n));
}

void masked_take_vjp(ct_vjp *v) {
    if (v->need[0]) v->grad[0] = masked_put(v->cot[0], v->in[1]);
}

bool masked_put_infer(ct_infer *infer) {
    if (infer->in[0]->ndim != 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "g is %s; a vector is expected", ct_view_text(infer->in[0]));
    ct__infer_like(infer, 0, infer->in[1], infer->in[0]->dtype);
    return true;
}

void masked_put_lower(ct_lower *l) {
    ct_tensor *g = l->in[0], *mask = l->in[1], *none = zeros(CT_DIMS(ct_numel(mask)), .dtype = ct_dtype_of(g));
    l->out[0] = reshape(scatter(none, 0, true_places(mask, ct_dim(g, 0)), g), ct_shape(mask));
}

void masked_put_vjp(ct_vjp *v) {
    if (v->need[0]) v->grad[0] = masked_take(v->cot[0], v->in[1], ct_dim(v->in[0], 0));
}

/* ---- nonzero ---- */

bool nonzero_places_infer(ct_infer *infer) {
    const int64_t n = ((const nonzero_places_attrs *)infer->attrs)->n;
    if (n < 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "n is %lld", (long long)n);
    ct__infer_set(infer, 0, CT_I64, 2, (const int64_t[]){n, infer->in[0]->ndim});
    return true;
}

void nonzero_places_lower(ct_lower *l) {
    const int64_t n = ((const nonzero_places_attrs *)l->attrs)->n;
    const ct_dims shape = ct_shape(l->in[0]);
    ct_tensor *places = true_places(ne_s(l->in[0], 0), n), *along[CT_MAX_DIMS];
    for (int i = shape.n - 1; i >= 0; i--) {
        along[i] = remainder_s(places, (double)shape.d[i]);
        places = floor_div_s(places, (double)shape.d[i]);
    }
    l->out[0] = shape.n ? stack(along, shape.n, 1) : zeros(CT_DIMS(n, 0), .dtype = CT_I64);
}

void nonzero_lower(ct_lower *l) {
    int64_t n;
    if (count(l->in[0], &n)) l->out[0] = nonzero_places(l->in[0], n);
}
