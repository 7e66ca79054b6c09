/* Arguments of check_range. */
#ifndef COTANGENT_OPS_CHECK_CUDA_H
#define COTANGENT_OPS_CHECK_CUDA_H

#include "backends/cuda/nest.h"

typedef struct ct_cuda_check {
    ct_cuda_head head;
    const char *from;
    int32_t dtype;
    int32_t places; /* the error names the element */
    double low, high;
    uint64_t of;        /* the op that the error is of: an address of the host's */
    ct_cuda_word wrong; /* what an error says but for the value and its position */
    ct_cuda_nest nest;
} ct_cuda_check;

#endif
