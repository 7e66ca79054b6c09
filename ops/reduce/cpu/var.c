/* Kernels of var and std: count, mean and sum of squared deviations, merged exactly as far as doubles go. */
#include "ops/reduce/cpu/reduce_kernel.h"

typedef struct moments {
    double count, mean, square; /* square: the sum of squared deviations from the mean */
} moments;

/* as many columns as the engine hands out for accumulators of this size, rounded up to whole vectors */
enum { VAR_COLUMNS = (CT_REDUCE_STACK / (int)sizeof(moments) + 15) / 16 * 16 };

static inline void moments_merge(moments *a, const moments *b) {
    if (b->count == 0) return;
    if (a->count == 0) {
        *a = *b;
        return;
    }
    double count = a->count + b->count, apart = b->mean - a->mean;
    a->square += b->square + apart * apart * (a->count / count) * b->count;
    a->mean += apart * (b->count / count);
    a->count = count;
}

static void merge_moments(void *acc, const void *other, int64_t n) {
    for (int64_t i = 0; i < n; i++) moments_merge((moments *)acc + i, (const moments *)other + i);
}

static void no_moments(void *acc, int64_t n) { memset(acc, 0, (size_t)n * sizeof(moments)); }

static inline double variance(moments a, double correction) {
    double freedom = a.count - correction;
    return a.square / (freedom > 0 ? freedom : 0);
}

#define FOLD_D f32
#include "ops/reduce/cpu/var_vector.h"
#define FOLD_D f64
#include "ops/reduce/cpu/var_vector.h"
#define FOLD_D f16
#include "ops/reduce/cpu/var_vector.h"
#define FOLD_D bf16
#include "ops/reduce/cpu/var_vector.h"

#define VAR_REDUCERS(D)                                                                                      \
    REDUCE_FINISH(var_to_##D, moments, D##_element, D##_round(variance(a, p->number)))                       \
    REDUCE_FINISH(std_to_##D, moments, D##_element, D##_round(sqrt(variance(a, p->number))))                 \
    REDUCER(var, D, moments, no_moments, merge_moments, var_to_##D)                                          \
    static const ct_reducer std_of_##D = {sizeof(D##_element), sizeof(moments),   false,         no_moments, \
                                          var_##D##_rows,      var_##D##_columns, merge_moments, std_to_##D};
VAR_REDUCERS(f32)
VAR_REDUCERS(f64)
VAR_REDUCERS(f16)
VAR_REDUCERS(bf16)
REDUCER_TABLE_FLOATS(var)
REDUCER_TABLE_FLOATS(std)
REDUCE_RUN(var, attrs->correction)
REDUCE_CAN(var)
REDUCE_RUN(std, attrs->correction)
REDUCE_CAN(std)

CT_KERNELS(reduce_var) = {
    REDUCE_ROW(var),
    REDUCE_ROW(std),
    {0},
};
