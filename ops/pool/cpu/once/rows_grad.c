/* Gradients of pooling, a row of dx at a time from staged rows of g and of the winners: channels last, and volumes. */
#include <string.h>

#include "ops/pool/cpu/rows.h"

/* Windows that an element along an axis is in, and the tap that it is there: entry[2 e], entry[2 e + 1] for e from
 * start[i] on. */
typedef struct windows {
    int32_t *start, *entry;
} windows;

typedef struct backward_rows {
    const pool *p;
    bool from_direct, to_direct, stream;
    row_slots slots;       /* rows of g that are kept, */
    int64_t staged, codes; /* elements of one, and of its winners */
    int64_t reach; /* windows that the last tap lies beyond the first; channels first, zeros before a staged row */
    int64_t phases, phase; /* channels first: lines that a row of dx is interleaved from, their length, */
    int64_t full;          /* and how many of them have it; the others are one shorter */
    windows windows[3];
    int32_t *phase_start,
        *phase_entry; /* (phases + 1), (2 kernel): taps of elements p, p + stride, ...: number, place */
    void *counts;     /* (out) how many elements a window of the last axis counts */
    row_chunks chunks;
    char *memory;
    size_t worker_bytes;
} backward_rows;

/* Scratch of one thread. */
typedef struct backward_worker {
    int64_t *tags;        /* (slots) the row in it */
    char *staged, *codes; /* (slots, staged) */
    char *line;           /* (row) of dx */
    char *phases;         /* (phases, phase) */
    const void **made;    /* (phases) */
    tap *taps, *sources;  /* of an element; rows of g */
    int64_t ready;        /* the last row of windows that is staged, of planes without depth */
    plane_start plane;
} backward_worker;

/* ---- Plan ---- */

static void set_phases(backward_rows *b) {
    const ct_window *w = &b->p->w;
    int32_t listed = 0;
    for (int64_t p = 0; p < w->stride[2]; p++) {
        /* p + i stride is tap c of window i + (p + before - c dilation) / stride */
        b->phase_start[p] = listed;
        for (int64_t c = 0; c < w->kernel[2]; c++) {
            const int64_t from = p + w->before[2] - c * w->dilation[2] + b->reach * w->stride[2];
            if (from % w->stride[2]) continue;
            b->phase_entry[2 * listed] = (int32_t)c;
            b->phase_entry[2 * listed++ + 1] = (int32_t)(from / w->stride[2]);
        }
        b->phase_start[p + 1] = listed;
    }
}

static void set_windows(const ct_window *w, int axis, windows *to) {
    int32_t entries = 0;
    for (int64_t i = 0; i < w->in[axis]; i++) {
        to->start[i] = entries;
        for (int64_t c = 0; c < w->kernel[axis]; c++) {
            const int64_t from = i + w->before[axis] - c * w->dilation[axis], o = from / w->stride[axis];
            if (from < 0 || from % w->stride[axis] || o >= w->out[axis]) continue;
            to->entry[2 * entries] = (int32_t)o;
            to->entry[2 * entries++ + 1] = (int32_t)c;
        }
    }
    to->start[w->in[axis]] = entries;
}

static void set_tables(backward_rows *b, arena *a) {
    const ct_window *w = &b->p->w;
    b->counts = arena_take(a, w->out[2], b->p->lines->size);
    b->phase_start = arena_take(a, w->stride[2] + 1, 4);
    b->phase_entry = arena_take(a, w->kernel[2], 8);
    for (int axis = 0; axis < 3; axis++) {
        b->windows[axis].start = arena_take(a, w->in[axis] + 1, 4);
        b->windows[axis].entry = arena_take(a, w->out[axis] * w->kernel[axis], 8);
    }
    if (!a->memory) return;
    set_counts(b->p, b->counts);
    set_phases(b);
    for (int axis = 0; axis < 3; axis++) set_windows(w, axis, &b->windows[axis]);
}

