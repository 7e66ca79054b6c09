/* Convolutions on CUDA by tiles of our own: any strides, layout, groups, dilation and padding. */
#include "ops/conv/cuda/conv.h"

#include "backends/cuda/cuda.h"
#include "ops/conv/cuda/depthwise.h"
#include "ops/conv/cuda/dnn.h"
#include "ops/conv/cuda/single.h"

#include "gen/conv.attrs.h"

CT_CUDA_UNIT(conv_conv);

enum { FORWARD, INPUT_GRAD, WEIGHT_PARTS, WEIGHT_SUM, BIAS_SUM, KINDS };
#define FUNCTIONS(kind)                                                                       \
    {                                                                                         \
        [CT_F32] = CT_CUDA_FUNCTION(kind "_f32"), [CT_F64] = CT_CUDA_FUNCTION(kind "_f64"),   \
        [CT_F16] = CT_CUDA_FUNCTION(kind "_f16"), [CT_BF16] = CT_CUDA_FUNCTION(kind "_bf16"), \
    }
static ct_cuda_function functions[KINDS][CT_BF16 + 1] = {FUNCTIONS("forward"), FUNCTIONS("input_grad"),
                                                         FUNCTIONS("weight_parts"), FUNCTIONS("weight_sum"),
                                                         FUNCTIONS("bias_sum")};

/* The geometry, from views of the image x, the result y and the weight w; infer has checked it. */
ct_cuda_conv ct_cuda_conv_problem(const ct_view *x, const ct_view *w, const ct_view *y, const ct_dims *strides,
                                  const ct_dims *dilations, const ct_dims *pads, int64_t groups, bool last) {
    const int rank = x->ndim - 2, spatial = last ? 1 : 2, channel = last ? x->ndim - 1 : 1, tap = last ? 0 : 2;
    ct_cuda_conv p = {.x = ct_cuda_address(x),
                      .w = ct_cuda_address(w),
                      .y = ct_cuda_address(y),
                      .batch = x->dims[0],
                      .groups = groups,
                      .taps = 1};
    p.in_each = x->dims[channel] / groups;
    p.out_each = y->dims[channel] / groups;
    p.x_n = x->strides[0], p.x_c = x->strides[channel];
    p.y_n = y->strides[0], p.y_c = y->strides[channel];
    p.w_o = w->strides[last ? rank + 1 : 0], p.w_i = w->strides[last ? rank : 1];
    for (int d = 0; d < 3; d++) {
        const int i = d - (3 - rank);
        p.in[d] = p.out[d] = p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
        if (i < 0) continue;
        p.in[d] = x->dims[spatial + i], p.out[d] = y->dims[spatial + i], p.kernel[d] = w->dims[tap + i];
        p.stride[d] = ct_cuda_conv_listed(strides, i, 1), p.dilation[d] = ct_cuda_conv_listed(dilations, i, 1);
        p.before[d] = pads->n == 2 * rank ? pads->d[2 * i] : ct_cuda_conv_listed(pads, i, 0);
        p.x_s[d] = x->strides[spatial + i], p.y_s[d] = y->strides[spatial + i], p.w_k[d] = w->strides[tap + i];
        p.taps *= p.kernel[d];
        if (p.out[d] <= 1) p.stride[d] = 1; /* of one window it says nothing */
    }
    return p;
}

static int64_t tiles_of(int64_t m, int64_t n) {
    return (m + CT_CUDA_CONV_TILE - 1) / CT_CUDA_CONV_TILE * ((n + CT_CUDA_CONV_TILE - 1) / CT_CUDA_CONV_TILE);
}

static bool launch(const ct_call *call, int kind, int64_t blocks, ct_cuda_conv *p) {
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, blocks * 256, 256), .block = 256};
    return ct_cuda_launch(call, &functions[kind][call->in[0]->dtype], shape, p);
}

static void set_bias(ct_cuda_conv *p, const ct_view *bias) {
    if (!bias) return;
    p->bias = ct_cuda_address(bias);
    p->bias_stride = bias->strides[0];
}

static const char *can(const ct_call *call) {
    return call->in[0]->dtype <= CT_BF16 ? NULL : "there are convolutions of floats only";
}

bool ct_cuda_conv_forward(const ct_call *call, const ct_view *x, const ct_view *w, const ct_view *bias,
                          const ct_view *y, const ct_dims *strides, const ct_dims *dilations, const ct_dims *pads,
                          int64_t groups, bool last) {
    ct_cuda_conv p = ct_cuda_conv_problem(x, w, y, strides, dilations, pads, groups, last);
    set_bias(&p, bias);
    p.positions = p.out[0] * p.out[1] * p.out[2];
    const int64_t tiles = tiles_of(p.batch * p.positions, p.out_each) * p.groups;
    return tiles == 0 || launch(call, FORWARD, tiles, &p);
}

bool ct_cuda_conv_tiles_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_attrs *a = call->attrs;
    return ct_cuda_conv_forward(call, call->in[0], call->in[1], call->in[2], call->out[0], &a->strides, &a->dilations,
                                &a->pads, a->groups, a->channels_last);
}

