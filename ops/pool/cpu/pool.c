/* Kernels of max and average pooling and of their gradients, for 1 to 3 axes, both layouts and any strides.
 *
 * Channels first, a row of windows is computed at once: first the rows of x that its windows share are reduced to one, with
 * the rows that won; that one, padded, is taken apart by the place modulo the stride, so that each tap is a run of neighbours.
 * Channels last, the channels of one window are the line, and taps point into x itself. The gradients gather from rows
 * of g (and of the winning taps), so nothing is added to memory and every element is one sum in a fixed order. Windows
 * two apart along a row, the usual ones, have loops that stage nothing, in both layouts (pairs.h). */
#include <math.h>
#include <string.h>

#include "backends/cpu/copy.h"
#include "backends/cpu/simd/weave.h"
#include "ops/index/cpu/half_rows.h"
#include "ops/pool/pool.h"
#include "ops/reduce/cpu/elements.h"

#include "gen/pool.attrs.h"

/* A tap of a line: where its values are, where its codes are, and its number in the kernel. */
typedef struct tap {
    const void *value, *code;
    int64_t number;
} tap;

typedef int32_t f32_code __attribute__((may_alias));
typedef int64_t f64_code __attribute__((may_alias));
enum { PADDING = 1 << 30 }; /* the code of padding: greater than any tap's number */

typedef struct line_ops {
    size_t size; /* of an element in scratch; codes are as large */
    void (*load)(void *to, const void *from, int64_t stride, int64_t n, ct_dtype dtype);
    void (*store)(void *to, int64_t stride, const void *from, int64_t n, ct_dtype dtype);
    void (*fill)(void *to, int64_t n, double value);
    void (*load_codes)(void *to, const void *from, int64_t stride, int64_t n, ct_dtype dtype);
    void (*store_codes)(void *to, const void *from, int64_t n, ct_dtype dtype);
    /* y = the greatest tap (the first NaN if there is one) and, where codes is not NULL, its number. Here and below
     * taps lie `shift` elements behind their pointers */
    void (*max)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, void *codes);
    /* the same for taps that have codes: of equals the least code + number wins, and is the result. No NaN */
    void (*across)(const tap *taps, int64_t count, int64_t n, void *y, void *codes);
    bool (*has_nan)(const void *values, int64_t n);
    /* y = the sum of the taps whose number is their code */
    void (*pick)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y);
    /* y = the sum of the taps, over divisor * counts (NULL: 1) */
    void (*sum)(const tap *taps, int64_t count, int64_t shift, int64_t n, void *y, const void *counts, double divisor);
    /* parts[r][q] = from[i] for i + before = q * stride + r, where part r is in use; parts are `length` apart */
    void (*take_apart)(void *parts, int64_t length, const void *from, int64_t n, int64_t stride, int64_t before,
                       int64_t parts_in_use);
    /* to[i] = parts[i % stride][i / stride] */
    void (*interleave)(void *to, const void *const *parts, int64_t stride, int64_t n);
    /* pairs.h: n windows two apart, from rows to y, or from g (and the winners) to two rows of dx */
    bool (*max_pairs)(const tap *sources, int64_t count, int64_t before, int64_t n, void *y, uint8_t *codes);
    bool (*max_pixels)(const tap *sources, int64_t kernel, int64_t n, int64_t inner, void *y, uint8_t *codes);
    void (*mean_pairs)(const void *above, const void *below, int64_t n, int64_t inner, double divisor, void *y);
    void (*spread_pairs)(const void *g, int64_t n, int64_t inner, double divisor, void *above, void *below,
                         bool stream);
    void (*pick_pairs)(int64_t kernel, const void *g, const uint8_t *at, const void *g_next, const uint8_t *at_next,
                       int64_t n, int64_t inner, void *above, void *below, bool stream);
} line_ops;

