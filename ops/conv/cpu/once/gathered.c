/* Convolutions as one product of matrices whose operand of patches is gathered while it is packed, so that it is never in memory
 * as a whole. With P the outputs of all images, C and K input and output channels of a group:
 *     weight gradient  dw (K, taps C) = dy' (K, P) times patches (P, taps C): the sum goes over the outputs of all images at once, where
 *                      blocks of the implicit product (implicit_weight.c) end with an image, and sums of few products are mostly loads and
 *                      stores of the sums
 *     forward          y (P, K) = patches (P, taps C) times w (taps C, K); where pixels lie side by side, y' = w' times patches'
 *     input gradient   the same with dy for x, of stride 1 alone: x takes dy at the mirrored taps, and w is read with its channels exchanged
 * The last two pack every patch, so they are for small images with many channels: rows of the implicit product's tiles (implicit.c) end with a
 * line of the image, and low tiles take as long to read the weight, which it reads again and again. In bf16 only kernels that multiply it
 * themselves take part. */
#include "ops/conv/cpu/gathered.h"

#include <stddef.h>
#include <string.h>

enum {
    STRETCH = 64, /* rows of patches that are gathered at a time */
    /* Outputs: above it blocks of the implicit product are large enough for kernels in vector registers, and, of a result, for all. */
    SMALL_IMAGE = 64,
    SMALL_KERNEL = 32,  /* taps, of which there are tables */
    OUTSIDE = INT32_MIN /* of the source: places in a plane whose memory runs backwards are negative too */
};

/* Tap t of output o looks at o * stride + t * spacing + low. */
typedef struct axis {
    int64_t in, out, taps; /* sizes of the source, of the outputs and of the kernel */
    int64_t stride, spacing, low;
} axis;

typedef struct pass {
    const ct_conv_problem *p;
    const ct__kernel *kernel;
    int64_t size;       /* bytes of an element */
    const char *source; /* of the patches */
    ct_image_strides from;
    int64_t channels, taps, pixels; /* of a patch, one group; outputs of an image */
    axis axis[3];
    bool tap_first; /* columns of patches are [tap][channel], otherwise [channel][tap] */
    bool tabled;    /* the table is used */
    ct_gemm product;
    int32_t looks[SMALL_KERNEL * SMALL_IMAGE]; /* where tap t of pixel i looks in a plane of the source, or OUTSIDE */
} pass;

/* ---- Patches ---- */

/* The outputs [at, at + *count) of a line, at most up to `end` of all outputs: where tap t of output `at` of them looks, and which of
 * them look inside the source: [*first, *last). NULL: none. */
static const char *line_of(const pass *s, int64_t group, int64_t tap, int64_t at, int64_t end, int64_t *count,
                           int64_t *first, int64_t *last) {
    const axis *x = s->axis, *columns = &s->axis[2];
    const int64_t t[3] = {tap / x[2].taps / x[1].taps, tap / x[2].taps % x[1].taps, tap % x[2].taps};
    const int64_t w = at % columns->out, line = at / columns->out, o[2] = {line / x[1].out % x[0].out, line % x[1].out},
                  n = line / x[1].out / x[0].out;
    *count = ct__min(columns->out - w, end - at);
    *first = *last = 0;
    int64_t offset = n * s->from.n + group * s->channels * s->from.c;
    for (int a = 0; a < 2; a++) {
        const int64_t place = o[a] * x[a].stride + t[a] * x[a].spacing + x[a].low;
        if (place < 0 || place >= x[a].in) return NULL;
        offset += place * s->from.s[a];
    }
    const int64_t place = w * columns->stride + t[2] * columns->spacing + columns->low, step = columns->stride;
    *first = place < 0 ? ct__min(ct__ceil_div(-place, step), *count) : 0;
    *last = place < columns->in ? ct__min(ct__ceil_div(columns->in - place, step), *count) : 0;
    if (*first >= *last) return NULL;
    return s->source + (offset + place * s->from.s[2]) * s->size;
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
            const int64_t step = s->axis[2].stride * s->from.s[2] * s->size;
            clear_pixels(line, to_row, first, width * s->size);
            if (from)
                copy_pixels(line + first * to_row, to_row, from + first * step + channel * s->size, step, last - first,
                            width * s->size);
            clear_pixels(line + last * to_row, to_row, count - last, width * s->size);
        }
        to += width * s->size, column += width, columns -= width;
    }
}

