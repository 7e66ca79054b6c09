/* The transforms of Winograd's algorithm F(4x4,3x3), F(2x2,5x5) and F(5x5,2x2) in f32, after Lavin and Gray, Fast
 * Algorithms for Convolutional Neural Networks (CVPR 2016). What differs: the points of interpolation (below), and
 * strides and dilations, which are convolutions of stride 1 on each parity and phase of the pixels (winograd.h).
 * Private to ops/conv; included once per ISA.
 *
 * 4x4 outputs of a 3x3 kernel are computed from 6x6 inputs with 36 products per channel instead of 144, 2x2 outputs
 * of a 5x5 kernel or 5x5 outputs of a 2x2 kernel with 36 instead of 100:
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A
 * summed over channels inside the brackets, so that the sums are 36 matrix products. The interpolation points are 0,
 * +-5/8, +-3/2 and infinity: their coefficients are exact in f32, and they err half as much as 0, +-1, +-2. Line p
 * of A holds the powers of point p, as many as a tile has outputs; line p of G the powers up to the kernel's size,
 * scaled; B does not depend on how the 6 divide.
 *
 * Error against f64 for normal random data, relative to the root mean square of results with all their taps: root
 * mean square below 4.5e-7 + 7e-8 sqrt(C) for C channels, with those that strides and depth make of them, with 5x5
 * and 2x2 4.5e-7 + 8e-8 sqrt(C) (measured 4e-7 at 1, 8e-7 at 64, 1.5e-6 at 256; a direct f32 sum has 3e-7 at 64),
 * and the worst of a million results below 12 times that; without fused multiply-add half as much again. The
 * gradients are the same products transposed and keep the bound, the input gradient with C output channels, the
 * weight gradient with C tiles. Where fourth powers come both ways, in the corners of 5x5 results and of the weight
 * gradient of 5x5, and in volumes, the worst may be 20 times. tests/test_winograd.c and test_conv_grouped.c hold
 * them to it. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_LINES_H
#define COTANGENT_OPS_CONV_WINOGRAD_LINES_H

#include "backends/cpu/kernel.h"

enum { WINOGRAD_IN = 6, WINOGRAD_POINTS = 36, LANES = VF32_LANES };

#define POINT_A  0.625f
#define POINT_B  1.5f
#define POINT_A2 (POINT_A * POINT_A)
#define POINT_B2 (POINT_B * POINT_B)

/* B^T d: 6 inputs to 6 points, written `step` vectors apart. */
SIMD_INLINE void transform_input(vf32 *out, int step, vf32 d0, vf32 d1, vf32 d2, vf32 d3, vf32 d4, vf32 d5) {
    const vf32 a = vf32_set1(POINT_A), b = vf32_set1(POINT_B), a2 = vf32_set1(POINT_A2), b2 = vf32_set1(POINT_B2);
    const vf32 both = vf32_set1(POINT_A2 + POINT_B2), product = vf32_set1(POINT_A2 * POINT_B2);
    const vf32 even_a = vf32_fnma(b2, d2, d4), odd_a = vf32_fnma(b2, d1, d3);
    const vf32 even_b = vf32_fnma(a2, d2, d4), odd_b = vf32_fnma(a2, d1, d3);
    out[0 * step] = vf32_fma(product, d0, vf32_fnma(both, d2, d4));
    out[1 * step] = vf32_fma(a, odd_a, even_a);
    out[2 * step] = vf32_fnma(a, odd_a, even_a);
    out[3 * step] = vf32_fma(b, odd_b, even_b);
    out[4 * step] = vf32_fnma(b, odd_b, even_b);
    out[5 * step] = vf32_fma(product, d1, vf32_fnma(both, d3, d5));
}

/* What makes the three matrices fit: 1 / prod (p - q) over the other points q. */
#define SCALE_0 (1.0f / (POINT_A2 * POINT_B2))
#define SCALE_A (1.0f / (2 * POINT_A2 * (POINT_A2 - POINT_B2)))
#define SCALE_B (1.0f / (2 * POINT_B2 * (POINT_B2 - POINT_A2)))

/* A y, or G g where `weights`: the values of the polynomial of `count` coefficients at the 6 points, at infinity its
 * last one. */
SIMD_INLINE void evaluate(float *out, int64_t out_step, const float *in, int64_t in_step, int count, bool weights) {
    const vf32 a2 = vf32_set1(POINT_A2), b2 = vf32_set1(POINT_B2), last = vf32_load(in + (count - 1) * in_step);
    vf32 even_a = vf32_load(in), even_b = even_a, odd_a = vf32_load(in + in_step), odd_b = odd_a, first = even_a;
    if (count > 2) {
        const vf32 c2 = vf32_load(in + 2 * in_step);
        even_a = vf32_fma(a2, count > 4 ? vf32_fma(a2, last, c2) : c2, even_a);
        even_b = vf32_fma(b2, count > 4 ? vf32_fma(b2, last, c2) : c2, even_b);
    }
    if (count > 3) {
        const vf32 c3 = vf32_load(in + 3 * in_step);
        odd_a = vf32_fma(a2, c3, odd_a);
        odd_b = vf32_fma(b2, c3, odd_b);
    }
    if (weights) {
        first = vf32_mul(vf32_set1(SCALE_0), first);
        even_a = vf32_mul(vf32_set1(SCALE_A), even_a);
        even_b = vf32_mul(vf32_set1(SCALE_B), even_b);
    }
    const vf32 a = vf32_set1(weights ? SCALE_A * POINT_A : POINT_A);
    const vf32 b = vf32_set1(weights ? SCALE_B * POINT_B : POINT_B);
    vf32_store(out, first);
    vf32_store(out + out_step, vf32_fma(a, odd_a, even_a));
    vf32_store(out + 2 * out_step, vf32_fnma(a, odd_a, even_a));
    vf32_store(out + 3 * out_step, vf32_fma(b, odd_b, even_b));
    vf32_store(out + 4 * out_step, vf32_fnma(b, odd_b, even_b));
    vf32_store(out + 5 * out_step, last);
}

