/* Products by cuBLASLt, which is opened at run time and may be missing. */
#ifndef COTANGENT_BACKENDS_CUDA_BLAS_H
#define COTANGENT_BACKENDS_CUDA_BLAS_H

#include "backends/cuda/cuda.h"

/* What is done with the results while they are in registers. */
typedef enum ct_cuda_epilogue {
    CT_CUDA_PLAIN,
    CT_CUDA_BIAS,      /* C's rows + bias (n) */
    CT_CUDA_RELU,      /* max(C, 0) */
    CT_CUDA_BIAS_RELU, /* max(C + bias, 0) */
    CT_CUDA_BIAS_GRADIENT, /* bias (m) becomes the sums of A's rows: where C is the gradient of weights, x' g, that of the bias */
} ct_cuda_epilogue;

/* C [m,n] = A [m,k] B [k,n]. C's rows are dense; those of A and B are, or where transposed their columns. Leading is from one to the
 * next, in elements. */
typedef struct ct_cuda_blas_product {
    ct_dtype dtype, c_dtype; /* of A and B; of C, which may be f32 where they are halves */
    ct_cuda_epilogue epilogue;
    bool a_transposed, b_transposed, tf32;
    const char *a, *b;
    char *c, *bias; /* bias is of C's dtype, dense */
    int64_t m, n, k;
    int64_t a_leading, b_leading, c_leading;
    int64_t batches, a_batch, b_batch, c_batch;
} ct_cuda_blas_product;

bool ct_cuda_blas_there(void);
/* Whether the library has a way to do it, and how many bytes of workspace that needs. */
bool ct_cuda_blas_takes(const ct_call *call, const ct_cuda_blas_product *product, size_t *workspace);
/* Enqueues it. *refused: the library has no way to do it with that much room, and nothing was done. Large products try several
 * algorithms at their first use (ct_cuda_tune). */
bool ct_cuda_blas_multiply(const ct_call *call, const ct_cuda_blas_product *product, void *workspace, size_t room,
                           bool *refused);

#endif