/* What some pixels look at in a plane, to elements that are `step` bytes apart. */
static void take_pixels(char *to, int64_t step, const char *plane, const int32_t *looks, int64_t n, int64_t size) {
#define TAKE(T)                                                                     \
    for (int64_t i = 0; i < n; i++, to += step) {                                   \
        const int32_t at = looks[i];                                                \
        T x;                                                                        \
        memcpy(&x, plane + (at == OUTSIDE ? 0 : at) * (int64_t)sizeof x, sizeof x); \
        x = at == OUTSIDE ? 0 : x;                                                  \
        memcpy(to, &x, sizeof x);                                                   \
    }
    if (size == 4) TAKE(uint32_t)
    else if (size == 2) TAKE(uint16_t)
    else TAKE(uint64_t)
#undef TAKE
}

/* Columns [column, column + columns) of rows [row, row + rows) of the patches where pixels lie side by side, by the table: each column
 * to_row bytes from the next, its elements `step` bytes apart. */
static void gather_tabled(const pass *s, int64_t group, char *to, int64_t to_row, int64_t step, int64_t row,
                          int64_t rows, int64_t column, int64_t columns) {
    const char *image = s->source + (row / s->pixels * s->from.n + group * s->channels * s->from.c) * s->size;
    const int64_t plane = s->from.c * s->size;
    for (int64_t pixel = row % s->pixels; rows > 0; pixel = 0, image += s->from.n * s->size) {
        const int64_t count = ct__min(s->pixels - pixel, rows);
        int64_t tap = s->tap_first ? column / s->channels : column % s->taps,
                channel = s->tap_first ? column % s->channels : column / s->taps;
        char *line = to;
        for (int64_t i = 0; i < columns; i++, line += to_row) {
            take_pixels(line, step, image + channel * plane, s->looks + tap * s->pixels + pixel, count, s->size);
            if (s->tap_first && ++channel == s->channels) channel = 0, tap++;
            if (!s->tap_first && ++tap == s->taps) tap = 0, channel++;
        }
        to += count * step, rows -= count;
    }
}

/* The same with a table or without. */
static void gather_planes(const pass *s, int64_t group, char *to, int64_t to_row, int64_t step, int64_t row,
                          int64_t rows, int64_t column, int64_t columns) {
    if (s->tabled) {
        gather_tabled(s, group, to, to_row, step, row, rows, column, columns);
        return;
    }
    for (int64_t end = column + columns; column < end; column++, to += to_row) {
        const int64_t tap = s->tap_first ? column / s->channels : column % s->taps,
                      channel = s->tap_first ? column % s->channels : column / s->taps;
        char *line = to;
        for (int64_t at = row, count, first, last; at < row + rows; at += count, line += count * step) {
            const char *from = line_of(s, group, tap, at, row + rows, &count, &first, &last);
            const int64_t apart = s->axis[2].stride * s->from.s[2] * s->size;
            clear_pixels(line, step, first, s->size);
            if (from) {
                from += first * apart + channel * s->from.c * s->size;
                if (apart == s->size && step == s->size)
                    memcpy(line + first * step, from, (size_t)((last - first) * step));
                else copy_pixels(line + first * step, step, from, apart, last - first, s->size);
            }
            clear_pixels(line + last * step, step, count - last, s->size);
        }
    }
}

static void fill_table(pass *s) {
    const axis *x = s->axis;
    for (int64_t i = 0; s->tabled && i < s->pixels; i++) {
        const int64_t o[3] = {i / x[2].out / x[1].out, i / x[2].out % x[1].out, i % x[2].out};
        for (int64_t tap = 0; tap < s->taps; tap++) {
            const int64_t t[3] = {tap / x[2].taps / x[1].taps, tap / x[2].taps % x[1].taps, tap % x[2].taps};
            int64_t from = 0;
            bool inside = true;
            for (int a = 0; a < 3; a++) {
                const int64_t place = o[a] * x[a].stride + t[a] * x[a].spacing + x[a].low;
                inside = inside && place >= 0 && place < x[a].in;
                if (inside) from += place * s->from.s[a];
            }
            s->looks[tap * s->pixels + i] = inside ? (int32_t)from : OUTSIDE;
        }
    }
}

/* ---- Packers (gemm.h) ---- */

