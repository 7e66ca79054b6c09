/* What the kernels of reductions share: the engine, and macros that make the small parts of a reducer. */
#ifndef COTANGENT_OPS_REDUCE_KERNEL_H
#define COTANGENT_OPS_REDUCE_KERNEL_H

#include "ops/reduce/cpu/elements.h"
#include "ops/reduce/cpu/engine.h"
#include "ops/reduce/reduce.h"

#include "gen/reduce.attrs.h"

/* init and merge of accumulators of one number */
#define REDUCE_INIT(name, type, neutral)                              \
    static void name(void *acc, int64_t n) {                          \
        for (int64_t i = 0; i < n; i++) ((type *)acc)[i] = (neutral); \
    }
#define REDUCE_MERGE(name, type, TAKE)                          \
    static void name(void *acc, const void *other, int64_t n) { \
        type *to = acc;                                         \
        const type *from = other;                               \
        for (int64_t i = 0; i < n; i++) TAKE(to[i], from[i]);   \
    }
/* finish: out = value, an expression in a (the accumulator) and p (the parameters) */
#define REDUCE_FINISH(name, type, out_type, value)                                                                   \
    static void name(void *const *out, const int64_t *step, const void *acc, int64_t n, const ct_reduce_params *p) { \
        out_type *to = out[0];                                                                                       \
        (void)p;                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                            \
            type a = ((const type *)acc)[i];                                                                         \
            to[i * step[0]] = (out_type)(value);                                                                     \
        }                                                                                                            \
    }

#define REDUCE_ADD(a, b)      ((a) += (b))
#define REDUCE_MULTIPLY(a, b) ((a) *= (b))
/* the first NaN wins */
#define REDUCE_GREATER(a, b) ((a) = (a) > (b) || (a) != (a) ? (a) : (b))
#define REDUCE_LESSER(a, b)  ((a) = (a) < (b) || (a) != (a) ? (a) : (b))

/* The reducer BASE_of_D of a dtype, from BASE_D_rows and BASE_D_columns. */
#define REDUCER(base, D, accumulator, init, merge, finish)                                           \
    static const ct_reducer base##_of_##D = {sizeof(D##_element), sizeof(accumulator),  false, init, \
                                             base##_##D##_rows,   base##_##D##_columns, merge, finish};

/* NAME_reducers, by dtype: of floats, and of every dtype with arithmetic. bool is stored as u8. */
#define REDUCER_FLOATS(base) \
    [CT_F32] = &base##_of_f32, [CT_F64] = &base##_of_f64, [CT_F16] = &base##_of_f16, [CT_BF16] = &base##_of_bf16
#define REDUCER_TABLE_FLOATS(base) \
    static const ct_reducer *const base##_reducers[CT_DTYPE_COUNT] = {REDUCER_FLOATS(base)};
#define REDUCER_TABLE_ALL(base)                                                                                   \
    static const ct_reducer *const base##_reducers[CT_DTYPE_COUNT] = {                                            \
        REDUCER_FLOATS(base),      [CT_I8] = &base##_of_i8, [CT_I16] = &base##_of_i16, [CT_I32] = &base##_of_i32, \
        [CT_I64] = &base##_of_i64, [CT_U8] = &base##_of_u8, [CT_BOOL] = &base##_of_u8,                            \
    };

/* The kernel of an op whose attributes have `axes`: NAME_reducers[dtype]. */
#define REDUCE_RUN(name, number)                                                                                  \
    static size_t name##_scratch(const ct_call *call) {                                                           \
        const name##_attrs *attrs = call->attrs;                                                                  \
        const ct_view *x = call->in[0];                                                                           \
        return ct__reduce_scratch(call, name##_reducers[x->dtype], ct__reduce_mask(&attrs->axes, x->ndim));       \
    }                                                                                                             \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                                              \
        (void)stream;                                                                                             \
        const name##_attrs *attrs = call->attrs;                                                                  \
        const ct_view *x = call->in[0];                                                                           \
        return ct__reduce_run(call, name##_reducers[x->dtype], ct__reduce_mask(&attrs->axes, x->ndim), (number)); \
    }
#define REDUCE_ROW(name) CT_CANDIDATES(name, {#name, name##_can, name##_scratch, name##_run})
#define REDUCE_CAN(name)                                                                   \
    static const char *name##_can(const ct_call *call) {                                   \
        return name##_reducers[call->in[0]->dtype] ? NULL : "no arithmetic on this dtype"; \
    }

#endif
