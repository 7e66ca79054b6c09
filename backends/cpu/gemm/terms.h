/* A float as the sum of three bf16: its first eight bits, the next eight and the last. Products of bf16 with sums in
 * f32 that take all three are then the product in f32 of an operand that is given in f32 with one of bf16, but for
 * the order of the sums. That is for matrix registers, where three products of bf16 take a fifth of the time of one
 * of f32; in vector registers they would take longer. */
#ifndef CT_BACKENDS_CPU_GEMM_TERMS_H
#define CT_BACKENDS_CPU_GEMM_TERMS_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/cpu/simd/simd.h"

enum { CT__TERMS = 3 };

typedef union ct__float_bits {
    float x;
    uint32_t u;
} ct__float_bits;

/* What is left of x without its first eight bits; exact. Infinity is all in the first. */
SIMD_INLINE ct__float_bits ct__rest(ct__float_bits x) {
    const ct__float_bits first = {.u = x.u & 0xffff0000u};
    return (ct__float_bits){.x = (x.u & 0x7fffffffu) == 0x7f800000u ? 0.0f : x.x - first.x};
}

/* The terms of n floats, `term` elements apart. */
static inline void ct__terms_of(const float *restrict x, int64_t n, uint16_t *restrict to, int64_t term) {
    uint16_t *restrict second = to + term, *restrict third = second + term;
    for (int64_t i = 0; i < n; i++) {
        const ct__float_bits a = {x[i]}, b = ct__rest(a), c = ct__rest(b);
        to[i] = (uint16_t)(a.u >> 16), second[i] = (uint16_t)(b.u >> 16), third[i] = (uint16_t)(c.u >> 16);
    }
}

/* The same of two rows in pairs, as the panels of pack_b have them; `term` pairs apart. */
static inline void ct__terms_in_pairs(const float *restrict x, const float *restrict x1, int64_t n,
                                      uint32_t *restrict to, int64_t term) {
    uint32_t *restrict second = to + term, *restrict third = second + term;
    for (int64_t i = 0; i < n; i++) {
        const ct__float_bits a = {x[i]}, b = ct__rest(a), c = ct__rest(b);
        const ct__float_bits a1 = {x1[i]}, b1 = ct__rest(a1), c1 = ct__rest(b1);
        to[i] = a.u >> 16 | (a1.u & 0xffff0000u);
        second[i] = b.u >> 16 | (b1.u & 0xffff0000u);
        third[i] = c.u >> 16 | (c1.u & 0xffff0000u);
    }
}

#endif
