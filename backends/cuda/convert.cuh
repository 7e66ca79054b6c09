// Single elements from one dtype to another, as the CPU converts them: floats to integers truncate and saturate with NaN as 0, integers wrap,
// and types that C lacks meet f32 on the way.
#pragma once

#include <cotangent.h>

#include "backends/cuda/words.cuh"

// ---- 8-bit floats ----

// Moved into place, an 8-bit float is an f32 whose exponent is too small by the difference of the biases; a multiplication mends that
// and makes normal numbers of subnormal ones. e4m3 has no infinity, and one NaN.
CT_DEVICE float ct_from_f8e4m3(uint8_t x) {
    const uint32_t magnitude = x & 0x7f;
    uint32_t bits = __float_as_uint(__uint_as_float(magnitude << 20) * 0x1p120f);
    if (magnitude == 0x7f) bits = 0x7fc00000u;
    return __uint_as_float(bits | (uint32_t)(x & 0x80) << 24);
}
CT_DEVICE float ct_from_f8e5m2(uint8_t x) {
    const uint32_t magnitude = x & 0x7f;
    uint32_t bits = __float_as_uint(__uint_as_float(magnitude << 21) * 0x1p112f);
    if (magnitude == 0x7c) bits = 0x7f800000u;
    if (magnitude > 0x7c) bits = 0x7fc00000u;
    return __uint_as_float(bits | (uint32_t)(x & 0x80) << 24);
}

// To nearest, ties to even: `shift` mantissa bits fall off, and a carry runs into the exponent. Below the smallest normal number,
// adding `unit` (whose last bit is the spacing there) rounds.
CT_DEVICE uint32_t ct_round_to_f8(uint32_t bits, int shift, uint32_t rebias, float least, float unit) {
    const uint32_t odd = bits >> shift & 1, half = (1u << (shift - 1)) - 1;
    const uint32_t normal = (bits + half + odd - rebias) >> shift;
    const uint32_t subnormal = __float_as_uint(__uint_as_float(bits) + unit) - __float_as_uint(unit);
    return bits < __float_as_uint(least) ? subnormal : normal;
}
CT_DEVICE uint8_t ct_to_f8e4m3(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffffu;
    uint32_t r = ct_round_to_f8(magnitude, 20, 120u << 23, 0x1p-6f, 0x1p14f);
    if (magnitude > __float_as_uint(464.0f)) r = 0x7f; // what is too large, or NaN, is NaN
    return (uint8_t)(sign | r);
}
CT_DEVICE uint8_t ct_to_f8e5m2(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffffu;
    uint32_t r = ct_round_to_f8(magnitude, 21, 112u << 23, 0x1p-14f, 0x1p7f);
    if (magnitude >= __float_as_uint(61440.0f)) r = 0x7c;
    if (magnitude > 0x7f800000u) r = 0x7e;
    return (uint8_t)(sign | r);
}

// ---- Integers ----

// Up to low it is least, from big on most; both are exact in F.
template <typename T, typename F> CT_DEVICE T ct_saturate(F x, F low, F big, T least, T most) {
    if (x <= low) return least;
    if (x >= big) return most;
    return x == x ? (T)x : (T)0;
}
// A float saturates at the ends of T; an integer wraps.
template <typename T> struct ct_integer;
#define CT_INTEGER(T, LOW, BIG, LEAST, MOST)                                                                             \
    template <> struct ct_integer<T> {                                                                                   \
        CT_DEVICE static T of(float x) { return ct_saturate<T, float>(x, (float)(LOW), (float)(BIG), LEAST, MOST); }     \
        CT_DEVICE static T of(double x) { return ct_saturate<T, double>(x, (double)(LOW), (double)(BIG), LEAST, MOST); } \
        CT_DEVICE static T of(int64_t x) { return (T)x; }                                                                \
        CT_DEVICE static T of(uint64_t x) { return (T)x; }                                                               \
    };
CT_INTEGER(int8_t, -128, 128, INT8_MIN, INT8_MAX)
CT_INTEGER(int16_t, -32768, 32768, INT16_MIN, INT16_MAX)
CT_INTEGER(int32_t, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)
CT_INTEGER(int64_t, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)
CT_INTEGER(uint8_t, 0, 256, 0, UINT8_MAX)
CT_INTEGER(uint16_t, 0, 65536, 0, UINT16_MAX)
CT_INTEGER(uint32_t, 0, 0x1p32, 0, UINT32_MAX)
CT_INTEGER(uint64_t, 0, 0x1p64, 0, UINT64_MAX)

