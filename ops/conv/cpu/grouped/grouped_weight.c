/* Convolution with few channels per group, weight gradient: sums of eight by eight channels for each tap, one output channel a
 * lane, over padded copies of x and g in L1. */
#include "ops/conv/cpu/grouped/grouped.h"

enum { BAND_BYTES = 24 << 10 };
#if VF32_LANES == 16
enum { COLUMNS = 3 }; /* taps summed at once: 24 vectors of sums */
#else
enum { COLUMNS = 1 };
#endif

typedef struct sums {
    const grouped_pass *p;
    int64_t left, length, row; /* of the copy of x: positions, eight channels each */
    int64_t rows, source_rows; /* of a band */
    int64_t out_blocks, in_blocks;
    void *weight, *bias;
    float *workers;
    int64_t worker;
} sums;

static void plan(sums *s, const grouped_pass *p) {
    *s = (sums){.p = p};
    depthwise_extent(&p->w, p->w.target, &s->left, &s->length);
    s->row = p->w.up * s->length;
    s->rows = p->h.target;
    while (s->rows > 2 &&
           (depthwise_rows(&p->h, s->rows) * s->row + s->rows * p->w.target) * 8 * (int64_t)sizeof(float) > BAND_BYTES)
        s->rows = (s->rows + 1) / 2;
    s->source_rows = depthwise_rows(&p->h, s->rows);
    s->out_blocks = (p->targets + 7) / 8;
    s->in_blocks = (p->sources + 7) / 8;
    s->worker = p->h.taps * p->w.taps * 64 + depthwise_up(2 * p->w.taps, 16) +
                8 * (s->source_rows * s->row + s->rows * p->w.target) + 32;
}

/* dst[(i * positions + r * length + t) * 8 + c] = image[channel + c][row + i][up t + r]; rows outside are zero. What is past
 * `channels`, and the padding of the columns, is not written: the first stays zero from the start unless a chunk had more
 * channels, so those of a last block are cleared. The next image is prefetched meanwhile. */
static void copy(float *dst, int64_t positions, int64_t left, int64_t length, const depthwise_image *s, ct_dtype dtype,
                 int64_t up, int64_t height, int64_t width, int64_t image, int64_t channel, int64_t channels,
                 int64_t row, int64_t rows) {
    for (int64_t i = row; i < row + rows; i++, dst += positions * 8) {
        const bool outside = i < 0 || i >= height;
        if (outside || channels < 8) memset(dst, 0, (size_t)(positions * 8) * sizeof *dst);
        if (outside) continue;
        for (int64_t r = 0; r < up; r++) {
            const int64_t have = ct__max64(0, ct__min64((width - r + up - 1) / up, length + left));
            const int64_t at = image * s->n + channel * s->c + i * s->h + r * s->w;
            float *to = dst + (r * length - left) * 8;
            if (dtype == CT_F32 && up * s->w == 1 && s->c != 1) {
                const float *from = (const float *)s->data + at;
                for (int64_t c = 0; c < channels; c++)
                    for (int64_t j = 0; j < have; j += 16) __builtin_prefetch(from + c * s->c + j + s->n);
                grouped_transpose(to, 8, from, s->c, channels, have);
            } else if (dtype == CT_F32 && s->c == 1 && channels == 8) {
                const float *from = (const float *)s->data + at;
                for (int64_t j = 0; j < have; j++) {
                    __builtin_prefetch(from + j * up * s->w + s->n);
                    v8_store(to + j * 8, v8_load(from + j * up * s->w));
                }
            } else if (dtype == CT_F32) {
                for (int64_t j = 0; j < have; j++)
                    depthwise_read_f32(to + j * 8, CT_F32, s->data, at + j * up * s->w, s->c, channels);
            } else {
                for (int64_t j = 0; j < have; j++)
                    depthwise_widen_line(to + j * 8, dtype, (const uint16_t *)s->data + at + j * up * s->w, s->c,
                                         channels);
            }
        }
    }
}

