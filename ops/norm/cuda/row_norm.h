/* Arguments of row_norm and of its gradients. */
#ifndef COTANGENT_OPS_NORM_CUDA_ROW_NORM_H
#define COTANGENT_OPS_NORM_CUDA_ROW_NORM_H

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

#endif
