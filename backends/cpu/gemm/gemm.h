/* The packed matrix-product engine of the CPU backend: what an op calls.
 * Strides, types, batches, packers and epilogues are data in one struct; blocking, packing,
 * threads and register tiles are the engine's business (engine.h). */
#ifndef CT_BACKENDS_CPU_GEMM_H
#define CT_BACKENDS_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types. Which (a, b, c) triples exist: ct__gemm_supported.
 *   a, b each one of F32, BF16, F16   c one of F32, BF16, F16    sums in f32
 *   F64, F64                          F64                        sums in f64
 *   I8 or U8 by I8                    I32 (exact, wraps)         sums in i32
 *   any mix of integers               any integer                sums wrap in i32, or in i64 as
 *                                                                soon as one of the three is I64
 */
typedef enum ct_gemm_type {
    CT_GEMM_F32,
    CT_GEMM_F64,
    CT_GEMM_BF16,
    CT_GEMM_F16,
    CT_GEMM_I8,
    CT_GEMM_U8,
    CT_GEMM_I16,
    CT_GEMM_I32,
    CT_GEMM_I64,
    CT_GEMM_TYPES
} ct_gemm_type;

enum { CT_GEMM_BATCH_DIMS = 6 };

/* Packers gather an operand that is not a strided matrix, e.g. the patches of a convolution.
 * Each writes elements of the packed type (ct_gemm_geometry.packed), and every element asked for.
 * They are called from worker threads, several at a time, on disjoint destinations. `batch` is the
 * linear batch index, last batch dimension fastest.
 *
 * pack_a: rows [row0, row0 + rows) by columns [k0, k0 + depth) of A, row-major with `ld` elements
 * from row to row: dst[i * ld + p] = A[row0 + i][k0 + p]. `depth` is always inside k.
 *
 * pack_b: one panel of B, rows [k0, k0 + depth), columns [col0, col0 + cols), cols <= width, as
 *     dst[(p / group) * width * group + j * group + p % group] = B[k0 + p][col0 + j]
 * i.e. for group 1 plainly dst[p * width + j]; bf16 has pairs of k side by side (group 2), i8 quads
 * (group 4). The last group's missing k must be written as zero; columns cols..width are not read.
 * k0 is a multiple of group. */
typedef void (*ct_gemm_pack_a)(const void *ctx, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows,
                               int64_t k0, int64_t depth);
typedef void (*ct_gemm_pack_b)(const void *ctx, int64_t batch, void *dst, int64_t k0, int64_t depth, int64_t col0,
                               int64_t cols);

/* In place over n contiguous accumulators (f32, f64, i32 or i64), while they are in cache. */
typedef void (*ct_gemm_activate)(const void *ctx, void *x, int64_t n);

/* Takes a finished block of accumulators, rows `ld` elements apart, instead of the store to C:
 * tile[i * ld + j] is element (row0 + i, col0 + j). Blocks are disjoint and cover C once. */
typedef void (*ct_gemm_store)(const void *ctx, int64_t batch, const void *tile, int64_t ld, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols);

/* C = convert(activate(alpha * A B [+ C] + bias_row[i] + bias_col[j] + residual[i][j])) */
typedef struct ct_gemm {
    int64_t m, n, k;
    ct_gemm_type a_type, b_type, c_type;

    /* Strides count elements, may be zero or negative: A[i][p] is a[i * a_row + p * a_col]. */
    const void *a; /* (m,k) */
    int64_t a_row, a_col;
    const void *b; /* (k,n) */
    int64_t b_row, b_col;
    void *c; /* (m,n); its elements must not overlap */
    int64_t c_row, c_col;

    int batch_dims; /* 0: a single product */
    int64_t batch[CT_GEMM_BATCH_DIMS];
    int64_t a_batch[CT_GEMM_BATCH_DIMS], b_batch[CT_GEMM_BATCH_DIMS], c_batch[CT_GEMM_BATCH_DIMS];

    bool accumulate; /* add to what C holds */
    bool scale;      /* multiply by alpha; floating-point types only */
    double alpha;

    /* Epilogue; NULL: none. Bias of type bias_type, contiguous; residual of c_type. */
    const void *bias_row; /* (m) */
    const void *bias_col; /* (n) */
    ct_gemm_type bias_type;
    int64_t bias_batch[CT_GEMM_BATCH_DIMS];
    const void *residual; /* (m,n) */
    int64_t residual_row, residual_col;
    int64_t residual_batch[CT_GEMM_BATCH_DIMS];
    ct_gemm_activate activate;
    const void *activate_ctx;
    ct_gemm_store store; /* then c and its strides are not looked at, accumulate must be false */
    const void *store_ctx;

    ct_gemm_pack_a pack_a; /* then a and its strides are not looked at; a_type is */
    const void *pack_a_ctx;
    ct_gemm_pack_b pack_b;
    const void *pack_b_ctx;
    const void *packed_b; /* B as ct__gemm_pack_b left it, shared by all batches; b is not read */
} ct_gemm;

/* What a packer must know; depends on the types and on the instruction set in use. */
typedef struct ct_gemm_geometry {
    const char *kernel;  /* e.g. "f32_14x32_avx512" */
    int rows, width;     /* of the register tile; width is that of a B panel */
    int group;           /* k elements side by side in a panel */
    ct_gemm_type packed; /* element type inside panels */
    ct_gemm_type acc;    /* type of the sums, of `activate` and of `store` */
} ct_gemm_geometry;

/* Chooses the instruction set: CT_ISA_LEVEL's numbers (0 base, 1 avx2 or neon, 2 avx512,
 * 3 avx512bf16 or neonbf16, 4 avx512amx), -1 for the best this processor has. Returns the level in use, the highest that
 * is built and supported at or below the one asked for. Not while products run. The first call of
 * anything below does ct__gemm_init(-1) if nobody did. */
int ct__gemm_init(int level);
int ct__gemm_level(void);

bool ct__gemm_supported(ct_gemm_type a, ct_gemm_type b, ct_gemm_type c);
bool ct__gemm_geometry(const ct_gemm *g, ct_gemm_geometry *out);

/* Bytes of scratch that ct__gemm wants, 64-byte aligned; depends on ct__threads(). */
size_t ct__gemm_scratch(const ct_gemm *g);

/* Runs the product. The same bits for any number of threads. False: unsupported types, or wants
 * scratch and got NULL; nothing is written then. */
bool ct__gemm(const ct_gemm *g, void *scratch);

/* B packed once for many products (weights): needs k, n, types, b and strides (no batch) of g.
 * The result is for products with the same k, n, types and instruction set. */
size_t ct__gemm_pack_b_size(const ct_gemm *g);
bool ct__gemm_pack_b(const ct_gemm *g, void *packed);

#endif
