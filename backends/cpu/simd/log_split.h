/* A number as mantissa and exponent, a template: VF with its integers VI, its masks MF and its element T; TINY is
   the least normal number, SHIFT the bits of the mantissa, BIAS the bits of 1 and THREE_QUARTERS those of 3/4.
   Included by simd_derived.h. */
#define OF(x)   CT_SIMD_PASTE(VF, CT_SIMD_PASTE(_, x))
#define IN(x)   CT_SIMD_PASTE(VI, CT_SIMD_PASTE(_, x))
#define MASK(x) CT_SIMD_PASTE(MF, CT_SIMD_PASTE(_, x))

SIMD_INLINE VF OF(log_split)(VF x, VF *e) {
    VF inf = OF(set1)((T)__builtin_inf()), offset = OF(zero)();
    MF fine = MASK(and)(OF(ge)(x, OF(set1)(TINY)), OF(lt)(x, inf));
    if (__builtin_expect(!MASK(all)(fine), 0)) {
        MF small = OF(lt)(x, OF(set1)(TINY)), zero = OF(eq)(x, OF(zero)());
        offset = OF(select)(small, OF(set1)(-(SHIFT + 2)), offset);
        offset = OF(select)(zero, OF(neg)(inf), offset);
        offset = OF(select)(OF(eq)(x, inf), inf, offset);
        MF bad = MASK(not )(OF(ge)(x, OF(zero)()));
        offset = OF(select)(bad, OF(set1)((T)__builtin_nan("")), offset);
        x = OF(select)(small, OF(mul)(x, OF(set1)((T)(1ll << (SHIFT + 2)))), x);
        x = OF(select)(MASK(or)(zero, bad), OF(set1)(1), x);
    }
    VI bits = OF(bits)(x), bias = IN(set1)(BIAS);
    VI shifted = IN(add)(bits, IN(sub)(bias, IN(set1)(THREE_QUARTERS)));
    VI k = IN(shr)(shifted, SHIFT);
    VF place = OF(set1)((T)(1ll << SHIFT));
    VF n = OF(from_bits)(IN(or)(k, OF(bits)(place)));
    *e = OF(add)(OF(sub)(n, OF(add)(place, OF(set1)(BIAS >> SHIFT))), offset);
    return OF(from_bits)(IN(sub)(bits, IN(sub)(IN(shl)(k, SHIFT), bias)));
}

#undef OF
#undef IN
#undef MASK
#undef VF
#undef VI
#undef MF
#undef T
#undef TINY
#undef SHIFT
#undef BIAS
#undef THREE_QUARTERS
