/* vmath_f32.h - what is peculiar to f32: reductions, polynomials and constants for the functions of
   vmath_shared.h and vmath_trig.h, erf and erfc. Polynomials are fpminimax fits (Sollya) made for this
   file, written as hexadecimal floats; the error of each fit is given beside it. */

/* c[0] + c[1] x + ... + c[n-1] x^(n-1); n is a constant, so the loop unrolls */
SIMD_INLINE vf32 vf32_horner(vf32 x, const float *c, int n) {
    vf32 p = vf32_set1(c[n - 1]);
    SIMD_UNROLL for (int i = n - 2; i >= 0; i--) p = vf32_fma(p, x, vf32_set1(c[i]));
    return p;
}

#define VF32_LOG2_HEAD     0x1.62e4p-1f /* 15 bits: the product with an exponent is exact */
#define VF32_LOG2_TAIL     0x1.7f7d1cp-20f
#define VF32_INV_LOG2      0x1.715476p0f
#define VF32_INV_LOG2_TAIL 0x1.4ae0cp-26f
#define VF32_INV_LOG10     0x1.bcb7b2p-2f
#define VF32_LOG10_2_HEAD  0x1.344p-2f
#define VF32_LOG10_2_TAIL  0x1.3509f8p-18f
#define VF32_PLACE         0x1.8p23f
#define VF32_BIAS          127
#define VF32_MANTISSA      23
#define VF32_EXP_MIN       (-104)  /* e^x rounds to 0 below */
#define VF32_EXP_MAX       89      /* e^x is infinite above */
#define VF32_EXP_PLAIN     87      /* e^|x| and e^-|x| are normal numbers up to here */
#define VF32_EXPM1_MIN     (-18)   /* e^x - 1 rounds to -1 below */
#define VF32_TANH_ONE      9.1f    /* tanh rounds to 1 from 9.011 */
#define VF32_BIG           0x1p30f /* x + 1 = x, and x^2 is finite */

/* x = n log 2 + r, |r| <= log(2)/2, *power = 2^(n + bias - 127). Adding 1.5 * 2^23 + bias rounds
   x / log 2 to an integer and leaves n + bias in the low bits, a shift away from the exponent field;
   n + bias must be in 1..254 for *power to mean anything. log 2 is split in a head, whose product
   with n is exact even without fma, and a tail. */
SIMD_INLINE vf32 vf32_reduce_log2(vf32 x, int bias, vf32 *n, vf32 *power) {
    vf32 place = vf32_set1(VF32_PLACE + (float)bias);
    vf32 t = vf32_fma(x, vf32_set1(VF32_INV_LOG2), place);
    *n = vf32_sub(t, place);
    *power = vf32_from_bits(vi32_shl(vf32_bits(t), 23));
    vf32 r = vf32_fnma(*n, vf32_set1(VF32_LOG2_HEAD), x);
    return vf32_fnma(*n, vf32_set1(VF32_LOG2_TAIL), r);
}

/* e^r - 1 = r + r^2 q(r) on |r| <= log(2)/2, relative error 2^-26.1 (2^-27.8 of e^r) */
SIMD_INLINE vf32 vf32_expm1_reduced(vf32 r) {
    static const float c[] = {0x1.fffffep-2f, 0x1.5554bp-3f, 0x1.555716p-5f, 0x1.1227aap-7f, 0x1.6b73ap-10f};
    return vf32_fma(vf32_horner(r, c, 5), vf32_mul(r, r), r);
}

/* 2^f - 1 = f q(f) on |f| <= 1/2, relative error of 2^f 2^-28 */
SIMD_INLINE vf32 vf32_exp2m1_reduced(vf32 f) {
    static const float c[] = {0x1.62e43p-1f, 0x1.ebfbd8p-3f,  0x1.c6af76p-5f,
                              0x1.3b30ap-7f, 0x1.5f0b82p-10f, 0x1.3fa206p-13f};
    return vf32_mul(vf32_horner(f, c, 6), f);
}

