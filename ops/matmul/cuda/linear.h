/* Arguments of linear's device code: what products do not do themselves. */
#ifndef COTANGENT_OPS_MATMUL_CUDA_LINEAR_H
#define COTANGENT_OPS_MATMUL_CUDA_LINEAR_H

#include "backends/cuda/nest.h"

/* y = activation(z + bias). z may be y, or f32 where y is a half. */
typedef struct ct_linear_finish {
    ct_cuda_head head;
    const char *z, *bias; /* (rows, n), (n); bias NULL: none */
    char *y;              /* (rows, n) */
    int64_t rows, n, z_row, y_row;
    int32_t activation, packed; /* packed: four neighbors lie aligned, everywhere */
} ct_linear_finish;

/* The cotangent of the activation's argument: g times the derivative at y, dense. */
typedef struct ct_linear_slope {
    ct_cuda_head head;
    const char *g, *y;          /* y NULL: only copies */
    char *out;                  /* dense */
    ct_cuda_nest nest;          /* operands: g, y */
    int32_t activation, packed; /* packed: both are dense and aligned */
} ct_linear_slope;

/* Sums of columns over chunks of rows, as accumulators (chunks, n): block (x, y) takes 32 packs of columns of chunk y. */
typedef struct ct_linear_parts {
    ct_cuda_head head;
    const char *g; /* (rows, n) */
    char *out;
    int64_t rows, n, g_row, chunk;
} ct_linear_parts;

/* Sums of columns. */
typedef struct ct_linear_sums {
    ct_cuda_head head;
    const char *g; /* (rows, n) */
    char *out;     /* (n) */
    int64_t rows, n, g_row, g_col;
    int32_t wide; /* out is f32, of halves */
} ct_linear_sums;

enum { CT_LINEAR_COLUMNS = 32, CT_LINEAR_ROWS = 8 }; /* of a block that sums */

#endif
