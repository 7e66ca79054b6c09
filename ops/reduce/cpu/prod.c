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

REDUCE_INIT(one_f64, double, 1)
REDUCE_MERGE(multiply_f64, double, REDUCE_MULTIPLY)
#define D f32
#include "ops/reduce/cpu/prod_rows.h"
#define D f64
#include "ops/reduce/cpu/prod_rows.h"
#define D f16
#include "ops/reduce/cpu/prod_rows.h"
#define D bf16
#include "ops/reduce/cpu/prod_rows.h"
#define PROD_REDUCER(D)                                           \
    REDUCE_FINISH(prod_to_##D, double, D##_element, D##_round(a)) \
    REDUCER(prod, D, double, one_f64, multiply_f64, prod_to_##D)
PROD_REDUCER(f32)
PROD_REDUCER(f64)
PROD_REDUCER(f16)
PROD_REDUCER(bf16)
#undef PROD_REDUCER

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
