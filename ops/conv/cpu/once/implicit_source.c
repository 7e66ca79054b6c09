/* Taps of an axis, and blocks of a source with their padding. */
#include <string.h>

#include "ops/conv/cpu/implicit.h"

bool ct__conv_gemm_type(ct_dtype dtype, ct_gemm_type *type) {
    switch (dtype) {
    case CT_F32: *type = CT_GEMM_F32; return true;
    case CT_F64: *type = CT_GEMM_F64; return true;
    case CT_F16: *type = CT_GEMM_F16; return true;
    case CT_BF16: *type = CT_GEMM_BF16; return true;
    default: return false;
    }
}

/* ---- Taps ---- */

static int64_t divisor(int64_t a, int64_t b) { return b ? divisor(b, a % b) : a; }

static int64_t phases_of(const ct_window *w, int a, bool transposed) {
    return transposed ? ct__min(w->stride[a], w->in[a]) : 1;
}

int64_t ct__taps_size(const ct_window *w, int a, bool transposed) {
    return phases_of(w, a, transposed) + 1 + 2 * w->kernel[a];
}

static void add_tap(ct__taps *t, int64_t k, int64_t offset) {
    const int64_t high = t->count ? t->low + t->span : offset;
    t->k[t->count] = k;
    t->offset[t->count] = offset;
    if (t->count == 0 || offset < t->low) t->low = offset;
    t->span = (offset >= high ? offset + 1 : high) - t->low;
    t->count++;
}

int64_t ct__tables_bytes(const ct_conv_problem *p) {
    int64_t numbers = 0;
    for (int a = 0; a < 3; a++) numbers += ct__taps_size(&p->geometry.window, a, p->kind == CT_CONV_INPUT_GRAD);
    return ct__round_up(numbers * (int64_t)sizeof(int64_t), 64);
}

void ct__taps_make(ct__taps *t, const ct_window *w, int a, bool transposed, int64_t **at) {
    const int64_t kernel = w->kernel[a], stride = w->stride[a], dilation = w->dilation[a], before = w->before[a];
    *t = (ct__taps){.by = 1, .phases = phases_of(w, a, transposed), .step = 1, .span = 1};
    t->first = *at;
    t->k = t->first + t->phases + 1;
    t->offset = t->k + kernel;
    *at = t->offset + kernel;
    if (!transposed) {
        t->positions = w->out[a], t->source = w->in[a];
        t->step = stride;
        t->spacing = dilation;
        for (int64_t k = 0; k < kernel; k++) add_tap(t, k, k * dilation - before);
        t->first[0] = 0, t->first[1] = kernel;
        return;
    }
    /* Position r + q stride gets tap k from window q + (r + before - k dilation) / stride, where that is whole. */
    t->positions = w->in[a], t->source = w->out[a];
    t->by = stride;
    t->spacing = dilation / divisor(stride, dilation);
    for (int64_t r = 0; r < t->phases; r++) {
        t->first[r] = t->count;
        for (int64_t k = kernel - 1; k >= 0; k--)
            if ((r + before - k * dilation) % stride == 0) add_tap(t, k, (r + before - k * dilation) / stride);
    }
    t->first[t->phases] = t->count;
}

/* ---- Blocks ---- */

static int64_t most_taps(const ct__taps *t) {
    int64_t most = 0;
    for (int64_t r = 0; r < t->phases; r++)
        if (ct__taps_of(t, r) > most) most = ct__taps_of(t, r);
    return most;
}

static int64_t reach(const ct__taps *t, int64_t outputs) { return (outputs - 1) * t->step + t->span; }

static void measure(ct__source *s) {
    const int64_t size = ct__type_size(s->kernel->packed), group = s->kernel->group;
    s->padded = ct__round_up(s->channels, group);
    s->slices = most_taps(&s->axis[0]);
    s->rows = reach(&s->axis[1], s->lines);
    s->width = s->patches ? s->segment : reach(&s->axis[2], s->segment);
    s->row_depth = s->patches ? ct__round_up(s->axis[2].count * s->channels, group) : s->axis[2].count * s->padded;
    /* Planes an odd number of lines apart fall on different sets of the cache. */
    const int64_t line = 64 / (size * group);
    int64_t plane = ct__round_up(s->slices * s->rows * s->width, line);
    if (plane / line % 2 == 0) plane += line;
    s->unit = size * (s->patches ? s->row_depth : s->last ? s->padded : group);
    s->row_bytes = s->width * s->unit;
    s->slice_bytes = s->rows * s->row_bytes;
    s->channel_bytes = size * group * (s->last || s->patches ? 1 : plane);
    s->bytes = s->last || s->patches ? s->slices * s->slice_bytes : s->padded / group * s->channel_bytes;
    s->bytes = ct__round_up(s->bytes + 64, 64); /* a unit past the end may be prefetched, never used */
}

