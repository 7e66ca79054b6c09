// The vocabulary of elementwise formulas on the device: floats, integers that wrap after every step as the CPU's do, and truth values.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>
#include <stdint.h>

#define CT_DEVICE __device__ __forceinline__

// ---- Types that are computed in ----

// U does not promote, so arithmetic in it wraps.
template <typename T, typename U> struct ct_whole {
    T v;
    ct_whole() = default;
    CT_DEVICE ct_whole(int x) : v((T)x) {}
    CT_DEVICE ct_whole(double x) : v((T)(int64_t)x) {}
    CT_DEVICE static ct_whole of(T x) {
        ct_whole w;
        w.v = x;
        return w;
    }
    CT_DEVICE ct_whole operator+(ct_whole b) const { return of((T)((U)v + (U)b.v)); }
    CT_DEVICE ct_whole operator-(ct_whole b) const { return of((T)((U)v - (U)b.v)); }
    CT_DEVICE ct_whole operator*(ct_whole b) const { return of((T)((U)v * (U)b.v)); }
    CT_DEVICE ct_whole operator-() const { return of((T)((U)0 - (U)v)); }
    CT_DEVICE ct_whole operator&(ct_whole b) const { return of((T)(v & b.v)); }
    CT_DEVICE ct_whole operator|(ct_whole b) const { return of((T)(v | b.v)); }
    CT_DEVICE ct_whole operator^(ct_whole b) const { return of((T)(v ^ b.v)); }
    CT_DEVICE bool operator==(ct_whole b) const { return v == b.v; }
    CT_DEVICE bool operator!=(ct_whole b) const { return v != b.v; }
    CT_DEVICE bool operator<(ct_whole b) const { return v < b.v; }
    CT_DEVICE bool operator<=(ct_whole b) const { return v <= b.v; }
    CT_DEVICE bool operator>(ct_whole b) const { return v > b.v; }
    CT_DEVICE bool operator>=(ct_whole b) const { return v >= b.v; }
};
typedef ct_whole<int8_t, uint32_t> ct_i8;
typedef ct_whole<int16_t, uint32_t> ct_i16;
typedef ct_whole<int32_t, uint32_t> ct_i32;
typedef ct_whole<int64_t, uint64_t> ct_i64;
typedef ct_whole<uint8_t, uint32_t> ct_u8;

// An integer of one bit.
struct ct_b8 {
    uint8_t v;
    ct_b8() = default;
    CT_DEVICE ct_b8(int x) : v(x != 0) {}
    CT_DEVICE ct_b8(double x) : v(x != 0) {}
    CT_DEVICE ct_b8 operator+(ct_b8 b) const { return ct_b8(v | b.v); }
    CT_DEVICE ct_b8 operator*(ct_b8 b) const { return ct_b8(v & b.v); }
    CT_DEVICE ct_b8 operator&(ct_b8 b) const { return ct_b8(v & b.v); }
    CT_DEVICE ct_b8 operator|(ct_b8 b) const { return ct_b8(v | b.v); }
    CT_DEVICE ct_b8 operator^(ct_b8 b) const { return ct_b8(v ^ b.v); }
    CT_DEVICE bool operator==(ct_b8 b) const { return v == b.v; }
    CT_DEVICE bool operator!=(ct_b8 b) const { return v != b.v; }
    CT_DEVICE bool operator<(ct_b8 b) const { return v < b.v; }
    CT_DEVICE bool operator<=(ct_b8 b) const { return v <= b.v; }
    CT_DEVICE bool operator>(ct_b8 b) const { return v > b.v; }
    CT_DEVICE bool operator>=(ct_b8 b) const { return v >= b.v; }
};

// ---- In and out of memory ----