#define POOL_OPS(D, V, VI, M)                                                                            \
    SIMD_INLINE M D##_greater(V a, V b) { return V##_gt(a, b); }                                         \
    SIMD_INLINE V D##_divided(V a, V b) { return V##_div(a, b); }                                        \
    SIMD_INLINE M D##_is_nan(V a) { return V##_isnan(a); }                                               \
    SIMD_INLINE M D##_either(M a, M b) { return M##_or(a, b); }                                          \
    SIMD_INLINE V D##_code_plus(V code, V number) {                                                      \
        return V##_from_bits(VI##_add(V##_bits(code), V##_bits(number)));                                \
    }                                                                                                    \
    SIMD_INLINE M D##_wins(V v, V code, V best, V at) {                                                  \
        return M##_or(V##_gt(v, best), M##_and(V##_eq(v, best), VI##_gt(V##_bits(at), V##_bits(code)))); \
    }                                                                                                    \
    SIMD_INLINE V D##_add_where(V sum, V v, V code, V number) {                                          \
        return V##_add(sum, V##_select(VI##_eq(V##_bits(code), V##_bits(number)), v, V##_zero()));       \
    }                                                                                                    \
    SIMD_INLINE V D##_where_code(V v, V code, V number) {                                                \
        return V##_select(VI##_eq(V##_bits(code), V##_bits(number)), v, V##_zero());                     \
    }                                                                                                    \
    SIMD_INLINE M D##_not_less(V a, V b) { return V##_ge(a, b); }                                        \
    SIMD_INLINE M D##_unordered(V a, V b) { return V##_unordered(a, b); }                                \
    SIMD_INLINE V D##_evens(V a, V b) { return V##_evens(a, b); }                                        \
    SIMD_INLINE V D##_odds(V a, V b) { return V##_odds(a, b); }                                          \
    SIMD_INLINE V D##_behind(V a, V b) { return V##_behind(a, b); }                                      \
    SIMD_INLINE V D##_weave_low(V a, V b) { return V##_weave_low(a, b); }                                \
    SIMD_INLINE V D##_weave_high(V a, V b) { return V##_weave_high(a, b); }                              \
    SIMD_INLINE V D##_load_bytes(const uint8_t *p, int n) { return V##_load_bytes(p, n); }               \
    SIMD_INLINE void D##_store_bytes(uint8_t *p, V v, int n) { V##_store_bytes(p, v, n); }               \
    SIMD_INLINE void D##_stream(D##_element *p, V v) { V##_stream(p, v); }
POOL_OPS(f32, vf32, vi32, mf32)
POOL_OPS(f64, vf64, vi64, mf64)

#define LINE_D f32
#include "ops/pool/cpu/lines.h"
#define LINE_D f64
#include "ops/pool/cpu/lines.h"

/* ---- A call ---- */

/* Windows that an element is in, and the tap that it is there: entry[2 e], entry[2 e + 1] for e from start[i] on. */
typedef struct windows {
    int32_t *start, *entry;
} windows;

typedef struct job {
    const line_ops *ops;
    ct_window w;
    bool last, max, exclude_pad, backward;
    double divisor;                  /* 0: counted */
    int64_t channels, planes, inner; /* inner: elements of a pixel in a row: the channels where they come last */
    ct_dtype dtype, at_dtype;
    const char *from, *at; /* x, or g and the winners */
    char *to, *codes;      /* y and the winners, or dx */
    ct_image_strides from_s, at_s, to_s;
    int64_t from_size, at_size;
    bool from_direct, to_direct, stream;
    int64_t staged; /* rows of y that are streamed at once */
    int64_t pixel;  /* elements from pixel to pixel of a row that taps point into */

    int64_t row, code_row, slots_0, slots_1; /* elements of a staged row; rows that are kept along two axes */
    int64_t reach;                           /* windows that the last tap lies beyond the first */
    int64_t parts, part, rest;               /* lines that a row is taken apart into, their length, how many are full */
    int64_t most_taps, out_row;              /* lengths of the buffers */
    bool paired, in_place;                   /* pairs.h; without staging */
    int64_t pair_inner;                      /* of pairs.h: 0, or inner where the channels come last */
    bool in_bands;                           /* bands.h */
    int64_t reach_1, pitch, area, band, bands;
    windows windows[3];
    int64_t inside_first, inside_end; /* windows of the last axis that lie inside x */
    int32_t *first[3], *end[3];       /* (out) the taps inside x of each window */
    int32_t *phase, *phase_entry;     /* (stride + 1), (2 kernel): taps of elements p, p + stride, ...: number, place */
    void *counts;                     /* (out) how many elements a window of the last axis counts */
    int64_t chunk, total;             /* rows */
    char *memory;
    size_t table_bytes, worker_bytes;
} job;