/* Planes of few channels are interleaved, so that the taps of a row of all of them lie side by side: rows of a tile of the weight
 * gradient, which would be few, or else one sum instead of a short one for each channel. Where every pixel is seen but once, that is
 * no gain. */
static bool interleaved(const ct__source *s) {
    const ct__taps *columns = &s->axis[2];
    return (s->along_pixels || columns->phases == 1) && s->kernel->group == 1 && s->type == s->kernel->packed &&
           ct__type_size(s->type) == 4 && s->strides.s[2] == 1 && s->strides.c != 1 && s->channels > 1 &&
           s->channels <= CT__FEW_CHANNELS && columns->count > columns->step && columns->spacing == 1;
}

bool ct__source_channels_last(const ct__source *s) {
    const int64_t pixel = s->strides.s[2];
    if (s->kernel->group > 1 && (pixel != 1 || s->kernel->block)) return true;
    if (interleaved(s)) return true;
    return s->strides.c == 1 && (s->channels > 1 || pixel != 1);
}

bool ct__source_patches(const ct__source *s) {
    const ct__taps *columns = &s->axis[2];
    return s->kernel->group > 1 && s->type == s->kernel->packed && ct__type_size(s->type) == 2 && s->channels < 8 &&
           columns->count > 1 && columns->phases == 1 && columns->by == 1 && columns->spacing == 1 &&
           (s->last ? s->channels % s->kernel->group != 0 && s->strides.c == 1 && s->strides.s[2] == s->channels
                    : s->strides.s[2] == 1);
}

/* Halves a count down to segments of even size, multiples of `unit` but the last. */
static int64_t halve(int64_t part, int64_t unit) { return ct__round_up(ct__ceil_div(part, 2), unit); }

/* Some `count` segments of n pixels, whole lines of the cache and alike. */
static int64_t even_segments(int64_t n, int64_t count) {
    int64_t best = n, rest = n;
    for (int64_t i = count; i < count + 3; i++) {
        const int64_t size = ct__round_up(ct__ceil_div(n, i), 16);
        if (size * i - n < rest) best = size, rest = size * i - n;
    }
    return best < 64 ? ct__min(n, 64) : best;
}

/* Rows of a tile that would crowd a few sets of the first cache are better copied. */
static bool crowded(int64_t stride, int64_t rows) {
    const int64_t power = stride & -stride;
    return power >= 64 && rows * power / 4096 > 4;
}

/* Blocks are borrowed where no column is padding and the elements of a tile lie as it wants them. */
static void borrow(ct__source *s) {
    const ct__taps *columns = &s->axis[2];
    const int64_t size = ct__type_size(s->type), apart = s->last ? columns->step * s->strides.s[2] : s->strides.c;
    const bool lies = s->last ? s->strides.c == 1 && s->padded == s->channels &&
                                    (s->strides.s[2] == s->channels || columns->count == 1)
                              : s->along_pixels && s->kernel->group == 1 && s->strides.s[2] == 1;
    s->borrowed = lies && !s->patches && s->type == s->kernel->packed && s->slices == 1 && columns->low == 0 &&
                  reach(columns, ct__taps_outputs(columns, 0)) <= columns->source &&
                  !crowded(apart * size, s->kernel->rows);
    if (!s->borrowed) return;
    s->unit = s->strides.s[2] * size;
    s->row_bytes = s->strides.s[1] * size;
    s->channel_bytes = s->strides.c * size * s->kernel->group;
}