template <typename C> struct ct_loader;
template <> struct ct_loader<float> {
    CT_DEVICE static float load(float x) { return x; }
    CT_DEVICE static float load(__half x) { return __half2float(x); }
    CT_DEVICE static float load(__nv_bfloat16 x) { return __bfloat162float(x); }
};
template <> struct ct_loader<double> {
    CT_DEVICE static double load(double x) { return x; }
};
template <typename T, typename U> struct ct_loader<ct_whole<T, U>> {
    CT_DEVICE static ct_whole<T, U> load(T x) { return ct_whole<T, U>::of(x); }
};
template <> struct ct_loader<ct_b8> {
    CT_DEVICE static ct_b8 load(uint8_t x) { return ct_b8((int)x); }
};
template <typename C, typename S> CT_DEVICE C ct_load(S x) { return ct_loader<C>::load(x); }
template <typename C> CT_DEVICE C ct_from_bool(uint8_t x) { return C(x != 0 ? 1 : 0); }
CT_DEVICE bool ct_truth(float x) { return x != 0; }
CT_DEVICE bool ct_truth(double x) { return x != 0; }
CT_DEVICE bool ct_truth(ct_b8 x) { return x.v != 0; }
template <typename T, typename U> CT_DEVICE bool ct_truth(ct_whole<T, U> x) { return x.v != 0; }

template <typename R> struct ct_storer {
    CT_DEVICE static R store(R x) { return x; }
    template <typename U> CT_DEVICE static R store(ct_whole<R, U> x) { return x.v; }
};
template <> struct ct_storer<uint8_t> {
    CT_DEVICE static uint8_t store(bool x) { return x; }
    CT_DEVICE static uint8_t store(ct_b8 x) { return x.v; }
    CT_DEVICE static uint8_t store(ct_u8 x) { return x.v; }
};
template <> struct ct_storer<__half> {
    CT_DEVICE static __half store(float x) { return __float2half_rn(x); }
};
template <> struct ct_storer<__nv_bfloat16> {
    CT_DEVICE static __nv_bfloat16 store(float x) { return __float2bfloat16_rn(x); }
};
template <typename R, typename C> CT_DEVICE R ct_store(C x) { return ct_storer<R>::store(x); }

// An attribute in the type that is computed in; integers saturate.
template <typename C> struct ct_attribute;
template <> struct ct_attribute<float> {
    CT_DEVICE static float of(double x) { return (float)x; }
};
template <> struct ct_attribute<double> {
    CT_DEVICE static double of(double x) { return x; }
};
template <> struct ct_attribute<ct_b8> {
    CT_DEVICE static ct_b8 of(double x) { return ct_b8(x > 0 ? 1 : 0); }
};
template <typename T, typename U> struct ct_attribute<ct_whole<T, U>> {
    CT_DEVICE static ct_whole<T, U> of(double x) {
        const bool negative = (T)-1 < (T)1;
        const int bits = 8 * (int)sizeof(T) - negative;
        const double end = ldexp(1.0, bits), low = negative ? -end : 0;
        const T top = (T)(((uint64_t)1 << bits) - 1);
        return ct_whole<T, U>::of(x != x ? (T)0 : x <= low ? (T)low : x >= end - (sizeof(T) < 8) ? top : (T)x);
    }
};

// The largest finite value of a type in memory.
template <typename S> CT_DEVICE double ct_highest() { return DBL_MAX; }
template <> CT_DEVICE double ct_highest<float>() { return FLT_MAX; }
template <> CT_DEVICE double ct_highest<__half>() { return 65504.0; }
template <> CT_DEVICE double ct_highest<__nv_bfloat16>() { return 0x1.fep127; }

// ---- Words on floats ----

#define CT_WORD1(name, single, twice)                       \
    CT_DEVICE float ct_##name(float x) { return single; }   \
    CT_DEVICE double ct_##name(double x) { return twice; }
#define CT_WORD2(name, single, twice)                                 \
    CT_DEVICE float ct_##name(float x, float z) { return single; }    \
    CT_DEVICE double ct_##name(double x, double z) { return twice; }