/* log(1 + f) - f = -f^2/2 + f^3 P(f), f in [-1/4, 1/2] (a little beyond does no harm), relative
   error of the logarithm 2^-27.6 */
SIMD_INLINE vf32 vf32_log1p_tail(vf32 f) {
    static const float c[] = {0x1.5555a4p-2f, -0x1.000042p-2f, 0x1.996966p-3f, -0x1.54ef16p-3f,
                              0x1.2886b8p-3f, -0x1.0d93f4p-3f, 0x1.aca08ep-4f, -0x1.713e36p-5f};
    vf32 f2 = vf32_mul(f, f), p = vf32_fma(vf32_horner(f, c, 8), f, vf32_set1(-0.5f));
    return vf32_mul(f2, p);
}

/* sinh x = x + x^3 P(x^2) on [0, 1], relative error 2^-31.4 */
SIMD_INLINE vf32 vf32_sinh_small(vf32 z) {
    static const float c[] = {0x1.555556p-3f, 0x1.1110eap-7f, 0x1.a01c22p-13f, 0x1.767726p-19f};
    return vf32_horner(z, c, 4);
}

/* tanh x = x + x^3 P(x^2) on [0, 5/8], relative error 2^-27.7 */
SIMD_INLINE vf32 vf32_tanh_small(vf32 z) {
    static const float c[] = {-0x1.555532p-2f, 0x1.110704p-3f, -0x1.b83898p-5f, 0x1.521152p-6f, -0x1.758cap-8f};
    return vf32_horner(z, c, 5);
}

/* num / den within 1 ulp for den in [1, 2^60]: on AVX-512 a 14-bit reciprocal and one correction of
   the quotient by its remainder take half the time of a division. */
SIMD_INLINE vf32 vf32_div_near(vf32 num, vf32 den) {
#if CT_ISA_LEVEL >= 2
    vf32 y = _mm512_rcp14_ps(den), q = vf32_mul(num, y);
    return vf32_fma(vf32_fnma(den, q, num), y, q);
#else
    return vf32_div(num, den);
#endif
}

#if CT_ISA_LEVEL >= 2
#include "backends/cpu/simd/vmath_f32_lut.h"
#else

/* |x| <= 1: x + x P(x^2), error 2^-29.3. Above: 1 - e^Q(|x|), Q a fit of log erfc with absolute
   error 2^-26.6, which erfc(1) = 0.157 makes harmless. From 3.92 on erf rounds to 1. */
SIMD_LONG vf32 vf32_erf(vf32 x) {
    static const float small[] = {0x1.06eba8p-3f, -0x1.81273ep-2f,  0x1.ce2cf2p-4f, -0x1.b7f88cp-6f,
                                  0x1.540172p-8f, -0x1.a3d812p-11f, 0x1.4917a4p-14f};
    static const float large[] = {0x1.3d5eb8p-12f, -0x1.21529ep0f,  -0x1.438ca8p-1f,  -0x1.c2814ep-4f, 0x1.b01322p-6f,
                                  -0x1.36deaap-8f, 0x1.373c8ep-11f, -0x1.7f780ap-15f, 0x1.b3319ep-20f};
    vf32 a = vf32_minb(vf32_set1(3.95f), vf32_abs(x));
    vf32 near = vf32_fma(vf32_horner(vf32_mul(a, a), small, 7), a, a);
    vf32 n, power, r = vf32_reduce_log2(vf32_horner(a, large, 9), 127, &n, &power);
    vf32 erfc = vf32_fma(power, vf32_expm1_reduced(r), power);
    vf32 far = vf32_sub(vf32_set1(1), erfc);
    vf32 y = vf32_select(vf32_le(a, vf32_set1(1)), near, far);
    return vf32_or(y, vf32_sign_of(x));
}

