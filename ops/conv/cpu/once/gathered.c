/* Convolutions of bf16 as one product of matrices whose operand of patches is gathered while it is packed, so that it is never in memory
 * as a whole. With P the outputs of all images, C and K input and output channels of a group:
 *     weight gradient  dw (K, taps C) = dy' (K, P) times patches (P, taps C): the sum goes over the outputs of all images at once, where
 *                      blocks of the implicit product (implicit_weight.c) end with an image, and sums of few products are mostly loads and
 *                      stores of the sums
 *     forward          y (P, K) = patches (P, taps C) times w (taps C, K)
 *     input gradient   the same with dy for x, of stride 1 alone: x takes dy at the mirrored taps, and w is read with its channels exchanged
 * The last two pack every patch, so they are for small images with many channels, whose weight is what the implicit product would
 * read again and again. Only kernels that multiply bf16 itself take part. */
#include "ops/conv/cpu/gathered.h"

#include <string.h>

typedef struct pass {
    const ct_conv_problem *p;
    const ct__kernel *kernel;
    const char *source; /* of the patches */
    ct_image_strides from;
    int64_t channels;                      /* of a patch, one group */
    int64_t in[3], out[3];                 /* sizes of the source and of the outputs */
    int64_t stride[3], spacing[3], low[3]; /* tap t of output o looks at o * stride + t * spacing + low */
    bool tap_first;                        /* columns of patches are [tap][channel], otherwise [channel][tap] */
    ct_gemm product;
} pass;

enum { SIZE = 2, STRETCH = 64 }; /* bytes of an element; rows of patches that are gathered at a time */

/* ---- Patches ---- */

/* The outputs [at, at + *count) of a line, at most up to `end` of all outputs: where tap t of output `at` of them looks, and which of
 * them look inside the source: [*first, *last). NULL: none. */
static const char *line_of(const pass *s, int64_t group, int64_t tap, int64_t at, int64_t end, int64_t *count,
                           int64_t *first, int64_t *last) {
    const int64_t *kernel = s->p->geometry.window.kernel,
                  t[3] = {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]};
    const int64_t w = at % s->out[2], line = at / s->out[2], o[2] = {line / s->out[1] % s->out[0], line % s->out[1]},
                  n = line / s->out[1] / s->out[0];
    *count = ct__min(s->out[2] - w, end - at);
    *first = *last = 0;
    int64_t offset = n * s->from.n + group * s->channels * s->from.c;
    for (int a = 0; a < 2; a++) {
        const int64_t place = o[a] * s->stride[a] + t[a] * s->spacing[a] + s->low[a];
        if (place < 0 || place >= s->in[a]) return NULL;
        offset += place * s->from.s[a];
    }
    const int64_t place = w * s->stride[2] + t[2] * s->spacing[2] + s->low[2], step = s->stride[2];
    *first = place < 0 ? ct__min(ct__ceil_div(-place, step), *count) : 0;
    *last = place < s->in[2] ? ct__min(ct__ceil_div(s->in[2] - place, step), *count) : 0;
    if (*first >= *last) return NULL;
    return s->source + (offset + place * s->from.s[2]) * SIZE;
}

/* `bytes` of each of n pixels to rows that are to_row bytes apart. */
static void copy_pixels(char *to, int64_t to_row, const char *from, int64_t step, int64_t n, int64_t bytes) {
    if (bytes == 64)
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_row, from + i * step, 64);
    else
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_row, from + i * step, (size_t)bytes);
}
static void clear_pixels(char *to, int64_t to_row, int64_t n, int64_t bytes) {
    for (int64_t i = 0; i < n; i++) memset(to + i * to_row, 0, (size_t)bytes);
}

/* Columns [column, column + columns), [tap][channel], of rows [row, row + rows) of the patches, where channels lie side by side. */
static void gather_pixels(const pass *s, int64_t group, char *to, int64_t to_row, int64_t row, int64_t rows,
                          int64_t column, int64_t columns) {
    while (columns > 0) {
        const int64_t tap = column / s->channels, channel = column % s->channels,
                      width = ct__min(s->channels - channel, columns);
        char *line = to;
        for (int64_t at = row, count, first, last; at < row + rows; at += count, line += count * to_row) {
            const char *from = line_of(s, group, tap, at, row + rows, &count, &first, &last);
            const int64_t step = s->stride[2] * s->from.s[2] * SIZE;
            clear_pixels(line, to_row, first, width * SIZE);
            if (from)
                copy_pixels(line + first * to_row, to_row, from + first * step + channel * SIZE, step, last - first,
                            width * SIZE);
            clear_pixels(line + last * to_row, to_row, count - last, width * SIZE);
        }
        to += width * SIZE, column += width, columns -= width;
    }
}

