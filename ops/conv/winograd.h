/* Winograd F(4x4,3x3) in f32, what its files share: the problem, tiles of images gathered with their padding, and the
 * products of the transformed domain on the engine's register tile. Private to ops/conv; included once per ISA.
 *
 * 4x4 outputs are computed from 6x6 inputs with 36 products a channel instead of 144:
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A
 * summed over channels inside the brackets, so that the sums are 36 matrix products. The interpolation points are
 * 0, +-5/8, +-3/2 and infinity: their coefficients are exact in f32, and they err half as much as 0, +-1, +-2.
 *
 * Error against f64 for normal random data, relative to the root mean square of results with all their taps: root mean
 * square below 4.5e-7 + 7e-8 sqrt(C) for C channels (measured 4.1e-7 at 1, 8e-7 at 64, 1.5e-6 at 256; a direct f32 sum has 3e-7 at 64),
 * and the worst of a million results below 12 times that; without fused multiply-add half as much again. The gradients are the
 * same products transposed and keep the bound, the input gradient with C output channels, the weight gradient with C tiles.
 * tests/test_winograd.c holds them to it. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_H
#define COTANGENT_OPS_CONV_WINOGRAD_H

#include "backends/cpu/gemm/plan.h"
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/kernel.h"
#include "ops/geometry.h"

enum { WINOGRAD_OUT = 4, WINOGRAD_IN = 6, WINOGRAD_POINTS = 36, LANES = VF32_LANES };

/* ---- The transforms of one line; out is written `step` vectors apart ---- */

#define POINT_A  0.625f
#define POINT_B  1.5f
#define POINT_A2 (POINT_A * POINT_A)
#define POINT_B2 (POINT_B * POINT_B)

/* B^T d: 6 inputs to 6 points. */
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

/* A^T m: 6 points to 4 outputs. */
SIMD_INLINE void transform_output(vf32 *out, int step, vf32 m0, vf32 m1, vf32 m2, vf32 m3, vf32 m4, vf32 m5) {
    const vf32 sum_a = vf32_add(m1, m2), gap_a = vf32_sub(m1, m2), sum_b = vf32_add(m3, m4), gap_b = vf32_sub(m3, m4);
    out[0 * step] = vf32_add(vf32_add(m0, sum_a), sum_b);
    out[1 * step] = vf32_fma(vf32_set1(POINT_B), gap_b, vf32_mul(vf32_set1(POINT_A), gap_a));
    out[2 * step] = vf32_fma(vf32_set1(POINT_B2), sum_b, vf32_mul(vf32_set1(POINT_A2), sum_a));
    out[3 * step] = vf32_fma(vf32_set1(POINT_B2 * POINT_B), gap_b, vf32_fma(vf32_set1(POINT_A2 * POINT_A), gap_a, m5));
}

/* A y: 4 output cotangents to 6 points. */
SIMD_INLINE void transform_cotangent(vf32 *out, int step, vf32 y0, vf32 y1, vf32 y2, vf32 y3) {
    const vf32 a = vf32_set1(POINT_A), b = vf32_set1(POINT_B), a2 = vf32_set1(POINT_A2), b2 = vf32_set1(POINT_B2);
    const vf32 even_a = vf32_fma(a2, y2, y0), odd_a = vf32_fma(a2, y3, y1);
    const vf32 even_b = vf32_fma(b2, y2, y0), odd_b = vf32_fma(b2, y3, y1);
    out[0 * step] = y0;
    out[1 * step] = vf32_fma(a, odd_a, even_a);
    out[2 * step] = vf32_fnma(a, odd_a, even_a);
    out[3 * step] = vf32_fma(b, odd_b, even_b);
    out[4 * step] = vf32_fnma(b, odd_b, even_b);
    out[5 * step] = y3;
}

