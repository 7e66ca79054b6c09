/* vmath_shared.h - exponentials, logarithms, hyperbolic functions and roots, one text for f32 and
   f64: vmath.h includes it twice. SV(op) is vf32_op or vf64_op, SM(op) the same for masks, SC(NAME)
   a constant of the type, SK(x) a vector of constants. */

/* minb and maxb give their second argument when either is NaN: so SV(clamp) lets NaN through. */
SIMD_INLINE SVT SV(clamp)(SVT x, SREAL low, SREAL high) { return SV(minb)(SK(high), SV(maxb)(SK(low), x)); }

#ifndef SHARED_HAS_EXP
/* x in [EXP_MIN, EXP_MAX] or NaN. Both ways round 2^n (1 + p) once, so a lane never feels its
   neighbors. */
SIMD_LONG SVT SV(exp_clamped)(SVT x) {
    SVT n, power, r = SV(reduce_log2)(x, SC(BIAS), &n, &power), p = SV(expm1_reduced)(r);
#ifndef SIMD_HAS_SCALEF
    if (__builtin_expect(!SM(any)(SV(gt)(SV(abs)(x), SK(SC(EXP_PLAIN)))), 1)) return SV(fma)(power, p, power);
#endif
    return SV(scalef)(SV(add)(SK(1), p), n);
}
#endif

SIMD_INLINE SVT SV(exp)(SVT x) { return SV(exp_clamped)(SV(clamp)(x, SC(EXP_MIN), SC(EXP_MAX))); }

/* 2^x = 2^n 2^f, f = x - n exact in [-1/2, 1/2] */
SIMD_INLINE SVT SV(exp2)(SVT x) {
    x = SV(clamp)(x, -SC(BIAS) - SC(MANTISSA) - 1, SC(BIAS) + 2);
    SVT place = SK(SC(PLACE)), n = SV(sub)(SV(add)(x, place), place);
    return SV(scalef)(SV(add)(SK(1), SV(exp2m1_reduced)(SV(sub)(x, n))), n);
}

/* e^x - 1 = 2 (2^(n-1) p + (2^(n-1) - 1/2)), p = e^r - 1. The factor 2 outside keeps 2^n finite at
   the overflow threshold. The sign of the result is that of x, -0 included. */
SIMD_LONG SVT SV(expm1)(SVT x) {
    SVT y = SV(clamp)(x, SC(EXPM1_MIN), SC(EXP_MAX));
    SVT n, half, r = SV(reduce_log2)(y, SC(BIAS) - 1, &n, &half), p = SV(expm1_reduced)(r);
    SVT h = SV(fma)(half, p, SV(sub)(half, SK(0.5)));
    return SV(or)(SV(add)(h, h), SV(sign_of)(x));
}

/* With e = exp(-|x|) in (0, 1]: sigmoid = 1 / (1 + e) for x >= 0 and e / (1 + e) for x < 0. Nothing
   overflows, and small results keep their relative accuracy down to subnormals. */
SIMD_INLINE SVT SV(sigmoid)(SVT x) {
    SVT minus = SV(or)(x, SK(-0.0)), one = SK(1);
    SVT e = SV(exp_clamped)(SV(maxb)(SK(SC(EXP_MIN)), minus));
    return SV(div_near)(SV(select)(SV(lt)(x, SV(zero)()), e, one), SV(add)(one, e));
}

#ifndef SHARED_HAS_TANH
/* |x| <= 5/8: x + x^3 P(x^2). Above: 1 - 2 / (e^(2|x|) + 1), where the subtraction no longer magnifies
   the error of the quotient. */
SIMD_LONG SVT SV(tanh)(SVT x) {
    SVT a = SV(minb)(SK(SC(TANH_ONE)), SV(abs)(x)), z = SV(mul)(a, a), one = SK(1);
    SVT near = SV(fma)(SV(tanh_small)(z), SV(mul)(z, a), a);
    SVT n, power, r = SV(reduce_log2)(SV(add)(a, a), SC(BIAS), &n, &power);
    SVT den = SV(fma)(power, SV(expm1_reduced)(r), SV(add)(power, one));
    SVT far = SV(sub)(one, SV(div)(SK(2), den));
    return SV(or)(SV(select)(SV(le)(a, SK(0.625)), near, far), SV(sign_of)(x));
}
#endif

/* e^x / 2 for x in [0, EXP_MAX + 1], finite as long as the result is */
SIMD_INLINE SVT SV(exp_half)(SVT x) {
    SVT n, power, r = SV(reduce_log2)(x, SC(BIAS), &n, &power);
    return SV(scalef)(SV(add)(SK(1), SV(expm1_reduced)(r)), SV(sub)(n, SK(1)));
}

