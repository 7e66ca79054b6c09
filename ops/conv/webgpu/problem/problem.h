/* A convolution y = conv(x, w) for the device, of which the gradients are other views: always three spatial axes, the
 * last innermost. And what the kernels of the three ops are called, for the table in conv.c. */
#ifndef COTANGENT_OPS_CONV_WEBGPU_PROBLEM_H
#define COTANGENT_OPS_CONV_WEBGPU_PROBLEM_H

#include "backends/webgpu/tile.h"

typedef enum ct_wgpu_conv_kind {
    CT_WGPU_CONV_FORWARD,
    CT_WGPU_CONV_INPUT_GRAD,
    CT_WGPU_CONV_WEIGHT_GRAD
} ct_wgpu_conv_kind;

typedef struct ct_wgpu_conv {
    ct_wgpu_conv_kind kind;
    const ct_view *x, *w, *y; /* that of the result may be NULL, if it is not wanted */
    const ct_view *bias;      /* is added to y, or to x where that is the result; NULL: none */
    const ct_view *residual;  /* NULL: none */
    const ct_view *bias_grad;
    int activation;
    bool last;
    int64_t batch, groups, in_each, out_each; /* channels of a group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t x_n, x_c, x_s[3], y_n, y_c, y_s[3], w_o, w_i, w_k[3], r_n, r_c, r_s[3]; /* strides in elements */
    int64_t taps;
} ct_wgpu_conv;

/* Of a call of conv, conv_fused, conv_input_grad or conv_weight_grad. */
ct_wgpu_conv ct_wgpu_conv_of(const ct_call *call);

/* How long a line of the result is to the kernels: a multiple of four, if that is not much more. */
int64_t ct_wgpu_conv_line(int64_t width);

/* The source with zeros around it, as gather_padded.wgsl makes it on drivers that compute on a CPU; no quads: not there, or it would be too
 * large. Lines of the result are then a multiple of four. */
typedef struct ct_wgpu_conv_padding {
    int64_t quads, line, extent[3];
} ct_wgpu_conv_padding;
ct_wgpu_conv_padding ct_wgpu_conv_padding_of(const ct_call *call, const ct_wgpu_conv *c);
/* Enqueues that, into the call's scratch from offset on, a multiple of 16. */
bool ct_wgpu_conv_pad(const ct_call *call, const ct_wgpu_conv *c, size_t offset);

/* gather.wgsl: forward and input gradient by tiles. */
const char *ct_wgpu_conv_gather_can(const ct_call *call);
size_t ct_wgpu_conv_gather_scratch(const ct_call *call);
bool ct_wgpu_conv_gather_run(const ct_call *call, ct_stream *stream);

/* weight.wgsl: the weight gradient by tiles. */
const char *ct_wgpu_conv_weight_can(const ct_call *call);
size_t ct_wgpu_conv_weight_scratch(const ct_call *call);
bool ct_wgpu_conv_weight_run(const ct_call *call, ct_stream *stream);

/* direct.wgsl: element by element, where tiles would be mostly empty. */
const char *ct_wgpu_conv_direct_can(const ct_call *call);
bool ct_wgpu_conv_direct_run(const ct_call *call, ct_stream *stream);
const char *ct_wgpu_conv_direct_weight_can(const ct_call *call);
size_t ct_wgpu_conv_direct_weight_scratch(const ct_call *call);
bool ct_wgpu_conv_direct_weight_run(const ct_call *call, ct_stream *stream);

/* Whether the direct kernels are the better ones. */
bool ct_wgpu_conv_is_thin(const ct_wgpu_conv *p);

#endif
