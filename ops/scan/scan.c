/* Scans: shapes and derivatives. What is not a sum goes back to a linear recurrence, y[i] = a[i] y[i-1] + b[i], whose
 * own derivative is a recurrence again; nothing is divided, so zeros do no harm at any order. */
#include "ops/reduce/reduce.h"
#include "ops/wide_vjp.h"

#include "ops/op_impl.h"

static bool infer_scan(ct_infer *infer, int64_t axis, ct_dtype dtype) {
    const ct_view *x = infer->in[0];
    int resolved;
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_axis(infer, axis, x->ndim, &resolved)) return false;
    ct__infer_like(infer, 0, x, dtype);
    if (infer->n_out > 1) ct__infer_like(infer, 1, x, CT_I64);
    return true;
}

static ct_dtype sum_dtype(ct_dtype dtype) { return ct_dtype_is_float(dtype) ? dtype : CT_I64; }

/* All of x along axis but its first or its last place. */
static ct_tensor *but_first(ct_tensor *x, int axis) { return narrow(x, axis, 1, ct_dim(x, axis) - 1); }
static ct_tensor *but_last(ct_tensor *x, int axis) { return narrow(x, axis, 0, ct_dim(x, axis) - 1); }

/* x with one more place along axis, which is 0. */
static ct_tensor *grow(ct_tensor *x, int axis, bool at_end) {
    ct_dims pads = {.n = 2 * ct_ndim(x)};
    pads.d[2 * axis + at_end] = 1;
    return pad_constant(x, pads, 0);
}

/* x moved by one place along axis, towards the end or the start; the place that falls free is 0. */
static ct_tensor *shift(ct_tensor *x, int64_t axis, bool towards_end) {
    int at = ct__axis(axis, ct_ndim(x));
    if (ct_ndim(x) == 0) return zeros_like(x);
    if (ct_dim(x, at) == 0) return x;
    return grow(towards_end ? but_last(x, at) : but_first(x, at), at, !towards_end);
}

/* ---- Sums ---- */

bool cumsum_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cumsum_attrs *)infer->attrs)->axis, sum_dtype(infer->in[0]->dtype));
}
bool cumsum_back_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cumsum_back_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}

void cumsum_back_lower(ct_lower *l) {
    const int64_t axis = ((const cumsum_back_attrs *)l->attrs)->axis;
    ct_tensor *x = l->in[0];
    const ct_dims axes = ct_ndim(x) ? CT_DIMS(axis) : CT_DIMS0;
    l->out[0] = flip(cumsum(flip(x, axes), axis), axes);
}

void cumsum_vjp(ct_vjp *v) { v->grad[0] = cumsum_back(v->cot[0], ((const cumsum_attrs *)v->attrs)->axis); }
void cumsum_back_vjp(ct_vjp *v) { v->grad[0] = cumsum(v->cot[0], ((const cumsum_back_attrs *)v->attrs)->axis); }

/* ---- Products ---- */

bool cumprod_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cumprod_attrs *)infer->attrs)->axis, sum_dtype(infer->in[0]->dtype));
}
bool cumprod_before_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cumprod_before_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}

void cumprod_before_lower(ct_lower *l) {
    const cumprod_before_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    const int axis = ct__axis(a->axis, ct_ndim(x));
    if (ct_ndim(x) == 0 || ct_numel(x) == 0) {
        l->out[0] = ones_like(x);
        return;
    }
    ct_dims one = ct_shape(x);
    one.d[axis] = 1;
    if (a->reverse) x = flip(x, CT_DIMS(axis));
    ct_tensor *y =
        cat(((ct_tensor *[]){ones(one, .dtype = ct_dtype_of(x)), cumprod(but_last(x, axis), axis)}), 2, axis);
    l->out[0] = a->reverse ? flip(y, CT_DIMS(axis)) : y;
}

/* y[i] = x[i] p[i], p the product before i. What reaches p[i] is w[i] = g[i] + x[i+1] w[i+1], and dx = p w. */
void cumprod_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, cumprod_vjp)) return;
    const cumprod_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0];
    ct_tensor *w = linear_scan(shift(x, attrs->axis, false), v->cot[0], attrs->axis, .reverse = true);
    v->grad[0] = mul(cumprod_before(x, attrs->axis), w);
}

