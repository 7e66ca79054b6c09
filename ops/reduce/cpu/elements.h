/* The dtypes by their short names, for templates: ELEMENT(f16) is uint16_t, VECTOR(f16) the vector that its elements
 * are computed in, and f16_load, f16_load_n, f16_store put elements into vectors and back. */
#ifndef COTANGENT_OPS_REDUCE_ELEMENTS_H
#define COTANGENT_OPS_REDUCE_ELEMENTS_H

#include <math.h>

#include "backends/cpu/gemm/caches.h"
#include "backends/cpu/kernel.h"
#include "core/dtype.h"

typedef float f32_element, f32_scalar, f16_scalar, bf16_scalar;
typedef double f64_element, f64_scalar;
typedef uint16_t f16_element, bf16_element;
typedef int8_t i8_element;
typedef int16_t i16_element;
typedef int32_t i32_element;
typedef int64_t i64_element;
typedef uint8_t u8_element;
typedef vf32 f32_vector, f16_vector, bf16_vector;
typedef vf64 f64_vector;
typedef mf32 f32_mask, f16_mask, bf16_mask;
typedef mf64 f64_mask;
enum { f32_lanes = VF32_LANES, f16_lanes = VF32_LANES, bf16_lanes = VF32_LANES, f64_lanes = VF64_LANES };

#define ELEMENT_PASTE_(a, b) a##b
#define ELEMENT_PASTE(a, b)  ELEMENT_PASTE_(a, b)
#define ELEMENT(D)           ELEMENT_PASTE(D, _element)
#define SCALAR(D)            ELEMENT_PASTE(D, _scalar)
#define VECTOR(D)            ELEMENT_PASTE(D, _vector)
#define LANES(D)             ELEMENT_PASTE(D, _lanes)

/* Prefetches what follows n elements from p on, 3 KiB further. The own prefetching of Zen 4 stops at each page and leaves a third
 * of the bandwidth of one thread unused; that of Zen 3, which ends at AVX2, does not, and these would cost it a fifth. It reads two
 * runs at once a quarter faster than one. */
#if CT_ISA_LEVEL == 1 && defined(__AVX2__)
#define PREFETCH(p, n) ((void)0)
#define TWO_RUNS       1
#else
#define PREFETCH(p, n)                                                                              \
    do {                                                                                            \
        const char *at_ = (const char *)(p) + 3072;                                                 \
        for (int k_ = 0; k_ < (n) * (int)sizeof *(p); k_ += 64) __builtin_prefetch(at_ + k_, 0, 2); \
    } while (0)
#define TWO_RUNS 0
#endif

/* The operations of the wrapper under the dtype's name: f16_add is vf32_add. */
#define ELEMENT_VECTOR_OPS(D, V, M)                                                                        \
    SIMD_INLINE V D##_set1(D##_scalar a) { return V##_set1(a); }                                           \
    SIMD_INLINE V D##_add(V a, V b) { return V##_add(a, b); }                                              \
    SIMD_INLINE V D##_sub(V a, V b) { return V##_sub(a, b); }                                              \
    SIMD_INLINE V D##_mul(V a, V b) { return V##_mul(a, b); }                                              \
    SIMD_INLINE V D##_fma(V a, V b, V c) { return V##_fma(a, b, c); }                                      \
    SIMD_INLINE V D##_max(V a, V b) { return V##_max(a, b); }                                              \
    SIMD_INLINE V D##_min(V a, V b) { return V##_min(a, b); }                                              \
    SIMD_INLINE V D##_get(const D##_scalar *p) { return V##_load(p); } /* computed, not stored, scalars */ \
    SIMD_INLINE void D##_put(D##_scalar *p, V v) { V##_store(p, v); }                                      \
    SIMD_INLINE V D##_get_n(const D##_scalar *p, int n) { return V##_load_n(p, n); }                       \
    SIMD_INLINE void D##_put_n(D##_scalar *p, V v, int n) { V##_store_n(p, v, n); }                        \
    SIMD_INLINE V D##_select(M m, V a, V b) { return V##_select(m, a, b); }                                \
    SIMD_INLINE M D##_le(V a, V b) { return V##_le(a, b); }                                                \
    SIMD_INLINE bool D##_any(M m) { return M##_any(m); }                                                   \
    SIMD_INLINE bool D##_any_nan(V a) { return M##_any(V##_isnan(a)); }                                    \
    SIMD_INLINE bool D##_any_equal(V a, V b) { return M##_any(V##_eq(a, b)); }                             \
    /* a is greater (less) than b, or the first NaN */                                                     \
    SIMD_INLINE M D##_not_le(V a, V b) { return M##_and(M##_not(V##_le(a, b)), V##_eq(b, b)); }            \
    SIMD_INLINE M D##_not_ge(V a, V b) { return M##_and(M##_not(V##_ge(a, b)), V##_eq(b, b)); }            \
    SIMD_INLINE D##_scalar D##_hsum(V v) { return V##_hsum(v); }                                           \
    SIMD_INLINE D##_scalar D##_hmax(V v) { return V##_hmax(v); }                                           \
    SIMD_INLINE D##_scalar D##_hmin(V v) { return V##_hmin(v); }                                           \
    SIMD_INLINE V D##_max_number(V best, V a) { return V##_maxb(a, best); } /* passes NaN over */          \
    /* what is missing from a last vector is its first element again, which changes no extremum */         \
    SIMD_INLINE V D##_load_repeated(const D##_element *p, int n) {                                         \
        D##_element lane[D##_lanes];                                                                       \
        for (int i = 0; i < D##_lanes; i++) lane[i] = p[i < n ? i : 0];                                    \
        return D##_load(lane);                                                                             \
    }

