/* Kernel of norm with p = 2: squares are added in double, where no f32 overflows or vanishes. Other p are lowered. */
#include "ops/reduce/cpu/reduce_kernel.h"

/* The squares of one vector of elements as sums of doubles: a += lower half, b += upper half. */
static inline void square_lanes(vf32 v, vf64 *a, vf64 *b) {
    vf64 lower = vf64_from_f32_lo(v), upper = vf64_from_f32_hi(v);
    *a = vf64_fma(lower, lower, *a);
    *b = vf64_fma(upper, upper, *b);
}

static inline void square_f64(const double *x, int n, vf64 *a, vf64 *b) {
    (void)b;
    vf64 v = n == VF64_LANES ? vf64_load(x) : vf64_load_n(x, n);
    *a = vf64_fma(v, v, *a);
}
#define SQUARE_SMALL(D)                                                            \
    static inline void square_##D(const D##_element *x, int n, vf64 *a, vf64 *b) { \
        square_lanes(n == VF32_LANES ? D##_load(x) : D##_load_n(x, n), a, b);      \
    }
SQUARE_SMALL(f32)
SQUARE_SMALL(f16)
SQUARE_SMALL(bf16)

/* to[k] += the squares of `rows` elements below each other, for the columns k < n of one vector. */
static inline void add_squares_f64(double *to, const double *x, int64_t rows, int64_t step, int n) {
    vf64 a = vf64_load_n(to, n), unused;
    for (int64_t i = 0; i < rows; i++) square_f64(x + i * step, n, &a, &unused);
    vf64_store_n(to, a, n);
}
#define ADD_SQUARES_SMALL(D)                                                                                  \
    static inline void add_squares_##D(double *to, const D##_element *x, int64_t rows, int64_t step, int n) { \
        int upper = n > VF64_LANES ? n - VF64_LANES : 0, lower = n - upper;                                   \
        vf64 a = vf64_load_n(to, lower), b = vf64_load_n(to + lower, upper);                                  \
        for (int64_t i = 0; i < rows; i++) square_##D(x + i * step, n, &a, &b);                               \
        vf64_store_n(to, a, lower);                                                                           \
        vf64_store_n(to + lower, b, upper);                                                                   \
    }
ADD_SQUARES_SMALL(f32)
ADD_SQUARES_SMALL(f16)
ADD_SQUARES_SMALL(bf16)

REDUCE_INIT(zero_f64, double, 0)
REDUCE_MERGE(add_f64, double, REDUCE_ADD)
#define D f32
#include "ops/reduce/cpu/norm_rows.h"
#define D f64
#include "ops/reduce/cpu/norm_rows.h"
#define D f16
#include "ops/reduce/cpu/norm_rows.h"
#define D bf16
#include "ops/reduce/cpu/norm_rows.h"
#define NORM_REDUCER(D)                                                 \
    REDUCE_FINISH(norm_to_##D, double, D##_element, D##_round(sqrt(a))) \
    REDUCER(norm, D, double, zero_f64, add_f64, norm_to_##D)
NORM_REDUCER(f32)
NORM_REDUCER(f64)
NORM_REDUCER(f16)
NORM_REDUCER(bf16)
#undef NORM_REDUCER
REDUCER_TABLE_FLOATS(norm)
REDUCE_RUN(norm, 0)

static const char *norm_can(const ct_call *call) {
    return ((const norm_attrs *)call->attrs)->p == 2 ? NULL : "p is not 2";
}

CT_KERNELS(reduce_norm) = {
    CT_CANDIDATES(norm, {"norm_2", norm_can, norm_scratch, norm_run}),
    {0},
};