SIMD_INLINE SVT SV(cosh)(SVT x) {
    SVT E = SV(exp_half)(SV(minb)(SK(SC(EXP_MAX) + 1), SV(abs)(x)));
    return SV(add)(E, SV(div)(SK(0.25), E));
}

SIMD_INLINE SVT SV(sinh)(SVT x) {
    SVT a = SV(minb)(SK(SC(EXP_MAX) + 1), SV(abs)(x)), z = SV(mul)(a, a), E = SV(exp_half)(a);
    SVT near = SV(fma)(SV(sinh_small)(z), SV(mul)(z, a), a);
    SVT far = SV(sub)(E, SV(div)(SK(0.25), E));
    return SV(or)(SV(select)(SV(lt)(a, SK(1)), near, far), SV(sign_of)(x));
}

/* e log 2 + log(1 + f); head and tail of log 2 have the same sign, so that e = +-infinity works */
SIMD_INLINE SVT SV(log_join)(SVT e, SVT f) {
    SVT t = SV(fma)(e, SK(SC(LOG2_TAIL)), SV(log1p_tail)(f));
    return SV(fma)(e, SK(SC(LOG2_HEAD)), SV(add)(t, f));
}

#ifndef SHARED_HAS_LOG
SIMD_LONG SVT SV(log)(SVT x) {
    SVT e, m = SV(log_split)(x, &e);
    return SV(log_join)(e, SV(sub)(m, SK(1)));
}
#endif

SIMD_INLINE SVT SV(log2)(SVT x) {
    SVT e, f = SV(sub)(SV(log_split)(x, &e), SK(1)), log_m = SV(add)(f, SV(log1p_tail)(f));
    SVT t = SV(fma)(log_m, SK(SC(INV_LOG2)), SV(mul)(log_m, SK(SC(INV_LOG2_TAIL))));
    return SV(add)(t, e);
}

SIMD_INLINE SVT SV(log10)(SVT x) {
    SVT e, f = SV(sub)(SV(log_split)(x, &e), SK(1)), log_m = SV(add)(f, SV(log1p_tail)(f));
    SVT t = SV(fma)(log_m, SK(SC(INV_LOG10)), SV(mul)(e, SK(SC(LOG10_2_TAIL))));
    return SV(fma)(e, SK(SC(LOG10_2_HEAD)), t);
}

/* u = 1 + x rounded, c = what the rounding lost. u = m 2^e; then 1 + x = 2^e (m + c 2^-e), and the
   correction joins m - 1 before the polynomial. Where e = 0 that sum is x itself. */
SIMD_LONG SVT SV(log1p)(SVT x) {
    SVT one = SK(1), u = SV(add)(one, x), back = SV(sub)(u, one);
    SVT c = SV(add)(SV(sub)(one, SV(sub)(u, back)), SV(sub)(x, back));
    c = SV(select)(SV(lt)(SV(abs)(x), SK(SC(BIG))), c, SV(zero)());
    SVT e, m = SV(log_split)(u, &e), bounded = SV(clamp)(e, -100, 100);
    SVT place = SV(sub)(SK((SREAL)(1ll << SC(MANTISSA)) + SC(BIAS)), bounded);
    SVT scale = SV(from_bits)(SVI(shl)(SV(bits)(place), SC(MANTISSA)));
    SVT f = SV(fma)(c, scale, SV(sub)(m, one));
    f = SV(select)(SV(eq)(e, SV(zero)()), x, f);
    return SV(or)(SV(log_join)(e, f), SV(sign_of)(x));
}

/* asinh a = log1p(a + a^2 / (1 + sqrt(1 + a^2))); above BIG it is log a + log 2 */
SIMD_INLINE SVT SV(asinh)(SVT x) {
    SVT a = SV(abs)(x), one = SK(1), z = SV(mul)(a, a);
    SVT w = SV(add)(a, SV(div)(z, SV(add)(one, SV(sqrt)(SV(add)(one, z)))));
    SMT big = SV(gt)(a, SK(SC(BIG)));
    SVT y = SV(log1p)(SV(select)(big, a, w));
    y = SV(add)(y, SV(select)(big, SK(0x1.62e42fefa39efp-1), SV(zero)()));
    return SV(or)(y, SV(sign_of)(x));
}

/* acosh x = log1p(t + sqrt(t (t + 2))), t = x - 1 */
SIMD_INLINE SVT SV(acosh)(SVT x) {
    SVT t = SV(sub)(x, SK(1)), w = SV(add)(t, SV(sqrt)(SV(mul)(t, SV(add)(t, SK(2)))));
    SMT big = SV(gt)(x, SK(SC(BIG)));
    SVT y = SV(log1p)(SV(select)(big, x, w));
    y = SV(add)(y, SV(select)(big, SK(0x1.62e42fefa39efp-1), SV(zero)()));
    return SV(select)(SV(lt)(x, SK(1)), SK(__builtin_nan("")), y);
}

