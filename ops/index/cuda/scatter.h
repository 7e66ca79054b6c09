/* Arguments of the kernels that send elements to places by an index. Elements of index that differ in any coordinate besides the axis go to
 * different places; those coordinates are the lanes. */
#ifndef COTANGENT_OPS_INDEX_CUDA_SCATTER_H
#define COTANGENT_OPS_INDEX_CUDA_SCATTER_H

#include "backends/cuda/nest.h"

/* One element of index by a thread, or one lane. */
typedef struct ct_cuda_scatter {
    ct_cuda_head head;
    const char *index, *src;
    char *out;                                        /* of scatter */
    uint64_t *sums;                                   /* scratch, by the row-major place in the result */
    uint32_t *exponents;                              /* scratch, the same */
    int64_t along, bound;                             /* of the axis in operand 0: stride and size */
    int64_t out_along;                                /* in out */
    int64_t length, index_axis, src_axis, place_axis; /* of a lane; only kernels that take lanes read it */
    int64_t places;                                   /* of the result: from one limb of a sum to the next */
    double alpha;
    int32_t wide;   /* index is i64 */
    int32_t dtype;  /* of src and the result */
    int32_t fold;   /* a ct_scatter_fold */
    int32_t growth; /* bits that a sum can be longer than what is added */
    /* where it goes, index, src, and the row-major place in index; for the second pass of scatter the place in out */
    ct_cuda_nest nest;
} ct_cuda_scatter;

/* The result, element by element: before anything is sent, and after. */
typedef struct ct_cuda_scattered {
    ct_cuda_head head;
    char *to;
    const char *from;
    uint64_t *sums;
    uint32_t *exponents;
    int32_t dtype, fold, growth;
    ct_cuda_nest nest; /* to, from */
} ct_cuda_scattered;

#endif
