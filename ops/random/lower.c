/* Random ops in simpler ones, from the words of the stream that their kernels take too: uniform numbers, integers, choices and
 * permutations are the same bits everywhere; normal ones differ by what logarithms and sines of a device do. */
#include <float.h>

#include "ops/dropout/dropout.h"
#include "ops/random/random.h"

#include "ops/op_impl.h"

/* ---- Words ---- */

bool random_words_infer(ct_infer *infer) {
    const ct_view *position = infer->in[0];
    if (position->ndim != 1 || position->dims[0] != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "position is %s; it has to be [3]: seed, stream and call",
                             ct_view_text(position));
    return ct__infer_shape(infer, &((const random_words_attrs *)infer->attrs)->shape, CT_I64);
}

static int64_t count_of(const ct_dims *shape) { return ct__count(shape->n, shape->d); }

/* [count, each]: the words of count elements that take as many each. */
static ct_tensor *words(const ct_lower *l, int64_t count, int64_t each) {
    return random_words(ct__position_of(l), CT_DIMS(count, each));
}

static ct_tensor *column(ct_tensor *words, int64_t k) { return select(words, 1, k); }

/* Two words, k and k + 1 of each row, the second being the upper half, without their lowest 11 bits. */
static ct_tensor *upper_53(ct_tensor *words, int64_t k) {
    return ct_add(mul_s(column(words, k + 1), 0x1p21), bitwise_right_shift_s(column(words, k), 11));
}

/* ---- Uniform ---- */

/* [count], in [0, 1): 53 random bits of f64, else as many as the dtype has, in f32. */
static ct_tensor *fractions(const ct_lower *l, int64_t count, ct_dtype dtype) {
    if (dtype == CT_F64) return mul_s(cast(upper_53(words(l, count, 2), 0), CT_F64), 0x1p-53);
    const int bits = dtype == CT_F16 ? 11 : dtype == CT_BF16 ? 8 : 24;
    ct_tensor *word = bitwise_right_shift_s(column(words(l, count, 1), 0), 32 - bits);
    return mul_s(cast(word, CT_F32), __builtin_ldexp(1, -bits));
}

void rand_lower(ct_lower *l) {
    const rand_attrs *a = l->attrs;
    l->out[0] = cast(reshape(fractions(l, count_of(&a->shape), a->dtype), a->shape), a->dtype);
}

/* lo + u * width may round to hi, which is not in the interval. */
void uniform_lower(ct_lower *l) {
    const uniform_attrs *a = l->attrs;
    ct_tensor *y = add_s(mul_s(fractions(l, count_of(&a->shape), a->dtype), a->hi - a->lo), a->lo);
    y = clamp(y, .max = CT_SET(ct__uniform_most(a->dtype, a->lo, a->hi)));
    l->out[0] = cast(reshape(y, a->shape), a->dtype);
}

/* ---- Normal ---- */

static ct_tensor *negative_where(ct_tensor *bit, ct_tensor *x) { return where(ne_s(bit, 0), ct_neg(x), x); }

/* Box and Muller, as the kernel does it. The turn is reduced to an eighth of it either way while it is a whole number, so that
 * its sine and cosine are as precise as the device has them. */
static ct_tensor *normals(const ct_lower *l, const ct_dims *shape, ct_dtype dtype, double mean, double std) {
    const bool wide = dtype == CT_F64;
    const int64_t count = count_of(shape), pairs = count / 2 + count % 2;
    const int bits = wide ? 53 : 32;
    const ct_dtype computing = wide ? CT_F64 : CT_F32;
    ct_tensor *w = words(l, pairs, wide ? 4 : 2);
    ct_tensor *u = wide ? upper_53(w, 0) : column(w, 0), *turn = wide ? upper_53(w, 2) : column(w, 1);
    u = add_s(mul_s(cast(u, computing), __builtin_ldexp(1, -bits)), __builtin_ldexp(0.5, -bits)); /* never zero */
    ct_tensor *r = mul_s(ct_sqrt(mul_s(clamp(ct_log(u), .max = CT_SET(0)), -2)), std);
    ct_tensor *quarter = bitwise_right_shift_s(add_s(turn, __builtin_ldexp(1, bits - 3)), bits - 2);
    ct_tensor *rest = sub(turn, mul_s(quarter, __builtin_ldexp(1, bits - 2)));
    ct_tensor *angle = mul_s(cast(rest, computing), __builtin_ldexp(6.283185307179586, -bits));
    ct_tensor *odd = ne_s(bitwise_and_s(quarter, 1), 0), *s = ct_sin(angle), *c = ct_cos(angle);
    ct_tensor *sine = negative_where(bitwise_and_s(quarter, 2), where(odd, c, s)),
              *cosine = negative_where(bitwise_and_s(add_s(quarter, 1), 2), where(odd, s, c));
    ct_tensor *middle = ct_scalar(mean, computing);
    ct_tensor *both[] = {ct_fma(r, cosine, middle), ct_fma(r, sine, middle)};
    return cast(reshape(narrow(reshape(stack(both, 2, 1), CT_DIMS(2 * pairs)), 0, 0, count), *shape), dtype);
}