/* Rows are outputs, columns taps and channels. */
static void pack_patches(const void *ctx, int64_t group, void *dst, int64_t k0, int64_t depth, int64_t col0,
                         int64_t cols) {
    const pass *s = ctx;
    const int64_t width = ct__panel_width(s->kernel), size = s->size;
    const bool pixels = s->from.c == 1;
    char buffer[STRETCH * CT__TILE_WIDTH_MAX * sizeof(uint16_t)], *to = dst;
    if (s->kernel->group == 1) {
        if (pixels) gather_pixels(s, group, to, width * size, k0, depth, col0, cols);
        else gather_planes(s, group, to, size, width * size, k0, depth, col0, cols);
        return;
    }
    for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * width * size) {
        count = ct__min(STRETCH, k0 + depth - k);
        if (pixels) gather_pixels(s, group, buffer, width * size, k, count, col0, cols);
        else gather_planes(s, group, buffer, STRETCH * size, size, k, count, col0, cols);
        const ct__matrix src = {buffer, CT_GEMM_BF16, pixels ? width : 1, pixels ? 1 : STRETCH};
        ct__gemm_isa->pack_b(s->kernel, &src, to, count, cols);
    }
}

/* The same transposed, of kernels without groups. */
static void pack_patches_transposed(const void *ctx, int64_t group, void *dst, int64_t k0, int64_t depth, int64_t col0,
                                    int64_t cols) {
    const pass *s = ctx;
    gather_planes(s, group, dst, ct__panel_width(s->kernel) * s->size, s->size, col0, cols, k0, depth);
}

/* Rows of dy' where pixels of an image lie side by side, and images apart. */
static void pack_planes(const void *ctx, int64_t group, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                        int64_t depth) {
    const pass *s = ctx;
    const ct_image_strides *y = &s->p->geometry.y;
    const int64_t pixels = ct__window_pixels_out(&s->p->geometry.window);
    for (int64_t i = 0; i < rows; i++) {
        char *to = (char *)dst + i * ld * s->size;
        for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * s->size) {
            count = ct__min(pixels - k % pixels, k0 + depth - k);
            const int64_t from = k / pixels * y->n + (group * s->product.m + row0 + i) * y->c + k % pixels;
            memcpy(to, (const char *)s->p->y + from * s->size, (size_t)(count * s->size));
        }
    }
}

static void pack_rows(const void *ctx, int64_t group, void *dst, int64_t ld, int64_t row0, int64_t rows, int64_t k0,
                      int64_t depth) {
    const pass *s = ctx;
    gather_pixels(s, group, dst, ld * s->size, row0, rows, k0, depth);
}

/* The weight with its channels exchanged, [tap][output channel] by input channels; its taps are those of the patches. */
static void pack_exchanged(const void *ctx, int64_t group, void *dst, int64_t k0, int64_t depth, int64_t col0,
                           int64_t cols) {
    const pass *s = ctx;
    const ct_weight_strides *w = &s->p->geometry.w;
    const int64_t *kernel = s->p->geometry.window.kernel, width = ct__panel_width(s->kernel);
    char *to = dst;
    for (int64_t k = k0, count; k < k0 + depth; k += count, to += count * width * s->size) {
        const int64_t tap = k / s->channels, channel = k % s->channels;
        count = ct__min(s->channels - channel, k0 + depth - k);
        const int64_t from = tap / kernel[2] / kernel[1] * w->k[0] + tap / kernel[2] % kernel[1] * w->k[1] +
                             tap % kernel[2] * w->k[2] + (group * s->channels + channel) * w->o + col0 * w->i;
        const ct__matrix src = {(const char *)s->p->w + from * s->size, s->product.b_type, w->o, w->i};
        ct__gemm_isa->pack_b(s->kernel, &src, to, count, cols);
    }
}

