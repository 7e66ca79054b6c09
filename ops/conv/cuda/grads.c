/* The gradients of a convolution with channels first on Tensor Cores, in one of three ways, chosen by measuring. cuDNN wants channels last: the
 * cotangent is brought there once, times the activation's derivative and with the bias's gradient summed on the way, and both convolutions
 * read it as it then lies. Kernels of our own (ops/conv/cuda/cores.h) read it as it lies, and have the activation in their own pass: that
 * of the weight's gradient beside cuDNN's for the input, or both. */
#include "ops/conv/cuda/grads.h"

#include "backends/cuda/branch.h"
#include "backends/cuda/tune.h"
#include "ops/conv/cuda/conv.h"
#include "ops/conv/cuda/cores.h"
#include "ops/conv/cuda/dnn.h"
#include "ops/conv/cuda/dnn/plan.h"

#include "gen/conv.attrs.h"

#ifndef CT_CUDA_DNN
CT_CUDA_KERNELS(conv_grads) = {{0}};
#else

#include <string.h>

CT_CUDA_UNIT(conv_grads);

/* The calls of the two convolutions that it consists of. */
typedef struct halves {
    ct_call input, weight;
    conv_input_grad_attrs input_attrs;
    conv_weight_grad_attrs weight_attrs;
    ct_view g; /* the cotangent with channels last */
    const ct_view *input_in[3], *weight_in[2];
    ct_view *input_out[1], *weight_out[1];
} halves;

/* cotangent: memory for it; behind it, from byte `used` of the call's scratch on, is that of the two. */
static void divide(const ct_call *call, char *cotangent, size_t used, halves *h) {
    static _Atomic(const ct_op *) input_op, weight_op;
    const conv_fused_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[2], *w = call->in[3];
    if (!input_op) input_op = ct_cuda_host->op_find(CT_OP_NAME_conv_input_grad);
    if (!weight_op) weight_op = ct_cuda_host->op_find(CT_OP_NAME_conv_weight_grad);
    memset(h, 0, sizeof *h);
#define SAME .strides = a->strides, .dilations = a->dilations, .pads = a->pads, .groups = a->groups, .exact = a->exact
    h->input_attrs = (conv_input_grad_attrs){SAME};
    h->weight_attrs = (conv_weight_grad_attrs){SAME};
#undef SAME
    h->input_attrs.size.n = h->weight_attrs.kernel.n = x->ndim - 2;
    for (int i = 0; i < x->ndim - 2; i++)
        h->input_attrs.size.d[i] = x->dims[2 + i], h->weight_attrs.kernel.d[i] = w->dims[2 + i];
    h->g = ct_conv_packed_at(call->in[0], true, cotangent);
    h->input_in[0] = h->weight_in[1] = &h->g;
    h->input_in[1] = w, h->weight_in[0] = x;
    h->input_out[0] = call->out[0], h->weight_out[0] = call->out[1];
    h->input = h->weight = *call;
    h->input.op = input_op, h->input.attrs = &h->input_attrs;
    h->input.in = h->input_in, h->input.n_in = 3, h->input.out = h->input_out, h->input.n_out = 1;
    h->weight.op = weight_op, h->weight.attrs = &h->weight_attrs;
    h->weight.in = h->weight_in, h->weight.n_in = 2, h->weight.out = h->weight_out, h->weight.n_out = 1;
    ct_call *both[] = {&h->input, &h->weight};
    for (int i = 0; i < 2 && call->scratch.bytes >= used; i++)
        both[i]->scratch.offset += used, both[i]->scratch.bytes -= used;
}

/* How the pass over the cotangent is divided, by sizes alone: the bits of the sums hang on it. */
static ct_cuda_conv_grads pass_of(const ct_call *call) {
    enum { BLOCKS = 2048, MOST = 16 };
    const ct_view *g = call->in[0];
    ct_cuda_conv_grads p;
    memset(&p, 0, sizeof p);
    p.channels = g->dims[1];
    p.positions = 1;
    for (int d = 2; d < g->ndim; d++) p.positions *= g->dims[d];
    p.channel_tiles = ct_cuda_ceil_div(p.channels, CT_CUDA_GRADS_SIDE);
    p.position_tiles = ct_cuda_ceil_div(p.positions, CT_CUDA_GRADS_SIDE);
    p.tiles = g->dims[0] * p.position_tiles;
    p.each = p.tiles * p.channel_tiles / BLOCKS;
    p.each = p.each < 1 ? 1 : p.each > MOST ? MOST : p.each;
    p.parts = ct_cuda_ceil_div(p.tiles, p.each);
    p.activation = ((const conv_fused_grad_attrs *)call->attrs)->activation;
    return p;
}

