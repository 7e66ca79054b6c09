/* Kernels of argmax, argmin, and of max and min when their indices are wanted: the best element with its place. */
#include "ops/reduce/cpu/reduce_kernel.h"

#define ARG_TYPE(D, T)                            \
    typedef struct D##_arg {                      \
        T value;                                  \
        int64_t index; /* -1: nothing seen yet */ \
    } D##_arg;
ARG_TYPE(f32, float)
ARG_TYPE(f64, double)
ARG_TYPE(f16, float)
ARG_TYPE(bf16, float)
ARG_TYPE(i8, int8_t)
ARG_TYPE(i16, int16_t)
ARG_TYPE(i32, int32_t)
ARG_TYPE(i64, int64_t)
ARG_TYPE(u8, uint8_t)

#define ARG_BEATS(base, D, sign) \
    static inline bool base##_##D##_beats(D##_scalar a, D##_scalar best) { return a sign best; }
ARG_BEATS(greatest, f32, >)
ARG_BEATS(greatest, f64, >)
ARG_BEATS(greatest, f16, >)
ARG_BEATS(greatest, bf16, >)
ARG_BEATS(least, f32, <)
ARG_BEATS(least, f64, <)
ARG_BEATS(least, f16, <)
ARG_BEATS(least, bf16, <)

#define FOLD_BASE           greatest
#define FOLD_OP             max
#define FOLD_ACROSS         hmax
#define FOLD_WORSE          le
#define FOLD_BEATS(a, best) ((a) > (best))
#define FOLD_D              f32
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D i8
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/arg_plain.h"
#undef FOLD_BASE
#undef FOLD_OP
#undef FOLD_ACROSS
#undef FOLD_WORSE
#undef FOLD_BEATS

#define FOLD_BASE           least
#define FOLD_OP             min
#define FOLD_ACROSS         hmin
#define FOLD_WORSE          ge
#define FOLD_BEATS(a, best) ((a) < (best))
#define FOLD_D              f32
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/arg_vector.h"
#define FOLD_D i8
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i16
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i32
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D i64
#include "ops/reduce/cpu/arg_plain.h"
#define FOLD_D u8
#include "ops/reduce/cpu/arg_plain.h"

/* init, merge (later splits have later places, so only what is better counts), and the two ways to finish */
#define ARG_MERGE(base, D, BETTER)                                                    \
    static void base##_merge_##D(void *acc, const void *other, int64_t n) {           \
        D##_arg *to = acc;                                                            \
        const D##_arg *from = other;                                                  \
        for (int64_t i = 0; i < n; i++)                                               \
            if (to[i].index < 0 || (from[i].index >= 0 && (BETTER))) to[i] = from[i]; \
    }
