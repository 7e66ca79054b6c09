/* Winograd, forward: also the input gradient, which is a forward pass over the cotangent. Weights are
 * transformed once a call into the engine's panels; then blocks of tiles are transformed, multiplied and transformed
 * back while they are in cache. */
#include "ops/conv/winograd.h"

/* ---- Weights: u[(p * panels + panel) * panel_floats + i * width + o % width], zero past the channels ---- */

enum { WEIGHT_BLOCK = 16 }; /* input channels transformed at a time */

typedef struct weights {
    const winograd_pass *pass;
    float *u;
    int64_t width, panels, point; /* point: floats from one of the 36 products to the next */
    int64_t in_blocks;
} weights;

/* taps[(i * kernel^2 + k) * LANES + l] = w[out + l][in + i][k] */
static void gather_weights(float *taps, const winograd_pass *p, int64_t out, int lanes, int64_t in, int64_t count) {
    const float *w = p->w + out * p->w_out + in * p->w_in;
    const int64_t size = p->kernel, all = size * size;
    const bool dense = p->w_k[1] == 1 && p->w_k[0] == size;
    if (dense && p->w_in == all) {
        winograd_turn((char *)taps, LANES * 4, (const char *)w, p->w_out * 4, lanes, count * all, LANES);
        return;
    }
    for (int64_t i = 0; dense && i < count; i++)
        winograd_turn((char *)(taps + i * all * LANES), LANES * 4, (const char *)(w + i * p->w_in), p->w_out * 4, lanes,
                      all, LANES);
    if (dense) return;
    for (int64_t k = 0; k < all; k++) {
        const float *tap = w + k / size * p->w_k[0] + k % size * p->w_k[1];
        float *to = taps + k * LANES;
        if (p->w_out == 1)
            for (int64_t i = 0; i < count; i++) vf32_store(to + i * all * LANES, vf32_load_n(tap + i * p->w_in, lanes));
        else if (p->w_in == 1)
            winograd_turn((char *)to, all * LANES * 4, (const char *)tap, p->w_out * 4, lanes, count, LANES);
        else
            for (int64_t i = 0; i < count; i++)
                for (int l = 0; l < LANES; l++)
                    to[i * all * LANES + l] = l < lanes ? tap[i * p->w_in + l * p->w_out] : 0;
    }
}

/* U = G g G^T of one vector of output channels. */
static __attribute__((noinline)) void transform_taps_3(float *dst, int64_t point, const float *taps) {
    evaluate_square(dst, point, taps, 3 * LANES, LANES, 3, true);
}
static __attribute__((noinline)) void transform_taps_5(float *dst, int64_t point, const float *taps) {
    evaluate_square(dst, point, taps, 5 * LANES, LANES, 5, true);
}

/* A chunk: one vector of output channels by a block of input channels. */
static void transform_weights(void *ctx, int64_t chunk, int worker) {
    const weights *s = ctx;
    const winograd_pass *p = s->pass;
    const int64_t out = chunk / s->in_blocks * LANES, in = chunk % s->in_blocks * WEIGHT_BLOCK;
    const int64_t count = ct__min(WEIGHT_BLOCK, p->in_channels - in), all = p->kernel * p->kernel;
    const int lanes = (int)ct__max64(0, ct__min(LANES, p->out_channels - out));
    float taps[WEIGHT_BLOCK * 25 * LANES];
    (void)worker;
    if (lanes > 0) gather_weights(taps, p, out, lanes, in, count);
    else memset(taps, 0, (size_t)(count * all * LANES) * sizeof *taps);
    float *u = s->u + (out / s->width * p->in_channels + in) * s->width + out % s->width;
    for (int64_t i = 0; i < count; i++)
        (p->kernel == 3 ? transform_taps_3 : transform_taps_5)(u + i * s->width, s->point, taps + i * all * LANES);
}

/* ---- Tiles ---- */

/* V = B^T d B of one vector of channels: src has rows `row` and columns `col` floats apart. */
static __attribute__((noinline)) void transform_tile(float *dst, int64_t point, const float *src, int64_t row,
                                                     int64_t col) {
    vf32 half[36], line[6];
    for (int j = 0; j < 6; j++, src += col)
        transform_input(half + j, 6, vf32_load(src), vf32_load(src + row), vf32_load(src + 2 * row),
                        vf32_load(src + 3 * row), vf32_load(src + 4 * row), vf32_load(src + 5 * row));
    for (int i = 0; i < 6; i++) {
        const vf32 *h = half + i * 6;
        transform_input(line, 1, h[0], h[1], h[2], h[3], h[4], h[5]);
        for (int j = 0; j < 6; j++, dst += point) vf32_store(dst, line[j]);
    }
}

