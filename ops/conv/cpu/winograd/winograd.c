/* Winograd, forward: also the input gradient, which is a forward pass over the cotangent with the taps reversed.
 * Weights are transformed once per call into the engine's panels; then blocks of tiles are transformed, multiplied and
 * transformed back while they are in cache. Where tiles are few and the weights large, both are transformed where they are multiplied, a
 * slice of the input channels at a time, and never leave the cache of their worker: threads that read the same weights from L3 would
 * wait for them. */
#include "ops/conv/cpu/winograd/winograd.h"
#include "ops/conv/cpu/winograd/winograd_panels.h"

#include "backends/cpu/gemm/transpose.h" /* after the level of instructions is known */

void winograd_transpose(char *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols,
                        int64_t width) {
    transpose(dst, dst_row, src, src_row, rows, cols, width, 4);
}

/* ---- The geometry of a phase ---- */

int64_t CT_ISA_FN(ct__winograd_phases)(const winograd_pass *p, int axis) {
    return p->kernel[axis] == 1 ? 1 : ct__min(p->dilation[axis], p->out[axis]);
}

/* Dilated, outputs o = phase + d o' look at inputs d (o' + k) + phase - before: every d-th from (phase - before) mod d.
 * With a stride s, output o looks at s (o + j) + r - before: parity r of the inputs from -before, tap j. Adjoint, outputs
 * s m + r - before look at inputs m - taps + 1 + j: the tiles of m begin where some parity has an output. */
void CT_ISA_FN(ct__winograd_take_phase)(winograd_frame *f, const winograd_pass *p, const int64_t phase[3]) {
    const int64_t taps = p->kernel[1] / p->stride[1], step = WINOGRAD_IN + 1 - taps;
    *f = (winograd_frame){.pass = p, .taps = (int)taps, .step = (int)step};
    int64_t from[3], in[3], out[3], by[3], before[3];
    for (int a = 0; a < 3; a++) {
        const int64_t d = p->kernel[a] == 1 ? 1 : p->dilation[a], s = p->stride[a], b = p->before[a];
        const int64_t at = phase[a] - (p->adjoint ? (p->kernel[a] - 1) * d - b : b), r = ((at % d) + d) % d;
        const int64_t shift = ((b % s) + s) % s;
        by[a] = d;
        from[a] = r;
        before[a] = p->adjoint && a > 0 ? taps - 1 - (b - shift) / s : -(at - r) / d;
        if (s == 1) before[a] = -(at - r) / d;
        in[a] = p->in[a] > r ? ct__ceil_div(p->in[a] - r, d) : 0;
        out[a] = p->out[a] > phase[a] ? ct__ceil_div(p->out[a] - phase[a], d) : 0;
        if (a == 0) continue;
        f->x.before[a - 1] = before[a];
        f->y.before[a - 1] = p->adjoint ? shift : 0;
        f->x.spread[a - 1] = p->adjoint ? 1 : s;
        f->y.spread[a - 1] = p->adjoint ? s : 1;
        f->x.step[a - 1] = step * f->x.spread[a - 1];
        f->y.step[a - 1] = step * f->y.spread[a - 1];
    }
    const ct_image_strides *steps[3] = {&p->x_step, &p->y_step, &p->residual_step};
    f->residual = f->y;
    winograd_image *const images[3] = {&f->x, &f->y, &f->residual};
    const float *const data[3] = {p->x, p->y, p->residual};
    /* Planes that only see themselves are images. */
    const bool apart = p->kernel[0] == 1 && p->stride[0] == 1 && before[0] == 0 && p->in[0] == p->out[0];
    for (int i = 0; i < 3; i++) {
        const int64_t *const first = i == 0 ? from : phase, *const size = i == 0 ? in : out, *s = steps[i]->s;
        winograd_image *const x = images[i];
        x->data = data[i] ? (float *)data[i] + first[0] * s[0] + first[1] * s[1] + first[2] * s[2] : NULL;
        x->n = steps[i]->n, x->c = steps[i]->c;
        x->d = s[0] * by[0], x->h = s[1] * by[1], x->w = s[2] * by[2];
        x->height = size[1], x->width = size[2];
        x->fold = apart ? ct__max64(1, p->in[0]) : 1;
    }
    f->before = before[0];
    f->sources = apart ? 1 : in[0];
    f->most_sources = apart ? 1 : ct__ceil_div(p->in[0], by[0]);
    f->planes = apart ? 1 : out[0];
    winograd_tiles *t = &f->tiles;
    t->rows = out[1] ? ct__ceil_div(out[1] + f->y.before[0], f->y.step[0]) : 0;
    t->cols = out[2] ? ct__ceil_div(out[2] + f->y.before[1], f->y.step[1]) : 0;
    t->count = p->batch * (apart ? p->in[0] : 1) * t->rows * t->cols;
}

