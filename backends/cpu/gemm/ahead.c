/* What a worker will want next of A and B, for its tiles to prefetch while they compute: a guess from the order of chunks, right unless
 * others take them. */
#include "backends/cpu/gemm/run.h"

/* The block that a worker will probably multiply after the one at column j: of this chunk, which ends at j1, of the next one
 * or of the next product. */
ct__next ct__block_after(const ct__product *r, int64_t chunk, int64_t j, int64_t j1) {
    const ct__plan *p = r->p;
    const int64_t size = ct__type_size(r->b.type), here = ct__chunk_column(r, chunk);
    ct__next next = {.at = r->b.data, .row_bytes = r->b.row * size, .rows = p->k};
    if (!p->kernel->prefetches || p->k > p->depth || p->g->pack_b || p->b_feed == CT__FEED_STAGED ||
        p->b_feed == CT__FEED_PACKED || p->own_copies || r->b.col != 1)
        return next;
    j += p->block_cols;
    if (j >= j1) {
        j = chunk + 1 < r->row_chunks * r->col_chunks ? ct__chunk_column(r, chunk + 1) : 0;
        if (j == 0) next.at = r->next_b;
        if (j == here || !next.at) return next;
    }
    next.at += j * size;
    next.lines = ct__ceil_div(ct__min(p->block_cols, p->n - j) * size, 64);
    return next;
}

/* Lines of a matrix, `line` elements apart, and `depth` of k, `k` elements apart: as runs of cache lines, where one of both lies side by side. */
static ct__next lines_to_pack(const char *at, int64_t line, int64_t count, int64_t k, int64_t depth, int64_t size) {
    if (line != 1 && k != 1) return (ct__next){0};
    const int64_t bytes = (line == 1 ? count : depth) * size + (int64_t)((uintptr_t)at % 64);
    return (ct__next){.at = at,
                      .row_bytes = (line == 1 ? k : line) * size,
                      .rows = line == 1 ? depth : count,
                      .lines = ct__ceil_div(bytes, 64),
                      .slowly = true};
}

/* Whether few rows are multiplied with a large B, which is packed by the first row panel: a line of each row at a time, from far away. Low tiles
 * only: there are enough of them in the other row panels. */
static bool passes_large_b(const ct__plan *p) {
    return p->b_feed == CT__FEED_COPIED && p->kernel->rows <= 8 && p->m <= p->kernel->block_rows &&
           p->k * p->n * ct__type_size(p->b.type) > 1 << 22;
}

/* The same for a B that is packed by its worker block by block, transposed, or for all chunks of the same columns: the columns that it
 * will probably pack next. */
ct__next ct__columns_after(const ct__product *r, int64_t chunk, int64_t j, int64_t j1, int64_t k0, int64_t k1,
                           bool fresh) {
    const ct__plan *p = r->p;
    const bool passes = passes_large_b(p);
    const bool packs = passes || p->b_feed == CT__FEED_PRIVATE || (p->own_copies && p->b_feed == CT__FEED_COPIED);
    if (!p->kernel->prefetches || !packs || p->g->pack_b) return (ct__next){0};
    if (!passes && !p->own_copies && r->b.row != 1) return (ct__next){0};
    j += p->block_cols;
    if (j >= j1) {
        j = ct__chunk_column(r, chunk);
        if (k1 < r->k1 && fresh) k0 = k1;
        else if (k1 == r->k1 && chunk + 1 < r->row_chunks * r->col_chunks && ct__chunk_column(r, chunk + 1) != j)
            j = ct__chunk_column(r, chunk + 1), k0 = r->k0;
        else return (ct__next){0};
    }
    return lines_to_pack(ct__element(&r->b, k0, j), r->b.col, ct__min(p->block_cols, r->j1 - j), r->b.row,
                         ct__min(p->depth, r->k1 - k0), ct__type_size(r->b.type));
}

