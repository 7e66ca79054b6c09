/* A row-major walk over the places of a few dimensions, in which up to three operands lie each with strides of its own: how the number of
 * a line, of a result or of a reduced element becomes an offset in memory. */
#ifndef COTANGENT_BACKENDS_CUDA_WALK_H
#define COTANGENT_BACKENDS_CUDA_WALK_H

#include "backends/cuda/view.h"
#ifndef __CUDACC__
#include <cotangent/backend.h>
#endif

enum { CT_CUDA_WALKERS = 3 };

typedef struct ct_cuda_walk {
    int64_t total;
    int32_t ndim; /* at least 1 */
    int32_t wide; /* numbers do not fit 31 bits */
    int64_t dims[CT_CUDA_DIMS];
    int64_t strides[CT_CUDA_WALKERS][CT_CUDA_DIMS]; /* in elements */
    uint32_t factor[CT_CUDA_DIMS],
        shift[CT_CUDA_DIMS]; /* a quotient by dims[d] is (high half of i * factor + i) >> shift */
} ct_cuda_walk;

#ifndef __CUDACC__
/* Of n operands with the same sizes. Dimensions that all of them walk as one become one. */
ct_cuda_walk ct_cuda_walk_of(ct_cuda_view *views, int n);
/* The walk over all dimensions of n views but one; a view that is NULL stays where it is. */
ct_cuda_walk ct_cuda_lines(const ct_view *const *views, int n, int axis);
#endif

#endif