/* ---- Prefetching ---- */

/* The next run of tiles: runs of contiguous bytes, the rows of a channel or of all. */
static void next_region(winograd_ahead *a) {
    const winograd_image *x = a->image;
    const winograd_run run = winograd_next_run(a->tiles, a->at, a->end);
    const int64_t row = run.row * x->step[0] - x->before[0] + a->skip, col = run.col * x->step[1] - x->before[1];
    const int64_t top = ct__max64(0, row), left = ct__max64(0, col);
    a->rows = ct__max64(0, ct__min(row + x->step[0], x->height) - top);
    a->bytes = (ct__min(col + run.count * x->step[1] + a->skip, x->width) - left) * x->w * 4;
    a->channels_left = a->rows ? (x->c == 1 ? 1 : a->channels) : 0;
    a->rows_left = a->rows;
    a->run_at = (const char *)(winograd_plane(x, run.image, a->plane) + top * x->h + left * x->w);
    a->offset = 0;
    a->at += run.count;
}

void CT_ISA_FN(ct__winograd_ahead_start)(winograd_ahead *a, int64_t calls) {
    winograd_ahead all = *a;
    int64_t lines = 0;
    while (all.at < all.end) {
        next_region(&all);
        lines += all.channels_left * all.rows * (all.bytes / 64 + 1);
    }
    a->rate = ct__ceil_div(lines, ct__max64(1, calls));
}

void CT_ISA_FN(ct__winograd_ask)(winograd_ahead *a) {
    const winograd_image *x = a->image;
    for (int64_t lines = a->rate; lines > 0; lines--) {
        while (a->channels_left == 0) {
            if (a->at >= a->end) return;
            next_region(a);
        }
        if (a->write) __builtin_prefetch(a->run_at + a->offset, 1, 2);
        else __builtin_prefetch(a->run_at + a->offset, 0, 2);
        a->offset += 64;
        if (a->offset <= a->bytes) continue;
        a->offset = 0;
        a->run_at += x->h * 4;
        if (--a->rows_left > 0) continue;
        a->run_at += (x->c - a->rows * x->h) * 4;
        a->rows_left = a->rows;
        a->channels_left--;
    }
}

/* ---- Tiles ---- */

void winograd_gather(float *dst, const winograd_image *x, const float *plane, int lanes, int64_t row, int64_t rows,
                     int64_t col, int64_t cols) {
    const int64_t first = ct__max64(0, -col), end = ct__min(cols, x->width - col);
    for (int64_t i = 0; i < rows; i++, dst += cols * LANES) {
        if (row + i < 0 || row + i >= x->height || end <= first) {
            memset(dst, 0, (size_t)(cols * LANES) * sizeof *dst);
            continue;
        }
        if (first > 0) memset(dst, 0, (size_t)(first * LANES) * sizeof *dst);
        if (end < cols) memset(dst + end * LANES, 0, (size_t)((cols - end) * LANES) * sizeof *dst);
        const float *src = plane + (row + i) * x->h + (col + first) * x->w;
        float *to = dst + first * LANES;
        const int64_t count = end - first;
        if (x->c == 1) {
            for (int64_t j = 0; j < count; j++) vf32_store(to + j * LANES, vf32_load_n(src + j * x->w, lanes));
        } else if (x->w == 1) {
            winograd_transpose((char *)to, LANES * 4, (const char *)src, x->c * 4, lanes, count, LANES);
        } else {
            for (int64_t j = 0; j < count; j++)
                for (int l = 0; l < LANES; l++) to[j * LANES + l] = l < lanes ? src[j * x->w + l * x->c] : 0;
        }
    }
}

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

/* All parities of a tile. */
static void transform_parities(const winograd_points *v, const winograd_image *x, float *dst, const float *src,
                               int64_t row, int64_t col) {
    for (int64_t h = 0; h < x->spread[0]; h++)
        for (int64_t w = 0; w < x->spread[1]; w++, dst += v->parity)
            transform_tile(dst, v->point, src + h * row + w * col, x->spread[0] * row, x->spread[1] * col);
}