CT_WORD1(abs, fabsf(x), fabs(x))
CT_WORD1(sign, fabsf(x) > 0 ? copysignf(1, x) : x, fabs(x) > 0 ? copysign(1.0, x) : x)
CT_WORD1(sqrt, sqrtf(x), sqrt(x))
CT_WORD1(rsqrt, 1 / sqrtf(x), 1 / sqrt(x))
CT_WORD1(cbrt, cbrtf(x), cbrt(x))
CT_WORD1(recip, 1 / x, 1 / x)
CT_WORD1(square, x *x, x *x)
CT_WORD1(exp, expf(x), exp(x))
CT_WORD1(exp2, exp2f(x), exp2(x))
CT_WORD1(expm1, expm1f(x), expm1(x))
CT_WORD1(log, logf(x), log(x))
CT_WORD1(log2, log2f(x), log2(x))
CT_WORD1(log10, log10f(x), log10(x))
CT_WORD1(log1p, log1pf(x), log1p(x))
CT_WORD1(sin, sinf(x), sin(x))
CT_WORD1(cos, cosf(x), cos(x))
CT_WORD1(tan, tanf(x), tan(x))
CT_WORD1(asin, asinf(x), asin(x))
CT_WORD1(acos, acosf(x), acos(x))
CT_WORD1(atan, atanf(x), atan(x))
CT_WORD1(sinh, sinhf(x), sinh(x))
CT_WORD1(cosh, coshf(x), cosh(x))
CT_WORD1(tanh, tanhf(x), tanh(x))
CT_WORD1(asinh, asinhf(x), asinh(x))
CT_WORD1(acosh, acoshf(x), acosh(x))
CT_WORD1(atanh, atanhf(x), atanh(x))
CT_WORD1(erf, erff(x), erf(x))
CT_WORD1(erfc, erfcf(x), erfc(x))
CT_WORD1(erfinv, erfinvf(x), erfinv(x))
CT_WORD1(lgamma, lgammaf(x), lgamma(x))
CT_WORD1(floor, floorf(x), floor(x))
CT_WORD1(ceil, ceilf(x), ceil(x))
CT_WORD1(round, rintf(x), rint(x))
CT_WORD1(trunc, truncf(x), trunc(x))
CT_WORD2(max, x != x || x > z ? x : z, x != x || x > z ? x : z)
CT_WORD2(min, x != x || x < z ? x : z, x != x || x < z ? x : z)
CT_WORD2(fmax, fmaxf(x, z), fmax(x, z))
CT_WORD2(fmin, fminf(x, z), fmin(x, z))
CT_WORD2(pow, powf(x, z), pow(x, z))
CT_WORD2(atan2, atan2f(x, z), atan2(x, z))
CT_WORD2(hypot, hypotf(x, z), hypot(x, z))
CT_WORD2(copysign, copysignf(x, z), copysign(x, z))
CT_WORD2(fmod, fmodf(x, z), fmod(x, z))
CT_DEVICE float ct_fma(float x, float z, float w) { return fmaf(x, z, w); }
CT_DEVICE double ct_fma(double x, double z, double w) { return fma(x, z, w); }

// The units' own approximations, to about an ulp, of what is neither large nor subnormal.
CT_DEVICE float ct_fast_exp2(float x) {
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return exp2f(x);
#endif
}
CT_DEVICE float ct_fast_recip(float x) {
#ifdef __CUDA_ARCH__
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return 1 / x;
#endif
}

