/* Depthwise convolutions on CUDA: which device code takes them, and how the sums for weights are divided. */
#include "ops/conv/cuda/depthwise.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "ops/conv/cuda/conv.h"

#include "gen/conv.attrs.h"

enum {
    BLOCKS = 1056
}; /* for the sums: some on every multiprocessor of a large device; a constant, since the bits hang on it */
enum { FORWARD_FIRST, FORWARD_LAST, WEIGHT_FIRST, WEIGHT_LAST, KINDS };

CT_CUDA_UNIT(conv_depthwise);

#define OF_DTYPES(name)                                                                                               \
    {                                                                                                                 \
        [CT_F32] = CT_CUDA_FUNCTION("depthwise_" name "_f32"), [CT_F16] = CT_CUDA_FUNCTION("depthwise_" name "_f16"), \
        [CT_BF16] = CT_CUDA_FUNCTION("depthwise_" name "_bf16"),                                                      \
    }
#define OF_SIZES(name) \
    { {OF_DTYPES(name "_3_1"), OF_DTYPES(name "_3_2")}, {OF_DTYPES(name "_5_1"), OF_DTYPES(name "_5_2")}, }
static ct_cuda_function functions[KINDS][2][2][CT_BF16 + 1] = {OF_SIZES("forward_first"), OF_SIZES("forward_last"),
                                                               OF_SIZES("weight_first"), OF_SIZES("weight_last")};
static ct_cuda_function totals[CT_BF16 + 1] = OF_DTYPES("total");

/* ---- Which it takes: by shapes and strides; of addresses nothing is known here ---- */

static const char *can(const ct_cuda_conv *p, ct_dtype dtype, const ct_view *const *views, int n, bool last) {
    const int64_t k = p->kernel[2], st = p->stride[2];
    if (p->in_each != 1 || p->out_each != 1) return "more than one channel a group";
    if (dtype != CT_F32 && dtype != CT_F16 && dtype != CT_BF16) return "f32, f16 and bf16 only";
    if (p->in[0] != 1 || p->out[0] != 1 || p->kernel[0] != 1 || p->before[0] != 0) return "two axes only";
    if (p->kernel[1] != k || (k != 3 && k != 5)) return "3x3 and 5x5 only";
    if (p->stride[1] != st || st > 2 || p->dilation[1] != 1 || p->dilation[2] != 1) return "its stride or dilation";
    if (last && p->groups % CT_DEPTHWISE_QUAD) return "the channels are no multiple of 4";
    for (int i = 0; i < n; i++) {
        if (!views[i]) continue;
        const int64_t count = ct_cuda_count(views[i]);
        if (!ct_cuda_is_dense(views[i])) return "strides";
        if (count < 1 || count > INT32_MAX / 2) return "too many or no elements";
    }
    return NULL;
}

static ct_cuda_conv forward_problem(const ct_call *call) {
    const conv_attrs *a = call->attrs;
    return ct_cuda_conv_problem(call->in[0], call->in[1], call->out[0], &a->strides, &a->dilations, &a->pads, a->groups,
                                a->channels_last);
}

const char *ct_cuda_depthwise_can(const ct_call *call) {
    const ct_cuda_conv p = forward_problem(call);
    const ct_view *views[] = {call->in[0], call->in[1], call->in[2], call->out[0]};
    return can(&p, call->in[0]->dtype, views, 4, ((const conv_attrs *)call->attrs)->channels_last);
}

static ct_cuda_conv input_problem(const ct_call *call) {
    const conv_input_grad_attrs *a = call->attrs;
    return ct_cuda_conv_problem(call->out[0], call->in[1], call->in[0], &a->strides, &a->dilations, &a->pads, a->groups,
                                a->channels_last);
}

const char *ct_cuda_depthwise_input_grad_can(const ct_call *call) {
    const ct_cuda_conv p = input_problem(call);
    const ct_view *views[] = {call->in[0], call->in[1], call->in[2], call->out[0]};
    if (p.stride[1] != 1 || p.stride[2] != 1) return "a gradient of stride 1 only";
    return can(&p, call->in[0]->dtype, views, 4, ((const conv_input_grad_attrs *)call->attrs)->channels_last);
}