/* And for the rows of A, where it is packed for each chunk anew. */
ct__next ct__rows_after(const ct__product *r, int64_t chunk, int64_t k0, int64_t k1) {
    const ct__plan *p = r->p;
    if (!p->kernel->prefetches || !p->own_copies || p->a_feed != CT__FEED_PRIVATE) return (ct__next){0};
    if (k1 < r->k1) k0 = k1;
    else if (chunk + 1 < r->row_chunks * r->col_chunks) chunk++, k0 = r->k0;
    else return (ct__next){0};
    const int64_t i = ct__chunk_row(r, chunk);
    return lines_to_pack(ct__element(&r->a, i, k0), r->a.row, ct__min(p->chunk_rows, r->i1 - i), r->a.col,
                         ct__min(p->depth, r->k1 - k0), ct__type_size(r->a.type));
}

/* The row panel of an A that is read where it lies, row by row, after the last one of rows [i0, i1) for a k block and a block of
 * columns: that of the next block of the chunk, or of the chunk that its worker will probably compute next. */
static ct__next panel_after(const ct__product *r, int64_t i0, int64_t i1, int64_t k0, int64_t k1, bool more_columns) {
    const ct__plan *p = r->p;
    const int64_t size = ct__type_size(r->a.type);
    int64_t row = i0;
    if (!more_columns && k1 < r->k1) k0 = k1;
    else if (!more_columns) {
        k0 = r->k0;
        if (ct__by_columns(p) || r->col_chunks == 1) row = i1 < r->i1 ? i1 : r->i0;
    }
    return (ct__next){.at = ct__element(&r->a, row, k0),
                      .row_bytes = r->a.row * size,
                      .rows = ct__min(p->tile_rows, r->i1 - row),
                      .lines = ct__ceil_div(ct__min(p->depth, r->k1 - k0) * size, 64)};
}

/* The same for one that was packed in a stage, of the chunk whose rows begin at `a`: again, in its next k block, or of the next chunk. */
static const char *packed_panel_after(const ct__product *r, const ct__tile *t, const char *a, int64_t i1, int64_t k1,
                                      bool more_columns) {
    if (more_columns) return a;
    if (k1 < r->k1) return a + t->k * t->a_step;
    return r->packed_a + (i1 < r->i1 ? (i1 - r->i0) / r->p->chunk_rows * r->p->a_block_bytes : 0);
}

/* The row panel of A that follows the tile's, which begins at row i of rows [i0, i1), in this block, or in the next one. */
ct__next ct__next_panel(const ct__product *r, const ct__tile *t, const char *a, int64_t i, int64_t i0, int64_t i1,
                        int64_t k0, int64_t k1, bool more_columns) {
    const ct__plan *p = r->p;
    const int64_t size = ct__type_size(p->kernel->packed), depth = k1 - k0, next = ct__min(i + p->tile_rows, i1);
    if (p->a_by_lines) { /* the line with the end of the panel, in each k group; its begin is the end of this one */
        const int64_t end = ct__min(next + p->tile_rows, r->i1);
        return (ct__next){.at = ct__element(&r->a, end - 1, k0),
                          .row_bytes = r->a.col * size,
                          .rows = end > next ? depth : 0,
                          .lines = 1};
    }
    if (p->a_feed == CT__FEED_PRIVATE) return (ct__next){0}; /* in L2 */
    if (p->a_feed == CT__FEED_STAGED && p->a_by_k)
        return (ct__next){.at = next < i1 ? (const char *)t->a + p->a_panel_bytes
                                          : packed_panel_after(r, t, a, i1, k1, more_columns),
                          .row_bytes = 64,
                          .rows = ct__ceil_div(t->k * t->a_step, 64),
                          .lines = 1};
    if (t->a_step != p->kernel->group * size || depth * size > 4096) return (ct__next){0};
    if (p->a_feed == CT__FEED_DIRECT && next == i1) return panel_after(r, i0, i1, k0, k1, more_columns);
    return (ct__next){.at = a + (next - i0) * t->a_row,
                      .row_bytes = t->a_row,
                      .rows = ct__min(p->tile_rows, i1 - next),
                      .lines = ct__ceil_div(depth * size, 64)};
}
