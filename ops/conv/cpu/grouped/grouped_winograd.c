/* Convolution with groups of eight channels by Winograd F(4x4,3x3): vectors of channels are transformed, and multiplied with
 * the eight by eight weights of each of the 36 points. The transforms and the bound on their error are in winograd_lines.h. */
#include "ops/conv/cpu/grouped/grouped.h"

#if VF32_LANES >= 8
#include "ops/conv/cpu/winograd/winograd_lines.h"

enum {
    WIDE = 16,                               /* channels of a block: two groups */
    PARTS = WIDE / LANES,                    /* vectors of them */
    SQUARES = WIDE * 8,                      /* weights of a block and point: (groups, sources, targets) */
    PART = WINOGRAD_POINTS * SQUARES + WIDE, /* of the weight gradient, with the bias */
    PANEL_BYTES = 24 << 10                   /* of a panel of the image, about what fits L1 */
};
#if VF32_LANES == 16
enum { TILES = 8 }; /* multiplied together: their sums and eight vectors of weights fit the registers */
#else
enum { TILES = 4 };
#endif

typedef struct run {
    const grouped_pass *p;
    int64_t tile_rows, tile_cols; /* of one image */
    int64_t panel, block;         /* rows of tiles gathered, and multiplied, together */
    int64_t cols, plane;          /* of a gathered panel: columns, floats of one vector of channels */
    int64_t point;                /* floats from one of the 36 products to the next */
    float *weights;               /* (blocks of channels, PART), or sums of them: (blocks, parts of the batch, PART) */
    int64_t parts;
    void *weight; /* the gradient, and that of the bias or NULL */
    float *bias;
    float *workers;
    int64_t worker;
} run;

/* Rows or columns that `tiles` neighbors look at. */
static inline int64_t span(int64_t tiles) { return 4 * tiles + 2; }

static void plan(run *s, const grouped_pass *p) {
    *s = (run){.p = p, .tile_rows = ct__ceil_div(p->h.target, 4), .tile_cols = ct__ceil_div(p->w.target, 4)};
    s->cols = span(s->tile_cols);
    s->panel = s->tile_rows;
    while (s->panel > 1 && span(s->panel) * s->cols * WIDE * (int64_t)sizeof(float) > PANEL_BYTES)
        s->panel = (s->panel + 1) / 2;
    s->block = ct__max64(1, ct__min64(s->panel, 8 / s->tile_cols));
    s->plane = span(s->panel) * s->cols * LANES;
    s->point = s->block * s->tile_cols * WIDE + 16;
}

/* ---- Weights ---- */

/* taps[k * SQUARES + (group, source, target)]: all, or back. */
static void move_taps(const run *s, float *taps, void *weight, int64_t block, bool back) {
    const grouped_pass *p = s->p;
    for (int64_t k = 0; k < 9; k++)
        for (int64_t i = 0; i < WIDE; i++) {
            float *line = taps + k * SQUARES + i * 8;
            const int64_t at = (2 * block + i / 8) * p->w_group + i % 8 * p->w_source + k / 3 * p->w_h + k % 3 * p->w_w;
            if (back) depthwise_write_f32(line, CT_F32, weight, at, p->w_target, 8);
            else depthwise_read_f32(line, CT_F32, weight, at, p->w_target, 8);
        }
}

/* G, whose lines are the powers of the points, scaled. */
static const float powers[WINOGRAD_IN][3] = {{SCALE_0, 0, 0},
                                             {SCALE_A, SCALE_A *POINT_A, SCALE_A *POINT_A2},
                                             {SCALE_A, -SCALE_A *POINT_A, SCALE_A *POINT_A2},
                                             {SCALE_B, SCALE_B *POINT_B, SCALE_B *POINT_B2},
                                             {SCALE_B, -SCALE_B *POINT_B, SCALE_B *POINT_B2},
                                             {0, 0, 1}};

/* out[i * out_row + j * out_col] = sum over k of M[j][k] in[i * in_row + k * in_col], for vectors of SQUARES
 * numbers, where M is G or its transpose. */