bool ct_cuda_conv_input_grad_tiles_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_input_grad_attrs *a = call->attrs;
    ct_cuda_conv p = ct_cuda_conv_problem(call->out[0], call->in[1], call->in[0], &a->strides, &a->dilations, &a->pads,
                                          a->groups, a->channels_last);
    set_bias(&p, call->in[2]);
    p.positions = p.in[0] * p.in[1] * p.in[2];
    const int64_t tiles = tiles_of(p.batch * p.positions, p.in_each) * p.groups;
    return tiles == 0 || launch(call, INPUT_GRAD, tiles, &p);
}

/* ---- Weights: the sum over images and positions is cut into parts that depend on the shapes alone ---- */

enum { PART_LEAST = 512, PARTS_MOST = 64, BLOCKS_WANTED = 528 };

/* The weight may not be asked for: then its place in the geometry is made up from the kernel's size. */
ct_cuda_conv ct_cuda_conv_weight_problem(const ct_call *call) {
    const conv_weight_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[0], *g = call->in[1];
    const bool last = a->channels_last;
    const int rank = x->ndim - 2;
    ct_view made = {.buffer = NULL, .dtype = x->dtype, .ndim = x->ndim};
    for (int i = 0; i < rank; i++) made.dims[(last ? 0 : 2) + i] = a->kernel.d[i];
    ct_cuda_conv p = ct_cuda_conv_problem(x, call->out[0] ? call->out[0] : &made, g, &a->strides, &a->dilations,
                                          &a->pads, a->groups, last);
    p.positions = p.out[0] * p.out[1] * p.out[2];
    const int64_t all = p.batch * p.positions, tiles = tiles_of(p.out_each, p.in_each * p.taps) * p.groups;
    int64_t parts = tiles ? BLOCKS_WANTED / tiles : 1;
    if (parts > (all + PART_LEAST - 1) / PART_LEAST) parts = (all + PART_LEAST - 1) / PART_LEAST;
    p.parts = (int32_t)(parts < 1 ? 1 : parts > PARTS_MOST ? PARTS_MOST : parts);
    p.part = (all + p.parts - 1) / p.parts;
    if (p.part < 1) p.part = 1;
    return p;
}

size_t ct_cuda_conv_weight_grad_tiles_scratch(const ct_call *call) {
    const ct_cuda_conv p = ct_cuda_conv_weight_problem(call);
    const size_t sum = call->in[0]->dtype == CT_F64 ? 8 : 4;
    return call->out[0] ? (size_t)(p.parts * p.groups * p.out_each * p.in_each * p.taps) * sum : 0;
}

bool ct_cuda_conv_weight_grad_tiles_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_conv p = ct_cuda_conv_weight_problem(call);
    const int64_t weights = p.groups * p.out_each * p.in_each * p.taps;
    p.scratch = ct_cuda_scratch(call);
    if (call->out[0] && weights) {
        const int64_t tiles = tiles_of(p.out_each, p.in_each * p.taps) * p.groups;
        if (!launch(call, WEIGHT_PARTS, tiles * p.parts, &p) || !launch(call, WEIGHT_SUM, (weights + 255) / 256, &p))
            return false;
    }
    if (call->n_out < 2 || !call->out[1] || !p.groups || !p.out_each) return true;
    p.bias_grad = ct_cuda_address(call->out[1]);
    p.bias_grad_stride = call->out[1]->strides[0];
    return launch(call, BIAS_SUM, p.groups * p.out_each, &p);
}

/* What cuDNN does not take goes to the tiles. */
CT_CUDA_KERNELS(conv_conv) = {
    CT_CANDIDATES(conv, {"depthwise", ct_cuda_depthwise_can, NULL, ct_cuda_depthwise_run},
                  {"single", ct_cuda_single_can, NULL, ct_cuda_single_run},
                  {"cudnn", ct_cuda_conv_dnn_can, ct_cuda_conv_dnn_scratch, ct_cuda_conv_dnn_run},
                  {"tiles", can, NULL, ct_cuda_conv_tiles_run}),
    CT_CANDIDATES(conv_input_grad,
                  {"depthwise", ct_cuda_depthwise_input_grad_can, NULL, ct_cuda_depthwise_input_grad_run},
                  {"cudnn", ct_cuda_conv_input_grad_dnn_can, ct_cuda_conv_input_grad_dnn_scratch,
                   ct_cuda_conv_input_grad_dnn_run},
                  {"tiles", can, NULL, ct_cuda_conv_input_grad_tiles_run}),
    CT_CANDIDATES(conv_weight_grad,
                  {"depthwise", ct_cuda_depthwise_weight_grad_can, ct_cuda_depthwise_weight_grad_scratch,
                   ct_cuda_depthwise_weight_grad_run},
                  {"single", ct_cuda_single_weight_grad_can, ct_cuda_single_weight_grad_scratch,
                   ct_cuda_single_weight_grad_run},
                  {"cudnn", ct_cuda_conv_weight_grad_dnn_can, ct_cuda_conv_weight_grad_dnn_scratch,
                   ct_cuda_conv_weight_grad_dnn_run},
                  {"tiles", can, ct_cuda_conv_weight_grad_tiles_scratch, ct_cuda_conv_weight_grad_tiles_run}),
    {0},
};
