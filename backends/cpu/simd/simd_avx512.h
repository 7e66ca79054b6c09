/* simd_avx512.h - 512-bit vectors: AVX-512 F, BW, DQ and VL, and BF16 at level 3. A mask is one
   bit a lane. Included by simd.h only. */
#include <immintrin.h>

typedef __m512 vf32;
typedef __m512d vf64;
typedef __m512i vi32;
typedef __m512i vi64;
typedef __mmask16 mf32;
typedef __mmask8 mf64;

#define VF32_LANES   16
#define VF64_LANES   8
#define SIMD_HAS_FMA 1

SIMD_INLINE vf32 vf32_set1(float x) { return _mm512_set1_ps(x); }
SIMD_INLINE vf64 vf64_set1(double x) { return _mm512_set1_pd(x); }
SIMD_INLINE vi32 vi32_set1(int32_t x) { return _mm512_set1_epi32(x); }
SIMD_INLINE vi64 vi64_set1(int64_t x) { return _mm512_set1_epi64(x); }

/* n = 16 keeps all sixteen bits: the shift is done in 32 bits */
#define SIMD_FIRST_N(MF, n) ((MF)_bzhi_u32(0xffffu, (unsigned)(n)))

#define SIMD_AVX512_TYPE(VF, VI, MF, T, PS, SI)                                                               \
    SIMD_INLINE VF VF##_load(const T *p) { return _mm512_loadu_##PS(p); }                                     \
    SIMD_INLINE void VF##_store(T *p, VF v) { _mm512_storeu_##PS(p, v); }                                     \
    SIMD_INLINE void VF##_stream(T *p, VF v) { _mm512_stream_##PS(p, v); }                                    \
    SIMD_INLINE VF VF##_load_n(const T *p, int n) { return _mm512_maskz_loadu_##PS(SIMD_FIRST_N(MF, n), p); } \
    SIMD_INLINE void VF##_store_n(T *p, VF v, int n) { _mm512_mask_storeu_##PS(p, SIMD_FIRST_N(MF, n), v); }  \
    SIMD_INLINE VF VF##_add(VF a, VF b) { return _mm512_add_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_sub(VF a, VF b) { return _mm512_sub_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_mul(VF a, VF b) { return _mm512_mul_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_div(VF a, VF b) { return _mm512_div_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_fma(VF a, VF b, VF c) { return _mm512_fmadd_##PS(a, b, c); }                          \
    SIMD_INLINE VF VF##_fnma(VF a, VF b, VF c) { return _mm512_fnmadd_##PS(a, b, c); }                        \
    SIMD_INLINE VF VF##_fma_exact(VF a, VF b, VF c) { return _mm512_fmadd_##PS(a, b, c); }                    \
    SIMD_INLINE VF VF##_sqrt(VF a) { return _mm512_sqrt_##PS(a); }                                            \
    SIMD_INLINE VF VF##_round(VF a) { return _mm512_roundscale_##PS(a, 8 /* nearest */); }                    \
    SIMD_INLINE VF VF##_floor(VF a) { return _mm512_roundscale_##PS(a, 9 /* down */); }                       \
    SIMD_INLINE VF VF##_ceil(VF a) { return _mm512_roundscale_##PS(a, 10 /* up */); }                         \
    SIMD_INLINE VF VF##_trunc(VF a) { return _mm512_roundscale_##PS(a, 11 /* to zero */); }                   \
    SIMD_INLINE VF VF##_minb(VF a, VF b) { return _mm512_min_##PS(a, b); }                                    \
    SIMD_INLINE VF VF##_maxb(VF a, VF b) { return _mm512_max_##PS(a, b); }                                    \
    SIMD_INLINE VI VF##_bits(VF v) { return _mm512_cast##PS##_si512(v); }                                     \
    SIMD_INLINE VF VF##_from_bits(VI v) { return _mm512_castsi512_##PS(v); }                                  \
    SIMD_INLINE VF VF##_and(VF a, VF b) { return _mm512_and_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_or(VF a, VF b) { return _mm512_or_##PS(a, b); }                                       \
    SIMD_INLINE VF VF##_xor(VF a, VF b) { return _mm512_xor_##PS(a, b); }                                     \
    SIMD_INLINE VF VF##_andnot(VF a, VF b) { return _mm512_andnot_##PS(a, b); }                               \
    SIMD_INLINE MF VF##_eq(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_EQ_OQ); }                   \
    SIMD_INLINE MF VF##_ne(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_NEQ_UQ); }                  \
    SIMD_INLINE MF VF##_lt(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_LT_OQ); }                   \
    SIMD_INLINE MF VF##_le(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_LE_OQ); }                   \
    SIMD_INLINE MF VF##_gt(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_GT_OQ); }                   \
    SIMD_INLINE MF VF##_ge(VF a, VF b) { return _mm512_cmp_##PS##_mask(a, b, _CMP_GE_OQ); }                   \
    SIMD_INLINE MF MF##_and(MF a, MF b) { return (MF)(a & b); }                                               \
    SIMD_INLINE MF MF##_or(MF a, MF b) { return (MF)(a | b); }                                                \
    SIMD_INLINE MF MF##_xor(MF a, MF b) { return (MF)(a ^ b); }                                               \
    SIMD_INLINE MF MF##_not(MF a) { return (MF)~a; }                                                          \
    SIMD_INLINE int MF##_any(MF m) { return m != 0; }                                                         \
    SIMD_INLINE int MF##_all(MF m) { return m == (MF)-1; }                                                    \
    SIMD_INLINE VF VF##_select(MF m, VF a, VF b) { return _mm512_mask_blend_##PS(m, b, a); }                  \
    SIMD_INLINE VI VI##_select(MF m, VI a, VI b) { return _mm512_mask_blend_##SI(m, b, a); }                  \
    SIMD_INLINE VI VI##_add(VI a, VI b) { return _mm512_add_##SI(a, b); }                                     \
    SIMD_INLINE VI VI##_sub(VI a, VI b) { return _mm512_sub_##SI(a, b); }                                     \
    SIMD_INLINE VI VI##_and(VI a, VI b) { return _mm512_and_##SI(a, b); }                                     \
    SIMD_INLINE VI VI##_or(VI a, VI b) { return _mm512_or_##SI(a, b); }                                       \
    SIMD_INLINE VI VI##_xor(VI a, VI b) { return _mm512_xor_##SI(a, b); }                                     \
    SIMD_INLINE VI VI##_shl(VI a, int n) { return _mm512_slli_##SI(a, (unsigned)n); }                         \
    SIMD_INLINE VI VI##_shr(VI a, int n) { return _mm512_srli_##SI(a, (unsigned)n); }                         \
    SIMD_INLINE MF VI##_eq(VI a, VI b) { return _mm512_cmpeq_##SI##_mask(a, b); }                             \
    SIMD_INLINE MF VI##_gt(VI a, VI b) { return _mm512_cmpgt_##SI##_mask(a, b); }

