/* f16 and bf16 to f32 and back, rounded to nearest with ties to even: a module links against nothing of the library. */
#ifndef COTANGENT_DIST_MPI_HALF_H
#define COTANGENT_DIST_MPI_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bf16(uint16_t half) { return float_of_bits((uint32_t)half << 16); }

static inline uint16_t bf16_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40); /* a NaN stays one */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float float_of_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    /* as f32 the exponent is 112 too small, which a product with 2^112 puts right, for subnormal numbers too */
    return float_of_bits(sign | bits_of_float(float_of_bits(rest << 13) * 0x1p112f));
}

static inline uint16_t f16_of_float(float value) {
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
    if (rest < 0x38800000) /* below 2^-14: adding 2^-1 leaves the multiples of 2^-24, rounded */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(rest) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

#endif