void ct__source_cut(ct__source *s, int64_t bytes, int64_t images, int64_t blocks, int64_t pixels) {
    const int64_t lines = ct__taps_outputs(&s->axis[1], 0), width = ct__taps_outputs(&s->axis[2], 0);
    const int64_t tile = s->kernel->rows, others = images * s->axis[0].positions;
    s->lines = 1;
    s->segment = width;
    measure(s);
    if (s->along_pixels && s->bytes > bytes) s->segment = even_segments(width, ct__ceil_div(s->bytes, bytes));
    for (measure(s); s->bytes > bytes && s->segment > 4 * tile; measure(s)) s->segment = halve(s->segment, tile);
    s->segments = ct__ceil_div(width, s->segment);
    int64_t fit = lines; /* the most lines within the bytes */
    s->lines = fit;
    for (measure(s); s->bytes > bytes && s->lines > 1; measure(s)) s->lines = halve(s->lines, 1);
    /* More of them as long as they are large: threads that are kept waiting leave some to the others. */
    for (int64_t count; s->lines > 1; s->lines = halve(s->lines, 1)) {
        count = others * s->segments * ct__ceil_div(lines, s->lines);
        if (s->lines * s->segment <= (count < blocks ? 8 : 96) * tile || count >= 2 * blocks) break;
    }
    if (pixels && s->lines * s->segment > pixels) s->lines = pixels < s->segment ? 1 : pixels / s->segment;
    s->line_blocks = ct__ceil_div(lines, s->lines);
    s->lines = ct__ceil_div(lines, s->line_blocks);
    measure(s);
    borrow(s);
}

static bool row_used(const ct__taps *t, int64_t row) {
    if (t->step == 1) return true;
    for (int64_t i = 0; i < t->count; i++)
        if (row >= t->offset[i] - t->low && (row - (t->offset[i] - t->low)) % t->step == 0) return true;
    return false;
}

/* Rows are short: a call of memcpy for each would cost more than the copy. */
static inline void copy_row(char *restrict to, const char *restrict from, int64_t bytes) {
    enum { BYTES_AT_ONCE = 32 };
    if (bytes < BYTES_AT_ONCE) {
        for (; bytes >= 4; bytes -= 4, to += 4, from += 4) memcpy(to, from, 4);
        if (bytes) memcpy(to, from, 2);
        return;
    }
    for (int64_t i = 0; i + BYTES_AT_ONCE <= bytes; i += BYTES_AT_ONCE) memcpy(to + i, from + i, BYTES_AT_ONCE);
    memcpy(to + bytes - BYTES_AT_ONCE, from + bytes - BYTES_AT_ONCE,
           BYTES_AT_ONCE); /* what is left, and some of it again */
}

/* Every step-th of a row, four bytes each: of a stride that no tap looks between. */
static inline void copy_every(char *restrict to, const char *restrict from, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; i++) memcpy(to + 4 * i, from + 4 * i * step, 4);
}

/* Pixels of a few halves, an odd number, whose last pair lacks one: that stays zero. */
static void copy_pixels(char *to, int64_t to_step, const char *from, int64_t step, int64_t pixels, int64_t channels) {
    for (int64_t i = 0; i < pixels; i++, to += 2 * to_step, from += 2 * step)
        for (int64_t c = 0; c < channels; c++) memcpy(to + 2 * c, from + 2 * c, 2);
}

typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));
#if defined(__clang__)
#define ZIP(a, b, ...)  __builtin_shufflevector(a, b, __VA_ARGS__)
#define ZIP4(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ZIP(a, b, ...)  __builtin_shuffle(a, b, (halves){__VA_ARGS__})
#define ZIP4(a, b, ...) __builtin_shuffle(a, b, (words){__VA_ARGS__})
#endif

/* to[i * channels + c] = from[c][i], four bytes each, planes so many bytes apart. */
static void interleave(char *restrict to, const char *restrict from, int64_t plane, int64_t n, int64_t channels) {
    int64_t i = 0;
    for (; channels == 3 && i + 4 <= n; i += 4, to += 48) {
        words x, y, z;
        memcpy(&x, from + 4 * i, sizeof x);
        memcpy(&y, from + 4 * i + plane, sizeof y);
        memcpy(&z, from + 4 * i + 2 * plane, sizeof z);
        const words xy = ZIP4(x, y, 0, 4, 1, 5), yz = ZIP4(y, z, 1, 5, 2, 6), zx = ZIP4(z, x, 2, 7, 3, 6);
        const words first = ZIP4(xy, z, 0, 1, 4, 2), second = ZIP4(yz, zx, 0, 1, 7, 2),
                    third = ZIP4(ZIP4(zx, y, 0, 1, 7, 7), zx, 0, 1, 2, 6);
        memcpy(to, &first, sizeof first);
        memcpy(to + 16, &second, sizeof second);
        memcpy(to + 32, &third, sizeof third);
    }
    for (; i < n; i++, to += 4 * channels)
        for (int64_t c = 0; c < channels; c++) memcpy(to + 4 * c, from + 4 * i + c * plane, 4);
}

