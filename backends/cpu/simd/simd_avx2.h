/* simd_avx2.h - 256-bit vectors: AVX2 with FMA and F16C. A mask is a vector whose lanes are all
   ones or all zeros. Included by simd.h only. */
#include <immintrin.h>

typedef __m256 vf32;
typedef __m256d vf64;
typedef __m256i vi32;
typedef __m256i vi64;
typedef __m256 mf32;
typedef __m256d mf64;

#define VF32_LANES   8
#define VF64_LANES   4
#define SIMD_HAS_FMA 1

SIMD_INLINE vf32 vf32_set1(float x) { return _mm256_set1_ps(x); }
SIMD_INLINE vf64 vf64_set1(double x) { return _mm256_set1_pd(x); }
SIMD_INLINE vi32 vi32_set1(int32_t x) { return _mm256_set1_epi32(x); }
SIMD_INLINE vi64 vi64_set1(int64_t x) { return _mm256_set1_epi64x(x); }

/* Whether n is known to be a whole vector when compiled: a masked store takes ten times as long as another. */
#define SIMD_IS_WHOLE(VF, T, n) (__builtin_constant_p(n) && (n) >= (int)(sizeof(VF) / sizeof(T)))

SIMD_INLINE __m256i simd_first_n32(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE __m256i simd_first_n64(int n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

#define SIMD_AVX2_TYPE(VF, VI, MF, T, PS, SI, N)                                                                  \
    SIMD_INLINE VF VF##_load(const T *p) { return _mm256_loadu_##PS(p); }                                         \
    SIMD_INLINE void VF##_store(T *p, VF v) { _mm256_storeu_##PS(p, v); }                                         \
    SIMD_INLINE void VF##_stream(T *p, VF v) { _mm256_stream_##PS(p, v); }                                        \
    SIMD_INLINE VF VF##_load_n(const T *p, int n) {                                                               \
        return SIMD_IS_WHOLE(VF, T, n) ? VF##_load(p) : _mm256_maskload_##PS(p, simd_first_n##N(n));              \
    }                                                                                                             \
    SIMD_INLINE void VF##_store_n(T *p, VF v, int n) {                                                            \
        if (SIMD_IS_WHOLE(VF, T, n)) VF##_store(p, v);                                                            \
        else _mm256_maskstore_##PS(p, simd_first_n##N(n), v);                                                     \
    }                                                                                                             \
    SIMD_INLINE VF VF##_add(VF a, VF b) { return _mm256_add_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_sub(VF a, VF b) { return _mm256_sub_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_mul(VF a, VF b) { return _mm256_mul_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_div(VF a, VF b) { return _mm256_div_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_fma(VF a, VF b, VF c) { return _mm256_fmadd_##PS(a, b, c); }                              \
    SIMD_INLINE VF VF##_fnma(VF a, VF b, VF c) { return _mm256_fnmadd_##PS(a, b, c); }                            \
    SIMD_INLINE VF VF##_fma_exact(VF a, VF b, VF c) { return _mm256_fmadd_##PS(a, b, c); }                        \
    SIMD_INLINE VF VF##_sqrt(VF a) { return _mm256_sqrt_##PS(a); }                                                \
    SIMD_INLINE VF VF##_floor(VF a) { return _mm256_floor_##PS(a); }                                              \
    SIMD_INLINE VF VF##_ceil(VF a) { return _mm256_ceil_##PS(a); }                                                \
    SIMD_INLINE VF VF##_round(VF a) { return _mm256_round_##PS(a, 8 /* nearest, quiet */); }                      \
    SIMD_INLINE VF VF##_trunc(VF a) { return _mm256_round_##PS(a, 11 /* to zero, quiet */); }                     \
    SIMD_INLINE VF VF##_minb(VF a, VF b) { return _mm256_min_##PS(a, b); }                                        \
    SIMD_INLINE VF VF##_maxb(VF a, VF b) { return _mm256_max_##PS(a, b); }                                        \
    SIMD_INLINE VI VF##_bits(VF v) { return _mm256_cast##PS##_si256(v); }                                         \
    SIMD_INLINE VF VF##_from_bits(VI v) { return _mm256_castsi256_##PS(v); }                                      \
    SIMD_INLINE VF VF##_and(VF a, VF b) { return _mm256_and_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_or(VF a, VF b) { return _mm256_or_##PS(a, b); }                                           \
    SIMD_INLINE VF VF##_xor(VF a, VF b) { return _mm256_xor_##PS(a, b); }                                         \
    SIMD_INLINE VF VF##_andnot(VF a, VF b) { return _mm256_andnot_##PS(a, b); }                                   \
    SIMD_INLINE MF VF##_eq(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_EQ_OQ); }                              \
    SIMD_INLINE MF VF##_ne(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_NEQ_UQ); }                             \
    SIMD_INLINE MF VF##_lt(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_LT_OQ); }                              \
    SIMD_INLINE MF VF##_le(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_LE_OQ); }                              \
    SIMD_INLINE MF VF##_gt(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_GT_OQ); }                              \
    SIMD_INLINE MF VF##_ge(VF a, VF b) { return _mm256_cmp_##PS(a, b, _CMP_GE_OQ); }                              \
    SIMD_INLINE MF MF##_and(MF a, MF b) { return _mm256_and_##PS(a, b); }                                         \
    SIMD_INLINE MF MF##_or(MF a, MF b) { return _mm256_or_##PS(a, b); }                                           \
    SIMD_INLINE MF MF##_xor(MF a, MF b) { return _mm256_xor_##PS(a, b); }                                         \
    SIMD_INLINE MF MF##_not(MF a) { return _mm256_xor_##PS(a, _mm256_castsi256_##PS(_mm256_set1_epi32(-1))); }    \
    SIMD_INLINE int MF##_any(MF m) { return _mm256_movemask_##PS(m) != 0; }                                       \
    SIMD_INLINE int MF##_all(MF m) { return _mm256_movemask_##PS(m) == (1 << VF##_lanes) - 1; }                   \
    SIMD_INLINE VF VF##_select(MF m, VF a, VF b) { return _mm256_blendv_##PS(b, a, m); }                          \
    SIMD_INLINE VI VI##_select(MF m, VI a, VI b) { return _mm256_blendv_epi8(b, a, _mm256_cast##PS##_si256(m)); } \
    SIMD_INLINE VI VI##_add(VI a, VI b) { return _mm256_add_##SI(a, b); }                                         \
    SIMD_INLINE VI VI##_sub(VI a, VI b) { return _mm256_sub_##SI(a, b); }                                         \
    SIMD_INLINE VI VI##_and(VI a, VI b) { return _mm256_and_si256(a, b); }                                        \
    SIMD_INLINE VI VI##_or(VI a, VI b) { return _mm256_or_si256(a, b); }                                          \
    SIMD_INLINE VI VI##_xor(VI a, VI b) { return _mm256_xor_si256(a, b); }                                        \
    SIMD_INLINE VI VI##_shl(VI a, int n) { return _mm256_slli_##SI(a, n); }                                       \
    SIMD_INLINE VI VI##_shr(VI a, int n) { return _mm256_srli_##SI(a, n); }                                       \
    SIMD_INLINE MF VI##_eq(VI a, VI b) { return _mm256_castsi256_##PS(_mm256_cmpeq_##SI(a, b)); }                 \
    SIMD_INLINE MF VI##_gt(VI a, VI b) { return _mm256_castsi256_##PS(_mm256_cmpgt_##SI(a, b)); }

