/* Products C = A B over batches, with any strides, and what may be done with their results on the way to memory. cuBLASLt multiplies where
 * its layouts allow it (backends/cuda/blas.c), else tiles of our own. */
#ifndef COTANGENT_BACKENDS_CUDA_PRODUCT_H
#define COTANGENT_BACKENDS_CUDA_PRODUCT_H

#include "backends/cuda/view.h"

enum { CT_CUDA_PRODUCT_TILE = 64 };

typedef struct ct_cuda_product {
    ct_cuda_head head;
    const char *a, *b;
    char *c;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col; /* strides in elements */
    int32_t batch_dims;
    int32_t wide;       /* C is f32, of halves */
    int32_t activation; /* of floats: C = activation(A B + bias), a ct_activation */
    const char *bias;   /* (n), dense, of the dtype; NULL: none */
    int64_t batches;    /* in all */
    int64_t batch[CT_CUDA_DIMS], a_batch[CT_CUDA_DIMS], b_batch[CT_CUDA_DIMS], c_batch[CT_CUDA_DIMS];
} ct_cuda_product;

#ifndef __CUDACC__
#include "backends/cuda/blas.h"

/* Folds batch dimensions into the rows, where b is the same for all of them and rows follow each other at one distance, joins those
 * that all operands walk as one, and counts those that are left. */
void ct_cuda_product_fold(ct_cuda_product *p);
/* The product as cuBLASLt's, without what is done with the results; false where its layouts do not allow it. */
bool ct_cuda_product_to_blas(const ct_call *call, const ct_cuda_product *p, ct_dtype dtype, ct_cuda_blas_product *blas);
/* By tiles, with bias and activation. */
bool ct_cuda_product_tiles(const ct_call *call, ct_cuda_product *p, ct_dtype dtype);
#endif

#endif
