/* row_norm and its gradients: which device code takes the rows, and how gradients of weight and bias are divided. */
#include "ops/norm/webgpu/row_norm.h"

#include "backends/webgpu/lines.h"

#include "gen/norm.attrs.h"

enum {
    THREADS = CT_WGPU_ROW_THREADS,
    QUAD = 4,
    KEPT = 8,    /* quads that an invocation keeps at most */
    USUAL = 4,   /* and where rows are not long: several workgroups then fit a multiprocessor */
    SIDE = 32,   /* columns of a workgroup that sums over rows */
    PARTS = 528, /* workgroups that sum over rows, four for each multiprocessor; the bits hang on it */
};

CT_WGPU_UNIT(norm_row_norm);

/* As in the device code. */
typedef struct params {
    uint32_t rows, n, lanes, rms;
    float eps, inverse;
    uint32_t parts, chunk;
} params;

static int64_t power_of_two(int64_t n, int64_t most) {
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first `data` inputs are rows; what follows is in f32. */
static const char *can(const ct_call *call, int data) {
    const ct_dtype dtype = call->in[0]->dtype;
    if (dtype > CT_BF16) return "it takes floats";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        if (call->in[i]->dtype != (i < data ? dtype : CT_F32) && dtype != CT_F64) return "mixed dtypes";
        if (!ct_wgpu_is_dense(call->in[i])) return "an input is not dense";
    }
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !ct_wgpu_is_dense(call->out[i])) return "an output is not dense";
    return ct_wgpu_refuses(call);
}
static const char *can_forward(const ct_call *call) { return can(call, 1); }
static const char *can_grad(const ct_call *call) { return can(call, 2); }

static params params_of(const ct_view *x, double eps, bool rms) {
    params p;
    memset(&p, 0, sizeof p);
    p.rows = (uint32_t)x->dims[0], p.n = (uint32_t)x->dims[1];
    p.eps = (float)eps, p.rms = rms, p.inverse = x->dims[1] ? (float)(1.0 / (double)x->dims[1]) : 0;
    return p;
}

static bool fits(const ct_view *view) { return !view || ct_wgpu_fits(view, QUAD); }

static void operand(ct_wgpu_launch *l, const char *name, const ct_view *view, bool quads, unsigned mode) {
    const unsigned whole = !view || ct_wgpu_dtype_size(view->dtype) == 4 ? CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_operand_of(l, name, view, mode | (quads ? CT_WGPU_QUADS | whole : 0));
}

/* Lanes of rows that are read again for each pass. */
static uint32_t any_lanes(uint32_t n) { return (uint32_t)power_of_two(ct_wgpu_ceil_div(n, 8), THREADS); }

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    params p = params_of(x, attrs->eps, attrs->rms);
    if (p.rows == 0 || p.n == 0) return true;
    const bool quads =
        p.n % QUAD == 0 && p.n <= QUAD * KEPT * THREADS && fits(x) && fits(y) && fits(call->in[1]) && fits(call->in[2]);
    p.lanes = quads ? (uint32_t)power_of_two(ct_wgpu_ceil_div(p.n, QUAD * USUAL), THREADS) : any_lanes(p.n);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, quads ? "kept_rows" : "any_rows", THREADS);
    operand(&l, "x", x, quads, 0);
    operand(&l, "weight", call->in[1], quads, 0);
    operand(&l, "bias", call->in[2], quads, 0);
    operand(&l, "y", y, quads, CT_WGPU_WRITTEN);
    ct_wgpu_constant(&l, "KEPT", (uint32_t)power_of_two(ct_wgpu_ceil_div(p.n, (int64_t)QUAD * p.lanes), KEPT));
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(p.rows, THREADS / p.lanes), &p, sizeof p);
}

/* ---- Gradients ---- */

static size_t moments_bytes(const ct_view *x) {
    return ((size_t)x->dims[0] * 3 * sizeof(float) + CT_WGPU_ALIGNMENT - 1) / CT_WGPU_ALIGNMENT * CT_WGPU_ALIGNMENT;
}

ct_wgpu_row_division ct_wgpu_divide_rows(int64_t rows, int64_t n) {
    const int64_t most = n <= QUAD * USUAL * THREADS ? USUAL : KEPT;
    ct_wgpu_row_division d = {.lanes = (uint32_t)power_of_two(ct_wgpu_ceil_div(n, QUAD * most), THREADS)};
    if (n % QUAD || n > QUAD * KEPT * THREADS) return d;
    d.kept = (uint32_t)power_of_two(ct_wgpu_ceil_div(n, (int64_t)QUAD * d.lanes), KEPT);
    d.groups = least(ct_wgpu_ceil_div(rows, THREADS / d.lanes), PARTS);
    d.parts = d.groups * (THREADS / d.lanes);
    return d;
}
/* Parts of rows that are summed apart. */
static int64_t apart_parts(const ct_view *x) {
    const int64_t sides = ct_wgpu_ceil_div(x->dims[1], SIDE);
    const int64_t parts = least(ct_wgpu_ceil_div(4 * PARTS, sides ? sides : 1), ct_wgpu_ceil_div(x->dims[0], 64));
    return least(parts, PARTS);
}