static void lay_out(const backward_rows *b, backward_worker *k, arena *a) {
    const pool *p = b->p;
    const size_t size = p->lines->size;
    const int64_t slots = row_slots_count(&b->slots);
    k->tags = arena_take(a, slots, sizeof(int64_t));
    k->staged = arena_take(a, slots * b->staged, size);
    k->codes = arena_take(a, slots * b->codes, size);
    k->line = arena_take(a, p->row, size);
    k->phases = arena_take(a, p->channels_last ? 0 : b->phases * b->phase, size);
    k->made = arena_take(a, b->phases, sizeof(void *));
    k->taps = arena_take(a, ct__window_taps(&p->w), sizeof(tap));
    k->sources = arena_take(a, p->w.kernel[0] * p->w.kernel[1], sizeof(tap));
}

static int64_t slots_along(const ct_window *w, int axis) {
    return ((w->kernel[axis] - 1) * w->dilation[axis] + 1) / w->stride[axis] + 1;
}

static size_t plan(backward_rows *b, const pool *p, arena *a) {
    const ct_window *w = &p->w;
    const int64_t out = w->out[2], in = w->in[2];
    const bool last = p->channels_last;
    backward_worker k;
    arena worker = {0};
    *b = (backward_rows){.p = p, .chunks = row_chunks_of(p, p->row)};
    b->from_direct = p->native && last && p->from_s.c == 1 && p->max && p->from_s.s[2] == p->inner;
    b->to_direct = p->native && (last ? p->to_s.c == 1 && p->to_s.s[2] == p->inner : p->to_s.s[2] == 1);
    b->stream = streams_rows(p, b->to_direct);
    b->slots = row_slots_for(slots_along(w, 0), slots_along(w, 1));
    b->reach = (w->kernel[2] - 1) * w->dilation[2] / w->stride[2];
    const int64_t row = last ? out * p->inner : b->reach + most(out, (in - 1 + w->before[2]) / w->stride[2] + 1);
    b->staged = b->from_direct ? 0 : row;
    b->codes = p->max ? row : 0;
    b->phases = least(w->stride[2], in);
    b->phase = in / w->stride[2] + 1;
    b->full = in % w->stride[2];
    set_tables(b, a);
    lay_out(b, &k, &worker);
    b->worker_bytes = worker.used;
    b->memory = a->memory ? a->memory + a->used : NULL;
    return a->used + (size_t)ct__threads() * worker.used;
}

/* ---- Rows of g ---- */

/* A row of g, divided where it was a mean, and of the winners. */
static tap cotangent_row(const backward_rows *b, const backward_worker *k, row_place at) {
    const pool *p = b->p;
    const ct_window *w = &p->w;
    const line_ops *ops = p->lines;
    const bool last = p->channels_last;
    const int64_t size = (int64_t)ops->size, slot = row_slot(&b->slots, at), tag = row_tag(w->out, at);
    const char *g = p->from + (k->plane.from + row_at(&p->from_s, at)) * p->size;
    char *row = k->staged + slot * b->staged * size, *codes = k->codes + slot * b->codes * size;
    const tap found = {b->from_direct ? g : row, codes, 0};
    if (k->tags[slot] == tag) return found;
    k->tags[slot] = tag;
    /* a line for each pixel, or a single one; dense rows of pixels are one as well */
    const bool whole =
        last && p->from_s.s[2] == p->inner * p->from_s.c && p->winner_s.s[2] == p->inner * p->winner_s.c && p->max;
    const int64_t lines = last && !whole ? w->out[2] : 1;
    const int64_t n = whole ? p->inner * w->out[2] : last ? p->inner : w->out[2], left = last ? 0 : b->reach;
    const int64_t along = last ? p->from_s.c : p->from_s.s[2], code_along = last ? p->winner_s.c : p->winner_s.s[2];
    const char *winners = p->max ? p->winners + (k->plane.winners + row_at(&p->winner_s, at)) * p->winner_size : NULL;
    const double counted = p->max ? 1 : count_of(p, at);
    for (int64_t o = 0; o < lines; o++) {
        char *line = row + (left + o * n) * size;
        if (!b->from_direct) ops->load(line, g + o * p->from_s.s[2] * p->size, along, n, p->dtype);
        if (p->max)
            ops->load_codes(codes + (left + o * n) * size, winners + o * p->winner_s.s[2] * p->winner_size, code_along,
                            n, p->winner_dtype);
        const tap itself = {line, NULL, 0};
        if (!p->max && !last) ops->sum(&itself, 1, 0, n, line, p->divisor ? NULL : b->counts, counted);
        if (!p->max && last)
            ops->sum(&itself, 1, 0, n, line, NULL,
                     p->divisor ? counted : counted * (double)ct__pool_count(w, 2, o, p->exclude_pad));
    }
    return found;
}

