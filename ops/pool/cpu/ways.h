/* The ways to pool on the CPU, and what they share: one call of any of the four ops, max and mean and their gradients.
 *
 *   pairs   windows two apart along a row, the usual ones: nothing is staged (pairs.c)
 *   bands   gradients of planes, channels first: many rows as one long line (bands.c)
 *   rows    everything else, row by row through staged rows: rows.c, and rows_grad.c for the gradients
 *
 * The gradients gather from rows of g and of the winning taps, so nothing is added to memory and every element is one
 * sum in a fixed order. */
#ifndef COTANGENT_OPS_POOL_WAYS_H
#define COTANGENT_OPS_POOL_WAYS_H

#include "core/threads.h"
#include "ops/pool/cpu/lines.h"
#include "ops/pool/pool.h"

/* One call. `from` is x and `to` y; in a gradient g and dx. */
typedef struct pool {
    ct_window w;
    bool backward, max, channels_last, exclude_pad;
    bool with_winners; /* max tells which taps won, as its gradient has to know */
    double divisor;    /* of means; 0: the elements that are counted */
    const pool_isa *isa;
    const line_ops *lines; /* of the type that is computed in */
    const pair_ops *pairs;
    ct_dtype dtype, winner_dtype;
    int64_t size, winner_size; /* bytes of an element in memory */
    bool native;               /* elements lie in memory as they are computed in */
    const char *from;          /* addresses are set for a run only */
    char *to, *winners;
    ct_image_strides from_s, to_s, winner_s;
    int64_t planes, channels; /* a plane is an image, or a channel of one where channels come first */
    int64_t inner;            /* elements of a pixel in a row: the channels where they come last, else 1 */
    int64_t rows, row;        /* of the result: how many rows, and elements of each */
    bool dense;               /* the result */
} pool;

/* A row: its plane, and its place along the first two axes. */
typedef struct row_place {
    int64_t plane, depth, height;
} row_place;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- Memory: scratch of the call, taken in order ---- */

typedef struct arena {
    char *memory; /* NULL: only counts */
    size_t used;
} arena;

static inline void *arena_take(arena *a, int64_t count, size_t bytes) {
    void *taken = a->memory ? a->memory + a->used : NULL;
    a->used += ((size_t)count * bytes + 127) & ~(size_t)63;
    return taken;
}

/* ---- Places ---- */

/* Elements from the start of a tensor to a plane, and from there to a row. */
static inline int64_t plane_at(const pool *p, const ct_image_strides *s, int64_t plane) {
    return p->channels_last ? plane * s->n : plane / p->channels * s->n + plane % p->channels * s->c;
}

/* Where a plane begins in each tensor. */
typedef struct plane_start {
    int64_t plane, from, to, winners;
} plane_start;

static inline void set_plane(const pool *p, plane_start *start, int64_t plane) {
    if (start->plane == plane) return;
    *start = (plane_start){plane, plane_at(p, &p->from_s, plane), plane_at(p, &p->to_s, plane),
                           plane_at(p, &p->winner_s, plane)};
}

static inline int64_t row_at(const ct_image_strides *s, row_place at) {
    return at.depth * s->s[0] + at.height * s->s[1];
}

/* Whether planes have no depth: all windows lie in one. */
static inline bool flat(const ct_window *w) {
    return w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->before[0] == 0;
}

/* What the sums of a row of windows are divided by, but for the last axis. */
static inline double count_of(const pool *p, row_place at) {
    if (p->divisor) return p->divisor;
    return (double)(ct__pool_count(&p->w, 0, at.depth, p->exclude_pad) *
                    ct__pool_count(&p->w, 1, at.height, p->exclude_pad));
}

/* (out) how many elements a window of the last axis counts, for line_ops.sum. */
static inline void set_counts(const pool *p, void *counts) {
    for (int64_t o = 0; o < p->w.out[2]; o++)
        p->lines->fill((char *)counts + o * (int64_t)p->lines->size, 1,
                       (double)ct__pool_count(&p->w, 2, o, p->exclude_pad));
}

/* Whether a gradient goes past the caches, row by row. */
static inline bool streams_rows(const pool *p, bool to_direct) {
    return to_direct && p->dense && p->isa->stream_worth(p->rows * p->row * p->size) && p->row * p->size >= 256;
}

/* A line of a gradient, from its taps. */
static inline void gather_line(const pool *p, const tap *taps, int64_t count, int64_t shift, int64_t n, void *dx) {
    if (p->max) p->lines->pick(taps, count, shift, n, dx);
    else p->lines->sum(taps, count, shift, n, dx, NULL, 1);
}

/* ---- The ways: whether they suit a call, their scratch in bytes, and the call itself ---- */

bool ct__pool_pairs_suit(const pool *p);
size_t ct__pool_pairs_scratch(const pool *p);
void ct__pool_pairs_run(const pool *p, void *scratch);

bool ct__pool_pair_grad_suit(const pool *p);
size_t ct__pool_pair_grad_scratch(const pool *p);
void ct__pool_pair_grad_run(const pool *p, void *scratch);

bool ct__pool_bands_suit(const pool *p);
size_t ct__pool_bands_scratch(const pool *p);
void ct__pool_bands_run(const pool *p, void *scratch);

size_t ct__pool_rows_scratch(const pool *p);
void ct__pool_rows_run(const pool *p, void *scratch);

size_t ct__pool_row_grad_scratch(const pool *p);
void ct__pool_row_grad_run(const pool *p, void *scratch);

/* For rows that are staged: whether their windows are as pairs.h has them, and one row of those, from `count` rows of x to y
 * and its winners (bytes). false: some window is cut off, or has NaN in it. */
bool ct__pool_pairs_suit_rows(const pool *p);
bool ct__pool_pairs_row(const pool *p, const tap *sources, int64_t count, void *y, uint8_t *winners, double divisor);

/* ---- A call of one of the ops, by a kernel of some level (call.c) ---- */

typedef enum pool_kind { POOL_MAX, POOL_MAX_GRAD, POOL_MEAN, POOL_MEAN_GRAD } pool_kind;
size_t ct__pool_scratch(const ct_call *call, pool_kind kind, const pool_isa *isa);
bool ct__pool_run(const ct_call *call, pool_kind kind, const pool_isa *isa);

#endif
