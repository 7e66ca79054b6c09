/* Rounding without instructions for it, a template: VF, and BIG = 2^(p-1) of its p bits. Included by simd_base.h. */
#define OF(x) CT_SIMD_PASTE(VF, CT_SIMD_PASTE(_, x))

/* |x| + 2^(p-1) leaves no fraction bits, so the addition itself rounds to the nearest integer,
   ties to even. Values from 2^(p-1) on (and NaN, infinity) are integral already. */
SIMD_LONG VF OF(round)(VF x) {
    VF sign = OF(and)(x, OF(set1)(-0.0)), a = OF(xor)(x, sign);
    VF r = (a + BIG) - BIG;
    return OF(or)(OF(select)(OF(lt)(a, OF(set1)(BIG)), r, a), sign);
}

SIMD_LONG VF OF(floor)(VF x) {
    VF r = OF(round)(x), one = OF(set1)(1);
    VF down = r - OF(and)(OF(from_bits)(OF(gt)(r, x)), one);
    return OF(or)(down, OF(and)(x, OF(set1)(-0.0)));
}

SIMD_INLINE VF OF(ceil)(VF x) {
    VF minus = OF(set1)(-0.0);
    return OF(xor)(OF(floor)(OF(xor)(x, minus)), minus);
}

SIMD_INLINE VF OF(trunc)(VF x) {
    VF sign = OF(and)(x, OF(set1)(-0.0));
    return OF(or)(OF(floor)(OF(xor)(x, sign)), sign);
}

#undef OF
#undef VF
#undef BIG
