/* Arguments of the kernel that makes random words. */
#ifndef COTANGENT_OPS_RANDOM_CUDA_WORDS_H
#define COTANGENT_OPS_RANDOM_CUDA_WORDS_H

#include "backends/cuda/nest.h"

typedef struct ct_cuda_words {
    ct_cuda_head head;
    int64_t *to;
    const char *position; /* seed, stream, call */
    int64_t position_stride;
    int32_t wide;  /* position is i64 */
    int32_t dense; /* to is, from a multiple of 16 bytes on */
    ct_cuda_nest nest;
} ct_cuda_words;

#endif
