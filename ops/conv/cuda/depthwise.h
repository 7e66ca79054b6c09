/* Convolutions of each channel by itself: kernels of 3x3 and 5x5, strides 1 and 2, in both layouts. */
#ifndef COTANGENT_OPS_CONV_CUDA_DEPTHWISE_H
#define COTANGENT_OPS_CONV_CUDA_DEPTHWISE_H

#include "backends/cuda/view.h"

enum {
    CT_DEPTHWISE_THREADS = 256,
    CT_DEPTHWISE_QUAD =
        4, /* elements next to each other that a thread takes: along a row, or channels where those are last */
    CT_DEPTHWISE_LANES =
        32 /* the most threads side by side over channels, in the gradient for weights with channels last */
};

/* y = conv(x, w) + bias, or with flipped the gradient for the input, in which x and y change places; both have stride 1 then. */
typedef struct ct_cuda_depthwise {
    ct_cuda_head head;
    const char *x, *w, *bias;
    char *y; /* the result; where the weight is, the gradient of the result is here */
    int32_t channels, in_h, in_w, out_h, out_w, pad_y, pad_x;
    int32_t w_channel, w_tap; /* strides of the weight */
    int64_t batch;
    int32_t flipped;
    int32_t quads;                 /* rows of x and y are whole quads that are aligned, and the window is centred */
    int32_t across;                /* quads of a row, or of channels */
    int32_t down;                  /* runs of rows of an image, or rows of all images */
    int32_t parts, part;           /* of the sums for weights: images in each, or rows of all images */
    char *sums;                    /* parts x channels x (taps + 1), the last that of the bias */
    char *weight_grad, *bias_grad; /* either may be NULL */
    int32_t taps, lanes;
} ct_cuda_depthwise;

#ifndef __CUDACC__
#include <cotangent/backend.h>

const char *ct_cuda_depthwise_can(const ct_call *call);
bool ct_cuda_depthwise_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_depthwise_input_grad_can(const ct_call *call);
bool ct_cuda_depthwise_input_grad_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_depthwise_weight_grad_can(const ct_call *call);
size_t ct_cuda_depthwise_weight_grad_scratch(const ct_call *call);
bool ct_cuda_depthwise_weight_grad_run(const ct_call *call, ct_stream *stream);
#endif

#endif