#define vf32_lanes VF32_LANES
#define vf64_lanes VF64_LANES
SIMD_AVX2_TYPE(vf32, vi32, mf32, float, ps, epi32, 32)
SIMD_AVX2_TYPE(vf64, vi64, mf64, double, pd, epi64, 64)
#undef SIMD_AVX2_TYPE
#undef vf32_lanes
#undef vf64_lanes

SIMD_INLINE void simd_fence(void) { _mm_sfence(); }

SIMD_INLINE vf64 vf64_two_prod(vf64 a, vf64 b, vf64 *error) {
    vf64 p = _mm256_mul_pd(a, b);
    *error = _mm256_fmsub_pd(a, b, p);
    return p;
}

SIMD_INLINE vf64 vf64_from_f32_lo(vf32 v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
SIMD_INLINE vf64 vf64_from_f32_hi(vf32 v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
SIMD_INLINE vf32 vf32_from_f64(vf64 lo, vf64 hi) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(lo)), _mm256_cvtpd_ps(hi), 1);
}

/* The first lanes are those from `width` on, half as many as the ones that still count; the others are anything. */
SIMD_INLINE vf32 vf32_upper(vf32 v, int width) {
    if (width == 4) return _mm256_permute2f128_ps(v, v, 0x11);
    return width == 2 ? _mm256_permute_ps(v, 0xee) : _mm256_permute_ps(v, 0x55);
}
SIMD_INLINE vf64 vf64_upper(vf64 v, int width) {
    return width == 2 ? _mm256_permute2f128_pd(v, v, 0x11) : _mm256_permute_pd(v, 5);
}
/* Halves, then quarters, then pairs: the order is fixed, so the bits are. */
SIMD_INLINE float vf32_hsum(vf32 v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
SIMD_INLINE double vf64_hsum(vf64 v) {
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h, _mm_unpackhi_pd(h, h)));
}

SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD_INLINE void vf32_store_f16(uint16_t *p, vf32 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, 0 /* nearest even */));
}
SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
SIMD_INLINE void vf32_store_bf16(uint16_t *p, vf32 v) {
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i r = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(r));
}
#define SIMD_HAS_HALF 1
