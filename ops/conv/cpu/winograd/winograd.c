/* Winograd, forward: also the input gradient, which is a forward pass over the cotangent with the taps reversed.
 * Weights are transformed into the engine's panels; then blocks of tiles are transformed, multiplied and transformed back
 * while they are in cache.
 *
 * On few threads, or if they are small, the weights are transformed once per call, for all. On many each worker transforms those that
 * it multiplies, into scratch of its own, although others do the same: a core that writes lines which others have read since waits for each of
 * them to be invalidated there, longer than the transform takes. So work is cut into groups of output channels as well as
 * blocks of tiles, as large as the L2 of a worker holds their weights. Where not even those of one panel fit, tiles and
 * weights are transformed a slice of the input channels at a time. */
#include "ops/conv/cpu/winograd/winograd.h"
#include "backends/cpu/gemm/block.h"
#include "backends/cpu/gemm/caches.h"
#include "ops/conv/cpu/winograd/winograd_panels.h"

/* Y = A^T m A + bias. */
WINOGRAD_COLLECT(transform_back_5, 5, false)
WINOGRAD_COLLECT(transform_back_4, 4, false)
WINOGRAD_COLLECT(transform_back_2, 2, false)

/* ---- A pass ---- */

/* Who transforms the weights: all workers for all, each the groups that it has chunks of, or each a slice and panel at a time. */
typedef enum weights_from { SHARED, OWN, SLICED } weights_from;

typedef struct forward {
    winograd_frame frame;
    const ct__kernel *kernel;
    weights weights;
    weights_from from;
    int64_t section, block, blocks; /* planes of results and tiles of each of a chunk; chunks of a section */
    int64_t together;               /* results multiplied at a time */
    int64_t panel_groups, group; /* shares of the output channels that chunks of the same tiles have; panels of each */
    int64_t slice; /* input channels summed at a time: by sizes alone, since the bits of the sums hang on it */
    int64_t v_tile, v_point; /* floats */
    int64_t m_tile, m_point, m_parity;
    int64_t band;
    float *workers; /* of each: which group its weights are of (HEADER), band, v, m, u */
    int64_t worker;
} forward;

enum { HEADER = 16 }; /* floats: a cache line */

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

/* Where results are on their way to the image: rows and columns of it, channels [channel, channel + lanes). */
typedef struct place {
    int64_t image, plane, channel;
    int lanes;
    int64_t row, rows, col, cols;
} place;

static float *place_in(const winograd_image *y, const place *at) {
    return winograd_plane(y, at->image, at->plane) + at->channel * y->c + at->row * y->h + at->col * y->w;
}

/* band[(i * band_cols + j) * LANES + l] to y. */
static void scatter(const winograd_image *y, const float *band, int64_t band_cols, const place *at) {
    float *dst = place_in(y, at);
    for (int64_t i = 0; i < at->rows; i++, band += band_cols * LANES, dst += y->h) {
        if (y->c == 1) {
            for (int64_t j = 0; j < at->cols; j++) vf32_store_n(dst + j * y->w, vf32_load(band + j * LANES), at->lanes);
        } else if (y->w == 1) {
            winograd_transpose((char *)dst, y->c * 4, (const char *)band, LANES * 4, at->cols, at->lanes, at->cols);
        } else {
            for (int64_t j = 0; j < at->cols; j++)
                for (int l = 0; l < at->lanes; l++) dst[j * y->w + l * y->c] = band[j * LANES + l];
        }
    }
}

static void finish_rows(const winograd_frame *f, const place *at) {
    const winograd_image *y = &f->y, *r = &f->residual;
    float *dst = place_in(y, at);
    const float *res = r->data ? place_in(r, at) : NULL;
    for (int64_t i = 0; i < at->rows; i++, dst += y->h) {
        const float *line = res ? res + i * r->h : NULL;
        if (y->c == 1)
            for (int64_t j = 0; j < at->cols; j++)
                finish_line(f->pass, dst + j * y->w, 1, res ? line + j * r->w : NULL, r->c, at->lanes);
        else
            for (int l = 0; l < at->lanes; l++)
                finish_line(f->pass, dst + l * y->c, y->w, res ? line + l * r->c : NULL, r->w, at->cols);
    }
}

