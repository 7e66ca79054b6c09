/* Folding the stride of a convolution into its channels. With x'[i, (r, c)] = x[i s + r - before, c] and w'[t, (r, c)] = w[t s + r, c], zero
 * outside, the convolution of stride s is one of stride 1 without padding, whose input has s s C channels: enough for Tensor Cores where an
 * image has three. */
#ifndef COTANGENT_OPS_CONV_CUDA_FOLD_H
#define COTANGENT_OPS_CONV_CUDA_FOLD_H

#include "backends/cuda/view.h"

/* plain [outer, channels, size] with any strides; folded [outer, folded_size, padded], dense. */
typedef struct ct_cuda_conv_fold {
    ct_cuda_head head;
    char *folded, *plain;
    int64_t outer_stride, channel_stride, strides[2]; /* of plain, in elements */
    uint32_t outer, channels, padded;
    uint32_t size[2], folded_size[2], stride[2], before[2];
    uint32_t items; /* folding: packs of 16 bytes of folded; back: elements of plain */
    uint32_t channels_inner;
} ct_cuda_conv_fold;

#endif