/* The same, transposed, where pixels lie side by side: a line of `to` for each column. */
static void gather_planes(const pass *s, int64_t group, char *to, int64_t to_row, int64_t row, int64_t rows,
                          int64_t column, int64_t columns) {
    const int64_t taps = ct__window_taps(&s->p->geometry.window);
    for (int64_t end = column + columns; column < end; column++, to += to_row) {
        const int64_t tap = s->tap_first ? column / s->channels : column % taps,
                      channel = s->tap_first ? column % s->channels : column / taps;
        char *line = to;
        for (int64_t at = row, count, first, last; at < row + rows; at += count, line += count * SIZE) {
            const char *from = line_of(s, group, tap, at, row + rows, &count, &first, &last);
            const int64_t step = s->stride[2] * s->from.s[2] * SIZE;
            memset(line, 0, (size_t)(first * SIZE));
            if (from) {
                from += first * step + channel * s->from.c * SIZE;
                if (step == SIZE) memcpy(line + first * SIZE, from, (size_t)((last - first) * SIZE));
                else copy_pixels(line + first * SIZE, SIZE, from, step, last - first, SIZE);
            }
            memset(line + last * SIZE, 0, (size_t)((count - last) * SIZE));
        }
    }
}

/* ---- Packers (gemm.h) ---- */

static void pack_patches(const void *ctx, int64_t group, void *dst, int64_t k0, int64_t depth, int64_t col0,
                         int64_t cols) {
    const pass *s = ctx;
    const int64_t width = ct__panel_width(s->kernel);
    char buffer[STRETCH * CT__TILE_WIDTH_MAX * SIZE], *to = dst;
    for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * width * SIZE) {
        count = ct__min(STRETCH, k0 + depth - k);
        const bool pixels = s->from.c == 1;
        if (pixels) gather_pixels(s, group, buffer, width * SIZE, k, count, col0, cols);
        else gather_planes(s, group, buffer, STRETCH * SIZE, k, count, col0, cols);
        const ct__matrix src = {buffer, CT_GEMM_BF16, pixels ? width : 1, pixels ? 1 : STRETCH};
        ct__gemm_isa->pack_b(s->kernel, &src, to, count, cols);
    }
}

/* Rows of dy' where pixels of an image lie side by side, and images apart. */
static void pack_planes(const void *ctx, int64_t group, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                        int64_t depth) {
    const pass *s = ctx;
    const ct_image_strides *y = &s->p->geometry.y;
    const int64_t pixels = ct__window_pixels_out(&s->p->geometry.window);
    for (int64_t i = 0; i < rows; i++) {
        char *to = (char *)dst + i * ld * SIZE;
        for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * SIZE) {
            count = ct__min(pixels - k % pixels, k0 + depth - k);
            const int64_t from = k / pixels * y->n + (group * s->product.m + row0 + i) * y->c + k % pixels;
            memcpy(to, (const char *)s->p->y + from * SIZE, (size_t)(count * SIZE));
        }
    }
}

static void pack_rows(const void *ctx, int64_t group, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                      int64_t depth) {
    gather_pixels(ctx, group, dst, ld * SIZE, row0, rows, k0, depth);
}

/* The weight with its channels exchanged, [tap][output channel] by input channels; its taps are those of the patches. */
static void pack_exchanged(const void *ctx, int64_t group, void *dst, int64_t k0, int64_t depth, int64_t col0,
                           int64_t cols) {
    const pass *s = ctx;
    const ct_weight_strides *w = &s->p->geometry.w;
    const int64_t *kernel = s->p->geometry.window.kernel, width = ct__panel_width(s->kernel);
    char *to = dst;
    for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * width * SIZE) {
        const int64_t tap = k / s->channels, channel = k % s->channels;
        count = ct__min(s->channels - channel, k0 + depth - k);
        const int64_t from = tap / kernel[2] / kernel[1] * w->k[0] + tap / kernel[2] % kernel[1] * w->k[1] +
                             tap % kernel[2] * w->k[2] + (group * s->channels + channel) * w->o + col0 * w->i;
        const ct__matrix src = {(const char *)s->p->w + from * SIZE, CT_GEMM_BF16, w->o, w->i};
        ct__gemm_isa->pack_b(s->kernel, &src, to, count, cols);
    }
}

/* ---- Which product it is ---- */

