/* Shapes, dtypes and ranges of the random ops. They have no gradient but zero. */

#include "ops/op_impl.h"

static bool infer_float(ct_infer *infer, const ct_dims *shape, ct_dtype dtype) {
    if (!ct_dtype_is_float(dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "dtype is %s; it has to be f32, f64, f16 or bf16",
                             ct_dtype_name(dtype));
    return ct__infer_shape(infer, shape, dtype);
}

bool rand_infer(ct_infer *infer) {
    const rand_attrs *a = infer->attrs;
    return infer_float(infer, &a->shape, a->dtype);
}

bool randn_infer(ct_infer *infer) {
    const randn_attrs *a = infer->attrs;
    return infer_float(infer, &a->shape, a->dtype);
}

bool uniform_infer(ct_infer *infer) {
    const uniform_attrs *a = infer->attrs;
    if (!(a->lo <= a->hi) || !__builtin_isfinite(a->hi - a->lo))
        return ct_infer_fail(infer, CT_ERR_VALUE, "lo is %g and hi is %g; lo <= hi is needed, both finite", a->lo,
                             a->hi);
    return infer_float(infer, &a->shape, a->dtype);
}

static bool check_std(ct_infer *infer, double mean, double std) {
    if (std >= 0 && __builtin_isfinite(std) && __builtin_isfinite(mean)) return true;
    return ct_infer_fail(infer, CT_ERR_VALUE, "mean is %g and std is %g; both have to be finite, and std not negative",
                         mean, std);
}

bool normal_infer(ct_infer *infer) {
    const normal_attrs *a = infer->attrs;
    return check_std(infer, a->mean, a->std) && infer_float(infer, &a->shape, a->dtype);
}

bool truncated_normal_infer(ct_infer *infer) {
    const truncated_normal_attrs *a = infer->attrs;
    if (!(a->lo <= a->hi))
        return ct_infer_fail(infer, CT_ERR_VALUE, "lo is %g and hi is %g; lo <= hi is needed", a->lo, a->hi);
    return check_std(infer, a->mean, a->std) && infer_float(infer, &a->shape, a->dtype);
}

/* The least and the greatest value of an integer dtype; false for others. */
static bool integer_range(ct_dtype dtype, int64_t *least, int64_t *most) {
    bool is_unsigned = dtype == CT_U8 || dtype == CT_U16 || dtype == CT_U32 || dtype == CT_U64;
    if (!ct_dtype_is_int(dtype) && !is_unsigned) return false;
    int bits = 8 * (int)ct_dtype_size(dtype) - !is_unsigned;
    *most = bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
    *least = is_unsigned ? 0 : -*most - 1;
    return true;
}

bool randint_infer(ct_infer *infer) {
    const randint_attrs *a = infer->attrs;
    int64_t least, most;
    if (!integer_range(a->dtype, &least, &most))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "dtype is %s; it has to be an integer", ct_dtype_name(a->dtype));
    if (a->lo >= a->hi || a->lo < least || a->hi - 1 > most)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "lo is %lld and hi is %lld; lo < hi is needed, and values that %s holds", (long long)a->lo,
                             (long long)a->hi, ct_dtype_name(a->dtype));
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

bool bernoulli_infer(ct_infer *infer) {
    const ct_view *p = infer->in[0];
    if (!ct_dtype_is_float(p->dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "p is %s; probabilities are f32, f64, f16 or bf16", ct_view_text(p));
    ct__infer_like(infer, 0, p, p->dtype);
    return true;
}

/* The result steps at y = p alone: zero, which is what a gradient that is not set means. */
void bernoulli_vjp(ct_vjp *v) { v->grad[0] = NULL; }

bool bernoulli_full_infer(ct_infer *infer) {
    const bernoulli_full_attrs *a = infer->attrs;
    if (!(a->p >= 0 && a->p <= 1))
        return ct_infer_fail(infer, CT_ERR_VALUE, "p is %g; a probability lies in [0, 1]", a->p);
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

bool randperm_infer(ct_infer *infer) {
    const randperm_attrs *a = infer->attrs;
    if (a->dtype != CT_I64 && a->dtype != CT_I32)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "dtype is %s; it has to be i64 or i32", ct_dtype_name(a->dtype));
    /* keys and places are sorted as 32-bit numbers */
    if (a->n < 0 || a->n > INT32_MAX)
        return ct_infer_fail(infer, CT_ERR_VALUE, "n is %lld; it has to be between 0 and 2^31 - 1", (long long)a->n);
    return ct__infer_shape(infer, &(ct_dims){.n = 1, .d = {a->n}}, a->dtype);
}

bool multinomial_infer(ct_infer *infer) {
    const multinomial_attrs *a = infer->attrs;
    const ct_view *w = infer->in[0];
    if (w->ndim < 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "weights is %s; it has to have a dimension of categories",
                             ct_view_text(w));
    int64_t k = w->dims[w->ndim - 1];
    if (a->n < 0) return ct_infer_fail(infer, CT_ERR_VALUE, "n is %lld; it cannot be negative", (long long)a->n);
    if (a->n > 0 && k == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "weights is %s: there is no category to draw", ct_view_text(w));
    if (!a->replacement && a->n > k)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "n is %lld, but weights is %s: without replacement only %lld can be drawn",
                             (long long)a->n, ct_view_text(w), (long long)k);
    ct__infer_like(infer, 0, w, CT_I64);
    infer->out[0].dims[w->ndim - 1] = a->n;
    return true;
}
