/* A product for the device: C = A B over batches, with any strides. */
#ifndef COTANGENT_OPS_MATMUL_CUDA_H
#define COTANGENT_OPS_MATMUL_CUDA_H

#include "backends/cuda/view.h"

enum { CT_CUDA_TILE = 64 };

typedef struct ct_cuda_product {
    ct_cuda_head head;
    const char *a, *b;
    char *c;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col; /* strides in elements */
    int32_t batch_dims;
    int64_t batches; /* in all */
    int64_t batch[CT_CUDA_DIMS], a_batch[CT_CUDA_DIMS], b_batch[CT_CUDA_DIMS], c_batch[CT_CUDA_DIMS];
} ct_cuda_product;

#endif