/* Whether axes, the innermost first, are one axis of even steps, and how long these are. */
static bool joined(const int64_t *sizes, const int64_t *strides, int n, int64_t *stride) {
    int64_t next = 0, count = 1;
    *stride = 1;
    for (int i = 0; i < n; i++) {
        if (sizes[i] == 1) continue;
        if (count == 1) *stride = next = strides[i];
        if (strides[i] != next) return false;
        next *= sizes[i], count *= sizes[i];
    }
    return true;
}

/* Of the weight: its taps and channels in the order of the patches' columns. */
static bool joined_columns(const pass *s, int64_t *stride) {
    const ct_conv_geometry *g = &s->p->geometry;
    const int64_t *k = g->window.kernel;
    const int64_t tap_sizes[] = {s->channels, k[2], k[1], k[0]},
                  tap_strides[] = {g->w.i, g->w.k[2], g->w.k[1], g->w.k[0]},
                  channel_sizes[] = {k[2], k[1], k[0], s->channels},
                  channel_strides[] = {g->w.k[2], g->w.k[1], g->w.k[0], g->w.i};
    return joined(s->tap_first ? tap_sizes : channel_sizes, s->tap_first ? tap_strides : channel_strides, 4, stride);
}

/* Of all pixels of all images. */
static bool joined_pixels(const ct_image_strides *s, const int64_t *size, int64_t images, int64_t *stride) {
    return joined((const int64_t[]){size[2], size[1], size[0], images},
                  (const int64_t[]){s->s[2], s->s[1], s->s[0], s->n}, 4, stride);
}

static void set_source(pass *s) {
    const ct_conv_geometry *g = &s->p->geometry;
    const ct_window *w = &g->window;
    const bool mirrored = s->p->kind == CT_CONV_INPUT_GRAD;
    s->source = mirrored ? s->p->y : s->p->x;
    s->from = mirrored ? g->y : g->x;
    s->channels = (mirrored ? g->out_channels : g->in_channels) / g->groups;
    for (int a = 0; a < 3; a++) {
        s->in[a] = mirrored ? w->out[a] : w->in[a];
        s->out[a] = mirrored ? w->in[a] : w->out[a];
        s->stride[a] = mirrored ? 1 : w->stride[a];
        s->spacing[a] = mirrored ? -w->dilation[a] : w->dilation[a];
        s->low[a] = mirrored ? w->before[a] : -w->before[a];
    }
}

enum {
    LEAST_CHANNELS = 8, /* of a tap: fewer are too short to copy */
    SMALL_IMAGE =
        64, /* outputs, where blocks of the implicit product are too small for kernels in vector registers, and for all */
    FEW_OUTPUTS = 4096, /* of all images, where the weight is the larger operand */
};

/* The bias's gradient is what the implicit product makes where it is asked for that alone. */
static ct_conv_problem bias_alone(const ct_conv_problem *p) {
    ct_conv_problem bias = *p;
    bias.w = NULL;
    return bias;
}

static const char *weight_grad(pass *s) {
    const ct_conv_geometry *g = &s->p->geometry;
    ct_gemm *product = &s->product;
    const int64_t pixels = ct__window_pixels_out(&g->window);
    s->tap_first = g->channels_last;
    if (!s->p->w) return "the weight's gradient is not asked for";
    const ct_conv_problem bias = bias_alone(s->p);
    if (s->p->bias_grad && (ct__conv_mostly_padding(&bias) || !ct__conv_weight_scratch(&bias)))
        return "the bias's gradient wants another way";
    if (!s->kernel->block && pixels > SMALL_IMAGE) return "images fill blocks of the implicit product";
    if (s->from.c == 1 ? !s->tap_first || s->channels < LEAST_CHANNELS : s->from.s[2] != 1)
        return "neither channels nor pixels lie side by side";
    product->m = g->out_channels / g->groups, product->n = s->channels * ct__window_taps(&g->window);
    product->k = g->batch * pixels;
    product->pack_b = pack_patches, product->pack_b_ctx = s;
    if (!joined_columns(s, &product->c_col)) return "the weight's gradient is not evenly spaced";
    product->c = s->p->w, product->c_row = g->w.o;
    product->c_batch[0] = product->m * g->w.o;
    product->a = s->p->y, product->a_row = g->y.c;
    product->a_batch[0] = product->m * g->y.c;
    if (joined_pixels(&g->y, g->window.out, g->batch, &product->a_col)) return NULL;
    int64_t stride;
    if (!joined_pixels(&g->y, g->window.out, 1, &stride) || stride != 1) return "the cotangent is not evenly spaced";
    product->pack_a = pack_planes, product->pack_a_ctx = s;
    return NULL;
}

