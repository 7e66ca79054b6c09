/* A plan: how one product will be computed. What is summed in which order (k blocks of `depth`) follows from shape, strides and types alone,
 * and so do all bits of a result, but for which NaN it is where several meet in one sum. Who packs and computes it, and which way round, follows
 * from the number of threads, too. */
#ifndef CT_BACKENDS_CPU_GEMM_PLAN_H
#define CT_BACKENDS_CPU_GEMM_PLAN_H

#include "backends/cpu/gemm/engine.h"

/* How the tiles get an operand. */
typedef enum ct__feed {
    CT__FEED_DIRECT,  /* read where it lies */
    CT__FEED_PRIVATE, /* packed by the worker that uses it */
    CT__FEED_COPIED,  /* the same, by the first row of tiles while it computes (B only) */
    CT__FEED_STAGED,  /* packed by all workers before they compute */
    CT__FEED_PACKED   /* packed by the caller, earlier */
} ct__feed;

typedef struct ct__plan {
    const ct_gemm *g;
    const ct__kernel *kernel;

    /* The product as computed: C^T = B^T A^T when swapped. Strides in elements. */
    bool swapped;
    int64_t m, n, k;
    ct__matrix a, b;
    int64_t c_row, c_col;

    ct__feed a_feed, b_feed;
    bool a_by_k; /* packed A is k-major, in panels of tile_rows */
    /* A chunk's worker packs what it needs for itself, even if others pack the same: of A a k block of the chunk's rows, of B what the
     * stage has of its columns, which it keeps for its next chunk of the same columns. */
    bool own_copies;
    bool a_by_lines; /* a large k-major A is read where it lies; by few threads, k blocks are the outermost loop */
    bool flip_a, offset_b; /* i8 by i8 on an unsigned-by-signed kernel */
    bool c_direct;         /* tiles add into C itself */
    bool tile_bias;        /* tiles add the bias of columns, and there is no other epilogue */
    bool finish;           /* an epilogue or a store remains to be done */
    bool sums;             /* sums of several k blocks wait in scratch; with own_copies, in their worker's */

    int64_t tile_rows;              /* rows of a tile, evened out over m */
    int64_t chunk_rows, chunk_cols; /* the unit of parallel work */
    int64_t block_cols;             /* columns of a chunk computed at a time */
    int64_t depth;                  /* k block */
    int64_t private_depth;          /* the same, no deeper than k: what workers pack at a time */
    int64_t stage_rows, stage_cols, stage_depth;

    int64_t items;    /* products in the batch */
    bool items_apart; /* each product stays on one worker */
    bool joint;       /* chunks of all products are one job */
    int64_t items_in_chunk;

    /* Scratch of one running product, in this order, and its size in bytes. */
    int64_t a_bytes, b_bytes, offsets_bytes, sums_bytes, kept_bytes, worker_bytes, total_bytes;
    int64_t a_ld;          /* elements between rows (or k groups) of packed A */
    int64_t a_panel_bytes; /* from one row panel of packed A to the next, where it is k-major; otherwise 0 */
    int64_t a_block_bytes;
} ct__plan;

/* False: types not supported. */
bool ct__gemm_plan(const ct_gemm *g, ct__plan *plan);
/* The kind of kernel for a triple of types in the current instruction set; NULL: none. */
const ct__kernel *ct__gemm_kernel(ct_gemm_type a, ct_gemm_type b, ct_gemm_type c);
/* The one that computes in matrix registers in its place; itself where there is none, or m, n or k is too small to fill half of one. */
const ct__kernel *ct__gemm_larger_kernel(const ct__kernel *kernel, int64_t m, int64_t n, int64_t k);
void ct__gemm_ready(void); /* chooses an instruction set if nobody has */

/* Runs a planned product (driver.c). */
void ct__gemm_run(const ct__plan *plan, void *scratch);
/* Small products straight from memory (small.c), and products with a vector (vector.c): no scratch. */
bool ct__gemm_is_small(const ct_gemm *g);
void ct__gemm_small(const ct_gemm *g);
bool ct__gemm_is_vector(const ct_gemm *g);
void ct__gemm_vector(const ct_gemm *g);

/* Rows of a tile, evened out over m. */
static inline int64_t ct__even_rows(const ct__kernel *k, int64_t m) {
    const int64_t rows = m > 0 ? ct__ceil_div(m, ct__ceil_div(m, k->rows)) : 1;
    return k->row_step ? ct__round_up(rows, k->row_step) : rows;
}

/* Of which columns a worker keeps B is noted on a line of its own. */
enum { CT__KEPT_LINE = 64 };

/* Scratch of packed B: panels of the whole depth one after another. */
static inline int64_t ct__panel_width(const ct__kernel *k) { return (int64_t)k->lanes * k->vecs; }
static inline int64_t ct__panel_bytes(const ct__kernel *k, int64_t depth) {
    return ct__round_up(depth, k->group) * ct__panel_width(k) * ct__type_size(k->packed);
}
#endif
