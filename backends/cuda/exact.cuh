// Sums of floats that do not depend on the order, so that atomics may add them: fixed point, relative to the largest exponent of all that
// is added to one place (Demmel and Nguyen's reproducible summation, with one bin that is as wide as needed).
//
// An f32 or a half is one integer of 62 bits less those that the sum may grow by; an f64 is three limbs of 30 bits. Nothing but what lies
// below the last bit is lost, which is less than an f32 or f64 sum of the same numbers would round away. What is not finite is kept apart, as
// flags beside the exponent.
#pragma once

#include "backends/cuda/words.cuh"

enum { CT_PLUS_INFINITY = 1 << 16, CT_MINUS_INFINITY = 1 << 17, CT_NOT_A_NUMBER = 1 << 18, CT_NOT_FINITE = 7 << 16 };

CT_DEVICE uint32_t ct_flag(bool nan, bool negative) {
    return nan ? CT_NOT_A_NUMBER : negative ? CT_MINUS_INFINITY : CT_PLUS_INFINITY;
}

template <typename C> struct ct_exact;

template <> struct ct_exact<float> {
    static constexpr int LIMBS = 1;
    // The biased exponent, from 1 on, or a flag.
    CT_DEVICE static uint32_t exponent(float x) {
        const uint32_t bits = __float_as_uint(x), e = bits >> 23 & 0xff;
        return e == 0xff ? ct_flag(bits << 9 != 0, bits >> 31) : e ? e : 1;
    }
    // |x| < 2^(e - 126), so that x times this is below 2^(62 - growth).
    CT_DEVICE static int scale(uint32_t e, int growth) { return 62 - growth + 126 - (int)e; }
    CT_DEVICE static double power(int k) { return __longlong_as_double((long long)(1023 + k) << 52); }
    CT_DEVICE static void split(float x, uint32_t e, int growth, int64_t (&limbs)[1]) {
        limbs[0] = __double2ll_rn((double)x * power(scale(e, growth)));
    }
    CT_DEVICE static float join(const int64_t (&limbs)[1], uint32_t e, int growth) {
        return (float)((double)limbs[0] * power(-scale(e, growth)));
    }
};

template <> struct ct_exact<double> {
    static constexpr int LIMBS = 3;
    CT_DEVICE static uint32_t exponent(double x) {
        const uint64_t bits = (uint64_t)__double_as_longlong(x);
        const uint32_t e = (uint32_t)(bits >> 52) & 0x7ff;
        return e == 0x7ff ? ct_flag(bits << 12 != 0, bits >> 63) : e ? e : 1;
    }
    // |x| < 2^(e - 1022): the first limb is below 2^30, and each of the others takes 30 bits of what is left, exactly.
    CT_DEVICE static void split(double x, uint32_t e, int, int64_t (&limbs)[3]) {
        const double first = scalbn(x, 1052 - (int)e), a = trunc(first);
        const double second = (first - a) * 0x1p30, b = trunc(second);
        limbs[0] = (int64_t)a;
        limbs[1] = (int64_t)b;
        limbs[2] = __double2ll_rn((second - b) * 0x1p30);
    }
    CT_DEVICE static double join(const int64_t (&limbs)[3], uint32_t e, int) {
        const int64_t low = limbs[2], middle = limbs[1] + (low >> 30), high = limbs[0] + (middle >> 30);
        const int64_t rest = (middle & 0x3fffffff) << 30 | (low & 0x3fffffff); // of 60 bits
        return scalbn((double)high + (double)rest * 0x1p-60, (int)e - 1052);
    }
};

template <typename C> CT_DEVICE C ct_not_finite(uint32_t flags) {
    const bool both = (flags & CT_PLUS_INFINITY) && (flags & CT_MINUS_INFINITY);
    if ((flags & CT_NOT_A_NUMBER) || both) return (C)NAN;
    return flags & CT_MINUS_INFINITY ? (C)-INFINITY : (C)INFINITY;
}