void CT_ISA_FN(ct__winograd_transform_tiles)(const winograd_points *v, const winograd_frame *f, int64_t plane,
                                             int64_t first, int64_t end, float *band, winograd_ahead *ahead) {
    const winograd_image *x = &f->x;
    const int64_t channels = f->pass->in_channels, tall = winograd_span(x, 0, 1), wide = winograd_span(x, 1, 1);
    for (int64_t at = first; at < end;) {
        const winograd_run run = winograd_next_run(&f->tiles, at, end);
        const int64_t row = run.row * x->step[0] - x->before[0], col = run.col * x->step[1] - x->before[1];
        const int64_t cols = winograd_span(x, 1, run.count);
        const float *image = winograd_plane(x, run.image, plane);
        float *to = v->data + (at - first) * v->tile;
        const bool rows_inside = row >= 0 && row + tall <= x->height;
        for (int64_t c = 0; c < channels; c += LANES) {
            const int lanes = (int)ct__min(LANES, channels - c);
            if (x->c == 1) {
                /* Channels last: tiles inside the image are read where they are. */
                for (int64_t t = 0; t < run.count; t++) {
                    if (ahead) CT_ISA_FN(ct__winograd_ask)(ahead);
                    const int64_t left = col + t * x->step[1];
                    const bool inside = rows_inside && lanes == LANES && left >= 0 && left + wide <= x->width;
                    if (!inside) winograd_gather(band, x, image + c, lanes, row, tall, left, wide);
                    transform_parities(v, x, to + t * v->tile + c, inside ? image + c + row * x->h + left * x->w : band,
                                       inside ? x->h : wide * LANES, inside ? x->w : LANES);
                }
            } else {
                winograd_gather(band, x, image + c * x->c, lanes, row, tall, col, cols);
                for (int64_t t = 0; t < run.count; t++) {
                    if (ahead) CT_ISA_FN(ct__winograd_ask)(ahead);
                    transform_parities(v, x, to + t * v->tile + c, band + t * x->step[1] * LANES, cols * LANES, LANES);
                }
            }
        }
        at += run.count;
    }
}

/* Y = A^T m A + bias. */
WINOGRAD_COLLECT(transform_back_5, 5, false)
WINOGRAD_COLLECT(transform_back_4, 4, false)
WINOGRAD_COLLECT(transform_back_2, 2, false)

/* ---- A pass ---- */

typedef struct forward {
    winograd_frame frame;
    const ct__kernel *kernel;
    weights weights;
    int64_t section, block, blocks; /* planes of results and tiles of each of a chunk; chunks of a section */
    int64_t together;               /* results multiplied at a time */
    int64_t panel_groups, group; /* shares of the output channels that chunks of the same tiles have; panels of each */
    int64_t slice; /* input channels summed at a time: by sizes alone, since the bits of the sums hang on it */
    bool
        sliced; /* each slice of tiles and of a panel of weights is transformed by the worker that multiplies it, which has room for both */
    int64_t v_tile, v_point; /* floats */
    int64_t m_tile, m_point, m_parity;
    int64_t band;
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
                    collect_parities(f, dst + j * LANES, whole ? y->h : pace * LANES, whole ? y->w : LANES, from + c,
                                     bias);
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

/* The products of one point and panel, over n runs of taps; as `product` says, but for the tile's operands. */
static void multiply_panel(const forward *f, const weights *s, const winograd_product *product, const ct__run *runs,
                           int64_t n, const float *v, float *m, int64_t point, int64_t panel) {
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
            part.c = m + point * f->m_point + panel * s->width;
            part.vecs = winograd_panel_vecs(f->kernel, columns, panel);
            part.accumulate = before;
            winograd_multiply(&part);
        }
}

/* Products of the results of planes [d, end), which see the same taps, with the block's `tiles` tiles; v begins with source
 * plane `low`, of `slots` a parity. */
static void multiply(const forward *f, const share *of, const float *v, float *m, int64_t d, int64_t end, int64_t tiles,
                     int64_t low, int64_t slots, winograd_ahead *reads, winograd_ahead *writes) {
    const winograd_pass *p = f->frame.pass;
    const weights *s = &f->weights;
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
                multiply_panel(f, s, &product, runs, n, v, m, point, panel);
            }
        product.accumulate = true;
    }
}

/* ---- By slices ---- */

enum { PANELS_AT_ONCE = 4 }; /* whose products stay in cache while tiles are transformed, once for all of them */

