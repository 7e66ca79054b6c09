/* A convolution y = conv(x, w) for the device, of which the gradients are other views: always three spatial axes, the last innermost. */
#ifndef COTANGENT_OPS_CONV_CUDA_H
#define COTANGENT_OPS_CONV_CUDA_H

#include "backends/cuda/view.h"

enum { CT_CUDA_CONV_TILE = 64 };

typedef struct ct_cuda_conv {
    ct_cuda_head head;
    char *x, *w, *y, *bias;                   /* bias is added to y, or to x where that is the result; NULL: none */
    int64_t batch, groups, in_each, out_each; /* channels of a group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t x_n, x_c, x_s[3], y_n, y_c, y_s[3], w_o, w_i, w_k[3], bias_stride; /* strides in elements */
    int64_t positions, taps;                                                   /* of the result, and of the kernel */
    int32_t parts;                                                             /* of a weight gradient's sum; */
    int64_t part; /* k values in each; sums of parts lie one after another in scratch */
    char *scratch;
    char *bias_grad;
    int64_t bias_grad_stride;
} ct_cuda_conv;

#ifndef __CUDACC__
#include <cotangent/backend.h>

/* The option of axis i: of a list of one it is that of every axis. */
static inline int64_t ct_cuda_conv_listed(const ct_dims *list, int i, int64_t normal) {
    return list->n == 0 ? normal : list->d[list->n == 1 ? 0 : i];
}

/* The geometry, from views of the image x, the result y and the weight w; infer has checked it. */
ct_cuda_conv ct_cuda_conv_problem(const ct_view *x, const ct_view *w, const ct_view *y, const ct_dims *strides,
                                  const ct_dims *dilations, const ct_dims *pads, int64_t groups, bool last);
ct_cuda_conv ct_cuda_conv_weight_problem(const ct_call *call); /* of a call of conv_weight_grad */

/* The kernels of our own, which take what cuDNN does not. */
bool ct_cuda_conv_forward(const ct_call *call, const ct_view *x, const ct_view *w, const ct_view *bias,
                          const ct_view *y, const ct_dims *strides, const ct_dims *dilations, const ct_dims *pads,
                          int64_t groups, bool last);
bool ct_cuda_conv_tiles_run(const ct_call *call, ct_stream *stream);
bool ct_cuda_conv_input_grad_tiles_run(const ct_call *call, ct_stream *stream);
size_t ct_cuda_conv_weight_grad_tiles_scratch(const ct_call *call);
bool ct_cuda_conv_weight_grad_tiles_run(const ct_call *call, ct_stream *stream);
#endif

#endif
