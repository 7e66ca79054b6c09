/* Kernel of logsumexp: a reduction whose accumulator is the greatest element so far and the sum of exp(x - greatest). */
#include "backends/cpu/simd/vmath.h"
#include "ops/reduce/reduce_kernel.h"

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

/* A block's greatest element, then its sum, both from the first cache; columns likewise, sixteen rows at a time. */
#define LOG_SUM_OF(D, V)                                                                                                          \
    static void logsumexp_##D##_rows(void *acc, const void *from, int64_t rows, int64_t step, int64_t n, int64_t base) {          \
        enum { L = D##_lanes, BLOCK = 2048 };                                                                                     \
        (void)base;                                                                                                               \
        for (int64_t r = 0; r < rows; r++) {                                                                                      \
            const D##_element *x = (const D##_element *)from + r * step; /* (n) */                                                \
            for (int64_t at = 0, m; at < n; at += m, x += m) {                                                                    \
                m = ct__min64(n - at, BLOCK);                                                                                     \
                int64_t i = 0;                                                                                                    \
                V top = D##_load_repeated(x, (int)ct__min64(m, L)), sum = D##_set1(0);                                            \
                for (i = L; i + L <= m; i += L) top = D##_max(top, D##_load(x + i));                                              \
                if (i < m) top = D##_max(top, D##_load_repeated(x + i, (int)(m - i)));                                            \
                log_sum block = {(double)D##_hmax(top), 0};                                                                       \
                top = D##_set1(isinf(block.top) ? 0 : (D##_scalar)block.top);                                                     \
                for (i = 0; i + L <= m; i += L) sum = D##_add(sum, V##_exp(D##_sub(D##_load(x + i), top)));                       \
                block.sum = (double)D##_hsum(sum);                                                                                \
                if (i < m) {                                                                                                      \
                    D##_scalar lane[L];                                                                                           \
                    D##_put(lane, V##_exp(D##_sub(D##_load_n(x + i, (int)(m - i)), top)));                                        \
                    block.sum += (double)D##_hsum(D##_get_n(lane, (int)(m - i)));                                                 \
                }                                                                                                                 \
                log_sum_merge((log_sum *)acc + r, &block);                                                                        \
            }                                                                                                                     \
        }                                                                                                                         \
    }                                                                                                                             \
    static void logsumexp_##D##_columns(void *acc, const void *from, int64_t n, int64_t rows, int64_t step, int64_t base) {       \
        enum { L = D##_lanes, GROUP = 16 };                                                                                       \
        (void)base;                                                                                                               \
        const D##_element *x = from; /* (rows, n) */                                                                              \
        D##_scalar tops[L], sums[L];                                                                                              \
        for (int64_t r = 0, m; r < rows; r += m, x += m * step) {                                                                 \
            m = ct__min64(rows - r, GROUP);                                                                                       \
            for (int64_t j = 0; j < n; j += L) {                                                                                  \
                int k = (int)ct__min64(n - j, L);                                                                                 \
                V top = D##_load_n(x + j, k), sum = D##_set1(0);                                                                  \
                for (int64_t i = 1; i < m; i++) top = D##_max(top, D##_load_n(x + i * step + j, k));                              \
                D##_put(tops, top);                                                                                               \
                top = D##_select(V##_isinf(top), D##_set1(0), top);                                                               \
                for (int64_t i = 0; i < m; i++) sum = D##_add(sum, V##_exp(D##_sub(D##_load_n(x + i * step + j, k), top)));       \
                D##_put(sums, sum);                                                                                               \
                for (int i = 0; i < k; i++) {                                                                                     \
                    log_sum block = {(double)tops[i], (double)sums[i]};                                                           \
                    log_sum_merge((log_sum *)acc + j + i, &block);                                                                \
                }                                                                                                                 \
            }                                                                                                                     \
        }                                                                                                                         \
    }                                                                                                                             \
    REDUCE_FINISH(logsumexp_to_##D, log_sum, D##_element, D##_round(log_sum_value(a)))                                            \
    REDUCER(logsumexp, D, log_sum, no_log_sum, merge_log_sums, logsumexp_to_##D)
LOG_SUM_OF(f32, vf32)
LOG_SUM_OF(f64, vf64)
LOG_SUM_OF(f16, vf32)
LOG_SUM_OF(bf16, vf32)
REDUCER_TABLE_FLOATS(logsumexp)
REDUCE_RUN(logsumexp, 0)
REDUCE_KERNELS(logsumexp)
