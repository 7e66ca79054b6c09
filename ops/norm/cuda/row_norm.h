/* Arguments of row_norm and of its gradients. */
#ifndef COTANGENT_OPS_NORM_CUDA_ROW_NORM_H
#define COTANGENT_OPS_NORM_CUDA_ROW_NORM_H

#include "backends/cuda/row.h"
#include "backends/cuda/view.h"

enum {
    CT_NORM_THREADS = 256, /* of a block that gathers gradients of weight and bias too, */
    CT_NORM_WARPS = 128,   /* and of one in which every row is a warp's */
    CT_NORM_SIDE = 32,     /* columns of a block that sums them, */
    CT_NORM_MOST = 1024,   /* and its threads at most */
};
/* Packs that a thread keeps where it also sums columns, of elements of a size: 16 elements, or 8 of f64; where a row is a
 * warp's 24, or 12. */
#define CT_NORM_PACKS(size)      ((size) == 2 ? 2 : 4)
#define CT_NORM_WARP_PACKS(size) ((size) == 2 ? 3 : 6)

typedef struct ct_cuda_row_norm {
    ct_cuda_head head;
    const char *x, *g;              /* (rows, n) */
    const char *weight, *bias;      /* (n), NULL: 1 and 0 */
    char *y, *dx, *dweight, *dbias; /* NULL where not wanted */
    char *moments;                  /* (rows) of centre, rest and rstd; NULL: nobody needs them */
    char *sums;                     /* (parts, 2, n): of dweight and of dbias */
    int64_t rows, n, parts, chunk;  /* chunk: rows of a part */
    double eps;
    int32_t rms, lanes;
} ct_cuda_row_norm;

#ifndef __CUDACC__
#include <stdbool.h>

/* Parts of the rows, for gradients of weight and bias: two blocks on each multiprocessor of a large device; a constant, since the bits hang
 * on it. */
enum { CT_NORM_PARTS = 264 };

/* How the kernel that makes all gradients divides rows of n elements of `size` bytes. */
typedef struct ct_norm_division {
    bool warps;       /* a row is a warp's, which needs no barrier */
    int lanes, block; /* threads of a row, of a block */
    int64_t parts;    /* blocks at most: as many as run at once on a large device */
} ct_norm_division;
static inline ct_norm_division ct_norm_division_of(int64_t n, int64_t size) {
    const int64_t bytes = n * size;
    ct_norm_division d = {.warps =
                              bytes > 16 * 32 * CT_NORM_PACKS(size) && bytes <= 16 * 32 * CT_NORM_WARP_PACKS(size)};
    d.lanes = d.warps ? 32 : ct_cuda_row_lanes(n, size, CT_NORM_PACKS(size));
    d.block = d.warps ? CT_NORM_WARPS : d.lanes > 32 ? d.lanes : CT_NORM_THREADS;
    d.parts = d.warps ? CT_NORM_PARTS * 3 / 2
                      : CT_NORM_PARTS * CT_NORM_THREADS / (d.block < CT_NORM_THREADS ? d.block : CT_NORM_THREADS);
    return d;
}
/* Whether its threads can keep such rows. */
static inline bool ct_norm_keeps(const ct_norm_division *d, int64_t n, int64_t size) {
    return d->lanes <= CT_NORM_THREADS &&
           n * size <= 16 * (d->warps ? CT_NORM_WARP_PACKS(size) : CT_NORM_PACKS(size)) * d->lanes;
}
#endif

#endif
