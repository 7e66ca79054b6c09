/* What follows from the primitives for one type of vector, a template: VF, its masks MF, its element T and its
   VF_LANES. Included by simd_derived.h. */
#define OF(x) CT_SIMD_PASTE(VF, CT_SIMD_PASTE(_, x))

SIMD_INLINE VF OF(zero)(void) { return OF(set1)(0); }
SIMD_INLINE VF OF(sign_of)(VF a) { return OF(and)(a, OF(set1)(-(T)0)); }
SIMD_INLINE VF OF(neg)(VF a) { return OF(xor)(a, OF(set1)(-(T)0)); }
SIMD_INLINE VF OF(abs)(VF a) { return OF(andnot)(OF(set1)(-(T)0), a); }
SIMD_INLINE VF OF(copysign)(VF a, VF sign) { return OF(or)(OF(abs)(a), OF(sign_of)(sign)); }
SIMD_INLINE VF OF(square)(VF a) { return OF(mul)(a, a); }
SIMD_INLINE VF OF(recip)(VF a) { return OF(div)(OF(set1)(1), a); }
SIMD_INLINE VF OF(rsqrt)(VF a) { return OF(div)(OF(set1)(1), OF(sqrt)(a)); }
SIMD_INLINE MF OF(isnan)(VF a) { return OF(ne)(a, a); }
SIMD_INLINE MF OF(isinf)(VF a) { return OF(eq)(OF(abs)(a), OF(set1)((T)__builtin_inf())); }
SIMD_INLINE MF OF(isfinite)(VF a) { return OF(lt)(OF(abs)(a), OF(set1)((T)__builtin_inf())); }
/* minb and maxb give b when either is NaN; only one side needs a repair */
SIMD_INLINE VF OF(max)(VF a, VF b) { return OF(select)(OF(isnan)(a), a, OF(maxb)(a, b)); }
SIMD_INLINE VF OF(min)(VF a, VF b) { return OF(select)(OF(isnan)(a), a, OF(minb)(a, b)); }
SIMD_INLINE VF OF(fmax)(VF a, VF b) { return OF(select)(OF(isnan)(b), a, OF(maxb)(a, b)); }
SIMD_INLINE VF OF(fmin)(VF a, VF b) { return OF(select)(OF(isnan)(b), a, OF(minb)(a, b)); }
SIMD_INLINE T OF(hmax)(VF v) {
    T lane[VF_LANES];
    _Pragma("GCC unroll 4") for (int width = VF_LANES / 2; width; width /= 2) v = OF(max)(v, OF(upper)(v, width));
    OF(store)(lane, v);
    return lane[0];
}
SIMD_INLINE T OF(hmin)(VF v) {
    T lane[VF_LANES];
    _Pragma("GCC unroll 4") for (int width = VF_LANES / 2; width; width /= 2) v = OF(min)(v, OF(upper)(v, width));
    OF(store)(lane, v);
    return lane[0];
}

/* f(x) lane by lane, for the functions that are honest scalar code */
SIMD_LONG VF OF(map1)(T (*f)(T), VF a) {
    T lane[VF_LANES];
    OF(store)(lane, a);
    for (int i = 0; i < VF_LANES; i++) lane[i] = f(lane[i]);
    return OF(load)(lane);
}

SIMD_LONG VF OF(map2)(T (*f)(T, T), VF a, VF b) {
    T lane[VF_LANES], other[VF_LANES];
    OF(store)(lane, a);
    OF(store)(other, b);
    for (int i = 0; i < VF_LANES; i++) lane[i] = f(lane[i], other[i]);
    return OF(load)(lane);
}

#undef OF
#undef VF
#undef VI
#undef MF
#undef T
#undef VF_LANES
