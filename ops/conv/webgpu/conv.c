/* The candidates of convolution on WebGPU, in order of preference. The host's side of each is in the folder beside this
 * file. */
#include "ops/conv/webgpu/problem/problem.h"

#include "gen/conv.attrs.h"

#define GATHER \
    { "tiles", ct_wgpu_conv_gather_can, ct_wgpu_conv_gather_scratch, ct_wgpu_conv_gather_run }
#define DIRECT \
    { "direct", ct_wgpu_conv_direct_can, NULL, ct_wgpu_conv_direct_run }

CT_WGPU_KERNELS(conv_conv) = {
    CT_CANDIDATES(conv, GATHER, DIRECT),
    CT_CANDIDATES(conv_fused, GATHER, DIRECT),
    CT_CANDIDATES(conv_input_grad, GATHER, DIRECT),
    CT_CANDIDATES(conv_weight_grad,
                  {"tiles", ct_wgpu_conv_weight_can, ct_wgpu_conv_weight_scratch, ct_wgpu_conv_weight_run},
                  {"direct", ct_wgpu_conv_direct_weight_can, ct_wgpu_conv_direct_weight_scratch,
                   ct_wgpu_conv_direct_weight_run}),
    {0},
};
