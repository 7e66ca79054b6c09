/* vmath_f64.h - what is peculiar to f64: reductions, polynomials and constants for the functions of
   vmath_shared.h and vmath_trig.h, exp, and the error functions. Polynomials are fpminimax fits
   (Sollya) made for this file, written as hexadecimal floats. */

SIMD_INLINE vf64 vf64_horner(vf64 x, const double *c, int n) {
    vf64 p = vf64_set1(c[n - 1]);
    SIMD_UNROLL for (int i = n - 2; i >= 0; i--) p = vf64_fma(p, x, vf64_set1(c[i]));
    return p;
}

#define VF64_LOG2_HEAD     0x1.62e42fefa3p-1 /* 41 bits: the product with an exponent is exact */
#define VF64_LOG2_TAIL     0x1.3de6af278ece6p-42
#define VF64_INV_LOG2      0x1.71547652b82fep0
#define VF64_INV_LOG2_TAIL 0x1.777d0ffda0d24p-56
#define VF64_INV_LOG10     0x1.bcb7b1526e50ep-2
#define VF64_LOG10_2_HEAD  0x1.34413509f6p-2
#define VF64_LOG10_2_TAIL  0x1.9fef311f12b36p-42
#define VF64_PLACE         0x1.8p52
#define VF64_BIAS          1023
#define VF64_MANTISSA      52
#define VF64_EXP_MIN       (-746) /* e^x rounds to 0 below */
#define VF64_EXP_MAX       710    /* e^x is infinite above */
#define VF64_EXP_PLAIN     708    /* e^|x| and e^-|x| are normal numbers up to here */
#define VF64_EXPM1_MIN     (-40)  /* e^x - 1 rounds to -1 below */
#define VF64_TANH_ONE      20     /* tanh rounds to 1 from 19.07 */
#define VF64_BIG           0x1p60 /* x + 1 = x, and x^2 is finite */

/* x = n log 2 + r, |r| <= log(2)/2, *power = 2^(n + bias - 1023); see vf32_reduce_log2 */
SIMD_INLINE vf64 vf64_reduce_log2(vf64 x, int bias, vf64 *n, vf64 *power) {
    vf64 place = vf64_set1(VF64_PLACE + bias);
    vf64 t = vf64_fma(x, vf64_set1(VF64_INV_LOG2), place);
    *n = vf64_sub(t, place);
    *power = vf64_from_bits(vi64_shl(vf64_bits(t), 52));
    vf64 r = vf64_fnma(*n, vf64_set1(VF64_LOG2_HEAD), x);
    return vf64_fnma(*n, vf64_set1(VF64_LOG2_TAIL), r);
}

/* e^r - 1 = r + r^2 q(r) on |r| <= log(2)/2, relative error 2^-61.5 */
SIMD_INLINE vf64 vf64_expm1_reduced(vf64 r) {
    static const double c[] = {0x1p-1,
                               0x1.5555555555559p-3,
                               0x1.555555555554dp-5,
                               0x1.111111110f65p-7,
                               0x1.6c16c16c1aafcp-10,
                               0x1.a01a01b006d6fp-13,
                               0x1.a01a018e12084p-16,
                               0x1.71ddf8040b191p-19,
                               0x1.27e5132bfce35p-22,
                               0x1.af5f449206a63p-26,
                               0x1.1f1a593f8c3a4p-29};
    return vf64_fma(vf64_horner(r, c, 11), vf64_mul(r, r), r);
}

/* 2^f - 1 = f q(f) on |f| <= 1/2, relative error of 2^f 2^-59.3 */
SIMD_INLINE vf64 vf64_exp2m1_reduced(vf64 f) {
    static const double c[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58dp-3,  0x1.c6b08d704a182p-5,
                               0x1.3b2ab6fba53b8p-7,  0x1.5d87fe7888dffp-10, 0x1.430912f7013a2p-13,
                               0x1.ffcbfcdb1c5bdp-17, 0x1.62c027b683ceap-20, 0x1.b524232262994p-24,
                               0x1.e4bbc00d37bp-28,   0x1.eafdc2f6d54aap-32, 0x1.de49d600a7dc3p-36};
    return vf64_mul(vf64_horner(f, c, 12), f);
}

/* log(1 + f) - f, f in [-1/4, 1/2]. With s = f / (2 + f), log(1 + f) = log((1 + s) / (1 - s)) =
   2 s + s R(s^2), and 2 s = f - f^2/2 + s f^2/2. Error of the fit of R: 2^-62. */
SIMD_INLINE vf64 vf64_log1p_tail(vf64 f) {
    static const double c[] = {0x1.555555555554fp-1, 0x1.999999999c15bp-2, 0x1.24924921e6fe5p-2, 0x1.c71c748ce6f3fp-3,
                               0x1.745c4b977115fp-3, 0x1.3b35a76777095p-3, 0x1.0dcd50a6c0f45p-3, 0x1.1b7592879a044p-3};
    vf64 s = vf64_div(f, vf64_add(vf64_set1(2), f)), z = vf64_mul(s, s);
    vf64 half = vf64_mul(vf64_mul(f, f), vf64_set1(0.5));
    vf64 r = vf64_mul(z, vf64_horner(z, c, 8));
    return vf64_sub(vf64_mul(s, vf64_add(half, r)), half);
}

