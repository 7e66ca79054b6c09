/* simd_derived.h - what follows from the primitives of an ISA header, the same text for all of
   them: signs, NaN-aware extrema, classification, exponents, tails of half-width types.
   Included by simd.h only. */

#define VF       vf32
#define VI       vi32
#define MF       mf32
#define T        float
#define VF_LANES VF32_LANES
#include "backends/cpu/simd/derived_type.h"
#define VF       vf64
#define VI       vi64
#define MF       mf64
#define T        double
#define VF_LANES VF64_LANES
#include "backends/cpu/simd/derived_type.h"

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
#define VF             vf32
#define VI             vi32
#define MF             mf32
#define T              float
#define TINY           0x1p-126f
#define SHIFT          23
#define BIAS           0x3f800000
#define THREE_QUARTERS 0x3f400000
#include "backends/cpu/simd/log_split.h"
#define VF             vf64
#define VI             vi64
#define MF             mf64
#define T              double
#define TINY           0x1p-1022
#define SHIFT          52
#define BIAS           0x3ff0000000000000
#define THREE_QUARTERS 0x3fe8000000000000
#include "backends/cpu/simd/log_split.h"
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
#define SIMD_HALF_N(NAME)                                              \
    SIMD_LONG vf32 vf32_load_##NAME##_n(const uint16_t *p, int n) {    \
        uint16_t lane[VF32_LANES] = {0};                               \
        for (int i = 0; i < VF32_LANES; i++)                           \
            if (i < n) lane[i] = p[i];                                 \
        return vf32_load_##NAME(lane);                                 \
    }                                                                  \
    SIMD_LONG void vf32_store_##NAME##_n(uint16_t *p, vf32 v, int n) { \
        uint16_t lane[VF32_LANES];                                     \
        vf32_store_##NAME(lane, v);                                    \
        for (int i = 0; i < VF32_LANES; i++)                           \
            if (i < n) p[i] = lane[i];                                 \
    }
SIMD_HALF_N(f16)
SIMD_HALF_N(bf16)
#undef SIMD_HALF_N
#endif
