/* A template: count, mean and sum of squared deviations of one floating dtype, rows and columns. Included once for
 * every dtype, with FOLD_D its short name, which it undefines. Eight vectors at a time: their mean, then the
 * deviations from it, all in registers, merged after Chan, Golub and LeVeque. Everything is counted from the first
 * element, so that a large common offset costs no digits. Memory is read once. */
#include "ops/reduce/cpu/elements.h"

#define FOLD_T        ELEMENT(FOLD_D)
#define FOLD_S        SCALAR(FOLD_D)
#define FOLD_V        VECTOR(FOLD_D)
#define FOLD_DO(part) ELEMENT_PASTE(FOLD_D, part)
#define FOLD_FN(part) ELEMENT_PASTE(var_, ELEMENT_PASTE(FOLD_D, part))

/* Mean and sum of squared deviations of eight vectors, lane by lane, counted from `origin`, merged into those of
 * `steps` such eights before. */
static inline void FOLD_FN(_take_eight)(FOLD_V *mean, FOLD_V *square, FOLD_V origin, const FOLD_T *x, int64_t step,
                                        FOLD_V weight, FOLD_V factor) {
    FOLD_V v[8];
    /* subtracted by fma: the adders are what this loop waits for */
    const FOLD_V one = FOLD_DO(_set1)(1), minus = FOLD_DO(_sub)(FOLD_DO(_set1)(0), origin);
    for (int i = 0; i < 8; i++) v[i] = FOLD_DO(_fma)(FOLD_DO(_load)(x + i * step), one, minus);
    FOLD_V sum = FOLD_DO(_add)(FOLD_DO(_add)(FOLD_DO(_add)(v[0], v[1]), FOLD_DO(_add)(v[2], v[3])),
                               FOLD_DO(_add)(FOLD_DO(_add)(v[4], v[5]), FOLD_DO(_add)(v[6], v[7])));
    FOLD_V middle = FOLD_DO(_mul)(sum, FOLD_DO(_set1)((FOLD_S)0.125)), even = FOLD_DO(_set1)(0), odd = even;
    for (int i = 0; i < 8; i += 2) {
        FOLD_V a = FOLD_DO(_sub)(v[i], middle), b = FOLD_DO(_sub)(v[i + 1], middle);
        even = FOLD_DO(_fma)(a, a, even);
        odd = FOLD_DO(_fma)(b, b, odd);
    }
    FOLD_V apart = FOLD_DO(_sub)(middle, *mean);
    FOLD_V grown = FOLD_DO(_fma)(FOLD_DO(_mul)(apart, apart), factor, FOLD_DO(_add)(even, odd));
    *mean = FOLD_DO(_fma)(apart, weight, *mean);
    *square = FOLD_DO(_add)(*square, grown);
}

/* After `steps` eights the next one has weight 8 / (8 steps + 8), and the squared distance of the means counts 8 * 8
 * steps / (8 steps + 8) times. */
static inline FOLD_V FOLD_FN(_weight)(int64_t steps) { return FOLD_DO(_set1)((FOLD_S)(1.0 / (double)(steps + 1))); }
static inline FOLD_V FOLD_FN(_factor)(int64_t steps) {
    return FOLD_DO(_set1)((FOLD_S)(8.0 * (double)steps / (double)(steps + 1)));
}

/* a - b in the first n lanes, 0 in others; and that for elements. */
static inline FOLD_V FOLD_FN(_less)(FOLD_V a, FOLD_V b, int64_t n) {
    FOLD_V apart = FOLD_DO(_sub)(a, b);
    if (n >= LANES(FOLD_D)) return apart;
    FOLD_S lane[LANES(FOLD_D)];
    FOLD_DO(_put)(lane, apart);
    return FOLD_DO(_get_n)(lane, (int)n);
}
static inline FOLD_V FOLD_FN(_from)(const FOLD_T *x, int64_t n, FOLD_V origin) {
    return FOLD_FN(_less)(n >= LANES(FOLD_D) ? FOLD_DO(_load)(x) : FOLD_DO(_load_n)(x, (int)n), origin, n);
}

