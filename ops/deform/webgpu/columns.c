/* deform_columns and its gradients on WebGPU: floats, dense. */
#include "backends/webgpu/webgpu.h"

#include "gen/deform.attrs.h"

CT_WGPU_UNIT(deform_columns);

enum {
    THREADS = 256,
    RUN = 16,
    CHUNK = 1152,
    LEAST_BITS = 10
}; /* as in the text; of a limb: enough for what an f32 sum would keep */

typedef struct params {
    uint32_t batch, channels;
    int32_t height, width;
    uint32_t out_h, out_w, kernel_h, kernel_w;
    int32_t stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
    uint32_t offset_groups, bits;
} params;

static const char *can(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && !ct_wgpu_is_dense(call->in[i])) return "an input is not dense";
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct_wgpu_is_dense(call->out[i])) return "an output is not dense";
    return ct_wgpu_refuses(call);
}

static params params_of(const ct_view *x, const ct_view *offset, const ct_dims *kernel, const ct_dims *strides,
                        const ct_dims *pads, const ct_dims *dilations, int64_t groups) {
    return (params){.batch = (uint32_t)x->dims[0],
                    .channels = (uint32_t)x->dims[1],
                    .height = (int32_t)x->dims[2],
                    .width = (int32_t)x->dims[3],
                    .out_h = (uint32_t)offset->dims[2],
                    .out_w = (uint32_t)offset->dims[3],
                    .kernel_h = (uint32_t)kernel->d[0],
                    .kernel_w = (uint32_t)kernel->d[1],
                    .stride_y = (int32_t)strides->d[0],
                    .stride_x = (int32_t)strides->d[strides->n > 1],
                    .pad_y = (int32_t)pads->d[0],
                    .pad_x = (int32_t)pads->d[pads->n == 4 ? 2 : pads->n > 1],
                    .dilation_y = (int32_t)dilations->d[0],
                    .dilation_x = (int32_t)dilations->d[dilations->n > 1],
                    .offset_groups = (uint32_t)groups};
}

static bool is_empty(const params *s) {
    return !s->batch || !s->channels || !s->out_h || !s->out_w || !s->kernel_h || !s->kernel_w;
}

/* Places, for each tap of so many runs of channels or groups of offsets. */
static int64_t groups_of(const params *s, int64_t runs) {
    return ct_wgpu_ceil_div((int64_t)s->batch * s->out_h * s->out_w, THREADS) * s->kernel_h * s->kernel_w * runs;
}

static bool columns_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const deform_columns_attrs *a = call->attrs;
    const params s =
        params_of(call->in[0], call->in[1], &a->kernel, &a->strides, &a->pads, &a->dilations, a->offset_groups);
    if (is_empty(&s)) return true;
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "columns", THREADS);
    ct_wgpu_in(&launch, "x", call->in[0]);
    ct_wgpu_in(&launch, "offset", call->in[1]);
    ct_wgpu_in(&launch, "mask", call->in[2]);
    ct_wgpu_out(&launch, "columns", call->out[0]);
    return ct_wgpu_enqueue(call, &launch, groups_of(&s, ct_wgpu_ceil_div(s.channels, RUN)), &s, sizeof s);
}

/* ---- Gradients ---- */

/* A limb's sum has 31 bits at most. */
static params grad_params(const ct_call *call) {
    const deform_columns_grad_attrs *a = call->attrs;
    params s = params_of(call->in[1], call->in[2], &a->kernel, &a->strides, &a->pads, &a->dilations, a->offset_groups);
    uint32_t growth = 0;
    while (growth < 40 && (1ll << growth) < 4ll * s.kernel_h * s.kernel_w * s.out_h * s.out_w) growth++;
    s.bits = growth < 30 ? 30 - growth : 0;
    if (s.bits > 12) s.bits = 12;
    return s;
}

static const char *grad_can(const ct_call *call) {
    const char *reason = can(call);
    if (reason) return reason;
    return grad_params(call).bits >= LEAST_BITS ? NULL : "its sums are too long";
}

static bool grad_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const params s = grad_params(call);
    const ct_view *x = call->in[1], *doffset = call->n_out > 1 ? call->out[1] : NULL,
                  *dmask = call->n_out > 2 ? call->out[2] : NULL;
    const int64_t planes = (int64_t)s.batch * s.channels;
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "input_grad", THREADS);
    ct_wgpu_in(&launch, "columns", call->in[0]);
    ct_wgpu_in(&launch, "x", x);
    ct_wgpu_in(&launch, "offset", call->in[2]);
    ct_wgpu_in(&launch, "mask", call->in[3]);
    ct_wgpu_out(&launch, "dx", call->out[0]);
    ct_wgpu_out(&launch, "doffset", doffset);
    ct_wgpu_out(&launch, "dmask", dmask);
    if (call->out[0] &&
        !ct_wgpu_enqueue(call, &launch, planes * ct_wgpu_ceil_div((int64_t)s.height * s.width, CHUNK), &s, sizeof s))
        return false;
    if ((!doffset && !dmask) || is_empty(&s)) return true;
    launch.function = "offset_grad";
    return ct_wgpu_enqueue(call, &launch, groups_of(&s, s.offset_groups), &s, sizeof s);
}

CT_WGPU_KERNELS(deform_columns) = {
    CT_CANDIDATES(deform_columns, {"places", can, NULL, columns_run}),
    CT_CANDIDATES(deform_columns_grad, {"places", grad_can, NULL, grad_run}),
    {0},
};
