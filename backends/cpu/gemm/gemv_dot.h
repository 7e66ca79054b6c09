/* Dot products of rows, a template: NAME is the function, T an element, LOAD and LOAD_N make a vector V of them, and
 * ACC is the type of a sum. Included by kernel_gemv.c. */
#define ROWS  CT_SIMD_PASTE(NAME, _rows)
#define DO(x) CT_SIMD_PASTE(V, CT_SIMD_PASTE(_, x))

#define DOT_ROW(r)                                                 \
    if (rows > r) {                                                \
        s##r = DO(fma)(LOAD(a + r * a_row + p), x0, s##r);         \
        t##r = DO(fma)(LOAD(a + r * a_row + p + lanes), x1, t##r); \
    }
#define DOT_TAIL(r) \
    if (rows > r) s##r = DO(fma)(LOAD_N(a + r * a_row + p, left), x0, s##r);
#define DOT_END(r)                                             \
    if (rows > r) {                                            \
        const ACC sum = alpha * DO(hsum)(DO(add)(s##r, t##r)); \
        y[r] = accumulate ? y[r] + sum : sum;                  \
    }

/* y[i] (+)= alpha * sum_p a[i][p] x[p]. Two partial vectors per row; four rows at a time share the loads of x and keep
 * four streams of memory open. */
static inline __attribute__((always_inline)) void ROWS(const int rows, const T *a, int64_t a_row, const T *x, ACC *y,
                                                       int64_t k, ACC alpha, bool accumulate) {
    const int64_t lanes = (int64_t)(sizeof(V) / sizeof(ACC));
    V s0 = DO(set1)(0), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0;
    int64_t p = 0;
    for (; p + 2 * lanes <= k; p += 2 * lanes) {
        const V x0 = LOAD(x + p), x1 = LOAD(x + p + lanes);
        DOT_ROW(0)
        DOT_ROW(1)
        DOT_ROW(2)
        DOT_ROW(3)
    }
    for (; p < k; p += lanes) {
        const int left = (int)ct__min(lanes, k - p);
        const V x0 = LOAD_N(x + p, left);
        DOT_TAIL(0)
        DOT_TAIL(1)
        DOT_TAIL(2)
        DOT_TAIL(3)
    }
    DOT_END(0)
    DOT_END(1)
    DOT_END(2)
    DOT_END(3)
}

static void NAME(const T *a, int64_t a_row, const T *x, ACC *y, int64_t rows, int64_t k, ACC alpha, bool accumulate) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) ROWS(4, a + i * a_row, a_row, x, y + i, k, alpha, accumulate);
    for (; i < rows; i++) ROWS(1, a + i * a_row, a_row, x, y + i, k, alpha, accumulate);
}

#undef DOT_ROW
#undef DOT_TAIL
#undef DOT_END
#undef ROWS
#undef DO
#undef NAME
#undef T
#undef LOAD
#undef LOAD_N
#undef ACC
#undef V
