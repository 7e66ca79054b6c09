/* Pooling row by row, whatever the strides, paddings and dilations.
 *
 * Channels first, a row of windows is computed at once: first the rows of x that its windows share are reduced to one, with
 * the rows that won; that one, framed by padding, is deinterleaved by the place modulo the stride, so that each tap along it
 * is a run of neighbors. Channels last, the channels of one window are the line, and taps point into x itself. Rows of x that
 * cannot be read where they lie are loaded, and kept while windows need them. */
#include "ops/pool/cpu/rows.h"

#include <math.h>

void ct__pool_rows_plan(forward_rows *f, const pool *p, bool pairs) {
    const ct_window *w = &p->w;
    const int64_t out = w->out[2], in = w->in[2];
    *f = (forward_rows){.p = p, .pairs = pairs && !p->channels_last};
    f->from_direct = p->native && (p->channels_last ? p->from_s.c == 1 : p->from_s.s[2] == 1);
    f->to_direct = p->native && (p->channels_last ? p->to_s.c == 1 : p->to_s.s[2] == 1);
    f->prefetches = f->from_direct && !p->channels_last && w->kernel[0] == 1 && !pairs;
    f->pixel = f->from_direct ? p->from_s.s[2] : p->inner;
    f->staged = f->from_direct ? 0 : in * p->inner;
    f->slots = row_slots_for((w->kernel[0] - 1) * w->dilation[0] + 1, (w->kernel[1] - 1) * w->dilation[1] + 1);
    const int64_t reach = (w->kernel[2] - 1) * w->dilation[2] / w->stride[2];
    f->phase = most(out + reach, (w->before[2] + in - 1) / w->stride[2] + 1);
    f->phases = w->dilation[2] == 1 ? least(w->kernel[2], w->stride[2]) : w->stride[2];
}

void ct__pool_rows_tables(forward_rows *f, arena *a) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    f->counts = arena_take(a, w->out[2], p->lines->size);
    for (int axis = 0; axis < 3; axis++) {
        f->first[axis] = arena_take(a, w->out[axis], 4);
        f->end[axis] = arena_take(a, w->out[axis], 4);
    }
    if (!a->memory) return;
    set_counts(p, f->counts);
    for (int axis = 0; axis < 3; axis++)
        for (int64_t o = 0; o < w->out[axis]; o++) {
            int64_t first, end;
            ct__pool_taps(w, axis, o, &first, &end);
            f->first[axis][o] = (int32_t)first;
            f->end[axis][o] = (int32_t)end;
        }
    for (int64_t o = 0; o < w->out[2]; o++) {
        if (f->first[2][o] > 0) f->inside_first = f->inside_end = o + 1;
        else if (f->end[2][o] == w->kernel[2]) f->inside_end = o + 1;
    }
}

/* ---- A worker ---- */

void ct__pool_rows_worker(const forward_rows *f, forward_worker *k, arena *a) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    const size_t size = p->lines->size;
    const bool first = !p->channels_last, codes = p->with_winners;
    const int64_t phases = first && w->stride[2] > 1 ? f->phases * f->phase : 0;
    const int64_t frame = first ? most(f->phase, w->before[2] + w->in[2]) : 0;
    k->tags = arena_take(a, row_slots_count(&f->slots), sizeof(int64_t));
    k->staged = arena_take(a, row_slots_count(&f->slots) * f->staged, size);
    k->line = arena_take(a, f->to_direct ? 0 : p->row, size);
    k->line_codes = arena_take(a, codes ? p->row : 0, size);
    k->frame = arena_take(a, frame, size);
    k->frame_codes = arena_take(a, codes ? frame : 0, size);
    k->phases = arena_take(a, phases, size);
    k->phase_codes = arena_take(a, codes ? phases : 0, size);
    k->taps = arena_take(a, ct__window_taps(w), sizeof(tap));
    k->along = arena_take(a, w->kernel[2], sizeof(tap));
    k->sources = arena_take(a, w->kernel[0] * w->kernel[1], sizeof(tap));
}

/* The frame around what rows write: padding, which is never written; and the taps along it. */
void ct__pool_rows_start(const forward_rows *f, forward_worker *k) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    for (int64_t s = 0; s < row_slots_count(&f->slots); s++) k->tags[s] = -1;
    k->plane.plane = -1;
    if (p->channels_last) return;
    const bool apart = w->stride[2] > 1;
    char *line = apart ? k->phases : k->frame, *codes = apart ? k->phase_codes : k->frame_codes;
    const int64_t length = apart ? f->phases * f->phase : most(f->phase, w->before[2] + w->in[2]);
    p->lines->fill(line, length, p->max ? -INFINITY : 0);
    if (p->with_winners) p->lines->fill_codes(codes, length, PADDING);
    for (int64_t c = 0; c < w->kernel[2]; c++) {
        const int64_t shift = c * w->dilation[2];
        const int64_t at = (shift % w->stride[2] * f->phase + shift / w->stride[2]) * (int64_t)p->lines->size;
        k->along[c] = (tap){line + at, codes + at, c};
    }
}

