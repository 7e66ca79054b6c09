/* A template: the best element of one floating dtype and its place, rows and columns. Included once for every dtype,
 * with FOLD_D its short name, which it undefines, and these, which it keeps:
 *   FOLD_BASE  the functions are BASE_D_rows and BASE_D_columns
 *   FOLD_OP    max or min, and FOLD_ACROSS hmax or hmin
 *   FOLD_WORSE le or ge: x is no better than the best so far
 * NaN is better than every number, and the first of equals wins. */
#include "ops/reduce/cpu/elements.h"

#define FOLD_T          ELEMENT(FOLD_D)
#define FOLD_S          SCALAR(FOLD_D)
#define FOLD_V          VECTOR(FOLD_D)
#define FOLD_ARG        ELEMENT_PASTE(FOLD_D, _arg)
#define FOLD_DO(part)   ELEMENT_PASTE(FOLD_D, part)
#define FOLD_FN(part)   ELEMENT_PASTE(ELEMENT_PASTE(FOLD_BASE, _), ELEMENT_PASTE(FOLD_D, part))
#define FOLD_STEP(a, b) FOLD_DO(ELEMENT_PASTE(_, FOLD_OP))(a, b)

/* The place of the first element that equals best, which is there (NaN equals NaN). */
static inline int64_t FOLD_FN(_find)(const FOLD_T *x /* (n) */, int64_t n, FOLD_S best) {
    enum { L = LANES(FOLD_D) };
    int64_t i = 0;
    FOLD_V wanted = FOLD_DO(_set1)(best);
    for (; i + L <= n; i += L) {
        FOLD_V v = FOLD_DO(_load)(x + i);
        if (best != best ? FOLD_DO(_any_nan)(v) : FOLD_DO(_any_equal)(v, wanted)) break;
    }
    for (; i < n; i++) {
        FOLD_S a = FOLD_DO(_value)(x[i]);
        if (a == best || (a != a && best != best)) return i;
    }
    return 0;
}

static inline bool FOLD_FN(_better)(FOLD_S a, FOLD_S best) {
    return (a != a && best == best) || FOLD_FN(_beats)(a, best);
}

static void FOLD_FN(_rows)(void *acc, const void *from, int64_t rows, int64_t step, int64_t n, int64_t base) {
    enum { L = LANES(FOLD_D), BLOCK = 4096 };
    FOLD_ARG *to = acc;
    for (int64_t r = 0; r < rows; r++, to++) {
        const FOLD_T *x = (const FOLD_T *)from + r * step; /* (n) */
        for (int64_t at = 0, m; at < n; at += m, x += m) {
            m = n - at < BLOCK ? n - at : BLOCK;
            FOLD_V a = FOLD_DO(_load_repeated)(x, m < L ? (int)m : L), b = a, c = a, d = a;
            int64_t i = m < L ? m : L;
            for (; i + 4 * L <= m; i += 4 * L) {
                PREFETCH(x + i, 4 * L);
                a = FOLD_STEP(a, FOLD_DO(_load)(x + i));
                b = FOLD_STEP(b, FOLD_DO(_load)(x + i + L));
                c = FOLD_STEP(c, FOLD_DO(_load)(x + i + 2 * L));
                d = FOLD_STEP(d, FOLD_DO(_load)(x + i + 3 * L));
            }
            for (; i + L <= m; i += L) a = FOLD_STEP(a, FOLD_DO(_load)(x + i));
            if (i < m) a = FOLD_STEP(a, FOLD_DO(_load_repeated)(x + i, (int)(m - i)));
            FOLD_S best = FOLD_DO(ELEMENT_PASTE(_, FOLD_ACROSS))(FOLD_STEP(FOLD_STEP(a, b), FOLD_STEP(c, d)));
            if (to->index >= 0 && !FOLD_FN(_better)(best, to->value)) continue;
            int64_t place = FOLD_FN(_find)(x, m, best);
            to->value = FOLD_DO(_value)(x[place]); /* best may be the other zero */
            to->index = base + at + place;
        }
    }
}