/* All parities of a tile, from point 0 of its first. */
static void collect_parities(const forward *f, float *dst, int64_t row, int64_t col, const float *m, vf32 bias) {
    const winograd_image *y = &f->frame.y;
    const int step = f->frame.step;
    winograd_collect_fn *back = step == 5 ? transform_back_5 : step == 4 ? transform_back_4 : transform_back_2;
    for (int64_t h = 0; h < y->spread[0]; h++)
        for (int64_t w = 0; w < y->spread[1]; w++, m += f->m_parity)
            back(dst + h * row + w * col, y->spread[0] * row, y->spread[1] * col, m, f->m_point, bias);
}

/* What a chunk computes of the output: panels of the weights, and the channels that they are for. */
typedef struct share {
    int64_t panel, end_panel, channel, end_channel;
} share;

static share share_of(const forward *f, int64_t group) {
    const weights *s = &f->weights;
    const int64_t panel = group * f->group, end = ct__min(panel + f->group, s->panels);
    if (f->panel_groups == 1) return (share){0, s->panels, 0, f->frame.pass->out_channels};
    return (share){panel, end, panel * s->width, ct__min(end * s->width, f->frame.pass->out_channels)};
}

/* The products of tiles [first, end) of a plane, back to images. */
static void store_tiles(const forward *f, const share *of, const float *m, int64_t plane, int64_t first, int64_t end,
                        float *band) {
    const winograd_pass *p = f->frame.pass;
    const winograd_image *y = &f->frame.y;
    for (int64_t t = first; t < end;) {
        const winograd_run run = winograd_next_run(&f->frame.tiles, t, end);
        const int64_t row = run.row * y->step[0] - y->before[0], col = run.col * y->step[1] - y->before[1];
        const int64_t above = ct__max64(0, -row), wide = run.count * y->step[1];
        const float *from = m + (t - first) * f->m_tile;
        place at = {.image = run.image, .plane = plane, .row = row + above};
        at.rows = ct__min(y->step[0], y->height - row) - above;
        t += run.count;
        for (int64_t c = of->channel; c < of->end_channel; c += LANES) {
            at.channel = c;
            at.lanes = (int)ct__min(LANES, p->out_channels - c);
            vf32 bias = vf32_zero();
            if (p->bias) {
                float values[LANES] = {0};
                for (int l = 0; l < at.lanes; l++) values[l] = p->bias[(c + l) * p->bias_step];
                bias = vf32_load(values);
            }
            /* Whole tiles of whole vectors of channels go where they belong, others by the band: one by one where channels
             * are last, a row of them where they are first. */
            const bool last = y->c == 1 && at.lanes == LANES;
            const int64_t pace = last ? y->step[1] : wide;
            for (int64_t left = 0; left < wide; left += pace) {
                const int64_t beside = ct__max64(0, -(col + left));
                at.col = col + left + beside;
                at.cols = ct__min(pace, y->width - (col + left)) - beside;
                const bool whole = last && at.rows == y->step[0] && at.cols == pace;
                float *dst = whole ? place_in(y, &at) : band;
                for (int64_t j = 0; j < pace; j += y->step[1], from += f->m_tile)
                    collect_parities(f, dst + j * LANES, whole ? y->h : pace * LANES, whole ? y->w : LANES,
                                     from + c - of->channel, bias);
                if (!whole && at.cols > 0) scatter(y, band + (above * pace + beside) * LANES, pace, &at);
            }
            from -= run.count * f->m_tile;
            if (f->frame.residual.data || p->activate) {
                at.col = ct__max64(0, col);
                at.cols = ct__min(wide + col, y->width) - at.col;
                finish_rows(&f->frame, &at);
            }
        }
    }
}

enum { RUNS = 32 }; /* of taps multiplied at a time, at most */

/* The products of one point and panel, over n runs of taps; as `product` says, but for the tile's operands. m: of the first
 * panel of the chunk's share. */