static __attribute__((noinline)) void apply_powers(float *out, int out_row, int out_col, const float *in, int in_row,
                                                   int in_col, int rows, bool transposed) {
    const int n = transposed ? 3 : WINOGRAD_IN, terms = transposed ? WINOGRAD_IN : 3;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < SQUARES; l += 4 * LANES) {
                const float *from = in + i * in_row + l;
                vf32 sum[4] = {vf32_set1(0), vf32_set1(0), vf32_set1(0), vf32_set1(0)};
#pragma GCC unroll 1
                for (int k = 0; k < terms; k++, from += in_col)
#pragma GCC unroll 4
                    for (int q = 0; q < 4; q++)
                        sum[q] = vf32_fma(vf32_set1(transposed ? powers[k][j] : powers[j][k]),
                                          vf32_load(from + q * LANES), sum[q]);
#pragma GCC unroll 4
                for (int q = 0; q < 4; q++) vf32_store(out + i * out_row + j * out_col + l + q * LANES, sum[q]);
            }
}

static void transform_weights(void *ctx, int64_t block, int worker) {
    const run *s = ctx;
    float taps[9 * SQUARES], half[3 * WINOGRAD_IN * SQUARES], *to = s->weights + block * PART;
    (void)worker;
    move_taps(s, taps, (void *)(uintptr_t)s->p->weight, block, false);
    apply_powers(half, SQUARES, 3 * SQUARES, taps, SQUARES, 3 * SQUARES, 3, false); /* columns */
    apply_powers(to, WINOGRAD_IN * SQUARES, SQUARES, half, 3 * SQUARES, SQUARES, WINOGRAD_IN, false);
}

/* ---- Panels of an image ---- */

/* to[j * to_col + l * to_lane] = from[j * from_col + l * from_lane] for `count` columns of LANES channels. */
static __attribute__((noinline)) void move_row(float *to, int64_t to_col, int64_t to_lane, const float *from,
                                               int64_t from_col, int64_t from_lane, int64_t count) {
    if (to_lane == 1 && from_lane == 1) {
        for (int64_t j = 0; j < count; j++) vf32_store(to + j * to_col, vf32_load(from + j * from_col));
    } else if (to_lane == 1 && from_col == 1) {
        grouped_transpose(to, to_col, from, from_lane, LANES, count);
    } else if (from_lane == 1 && to_col == 1) {
        grouped_transpose(to, to_lane, from, from_col, count, LANES);
    } else {
        for (int64_t j = 0; j < count; j++)
#pragma GCC unroll 1
            for (int l = 0; l < LANES; l++) to[j * to_col + l * to_lane] = from[j * from_col + l * from_lane];
    }
}

/* The row at that place of the next image, which is soon wanted. */
SIMD_INLINE void prefetch_row(const float *at, const depthwise_image *x, int64_t count) {
    at += x->n;
    for (int64_t i = 0; x->c == 1 && i < count; i++) __builtin_prefetch(at + i * x->w, 0, 2);
    for (int l = 0; x->c != 1 && l < LANES; l++)
        for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(at + l * x->c + i * x->w, 0, 2);
}

/* dst[(i * cols + j) * LANES + l] = image[channel + l][row + i][col + j], zero outside the image. */
static __attribute__((noinline)) void gather(float *dst, const depthwise_image *x, int64_t height, int64_t width,
                                             int64_t image, int64_t channel, int64_t row, int64_t rows, int64_t col,
                                             int64_t cols) {
    const int64_t first = ct__max64(0, -col), end = ct__max64(first, ct__min64(cols, width - col)), count = end - first;
    for (int64_t i = row; i < row + rows; i++, dst += cols * LANES) {
        const bool outside = i < 0 || i >= height;
        for (int64_t j = 0; j < (outside ? cols : first); j++) vf32_store(dst + j * LANES, vf32_set1(0));
        if (outside) continue;
        for (int64_t j = end; j < cols; j++) vf32_store(dst + j * LANES, vf32_set1(0));
        const float *src = (const float *)x->data + image * x->n + channel * x->c + i * x->h + (col + first) * x->w;
        prefetch_row(src, x, count);
        move_row(dst + first * LANES, LANES, 1, src, x->w, x->c, count);
    }
}

/* ---- Tiles ---- */

/* V = B^T d B of one vector of channels, two lines of points at a time, so that they stay in registers; rows `row`
 * floats apart. */