/* What one thread works with. */
typedef struct desk {
    int64_t *tags; /* (slots) the row in it */
    char *rows, *codes, *line, *line_codes, *frame, *frame_codes, *parts, *part_codes;
    char *planes, *plane_codes, *band; /* of bands.h */
    const void **weave;                /* (stride) */
    const char **made;                 /* (lines) where each line of bands.h is */
    int32_t *lists;
    tap *taps, *along, *sources;            /* along: those of a row that has been taken apart */
    int64_t from_plane, at_plane, to_plane; /* where the plane at hand begins */
    int64_t ready;                          /* the last row of windows that is staged, of planes without depth */
} desk;

/* Whether windows along a row are as pairs.h wants them: two apart, whole but for one tap before the first. */
static bool paired_row(const ct_window *w, bool max) {
    const int64_t kernel = w->kernel[2], before = w->before[2];
    return w->stride[2] == 2 && (w->dilation[2] == 1) &&
           ((kernel == 2 && before == 0 && w->in[2] >= 2 * w->out[2]) ||
            (max && kernel == 3 && before == 1 && w->in[2] >= 2 * w->out[2]) ||
            (max && kernel == 3 && before == 0 && w->in[2] > 2 * w->out[2]));
}

/* Channels last: whole vectors of them, pixels side by side, planes without depth, and f32. */
static bool paired_pixels(const job *j, const ct_image_strides *s) {
    const ct_window *w = &j->w;
    return j->ops->size == 4 && j->inner % VF32_LANES == 0 && s->c == 1 && s->s[2] == j->inner && w->in[0] == 1 &&
           w->out[0] == 1 && w->kernel[0] == 1;
}

static bool forward_pairs(const job *j) {
    if (!paired_row(&j->w, j->max) || (j->codes && j->at_dtype != CT_U8)) return false;
    return !j->last ||
           (j->from_direct && j->to_direct && (!j->max || (j->codes && j->w.before[2] == j->w.kernel[2] - 2)) &&
            paired_pixels(j, &j->from_s) && paired_pixels(j, &j->to_s));
}

/* The gradients: both axes of planes alike, and nothing of dx beyond the windows. */
static bool backward_pairs(const job *j) {
    const ct_window *w = &j->w;
    if (!paired_row(w, j->max) || (j->max && j->at_dtype != CT_U8)) return false;
    if (!j->last && j->max && j->at_s.s[2] != 1) return false;
    if (j->last && !(j->from_size == (int64_t)j->ops->size && j->to_direct && paired_pixels(j, &j->from_s) &&
                     (!j->max || paired_pixels(j, &j->at_s))))
        return false;
    return w->stride[1] == 2 && w->dilation[1] == 1 && w->kernel[1] == w->kernel[2] &&
           w->before[2] == w->kernel[2] - 2 && w->before[1] == w->before[2] && w->in[1] == 2 * w->out[1] &&
           w->in[2] == 2 * w->out[2];
}

static size_t rounded(size_t bytes) { return (bytes + 127) & ~(size_t)63; }

#define ROOM(pointer, type, count, bytes) \
    pointer = (type *)(void *)at;         \
    at += rounded((size_t)(count) * (bytes));