SIMD_AVX512_TYPE(vf32, vi32, mf32, float, ps, epi32)
SIMD_AVX512_TYPE(vf64, vi64, mf64, double, pd, epi64)
#undef SIMD_AVX512_TYPE

SIMD_INLINE void simd_fence(void) { _mm_sfence(); }

SIMD_INLINE vf64 vf64_two_prod(vf64 a, vf64 b, vf64 *error) {
    vf64 p = _mm512_mul_pd(a, b);
    *error = _mm512_fmsub_pd(a, b, p);
    return p;
}

SIMD_INLINE vf64 vf64_from_f32_lo(vf32 v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
SIMD_INLINE vf64 vf64_from_f32_hi(vf32 v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
SIMD_INLINE vf32 vf32_from_f64(vf64 lo, vf64 hi) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(lo)), _mm512_cvtpd_ps(hi), 1);
}

/* The first lanes are those from `width` on, half as many as the ones that still count; the others are anything. */
SIMD_INLINE vf32 vf32_upper(vf32 v, int width) {
    if (width == 8) return _mm512_shuffle_f32x4(v, v, 0xee);
    if (width == 4) return _mm512_shuffle_f32x4(v, v, 0x55);
    return width == 2 ? _mm512_permute_ps(v, 0xee) : _mm512_permute_ps(v, 0x55);
}
SIMD_INLINE vf64 vf64_upper(vf64 v, int width) {
    if (width == 4) return _mm512_shuffle_f64x2(v, v, 0xee);
    return width == 2 ? _mm512_shuffle_f64x2(v, v, 0x55) : _mm512_permute_pd(v, 0x55);
}
/* Halves, quarters, eighths, pairs: the order is fixed, so the bits are. */
SIMD_INLINE float vf32_hsum(vf32 v) {
    __m256 q = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
SIMD_INLINE double vf64_hsum(vf64 v) {
    __m256d q = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(q), _mm256_extractf128_pd(q, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

SIMD_INLINE __m256i simd_bf16_bits(vf32 v) {
#if CT_ISA_LEVEL >= 3
    /* vcvtneps2bf16 is right in all but one point: it takes f32 subnormals for zero. */
    if (__builtin_expect(_mm512_fpclass_ps_mask(v, 0x20 /* subnormal */) == 0, 1))
        return (__m256i)_mm512_cvtneps_pbh(v);
#endif
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
SIMD_INLINE vf32 simd_from_bf16_bits(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#define SIMD_AVX512_HALF(NAME, WIDEN, NARROW)                                                                         \
    SIMD_INLINE vf32 vf32_load_##NAME(const uint16_t *p) {                                                            \
        __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);                                             \
        return WIDEN(h);                                                                                              \
    }                                                                                                                 \
    SIMD_INLINE void vf32_store_##NAME(uint16_t *p, vf32 v) { _mm256_storeu_si256((__m256i *)(void *)p, NARROW(v)); } \
    SIMD_INLINE vf32 vf32_load_##NAME##_n(const uint16_t *p, int n) {                                                 \
        __m256i h = _mm256_maskz_loadu_epi16(SIMD_FIRST_N(__mmask16, n), p);                                          \
        return WIDEN(h);                                                                                              \
    }                                                                                                                 \
    SIMD_INLINE void vf32_store_##NAME##_n(uint16_t *p, vf32 v, int n) {                                              \
        _mm256_mask_storeu_epi16(p, SIMD_FIRST_N(__mmask16, n), NARROW(v));                                           \
    }
#define SIMD_TO_F16(v) _mm512_cvtps_ph((v), 0 /* nearest even */)
SIMD_AVX512_HALF(f16, _mm512_cvtph_ps, SIMD_TO_F16)
SIMD_AVX512_HALF(bf16, simd_from_bf16_bits, simd_bf16_bits)
#undef SIMD_TO_F16
#undef SIMD_AVX512_HALF
#define SIMD_HAS_HALF   1
#define SIMD_HAS_HALF_N 1

/* What only this ISA has in one instruction; simd_derived.h gives the others the same names. */
#define SIMD_HAS_SCALEF 1
SIMD_INLINE vf32 vf32_scalef(vf32 a, vf32 n) { return _mm512_scalef_ps(a, n); }
SIMD_INLINE vf64 vf64_scalef(vf64 a, vf64 n) { return _mm512_scalef_pd(a, n); }

#define SIMD_HAS_IS_ODD 1
SIMD_INLINE mf32 vi32_is_odd(vi32 a) { return _mm512_test_epi32_mask(a, _mm512_set1_epi32(1)); }
SIMD_INLINE mf64 vi64_is_odd(vi64 a) { return _mm512_test_epi64_mask(a, _mm512_set1_epi64(1)); }

/* x = m * 2^e, m in [3/4, 3/2). getexp(x) - getexp(m) is e, since getexp(m) is -1 or 0. Zero gives
   e = -infinity, infinity e = infinity, anything negative or NaN m = NaN; -0 counts as 0. */
#define SIMD_HAS_LOG_SPLIT 1
SIMD_INLINE vf32 vf32_log_split(vf32 x, vf32 *e) {
    vf32 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, 3 /* NaN if negative, -0 as +0 */);
    *e = _mm512_sub_ps(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
    return m;
}
SIMD_INLINE vf64 vf64_log_split(vf64 x, vf64 *e) {
    vf64 m = _mm512_getmant_pd(x, _MM_MANT_NORM_p75_1p5, 3);
    *e = _mm512_sub_pd(_mm512_getexp_pd(x), _mm512_getexp_pd(m));
    return m;
}
