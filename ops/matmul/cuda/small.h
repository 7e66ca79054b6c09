/* Small f32 products of linear and its gradients: for the host, which of them are small; for both sides, the arguments of the device code. */
#ifndef COTANGENT_OPS_MATMUL_CUDA_SMALL_H
#define COTANGENT_OPS_MATMUL_CUDA_SMALL_H

#include "backends/cuda/view.h"

enum {
    CT_SMALL_THREADS = 256,
    CT_SMALL_STAGE = 2304, /* floats of one operand's chunk in shared memory, at most */
    CT_SMALL_AHEAD = 6,    /* chunks that are on their way */
    CT_SMALL_AHEAD_BY_SLOPE = 4,
    CT_SMALL_SHARED = 12 * CT_SMALL_STAGE * 4 /* bytes: two operands six chunks ahead, or three of them four */
};

/* C (m, n) = A (m, k) B (k, n). An operand lies by k, that is k elements are next to each other and its m or n are `step` apart, or the other
 * way round; which of them, each kernel knows. Tiles of C are 16 x 16 with k divided among warps, or 64 x 64 (large). */
typedef struct ct_small_product {
    const float *a, *b;
    const float *y;    /* where a is a cotangent behind an activation: its results, which lie as a does; else NULL */
    const float *bias; /* (n); NULL: none */
    float *c;          /* (m, n), rows c_step apart */
    float *sums;       /* (m) of A over k, of operands that lie by m; NULL: not wanted */
    int64_t a_step, b_step, c_step;
    int32_t m, n, k;
    int32_t large, tiles, tiles_across;   /* tiles_across: along n */
    int32_t a_packed, b_packed, c_packed; /* rows of four lie at multiples of 16 bytes */
    int32_t activation;                   /* of C, or the one that y is of */
} ct_small_product;

/* Forward: one product. Gradients: dx, then dw, in one launch; either may have no tiles. */
typedef struct ct_linear_small {
    ct_cuda_head head;
    ct_small_product products[2];
} ct_linear_small;

#ifndef __CUDACC__
#include "backends/cuda/product.h"

/* The product as a small one, if it is; a_by_k and b_by_k say how its operands have to lie. y: as a, or NULL. */
bool ct_small_product_of(const ct_call *call, const ct_cuda_product *p, const char *y, bool a_by_k, bool b_by_k,
                         ct_small_product *small);
bool ct_small_forward(const ct_call *call, const ct_small_product *product);
/* Either may be NULL. */
bool ct_small_gradients(const ct_call *call, const ct_small_product *dx, const ct_small_product *dw);
#endif

#endif
