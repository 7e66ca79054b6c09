/* vmath_trig_parts.h - argument reduction, polynomials and constants of the trigonometric functions,
   for f32 and f64. Polynomials are fpminimax fits (Sollya) made for this file. */
#include <math.h>

#define VF32_TRIG_MAX  65536.0f
#define VF32_LIBM_SIN  sinf
#define VF32_LIBM_COS  cosf
#define VF32_LIBM_TAN  tanf
#define VF32_PI_2      0x1.921fb6p0f
#define VF32_PI_2_TAIL (-0x1.777a5cp-25f)
#define VF32_ANGLE_MAX 0x1p126f

#define VF64_TRIG_MAX  0x1p20
#define VF64_LIBM_SIN  sin
#define VF64_LIBM_COS  cos
#define VF64_LIBM_TAN  tan
#define VF64_PI_2      0x1.921fb54442d18p0
#define VF64_PI_2_TAIL 0x1.1a62633145c07p-54
#define VF64_ANGLE_MAX 0x1p1022

/* a = n pi/2 + r for 0 <= a <= 2^20, n in the low bits of *quadrant. pi/2 comes in pieces of 33, 33
   and 53 bits, so that the products of n (20 bits) with the first two are exact; what the second subtraction loses
   by rounding goes into the third, so that r is rounded once. */
SIMD_INLINE vf64 vf64_reduce_pi2(vf64 a, vi64 *quadrant) {
    vf64 place = vf64_set1(VF64_PLACE), t = vf64_fma(a, vf64_set1(0x1.45f306dc9c883p-1), place);
    vf64 n = vf64_sub(t, place);
    *quadrant = vf64_bits(t);
    vf64 middle = vf64_set1(0x1.0b4611a6p-34), tail = vf64_set1(0x1.3198a2e037073p-69);
    vf64 w = vf64_fnma(n, vf64_set1(0x1.921fb544p0), a), r = vf64_fnma(n, middle, w);
    vf64 lost = vf64_fnma(n, middle, vf64_sub(w, r));
    return vf64_add(r, vf64_fnma(n, tail, lost));
}

/* The same for f32, 0 <= a <= 2^16. With fma, a - n * (24 bits of pi/2) is exact, being a multiple of
   2^-24 below 1. Without, the subtraction is done in f64, where one piece of 33 bits and the rest are
   enough. */
SIMD_INLINE vf32 vf32_reduce_pi2(vf32 a, vi32 *quadrant) {
    vf32 place = vf32_set1(VF32_PLACE), t = vf32_fma(a, vf32_set1(0x1.45f306p-1f), place);
    vf32 n = vf32_sub(t, place);
    *quadrant = vf32_bits(t);
#if SIMD_HAS_FMA
    vf32 r = vf32_fnma(n, vf32_set1(0x1.921fb6p0f), a);
    r = vf32_fnma(n, vf32_set1(-0x1.777a5cp-25f), r);
    return vf32_fnma(n, vf32_set1(-0x1.ee59dap-50f), r);
#else
    vf64 head = vf64_set1(0x1.921fb544p0), tail = vf64_set1(0x1.0b4611a626331p-34);
    vf64 n0 = vf64_from_f32_lo(n), n1 = vf64_from_f32_hi(n);
    vf64 r0 = vf64_fnma(n0, head, vf64_from_f32_lo(a)), r1 = vf64_fnma(n1, head, vf64_from_f32_hi(a));
    return vf32_from_f64(vf64_fnma(n0, tail, r0), vf64_fnma(n1, tail, r1));
#endif
}

/* sin r = r + r^3 P(r^2), |r| <= pi/4: 2^-27.9 and 2^-57.9 */
SIMD_INLINE vf32 vf32_sin_poly(vf32 z) {
    static const float c[] = {-0x1.555546p-3f, 0x1.110778p-7f, -0x1.9953fep-13f};
    return vf32_horner(z, c, 3);
}
SIMD_INLINE vf64 vf64_sin_poly(vf64 z) {
    static const double c[] = {-0x1.5555555555548p-3, 0x1.111111110f75dp-7,   -0x1.a01a019bf222ep-13,
                               0x1.71de355f05599p-19, -0x1.ae5e5471f5501p-26, 0x1.5d8e3511cdb44p-33};
    return vf64_horner(z, c, 6);
}

/* cos r = 1 - r^2/2 + r^4 P(r^2): 2^-33 and 2^-63.9 */
SIMD_INLINE vf32 vf32_cos_poly(vf32 z) {
    static const float c[] = {0x1.55554ap-5f, -0x1.6c0c2ap-10f, 0x1.99e91p-16f};
    return vf32_horner(z, c, 3);
}
SIMD_INLINE vf64 vf64_cos_poly(vf64 z) {
    static const double c[] = {0x1.555555555554bp-5,   -0x1.6c16c16c15016p-10, 0x1.a01a019c8f3eep-16,
                               -0x1.27e4f7f19d4b2p-22, 0x1.1ee9dbd0d86a6p-29,  -0x1.8fa681e38524p-37};
    return vf64_horner(z, c, 6);
}