static void multiply_panel(const forward *f, const share *of, const weights *s, const winograd_product *product,
                           const ct__run *runs, int64_t n, const float *v, float *m, int64_t point, int64_t panel) {
    const int64_t channels = f->frame.pass->in_channels, depth = ct__min(f->kernel->depth, ct__min(f->slice, channels));
    const int64_t most = ct__max64(1, ct__min(RUNS, f->kernel->depth / depth)); /* runs that share a register tile */
    const int64_t columns = s->vectors * LANES * winograd_parities(&f->frame.y);
    for (int64_t k = 0, before = product->accumulate; k < channels; k += depth)
        for (int64_t run = 0; run < ct__max64(n, 1); run += most, before = true) {
            winograd_product part = *product;
            part.k = n ? ct__min(depth, channels - k) : 0; /* nothing but padding: zeros */
            part.runs = runs + run, part.n_runs = ct__min(most, n - run);
            part.a = v + point * f->v_point + k;
            part.b = s->u + point * s->point + ((panel - s->first) * s->deep + k) * s->width;
            part.c = m + point * f->m_point + (panel - of->panel) * s->width;
            part.vecs = winograd_panel_vecs(f->kernel, columns, panel);
            part.accumulate = before;
            winograd_multiply(&part);
        }
}

/* Products of the results of planes [d, end), which see the same taps, with the block's `tiles` tiles; v begins with source
 * plane `low`, of `slots` a parity. */
static void multiply(const forward *f, const share *of, const weights *s, const float *v, float *m, int64_t d,
                     int64_t end, int64_t tiles, int64_t low, int64_t slots, winograd_ahead *reads,
                     winograd_ahead *writes) {
    const winograd_pass *p = f->frame.pass;
    const int64_t taps = winograd_parities(&f->frame.x) * p->kernel[0];
    winograd_product product = {.kernel = f->kernel,
                                .rows = (end - d) * tiles,
                                .tile_rows = winograd_tile_rows(f->kernel, (end - d) * tiles),
                                .a_row = f->v_tile * 4,
                                .a_step = 4,
                                .b_step = s->width * 4,
                                .c_row = f->m_tile * 4};
    CT_ISA_FN(ct__winograd_ahead_start)(reads, WINOGRAD_POINTS * (of->end_panel - of->panel));
    CT_ISA_FN(ct__winograd_ahead_start)(writes, WINOGRAD_POINTS * (of->end_panel - of->panel));
    for (int64_t tap = 0; tap < taps;) {
        ct__run runs[RUNS];
        int64_t n = 0;
        for (; tap < taps && n < RUNS; tap++) {
            const int64_t source = winograd_source(&f->frame, d, tap % p->kernel[0]);
            if (source < 0) continue;
            runs[n].a = (tap / p->kernel[0] * slots + source - low) * tiles * f->v_tile * 4;
            runs[n++].b = tap * p->in_channels * s->width * 4;
        }
        if (n == 0 && (product.accumulate || tap < taps)) continue;
        for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
            for (int64_t panel = of->panel; panel < of->end_panel; panel++) {
                CT_ISA_FN(ct__winograd_ask)(writes);
                CT_ISA_FN(ct__winograd_ask)(reads);
                multiply_panel(f, of, s, &product, runs, n, v, m, point, panel);
            }
        product.accumulate = true;
    }
}

/* ---- A worker's own weights ---- */

/* Panels [panel, end) of the weights, of the channels that the pass has, as they lie in a worker's own memory. */
static weights own_weights(const forward *f, float *u, int64_t panel, int64_t end) {
    const winograd_pass *p = f->frame.pass;
    weights own = f->weights;
    own.u = u;
    own.first = panel;
    own.deep = winograd_parities(&f->frame.x) * p->kernel[0] * p->in_channels;
    own.in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    own.point = winograd_odd((end - panel) * own.deep * own.width);
    return own;
}

/* Workers begin at different places: those that transform the same weights would otherwise wait for the same lines. */
static void transform_own(const weights *own, int64_t end, int worker) {
    const bool all = winograd_parities(&own->frame->y) > 1; /* parities are not cut */
    const int64_t blocks = own->frame->pass->kernel[0] * own->in_blocks;
    const int64_t first = all ? 0 : own->first * own->width / LANES,
                  last = all ? own->vectors : ct__min(end * own->width / LANES, own->vectors),
                  chunks = (last - first) * blocks, begin = chunks * worker / ct__threads();
    for (int64_t i = 0; i < chunks; i++) transform_weights((void *)own, first * blocks + (begin + i) % chunks, 0);
}