/* A run as columns of one vector: lanes first, then the lanes together, then what is left. */
static inline void FOLD_FN(_run)(moments *to, const FOLD_T *x /* (n) */, int64_t n) {
    enum { L = LANES(FOLD_D), MOST = 128 };
    FOLD_S first = FOLD_DO(_value)(x[0]);
    if (!isfinite(first)) first = 0;
    const FOLD_V origin = FOLD_DO(_set1)(first);
    while (n >= 8 * L) {
        int64_t steps = n / (8 * L) < MOST ? n / (8 * L) : MOST;
        FOLD_V mean = FOLD_DO(_set1)(0), square = mean;
        for (int64_t i = 0; i < steps; i++, x += 8 * L) {
            FOLD_FN(_take_eight)(&mean, &square, origin, x, L, FOLD_FN(_weight)(i), FOLD_FN(_factor)(i));
        }
        n -= steps * 8 * L;
        FOLD_S middle = FOLD_DO(_hsum)(mean) / L;
        FOLD_V apart = FOLD_DO(_sub)(mean, FOLD_DO(_set1)(middle));
        double count = (double)(steps * 8),
               rest = (double)FOLD_DO(_hsum)(apart); /* rest: what rounding left in the mean */
        double between = (double)FOLD_DO(_hsum)(FOLD_DO(_mul)(apart, apart)) - rest * rest / L;
        moments block = {count * L, (double)first + (double)middle + rest / L,
                         (double)FOLD_DO(_hsum)(square) + count * between};
        moments_merge(to, &block);
    }
    if (n == 0) return;
    /* fewer than eight vectors: their sum, then the deviations from the mean */
    FOLD_V sum = FOLD_DO(_set1)(0), square = sum, rest = sum;
    for (int64_t i = 0; i < n; i += L) sum = FOLD_DO(_add)(sum, FOLD_FN(_from)(x + i, n - i, origin));
    FOLD_S middle = FOLD_DO(_hsum)(sum) / (FOLD_S)n;
    for (int64_t i = 0; i < n; i += L) {
        FOLD_V apart = FOLD_FN(_less)(FOLD_FN(_from)(x + i, n - i, origin), FOLD_DO(_set1)(middle), n - i);
        square = FOLD_DO(_fma)(apart, apart, square);
        rest = FOLD_DO(_add)(rest, apart);
    }
    double left = (double)FOLD_DO(_hsum)(rest), count = (double)n;
    moments tail = {count, (double)first + (double)middle + left / count,
                    (double)FOLD_DO(_hsum)(square) - left * left / count};
    moments_merge(to, &tail);
}

static void FOLD_FN(_rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {
    (void)base;
    for (int64_t r = 0; r < rows; r++) FOLD_FN(_run)((moments *)acc + r, (const FOLD_T *)x + r * step, n);
}

static inline void FOLD_FN(_eight)(FOLD_S *mean, FOLD_S *square, const FOLD_S *origin, const FOLD_T *x /* (8, n) */,
                                   int64_t n, int64_t step, int64_t steps) {
    const FOLD_V weight = FOLD_FN(_weight)(steps), factor = FOLD_FN(_factor)(steps);
    for (int64_t j = 0; j < n; j += LANES(FOLD_D)) {
        FOLD_V m = FOLD_DO(_get)(mean + j), s = FOLD_DO(_get)(square + j);
        for (int i = 8; i < 16; i++) __builtin_prefetch(x + i * step + j, 0, 2); /* the eight rows after these */
        FOLD_FN(_take_eight)(&m, &s, FOLD_DO(_get)(origin + j), x + j, step, weight, factor);
        FOLD_DO(_put)(mean + j, m);
        FOLD_DO(_put)(square + j, s);
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
        for (; i + 8 <= m; i += 8) FOLD_FN(_eight)(mean, square, origin, x + i * step, whole, step, i / 8);
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