/* One panel of the weights, of the channels that the pass has, in a worker's own memory. */
static weights own_panel(const forward *f, float *u, int64_t panel) {
    weights own = f->weights;
    own.u = u;
    own.first = panel;
    own.deep = f->frame.pass->in_channels;
    own.in_blocks = ct__ceil_div(own.deep, WEIGHT_BLOCK);
    own.point = winograd_odd(own.deep * own.width);
    for (int64_t out = panel * own.width / LANES; out < ct__min((panel + 1) * own.width / LANES, own.vectors); out++)
        for (int64_t in = 0; in < own.in_blocks; in++) transform_weights(&own, out * own.in_blocks + in, 0);
    return own;
}

/* A chunk is a block of tiles, all of one plane, and a share of the output channels. */
static void block_of_slices(void *ctx, int64_t chunk, int worker) {
    const forward *f = ctx;
    const winograd_pass *p = f->frame.pass;
    const share of = share_of(f, chunk % f->panel_groups);
    const int64_t first = chunk / f->panel_groups * f->block, end = ct__min(first + f->block, f->frame.tiles.count);
    float *band = f->workers + worker * f->worker, *v = band + f->band, *m = v + WINOGRAD_POINTS * f->v_point,
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
            for (int64_t at = panel; at < ct__min(panel + PANELS_AT_ONCE, of.end_panel); at++) {
                const weights own = own_panel(&part, u, at);
                for (int64_t point = 0; point < WINOGRAD_POINTS; point++)
                    multiply_panel(&part, &own, &product, &all, 1, v, m, point, at);
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
    const share of = share_of(f, chunk % f->panel_groups);
    chunk /= f->panel_groups;
    const int64_t d0 = chunk / f->blocks * f->section, d1 = ct__min(d0 + f->section, f->frame.planes);
    const int64_t first = chunk % f->blocks * f->block, end = ct__min(first + f->block, f->frame.tiles.count);
    const int64_t tiles = end - first;
    float *band = f->workers + worker * f->worker, *v = band + f->band, *m = v + WINOGRAD_POINTS * f->v_point;
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
        winograd_ahead reads = {0}, writes = {0};
        if (f->panel_groups == 1) { /* else others write the lines beside */
            reads = winograd_ahead_of(&f->frame, true, done, first, end);
            writes = winograd_ahead_of(&f->frame, false, d, first, end);
            writes.write = true;
            if (done >= high) reads.plane = low, reads.at = end, reads.end = ct__min(end + tiles, f->frame.tiles.count);
        }
        multiply(f, &of, v, m, d, next, tiles, low, high - low, &reads, &writes);
        for (int64_t e = d; e < next; e++) store_tiles(f, &of, m + (e - d) * tiles * f->m_tile, e, first, end, band);
    }
}

enum {
    BLOCK_BYTES = 640 << 10, /* of transformed tiles and products: about an L2 */
    UNCACHED = 12 << 20,     /* bytes of transformed weights that go to memory and back, */
    SHARED = 8 << 20,        /* and that many threads wait for */
    MANY_THREADS = 8,
    FEW_TILES = 128,       /* for which such weights are sliced */
    SLICE = 128,           /* input channels: 590 KB of a panel of weights, as many of 32 tiles */
    WEIGHT_TILES = 8,      /* a chunk fetches its weights in the time that the products of so many tiles take, */
    TRANSFORM_COLUMNS = 12 /* and transforms its tiles in the time that so many columns of products take */
};

/* Cuts the tiles into blocks of `most` at most, and, where there are fewer blocks than threads, the output channels into shares: the
 * cut after which the threads are done soonest. A result is computed by itself, so its bits do not depend on it. */