/* Enough for either way: where operands begin is not known yet. */
static size_t grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const ct_wgpu_row_division d = ct_wgpu_divide_rows(x->dims[0], x->dims[1]);
    const int64_t apart = apart_parts(x), parts = d.parts > apart ? d.parts : apart;
    return moments_bytes(x) + (size_t)parts * 2 * (size_t)x->dims[1] * sizeof(float);
}

typedef struct gradient {
    const ct_call *call;
    params p;
    bool sums; /* of weight or bias */
} gradient;

static bool launch(gradient *a, const char *function, bool quads, uint32_t kept, int64_t groups) {
    const ct_call *call = a->call;
    const ct_view *x = call->in[1];
    const size_t moments = moments_bytes(x), partial = (size_t)a->p.parts * 2 * a->p.n * sizeof(float);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    operand(&l, "g", call->in[0], quads, 0);
    operand(&l, "x", x, quads, 0);
    operand(&l, "weight", call->in[2], quads, 0);
    operand(&l, "dx", ct_wgpu_output(call, 0), quads, CT_WGPU_WRITTEN);
    if (moments) ct_wgpu_scratch(&l, "moments", call, CT_F32, 0, moments, CT_WGPU_WRITTEN);
    else ct_wgpu_missing(&l, "moments", CT_F32, CT_WGPU_WRITTEN);
    const unsigned mode = CT_WGPU_WRITTEN | (quads ? CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY : 0);
    if (a->sums && partial) ct_wgpu_scratch(&l, "partial", call, CT_F32, moments, partial, mode);
    else ct_wgpu_missing(&l, "partial", CT_F32, mode);
    ct_wgpu_constant(&l, "KEPT", kept);
    return ct_wgpu_enqueue(call, &l, groups, &a->p, sizeof a->p);
}

bool ct_wgpu_norm_total(const ct_call *call, size_t offset, int64_t parts, int64_t n, const ct_view *dweight,
                        const ct_view *dbias) {
    const params p = {.n = (uint32_t)n, .parts = (uint32_t)parts};
    const size_t bytes = (size_t)parts * 2 * (size_t)n * sizeof(float);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "sum_total", THREADS);
    if (bytes) ct_wgpu_scratch(&l, "partial", call, CT_F32, offset, bytes, 0);
    else ct_wgpu_missing(&l, "partial", CT_F32, 0);
    ct_wgpu_out_or(&l, "dweight", dweight, CT_F32);
    ct_wgpu_out_or(&l, "dbias", dbias, CT_F32);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(n, SIDE), &p, sizeof p);
}

static bool run_total(const gradient *a) {
    return !a->sums || ct_wgpu_norm_total(a->call, moments_bytes(a->call->in[1]), a->p.parts, a->p.n,
                                          ct_wgpu_output(a->call, 1), ct_wgpu_output(a->call, 2));
}

static bool run_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_grad_attrs *attrs = call->attrs;
    const ct_view *x = call->in[1];
    gradient a = {.call = call, .p = params_of(x, attrs->eps, attrs->rms)};
    a.sums = ct_wgpu_output(call, 1) || ct_wgpu_output(call, 2);
    if (a.p.n == 0) return true;
    if (a.p.rows == 0) return run_total(&a);
    const ct_wgpu_row_division d = ct_wgpu_divide_rows(x->dims[0], x->dims[1]);
    const bool quads = d.kept && fits(x) && fits(call->in[0]) && fits(call->in[2]) && fits(ct_wgpu_output(call, 0));
    if (quads) {
        a.p.lanes = d.lanes, a.p.parts = (uint32_t)d.parts;
        return launch(&a, "kept_gradients", true, d.kept, d.groups) && run_total(&a);
    }
    a.p.lanes = any_lanes(a.p.n);
    a.p.chunk = (uint32_t)ct_wgpu_ceil_div(a.p.rows, apart_parts(x));
    a.p.parts = (uint32_t)ct_wgpu_ceil_div(a.p.rows, a.p.chunk);
    if (!launch(&a, "any_gradients", false, 1, ct_wgpu_ceil_div(a.p.rows, THREADS / a.p.lanes))) return false;
    if (!a.sums) return true;
    return launch(&a, "sum_parts", false, 1, ct_wgpu_ceil_div(a.p.n, SIDE) * a.p.parts) && run_total(&a);
}

CT_WGPU_KERNELS(norm_row_norm) = {
    CT_CANDIDATES(row_norm, {"row_norm", can_forward, NULL, run}),
    CT_CANDIDATES(row_norm_grad, {"row_norm_grad", can_grad, grad_scratch, run_grad}),
    {0},
};