/* erfc a = e^(-a^2) Q(t) / (a + 2), t = (a - 2) / (a + 2), Q of relative error 2^-25.2; erfc(-a) = 2 - erfc a.
   With w = -1 / (a + 2) as computed, t = 1 + 4 w, and the sum is exact as long as it matters; e is what w falls
   short of, relatively, and enters the product through the exponent. a^2 must not be rounded, and n LOG2_HEAD is
   exact. The power of two is 2^64 too large until the last product, which rounds subnormals once. Above 10.06
   erfc rounds to 0. */
SIMD_LONG vf32 vf32_erfc(vf32 x) {
    static const float c[] = {-0x1.058672p0f, 0x1.5fd38ep-1f,  -0x1.1e2db8p-2f, 0x1.2a7c12p-5f,  0x1.604624p-6f,
                              -0x1.a5d1p-8f,  -0x1.8e40a4p-9f, 0x1.7e80b6p-11f, 0x1.13595cp-11f, 0x1.6e04dp-15f};
    vf32 a = vf32_minb(vf32_set1(10.1f), vf32_abs(x)), half = vf32_set1(0.5f), four = vf32_set1(4);
    vf32 w = vf32_div(vf32_set1(-1), vf32_add(a, vf32_set1(2))), t = vf32_fma(w, four, vf32_set1(1));
    vf32 e = vf32_fma_exact(w, a, vf32_fma(t, half, half));
    vf32 slow = vf32_mul(vf32_horner(vf32_fma(vf32_mul(w, e), four, t), c, 10), w);
    vf32 place = vf32_set1(VF32_PLACE + 127 + 64), k = vf32_fnma(vf32_mul(a, a), vf32_set1(VF32_INV_LOG2), place);
    vf32 n = vf32_sub(k, place), power = vf32_from_bits(vi32_shl(vf32_bits(k), 23));
    vf32 r = vf32_fma_exact(a, vf32_neg(a), vf32_mul(n, vf32_set1(-VF32_LOG2_HEAD)));
    vf32 p = vf32_expm1_reduced(vf32_add(r, vf32_fnma(n, vf32_set1(VF32_LOG2_TAIL), e)));
    slow = vf32_mul(slow, power);
    vf32 y = vf32_mul(vf32_fma(slow, p, slow), vf32_set1(0x1p-64f));
    return vf32_select(vf32_lt(x, vf32_zero()), vf32_sub(vf32_set1(2), y), y);
}

/* The part of ndtr that decides its speed. */
#if CT_ISA_LEVEL == 1 && defined(__AVX2__)
/* |x| below 3.74: intervals of width 1/2 about i/2, whose polynomials one instruction looks up by eight; row k: coefficient of (x - i/2)^k of
   ndtr(-x), by least squares of the relative error, repeated with the weights of what is left of it: 2^-25.2. Adding 1.5 * 2^22 rounds to
   multiples of 1/2 and leaves i in the low bits. */
