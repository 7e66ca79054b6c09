/* A template: count, mean and sum of squared deviations of one floating dtype, rows and columns. Included once for every dtype, with
 * FOLD_D its short name, which it undefines.
 * Rows: two passes over a block that stays in the first cache, deviations taken from the block's own mean. Columns: eight rows at a
 * time, two passes within registers, merged after Chan, Golub and LeVeque; everything is counted from the first row, so that a
 * large common offset costs no digits. */
#include "ops/reduce/elements.h"

#define FOLD_T        ELEMENT(FOLD_D)
#define FOLD_S        SCALAR(FOLD_D)
#define FOLD_V        VECTOR(FOLD_D)
#define FOLD_DO(part) ELEMENT_PASTE(FOLD_D, part)
#define FOLD_FN(part) ELEMENT_PASTE(var_, ELEMENT_PASTE(FOLD_D, part))

static inline FOLD_S FOLD_FN(_block_sum)(const FOLD_T *x /* (n) */, int64_t n) {
    enum { L = LANES(FOLD_D) };
    FOLD_V a = FOLD_DO(_set1)(0), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        a = FOLD_DO(_add)(a, FOLD_DO(_load)(x + i));
        b = FOLD_DO(_add)(b, FOLD_DO(_load)(x + i + L));
        c = FOLD_DO(_add)(c, FOLD_DO(_load)(x + i + 2 * L));
        d = FOLD_DO(_add)(d, FOLD_DO(_load)(x + i + 3 * L));
    }
    for (; i + L <= n; i += L) a = FOLD_DO(_add)(a, FOLD_DO(_load)(x + i));
    if (i < n) a = FOLD_DO(_add)(a, FOLD_DO(_load_n)(x + i, (int)(n - i)));
    return FOLD_DO(_hsum)(FOLD_DO(_add)(FOLD_DO(_add)(a, b), FOLD_DO(_add)(c, d)));
}

/* Sums of x - center and of its square. */
static inline void FOLD_FN(_block_moments)(const FOLD_T *x /* (n) */, int64_t n, FOLD_S center, double *first,
                                           double *second) {
    enum { L = LANES(FOLD_D), LINE = 64 / sizeof(FOLD_T) };
    FOLD_V middle = FOLD_DO(_set1)(center), zero = FOLD_DO(_set1)(0), a = zero, b = zero, c = zero, d = zero, p = zero,
           q = zero;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        for (int k = 0; k < 4 * L; k += LINE)
            __builtin_prefetch(x + n + i + k); /* the next block, while this one is computed */
        FOLD_V u = FOLD_DO(_sub)(FOLD_DO(_load)(x + i), middle), v = FOLD_DO(_sub)(FOLD_DO(_load)(x + i + L), middle);
        FOLD_V w = FOLD_DO(_sub)(FOLD_DO(_load)(x + i + 2 * L), middle),
               z = FOLD_DO(_sub)(FOLD_DO(_load)(x + i + 3 * L), middle);
        a = FOLD_DO(_fma)(u, u, a);
        b = FOLD_DO(_fma)(v, v, b);
        c = FOLD_DO(_fma)(w, w, c);
        d = FOLD_DO(_fma)(z, z, d);
        p = FOLD_DO(_add)(p, FOLD_DO(_add)(u, v));
        q = FOLD_DO(_add)(q, FOLD_DO(_add)(w, z));
    }
    for (; i < n; i += L) {
        int m = n - i < L ? (int)(n - i) : L;
        FOLD_S lane[L];
        FOLD_DO(_put)(lane, FOLD_DO(_sub)(FOLD_DO(_load_n)(x + i, m), middle));
        FOLD_V u = FOLD_DO(_get_n)(lane, m);
        a = FOLD_DO(_fma)(u, u, a);
        p = FOLD_DO(_add)(p, u);
    }
    *first = FOLD_DO(_hsum)(FOLD_DO(_add)(p, q));
    *second = FOLD_DO(_hsum)(FOLD_DO(_add)(FOLD_DO(_add)(a, b), FOLD_DO(_add)(c, d)));
}