static void FOLD_FN(_columns)(void *acc, const void *from, int64_t n, int64_t rows, int64_t step, int64_t base) {
    enum { L = LANES(FOLD_D), GROUP = 8 };
    FOLD_ARG *to = acc;
    const FOLD_T *x = from; /* (rows, n) */
    FOLD_S level[CT_REDUCE_COLUMNS];
    FOLD_S place[CT_REDUCE_COLUMNS]; /* an integer of the same width in each: it goes the way of the value */
    const int64_t whole = n - n % L;
    for (int64_t m; rows > 0; rows -= m, x += m * step, base += m) {
        m = rows < 1 << 24 ? rows : 1 << 24; /* places within 32 bits */
        for (int64_t j = 0; j < n; j++) {
            level[j] = FOLD_DO(_value)(x[j]);
            place[j] = 0; /* the bits of 0 */
        }
        /* A group of rows is searched only where one of its columns has something better, which is seldom. */
        for (int64_t i = 1; i < m; i += GROUP) {
            const FOLD_T *row = x + i * step;
            int64_t some = m - i < GROUP ? m - i : GROUP;
            for (int64_t j = 0; j < whole; j += L) {
                FOLD_V best = FOLD_DO(_get)(level + j), here;
                if (some == GROUP) {
                    for (int64_t k = GROUP; k < 2 * GROUP; k++)
                        __builtin_prefetch(row + k * step + j, 0, 2); /* the rows after these */
                    FOLD_V a = FOLD_STEP(FOLD_DO(_load)(row + j), FOLD_DO(_load)(row + step + j));
                    FOLD_V b = FOLD_STEP(FOLD_DO(_load)(row + 2 * step + j), FOLD_DO(_load)(row + 3 * step + j));
                    FOLD_V c = FOLD_STEP(FOLD_DO(_load)(row + 4 * step + j), FOLD_DO(_load)(row + 5 * step + j));
                    FOLD_V d = FOLD_STEP(FOLD_DO(_load)(row + 6 * step + j), FOLD_DO(_load)(row + 7 * step + j));
                    here = FOLD_STEP(FOLD_STEP(a, b), FOLD_STEP(c, d));
                    if (!FOLD_DO(_any)(FOLD_DO(ELEMENT_PASTE(_not_, FOLD_WORSE))(here, best))) continue;
                }
                FOLD_V at = FOLD_DO(_get)(place + j);
                for (int64_t k = 0; k < some; k++) {
                    FOLD_V v = FOLD_DO(_load)(row + k * step + j);
                    FOLD_DO(_mask) take = FOLD_DO(ELEMENT_PASTE(_not_, FOLD_WORSE))(v, best);
                    best = FOLD_DO(_select)(take, v, best);
                    at = FOLD_DO(_select)(take, FOLD_DO(_place_vector)(i + k), at);
                }
                FOLD_DO(_put)(level + j, best);
                FOLD_DO(_put)(place + j, at);
            }
            for (int64_t k = 0; k < some; k++)
                for (int64_t j = whole; j < n; j++) {
                    FOLD_S v = FOLD_DO(_value)(row[k * step + j]);
                    if (!FOLD_FN(_better)(v, level[j])) continue;
                    level[j] = v;
                    place[j] = FOLD_DO(_place_bits)(i + k);
                }
        }
        for (int64_t j = 0; j < n; j++) {
            if (to[j].index >= 0 && !FOLD_FN(_better)(level[j], to[j].value)) continue;
            to[j].value = level[j];
            to[j].index = base + FOLD_DO(_place_of)(place[j]);
        }
    }
}

#undef FOLD_D
#undef FOLD_T
#undef FOLD_S
#undef FOLD_V
#undef FOLD_ARG
#undef FOLD_DO
#undef FOLD_FN
#undef FOLD_STEP