// The quotient by the unit's reciprocal and one step of Newton's: a division takes registers, and threads with them, for
// divisors that do not occur here.
CT_DEVICE float ct_sigmoid(float x) {
    const float e = ct_exp(-ct_abs(x)), above = x < 0 ? e : 1, below = 1 + e;
    const float r = ct_fast_recip(below), quotient = above * r;
    return fmaf(fmaf(-quotient, below, above), r, quotient);
}
CT_DEVICE double ct_sigmoid(double x) {
    const double e = ct_exp(-ct_abs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

// The normal distribution function: at -a it is exp(-a^2 / 2) t P(t) with t = 1 / (1 + 0.35 a), where P is fitted (Remez, relative to the
// function, 3e-8). What a^2 and its product with 1 / log 2 lose by rounding goes into the factor 1 + r. normcdff takes three times as
// many instructions, and gelu would wait for them instead of for memory.
CT_DEVICE float ct_ndtr(float x) {
    const float a = fabsf(x) > 15 ? 15.0f : fabsf(x); // NaN stays
    const float square = a * a, rest = fmaf(a, a, -square), power = square * -0.72134752f;
    float r = fmaf(power, -0.693147182464599609375f, -0.5f * square);
    r = fmaf(rest, -0.5f, fmaf(power, 1.904654323e-9f, r));
    const float e = ct_fast_exp2(power), t = ct_fast_recip(fmaf(a, 0.35f, 1));
    float p = -0.0291581007f;
    p = fmaf(p, t, 0.144031921f);
    p = fmaf(p, t, -0.255840966f);
    p = fmaf(p, t, 0.159321801f);
    p = fmaf(p, t, -0.0232137000f);
    p = fmaf(p, t, 0.105553025f);
    p = fmaf(p, t, 0.119821168f);
    p = fmaf(p, t, 0.139863530f);
    p = fmaf(p, t, 0.139621306f);
    const float tail = p * t * fmaf(e, r, e);
    return x < 0 ? tail : 1 - tail;
}
CT_DEVICE double ct_ndtr(double x) { return normcdf(x); }

// Words of results that are stored in 16 bits: to 1e-5, an eighth of the last bit of an f16, in few instructions. There are twice as many
// elements in as many bytes, so that arithmetic would take longer than memory.
CT_DEVICE float ct_rough_exp(float x) { return ct_fast_exp2(x * 1.44269504f); }
CT_DEVICE float ct_rough_sigmoid(float x) {
    const float e = ct_rough_exp(-fabsf(x));
    return (x < 0 ? e : 1) * ct_fast_recip(1 + e);
}
CT_DEVICE float ct_rough_ndtr(float x) {
    const float t = ct_fast_recip(fmaf(fabsf(x), 0.3f, 1));
    float p = -0.0767009754f;
    p = fmaf(p, t, 0.214850040f);
    p = fmaf(p, t, -0.0155986569f);
    p = fmaf(p, t, 0.143473883f);
    p = fmaf(p, t, 0.113922725f);
    p = fmaf(p, t, 0.120057425f);
    const float tail = p * t * ct_fast_exp2(x * x * -0.72134752f);
    return x < 0 ? tail : 1 - tail;
}

#define CT_FLOAT_WORDS(T)                                                                     \
    CT_DEVICE bool ct_isnan(T x) { return x != x; }                                           \
    CT_DEVICE bool ct_isinf(T x) { return ct_abs(x) == (T)INFINITY; }                         \
    CT_DEVICE bool ct_isfinite(T x) { return ct_abs(x) < (T)INFINITY; }                       \
    /* It has the divisor's sign. */                                                          \
    CT_DEVICE T ct_remainder(T x, T z) {                                                      \
        const T r = ct_fmod(x, z);                                                            \
        return r == 0 ? ct_copysign((T)0, z) : (r < 0) != (z < 0) ? r + z : r;                \
    }                                                                                         \
    CT_DEVICE T ct_floor_div(T x, T z) {                                                      \
        if (z == 0) return x / z;                                                             \
        const T r = ct_fmod(x, z);                                                            \
        T q = (x - r) / z;                                                                    \
        if (r != 0 && (z < 0) != (r < 0)) q -= 1;                                             \
        return q == 0 ? ct_copysign((T)0, x / z) : ct_round(q);                               \
    }
CT_FLOAT_WORDS(float)
CT_FLOAT_WORDS(double)

// Recurrence up to 20, then the asymptotic series; reflection for negative numbers.
__device__ inline double ct_digamma(double x) {
    const double pi = 3.14159265358979323846;
    double more = 0;
    if (x == 0) return copysign((double)INFINITY, -x);
    if (x < 0) {
        if (x == floor(x)) return NAN;
        more = -pi / tan(pi * (x - floor(x)));
        x = 1 - x;
    }
    double sum = 0;
    for (; x < 20; x += 1) sum -= 1 / x;
    const double r = 1 / (x * x);
    return more + sum + log(x) - 0.5 / x - r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r * (1. / 240 - r / 132))));
}
CT_DEVICE float ct_digamma(float x) { return (float)ct_digamma((double)x); }

