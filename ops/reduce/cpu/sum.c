/* Kernels of sum and mean. Floats are added in vectors over short blocks, the blocks in double; integers in i64. */
#include "ops/reduce/cpu/reduce_kernel.h"

#define FOLD_BASE       sum
#define FOLD_ACC        double
#define FOLD_OP         add
#define FOLD_LOAD_N     load_n
#define FOLD_SCALAR_ROW 1
#define FOLD_BLOCK      4096
#define FOLD_ACROSS     hsum
#define FOLD_TAKE       REDUCE_ADD
#define FOLD_D          f32
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/fold_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/fold_vector.h"
#undef FOLD_ACC
#undef FOLD_TAKE

/* Unsigned, since integers wrap. */
#define WRAPPING_ADD(a, b) ((a) += (uint64_t)(int64_t)(b))
#define FOLD_ACC           uint64_t
#define FOLD_TAKE          WRAPPING_ADD
#define FOLD_D             i8
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/fold_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/fold_plain.h"

REDUCE_INIT(zero_f64, double, 0)
REDUCE_INIT(zero_i64, uint64_t, 0)
REDUCE_MERGE(add_f64, double, REDUCE_ADD)
REDUCE_MERGE(add_i64, uint64_t, WRAPPING_ADD)
REDUCE_FINISH(sum_to_i64, uint64_t, int64_t, (int64_t)a)

#define SUM_OF_FLOATS(D)                                                                              \
    REDUCE_FINISH(sum_to_##D, double, D##_element, D##_round(a))                                      \
    REDUCE_FINISH(mean_to_##D, double, D##_element, D##_round(a / (double)p->count))                  \
    REDUCER(sum, D, double, zero_f64, add_f64, sum_to_##D)                                            \
    static const ct_reducer mean_of_##D = {sizeof(D##_element), sizeof(double),    false,   zero_f64, \
                                           sum_##D##_rows,      sum_##D##_columns, add_f64, mean_to_##D};
SUM_OF_FLOATS(f32)
SUM_OF_FLOATS(f64)
SUM_OF_FLOATS(f16)
SUM_OF_FLOATS(bf16)

#define SUM_OF_INTEGERS(D) REDUCER(sum, D, uint64_t, zero_i64, add_i64, sum_to_i64)
SUM_OF_INTEGERS(i8)
SUM_OF_INTEGERS(i16)
SUM_OF_INTEGERS(i32)
SUM_OF_INTEGERS(i64)
SUM_OF_INTEGERS(u8)

REDUCER_TABLE_ALL(sum)
REDUCER_TABLE_FLOATS(mean)
REDUCE_RUN(sum, 0)
REDUCE_CAN(sum)
REDUCE_RUN(mean, 0)
REDUCE_CAN(mean)

CT_KERNELS(reduce_sum) = {
    REDUCE_ROW(sum),
    REDUCE_ROW(mean),
    {0},
};
