/* weave.h - lanes of two vectors taken apart and put together: evens, odds, zips, a step by one lane; and bytes
   in the bits of lanes. Apart from simd.h, since few kernels want it. */
#ifndef CT_SIMD_WEAVE_H
#define CT_SIMD_WEAVE_H

#include "backends/cpu/simd/simd.h"

typedef int32_t simd_lanes32 __attribute__((vector_size(4 * VF32_LANES)));
typedef int64_t simd_lanes64 __attribute__((vector_size(8 * VF64_LANES)));

#if defined(__clang__)
#define SIMD_WEAVE(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SIMD_WEAVE(I, a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif

/* Lanes of a, then of b, by their numbers. */
#define SIMD_EVENS_2   0, 2
#define SIMD_ODDS_2    1, 3
#define SIMD_LOW_2     0, 2
#define SIMD_HIGH_2    1, 3
#define SIMD_BEHIND_2  1, 2
#define SIMD_EVENS_4   0, 2, 4, 6
#define SIMD_ODDS_4    1, 3, 5, 7
#define SIMD_LOW_4     0, 4, 1, 5
#define SIMD_HIGH_4    2, 6, 3, 7
#define SIMD_BEHIND_4  3, 4, 5, 6
#define SIMD_EVENS_8   0, 2, 4, 6, 8, 10, 12, 14
#define SIMD_ODDS_8    1, 3, 5, 7, 9, 11, 13, 15
#define SIMD_LOW_8     0, 8, 1, 9, 2, 10, 3, 11
#define SIMD_HIGH_8    4, 12, 5, 13, 6, 14, 7, 15
#define SIMD_BEHIND_8  7, 8, 9, 10, 11, 12, 13, 14
#define SIMD_EVENS_16  0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define SIMD_ODDS_16   1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define SIMD_LOW_16    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SIMD_HIGH_16   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define SIMD_BEHIND_16 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30

#define SIMD_LISTED(list, lanes) CT_SIMD_PASTE(list, lanes)

/* evens, odds: of a and b as one line; low, high: a and b lane by lane in turn; behind: the last lane of a, then
   b but for its last lane. */
#define SIMD_WEAVES(VF, I, LANES)                                                                                  \
    SIMD_INLINE VF VF##_evens(VF a, VF b) { return (VF)SIMD_WEAVE(I, a, b, SIMD_LISTED(SIMD_EVENS_, LANES)); }     \
    SIMD_INLINE VF VF##_odds(VF a, VF b) { return (VF)SIMD_WEAVE(I, a, b, SIMD_LISTED(SIMD_ODDS_, LANES)); }       \
    SIMD_INLINE VF VF##_weave_low(VF a, VF b) { return (VF)SIMD_WEAVE(I, a, b, SIMD_LISTED(SIMD_LOW_, LANES)); }   \
    SIMD_INLINE VF VF##_weave_high(VF a, VF b) { return (VF)SIMD_WEAVE(I, a, b, SIMD_LISTED(SIMD_HIGH_, LANES)); } \
    SIMD_INLINE VF VF##_behind(VF a, VF b) { return (VF)SIMD_WEAVE(I, a, b, SIMD_LISTED(SIMD_BEHIND_, LANES)); }
SIMD_WEAVES(vf32, simd_lanes32, VF32_LANES)
SIMD_WEAVES(vf64, simd_lanes64, VF64_LANES)
#undef SIMD_WEAVES