/* Rows are channels, columns the pixels of all images: to planes. */
static void store_planes(const void *ctx, int64_t group, const void *tile, int64_t ld, int64_t row0, int64_t rows,
                         int64_t col0, int64_t cols) {
    const pass *s = ctx;
    const ct_image_strides *y = &s->p->geometry.y;
    const int64_t size = s->size;
    for (int64_t at = col0, count; at < col0 + cols; at += count) {
        const int64_t pixel = at % s->pixels;
        count = ct__min(s->pixels - pixel, col0 + cols - at);
        const char *from = (const char *)tile + (at - col0) * size;
        char *to = (char *)s->p->y + (at / s->pixels * y->n + (group * s->product.m + row0) * y->c + pixel) * size;
        for (int64_t i = 0; i < rows; i++, from += ld * size, to += y->c * size)
            memcpy(to, from, (size_t)(count * size));
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

/* Whether places in a plane fit the table. */
static bool fits_table(const ct_image_strides *s, const int64_t *size) {
    double most = 0;
    for (int a = 0; a < 3; a++) most += (double)size[a] * (double)(s->s[a] < 0 ? -s->s[a] : s->s[a]);
    return most < INT32_MAX;
}

static void set_source(pass *s) {
    const ct_conv_geometry *g = &s->p->geometry;
    const ct_window *w = &g->window;
    const bool mirrored = s->p->kind == CT_CONV_INPUT_GRAD;
    s->source = mirrored ? s->p->y : s->p->x;
    s->from = mirrored ? g->y : g->x;
    s->channels = (mirrored ? g->out_channels : g->in_channels) / g->groups;
    s->taps = s->pixels = 1;
    for (int a = 0; a < 3; a++) {
        axis *x = &s->axis[a];
        *x = mirrored ? (axis){w->out[a], w->in[a], w->kernel[a], 1, -w->dilation[a], w->before[a]}
                      : (axis){w->in[a], w->out[a], w->kernel[a], w->stride[a], w->dilation[a], -w->before[a]};
        s->taps *= x->taps, s->pixels *= x->out;
    }
    s->tabled = s->pixels <= SMALL_IMAGE && s->taps <= SMALL_KERNEL && fits_table(&s->from, mirrored ? w->out : w->in);
}

enum {
    LEAST_CHANNELS = 8, /* of a tap: fewer are too short to copy */
    FEW_OUTPUTS = 4096, /* of all images, where the weight is the larger operand */
};

/* The bias's gradient is what the implicit product makes where it is asked for that alone. */
static ct_conv_problem bias_alone(const ct_conv_problem *p) {
    ct_conv_problem bias = *p;
    bias.w = NULL;
    return bias;
}

/* What a gathered element costs in products of vectors of the kernel, with so many columns of the other operand to share it. */
static double gathering(const pass *s, int64_t columns) {
    const double each = 4.5 * (double)s->kernel->lanes;
    return 1.08 + each / (double)columns;
}

/* Whether the rows of tiles of the implicit product, which end with a line, are so few that gathering is the lesser evil: tiles of a
 * third of the rows took twice as long on processors with vectors of sixteen numbers. */
static bool short_lines(const pass *s, int64_t columns) {
    const double rows = (double)ct__even_rows(s->kernel, s->axis[2].out), low = (double)s->kernel->rows / rows - 1;
    return gathering(s, columns) < 1 + 0.46 * low;
}

static const char *weight_grad(pass *s) {
    const ct_conv_geometry *g = &s->p->geometry;
    ct_gemm *product = &s->product;
    const bool vectors = s->kernel->group == 1;
    s->tap_first = g->channels_last;
    if (!s->p->w) return "the weight's gradient is not asked for";
    const ct_conv_problem bias = bias_alone(s->p);
    if (s->p->bias_grad && (ct__conv_mostly_padding(&bias) || !ct__conv_weight_scratch(&bias)))
        return "the bias's gradient wants another way";
    if (!s->kernel->block && s->pixels > SMALL_IMAGE) return "images fill blocks of the implicit product";
    if (s->from.c == 1 ? !s->tap_first || s->channels < LEAST_CHANNELS : s->from.s[2] != 1)
        return "neither channels nor pixels lie side by side";
    product->m = g->out_channels / g->groups, product->n = s->channels * s->taps;
    product->k = g->batch * s->pixels;
    if (vectors && !short_lines(s, product->m)) return "lines fill tiles of the implicit product";
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

/* Channels side by side: rows are pixels. */
static const char *result_of_pixels(pass *s) {
    const ct_conv_problem *p = s->p;
    const ct_conv_geometry *g = &p->geometry;
    ct_gemm *product = &s->product;
    const bool mirrored = p->kind == CT_CONV_INPUT_GRAD;
    const ct_image_strides *to = mirrored ? &g->x : &g->y;
    const int64_t out[3] = {s->axis[0].out, s->axis[1].out, s->axis[2].out};
    s->tap_first = true;
    if (!s->kernel->block) return "only matrix registers gather pixels";
    if (s->channels < LEAST_CHANNELS || s->channels % s->kernel->group) return "a tap has too few channels";
    for (int a = 0; a < 3 && mirrored; a++)
        if (g->window.stride[a] != 1) return "a stride leaves most taps out";
    product->m = g->batch * s->pixels, product->n = (mirrored ? g->in_channels : g->out_channels) / g->groups;
    product->k = s->channels * s->taps;
    product->pack_a = pack_rows, product->pack_a_ctx = s;
    if (mirrored) {
        product->pack_b = pack_exchanged, product->pack_b_ctx = s;
    } else {
        product->b = p->w, product->b_col = g->w.o;
        product->b_batch[0] = product->n * g->w.o;
        if (!joined_columns(s, &product->b_row)) return "the weight is not evenly spaced";
    }
    if (!joined_pixels(to, out, g->batch, &product->c_row)) return "the result is not evenly spaced";
    product->c = mirrored ? p->x : p->y, product->c_col = 1;
    product->c_batch[0] = product->n;
    product->bias_col = p->bias, product->bias_batch[0] = product->n;
    product->residual = p->residual, product->residual_col = p->residual_strides.c;
    product->residual_batch[0] = product->n * p->residual_strides.c;
    if (p->residual && !joined_pixels(&p->residual_strides, out, g->batch, &product->residual_row))
        return "the residual is not evenly spaced";
    return NULL;
}

/* Pixels side by side: columns are pixels. */
static const char *result_of_planes(pass *s) {
    const ct_conv_problem *p = s->p;
    const ct_conv_geometry *g = &p->geometry;
    ct_gemm *product = &s->product;
    int64_t step;
    s->tap_first = false;
    if (p->kind == CT_CONV_INPUT_GRAD || s->kernel->group != 1 || !s->tabled)
        return "patches of planes are not gathered for it";
    if (p->residual) return "a residual of planes";
    product->m = g->out_channels / g->groups, product->n = g->batch * s->pixels, product->k = s->channels * s->taps;
    if (!short_lines(s, product->m)) return "lines fill tiles of the implicit product";
    product->pack_b = pack_patches_transposed, product->pack_b_ctx = s;
    product->a = p->w, product->a_row = g->w.o;
    product->a_batch[0] = product->m * g->w.o;
    if (!joined_columns(s, &product->a_col)) return "the weight is not evenly spaced";
    if (!joined_pixels(&g->y, g->window.out, 1, &step) || step != 1) return "the result is not evenly spaced";
    product->store = store_planes, product->store_ctx = s;
    product->bias_row = p->bias, product->bias_batch[0] = product->m;
    return NULL;
}

static const char *result(pass *s) {
    const ct_conv_geometry *g = &s->p->geometry;
    const bool mirrored = s->p->kind == CT_CONV_INPUT_GRAD;
    if (s->pixels > SMALL_IMAGE || g->batch * s->pixels > FEW_OUTPUTS) return "its patches are many";
    if (s->p->bias && s->p->bias_stride != 1) return "the bias is strided";
    if (s->from.c != 1) return result_of_planes(s);
    return (mirrored ? &g->x : &g->y)->c == 1 ? result_of_pixels(s) : "channels do not lie side by side";
}

/* The product; NULL, or why there is none. */
static const char *plan(pass *s, const ct_conv_problem *p) {
    ct_gemm_type type = CT_GEMM_F32;
    ct__conv_gemm_type(p->dtype, &type);
    ct__gemm_ready();
    memset(s, 0, offsetof(pass, looks));
    s->p = p;
    s->size = ct__type_size(type);
    if (ct__gemm_kernel(type, type, type)->packed != type) return "halves are not multiplied as such";
    s->product = (ct_gemm){.a_type = type, .b_type = type, .c_type = type, .bias_type = type, .batch_dims = 1};
    s->product.batch[0] = p->geometry.groups;
    set_source(s);
    const ct_conv_geometry *g = &p->geometry;
    const int64_t outputs = g->batch * s->pixels,
                  others = (p->kind == CT_CONV_INPUT_GRAD ? g->in_channels : g->out_channels) / g->groups;
    const bool weight = p->kind == CT_CONV_WEIGHT_GRAD;
    s->kernel =
        ct__gemm_larger_kernel(ct__gemm_kernel(type, type, type), weight ? others : outputs,
                               weight ? s->channels * s->taps : others, weight ? outputs : s->channels * s->taps);
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
    fill_table(&s);
    const ct_conv_problem bias = bias_alone(p);
    return (!p->bias_grad || ct__conv_weight(&bias, scratch)) && ct__gemm(&s.product, scratch);
}
