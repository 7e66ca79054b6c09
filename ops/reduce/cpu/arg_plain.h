/* A template: the best element of one integer dtype and its place, as plain loops. Included once for every dtype,
 * with FOLD_D its short name, which it undefines, and these, which it keeps:
 *   FOLD_BASE            the functions are BASE_D_rows and BASE_D_columns
 *   FOLD_BEATS(a, best)  a is better */
#include "ops/reduce/cpu/elements.h"

#define FOLD_T        ELEMENT(FOLD_D)
#define FOLD_ARG      ELEMENT_PASTE(FOLD_D, _arg)
#define FOLD_FN(part) ELEMENT_PASTE(ELEMENT_PASTE(FOLD_BASE, _), ELEMENT_PASTE(FOLD_D, part))

static void FOLD_FN(_rows)(void *acc, const void *from, int64_t rows, int64_t step, int64_t n, int64_t base) {
    FOLD_ARG *to = acc;
    for (int64_t r = 0; r < rows; r++, to++) {
        const FOLD_T *x = (const FOLD_T *)from + r * step; /* (n) */
        FOLD_T best = x[0];
        for (int64_t i = 1; i < n; i++) best = FOLD_BEATS(x[i], best) ? x[i] : best;
        if (to->index >= 0 && !FOLD_BEATS(best, to->value)) continue;
        int64_t place = 0;
        while (x[place] != best) place++;
        to->value = best;
        to->index = base + place;
    }
}

static void FOLD_FN(_columns)(void *acc, const void *from, int64_t n, int64_t rows, int64_t step, int64_t base) {
    FOLD_ARG *to = acc;
    for (int64_t i = 0; i < rows; i++) {
        const FOLD_T *x = (const FOLD_T *)from + i * step; /* (n) */
        for (int64_t j = 0; j < n; j++) {
            bool take = to[j].index < 0 || FOLD_BEATS(x[j], to[j].value);
            to[j].value = take ? x[j] : to[j].value;
            to[j].index = take ? base + i : to[j].index;
        }
    }
}

#undef FOLD_D
#undef FOLD_T
#undef FOLD_ARG
#undef FOLD_FN
