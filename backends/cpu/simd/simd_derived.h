/* simd_derived.h - what follows from the primitives of an ISA header, the same text for all of
   them: signs, NaN-aware extrema, classification, exponents, tails of half-width types.
   Included by simd.h only. */

#define SIMD_DERIVED(VF, VI, MF, T, LANES)                                                             \
    SIMD_INLINE VF VF##_zero(void) { return VF##_set1(0); }                                            \
    SIMD_INLINE VF VF##_sign_of(VF a) { return VF##_and(a, VF##_set1(-(T)0)); }                        \
    SIMD_INLINE VF VF##_neg(VF a) { return VF##_xor(a, VF##_set1(-(T)0)); }                            \
    SIMD_INLINE VF VF##_abs(VF a) { return VF##_andnot(VF##_set1(-(T)0), a); }                         \
    SIMD_INLINE VF VF##_copysign(VF a, VF sign) { return VF##_or(VF##_abs(a), VF##_sign_of(sign)); }   \
    SIMD_INLINE VF VF##_square(VF a) { return VF##_mul(a, a); }                                        \
    SIMD_INLINE VF VF##_recip(VF a) { return VF##_div(VF##_set1(1), a); }                              \
    SIMD_INLINE VF VF##_rsqrt(VF a) { return VF##_div(VF##_set1(1), VF##_sqrt(a)); }                   \
    SIMD_INLINE MF VF##_isnan(VF a) { return VF##_ne(a, a); }                                          \
    SIMD_INLINE MF VF##_isinf(VF a) { return VF##_eq(VF##_abs(a), VF##_set1((T)__builtin_inf())); }    \
    SIMD_INLINE MF VF##_isfinite(VF a) { return VF##_lt(VF##_abs(a), VF##_set1((T)__builtin_inf())); } \
    /* minb and maxb give b when either is NaN; only one side needs a repair */                        \
    SIMD_INLINE VF VF##_max(VF a, VF b) { return VF##_select(VF##_isnan(a), a, VF##_maxb(a, b)); }     \
    SIMD_INLINE VF VF##_min(VF a, VF b) { return VF##_select(VF##_isnan(a), a, VF##_minb(a, b)); }     \
    SIMD_INLINE VF VF##_fmax(VF a, VF b) { return VF##_select(VF##_isnan(b), a, VF##_maxb(a, b)); }    \
    SIMD_INLINE VF VF##_fmin(VF a, VF b) { return VF##_select(VF##_isnan(b), a, VF##_minb(a, b)); }    \
    SIMD_INLINE T VF##_hmax(VF v) {                                                                    \
        T lane[LANES];                                                                                 \
        VF##_store(lane, v);                                                                           \
        for (int width = LANES / 2; width; width /= 2)                                                 \
            for (int i = 0; i < width; i++) {                                                          \
                T a = lane[i], b = lane[i + width];                                                    \
                lane[i] = a > b || a != a ? a : b;                                                     \
            }                                                                                          \
        return lane[0];                                                                                \
    }                                                                                                  \
    SIMD_INLINE T VF##_hmin(VF v) {                                                                    \
        T lane[LANES];                                                                                 \
        VF##_store(lane, v);                                                                           \
        for (int width = LANES / 2; width; width /= 2)                                                 \
            for (int i = 0; i < width; i++) {                                                          \
                T a = lane[i], b = lane[i + width];                                                    \
                lane[i] = a < b || a != a ? a : b;                                                     \
            }                                                                                          \
        return lane[0];                                                                                \
    }                                                                                                  \
    /* f(x) lane by lane, for the functions that are honest scalar code */                             \
    SIMD_INLINE VF VF##_map1(T (*f)(T), VF a) {                                                        \
        T lane[LANES];                                                                                 \
        VF##_store(lane, a);                                                                           \
        for (int i = 0; i < LANES; i++) lane[i] = f(lane[i]);                                          \
        return VF##_load(lane);                                                                        \
    }                                                                                                  \
    SIMD_INLINE VF VF##_map2(T (*f)(T, T), VF a, VF b) {                                               \
        T lane[LANES], other[LANES];                                                                   \
        VF##_store(lane, a);                                                                           \
        VF##_store(other, b);                                                                          \
        for (int i = 0; i < LANES; i++) lane[i] = f(lane[i], other[i]);                                \
        return VF##_load(lane);                                                                        \
    }

SIMD_DERIVED(vf32, vi32, mf32, float, VF32_LANES)
SIMD_DERIVED(vf64, vi64, mf64, double, VF64_LANES)
#undef SIMD_DERIVED

