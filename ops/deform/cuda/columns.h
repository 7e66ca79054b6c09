/* Columns of deformable convolutions on CUDA, and their gradients. All tensors are dense, channels first. */
#ifndef COTANGENT_OPS_DEFORM_CUDA_COLUMNS_H
#define COTANGENT_OPS_DEFORM_CUDA_COLUMNS_H

#include "backends/cuda/view.h"

enum {
    CT_DEFORM_THREADS = 256,
    CT_DEFORM_CHANNELS = 16, /* that a thread takes for one place of a tap */
    CT_DEFORM_LIMBS = 3,
    CT_DEFORM_LEAST_BITS = 10 /* of a limb: enough for what an f32 sum would keep */
};

typedef struct ct_cuda_deform {
    ct_cuda_head head;
    const char *x, *offset, *mask; /* mask may be NULL */
    char *columns;                 /* the result, or its gradient */
    char *dx, *doffset, *dmask;    /* the last two may be NULL */
    char *sums;                    /* of dx, in limbs that lie one after another (exact.cuh) */
    uint32_t *exponents;           /* the largest of a plane */
    int32_t batch, channels, height, width, out_h, out_w, kernel_h, kernel_w;
    int32_t stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
    int32_t offset_groups;
    int32_t growth; /* bits that a sum can be longer than what is added */
    int32_t bits;   /* of a limb, of which a plane's sums in shared memory have CT_DEFORM_LIMBS */
} ct_cuda_deform;

#endif
