/* Windows two apart along a row, of 2 taps or of 3, in loops that stage nothing (lines/pair_loops.h): the pooling of most
 * networks. Forward, rows of planes that lie as the loops want them; a row with borders above or below, or with NaN in it, is
 * left to rows.c. Backward, two rows of the gradient at a time, where the windows cover it exactly. */
#include "ops/pool/cpu/rows.h"

/* Whether windows along a row are whole but for one tap before the first. */
static bool row_suits(const ct_window *w, bool max) {
    const int64_t kernel = w->kernel[2], before = w->before[2];
    return w->stride[2] == 2 && w->dilation[2] == 1 &&
           ((kernel == 2 && before == 0 && w->in[2] >= 2 * w->out[2]) ||
            (max && kernel == 3 && before == 1 && w->in[2] >= 2 * w->out[2]) ||
            (max && kernel == 3 && before == 0 && w->in[2] > 2 * w->out[2]));
}

/* Channels last: whole vectors of them, pixels side by side, planes without depth, and f32. */
static bool pixels_suit(const pool *p, const ct_image_strides *s) {
    const ct_window *w = &p->w;
    return p->lines->size == 4 && p->inner % p->isa->lanes == 0 && s->c == 1 && s->s[2] == p->inner && w->in[0] == 1 &&
           w->out[0] == 1 && w->kernel[0] == 1;
}

static int64_t pair_inner(const pool *p) { return p->channels_last ? p->inner : 0; }

/* ---- Forward ---- */

bool ct__pool_pairs_suit_rows(const pool *p) {
    const ct_window *w = &p->w;
    if (!row_suits(w, p->max) || (p->with_winners && p->winner_dtype != CT_U8)) return false;
    return !p->channels_last || (p->native && (!p->max || (p->with_winners && w->before[2] == w->kernel[2] - 2)) &&
                                 pixels_suit(p, &p->from_s) && pixels_suit(p, &p->to_s));
}

bool ct__pool_pairs_suit(const pool *p) {
    const ct_window *w = &p->w;
    return ct__pool_pairs_suit_rows(p) && p->native &&
           (p->channels_last || (p->from_s.s[2] == 1 && p->to_s.s[2] == 1)) && w->in[0] == 1 && w->out[0] == 1 &&
           w->kernel[0] == 1;
}

bool ct__pool_pairs_row(const pool *p, const tap *sources, int64_t count, void *y, uint8_t *winners, double divisor) {
    const ct_window *w = &p->w;
    const int64_t kernel = w->kernel[2], n = w->out[2];
    if (!p->max) {
        if (count != 2) return false;
        p->pairs->mean(sources[0].value, sources[1].value, n, pair_inner(p), p->divisor ? divisor : divisor * 2, y);
        return true;
    }
    if (count != 2 + (kernel == 3) && !(count == 2 && w->before[2])) return false;
    if (p->channels_last) return count == kernel && !p->pairs->max_pixels(sources, kernel, n, p->inner, y, winners);
    return !p->pairs->max_row(sources, count, w->before[2], n, y, winners);
}

typedef struct forward_pairs {
    const pool *p;
    forward_rows rest; /* rows that the loops here do not take */
    row_chunks chunks;
    bool stream;   /* rows of y go past the caches: */
    int64_t batch; /* that many at a time, by way of the worker's scratch */
    char *memory;
    size_t worker_bytes;
} forward_pairs;

typedef struct pairs_worker {
    char *batch;  /* (batch, row) */
    tap *sources; /* (kernel) rows of x */
    plane_start plane;
    forward_worker rest;
} pairs_worker;

static void lay_out(const forward_pairs *f, pairs_worker *k, arena *a) {
    k->batch = arena_take(a, f->stream ? f->batch * f->p->row : 0, f->p->lines->size);
    k->sources = arena_take(a, f->p->w.kernel[1], sizeof(tap));
    ct__pool_rows_worker(&f->rest, &k->rest, a);
}

static size_t plan(forward_pairs *f, const pool *p, arena *a) {
    pairs_worker k;
    arena worker = {0};
    *f = (forward_pairs){.p = p, .chunks = forward_chunks(p)};
    f->stream = p->dense && p->isa->stream_worth(p->rows * p->row * p->size);
    f->batch = most(1, (4 << 10) / (p->row * p->size));
    ct__pool_rows_plan(&f->rest, p, true);
    f->rest.pairs = false; /* they have been tried by then */
    ct__pool_rows_tables(&f->rest, a);
    lay_out(f, &k, &worker);
    f->worker_bytes = worker.used;
    f->memory = a->memory ? a->memory + a->used : NULL;
    return a->used + (size_t)ct__threads() * worker.used;
}