/* sinh x = x + x^3 P(x^2) on [0, 1], relative error 2^-61.5 */
SIMD_INLINE vf64 vf64_sinh_small(vf64 z) {
    static const double c[] = {0x1.5555555555556p-3,  0x1.111111111104p-7,   0x1.a01a01a0318dap-13,
                               0x1.71de3a4056263p-19, 0x1.ae646b4da3e85p-26, 0x1.6118df4db1383p-33,
                               0x1.b52ecb43d8481p-41};
    return vf64_horner(z, c, 7);
}

/* tanh x = x + x^3 P(x^2) on [0, 5/8], relative error 2^-56.4 */
SIMD_INLINE vf64 vf64_tanh_small(vf64 z) {
    static const double c[] = {-0x1.55555555554ffp-2,  0x1.111111110ac8fp-3,  -0x1.ba1ba1b50356ep-5,
                               0x1.664f477a504b3p-6,   -0x1.226e161d9697bp-7, 0x1.d6cf263a4cb94p-9,
                               -0x1.7d689041e6da6p-10, 0x1.336596256a008p-11, -0x1.df51832d9a8a4p-13,
                               0x1.438811c83685fp-14,  -0x1.0d9556629c761p-16};
    return vf64_horner(z, c, 11);
}

/* ---- error functions ---- */

/* erf x = x + x P(x^2) on |x| <= 1, relative error 2^-56.3 */
SIMD_INLINE vf64 vf64_erf_small(vf64 x) {
    static const double c[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379fdp-2,  0x1.ce2f21a04360fp-4,
                               -0x1.b82ce312ab0a3p-6,  0x1.565bcd126d6edp-8,   -0x1.c02db49229b1fp-11,
                               0x1.f9a3342152cf5p-14,  -0x1.f4d31d85b4f19p-17, 0x1.b9ed71fb0f591p-20,
                               -0x1.5f8e4d240cd84p-23, 0x1.fc0d5c2ee7653p-27,  -0x1.452ac54f53ebbp-30,
                               0x1.25ec3cb65512ap-34};
    return vf64_fma(vf64_horner(vf64_mul(x, x), c, 13), x, x);
}

/* erfc a for a in [1/2, 28]: e^(-a^2) / (1 + 2a) * G(t), t = (a - 3) / (a + 3), where
   G = (1 + 2a) e^(a^2) erfc(a) stays between 1.1 and 1.3 (the substitution is that of Shepherd and
   Laframboise, 1981). G is a Chebyshev fit on [1/2, 28] with relative error 2^-54.3. What a^2 loses
   by rounding is put back into the reduced argument of exp. */
SIMD_INLINE vf64 vf64_erfc_large(vf64 a) {
    static const double c[] = {0x1.40c522d7e4987p0,    -0x1.15c084bb9e8eap-3,  -0x1.85a15c58a9c26p-5,
                               0x1.098366a5b4294p-3,   -0x1.e88b803a5c4acp-4,  0x1.17ca287805872p-4,
                               -0x1.8574c40478baap-6,  0x1.4b884e13bb9bbp-9,   0x1.ef1bd7888e996p-10,
                               -0x1.98db48ebd48e5p-11, -0x1.b90fda1c686bep-14, 0x1.06595e0ffcdd2p-13,
                               0x1.4b6b176196b46p-18,  -0x1.511e89b4b6e14p-16, -0x1.7808d17420c1fp-21,
                               0x1.cf992f8be32ecp-19,  0x1.43d7dc6372ef1p-22,  -0x1.3a5f5d6076cf5p-21,
                               -0x1.63b002a9431b7p-24, 0x1.3490d0762f8e1p-24,  0x1.1440caa1ed3a8p-27};
    vf64 three = vf64_set1(3), t = vf64_div(vf64_sub(a, three), vf64_add(a, three));
    vf64 g = vf64_div(vf64_horner(t, c, 21), vf64_fma(a, vf64_set1(2), vf64_set1(1)));
    vf64 lost, square = vf64_two_prod(a, a, &lost), n, power;
    vf64 r = vf64_sub(vf64_reduce_log2(vf64_neg(square), 1023, &n, &power), lost);
    return vf64_scalef(vf64_fma(vf64_expm1_reduced(r), g, g), n);
}

SIMD_LONG vf64 vf64_erf(vf64 x) {
    vf64 a = vf64_minb(vf64_set1(6), vf64_abs(x)), one = vf64_set1(1);
    vf64 far = vf64_sub(one, vf64_erfc_large(a));
    vf64 y = vf64_select(vf64_lt(a, one), vf64_erf_small(a), far);
    return vf64_or(y, vf64_sign_of(x));
}

SIMD_LONG vf64 vf64_erfc(vf64 x) {
    vf64 a = vf64_minb(vf64_set1(28), vf64_abs(x));
    vf64 far = vf64_erfc_large(a);
    far = vf64_select(vf64_lt(x, vf64_zero()), vf64_sub(vf64_set1(2), far), far);
    vf64 near = vf64_sub(vf64_set1(1), vf64_erf_small(x));
    return vf64_select(vf64_lt(a, vf64_set1(0.5)), near, far);
}
