/* simd_base.h - 128-bit vectors in GCC vector extensions, for any machine; SSE2 intrinsics where
   the compiler would not find the instruction by itself. No fused multiply-add is assumed.
   Included by simd.h only. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef float vf32 __attribute__((vector_size(16)));
typedef double vf64 __attribute__((vector_size(16)));
typedef int32_t vi32 __attribute__((vector_size(16)));
typedef int64_t vi64 __attribute__((vector_size(16)));
typedef uint32_t simd_u32 __attribute__((vector_size(16)));
typedef uint64_t simd_u64 __attribute__((vector_size(16)));
typedef vi32 mf32; /* a mask is all ones or all zeros in each lane */
typedef vi64 mf64;

#define VF32_LANES   4
#define VF64_LANES   2
#define SIMD_HAS_FMA 0

#define SIMD_SPLAT32(x) \
    { (x), (x), (x), (x) }
#define SIMD_SPLAT64(x) \
    { (x), (x) }

/* Vectors in memory, and the first n lanes of them. */
#define SIMD_BASE_MEMORY(VF, T)            \
    SIMD_INLINE VF VF##_load(const T *p) { \
        VF v;                              \
        memcpy(&v, p, sizeof v);           \
        return v;                          \
    }                                      \
    SIMD_INLINE void VF##_store(T *p, VF v) { memcpy(p, &v, sizeof v); }
SIMD_BASE_MEMORY(vf32, float)
SIMD_BASE_MEMORY(vf64, double)
#undef SIMD_BASE_MEMORY

#define SIMD_BASE_PART(VF, T, LANES)                    \
    SIMD_LONG VF simd_load_##VF(const T *p, int n) {    \
        T lane[LANES] = {0};                            \
        for (int i = 0; i < LANES; i++)                 \
            if (i < n) lane[i] = p[i];                  \
        return VF##_load(lane);                         \
    }                                                   \
    SIMD_LONG void simd_store_##VF(T *p, VF v, int n) { \
        T lane[LANES];                                  \
        VF##_store(lane, v);                            \
        for (int i = 0; i < LANES; i++)                 \
            if (i < n) p[i] = lane[i];                  \
    }
SIMD_BASE_PART(vf32, float, 4)
SIMD_BASE_PART(vf64, double, 2)
#undef SIMD_BASE_PART

/* Only what is less than a vector is a call. */
#define SIMD_BASE_SOME(VF, T, LANES)                                                                           \
    SIMD_INLINE VF VF##_load_n(const T *p, int n) { return n >= LANES ? VF##_load(p) : simd_load_##VF(p, n); } \
    SIMD_INLINE void VF##_store_n(T *p, VF v, int n) {                                                         \
        if (n >= LANES) VF##_store(p, v);                                                                      \
        else simd_store_##VF(p, v, n);                                                                         \
    }
SIMD_BASE_SOME(vf32, float, 4)
SIMD_BASE_SOME(vf64, double, 2)
#undef SIMD_BASE_SOME

