/* Matrix by vector: bound by memory, so the matrix is streamed once, in the order it lies. Sums are
 * f32 (f64 for f64). How one sum is formed depends on k alone, not on its neighbors. */
#include "backends/cpu/gemm/convert.h"
#include "backends/cpu/gemm/isa.h"

#if CT_ISA_LEVEL < 3 /* avx512bf16 uses that of avx512 */

#define AS_IS(x) (x)

/* y[i] (+)= alpha * sum_p a[i][p] x[p]. Two partial vectors a row; four rows at a time share the loads of x and keep
 * four streams of memory open. */
#define DOT_ROW(r, LOAD, V, lanes)                                 \
    if (rows > r) {                                                \
        s##r = V##_fma(LOAD(a + r * a_row + p), x0, s##r);         \
        t##r = V##_fma(LOAD(a + r * a_row + p + lanes), x1, t##r); \
    }
#define DOT_TAIL(r, LOAD_N, V) \
    if (rows > r) s##r = V##_fma(LOAD_N(a + r * a_row + p, left), x0, s##r);
#define DOT_END(r, ACC, V)                                     \
    if (rows > r) {                                            \
        const ACC sum = alpha * V##_hsum(V##_add(s##r, t##r)); \
        y[r] = accumulate ? y[r] + sum : sum;                  \
    }
#define DOT(NAME, T, LOAD, LOAD_N, ACC, V)                                                                      \
    static inline __attribute__((always_inline)) void NAME##_rows(                                              \
        const int rows, const T *a, int64_t a_row, const T *x, ACC *y, int64_t k, ACC alpha, bool accumulate) { \
        const int64_t lanes = (int64_t)(sizeof(V) / sizeof(ACC));                                               \
        V s0 = V##_set1(0), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0;                      \
        int64_t p = 0;                                                                                          \
        for (; p + 2 * lanes <= k; p += 2 * lanes) {                                                            \
            const V x0 = LOAD(x + p), x1 = LOAD(x + p + lanes);                                                 \
            DOT_ROW(0, LOAD, V, lanes)                                                                          \
            DOT_ROW(1, LOAD, V, lanes)                                                                          \
            DOT_ROW(2, LOAD, V, lanes)                                                                          \
            DOT_ROW(3, LOAD, V, lanes)                                                                          \
        }                                                                                                       \
        for (; p < k; p += lanes) {                                                                             \
            const int left = (int)ct__min(lanes, k - p);                                                        \
            const V x0 = LOAD_N(x + p, left);                                                                   \
            DOT_TAIL(0, LOAD_N, V)                                                                              \
            DOT_TAIL(1, LOAD_N, V)                                                                              \
            DOT_TAIL(2, LOAD_N, V)                                                                              \
            DOT_TAIL(3, LOAD_N, V)                                                                              \
        }                                                                                                       \
        DOT_END(0, ACC, V)                                                                                      \
        DOT_END(1, ACC, V)                                                                                      \
        DOT_END(2, ACC, V)                                                                                      \
        DOT_END(3, ACC, V)                                                                                      \
    }                                                                                                           \
    static void NAME(const T *a, int64_t a_row, const T *x, ACC *y, int64_t rows, int64_t k, ACC alpha,         \
                     bool accumulate) {                                                                         \
        int64_t i = 0;                                                                                          \
        for (; i + 4 <= rows; i += 4) NAME##_rows(4, a + i * a_row, a_row, x, y + i, k, alpha, accumulate);     \
        for (; i < rows; i++) NAME##_rows(1, a + i * a_row, a_row, x, y + i, k, alpha, accumulate);             \
    }

DOT(dot_f32, float, vf32_load, vf32_load_n, float, vf32)
DOT(dot_f64, double, vf64_load, vf64_load_n, double, vf64)
DOT(dot_bf16, uint16_t, vf32_load_bf16, vf32_load_bf16_n, float, vf32)
DOT(dot_f16, uint16_t, vf32_load_f16, vf32_load_f16_n, float, vf32)