/* What makes the three matrices fit: 1 / prod (p - q) over the other points q. */
#define SCALE_0 (1.0f / (POINT_A2 * POINT_B2))
#define SCALE_A (1.0f / (2 * POINT_A2 * (POINT_A2 - POINT_B2)))
#define SCALE_B (1.0f / (2 * POINT_B2 * (POINT_B2 - POINT_A2)))

/* G g: 3 weights to 6 points. */
SIMD_INLINE void transform_weight(vf32 *out, int step, vf32 g0, vf32 g1, vf32 g2) {
    const vf32 even_a = vf32_mul(vf32_set1(SCALE_A), vf32_fma(vf32_set1(POINT_A2), g2, g0));
    const vf32 even_b = vf32_mul(vf32_set1(SCALE_B), vf32_fma(vf32_set1(POINT_B2), g2, g0));
    const vf32 a = vf32_set1(SCALE_A * POINT_A), b = vf32_set1(SCALE_B * POINT_B);
    out[0 * step] = vf32_mul(vf32_set1(SCALE_0), g0);
    out[1 * step] = vf32_fma(a, g1, even_a);
    out[2 * step] = vf32_fnma(a, g1, even_a);
    out[3 * step] = vf32_fma(b, g1, even_b);
    out[4 * step] = vf32_fnma(b, g1, even_b);
    out[5 * step] = g2;
}

/* G^T m: 6 points to 3 weight gradients. */
SIMD_INLINE void transform_weight_grad(vf32 *out, int step, vf32 m0, vf32 m1, vf32 m2, vf32 m3, vf32 m4, vf32 m5) {
    const vf32 sum_a = vf32_mul(vf32_set1(SCALE_A), vf32_add(m1, m2));
    const vf32 sum_b = vf32_mul(vf32_set1(SCALE_B), vf32_add(m3, m4));
    out[0 * step] = vf32_fma(vf32_set1(SCALE_0), m0, vf32_add(sum_a, sum_b));
    out[1 * step] = vf32_fma(vf32_set1(SCALE_B * POINT_B), vf32_sub(m3, m4),
                             vf32_mul(vf32_set1(SCALE_A * POINT_A), vf32_sub(m1, m2)));
    out[2 * step] = vf32_fma(vf32_set1(POINT_B2), sum_b, vf32_fma(vf32_set1(POINT_A2), sum_a, m5));
}

/* ---- Tiles of an image ---- */

/* An image seen with a dilation's phase taken out: what the tiles cover has plain 3x3 windows. */
typedef struct winograd_plane {
    const float *data; /* of image 0, channel 0, row 0, column 0 */
    int64_t n, c, h, w;
    int64_t height, width;
} winograd_plane;

/* Tiles are counted over images, rows and columns. */
typedef struct winograd_tiles {
    int64_t rows, cols, count;
} winograd_tiles;

static inline winograd_tiles winograd_tile(int64_t batch, int64_t height, int64_t width) {
    const int64_t rows = ct__ceil_div(height, WINOGRAD_OUT), cols = ct__ceil_div(width, WINOGRAD_OUT);
    return (winograd_tiles){rows, cols, batch * rows * cols};
}

/* A run of neighbours in one row of tiles. */
typedef struct winograd_run {
    int64_t image, row, col, count;
} winograd_run;

static inline winograd_run winograd_next_run(const winograd_tiles *tiles, int64_t first, int64_t end) {
    winograd_run r = {first / (tiles->rows * tiles->cols), first / tiles->cols % tiles->rows, first % tiles->cols, 0};
    r.count = ct__min(tiles->cols - r.col, end - first);
    return r;
}

/* The engine's transpose of floats, in one copy; row distances in bytes. */
static __attribute__((noinline)) void winograd_turn(char *dst, int64_t dst_row, const char *src, int64_t src_row,
                                                    int64_t rows, int64_t cols, int64_t width) {
    transpose(dst, dst_row, src, src_row, rows, cols, width, 4);
}

