/* vmath_trig.h - sin, cos, tan and their inverses, one text for f32 and f64 like vmath_shared.h;
   reductions and polynomials are in vmath_trig_parts.h. */

#ifndef SHARED_HAS_SIN
/* sin and cos from the octant: r in [-pi/4, pi/4], and the low two bits of *quadrant say which of
   sin r, cos r, -sin r, -cos r is meant. Arguments above TRIG_MAX and non-finite ones go to libm,
   lane by lane, whose reduction carries as many digits of pi as they need. */
SIMD_INLINE SVT SV(sin_quadrant)(SVT r, SVIT quadrant) {
    SVT z = SV(mul)(r, r), one = SK(1);
    SVT s = SV(fma)(SV(sin_poly)(z), SV(mul)(z, r), r);
    SVT c = SV(fma)(z, SV(fma)(z, SV(cos_poly)(z), SK(-0.5)), one);
    SMT odd = SVI(is_odd)(quadrant);
    SVT sign = SV(sign_of)(SV(from_bits)(SVI(shl)(quadrant, SC(MANTISSA) == 23 ? 30 : 62)));
    return SV(xor)(SV(select)(odd, c, s), sign);
}

SIMD_INLINE SVT SV(sin)(SVT x) {
    SVIT quadrant;
    SVT a = SV(abs)(x), r = SV(reduce_pi2)(a, &quadrant), y = SV(sin_quadrant)(r, quadrant);
    y = SV(xor)(y, SV(sign_of)(x));
    SMT fine = SV(le)(a, SK(SC(TRIG_MAX)));
    if (__builtin_expect(SM(all)(fine), 1)) return y;
    return SV(select)(fine, y, SV(map1)(SC(LIBM_SIN), x));
}

SIMD_INLINE SVT SV(cos)(SVT x) {
    SVIT quadrant;
    SVT a = SV(abs)(x), r = SV(reduce_pi2)(a, &quadrant);
    SVT y = SV(sin_quadrant)(r, SVI(add)(quadrant, SVI(set1)(1)));
    SMT fine = SV(le)(a, SK(SC(TRIG_MAX)));
    if (__builtin_expect(SM(all)(fine), 1)) return y;
    return SV(select)(fine, y, SV(map1)(SC(LIBM_COS), x));
}

#endif

/* tan r = sin r / cos r in even quadrants, -cos r / sin r in odd ones */
SIMD_INLINE SVT SV(tan)(SVT x) {
    SVIT quadrant;
    SVT a = SV(abs)(x), r = SV(reduce_pi2)(a, &quadrant), z = SV(mul)(r, r), one = SK(1);
    SVT s = SV(fma)(SV(sin_poly)(z), SV(mul)(z, r), r);
    SVT c = SV(fma)(z, SV(fma)(z, SV(cos_poly)(z), SK(-0.5)), one);
    SMT odd = SVI(is_odd)(quadrant);
    SVT y = SV(div)(SV(select)(odd, SV(neg)(c), s), SV(select)(odd, s, c));
    y = SV(xor)(y, SV(sign_of)(x));
    SMT fine = SV(le)(a, SK(SC(TRIG_MAX)));
    if (__builtin_expect(SM(all)(fine), 1)) return y;
    return SV(select)(fine, y, SV(map1)(SC(LIBM_TAN), x));
}

/* asin a = a + a^3 P(a^2) up to 1/2; above, asin a = pi/2 - 2 asin(sqrt((1 - a)/2)). asin_near gives
   asin(a) or asin(sqrt((1 - a)/2)) accordingly. */
SIMD_INLINE SVT SV(asin_near)(SVT a, SMT big) {
    SVT z = SV(mul)(SV(sub)(SK(1), a), SK(0.5));
    z = SV(select)(big, z, SV(mul)(a, a));
    SVT s = SV(select)(big, SV(sqrt)(z), a);
    return SV(fma)(SV(asin_poly)(z), SV(mul)(z, s), s);
}

