/* Inside the engine: register tiles, kernel tables and plans. Ops include gemm.h, not this. */
#ifndef CT_BACKENDS_CPU_GEMM_ENGINE_H
#define CT_BACKENDS_CPU_GEMM_ENGINE_H

#include "backends/cpu/gemm/gemm.h"

enum { CT__TILE_ROWS_MAX = 14, CT__TILE_WIDTH_MAX = 32, CT__PREFETCHES_LESS = 8, CT__SLOWLY = 4 };

/* A run of the sum over k, in bytes from the tile's a and b: for operands whose k is not one arithmetic progression,
 * such as the taps of a convolution. */
typedef struct ct__run {
    int64_t a, b;
} ct__run;

/* One register tile's work; strides in bytes. */
typedef struct ct__tile {
    const void *a;
    int64_t a_row, a_step; /* from row to row, from k group to k group */
    const void *b;
    int64_t b_step;
    void *copy; /* copying tiles: where B's panel is packed to */
    void *c;    /* accumulators */
    int64_t c_row;
    int64_t k; /* in groups; of each run, where there are any */
    const ct__run *runs;
    int64_t n_runs;    /* 0: a and b are all there is */
    const void *start; /* i8: what the sums start from (NULL: zero) */
    double alpha;
    const void *bias; /* kernels that say so add it to every row of the result (NULL: none) */
    int cols;         /* valid columns */
    int rows;         /* set for kernels with a block */
    bool accumulate, scale;
    bool far_c; /* C is not in cache: prefetch it at once */
    /* Kernels that say so prefetch what is wanted later (NULL: nothing) evenly during the sum, a line with each k
     * group but perhaps the last CT__PREFETCHES_LESS, each ahead_step bytes further. Spans of so many lines (0: one,
     * and into L1) lie a jump apart, and are prefetched into L2: there are many. Slowly: a line with each four groups, after the lines of a
     * far C, if the sum is long; then ahead_step is 64, and there is a span. */
    bool ahead_slowly;
    const void *ahead;
    int64_t ahead_step, ahead_span, ahead_jump;
} ct__tile;

typedef void (*ct__tile_fn)(const ct__tile *);

/* What the sums are made of. */
typedef enum ct__kind {
    CT__KIND_F32,
    CT__KIND_F64,
    CT__KIND_BF16, /* pairs of bf16, sums in f32; absent: widened to f32 by the packers */
    CT__KIND_I8,   /* groups of 8-bit products, sums in i32; absent: widened to i32 */
    CT__KIND_I32,
    CT__KIND_I64,
    CT__KINDS
} ct__kind;

/* A kernel and its tuning, as data. Depths and widths are in elements. */
typedef struct ct__kernel {
    const char *name;
    const ct__tile_fn (*tiles)[CT__TILE_ROWS_MAX]; /* [(vecs - 1) * 2 + masked][rows - 1] */
    const ct__tile_fn *copying_tiles;              /* [rows - 1], full width, B packed on the way; or NULL */
    /* A kernel in matrix registers has this in place of tiles: any number of rows and columns (ct__tile.rows, cols). A has to be row-major,
     * k groups side by side, and B in panels. It runs between enter and leave, on one thread. */
    ct__tile_fn block;
    void (*enter)(void);
    void (*leave)(void);
    int rows, lanes, vecs;
    int row_step;        /* rows of a tile are a multiple of this, but for the last ones; 0: as they come */
    int group;           /* k elements in one broadcast unit */
    ct_gemm_type packed; /* element type the tile reads */
    ct_gemm_type acc;
    bool unsigned_a; /* the tile wants u8 for A: i8 is shifted by 128 and made good by `start` */
    bool biases;     /* tiles add ct__tile.bias */
    bool prefetches; /* full width tiles do as ct__tile.ahead says */
    int depth;       /* k block: a row tile's A panel near L1 */
    int block_cols;  /* columns of a work block: depth x block_cols of B in L2 */
    int block_rows;  /* rows of a work block, at most */
    int stage_bytes; /* packed between two barriers: A's and B's share of L3 */
    int stage_cols;  /* columns packed between two barriers, at most */
} ct__kernel;

/* A strided matrix as packers see it; strides in elements. */
typedef struct ct__matrix {
    const void *data;
    ct_gemm_type type;
    int64_t row, col;
} ct__matrix;

/* Where a finished panel goes. All matrices are in the caller's orientation; `swapped` says that
 * the panel holds C transposed. */
typedef struct ct__finish {
    const ct_gemm *g;
    ct_gemm_type acc;
    bool swapped;
    bool in_place; /* the panel is C's own memory */
    int64_t batch;
    char *c;
    const char *bias_row, *bias_col, *residual;
} ct__finish;

/* One instruction set: kernels and the helpers compiled for it. */
typedef struct ct_gemm_isa {
    const char *name;
    int level;
    const ct__kernel *kernels[CT__KINDS]; /* NULL: see ct__kind */
    /* For large products in place of those, with the same panels and types; NULL: none. */
    const ct__kernel *blocks[CT__KINDS];

    /* Panels, one after another: columns [0, cols) and rows [0, depth) of src, as pack_b in gemm.h
     * says. */
    void (*pack_b)(const ct__kernel *k, const ct__matrix *src, void *dst, int64_t depth, int64_t cols);
    /* Row-major copy, or, where `panel` is not 0, panels of ld / group rows that are so many bytes apart, k-major in each: row i of a
     * panel at [(p / group) * ld + i * group + p % group]. */
    void (*pack_a)(const ct__kernel *k, const ct__matrix *src, void *dst, int64_t ld, int64_t panel, int64_t rows,
                   int64_t depth);
    /* For unsigned_a kernels: flips the sign bit of packed A; -128 * column sums of a panel. */
    void (*flip)(void *packed, int64_t bytes);
    void (*offsets)(const ct__kernel *k, const void *panel, int64_t depth, int32_t *out);
    /* Epilogue and store of a panel of accumulators, ld elements from row to row. */
    void (*finish)(const ct__finish *f, void *c_panel, int64_t ld, int64_t row0, int64_t rows, int64_t col0,
                   int64_t cols);
    /* y[i] (+)= alpha * sum_p A[i][p] x[p] for i in [0, rows), floating types; y contiguous sums.
     * A contiguous along p, or along i; strides in elements. */
    void (*gemv_dot)(ct_gemm_type type, const void *a, int64_t a_row, const void *x, void *y, int64_t rows, int64_t k,
                     double alpha, bool accumulate);
    void (*gemv_axpy)(ct_gemm_type type, const void *a, int64_t a_col, const void *x, int64_t x_step, void *y,
                      int64_t rows, int64_t k, double alpha, bool accumulate);
} ct_gemm_isa;

extern const ct_gemm_isa ct__gemm_isa_base, ct__gemm_isa_avx2, ct__gemm_isa_avx512, ct__gemm_isa_avx512bf16,
    ct__gemm_isa_avx512amx, ct__gemm_isa_neon, ct__gemm_isa_neonbf16;

/* The one in use. */
extern const ct_gemm_isa *ct__gemm_isa;

static inline int64_t ct__type_size(ct_gemm_type t) {
    static const uint8_t size[CT_GEMM_TYPES] = {4, 8, 2, 2, 1, 1, 2, 4, 8};
    return size[t];
}
static inline int64_t ct__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t ct__round_up(int64_t a, int64_t b) { return ct__ceil_div(a, b) * b; }
static inline int64_t ct__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ct__max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
