/* Arguments of the kernels that choose elements by an index. */
#ifndef COTANGENT_OPS_INDEX_CUDA_GATHER_H
#define COTANGENT_OPS_INDEX_CUDA_GATHER_H

#include "backends/cuda/nest.h"

typedef struct ct_cuda_gather {
    ct_cuda_head head;
    char *to; /* NULL: the indices are only looked at */
    const char *from, *index;
    int64_t along, bound; /* of the axis in from: stride and size */
    int32_t wide;         /* index is i64 */
    int32_t argument;     /* which input index is */
    ct_cuda_nest nest;    /* to, from (0 at the axis), index, and the row-major place in index */
} ct_cuda_gather;

#endif