/* ---- By slices ---- */

enum { PANELS_AT_ONCE = 4 }; /* whose products stay in cache while tiles are transformed, once for all of them */

/* The weights of panel `at`, input channels [k, k + slice): runs of contiguous bytes, or none. */
static ct__spans weights_of(const forward *f, int64_t at, int64_t k) {
    const winograd_pass *p = f->frame.pass;
    const int64_t taps = p->kernel[1] * p->kernel[2], out = at * f->weights.width,
                  outs = ct__min(f->weights.width, p->out_channels - out), ins = ct__min(f->slice, p->in_channels - k);
    const char *from = (const char *)(p->w + out * p->w_out + k * p->w_in);
    if (outs <= 0 || p->w_k[2] != 1 || p->w_k[1] != p->kernel[2]) return (ct__spans){0};
    if (p->w_in == taps) return (ct__spans){from, outs, p->w_out * 4, ins * taps * 4};
    if (p->w_out == taps) return (ct__spans){from, ins, p->w_in * 4, outs * taps * 4};
    return (ct__spans){0};
}

/* Those that follow panel `at` of the panels [first, end) that are multiplied together, of the share's last_panel. */
static ct__spans weights_after(const forward *f, int64_t at, int64_t first, int64_t end, int64_t last_panel,
                               int64_t k) {
    if (at + 1 < end) return weights_of(f, at + 1, k);
    if (k + f->slice < f->frame.pass->in_channels) return weights_of(f, first, k + f->slice);
    return end < last_panel ? weights_of(f, end, 0) : (ct__spans){0};
}

/* The share of a point. */
static void prefetch_share(const ct__spans *all, int64_t point) {
    if (!all->count) return;
    const int64_t first = all->count * point / WINOGRAD_POINTS, end = all->count * (point + 1) / WINOGRAD_POINTS;
    const ct__spans part = {all->at + first * all->stride, end - first, all->stride, all->bytes};
    ct__prefetch_now(&part);
}

/* A chunk is a block of tiles, all of one plane, and a share of the output channels. */
static void block_of_slices(void *ctx, int64_t chunk, int worker) {
    const forward *f = ctx;
    const winograd_pass *p = f->frame.pass;
    const share of = share_of(f, chunk / f->blocks);
    const int64_t first = chunk % f->blocks * f->block, end = ct__min(first + f->block, f->frame.tiles.count);
    float *band = f->workers + worker * f->worker + HEADER, *v = band + f->band, *m = v + WINOGRAD_POINTS * f->v_point,
          *u = m + WINOGRAD_POINTS * f->m_point;
    const winograd_points points = {v, f->v_point, 0, f->v_tile};
    const ct__run all = {0, 0};
    winograd_pass slice = *p; /* the pass, as if it had no other channels */
    forward part = *f;
    part.frame.pass = &slice;
    part.weights.frame = &part.frame;
    winograd_product product = {.kernel = f->kernel,
                                .rows = end - first,
                                .tile_rows = winograd_tile_rows(f->kernel, end - first),
                                .a_row = f->v_tile * 4,
                                .a_step = 4,
                                .b_step = f->weights.width * 4,
                                .c_row = f->m_tile * 4};
    for (int64_t panel = of.panel; panel < of.end_panel; panel += PANELS_AT_ONCE)
        for (int64_t k = 0; k < p->in_channels; k += f->slice) {
            slice.in_channels = ct__min(f->slice, p->in_channels - k);
            slice.w = p->w + k * p->w_in;
            part.frame.x.data = f->frame.x.data + k * f->frame.x.c;
            CT_ISA_FN(ct__winograd_transform_tiles)(&points, &part.frame, 0, first, end, band, NULL);
            product.accumulate = k > 0;
            const int64_t end_panel = ct__min(panel + PANELS_AT_ONCE, of.end_panel);
            winograd_image later = part.frame.x; /* the next slice of the same tiles */
            winograd_ahead reads = winograd_ahead_of(&f->frame, true, 0, first, end);
            later.data += f->slice * later.c;
            reads.image = &later;
            reads.channels = ct__min(f->slice, p->in_channels - k - f->slice);
            reads.skip = 0;
            if (reads.channels <= 0 || later.c == 1) reads.at = end;
            CT_ISA_FN(ct__winograd_ahead_start)(&reads, WINOGRAD_POINTS * (end_panel - panel));
            for (int64_t at = panel; at < end_panel; at++) {
                const weights own = own_weights(&part, u, at, at + 1);
                transform_own(&own, at + 1, 0);
                const ct__spans next = weights_after(f, at, panel, end_panel, of.end_panel, k);
                for (int64_t point = 0; point < WINOGRAD_POINTS; point++) {
                    prefetch_share(&next, point);
                    CT_ISA_FN(ct__winograd_ask)(&reads);
                    multiply_panel(&part, &of, &own, &product, &all, 1, v, m, point, at);
                }
            }
        }
    store_tiles(f, &of, m, 0, first, end, band);
}