static size_t aligned(size_t bytes) { return (bytes + CT_CUDA_ALIGNMENT - 1) / CT_CUDA_ALIGNMENT * CT_CUDA_ALIGNMENT; }
static size_t cotangent_bytes(const ct_call *call) {
    return aligned((size_t)ct_cuda_count(call->in[0]) * ct_cuda_dtype_size(call->in[0]->dtype));
}
static bool wants_bias(const ct_call *call) { return call->n_out > 2 && call->out[2]; }
static size_t sums_bytes(const ct_call *call, const ct_cuda_conv_grads *p) {
    return wants_bias(call) ? aligned((size_t)(p->channels * p->parts) * sizeof(double)) : 0;
}

static const char *can(const ct_call *call) {
    const conv_fused_grad_attrs *a = call->attrs;
    const ct_view *g = call->in[0], *y = call->in[1];
    const bool half = ct_conv_is_half(g->dtype);
    const char *missing = ct_cuda_dnn_missing();
    if (missing) return missing;
    if (a->channels_last || a->groups != 1) return "its cotangent is read as it lies";
    if (g->ndim != 4) return "only images of two dimensions were measured to gain by it";
    if (!call->out[0] || !call->out[1]) return "one gradient alone is asked for";
    if (!half && !(g->dtype == CT_F32 && ct_cuda_tf32(call))) return "Tensor Cores do not take it";
    if (half && a->activation > CT_ACT_RELU) return "its cotangent would be rounded on the way";
    const ct_cuda_conv_grads p = pass_of(call);
    const int64_t pack = 16 / (int64_t)ct_cuda_dtype_size(g->dtype);
    if (p.channels % pack || p.positions % pack) return "channels or positions are not whole packs";
    if (!ct_cuda_is_dense(g) || (y && !ct_cuda_is_dense(y))) return "its cotangent is not dense";
    halves h;
    divide(call, ct_cuda_address(g), 0, &h);
    const char *why = ct_cuda_conv_input_grad_dnn_can(&h.input);
    return why ? why : ct_cuda_conv_weight_grad_dnn_can(&h.weight);
}

/* ---- Ways ---- */

enum { LAST, OWN_WEIGHT, OWN, WAYS };

/* For kernels of our own; either gradient. */
static ct_cores_problem own_problem(const ct_call *call, bool input) {
    const conv_fused_grad_attrs *a = call->attrs;
    ct_cores_problem p = {.x = input ? call->out[0] : call->in[2],
                          .w = input ? call->in[3] : call->out[1],
                          .g = call->in[0],
                          .active = a->activation == CT_ACT_NONE ? NULL : call->in[1],
                          .bias = !input && wants_bias(call) ? call->out[2] : NULL,
                          .activation = a->activation};
    for (int d = 0; d < 2; d++) {
        p.stride[d] = ct_cuda_conv_listed(&a->strides, d, 1), p.dilation[d] = ct_cuda_conv_listed(&a->dilations, d, 1);
        p.before[d] = a->pads.n == 4 ? a->pads.d[2 * d] : ct_cuda_conv_listed(&a->pads, d, 0);
    }
    return p;
}

/* NULL, or why a way is none. *bytes: what its weight's gradient needs of scratch, which comes first in it. */
static const char *refuses(const ct_call *call, int way, size_t *bytes) {
    *bytes = 0;
    if (way == LAST) return NULL;
    const ct_cores_problem weight = own_problem(call, false), input = own_problem(call, true);
    const char *why = ct_cores_weight_refuses(call, &weight, bytes);
    *bytes = aligned(*bytes);
    return why || way == OWN_WEIGHT ? why : ct_cores_input_refuses(call, &input);
}

/* Small gradients may be computed beside each other, and then have workspaces of their own. */
static bool are_small(const ct_call *call, size_t workspaces) {
    const size_t most = 32 << 20, size = ct_cuda_dtype_size(call->in[0]->dtype);
    return workspaces + (size_t)(ct_cuda_count(call->in[0]) + ct_cuda_count(call->in[2])) * size < most;
}

