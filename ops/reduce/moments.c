/* Products, variances and norms: shapes, lowerings, derivatives. */
#include "ops/reduce/reduce.h"
#include "ops/wide_vjp.h"

#include "ops/op_impl.h"

/* ---- prod ---- */

bool prod_infer(ct_infer *infer) {
    const prod_attrs *attrs = infer->attrs;
    ct_dtype dtype = infer->in[0]->dtype;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, ct_dtype_is_float(dtype) ? dtype : CT_I64, NULL);
}

/* dx[i] = g times the product of all others, those before i and those after it: nothing is divided, so zeros do no
 * harm. */
void prod_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, prod_vjp)) return;
    const prod_attrs *attrs = v->attrs;
    ct_reduced_layout layout = ct__reduced_layout(v->in[0], &attrs->axes);
    ct_tensor *flat = ct__flatten_reduced(v->in[0], &layout);
    ct_tensor *others = mul(cumprod_before(flat, -1), cumprod_before(flat, -1, .reverse = true));
    v->grad[0] = ct__unflatten_reduced(mul(reshape(v->cot[0], layout.result), others), &layout);
}

/* ---- var, std ---- */

bool var_infer(ct_infer *infer) {
    const var_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype, NULL);
}

bool std_infer(ct_infer *infer) {
    const std_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype, NULL);
}

/* In two passes: the mean first, then the squares of what is left. */
static ct_tensor *variance(ct_tensor *x, ct_dims axes, bool keepdim, double correction) {
    const double freedom = (double)ct__reduced_count(x, &axes) - correction;
    ct_tensor *squares = square(sub(x, mean(x, .axes = axes, .keepdim = true)));
    return div_s(sum(squares, .axes = axes, .keepdim = keepdim), freedom > 0 ? freedom : 0);
}

void var_lower(ct_lower *l) {
    const var_attrs *attrs = l->attrs;
    l->out[0] = variance(l->in[0], attrs->axes, attrs->keepdim, attrs->correction);
}

void std_lower(ct_lower *l) {
    const std_attrs *attrs = l->attrs;
    l->out[0] = ct_sqrt(variance(l->in[0], attrs->axes, attrs->keepdim, attrs->correction));
}

/* 2 / (n - correction) (x - mean) g; NaN where there are no degrees of freedom. */
static ct_tensor *variance_vjp(ct_tensor *g, ct_tensor *x, const ct_dims *axes, double correction) {
    double freedom = (double)ct__reduced_count(x, axes) - correction;
    ct_tensor *deviation = sub(x, mean(x, .axes = *axes, .keepdim = true));
    return mul(mul_s(ct__unreduce(g, x, axes), 2 / (freedom > 0 ? freedom : 0)), deviation);
}

void var_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, var_vjp)) return;
    const var_attrs *attrs = v->attrs;
    v->grad[0] = variance_vjp(v->cot[0], v->in[0], &attrs->axes, attrs->correction);
}

/* g / y, and 0 where y is 0, also for the derivatives of this. */
static ct_tensor *divide_or_zero(ct_tensor *g, ct_tensor *y) {
    ct_tensor *none = eq_s(y, 0);
    return div(where(none, zeros_like(g), g), where(none, ones_like(y), y));
}

void std_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, std_vjp)) return;
    const std_attrs *attrs = v->attrs;
    v->grad[0] =
        variance_vjp(mul_s(divide_or_zero(v->cot[0], v->out[0]), 0.5), v->in[0], &attrs->axes, attrs->correction);
}

/* ---- norm ---- */

bool norm_infer(ct_infer *infer) {
    const norm_attrs *attrs = infer->attrs;
    const char *needs = __builtin_isinf(attrs->p) ? "there is no greatest or least of nothing" : NULL;
    if (attrs->p != attrs->p) return ct_infer_fail(infer, CT_ERR_VALUE, "p is NaN");
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype, needs);
}

void norm_lower(ct_lower *lower) {
    const norm_attrs *attrs = lower->attrs;
    ct_tensor *x = lower->in[0], *y;
    double p = attrs->p;
    if (p == 0) y = cast(count_nonzero(x, .axes = attrs->axes, .keepdim = attrs->keepdim), ct_dtype_of(x));
    else if (p == 1) y = sum(ct_abs(x), .axes = attrs->axes, .keepdim = attrs->keepdim);
    else if (p == 2) y = ct_sqrt(sum(mul(x, x), .axes = attrs->axes, .keepdim = attrs->keepdim));
    else if (__builtin_isinf(p))
        y = p > 0 ? amax(ct_abs(x), .axes = attrs->axes, .keepdim = attrs->keepdim)
                  : amin(ct_abs(x), .axes = attrs->axes, .keepdim = attrs->keepdim);
    else y = pow_s(sum(pow_s(ct_abs(x), p), .axes = attrs->axes, .keepdim = attrs->keepdim), 1 / p);
    lower->out[0] = y;
}

/* p = 2: g x / y. Finite p: g sign(x) (|x| / y)^(p-1). Infinite p: g sign(x) at the element that won. Where y or x is
 * 0: 0. */
void norm_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, norm_vjp)) return;
    const norm_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0], *g = ct__unreduce(v->cot[0], x, &attrs->axes),
              *y = ct__unreduce(v->out[0], x, &attrs->axes);
    double p = attrs->p;
    if (p == 0) return; /* constant nearly everywhere */
    if (p == 2) {
        v->grad[0] = mul(divide_or_zero(g, y), x);
    } else if (p == 1) {
        v->grad[0] = mul(g, sign(x));
    } else if (__builtin_isinf(p)) {
        ct_tensor *size = ct_abs(x),
                  *place = p > 0 ? amax_place(size, .axes = attrs->axes) : amin_place(size, .axes = attrs->axes);
        v->grad[0] = mul(ct__put_reduced(g, place, x, &attrs->axes), sign(x));
    } else {
        ct_tensor *none = eq_s(x, 0),
                  *share = divide_or_zero(where(none, ones_like(x), ct_abs(x)), expand(y, ct_shape(x)));
        ct_tensor *slope = mul(pow_s(share, p - 1), sign(x));
        v->grad[0] = mul(g, where(none, zeros_like(x), slope));
    }
}
