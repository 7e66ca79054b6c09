/* The kernel of running_statistics. */
#include "backends/cpu/kernel.h"
#include "core/tensor.h"

#include "gen/norm.attrs.h"

static const char *can_track(const ct_call *call) {
    const ct_dtype dtype = call->in[2]->dtype;
    if (dtype != CT_F32 && dtype != CT_F64) return "f32 and f64 only";
    for (int i = 0; i < 4; i++) {
        if (!call->in[i]) continue;
        if (call->in[i]->dtype != dtype) return "mixed dtypes";
        if (!ct__view_is_dense(call->in[i])) return "an input is not dense";
    }
    return NULL;
}

static void track_f32(float *running, const float *batch, int64_t n, float rest, float unbias, float momentum) {
    for (int64_t i = 0; i < n; i++) running[i] = rest * running[i] + momentum * (unbias * batch[i]);
}

static void track_f64(double *running, const double *batch, int64_t n, double rest, double unbias, double momentum) {
    for (int64_t i = 0; i < n; i++) running[i] = rest * running[i] + momentum * (unbias * batch[i]);
}

static bool run_track(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const running_statistics_attrs *a = call->attrs;
    const ct_view *mean = call->in[2];
    const size_t size = ct_dtype_size(mean->dtype);
    const int64_t n = ct__count(mean->ndim, mean->dims);
    for (int i = 0; i < 2; i++) {
        if (!call->in[i]) continue;
        void *running = ct__address(call->in[i], size);
        const void *batch = ct__address(call->in[2 + i], size);
        const double unbias = i == 0 ? 1 : a->unbias;
        if (mean->dtype == CT_F64) track_f64(running, batch, n, 1 - a->momentum, unbias, a->momentum);
        else track_f32(running, batch, n, (float)(1 - a->momentum), (float)unbias, (float)a->momentum);
    }
    if (call->out[0]) *(int64_t *)ct__address(call->out[0], sizeof(int64_t)) = 2;
    return true;
}

CT_KERNELS(norm_running) = {
    CT_CANDIDATES(running_statistics, {"channels", can_track, NULL, run_track}),
    {0},
};
