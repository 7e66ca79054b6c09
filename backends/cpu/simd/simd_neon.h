/* simd_neon.h - 128-bit vectors of 64-bit ARM. A mask is a vector of unsigned lanes, all ones or
   all zeros. Included by simd.h only. */
#include <arm_neon.h>

typedef float32x4_t vf32;
typedef float64x2_t vf64;
typedef int32x4_t vi32;
typedef int64x2_t vi64;
typedef uint32x4_t mf32;
typedef uint64x2_t mf64;

#define VF32_LANES   4
#define VF64_LANES   2
#define SIMD_HAS_FMA 1

/* Shifts take their count from a vector; with a constant count the compiler makes an immediate. */
#define SIMD_NEON_TYPE(VF, VI, MF, T, TI, F, S, U, LANES)                                                    \
    SIMD_INLINE VF VF##_set1(T x) { return vdupq_n_##F(x); }                                                 \
    SIMD_INLINE VI VI##_set1(TI x) { return vdupq_n_##S(x); }                                                \
    SIMD_INLINE VF VF##_load(const T *p) { return vld1q_##F(p); }                                            \
    SIMD_INLINE void VF##_store(T *p, VF v) { vst1q_##F(p, v); }                                             \
    SIMD_INLINE void VF##_stream(T *p, VF v) { vst1q_##F(p, v); }                                            \
    SIMD_INLINE VF VF##_load_n(const T *p, int n) {                                                          \
        T lane[LANES] = {0};                                                                                 \
        for (int i = 0; i < LANES; i++)                                                                      \
            if (i < n) lane[i] = p[i];                                                                       \
        return VF##_load(lane);                                                                              \
    }                                                                                                        \
    SIMD_INLINE void VF##_store_n(T *p, VF v, int n) {                                                       \
        T lane[LANES];                                                                                       \
        VF##_store(lane, v);                                                                                 \
        for (int i = 0; i < LANES; i++)                                                                      \
            if (i < n) p[i] = lane[i];                                                                       \
    }                                                                                                        \
    SIMD_INLINE VF VF##_add(VF a, VF b) { return vaddq_##F(a, b); }                                          \
    SIMD_INLINE VF VF##_sub(VF a, VF b) { return vsubq_##F(a, b); }                                          \
    SIMD_INLINE VF VF##_mul(VF a, VF b) { return vmulq_##F(a, b); }                                          \
    SIMD_INLINE VF VF##_div(VF a, VF b) { return vdivq_##F(a, b); }                                          \
    SIMD_INLINE VF VF##_fma(VF a, VF b, VF c) { return vfmaq_##F(c, a, b); }                                 \
    SIMD_INLINE VF VF##_fnma(VF a, VF b, VF c) { return vfmsq_##F(c, a, b); }                                \
    SIMD_INLINE VF VF##_fma_exact(VF a, VF b, VF c) { return vfmaq_##F(c, a, b); }                           \
    SIMD_INLINE VF VF##_sqrt(VF a) { return vsqrtq_##F(a); }                                                 \
    SIMD_INLINE VF VF##_floor(VF a) { return vrndmq_##F(a); }                                                \
    SIMD_INLINE VF VF##_ceil(VF a) { return vrndpq_##F(a); }                                                 \
    SIMD_INLINE VF VF##_round(VF a) { return vrndnq_##F(a); }                                                \
    SIMD_INLINE VF VF##_trunc(VF a) { return vrndq_##F(a); }                                                 \
    SIMD_INLINE VI VF##_bits(VF v) { return vreinterpretq_##S##_##F(v); }                                    \
    SIMD_INLINE VF VF##_from_bits(VI v) { return vreinterpretq_##F##_##S(v); }                               \
    SIMD_INLINE VI VI##_add(VI a, VI b) { return vaddq_##S(a, b); }                                          \
    SIMD_INLINE VI VI##_sub(VI a, VI b) { return vsubq_##S(a, b); }                                          \
    SIMD_INLINE VI VI##_and(VI a, VI b) { return vandq_##S(a, b); }                                          \
    SIMD_INLINE VI VI##_or(VI a, VI b) { return vorrq_##S(a, b); }                                           \
    SIMD_INLINE VI VI##_xor(VI a, VI b) { return veorq_##S(a, b); }                                          \
    SIMD_INLINE VI VI##_shl(VI a, int n) { return vshlq_##S(a, vdupq_n_##S(n)); }                            \
    SIMD_INLINE VI VI##_shr(VI a, int n) {                                                                   \
        return vreinterpretq_##S##_##U(vshlq_##U(vreinterpretq_##U##_##S(a), vdupq_n_##S(-n)));              \
    }                                                                                                        \
    SIMD_INLINE MF VI##_eq(VI a, VI b) { return vceqq_##S(a, b); }                                           \
    SIMD_INLINE MF VI##_gt(VI a, VI b) { return vcgtq_##S(a, b); }                                           \
    SIMD_INLINE VI VI##_select(MF m, VI a, VI b) { return vbslq_##S(m, a, b); }                              \
    SIMD_INLINE VF VF##_and(VF a, VF b) { return VF##_from_bits(VI##_and(VF##_bits(a), VF##_bits(b))); }     \
    SIMD_INLINE VF VF##_or(VF a, VF b) { return VF##_from_bits(VI##_or(VF##_bits(a), VF##_bits(b))); }       \
    SIMD_INLINE VF VF##_xor(VF a, VF b) { return VF##_from_bits(VI##_xor(VF##_bits(a), VF##_bits(b))); }     \
    SIMD_INLINE VF VF##_andnot(VF a, VF b) { return VF##_from_bits(vbicq_##S(VF##_bits(b), VF##_bits(a))); } \
    SIMD_INLINE MF MF##_and(MF a, MF b) { return vandq_##U(a, b); }                                          \
    SIMD_INLINE MF MF##_or(MF a, MF b) { return vorrq_##U(a, b); }                                           \
    SIMD_INLINE MF MF##_xor(MF a, MF b) { return veorq_##U(a, b); }                                          \
    SIMD_INLINE MF MF##_not(MF a) { return veorq_##U(a, vdupq_n_##U((T##_bits) - 1)); }                      \
    SIMD_INLINE MF VF##_eq(VF a, VF b) { return vceqq_##F(a, b); }                                           \
    SIMD_INLINE MF VF##_ne(VF a, VF b) { return MF##_not(vceqq_##F(a, b)); }                                 \
    SIMD_INLINE MF VF##_lt(VF a, VF b) { return vcltq_##F(a, b); }                                           \
    SIMD_INLINE MF VF##_le(VF a, VF b) { return vcleq_##F(a, b); }                                           \
    SIMD_INLINE MF VF##_gt(VF a, VF b) { return vcgtq_##F(a, b); }                                           \
    SIMD_INLINE MF VF##_ge(VF a, VF b) { return vcgeq_##F(a, b); }                                           \
    SIMD_INLINE VF VF##_select(MF m, VF a, VF b) { return vbslq_##F(m, a, b); }                              \
    /* a NaN on either side gives b, as the x86 instructions do */                                           \
    SIMD_INLINE VF VF##_minb(VF a, VF b) { return vbslq_##F(vcltq_##F(a, b), a, b); }                        \
    SIMD_INLINE VF VF##_maxb(VF a, VF b) { return vbslq_##F(vcgtq_##F(a, b), a, b); }