/* ---- By blocks of tiles ---- */

/* Whether results of the planes d and e see the same taps, in sources as far apart as d and e are. */
static bool same_taps(const winograd_frame *f, int64_t d, int64_t e) {
    for (int64_t k = 0; k < f->pass->kernel[0]; k++) {
        const int64_t a = winograd_source(f, d, k), b = winograd_source(f, e, k);
        if (a < 0 ? b >= 0 : b != a + e - d) return false;
    }
    return true;
}

/* A chunk is a block of tiles in some planes, and a share of the output channels. */
static void block_of_tiles(void *ctx, int64_t chunk, int worker) {
    const forward *f = ctx;
    const int64_t blocks = f->blocks * ct__ceil_div(f->frame.planes, f->section), group = chunk / blocks;
    const share of = share_of(f, group);
    chunk %= blocks;
    const int64_t d0 = chunk / f->blocks * f->section, d1 = ct__min(d0 + f->section, f->frame.planes);
    const int64_t first = chunk % f->blocks * f->block, end = ct__min(first + f->block, f->frame.tiles.count);
    const int64_t tiles = end - first;
    int64_t *held = (int64_t *)(void *)(f->workers + worker * f->worker);
    float *band = (float *)(void *)held + HEADER, *v = band + f->band, *m = v + WINOGRAD_POINTS * f->v_point;
    weights own = f->weights;
    if (f->from == OWN) {
        own = own_weights(f, m + WINOGRAD_POINTS * f->m_point, of.panel, of.end_panel);
        if (*held != group) transform_own(&own, of.end_panel, worker);
        *held = group;
    }
    int64_t low, high, done;
    winograd_sources(&f->frame, d0, d1, &low, &high);
    done = low;
    for (int64_t d = d0, next; d < d1; d = next) {
        for (next = d + 1; next < d1 && next - d < f->together && same_taps(&f->frame, d, next);) next++;
        int64_t from, to;
        winograd_sources(&f->frame, d, next, &from, &to);
        for (; done < to; done++) {
            const winograd_points points = {v + (done - low) * tiles * f->v_tile, f->v_point,
                                            (high - low) * tiles * f->v_tile, f->v_tile};
            CT_ISA_FN(ct__winograd_transform_tiles)(&points, &f->frame, done, first, end, band, NULL);
        }
        /* What will be read next: another plane, or the block that follows. */
        winograd_ahead reads = winograd_ahead_of(&f->frame, true, done, first, end), writes = {0};
        if (done >= high) reads.plane = low, reads.at = end, reads.end = ct__min(end + tiles, f->frame.tiles.count);
        winograd_image results = f->frame.y;
        if (f->panel_groups == 1 || results.c != 1) { /* else others write the lines beside */
            results.data += of.channel * results.c;
            writes = winograd_ahead_of(&f->frame, false, d, first, end);
            writes.image = &results;
            writes.channels = of.end_channel - of.channel;
            writes.write = true;
        }
        multiply(f, &of, &own, v, m, d, next, tiles, low, high - low, &reads, &writes);
        for (int64_t e = d; e < next; e++) store_tiles(f, &of, m + (e - d) * tiles * f->m_tile, e, first, end, band);
    }
}

