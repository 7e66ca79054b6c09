/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011) for many
 * blocks at once: the same words as ct__philox, in the same order. */
#include "ops/random/cpu/philox/philox.h"

/* A vector of 32-bit words; the upper halves of its products with a constant, the lower ones going to *low: the even and
 * the odd lanes apart, since the instruction makes 64 bits of every second lane, and then joined, the even ones of one vector and the odd ones
 * of another; and the transposed store of four vectors: within each 128 bits, a 4x4 transposition, so that the k-th quadruple of words is that
 * of lane PHILOX_LANE(k). */
#if defined(__AVX512F__)
typedef __m512i philox_words;
enum { PHILOX_LANES = 16 };
#define PHILOX_INTEL(name) _mm512_##name
#define PHILOX_BITS(name)  _mm512_##name##_si512
SIMD_INLINE philox_words philox_join(philox_words even, philox_words odd) {
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
#elif defined(__AVX2__)
typedef __m256i philox_words;
enum { PHILOX_LANES = 8 };
#define PHILOX_INTEL(name) _mm256_##name
#define PHILOX_BITS(name)  _mm256_##name##_si256
SIMD_INLINE philox_words philox_join(philox_words even, philox_words odd) {
    return _mm256_blend_epi32(even, odd, 0xaa);
}
#elif defined(__SSE2__)
typedef __m128i philox_words;
enum { PHILOX_LANES = 4 };
#define PHILOX_INTEL(name) _mm_##name
#define PHILOX_BITS(name)  _mm_##name##_si128
SIMD_INLINE philox_words philox_join(philox_words even, philox_words odd) {
    const philox_words odds = _mm_set_epi32(-1, 0, -1, 0);
    return _mm_or_si128(_mm_andnot_si128(odds, even), _mm_and_si128(odds, odd));
}
#else
typedef uint32_t philox_words __attribute__((vector_size(16)));
enum { PHILOX_LANES = 4 };
#endif

#ifdef PHILOX_INTEL
SIMD_INLINE philox_words philox_set(uint32_t x) { return PHILOX_INTEL(set1_epi32)((int)x); }
SIMD_INLINE philox_words philox_xor(philox_words a, philox_words b) { return PHILOX_BITS(xor)(a, b); }
SIMD_INLINE philox_words philox_multiply(philox_words a, philox_words m, philox_words *low) {
    philox_words even = PHILOX_INTEL(mul_epu32)(a, m),
                 odd = PHILOX_INTEL(mul_epu32)(PHILOX_INTEL(srli_epi64)(a, 32), m);
    *low = philox_join(even, PHILOX_INTEL(slli_epi64)(odd, 32));
    return philox_join(PHILOX_INTEL(srli_epi64)(even, 32), odd);
}
SIMD_INLINE void philox_store(uint32_t *to, philox_words a, philox_words b, philox_words c, philox_words d) {
    philox_words ab_low = PHILOX_INTEL(unpacklo_epi32)(a, b), ab_high = PHILOX_INTEL(unpackhi_epi32)(a, b);
    philox_words cd_low = PHILOX_INTEL(unpacklo_epi32)(c, d), cd_high = PHILOX_INTEL(unpackhi_epi32)(c, d);
    philox_words *out = (philox_words *)(void *)to;
    PHILOX_BITS(storeu)(out, PHILOX_INTEL(unpacklo_epi64)(ab_low, cd_low));
    PHILOX_BITS(storeu)(out + 1, PHILOX_INTEL(unpackhi_epi64)(ab_low, cd_low));
    PHILOX_BITS(storeu)(out + 2, PHILOX_INTEL(unpacklo_epi64)(ab_high, cd_high));
    PHILOX_BITS(storeu)(out + 3, PHILOX_INTEL(unpackhi_epi64)(ab_high, cd_high));
}
#else
SIMD_INLINE philox_words philox_set(uint32_t x) { return (philox_words){x, x, x, x}; }
SIMD_INLINE philox_words philox_xor(philox_words a, philox_words b) { return a ^ b; }
SIMD_INLINE philox_words philox_multiply(philox_words a, philox_words m, philox_words *low) {
    philox_words high;
    *low = a * m;
    for (int i = 0; i < 4; i++) high[i] = (uint32_t)((uint64_t)a[i] * m[i] >> 32);
    return high;
}
SIMD_INLINE void philox_store(uint32_t *to, philox_words a, philox_words b, philox_words c, philox_words d) {
    for (int i = 0; i < 4; i++) {
        to[4 * i] = a[i];
        to[4 * i + 1] = b[i];
        to[4 * i + 2] = c[i];
        to[4 * i + 3] = d[i];
    }
}
#endif

_Static_assert((int)PHILOX_LANES == (int)VF32_LANES, "a batch is as wide as the level's vectors");

/* The block that lane e works on, so that philox_store puts them in order. */
#define PHILOX_BLOCK(e) ((e) % 4 * (PHILOX_LANES / 4) + (e) / 4)

/* words[4 * i + k] = word k of block first + i, for PHILOX_WAYS * PHILOX_LANES blocks. */
static inline void philox_batch(ct_random at, uint64_t first, uint32_t *words) {
    philox_words c0[PHILOX_WAYS], c1[PHILOX_WAYS], c2[PHILOX_WAYS], c3[PHILOX_WAYS];
    for (int w = 0; w < PHILOX_WAYS; w++) {
        uint32_t low[PHILOX_LANES], high[PHILOX_LANES];
        for (int e = 0; e < PHILOX_LANES; e++) {
            uint64_t block = first + (uint64_t)(w * PHILOX_LANES + PHILOX_BLOCK(e));
            low[e] = (uint32_t)block;
            high[e] = (uint32_t)(block >> 32) ^ (uint32_t)(at.stream << 16);
        }
        memcpy(&c0[w], low, sizeof c0[w]);
        memcpy(&c1[w], high, sizeof c1[w]);
        c2[w] = philox_set((uint32_t)at.call);
        c3[w] = philox_set((uint32_t)(at.call >> 32) ^ (uint32_t)(at.stream >> 16));
    }
    philox_words m0 = philox_set(0xD2511F53u), m1 = philox_set(0xCD9E8D57u);
    uint32_t k0 = (uint32_t)at.seed, k1 = (uint32_t)(at.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 2
        for (int w = 0; w < PHILOX_WAYS; w++) {
            philox_words low0, low1, high0 = philox_multiply(c0[w], m0, &low0),
                                     high1 = philox_multiply(c2[w], m1, &low1);
            c0[w] = philox_xor(philox_xor(high1, c1[w]), philox_set(k0));
            c2[w] = philox_xor(philox_xor(high0, c3[w]), philox_set(k1));
            c1[w] = low1;
            c3[w] = low0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int w = 0; w < PHILOX_WAYS; w++) philox_store(words + 4 * PHILOX_LANES * w, c0[w], c1[w], c2[w], c3[w]);
}

void CT_ISA_FN(ct__philox_fill)(ct_random at, uint64_t first, int n, uint32_t *words) {
    for (int i = 0; i < n; i += PHILOX_BATCH) philox_batch(at, (first + (uint64_t)i) / 4, words + i);
}
