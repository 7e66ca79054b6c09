/* A nest of loops over up to four strided operands, for kernels in which a thread takes the i-th element of all: sizes, strides, and
 * what divides by the sizes without a division. */
#ifndef COTANGENT_BACKENDS_CUDA_NEST_H
#define COTANGENT_BACKENDS_CUDA_NEST_H

#include "backends/cuda/view.h"

enum { CT_CUDA_NEST_OPERANDS = 4 };

typedef struct ct_cuda_nest {
    int64_t total;
    int32_t ndim;  /* 1 at least */
    int32_t small; /* total is below 2^31: the multipliers serve */
    int64_t sizes[CT_CUDA_DIMS];
    uint32_t multipliers[CT_CUDA_DIMS], shifts[CT_CUDA_DIMS];
    int64_t strides[CT_CUDA_NEST_OPERANDS][CT_CUDA_DIMS]; /* in elements */
} ct_cuda_nest;

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* The nest over all dimensions of n operands of the same sizes; in the lines, over all but one axis, an operand that is NULL stays where
 * it is. */
ct_cuda_nest ct_cuda_nest_of(const ct_cuda_view *views, int n);
ct_cuda_nest ct_cuda_lines(const ct_view *const *views, int n, int axis);

/* Begins an empty nest, of one element. */
void ct_cuda_nest_begin(ct_cuda_nest *nest);
/* A dimension inside of those before it, with the stride of each operand; it joins the one before where all strides allow. */
void ct_cuda_nest_add(ct_cuda_nest *nest, int64_t size, const int64_t strides[CT_CUDA_NEST_OPERANDS]);
void ct_cuda_nest_end(ct_cuda_nest *nest);
#endif

#endif
