/* Arguments of the kernels that make tensors of nothing. */
#ifndef COTANGENT_OPS_CREATE_CUDA_H
#define COTANGENT_OPS_CREATE_CUDA_H

#include "backends/cuda/nest.h"

/* Element i is start + i * step, in f64 and converted, or in i64. */
typedef struct ct_cuda_create {
    ct_cuda_head head;
    char *to;
    int32_t dtype;
    int32_t packs; /* dense, from a multiple of 16 bytes on */
    int32_t whole; /* the integers count, not the doubles */
    double start, step;
    int64_t whole_start, whole_step;
    ct_cuda_nest nest;
} ct_cuda_create;

#endif
