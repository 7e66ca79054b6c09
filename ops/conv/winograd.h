/* Winograd F(4x4,3x3), F(2x2,5x5) and F(5x5,2x2) in f32, what its files share: the transforms, tiles of images gathered with
 * their padding, and the products of the transformed domain on the engine's register tile. Private to ops/conv; included
 * once per ISA.
 *
 * 4x4 outputs of a 3x3 kernel are computed from 6x6 inputs with 36 products a channel instead of 144, 2x2 outputs of a 5x5
 * kernel or 5x5 outputs of a 2x2 kernel with 36 instead of 100:
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A
 * summed over channels inside the brackets, so that the sums are 36 matrix products. The interpolation points are
 * 0, +-5/8, +-3/2 and infinity: their coefficients are exact in f32, and they err half as much as 0, +-1, +-2. Line p of A
 * holds the powers of point p, as many as a tile has outputs; line p of G the powers up to the kernel's size, scaled; B does
 * not depend on how the 6 divide.
 *
 * A kernel of taps x stride along an axis is `stride` kernels of `taps`, each on its class of pixels: 4x4 with stride 2 is
 * four of 2x2. The classes of x are further input channels, or, in the input gradient, those of y further output channels
 * of the same tiles. So are the taps of a third axis.
 *
 * Error against f64 for normal random data, relative to the root mean square of results with all their taps: root mean
 * square below 4.5e-7 + 7e-8 sqrt(C) for C channels, with all those further ones, with 5x5 and 2x2 4.5e-7 + 8e-8 sqrt(C)
 * (measured 4e-7 at 1, 8e-7 at 64, 1.5e-6 at 256; a direct f32 sum has 3e-7 at 64), and the worst of a million results below
 * 12 times that; without fused multiply-add half as much again. The gradients are the same products transposed and keep the
 * bound, the input gradient with C output channels, the weight gradient with C tiles. Where fourth powers come both ways, in
 * the corners of 5x5 results and of the weight gradient of 5x5, and in volumes, the worst may be 20
 * times. tests/test_winograd.c holds them to it. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_H
#define COTANGENT_OPS_CONV_WINOGRAD_H

#include "backends/cpu/gemm/plan.h"
#include "backends/cpu/kernel.h"
#include "ops/conv/winograd_run.h"

enum { WINOGRAD_IN = 6, WINOGRAD_POINTS = 36, LANES = VF32_LANES };

/* ---- The transforms of one line ---- */

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

/* A y, or G g where `weights`: the values of the polynomial of `count` coefficients at the 6 points, at infinity its last one. */
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

/* ---- What a pass goes over ---- */

/* An image as tiles see it, of a dilation one phase. Where an axis has a stride, the image with more pixels is spread: its
 * pixels r, r + spread, r + 2 spread ... of a tile are class r, a tile of its own, and the classes are further channels. */
typedef struct winograd_image {
    float *data; /* of image 0, channel 0, plane 0, row 0, column 0 */
    int64_t n, c, d, h, w;
    int64_t fold; /* images that are planes of one in memory */
    int64_t height, width;
    int64_t before[2]; /* tile 0 begins at pixel -before */
    int64_t spread[2];
    int64_t step[2]; /* pixels from one tile to the next */
} winograd_image;

static inline float *winograd_plane(const winograd_image *x, int64_t image, int64_t plane) {
    return x->data + image / x->fold * x->n + (image % x->fold + plane) * x->d;
}
static inline int64_t winograd_classes(const winograd_image *x) { return x->spread[0] * x->spread[1]; }

/* Tiles of a plane are counted over images, rows and columns. */
typedef struct winograd_tiles {
    int64_t rows, cols, count;
} winograd_tiles;

/* A run of neighbours in one row of tiles. */
typedef struct winograd_run {
    int64_t image, row, col, count;
} winograd_run;

static inline winograd_run winograd_next_run(const winograd_tiles *tiles, int64_t first, int64_t end) {
    winograd_run r = {first / (tiles->rows * tiles->cols), first / tiles->cols % tiles->rows, first % tiles->cols, 0};
    r.count = ct__min(tiles->cols - r.col, end - first);
    return r;
}

/* One phase of a pass. Taps along depth are further input channels: they look at other planes of x, transformed once for
 * all results that see them. */
typedef struct winograd_frame {
    const winograd_pass *pass;
    int taps; /* of a class, along height and width: 2, 3 or 5 */
    int step; /* results of a tile along an axis: 7 - taps */
    winograd_image x, y, residual;
    winograd_tiles tiles;    /* of one plane of results and of every image */
    int64_t planes, sources; /* of results, of x */
    int64_t most_sources;    /* of x in any phase */
    int64_t before;          /* of the depth */
} winograd_frame;

/* In winograd.cpu.c. Phases: their number along an axis; the first is the largest. */
int64_t CT_ISA_FN(ct__winograd_phases)(const winograd_pass *pass, int axis);
void CT_ISA_FN(ct__winograd_take_phase)(winograd_frame *frame, const winograd_pass *pass, const int64_t phase[3]);

