/* trace, diag, cross and kron: lowerings only. */
#include "ops/op_impl.h"

static bool wants_matrix(ct_tensor *x, const char *op) {
    return ct_ndim(x) == 2 || ct_fail(CT_ERR_SHAPE, op, "x is %s; it has to be a matrix", ct_tensor_text(x));
}

void trace_lower(ct_lower *l) {
    if (wants_matrix(l->in[0], "trace") && ct__has_numbers(l->in[0], "trace", "x")) l->out[0] = sum(diagonal(l->in[0]));
}

void diag_lower(ct_lower *l) {
    const diag_attrs *attrs = l->attrs;
    ct_tensor *x = l->in[0];
    int64_t k = attrs->diagonal;
    if (ct_ndim(x) == 2) {
        l->out[0] = clone(diagonal(x, .offset = k));
    } else if (ct_ndim(x) == 1) {
        /* The matrix seen as a flat vector: element i of x sits at i * (n + 1) from the diagonal's start. */
        int64_t length = ct_dim(x, 0), n, all;
        if (!ct__has_numbers(x, "diag", "x")) return;
        if (k == INT64_MIN || __builtin_add_overflow(length, k < 0 ? -k : k, &n) ||
            __builtin_mul_overflow(n, n, &all)) {
            ct_fail(CT_ERR_VALUE, "diag", "diagonal %lld of a matrix around %s: it would be too large", (long long)k,
                    ct_tensor_text(x));
            return;
        }
        int64_t start = k >= 0 ? k : -k * n;
        ct_tensor *at = add_s(mul_s(arange(0, (double)length, 1, .dtype = CT_I64), (double)(n + 1)), (double)start);
        ct_tensor *flat = scatter_add(zeros(CT_DIMS(all), .dtype = ct_dtype_of(x)), 0, at, x);
        l->out[0] = reshape(flat, CT_DIMS(n, n));
    } else {
        ct_fail(CT_ERR_SHAPE, "diag", "x is %s; it has to be a vector or a matrix", ct_tensor_text(x));
    }
}

void cross_lower(ct_lower *l) {
    const cross_attrs *attrs = l->attrs;
    ct_tensor *a = l->in[0], *b = l->in[1];
    int ndim = ct_ndim(a);
    if (ndim == 0 || attrs->axis < -ndim || attrs->axis >= ndim || ct_dim(a, (int)attrs->axis) != 3) {
        ct_fail(CT_ERR_SHAPE, "cross", "axis %lld of %s has to exist and have size 3", (long long)attrs->axis,
                ct_tensor_text(a));
        return;
    }
    if (!ct__has_numbers(a, "cross", "a")) return; /* and b, which is of the same dtype */
    ct_tensor *u[3], *v[3];
    for (int i = 0; i < 3; i++) {
        u[i] = select(a, attrs->axis, i);
        v[i] = select(b, attrs->axis, i);
    }
    ct_tensor *parts[3];
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        parts[i] = sub(mul(u[j], v[k]), mul(u[k], v[j]));
    }
    l->out[0] = stack(parts, 3, ct__axis(attrs->axis, ndim));
}

void kron_lower(ct_lower *l) {
    ct_dims a = ct_shape(l->in[0]), b = ct_shape(l->in[1]);
    int n = a.n > b.n ? a.n : b.n;
    if (2 * n > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "kron", "a is %s, b is %s; more than %d dimensions are not supported",
                ct_tensor_text(l->in[0]), ct_tensor_text(l->in[1]), CT_MAX_DIMS / 2);
        return;
    }
    if (!ct__has_numbers(l->in[0], "kron", "a")) return;
    /* Interleaved: a as [a0,1,a1,1,...], b as [1,b0,1,b1,...]; neighbors merge into a_i * b_i. */
    ct_dims wide_a = {.n = 2 * n}, wide_b = {.n = 2 * n}, merged = {.n = n};
    for (int i = 0; i < n; i++) {
        int64_t da = i >= n - a.n ? a.d[i - (n - a.n)] : 1, db = i >= n - b.n ? b.d[i - (n - b.n)] : 1;
        wide_a.d[2 * i] = da;
        wide_a.d[2 * i + 1] = 1;
        wide_b.d[2 * i] = 1;
        wide_b.d[2 * i + 1] = db;
        merged.d[i] = ct__mul(da, db);
    }
    l->out[0] = reshape(mul(reshape(l->in[0], wide_a), reshape(l->in[1], wide_b)), merged);
}