#ifndef SIMD_HAS_IS_ODD
SIMD_INLINE mf32 vi32_is_odd(vi32 a) { return vi32_eq(vi32_and(a, vi32_set1(1)), vi32_set1(1)); }
SIMD_INLINE mf64 vi64_is_odd(vi64 a) { return vi64_eq(vi64_and(a, vi64_set1(1)), vi64_set1(1)); }
#endif

/* a * 2^n for integral n, rounded once, |a| in [2^-2, 2^2] or so and |n| at most twice the largest
   exponent. 2^n is made as two factors, each in range, by adding an integer that puts n + bias
   into the low mantissa bits and shifting these into the exponent field. */
#ifndef SIMD_HAS_SCALEF
#define SIMD_SCALEF(VF, VI, PLACE, SHIFT)                                              \
    SIMD_INLINE VF VF##_scalef(VF a, VF n) {                                           \
        VF place = VF##_set1(PLACE), t = VF##_add(VF##_mul(n, VF##_set1(0.5)), place); \
        VF u = VF##_add(VF##_sub(n, VF##_sub(t, place)), place);                       \
        VF first = VF##_from_bits(VI##_shl(VF##_bits(t), SHIFT));                      \
        VF second = VF##_from_bits(VI##_shl(VF##_bits(u), SHIFT));                     \
        return VF##_mul(VF##_mul(a, first), second);                                   \
    }
SIMD_SCALEF(vf32, vi32, 0x1p23f + 127, 23)
SIMD_SCALEF(vf64, vi64, 0x1p52 + 1023, 52)
#undef SIMD_SCALEF
#endif

/* x = m * 2^e, m in [3/4, 3/2). The integer (bits - bits(3/4)) >> mantissa bits is e; the bias is
   added so that it stays positive under a logical shift. Zero gives e = -infinity, infinity
   e = infinity, negative and NaN m = NaN, so that e * log 2 + log m needs no further care. */
#ifndef SIMD_HAS_LOG_SPLIT
#define SIMD_LOG_SPLIT(VF, VI, MF, T, TINY, SHIFT, BIAS, THREE_QUARTERS)                \
    SIMD_INLINE VF VF##_log_split(VF x, VF *e) {                                        \
        VF inf = VF##_set1((T)__builtin_inf()), offset = VF##_zero();                   \
        MF fine = MF##_and(VF##_ge(x, VF##_set1(TINY)), VF##_lt(x, inf));               \
        if (__builtin_expect(!MF##_all(fine), 0)) {                                     \
            MF small = VF##_lt(x, VF##_set1(TINY)), zero = VF##_eq(x, VF##_zero());     \
            offset = VF##_select(small, VF##_set1(-(SHIFT + 2)), offset);               \
            offset = VF##_select(zero, VF##_neg(inf), offset);                          \
            offset = VF##_select(VF##_eq(x, inf), inf, offset);                         \
            MF bad = MF##_not(VF##_ge(x, VF##_zero()));                                 \
            offset = VF##_select(bad, VF##_set1((T)__builtin_nan("")), offset);         \
            x = VF##_select(small, VF##_mul(x, VF##_set1((T)(1ll << (SHIFT + 2)))), x); \
            x = VF##_select(MF##_or(zero, bad), VF##_set1(1), x);                       \
        }                                                                               \
        VI bits = VF##_bits(x), bias = VI##_set1(BIAS);                                 \
        VI shifted = VI##_add(bits, VI##_sub(bias, VI##_set1(THREE_QUARTERS)));         \
        VI k = VI##_shr(shifted, SHIFT);                                                \
        VF place = VF##_set1((T)(1ll << SHIFT));                                        \
        VF n = VF##_from_bits(VI##_or(k, VF##_bits(place)));                            \
        *e = VF##_add(VF##_sub(n, VF##_add(place, VF##_set1(BIAS >> SHIFT))), offset);  \
        return VF##_from_bits(VI##_sub(bits, VI##_sub(VI##_shl(k, SHIFT), bias)));      \
    }
SIMD_LOG_SPLIT(vf32, vi32, mf32, float, 0x1p-126f, 23, 0x3f800000, 0x3f400000)
SIMD_LOG_SPLIT(vf64, vi64, mf64, double, 0x1p-1022, 52, 0x3ff0000000000000, 0x3fe8000000000000)
#undef SIMD_LOG_SPLIT
#endif

