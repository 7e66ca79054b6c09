/* Attention forward: scores of a tile of queries and a block of keys, softmax and the product with V while all is in
 * cache. Nothing of size Tq by Tk exists. This is FlashAttention (Dao, Fu, Ermon, Rudra and Re, 2022) in the loop
 * order of FlashAttention-2 (Dao, 2023), queries outside and keys inside, with the running softmax of Milakov and
 * Gimelshein (2018): a row keeps the greatest score so far and the sum of exponentials under it, and o is scaled
 * when that rises; it is divided by the sum once, at the end. What differs: caches take the place of shared memory.
 * K and V of SDPA_KEYS keys are packed once per chunk of queries, for the L2; a tile of up to SDPA_TILE queries by
 * SDPA_KEYS scores stays in the L1 between the two products. */
#include "ops/attention/cpu/sdpa_terms.h"

typedef struct forward {
    sdpa s;
    const ct_view *y, *lse; /* (B,H,Tq,Dv) (B,H,Tq), lse may be NULL */
    int64_t chunk_rows, blocks;
    char *scratch;
    size_t room; /* of one worker */
} forward;

/* Query rows of a chunk: K is packed for each, so they are many; but there have to be chunks for all threads, and for many threads some for
 * each. A row is computed by itself, so its bits do not depend on the cut. */
static int64_t chunk_rows(const sdpa *s) {
    const int64_t chunks = ct__max64(16, 3 * ct__threads());
    int64_t rows = s->tq * s->batch * s->heads / chunks;
    rows = ct__max64(1, ct__grain(ct__max64(64, ct__min64(rows, 40 * CT__TILE_ROWS_MAX))));
    return ct__max64(1, ct__ceil_div(s->tq, ct__max64(1, ct__ceil_div(s->tq, rows)))); /* none of them a small rest */
}

/* V of a block of keys: rows, or panels for matrix registers, and then the terms of a tile of weights. */
static size_t values_room(const sdpa *s) {
    if (s->in_registers) return ct__room(sdpa_key_panels_bytes(s, s->dv));
    return ct__room(sdpa_room_keys(s) * s->dv * s->size);
}
static int64_t terms_bytes(const sdpa *s) { return s->in_registers ? CT__TERMS * SDPA_TERM : 0; }

static size_t worker_room(const sdpa *s, int64_t rows) {
    const int64_t keys = sdpa_room_keys(s);
    return ct__room(rows * s->d * s->size) + ct__room(rows * s->dv * s->size) + ct__room(rows * 2 * s->size) +
           ct__room(keys * s->d * s->size) + values_room(s) + ct__room(s->tile * SDPA_LD * s->size) +
           ct__room(terms_bytes(s));
}

static float f32_log_of(float x) { return logf(x); }
static double f64_log_of(double x) { return log(x); }
#define R f32
#define T float
#include "ops/attention/cpu/sdpa_forward_rows.h"
#define R f64
#define T double
#include "ops/attention/cpu/sdpa_forward_rows.h"

enum { LISTS = 4 };

/* What comes after the tile of rows r.. of a chunk of `rows`: the tile's result, the next queries, and its share of the next
 * block of keys, or of the first in the next chunk, since a thread's chunks follow one another. Queries that are copied are so at
 * the start of a chunk: then those of the next one. Returns how many lists. */
static int64_t wanted_next(const forward *f, int64_t chunk, int64_t r, int64_t m, int64_t rows, int64_t j, int64_t last,
                           bool copied, ct__spans *list) {
    const sdpa *s = &f->s;
    const int64_t i0 = chunk % f->blocks * f->chunk_rows + r, next = (chunk + (j >= last)) / f->blocks,
                  b = chunk / f->blocks / s->heads, h = chunk / f->blocks % s->heads;
    int64_t count = 0;
    const bool new_chunk = j >= last;
    if (new_chunk) list[count++] = sdpa_soon(f->y, b, h, i0, m), j = 0;
    if (!copied && j <= SDPA_KEYS) list[count++] = sdpa_soon(s->q, b, h, i0 + m, ct__min64(m, rows - r - m));
    if (next >= s->batch * s->heads) return count;
    if (copied && new_chunk) {
        const int64_t first = (chunk + 1) % f->blocks * f->chunk_rows + r;
        list[count++] = sdpa_soon(s->q, next / s->heads, next % s->heads, first, ct__min64(m, s->tq - first));
    }
    const int64_t n = ct__min64(SDPA_KEYS, s->tk - j), first = n * r / rows, more = n * (r + m) / rows - first;
    list[count++] = sdpa_soon(s->k, next / s->heads, next % s->heads / s->group, j + first, more);
    list[count++] = sdpa_soon(s->v, next / s->heads, next % s->heads / s->group, j + first, more);
    return count;
}

/* What a worker has in its scratch. */
typedef struct scratch {
    char *queries, *o, *states, *panels, *values, *scores, *terms;
} scratch;

static scratch scratch_of(const forward *f, int64_t rows, int worker) {
    const sdpa *s = &f->s;
    char *at = f->scratch + (size_t)worker * f->room;
    scratch w;
    w.queries = ct__claim(&at, rows * s->d * s->size), w.o = ct__claim(&at, rows * s->dv * s->size);
    w.states = ct__claim(&at, rows * 2 * s->size);
    w.panels = ct__claim(&at, sdpa_room_keys(s) * s->d * s->size);
    w.values = ct__claim(&at, (int64_t)values_room(s));
    w.scores = ct__claim(&at, s->tile * SDPA_LD * s->size);
    w.terms = ct__claim(&at, terms_bytes(s));
    return w;
}