/* p[i+1] = x[i] p[i]: w[i] = g[i] + x[i] w[i+1], and dx[i] = p[i] w[i+1]. */
void cumprod_before_vjp(ct_vjp *v) {
    const cumprod_before_attrs *attrs = v->attrs;
    ct_tensor *w = linear_scan(v->in[0], v->cot[0], attrs->axis, .reverse = !attrs->reverse);
    v->grad[0] = mul(v->out[0], shift(w, attrs->axis, attrs->reverse));
}

/* ---- The recurrence ---- */

bool linear_scan_infer(ct_infer *infer) {
    return infer_scan(infer, ((const linear_scan_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}

/* w[i] = g[i] + a[i+1] w[i+1] reaches y[i]; db = w, da[i] = w[i] y[i-1]. */
void linear_scan_vjp(ct_vjp *v) {
    const linear_scan_attrs *attrs = v->attrs;
    ct_tensor *w =
        linear_scan(shift(v->in[0], attrs->axis, attrs->reverse), v->cot[0], attrs->axis, .reverse = !attrs->reverse);
    if (v->need[0]) v->grad[0] = mul(w, shift(v->out[0], attrs->axis, !attrs->reverse));
    if (v->need[1]) v->grad[1] = w;
}

/* ---- Extrema ---- */

bool cummax_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cummax_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}
bool cummin_infer(ct_infer *infer) {
    return infer_scan(infer, ((const cummin_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}

static ct_tensor *given_indices(const ct_vjp *v) { return v->n_out > 1 ? v->out[1] : NULL; }

void cummax_vjp(ct_vjp *v) {
    const cummax_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) cummax(ct_detach(v->in[0]), attrs->axis, .indices = &places);
    v->grad[0] = gather_grad(v->cot[0], places, ct_shape(v->in[0]), attrs->axis);
}

void cummin_vjp(ct_vjp *v) {
    const cummin_attrs *attrs = v->attrs;
    ct_tensor *places = given_indices(v);
    if (!places) cummin(ct_detach(v->in[0]), attrs->axis, .indices = &places);
    v->grad[0] = gather_grad(v->cot[0], places, ct_shape(v->in[0]), attrs->axis);
}

/* ---- log of sums of exp ---- */

bool logcumsumexp_infer(ct_infer *infer) {
    return infer_scan(infer, ((const logcumsumexp_attrs *)infer->attrs)->axis, infer->in[0]->dtype);
}

/* By doubling: what the 2^k elements up to each place come to, from what half as many do (Hillis and Steele, 1986). */
void logcumsumexp_lower(ct_lower *l) {
    const int axis = ct__axis(((const logcumsumexp_attrs *)l->attrs)->axis, ct_ndim(l->in[0]));
    const int64_t n = ct_ndim(l->in[0]) ? ct_dim(l->in[0], axis) : 1;
    ct_tensor *y = l->in[0];
    for (int64_t known = 1; known < n; known *= 2) {
        ct_tensor *joined = logaddexp(narrow(y, axis, known, n - known), narrow(y, axis, 0, n - known));
        y = cat(((ct_tensor *[]){narrow(y, axis, 0, known), joined}), 2, axis);
    }
    l->out[0] = n > 1 ? y : clone(y);
}

/* dx[i] = sum over j >= i of g[j] exp(x[i] - y[j]) = exp(x[i] - y[i]) w[i], w[i] = g[i] + exp(y[i] - y[i+1]) w[i+1].
 * y never falls, so no exponent is positive. Where y is -inf (nothing but -inf so far) the shares are 0. */
void logcumsumexp_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, logcumsumexp_vjp)) return;
    const logcumsumexp_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0], *y = v->out[0], *w = v->cot[0];
    ct_tensor *level = where(eq_s(y, -__builtin_inf()), zeros_like(y), y);
    int axis = ct__axis(attrs->axis, ct_ndim(x));
    if (ct_ndim(x) > 0 && ct_dim(x, axis) > 1) {
        ct_tensor *ratio = ct_exp(sub(but_last(y, axis), but_first(level, axis)));
        w = linear_scan(grow(ratio, axis, true), w, axis, .reverse = true);
    }
    v->grad[0] = mul(ct_exp(sub(x, level)), w);
}
