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

static const double two_pi = 6.283185307179586;

/* Angles in f64: at large positions the fraction of a circle would be lost. */
static ct_tensor *rates_f64(const rope_attrs *a, int64_t dims) {
    return ct_exp(mul_s(arange(0, (double)(dims / 2), 1, .dtype = CT_F64), -2 * __builtin_log(a->base) / (double)dims));
}

/* cos and sin of the angles, as dtype: [t, dims / 2, 2]. */
static ct_tensor *circle(ct_tensor *angle, ct_dtype dtype) {
    ct_tensor *both[] = {cast(ct_cos(angle), dtype), cast(ct_sin(angle), dtype)};
    return stack(both, 2, -1);
}

static ct_tensor *rotations(const rope_attrs *a, ct_tensor *positions, int64_t t, int64_t dims, ct_dtype dtype) {
    if (positions && ct__widest_float() == CT_F64) {
        ct_tensor *p = add_s(cast(positions, CT_F64), (double)a->offset);
        return circle(mul(unsqueeze(p, 1), unsqueeze(rates_f64(a, dims), 0)), dtype);
    }
    const ct_device device = ct__table_begin();
    ct_tensor *rates = rates_f64(a, dims);
    if (!positions) {
        ct_tensor *p = add_s(arange(0, (double)t, 1, .dtype = CT_F64), (double)a->offset);
        return ct__table_end(device, circle(mul(unsqueeze(p, 1), unsqueeze(rates, 0)), dtype), dtype);
    }
    /* Without f64: circles in units of 2^-64, of which products of integers lose the whole ones. */
    rates = mul_s(rates, 1 / two_pi);
    rates = ct__table_end(device, mul_s(sub(rates, ct_round(rates)), 0x1p64), CT_I64);
    ct_tensor *p = add_s(cast(positions, CT_I64), (double)a->offset);
    ct_tensor *part = cast(mul(unsqueeze(p, 1), unsqueeze(rates, 0)), CT_F32);
    return circle(mul_s(part, two_pi * 0x1p-64), dtype);
}

void rope_lower(ct_lower *l) {
    const rope_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *positions = l->in[1];
    const int64_t t = ct_dim(x, -2), d = ct_dim(x, -1), dims = turned_dims(a, d), half = dims / 2;
    if (ct_numel(x) == 0 || dims == 0) {
        l->out[0] = x;
        return;
    }
    ct_tensor *both_of = rotations(a, positions, t, dims, ct_dtype_of(x)), *c = select(both_of, -1, 0),
              *s = select(both_of, -1, 1);
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

static ct_tensor *slopes_f64(int64_t heads) {
    int64_t m = 1;
    while (m <= heads / 2) m *= 2;
    ct_tensor *parts[] = {exp2(mul_s(arange(1, (double)m + 1, 1, .dtype = CT_F64), -8.0 / (double)m)),
                          exp2(mul_s(arange(1, (double)(2 * (heads - m) + 1), 2, .dtype = CT_F64), -4.0 / (double)m))};
    return heads == m ? parts[0] : cat(parts, 2, 0);
}

void alibi_slopes_lower(ct_lower *l) {
    const alibi_slopes_attrs *a = l->attrs;
    const ct_device device = ct__table_begin();
    l->out[0] = ct__table_end(device, slopes_f64(a->heads), a->dtype);
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
    const ct_device device = ct__table_begin();
    ct_tensor *i = arange((double)first, (double)(first + a->queries), 1, .dtype = CT_F64),
              *j = arange(0, (double)keys, 1, .dtype = CT_F64);
    ct_tensor *distance = ct_abs(sub(unsqueeze(i, 1), unsqueeze(j, 0)));
    ct_tensor *slopes = reshape(neg(slopes_f64(a->heads)), CT_DIMS(a->heads, 1, 1));
    l->out[0] = ct__table_end(device, mul(slopes, distance), a->dtype);
}