/* The plane of x that tap k of the depth sees from result plane d, or -1; and planes [*low, *end) that results [d0, d1) see. */
static inline int64_t winograd_source(const winograd_frame *f, int64_t d, int64_t k) {
    const int64_t stride = f->pass->stride[0];
    int64_t at = f->pass->turned ? d + f->pass->kernel[0] - 1 - f->before - k : d * stride + k - f->before;
    if (f->pass->turned && stride > 1) at = at % stride ? -1 : at / stride;
    return at < f->sources ? at : -1; /* negative: outside as well */
}
static inline void winograd_sources(const winograd_frame *f, int64_t d0, int64_t d1, int64_t *low, int64_t *end) {
    const int64_t stride = f->pass->stride[0], turned = f->pass->turned;
    *low = ct__max64(0, (turned ? d0 : d0 * stride) - f->before);
    *end = ct__max64(0, (turned ? d1 - 1 : (d1 - 1) * stride) - f->before + f->pass->kernel[0]);
    if (turned) *low = ct__ceil_div(*low, stride), *end = ct__ceil_div(*end, stride);
    *end = ct__min(*end, f->sources);
}
/* As many as there are at most for `planes` results. */
static inline int64_t winograd_slots(const winograd_frame *f, int64_t planes) {
    const int64_t stride = f->pass->stride[0], more = f->pass->kernel[0] - 1;
    return ct__min(f->most_sources,
                   f->pass->turned ? (planes - 1 + more) / stride + 1 : (planes - 1) * stride + more + 1);
}

/* In winograd.cpu.c, as what follows. The engine's transpose of floats; row distances in bytes. */
void CT_ISA_FN(ct__winograd_turn)(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows,
                                  int64_t cols, int64_t width);
#define winograd_turn CT_ISA_FN(ct__winograd_turn)

/* dst[(i * cols + j) * LANES + l] = plane[channel + l][row + i][col + j], zero outside the image and past `lanes`; plane
 * points at the first channel. */
void CT_ISA_FN(ct__winograd_gather)(float *dst, const winograd_image *x, const float *plane, int lanes, int64_t row,
                                    int64_t rows, int64_t col, int64_t cols);
#define winograd_gather CT_ISA_FN(ct__winograd_gather)

/* Lines of an image, asked for from memory a few at a time while the processor has other work: of the rows that tiles
 * [at, end) of a plane write, or that they are the first to read. */
typedef struct winograd_ahead {
    const winograd_image *image;
    const winograd_tiles *tiles;
    int64_t plane, at, end;
    int64_t channels, skip; /* skip: rows of a tile that others have read */
    bool write;
    int64_t rate;      /* lines a call */
    const char *piece; /* of contiguous bytes */
    int64_t offset, bytes, rows, rows_left, channels_left;
} winograd_ahead;

static inline winograd_ahead winograd_ahead_of(const winograd_frame *f, bool x, int64_t plane, int64_t at,
                                               int64_t end) {
    winograd_ahead a = {.image = x ? &f->x : &f->y, .tiles = &f->tiles, .plane = plane, .at = at, .end = end};
    a.channels = x ? f->pass->in_channels : f->pass->out_channels;
    a.skip = x ? WINOGRAD_IN * f->x.spread[0] - f->x.step[0] : 0;
    return a;
}
/* Sets the rate, so that so many calls ask for everything. */
void CT_ISA_FN(ct__winograd_ahead_start)(winograd_ahead *ahead, int64_t calls);
void CT_ISA_FN(ct__winograd_ask)(winograd_ahead *ahead);

/* Where transformed tiles go: point p of tile t, class k and channel c is at p * point + k * klass + t * tile + c. */
typedef struct winograd_points {
    float *data;
    int64_t point, klass, tile;
} winograd_points;

/* Pixels along an axis that `tiles` neighbours look at. */
static inline int64_t winograd_span(const winograd_image *x, int axis, int64_t tiles) {
    return (tiles - 1) * x->step[axis] + WINOGRAD_IN * x->spread[axis];
}

/* The input transform of tiles [first, end) of a plane; band: scratch for the vectors of one row of them; ahead: asked with
 * every vector of a tile, or NULL. */
void CT_ISA_FN(ct__winograd_transform_tiles)(const winograd_points *v, const winograd_frame *frame, int64_t plane,
                                             int64_t first, int64_t end, float *band, winograd_ahead *ahead);

/* An odd number of cache lines, so that neither points nor rows fall on each other's places in the cache. */
static inline int64_t winograd_odd(int64_t floats) { return (ct__ceil_div(floats, 16) | 1) * 16; }

/* ---- Products ---- */

/* C (+)= A B for `rows` rows and `vecs` vectors of one panel of B, over runs of k; A by byte strides, C rows c_row bytes
 * apart. */
typedef struct winograd_product {
    const ct__kernel *kernel;
    int64_t rows, tile_rows, k;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_step;
    const ct__run *runs;
    int64_t n_runs;
    float *c;
    int64_t c_row;
    int vecs;
    bool accumulate;
} winograd_product;

static inline void winograd_multiply(const winograd_product *p) {
    const ct__kernel *kernel = p->kernel;
    ct__tile t = {.a_row = p->a_row, .a_step = p->a_step, .b = p->b, .b_step = p->b_step, .c_row = p->c_row};
    t.k = p->k;
    t.runs = p->runs, t.n_runs = p->n_runs;
    t.cols = kernel->lanes * p->vecs;
    t.accumulate = p->accumulate;
    for (int64_t i = 0; i < p->rows; i += p->tile_rows) {
        const int64_t rows = ct__min(p->tile_rows, p->rows - i);
        t.a = (const char *)p->a + i * p->a_row;
        t.c = (char *)p->c + i * p->c_row;
        kernel->tiles[(p->vecs - 1) * 2][rows - 1](&t);
    }
}

/* Vectors of a panel that hold columns. */
static inline int winograd_panel_vecs(const ct__kernel *kernel, int64_t columns, int64_t panel) {
    return (int)ct__min(kernel->vecs, ct__ceil_div(columns, kernel->lanes) - panel * kernel->vecs);
}

/* Rows of a register tile, evened out over `rows`. */
static inline int64_t winograd_tile_rows(const ct__kernel *kernel, int64_t rows) {
    return ct__ceil_div(rows, ct__ceil_div(rows, kernel->rows));
}

#endif
