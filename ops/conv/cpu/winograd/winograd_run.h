/* The Winograd passes as the candidates of conv and its gradients call them, and the core they stand on. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_RUN_H
#define COTANGENT_OPS_CONV_WINOGRAD_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/simd/simd.h"
#include "ops/geometry.h"

/* y = activate(conv(x, w) + bias + residual); adjoint, y = adjoint of conv(., w) applied to x, + bias: the input gradient
 * with the cotangent for x. Axes are depth, height and width. Along height and width kernel / stride is the same 2, 3 or 5,
 * and the kernel has at most WINOGRAD_KERNEL taps; the depth's kernel and stride are any. An axis has a stride or a dilation,
 * not both. Strides in memory are in elements. */
enum {
    WINOGRAD_KERNEL = 25,
    WINOGRAD_AT_ONCE = 64 /* tiles, for which large weights are transformed where they are used */
};
typedef struct winograd_pass {
    int64_t batch, in_channels, out_channels;             /* of x and y */
    int64_t in[3], out[3];                                /* sizes of x and y */
    int64_t kernel[3], stride[3], dilation[3], before[3]; /* of the convolution, adjoint or not */
    bool adjoint;
    const float *x; /* (batch, in_channels, in) */
    ct_image_strides x_step;
    const float *w; /* (out_channels, in_channels, kernel) */
    int64_t w_out, w_in, w_k[3];
    float *y; /* (batch, out_channels, out) */
    ct_image_strides y_step;
    const float *bias; /* (out_channels), or NULL */
    int64_t bias_step;
    float *bias_grad;      /* weight gradient: sums of y, (out_channels), or NULL */
    const float *residual; /* as y, or NULL */
    ct_image_strides residual_step;
    void (*activate)(const void *ctx, void *x, int64_t n); /* or NULL */
    const void *activate_ctx;
} winograd_pass;

size_t CT_ISA_FN(ct__winograd_pass_bytes)(const winograd_pass *pass); /* of scratch */
void CT_ISA_FN(ct__winograd_pass)(const winograd_pass *pass, void *scratch);

/* weight = the gradient of sum(conv(x, w) * y) by w: y is read, and weight has the strides of w. Not the adjoint. */
size_t CT_ISA_FN(ct__winograd_weight_bytes)(const winograd_pass *pass);
void CT_ISA_FN(ct__winograd_weight_pass)(const winograd_pass *pass, float *weight, void *scratch);

#endif
