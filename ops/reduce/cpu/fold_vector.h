/* A template: the rows and columns of a reduction over one floating dtype whose step is a vector operation. Included
 * once for every dtype, with FOLD_D its short name (f32, f64, f16, bf16), which it undefines, and these, which it
 * keeps:
 *   FOLD_BASE         the functions are BASE_D_rows and BASE_D_columns
 *   FOLD_ACC          type of an accumulator
 *   FOLD_OP           the operation on vectors: add, max, ...
 *   FOLD_LOAD_N       load_n or load_repeated: a short vector, filled up with what changes no result
 *   FOLD_ACROSS       the operation across the lanes: hsum, hmax, ...
 *   FOLD_TAKE(acc, s) acc = acc op s
 *   FOLD_SCALAR_ROW   rows up to this length are folded one by one
 *   FOLD_BLOCK        elements, a multiple of 4096
 * A run is folded in blocks, each in pairs of vectors into four accumulators, and columns in groups of eight rows, so that the
 * error of a sum grows with the length of a block, not of the run. */
#include "ops/reduce/cpu/elements.h"

#define FOLD_T           ELEMENT(FOLD_D)
#define FOLD_S           SCALAR(FOLD_D)
#define FOLD_V           VECTOR(FOLD_D)
#define FOLD_DO(part)    ELEMENT_PASTE(FOLD_D, part)
#define FOLD_FN(part)    ELEMENT_PASTE(ELEMENT_PASTE(FOLD_BASE, _), ELEMENT_PASTE(FOLD_D, part))
#define FOLD_LOAD(p)     FOLD_DO(_load)(p)
#define FOLD_SHORT(p, n) FOLD_DO(ELEMENT_PASTE(_, FOLD_LOAD_N))(p, n)
#define FOLD_STEP(a, b)  FOLD_DO(ELEMENT_PASTE(_, FOLD_OP))(a, b)
#define FOLD_LANE(v)     FOLD_DO(ELEMENT_PASTE(_, FOLD_ACROSS))(v)

/* The next eight vectors from p on, in pairs of neighbors, into four accumulators: read in another order than they lie in, they come a
 * quarter slower from far on Zen 4, which does not see then what follows. */
#define FOLD_PAIR(p, k) FOLD_STEP(FOLD_LOAD((p) + 2 * (k)*L), FOLD_LOAD((p) + (2 * (k) + 1) * L))
#define FOLD_EIGHT(a, p)                         \
    do {                                         \
        if (prefetch) PREFETCH(p, 8 * L);        \
        a##0 = FOLD_STEP(a##0, FOLD_PAIR(p, 0)); \
        a##1 = FOLD_STEP(a##1, FOLD_PAIR(p, 1)); \
        a##2 = FOLD_STEP(a##2, FOLD_PAIR(p, 2)); \
        a##3 = FOLD_STEP(a##3, FOLD_PAIR(p, 3)); \
    } while (0)
#define FOLD_FIRST(a, p) \
    FOLD_V a##0 = FOLD_PAIR(p, 0), a##1 = FOLD_PAIR(p, 1), a##2 = FOLD_PAIR(p, 2), a##3 = FOLD_PAIR(p, 3)
#define FOLD_JOIN(a) FOLD_STEP(FOLD_STEP(a##0, a##1), FOLD_STEP(a##2, a##3))

/* v, and what is left of a block of m elements from element i on. */
static inline FOLD_S FOLD_FN(_rest)(FOLD_V v, const FOLD_T *x, int64_t i, int64_t m) {
    enum { L = LANES(FOLD_D) };
    for (; i + L <= m; i += L) v = FOLD_STEP(v, FOLD_LOAD(x + i));
    if (i < m) v = FOLD_STEP(v, FOLD_SHORT(x + i, (int)(m - i)));
    return FOLD_LANE(v);
}

static inline void FOLD_FN(_run)(FOLD_ACC *acc, const FOLD_T *x /* (n) */, int64_t n, bool prefetch) {
    enum { L = LANES(FOLD_D) };
    if (n <= FOLD_SCALAR_ROW) {
        for (int64_t i = 0; i < n; i++) FOLD_TAKE(*acc, FOLD_DO(_value)(x[i]));
        return;
    }
    if (n <= L) {
        FOLD_V v = FOLD_SHORT(x, (int)n);
        FOLD_TAKE(*acc, FOLD_LANE(v));
        return;
    }
    for (int64_t m; n > 0; n -= m, x += m) {
        m = n < FOLD_BLOCK ? n : FOLD_BLOCK;
        if (m >= 16 * L) {
            int64_t i = 8 * L;
            FOLD_FIRST(a, x);
            for (; i + 8 * L <= m; i += 8 * L) FOLD_EIGHT(a, x + i);
            const FOLD_S s = FOLD_FN(_rest)(FOLD_JOIN(a), x, i, m);
            FOLD_TAKE(*acc, s);
        } else {
            const int64_t i = m < L ? m : L;
            const FOLD_S s = FOLD_FN(_rest)(FOLD_SHORT(x, (int)i), x, i, m);
            FOLD_TAKE(*acc, s);
        }
    }
}

