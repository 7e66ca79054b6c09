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

/* A block's greatest element, then its sum, both from the first cache. Columns: eight rows at a time raise the
 * greatest once and scale the sum before it is added to. An infinite level is replaced by 0: there is no inf - inf. */
#define LOG_SUM_OF(D, V)                                                                                        \
    SIMD_INLINE V D##_level(V top) { return D##_select(V##_isinf(top), D##_set1(0), top); }                     \
    static inline log_sum D##_block(const D##_element *x /* (n) */, int64_t n) {                                \
        enum { L = D##_lanes };                                                                                 \
        int64_t i = 0;                                                                                          \
        V a = D##_load_repeated(x, (int)ct__min64(n, L)), b = a;                                                \
        for (; i + 2 * L <= n; i += 2 * L) {                                                                    \
            a = D##_max(a, D##_load(x + i));                                                                    \
            b = D##_max(b, D##_load(x + i + L));                                                                \
        }                                                                                                       \
        for (; i < n; i += L) a = D##_max(a, D##_load_repeated(x + i, (int)ct__min64(n - i, L)));               \
        log_sum block = {(double)D##_hmax(D##_max(a, b)), 0};                                                   \
        const V level = D##_set1(isinf(block.top) ? 0 : (D##_scalar)block.top);                                 \
        V c = D##_set1(0), d = c;                                                                               \
        a = b = c;                                                                                              \
        for (i = 0; i + 4 * L <= n; i += 4 * L) {                                                               \
            a = D##_add(a, V##_exp(D##_sub(D##_load(x + i), level)));                                           \
            b = D##_add(b, V##_exp(D##_sub(D##_load(x + i + L), level)));                                       \
            c = D##_add(c, V##_exp(D##_sub(D##_load(x + i + 2 * L), level)));                                   \
            d = D##_add(d, V##_exp(D##_sub(D##_load(x + i + 3 * L), level)));                                   \
        }                                                                                                       \
        for (; i < n; i += L) {                                                                                 \
            D##_scalar lane[L];                                                                                 \
            int k = (int)ct__min64(n - i, L);                                                                   \
            D##_put(lane, V##_exp(D##_sub(D##_load_n(x + i, k), level)));                                       \
            a = D##_add(a, D##_get_n(lane, k));                                                                 \
        }                                                                                                       \
        block.sum = (double)D##_hsum(D##_add(D##_add(a, b), D##_add(c, d)));                                    \
        return block;                                                                                           \
    }                                                                                                           \
    static void logsumexp_##D##_rows(void *acc, const void *from, int64_t rows, int64_t step, int64_t n,        \
                                     int64_t base) {                                                            \
        enum { BLOCK = 2048 };                                                                                  \
        (void)base;                                                                                             \
        for (int64_t r = 0; r < rows; r++)                                                                      \
            for (int64_t at = 0; at < n; at += BLOCK) {                                                         \
                log_sum block = D##_block((const D##_element *)from + r * step + at, ct__min64(n - at, BLOCK)); \
                log_sum_merge((log_sum *)acc + r, &block);                                                      \
            }                                                                                                   \
    }                                                                                                           \
    static void logsumexp_##D##_columns(void *acc, const void *from, int64_t n, int64_t rows, int64_t step,     \
                                        int64_t base) {                                                         \
        enum { L = D##_lanes, GROUP = 8 };                                                                      \
        (void)base;                                                                                             \
        const D##_element *x = from; /* (rows, n) */                                                            \
        D##_scalar tops[LOG_SUM_COLUMNS], sums[LOG_SUM_COLUMNS];                                                \
        for (int64_t j = 0; j < n; j += L) {                                                                    \
            D##_put(tops + j, D##_set1((D##_scalar) - INFINITY));                                               \
            D##_put(sums + j, D##_set1(0));                                                                     \
        }                                                                                                       \
        for (int64_t r = 0, m; r < rows; r += m, x += m * step) {                                               \
            m = ct__min64(rows - r, GROUP);                                                                     \
            for (int64_t j = 0; j < n; j += L) {                                                                \
                int k = (int)ct__min64(n - j, L);                                                               \
                V before = D##_get(tops + j), top = before, sum;                                                \
                for (int64_t i = 0; i < m; i++) top = D##_max(top, D##_load_n(x + i * step + j, k));            \
                V level = D##_level(top);                                                                       \
                sum = D##_mul(D##_get(sums + j), V##_exp(D##_sub(before, level)));                              \
                for (int64_t i = 0; i < m; i++)                                                                 \
                    sum = D##_add(sum, V##_exp(D##_sub(D##_load_n(x + i * step + j, k), level)));               \
                D##_put(tops + j, top);                                                                         \
                D##_put(sums + j, sum);                                                                         \
            }                                                                                                   \
        }                                                                                                       \
        for (int64_t j = 0; j < n; j++) {                                                                       \
            log_sum column = {(double)tops[j], (double)sums[j]};                                                \
            log_sum_merge((log_sum *)acc + j, &column);                                                         \
        }                                                                                                       \
    }                                                                                                           \
    REDUCE_FINISH(logsumexp_to_##D, log_sum, D##_element, D##_round(log_sum_value(a)))                          \
    REDUCER(logsumexp, D, log_sum, no_log_sum, merge_log_sums, logsumexp_to_##D)
LOG_SUM_OF(f32, vf32)
LOG_SUM_OF(f64, vf64)
LOG_SUM_OF(f16, vf32)
LOG_SUM_OF(bf16, vf32)
REDUCER_TABLE_FLOATS(logsumexp)
REDUCE_RUN(logsumexp, 0)
REDUCE_CAN(logsumexp)

CT_KERNELS(softmax_logsumexp) = {
    REDUCE_ROW(logsumexp),
    {0},
};