static void cut(forward *f, int64_t most, int64_t sections) {
    const int64_t tiles = ct__max64(1, f->frame.tiles.count), panels = ct__max64(1, f->weights.panels);
    const int64_t threads = ct__threads();
    const int64_t least = ct__ceil_div(tiles, most), last = ct__min(tiles, ct__round_up(least, threads));
    const int64_t groups = winograd_parities(&f->frame.y) == 1 && least * sections < threads ? panels : 1;
    double best = 0;
    for (int64_t panel_groups = 1; panel_groups <= groups; panel_groups++)
        for (int64_t blocks = least; blocks <= last; blocks++) {
            const int64_t block = ct__ceil_div(tiles, blocks), group = ct__ceil_div(panels, panel_groups);
            const int64_t chunks = ct__ceil_div(tiles, block) * ct__ceil_div(panels, group) * sections;
            const double products = (double)(group * f->weights.width) * (double)(block + WEIGHT_TILES);
            const int64_t transforms = f->sliced ? ct__ceil_div(group, PANELS_AT_ONCE) : 1;
            const double time =
                (double)ct__ceil_div(chunks, threads) * (products + (double)(TRANSFORM_COLUMNS * block * transforms));
            if (best == 0 || time < best) best = time, f->block = block, f->group = group;
        }
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
    f->m_tile = winograd_odd(s->panels * s->width);
    f->m_parity = s->vectors * LANES;

    const int64_t rows = f->kernel->rows, m_bytes = WINOGRAD_POINTS * 4 * f->m_tile;
    const int64_t v_bytes = WINOGRAD_POINTS * 4 * f->v_tile * winograd_parities(&g->x);
    const int64_t planes = ct__max64(1, g->planes);
    /* Planes as far as they fit with a register tile of each, so that their neighbors are transformed but once. */
    int64_t section = ct__min(planes, 2 * p->kernel[0]);
    while (section < planes && rows * (v_bytes * winograd_slots(g, section + 1) + m_bytes) <= BLOCK_BYTES) section++;
    section = ct__grain(section);
    f->section = ct__ceil_div(planes, ct__ceil_div(planes, section));
    const int64_t bytes = v_bytes * winograd_slots(g, f->section) + m_bytes;
    int64_t block = ct__max64(BLOCK_BYTES / bytes / rows, f->section > 1 ? 1 : 2) * rows;
    const int64_t weight_bytes = WINOGRAD_POINTS * 4 * s->point;
    /* The sums of a slice are those of a k block only where a block is no shorter. */
    bool few = g->tiles.count > 0 && g->tiles.count <= FEW_TILES && weight_bytes > SHARED &&
               f->kernel->depth >= SLICE &&
               planes * p->kernel[0] * winograd_parities(&g->x) * winograd_parities(&g->y) == 1;
    for (int a = 0; a < 3; a++) few = few && CT_ISA_FN(ct__winograd_phases)(p, a) == 1;
    f->slice = few ? SLICE : p->in_channels;
    f->sliced =
        few && ((weight_bytes > UNCACHED && g->tiles.count <= WINOGRAD_AT_ONCE) || ct__threads() >= MANY_THREADS);
    if (f->sliced) block = ct__max64(block, ct__min(g->tiles.count, WINOGRAD_AT_ONCE));
    const int64_t sections = ct__ceil_div(planes, f->section);
    cut(f, block, sections);
    f->block = ct__max64(1, ct__grain(f->block));
    f->together = ct__min(f->section, ct__ceil_div(2 * rows, f->block));
    if (f->sliced) f->v_tile = winograd_odd(ct__min(SLICE, ct__round_up(p->in_channels, LANES)));
    f->v_point = winograd_odd(f->v_tile * f->block * winograd_slots(g, f->section) * winograd_parities(&g->x));
    f->m_point = winograd_odd(f->m_tile * f->block * f->together);
    const int64_t run = ct__min(g->tiles.cols, f->block);
    f->band =
        ct__max64(winograd_span(&g->x, 0, 1) * winograd_span(&g->x, 1, run), g->y.step[0] * g->y.step[1] * run) * LANES;
    const int64_t panel = f->sliced ? winograd_odd(SLICE * s->width) : 0;
    f->worker = winograd_odd(f->band + WINOGRAD_POINTS * (f->v_point + f->m_point + panel));
}

/* Of the weights that all workers share. */
static int64_t shared_floats(const forward *f) { return f->sliced ? 0 : WINOGRAD_POINTS * f->weights.point; }

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
    if (f.sliced) {
        ct__parallel(ct__ceil_div(f.frame.tiles.count, f.block) * f.panel_groups, block_of_slices, &f);
        return;
    }
    ct__parallel(s->vectors * p->kernel[0] * s->in_blocks, transform_weights, s);
    int64_t phase[3];
    for (phase[0] = 0; phase[0] < CT_ISA_FN(ct__winograd_phases)(p, 0); phase[0]++)
        for (phase[1] = 0; phase[1] < CT_ISA_FN(ct__winograd_phases)(p, 1); phase[1]++)
            for (phase[2] = 0; phase[2] < CT_ISA_FN(ct__winograd_phases)(p, 2); phase[2]++) {
                CT_ISA_FN(ct__winograd_take_phase)(&f.frame, p, phase);
                f.blocks = ct__ceil_div(f.frame.tiles.count, f.block);
                ct__parallel(ct__ceil_div(f.frame.planes, f.section) * f.blocks * f.panel_groups, block_of_tiles, &f);
            }
}