/* A row of windows, of which `row` is the number among all; false: it is one for rows.c. */
static bool forward_row(const forward_pairs *f, const pairs_worker *k, row_place at, int64_t row, char *y) {
    const pool *p = f->p;
    const ct_window *w = &p->w;
    const int32_t first = f->rest.first[1][at.height], end = f->rest.end[1][at.height];
    const int64_t step = p->from_s.s[1] * p->size;
    const char *x = p->from + k->plane.from * p->size + (at.height * w->stride[1] - w->before[1]) * step;
    for (int64_t b = first; b < end; b++)
        k->sources[b - first] = (tap){x + b * w->dilation[1] * step, NULL, b * w->kernel[2]};
    const double divisor = p->max                                       ? 1
                           : !p->divisor && end - first == w->kernel[1] ? (double)w->kernel[1]
                                                                        : count_of(p, at);
    return ct__pool_pairs_row(p, k->sources, end - first,
                              y ? y : p->to + (k->plane.to + row_at(&p->to_s, at)) * p->size,
                              p->with_winners ? (uint8_t *)p->winners + row * p->row : NULL, divisor);
}

static void forward_chunk(void *context, int64_t chunk, int worker) {
    const forward_pairs *f = context;
    const pool *p = f->p;
    pairs_worker k = {.plane.plane = -1};
    arena a = {.memory = f->memory + (size_t)worker * f->worker_bytes};
    lay_out(f, &k, &a);
    ct__pool_rows_start(&f->rest, &k.rest);
    row_place at = row_chunk_start(&f->chunks, chunk);
    const int64_t end = row_chunk_end(&f->chunks, chunk);
    int64_t held = 0; /* rows in the batch */
    for (int64_t row = chunk * f->chunks.rows; row < end; row++, next_row(&f->chunks, &at)) {
        char *y = f->stream ? k.batch + held * p->row * p->size : NULL;
        set_plane(p, &k.plane, at.plane);
        if (!forward_row(f, &k, at, row, y)) ct__pool_rows_row(&f->rest, &k.rest, at, row, y);
        if (y && (++held == f->batch || row + 1 == end)) {
            p->isa->stream(p->to + (row + 1 - held) * p->row * p->size, k.batch, held * p->row, p->lines->size);
            held = 0;
        }
    }
    if (f->stream) f->p->isa->stream_end();
}

size_t ct__pool_pairs_scratch(const pool *p) {
    forward_pairs f;
    return plan(&f, p, &(arena){0});
}

void ct__pool_pairs_run(const pool *p, void *scratch) {
    forward_pairs f;
    plan(&f, p, &(arena){.memory = scratch});
    ct__parallel(row_chunk_count(&f.chunks), forward_chunk, &f);
}

/* ---- Gradients: both axes of planes alike, and nothing of dx beyond the windows ---- */

static bool to_direct(const pool *p) {
    return p->native && (p->channels_last ? p->to_s.c == 1 && p->to_s.s[2] == p->inner : p->to_s.s[2] == 1);
}

bool ct__pool_pair_grad_suit(const pool *p) {
    const ct_window *w = &p->w;
    if (!(p->channels_last || flat(w)) || !row_suits(w, p->max) || (p->max && p->winner_dtype != CT_U8)) return false;
    if (!p->channels_last && p->max && p->winner_s.s[2] != 1) return false;
    if (p->channels_last && !(to_direct(p) && pixels_suit(p, &p->from_s) && (!p->max || pixels_suit(p, &p->winner_s))))
        return false;
    return w->stride[1] == 2 && w->dilation[1] == 1 && w->kernel[1] == w->kernel[2] &&
           w->before[2] == w->kernel[2] - 2 && w->before[1] == w->before[2] && w->in[1] == 2 * w->out[1] &&
           w->in[2] == 2 * w->out[2];
}

typedef struct backward_pairs {
    const pool *p;
    bool to_direct, stream;
    int64_t chunk, total; /* pairs of rows */
    char *memory;
    size_t worker_bytes;
} backward_pairs;

typedef struct pair_worker {
    char *g, *g_next;    /* (out) rows of g that have to be loaded */
    char *zeros;         /* (out) a row of g below the last */
    char *above, *below; /* (row) of dx, where they do not go straight there */
    plane_start plane;
} pair_worker;