static void forward_chunk(void *ctx, int64_t chunk, int worker) {
    const forward *f = (const forward *)ctx;
    const sdpa *s = &f->s;
    const int64_t size = s->size, i0 = chunk % f->blocks * f->chunk_rows, head = chunk / f->blocks, b = head / s->heads,
                  h = head % s->heads, hk = h / s->group, rows = ct__min64(f->chunk_rows, s->tq - i0);
    const scratch w = scratch_of(f, rows, worker);
    const sdpa_rows q = sdpa_take(s->inputs, s->q, b, h, i0, rows, w.queries);
    const int64_t tile = sdpa_tile_rows(s, rows), last = sdpa_seen(s, i0 + rows - 1);
    /* Rows that see a key are written by the first block of keys. */
    if (sdpa_seen(s, i0) <= 0) memset(w.o, 0, (size_t)(rows * s->dv * size));
    if (s->wide) f64_start(w.states, rows);
    else f32_start(w.states, rows);
    sdpa_enter(s);
    for (int64_t j0 = 0; j0 < last; j0 += SDPA_KEYS) {
        const int64_t block = ct__min64(SDPA_KEYS, last - j0);
        const bool accumulate = j0 > 0;
        sdpa_panels(s, s->k, b, hk, j0, block, w.panels);
        sdpa_rows v = {w.values, 0};
        if (s->in_registers) sdpa_key_panels(s, s->v, b, hk, j0, block, w.values);
        else v = sdpa_take(s->kernel, s->v, b, hk, j0, block, w.values);
        for (int64_t r = 0; r < rows; r += tile) {
            const int64_t m = ct__min64(tile, rows - r);
            const int64_t n = ct__min64(block, sdpa_seen(s, i0 + r + m - 1) - j0); /* what the tile's last row sees */
            if (n <= 0) continue;
            ct__spans soon[LISTS];
            ct__block score = sdpa_scores(s, &q, r, w.panels, s->d, w.scores, m, n);
            score.lists = wanted_next(f, chunk, r, m, rows, j0 + block, last, q.at == w.queries, soon);
            score.ahead = soon;
            ct__block_multiply(s->inputs, &score);
            char *o_strip = w.o + r * s->dv * size, *states = w.states + r * 2 * size;
            if (s->wide) f64_tile(s, b, h, i0 + r, m, j0, n, w.scores, o_strip, states);
            else f32_tile(s, b, h, i0 + r, m, j0, n, w.scores, o_strip, states);
            if (s->in_registers) {
                sdpa_terms_of_rows(w.scores, m, n, w.terms);
                sdpa_over_keys(s, w.terms, m, n, v.at, block, o_strip, s->dv * size, s->dv, accumulate);
                continue;
            }
            const ct__block sum = {.a = w.scores,
                                   .a_row = SDPA_LD * size,
                                   .a_step = size,
                                   .b = v.at,
                                   .b_step = v.ld,
                                   .panel = ct__panel_width(s->kernel) * size,
                                   .c = o_strip,
                                   .c_row = s->dv * size,
                                   .m = m,
                                   .n = s->dv,
                                   .k = n,
                                   .accumulate = accumulate};
            ct__block_multiply(s->kernel, &sum);
        }
    }
    sdpa_leave(s);
    if (s->wide) f64_finish(f, b, h, i0, rows, w.o, w.states);
    else f32_finish(f, b, h, i0, rows, w.o, w.states);
}

static sdpa problem_of(const ct_call *call) {
    const sdpa_attrs *a = call->attrs;
    return sdpa_problem(call->in[0], call->in[1], call->in[2], call->in[3], call->in[4], a->scale, a->causal,
                        a->bottom_right, a->dropout);
}

static size_t forward_scratch(const ct_call *call) {
    const sdpa s = problem_of(call);
    return ct__near_scratch(worker_room(&s, chunk_rows(&s)) * (size_t)ct__threads());
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_view y;
    forward f = {.s = problem_of(call),
                 .y = sdpa_heads_first(call->out[0], ((const sdpa_attrs *)call->attrs)->rows_first, &y),
                 .lse = call->n_out > 1 ? call->out[1] : NULL,
                 .scratch = ct__scratch(call)};
    sdpa_start(&f.s, call->in[4]);
    f.chunk_rows = chunk_rows(&f.s);
    f.blocks = ct__ceil_div(f.s.tq, f.chunk_rows);
    f.room = worker_room(&f.s, f.chunk_rows);
    if (f.s.batch * f.s.heads * f.s.tq > 0) ct__parallel(f.s.batch * f.s.heads * f.blocks, forward_chunk, &f);
    return true;
}

static const char *forward_can(const ct_call *call) { return call->out[0] ? NULL : "y is not wanted"; }

CT_KERNELS(attention_sdpa_forward) = {
    CT_CANDIDATES(sdpa, {"sdpa_streaming", forward_can, forward_scratch, forward_run}),
    {0},
};