/* dst[(i * cols + j) * LANES + l] = image[channel + l][row + i][col + j], zero outside the image and past `lanes`. */
static __attribute__((noinline)) void winograd_gather(float *dst, const winograd_plane *x, int64_t image,
                                                      int64_t channel, int lanes, int64_t row, int64_t rows,
                                                      int64_t col, int64_t cols) {
    const int64_t first = ct__max64(0, -col), end = ct__min(cols, x->width - col);
    for (int64_t i = 0; i < rows; i++, dst += cols * LANES) {
        if (row + i < 0 || row + i >= x->height || end <= first) {
            memset(dst, 0, (size_t)(cols * LANES) * sizeof *dst);
            continue;
        }
        if (first > 0) memset(dst, 0, (size_t)(first * LANES) * sizeof *dst);
        if (end < cols) memset(dst + end * LANES, 0, (size_t)((cols - end) * LANES) * sizeof *dst);
        const float *src = x->data + image * x->n + channel * x->c + (row + i) * x->h + (col + first) * x->w;
        float *to = dst + first * LANES;
        const int64_t count = end - first;
        if (x->c == 1) {
            for (int64_t j = 0; j < count; j++) vf32_store(to + j * LANES, vf32_load_n(src + j * x->w, lanes));
        } else if (x->w == 1) {
            /* The rows of the next tiles below: pieces too short for the hardware to see coming. */
            if (i >= rows - WINOGRAD_OUT)
                for (int l = 0; l < lanes; l++)
                    for (int64_t j = 0; j < count; j += 16)
                        __builtin_prefetch(src + l * x->c + j + WINOGRAD_OUT * x->h, 0, 2);
            winograd_turn((char *)to, LANES * 4, (const char *)src, x->c * 4, lanes, count, LANES);
        } else {
            for (int64_t j = 0; j < count; j++)
                for (int l = 0; l < LANES; l++) to[j * LANES + l] = l < lanes ? src[j * x->w + l * x->c] : 0;
        }
    }
}

/* Where the transformed tiles of a run of tiles go: point p of tile t, channel c is at p * point + t * tile + c. */
typedef struct winograd_points {
    float *data;
    int64_t point, tile;
} winograd_points;

/* The input transform of tiles [first, end), in winograd.cpu.c; band: scratch for 6 x (4 tiles.cols + 2) vectors. */
void CT_ISA_FN(ct__winograd_transform_tiles)(const winograd_points *v, const winograd_plane *x, int64_t channels,
                                             const winograd_tiles *tiles, int64_t before_h, int64_t before_w,
                                             int64_t first, int64_t end, float *band);

/* An odd number of cache lines, so that neither points nor rows fall on each other's places in the cache. */
static inline int64_t winograd_odd(int64_t floats) { return (ct__ceil_div(floats, 16) | 1) * 16; }

/* ---- Products ---- */

/* C (+)= A B for `rows` rows and one panel of B, k deep; A by byte strides, C rows c_row bytes apart. */
typedef struct winograd_product {
    const ct__kernel *kernel;
    int64_t rows, tile_rows, k;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_row;
    bool accumulate;
} winograd_product;

static inline void winograd_multiply(const winograd_product *p) {
    const ct__kernel *kernel = p->kernel;
    ct__tile t = {.a_row = p->a_row, .a_step = p->a_step, .b = p->b, .b_step = p->b_step, .c_row = p->c_row};
    t.k = p->k;
    t.cols = (int)ct__panel_width(kernel);
    t.accumulate = p->accumulate;
    for (int64_t i = 0; i < p->rows; i += p->tile_rows) {
        const int64_t rows = ct__min(p->tile_rows, p->rows - i);
        t.a = (const char *)p->a + i * p->a_row;
        t.c = (char *)p->c + i * p->c_row;
        kernel->tiles[(kernel->vecs - 1) * 2][rows - 1](&t);
    }
}

/* Rows of a register tile, evened out over `rows`. */
static inline int64_t winograd_tile_rows(const ct__kernel *kernel, int64_t rows) {
    return ct__ceil_div(rows, ct__ceil_div(rows, kernel->rows));
}

#endif