/* Lays out a desk at `memory`; returns its bytes. */
static size_t set_desk(const job *j, char *memory, desk *d) {
    const size_t size = j->ops->size;
    char *at = memory;
    const int64_t slots = j->slots_0 * j->slots_1;
    const int64_t split = j->last ? (j->paired && j->backward ? j->w.out[2] * j->inner : 0) : j->parts * j->part;
    const int64_t second = j->paired && j->backward ? j->out_row : 0; /* row of dx */
    const int64_t frame = j->last || j->backward ? second : ct__max64(j->part, j->w.before[2] + j->w.in[2]);
    ROOM(d->tags, int64_t, slots, sizeof(int64_t))
    ROOM(d->rows, char, slots * j->row, size)
    ROOM(d->codes, char, slots * j->code_row, size)
    ROOM(d->line, char, ct__max64(j->staged * j->out_row, j->w.in[2]), size)
    ROOM(d->line_codes, char, j->out_row, size)
    ROOM(d->frame, char, frame, size)
    ROOM(d->frame_codes, char, frame, size)
    ROOM(d->parts, char, split, size)
    ROOM(d->part_codes, char, split, size)
    ROOM(d->taps, tap, j->most_taps, sizeof(tap))
    const int64_t area = j->in_bands ? j->area : 0;
    ROOM(d->planes, char, area, size)
    ROOM(d->plane_codes, char, j->max ? area : 0, size)
    ROOM(d->band, char, area * j->w.stride[1] * j->w.stride[2], size)
    ROOM(d->weave, const void *, j->w.stride[2], sizeof(void *))
    ROOM(d->made, const char *, j->w.stride[1] * j->w.stride[2], sizeof(char *))
    ROOM(d->lists, int32_t, j->w.stride[1] * j->w.stride[2] + 1, 4)
    ROOM(d->along, tap, j->w.kernel[2], sizeof(tap))
    ROOM(d->sources, tap, j->w.kernel[0] * j->w.kernel[1], sizeof(tap))
    return (size_t)(at - memory);
}

static int64_t plane_at(const job *j, const ct_image_strides *s, int64_t plane) {
    return j->last ? plane * s->n : plane / j->channels * s->n + plane % j->channels * s->c;
}

static int64_t row_at(const ct_image_strides *s, const int64_t *place) {
    return place[1] * s->s[0] + place[2] * s->s[1];
}

/* Rows are kept by their places modulo powers of two. */
static int64_t slot_of(const job *j, const int64_t *place) {
    return (place[1] & (j->slots_0 - 1)) * j->slots_1 + (place[2] & (j->slots_1 - 1));
}

/* What the sums of a row (place: plane and two axes) are divided by, but for the last axis. */
static double count_of(const job *j, const int64_t *place) {
    if (j->divisor) return j->divisor;
    return (double)(ct__pool_count(&j->w, 0, place[1], j->exclude_pad) *
                    ct__pool_count(&j->w, 1, place[2], j->exclude_pad));
}

#include "ops/pool/cpu/forward.h"

#include "ops/pool/cpu/backward.h"

/* ---- Chunks of rows ---- */

/* Frames and the taps that are the same for all rows. */
static void prepare_desk(const job *j, desk *d) {
    const ct_window *w = &j->w;
    const int64_t size = (int64_t)j->ops->size, slots = j->slots_0 * j->slots_1;
    for (int64_t s = 0; s < slots; s++) d->tags[s] = -1;
    if (j->last) return;
    if (j->backward) { /* what lies beside the rows of g counts as 0, and the loads leave it alone */
        memset(d->rows, 0, (size_t)(slots * j->row * size));
        memset(d->codes, 0, (size_t)(slots * j->code_row * size));
        return;
    }
    /* the frame around what the rows write: padding, which is never written */
    char *parts = w->stride[2] > 1 ? d->parts : d->frame;
    char *part_codes = w->stride[2] > 1 ? d->part_codes : d->frame_codes;
    const int64_t length = w->stride[2] > 1 ? j->parts * j->part : ct__max64(j->part, w->before[2] + w->in[2]);
    j->ops->fill(parts, length, j->max ? -INFINITY : 0);
    for (int64_t i = 0; i < length && j->codes; i++) {
        if (size == 4) ((f32_code *)(void *)part_codes)[i] = PADDING;
        else ((f64_code *)(void *)part_codes)[i] = PADDING;
    }
    for (int64_t c = 0; c < w->kernel[2]; c++) {
        const int64_t shift = c * w->dilation[2];
        const int64_t at = (shift % w->stride[2] * j->part + shift / w->stride[2]) * size;
        d->along[c] = (tap){parts + at, part_codes + at, c};
    }
}

