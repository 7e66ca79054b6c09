/* Winograd, weight gradient: dw = G^T [ sum over tiles (B^T d B) . (A dy A^T) ] G, where the sums over tiles are
 * 36 products of (in channels x tiles) by (tiles x out channels). Tiles go through in groups: all workers transform a
 * group, then all add its products, so that sums are formed in one order and need no copies a worker. */
#include "ops/conv/winograd.h"

enum {
    GROUP_BYTES = 16 << 20, /* of transformed tiles: a part of L3 */
    CHUNK_TILES = 16,       /* transformed by one worker at a time */
    DEPTH = 128,            /* tiles multiplied at a time: a panel of them in L1 */
    WEIGHT_BLOCK = 16       /* input channels transformed back at a time */
};

typedef struct gradient {
    const winograd_pass *pass;
    const ct__kernel *kernel;
    winograd_plane x, y;
    winograd_tiles tiles;
    int64_t before[2];
    int64_t width, panels;
    int64_t group;      /* tiles of a group */
    int64_t first, end; /* the group at work */
    float *v;           /* (36, group, v_tile) */
    int64_t v_tile, v_point;
    float *z; /* (36, panels, group, width) */
    int64_t z_point;
    float *sums; /* (36, in_channels, panels * width) */
    int64_t sum_row, sum_point;
    bool accumulate;
    int64_t row_block, row_blocks, panel_block, panel_blocks; /* chunks of a product */
    float *bias_parts; /* (chunks of a group, panels * width): sums of y, when they are wanted */
    float *bands;
    int64_t band;
    float *weight;
    int64_t in_blocks;
} gradient;

/* Z = A dy A^T of one vector of channels. */
typedef void cotangents_fn(float *dst, int64_t point, const float *src, int64_t row, int64_t col);
static __attribute__((noinline)) void transform_cotangents_4(float *dst, int64_t point, const float *src, int64_t row,
                                                             int64_t col) {
    evaluate_square(dst, point, src, row, col, 4, false);
}
static __attribute__((noinline)) void transform_cotangents_2(float *dst, int64_t point, const float *src, int64_t row,
                                                             int64_t col) {
    evaluate_square(dst, point, src, row, col, 2, false);
}

static vf32 sum_band(const float *band, int64_t count, vf32 sum) {
    for (int64_t i = 0; i < count; i++) sum = vf32_add(sum, vf32_load(band + i * LANES));
    return sum;
}

static void transform_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const winograd_pass *p = g->pass;
    const int64_t first = g->first + chunk * CHUNK_TILES, end = ct__min(first + CHUNK_TILES, g->end);
    float *band = g->bands + worker * g->band;
    const winograd_points points = {g->v + (first - g->first) * g->v_tile, g->v_point, g->v_tile};
    CT_ISA_FN(ct__winograd_transform_tiles)
    (&points, &g->x, p->in_channels, &g->tiles, g->before[0], g->before[1], first, end, band);

    const int64_t columns = g->panels * g->width, step = g->tiles.step;
    cotangents_fn *transform_cotangents = p->kernel == 3 ? transform_cotangents_4 : transform_cotangents_2;
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(&g->tiles, at, end);
        const int64_t cols = run.count * step;
        for (int64_t c = 0; c < columns; c += LANES) {
            const int lanes = (int)ct__max64(0, ct__min(LANES, p->out_channels - c));
            float *to = g->z + (c / g->width * g->group + at - g->first) * g->width + c % g->width;
            if (lanes > 0)
                winograd_gather(band, &g->y, run.image, c, lanes, run.row * step, step, run.col * step, cols);
            else memset(band, 0, (size_t)(step * cols * LANES) * sizeof *band);
            if (g->bias_parts) {
                float *sum = g->bias_parts + chunk * columns + c;
                vf32_store(sum, sum_band(band, step * cols, at == first ? vf32_zero() : vf32_load(sum)));
            }
            for (int64_t t = 0; t < run.count; t++)
                transform_cotangents(to + t * g->width, g->z_point, band + t * step * LANES, cols * LANES, LANES);
        }
        at += run.count;
    }
}

