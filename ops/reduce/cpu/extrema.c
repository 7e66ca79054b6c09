/* Kernels of amax and amin: values only, NaN wins. Indices are the business of arg.c. */
#include "ops/reduce/cpu/reduce_kernel.h"

#define FOLD_LOAD_N     load_repeated
#define FOLD_SCALAR_ROW 24
#define FOLD_BLOCK      (1 << 16) /* the length changes no extremum, and at its end the memory waits */

#define FOLD_BASE   amax
#define FOLD_OP     max
#define FOLD_ACROSS hmax
#define FOLD_TAKE   REDUCE_GREATER
#define FOLD_ACC    SCALAR(FOLD_D)
#define FOLD_D      f32
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/fold_vector.h"
#undef FOLD_ACC
#undef FOLD_TAKE
#define INT_GREATER(a, b) ((a) = (a) > (b) ? (a) : (b))
#define FOLD_TAKE         INT_GREATER
#define FOLD_ACC          ELEMENT(FOLD_D)
#define FOLD_D            i8
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_BASE
#undef FOLD_OP
#undef FOLD_ACROSS
#undef FOLD_TAKE
#undef FOLD_ACC

#define FOLD_BASE   amin
#define FOLD_OP     min
#define FOLD_ACROSS hmin
#define FOLD_TAKE   REDUCE_LESSER
#define FOLD_ACC    SCALAR(FOLD_D)
#define FOLD_D      f32
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/fold_vector.h"
#undef FOLD_ACC
#undef FOLD_TAKE
#define INT_LESSER(a, b) ((a) = (a) < (b) ? (a) : (b))
#define FOLD_TAKE        INT_LESSER
#define FOLD_ACC         ELEMENT(FOLD_D)
#define FOLD_D           i8
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"

#define EXTREMA(D, A, TAKE_GREATER, TAKE_LESSER, lowest, highest, out) \
    REDUCE_INIT(lowest_##D, A, lowest)                                 \
    REDUCE_INIT(highest_##D, A, highest)                               \
    REDUCE_MERGE(greater_##D, A, TAKE_GREATER)                         \
    REDUCE_MERGE(lesser_##D, A, TAKE_LESSER)                           \
    REDUCE_FINISH(to_##D, A, D##_element, out)                         \
    REDUCER(amax, D, A, lowest_##D, greater_##D, to_##D)               \
    REDUCER(amin, D, A, highest_##D, lesser_##D, to_##D)
#define EXTREMA_OF_FLOATS(D) \
    EXTREMA(D, D##_scalar, REDUCE_GREATER, REDUCE_LESSER, (D##_scalar) - INFINITY, (D##_scalar)INFINITY, D##_round(a))
#define EXTREMA_OF_INTEGERS(D, lowest, highest) EXTREMA(D, D##_element, INT_GREATER, INT_LESSER, lowest, highest, a)
EXTREMA_OF_FLOATS(f32)
EXTREMA_OF_FLOATS(f64)
EXTREMA_OF_FLOATS(f16)
EXTREMA_OF_FLOATS(bf16)
EXTREMA_OF_INTEGERS(i8, INT8_MIN, INT8_MAX)
EXTREMA_OF_INTEGERS(i16, INT16_MIN, INT16_MAX)
EXTREMA_OF_INTEGERS(i32, INT32_MIN, INT32_MAX)
EXTREMA_OF_INTEGERS(i64, INT64_MIN, INT64_MAX)
EXTREMA_OF_INTEGERS(u8, 0, UINT8_MAX)

REDUCER_TABLE_ALL(amax)
REDUCER_TABLE_ALL(amin)
REDUCE_RUN(amax, 0)
REDUCE_CAN(amax)
REDUCE_RUN(amin, 0)
REDUCE_CAN(amin)

CT_KERNELS(reduce_extrema) = {
    REDUCE_ROW(amax),
    REDUCE_ROW(amin),
    {0},
};