#define ARG_PARTS(D, OUT)                                                                      \
    static void nothing_##D(void *acc, int64_t n) {                                            \
        for (int64_t i = 0; i < n; i++) ((D##_arg *)acc)[i].index = -1;                        \
    }                                                                                          \
    REDUCE_FINISH(index_of_##D, D##_arg, int64_t, a.index)                                     \
    static void both_of_##D(void *const *out, const int64_t *step, const void *acc, int64_t n, \
                            const ct_reduce_params *p) {                                       \
        (void)p;                                                                               \
        D##_element *values = out[0];                                                          \
        int64_t *indices = out[1];                                                             \
        for (int64_t i = 0; i < n; i++) {                                                      \
            D##_arg a = ((const D##_arg *)acc)[i];                                             \
            if (values) values[i * step[0]] = OUT;                                             \
            if (indices) indices[i * step[1]] = a.index;                                       \
        }                                                                                      \
    }
#define ARG_REDUCERS(base, D)                                                                                    \
    static const ct_reducer base##_index_of_##D = {sizeof(D##_element), sizeof(D##_arg),   true,                 \
                                                   nothing_##D,         base##_##D##_rows, base##_##D##_columns, \
                                                   base##_merge_##D,    index_of_##D};                           \
    static const ct_reducer base##_both_of_##D = {sizeof(D##_element), sizeof(D##_arg),   true,                  \
                                                  nothing_##D,         base##_##D##_rows, base##_##D##_columns,  \
                                                  base##_merge_##D,    both_of_##D};
#define ARG_FLOATS(D)                                                         \
    ARG_PARTS(D, D##_round(a.value))                                          \
    ARG_MERGE(greatest, D, greatest_##D##_better(from[i].value, to[i].value)) \
    ARG_MERGE(least, D, least_##D##_better(from[i].value, to[i].value))       \
    ARG_REDUCERS(greatest, D)                                                 \
    ARG_REDUCERS(least, D)
#define ARG_INTEGERS(D)                                 \
    ARG_PARTS(D, a.value)                               \
    ARG_MERGE(greatest, D, from[i].value > to[i].value) \
    ARG_MERGE(least, D, from[i].value < to[i].value)    \
    ARG_REDUCERS(greatest, D)                           \
    ARG_REDUCERS(least, D)
ARG_FLOATS(f32)
ARG_FLOATS(f64)
ARG_FLOATS(f16)
ARG_FLOATS(bf16)
ARG_INTEGERS(i8)
ARG_INTEGERS(i16)
ARG_INTEGERS(i32)
ARG_INTEGERS(i64)
ARG_INTEGERS(u8)

REDUCER_TABLE_ALL(greatest_index)
REDUCER_TABLE_ALL(greatest_both)
REDUCER_TABLE_ALL(least_index)
REDUCER_TABLE_ALL(least_both)

/* An op along one axis, or over all elements where it has none. */
#define ARG_KERNEL(op, base, MASK)                                                         \
    static const char *op##_can(const ct_call *call) {                                     \
        return base##_reducers[call->in[0]->dtype] ? NULL : "no arithmetic on this dtype"; \
    }                                                                                      \
    static size_t op##_scratch(const ct_call *call) {                                      \
        const op##_attrs *attrs = call->attrs;                                             \
        const ct_view *x = call->in[0];                                                    \
        return ct__reduce_scratch(call, base##_reducers[x->dtype], MASK);                  \
    }                                                                                      \
    static bool op##_run(const ct_call *call, ct_stream *stream) {                         \
        (void)stream;                                                                      \
        const op##_attrs *attrs = call->attrs;                                             \
        const ct_view *x = call->in[0];                                                    \
        return ct__reduce_run(call, base##_reducers[x->dtype], MASK, 0);                   \
    }
#define ONE_AXIS(axis) (1u << ((axis) < 0 ? (axis) + (x->ndim ? x->ndim : 1) : (axis)))
#define AXIS_OR_ALL    (attrs->axis.set ? ONE_AXIS((int)attrs->axis.value) : (1u << x->ndim) - 1)

ARG_KERNEL(argmax, greatest_index, AXIS_OR_ALL)
ARG_KERNEL(argmin, least_index, AXIS_OR_ALL)
ARG_KERNEL(max, greatest_both, ONE_AXIS(attrs->axis))
ARG_KERNEL(min, least_both, ONE_AXIS(attrs->axis))
ARG_KERNEL(amax_place, greatest_index, ct__reduce_mask(&attrs->axes, x->ndim))
ARG_KERNEL(amin_place, least_index, ct__reduce_mask(&attrs->axes, x->ndim))

static const char *max_needs(const ct_call *call) {
    return call->n_out > 1 && call->out[1] ? max_can(call) : "amax is faster without indices";
}
static const char *min_needs(const ct_call *call) {
    return call->n_out > 1 && call->out[1] ? min_can(call) : "amin is faster without indices";
}

CT_KERNELS(reduce_arg) = {
    CT_CANDIDATES(argmax, {"argmax", argmax_can, argmax_scratch, argmax_run}),
    CT_CANDIDATES(argmin, {"argmin", argmin_can, argmin_scratch, argmin_run}),
    CT_CANDIDATES(max, {"max_with_indices", max_needs, max_scratch, max_run}),
    CT_CANDIDATES(min, {"min_with_indices", min_needs, min_scratch, min_run}),
    CT_CANDIDATES(amax_place, {"argmax", amax_place_can, amax_place_scratch, amax_place_run}),
    CT_CANDIDATES(amin_place, {"argmin", amin_place_can, amin_place_scratch, amin_place_run}),
    {0},
};