/* atanh a = log1p(2 a / (1 - a)) / 2 */
SIMD_INLINE SVT SV(atanh)(SVT x) {
    SVT a = SV(abs)(x), w = SV(div)(SV(add)(a, a), SV(sub)(SK(1), a));
    return SV(or)(SV(mul)(SK(0.5), SV(log1p)(w)), SV(sign_of)(x));
}

/* |x| = b 2^(3q), b in [3/8, 3). z -> b^(-1/3) from a fit of relative error 2^-7.2 by steps that
   cube the error: z += z h (1/3 + 2/9 h), h = 1 - b z^3. Then y = b z^2, and one Newton step on
   y^3 = b with the derivative 3 y^2 = 3 / z^2. */
SIMD_INLINE SVT SV(cbrt)(SVT x) {
    static const SREAL c[] = {(SREAL)0x1.dae2a71d34e29p0, (SREAL)-0x1.a152daf84b1a7p0, (SREAL)0x1.11ea16f9f3942p0,
                              (SREAL)-0x1.5db2f2ad6aa2dp-2, (SREAL)0x1.5039e2cd4daf5p-5};
    SVT e, b = SV(log_split)(SV(abs)(x), &e), place = SK(SC(PLACE)), one = SK(1);
    e = SV(clamp)(e, -2000, 2000);
    SVT q = SV(sub)(SV(fma)(e, SK(1.0 / 3), place), place), left = SV(fnma)(q, SK(3), e);
    b = SV(select)(SV(gt)(left, SV(zero)()), SV(add)(b, b), b);
    b = SV(select)(SV(lt)(left, SV(zero)()), SV(mul)(b, SK(0.5)), b);
    SVT z = SV(horner)(b, c, 5);
    for (int i = 0; i < (sizeof(SREAL) == 4 ? 1 : 2); i++) {
        SVT h = SV(fnma)(b, SV(mul)(SV(mul)(z, z), z), one);
        z = SV(fma)(SV(mul)(z, h), SV(fma)(h, SK(2.0 / 9), SK(1.0 / 3)), z);
    }
    SVT z2 = SV(mul)(z, z), y = SV(mul)(b, z2), rest = SV(fnma)(SV(mul)(y, y), y, b);
    y = SV(scalef)(SV(fma)(SV(mul)(rest, z2), SK(1.0 / 3), y), q);
    SMT plain = SM(and)(SV(isfinite)(x), SV(ne)(x, SV(zero)()));
    return SV(select)(plain, SV(or)(y, SV(sign_of)(x)), SV(add)(x, x));
}

/* An integral exponent keeps, an odd one copies the sign of the base. |r| = |x|^|..| comes in as r;
   here it gets its sign and the special values of C99 Annex F. */
SIMD_INLINE SVT SV(pow_special)(SVT x, SVT y, SVT r) {
    SVT half = SV(mul)(y, SK(0.5)), one = SK(1), inf = SK(__builtin_inf()), nan = SK(__builtin_nan(""));
    SMT integral = SV(eq)(SV(round)(y), y), even = SV(eq)(SV(round)(half), half);
    SMT odd = SM(and)(integral, SM(not )(even));
    r = SV(select)(odd, SV(or)(r, SV(sign_of)(x)), r);
    SMT finite_negative = SM(and)(SV(lt)(x, SV(zero)()), SV(gt)(x, SV(neg)(inf)));
    r = SV(select)(SM(and)(finite_negative, SM(not )(integral)), nan, r);
    r = SV(select)(SM(or)(SV(isnan)(x), SV(isnan)(y)), nan, r);
    r = SV(select)(SM(or)(SV(eq)(x, one), SV(eq)(y, SV(zero)())), one, r);
    return SV(select)(SM(and)(SV(eq)(x, SK(-1)), SV(isinf)(y)), one, r);
}

/* The normal distribution function, erfc(t) / 2 with t = -x / sqrt 2. What t loses in rounding, rest, would count 2t times
   in the tail, where log erfc has slope -2t; elsewhere the correction is below the last place. Beyond 40 it is 0 or 1. */
SIMD_INLINE SVT SV(ndtr_any)(SVT x) {
    const SREAL root = (SREAL)-0.70710678118654752440L;
    x = SV(maxb)(SK(-40), SV(minb)(SK(40), x));
    SVT t = SV(mul)(x, SK(root)), rest = SV(fma_exact)(x, SK(root), SV(neg)(t));
    rest = SV(fma)(x, SK(-0.70710678118654752440L - root), rest);
    SVT factor = SV(fnma)(SV(maxb)(SV(zero)(), SV(add)(t, t)), rest, SK(1));
    return SV(mul)(SV(mul)(SK(0.5), SV(erfc)(t)), factor);
}