/* Bytes as whole numbers in the bits of the first n lanes, and back. Lanes from n on are 0. */
#if defined(__AVX512VL__) && CT_ISA_LEVEL >= 2
SIMD_INLINE vf32 vf32_load_bytes(const uint8_t *p, int n) {
    return vf32_from_bits(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(SIMD_FIRST_N(__mmask16, n), p)));
}
SIMD_INLINE void vf32_store_bytes(uint8_t *p, vf32 v, int n) {
    _mm_mask_storeu_epi8(p, SIMD_FIRST_N(__mmask16, n), _mm512_cvtepi32_epi8(vf32_bits(v)));
}
SIMD_INLINE vf64 vf64_load_bytes(const uint8_t *p, int n) {
    return vf64_from_bits(_mm512_cvtepu8_epi64(_mm_maskz_loadu_epi8(SIMD_FIRST_N(__mmask16, n), p)));
}
SIMD_INLINE void vf64_store_bytes(uint8_t *p, vf64 v, int n) {
    _mm_mask_storeu_epi8(p, SIMD_FIRST_N(__mmask16, n), _mm512_cvtepi64_epi8(vf64_bits(v)));
}
SIMD_INLINE mf32 vf32_unordered(vf32 a, vf32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
SIMD_INLINE mf64 vf64_unordered(vf64 a, vf64 b) { return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q); }
#elif defined(__AVX2__) && CT_ISA_LEVEL == 1
/* The first n of at most 8 bytes, in registers: lanes written one by one to memory would be waited for when loaded as a vector. */
SIMD_INLINE uint64_t simd_load_first(const uint8_t *p, int n) {
    uint64_t all = 0;
    uint32_t low, high;
    if (n >= 8) {
        memcpy(&all, p, 8);
    } else if (n >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        all = low | (uint64_t)high << 8 * (n - 4);
    } else if (n > 0) {
        all = p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
    }
    return all;
}
SIMD_INLINE void simd_store_first(uint8_t *p, uint64_t all, int n) {
    if (n >= 8) {
        memcpy(p, &all, 8);
    } else if (n >= 4) {
        const uint32_t low = (uint32_t)all, high = (uint32_t)(all >> 8 * (n - 4));
        memcpy(p, &low, 4);
        memcpy(p + n - 4, &high, 4);
    } else {
        for (int i = 0; i < n; i++) p[i] = (uint8_t)(all >> 8 * i);
    }
}
SIMD_INLINE vf32 vf32_load_bytes(const uint8_t *p, int n) {
    return vf32_from_bits(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)simd_load_first(p, n))));
}
SIMD_INLINE void vf32_store_bytes(uint8_t *p, vf32 v, int n) {
    const __m256i bytes = _mm256_shuffle_epi8(vf32_bits(v), _mm256_set1_epi32(0x0c080400));
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    simd_store_first(p, (uint64_t)_mm_cvtsi128_si64(both), n);
}
SIMD_INLINE vf64 vf64_load_bytes(const uint8_t *p, int n) {
    return vf64_from_bits(
        _mm256_cvtepu8_epi64(_mm_cvtsi64_si128((int64_t)simd_load_first(p, n < VF64_LANES ? n : VF64_LANES))));
}
SIMD_INLINE void vf64_store_bytes(uint8_t *p, vf64 v, int n) {
    const __m256i bytes = _mm256_shuffle_epi8(vf64_bits(v), _mm256_set1_epi16(0x0800));
    const __m128i both = _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    simd_store_first(p, (uint64_t)_mm_cvtsi128_si64(both), n < VF64_LANES ? n : VF64_LANES);
}
SIMD_INLINE mf32 vf32_unordered(vf32 a, vf32 b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
SIMD_INLINE mf64 vf64_unordered(vf64 a, vf64 b) { return _mm256_cmp_pd(a, b, _CMP_UNORD_Q); }
#else
#define SIMD_BYTES(VF, MF, T, I, LANES)                             \
    SIMD_INLINE VF VF##_load_bytes(const uint8_t *p, int n) {       \
        I lane[LANES];                                              \
        T value[LANES];                                             \
        for (int i = 0; i < LANES; i++) lane[i] = i < n ? p[i] : 0; \
        memcpy(value, lane, sizeof value);                          \
        return VF##_load(value);                                    \
    }                                                               \
    SIMD_INLINE void VF##_store_bytes(uint8_t *p, VF v, int n) {    \
        I lane[LANES];                                              \
        T value[LANES];                                             \
        VF##_store(value, v);                                       \
        memcpy(lane, value, sizeof lane);                           \
        for (int i = 0; i < LANES; i++)                             \
            if (i < n) p[i] = (uint8_t)lane[i];                     \
    }                                                               \
    SIMD_INLINE MF VF##_unordered(VF a, VF b) { return MF##_or(VF##_isnan(a), VF##_isnan(b)); }
SIMD_BYTES(vf32, mf32, float, int32_t, VF32_LANES)
SIMD_BYTES(vf64, mf64, double, int64_t, VF64_LANES)
#undef SIMD_BYTES
#endif

#endif