/* A chunk: one point, a block of input channels, a block of panels. */
static void multiply_chunk(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const int64_t blocks = g->row_blocks * g->panel_blocks, point = chunk / blocks;
    const int64_t row = chunk % blocks / g->panel_blocks * g->row_block;
    const int64_t panel0 = chunk % g->panel_blocks * g->panel_block;
    const int64_t panel1 = ct__min(panel0 + g->panel_block, g->panels), tiles = g->end - g->first;
    winograd_product product = {.kernel = g->kernel,
                                .rows = ct__min(g->row_block, g->pass->in_channels - row),
                                .a_row = 4,
                                .a_step = g->v_tile * 4,
                                .b_step = g->width * 4,
                                .c_row = g->sum_row * 4};
    (void)worker;
    product.tile_rows = winograd_tile_rows(g->kernel, product.rows);
    for (int64_t k = 0; k < tiles; k += DEPTH)
        for (int64_t panel = panel0; panel < panel1; panel++) {
            product.k = ct__min(DEPTH, tiles - k);
            product.a = g->v + point * g->v_point + k * g->v_tile + row;
            product.b = g->z + point * g->z_point + (panel * g->group + k) * g->width;
            product.c = g->sums + point * g->sum_point + row * g->sum_row + panel * g->width;
            product.accumulate = g->accumulate || k > 0;
            winograd_multiply(&product);
        }
}

/* The inverse of gather_weights: w[out + l][in + i][k] = taps[(i * kernel^2 + k) * LANES + l]. */
static void scatter_weights(const gradient *g, const float *taps, int64_t out, int lanes, int64_t in, int64_t count) {
    const winograd_pass *p = g->pass;
    const int64_t size = p->kernel, all = size * size;
    float *w = g->weight + out * p->w_out + in * p->w_in;
    if (p->w_k[1] == 1 && p->w_k[0] == size && p->w_in == all) {
        winograd_turn((char *)w, p->w_out * 4, (const char *)taps, LANES * 4, count * all, lanes, count * all);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < all; k++) {
            float *to = w + i * p->w_in + k / size * p->w_k[0] + k % size * p->w_k[1];
            const float *from = taps + (i * all + k) * LANES;
            if (p->w_out == 1) vf32_store_n(to, vf32_load(from), lanes);
            else
                for (int l = 0; l < lanes; l++) to[l * p->w_out] = from[l];
        }
}

/* dw = G^T m G of one vector of output channels. */
static __attribute__((noinline)) void transform_sum_3(float *taps, const float *sum, int64_t point) {
    collect_square(taps, 3 * LANES, LANES, sum, point, 3, true, NULL);
}
static __attribute__((noinline)) void transform_sum_5(float *taps, const float *sum, int64_t point) {
    collect_square(taps, 5 * LANES, LANES, sum, point, 5, true, NULL);
}

/* A chunk is one vector of output channels by a block of input channels. */
static void transform_sums(void *ctx, int64_t chunk, int worker) {
    const gradient *g = ctx;
    const winograd_pass *p = g->pass;
    const int64_t out = chunk / g->in_blocks * LANES, in = chunk % g->in_blocks * WEIGHT_BLOCK;
    const int64_t count = ct__min(WEIGHT_BLOCK, p->in_channels - in), all = p->kernel * p->kernel;
    float taps[WEIGHT_BLOCK * 25 * LANES];
    (void)worker;
    for (int64_t i = 0; i < count; i++)
        (p->kernel == 3 ? transform_sum_3 : transform_sum_5)(taps + i * all * LANES,
                                                             g->sums + (in + i) * g->sum_row + out, g->sum_point);
    scatter_weights(g, taps, out, (int)ct__min(LANES, p->out_channels - out), in, count);
}

static void plan(const winograd_pass *p, gradient *g) {
    *g = (gradient){.pass = p, .kernel = ct__gemm_kernel(CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32)};
    g->width = ct__panel_width(g->kernel);
    g->panels = ct__ceil_div(p->out_channels, g->width);
    g->v_tile = winograd_odd(ct__round_up(p->in_channels, LANES));
    const winograd_tiles tiles = winograd_tile(p->batch, ct__ceil_div(p->out[0], p->dilation[0]),
                                               ct__ceil_div(p->out[1], p->dilation[1]), winograd_step(p));
    const int64_t bytes = WINOGRAD_POINTS * 4 * (g->v_tile + g->panels * g->width);
    const int64_t groups = ct__max64(1, ct__ceil_div(tiles.count * bytes, GROUP_BYTES));
    g->group = ct__max64(1, ct__round_up(ct__ceil_div(tiles.count, groups), CHUNK_TILES));
    g->v_point = winograd_odd(g->group * g->v_tile);
    g->z_point = winograd_odd(g->group * g->panels * g->width);
    g->sum_row = g->panels * g->width;
    g->sum_point = winograd_odd(p->in_channels * g->sum_row);
    g->band = winograd_odd(WINOGRAD_IN * winograd_span(ct__min(tiles.cols, CHUNK_TILES), tiles.step) * LANES);
    g->row_blocks = ct__ceil_div(p->in_channels, 5 * g->kernel->rows);
    g->row_block = ct__ceil_div(p->in_channels, ct__max64(1, g->row_blocks));
    g->panel_block = 4;
    g->panel_blocks = ct__ceil_div(g->panels, g->panel_block);
    g->in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
}