const char *ct_cuda_depthwise_weight_grad_can(const ct_call *call) {
    const ct_cuda_conv p = ct_cuda_conv_weight_problem(call);
    const ct_view *views[] = {call->in[0], call->in[1], call->out[0], call->n_out > 1 ? call->out[1] : NULL};
    if (!call->out[0]) return "no weight is asked for";
    return can(&p, call->in[0]->dtype, views, 4, ((const conv_weight_grad_attrs *)call->attrs)->channels_last);
}

/* ---- Running ---- */

static bool is_aligned(const void *address, ct_dtype dtype) {
    return (uintptr_t)address % (CT_DEPTHWISE_QUAD * ct_cuda_dtype_size(dtype)) == 0;
}

static ct_cuda_depthwise job_of(const ct_cuda_conv *p, bool last) {
    ct_cuda_depthwise a;
    memset(&a, 0, sizeof a);
    a.x = p->x, a.w = p->w, a.bias = p->bias, a.y = p->y;
    a.batch = p->batch;
    a.channels = (int32_t)p->groups, a.taps = (int32_t)p->taps;
    a.in_h = (int32_t)p->in[1], a.in_w = (int32_t)p->in[2], a.out_h = (int32_t)p->out[1], a.out_w = (int32_t)p->out[2];
    a.pad_y = (int32_t)p->before[1], a.pad_x = (int32_t)p->before[2];
    a.w_channel = last ? 1 : a.taps, a.w_tap = last ? a.channels : 1;
    return a;
}

/* Channels first: runs of rows in quads. Whether those are aligned decides how they are read. */
static void divide_rows(ct_cuda_depthwise *a, const ct_cuda_conv *p, ct_dtype dtype) {
    const bool steps = p->stride[2] == 1;
    a->across = (int32_t)ct_cuda_ceil_div(a->out_w, CT_DEPTHWISE_QUAD);
    a->down = (int32_t)ct_cuda_ceil_div(a->out_h, steps ? 4 : 2);
    a->quads = a->out_w % CT_DEPTHWISE_QUAD == 0 && is_aligned(a->y, dtype) &&
               (!steps || (a->in_w == a->out_w && a->pad_x == p->kernel[2] / 2 && is_aligned(a->x, dtype)));
}

static ct_cuda_function *function_of(int kind, const ct_cuda_conv *p, ct_dtype dtype) {
    return &functions[kind][p->kernel[2] == 5][p->stride[2] == 2][dtype];
}

static bool run(const ct_call *call, const ct_cuda_conv *p, ct_cuda_depthwise *a, bool last) {
    const ct_dtype dtype = call->in[0]->dtype;
    int64_t threads;
    if (last) {
        a->across = a->channels / CT_DEPTHWISE_QUAD;
        threads = (int64_t)a->across * a->out_h * ct_cuda_ceil_div(a->out_w, p->stride[2] == 1 ? 4 : 2) * a->batch;
    } else {
        divide_rows(a, p, dtype);
        threads = a->batch * a->channels * a->across * a->down;
    }
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, threads, CT_DEPTHWISE_THREADS),
                                 .block = CT_DEPTHWISE_THREADS};
    return ct_cuda_launch(call, function_of(last ? FORWARD_LAST : FORWARD_FIRST, p, dtype), shape, a);
}

static bool all_aligned(const ct_cuda_depthwise *a, ct_dtype dtype) {
    return is_aligned(a->x, dtype) && is_aligned(a->w, dtype) && is_aligned(a->y, dtype) && is_aligned(a->bias, dtype);
}

bool ct_cuda_depthwise_run(const ct_call *call, ct_stream *stream) {
    const bool last = ((const conv_attrs *)call->attrs)->channels_last;
    const ct_cuda_conv p = forward_problem(call);
    ct_cuda_depthwise a = job_of(&p, last);
    a.bias = ct_cuda_address_if(call->in[2]);
    if (last && !all_aligned(&a, call->in[0]->dtype)) return ct_cuda_conv_tiles_run(call, stream);
    return run(call, &p, &a, last);
}