#define ELEMENT_MEMORY(D, LOAD, LOAD_N, STORE, STORE_N)                                     \
    SIMD_INLINE D##_vector D##_load(const D##_element *p) { return LOAD(p); }               \
    SIMD_INLINE D##_vector D##_load_n(const D##_element *p, int n) { return LOAD_N(p, n); } \
    SIMD_INLINE void D##_store(D##_element *p, D##_vector v) { STORE(p, v); }               \
    SIMD_INLINE void D##_store_n(D##_element *p, D##_vector v, int n) { STORE_N(p, v, n); }

ELEMENT_MEMORY(f32, vf32_load, vf32_load_n, vf32_store, vf32_store_n)
ELEMENT_MEMORY(f64, vf64_load, vf64_load_n, vf64_store, vf64_store_n)
ELEMENT_MEMORY(f16, vf32_load_f16, vf32_load_f16_n, vf32_store_f16, vf32_store_f16_n)
ELEMENT_MEMORY(bf16, vf32_load_bf16, vf32_load_bf16_n, vf32_store_bf16, vf32_store_bf16_n)
ELEMENT_VECTOR_OPS(f32, vf32, mf32)
ELEMENT_VECTOR_OPS(f64, vf64, mf64)
ELEMENT_VECTOR_OPS(f16, vf32, mf32)
ELEMENT_VECTOR_OPS(bf16, vf32, mf32)

/* The greatest lane where no lane is NaN. */
#if defined(__AVX512F__) && CT_ISA_LEVEL >= 2
SIMD_INLINE float f32_hmax_number(vf32 v) { return _mm512_reduce_max_ps(v); }
SIMD_INLINE double f64_hmax_number(vf64 v) { return _mm512_reduce_max_pd(v); }
#else
SIMD_INLINE float f32_hmax_number(vf32 v) { return vf32_hmax(v); }
SIMD_INLINE double f64_hmax_number(vf64 v) { return vf64_hmax(v); }
#endif
SIMD_INLINE float f16_hmax_number(vf32 v) { return f32_hmax_number(v); }
SIMD_INLINE float bf16_hmax_number(vf32 v) { return f32_hmax_number(v); }

/* An integer in the bits of a scalar, so that it can be selected as the values are. */
#define ELEMENT_PLACES(D, V, VI, I)                                                      \
    SIMD_INLINE V D##_place_vector(int64_t i) { return V##_from_bits(VI##_set1((I)i)); } \
    static inline D##_scalar D##_place_bits(int64_t i) {                                 \
        I bits = (I)i;                                                                   \
        D##_scalar s;                                                                    \
        memcpy(&s, &bits, sizeof s);                                                     \
        return s;                                                                        \
    }                                                                                    \
    static inline int64_t D##_place_of(D##_scalar s) {                                   \
        I bits;                                                                          \
        memcpy(&bits, &s, sizeof bits);                                                  \
        return bits;                                                                     \
    }
ELEMENT_PLACES(f32, vf32, vi32, int32_t)
ELEMENT_PLACES(f64, vf64, vi64, int64_t)
ELEMENT_PLACES(f16, vf32, vi32, int32_t)
ELEMENT_PLACES(bf16, vf32, vi32, int32_t)

/* One element as a number of its dtype's scalar type, and back. */
static inline float f32_value(float a) { return a; }
static inline double f64_value(double a) { return a; }
static inline float f32_round(double a) { return (float)a; }
static inline double f64_round(double a) { return a; }
static inline float bf16_value(uint16_t a) {
    uint32_t bits = (uint32_t)a << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint16_t bf16_round(double a) { return ct__f32_to_bf16((float)a); }
#ifdef __F16C__
static inline float f16_value(uint16_t a) { return _cvtsh_ss(a); }
static inline uint16_t f16_round(double a) { return _cvtss_sh((float)a, 0 /* nearest even */); }
#else
static inline float f16_value(uint16_t a) { return ct__f16_to_f32(a); }
static inline uint16_t f16_round(double a) { return ct__f32_to_f16((float)a); }
#endif

#endif
