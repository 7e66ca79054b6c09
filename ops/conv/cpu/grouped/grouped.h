/* Convolution with few channels per group, what its parts share. Private to ops/conv. */
#ifndef COTANGENT_OPS_CONV_GROUPED_H
#define COTANGENT_OPS_CONV_GROUPED_H

#include "ops/conv/cpu/depthwise/depthwise.h"

/* Channels a group, of either side: above it the engine's register tile is filled well enough. */
enum { GROUPED_MOST = 24 };

/* Vectors of eight floats, the channels of a group; two a cycle where there are wider ones, so nothing is lost. */
#if VF32_LANES == 16
typedef __m256 v8;
SIMD_INLINE v8 v8_load(const float *p) { return _mm256_loadu_ps(p); }
SIMD_INLINE void v8_store(float *p, v8 v) { _mm256_storeu_ps(p, v); }
SIMD_INLINE v8 v8_set1(float x) { return _mm256_set1_ps(x); }
SIMD_INLINE v8 v8_add(v8 a, v8 b) { return _mm256_add_ps(a, b); }
SIMD_INLINE v8 v8_fma(v8 a, v8 b, v8 c) { return _mm256_fmadd_ps(a, b, c); }
#define GROUPED_TILE 14 /* positions whose sums fit the registers */
#elif VF32_LANES == 8
typedef vf32 v8;
SIMD_INLINE v8 v8_load(const float *p) { return vf32_load(p); }
SIMD_INLINE void v8_store(float *p, v8 v) { vf32_store(p, v); }
SIMD_INLINE v8 v8_set1(float x) { return vf32_set1(x); }
SIMD_INLINE v8 v8_add(v8 a, v8 b) { return vf32_add(a, b); }
SIMD_INLINE v8 v8_fma(v8 a, v8 b, v8 c) { return vf32_fma(a, b, c); }
#define GROUPED_TILE 7
#else
typedef struct v8 {
    vf32 low, high;
} v8;
SIMD_INLINE v8 v8_load(const float *p) { return (v8){vf32_load(p), vf32_load(p + 4)}; }
SIMD_INLINE void v8_store(float *p, v8 v) { vf32_store(p, v.low), vf32_store(p + 4, v.high); }
SIMD_INLINE v8 v8_set1(float x) { return (v8){vf32_set1(x), vf32_set1(x)}; }
SIMD_INLINE v8 v8_add(v8 a, v8 b) { return (v8){vf32_add(a.low, b.low), vf32_add(a.high, b.high)}; }
SIMD_INLINE v8 v8_fma(v8 a, v8 b, v8 c) {
    return (v8){vf32_fma(a.low, b.low, c.low), vf32_fma(a.high, b.high, c.high)};
}
#define GROUPED_TILE 7
#endif

/* Each of `targets` channels of a group adds up taps of its `sources` channels. Forward the targets are output channels, in
 * the input gradient input channels. */
typedef struct grouped_pass {
    depthwise_axis h, w;
    int64_t batch, groups, sources, targets; /* channels of one group */
    ct_dtype dtype;
    depthwise_image source, target;
    const void *weight;
    int64_t w_group, w_target, w_source, w_h, w_w;
    const void *bias;
    int64_t bias_step;
    const void *residual;
    ct_image_strides residual_step;
    ct_gemm_activate activate;
} grouped_pass;

size_t CT_ISA_FN(ct__grouped_pass_bytes)(const grouped_pass *pass);
void CT_ISA_FN(ct__grouped_pass)(const grouped_pass *pass, void *scratch);

/* The weight gradient, in forward terms: source x, target g; weight is written. */
size_t CT_ISA_FN(ct__grouped_weight_bytes)(const grouped_pass *pass);
void CT_ISA_FN(ct__grouped_weight)(const grouped_pass *pass, void *weight, void *bias_grad, void *scratch);

#if VF32_LANES >= 8
/* By Winograd: the pass, or where `weight` is given the weight gradient. Bytes of scratch where there is none yet. */
bool CT_ISA_FN(ct__grouped_winograd_can)(const grouped_pass *pass);
size_t CT_ISA_FN(ct__grouped_winograd)(const grouped_pass *pass, void *weight, float *bias_grad, void *scratch);
#endif

#if VF32_LANES >= 8
/* dst[j * step + i] = number j of row i, for eight rows, `row` bytes apart, and four numbers of four bytes. */
static inline void grouped_turn_four(float *dst, int64_t step, const void *src, int64_t row) {
    /* Halves of rows r and r + 4 side by side as they are loaded: four by four in each half are left to exchange. */
    __m256 a[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        a[r] = _mm256_insertf128_ps(
            _mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)((const char *)src + r * row))),
            _mm_loadu_ps((const float *)(const void *)((const char *)src + (4 + r) * row)), 1);
    const __m256 b0 = _mm256_unpacklo_ps(a[0], a[1]), b1 = _mm256_unpackhi_ps(a[0], a[1]);
    const __m256 b2 = _mm256_unpacklo_ps(a[2], a[3]), b3 = _mm256_unpackhi_ps(a[2], a[3]);
    _mm256_storeu_ps(dst, _mm256_shuffle_ps(b0, b2, 0x44));
    _mm256_storeu_ps(dst + step, _mm256_shuffle_ps(b0, b2, 0xee));
    _mm256_storeu_ps(dst + 2 * step, _mm256_shuffle_ps(b1, b3, 0x44));
    _mm256_storeu_ps(dst + 3 * step, _mm256_shuffle_ps(b1, b3, 0xee));
}
#endif

/* dst[j * step + i] = src[i * src_step + j] for i, j < 8. */
static inline void grouped_turn_eight(float *dst, int64_t step, const float *src, int64_t src_step) {
#if VF32_LANES >= 8
    grouped_turn_four(dst, step, src, src_step * 4);
    grouped_turn_four(dst + 4 * step, step, src + 4, src_step * 4);
#else
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) dst[j * step + i] = src[i * src_step + j];
#endif
}

/* The same for i < rows, j < cols. The last blocks of eight overlap those before them. */
static inline void grouped_transpose(float *dst, int64_t step, const float *src, int64_t src_step, int64_t rows,
                                     int64_t cols) {
    if (rows < 8 || cols < 8) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) dst[j * step + i] = src[i * src_step + j];
        return;
    }
    for (int64_t i = 0; i < rows; i += 8)
        for (int64_t j = 0; j < cols; j += 8) {
            const int64_t r = ct__min64(i, rows - 8), c = ct__min64(j, cols - 8);
            grouped_turn_eight(dst + c * step + r, step, src + r * src_step + c, src_step);
        }
}

#endif