SIMD_INLINE void transform_line(float *dst, int64_t point, const vf32 *d) {
    vf32 line[6];
    transform_input(line, 1, d[0], d[1], d[2], d[3], d[4], d[5]);
#pragma GCC unroll 6
    for (int j = 0; j < 6; j++) vf32_store(dst + j * point, line[j]);
}
static __attribute__((noinline)) void transform_tile(float *dst, int64_t point, const float *src, int64_t row) {
    const vf32 both = vf32_set1(POINT_A2 + POINT_B2), product = vf32_set1(POINT_A2 * POINT_B2);
    vf32 a[6], b[6];
#pragma GCC unroll 6
    for (int j = 0; j < 6; j++) {
        const float *d = src + j * LANES;
        a[j] = vf32_fma(product, vf32_load(d), vf32_fnma(both, vf32_load(d + 2 * row), vf32_load(d + 4 * row)));
        b[j] = vf32_fma(product, vf32_load(d + row), vf32_fnma(both, vf32_load(d + 3 * row), vf32_load(d + 5 * row)));
    }
    transform_line(dst, point, a);
    transform_line(dst + 30 * point, point, b);
#pragma GCC unroll 1
    for (int k = 0; k < 2; k++) { /* points +-a, then +-b */
        const vf32 square = vf32_set1(k ? POINT_A2 : POINT_B2), at = vf32_set1(k ? POINT_B : POINT_A);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            const float *d = src + j * LANES;
            const vf32 even = vf32_fnma(square, vf32_load(d + 2 * row), vf32_load(d + 4 * row));
            const vf32 odd = vf32_fnma(square, vf32_load(d + row), vf32_load(d + 3 * row));
            a[j] = vf32_fma(at, odd, even), b[j] = vf32_fnma(at, odd, even);
        }
        transform_line(dst + (6 + 12 * k) * point, point, a);
        transform_line(dst + (12 + 12 * k) * point, point, b);
    }
}
static __attribute__((noinline)) void transform_back(float *dst, int64_t row, const float *src, int64_t point,
                                                     vf32 bias) {
    collect_square(dst, row, LANES, src, point, 4, false, &bias);
}

/* Tiles of rows [first, end) of the panel: to[p * point + t * WIDE + channel]. */
static void transform_rows(const run *s, float *to, const float *panel, int64_t first, int64_t end) {
    for (int64_t r = first; r < end; r++)
        for (int64_t c = 0; c < s->tile_cols; c++, to += WIDE)
            for (int k = 0; k < PARTS; k++)
                transform_tile(to + k * LANES, s->point, panel + k * s->plane + 4 * (r * s->cols + c) * LANES,
                               s->cols * LANES);
}

/* x[t][0..8) = x[t][0..8) W for `count` tiles, in place. */
SIMD_INLINE void multiply_tiles(float *x, const v8 *w, const int count) {
    v8 sum[TILES];
#pragma GCC unroll 8
    for (int q = 0; q < count; q++) sum[q] = v8_set1(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) sum[q] = v8_fma(v8_set1(x[q * WIDE + i]), w[i], sum[q]);
#pragma GCC unroll 8
    for (int q = 0; q < count; q++) v8_store(x + q * WIDE, sum[q]);
}
static __attribute__((noinline)) void multiply(float *v, int64_t point, int64_t tiles, const float *weights) {
    for (int p = 0; p < 2 * WINOGRAD_POINTS; p++, weights += 64) {
        float *x = v + p / 2 * point + p % 2 * 8;
        v8 w[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) w[i] = v8_load(weights + i * 8);
        int64_t t = 0;
        for (; t + TILES <= tiles; t += TILES) multiply_tiles(x + t * WIDE, w, TILES);
        for (; t < tiles; t++) multiply_tiles(x + t * WIDE, w, 1);
    }
}

/* Rows of a panel to their place, with residual and activation. */
static __attribute__((noinline)) void scatter(const run *s, float *panel, float *other, int64_t image, int64_t channel,
                                              int64_t row, int64_t rows) {
    const grouped_pass *p = s->p;
    const depthwise_image *y = &p->target;
    const int64_t width = p->w.target;
    for (int64_t i = row; i < row + rows; i++, panel += s->cols * LANES) {
        float *dst = (float *)y->data + image * y->n + channel * y->c + i * y->h;
        if (p->residual) {
            const ct_image_strides *e = &p->residual_step;
            const float *more = (const float *)p->residual + image * e->n + channel * e->c + i * e->s[1];
            move_row(other, LANES, 1, more, e->s[2], e->c, width);
            for (int64_t j = 0; j < width * LANES; j += LANES)
                vf32_store(panel + j, vf32_add(vf32_load(panel + j), vf32_load(other + j)));
        }
        if (p->activate) p->activate(NULL, panel, width * LANES);
        prefetch_row(dst, y, width);
        move_row(dst, y->w, y->c, panel, LANES, 1, width);
    }
}