static void lay_out_pair(const backward_pairs *b, pair_worker *k, arena *a) {
    const size_t size = b->p->lines->size;
    const int64_t out = b->p->w.out[2] * b->p->inner;
    k->g = arena_take(a, out, size);
    k->g_next = arena_take(a, out, size);
    k->zeros = arena_take(a, out, size);
    k->above = arena_take(a, b->p->row, size);
    k->below = arena_take(a, b->p->row, size);
}

static size_t plan_grad(backward_pairs *b, const pool *p, void *scratch) {
    pair_worker k;
    arena worker = {0};
    *b = (backward_pairs){.p = p, .to_direct = to_direct(p), .memory = scratch};
    b->stream = streams_rows(p, b->to_direct);
    b->chunk = ct__grain(most(1, (64 << 10) / p->row));
    b->total = p->planes * p->w.out[1];
    lay_out_pair(b, &k, &worker);
    b->worker_bytes = worker.used;
    return (size_t)ct__threads() * worker.used;
}

/* A row of g: itself, or loaded into `room`. */
static const void *cotangent_row(const pool *p, const pair_worker *k, row_place at, char *room) {
    const char *g = p->from + (k->plane.from + row_at(&p->from_s, at)) * p->size;
    if (p->channels_last || (p->native && p->from_s.s[2] == 1)) return g;
    p->lines->load(room, g, p->from_s.s[2], p->w.out[2], p->dtype);
    return room;
}

/* Rows 2 i and 2 i + 1 of dx, from row i of g and the next. */
static void backward_pair(const backward_pairs *b, const pair_worker *k, int64_t plane, int64_t i) {
    const pool *p = b->p;
    const ct_window *w = &p->w;
    const int64_t down = p->to_s.s[1] * p->size, line = (p->channels_last ? p->inner : w->in[2]) * p->size;
    const row_place of = {plane, 0, i}, next = {plane, 0, i + 1};
    char *to = p->to + (k->plane.to + row_at(&p->to_s, (row_place){plane, 0, 2 * i})) * p->size;
    char *above = k->above, *below = k->below;
    const bool lines = b->stream && (((uintptr_t)to | (uintptr_t)down) & 63) == 0 && line % 64 == 0;
    if (lines || (b->to_direct && !b->stream)) above = to, below = to + down;
    const void *g = cotangent_row(p, k, of, k->g);
    if (p->max) {
        const bool more = i + 1 < w->out[1] && w->kernel[1] == 3;
        const uint8_t *at = (const uint8_t *)p->winners + k->plane.winners + row_at(&p->winner_s, of);
        const void *g_next = more ? cotangent_row(p, k, next, k->g_next) : k->zeros;
        p->pairs->pick(w->kernel[2], g, at, g_next, more ? at + p->winner_s.s[1] : at, w->out[2], pair_inner(p), above,
                       below, lines);
    } else {
        p->pairs->spread(g, w->out[2], pair_inner(p), p->divisor ? p->divisor : count_of(p, of) * (double)w->kernel[2],
                         above, below, lines);
    }
    if (above == to) return;
    for (int r = 0; r < 2; r++, above = below, to += down) {
        if (b->stream) p->isa->stream(to, above, p->row, p->lines->size);
        else p->lines->store(to, p->to_s.s[2], above, w->in[2], p->dtype);
    }
}

static void backward_chunk(void *context, int64_t chunk, int worker) {
    const backward_pairs *b = context;
    const int64_t pairs = b->p->w.out[1];
    pair_worker k = {.plane.plane = -1};
    arena a = {.memory = b->memory + (size_t)worker * b->worker_bytes};
    lay_out_pair(b, &k, &a);
    b->p->lines->fill(k.zeros, b->p->w.out[2] * b->p->inner, 0);
    for (int64_t u = chunk * b->chunk; u < least((chunk + 1) * b->chunk, b->total); u++) {
        set_plane(b->p, &k.plane, u / pairs);
        backward_pair(b, &k, u / pairs, u % pairs);
    }
    if (b->stream) b->p->isa->stream_end();
}

size_t ct__pool_pair_grad_scratch(const pool *p) {
    backward_pairs b;
    return plan_grad(&b, p, NULL);
}

void ct__pool_pair_grad_run(const pool *p, void *scratch) {
    backward_pairs b;
    plan_grad(&b, p, scratch);
    ct__parallel((b.total + b.chunk - 1) / b.chunk, backward_chunk, &b);
}