// (-1)^(n+1) n! times the sum of 1 / (x + k)^(n+1), by Euler and Maclaurin from 20 + n on. One function for all elements: copied into packs of
// eight it took a minute of the compiler's time.
static __device__ __noinline__ double ct_polygamma(int n, double x) {
    const double bernoulli[] = {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6};
    if (n == 0) return ct_digamma(x);
    if (x <= 0 && x == floor(x)) return n % 2 ? (double)INFINITY : NAN;
    double sum = 0;
    const double factorial = tgamma(n + 1.);
    for (; x < 20 + n; x += 1) sum += factorial / pow(x, n + 1.);
    sum += factorial / n / pow(x, (double)n) + factorial / (2 * pow(x, n + 1.));
#pragma unroll 1
    for (int k = 1; k <= 7; k++)
        sum += bernoulli[k - 1] * tgamma(2. * k + n) / (tgamma(2. * k + 1) * pow(x, 2. * k + n));
    return n % 2 ? sum : -sum;
}
CT_DEVICE float ct_polygamma(int n, float x) { return (float)ct_polygamma(n, (double)x); }

template <typename C> CT_DEVICE C ct_select(bool c, C x, C z) { return c ? x : z; }

// The word that elements of S are computed with.
template <typename S> struct ct_is_half { static constexpr bool value = false; };
template <> struct ct_is_half<__half> { static constexpr bool value = true; };
template <> struct ct_is_half<__nv_bfloat16> { static constexpr bool value = true; };
#define CT_WORD_FOR(name)                                              \
    template <typename S, typename T> CT_DEVICE T ct_##name##_for(T x) { \
        if constexpr (ct_is_half<S>::value) return ct_rough_##name(x); \
        else return ct_##name(x);                                      \
    }
CT_WORD_FOR(exp)
CT_WORD_FOR(sigmoid)
CT_WORD_FOR(ndtr)

// ---- Words on integers ----

#define CT_INT template <typename T, typename U> CT_DEVICE
#define CT_W   ct_whole<T, U>

