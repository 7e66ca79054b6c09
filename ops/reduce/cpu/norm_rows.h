/* Sums of squares in f64 of rows and of columns, a template: D is the dtype by its short name. Included by norm.c. */
#define ROWS_OF(a, b) CT_SIMD_PASTE(CT_SIMD_PASTE(a, _), CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, b)))
#define TO(x)         CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)
#define OF(x)         CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

static void ROWS_OF(norm, rows)(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {
    enum { L = OF(lanes), BLOCK = 4096 };
    (void)base;
    for (int64_t r = 0; r < rows; r++) {
        const OF(element) *row = (const OF(element) *)x + r * step; /* (n) */
        for (int64_t at = 0, m; at < n; at += m, row += m) {
            vf64 a = vf64_zero(), b = a, c = a, d = a;
            m = ct__min64(n - at, BLOCK);
            int64_t i = 0;
            for (; i + 2 * L <= m; i += 2 * L) {
                TO(square)(row + i, L, &a, &b);
                TO(square)(row + i + L, L, &c, &d);
            }
            for (; i < m; i += L) TO(square)(row + i, (int)ct__min64(m - i, L), &a, &b);
            ((double *)acc)[r] += vf64_hsum(vf64_add(vf64_add(a, b), vf64_add(c, d)));
        }
    }
}

static void ROWS_OF(norm, columns)(void *acc, const void *x, int64_t n, int64_t rows, int64_t step, int64_t base) {
    (void)base;
    for (int64_t r = 0; r < rows; r += 8) {
        const OF(element) *row = (const OF(element) *)x + r * step; /* (some, n) */
        int64_t some = ct__min64(rows - r, 8), j = 0;
        for (; j + OF(lanes) <= n && some == 8; j += OF(lanes))
            TO(add_squares)((double *)acc + j, row + j, 8, step, OF(lanes));
        for (; j < n; j += OF(lanes))
            TO(add_squares)((double *)acc + j, row + j, some, step, (int)ct__min64(n - j, OF(lanes)));
    }
}

#undef ROWS_OF
#undef TO
#undef OF
#undef D
