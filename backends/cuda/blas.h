/* Products by cuBLASLt, which is opened at run time and may be missing. */
#ifndef COTANGENT_BACKENDS_CUDA_BLAS_H
#define COTANGENT_BACKENDS_CUDA_BLAS_H

#include "backends/cuda/cuda.h"

enum { CT_CUDA_BLAS_WORKSPACE = 32 << 20 };

/* C [m,n] = A [m,k] B [k,n]. C's rows are dense; those of A and B are, or where transposed their columns. Leading is from one to the
 * next, in elements. */
typedef struct ct_cuda_blas_product {
    ct_dtype dtype;
    const char *a, *b;
    char *c;
    int64_t m, n, k;
    bool a_transposed, b_transposed, tf32;
    int64_t a_leading, b_leading, c_leading;
    int64_t batches, a_batch, b_batch, c_batch;
} ct_cuda_blas_product;

bool ct_cuda_blas_there(void);
/* The call's scratch is the workspace. *refused: the library has no way to do it, and nothing was done. */
bool ct_cuda_blas_multiply(const ct_call *call, const ct_cuda_blas_product *product, bool *refused);

#endif
