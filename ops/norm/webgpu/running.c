/* Running statistics of batches, in one dispatch. */
#include "backends/webgpu/webgpu.h"

#include "gen/norm.attrs.h"

enum { THREADS = 256 };

CT_WGPU_UNIT(norm_running);

/* As in the device code. */
typedef struct params {
    uint32_t channels;
    float kept, momentum, unbiased;
} params;

static const char *can(const ct_call *call) {
    if (call->out[0]) return "its result is asked for";
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && (call->in[i]->dtype > CT_BF16 || !ct_wgpu_is_dense(call->in[i])))
            return "floats only, that lie side by side";
    return ct_wgpu_refuses(call);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const running_statistics_attrs *a = call->attrs;
    const params p = {(uint32_t)call->in[2]->dims[0], (float)(1 - a->momentum), (float)a->momentum,
                      (float)(a->unbias * a->momentum)};
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "running", THREADS);
    ct_wgpu_out(&l, "running_mean", call->in[0]);
    ct_wgpu_out(&l, "running_var", call->in[1]);
    ct_wgpu_in(&l, "mean", call->in[2]);
    ct_wgpu_in(&l, "variance", call->in[3]);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(p.channels, THREADS), &p, sizeof p);
}

CT_WGPU_KERNELS(norm_running) = {
    CT_CANDIDATES(running_statistics, {"running", can, NULL, run}),
    {0},
};
