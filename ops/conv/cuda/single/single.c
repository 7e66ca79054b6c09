/* Weight gradients of convolutions with one input channel: how the sums are divided. The table of candidates is in ops/conv/cuda/conv.c. */
#include "ops/conv/cuda/single.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "ops/conv/cuda/conv.h"

#include "gen/conv.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(conv_single);

enum { LAST_3, LAST_5, FIRST_3, FIRST_5, MERGE, FORWARD_FIRST_3, FORWARD_FIRST_5, FORWARD_LAST_3, FORWARD_LAST_5 };
#define FUNCTIONS(kind)                                                                                         \
    {                                                                                                           \
        [CT_F32] = CT_CUDA_FUNCTION("single_" kind "_f32"), [CT_F16] = CT_CUDA_FUNCTION("single_" kind "_f16"), \
        [CT_BF16] = CT_CUDA_FUNCTION("single_" kind "_bf16"),                                                   \
    }
static ct_cuda_function functions[][CT_BF16 + 1] = {
    FUNCTIONS("last_3"),          FUNCTIONS("last_5"),         FUNCTIONS("first_3"),
    FUNCTIONS("first_5"),         FUNCTIONS("merge"),          FUNCTIONS("forward_first_3"),
    FUNCTIONS("forward_first_5"), FUNCTIONS("forward_last_3"), FUNCTIONS("forward_last_5")};

/* Constants: the bits of sums hang on them. A thread waits for memory some times in the rows that it takes; the next segment reads the last
 * rows of x again. */
enum { BLOCKS_WANTED = 1056, FIRST_BLOCKS_WANTED = 528, ROWS_WANTED = 8 };

static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

static int lanes_of(const ct_cuda_single *a) {
    int lanes = 1;
    while (lanes < a->channels / CT_SINGLE_PACK && lanes < 32) lanes *= 2;
    return lanes;
}

/* With channels last a part is rows of results, else images. */
static int64_t parts_last(const ct_cuda_single *a) {
    const int64_t lanes = lanes_of(a), columns = over(over(a->channels, CT_SINGLE_PACK), lanes);
    const int64_t wanted = over(BLOCKS_WANTED, columns),
                  most = over((int64_t)a->batch * a->out[0], CT_SINGLE_THREADS / lanes);
    return wanted < most ? wanted : most;
}
static int64_t parts_first(const ct_cuda_single *a) {
    const int64_t wanted = over(FIRST_BLOCKS_WANTED, a->channels), parts = wanted < a->batch ? wanted : a->batch;
    return over(a->batch, over(a->batch, parts)); /* none is empty */
}

static ct_cuda_single arguments(const ct_call *call) {
    const conv_weight_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *g = call->in[1], *w = call->out[0];
    const bool last = attrs->channels_last;
    ct_cuda_single a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x), a.g = ct_cuda_address(g);
    a.batch = (int32_t)x->dims[0], a.channels = (int32_t)g->dims[last ? 3 : 1], a.side = (int32_t)attrs->kernel.d[0];
    a.x_n = x->strides[0], a.g_n = g->strides[0], a.g_c = g->strides[last ? 3 : 1];
    for (int d = 0; d < 2; d++) {
        const int axis = (last ? 1 : 2) + d;
        a.in[d] = (int32_t)x->dims[axis], a.out[d] = (int32_t)g->dims[axis];
        a.x_s[d] = x->strides[axis], a.g_s[d] = g->strides[axis];
        a.before[d] = (int32_t)(attrs->pads.n == 4 ? attrs->pads.d[2 * d] : ct_cuda_conv_listed(&attrs->pads, d, 0));
        if (w) a.w_k[d] = w->strides[(last ? 0 : 2) + d];
    }
    if (w) a.w = ct_cuda_address(w), a.w_o = w->strides[last ? 3 : 0];
    if (call->n_out > 1 && call->out[1])
        a.bias = ct_cuda_address(call->out[1]), a.bias_stride = call->out[1]->strides[0];
    a.lanes = lanes_of(&a);
    return a;
}

