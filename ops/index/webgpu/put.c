/* slice_put: a copy, and a copy into it. */
#include "backends/webgpu/strided.h"

#include "gen/index.attrs.h"

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const slice_put_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *src = call->in[1];
    ct_view part = *call->out[0];
    const int axis = (int)(at->axis < 0 ? at->axis + x->ndim : at->axis);
    if (!ct_wgpu_copy_view(call, &part, x)) return false;
    part.offset += at->start * part.strides[axis];
    part.strides[axis] *= at->step;
    part.dims[axis] = src->dims[axis];
    return ct_wgpu_copy_view(call, &part, src);
}

CT_WGPU_KERNELS(index_put) = {
    CT_CANDIDATES(slice_put, {"slice_put_copy", ct_wgpu_refuses, NULL, run}),
    {0},
};