/* to[i] = (x[i], y[i]) of halves; y NULL: (x[i], 0). */
static void pair_halves(char *to, const char *x, const char *y, int64_t n) {
    enum { MANY = 8 };
    for (; n >= MANY && y; n -= MANY, x += 2 * MANY, y += 2 * MANY, to += 4 * MANY) {
        halves a, b;
        memcpy(&a, x, sizeof a);
        memcpy(&b, y, sizeof b);
        const halves low = ZIP(a, b, 0, 8, 1, 9, 2, 10, 3, 11), high = ZIP(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        memcpy(to, &low, sizeof low);
        memcpy(to + sizeof low, &high, sizeof high);
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + 4 * i, x + 2 * i, 2);
        if (y) memcpy(to + 4 * i + 2, y + 2 * i, 2);
        else memset(to + 4 * i + 2, 0, 2);
    }
}

/* Pairs of columns [begin, end) of a row, n elements side by side each; those before begin have a second half alone. */
static void load_pairs(const ct__source *s, const char *from, char *to, int64_t begin, int64_t end, int64_t n) {
    const int64_t apart = s->axis[2].step, step = ct__min(apart, end - begin), pixel = s->strides.s[2] * 2,
                  dense = n * 2;
    for (int64_t at = begin > apart ? begin - apart : 0; at < begin && at + apart < end; at++)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + at * s->unit + 4 * i + 2, from + (at + apart - begin) * pixel + 2 * i, 2);
    to += begin * s->unit;
    const int64_t whole = end - begin - step, together = pixel == dense ? whole : 1;
    for (int64_t j = 0; j < whole; j += together)
        pair_halves(to + j * s->unit, from + j * pixel, from + (j + step) * pixel, together * n);
    for (int64_t j = whole; j < whole + step; j++) pair_halves(to + j * s->unit, from + j * pixel, NULL, n);
}

/* Columns [begin, end) of one row of the buffer, all channels. */
static void load_row(const ct__source *s, const char *from, char *to, int64_t begin, int64_t end) {
    const ct__kernel *kernel = s->kernel;
    ct__matrix src = {from, s->type, s->strides.s[2], s->strides.c};
    char *dst = to + begin * s->unit;
    if (s->pairs) {
        for (int64_t c = 0; c < (s->last ? 1 : s->channels); c++)
            load_pairs(s, from + c * s->strides.c * 2, to + c * s->channel_bytes, begin, end,
                       s->last ? s->channels : 1);
    } else if (s->last && interleaved(s)) {
        interleave(dst, from, s->strides.c * 4, end - begin, s->channels);
    } else if (!s->last && kernel->group == 1 && s->type == kernel->packed && s->strides.s[2] == 1) {
        const int64_t size = ct__type_size(s->type);
        for (int64_t c = 0; c < s->channels; c++)
            copy_row(dst + c * s->channel_bytes, from + c * s->strides.c * size, (end - begin) * size);
    } else if (!s->last && kernel->group == 1 && s->type == kernel->packed && ct__type_size(s->type) == 4) {
        for (int64_t c = 0; c < s->channels; c++)
            copy_every(dst + c * s->channel_bytes, from + c * s->strides.c * 4, s->strides.s[2], end - begin);
    } else if (s->last && s->strides.c == 1 && s->strides.s[2] == s->channels && s->padded == s->channels) {
        src.row = 0;
        ct__gemm_isa->pack_a(kernel, &src, dst, 0, 0, 1, (end - begin) * s->channels);
    } else if (s->last && s->type == kernel->packed && s->channels < ct__min(8, s->padded) && s->strides.c == 1 &&
               ct__type_size(s->type) == 2) {
        copy_pixels(dst, s->padded, from, s->strides.s[2], end - begin, s->channels);
    } else {
        ct__gemm_isa->pack_a(kernel, &src, dst, s->last ? s->padded : s->channel_bytes / ct__type_size(kernel->packed),
                             s->last ? 0 : s->channel_bytes /* one panel has all columns */, end - begin, s->channels);
    }
}

