/* strided_grad: the host side. */
#include "backends/webgpu/strided.h"

#include "gen/view.attrs.h"

typedef struct params {
    uint32_t total, rank, g_rank, offset;
    uint32_t dims[CT_WGPU_DIMS], strides[1][CT_WGPU_DIMS];
    uint32_t g_dims[CT_WGPU_DIMS], g_to[CT_WGPU_DIMS], g_strides[CT_WGPU_DIMS], reach[CT_WGPU_DIMS];
} params;

static bool run(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(view_strided);
    const strided_grad_attrs *at = call->attrs;
    const ct_view *g = call->in[0], *y = call->out[0];
    (void)stream;
    if (ct_wgpu_count(g) == 0) return ct_wgpu_fill_view(call, y, (const uint32_t[]){0, 0});
    ct_wgpu_walk walk = ct_wgpu_walk_begin(1);
    for (int d = 0; d < y->ndim; d++) ct_wgpu_walk_add(&walk, y->dims[d], &y->strides[d]);
    params p = {.total = (uint32_t)walk.total, .rank = (uint32_t)walk.ndim, .offset = (uint32_t)at->offset};
    ct_wgpu_walk_dims(&walk, p.dims);
    ct_wgpu_walk_strides(&walk, 0, p.strides[0]);
    for (int d = 0; d < g->ndim; d++) {
        if (g->dims[d] == 1) continue;
        uint32_t k = p.g_rank++;
        for (; k > 0 && p.g_to[k - 1] < (uint32_t)at->strides.d[d]; k--)
            p.g_dims[k] = p.g_dims[k - 1], p.g_to[k] = p.g_to[k - 1], p.g_strides[k] = p.g_strides[k - 1];
        p.g_dims[k] = (uint32_t)g->dims[d], p.g_to[k] = (uint32_t)at->strides.d[d];
        p.g_strides[k] = (uint32_t)g->strides[d];
    }
    for (uint32_t d = p.g_rank; d > 1; d--) p.reach[d - 2] = p.reach[d - 1] + (p.g_dims[d - 1] - 1) * p.g_to[d - 1];
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "strided_grad", 256);
    ct_wgpu_out(&launch, "y", y);
    ct_wgpu_in(&launch, "g", g);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(walk.total, 256), &p, sizeof p);
}

CT_WGPU_KERNELS(view_strided) = {
    CT_CANDIDATES(strided_grad, {"strided_grad", ct_wgpu_refuses, NULL, run}),
    {0},
};