void CT_ISA_FN(ct__winograd_transform_tiles)(const winograd_points *v, const winograd_plane *x, int64_t channels,
                                             const winograd_tiles *tiles, int64_t before_h, int64_t before_w,
                                             int64_t first, int64_t end, float *band) {
    const int64_t step = tiles->step;
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(tiles, at, end);
        const int64_t row = run.row * step - before_h, col = run.col * step - before_w;
        const int64_t cols = winograd_span(run.count, step);
        float *to = v->data + (at - first) * v->tile;
        const bool rows_inside = row >= 0 && row + WINOGRAD_IN <= x->height;
        for (int64_t c = 0; c < channels; c += LANES) {
            const int lanes = (int)ct__min(LANES, channels - c);
            if (x->c == 1) {
                /* Channels last: tiles inside the image are read where they are. */
                for (int64_t t = 0; t < run.count; t++) {
                    const int64_t left = col + t * step;
                    const bool inside = rows_inside && lanes == LANES && left >= 0 && left + WINOGRAD_IN <= x->width;
                    const float *src = x->data + run.image * x->n + c + row * x->h + left * x->w;
                    if (!inside) {
                        winograd_gather(band, x, run.image, c, lanes, row, WINOGRAD_IN, left, WINOGRAD_IN);
                        src = band;
                    }
                    transform_tile(to + t * v->tile + c, v->point, src, inside ? x->h : WINOGRAD_IN * LANES,
                                   inside ? x->w : LANES);
                }
            } else {
                winograd_gather(band, x, run.image, c, lanes, row, WINOGRAD_IN, col, cols);
                for (int64_t t = 0; t < run.count; t++)
                    transform_tile(to + t * v->tile + c, v->point, band + t * step * LANES, cols * LANES, LANES);
            }
        }
        at += run.count;
    }
}

/* Y = A^T m A + bias. */
typedef void back_fn(float *dst, int64_t row, int64_t col, const float *src, int64_t point, vf32 bias);
static __attribute__((noinline)) void transform_back_4(float *dst, int64_t row, int64_t col, const float *src,
                                                       int64_t point, vf32 bias) {
    collect_square(dst, row, col, src, point, 4, false, &bias);
}
static __attribute__((noinline)) void transform_back_2(float *dst, int64_t row, int64_t col, const float *src,
                                                       int64_t point, vf32 bias) {
    collect_square(dst, row, col, src, point, 2, false, &bias);
}

/* ---- A pass ---- */

typedef struct image_out { /* one phase of y */
    float *data;
    int64_t n, c, h, w, height, width;
    const float *residual;
    int64_t rn, rc, rh, rw;
} image_out;

typedef struct forward {
    const winograd_pass *pass;
    const ct__kernel *kernel;
    weights weights;
    winograd_plane x;
    image_out y;
    winograd_tiles tiles;
    int64_t before[2];
    int64_t block;           /* tiles of a chunk */
    int64_t v_tile, v_point; /* floats */
    int64_t m_tile, m_point;
    int64_t band; /* floats */
    float *workers;
    int64_t worker;
} forward;

/* Residual and activation of `count` values that were just stored, `step` apart. */
static void finish_line(const winograd_pass *p, float *y, int64_t step, const float *residual, int64_t residual_step,
                        int64_t count) {
    float line[64];
    for (int64_t i = 0; i < count; i += 64) {
        const int64_t n = ct__min(64, count - i);
        float *at = step == 1 ? y + i : line;
        if (step != 1)
            for (int64_t j = 0; j < n; j++) line[j] = y[(i + j) * step];
        if (residual)
            for (int64_t j = 0; j < n; j++) at[j] += residual[(i + j) * residual_step];
        if (p->activate) p->activate(p->activate_ctx, at, n);
        if (step != 1)
            for (int64_t j = 0; j < n; j++) y[(i + j) * step] = line[j];
    }
}

/* band[(i * band_cols + j) * LANES + l] to rows and columns of y from (row, col). */
static void scatter(const forward *f, const float *band, int64_t band_cols, int64_t image, int64_t channel, int lanes,
                    int64_t row, int64_t rows, int64_t col, int64_t cols) {
    const image_out *y = &f->y;
    for (int64_t i = 0; i < rows; i++, band += band_cols * LANES) {
        float *dst = y->data + image * y->n + channel * y->c + (row + i) * y->h + col * y->w;
        if (y->c == 1) {
            for (int64_t j = 0; j < cols; j++) vf32_store_n(dst + j * y->w, vf32_load(band + j * LANES), lanes);
        } else if (y->w == 1) {
            for (int l = 0; l < lanes; l++)
                for (int64_t j = 0; j < cols; j += 16)
                    __builtin_prefetch(dst + l * y->c + j + f->tiles.step * y->h, 1, 2);
            winograd_turn((char *)dst, y->c * 4, (const char *)band, LANES * 4, cols, lanes, cols);
        } else {
            for (int64_t j = 0; j < cols; j++)
                for (int l = 0; l < lanes; l++) dst[j * y->w + l * y->c] = band[j * LANES + l];
        }
    }
}

