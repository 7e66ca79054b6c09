/* resample_axis and its gradient: a table of taps in scratch, then lines times it. */
#include "backends/webgpu/strided.h"
#include "ops/resample/taps.h"

#include "gen/resample.attrs.h"

enum { THREADS = 256 };

typedef struct taps_params {
    uint32_t total, length, mode, kind;
    uint64_t step;
} taps_params;

typedef struct params {
    uint32_t total, rank, length, results;
    uint32_t dims[CT_WGPU_DIMS], strides[4][CT_WGPU_DIMS];
    uint32_t along;
} params;

static int axis_of(const ct_view *x, int64_t axis) { return (int)(axis < 0 ? axis + x->ndim : axis); }

static ct_taps taps_of(const ct_call *call, int *axis) {
    const resample_axis_attrs *a = call->attrs;
    *axis = axis_of(call->in[0], a->axis);
    return ct__taps(a->mode, call->in[0]->dims[*axis], a->size, a->align_corners, a->scale);
}

static ct_taps taps_of_grad(const ct_call *call, int *axis) {
    const resample_axis_grad_attrs *a = call->attrs;
    *axis = axis_of(call->in[0], a->axis);
    return ct__taps(a->mode, a->size, call->in[0]->dims[*axis], a->align_corners, a->scale);
}

static size_t table_bytes(const ct_taps *t) { return (size_t)t->out * 2 * sizeof(uint32_t); }

static void mode_constants(ct_wgpu_launch *launch) {
    ct_wgpu_constant(launch, "NEAREST", CT_NEAREST);
    ct_wgpu_constant(launch, "NEAREST_EXACT", CT_NEAREST_EXACT);
    ct_wgpu_constant(launch, "BICUBIC", CT_BICUBIC);
    ct_wgpu_constant(launch, "AREA", CT_AREA);
}

static bool find_taps(const ct_call *call, const ct_taps *t) {
    CT_WGPU_UNIT(resample_taps);
    const bool ratio = t->mode == CT_AREA || (t->mode == CT_NEAREST && t->step == (double)t->in / (double)t->out);
    taps_params p = {.total = (uint32_t)t->out,
                     .length = (uint32_t)t->in,
                     .mode = (uint32_t)t->mode,
                     .kind = ratio                                                                      ? 0
                             : t->align_corners && t->mode != CT_NEAREST && t->mode != CT_NEAREST_EXACT ? 1
                                                                                                        : 2};
    memcpy(&p.step, &t->step, sizeof p.step);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "find_taps", THREADS);
    mode_constants(&launch);
    ct_wgpu_scratch(&launch, "taps", call, CT_I32, 0, table_bytes(t), CT_WGPU_WRITTEN);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(t->out, THREADS), &p, sizeof p);
}

static bool run(const ct_call *call, const ct_taps *t, int axis, bool transposed) {
    CT_WGPU_UNIT(resample_resample);
    const ct_view *x = call->in[0], *y = call->out[0];
    ct_wgpu_walk walk = ct_wgpu_walk_begin(4);
    for (int d = 0; d < y->ndim; d++)
        ct_wgpu_walk_add(&walk, y->dims[d],
                         (const int64_t[]){y->strides[d], d == axis ? 0 : x->strides[d], d == axis, 0});
    if (walk.total == 0) return true;
    params p = {.total = (uint32_t)walk.total,
                .rank = (uint32_t)walk.ndim,
                .length = (uint32_t)t->in,
                .results = (uint32_t)t->out,
                .along = (uint32_t)x->strides[axis]};
    ct_wgpu_walk_dims(&walk, p.dims);
    for (int k = 0; k < 4; k++) ct_wgpu_walk_strides(&walk, k, p.strides[k]);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, transposed ? "resample_grad" : "resample", THREADS);
    mode_constants(&launch);
    ct_wgpu_constant(&launch, "MODE", (uint32_t)t->mode);
    ct_wgpu_out(&launch, "y", y);
    ct_wgpu_in(&launch, "x", x);
    ct_wgpu_scratch(&launch, "taps", call, CT_I32, 0, table_bytes(t), 0);
    return find_taps(call, t) && ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(walk.total, THREADS), &p, sizeof p);
}

#define FUNCTIONS(op, taps_of, transposed)                         \
    static size_t op##_scratch(const ct_call *call) {              \
        int axis;                                                  \
        const ct_taps t = taps_of(call, &axis);                    \
        return table_bytes(&t);                                    \
    }                                                              \
    static bool op##_run(const ct_call *call, ct_stream *stream) { \
        int axis;                                                  \
        const ct_taps t = taps_of(call, &axis);                    \
        (void)stream;                                              \
        return run(call, &t, axis, transposed);                    \
    }
FUNCTIONS(resample_axis, taps_of, false)
FUNCTIONS(resample_axis_grad, taps_of_grad, true)

CT_WGPU_KERNELS(resample_resample) = {
    CT_CANDIDATES(resample_axis, {"resample_axis_taps", ct_wgpu_refuses, resample_axis_scratch, resample_axis_run}),
    CT_CANDIDATES(resample_axis_grad,
                  {"resample_axis_grad_taps", ct_wgpu_refuses, resample_axis_grad_scratch, resample_axis_grad_run}),
    {0},
};
