/* What the generated gen/cpu/elementwise_*.c are made of: the vocabulary on integers, bool and single floats (on
 * vectors it is simd.h and vmath.h), loads and stores of tails, and the ISA's part of the driver. */
#ifndef COTANGENT_BACKENDS_CPU_ELEMENTWISE_KERNEL_H
#define COTANGENT_BACKENDS_CPU_ELEMENTWISE_KERNEL_H

#include <float.h>
#include <math.h>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/simd/vmath.h"
#include "backends/cpu/step.h"

/* The one word that simd.h and vmath.h do not have: -1, 0 or 1; zero and NaN stay what they are. */
SIMD_INLINE vf32 ct_vf32_sign(vf32 x) {
    return vf32_select(vf32_gt(vf32_abs(x), vf32_zero()), vf32_copysign(vf32_set1(1), x), x);
}
SIMD_INLINE vf64 ct_vf64_sign(vf64 x) {
    return vf64_select(vf64_gt(vf64_abs(x), vf64_zero()), vf64_copysign(vf64_set1(1), x), x);
}
#define vf32_sign ct_vf32_sign
#define vf64_sign ct_vf64_sign

#define CT_LOAD_SOME(V, p, m) ((m) == (int)(sizeof(V) / sizeof *(p)) ? V##_load(p) : V##_load_n((p), (m)))
#define CT_STORE_SOME(V, p, v, m)                                       \
    do {                                                                \
        if ((m) == (int)(sizeof(V) / sizeof *(p))) V##_store((p), (v)); \
        else V##_store_n((p), (v), (m));                                \
    } while (0)

/* Whether light expressions are computed four vectors at a time: not where code is to be small. */
#ifdef __OPTIMIZE_SIZE__
#define CT_UNROLLS 0
#else
#define CT_UNROLLS 1
#endif

/* Output and input may be the same memory, but never shifted: no iteration depends on another. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"    /* where it cannot vectorise after all: integer division, powers */
#if CT_ISA_LEVEL == 0 && defined(__OPTIMIZE_SIZE__) /* it would vectorise all the same */
#define CT_IVDEP
#else
#define CT_IVDEP _Pragma("clang loop vectorize(assume_safety) interleave_count(1)")
#endif
#else
#define CT_IVDEP _Pragma("GCC ivdep")
#endif

