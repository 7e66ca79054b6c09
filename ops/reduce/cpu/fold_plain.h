/* A template: the rows and columns of a reduction written as a plain loop, which the compiler vectorizes. For
 * integers and truth values. Included once for every dtype, with FOLD_D its short name, which it undefines, and
 * these, which it keeps:
 *   FOLD_BASE          the functions are BASE_D_rows and BASE_D_columns
 *   FOLD_ACC           type of an accumulator
 *   FOLD_TAKE(acc, x)  acc = acc op x, for an element */
#include "ops/reduce/cpu/elements.h"

#define FOLD_T        ELEMENT(FOLD_D)
#define FOLD_FN(part) ELEMENT_PASTE(ELEMENT_PASTE(FOLD_BASE, _), ELEMENT_PASTE(FOLD_D, part))

static void FOLD_FN(_rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {
    (void)base;
    FOLD_ACC *to = acc;
    for (int64_t i = 0; i < rows; i++) {
        const FOLD_T *row = (const FOLD_T *)x + i * step; /* (n) */
        FOLD_ACC a = to[i];
        for (int64_t j = 0; j < n; j++) FOLD_TAKE(a, row[j]);
        to[i] = a;
    }
}

static void FOLD_FN(_columns)(void *acc, const void *x, int64_t n, int64_t rows, int64_t step, int64_t base) {
    (void)base;
    FOLD_ACC *restrict to = acc;
    const FOLD_T *restrict row = x; /* (rows, n) */
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, row += 4 * step)
        for (int64_t j = 0; j < n; j++) {
            FOLD_ACC a = to[j];
            FOLD_TAKE(a, row[j]);
            FOLD_TAKE(a, row[step + j]);
            FOLD_TAKE(a, row[2 * step + j]);
            FOLD_TAKE(a, row[3 * step + j]);
            to[j] = a;
        }
    for (; i < rows; i++, row += step)
        for (int64_t j = 0; j < n; j++) FOLD_TAKE(to[j], row[j]);
}

#undef FOLD_D
#undef FOLD_T
#undef FOLD_FN