enum {
    BLOCK_BYTES = 640 << 10, /* of transformed tiles and products: about an L2 */
    UNCACHED = 12 << 20,     /* bytes of transformed weights that go to memory and back, */
    LARGE = 8 << 20,         /* and that are sliced where tiles are few */
    SMALL_WEIGHTS = 1 << 20, /* bytes: weights that any number of threads share */
    FEW_TILES = 128,
    SLICE = 128,            /* input channels: 590 KB of a panel of weights, as many of 32 tiles */
    FETCHED_TILES = 8,      /* a chunk fetches shared weights in the time that the products of so many tiles take, */
    OWN_TILES = 36,         /* transforms its own in that of so many, */
    READ_TILES = 5,         /* reads them from L2 in that of so many, */
    SLICED_TILES = 6,       /* or transforms them by the slice, prefetched, in that of so many, */
    FIRST_TILES = 14,       /* and of so many more where its worker has not read them before, */
    TRANSFORM_COLUMNS = 22, /* and transforms its tiles in the time that so many columns of products take */
};

/* What is left of an L2 beside what passes through. */
static int64_t l2_bytes(void) {
    const ct_caches *caches = ct__caches();
    return caches->l2_ways * caches->l2_way / 10 * 9;
}

/* Bytes of transformed tiles and products of one tile of every plane of a section. */
static int64_t tile_bytes(const forward *f, int64_t group) {
    const int64_t v = winograd_parities(&f->frame.x) * winograd_slots(&f->frame, f->section) * f->v_tile;
    return WINOGRAD_POINTS * 4 * (v + winograd_odd(group * f->weights.width));
}
static int64_t group_bytes(const forward *f, int64_t group) {
    return WINOGRAD_POINTS * 4 * group * f->weights.width * f->weights.deep;
}

/* How a pass is cut, and the time that its threads take for it, in products of all points and input channels of one tile by one
 * column. */
typedef struct cut {
    weights_from from;
    int64_t block, group;
    double time;
} cut;

/* How many chunks one after the other the last thread is done after: on servers that are shared with others some processors are half
 * as fast as the rest, now this one, now that one, which matters the less the more chunks there are to help with. */
static double rounds_of(int64_t chunks, int64_t threads) {
    const double rounds = (double)ct__ceil_div(chunks, threads);
    return threads > 1 ? rounds + 0.5 / rounds : rounds;
}

static double time_of(const forward *f, const cut *c, int64_t sections) {
    const int64_t threads = ct__threads(), groups = ct__ceil_div(ct__max64(1, f->weights.panels), c->group);
    const int64_t chunks = ct__ceil_div(ct__max64(1, f->frame.tiles.count), c->block) * groups * sections;
    const double rounds = rounds_of(chunks, threads), columns = (double)(c->group * f->weights.width),
                 block = (double)c->block;
    if (c->from == SHARED) return rounds * (columns * (block + FETCHED_TILES) + TRANSFORM_COLUMNS * block);
    if (c->from == OWN) { /* a worker whose chunks are of two groups transforms both */
        const double times = groups > 1 && threads % groups ? 2 : 1;
        return rounds * ((columns + TRANSFORM_COLUMNS) * block + READ_TILES * columns) +
               times * OWN_TILES * columns / (double)f->section;
    }
    const int64_t panels = ct__min(c->group, PANELS_AT_ONCE), transforms = ct__ceil_div(c->group, PANELS_AT_ONCE);
    const int64_t bytes =
        WINOGRAD_POINTS * 4 * ((SLICE + panels * f->weights.width) * c->block + SLICE * f->weights.width);
    const double time = rounds * (columns * (block + SLICED_TILES) + (double)(TRANSFORM_COLUMNS * transforms) * block) +
                        (double)ct__ceil_div(groups, threads) * FIRST_TILES * columns;
    return bytes > l2_bytes() ? 1.25 * time : time;
}

