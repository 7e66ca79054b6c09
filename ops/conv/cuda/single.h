/* Convolutions whose input has one channel, 3x3 and 5x5 with stride 1, and their gradients for the weight: they move the result once, and read
 * the image from the caches, which a product of patches would write out. */
#ifndef COTANGENT_OPS_CONV_CUDA_SINGLE_H
#define COTANGENT_OPS_CONV_CUDA_SINGLE_H

#include "backends/cuda/view.h"

enum {
    CT_SINGLE_THREADS = 256,
    CT_SINGLE_PACK = 4,  /* output channels of a thread where they lie next to each other */
    CT_SINGLE_MERGE = 8, /* threads that add the parts of a sum */
};

/* w [channels, taps] = sum over images and pixels of g x, stride 1; and the bias, the sum of g, as one more tap. */
typedef struct ct_cuda_single {
    ct_cuda_head head;
    const char *x, *g;
    char *w, *bias;                                          /* either may be NULL */
    float *partial;                                          /* (parts, taps + 1, channels) */
    int32_t batch, channels, in[2], out[2], before[2], side; /* side: of the kernel */
    int64_t x_n, x_s[2], g_n, g_c, g_s[2], w_o, w_k[2], bias_stride;
    int32_t lanes; /* threads side by side along channels, a power of two */
    int32_t parts;
    int32_t rows,
        segments; /* channels first: rows of results that a thread takes, and how often they make up an image */
} ct_cuda_single;

/* y = activation(conv(x, w) + bias). */
typedef struct ct_cuda_single_forward {
    ct_cuda_head head;
    const char *x, *w, *bias; /* bias may be NULL */
    char *y;
    int32_t batch, channels, in[2], out[2], before[2], activation;
    int64_t x_n, x_s[2], y_n, y_c, y_s[2], w_o, w_k[2], bias_stride;
    uint32_t items; /* pixels, with channels last times packs, else times groups of channels */
    int32_t each;   /* channels of a group */
} ct_cuda_single_forward;
enum { CT_SINGLE_CHANNELS = 256 }; /* at most, where channels are first: their weights are in shared memory */

#ifndef __CUDACC__
#include <cotangent/backend.h>

const char *ct_cuda_single_can(const ct_call *call); /* of conv */
bool ct_cuda_single_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_single_fused_can(const ct_call *call); /* of conv_fused */
bool ct_cuda_single_fused_run(const ct_call *call, ct_stream *stream);
const char *ct_cuda_single_weight_grad_can(const ct_call *call);
size_t ct_cuda_single_weight_grad_scratch(const ct_call *call);
bool ct_cuda_single_weight_grad_run(const ct_call *call, ct_stream *stream);
#endif

#endif
