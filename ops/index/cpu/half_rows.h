/* Rows of half elements as floats, and back. Included by kernel files. */
#ifndef COTANGENT_OPS_INDEX_HALF_ROWS_H
#define COTANGENT_OPS_INDEX_HALF_ROWS_H

#include "backends/cpu/kernel.h"

static inline bool is_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

#define HALF_ROWS(type)                                                                                  \
    static inline float from_##type(const uint16_t *h) { return vf32_load_##type##_n(h, 1)[0]; }         \
    static inline void load_##type(float *to, const uint16_t *from, int64_t stride, int64_t n) {         \
        int64_t i = 0;                                                                                   \
        if (stride == 1)                                                                                 \
            for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store(to + i, vf32_load_##type(from + i)); \
        for (; i < n; i++) to[i] = from_##type(from + i * stride);                                       \
    }                                                                                                    \
    static inline void store_##type(uint16_t *to, int64_t stride, const float *from, int64_t n) {        \
        int64_t i = 0;                                                                                   \
        if (stride == 1)                                                                                 \
            for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store_##type(to + i, vf32_load(from + i)); \
        for (; i < n; i++) vf32_store_##type##_n(to + i * stride, vf32_set1(from[i]), 1);                \
    }
HALF_ROWS(f16)
HALF_ROWS(bf16)

static inline void half_load(float *to, const uint16_t *from, int64_t stride, int64_t n, bool bf16) {
    if (bf16) load_bf16(to, from, stride, n);
    else load_f16(to, from, stride, n);
}

static inline void half_store(uint16_t *to, int64_t stride, const float *from, int64_t n, bool bf16) {
    if (bf16) store_bf16(to, stride, from, n);
    else store_f16(to, stride, from, n);
}

#endif
