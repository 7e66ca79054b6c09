/* softmax, log_softmax, their gradients and logsumexp: how lines lie, and which device code takes them. */
#include "backends/webgpu/lines.h"
#include "ops/reduce/webgpu/reduction.h"

#include "gen/softmax.attrs.h"

enum { THREADS = 256, QUAD = 4, KEPT = 8 /* quads that an invocation keeps at most */, ENOUGH = 264 /* workgroups */ };

CT_WGPU_UNIT(softmax_softmax);
extern const char ct_wgsl_softmax_normal[], ct_wgsl_softmax_logarithm[], ct_wgsl_softmax_normal_grad[],
    ct_wgsl_softmax_logarithm_grad[], ct_wgsl_softmax_logarithm_half_grad[], ct_wgsl_softmax_logsumexp[];

/* As in the device code. */
typedef struct params {
    uint32_t lines, n, lanes, columns;
    uint32_t step[4];
    uint32_t dims[CT_WGPU_DIMS], strides[3][CT_WGPU_DIMS];
} params;

static int64_t power_of_two(int64_t n, int64_t most) {
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

/* Whether the elements of all lines are neighbors, in aligned quads. */
static bool are_quads(const ct_view *const *views, int n, const ct_wgpu_lines *lines) {
    if (lines->n % QUAD != 0) return false;
    for (int k = 0; k < n; k++) {
        if (lines->step[k] != 1 || !ct_wgpu_fits(views[k], QUAD)) return false;
        for (uint32_t d = 0; d < lines->nest.rank; d++)
            if (lines->nest.strides[k][d] % QUAD != 0) return false;
    }
    return true;
}

static void operand(ct_wgpu_launch *l, const char *name, const ct_view *view, bool quads, unsigned mode) {
    const unsigned whole = !view || ct_wgpu_dtype_size(view->dtype) == 4 ? CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_operand_of(l, name, view, mode | (quads ? CT_WGPU_QUADS | whole : 0));
}

static bool run(const char *kind, const ct_call *call, int64_t axis) {
    const ct_view *out = call->out[0];
    if (ct_wgpu_count(out) == 0) return true;
    const int operands = 1 + call->n_in;
    const ct_view *views[3] = {out, call->in[0], call->n_in > 1 ? call->in[1] : NULL};
    const ct_wgpu_lines lines = ct_wgpu_lines_of(views, 3, axis);
    const int64_t count = lines.nest.total, n = lines.n;
    params p;
    memset(&p, 0, sizeof p);
    p.lines = (uint32_t)count, p.n = (uint32_t)n;
    memcpy(p.dims, lines.nest.dims, sizeof p.dims);
    for (int k = 0; k < 3; k++) {
        p.step[k] = (uint32_t)lines.step[k];
        memcpy(p.strides[k], lines.nest.strides[k], sizeof p.strides[k]);
    }
    const bool quads = are_quads(views, operands, &lines), kept = quads && n <= QUAD * KEPT * THREADS;
    uint32_t each = 1;
    if (quads) {
        p.lanes = (uint32_t)(kept ? power_of_two(ct_wgpu_ceil_div(n, QUAD * KEPT), THREADS) : THREADS);
        each = (uint32_t)power_of_two(ct_wgpu_ceil_div(n, (int64_t)QUAD * p.lanes), KEPT);
    } else {
        const int64_t step = lines.step[0] < 0 ? -lines.step[0] : lines.step[0];
        p.columns = n > 1 && step != 1 && count > 1;
        if (p.columns) { /* side by side, as many as leave enough workgroups, but 32 bytes at least */
            int64_t side = 1;
            while (side < count && side < 32 && (side < 8 || count / side >= 2 * ENOUGH)) side *= 2;
            p.lanes = (uint32_t)(THREADS / side);
        } else p.lanes = (uint32_t)power_of_two(ct_wgpu_ceil_div(n, 8), THREADS);
    }
    ct_wgpu_launch l = ct_wgpu_begin(&unit, kept ? "kept_rows" : quads ? "long_rows" : "any_lines", THREADS);
    l.more = kind;
    l.words = CT_WGPU_F32;
    operand(&l, "out", out, quads, CT_WGPU_WRITTEN);
    operand(&l, "a", call->in[0], quads, 0);
    operand(&l, "b", views[2], quads, 0);
    ct_wgpu_constant(&l, "RANK", lines.nest.rank);
    ct_wgpu_constant(&l, "KEPT", each);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(count, THREADS / p.lanes), &p, sizeof p);
}

/* Operands of a call have one dtype: they are promoted. */
static const char *can(const ct_call *call) {
    return call->in[0]->dtype <= CT_BF16 ? ct_wgpu_refuses(call) : "it takes floats";
}

#define KERNEL(name, kind)                                                                   \
    static bool name##_run(const ct_call *call, ct_stream *stream) {                         \
        (void)stream;                                                                        \
        return run(ct_wgsl_softmax_##kind, call, ((const name##_attrs *)call->attrs)->axis); \
    }
KERNEL(softmax, normal)
KERNEL(log_softmax, logarithm)
KERNEL(softmax_grad, normal_grad)
KERNEL(log_softmax_grad, logarithm_grad)
KERNEL(log_softmax_half_grad, logarithm_half_grad)

/* ---- logsumexp, a reduction ---- */

static const ct_wgpu_reduction logsumexp = {ct_wgsl_softmax_logsumexp, NULL, NULL, false, false};

static const char *logsumexp_can(const ct_call *call) { return ct_wgpu_reduction_can(&logsumexp, call); }
static size_t logsumexp_scratch(const ct_call *call) {
    return ct_wgpu_reduction_scratch(&logsumexp, call, &((const logsumexp_attrs *)call->attrs)->axes);
}
static bool logsumexp_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return ct_wgpu_reduction_run(&logsumexp, call, &((const logsumexp_attrs *)call->attrs)->axes);
}

CT_WGPU_KERNELS(softmax_softmax) = {
    CT_CANDIDATES(softmax, {"softmax", can, NULL, softmax_run}),
    CT_CANDIDATES(log_softmax, {"log_softmax", can, NULL, log_softmax_run}),
    CT_CANDIDATES(softmax_grad, {"softmax_grad", can, NULL, softmax_grad_run}),
    CT_CANDIDATES(log_softmax_grad, {"log_softmax_grad", can, NULL, log_softmax_grad_run}),
    CT_CANDIDATES(log_softmax_half_grad, {"log_softmax_half_grad", can, NULL, log_softmax_half_grad_run}),
    CT_CANDIDATES(logsumexp, {"logsumexp", logsumexp_can, logsumexp_scratch, logsumexp_run}),
    {0},
};