/* The rows of g that a row of dx takes part in. Those of the next row are staged as well, ahead of their use: a load across two
 * stores that are still under way would have to wait for them. */
static int64_t stage_rows(const backward_rows *b, backward_worker *k, row_place at, bool again) {
    const ct_window *w = &b->p->w;
    const windows *depth = &b->windows[0], *height = &b->windows[1];
    const int32_t begin = height->start[at.height], end = height->start[at.height + 1];
    int64_t sources = 0;
    if (w->kernel[0] == 1 && depth->start[at.depth] < depth->start[at.depth + 1]) {
        const int32_t next = at.height + 1 < w->in[1] ? height->start[at.height + 2] : end;
        int64_t last = -1;
        for (int32_t h = begin; h < next; h++) last = most(last, height->entry[2 * h]);
        if (!again) k->ready = end > begin ? height->entry[2 * (end - 1)] - 1 : last;
        while (k->ready < last)
            cotangent_row(b, k, (row_place){at.plane, depth->entry[2 * depth->start[at.depth]], ++k->ready});
    }
    for (int32_t d = depth->start[at.depth]; d < depth->start[at.depth + 1]; d++)
        for (int32_t h = begin; h < end; h++) {
            k->sources[sources] = cotangent_row(b, k, (row_place){at.plane, depth->entry[2 * d], height->entry[2 * h]});
            k->sources[sources++].number =
                (depth->entry[2 * d + 1] * w->kernel[1] + height->entry[2 * h + 1]) * w->kernel[2];
        }
    return sources;
}

/* ---- Rows of dx ---- */

/* The tap of a source `at` bytes on. */
static tap tap_at(const tap *source, int64_t at, int64_t number) {
    return (tap){(const char *)source->value + at, (const char *)source->code + at, source->number + number};
}

/* A row of dx, channels first: elements p, p + stride, ... at a time. */
static void spread_row(const backward_rows *b, const backward_worker *k, int64_t sources, char *dx) {
    const int64_t size = (int64_t)b->p->lines->size, stride = b->p->w.stride[2];
    for (int64_t p = 0; p < b->phases; p++) {
        int64_t count = 0;
        for (int32_t e = b->phase_start[p]; e < b->phase_start[p + 1]; e++)
            for (int64_t s = 0; s < sources; s++)
                k->taps[count++] = tap_at(&k->sources[s], b->phase_entry[2 * e + 1] * size, b->phase_entry[2 * e]);
        gather_line(b->p, k->taps, count, 0, p < b->full ? b->phase : b->phase - 1,
                    stride == 1 ? dx : k->phases + p * b->phase * size);
    }
    for (int64_t p = 0; p < b->phases; p++) k->made[p] = k->phases + p * b->phase * size;
    if (stride > 1) b->p->lines->interleave(dx, k->made, stride, b->p->w.in[2]);
}

/* A row of dx, channels last: pixels a stride apart have the same taps, further on, but near the borders. pixels, where
 * given, is where they go past the caches. */