#define float_bits  uint32_t
#define double_bits uint64_t
SIMD_NEON_TYPE(vf32, vi32, mf32, float, int32_t, f32, s32, u32, 4)
SIMD_NEON_TYPE(vf64, vi64, mf64, double, int64_t, f64, s64, u64, 2)
#undef SIMD_NEON_TYPE
#undef float_bits
#undef double_bits

SIMD_INLINE int mf32_any(mf32 m) { return vmaxvq_u32(m) != 0; }
SIMD_INLINE int mf32_all(mf32 m) { return vminvq_u32(m) != 0; }
SIMD_INLINE int mf64_any(mf64 m) { return vmaxvq_u32(vreinterpretq_u32_u64(m)) != 0; }
SIMD_INLINE int mf64_all(mf64 m) { return vminvq_u32(vreinterpretq_u32_u64(m)) != 0; }

/* No non-temporal store among the intrinsics: stream is an ordinary store, and needs no fence. */
SIMD_INLINE void simd_fence(void) {}

SIMD_INLINE vf64 vf64_two_prod(vf64 a, vf64 b, vf64 *error) {
    vf64 p = vmulq_f64(a, b);
    *error = vnegq_f64(vfmsq_f64(p, a, b));
    return p;
}

SIMD_INLINE vf64 vf64_from_f32_lo(vf32 v) { return vcvt_f64_f32(vget_low_f32(v)); }
SIMD_INLINE vf64 vf64_from_f32_hi(vf32 v) { return vcvt_high_f64_f32(v); }
SIMD_INLINE vf32 vf32_from_f64(vf64 lo, vf64 hi) { return vcvt_high_f32_f64(vcvt_f32_f64(lo), hi); }

/* The first lanes are those from `width` on, half as many as the ones that still count; the others are anything. */
SIMD_INLINE vf32 vf32_upper(vf32 v, int width) { return width == 2 ? vextq_f32(v, v, 2) : vextq_f32(v, v, 1); }
SIMD_INLINE vf64 vf64_upper(vf64 v, int width) {
    (void)width;
    return vextq_f64(v, v, 1);
}
SIMD_INLINE float vf32_hsum(vf32 v) {
    float32x2_t h = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
SIMD_INLINE double vf64_hsum(vf64 v) { return vgetq_lane_f64(v, 0) + vgetq_lane_f64(v, 1); }

SIMD_INLINE vf32 vf32_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
SIMD_INLINE void vf32_store_f16(uint16_t *p, vf32 v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
SIMD_INLINE void vf32_store_bf16(uint16_t *p, vf32 v) {
    uint32x4_t bits = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16));
}
#define SIMD_HAS_HALF 1