/* sum[t][i][o] += over rows and columns j of x[offset[t] + j][i] g[j][o], for `columns` taps */
SIMD_INLINE void add_body(float *sum, const float *x, int64_t x_row, const int64_t *offset, const float *g,
                          int64_t rows, int64_t width, const int columns) {
    v8 s[8 * COLUMNS];
#pragma GCC unroll 24
    for (int i = 0; i < 8 * columns; i++) s[i] = v8_set1(0);
    for (int64_t row = 0; row < rows; row++, x += x_row) {
        const float *x0 = x + offset[0], *x1 = x + offset[columns > 1 ? 1 : 0], *x2 = x + offset[columns > 2 ? 2 : 0];
        for (int64_t j = 0; j < width; j++, g += 8, x0 += 8, x1 += 8, x2 += 8) {
            const v8 y = v8_load(g);
#pragma GCC unroll 24
            for (int i = 0; i < 8 * columns; i++)
                s[i] = v8_fma(v8_set1((i < 8 ? x0 : i < 16 ? x1 : x2)[i % 8]), y, s[i]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < 8 * columns; i++) v8_store(sum + i * 8, v8_add(v8_load(sum + i * 8), s[i]));
}
static __attribute__((noinline)) void add_columns(float *sum, const float *x, int64_t x_row, const int64_t *offset,
                                                  const float *g, int64_t rows, int64_t width) {
    add_body(sum, x, x_row, offset, g, rows, width, COLUMNS);
}
static __attribute__((noinline)) void add_column(float *sum, const float *x, int64_t x_row, const int64_t *offset,
                                                 const float *g, int64_t rows, int64_t width) {
    add_body(sum, x, x_row, offset, g, rows, width, 1);
}

/* A chunk: eight output by eight input channels of a group, all images. */
static void sum_chunk(void *ctx, int64_t chunk, int worker) {
    const sums *s = ctx;
    const grouped_pass *p = s->p;
    const depthwise_axis *h = &p->h, *w = &p->w;
    const int64_t in = chunk % s->in_blocks * 8, out = chunk / s->in_blocks % s->out_blocks * 8;
    const int64_t group = chunk / (s->in_blocks * s->out_blocks);
    const int64_t ins = ct__min64(8, p->sources - in), outs = ct__min64(8, p->targets - out);
    float *sum = s->workers + worker * s->worker;
    int64_t *offset = (int64_t *)(void *)(sum + h->taps * w->taps * 64);
    float *x = (float *)(void *)(((uintptr_t)(offset + w->taps) + 63) & ~(uintptr_t)63),
          *g = x + s->source_rows * s->row * 8;
    v8 total = v8_set1(0);
    memset(sum, 0, (size_t)(h->taps * w->taps * 64) * sizeof *sum);
    for (int64_t t = 0; t < w->taps; t++) offset[t] = depthwise_offset(w, 0, t, s->left, s->length) * 8;
    for (int64_t image = 0; image < p->batch; image++)
        for (int64_t row = 0; row < h->target; row += s->rows) {
            const int64_t rows = ct__min64(s->rows, h->target - row);
            copy(x, s->row, s->left, s->length, &p->source, p->dtype, w->up, h->source, w->source, image,
                 group * p->sources + in, ins, row * h->up + h->first, depthwise_rows(h, rows) - 1);
            copy(g, w->target, 0, w->target, &p->target, p->dtype, 1, h->target, w->target, image,
                 group * p->targets + out, outs, row, rows);
            if (s->bias && in == 0) {
                v8 part = v8_set1(0);
                for (int64_t j = 0; j < rows * w->target; j++) part = v8_add(part, v8_load(g + j * 8));
                total = v8_add(total, part);
            }
            for (int64_t k = 0; k < h->taps; k++) {
                const float *at = x + k * h->step * s->row * 8;
                int64_t t = 0;
                for (; t + COLUMNS <= w->taps; t += COLUMNS)
                    add_columns(sum + (k * w->taps + t) * 64, at, h->up * s->row * 8, offset + t, g, rows, w->target);
                for (; t < w->taps; t++)
                    add_column(sum + (k * w->taps + t) * 64, at, h->up * s->row * 8, offset + t, g, rows, w->target);
            }
        }
    for (int64_t k = 0; k < h->taps; k++)
        for (int64_t t = 0; t < w->taps; t++)
            for (int64_t i = 0; i < ins; i++)
                depthwise_write_f32(sum + (k * w->taps + t) * 64 + i * 8, p->dtype, s->weight,
                                    group * p->w_group + out * p->w_target + (in + i) * p->w_source + k * p->w_h +
                                        t * p->w_w,
                                    p->w_target, outs);
    if (s->bias && in == 0) {
        float line[8];
        v8_store(line, total);
        depthwise_write_f32(line, p->dtype, s->bias, group * p->targets + out, 1, outs);
    }
}

size_t CT_ISA_FN(ct__grouped_weight_bytes)(const grouped_pass *p) {
    sums s;
    plan(&s, p);
    return (size_t)(ct__threads() * depthwise_up(s.worker, 16)) * sizeof(float);
}

void CT_ISA_FN(ct__grouped_weight)(const grouped_pass *p, void *weight, void *bias_grad, void *scratch) {
    sums s;
    plan(&s, p);
    s.worker = depthwise_up(s.worker, 16);
    s.weight = weight;
    s.bias = bias_grad;
    s.workers = scratch;
    memset(scratch, 0, (size_t)(ct__threads() * s.worker) * sizeof *s.workers); /* the padding of copied rows */
    ct__parallel(p->groups * s.out_blocks * s.in_blocks, sum_chunk, &s);
}