#define CT_ISA_TEXT_(isa) #isa
#define CT_ISA_TEXT(isa)  CT_ISA_TEXT_(isa)
#define CT_ELEMENTWISE_ROW(name)                                                               \
    {#name, (const ct_kernel[]){{#name "_" CT_ISA_TEXT(CT_ISA), NULL, NULL, name##_run}, {0}}, \
     &(const ct_cpu_step){.elementwise = &name##_table}},

extern const ct_elementwise_isa CT_ISA_FN(ct__elementwise_isa);

/* ---- Truth values ---- */

static inline uint8_t truth_and(uint8_t a, uint8_t b) { return a & b; }
static inline uint8_t truth_or(uint8_t a, uint8_t b) { return a | b; }
static inline uint8_t truth_xor(uint8_t a, uint8_t b) { return a ^ b; }
static inline uint8_t truth_not(uint8_t a) { return a ^ 1; }

/* ---- Words that read alike for every element type ---- */

#define CT_COMMON_WORDS(P, T)                                 \
    static inline uint8_t P##_eq(T a, T b) { return a == b; } \
    static inline uint8_t P##_ne(T a, T b) { return a != b; } \
    static inline uint8_t P##_lt(T a, T b) { return a < b; }  \
    static inline uint8_t P##_le(T a, T b) { return a <= b; } \
    static inline uint8_t P##_gt(T a, T b) { return a > b; }  \
    static inline uint8_t P##_ge(T a, T b) { return a >= b; } \
    static inline T P##_select(uint8_t c, T a, T b) { return c ? a : b; }

#define CT_FLOAT_WORDS(P, T, ABS)                                          \
    CT_COMMON_WORDS(P, T)                                                  \
    static inline T P##_k(double x) { return (T)x; }                       \
    static inline T P##_from_double(double x) { return (T)x; }             \
    static inline T P##_add(T a, T b) { return a + b; }                    \
    static inline T P##_sub(T a, T b) { return a - b; }                    \
    static inline T P##_mul(T a, T b) { return a * b; }                    \
    static inline T P##_neg(T a) { return -a; }                            \
    static inline T P##_abs(T a) { return ABS(a); }                        \
    static inline uint8_t P##_isnan(T a) { return a != a; }                \
    static inline uint8_t P##_isinf(T a) { return ABS(a) == (T)INFINITY; } \
    static inline uint8_t P##_isfinite(T a) { return ABS(a) < (T)INFINITY; }

CT_FLOAT_WORDS(f32, float, __builtin_fabsf)
CT_FLOAT_WORDS(f64, double, __builtin_fabs)

/* ---- Integers: U is an unsigned type that does not promote, so arithmetic in it wraps. IS(a, < 0) and IS(a, == -1)
 * are questions to signed numbers; for unsigned ones the answer is no. ---- */

#define CT_SIGNED_IS(a, test)   ((a)test)
#define CT_UNSIGNED_IS(a, test) 0

CT_COMMON_WORDS(i8, int8_t)
#define P     i8
#define T     int8_t
#define U     uint32_t
#define LEAST INT8_MIN
#define MOST  INT8_MAX
#define IS    CT_SIGNED_IS
#include "backends/cpu/integer_words.h"
CT_COMMON_WORDS(i16, int16_t)
#define P     i16
#define T     int16_t
#define U     uint32_t
#define LEAST INT16_MIN
#define MOST  INT16_MAX
#define IS    CT_SIGNED_IS
#include "backends/cpu/integer_words.h"
CT_COMMON_WORDS(i32, int32_t)
#define P     i32
#define T     int32_t
#define U     uint32_t
#define LEAST INT32_MIN
#define MOST  INT32_MAX
#define IS    CT_SIGNED_IS
#include "backends/cpu/integer_words.h"
CT_COMMON_WORDS(i64, int64_t)
#define P     i64
#define T     int64_t
#define U     uint64_t
#define LEAST INT64_MIN
#define MOST  INT64_MAX
#define IS    CT_SIGNED_IS
#include "backends/cpu/integer_words.h"
CT_COMMON_WORDS(u8, uint8_t)
#define P     u8
#define T     uint8_t
#define U     uint32_t
#define LEAST 0
#define MOST  UINT8_MAX
#define IS    CT_UNSIGNED_IS
#include "backends/cpu/integer_words.h"

/* ---- Bool: 0 or 1, an integer of one bit ---- */

CT_COMMON_WORDS(b8, uint8_t)
static inline uint8_t b8_k(double x) { return x != 0; }
static inline uint8_t b8_from_double(double x) { return x > 0; } /* a bound: saturates at 0 and 1 */
static inline uint8_t b8_add(uint8_t a, uint8_t b) { return a | b; }
static inline uint8_t b8_mul(uint8_t a, uint8_t b) { return a & b; }
static inline uint8_t b8_sign(uint8_t a) { return a; }
static inline uint8_t b8_square(uint8_t a) { return a; }
static inline uint8_t b8_max(uint8_t a, uint8_t b) { return a | b; }
static inline uint8_t b8_min(uint8_t a, uint8_t b) { return a & b; }
static inline uint8_t b8_fmax(uint8_t a, uint8_t b) { return a | b; }
static inline uint8_t b8_fmin(uint8_t a, uint8_t b) { return a & b; }
static inline uint8_t b8_isnan(uint8_t a) { return (void)a, 0; }
static inline uint8_t b8_isinf(uint8_t a) { return (void)a, 0; }
static inline uint8_t b8_isfinite(uint8_t a) { return (void)a, 1; }
static inline uint8_t b8_band(uint8_t a, uint8_t b) { return a & b; }
static inline uint8_t b8_bor(uint8_t a, uint8_t b) { return a | b; }
static inline uint8_t b8_bxor(uint8_t a, uint8_t b) { return a ^ b; }
static inline uint8_t b8_bnot(uint8_t a) { return a ^ 1; }
static inline uint8_t b8_shl(uint8_t a, uint8_t b) { return a & (b ^ 1); }
static inline uint8_t b8_shr(uint8_t a, uint8_t b) { return a & (b ^ 1); }

/* ---- The ISA's part of the driver; one generated file says CT_ELEMENTWISE_ISA_TABLE ---- */

#define CT_HALF_CONVERTERS(NAME)                                                       \
    static void load_##NAME(float *to, const uint16_t *from, int64_t n) {              \
        for (; n >= VF32_LANES; n -= VF32_LANES, to += VF32_LANES, from += VF32_LANES) \
            vf32_store(to, vf32_load_##NAME(from));                                    \
        if (n > 0) vf32_store_n(to, vf32_load_##NAME##_n(from, (int)n), (int)n);       \
    }                                                                                  \
    static void store_##NAME(uint16_t *to, const float *from, int64_t n) {             \
        for (; n >= VF32_LANES; n -= VF32_LANES, to += VF32_LANES, from += VF32_LANES) \
            vf32_store_##NAME(to, vf32_load(from));                                    \
        if (n > 0) vf32_store_##NAME##_n(to, vf32_load_n(from, (int)n), (int)n);       \
    }

#define CT_ELEMENTWISE_ISA_TABLE                                                                                   \
    CT_HALF_CONVERTERS(f16)                                                                                        \
    CT_HALF_CONVERTERS(bf16)                                                                                       \
    static void stream(char *to, const char *from, int64_t bytes) {                                                \
        float *out = (float *)(void *)to;                                                                          \
        const float *in = (const float *)(const void *)from;                                                       \
        int64_t step = (int64_t)sizeof(vf32);                                                                      \
        for (; bytes >= step; bytes -= step, out += VF32_LANES, in += VF32_LANES) vf32_stream(out, vf32_load(in)); \
        if (bytes > 0) memcpy(out, in, (size_t)bytes);                                                             \
    }                                                                                                              \
    static void fence(void) { simd_fence(); }                                                                      \
    const ct_elementwise_isa CT_ISA_FN(ct__elementwise_isa) = {load_f16,   store_f16, load_bf16,                   \
                                                               store_bf16, stream,    fence};

#endif