void randn_lower(ct_lower *l) {
    const randn_attrs *a = l->attrs;
    l->out[0] = normals(l, &a->shape, a->dtype, 0, 1);
}

void normal_lower(ct_lower *l) {
    const normal_attrs *a = l->attrs;
    l->out[0] = normals(l, &a->shape, a->dtype, a->mean, a->std);
}

static ct_tensor *polynomial(ct_tensor *r, const double c[8]) {
    ct_tensor *y = add_s(mul_s(r, c[7]), c[6]);
    for (int i = 5; i >= 0; i--) y = add_s(mul(y, r), c[i]);
    return y;
}

static ct_tensor *ratio(ct_tensor *r, const ct_quantile_ratio *of) {
    return div(polynomial(r, of->a), polynomial(r, of->b));
}

/* The z with P(Z <= z) = p, for p <= 1/2. */
static ct_tensor *quantile(ct_tensor *p) {
    ct_tensor *q = sub_s(p, 0.5), *r = ct_sqrt(ct_neg(ct_log(p)));
    ct_tensor *near = mul(q, ratio(rsub_s(square(q), 0.180625), &ct__quantile_near));
    ct_tensor *far =
        where(le_s(r, 5), ratio(sub_s(r, 1.6), &ct__quantile_middle), ratio(sub_s(r, 5), &ct__quantile_far));
    far = where(gt_s(p, 0), far, ct_scalar(__builtin_inf(), ct_dtype_of(p)));
    return where(ge_s(q, -0.425), near, ct_neg(far));
}

void truncated_normal_lower(ct_lower *l) {
    const truncated_normal_attrs *a = l->attrs;
    const ct_truncation part = ct__truncation(a->mean, a->std, a->lo, a->hi);
    const int bits = a->dtype == CT_F64 ? 53 : 32;
    /* beyond some 11 standard deviations f32 has no such probabilities */
    const ct_dtype computing = a->dtype == CT_F64 || part.from + part.width < 1e-30 ? CT_F64 : CT_F32;
    const int64_t count = count_of(&a->shape);
    ct_tensor *word = bits == 53 ? upper_53(words(l, count, 2), 0) : column(words(l, count, 1), 0);
    ct_tensor *other = rsub_s(word, __builtin_ldexp(1, bits) - 1); /* of 1 - u, to the last bit */
    ct_tensor *u = mul_s(add_s(cast(word, computing), 0.5), __builtin_ldexp(1, -bits)),
              *v = mul_s(add_s(cast(other, computing), 0.5), __builtin_ldexp(1, -bits));
    ct_tensor *below = add_s(mul_s(u, part.width), part.from), *above = add_s(mul_s(v, part.width), part.above);
    ct_tensor *z = quantile(ct_minimum(below, above));
    z = where(le(below, above), z, ct_neg(z));
    ct_tensor *y = add_s(mul_s(z, a->std * part.sign), a->mean);
    l->out[0] = cast(reshape(clamp(y, .min = CT_SET(a->lo), .max = CT_SET(a->hi)), a->shape), a->dtype);
}

/* ---- Integers, choices ---- */

static const double word_size = 0x1p32;
static ct_tensor *low_word(ct_tensor *x) { return bitwise_and_s(x, word_size - 1); }
static ct_tensor *high_word(ct_tensor *x) {
    return low_word(bitwise_right_shift_s(x, 32));
} /* without the sign's copies */

/* x + value for any value that an i64 has; a double holds its halves. */
static ct_tensor *add_whole(ct_tensor *x, int64_t value) {
    return add_s(add_s(x, (double)(value >> 32) * word_size), (double)(value & 0xffffffff));
}