static const char *refuses(const ct_view *x, const ct_view *y, const int64_t *kernel, int64_t groups, bool last,
                           const ct_dims *strides, const ct_dims *dilations, const ct_dims *pads) {
    if (x->ndim != 4 || groups != 1 || x->dims[last ? 3 : 1] != 1) return "more than one input channel";
    if (x->dtype != CT_F32 && x->dtype != CT_F16 && x->dtype != CT_BF16) return "its dtype";
    if (kernel[0] != kernel[1] || (kernel[0] != 3 && kernel[0] != 5)) return "it is not 3x3 or 5x5";
    for (int d = 0; d < 2; d++)
        if (ct_cuda_conv_listed(strides, d, 1) != 1 || ct_cuda_conv_listed(dilations, d, 1) != 1)
            return "it has a stride or a dilation";
    for (int i = 0; i < pads->n; i++)
        if (pads->d[i] < -INT16_MAX || pads->d[i] > INT16_MAX) return "its padding";
    const int64_t pixels = ct_cuda_count(x), results = ct_cuda_count(y);
    return pixels == 0 || results == 0                         ? "nothing is to be computed"
           : pixels > INT32_MAX / 2 || results > INT32_MAX / 2 ? "it is too large"
                                                               : NULL;
}

static const char *refuses_forward(const ct_call *call, int64_t groups, bool last, const ct_dims *strides,
                                   const ct_dims *dilations, const ct_dims *pads) {
    const ct_view *x = call->in[0], *y = call->out[0];
    if (x->ndim == 4 && y->dims[last ? 3 : 1] > CT_SINGLE_CHANNELS) return "it has many output channels";
    return refuses(x, y, call->in[1]->dims + (last ? 0 : 2), groups, last, strides, dilations, pads);
}

const char *ct_cuda_single_can(const ct_call *call) {
    const conv_attrs *a = call->attrs;
    return refuses_forward(call, a->groups, a->channels_last, &a->strides, &a->dilations, &a->pads);
}

const char *ct_cuda_single_fused_can(const ct_call *call) {
    const conv_fused_attrs *a = call->attrs;
    if (call->in[3]) return "it has a residual";
    return refuses_forward(call, a->groups, a->channels_last, &a->strides, &a->dilations, &a->pads);
}

