/* Products of strided matrices on WebGPU: c = activation(a b + bias), in batches. product.wgsl says what else they can
 * do. */
#ifndef COTANGENT_BACKENDS_WEBGPU_PRODUCT_H
#define COTANGENT_BACKENDS_WEBGPU_PRODUCT_H

#include "backends/webgpu/tile.h"

/* Strides are in elements, from where the views begin. */
typedef struct ct_wgpu_product {
    const ct_view *a, *b, *c;
    const ct_view *bias;  /* (n); NULL: none */
    const ct_view *y;     /* as a: a is multiplied by the derivative of `slope` where its result is y; NULL: not so */
    const ct_view *extra; /* (m): the sums of a's rows; NULL: not wanted */
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col, y_row, y_col;
    int batch_dims;
    int64_t batch[CT_WGPU_DIMS], a_batch[CT_WGPU_DIMS], b_batch[CT_WGPU_DIMS], c_batch[CT_WGPU_DIMS];
    int64_t batches;
    int activation, slope; /* enum ct_activation */
} ct_wgpu_product;

/* Batches become rows where they follow each other as rows do, and neighbors that walk as one become one. Sets batches.
 * */
void ct_wgpu_product_fold(ct_wgpu_product *p);
/* NULL, or why not: floats, i32 and what is narrower. */
const char *ct_wgpu_product_refuses(const ct_wgpu_product *p);
size_t ct_wgpu_product_scratch(const ct_call *call, const ct_wgpu_product *p);
/* Scratch is the call's, from offset on, a multiple of 16. */
bool ct_wgpu_product_run(const ct_call *call, const ct_wgpu_product *p, size_t offset);

#endif
