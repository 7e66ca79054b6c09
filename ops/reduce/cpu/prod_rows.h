/* Products of floats in f64 of rows and of columns, a template: D is the dtype by its short name. Included by prod.c. */
#define ROWS_OF(a, b) CT_SIMD_PASTE(CT_SIMD_PASTE(a, _), CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, b)))
#define TO(x)         CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)
#define OF(x)         CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

static void ROWS_OF(prod, rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {
    (void)base;
    double wide[WIDE];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += WIDE) {
            int64_t m = ct__min64(n - i, WIDE);
            TO(widen)(wide, (const OF(element) *)x + r * step + i, m);
            ((double *)acc)[r] *= product(wide, m);
        }
}

static void ROWS_OF(prod, columns)(void *acc, const void *x, int64_t n, int64_t rows, int64_t step, int64_t base) {
    (void)base;
    double wide[4][WIDE / 4];
    const OF(element) *row = x; /* (rows, n) */
    for (int64_t r = 0, some; r < rows; r += some, row += some * step) {
        some = rows - r < 4 ? 1 : 4;
        for (int64_t j = 0; j < n; j += WIDE / 4) {
            int64_t m = ct__min64(n - j, WIDE / 4);
            double *to = (double *)acc + j;
            for (int64_t i = 0; i < some; i++) TO(widen)(wide[i], row + i * step + j, m);
            if (some == 4)
                for (int64_t k = 0; k < m; k++) to[k] *= (wide[0][k] * wide[1][k]) * (wide[2][k] * wide[3][k]);
            else
                for (int64_t k = 0; k < m; k++) to[k] *= wide[0][k];
        }
    }
}

#undef ROWS_OF
#undef TO
#undef OF
#undef D