/* Here engines may be measured, which read a cotangent: any numbers will do. */
static size_t scratch_of(const ct_call *call, int way) {
    const ct_cuda_conv_grads p = pass_of(call);
    size_t own;
    halves h;
    if (refuses(call, way, &own) || way == OWN) return own;
    divide(call, ct_cuda_address(call->in[0]), 0, &h);
    const size_t input = ct_cuda_conv_input_grad_dnn_scratch(&h.input);
    if (way == OWN_WEIGHT) return own + cotangent_bytes(call) + input;
    const size_t weight = aligned(ct_cuda_conv_weight_grad_dnn_scratch(&h.weight));
    const size_t both = are_small(call, input + weight) ? input + weight : input > weight ? input : weight;
    return cotangent_bytes(call) + sums_bytes(call, &p) + both;
}

/* ---- cuDNN ---- */

/* The gradients of bias and weights, on the stream of the call of the latter. */
static bool make_weights(const ct_call *call, ct_cuda_conv_grads *p, halves *h) {
    static ct_cuda_function bias_grads[] = CT_CUDA_OF_FLOATS("bias_grad");
    ct_call bias = *call;
    bias.stream = h->weight.stream;
    if (p->sums) {
        const ct_cuda_shape shape = {.grid = ct_cuda_grid(p->channels), .block = CT_CUDA_GRADS_THREADS};
        p->dbias = ct_cuda_address(call->out[2]), p->dbias_stride = call->out[2]->strides[0];
        if (!ct_cuda_launch(&bias, &bias_grads[call->in[0]->dtype], shape, p)) return false;
    }
    return ct_cuda_conv_weight_grad_dnn_run(&h->weight, h->weight.stream);
}

/* Both, in a recording beside each other where there are workspaces for that. */
static bool make_both(const ct_call *call, ct_cuda_conv_grads *p, halves *h, ct_stream *stream) {
    ct_cuda_branch branch;
    if (!ct_cuda_branch_begin(call, &branch)) return false;
    if (branch.apart) {
        const size_t weight = aligned(ct_cuda_conv_weight_grad_dnn_scratch(&h->weight)),
                     input = ct_cuda_conv_input_grad_dnn_scratch(&h->input);
        if (are_small(call, input + weight) && weight + input <= h->input.scratch.bytes) {
            h->weight.stream = branch.call.stream;
            h->input.scratch.offset += weight, h->input.scratch.bytes -= weight;
        }
    }
    const bool ok = make_weights(call, p, h) && ct_cuda_conv_input_grad_dnn_run(&h->input, stream);
    return ct_cuda_branch_end(call, &branch) && ok;
}

/* Brings the cotangent to channels last, at `to` in scratch, with its sums behind it where p says so. */
static bool bring(const ct_call *call, ct_cuda_conv_grads *p) {
    static ct_cuda_function passes[] = CT_CUDA_OF_FLOATS("channels_last");
    p->g = ct_cuda_address(call->in[0]);
    p->y = p->activation == CT_ACT_NONE ? NULL : ct_cuda_address(call->in[1]);
    p->aligned = ct_cuda_is_aligned(p->g) && ct_cuda_is_aligned(p->y);
    const ct_cuda_shape shape = {.grid = (unsigned)(p->parts * p->channel_tiles), .block = CT_CUDA_GRADS_THREADS};
    return ct_cuda_launch(call, &passes[call->in[0]->dtype], shape, p);
}

static bool run_last(const ct_call *call, ct_stream *stream) {
    ct_cuda_conv_grads p = pass_of(call);
    p.to = ct_cuda_scratch(call);
    p.sums = wants_bias(call) ? (double *)(void *)(p.to + cotangent_bytes(call)) : NULL;
    if (!bring(call, &p)) return false;
    halves h;
    divide(call, p.to, cotangent_bytes(call) + sums_bytes(call, &p), &h);
    return make_both(call, &p, &h, stream);
}

/* ---- Kernels of our own ---- */

static bool run_own_input(const ct_call *call) {
    const ct_cores_problem p = own_problem(call, true);
    return ct_cores_input_run(call, &p);
}