/* The transposed: A^T m + bias (NULL: none), or G^T m. */
SIMD_INLINE void collect(float *out, int64_t out_step, const float *in, int64_t in_step, int count, bool weights,
                         const vf32 *bias) {
    const vf32 m1 = vf32_load(in + in_step), m2 = vf32_load(in + 2 * in_step);
    const vf32 m3 = vf32_load(in + 3 * in_step), m4 = vf32_load(in + 4 * in_step);
    vf32 first = vf32_load(in), sum_a = vf32_add(m1, m2), sum_b = vf32_add(m3, m4), c[5];
    const vf32 gap_a = vf32_sub(m1, m2), gap_b = vf32_sub(m3, m4), last = vf32_load(in + 5 * in_step);
    const float a = weights ? SCALE_A * POINT_A : POINT_A, b = weights ? SCALE_B * POINT_B : POINT_B;
    if (weights) {
        first = vf32_mul(vf32_set1(SCALE_0), first);
        sum_a = vf32_mul(vf32_set1(SCALE_A), sum_a);
        sum_b = vf32_mul(vf32_set1(SCALE_B), sum_b);
    }
    c[0] = vf32_add(vf32_add(first, sum_a), sum_b);
    c[1] = vf32_fma(vf32_set1(b), gap_b, vf32_mul(vf32_set1(a), gap_a));
    if (count > 2) c[2] = vf32_fma(vf32_set1(POINT_B2), sum_b, vf32_mul(vf32_set1(POINT_A2), sum_a));
    if (count > 3) c[3] = vf32_fma(vf32_set1(POINT_B2 * b), gap_b, vf32_mul(vf32_set1(POINT_A2 * a), gap_a));
    if (count > 4)
        c[4] = vf32_fma(vf32_set1(POINT_B2 * POINT_B2), sum_b, vf32_mul(vf32_set1(POINT_A2 * POINT_A2), sum_a));
    c[count - 1] = vf32_add(c[count - 1], last);
    for (int k = 0; k < count; k++) vf32_store(out + k * out_step, bias ? vf32_add(c[k], *bias) : c[k]);
}

/* Both on rows and columns: `count` by `count` numbers, `row` and `col` floats apart, to 36 points, and back. */
SIMD_INLINE void evaluate_square(float *dst, int64_t point, const float *src, int64_t row, int64_t col, int count,
                                 bool weights) {
    _Alignas(64) float half[WINOGRAD_IN * 5 * LANES];
    for (int j = 0; j < count; j++) evaluate(half + j * LANES, count * LANES, src + j * col, row, count, weights);
    for (int i = 0; i < WINOGRAD_IN; i++)
        evaluate(dst + i * WINOGRAD_IN * point, point, half + i * count * LANES, LANES, count, weights);
}

SIMD_INLINE void collect_square(float *dst, int64_t row, int64_t col, const float *src, int64_t point, int count,
                                bool weights, const vf32 *bias) {
    _Alignas(64) float half[5 * WINOGRAD_IN * LANES];
    for (int j = 0; j < WINOGRAD_IN; j++)
        collect(half + j * LANES, WINOGRAD_IN * LANES, src + j * point, WINOGRAD_IN * point, count, weights, NULL);
    for (int i = 0; i < count; i++)
        collect(dst + i * row, col, half + i * WINOGRAD_IN * LANES, LANES, count, weights, bias);
}

/* Either for one count, in a copy of its own: without bias where the numbers are weights. */
typedef void winograd_evaluate_fn(float *dst, int64_t point, const float *src, int64_t row, int64_t col);
#define WINOGRAD_EVALUATE(name, count, weights)                                                          \
    static __attribute__((noinline)) void name(float *dst, int64_t point, const float *src, int64_t row, \
                                               int64_t col) {                                            \
        evaluate_square(dst, point, src, row, col, count, weights);                                      \
    }
typedef void winograd_collect_fn(float *dst, int64_t row, int64_t col, const float *src, int64_t point, vf32 bias);
#define WINOGRAD_COLLECT(name, count, weights)                                                                        \
    static __attribute__((noinline)) void name(float *dst, int64_t row, int64_t col, const float *src, int64_t point, \
                                               vf32 bias) {                                                           \
        (void)bias;                                                                                                   \
        collect_square(dst, row, col, src, point, count, weights, (weights) ? NULL : &bias);                          \
    }

#endif