// ---- Every dtype ----

// How a dtype lies in memory, what its elements are widened to (f32, f64, i64 or u64) and how they come from each of these. Memory of bool and
// of 8-bit floats is bytes.
template <int D> struct ct_of_dtype;
#define CT_STORED(D, T, WIDE, LOAD, STORE)                                              \
    template <> struct ct_of_dtype<D> {                                                   \
        typedef T type;                                                                 \
        typedef WIDE wide;                                                              \
        CT_DEVICE static WIDE load(T x) { return LOAD; }                                \
        template <typename W> CT_DEVICE static T store(W x) { return STORE; }           \
    };
CT_STORED(CT_F32, float, float, x, (float)x)
CT_STORED(CT_F64, double, double, x, (double)x)
CT_STORED(CT_F16, __half, float, __half2float(x), __float2half_rn((float)x))
CT_STORED(CT_BF16, __nv_bfloat16, float, __bfloat162float(x), __float2bfloat16_rn((float)x))
CT_STORED(CT_I8, int8_t, int64_t, x, ct_integer<int8_t>::of(x))
CT_STORED(CT_I16, int16_t, int64_t, x, ct_integer<int16_t>::of(x))
CT_STORED(CT_I32, int32_t, int64_t, x, ct_integer<int32_t>::of(x))
CT_STORED(CT_I64, int64_t, int64_t, x, ct_integer<int64_t>::of(x))
CT_STORED(CT_U8, uint8_t, int64_t, x, ct_integer<uint8_t>::of(x))
CT_STORED(CT_BOOL, uint8_t, int64_t, x, (uint8_t)(x != 0))
CT_STORED(CT_U16, uint16_t, int64_t, x, ct_integer<uint16_t>::of(x))
CT_STORED(CT_U32, uint32_t, int64_t, x, ct_integer<uint32_t>::of(x))
CT_STORED(CT_U64, uint64_t, uint64_t, x, ct_integer<uint64_t>::of(x))
CT_STORED(CT_F8E4M3, uint8_t, float, ct_from_f8e4m3(x), ct_to_f8e4m3((float)x))
CT_STORED(CT_F8E5M2, uint8_t, float, ct_from_f8e5m2(x), ct_to_f8e5m2((float)x))
CT_STORED(CT_COMPLEX64, float2, float, x.x, make_float2((float)x, 0))

// use(tag) with the tag of a dtype that is known only when the kernel runs; T::value is it in code that is compiled for each.
template <int D> struct ct_dtype_tag {
    static constexpr int value = D;
};
template <typename F> CT_DEVICE void ct_by_dtype(int dtype, F use) {
    switch (dtype) {
    case CT_F32: use(ct_dtype_tag<CT_F32>()); break;
    case CT_F64: use(ct_dtype_tag<CT_F64>()); break;
    case CT_F16: use(ct_dtype_tag<CT_F16>()); break;
    case CT_BF16: use(ct_dtype_tag<CT_BF16>()); break;
    case CT_I8: use(ct_dtype_tag<CT_I8>()); break;
    case CT_I16: use(ct_dtype_tag<CT_I16>()); break;
    case CT_I32: use(ct_dtype_tag<CT_I32>()); break;
    case CT_I64: use(ct_dtype_tag<CT_I64>()); break;
    case CT_U8: use(ct_dtype_tag<CT_U8>()); break;
    case CT_BOOL: use(ct_dtype_tag<CT_BOOL>()); break;
    case CT_U16: use(ct_dtype_tag<CT_U16>()); break;
    case CT_U32: use(ct_dtype_tag<CT_U32>()); break;
    case CT_U64: use(ct_dtype_tag<CT_U64>()); break;
    case CT_F8E4M3: use(ct_dtype_tag<CT_F8E4M3>()); break;
    case CT_F8E5M2: use(ct_dtype_tag<CT_F8E5M2>()); break;
    case CT_COMPLEX64: use(ct_dtype_tag<CT_COMPLEX64>()); break;
    default: break;
    }
}