SIMD_INLINE SVT SV(asin)(SVT x) {
    SVT a = SV(abs)(x), half_pi = SK(SC(PI_2)), tail = SK(SC(PI_2_TAIL));
    SMT big = SV(gt)(a, SK(0.5));
    SVT p = SV(asin_near)(a, big), far = SV(add)(SV(fnma)(SK(2), p, half_pi), tail);
    return SV(or)(SV(select)(big, far, p), SV(sign_of)(x));
}

SIMD_INLINE SVT SV(acos)(SVT x) {
    SVT a = SV(abs)(x), half_pi = SK(SC(PI_2)), tail = SK(SC(PI_2_TAIL)), zero = SV(zero)();
    SMT big = SV(gt)(a, SK(0.5)), negative = SV(lt)(x, zero);
    SVT p = SV(asin_near)(a, big), twice = SV(add)(p, p), pi = SV(add)(half_pi, half_pi);
    SVT left = SV(add)(SV(sub)(pi, twice), SV(add)(tail, tail));
    SVT far = SV(select)(negative, left, twice);
    SVT near = SV(sub)(half_pi, SV(sub)(SV(xor)(p, SV(sign_of)(x)), tail));
    return SV(select)(big, far, near);
}

/* Angle of the point (b, a), both >= 0. With n <= d the two in order, t = n / d, or (n - d) / (n + d)
   = tan(angle - pi/4) where that is nearer to 0: |t| <= tan(pi/8). */
SIMD_INLINE SVT SV(angle)(SVT a, SVT b) {
    SMT steep = SV(gt)(a, b);
    SVT n = SV(select)(steep, b, a), d = SV(select)(steep, a, b), zero = SV(zero)();
    SMT odd_case = SM(or)(SV(gt)(d, SK(SC(ANGLE_MAX))), SV(eq)(d, zero));
    if (__builtin_expect(SM(any)(odd_case), 0)) {
        SVT inf = SK(__builtin_inf()), one = SK(1);
        SMT far = SV(eq)(d, inf), huge = SV(gt)(d, SK(SC(ANGLE_MAX)));
        n = SV(select)(huge, SV(mul)(n, SK(0.25)), n);
        d = SV(select)(huge, SV(mul)(d, SK(0.25)), d);
        n = SV(select)(far, SV(select)(SV(eq)(n, inf), one, SV(mul)(n, zero)), n);
        d = SV(select)(SM(or)(far, SV(eq)(d, zero)), one, d);
    }
    SMT middle = SV(gt)(n, SV(mul)(d, SK(0.41421356237309503)));
    SVT t = SV(div)(SV(select)(middle, SV(sub)(n, d), n), SV(select)(middle, SV(add)(n, d), d));
    SVT z = SV(mul)(t, t), y = SV(mul)(SV(mul)(z, t), SV(atan_poly)(z));
    SVT tail = SK(0.5 * SC(PI_2_TAIL));
    y = SV(select)(middle, SV(add)(y, tail), y);
    y = SV(add)(SV(add)(y, t), SV(select)(middle, SK(0.5 * SC(PI_2)), zero));
    SVT steep_angle = SV(add)(SV(sub)(SK(SC(PI_2)), y), SK(SC(PI_2_TAIL)));
    return SV(select)(steep, steep_angle, y);
}

SIMD_INLINE SVT SV(atan)(SVT x) {
    SVT y = SV(angle)(SV(abs)(x), SK(1));
    return SV(select)(SV(isnan)(x), x, SV(or)(y, SV(sign_of)(x)));
}

SIMD_INLINE SVT SV(atan2)(SVT y, SVT x) {
    SVT r = SV(angle)(SV(abs)(y), SV(abs)(x)), pi = SK(2 * SC(PI_2)), tail = SK(2 * SC(PI_2_TAIL));
    SMT left = SV(lt)(SV(copysign)(SK(1), x), SV(zero)());
    r = SV(or)(SV(select)(left, SV(add)(SV(sub)(pi, r), tail), r), SV(sign_of)(y));
    return SV(select)(SM(or)(SV(isnan)(x), SV(isnan)(y)), SV(add)(x, y), r);
}