#if SIMD_HAS_FMA
/* In f32 with fma, sin and cos do without quadrants: with half-turns of pi taken off, |r| <= pi/2, one
   odd polynomial serves, r + r^3 P(r^2) with relative error 2^-27.3, and only the sign is left to fix.
   half is n or n + 1/2, the multiple of pi to subtract; its pieces are those of vf32_reduce_pi2. */
SIMD_INLINE vf32 vf32_sin_half_turn(vf32 a, vf32 half, vi32 turns) {
    static const float c[] = {-0x1.55554cp-3f, 0x1.110edap-7f, -0x1.9f70fp-13f, 0x1.5dc904p-19f};
    vf32 r = vf32_fnma(half, vf32_set1(0x1.921fb6p1f), a);
    r = vf32_fnma(half, vf32_set1(-0x1.777a5cp-24f), r);
    r = vf32_fnma(half, vf32_set1(-0x1.ee59dap-49f), r);
    vf32 z = vf32_mul(r, r), s = vf32_fma(vf32_horner(z, c, 4), vf32_mul(z, r), r);
    s = vf32_minb(vf32_set1(1), vf32_maxb(vf32_set1(-1), s)); /* rounding may lead beyond 1 */
    return vf32_xor(s, vf32_from_bits(vi32_shl(turns, 31)));
}

SIMD_INLINE vf32 vf32_sin(vf32 x) {
    vf32 a = vf32_abs(x), place = vf32_set1(VF32_PLACE);
    vf32 t = vf32_fma(a, vf32_set1(0x1.45f306p-2f), place);
    vf32 y = vf32_sin_half_turn(a, vf32_sub(t, place), vf32_bits(t));
    y = vf32_xor(y, vf32_sign_of(x));
    mf32 fine = vf32_le(a, vf32_set1(VF32_TRIG_MAX));
    if (__builtin_expect(mf32_all(fine), 1)) return y;
    return vf32_select(fine, y, vf32_map1(sinf, x));
}

/* cos a = -sin(a - (n + 1/2) pi) (-1)^n; the place is odd, which supplies the minus */
SIMD_INLINE vf32 vf32_cos(vf32 x) {
    vf32 a = vf32_abs(x), place = vf32_set1(VF32_PLACE + 1), half = vf32_set1(0.5f);
    vf32 t = vf32_add(vf32_fma(a, vf32_set1(0x1.45f306p-2f), vf32_neg(half)), place);
    vf32 y = vf32_sin_half_turn(a, vf32_add(vf32_sub(t, place), half), vf32_bits(t));
    mf32 fine = vf32_le(a, vf32_set1(VF32_TRIG_MAX));
    if (__builtin_expect(mf32_all(fine), 1)) return y;
    return vf32_select(fine, y, vf32_map1(cosf, x));
}
#endif

/* asin a = a + a^3 P(a^2), a <= 1/2: 2^-27.6 and 2^-59.9 */
SIMD_INLINE vf32 vf32_asin_poly(vf32 z) {
    static const float c[] = {0x1.5555c8p-3f, 0x1.3301fep-4f, 0x1.747cbep-5f, 0x1.8c30b4p-6f, 0x1.596a7ep-5f};
    return vf32_horner(z, c, 5);
}
SIMD_INLINE vf64 vf64_asin_poly(vf64 z) {
    static const double c[] = {0x1.5555555555577p-3, 0x1.333333332e11p-4,  0x1.6db6db7214efbp-5, 0x1.f1c71a93b97ebp-6,
                               0x1.6e8bdf08f8535p-6, 0x1.1c49ed235bccep-6, 0x1.ca1fe269723dap-7, 0x1.75829a894542cp-7,
                               0x1.614e1abb812bfp-7, 0x1.e4dcd1ad1d4e6p-9, 0x1.63f6350f76866p-6, -0x1.58825b49a8eap-6,
                               0x1.0b7205b45370ap-5};
    return vf64_horner(z, c, 13);
}

/* atan t = t + t^3 P(t^2), |t| <= tan(pi/8): 2^-30.4 and 2^-59.4 */
SIMD_INLINE vf32 vf32_atan_poly(vf32 z) {
    static const float c[] = {-0x1.55554ap-2f, 0x1.9991e4p-3f, -0x1.23b9dp-3f, 0x1.b226f2p-4f, -0x1.f2f1b6p-5f};
    return vf32_horner(z, c, 5);
}
SIMD_INLINE vf64 vf64_atan_poly(vf64 z) {
    static const double c[] = {-0x1.555555555553dp-2, 0x1.999999999586dp-3, -0x1.24924922ad6edp-3, 0x1.c71c70e613401p-4,
                               -0x1.745cf8dcacc2cp-4, 0x1.3b11191f75b4cp-4, -0x1.10ebb86a779eap-4, 0x1.df0f4dc53386ap-5,
                               -0x1.9cd2cc3bcaa6cp-5, 0x1.37d5d6ce4ab2ep-5, -0x1.256ae1c81b21ep-6};
    return vf64_horner(z, c, 11);
}