static void FOLD_FN(_rows)(void *acc, const void *from, int64_t rows, int64_t step, int64_t n, int64_t base) {
    enum { BLOCK = 8192 / sizeof(FOLD_T) };
    (void)base;
    moments *to = acc;
    for (int64_t r = 0; r < rows; r++, to++) {
        const FOLD_T *x = (const FOLD_T *)from + r * step; /* (n) */
        for (int64_t at = 0, m; at < n; at += m, x += m) {
            m = n - at < BLOCK ? n - at : BLOCK;
            FOLD_S center = FOLD_FN(_block_sum)(x, m) / (FOLD_S)m;
            double first, second, count = (double)m;
            FOLD_FN(_block_moments)(x, m, center, &first, &second);
            /* first is what rounding left in the mean */
            moments block = {count, (double)center + first / count, second - first * first / count};
            moments_merge(to, &block);
        }
    }
}

static inline void FOLD_FN(_eight)(FOLD_S *mean, FOLD_S *square, const FOLD_S *origin, const FOLD_T *x /* (8, n) */,
                                   int64_t n, int64_t step, int64_t seen) {
    enum { L = LANES(FOLD_D) };
    const FOLD_V weight = FOLD_DO(_set1)((FOLD_S)(8.0 / (double)(seen + 8))), eighth = FOLD_DO(_set1)((FOLD_S)0.125);
    const FOLD_V factor = FOLD_DO(_set1)((FOLD_S)(8.0 * (double)seen / (double)(seen + 8)));
    for (int64_t j = 0; j < n; j += L) {
        FOLD_V k = FOLD_DO(_get)(origin + j), v[8];
        for (int i = 0; i < 8; i++) v[i] = FOLD_DO(_sub)(FOLD_DO(_load)(x + i * step + j), k);
        FOLD_V sum = FOLD_DO(_add)(FOLD_DO(_add)(FOLD_DO(_add)(v[0], v[1]), FOLD_DO(_add)(v[2], v[3])),
                                   FOLD_DO(_add)(FOLD_DO(_add)(v[4], v[5]), FOLD_DO(_add)(v[6], v[7])));
        FOLD_V middle = FOLD_DO(_mul)(sum, eighth), even = FOLD_DO(_set1)(0), odd = even;
        for (int i = 0; i < 8; i += 2) {
            FOLD_V a = FOLD_DO(_sub)(v[i], middle), b = FOLD_DO(_sub)(v[i + 1], middle);
            even = FOLD_DO(_fma)(a, a, even);
            odd = FOLD_DO(_fma)(b, b, odd);
        }
        FOLD_V before = FOLD_DO(_get)(mean + j), apart = FOLD_DO(_sub)(middle, before);
        FOLD_V grown = FOLD_DO(_fma)(FOLD_DO(_mul)(apart, apart), factor, FOLD_DO(_add)(even, odd));
        FOLD_DO(_put)(mean + j, FOLD_DO(_fma)(apart, weight, before));
        FOLD_DO(_put)(square + j, FOLD_DO(_add)(FOLD_DO(_get)(square + j), grown));
    }
}

static void FOLD_FN(_columns)(void *acc, const void *from, int64_t n, int64_t rows, int64_t step, int64_t base) {
    enum { L = LANES(FOLD_D), GROUP = 512, WIDTH = VAR_COLUMNS };
    (void)base;
    moments *to = acc;
    const FOLD_T *x = from; /* (rows, n) */
    FOLD_S origin[WIDTH], mean[WIDTH], square[WIDTH];
    const int64_t whole = n - n % L;
    for (int64_t m; rows > 0; rows -= m, x += m * step) {
        m = rows < GROUP ? rows : GROUP;
        int64_t i = 0;
        for (int64_t j = 0; j < n; j++) {
            origin[j] = FOLD_DO(_value)(x[j]);
            if (!isfinite(origin[j])) origin[j] = 0;
            mean[j] = square[j] = 0;
        }
        for (; i + 8 <= m; i += 8) FOLD_FN(_eight)(mean, square, origin, x + i * step, whole, step, i);
        /* the rows and columns that are left, one element at a time after Welford */
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = r < i ? whole : 0; j < n; j++) {
                FOLD_S value = FOLD_DO(_value)(x[r * step + j]) - origin[j], apart = value - mean[j];
                mean[j] += apart / (FOLD_S)(r + 1);
                square[j] += apart * (value - mean[j]);
            }
        for (int64_t j = 0; j < n; j++) {
            moments block = {(double)m, (double)origin[j] + (double)mean[j], (double)square[j]};
            moments_merge(&to[j], &block);
        }
    }
}

#undef FOLD_D
#undef FOLD_T
#undef FOLD_S
#undef FOLD_V
#undef FOLD_DO
#undef FOLD_FN