static void set_plane(const job *j, desk *d, int64_t plane) {
    d->from_plane = plane_at(j, &j->from_s, plane);
    d->to_plane = plane_at(j, &j->to_s, plane);
    d->at_plane = plane_at(j, &j->at_s, plane);
}

static void pool_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const int64_t *sizes = j->backward ? j->w.in : j->w.out;
    desk d;
    set_desk(j, j->memory + (size_t)worker * j->worker_bytes, &d);
    prepare_desk(j, &d);
    int64_t row = chunk * j->chunk, plane = -1, held = 0;
    int64_t place[3] = {row / (sizes[0] * sizes[1]), row / sizes[1] % sizes[0], row % sizes[1]};
    for (const int64_t end = ct__min64(row + j->chunk, j->total); row < end; row++) {
        const bool again = plane == place[0] && place[2] > 0;
        if (plane != place[0]) {
            plane = place[0];
            set_plane(j, &d, plane);
        }
        char *y = j->stream && !j->backward ? d.line + held * j->out_row * j->from_size : NULL;
        if (j->backward) backward_row(j, &d, place, again);
        else if (!j->in_place || !forward_paired(j, &d, place, row, y)) forward_row(j, &d, place, row, y);
        if (y && (++held == j->staged || row + 1 == end)) {
            ct__stream_run(j->to + (row + 1 - held) * j->out_row * j->from_size, d.line, held * j->out_row,
                           j->ops->size);
            held = 0;
        }
        if (++place[2] == sizes[1]) place[2] = 0, place[1]++;
        if (place[1] == sizes[0]) place[1] = 0, place[0]++;
    }
    if (j->stream) ct__stream_end();
}

#include "ops/pool/cpu/bands.h"

/* ---- Two rows of a gradient at a time: pairs.h ---- */

/* Row i of g: itself, or loaded into `room`. */
static const void *cotangent_pair(const job *j, const desk *k, int64_t plane, int64_t i, char *room) {
    const int64_t place[3] = {plane, 0, i};
    const char *g = j->from + (k->from_plane + row_at(&j->from_s, place)) * j->from_size;
    if (j->last || (j->from_size == (int64_t)j->ops->size && j->from_s.s[2] == 1)) return g;
    j->ops->load(room, g, j->from_s.s[2], j->w.out[2], j->dtype);
    return room;
}

static void backward_pair(const job *j, const desk *k, int64_t plane, int64_t i) {
    const ct_window *w = &j->w;
    const line_ops *ops = j->ops;
    const int64_t size = (int64_t)ops->size, place[3] = {plane, 0, 2 * i}, of[3] = {plane, 0, i};
    const int64_t down = j->to_s.s[1] * j->from_size;
    char *to = j->to + (k->to_plane + row_at(&j->to_s, place)) * j->from_size, *above = k->line, *below = k->frame;
    const bool direct =
        j->stream && (((uintptr_t)to | (uintptr_t)down) & 63) == 0 && (j->last ? j->inner : w->in[2]) * size % 64 == 0;
    if (direct || (j->to_direct && !j->stream)) above = to, below = to + down;
    const void *g = cotangent_pair(j, k, plane, i, k->rows);
    if (j->max) {
        const bool more = i + 1 < w->out[1] && w->kernel[1] == 3;
        const uint8_t *at = (const uint8_t *)j->at + k->at_plane + row_at(&j->at_s, of);
        const void *next = more ? cotangent_pair(j, k, plane, i + 1, k->rows + j->row * size) : k->parts; /* zeros */
        ops->pick_pairs(w->kernel[2], g, at, next, more ? at + j->at_s.s[1] : at, w->out[2], j->pair_inner, above,
                        below, direct);
    } else {
        ops->spread_pairs(g, w->out[2], j->pair_inner, j->divisor ? j->divisor : count_of(j, of) * (double)w->kernel[2],
                          above, below, direct);
    }
    if (above == to) return;
    for (int p = 0; p < 2; p++, above = below, to += down) {
        if (j->stream) ct__stream_run(to, above, j->out_row, ops->size);
        else ops->store(to, j->to_s.s[2], above, w->in[2], j->dtype);
    }
}