/* cuDNN's for the input, behind `used` bytes of scratch. */
static bool run_last_input(const ct_call *call, size_t used, ct_stream *stream) {
    ct_cuda_conv_grads p = pass_of(call);
    p.to = ct_cuda_scratch(call) + used;
    if (!bring(call, &p)) return false;
    halves h;
    divide(call, p.to, used + cotangent_bytes(call), &h);
    return ct_cuda_conv_input_grad_dnn_run(&h.input, stream);
}

/* The weight's gradient is a branch of its own in a recording: neither needs the other. */
static bool run_own(const ct_call *call, int way, size_t weight_bytes, ct_stream *stream) {
    const ct_cores_problem weight = own_problem(call, false);
    ct_cuda_branch branch;
    if (!ct_cuda_branch_begin(call, &branch)) return false;
    const bool ok = ct_cores_weight_run(branch.apart ? &branch.call : call, &weight, ct_cuda_scratch(call)) &&
                    (way == OWN ? run_own_input(call) : run_last_input(call, weight_bytes, stream));
    return ct_cuda_branch_end(call, &branch) && ok;
}

static bool run_way(const ct_call *call, int way, ct_stream *stream) {
    size_t own;
    if (refuses(call, way, &own)) way = LAST;
    return way == LAST ? run_last(call, stream) : run_own(call, way, own, stream);
}

/* ---- The choice ---- */

/* Measured in memory of its own, since what scratch is needed depends on the choice. */
typedef struct trial {
    ct_call call;
    ct_stream *stream;
    CUdeviceptr memory;
    size_t need[WAYS];
} trial;

static bool attempt(void *context, int way) {
    trial *t = context;
    size_t most = 0, own;
    for (int i = 0; i < WAYS; i++)
        if (t->need[i] > most) most = t->need[i];
    if (refuses(&t->call, way, &own)) return false;
    if (!t->memory && ct_cuda.cuMemAlloc_v2(&t->memory, most) != CUDA_SUCCESS) return false;
    t->call.scratch = (ct_memory_part){.buffer = (void *)(uintptr_t)t->memory, .bytes = most};
    return run_way(&t->call, way, t->stream);
}

static int way_of(const ct_call *call) {
    const conv_fused_grad_attrs *a = call->attrs;
    const ct_view *g = call->in[0], *x = call->in[2], *w = call->in[3];
    size_t own;
    /* an engine for a cotangent that is not aligned would be measured while others are */
    if (!ct_cuda_tune_is_on() || !ct_cuda_is_aligned(ct_cuda_address(g)) || refuses(call, OWN_WEIGHT, &own))
        return LAST;
    const ct_cores_problem p = own_problem(call, false);
    int64_t key[24] = {a->activation,
                       wants_bias(call),
                       a->exact,
                       (call->flags & CT_CALL_LASTING) != 0,
                       ct_cuda_is_aligned(ct_cuda_address(x)),
                       !refuses(call, OWN, &own)};
    int n = 6;
    for (int d = 0; d < 4; d++) key[n++] = x->dims[d], key[n++] = w->dims[d], key[n++] = g->dims[d];
    for (int d = 0; d < 2; d++) key[n++] = p.stride[d], key[n++] = p.dilation[d], key[n++] = p.before[d];
    trial t = {.call = *call, .stream = call->stream};
    for (int i = 0; i < WAYS; i++)
        t.need[i] = scratch_of(call, i); /* engines are measured here, not inside of a measurement */
    const int way = ct_cuda_tune(call, "conv-gradients", key, sizeof key, WAYS, attempt, &t);
    CUcontext before;
    if (t.memory && ct_cuda_enter(call->device.index, &before)) {
        ct_cuda.cuMemFree_v2(t.memory);
        ct_cuda_leave(before);
    }
    return refuses(call, way, &own) ? LAST : way;
}

/* Enough for cuDNN in any case: what is remembered for these sizes also serves a cotangent that is not aligned, which goes there. */
static size_t scratch(const ct_call *call) {
    const size_t chosen = scratch_of(call, way_of(call)), last = scratch_of(call, LAST);
    return chosen > last ? chosen : last;
}

static bool run(const ct_call *call, ct_stream *stream) {
    const int way = way_of(call);
    /* another choice may have been made since scratch was asked for */
    return run_way(call, scratch_of(call, way) <= call->scratch.bytes ? way : LAST, stream);
}

CT_CUDA_KERNELS(conv_grads) = {
    CT_CANDIDATES(conv_fused_grad, {"channels_last", can, scratch, run}),
    {0},
};
#endif
