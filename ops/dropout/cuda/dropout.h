/* Arguments of dropout at a position of the random stream. */
#ifndef COTANGENT_OPS_DROPOUT_CUDA_H
#define COTANGENT_OPS_DROPOUT_CUDA_H

#include "backends/cuda/nest.h"

typedef struct ct_cuda_dropout {
    ct_cuda_head head;
    char *y;
    const char *x;
    const char *position; /* seed, stream, call; NULL: they are numbers */
    int64_t position_stride;
    int64_t numbers[3];
    int64_t *put; /* where the position goes; NULL: nowhere */
    int64_t put_stride;
    int32_t wide;  /* position is i64 */
    int32_t dense; /* x and y are, from multiples of 16 bytes on */
    uint32_t threshold;
    int32_t none; /* nothing is kept */
    double scale;
    ct_cuda_nest nest; /* operands: y, x */
} ct_cuda_dropout;

#endif
