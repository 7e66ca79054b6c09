/* Arguments of the device code of max and average pooling and of their gradients, for 1 to 3 axes (always three here, leading ones of size
 * 1), any strides and both layouts: the layout is only the order in which threads go. */
#ifndef COTANGENT_OPS_POOL_CUDA_POOL_H
#define COTANGENT_OPS_POOL_CUDA_POOL_H

#include "backends/cuda/nest.h"

enum {
    CT_POOL_THREADS = 256,
    CT_POOL_ROW = 4,    /* elements of a row of a gradient that a thread makes */
    CT_POOL_COLUMN = 4, /* results of a column of small windows that a thread makes */
};

typedef struct ct_cuda_image {
    int64_t n, c, s[3]; /* strides in elements */
} ct_cuda_image;

typedef struct ct_cuda_pool {
    ct_cuda_head head;
    const char *from; /* x, or g; NULL in max_pool_places */
    char *to;         /* y, or dx; places */
    char *at;         /* winning taps; NULL: not wanted */
    ct_cuda_image from_s, to_s, at_s;
    int32_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    int32_t exclude_pad;
    int32_t at_size; /* bytes of a tap's number: 1, 4 or 8 */
    int32_t packed;  /* every pack of neighbors is aligned */
    int32_t at_packed;
    double divisor; /* of means; 0: the elements that are counted */
    ct_cuda_nest
        results; /* sizes alone: items, channels and three axes, the last in packs; or items, three axes, channels in packs */
    ct_cuda_nest strides; /* sizes alone: those of the windows, to divide by */
} ct_cuda_pool;

#endif
