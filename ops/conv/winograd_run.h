/* The Winograd passes as the candidates of conv and its gradients call them, and the core they stand on. */
#ifndef COTANGENT_OPS_CONV_WINOGRAD_RUN_H
#define COTANGENT_OPS_CONV_WINOGRAD_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/simd/simd.h"
#include "ops/geometry.h"

/* y = activate(conv(x, w) + bias + residual) with windows of 3x3 or 5x5; the input gradient is the same with the cotangent for x, the
 * weights turned round (negative strides) and their channels exchanged. Strides in elements. */
typedef struct winograd_pass {
    int64_t batch, in_channels, out_channels;
    int64_t in[2], out[2]; /* height, width */
    int64_t before[2];     /* output 0 looks at input -before first */
    int64_t dilation[2];
    int kernel;     /* 3 or 5 */
    const float *x; /* (batch, in_channels, in) */
    ct_image_strides x_step;
    const float *w; /* (out_channels, in_channels, kernel, kernel) */
    int64_t w_out, w_in, w_k[2];
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

/* weight = the gradient of sum(conv(x, w) * y) by w: y is read, and weight has the strides of w. */
size_t CT_ISA_FN(ct__winograd_weight_bytes)(const winograd_pass *pass);
void CT_ISA_FN(ct__winograd_weight_pass)(const winograd_pass *pass, float *weight, void *scratch);

#endif