/* A chunk: an image's block of channels; the images of one block follow each other, since they share weights. */
static void block_chunk(void *ctx, int64_t chunk, int worker) {
    const run *s = ctx;
    const grouped_pass *p = s->p;
    const int64_t block = chunk / p->batch, image = chunk % p->batch, channel = block * WIDE;
    float *panel = s->workers + worker * s->worker, *v = panel + PARTS * s->plane, bias[WIDE] = {0};
    if (p->bias) depthwise_read_f32(bias, CT_F32, p->bias, channel * p->bias_step, p->bias_step, WIDE);
    for (int64_t row = 0; row < s->tile_rows; row += s->panel) {
        const int64_t rows = ct__min64(s->panel, s->tile_rows - row);
        for (int k = 0; k < PARTS; k++)
            gather(panel + k * s->plane, &p->source, p->h.source, p->w.source, image, channel + k * LANES,
                   4 * row + p->h.first, span(rows), p->w.first, s->cols);
        /* Results go where the rows that they need last were. */
        for (int64_t first = 0, end; first < rows; first = end) {
            end = ct__min64(first + s->block, rows);
            transform_rows(s, v, panel, first, end);
            multiply(v, s->point, (end - first) * s->tile_cols, s->weights + block * PART);
            const float *from = v;
            for (int64_t r = first; r < end; r++)
                for (int64_t c = 0; c < s->tile_cols; c++, from += WIDE)
                    for (int k = 0; k < PARTS; k++)
                        transform_back(panel + k * s->plane + 4 * (r * s->cols + c) * LANES, s->cols * LANES,
                                       from + k * LANES, s->point, vf32_load(bias + k * LANES));
        }
        for (int k = 0; k < PARTS; k++)
            scatter(s, panel + k * s->plane, v, image, channel + k * LANES, 4 * row,
                    ct__min64(4 * rows, p->h.target - 4 * row));
    }
}

/* ---- The weight gradient: dw = G^T [ sum over tiles (B^T d B) . (A dy A^T) ] G ---- */

static __attribute__((noinline)) void transform_cotangents(float *dst, int64_t point, const float *src, int64_t row) {
    evaluate_square(dst, point, src, row, LANES, 4, false);
}

