/* Results beside their destination: a library writes whatever the error word says, and only where strides suit it. A call that changes lasting
 * memory, or whose result has other strides, computes into scratch, and a kernel of ours copies it. */
#ifndef COTANGENT_BACKENDS_CUDA_ASIDE_H
#define COTANGENT_BACKENDS_CUDA_ASIDE_H

#include "backends/cuda/cuda.h"

typedef struct ct_cuda_aside {
    ct_call
        call; /* as the one it was made from, with one result, dense, at the start of scratch, and the rest of scratch */
    ct_view view, *out[1];
    size_t bytes; /* that the result takes, aligned */
} ct_cuda_aside;

/* Its members point into it: it is not to be copied. */
void ct_cuda_aside_begin(const ct_call *call, ct_cuda_aside *aside);
/* Copies the result to where it belongs. */
bool ct_cuda_aside_end(const ct_call *call, const ct_cuda_aside *aside);

#endif
