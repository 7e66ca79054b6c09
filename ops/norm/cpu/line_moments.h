/* Mean and squares of a line, a template: D is a dtype's short name, T the type of its elements, V of its vectors. Included after moments.h. */
#define OF(x) CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

/* Blocks of a line stay in the first cache: their sum, then the deviations from the mean that it gives. What rounding
 * left in that mean shows in the deviations' own sum. */
static inline norm_moments OF(block_moments)(const T *x /* (n) */, int64_t n, bool centred, const T *next) {
    enum { L = OF(lanes) };
    V s0 = OF(set1)(0), s1 = s0, s2 = s0, s3 = s0, zero = s0;
    int64_t i = 0;
    OF(scalar) middle = 0;
    if (centred) {
        for (; i + 4 * L <= n; i += 4 * L) {
            if (!next) PREFETCH(x + i, 4 * L);
            s0 = OF(add)(s0, OF(load)(x + i));
            s1 = OF(add)(s1, OF(load)(x + i + L));
            s2 = OF(add)(s2, OF(load)(x + i + 2 * L));
            s3 = OF(add)(s3, OF(load)(x + i + 3 * L));
        }
        for (; i + L <= n; i += L) s0 = OF(add)(s0, OF(load)(x + i));
        if (i < n) s1 = OF(add)(s1, OF(load_n)(x + i, (int)(n - i)));
        middle = OF(hsum)(OF(add)(OF(add)(s0, s1), OF(add)(s2, s3))) / (OF(scalar))n;
        if (!isfinite(middle)) middle = 0;
    }
    const V at = OF(set1)(middle);
    V q0 = zero, q1 = zero, q2 = zero, q3 = zero;
    s0 = s1 = s2 = s3 = zero;
    for (i = 0; i + 4 * L <= n; i += 4 * L) {
        if (next) NORM_PREFETCH(next + i, 4 * L);
        V a = OF(sub)(OF(load)(x + i), at), b = OF(sub)(OF(load)(x + i + L), at),
          c = OF(sub)(OF(load)(x + i + 2 * L), at), d = OF(sub)(OF(load)(x + i + 3 * L), at);
        s0 = OF(add)(s0, a), s1 = OF(add)(s1, b), s2 = OF(add)(s2, c), s3 = OF(add)(s3, d);
        q0 = OF(fma)(a, a, q0), q1 = OF(fma)(b, b, q1), q2 = OF(fma)(c, c, q2);
        q3 = OF(fma)(d, d, q3);
    }
    for (; i + L <= n; i += L) {
        V a = OF(sub)(OF(load)(x + i), at);
        s0 = OF(add)(s0, a);
        q0 = OF(fma)(a, a, q0);
    }
    if (i < n) {
        const int k = (int)(n - i);
        OF(scalar) lane[L];
        OF(put)(lane, OF(sub)(OF(load_n)(x + i, k), at));
        V a = OF(get_n)(lane, k);
        s1 = OF(add)(s1, a);
        q1 = OF(fma)(a, a, q1);
    }
    double count = (double)n, rest = (double)OF(hsum)(OF(add)(OF(add)(s0, s1), OF(add)(s2, s3))),
           square = (double)OF(hsum)(OF(add)(OF(add)(q0, q1), OF(add)(q2, q3)));
    if (!centred) return (norm_moments){count, 0, square};
    return (norm_moments){count, (double)middle + rest / count, square - rest * rest / count};
}
/* With centred false the squares of the elements themselves, and the mean as 0. next is what will be read after this line,
 * and is fetched on the way, or NULL. */
static norm_moments OF(line_moments)(const T *x /* (n) */, int64_t n, bool centred, const T *next) {
    norm_moments all = {0, 0, 0};
    for (int64_t i = 0; i < n; i += NORM_BLOCK) {
        norm_moments block = OF(block_moments)(x + i, ct__min64(n - i, NORM_BLOCK), centred, next);
        norm_merge(&all, &block);
    }
    return all;
}

#undef OF
#undef D
#undef T
#undef V