size_t CT_ISA_FN(ct__winograd_weight_bytes)(const winograd_pass *pass) {
    gradient g;
    plan(pass, &g);
    const int64_t parts = pass->bias_grad ? g.group / CHUNK_TILES * g.sum_row : 0;
    return (size_t)(WINOGRAD_POINTS * (g.v_point + g.z_point + g.sum_point) + ct__threads() * g.band + parts) *
           sizeof(float);
}

/* As in the forward pass: each phase of a dilation is an image of its own. */
static bool take_phase(const winograd_pass *p, gradient *g, const int64_t phase[2]) {
    const ct_image_strides *xs = &p->x_step, *ys = &p->y_step;
    int64_t from[2], in[2], out[2];
    for (int a = 0; a < 2; a++) {
        const int64_t d = p->dilation[a], at = phase[a] - p->before[a], r = ((at % d) + d) % d;
        from[a] = r;
        g->before[a] = -(at - r) / d;
        in[a] = p->in[a] > r ? ct__ceil_div(p->in[a] - r, d) : 0;
        out[a] = p->out[a] > phase[a] ? ct__ceil_div(p->out[a] - phase[a], d) : 0;
    }
    g->x = (winograd_plane){p->x + from[0] * xs->s[1] + from[1] * xs->s[2],
                            xs->n,
                            xs->c,
                            xs->s[1] * p->dilation[0],
                            xs->s[2] * p->dilation[1],
                            in[0],
                            in[1],
                            winograd_step(p)};
    g->y = (winograd_plane){p->y + phase[0] * ys->s[1] + phase[1] * ys->s[2],
                            ys->n,
                            ys->c,
                            ys->s[1] * p->dilation[0],
                            ys->s[2] * p->dilation[1],
                            out[0],
                            out[1],
                            winograd_step(p)};
    g->tiles = winograd_tile(p->batch, out[0], out[1], winograd_step(p));
    return g->tiles.count > 0;
}

void CT_ISA_FN(ct__winograd_weight_pass)(const winograd_pass *p, float *weight, void *scratch) {
    gradient g;
    plan(p, &g);
    g.weight = weight;
    g.v = scratch;
    g.z = g.v + WINOGRAD_POINTS * g.v_point;
    g.sums = g.z + WINOGRAD_POINTS * g.z_point;
    g.bands = g.sums + WINOGRAD_POINTS * g.sum_point;
    if (p->bias_grad) {
        g.bias_parts = g.bands + ct__threads() * g.band;
        memset(p->bias_grad, 0, (size_t)p->out_channels * sizeof *p->bias_grad);
    }
    for (int64_t h = 0; h < p->dilation[0]; h++)
        for (int64_t w = 0; w < p->dilation[1]; w++) {
            if (!take_phase(p, &g, (const int64_t[2]){h, w})) continue;
            for (g.first = 0; g.first < g.tiles.count; g.first = g.end, g.accumulate = true) {
                g.end = ct__min(g.first + g.group, g.tiles.count);
                ct__parallel(ct__ceil_div(g.end - g.first, CHUNK_TILES), transform_chunk, &g);
                for (int64_t chunk = 0; p->bias_grad && chunk * CHUNK_TILES < g.end - g.first; chunk++)
                    for (int64_t o = 0; o < p->out_channels; o++)
                        p->bias_grad[o] += g.bias_parts[chunk * g.sum_row + o];
                ct__parallel(WINOGRAD_POINTS * g.row_blocks * g.panel_blocks, multiply_chunk, &g);
            }
        }
    if (!g.accumulate) memset(g.sums, 0, (size_t)(WINOGRAD_POINTS * g.sum_point) * sizeof *g.sums);
    ct__parallel(ct__ceil_div(p->out_channels, LANES) * g.in_blocks, transform_sums, &g);
}
