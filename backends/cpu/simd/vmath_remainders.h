/* fmod, remainder and floor_div, a template: VF, its masks MF, its element T, fmod of LIBM, and LIMIT for exact
   quotients. Included by vmath_special.h. */
#define OF(x)   CT_SIMD_PASTE(VF, CT_SIMD_PASTE(_, x))
#define MASK(x) CT_SIMD_PASTE(MF, CT_SIMD_PASTE(_, x))

/* fmod: r = a - q b with q = trunc(a / b), exact by fma while |q| fits the mantissa, after which the
   rounding of the quotient may leave r one b off. Larger quotients, odd operands and ISAs without
   fma go to libm, lane by lane. remainder has the sign of the divisor; floor_div is the quotient
   that belongs to it, floor(a / b) computed without the rounding of a / b. */
SIMD_INLINE VF OF(fmod)(VF a, VF b) {
    if (!SIMD_HAS_FMA) return OF(map2)(LIBM, a, b);
    VF ratio = OF(div)(a, b), size = OF(abs)(b), zero = OF(zero)();
    MF fine = MASK(and)(OF(lt)(OF(abs)(ratio), OF(set1)(LIMIT)), OF(isfinite)(b));
    VF r = OF(copysign)(zero, a), rest = OF(fnma)(OF(trunc)(ratio), b, a);
    rest = OF(xor)(rest, OF(sign_of)(a)); /* as if a were positive */
    rest = OF(select)(OF(lt)(rest, zero), OF(add)(rest, size), rest);
    rest = OF(select)(OF(ge)(rest, size), OF(sub)(rest, size), rest);
    r = OF(or)(OF(abs)(rest), r);
    if (__builtin_expect(MASK(all)(fine), 1)) return r;
    return OF(select)(fine, r, OF(map2)(LIBM, a, b));
}

SIMD_INLINE MF OF(remainder_off)(VF r, VF b) {
    MF opposite = MASK(xor)(OF(lt)(r, OF(zero)()), OF(lt)(b, OF(zero)()));
    return MASK(and)(opposite, OF(ne)(r, OF(zero)()));
}

SIMD_INLINE VF OF(remainder)(VF a, VF b) {
    VF r = OF(fmod)(a, b);
    return OF(select)(OF(remainder_off)(r, b), OF(add)(r, b), r);
}

SIMD_INLINE VF OF(floor_div)(VF a, VF b) {
    VF ratio = OF(div)(a, b), r = OF(fmod)(a, b), one = OF(set1)(1);
    VF q = OF(round)(OF(div)(OF(sub)(a, r), b));
    q = OF(select)(OF(remainder_off)(r, b), OF(sub)(q, one), q);
    q = OF(select)(OF(eq)(q, OF(zero)()), OF(copysign)(OF(zero)(), ratio), q);
    return OF(select)(OF(eq)(b, OF(zero)()), ratio, q);
}

#undef OF
#undef MASK
#undef VF
#undef MF
#undef T
#undef LIBM
#undef LIMIT