/* Tries blocks of `most` tiles at most, each with `group` panels. */
static void try_blocks(const forward *f, cut *best, weights_from from, int64_t group, int64_t most, int64_t sections) {
    const int64_t tiles = ct__max64(1, f->frame.tiles.count), threads = ct__threads();
    const int64_t least = ct__ceil_div(tiles, most), last = ct__min(tiles, ct__round_up(least, threads));
    for (int64_t blocks = least; blocks <= last; blocks++) {
        cut c = {.from = from, .block = ct__ceil_div(tiles, blocks), .group = group};
        c.time = time_of(f, &c, sections);
        if (best->time == 0 || c.time < best->time) *best = c;
    }
}

/* Cuts the tiles into blocks and the output channels into groups of panels: the cut after which the threads are done soonest. A
 * result is computed by itself, so its bits do not depend on it. */
static void cut_pass(forward *f, int64_t block, bool sliced) {
    const int64_t threads = ct__threads(), panels = ct__max64(1, f->weights.panels), rows = f->kernel->rows;
    const int64_t sections = ct__ceil_div(ct__max64(1, f->frame.planes), f->section), tiles = f->frame.tiles.count;
    const int64_t all = WINOGRAD_POINTS * 4 * f->weights.point,
                  least = winograd_parities(&f->frame.y) == 1 ? 1 : panels; /* parities are not cut */
    const int64_t wide = ct__max64(block, ct__min(tiles, WINOGRAD_AT_ONCE));
    cut best = {0};
    for (int64_t group = panels; group >= least; group = winograd_next_size(panels, group)) {
        const int64_t left = l2_bytes() - group_bytes(f, group);
        if (threads > 1 && all > SMALL_WEIGHTS && left >= rows * tile_bytes(f, group))
            try_blocks(f, &best, OWN, group, ct__min(block, left / tile_bytes(f, group) / rows * rows), sections);
        if (sliced && all > SMALL_WEIGHTS && (threads > 1 || (all > UNCACHED && tiles <= WINOGRAD_AT_ONCE)))
            try_blocks(f, &best, SLICED, group, wide, sections);
    }
    const bool blocks_suffice = ct__ceil_div(tiles, block) * sections >= threads;
    for (int64_t group = panels; best.from == SHARED && group >= (blocks_suffice ? panels : least);
         group = winograd_next_size(panels, group))
        try_blocks(f, &best, SHARED, group, block, sections);
    f->from = best.from;
    f->block = best.block;
    f->group = best.group;
    f->panel_groups = ct__ceil_div(panels, f->group);
}