static void finish_rows(const forward *f, int64_t image, int64_t channel, int lanes, int64_t row, int64_t rows,
                        int64_t col, int64_t cols) {
    const image_out *y = &f->y;
    for (int64_t i = 0; i < rows; i++) {
        float *dst = y->data + image * y->n + channel * y->c + (row + i) * y->h + col * y->w;
        const float *res = y->residual;
        if (res) res += image * y->rn + channel * y->rc + (row + i) * y->rh + col * y->rw;
        if (y->c == 1)
            for (int64_t j = 0; j < cols; j++)
                finish_line(f->pass, dst + j * y->w, 1, res ? res + j * y->rw : NULL, y->rc, lanes);
        else
            for (int l = 0; l < lanes; l++)
                finish_line(f->pass, dst + l * y->c, y->w, res ? res + l * y->rc : NULL, y->rw, cols);
    }
}

/* The products of a block, back to images. */
static void store_tiles(const forward *f, const float *m, int64_t first, int64_t end, float *band) {
    const winograd_pass *p = f->pass;
    const image_out *y = &f->y;
    const int64_t step = f->tiles.step;
    back_fn *transform_back = p->kernel == 3 ? transform_back_4 : transform_back_2;
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(&f->tiles, at, end);
        const int64_t row = run.row * step, col = run.col * step;
        const int64_t rows = ct__min(step, y->height - row);
        const int64_t cols = ct__min(run.count * step, y->width - col);
        const float *from = m + (at - first) * f->m_tile;
        for (int64_t c = 0; c < p->out_channels; c += LANES) {
            const int lanes = (int)ct__min(LANES, p->out_channels - c);
            vf32 bias = vf32_zero();
            if (p->bias) {
                float values[LANES] = {0};
                for (int l = 0; l < lanes; l++) values[l] = p->bias[(c + l) * p->bias_step];
                bias = vf32_load(values);
            }
            if (y->c == 1 && lanes == LANES) {
                for (int64_t t = 0; t < run.count; t++) {
                    const int64_t left = t * step, wide = ct__min(step, cols - left);
                    const bool whole = rows == step && wide == step;
                    float *dst = y->data + run.image * y->n + c + row * y->h + (col + left) * y->w;
                    transform_back(whole ? dst : band, whole ? y->h : step * LANES, whole ? y->w : LANES,
                                   from + t * f->m_tile + c, f->m_point, bias);
                    if (!whole) scatter(f, band, step, run.image, c, lanes, row, rows, col + left, wide);
                }
            } else {
                const int64_t wide = run.count * step;
                for (int64_t t = 0; t < run.count; t++)
                    transform_back(band + t * step * LANES, wide * LANES, LANES, from + t * f->m_tile + c, f->m_point,
                                   bias);
                scatter(f, band, wide, run.image, c, lanes, row, rows, col, cols);
            }
            if (y->residual || p->activate) finish_rows(f, run.image, c, lanes, row, rows, col, cols);
        }
        at += run.count;
    }
}

static void block_of_tiles(void *ctx, int64_t chunk, int worker) {
    const forward *f = ctx;
    const winograd_pass *p = f->pass;
    const int64_t first = chunk * f->block, end = ct__min(first + f->block, f->tiles.count);
    float *band = f->workers + worker * f->worker, *v = band + f->band, *m = v + WINOGRAD_POINTS * f->v_point;
    const winograd_points points = {v, f->v_point, f->v_tile};
    CT_ISA_FN(ct__winograd_transform_tiles)
    (&points, &f->x, p->in_channels, &f->tiles, f->before[0], f->before[1], first, end, band);
    winograd_product product = {.kernel = f->kernel,
                                .rows = end - first,
                                .tile_rows = winograd_tile_rows(f->kernel, end - first),
                                .a_row = f->v_tile * 4,
                                .a_step = 4,
                                .b_step = f->weights.width * 4,
                                .c_row = f->m_tile * 4};
    for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
        for (int64_t panel = 0; panel < f->weights.panels; panel++)
            for (int64_t k = 0; k < p->in_channels; k += f->kernel->depth) {
                product.k = ct__min(f->kernel->depth, p->in_channels - k);
                product.a = v + point * f->v_point + k;
                product.b = f->weights.u + point * f->weights.point + (panel * p->in_channels + k) * f->weights.width;
                product.c = m + point * f->m_point + panel * f->weights.width;
                product.accumulate = k > 0;
                winograd_multiply(&product);
            }
    store_tiles(f, m, first, end, band);
}

