/* Kernels of prod. Floats are multiplied in double, so that a product of many f32 overflows only if its result does;
 * integers wrap in i64. */
#include "ops/reduce/cpu/reduce_kernel.h"

enum { WIDE = 512 };

/* Elements as doubles. */
#define WIDEN_PLAIN(D)                                                                              \
    static inline void widen_##D(double *to /* (n) */, const D##_element *x /* (n) */, int64_t n) { \
        for (int64_t i = 0; i < n; i++) to[i] = (double)x[i];                                       \
    }
#define WIDEN_HALF(D)                                                                            \
    static inline void widen_##D(double *to /* (n) */, const uint16_t *x /* (n) */, int64_t n) { \
        float lane[VF32_LANES];                                                                  \
        for (int64_t i = 0; i < n; i += VF32_LANES) {                                            \
            int m = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;                              \
            vf32_store(lane, D##_load_n(x + i, m));                                              \
            for (int k = 0; k < m; k++) to[i + k] = (double)lane[k];                             \
        }                                                                                        \
    }
WIDEN_PLAIN(f32)
WIDEN_PLAIN(f64)
WIDEN_HALF(f16)
WIDEN_HALF(bf16)

static inline double product(const double *x /* (n) */, int64_t n) {
    double a[16];
    for (int k = 0; k < 16; k++) a[k] = 1;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) a[k] *= x[i + k];
    for (; i < n; i++) a[i % 16] *= x[i];
    for (int width = 8; width; width /= 2)
        for (int k = 0; k < width; k++) a[k] *= a[k + width];
    return a[0];
}

#define PROD_OF_FLOATS(D)                                                                                           \
    static void prod_##D##_rows(void *acc, const void *x, int64_t rows, int64_t step, int64_t n, int64_t base) {    \
        (void)base;                                                                                                 \
        double wide[WIDE];                                                                                          \
        for (int64_t r = 0; r < rows; r++)                                                                          \
            for (int64_t i = 0; i < n; i += WIDE) {                                                                 \
                int64_t m = ct__min64(n - i, WIDE);                                                                 \
                widen_##D(wide, (const D##_element *)x + r * step + i, m);                                          \
                ((double *)acc)[r] *= product(wide, m);                                                             \
            }                                                                                                       \
    }                                                                                                               \
    static void prod_##D##_columns(void *acc, const void *x, int64_t n, int64_t rows, int64_t step, int64_t base) { \
        (void)base;                                                                                                 \
        double wide[4][WIDE / 4];                                                                                   \
        const D##_element *row = x; /* (rows, n) */                                                                 \
        for (int64_t r = 0, some; r < rows; r += some, row += some * step) {                                        \
            some = rows - r < 4 ? 1 : 4;                                                                            \
            for (int64_t j = 0; j < n; j += WIDE / 4) {                                                             \
                int64_t m = ct__min64(n - j, WIDE / 4);                                                             \
                double *to = (double *)acc + j;                                                                     \
                for (int64_t i = 0; i < some; i++) widen_##D(wide[i], row + i * step + j, m);                       \
                if (some == 4)                                                                                      \
                    for (int64_t k = 0; k < m; k++) to[k] *= (wide[0][k] * wide[1][k]) * (wide[2][k] * wide[3][k]); \
                else                                                                                                \
                    for (int64_t k = 0; k < m; k++) to[k] *= wide[0][k];                                            \
            }                                                                                                       \
        }                                                                                                           \
    }                                                                                                               \
    REDUCE_FINISH(prod_to_##D, double, D##_element, D##_round(a))                                                   \
    REDUCER(prod, D, double, one_f64, multiply_f64, prod_to_##D)

REDUCE_INIT(one_f64, double, 1)
REDUCE_MERGE(multiply_f64, double, REDUCE_MULTIPLY)
PROD_OF_FLOATS(f32)
PROD_OF_FLOATS(f64)
PROD_OF_FLOATS(f16)
PROD_OF_FLOATS(bf16)

#define WRAPPING_MULTIPLY(a, b) ((a) *= (uint64_t)(int64_t)(b))
REDUCE_INIT(one_i64, uint64_t, 1)
REDUCE_MERGE(multiply_i64, uint64_t, WRAPPING_MULTIPLY)
REDUCE_FINISH(prod_to_i64, uint64_t, int64_t, (int64_t)a)

#define FOLD_BASE prod
#define FOLD_ACC  uint64_t
#define FOLD_TAKE WRAPPING_MULTIPLY
#define FOLD_D    i8
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"

#define PROD_OF_INTEGERS(D) REDUCER(prod, D, uint64_t, one_i64, multiply_i64, prod_to_i64)
PROD_OF_INTEGERS(i8)
PROD_OF_INTEGERS(i16)
PROD_OF_INTEGERS(i32)
PROD_OF_INTEGERS(i64)
PROD_OF_INTEGERS(u8)

REDUCER_TABLE_ALL(prod)
REDUCE_RUN(prod, 0)
REDUCE_CAN(prod)

CT_KERNELS(reduce_prod) = {
    REDUCE_ROW(prod),
    {0},
};