/* Two runs at once, each as _run folds it. */
static inline void FOLD_FN(_runs)(FOLD_ACC *acc, const FOLD_T *x /* (n) */, FOLD_ACC *other, const FOLD_T *y /* (n) */,
                                  int64_t n) {
    enum { L = LANES(FOLD_D), prefetch = true };
    while (n >= 16 * L) {
        const int64_t m = n < FOLD_BLOCK ? n : FOLD_BLOCK;
        int64_t i = 8 * L;
        FOLD_FIRST(a, x);
        FOLD_FIRST(b, y);
        for (; i + 8 * L <= m; i += 8 * L) {
            FOLD_EIGHT(a, x + i);
            FOLD_EIGHT(b, y + i);
        }
        const FOLD_S s = FOLD_FN(_rest)(FOLD_JOIN(a), x, i, m), t = FOLD_FN(_rest)(FOLD_JOIN(b), y, i, m);
        FOLD_TAKE(*acc, s);
        FOLD_TAKE(*other, t);
        n -= m, x += m, y += m;
    }
    if (n == 0) return;
    FOLD_FN(_run)(acc, x, n, prefetch);
    FOLD_FN(_run)(other, y, n, prefetch);
}

/* A long row by its halves, shorter ones in twos, which changes no result of theirs. */
static void FOLD_FN(_rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {
    (void)base;
    FOLD_ACC *to = acc;
    const FOLD_T *from = x;
    const bool prefetch = !ct__caches()->reads_ahead, two_runs = TWO_RUNS && prefetch;
    const int64_t half = two_runs ? n / (2 * FOLD_BLOCK) * FOLD_BLOCK : 0;
    const bool in_twos = two_runs && !half && n * (int64_t)sizeof *from >= 4096;
    for (int64_t i = 0; i < rows; i++) {
        const FOLD_T *row = from + i * step;
        if (in_twos && i + 1 < rows) {
            FOLD_FN(_runs)(&to[i], row, &to[i + 1], row + step, n);
            i++;
        } else {
            if (half) FOLD_FN(_runs)(&to[i], row, &to[i], row + half, half);
            FOLD_FN(_run)(&to[i], row + 2 * half, n - 2 * half, prefetch);
        }
    }
}

/* level[j] = level[j] op (rows of x folded in pairs); level is only written when first. */
static inline void FOLD_FN(_eight)(FOLD_S *level /* (n) */, const FOLD_T *x /* (8, n) */, int64_t n, int64_t step,
                                   bool first, bool prefetch) {
    enum { L = LANES(FOLD_D) };
    const FOLD_T *x1 = x + step, *x2 = x + 2 * step, *x3 = x + 3 * step, *x4 = x + 4 * step, *x5 = x + 5 * step,
                 *x6 = x + 6 * step, *x7 = x + 7 * step;
    for (int64_t j = 0; j + L <= n; j += L) {
        for (int i = 8; i < 16 && prefetch; i++) /* the eight rows after these */
            __builtin_prefetch(x + i * step + j, 0, 2);
        FOLD_V a =
            FOLD_STEP(FOLD_STEP(FOLD_LOAD(x + j), FOLD_LOAD(x1 + j)), FOLD_STEP(FOLD_LOAD(x2 + j), FOLD_LOAD(x3 + j)));
        FOLD_V b =
            FOLD_STEP(FOLD_STEP(FOLD_LOAD(x4 + j), FOLD_LOAD(x5 + j)), FOLD_STEP(FOLD_LOAD(x6 + j), FOLD_LOAD(x7 + j)));
        a = FOLD_STEP(a, b);
        if (!first) a = FOLD_STEP(FOLD_DO(_get)(level + j), a);
        FOLD_DO(_put)(level + j, a);
    }
}

static inline void FOLD_FN(_one)(FOLD_S *level /* (n) */, const FOLD_T *x /* (n) */, int64_t n, bool first) {
    enum { L = LANES(FOLD_D) };
    for (int64_t j = 0; j + L <= n; j += L) {
        FOLD_V a = FOLD_LOAD(x + j);
        if (!first) a = FOLD_STEP(FOLD_DO(_get)(level + j), a);
        FOLD_DO(_put)(level + j, a);
    }
}

static void FOLD_FN(_columns)(void *acc, const void *from, int64_t n, int64_t rows, int64_t step, int64_t base) {
    enum { L = LANES(FOLD_D), GROUP = 512 };
    (void)base;
    FOLD_ACC *to = acc;
    const FOLD_T *x = from; /* (rows, n) */
    FOLD_S level[CT_REDUCE_COLUMNS];
    const int64_t whole = n - n % L;
    const bool prefetch = !ct__caches()->reads_ahead;
    for (int64_t m; rows > 0; rows -= m, x += m * step) {
        m = rows < GROUP ? rows : GROUP;
        int64_t i = 0;
        for (; i + 8 <= m; i += 8) FOLD_FN(_eight)(level, x + i * step, whole, step, i == 0, prefetch);
        for (; i < m; i++) FOLD_FN(_one)(level, x + i * step, whole, i == 0);
        if (whole < n) {
            FOLD_V tail = FOLD_SHORT(x + whole, (int)(n - whole));
            for (i = 1; i < m; i++) {
                FOLD_V v = FOLD_SHORT(x + i * step + whole, (int)(n - whole));
                tail = FOLD_STEP(tail, v);
            }
            FOLD_DO(_put_n)(level + whole, tail, (int)(n - whole));
        }
        for (int64_t j = 0; j < n; j++) FOLD_TAKE(to[j], level[j]);
    }
}

#undef FOLD_D
#undef FOLD_T
#undef FOLD_S
#undef FOLD_V
#undef FOLD_DO
#undef FOLD_FN
#undef FOLD_LOAD
#undef FOLD_SHORT
#undef FOLD_STEP
#undef FOLD_LANE
#undef FOLD_PAIR
#undef FOLD_EIGHT
#undef FOLD_FIRST
#undef FOLD_JOIN