/* The patches of one row of the source, of outputs whose first tap looks at `column`, `column` + step and so on. */
static void load_patches(const ct__source *s, const char *from, char *to, int64_t column, int64_t outputs) {
    enum { HALF = 2 };
    const ct__taps *columns = &s->axis[2];
    const int64_t pixel = s->strides.s[2] * HALF, runs = s->last ? 1 : s->channels, bytes = columns->count * pixel,
                  apart = s->strides.c * HALF, all = columns->source * pixel;
    ct__kernel single = *s->kernel;
    single.group = 1;
    for (int64_t q = 0; q < outputs; q++) {
        const int64_t at = (column + q * columns->step) * pixel, room = all - bytes - at;
        const int64_t inside = at >= 0 && room >= 0 ? ct__min(outputs - q, room / (columns->step * pixel) + 1) : 0;
        for (int64_t c = 0; c < runs; c++) { /* in this order: what fills up a run gives way to the next */
            const char *run = from + c * apart + at;
            char *dst = to + q * s->unit + c * bytes;
            if (inside) {
                const ct__matrix src = {run, s->type, columns->step * pixel / HALF, 1};
                const bool full = c == runs - 1 && runs * bytes == s->unit;
                ct__gemm_isa->pack_a(full ? &single : s->kernel, &src, dst, s->unit / HALF, 0, inside, bytes / HALF);
                continue;
            }
            memset(dst, 0, (size_t)(s->unit - c * bytes));
            for (int64_t i = 0; i < bytes; i += HALF)
                if (at + i >= 0 && at + i < all) memcpy(dst + i, run + i, HALF);
        }
        if (inside) q += inside - 1;
    }
}

void ct__source_load(const ct__source *s, ct__local *local, int64_t n, int64_t g, int64_t d, int64_t h, int64_t w) {
    const ct__taps *depth = &s->axis[0], *rows = &s->axis[1], *columns = &s->axis[2];
    const int64_t size = ct__type_size(s->type), phase = d % depth->by, q = d / depth->by;
    const int64_t row0 = h * rows->step + rows->low, column0 = w * columns->step + columns->low;
    local->data = local->buffer;
    if (s->borrowed) { /* rows above and below the source are not looked at */
        const int64_t slice = q * depth->step + depth->offset[depth->first[phase]];
        local->data = s->data + (n * s->strides.n + g * s->channels * s->strides.c + slice * s->strides.s[0] +
                                 row0 * s->strides.s[1] + column0 * s->strides.s[2]) *
                                    size;
        return;
    }
    const int64_t begin = column0 < 0 ? ct__min(-column0, s->width) : 0;
    int64_t end = ct__min(s->width, columns->source - column0);
    if (end < begin) end = begin;
    if (!s->patches && (local->begin != begin || local->end != end)) { /* what is padding stays zero from then on */
        memset(local->buffer, 0, (size_t)s->bytes);
        local->begin = begin, local->end = end;
    }
    if (begin == end && !s->patches) return;
    const int64_t count = reach(rows, ct__min(s->lines, ct__taps_outputs(rows, 0) - h));
    const int64_t outputs = ct__min(s->segment, ct__taps_outputs(columns, 0) - w);
    const char *image = s->data + (n * s->strides.n + g * s->channels * s->strides.c) * size;
    if (!s->patches) image += (column0 + begin) * s->strides.s[2] * size;
    for (int64_t t = depth->first[phase]; t < depth->first[phase + 1]; t++) {
        const int64_t slice = q * depth->step + depth->offset[t];
        if (slice < 0 || slice >= depth->source) continue;
        char *to = local->buffer + (t - depth->first[phase]) * s->slice_bytes;
        for (int64_t row = 0; row < count; row++) {
            const int64_t from = row0 + row;
            if (from < 0 || from >= rows->source || !row_used(rows, row)) continue;
            const char *line = image + (slice * s->strides.s[0] + from * s->strides.s[1]) * size;
            if (s->patches) load_patches(s, line, to + row * s->row_bytes, column0, outputs);
            else load_row(s, line, to + row * s->row_bytes, begin, end);
        }
    }
}