/* Of channels, which threads divide among them: as many threads as a large device has room for, with some channels each. */
static int64_t groups_of(int64_t pixels, int64_t channels) {
    enum { THREADS_WANTED = 1 << 18, LEAST_CHANNELS = 4 };
    const int64_t wanted = pixels ? THREADS_WANTED / pixels : 1, most = over(channels, LEAST_CHANNELS);
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

static bool forward(const ct_call *call, bool last, const ct_dims *pads, int activation) {
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *y = call->out[0];
    const size_t size = ct_cuda_dtype_size(x->dtype);
    ct_cuda_single_forward a;
    memset(&a, 0, sizeof a);
    a.x = ct_cuda_address(x), a.w = ct_cuda_address(w), a.y = ct_cuda_address(y), a.activation = activation;
    a.batch = (int32_t)x->dims[0], a.channels = (int32_t)y->dims[last ? 3 : 1];
    a.x_n = x->strides[0], a.y_n = y->strides[0], a.y_c = y->strides[last ? 3 : 1], a.w_o = w->strides[last ? 3 : 0];
    for (int d = 0; d < 2; d++) {
        const int axis = (last ? 1 : 2) + d;
        a.in[d] = (int32_t)x->dims[axis], a.out[d] = (int32_t)y->dims[axis];
        a.x_s[d] = x->strides[axis], a.y_s[d] = y->strides[axis], a.w_k[d] = w->strides[(last ? 0 : 2) + d];
        a.before[d] = (int32_t)(pads->n == 4 ? pads->d[2 * d] : ct_cuda_conv_listed(pads, d, 0));
    }
    if (bias) a.bias = ct_cuda_address(bias), a.bias_stride = bias->strides[0];
    const int packs = a.channels / CT_SINGLE_PACK;
    const bool packed = a.y_c == 1 && a.channels % CT_SINGLE_PACK == 0 && a.y_n % CT_SINGLE_PACK == 0 &&
                        a.y_s[0] % CT_SINGLE_PACK == 0 && a.y_s[1] % CT_SINGLE_PACK == 0 &&
                        (uintptr_t)a.y % (CT_SINGLE_PACK * size) == 0;
    const int64_t pixels = (int64_t)a.batch * a.out[0] * a.out[1], groups = groups_of(pixels, a.channels);
    a.each = (int32_t)over(a.channels, groups);
    a.items = (uint32_t)(pixels * (packed ? packs : over(a.channels, a.each)));
    unsigned blocks = ct_cuda_blocks(call, a.items, CT_SINGLE_THREADS);
    if (packed) blocks = (unsigned)(over(blocks, packs) * packs);
    const int kind = (packed ? FORWARD_LAST_3 : FORWARD_FIRST_3) + (w->dims[last ? 0 : 2] == 5);
    return ct_cuda_launch(call, &functions[kind][x->dtype], (ct_cuda_shape){.grid = blocks, .block = CT_SINGLE_THREADS},
                          &a);
}

bool ct_cuda_single_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_attrs *a = call->attrs;
    return forward(call, a->channels_last, &a->pads, CT_ACT_NONE);
}

bool ct_cuda_single_fused_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const conv_fused_attrs *a = call->attrs;
    return forward(call, a->channels_last, &a->pads, a->activation);
}

const char *ct_cuda_single_weight_grad_can(const ct_call *call) {
    const conv_weight_grad_attrs *a = call->attrs;
    return refuses(call->in[0], call->in[1], a->kernel.d, a->groups, a->channels_last, &a->strides, &a->dilations,
                   &a->pads);
}

size_t ct_cuda_single_weight_grad_scratch(const ct_call *call) {
    const ct_cuda_single a = arguments(call);
    const int64_t last = parts_last(&a), first = parts_first(&a); /* which of them depends on addresses */
    return (size_t)((last > first ? last : first) * (a.side * a.side + 1) * a.channels) * sizeof(float);
}

bool ct_cuda_single_weight_grad_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_single a = arguments(call);
    const ct_dtype dtype = call->in[0]->dtype;
    const size_t size = ct_cuda_dtype_size(dtype);
    const bool last = a.g_c == 1 && a.channels % CT_SINGLE_PACK == 0 && a.g_n % CT_SINGLE_PACK == 0 &&
                      a.g_s[0] % CT_SINGLE_PACK == 0 && a.g_s[1] % CT_SINGLE_PACK == 0 &&
                      (uintptr_t)a.g % (CT_SINGLE_PACK * size) == 0;
    a.partial = (float *)(void *)ct_cuda_scratch(call);
    a.parts = (int32_t)(last ? parts_last(&a) : parts_first(&a));
    a.segments = (int32_t)over(a.out[0], ROWS_WANTED);
    a.rows = (int32_t)over(a.out[0], a.segments);
    const int64_t blocks = a.parts * (last ? over(a.channels / CT_SINGLE_PACK, a.lanes) : a.channels);
    ct_cuda_shape shape = {.grid = (unsigned)blocks, .block = CT_SINGLE_THREADS};
    const int kind = (last ? LAST_3 : FIRST_3) + (a.side == 5);
    if (!ct_cuda_launch(call, &functions[kind][dtype], shape, &a)) return false;
    shape.grid = (unsigned)over((int64_t)(a.side * a.side + 1) * a.channels, CT_SINGLE_THREADS / CT_SINGLE_MERGE);
    return ct_cuda_launch(call, &functions[MERGE][dtype], shape, &a);
}
