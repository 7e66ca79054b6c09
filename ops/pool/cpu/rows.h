/* Rows that are staged, and chunks of rows: what rows.c, rows_grad.c and pairs.c share. */
#ifndef COTANGENT_OPS_POOL_ROWS_H
#define COTANGENT_OPS_POOL_ROWS_H

#include "ops/pool/cpu/ways.h"

/* ---- Slots: staged rows are kept by their places modulo powers of two, so that those a window needs have one each ---- */

typedef struct row_slots {
    int64_t depth, height;
} row_slots;

static inline row_slots row_slots_for(int64_t depth, int64_t height) {
    row_slots s = {1, 1};
    while (s.depth < depth) s.depth *= 2;
    while (s.height < height) s.height *= 2;
    return s;
}

static inline int64_t row_slots_count(const row_slots *s) { return s->depth * s->height; }

static inline int64_t row_slot(const row_slots *s, row_place at) {
    return (at.depth & (s->depth - 1)) * s->height + (at.height & (s->height - 1));
}

/* Which row is in a slot: its number among all rows of planes of these sizes. */
static inline int64_t row_tag(const int64_t *sizes, row_place at) {
    return (at.plane * sizes[0] + at.depth) * sizes[1] + at.height;
}

/* ---- Chunks of the rows of a result ---- */

typedef struct row_chunks {
    int64_t rows, total; /* of a chunk, of all planes */
    int64_t depth, height;
} row_chunks;

static inline row_chunks row_chunks_of(const pool *p, int64_t work_of_row) {
    const int64_t *sizes = p->backward ? p->w.in : p->w.out, plane = sizes[0] * sizes[1];
    int64_t rows = most(1, (64 << 10) / work_of_row);
    if (rows > plane) rows -= rows % plane; /* whole planes */
    return (row_chunks){ct__grain(rows), p->rows, sizes[0], sizes[1]};
}

static inline row_chunks forward_chunks(const pool *p) {
    return row_chunks_of(p, p->row * p->w.kernel[0] * p->w.kernel[1] * p->w.stride[2]);
}

static inline int64_t row_chunk_count(const row_chunks *c) { return (c->total + c->rows - 1) / c->rows; }
static inline int64_t row_chunk_end(const row_chunks *c, int64_t chunk) {
    return least((chunk + 1) * c->rows, c->total);
}
static inline row_place row_chunk_start(const row_chunks *c, int64_t chunk) {
    const int64_t row = chunk * c->rows;
    return (row_place){row / (c->depth * c->height), row / c->height % c->depth, row % c->height};
}
static inline void next_row(const row_chunks *c, row_place *at) {
    if (++at->height == c->height) at->height = 0, at->depth++;
    if (at->depth == c->depth) at->depth = 0, at->plane++;
}

/* ---- rows.c, for pairs.c too, which leaves to it the rows that have borders or NaN ---- */

typedef struct forward_rows {
    const pool *p;
    bool from_direct, to_direct;      /* rows are read and written where they lie */
    bool pairs;                       /* rows, once staged, are as pairs.c has them */
    bool prefetches;                  /* rows of x that come later */
    int64_t pixel;                    /* elements from pixel to pixel of a row that taps point into */
    int64_t staged;                   /* elements of a staged row of x */
    row_slots slots;                  /* staged rows that are kept */
    int64_t phases, phase;            /* lines that a row is deinterleaved into, and their length */
    int64_t inside_first, inside_end; /* windows of the last axis that lie inside x */
    int32_t *first[3], *end[3];       /* (out) the taps inside x of each window */
    void *counts;                     /* (out) how many elements a window of the last axis counts */
} forward_rows;

/* Scratch of one thread. Codes are there where winners are wanted. */
typedef struct forward_worker {
    int64_t *tags;             /* (slots) the row in it */
    char *staged;              /* (slots, staged) */
    char *line, *line_codes;   /* (row) a row of y that is stored later */
    char *frame, *frame_codes; /* the rows of x that windows share, reduced to one, with padding where it stays whole */
    char *phases, *phase_codes;  /* (phases, phase) that row deinterleaved, with padding */
    tap *taps, *along, *sources; /* of a window; along a row; rows of x */
    plane_start plane;           /* at hand */
} forward_worker;

void ct__pool_rows_plan(forward_rows *f, const pool *p, bool pairs);
void ct__pool_rows_tables(forward_rows *f, arena *a);
void ct__pool_rows_worker(const forward_rows *f, forward_worker *k, arena *a);
void ct__pool_rows_start(const forward_rows *f, forward_worker *k);
/* One row of windows, the row-th of all. instead: where y is to go, or NULL. */
void ct__pool_rows_row(const forward_rows *f, forward_worker *k, row_place at, int64_t row, char *instead);

#endif