/* The upper half of 64 random bits times the range, from the products of their halves. */
void randint_lower(ct_lower *l) {
    const randint_attrs *a = l->attrs;
    const uint64_t range = (uint64_t)a->hi - (uint64_t)a->lo;
    const double range_low = (double)(range & 0xffffffff), range_high = (double)(range >> 32);
    ct_tensor *w = words(l, count_of(&a->shape), 2), *low = column(w, 0), *high = column(w, 1);
    ct_tensor *carried = high_word(mul_s(low, range_low)), *cross = mul_s(high, range_low), *y = high_word(cross);
    carried = ct_add(carried, low_word(cross));
    if (range_high > 0) {
        cross = mul_s(low, range_high);
        carried = ct_add(carried, low_word(cross));
        y = ct_add(ct_add(y, high_word(cross)), mul_s(high, range_high));
    }
    y = ct_add(y, high_word(carried));
    l->out[0] = cast(reshape(add_whole(y, a->lo), a->shape), a->dtype);
}

/* 24 random bits, as rand has them. */
static ct_tensor *bits_24(const ct_lower *l, int64_t count) {
    return bitwise_right_shift_s(column(words(l, count, 1), 0), 8);
}

void bernoulli_lower(ct_lower *l) {
    ct_tensor *p = check_range(ct_detach(l->in[0]), 0, 1, "bernoulli");
    ct_tensor *u = mul_s(cast(reshape(bits_24(l, ct_numel(p)), ct_shape(p)), ct_dtype_of(p)), 0x1p-24);
    l->out[0] = cast(lt(u, p), ct_dtype_of(p));
}

void bernoulli_full_lower(ct_lower *l) {
    const bernoulli_full_attrs *a = l->attrs;
    l->out[0] = cast(reshape(lt_s(bits_24(l, count_of(&a->shape)), __builtin_ceil(a->p * 0x1p24)), a->shape), a->dtype);
}

/* The order of 64-bit keys without a sign: moved down by half their range they have one. */
void randperm_lower(ct_lower *l) {
    const randperm_attrs *a = l->attrs;
    ct_tensor *w = words(l, a->n, 2);
    ct_tensor *keys = ct_add(mul_s(sub_s(column(w, 1), 0x1p31), word_size), column(w, 0));
    l->out[0] = cast(argsort(keys, 0), a->dtype);
}

/* ---- multinomial ---- */

/* By inverting the cumulative sum: the first category whose sum exceeds u times the whole. */
static ct_tensor *with_replacement(ct_tensor *weights, ct_tensor *u) {
    const int axis = ct_ndim(weights) - 1;
    const int64_t k = ct_dim(weights, axis);
    ct_tensor *sums = cumsum(weights, axis);
    ct_tensor *total =
        check_range(narrow(sums, axis, k - 1, 1), DBL_MIN, DBL_MAX, "multinomial", .what = CT_CHECKED_SUM_OF_WEIGHTS);
    ct_tensor *last =
        amax(where(gt_s(weights, 0), ct__counted(k), ct_scalar(-1, CT_I64)), .axes = CT_DIMS(axis), .keepdim = true);
    return ct_minimum(searchsorted(sums, mul(u, total), .right = true), last); /* u * total may round to total */
}

/* The n smallest of the keys -log(1 - u) / weight, in their order. */
static ct_tensor *without_replacement(ct_tensor *weights, ct_tensor *u, int64_t n) {
    const int axis = ct_ndim(weights) - 1;
    ct_tensor *possible = gt_s(weights, 0);
    ct_tensor *enough = ge_s(check_range(sum(possible, .axes = CT_DIMS(axis), .keepdim = true), (double)n,
                                         __builtin_inf(), "multinomial", .what = CT_CHECKED_WEIGHTS_ABOVE_0),
                             (double)n);
    ct_tensor *keys = div(ct_neg(ct_log(rsub_s(u, 1))), weights);
    keys = where(logical_and(possible, enough), keys, ct_scalar(__builtin_inf(), CT_F64));
    return narrow(argsort(keys, axis), axis, 0, n);
}

/* In f64, as the kernel does: so the same indices are drawn. */
void multinomial_lower(ct_lower *l) {
    const multinomial_attrs *a = l->attrs;
    ct_dims shape = ct_shape(l->in[0]);
    const int64_t k = ct__size_at(&shape, -1);
    ct__set_size(&shape, -1, a->n);
    if (a->n == 0 || count_of(&shape) == 0) {
        l->out[0] = zeros(shape, .dtype = CT_I64);
        return;
    }
    ct_tensor *weights = check_range(ct_detach(l->in[0]), 0, DBL_MAX, "multinomial");
    weights = cast(weights, CT_F64);
    if (!a->replacement) ct__set_size(&shape, -1, k);
    ct_tensor *u = reshape(fractions(l, count_of(&shape), CT_F64), shape);
    l->out[0] = contiguous(a->replacement ? with_replacement(weights, u) : without_replacement(weights, u, a->n));
}
