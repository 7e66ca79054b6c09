/* Kernels of any, all and count_nonzero: of every dtype, NaN is not zero. */
#include "ops/reduce/cpu/reduce_kernel.h"

#define FOLD_BASE       any
#define FOLD_ACC        uint8_t
#define FOLD_TAKE(a, x) ((a) = (uint8_t)((a) | ((x) != 0)))
#define FOLD_D          f32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_TAKE
/* f16 and bf16: zero but for its sign */
#define FOLD_TAKE(a, x) ((a) = (uint8_t)((a) | (((x)&0x7fff) != 0)))
#define FOLD_D          f16
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_TAKE
#undef FOLD_BASE

#define FOLD_BASE       all
#define FOLD_TAKE(a, x) ((a) = (uint8_t)((a) & ((x) != 0)))
#define FOLD_D          f32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_TAKE
#define FOLD_TAKE(a, x) ((a) = (uint8_t)((a) & (((x)&0x7fff) != 0)))
#define FOLD_D          f16
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_TAKE
#undef FOLD_BASE
#undef FOLD_ACC

#define FOLD_BASE       count_nonzero
#define FOLD_ACC        int64_t
#define FOLD_TAKE(a, x) ((a) += (x) != 0)
#define FOLD_D          f32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"
#undef FOLD_TAKE
#define FOLD_TAKE(a, x) ((a) += ((x)&0x7fff) != 0)
#define FOLD_D          f16
#include "ops/reduce/cpu/fold_plain.h"

#define TAKE_OR(a, b)  ((a) |= (b))
#define TAKE_AND(a, b) ((a) &= (b))
REDUCE_INIT(init_false, uint8_t, 0)
REDUCE_INIT(init_true, uint8_t, 1)
REDUCE_INIT(init_count, int64_t, 0)
REDUCE_MERGE(merge_any, uint8_t, TAKE_OR)
REDUCE_MERGE(merge_all, uint8_t, TAKE_AND)
REDUCE_MERGE(merge_count, int64_t, REDUCE_ADD)
REDUCE_FINISH(to_bool, uint8_t, uint8_t, a)
REDUCE_FINISH(to_i64, int64_t, int64_t, a)

#define TRUTH(D)                                             \
    REDUCER(any, D, uint8_t, init_false, merge_any, to_bool) \
    REDUCER(all, D, uint8_t, init_true, merge_all, to_bool)  \
    REDUCER(count_nonzero, D, int64_t, init_count, merge_count, to_i64)
TRUTH(f32)
TRUTH(f64)
TRUTH(f16)
TRUTH(i16)
TRUTH(i32)
TRUTH(i64)
TRUTH(u8)

/* A byte is zero or not, signed or unsigned; so are the two half types. */
#define TRUTH_TABLE(op)                                                                                      \
    static const ct_reducer *const op##_reducers[CT_DTYPE_COUNT] = {                                         \
        [CT_F32] = &op##_of_f32, [CT_F64] = &op##_of_f64, [CT_F16] = &op##_of_f16, [CT_BF16] = &op##_of_f16, \
        [CT_I8] = &op##_of_u8,   [CT_I16] = &op##_of_i16, [CT_I32] = &op##_of_i32, [CT_I64] = &op##_of_i64,  \
        [CT_U8] = &op##_of_u8,   [CT_BOOL] = &op##_of_u8,                                                    \
    };
TRUTH_TABLE(any)
TRUTH_TABLE(all)
TRUTH_TABLE(count_nonzero)
REDUCE_RUN(any, 0)
REDUCE_CAN(any)
REDUCE_RUN(all, 0)
REDUCE_CAN(all)
REDUCE_RUN(count_nonzero, 0)
REDUCE_CAN(count_nonzero)

CT_KERNELS(reduce_truth) = {
    REDUCE_ROW(any),
    REDUCE_ROW(all),
    REDUCE_ROW(count_nonzero),
    {0},
};
