/* A convolution y = conv(x, w) for the device, of which the gradients are other views: always three spatial axes, the last innermost. */
#ifndef COTANGENT_OPS_CONV_CUDA_H
#define COTANGENT_OPS_CONV_CUDA_H

#include "backends/cuda/view.h"

enum { CT_CUDA_CONV_TILE = 64 };

typedef struct ct_cuda_conv {
    ct_cuda_head head;
    char *x, *w, *y, *bias; /* bias is added to y, or to x where that is the result; NULL: none */
    int64_t batch, groups, in_each, out_each; /* channels of a group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t x_n, x_c, x_s[3], y_n, y_c, y_s[3], w_o, w_i, w_k[3], bias_stride; /* strides in elements */
    int64_t positions, taps; /* of the result, and of the kernel */
    int32_t parts;           /* of a weight gradient's sum; */
    int64_t part;            /* k values in each; sums of parts lie one after another in scratch */
    char *scratch;
    char *bias_grad;
    int64_t bias_grad_stride;
} ct_cuda_conv;

#endif