static void pair_chunk(void *context, int64_t chunk, int worker) {
    const job *j = context;
    const int64_t rows = j->w.out[1];
    desk k;
    set_desk(j, j->memory + (size_t)worker * j->worker_bytes, &k);
    j->ops->fill(k.parts, j->w.out[2] * j->inner, 0);
    for (int64_t u = chunk * j->chunk; u < ct__min64((chunk + 1) * j->chunk, j->planes * rows); u++) {
        set_plane(j, &k, u / rows);
        backward_pair(j, &k, u / rows, u % rows);
    }
    if (j->stream) ct__stream_end();
}

/* ---- Plans ---- */

static bool dense(const ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] != 1 && view->strides[i] != stride) return false;
        stride *= view->dims[i];
    }
    return true;
}

/* Tables at `at` (NULL: only their bytes). */
static size_t set_tables(job *j, char *memory) {
    const ct_window *w = &j->w;
    char *at = memory;
    ROOM(j->counts, void, w->out[2], j->ops->size)
    ROOM(j->phase, int32_t, w->stride[2] + 1, 4)
    ROOM(j->phase_entry, int32_t, w->kernel[2], 8)
    for (int a = 0; a < 3; a++) {
        ROOM(j->first[a], int32_t, w->out[a], 4)
        ROOM(j->end[a], int32_t, w->out[a], 4)
        ROOM(j->windows[a].start, int32_t, w->in[a] + 1, 4)
        ROOM(j->windows[a].entry, int32_t, w->out[a] * w->kernel[a], 8)
    }
    if (!memory) return (size_t)(at - memory);
    for (int a = 0; a < 3; a++)
        for (int64_t o = 0; o < w->out[a]; o++) {
            int64_t first, end;
            ct__pool_taps(w, a, o, &first, &end);
            j->first[a][o] = (int32_t)first;
            j->end[a][o] = (int32_t)end;
        }
    j->inside_first = j->inside_end = 0;
    for (int64_t o = 0; o < w->out[2]; o++) {
        if (j->first[2][o] > 0) j->inside_first = j->inside_end = o + 1;
        else if (j->end[2][o] == w->kernel[2]) j->inside_end = o + 1;
        const double count = (double)ct__pool_count(w, 2, o, j->exclude_pad);
        if (j->ops->size == 4) ((float *)j->counts)[o] = (float)count;
        else ((double *)j->counts)[o] = count;
    }
    int32_t listed = 0;
    for (int64_t p = 0; p < w->stride[2];
         p++) { /* p + i stride is tap c of window i + (p + before - c dilation) / stride */
        j->phase[p] = listed;
        for (int64_t c = 0; c < w->kernel[2]; c++) {
            const int64_t from = p + w->before[2] - c * w->dilation[2] + j->reach * w->stride[2];
            if (from % w->stride[2]) continue;
            j->phase_entry[2 * listed] = (int32_t)c;
            j->phase_entry[2 * listed++ + 1] = (int32_t)(from / w->stride[2]);
        }
        j->phase[p + 1] = listed;
    }
    for (int a = 0; a < 3 && j->backward; a++) {
        int32_t entries = 0;
        for (int64_t i = 0; i < w->in[a]; i++) {
            j->windows[a].start[i] = entries;
            for (int64_t c = 0; c < w->kernel[a]; c++) {
                const int64_t from = i + w->before[a] - c * w->dilation[a], o = from / w->stride[a];
                if (from < 0 || from % w->stride[a] || o >= w->out[a]) continue;
                j->windows[a].entry[2 * entries] = (int32_t)o;
                j->windows[a].entry[2 * entries++ + 1] = (int32_t)c;
            }
        }
        j->windows[a].start[w->in[a]] = entries;
    }
    return (size_t)(at - memory);
}