/* f16 and bf16 in integer arithmetic, for ISAs without conversion instructions. */
#ifndef SIMD_HAS_HALF
SIMD_INLINE vi32 simd_load_u16(const uint16_t *p) {
    int32_t lane[VF32_LANES];
    vi32 v;
    for (int i = 0; i < VF32_LANES; i++) lane[i] = p[i];
    memcpy(&v, lane, sizeof v);
    return v;
}
SIMD_INLINE void simd_store_u16(uint16_t *p, vi32 v) {
    int32_t lane[VF32_LANES];
    memcpy(lane, &v, sizeof v);
    for (int i = 0; i < VF32_LANES; i++) p[i] = (uint16_t)lane[i];
}

/* Moved into place, an f16 is an f32 whose exponent is 112 too small; the multiplication mends
   that, and makes normal numbers of subnormal ones. */
SIMD_LONG vf32 vf32_load_f16(const uint16_t *p) {
    vi32 h = simd_load_u16(p), magnitude = vi32_and(h, vi32_set1(0x7fff));
    vi32 sign = vi32_shl(vi32_and(h, vi32_set1(0x8000)), 16), moved = vi32_shl(magnitude, 13);
    vi32 finite = vf32_bits(vf32_mul(vf32_from_bits(moved), vf32_set1(0x1p112f)));
    vi32 inf = vi32_or(moved, vi32_set1(0x7f800000)), nan = vi32_or(inf, vi32_set1(0x400000));
    inf = vi32_select(vi32_gt(magnitude, vi32_set1(0x7c00)), nan, inf);
    vi32 r = vi32_select(vi32_gt(magnitude, vi32_set1(0x7bff)), inf, finite);
    return vf32_from_bits(vi32_or(r, sign));
}
SIMD_LONG void vf32_store_f16(uint16_t *p, vf32 v) {
    vi32 bits = vf32_bits(vf32_abs(v)), sign = vi32_shr(vf32_bits(vf32_sign_of(v)), 16);
    vi32 odd = vi32_and(vi32_shr(bits, 13), vi32_set1(1));
    vi32 rounded = vi32_add(bits, vi32_add(odd, vi32_set1(0xfff - (112 << 23))));
    vi32 r = vi32_shr(rounded, 13);
    /* below 2^-14: 1/2 + |v| has the unit of f16 subnormals, 2^-24, as its last bit */
    vf32 half = vf32_set1(0.5f);
    vi32 subnormal = vi32_sub(vf32_bits(vf32_add(vf32_from_bits(bits), half)), vf32_bits(half));
    r = vi32_select(vi32_gt(vi32_set1(0x38800000), bits), subnormal, r);
    r = vi32_select(vi32_gt(bits, vi32_set1(0x477fefff)), vi32_set1(0x7c00), r);
    vi32 payload = vi32_and(vi32_shr(bits, 13), vi32_set1(0x3ff));
    vi32 nan = vi32_or(payload, vi32_set1(0x7e00));
    r = vi32_select(vi32_gt(bits, vi32_set1(0x7f800000)), nan, r);
    simd_store_u16(p, vi32_or(r, sign));
}
SIMD_INLINE vf32 vf32_load_bf16(const uint16_t *p) { return vf32_from_bits(vi32_shl(simd_load_u16(p), 16)); }
SIMD_LONG void vf32_store_bf16(uint16_t *p, vf32 v) {
    vi32 bits = vf32_bits(v), odd = vi32_and(vi32_shr(bits, 16), vi32_set1(1));
    vi32 up = vi32_add(bits, vi32_add(odd, vi32_set1(0x7fff)));
    vi32 quiet = vi32_or(bits, vi32_set1(0x400000));
    simd_store_u16(p, vi32_shr(vi32_select(vf32_isnan(v), quiet, up), 16));
}
#endif

#ifndef SIMD_HAS_HALF_N
#define SIMD_HALF_N(NAME)                                                \
    SIMD_INLINE vf32 vf32_load_##NAME##_n(const uint16_t *p, int n) {    \
        uint16_t lane[VF32_LANES] = {0};                                 \
        for (int i = 0; i < VF32_LANES; i++)                             \
            if (i < n) lane[i] = p[i];                                   \
        return vf32_load_##NAME(lane);                                   \
    }                                                                    \
    SIMD_INLINE void vf32_store_##NAME##_n(uint16_t *p, vf32 v, int n) { \
        uint16_t lane[VF32_LANES];                                       \
        vf32_store_##NAME(lane, v);                                      \
        for (int i = 0; i < VF32_LANES; i++)                             \
            if (i < n) p[i] = lane[i];                                   \
    }
SIMD_HALF_N(f16)
SIMD_HALF_N(bf16)
#undef SIMD_HALF_N
#endif