enum { BLOCK_BYTES = 640 << 10 }; /* of transformed tiles and products: about an L2 */

static void plan(const winograd_pass *p, forward *f) {
    *f = (forward){.pass = p, .kernel = ct__gemm_kernel(CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32)};
    weights *s = &f->weights;
    s->pass = p;
    s->width = ct__panel_width(f->kernel);
    s->panels = ct__ceil_div(p->out_channels, s->width);
    s->in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    s->point = winograd_odd(s->panels * s->width * p->in_channels);
    f->v_tile = winograd_odd(ct__round_up(p->in_channels, LANES));
    f->m_tile = winograd_odd(s->panels * s->width);

    /* The first phase is the largest. */
    const winograd_tiles tiles = winograd_tile(p->batch, ct__ceil_div(p->out[0], p->dilation[0]),
                                               ct__ceil_div(p->out[1], p->dilation[1]), winograd_step(p));
    const int64_t bytes = WINOGRAD_POINTS * 4 * (f->v_tile + f->m_tile), rows = f->kernel->rows;
    int64_t block = ct__max64(BLOCK_BYTES / bytes / rows, 2) * rows;
    block = ct__ceil_div(tiles.count, ct__max64(1, ct__ceil_div(tiles.count, block)));
    f->block = ct__max64(1, ct__grain(block));
    f->v_point = winograd_odd(f->v_tile * f->block);
    f->m_point = winograd_odd(f->m_tile * f->block);
    f->band = WINOGRAD_IN * winograd_span(ct__min(tiles.cols, f->block), tiles.step) * LANES;
    f->worker = winograd_odd(f->band + WINOGRAD_POINTS * (f->v_point + f->m_point));
}

size_t CT_ISA_FN(ct__winograd_pass_bytes)(const winograd_pass *pass) {
    forward f;
    plan(pass, &f);
    return (size_t)(WINOGRAD_POINTS * f.weights.point + ct__threads() * f.worker) * sizeof(float);
}

/* Outputs o = phase + d o' look at inputs d (o' + k) + phase - before: every d-th row from r = (phase - before) mod d. */
static void take_phase(const winograd_pass *p, forward *f, const int64_t phase[2]) {
    int64_t from[2], height[2], size[2];
    for (int a = 0; a < 2; a++) {
        const int64_t d = p->dilation[a], at = phase[a] - p->before[a], r = ((at % d) + d) % d;
        from[a] = r;
        f->before[a] = -(at - r) / d;
        height[a] = p->in[a] > r ? ct__ceil_div(p->in[a] - r, d) : 0;
        size[a] = p->out[a] > phase[a] ? ct__ceil_div(p->out[a] - phase[a], d) : 0;
    }
    const ct_image_strides *xs = &p->x_step, *ys = &p->y_step, *rs = &p->residual_step;
    f->x = (winograd_plane){p->x + from[0] * xs->s[1] + from[1] * xs->s[2],
                            xs->n,
                            xs->c,
                            xs->s[1] * p->dilation[0],
                            xs->s[2] * p->dilation[1],
                            height[0],
                            height[1],
                            winograd_step(p)};
    f->y = (image_out){.data = p->y + phase[0] * ys->s[1] + phase[1] * ys->s[2],
                       .n = ys->n,
                       .c = ys->c,
                       .h = ys->s[1] * p->dilation[0],
                       .w = ys->s[2] * p->dilation[1],
                       .height = size[0],
                       .width = size[1]};
    if (p->residual) {
        f->y.residual = p->residual + phase[0] * rs->s[1] + phase[1] * rs->s[2];
        f->y.rn = rs->n, f->y.rc = rs->c;
        f->y.rh = rs->s[1] * p->dilation[0], f->y.rw = rs->s[2] * p->dilation[1];
    }
    f->tiles = winograd_tile(p->batch, size[0], size[1], winograd_step(p));
}

void CT_ISA_FN(ct__winograd_pass)(const winograd_pass *p, void *scratch) {
    forward f;
    plan(p, &f);
    f.weights.u = scratch;
    f.workers = f.weights.u + WINOGRAD_POINTS * f.weights.point;
    ct__parallel(f.weights.panels * (f.weights.width / LANES) * f.weights.in_blocks, transform_weights, &f.weights);
    for (int64_t h = 0; h < p->dilation[0]; h++)
        for (int64_t w = 0; w < p->dilation[1]; w++) {
            take_phase(p, &f, (const int64_t[2]){h, w});
            ct__parallel(ct__ceil_div(f.tiles.count, f.block), block_of_tiles, &f);
        }
}
