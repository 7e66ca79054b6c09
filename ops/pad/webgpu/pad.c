/* Frames: of one value by a fill and a copy into it, of x again by a kernel that looks up where each element comes from. */
#include "backends/webgpu/strided.h"

#include "gen/pad.attrs.h"

/* ---- Of one value ---- */

static bool run_constant(const ct_call *call, ct_stream *stream) {
    const pad_constant_attrs *at = call->attrs;
    ct_view x = *call->in[0], y = *call->out[0];
    uint32_t bits[2];
    bool frames = false;
    (void)stream;
    for (int d = 0; d < x.ndim; d++) {
        const int64_t before = at->pads.d[2 * d], after = at->pads.d[2 * d + 1];
        frames |= before > 0 || after > 0;
        if (before > 0) y.offset += before * y.strides[d];
        else x.offset -= before * x.strides[d];
        x.dims[d] += (before < 0 ? before : 0) + (after < 0 ? after : 0);
        if (x.dims[d] < 0) x.dims[d] = 0; /* cuts from both sides may meet */
        y.dims[d] = x.dims[d];
    }
    ct_wgpu_bits_of(y.dtype, at->value, bits);
    return (!frames || ct_wgpu_fill_view(call, call->out[0], bits)) && ct_wgpu_copy_view(call, &y, &x);
}

/* ---- Of x again ---- */

typedef struct params {
    uint32_t total, rank, mode, pad;
    uint32_t sizes[CT_WGPU_DIMS], before[CT_WGPU_DIMS], widths[CT_WGPU_DIMS], small[CT_WGPU_DIMS], large[CT_WGPU_DIMS];
} params;

static params params_of(const ct_view *written, const ct_view *small, const ct_view *large, const ct_dims *pads,
                        int mode) {
    params p = {.total = (uint32_t)ct_wgpu_count(written), .mode = (uint32_t)mode};
    for (int d = 0; d < small->ndim; d++) {
        p.sizes[p.rank] = (uint32_t)small->dims[d];
        p.before[p.rank] = (uint32_t)pads->d[2 * d];
        p.widths[p.rank] = (uint32_t)large->dims[d];
        p.small[p.rank] = (uint32_t)small->strides[d];
        p.large[p.rank++] = (uint32_t)large->strides[d];
    }
    return p;
}

static bool run_repeat(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(pad_repeat);
    const pad_repeat_attrs *at = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    (void)stream;
    const params p = params_of(y, x, y, &at->pads, at->mode);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "repeat", 256);
    ct_wgpu_move_operands(&launch, y, x, ct_wgpu_dtype_size(x->dtype));
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, 256), &p, sizeof p);
}

static bool run_repeat_grad(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(pad_repeat_grad);
    const pad_repeat_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0], *y = call->out[0];
    (void)stream;
    if (y->ndim == 0) return ct_wgpu_copy_view(call, y, g);
    const params p = params_of(y, y, g, &at->pads, at->mode);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "repeat_grad", 256);
    ct_wgpu_out(&launch, "y", y);
    ct_wgpu_in(&launch, "g", g);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.total, 256), &p, sizeof p);
}

CT_WGPU_KERNELS(pad_pad) = {
    CT_CANDIDATES(pad_constant, {"pad_constant_copy", ct_wgpu_refuses, NULL, run_constant}),
    CT_CANDIDATES(pad_repeat, {"pad_repeat_elements", ct_wgpu_refuses, NULL, run_repeat}),
    CT_CANDIDATES(pad_repeat_grad, {"pad_repeat_grad_elements", ct_wgpu_refuses, NULL, run_repeat_grad}),
    {0},
};
