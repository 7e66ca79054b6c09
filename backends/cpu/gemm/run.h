/* A product on its way through the driver, and what its tiles prefetch for what comes next. */
#ifndef CT_BACKENDS_CPU_GEMM_RUN_H
#define CT_BACKENDS_CPU_GEMM_RUN_H

#include "backends/cpu/gemm/plan.h"

/* One product of the batch on its way; offsets into its scratch. */
typedef struct ct__product {
    const ct__plan *p;
    ct__matrix a, b;
    char *c;
    ct__finish finish;
    int64_t batch;
    char *packed_a, *packed_b, *sums, *kept, *workers;
    int32_t *offsets;
    /* The stage: rows [i0, i1), columns [j0, j1), k [k0, k1). */
    int64_t i0, i1, j0, j1, k0, k1;
    int64_t a_blocks, a_parts, a_rows; /* of A: blocks to pack, so many of a chunk's rows, and the rows of one */
    int64_t b_blocks, b_panels, b_parts, row_chunks, col_chunks; /* work of the stage */
    /* The next product's operands, prefetched in small steps while this one is computed. */
    struct {
        const char *at;
        int64_t lines, step;
    } ahead[2];
    const char *next_b; /* of the product after this one; NULL: the last */
} ct__product;

/* A block of B, or a row panel of A, that will be wanted next: tiles prefetch it evenly, a few rows each, or a few lines of many rows where
 * rows are long. */
typedef struct ct__next {
    const char *at;
    int64_t row_bytes, rows, lines; /* cache lines in a row; 0: nothing to prefetch */
    int64_t row, line; /* up to here it was prefetched: rows, of lines from here on, all of the lines before */
    bool slowly;       /* ct__tile.ahead_slowly */
} ct__next;

static inline const char *ct__element(const ct__matrix *x, int64_t i, int64_t j) {
    return (const char *)x->data + (i * x->row + j * x->col) * ct__type_size(x->type);
}

/* Where the columns of a chunk of the stage begin. By columns: a thread finds the panels of B that it packed, or prefetched, in
 * its own cache. */
static inline bool ct__by_columns(const ct__plan *p) {
    return p->joint || p->own_copies || p->b_feed == CT__FEED_STAGED;
}
static inline int64_t ct__chunk_column(const ct__product *r, int64_t chunk) {
    return r->j0 + (ct__by_columns(r->p) ? chunk / r->row_chunks : chunk % r->col_chunks) * r->p->chunk_cols;
}
static inline int64_t ct__chunk_row(const ct__product *r, int64_t chunk) {
    return r->i0 + (ct__by_columns(r->p) ? chunk % r->row_chunks : chunk / r->col_chunks) * r->p->chunk_rows;
}

/* In ahead.c: the block of B after the one at column j of a chunk that ends at j1; the columns of B and the rows of A that the chunk's worker will
 * probably pack after those of k [k0, k1); the row panel of A after the tile's, at row i of [i0, i1), where `a` is that of row i0. Of no lines where
 * there is nothing to prefetch. */
ct__next ct__block_after(const ct__product *r, int64_t chunk, int64_t j, int64_t j1);
ct__next ct__columns_after(const ct__product *r, int64_t chunk, int64_t j, int64_t j1, int64_t k0, int64_t k1,
                           bool fresh);
ct__next ct__rows_after(const ct__product *r, int64_t chunk, int64_t k0, int64_t k1);
ct__next ct__next_panel(const ct__product *r, const ct__tile *t, const char *a, int64_t i, int64_t i0, int64_t i1,
                        int64_t k0, int64_t k1, bool more_columns);

#endif