/* With stride 1 the gradient is a convolution of the cotangent with the kernel turned round. */
bool ct_cuda_depthwise_input_grad_run(const ct_call *call, ct_stream *stream) {
    const bool last = ((const conv_input_grad_attrs *)call->attrs)->channels_last;
    ct_cuda_conv p = input_problem(call);
    ct_cuda_depthwise a = job_of(&p, last);
    a.bias = ct_cuda_address_if(call->in[2]);
    a.x = p.y, a.y = p.x;
    a.in_h = (int32_t)p.out[1], a.in_w = (int32_t)p.out[2], a.out_h = (int32_t)p.in[1], a.out_w = (int32_t)p.in[2];
    a.pad_y = (int32_t)p.kernel[1] - 1 - a.pad_y, a.pad_x = (int32_t)p.kernel[2] - 1 - a.pad_x;
    a.flipped = 1;
    if (last && !all_aligned(&a, call->in[0]->dtype)) return ct_cuda_conv_input_grad_tiles_run(call, stream);
    return run(call, &p, &a, last);
}

/* Parts of the sum, as many as give enough blocks: of images, or with the channels last of rows. */
static void divide_sums(ct_cuda_depthwise *a, bool last, int *blocks) {
    const int64_t vectors = a->channels / (a->taps == 9 ? 4 : 2);
    int64_t items = a->batch, across = a->channels;
    if (last) {
        a->lanes = 1;
        while (a->lanes < vectors && a->lanes < CT_DEPTHWISE_LANES) a->lanes *= 2;
        across = ct_cuda_ceil_div(vectors, a->lanes);
        items = ct_cuda_ceil_div(a->batch * a->out_h, CT_DEPTHWISE_THREADS / a->lanes);
    }
    int64_t parts = ct_cuda_ceil_div(BLOCKS, across);
    if (parts > items) parts = items;
    a->part = (int32_t)ct_cuda_ceil_div(items, parts);
    a->parts = (int32_t)ct_cuda_ceil_div(items, a->part);
    if (last) a->part *= CT_DEPTHWISE_THREADS / a->lanes;
    *blocks = (int)across;
}

size_t ct_cuda_depthwise_weight_grad_scratch(const ct_call *call) {
    const bool last = ((const conv_weight_grad_attrs *)call->attrs)->channels_last;
    const ct_cuda_conv p = ct_cuda_conv_weight_problem(call);
    ct_cuda_depthwise a = job_of(&p, last);
    int blocks;
    divide_sums(&a, last, &blocks);
    const size_t own = (size_t)a.parts * (size_t)a.channels * (size_t)(a.taps + 1) * sizeof(float),
                 tiles = ct_cuda_conv_weight_grad_tiles_scratch(call); /* where addresses are not aligned */
    return own > tiles ? own : tiles;
}

bool ct_cuda_depthwise_weight_grad_run(const ct_call *call, ct_stream *stream) {
    const bool last = ((const conv_weight_grad_attrs *)call->attrs)->channels_last;
    const ct_dtype dtype = call->in[0]->dtype;
    const ct_cuda_conv p = ct_cuda_conv_weight_problem(call);
    ct_cuda_depthwise a = job_of(&p, last);
    int blocks;
    if (last && !(is_aligned(a.x, dtype) && is_aligned(a.y, dtype)))
        return ct_cuda_conv_weight_grad_tiles_run(call, stream);
    divide_sums(&a, last, &blocks);
    if (!last) divide_rows(&a, &p, dtype);
    a.sums = ct_cuda_scratch(call);
    a.weight_grad = ct_cuda_address(call->out[0]);
    a.bias_grad = call->n_out > 1 ? ct_cuda_address_if(call->out[1]) : NULL;
    const ct_cuda_shape sums = {.grid = (unsigned)blocks, .grid_y = (unsigned)a.parts, .block = CT_DEPTHWISE_THREADS};
    const int64_t threads = 32 * (int64_t)a.channels * (a.taps + 1);
    const ct_cuda_shape total = {.grid = (unsigned)ct_cuda_ceil_div(threads, CT_DEPTHWISE_THREADS),
                                 .block = CT_DEPTHWISE_THREADS};
    return ct_cuda_launch(call, function_of(last ? WEIGHT_LAST : WEIGHT_FIRST, &p, dtype), sums, &a) &&
           ct_cuda_launch(call, &totals[dtype], total, &a);
}

/* Its kernels are candidates of ops that ops/conv/cuda/conv.c lists. */
CT_CUDA_KERNELS(conv_depthwise) = {{0}};