/* Everything else the two element types share, written once. */
#define SIMD_BASE_TYPE(VF, VI, VU, MF, T, TI, SPLAT)                                          \
    SIMD_INLINE VF VF##_set1(T x) { return (VF)SPLAT(x); }                                    \
    SIMD_INLINE VI VI##_set1(TI x) { return (VI)SPLAT(x); }                                   \
    SIMD_INLINE VF VF##_add(VF a, VF b) { return a + b; }                                     \
    SIMD_INLINE VF VF##_sub(VF a, VF b) { return a - b; }                                     \
    SIMD_INLINE VF VF##_mul(VF a, VF b) { return a * b; }                                     \
    SIMD_INLINE VF VF##_div(VF a, VF b) { return a / b; }                                     \
    SIMD_INLINE VF VF##_fma(VF a, VF b, VF c) { return a * b + c; }                           \
    SIMD_INLINE VF VF##_fnma(VF a, VF b, VF c) { return c - a * b; }                          \
    SIMD_INLINE VI VF##_bits(VF v) { return (VI)v; }                                          \
    SIMD_INLINE VF VF##_from_bits(VI v) { return (VF)v; }                                     \
    SIMD_INLINE VF VF##_and(VF a, VF b) { return (VF)((VI)a & (VI)b); }                       \
    SIMD_INLINE VF VF##_or(VF a, VF b) { return (VF)((VI)a | (VI)b); }                        \
    SIMD_INLINE VF VF##_xor(VF a, VF b) { return (VF)((VI)a ^ (VI)b); }                       \
    SIMD_INLINE VF VF##_andnot(VF a, VF b) { return (VF)(~(VI)a & (VI)b); }                   \
    SIMD_INLINE MF VF##_eq(VF a, VF b) { return (MF)(a == b); }                               \
    SIMD_INLINE MF VF##_ne(VF a, VF b) { return (MF)(a != b); }                               \
    SIMD_INLINE MF VF##_lt(VF a, VF b) { return (MF)(a < b); }                                \
    SIMD_INLINE MF VF##_le(VF a, VF b) { return (MF)(a <= b); }                               \
    SIMD_INLINE MF VF##_gt(VF a, VF b) { return (MF)(a > b); }                                \
    SIMD_INLINE MF VF##_ge(VF a, VF b) { return (MF)(a >= b); }                               \
    SIMD_INLINE MF MF##_and(MF a, MF b) { return a & b; }                                     \
    SIMD_INLINE MF MF##_or(MF a, MF b) { return a | b; }                                      \
    SIMD_INLINE MF MF##_xor(MF a, MF b) { return a ^ b; }                                     \
    SIMD_INLINE MF MF##_not(MF a) { return ~a; }                                              \
    SIMD_INLINE VF VF##_select(MF m, VF a, VF b) { return (VF)(((VI)a & m) | ((VI)b & ~m)); } \
    SIMD_INLINE VI VI##_select(MF m, VI a, VI b) { return (a & m) | (b & ~m); }               \
    SIMD_INLINE VI VI##_add(VI a, VI b) { return (VI)((VU)a + (VU)b); }                       \
    SIMD_INLINE VI VI##_sub(VI a, VI b) { return (VI)((VU)a - (VU)b); }                       \
    SIMD_INLINE VI VI##_and(VI a, VI b) { return a & b; }                                     \
    SIMD_INLINE VI VI##_or(VI a, VI b) { return a | b; }                                      \
    SIMD_INLINE VI VI##_xor(VI a, VI b) { return a ^ b; }                                     \
    SIMD_INLINE VI VI##_shl(VI a, int n) { return (VI)((VU)a << n); }                         \
    SIMD_INLINE VI VI##_shr(VI a, int n) { return (VI)((VU)a >> n); }                         \
    SIMD_INLINE MF VI##_eq(VI a, VI b) { return (MF)(a == b); }                               \
    SIMD_INLINE MF VI##_gt(VI a, VI b) { return (MF)(a > b); }

SIMD_BASE_TYPE(vf32, vi32, simd_u32, mf32, float, int32_t, SIMD_SPLAT32)
SIMD_BASE_TYPE(vf64, vi64, simd_u64, mf64, double, int64_t, SIMD_SPLAT64)
#undef SIMD_BASE_TYPE

