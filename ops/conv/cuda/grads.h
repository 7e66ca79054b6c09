/* The cotangent of a convolution's result on its way from channels first to channels last: what its activation lets through, and the sums
 * that are the bias's gradient. */
#ifndef COTANGENT_OPS_CONV_CUDA_GRADS_H
#define COTANGENT_OPS_CONV_CUDA_GRADS_H

#include "backends/cuda/view.h"

enum { CT_CUDA_GRADS_THREADS = 256, CT_CUDA_GRADS_SIDE = 64 }; /* of a square tile of positions and channels */

typedef struct ct_cuda_conv_grads {
    ct_cuda_head head;
    const char *g, *y; /* (images, channels, positions); y NULL: there is no activation */
    char *to;          /* (images, positions, channels) */
    double *sums;      /* (channels, parts); NULL: nobody wants them */
    char *dbias;
    int64_t dbias_stride;
    int64_t channels, positions;
    int64_t channel_tiles, position_tiles, tiles; /* tiles: of positions, of all images */
    int64_t parts, each;                          /* each: tiles that a block takes one after the other */
    int32_t activation, aligned;                  /* aligned: g and y can be read in packs */
} ct_cuda_conv_grads;

#endif
