/* clone and flip: strided copies. */
#include "backends/webgpu/strided.h"

#include "gen/copy.attrs.h"

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct_wgpu_copy_view(call, call->out[0], call->in[0]);
}

static bool run_flip(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_dims axes = ((const flip_attrs *)call->attrs)->axes;
    ct_view x = *call->in[0];
    for (int i = 0; i < axes.n; i++) {
        const int axis = (int)(axes.d[i] < 0 ? axes.d[i] + x.ndim : axes.d[i]);
        if (x.ndim == 0 || x.dims[axis] == 0) continue;
        x.offset += (x.dims[axis] - 1) * x.strides[axis];
        x.strides[axis] = -x.strides[axis];
    }
    return ct_wgpu_copy_view(call, call->out[0], &x);
}

CT_WGPU_KERNELS(copy_clone) = {
    CT_CANDIDATES(clone, {"clone_strided", ct_wgpu_refuses, NULL, run}),
    CT_CANDIDATES(flip, {"flip_copy", ct_wgpu_refuses, NULL, run_flip}),
    {0},
};