static void spread_pixels(const backward_rows *b, const backward_worker *k, int64_t sources, char *dx, char *pixels) {
    const pool *p = b->p;
    const ct_window *w = &p->w;
    const windows *in = &b->windows[2];
    const int64_t pixel = p->inner * (int64_t)p->lines->size;
    for (int64_t phase = 0; phase < least(w->stride[2], w->in[2]); phase++) {
        int64_t listed = -1, count = 0, length = 0, tap_of_first = 0;
        for (int64_t i = phase; i < w->in[2]; i += w->stride[2]) {
            const int32_t *entry = in->entry + 2 * in->start[i];
            const int64_t n = in->start[i + 1] - in->start[i];
            if (listed < 0 || n != length || (n && entry[1] != tap_of_first)) {
                listed = i;
                length = n;
                tap_of_first = n ? entry[1] : 0;
                count = 0;
                for (int64_t s = 0; s < sources; s++)
                    for (int64_t e = 0; e < n; e++)
                        k->taps[count++] = tap_at(&k->sources[s], entry[2 * e] * pixel, entry[2 * e + 1]);
            }
            const int64_t shift = (i - listed) / w->stride[2] * p->inner;
            gather_line(p, k->taps, count, shift, p->inner, pixels ? k->line : dx + i * pixel);
            if (pixels) p->isa->stream(pixels + i * pixel, k->line, p->inner, p->lines->size);
        }
    }
}

/* Whether row h is in the same windows as the row before it: then a mean has the same gradient. */
static bool same_windows(const windows *b, int64_t h) {
    const int32_t *now = b->start + h, n = now[1] - now[0];
    if (h == 0 || now[0] - now[-1] != n) return false;
    for (int32_t e = 0; e < n; e++)
        if (b->entry[2 * (now[0] + e)] != b->entry[2 * (now[-1] + e)]) return false;
    return true;
}

/* again: the row before was the one above. */
static void backward_row(const backward_rows *b, backward_worker *k, row_place at, bool again) {
    const pool *p = b->p;
    const line_ops *ops = p->lines;
    const bool same = again && b->stream && !p->max && same_windows(&b->windows[1], at.height);
    const int64_t sources = same ? 0 : stage_rows(b, k, at, again);
    char *to = p->to + (k->plane.to + row_at(&p->to_s, at)) * p->size, *dx = b->to_direct && !b->stream ? to : k->line;
    const bool by_pixel = b->stream && p->channels_last && p->max && p->inner * (int64_t)ops->size % 64 == 0;
    if (p->channels_last && !same) spread_pixels(b, k, sources, dx, by_pixel ? to : NULL);
    else if (!same) spread_row(b, k, sources, dx);
    if (by_pixel) return;
    if (b->stream) p->isa->stream(to, dx, p->row, ops->size);
    else if (!b->to_direct && !p->channels_last) ops->store(to, p->to_s.s[2], dx, p->row, p->dtype);
    else if (!b->to_direct)
        for (int64_t i = 0; i < p->w.in[2]; i++)
            ops->store(to + i * p->to_s.s[2] * p->size, p->to_s.c, dx + i * p->inner * (int64_t)ops->size, p->inner,
                       p->dtype);
}

static void rows_chunk(void *context, int64_t chunk, int worker) {
    const backward_rows *b = context;
    const pool *p = b->p;
    const int64_t slots = row_slots_count(&b->slots), size = (int64_t)p->lines->size;
    backward_worker k = {.plane.plane = -1};
    arena a = {.memory = b->memory + (size_t)worker * b->worker_bytes};
    lay_out(b, &k, &a);
    for (int64_t s = 0; s < slots; s++) k.tags[s] = -1;
    if (!p->channels_last) { /* what lies beside the rows of g counts as 0, and the loads leave it alone */
        memset(k.staged, 0, (size_t)(slots * b->staged * size));
        memset(k.codes, 0, (size_t)(slots * b->codes * size));
    }
    row_place at = row_chunk_start(&b->chunks, chunk);
    const int64_t end = row_chunk_end(&b->chunks, chunk);
    for (int64_t row = chunk * b->chunks.rows; row < end; row++, next_row(&b->chunks, &at)) {
        const bool again = k.plane.plane == at.plane && at.height > 0;
        set_plane(p, &k.plane, at.plane);
        backward_row(b, &k, at, again);
    }
    if (b->stream) b->p->isa->stream_end();
}

size_t ct__pool_row_grad_scratch(const pool *p) {
    backward_rows b;
    return plan(&b, p, &(arena){0});
}

void ct__pool_row_grad_run(const pool *p, void *scratch) {
    backward_rows b;
    plan(&b, p, &(arena){.memory = scratch});
    ct__parallel(row_chunk_count(&b.chunks), rows_chunk, &b);
}