void ct__source_ahead(const ct__source *s, ct__ahead *a, int64_t n, int64_t g, int64_t d, int64_t h, int64_t w) {
    const ct__taps *depth = &s->axis[0], *rows = &s->axis[1], *columns = &s->axis[2];
    const int64_t size = ct__type_size(s->type), phase = d % depth->by, taps = ct__taps_of(depth, phase);
    *a = (ct__ahead){0};
    const int64_t most = reach(rows, ct__min(s->lines, ct__taps_outputs(rows, 0) - h));
    const int64_t row = h * rows->step + rows->low, first = row < 0 ? 0 : row,
                  last = ct__min(row + most, rows->source); /* rows, which lie one after the other */
    if (taps == 0 || first >= last) return;
    int64_t slice = d / depth->by * depth->step + depth->offset[depth->first[phase]];
    const int64_t end = ct__min(slice + (taps - 1) * depth->spacing + 1, depth->source);
    while (slice < 0) slice += depth->spacing;
    if (slice >= end) return;
    const int64_t column = s->segments > 1 ? w * columns->step : 0,
                  width =
                      s->segments > 1 ? ct__min(reach(columns, s->segment), columns->source - column) : columns->source;
    a->data = s->data + (n * s->strides.n + g * s->channels * s->strides.c + slice * s->strides.s[0] +
                         first * s->strides.s[1] + column * s->strides.s[2]) *
                            size;
    a->slices = ct__ceil_div(end - slice, depth->spacing);
    a->slice_bytes = depth->spacing * s->strides.s[0] * size;
    a->channels = (s->last && !interleaved(s)) || s->strides.c == 1 ? 1 : s->channels;
    a->channel_bytes = s->strides.c * size;
    a->span_bytes = ((last - first - 1) * s->strides.s[1] + width * s->strides.s[2]) * size;
    ct__ahead_limit(a, 4 * s->bytes);
}

void ct__ahead_limit(ct__ahead *a, int64_t most) {
    if (a->span_bytes <= 0 || a->span_bytes > most) *a = (ct__ahead){0};
}

void ct__ahead_lines(ct__ahead *a, int64_t lines) {
    while (lines > 0 && a->slice < a->slices) {
        const char *span = a->data + a->slice * a->slice_bytes + a->channel * a->channel_bytes;
        for (; lines > 0 && a->at < a->span_bytes; lines--, a->at += 64) __builtin_prefetch(span + a->at, 0, 2);
        if (a->at < a->span_bytes) return;
        a->at = 0;
        if (++a->channel == a->channels) a->channel = 0, a->slice++;
    }
}

void ct__ahead_tile(ct__ahead *a, int64_t lines, const ct__kernel *kernel, ct__tile *t) {
    const int64_t most = kernel->prefetches && t->cols == ct__panel_width(kernel)
                             ? t->k * (t->n_runs ? t->n_runs : 1) - CT__PREFETCHES_LESS
                             : 0;
    const int64_t span = ct__ceil_div(a->span_bytes, 64);
    t->ahead = NULL;
    if (lines <= 0 || a->slice >= a->slices) return;
    if (most < 1) {
        ct__ahead_lines(a, lines);
        return;
    }
    lines = ct__min(lines, most);
    if (a->lines != most) {
        a->lines = most;
        a->spans = span <= most ? ct__min(ct__ceil_div(lines, span), most / span) : 0;
        a->times = a->spans * span * 4 <= most ? 4 : a->spans * span * 2 <= most ? 2 : 1;
    }
    t->ahead = a->data + a->slice * a->slice_bytes + a->channel * a->channel_bytes + a->at;
    t->ahead_span = 0;
    if (a->at == 0 && a->spans > 0) { /* the same line again where there is time */
        t->ahead_step = 64 / a->times;
        t->ahead_span = span * a->times;
        t->ahead_jump = a->channel_bytes - span * 64;
        a->channel += ct__min(a->spans, a->channels - a->channel);
    } else {
        const int64_t here = ct__min(lines, ct__ceil_div(a->span_bytes - a->at, 64));
        t->ahead_step = here * 64 / most;
        a->at += here * 64;
        if (a->at >= a->span_bytes) a->at = 0, a->channel++;
    }
    if (a->channel == a->channels) a->channel = 0, a->slice++;
}
