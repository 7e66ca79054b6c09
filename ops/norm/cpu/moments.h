/* Count, mean and sum of squared deviations, in f64, and how two sets of them become one (Chan, Golub and LeVeque). */
#ifndef COTANGENT_OPS_NORM_MOMENTS_H
#define COTANGENT_OPS_NORM_MOMENTS_H

#include "core/tensor.h"
#include "ops/reduce/cpu/elements.h"

enum { NORM_BLOCK = 4096, NORM_STREAM = 8 << 20 };

typedef struct norm_moments {
    double count, mean, square;
} norm_moments;

static inline void norm_merge(norm_moments *a, const norm_moments *b) {
    if (b->count == 0) return;
    double count = a->count + b->count, apart = b->mean - a->mean, share = b->count / count;
    a->mean += apart * share;
    a->square += b->square + apart * apart * a->count * share;
    a->count = count;
}

SIMD_INLINE void f32_stream(float *p, vf32 v) { vf32_stream(p, v); }
SIMD_INLINE void f64_stream(double *p, vf64 v) { vf64_stream(p, v); }

/* Results that are large and aligned go past the caches. */
static inline bool norm_streams(const void *y, int64_t line_bytes, int64_t bytes) {
    return bytes >= NORM_STREAM && (uintptr_t)y % 64 == 0 && line_bytes % 64 == 0;
}

/* All of these are there, of one dtype and dense (NULL ones do not count). */
static inline const char *norm_can(const ct_call *call, ct_dtype dtype) {
    if (dtype != CT_F32 && dtype != CT_F64) return "f32 and f64 only";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        if (call->in[i]->dtype != dtype) return "mixed dtypes";
        if (!ct__view_is_dense(call->in[i])) return "an input is not dense";
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct__view_is_dense(call->out[i])) return "an output is not dense";
    return NULL;
}

/* Asks for n elements at p, which are wanted soon. */
#define NORM_FETCH(p, n)                                                                                          \
    do {                                                                                                          \
        for (int k_ = 0; k_ < (n) * (int)sizeof *(p); k_ += 64) __builtin_prefetch((const char *)(p) + k_, 0, 2); \
    } while (0)

/* Blocks of a line stay in the first cache: their sum, then the deviations from the mean that it gives. What rounding
 * left in that mean shows in the deviations' own sum. */
#define NORM_LINE_MOMENTS(D, T, V)                                                                                                \
    static inline norm_moments D##_block_moments(const T *x /* (n) */, int64_t n, bool centred, const T *next) {                  \
        enum { L = D##_lanes };                                                                                                   \
        V s0 = D##_set1(0), s1 = s0, s2 = s0, s3 = s0, zero = s0;                                                                 \
        int64_t i = 0;                                                                                                            \
        T middle = 0;                                                                                                             \
        if (centred) {                                                                                                            \
            for (; i + 4 * L <= n; i += 4 * L) {                                                                                  \
                if (!next) PREFETCH(x + i, 4 * L);                                                                                \
                s0 = D##_add(s0, D##_load(x + i));                                                                                \
                s1 = D##_add(s1, D##_load(x + i + L));                                                                            \
                s2 = D##_add(s2, D##_load(x + i + 2 * L));                                                                        \
                s3 = D##_add(s3, D##_load(x + i + 3 * L));                                                                        \
            }                                                                                                                     \
            for (; i + L <= n; i += L) s0 = D##_add(s0, D##_load(x + i));                                                         \
            if (i < n) s1 = D##_add(s1, D##_load_n(x + i, (int)(n - i)));                                                         \
            middle = D##_hsum(D##_add(D##_add(s0, s1), D##_add(s2, s3))) / (T)n;                                                  \
            if (!isfinite(middle)) middle = 0;                                                                                    \
        }                                                                                                                         \
        const V at = D##_set1(middle);                                                                                            \
        V q0 = zero, q1 = zero, q2 = zero, q3 = zero;                                                                             \
        s0 = s1 = s2 = s3 = zero;                                                                                                 \
        for (i = 0; i + 4 * L <= n; i += 4 * L) {                                                                                 \
            if (next) NORM_FETCH(next + i, 4 * L);                                                                                \
            V a = D##_sub(D##_load(x + i), at), b = D##_sub(D##_load(x + i + L), at),                                             \
              c = D##_sub(D##_load(x + i + 2 * L), at), d = D##_sub(D##_load(x + i + 3 * L), at);                                 \
            s0 = D##_add(s0, a), s1 = D##_add(s1, b), s2 = D##_add(s2, c), s3 = D##_add(s3, d);                                   \
            q0 = D##_fma(a, a, q0), q1 = D##_fma(b, b, q1), q2 = D##_fma(c, c, q2);                                               \
            q3 = D##_fma(d, d, q3);                                                                                               \
        }                                                                                                                         \
        for (; i + L <= n; i += L) {                                                                                              \
            V a = D##_sub(D##_load(x + i), at);                                                                                   \
            s0 = D##_add(s0, a);                                                                                                  \
            q0 = D##_fma(a, a, q0);                                                                                               \
        }                                                                                                                         \
        if (i < n) {                                                                                                              \
            const int k = (int)(n - i);                                                                                           \
            T lane[L];                                                                                                            \
            D##_put(lane, D##_sub(D##_load_n(x + i, k), at));                                                                     \
            V a = D##_get_n(lane, k);                                                                                             \
            s1 = D##_add(s1, a);                                                                                                  \
            q1 = D##_fma(a, a, q1);                                                                                               \
        }                                                                                                                         \
        double count = (double)n, rest = (double)D##_hsum(D##_add(D##_add(s0, s1), D##_add(s2, s3))),                             \
               square = (double)D##_hsum(D##_add(D##_add(q0, q1), D##_add(q2, q3)));                                              \
        if (!centred) return (norm_moments){count, 0, square};                                                                    \
        return (norm_moments){count, (double)middle + rest / count, square - rest * rest / count};                                \
    }                                                                                                                             \
    /* With centred false the squares of the elements themselves, and the mean as 0. next is what will be read after this line, \
     * and is fetched on the way, or NULL. */ \
    static norm_moments D##_line_moments(const T *x /* (n) */, int64_t n, bool centred, const T *next) {                          \
        norm_moments all = {0, 0, 0};                                                                                             \
        for (int64_t i = 0; i < n; i += NORM_BLOCK) {                                                                             \
            norm_moments block = D##_block_moments(x + i, ct__min64(n - i, NORM_BLOCK), centred, next);                           \
            norm_merge(&all, &block);                                                                                             \
        }                                                                                                                         \
        return all;                                                                                                               \
    }

#endif