/* ---- A row ---- */

/* A row of x: itself, or staged. */
static const char *input_row(const forward_rows *f, const forward_worker *k, row_place at) {
    const pool *p = f->p;
    const int64_t size = (int64_t)p->lines->size;
    const char *from = p->from + (k->plane.from + row_at(&p->from_s, at)) * p->size;
    if (f->from_direct) return from;
    const int64_t slot = row_slot(&f->slots, at), tag = row_tag(p->w.in, at);
    char *row = k->staged + slot * f->staged * size;
    if (k->tags[slot] == tag) return row;
    k->tags[slot] = tag;
    if (!p->channels_last) p->lines->load(row, from, p->from_s.s[2], p->w.in[2], p->dtype);
    for (int64_t i = 0; i < p->w.in[2] && p->channels_last; i++)
        p->lines->load(row + i * p->inner * size, from + i * p->from_s.s[2] * p->size, p->from_s.c, p->inner, p->dtype);
    return row;
}

/* The rows of x that a row of windows looks at: how many sources it has. */
static int64_t find_sources(const forward_rows *f, const forward_worker *k, row_place at) {
    const ct_window *w = &f->p->w;
    int64_t sources = 0;
    for (int64_t a = f->first[0][at.depth]; a < f->end[0][at.depth]; a++)
        for (int64_t b = f->first[1][at.height]; b < f->end[1][at.height]; b++) {
            const row_place of = {at.plane, at.depth * w->stride[0] - w->before[0] + a * w->dilation[0],
                                  at.height * w->stride[1] - w->before[1] + b * w->dilation[1]};
            k->sources[sources++] = (tap){input_row(f, k, of), NULL, (a * w->kernel[1] + b) * w->kernel[2]};
        }
    /* the processor's own prefetching stops at each page */
    for (int64_t s = most(0, sources - w->stride[1]); s < sources && f->prefetches; s++)
        for (int64_t i = 0; i < w->in[2] * (int64_t)f->p->lines->size; i += 64)
            __builtin_prefetch((const char *)k->sources[s].value + 3072 + i, 0, 2);
    return sources;
}

/* The taps of window o that lie inside x, pixels being `pixel` elements apart. */
static int64_t find_taps(const forward_rows *f, const forward_worker *k, int64_t sources, int64_t o, int64_t pixel) {
    const ct_window *w = &f->p->w;
    int64_t count = 0;
    for (int64_t s = 0; s < sources; s++)
        for (int64_t c = f->first[2][o]; c < f->end[2][o]; c++) {
            const int64_t at = (o * w->stride[2] - w->before[2] + c * w->dilation[2]) * pixel;
            k->taps[count++] = (tap){(const char *)k->sources[s].value + at * (int64_t)f->p->lines->size, NULL,
                                     k->sources[s].number + c};
        }
    return count;
}

/* Windows of a row with NaN in it, one by one: the first NaN wins. */
static void max_with_nan(const forward_rows *f, const forward_worker *k, int64_t sources, char *y, char *codes) {
    const int64_t size = (int64_t)f->p->lines->size;
    for (int64_t o = 0; o < f->p->w.out[2]; o++)
        f->p->lines->max(k->taps, find_taps(f, k, sources, o, 1), 0, 1, y + o * size, codes + o * size);
}

/* Windows of a row, channels first: rows to one, then along it. */
static void reduce_row(const forward_rows *f, const forward_worker *k, int64_t sources, char *y, char *codes,
                       double divisor) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    const line_ops *ops = p->lines;
    const int64_t left = w->stride[2] > 1 ? 0 : w->before[2] * (int64_t)ops->size; /* else it is framed itself */
    char *one = k->frame + left, *one_codes = k->frame_codes + left;
    if (!p->max) ops->sum(k->sources, sources, 0, w->in[2], one, NULL, 1);
    else ops->max(k->sources, sources, 0, w->in[2], one, codes ? one_codes : NULL);
    if (codes && ops->has_nan(one, w->in[2])) {
        max_with_nan(f, k, sources, y, codes);
        return;
    }
    if (w->stride[2] > 1) {
        ops->deinterleave(k->phases, f->phase, one, w->in[2], w->stride[2], w->before[2], f->phases);
        if (codes)
            ops->deinterleave(k->phase_codes, f->phase, one_codes, w->in[2], w->stride[2], w->before[2], f->phases);
    }
    if (codes) ops->across(k->along, w->kernel[2], w->out[2], y, codes);
    else if (p->max) ops->max(k->along, w->kernel[2], 0, w->out[2], y, NULL);
    else ops->sum(k->along, w->kernel[2], 0, w->out[2], y, p->divisor ? NULL : f->counts, divisor);
}