/* The same for a matrix that lies along i: a[i + p * a_col]. Eight columns are added in one pass over
 * y, which stays in L1; each sum is one chain over p. */
#define AXPY(NAME, T, VALUE, LOAD, LOAD_N, ACC, V)                                                                 \
    static inline __attribute__((always_inline)) void NAME##_columns(const int columns, const T *a, int64_t a_col, \
                                                                     const ACC *x, ACC *y, int64_t rows) {         \
        const int64_t lanes = (int64_t)(sizeof(V) / sizeof(ACC));                                                  \
        int64_t i = 0;                                                                                             \
        for (; i + lanes <= rows; i += lanes) {                                                                    \
            V s = V##_load(y + i);                                                                                 \
            for (int c = 0; c < columns; c++) s = V##_fma(LOAD(a + c * a_col + i), V##_set1(x[c]), s);             \
            V##_store(y + i, s);                                                                                   \
        }                                                                                                          \
        if (i == rows) return;                                                                                     \
        const int left = (int)(rows - i);                                                                          \
        V s = V##_load_n(y + i, left);                                                                             \
        for (int c = 0; c < columns; c++) s = V##_fma(LOAD_N(a + c * a_col + i, left), V##_set1(x[c]), s);         \
        V##_store_n(y + i, s, left);                                                                               \
    }                                                                                                              \
    static void NAME(const T *a, int64_t a_col, const T *x, int64_t x_step, ACC *y, int64_t rows, int64_t k,       \
                     ACC alpha, bool accumulate) {                                                                 \
        ACC v[8];                                                                                                  \
        if (!accumulate) memset(y, 0, (size_t)rows * sizeof(ACC));                                                 \
        int64_t p = 0;                                                                                             \
        for (; p + 8 <= k; p += 8) {                                                                               \
            for (int c = 0; c < 8; c++) v[c] = alpha * VALUE(x[(p + c) * x_step]);                                 \
            NAME##_columns(8, a + p * a_col, a_col, v, y, rows);                                                   \
        }                                                                                                          \
        for (; p < k; p++) {                                                                                       \
            v[0] = alpha * VALUE(x[p * x_step]);                                                                   \
            NAME##_columns(1, a + p * a_col, a_col, v, y, rows);                                                   \
        }                                                                                                          \
    }

AXPY(axpy_f32, float, AS_IS, vf32_load, vf32_load_n, float, vf32)
AXPY(axpy_f64, double, AS_IS, vf64_load, vf64_load_n, double, vf64)
AXPY(axpy_bf16, uint16_t, bf16_to_f32, vf32_load_bf16, vf32_load_bf16_n, float, vf32)
AXPY(axpy_f16, uint16_t, f16_to_f32, vf32_load_f16, vf32_load_f16_n, float, vf32)

void CT_ISA_FN(ct__gemv_dot)(ct_gemm_type type, const void *a, int64_t a_row, const void *x, void *y, int64_t rows,
                             int64_t k, double alpha, bool accumulate) {
    const float scale = (float)alpha;
    switch (type) {
    case CT_GEMM_F32: dot_f32(a, a_row, x, y, rows, k, scale, accumulate); break;
    case CT_GEMM_F64: dot_f64(a, a_row, x, y, rows, k, alpha, accumulate); break;
    case CT_GEMM_BF16: dot_bf16(a, a_row, x, y, rows, k, scale, accumulate); break;
    default: dot_f16(a, a_row, x, y, rows, k, scale, accumulate); break;
    }
}

void CT_ISA_FN(ct__gemv_axpy)(ct_gemm_type type, const void *a, int64_t a_col, const void *x, int64_t x_step, void *y,
                              int64_t rows, int64_t k, double alpha, bool accumulate) {
    const float scale = (float)alpha;
    switch (type) {
    case CT_GEMM_F32: axpy_f32(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    case CT_GEMM_F64: axpy_f64(a, a_col, x, x_step, y, rows, k, alpha, accumulate); break;
    case CT_GEMM_BF16: axpy_bf16(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    default: axpy_f16(a, a_col, x, x_step, y, rows, k, scale, accumulate); break;
    }
}

#endif
