/* Winograd, what every pass does with images: the geometry of a phase, prefetching, and the input transform of tiles. */
#include "ops/conv/cpu/winograd/winograd.h"

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

void winograd_clear(float *dst, const winograd_image *x, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    const int64_t first = ct__max64(0, -col), end = ct__min(cols, x->width - col);
    for (int64_t i = 0; i < rows; i++, dst += cols * LANES) {
        const bool outside = row + i < 0 || row + i >= x->height || end <= first;
        const int64_t before = outside ? cols : first, after = outside ? cols : end;
        if (before > 0) memset(dst, 0, (size_t)(before * LANES) * sizeof *dst);
        if (after < cols) memset(dst + after * LANES, 0, (size_t)((cols - after) * LANES) * sizeof *dst);
    }
}

void winograd_gather(float *dst, const winograd_image *x, const float *plane, int lanes, int64_t row, int64_t rows,
                     int64_t col, int64_t cols) {
    const int64_t first = ct__max64(0, -col), end = ct__min(cols, x->width - col);
    for (int64_t i = 0; i < rows && first < end; i++, dst += cols * LANES) {
        if (row + i < 0 || row + i >= x->height) continue;
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
                    if (!inside) {
                        winograd_clear(band, x, row, tall, left, wide);
                        winograd_gather(band, x, image + c, lanes, row, tall, left, wide);
                    }
                    transform_parities(v, x, to + t * v->tile + c, inside ? image + c + row * x->h + left * x->w : band,
                                       inside ? x->h : wide * LANES, inside ? x->w : LANES);
                }
            } else {
                if (c == 0) winograd_clear(band, x, row, tall, col, cols);
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
