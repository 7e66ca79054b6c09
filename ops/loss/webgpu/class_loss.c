/* class_loss and its gradient: which device code takes the logits. */
#include "backends/webgpu/lines.h"

#include "gen/loss.attrs.h"

enum {
    THREADS = 256,
    QUAD = 4,
    GROUPS = 2112, /* at most; a constant, since the bits of sums hang on it */
};

CT_WGPU_UNIT(loss_class_loss);

/* As in the device code. */
typedef struct params {
    uint32_t targets, classes, places, lanes, ignored_low, ignored_high, reduction;
    float smoothing;
    uint32_t parts;
} params;

static const char *can_take(const ct_call *call, const ct_view *x) {
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (view && !ct_wgpu_is_dense(view)) return "an operand is not dense";
    }
    if (x->dtype > CT_BF16) return "it takes floats";
    if (x->dims[x->ndim > 1 ? 1 : 0] == 0) return "no classes";
    return ct_wgpu_refuses(call);
}
static const char *can_loss(const ct_call *call) { return can_take(call, call->in[0]); }
static const char *can_grad(const ct_call *call) {
    const class_loss_grad_attrs *attrs = call->attrs;
    if (attrs->reduction == CT_MEAN && !call->in[5]) return "total is not given";
    return can_take(call, call->in[1]);
}

static params params_of(const ct_view *x, const ct_view *target, int64_t ignored, int reduction, double smoothing) {
    params p;
    memset(&p, 0, sizeof p);
    p.targets = (uint32_t)ct_wgpu_count(target), p.classes = (uint32_t)x->dims[x->ndim > 1 ? 1 : 0];
    p.places = 1;
    for (int i = 2; i < x->ndim; i++) p.places *= (uint32_t)x->dims[i];
    p.ignored_low = (uint32_t)ignored, p.ignored_high = (uint32_t)(ignored >> 32);
    p.reduction = reduction == CT_NONE ? 0 : reduction == CT_MEAN ? 1 : 2;
    p.smoothing = (float)smoothing;
    p.lanes = 1;
    while (p.lanes < THREADS && p.lanes * 16 < p.classes) p.lanes *= 2;
    return p;
}

static bool in_quads(const params *p, const ct_view *x) {
    return p->places == 1 && p->classes % QUAD == 0 && ct_wgpu_fits(x, QUAD);
}
static unsigned mode_of(const ct_view *x, bool quads) {
    return quads ? CT_WGPU_QUADS | (ct_wgpu_dtype_size(x->dtype) == 4 ? CT_WGPU_QUADS_ONLY : 0) : 0;
}
/* Workgroups for all targets. */
static int64_t groups_of(const params *p) {
    return ct_wgpu_ceil_div(p->targets, p->places > 1 ? THREADS : THREADS / p->lanes);
}

static size_t loss_scratch(const ct_call *call) {
    (void)call;
    return GROUPS * 2 * sizeof(float);
}

static ct_wgpu_launch begin_loss(const ct_call *call, const char *function, bool quads) {
    const ct_view *x = call->in[0];
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    ct_wgpu_operand_of(&l, "x", x, mode_of(x, quads));
    ct_wgpu_in(&l, "goal", call->in[1]);
    ct_wgpu_in(&l, "weight", call->in[2]);
    ct_wgpu_out(&l, "y", call->out[0]);
    ct_wgpu_out(&l, "level", ct_wgpu_output(call, 1));
    ct_wgpu_out(&l, "total", ct_wgpu_output(call, 2));
    ct_wgpu_scratch(&l, "partial", call, CT_F32, 0, GROUPS * 2 * sizeof(float), CT_WGPU_WRITTEN);
    ct_wgpu_constant(&l, "WIDE", call->in[1]->dtype == CT_I64);
    ct_wgpu_constant(&l, "SMOOTHED", ((const class_loss_attrs *)call->attrs)->label_smoothing > 0);
    return l;
}

static bool run_loss(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_loss_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    params p = params_of(x, call->in[1], a->ignore_index, a->reduction, a->label_smoothing);
    const bool sums = (call->out[0] && a->reduction != CT_NONE) || ct_wgpu_output(call, 2), quads = in_quads(&p, x);
    const int64_t wanted = groups_of(&p), groups = wanted < GROUPS ? wanted : GROUPS;
    if (groups) {
        const ct_wgpu_launch l = begin_loss(call,
                                            p.places > 1 ? "loss_columns"
                                            : quads      ? "loss_quads"
                                                         : "loss_rows",
                                            quads);
        if (!ct_wgpu_enqueue(call, &l, groups, &p, sizeof p)) return false;
    }
    if (!sums || groups == 1) return true;
    p.parts = (uint32_t)groups;
    const ct_wgpu_launch l = begin_loss(call, "loss_total", false);
    return ct_wgpu_enqueue(call, &l, 1, &p, sizeof p);
}

static bool run_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const class_loss_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[1], *dx = call->out[0];
    const params p = params_of(x, call->in[2], a->ignore_index, a->reduction, a->label_smoothing);
    const bool quads = in_quads(&p, x) && ct_wgpu_fits(dx, QUAD);
    ct_wgpu_launch l = ct_wgpu_begin(&unit,
                                     p.places > 1 ? "grad_columns"
                                     : quads      ? "grad_quads"
                                                  : "grad_rows",
                                     THREADS);
    ct_wgpu_in(&l, "g", call->in[0]);
    ct_wgpu_operand_of(&l, "x", x, mode_of(x, quads));
    ct_wgpu_in(&l, "goal", call->in[2]);
    ct_wgpu_in(&l, "weight", call->in[3]);
    ct_wgpu_in(&l, "level", call->in[4]);
    ct_wgpu_in(&l, "total", call->in[5]);
    ct_wgpu_operand_of(&l, "dx", dx, CT_WGPU_WRITTEN | mode_of(dx, quads));
    ct_wgpu_constant(&l, "WIDE", call->in[2]->dtype == CT_I64);
    ct_wgpu_constant(&l, "SMOOTHED", a->label_smoothing > 0);
    return ct_wgpu_enqueue(call, &l, groups_of(&p), &p, sizeof p);
}

CT_WGPU_KERNELS(loss_class_loss) = {
    CT_CANDIDATES(class_loss, {"class_loss", can_loss, loss_scratch, run_loss}),
    CT_CANDIDATES(class_loss_grad, {"class_loss_grad", can_grad, NULL, run_grad}),
    {0},
};