static void plan(job *j, const ct_call *call) {
    const ct_window *w = &j->w;
    const ct_view *from = call->in[0], *to = call->out[0];
    const int64_t images = from->dims[0], out = w->out[2], in = w->in[2];
    const bool backward = j->backward;
    j->ops = from->dtype == CT_F64 ? &f64_lines : &f32_lines;
    j->dtype = from->dtype;
    j->from_size = (int64_t)ct_dtype_size(from->dtype);
    j->channels = from->dims[ct__image_channel(from->ndim, j->last)];
    j->planes = j->last ? images : images * j->channels;
    j->inner = j->last ? j->channels : 1;
    j->from_s = ct__image_strides(from, j->last);
    j->to_s = ct__image_strides(to, j->last);
    const bool native = j->from_size == (int64_t)j->ops->size;
    j->from_direct = native && (j->last ? j->from_s.c == 1 && (!backward || (j->max && j->from_s.s[2] == j->inner))
                                        : j->from_s.s[2] == 1 && !backward);
    j->to_direct = native && (j->last ? j->to_s.c == 1 && (!backward || j->to_s.s[2] == j->inner) : j->to_s.s[2] == 1);
    j->pixel = j->from_direct ? j->from_s.s[2] : j->inner;
    j->reach = (w->kernel[2] - 1) * w->dilation[2] / w->stride[2];
    j->most_taps = ct__window_taps(w);
    for (int a = 0; a < 2; a++) {
        const int64_t span = (w->kernel[a] - 1) * w->dilation[a];
        int64_t *slots = a ? &j->slots_1 : &j->slots_0, rows = backward ? (span + 1) / w->stride[a] + 1 : span + 1;
        for (*slots = 1; *slots < rows;) *slots *= 2;
    }
    if (backward) {
        j->row = j->last ? out * j->inner : j->reach + ct__max64(out, (in - 1 + w->before[2]) / w->stride[2] + 1);
        j->code_row = j->max ? j->row : 0;
        j->out_row = in * j->inner;
        j->parts = ct__min64(w->stride[2], in);
        j->part = in / w->stride[2] + 1;
        j->rest = in % w->stride[2];
        j->total = j->planes * w->in[0] * w->in[1];
        j->stream = j->to_direct && dense(to) && ct__stream_worth(j->total * j->out_row * j->from_size) &&
                    j->out_row * j->from_size >= 256;
    } else {
        j->row = in * j->inner;
        j->out_row = out * j->inner;
        j->part = ct__max64(out + j->reach, (w->before[2] + in - 1) / w->stride[2] + 1);
        j->parts = w->dilation[2] == 1 ? ct__min64(w->kernel[2], w->stride[2]) : w->stride[2];
        j->total = j->planes * w->out[0] * w->out[1];
    }
    if (j->from_direct) j->row = 0;
    j->in_bands = backward && !j->last && w->in[0] == 1 && w->kernel[0] == 1 && w->before[0] == 0 && w->out[0] == 1;
    if (!backward) j->paired = forward_pairs(j);
    j->staged = 1;
    j->in_place = j->paired && j->from_direct && j->to_direct && w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1;
    if (j->in_place && dense(to) && ct__stream_worth(j->total * j->out_row * j->from_size)) {
        j->stream = true;
        j->staged = ct__max64(1, (4 << 10) / (j->out_row * j->from_size));
    }
    if ((j->in_bands || (backward && j->last)) && backward_pairs(j)) j->paired = true, j->in_bands = false;
    j->pair_inner = j->paired && j->last ? j->inner : 0;
    if (j->in_bands) plan_bands(j);
    const int64_t rows_of_plane = backward ? w->in[0] * w->in[1] : w->out[0] * w->out[1];
    const int64_t work = ct__max64(1, j->out_row * (backward ? 1 : w->kernel[0] * w->kernel[1] * w->stride[2]));
    j->chunk = ct__max64(1, (64 << 10) / work);
    if (j->chunk > rows_of_plane) j->chunk -= j->chunk % rows_of_plane; /* whole planes */
    if (j->in_bands) j->chunk = ct__max64(1, (32 << 10) / (j->band * j->pitch * w->stride[1] * w->stride[2]));
    if (backward && j->paired) j->chunk = ct__max64(1, (64 << 10) / j->out_row);
    j->chunk = ct__grain(j->chunk);
    desk d;
    j->table_bytes = set_tables(j, NULL);
    j->worker_bytes = set_desk(j, NULL, &d);
}

