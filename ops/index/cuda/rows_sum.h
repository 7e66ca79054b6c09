/* Arguments of the kernels that sum rows into the rows that an index names. */
#ifndef COTANGENT_OPS_INDEX_CUDA_ROWS_SUM_H
#define COTANGENT_OPS_INDEX_CUDA_ROWS_SUM_H

#include "backends/cuda/nest.h"

enum { CT_CUDA_SCAN_THREADS = 1024 };

typedef struct ct_cuda_rows_sum {
    ct_cuda_head head;
    char *to;
    const char *from; /* NULL: zeros */
    const char *src, *index;
    uint32_t *starts;      /* rows + 1: how many indices name each row, then where those of a row begin in order */
    uint32_t *next;        /* rows: where the next one goes */
    uint32_t *order;       /* the places in index, by row */
    int64_t rows, src_row; /* of the result along the axis; stride from one row of src to the next */
    int64_t skip;          /* an index that is left out; -1: none */
    double alpha;
    int32_t wide;     /* index is i64 */
    int32_t dtype;    /* of src and the result */
    int32_t argument; /* which input index is */
    /* Of the kernels that look at the indices: index. Of the sum: to, from, src, and the place along the axis. */
    ct_cuda_nest nest;
} ct_cuda_rows_sum;

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* index_add by atomics, for any call (scatter.c). */
size_t ct_cuda_index_add_scratch(const ct_call *call);
bool ct_cuda_index_add(const ct_call *call, ct_stream *stream);
#endif

#endif