#define VF32_NDTR_NEAR 3.74f
/* clang-format off */
static const float simd_ndtr_lut[7][8] __attribute__((aligned(32))) = {
    {0x1p-1f, 0x1.3bf144p-2f, 0x1.44ed0cp-3f, 0x1.11a46ep-4f, 0x1.74bcf8p-6f, 0x1.96f4e4p-8f, 0x1.61de1ep-10f, 0x1.e7dbccp-13f},
    {-0x1.988454p-2f, -0x1.6883dp-2f, -0x1.ef8e5ap-3f, -0x1.094086p-3f, -0x1.ba4b44p-5f, -0x1.1f2f04p-6f, -0x1.22721p-8f, -0x1.c98988p-11f},
    {0x1.75d228p-21f, 0x1.6882c6p-4f, 0x1.ef8dc8p-4f, 0x1.8de04ep-4f, 0x1.ba4b56p-5f, 0x1.66fb0ep-6f, 0x1.b3ab6ep-8f, 0x1.9057e2p-10f},
    {0x1.104948p-4f, 0x1.6883a8p-5f, 0x1.b44ea8p-20f, -0x1.ba118p-6f, -0x1.ba4beep-6f, -0x1.f69726p-7f, -0x1.834664p-8f, -0x1.aced2p-10f},
    {0x1.1728b2p-13f, -0x1.49dc9cp-6f, -0x1.4a0552p-6f, -0x1.8cb124p-8f, 0x1.26bf3ep-8f, 0x1.84b864p-8f, 0x1.b39466p-9f, 0x1.34ad7p-10f},
    {-0x1.5b25bep-7f, -0x1.2b4f68p-8f, 0x1.03be9cp-8f, 0x1.7d597ep-8f, 0x1.282536p-9f, -0x1.505d5ep-11f, -0x1.203f4ap-10f, -0x1.30751ep-11f},
    {0x1.6d0aeep-10f, 0x1.61414cp-9f, 0x1.d6366ep-10f, -0x1.b3534ep-11f, -0x1.5a8fa2p-10f, -0x1.fed6dp-12f, 0x1.e1d374p-14f, 0x1.724e42p-13f},
};
/* clang-format on */
SIMD_INLINE vf32 vf32_ndtr_near(vf32 x) {
    vf32 a = vf32_minb(vf32_set1(VF32_NDTR_NEAR), vf32_abs(x)), place = vf32_set1(0x1.8p22f);
    vf32 t = vf32_add(a, place), r = vf32_sub(a, vf32_sub(t, place));
    vi32 index = vf32_bits(t);
    vf32 p = _mm256_permutevar8x32_ps(_mm256_load_ps(simd_ndtr_lut[6]), index);
    SIMD_UNROLL for (int k = 5; k >= 0; k--) p =
        vf32_fma(p, r, _mm256_permutevar8x32_ps(_mm256_load_ps(simd_ndtr_lut[k]), index));
    return vf32_select(vf32_gt(x, vf32_zero()), vf32_sub(vf32_set1(1), p), p);
}
#else
/* |x| below 4, where ndtr(-a) = e^(-a^2 / 2) P(a), P of relative error 2^-25.9. */
#define VF32_NDTR_NEAR 4.0f
SIMD_INLINE vf32 vf32_ndtr_near(vf32 x) {
    static const float c[] = {0x1.f1b89cp-4f,   -0x1.19cef8p-5f,  0x1.2c0866p-7f,   -0x1.2ed31ap-9f, 0x1.23c3fep-11f,
                              -0x1.0dce84p-13f, 0x1.d2d7dap-16f,  -0x1.9568e8p-18f, 0x1.066602p-19f, 0x1.fb511ep-26f,
                              -0x1.0cdd04p-23f, -0x1.9fb7d6p-23f, -0x1.ec74d2p-25f, -0x1.024368p-27f};
    vf32 a = vf32_abs(x), half = vf32_mul(a, vf32_set1(-0.5f)), place = vf32_set1(VF32_PLACE + 127);
    vf32 k = vf32_fma(vf32_mul(a, half), vf32_set1(VF32_INV_LOG2), place), n = vf32_sub(k, place);
    vf32 r = vf32_fma_exact(a, half, vf32_mul(n, vf32_set1(-VF32_LOG2_HEAD)));
    vf32 p = vf32_expm1_reduced(vf32_fnma(n, vf32_set1(VF32_LOG2_TAIL), r));
    vf32 slow = vf32_mul(vf32_horner(vf32_sub(a, vf32_set1(3)), c, 14), vf32_from_bits(vi32_shl(vf32_bits(k), 23)));
    vf32 y = vf32_fma(slow, p, slow);
    return vf32_select(vf32_gt(x, vf32_zero()), vf32_sub(vf32_set1(1), y), y);
}
#endif

#endif