static const char *result(pass *s) {
    const ct_conv_problem *p = s->p;
    const ct_conv_geometry *g = &p->geometry;
    const ct_window *w = &g->window;
    ct_gemm *product = &s->product;
    const bool mirrored = p->kind == CT_CONV_INPUT_GRAD;
    const ct_image_strides *to = mirrored ? &g->x : &g->y;
    const int64_t pixels = s->out[0] * s->out[1] * s->out[2];
    s->tap_first = true;
    if (!s->kernel->block || pixels > SMALL_IMAGE || g->batch * pixels > FEW_OUTPUTS) return "its patches are many";
    if (s->from.c != 1 || to->c != 1) return "channels do not lie side by side";
    if (s->channels < LEAST_CHANNELS || s->channels % s->kernel->group) return "a tap has too few channels";
    for (int a = 0; a < 3 && mirrored; a++)
        if (w->stride[a] != 1) return "a stride leaves most taps out";
    if (p->bias && p->bias_stride != 1) return "the bias is strided";
    product->m = g->batch * pixels, product->n = (mirrored ? g->in_channels : g->out_channels) / g->groups;
    product->k = s->channels * ct__window_taps(w);
    product->pack_a = pack_rows, product->pack_a_ctx = s;
    if (mirrored) {
        product->pack_b = pack_exchanged, product->pack_b_ctx = s;
    } else {
        product->b = p->w, product->b_col = g->w.o;
        product->b_batch[0] = product->n * g->w.o;
        if (!joined_columns(s, &product->b_row)) return "the weight is not evenly spaced";
    }
    if (!joined_pixels(to, s->out, g->batch, &product->c_row)) return "the result is not evenly spaced";
    product->c = mirrored ? p->x : p->y, product->c_col = 1;
    product->c_batch[0] = product->n;
    product->bias_col = p->bias, product->bias_batch[0] = product->n;
    product->residual = p->residual, product->residual_col = p->residual_strides.c;
    product->residual_batch[0] = product->n * p->residual_strides.c;
    if (p->residual && !joined_pixels(&p->residual_strides, s->out, g->batch, &product->residual_row))
        return "the residual is not evenly spaced";
    return NULL;
}

/* The product; NULL, or why there is none. */
static const char *plan(pass *s, const ct_conv_problem *p) {
    const ct_gemm_type type = CT_GEMM_BF16;
    ct__gemm_ready();
    memset(s, 0, sizeof *s);
    s->p = p;
    if (p->dtype != CT_BF16 || ct__gemm_kernel(type, type, type)->packed != type)
        return "bf16 is not multiplied as such";
    s->product = (ct_gemm){.a_type = type, .b_type = type, .c_type = type, .bias_type = type, .batch_dims = 1};
    s->product.batch[0] = p->geometry.groups;
    set_source(s);
    const ct_conv_geometry *g = &p->geometry;
    const int64_t taps = ct__window_taps(&g->window), outputs = g->batch * s->out[0] * s->out[1] * s->out[2],
                  others = (p->kind == CT_CONV_INPUT_GRAD ? g->in_channels : g->out_channels) / g->groups;
    const bool weight = p->kind == CT_CONV_WEIGHT_GRAD;
    s->kernel = ct__gemm_larger_kernel(ct__gemm_kernel(type, type, type), weight ? others : outputs,
                                       weight ? s->channels * taps : others, weight ? outputs : s->channels * taps);
    return weight ? weight_grad(s) : result(s);
}

const char *ct__conv_gathered_can(const ct_conv_problem *p) {
    pass s;
    return plan(&s, p);
}

size_t ct__conv_gathered_scratch(const ct_conv_problem *p, ct_gemm_activate activate) {
    pass s;
    if (plan(&s, p)) return 0;
    s.product.activate = activate;
    const ct_conv_problem bias = bias_alone(p);
    const size_t own = ct__gemm_scratch(&s.product), other = p->bias_grad ? ct__conv_weight_scratch(&bias) : 0;
    return own > other ? own : other;
}

bool ct__conv_gathered(const ct_conv_problem *p, ct_gemm_activate activate, void *scratch) {
    pass s;
    if (plan(&s, p)) return false;
    s.product.activate = activate;
    const ct_conv_problem bias = bias_alone(p);
    return (!p->bias_grad || ct__conv_weight(&bias, scratch)) && ct__gemm(&s.product, scratch);
}
