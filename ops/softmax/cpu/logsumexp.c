/* Kernel of logsumexp: a reduction whose accumulator is the greatest element so far and the sum of exp(x - greatest).
 */
#include "backends/cpu/simd/vmath.h"
#include "ops/reduce/cpu/reduce_kernel.h"

#include "gen/softmax.attrs.h"

typedef struct log_sum {
    double top, sum;
} log_sum;

static inline void log_sum_merge(log_sum *a, const log_sum *b) {
    if (b->top > a->top || b->top != b->top) {
        log_sum t = *a;
        *a = *b;
        if (t.top > -INFINITY && a->top < INFINITY) a->sum += t.sum * exp(t.top - a->top);
    } else if (b->top == a->top) {
        a->sum += b->sum;
    } else if (b->top > -INFINITY && a->top < INFINITY) {
        a->sum += b->sum * exp(b->top - a->top);
    }
}

static void merge_log_sums(void *acc, const void *other, int64_t n) {
    for (int64_t i = 0; i < n; i++) log_sum_merge((log_sum *)acc + i, (const log_sum *)other + i);
}

REDUCE_INIT(no_log_sum, log_sum, ((log_sum){-INFINITY, 0}))

static inline double log_sum_value(log_sum a) { return isinf(a.top) ? a.top : a.top + log(a.sum); }

enum { LOG_SUM_COLUMNS = CT_REDUCE_STACK / sizeof(log_sum) };

#define D f32
#define V vf32
#include "ops/softmax/cpu/logsumexp_rows.h"
#define D f64
#define V vf64
#include "ops/softmax/cpu/logsumexp_rows.h"
#define D f16
#define V vf32
#include "ops/softmax/cpu/logsumexp_rows.h"
#define D bf16
#define V vf32
#include "ops/softmax/cpu/logsumexp_rows.h"
#define LOG_SUM_REDUCER(D)                                                             \
    REDUCE_FINISH(logsumexp_to_##D, log_sum, D##_element, D##_round(log_sum_value(a))) \
    REDUCER(logsumexp, D, log_sum, no_log_sum, merge_log_sums, logsumexp_to_##D)
LOG_SUM_REDUCER(f32)
LOG_SUM_REDUCER(f64)
LOG_SUM_REDUCER(f16)
LOG_SUM_REDUCER(bf16)
#undef LOG_SUM_REDUCER
REDUCER_TABLE_FLOATS(logsumexp)
REDUCE_RUN(logsumexp, 0)
REDUCE_CAN(logsumexp)

CT_KERNELS(softmax_logsumexp) = {
    REDUCE_ROW(logsumexp),
    {0},
};