#ifdef __SSE2__
SIMD_INLINE vf32 vf32_sqrt(vf32 a) { return (vf32)_mm_sqrt_ps((__m128)a); }
SIMD_INLINE vf64 vf64_sqrt(vf64 a) { return (vf64)_mm_sqrt_pd((__m128d)a); }
/* a < b ? a : b and a > b ? a : b: a NaN on either side gives b, as the x86 instructions do */
SIMD_INLINE vf32 vf32_minb(vf32 a, vf32 b) { return (vf32)_mm_min_ps((__m128)a, (__m128)b); }
SIMD_INLINE vf32 vf32_maxb(vf32 a, vf32 b) { return (vf32)_mm_max_ps((__m128)a, (__m128)b); }
SIMD_INLINE vf64 vf64_minb(vf64 a, vf64 b) { return (vf64)_mm_min_pd((__m128d)a, (__m128d)b); }
SIMD_INLINE vf64 vf64_maxb(vf64 a, vf64 b) { return (vf64)_mm_max_pd((__m128d)a, (__m128d)b); }
SIMD_INLINE int mf32_any(mf32 m) { return _mm_movemask_ps((__m128)m) != 0; }
SIMD_INLINE int mf32_all(mf32 m) { return _mm_movemask_ps((__m128)m) == 15; }
SIMD_INLINE int mf64_any(mf64 m) { return _mm_movemask_pd((__m128d)m) != 0; }
SIMD_INLINE int mf64_all(mf64 m) { return _mm_movemask_pd((__m128d)m) == 3; }
SIMD_INLINE void vf32_stream(float *p, vf32 v) { _mm_stream_ps(p, (__m128)v); }
SIMD_INLINE void vf64_stream(double *p, vf64 v) { _mm_stream_pd(p, (__m128d)v); }
SIMD_INLINE void simd_fence(void) { _mm_sfence(); }
SIMD_INLINE vf64 vf64_from_f32_lo(vf32 v) { return (vf64)_mm_cvtps_pd((__m128)v); }
SIMD_INLINE vf64 vf64_from_f32_hi(vf32 v) { return (vf64)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v)); }
SIMD_INLINE vf32 vf32_from_f64(vf64 lo, vf64 hi) {
    return (vf32)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)lo), _mm_cvtpd_ps((__m128d)hi));
}
#else
SIMD_INLINE vf32 vf32_sqrt(vf32 a) {
    for (int i = 0; i < VF32_LANES; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
SIMD_INLINE vf64 vf64_sqrt(vf64 a) {
    for (int i = 0; i < VF64_LANES; i++) a[i] = __builtin_sqrt(a[i]);
    return a;
}
SIMD_INLINE vf32 vf32_minb(vf32 a, vf32 b) { return vf32_select(vf32_lt(a, b), a, b); }
SIMD_INLINE vf32 vf32_maxb(vf32 a, vf32 b) { return vf32_select(vf32_gt(a, b), a, b); }
SIMD_INLINE vf64 vf64_minb(vf64 a, vf64 b) { return vf64_select(vf64_lt(a, b), a, b); }
SIMD_INLINE vf64 vf64_maxb(vf64 a, vf64 b) { return vf64_select(vf64_gt(a, b), a, b); }
SIMD_INLINE int mf32_any(mf32 m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }
SIMD_INLINE int mf32_all(mf32 m) { return (m[0] & m[1] & m[2] & m[3]) != 0; }
SIMD_INLINE int mf64_any(mf64 m) { return (m[0] | m[1]) != 0; }
SIMD_INLINE int mf64_all(mf64 m) { return (m[0] & m[1]) != 0; }
SIMD_INLINE void vf32_stream(float *p, vf32 v) { vf32_store(p, v); }
SIMD_INLINE void vf64_stream(double *p, vf64 v) { vf64_store(p, v); }
SIMD_INLINE void simd_fence(void) {}
SIMD_INLINE vf64 vf64_from_f32_lo(vf32 v) { return (vf64){(double)v[0], (double)v[1]}; }
SIMD_INLINE vf64 vf64_from_f32_hi(vf32 v) { return (vf64){(double)v[2], (double)v[3]}; }
SIMD_INLINE vf32 vf32_from_f64(vf64 lo, vf64 hi) {
    return (vf32){(float)lo[0], (float)lo[1], (float)hi[0], (float)hi[1]};
}
#endif

/* The first lanes are those from `width` on, half as many as the ones that still count; the others are anything. */
SIMD_INLINE vf32 vf32_upper(vf32 v, int width) {
    return width == 2 ? (vf32){v[2], v[3], v[2], v[3]} : (vf32){v[1], v[1], v[3], v[3]};
}
SIMD_INLINE vf64 vf64_upper(vf64 v, int width) {
    (void)width;
    return (vf64){v[1], v[1]};
}
SIMD_INLINE float vf32_hsum(vf32 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
SIMD_INLINE double vf64_hsum(vf64 v) { return v[0] + v[1]; }

#define VF  vf32
#define BIG 8388608.0f
#include "backends/cpu/simd/base_rounding.h"
#define VF  vf64
#define BIG 4503599627370496.0
#include "backends/cpu/simd/base_rounding.h"

/* Dekker's product: a*b = return value + *error exactly, by splitting each factor into two halves
   of 26 bits (12 in f32). Overflows for factors above 2^996; callers stay far below. */
SIMD_LONG vf64 vf64_two_prod(vf64 a, vf64 b, vf64 *error) {
    vf64 p = a * b, ta = a * 134217729.0, tb = b * 134217729.0;
    vf64 ah = ta - (ta - a), al = a - ah, bh = tb - (tb - b), bl = b - bh;
    *error = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
    return p;
}

/* A fused multiply-add for the few places where its single rounding matters. The f32 product is
   exact in f64; the sum is then rounded twice, which is off the true fma by < 2^-29 ulp. */
SIMD_LONG vf32 vf32_fma_exact(vf32 a, vf32 b, vf32 c) {
    vf64 lo = vf64_from_f32_lo(a) * vf64_from_f32_lo(b) + vf64_from_f32_lo(c);
    vf64 hi = vf64_from_f32_hi(a) * vf64_from_f32_hi(b) + vf64_from_f32_hi(c);
    return vf32_from_f64(lo, hi);
}
SIMD_LONG vf64 vf64_fma_exact(vf64 a, vf64 b, vf64 c) {
    vf64 e, p = vf64_two_prod(a, b, &e);
    vf64 s = p + c, t = s - p;
    return s + (((p - (s - t)) + (c - t)) + e);
}