/* Windows of a row, channels last, `step` elements apart in y. Those inside x have the same taps, further on. */
static void reduce_pixels(const forward_rows *f, const forward_worker *k, int64_t sources, char *y, int64_t step,
                          char *codes, double divisor) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    const int64_t size = (int64_t)p->lines->size;
    int64_t count = 0, listed = -1;
    for (int64_t o = 0; o < w->out[2]; o++) {
        const bool inside = o >= f->inside_first && o < f->inside_end;
        if (!inside || listed < 0) {
            count = find_taps(f, k, sources, o, f->pixel);
            listed = inside ? o : -1;
        }
        const int64_t shift = inside ? (o - listed) * w->stride[2] * f->pixel : 0;
        char *to = y + o * step * size;
        if (p->max) p->lines->max(k->taps, count, shift, p->inner, to, codes ? codes + o * p->inner * size : NULL);
        else
            p->lines->sum(k->taps, count, shift, p->inner, to, NULL,
                          p->divisor ? divisor : divisor * (double)ct__pool_count(w, 2, o, p->exclude_pad));
    }
}

void ct__pool_rows_row(const forward_rows *f, forward_worker *k, row_place at, int64_t row, char *instead) {
    const pool *p = f->p;
    const line_ops *ops = p->lines;
    set_plane(p, &k->plane, at.plane);
    const int64_t sources = find_sources(f, k, at);
    const double divisor = p->max ? 1 : count_of(p, at);
    char *to = p->to + (k->plane.to + row_at(&p->to_s, at)) * p->size;
    char *y = instead ? instead : f->to_direct ? to : k->line;
    char *codes = p->with_winners ? k->line_codes : NULL;
    char *winners = p->with_winners ? p->winners + row * p->row * p->winner_size : NULL;
    if (p->channels_last) {
        reduce_pixels(f, k, sources, y, f->to_direct ? p->to_s.s[2] : p->inner, codes, divisor);
        for (int64_t o = 0; o < p->w.out[2] && !f->to_direct; o++)
            ops->store(to + o * p->to_s.s[2] * p->size, p->to_s.c, y + o * p->inner * (int64_t)ops->size, p->inner,
                       p->dtype);
    } else {
        if (f->pairs && ct__pool_pairs_row(p, k->sources, sources, y, (uint8_t *)winners, divisor)) codes = NULL;
        else reduce_row(f, k, sources, y, codes, divisor);
        if (!f->to_direct) ops->store(to, p->to_s.s[2], y, p->w.out[2], p->dtype);
    }
    if (codes) ops->store_codes(winners, codes, p->row, p->winner_dtype);
}

/* ---- All rows ---- */

typedef struct rows_run {
    forward_rows rows;
    row_chunks chunks;
    char *memory;
    size_t worker_bytes;
} rows_run;

static size_t plan(rows_run *r, const pool *p, arena *a) {
    forward_worker k;
    arena worker = {0};
    ct__pool_rows_plan(&r->rows, p, ct__pool_pairs_suit_rows(p));
    ct__pool_rows_tables(&r->rows, a);
    ct__pool_rows_worker(&r->rows, &k, &worker);
    r->chunks = forward_chunks(p);
    r->worker_bytes = worker.used;
    r->memory = a->memory ? a->memory + a->used : NULL;
    return a->used + (size_t)ct__threads() * worker.used;
}

static void rows_chunk(void *context, int64_t chunk, int worker) {
    const rows_run *r = context;
    forward_worker k;
    arena a = {.memory = r->memory + (size_t)worker * r->worker_bytes};
    ct__pool_rows_worker(&r->rows, &k, &a);
    ct__pool_rows_start(&r->rows, &k);
    row_place at = row_chunk_start(&r->chunks, chunk);
    const int64_t end = row_chunk_end(&r->chunks, chunk);
    for (int64_t row = chunk * r->chunks.rows; row < end; row++, next_row(&r->chunks, &at))
        ct__pool_rows_row(&r->rows, &k, at, row, NULL);
}

size_t ct__pool_rows_scratch(const pool *p) {
    rows_run r;
    return plan(&r, p, &(arena){0});
}

void ct__pool_rows_run(const pool *p, void *scratch) {
    rows_run r;
    plan(&r, p, &(arena){.memory = scratch});
    ct__parallel(row_chunk_count(&r.chunks), rows_chunk, &r);
}