static void plan(const winograd_pass *p, forward *f) {
    *f = (forward){.kernel = ct__gemm_kernel(CT_GEMM_F32, CT_GEMM_F32, CT_GEMM_F32)};
    winograd_frame *g = &f->frame;
    CT_ISA_FN(ct__winograd_take_phase)(g, p, (const int64_t[3]){0, 0, 0});
    weights *s = &f->weights;
    s->width = ct__panel_width(f->kernel);
    s->vectors = ct__ceil_div(p->out_channels, LANES);
    s->panels = ct__ceil_div(s->vectors * LANES * winograd_parities(&g->y), s->width);
    s->in_blocks = ct__ceil_div(p->in_channels, WEIGHT_BLOCK);
    s->deep = winograd_parities(&g->x) * p->kernel[0] * p->in_channels;
    s->point = winograd_odd(s->panels * s->width * s->deep);
    f->v_tile = winograd_odd(ct__round_up(p->in_channels, LANES));
    f->m_parity = s->vectors * LANES;

    const int64_t rows = f->kernel->rows, m_bytes = WINOGRAD_POINTS * 4 * winograd_odd(s->panels * s->width);
    const int64_t v_bytes = WINOGRAD_POINTS * 4 * f->v_tile * winograd_parities(&g->x);
    const int64_t planes = ct__max64(1, g->planes);
    /* Planes as far as they fit with a register tile of each, so that their neighbors are transformed but once. */
    int64_t section = ct__min(planes, 2 * p->kernel[0]);
    while (section < planes && rows * (v_bytes * winograd_slots(g, section + 1) + m_bytes) <= BLOCK_BYTES) section++;
    section = ct__grain(section);
    f->section = ct__ceil_div(planes, ct__ceil_div(planes, section));
    const int64_t bytes = v_bytes * winograd_slots(g, f->section) + m_bytes;
    const int64_t block = ct__max64(BLOCK_BYTES / bytes / rows, f->section > 1 ? 1 : 2) * rows;
    /* The sums of a slice are those of a k block only where a block is no shorter. */
    bool sliceable = g->tiles.count > 0 && f->kernel->depth >= SLICE &&
                     planes * p->kernel[0] * winograd_parities(&g->x) * winograd_parities(&g->y) == 1;
    for (int a = 0; a < 3; a++) sliceable = sliceable && CT_ISA_FN(ct__winograd_phases)(p, a) == 1;
    const bool few = sliceable && g->tiles.count <= FEW_TILES && WINOGRAD_POINTS * 4 * s->point > LARGE;
    f->slice = few ? SLICE : p->in_channels;
    cut_pass(f, block, few || (sliceable && p->in_channels <= SLICE));
    f->block = ct__max64(1, ct__grain(f->block));
    f->blocks = ct__ceil_div(g->tiles.count, f->block);
    f->together = ct__min(f->section, ct__ceil_div(2 * rows, f->block));
    if (f->from == SLICED) f->v_tile = winograd_odd(ct__min(SLICE, ct__round_up(p->in_channels, LANES)));
    f->m_tile = winograd_odd(f->group * s->width);
    f->v_point = winograd_odd(f->v_tile * f->block * winograd_slots(g, f->section) * winograd_parities(&g->x));
    f->m_point = winograd_odd(f->m_tile * f->block * f->together);
    const int64_t run = ct__min(g->tiles.cols, f->block);
    f->band =
        ct__max64(winograd_span(&g->x, 0, 1) * winograd_span(&g->x, 1, run), g->y.step[0] * g->y.step[1] * run) * LANES;
    const int64_t own = f->from == SLICED ? winograd_odd(SLICE * s->width)
                        : f->from == OWN  ? winograd_odd(f->group * s->width * s->deep)
                                          : 0;
    f->worker = HEADER + winograd_odd(f->band + WINOGRAD_POINTS * (f->v_point + f->m_point + own));
}

/* Of the weights that all workers share. */
static int64_t shared_floats(const forward *f) { return f->from == SHARED ? WINOGRAD_POINTS * f->weights.point : 0; }

size_t CT_ISA_FN(ct__winograd_pass_bytes)(const winograd_pass *pass) {
    forward f;
    plan(pass, &f);
    return (size_t)(shared_floats(&f) + ct__threads() * f.worker) * sizeof(float);
}

void CT_ISA_FN(ct__winograd_pass)(const winograd_pass *p, void *scratch) {
    forward f;
    plan(p, &f);
    weights *s = &f.weights;
    s->frame = &f.frame;
    s->u = scratch;
    f.workers = s->u + shared_floats(&f);
    if (f.from == SLICED) {
        ct__parallel(f.blocks * f.panel_groups, block_of_slices, &f);
        return;
    }
    if (f.from == SHARED) ct__parallel(s->vectors * p->kernel[0] * s->in_blocks, transform_weights, s);
    for (int worker = 0; f.from == OWN && worker < ct__threads(); worker++)
        *(int64_t *)(void *)(f.workers + worker * f.worker) = -1; /* none yet */
    int64_t phase[3];
    for (phase[0] = 0; phase[0] < CT_ISA_FN(ct__winograd_phases)(p, 0); phase[0]++)
        for (phase[1] = 0; phase[1] < CT_ISA_FN(ct__winograd_phases)(p, 1); phase[1]++)
            for (phase[2] = 0; phase[2] < CT_ISA_FN(ct__winograd_phases)(p, 2); phase[2]++) {
                CT_ISA_FN(ct__winograd_take_phase)(&f.frame, p, phase);
                f.blocks = ct__ceil_div(f.frame.tiles.count, f.block);
                ct__parallel(ct__ceil_div(f.frame.planes, f.section) * f.blocks * f.panel_groups, block_of_tiles, &f);
            }
}