static size_t scratch_of(job j, const ct_call *call) {
    plan(&j, call);
    return j.table_bytes + (size_t)ct__threads() * j.worker_bytes;
}

static bool run(job j, const ct_call *call) {
    plan(&j, call);
    if (j.total == 0 || j.out_row == 0) return true;
    j.from = ct__address(call->in[0], (size_t)j.from_size);
    j.to = ct__address(call->out[0], (size_t)j.from_size);
    set_tables(&j, ct__scratch(call));
    j.memory = (char *)ct__scratch(call) + j.table_bytes;
    const bool by_pair = j.backward && j.paired;
    const int64_t units = j.in_bands ? j.planes * j.bands : by_pair ? j.planes * j.w.out[1] : j.total;
    ct__parallel((units + j.chunk - 1) / j.chunk, j.in_bands ? band_chunk : by_pair ? pair_chunk : pool_chunk, &j);
    return true;
}

/* ---- The ops ---- */

static job max_job(const ct_call *call) {
    const max_pool_nd_attrs *a = call->attrs;
    job j = {.last = a->channels_last, .max = true};
    j.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, &a->dilations, a->ceil_mode);
    const ct_view *codes = call->n_out > 1 ? call->out[1] : NULL;
    if (!codes) return j;
    j.at_dtype = codes->dtype;
    j.at_size = (int64_t)ct_dtype_size(codes->dtype);
    j.codes = ct__address(codes, (size_t)j.at_size);
    return j;
}

static job max_grad_job(const ct_call *call) {
    const max_pool_grad_attrs *a = call->attrs;
    const ct_view *at = call->in[1];
    job j = {.last = a->channels_last, .max = true, .backward = true, .at_dtype = at->dtype};
    j.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, &a->dilations, a->ceil_mode);
    j.at_size = (int64_t)ct_dtype_size(at->dtype);
    j.at = ct__address(at, (size_t)j.at_size);
    j.at_s = ct__image_strides(at, a->channels_last);
    return j;
}

static job avg_job(const ct_call *call) {
    const avg_pool_nd_attrs *a = call->attrs;
    job j = {.last = a->channels_last, .exclude_pad = a->exclude_pad, .divisor = (double)a->divisor_override};
    j.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, NULL, a->ceil_mode);
    return j;
}

static job avg_grad_job(const ct_call *call) {
    const avg_pool_grad_attrs *a = call->attrs;
    job j = {.last = a->channels_last, .exclude_pad = a->exclude_pad, .divisor = (double)a->divisor_override};
    j.backward = true;
    j.w = ct__pool_window(&a->sizes, &a->kernel, &a->strides, &a->pads, NULL, a->ceil_mode);
    return j;
}

/* Without its values the lowering finds the taps. */
static const char *can(const ct_call *call) { return call->out[0] ? NULL : "its first result is not asked for"; }

#define POOL_FUNCTIONS(op, job_of)                                                             \
    static size_t op##_scratch(const ct_call *call) { return scratch_of(job_of(call), call); } \
    static bool op##_run(const ct_call *call, ct_stream *stream) {                             \
        (void)stream;                                                                          \
        return run(job_of(call), call);                                                        \
    }
POOL_FUNCTIONS(max_pool_nd, max_job)
POOL_FUNCTIONS(max_pool_grad, max_grad_job)
POOL_FUNCTIONS(avg_pool_nd, avg_job)
POOL_FUNCTIONS(avg_pool_grad, avg_grad_job)

CT_KERNELS(pool_pool) = {
    CT_CANDIDATES(max_pool_nd, {"max_pool_nd_lines", can, max_pool_nd_scratch, max_pool_nd_run}),
    CT_CANDIDATES(max_pool_grad, {"max_pool_grad_lines", can, max_pool_grad_scratch, max_pool_grad_run}),
    CT_CANDIDATES(avg_pool_nd, {"avg_pool_nd_lines", can, avg_pool_nd_scratch, avg_pool_nd_run}),
    CT_CANDIDATES(avg_pool_grad, {"avg_pool_grad_lines", can, avg_pool_grad_scratch, avg_pool_grad_run}),
    {0},
};
