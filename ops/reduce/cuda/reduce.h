/* Arguments of the reductions' device code. A reduction is either one of rows, whose threads go along what is reduced, or one of columns,
 * whose threads stand side by side at results. Where there are too few results for the device each is made in parts, which a second
 * kernel merges. How the work is divided depends on sizes alone, so the bits do as well. */
#ifndef COTANGENT_OPS_REDUCE_CUDA_H
#define COTANGENT_OPS_REDUCE_CUDA_H

#include "backends/cuda/nest.h"

enum { CT_REDUCE_THREADS = 256 };

typedef struct ct_cuda_reduce {
    ct_cuda_head head;
    const char *x;
    char *out;
    char *partial;        /* (kept.total, parts) accumulators; NULL where parts is 1 */
    ct_cuda_nest kept;    /* operands: x, out */
    ct_cuda_nest reduced; /* x */
    int64_t parts, chunk; /* of `chunk` reduced elements each, a multiple of those in a pack */
    int32_t lanes;        /* rows: threads per row, a power of two. columns: threads side by side */
    int32_t packed;       /* every pack of neighbors is aligned */
} ct_cuda_reduce;

#endif
