/* Count, mean and sum of squared deviations, in f64, and how two sets of them become one (Chan, Golub and LeVeque,
 * Algorithms for Computing the Sample Variance, 1983). */
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

/* Prefetches n elements at p. */
#define NORM_PREFETCH(p, n)                                                                                       \
    do {                                                                                                          \
        for (int k_ = 0; k_ < (n) * (int)sizeof *(p); k_ += 64) __builtin_prefetch((const char *)(p) + k_, 0, 2); \
    } while (0)

#endif
