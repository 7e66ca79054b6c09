/* Arguments of softmax, log_softmax and their gradients. */
#ifndef COTANGENT_OPS_SOFTMAX_CUDA_H
#define COTANGENT_OPS_SOFTMAX_CUDA_H

#include "backends/cuda/nest.h"

enum { CT_SOFTMAX_COLUMN_THREADS = 256, CT_SOFTMAX_SIDE = 32 };

typedef struct ct_cuda_softmax {
    ct_cuda_head head;
    char *out;
    const char *in[2];  /* x; or the cotangent and what is known of the result */
    int64_t n;          /* elements of a line, that far apart: */
    int64_t strides[3]; /* of out and in */
    ct_cuda_nest lines; /* operands: out and in */
    int32_t lanes;      /* rows: threads per line. columns: threads side by side */
} ct_cuda_softmax;

#endif