/* sum[i][o] += over tiles of v[t][i] z[t][o], for each point and group */
static __attribute__((noinline)) void add_products(float *sums, const float *v, const float *z, int64_t point,
                                                   int64_t tiles) {
    for (int p = 0; p < 2 * WINOGRAD_POINTS; p++, sums += 64) {
        const float *x = v + p / 2 * point + p % 2 * 8, *y = z + p / 2 * point + p % 2 * 8;
        v8 s[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) s[i] = v8_set1(0);
        for (int64_t t = 0; t < tiles; t++, x += WIDE, y += WIDE) {
            const v8 g = v8_load(y);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) s[i] = v8_fma(v8_set1(x[i]), g, s[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) v8_store(sums + i * 8, v8_add(v8_load(sums + i * 8), s[i]));
    }
}

/* A chunk: a block of channels, a part of the images. */
static void sum_chunk(void *ctx, int64_t chunk, int worker) {
    const run *s = ctx;
    const grouped_pass *p = s->p;
    const int64_t channel = chunk / s->parts * WIDE, part = chunk % s->parts, cols = 4 * s->tile_cols;
    float *panel = s->workers + worker * s->worker, *cotangent = panel + PARTS * s->plane;
    float *v = cotangent + PARTS * s->plane, *z = v + WINOGRAD_POINTS * s->point;
    float *sums = s->weights + chunk * PART, *bias = sums + WINOGRAD_POINTS * SQUARES;
    memset(sums, 0, PART * sizeof *sums);
    for (int64_t image = p->batch * part / s->parts; image < p->batch * (part + 1) / s->parts; image++)
        for (int64_t row = 0; row < s->tile_rows; row += s->panel) {
            const int64_t rows = ct__min64(s->panel, s->tile_rows - row);
            for (int k = 0; k < PARTS; k++) {
                float *g = cotangent + k * s->plane;
                gather(panel + k * s->plane, &p->source, p->h.source, p->w.source, image, channel + k * LANES,
                       4 * row + p->h.first, span(rows), p->w.first, s->cols);
                gather(g, &p->target, p->h.target, p->w.target, image, channel + k * LANES, 4 * row, 4 * rows, 0, cols);
                vf32 sum = vf32_set1(0);
                for (int64_t j = 0; s->bias && j < 4 * rows * cols; j++) sum = vf32_add(sum, vf32_load(g + j * LANES));
                vf32_store(bias + k * LANES, vf32_add(vf32_load(bias + k * LANES), sum));
            }
            for (int64_t first = 0, end; first < rows; first = end) {
                end = ct__min64(first + s->block, rows);
                transform_rows(s, v, panel, first, end);
                float *to = z;
                for (int64_t r = first; r < end; r++)
                    for (int64_t c = 0; c < s->tile_cols; c++, to += WIDE)
                        for (int k = 0; k < PARTS; k++)
                            transform_cotangents(to + k * LANES, s->point,
                                                 cotangent + k * s->plane + 4 * (r * cols + c) * LANES, cols * LANES);
                add_products(sums, v, z, s->point, (end - first) * s->tile_cols);
            }
        }
}

/* The parts of a block, in their order. */
static void join_chunk(void *ctx, int64_t block, int worker) {
    const run *s = ctx;
    float taps[9 * SQUARES], half[3 * WINOGRAD_IN * SQUARES], *sums = s->weights + block * s->parts * PART;
    (void)worker;
    for (int64_t part = 1; part < s->parts; part++)
        for (int i = 0; i < PART; i += LANES)
            vf32_store(sums + i, vf32_add(vf32_load(sums + i), vf32_load(sums + part * PART + i)));
    apply_powers(half, SQUARES, WINOGRAD_IN * SQUARES, sums, SQUARES, WINOGRAD_IN * SQUARES, WINOGRAD_IN, true);
    apply_powers(taps, 3 * SQUARES, SQUARES, half, WINOGRAD_IN * SQUARES, SQUARES, 3, true);
    move_taps(s, taps, s->weight, block, true);
    if (s->bias) memcpy(s->bias + block * WIDE, sums + WINOGRAD_POINTS * SQUARES, WIDE * sizeof *sums);
}

/* ---- Both ---- */

bool CT_ISA_FN(ct__grouped_winograd_can)(const grouped_pass *p) {
    const depthwise_axis *h = &p->h, *w = &p->w;
    const int64_t tiles = ct__ceil_div(h->target, 4) * ct__ceil_div(w->target, 4);
    return p->dtype == CT_F32 && p->sources == 8 && p->targets == 8 && p->groups % 2 == 0 && h->taps == 3 &&
           w->taps == 3 && h->up == 1 && w->up == 1 && h->down == 1 && w->down == 1 && h->step == 1 && w->step == 1 &&
           tiles * 10 <= h->target * w->target;
}

size_t CT_ISA_FN(ct__grouped_winograd)(const grouped_pass *p, void *weight, float *bias_grad, void *scratch) {
    run s;
    plan(&s, p);
    const int64_t blocks = p->groups / 2, copies = weight ? 2 : 1;
    s.parts = weight ? ct__max64(1, ct__min64(p->batch, 32 / blocks)) : 1;
    s.weight = weight;
    s.bias = bias_grad;
    s.worker = depthwise_up(copies * (PARTS * s.plane + WINOGRAD_POINTS * s.point), 16);
    const int64_t weights = blocks * s.parts * PART;
    if (!scratch) return (size_t)(weights + ct__threads() * s.worker) * sizeof(float);
    s.weights = scratch;
    s.workers = s.weights + weights;
    ct__parallel(weight ? blocks * s.parts : blocks, weight ? sum_chunk : transform_weights, &s);
    ct__parallel(weight ? blocks : p->batch * blocks, weight ? join_chunk : block_chunk, &s);
    return 0;
}

#endif
