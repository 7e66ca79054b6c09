/* rope and alibi: shapes, and what they are in simpler ops. */
#include "ops/op_impl.h"

/* ---- rope ---- */

static int64_t turned_dims(const rope_attrs *a, int64_t d) { return a->dims ? a->dims : d; }

bool rope_infer(ct_infer *infer) {
    const rope_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0], *positions = infer->in[1];
    if (x->ndim < 2) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, not [..., T, D]", ct_view_text(x));
    const int64_t t = x->dims[x->ndim - 2], d = x->dims[x->ndim - 1], dims = turned_dims(a, d);
    if (dims < 0 || dims > d || dims % 2)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "%lld of the last dimension are to be rotated; x is %s, and the number has to be even",
                             (long long)dims, ct_view_text(x));
    if (!(a->base > 0)) return ct_infer_fail(infer, CT_ERR_VALUE, "base is %g; it has to be positive", a->base);
    if (positions && (positions->ndim != 1 || positions->dims[0] != t))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "positions is %s; for x %s it has to be [%lld]",
                             ct_view_text(positions), ct_view_text(x), (long long)t);
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void rope_lower(ct_lower *l) {
    const rope_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *positions = l->in[1];
    const int64_t t = ct_dim(x, -2), d = ct_dim(x, -1), dims = turned_dims(a, d), half = dims / 2;
    if (ct_numel(x) == 0 || dims == 0) {
        l->out[0] = x;
        return;
    }
    /* Angles in f64: at large positions the fraction of a circle would be lost. */
    ct_tensor *p = positions ? add_s(cast(positions, CT_F64), (double)a->offset)
                             : add_s(arange(0, (double)t, 1, .dtype = CT_F64), (double)a->offset);
    ct_tensor *rate =
        ct_exp(mul_s(arange(0, (double)half, 1, .dtype = CT_F64), -2 * __builtin_log(a->base) / (double)dims));
    ct_tensor *angle = mul(unsqueeze(p, 1), unsqueeze(rate, 0)), *c = cast(ct_cos(angle), ct_dtype_of(x)),
              *s = cast(ct_sin(angle), ct_dtype_of(x));
    if (a->inverse) s = neg(s);
    ct_tensor *part = narrow(x, -1, 0, dims), *rotated, *first, *second;
    if (a->interleaved) {
        ct_dims shape = ct_shape(part), pairs = shape;
        ct__set_size(&pairs, -1, half);
        pairs.d[pairs.n++] = 2;
        part = reshape(part, pairs);
        first = select(part, -1, 0), second = select(part, -1, 1);
        ct_tensor *both[] = {sub(mul(first, c), mul(second, s)), add(mul(second, c), mul(first, s))};
        rotated = reshape(stack(both, 2, -1), shape);
    } else {
        first = narrow(part, -1, 0, half), second = narrow(part, -1, half, half);
        ct_tensor *both[] = {sub(mul(first, c), mul(second, s)), add(mul(second, c), mul(first, s))};
        rotated = cat(both, 2, -1);
    }
    ct_tensor *all[] = {rotated, narrow(x, -1, dims, d - dims)};
    l->out[0] = dims < d ? cat(all, 2, -1) : rotated;
}

/* A rotation: its transpose rotates back. */
void rope_vjp(ct_vjp *v) {
    const rope_attrs *a = v->attrs;
    if (v->need[0])
        v->grad[0] = rope(v->cot[0], .positions = v->in[1], .base = a->base, .offset = a->offset, .dims = a->dims,
                          .interleaved = a->interleaved, .inverse = !a->inverse);
}

/* ---- ALiBi ---- */

static bool infer_heads(ct_infer *infer, int64_t heads, ct_dtype dtype) {
    if (heads < 1)
        return ct_infer_fail(infer, CT_ERR_VALUE, "heads is %lld; it has to be at least 1", (long long)heads);
    if (!ct_dtype_is_float(dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "dtype is %s; it has to be a float", ct_dtype_name(dtype));
    return true;
}

bool alibi_slopes_infer(ct_infer *infer) {
    const alibi_slopes_attrs *a = infer->attrs;
    if (!infer_heads(infer, a->heads, a->dtype)) return false;
    ct__infer_set(infer, 0, a->dtype, 1, &a->heads);
    return true;
}

static ct_tensor *slopes_f64(int64_t heads, ct_device device) {
    int64_t m = 1;
    while (m <= heads / 2) m *= 2;
    ct_tensor *parts[] = {
        exp2(mul_s(arange(1, (double)m + 1, 1, .dtype = CT_F64, .device = device), -8.0 / (double)m)),
        exp2(mul_s(arange(1, (double)(2 * (heads - m) + 1), 2, .dtype = CT_F64, .device = device), -4.0 / (double)m))};
    return heads == m ? parts[0] : cat(parts, 2, 0);
}

void alibi_slopes_lower(ct_lower *l) {
    const alibi_slopes_attrs *a = l->attrs;
    l->out[0] = cast(slopes_f64(a->heads, a->device), a->dtype);
}

static int64_t keys_of(const alibi_attrs *a) { return a->keys ? a->keys : a->queries; }

bool alibi_infer(ct_infer *infer) {
    const alibi_attrs *a = infer->attrs;
    if (!infer_heads(infer, a->heads, a->dtype)) return false;
    if (a->queries < 0 || a->keys < 0)
        return ct_infer_fail(infer, CT_ERR_VALUE, "queries is %lld and keys %lld; neither may be negative",
                             (long long)a->queries, (long long)a->keys);
    ct__infer_set(infer, 0, a->dtype, 3, (int64_t[]){a->heads, a->queries, keys_of(a)});
    return true;
}

void alibi_lower(ct_lower *l) {
    const alibi_attrs *a = l->attrs;
    const int64_t keys = keys_of(a), first = keys - a->queries;
    ct_tensor *i = arange((double)first, (double)(first + a->queries), 1, .dtype = CT_F64, .device = a->device),
              *j = arange(0, (double)keys, 1, .dtype = CT_F64, .device = a->device);
    ct_tensor *distance = ct_abs(sub(unsqueeze(i, 1), unsqueeze(j, 0)));
    ct_tensor *slopes = reshape(neg(slopes_f64(a->heads, a->device)), CT_DIMS(a->heads, 1, 1));
    l->out[0] = cast(mul(slopes, distance), a->dtype);
}
