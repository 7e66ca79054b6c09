/* Sums of columns, a template: NAME is the function, T an element, VALUE a number of it, LOAD and LOAD_N make a
 * vector V of them, and ACC is the type of a sum. Included by kernel_gemv.c. */
#define COLUMNS CT_SIMD_PASTE(NAME, _columns)
#define DO(x)   CT_SIMD_PASTE(V, CT_SIMD_PASTE(_, x))

/* The same for a matrix that lies along i: a[i + p * a_col]. Eight columns are added in one pass over
 * y, which stays in L1; each sum is one chain over p. */
static inline __attribute__((always_inline)) void COLUMNS(const int columns, const T *a, int64_t a_col, const ACC *x,
                                                          ACC *y, int64_t rows) {
    const int64_t lanes = (int64_t)(sizeof(V) / sizeof(ACC));
    int64_t i = 0;
    for (; i + lanes <= rows; i += lanes) {
        V s = DO(load)(y + i);
        for (int c = 0; c < columns; c++) s = DO(fma)(LOAD(a + c * a_col + i), DO(set1)(x[c]), s);
        DO(store)(y + i, s);
    }
    if (i == rows) return;
    const int left = (int)(rows - i);
    V s = DO(load_n)(y + i, left);
    for (int c = 0; c < columns; c++) s = DO(fma)(LOAD_N(a + c * a_col + i, left), DO(set1)(x[c]), s);
    DO(store_n)(y + i, s, left);
}

static void NAME(const T *a, int64_t a_col, const T *x, int64_t x_step, ACC *y, int64_t rows, int64_t k, ACC alpha,
                 bool accumulate) {
    ACC v[8];
    if (!accumulate) memset(y, 0, (size_t)rows * sizeof(ACC));
    int64_t p = 0;
    for (; p + 8 <= k; p += 8) {
        for (int c = 0; c < 8; c++) v[c] = alpha * VALUE(x[(p + c) * x_step]);
        COLUMNS(8, a + p * a_col, a_col, v, y, rows);
    }
    for (; p < k; p++) {
        v[0] = alpha * VALUE(x[p * x_step]);
        COLUMNS(1, a + p * a_col, a_col, v, y, rows);
    }
}

#undef COLUMNS
#undef DO
#undef NAME
#undef T
#undef VALUE
#undef LOAD
#undef LOAD_N
#undef ACC
#undef V