CT_INT CT_W ct_fma(CT_W a, CT_W b, CT_W c) { return a * b + c; }
CT_INT CT_W ct_square(CT_W a) { return a * a; }
CT_INT CT_W ct_abs(CT_W a) { return a.v < 0 ? -a : a; }
CT_INT CT_W ct_sign(CT_W a) { return CT_W((a.v > 0) - (a.v < 0)); }
CT_INT CT_W ct_floor(CT_W a) { return a; }
CT_INT CT_W ct_ceil(CT_W a) { return a; }
CT_INT CT_W ct_round(CT_W a) { return a; }
CT_INT CT_W ct_trunc(CT_W a) { return a; }
CT_INT CT_W ct_max(CT_W a, CT_W b) { return a.v > b.v ? a : b; }
CT_INT CT_W ct_min(CT_W a, CT_W b) { return a.v < b.v ? a : b; }
CT_INT CT_W ct_fmax(CT_W a, CT_W b) { return a.v > b.v ? a : b; }
CT_INT CT_W ct_fmin(CT_W a, CT_W b) { return a.v < b.v ? a : b; }
CT_INT bool ct_isnan(CT_W) { return false; }
CT_INT bool ct_isinf(CT_W) { return false; }
CT_INT bool ct_isfinite(CT_W) { return true; }
CT_INT bool ct_is_minus_one(CT_W b) { return (T)-1 < (T)1 && b.v == (T)-1; }
CT_INT CT_W ct_fmod(CT_W a, CT_W b) { return b.v == 0 || ct_is_minus_one(b) ? CT_W(0) : CT_W::of((T)(a.v % b.v)); }
CT_INT CT_W ct_remainder(CT_W a, CT_W b) {
    const CT_W r = ct_fmod(a, b);
    return r.v != 0 && (r.v < 0) != (b.v < 0) ? r + b : r;
}
CT_INT CT_W ct_floor_div(CT_W a, CT_W b) {
    if (b.v == 0) return CT_W(0);
    if (ct_is_minus_one(b)) return -a;
    const CT_W q = CT_W::of((T)(a.v / b.v)), r = CT_W::of((T)(a.v % b.v));
    return r.v != 0 && (r.v < 0) != (b.v < 0) ? q - CT_W(1) : q;
}
// a^-n is 1 / a^n towards zero: 0 but for a = 1 and a = -1.
CT_INT CT_W ct_pow(CT_W a, CT_W b) {
    if (b.v < 0) return a.v == 1 ? CT_W(1) : ct_is_minus_one(a) ? ((U)b.v & 1 ? a : CT_W(1)) : CT_W(0);
    U power = 1, square = (U)a.v;
    for (U n = (U)b.v; n; n >>= 1) {
        if (n & 1) power *= square;
        square *= square;
    }
    return CT_W::of((T)power);
}
CT_INT CT_W ct_band(CT_W a, CT_W b) { return a & b; }
CT_INT CT_W ct_bor(CT_W a, CT_W b) { return a | b; }
CT_INT CT_W ct_bxor(CT_W a, CT_W b) { return a ^ b; }
CT_INT CT_W ct_bnot(CT_W a) { return CT_W::of((T)~a.v); }
CT_INT CT_W ct_shl(CT_W a, CT_W b) {
    return b.v < 0 || (U)b.v >= 8 * sizeof(T) ? CT_W(0) : CT_W::of((T)((U)a.v << (U)b.v));
}
CT_INT CT_W ct_shr(CT_W a, CT_W b) {
    return b.v < 0 || (U)b.v >= 8 * sizeof(T) ? CT_W(a.v < 0 ? -1 : 0) : CT_W::of((T)(a.v >> b.v));
}

// ---- Words on truth values ----

CT_DEVICE ct_b8 ct_sign(ct_b8 a) { return a; }
CT_DEVICE ct_b8 ct_square(ct_b8 a) { return a; }
CT_DEVICE ct_b8 ct_max(ct_b8 a, ct_b8 b) { return a | b; }
CT_DEVICE ct_b8 ct_min(ct_b8 a, ct_b8 b) { return a & b; }
CT_DEVICE ct_b8 ct_fmax(ct_b8 a, ct_b8 b) { return a | b; }
CT_DEVICE ct_b8 ct_fmin(ct_b8 a, ct_b8 b) { return a & b; }
CT_DEVICE bool ct_isnan(ct_b8) { return false; }
CT_DEVICE bool ct_isinf(ct_b8) { return false; }
CT_DEVICE bool ct_isfinite(ct_b8) { return true; }
CT_DEVICE ct_b8 ct_band(ct_b8 a, ct_b8 b) { return a & b; }
CT_DEVICE ct_b8 ct_bor(ct_b8 a, ct_b8 b) { return a | b; }
CT_DEVICE ct_b8 ct_bxor(ct_b8 a, ct_b8 b) { return a ^ b; }
CT_DEVICE ct_b8 ct_bnot(ct_b8 a) { return ct_b8(a.v ^ 1); }
CT_DEVICE ct_b8 ct_shl(ct_b8 a, ct_b8 b) { return ct_b8(a.v & (b.v ^ 1)); }
CT_DEVICE ct_b8 ct_shr(ct_b8 a, ct_b8 b) { return ct_b8(a.v & (b.v ^ 1)); }
