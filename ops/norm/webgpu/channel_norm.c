/* Normalization by channels: statistics (or the sums that gradients are made of) are a reduction, and one pass over x
 * follows. */
#include "backends/webgpu/lines.h"
#include "ops/reduce/webgpu/reduction.h"

#include "gen/norm.attrs.h"

enum { THREADS = 256, QUAD = 4, SETTLED = 5 /* numbers of a set */ };

CT_WGPU_UNIT(norm_channel_norm);
extern const char ct_wgsl_reduce_moments[], ct_wgsl_norm_channel_sums[];

/* As in the device code. */
typedef struct params {
    uint32_t total, places, items, sets;
    float count;
} params;

/* What a call is about: x is (items, channels, places), or with last (items, places, channels). */
typedef struct job {
    const ct_call *call;
    const ct_view *x;
    const ct_view *g, *g_mean, *g_var, *mean, *var, *weight, *bias, *residual, *y; /* NULL: not given, not wanted */
    const ct_view *dx, *dweight, *dbias, *passed;
    int64_t items, channels, places, groups;
    float eps;
    bool last, relu, fixed;
} job;

static job job_of(const ct_call *call, const ct_view *x, int64_t groups, double eps, bool last) {
    return (job){.call = call,
                 .x = x,
                 .items = x->dims[0],
                 .channels = x->dims[last ? 2 : 1],
                 .places = x->dims[last ? 1 : 2],
                 .groups = groups,
                 .eps = (float)eps,
                 .last = last};
}
static int64_t sets_of(const job *j) { return j->groups ? j->items * j->groups : j->channels; }
static int64_t width_of(const job *j) { return j->groups ? j->channels / j->groups : 1; }
static params params_of(const job *j) {
    const double in_set = (double)(width_of(j) * j->places) * (j->groups ? 1.0 : (double)j->items);
    return (params){(uint32_t)ct_wgpu_count(j->x), (uint32_t)j->places, (uint32_t)j->items, (uint32_t)sets_of(j),
                    (float)in_set};
}

/* All dense floats. */
static const char *can(const ct_call *call) {
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (view && view->dtype > CT_BF16) return "it takes floats";
        if (view && !ct_wgpu_is_dense(view)) return "an operand is not dense";
    }
    return ct_wgpu_refuses(call);
}

/* ---- Statistics and sums ---- */

/* A dense view of n dimensions, of which those in mask are missing in memory. */
static ct_view view_of(const ct_view *like, int n, const int64_t *dims, unsigned mask) {
    ct_view v = *like;
    int64_t stride = 1;
    v.ndim = n;
    for (int d = n - 1; d >= 0; d--) {
        const bool missing = mask >> d & 1;
        v.dims[d] = missing ? 1 : dims[d];
        v.strides[d] = missing ? 0 : stride;
        if (!missing) stride *= dims[d];
    }
    return v;
}

static size_t aligned(size_t bytes) { return (bytes + CT_WGPU_ALIGNMENT - 1) / CT_WGPU_ALIGNMENT * CT_WGPU_ALIGNMENT; }
static ct_view in_scratch(const ct_call *call, size_t offset, int64_t n) {
    return (ct_view){.buffer = call->scratch.buffer,
                     .origin = call->scratch.offset + offset,
                     .dtype = CT_F32,
                     .ndim = 1,
                     .dims = {n},
                     .strides = {1}};
}

/* The views of a reduction of x: to one value a set, or a channel (of each item, where there are groups). */
typedef struct reduced {
    ct_view x, out;
    ct_wgpu_reduce reduce;
} reduced;
static void reduced_of(reduced *r, const job *j, const ct_view *out, bool by_channel, size_t scratch_offset) {
    const bool batch = j->groups == 0;
    const int64_t groups = batch || by_channel ? j->channels : j->groups, width = j->channels / (groups ? groups : 1);
    const int64_t first[4] = {j->items, groups, width, j->places}, last[4] = {j->items, j->places, groups, width};
    const unsigned mask = (j->last ? 1u << 1 | 1u << 3 : 1u << 2 | 1u << 3) | (batch ? 1u : 0);
    r->x = view_of(j->x, 4, j->last ? last : first, 0);
    r->out = view_of(out, 4, j->last ? last : first, mask);
    r->reduce = (ct_wgpu_reduce){.x = &r->x, .out = &r->out, .mask = mask, .scratch_offset = scratch_offset};
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void constants(ct_wgpu_launch *l, const job *j) {
    ct_wgpu_constant(l, "CHANNELS", (uint32_t)j->channels);
    ct_wgpu_constant(l, "GROUPS", (uint32_t)j->groups);
    ct_wgpu_constant(l, "WIDTH", (uint32_t)width_of(j));
    ct_wgpu_constant(l, "EPS", bits_of(j->eps));
    ct_wgpu_constant(l, "LAST", j->last);
    ct_wgpu_constant(l, "RELU", j->relu);
    ct_wgpu_constant(l, "FIXED", j->fixed);
}

static void with_variance(ct_wgpu_launch *l, const void *context) {
    const job *j = context;
    ct_wgpu_out(l, "second", j->var);
    ct_wgpu_constant(l, "KIND", 0);
    ct_wgpu_constant(l, "CORRECTION", 0);
}
/* Results of the reduction by channels. */
static int64_t results_of(const job *j) { return j->groups ? j->items * j->channels : j->channels; }
static size_t sums_bytes(const job *j) { return aligned((size_t)results_of(j) * 3 * sizeof(float)); }

static void with_cotangents(ct_wgpu_launch *l, const void *context) {
    const job *j = context;
    for (int i = 0; i < l->n; i++) /* the other two sums lie behind the first, of which the reduction knows */
        if (strcmp(l->operands[i].name, "out") == 0) l->operands[i].high = l->operands[i].low + sums_bytes(j);
    ct_wgpu_in(l, "g", j->g);
    ct_wgpu_in(l, "mean", j->mean);
    ct_wgpu_in(l, "variance", j->var);
    ct_wgpu_in(l, "weight", j->weight);
    ct_wgpu_in(l, "bias", j->bias);
    ct_wgpu_in(l, "y", j->y);
    constants(l, j);
}

/* ---- One pass over x ---- */

static bool fits(const ct_view *view) { return !view || ct_wgpu_fits(view, QUAD); }

static bool in_quads(const job *j) {
    const ct_view *const views[] = {j->x, j->g, j->residual, j->y, j->dx, j->passed};
    for (int i = 0; i < 6; i++)
        if (!fits(views[i])) return false;
    return (j->last ? j->channels : j->places) % QUAD == 0;
}

static void operand(ct_wgpu_launch *l, const char *name, const ct_view *view, bool quads, unsigned mode) {
    const unsigned whole = !view || ct_wgpu_dtype_size(view->dtype) == 4 ? CT_WGPU_QUADS_ONLY : 0;
    ct_wgpu_operand_of(l, name, view, mode | (quads ? CT_WGPU_QUADS | whole : 0));
}

static bool normalize(const job *j) {
    const params p = params_of(j);
    if (p.total == 0) return true;
    const bool quads = in_quads(j);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, quads ? "normalize_quads" : "normalize", THREADS);
    operand(&l, "x", j->x, quads, 0);
    operand(&l, "residual", j->residual, quads, 0);
    operand(&l, "y", j->y, quads, CT_WGPU_WRITTEN);
    ct_wgpu_in(&l, "mean", j->mean);
    ct_wgpu_in(&l, "variance", j->var);
    ct_wgpu_in(&l, "weight", j->weight);
    ct_wgpu_in(&l, "bias", j->bias);
    constants(&l, j);
    return ct_wgpu_enqueue(j->call, &l, ct_wgpu_groups(quads ? p.total / QUAD : p.total, THREADS), &p, sizeof p);
}

/* ---- Forward ---- */

static size_t statistics_bytes(const job *j) { return aligned((size_t)sets_of(j) * sizeof(float)); }

/* Statistics that nobody wants are needed all the same. */
static size_t forward_scratch(const job *j) {
    const ct_view out = {.dtype = CT_F32};
    reduced r;
    reduced_of(&r, j, &out, false, 0);
    return 2 * statistics_bytes(j) + ct_wgpu_reduce_scratch(&r.reduce);
}

static bool forward(job *j) {
    const size_t bytes = statistics_bytes(j);
    const ct_view spare[2] = {in_scratch(j->call, 0, sets_of(j)), in_scratch(j->call, bytes, sets_of(j))};
    j->y = j->call->out[0];
    j->mean = ct_wgpu_output(j->call, 1) ? j->call->out[1] : &spare[0];
    j->var = ct_wgpu_output(j->call, 2) ? j->call->out[2] : &spare[1];
    reduced r;
    reduced_of(&r, j, j->mean, false, 2 * bytes);
    r.reduce.formula = ct_wgsl_reduce_moments;
    r.reduce.with = with_variance, r.reduce.context = j;
    return ct_wgpu_reduce_run(j->call, &r.reduce) && (!j->y || normalize(j));
}

static job plain_job(const ct_call *call) {
    const channel_norm_attrs *a = call->attrs;
    job j = job_of(call, call->in[0], a->groups, a->eps, a->channels_last);
    j.weight = call->in[1], j.bias = call->in[2];
    return j;
}
static job relu_job(const ct_call *call) {
    const channel_norm_relu_attrs *a = call->attrs;
    job j = job_of(call, call->in[0], a->groups, a->eps, a->channels_last);
    j.weight = call->in[1], j.bias = call->in[2], j.residual = call->in[3], j.relu = true;
    return j;
}
#define FORWARD(name)                                                \
    static size_t name##_scratch(const ct_call *call) {              \
        const job j = name##_job(call);                              \
        return forward_scratch(&j);                                  \
    }                                                                \
    static bool name##_run(const ct_call *call, ct_stream *stream) { \
        (void)stream;                                                \
        job j = name##_job(call);                                    \
        return forward(&j);                                          \
    }
FORWARD(plain)
FORWARD(relu)

static bool fixed_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const channel_norm_fixed_attrs *a = call->attrs;
    job j = job_of(call, call->in[0], 0, a->eps, a->channels_last);
    j.mean = call->in[1], j.var = call->in[2], j.weight = call->in[3], j.bias = call->in[4], j.residual = call->in[5];
    j.y = call->out[0], j.relu = a->relu;
    return normalize(&j);
}

/* ---- Gradients ---- */

static job gradient_job(const ct_call *call) {
    const channel_norm_grad_attrs *a = call->attrs;
    enum { G, G_MEAN, G_VAR, X, MEAN, VAR, WEIGHT, BIAS, Y };
    job j = job_of(call, call->in[X], a->groups, a->eps, a->channels_last);
    j.g = call->in[G], j.g_mean = call->in[G_MEAN], j.g_var = call->in[G_VAR];
    j.mean = call->in[MEAN], j.var = call->in[VAR], j.weight = call->in[WEIGHT], j.bias = call->in[BIAS];
    j.y = a->relu ? call->in[Y] : NULL;
    j.dx = ct_wgpu_output(call, 0), j.dweight = ct_wgpu_output(call, 1), j.dbias = ct_wgpu_output(call, 2);
    j.passed = ct_wgpu_output(call, 3);
    j.relu = a->relu, j.fixed = a->fixed;
    return j;
}

static size_t settled_bytes(const job *j) { return aligned((size_t)sets_of(j) * SETTLED * sizeof(float)); }

static size_t gradient_scratch(const ct_call *call) {
    const job j = gradient_job(call);
    const ct_view out = {.dtype = CT_F32};
    reduced r;
    reduced_of(&r, &j, &out, true, 0);
    return sums_bytes(&j) + settled_bytes(&j) + ct_wgpu_reduce_scratch(&r.reduce);
}

static bool settle(const job *j, const char *function, int64_t threads) {
    const params p = params_of(j);
    const size_t sums = sums_bytes(j), settled = settled_bytes(j);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, function, THREADS);
    ct_wgpu_scratch(&l, "sums", j->call, CT_F32, 0, sums, 0);
    if (settled) ct_wgpu_scratch(&l, "settled", j->call, CT_F32, sums, settled, CT_WGPU_WRITTEN);
    else ct_wgpu_missing(&l, "settled", CT_F32, CT_WGPU_WRITTEN);
    ct_wgpu_in(&l, "variance", j->var);
    ct_wgpu_in(&l, "weight", j->weight);
    ct_wgpu_in(&l, "g_mean", j->g_mean);
    ct_wgpu_in(&l, "g_var", j->g_var);
    ct_wgpu_out(&l, "dweight", j->dweight);
    ct_wgpu_out(&l, "dbias", j->dbias);
    constants(&l, j);
    return ct_wgpu_enqueue(j->call, &l, ct_wgpu_ceil_div(threads, THREADS), &p, sizeof p);
}

static bool gradients(const job *j) {
    const params p = params_of(j);
    if (p.total == 0 || (!j->dx && !j->passed)) return true;
    const bool quads = in_quads(j);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, quads ? "gradients_quads" : "gradients", THREADS);
    operand(&l, "x", j->x, quads, 0);
    operand(&l, "g", j->g, quads, 0);
    operand(&l, "dx", j->dx, quads, CT_WGPU_WRITTEN);
    operand(&l, "passed", j->passed, quads, CT_WGPU_WRITTEN);
    ct_wgpu_in(&l, "y", j->y);
    ct_wgpu_in(&l, "mean", j->mean);
    ct_wgpu_in(&l, "variance", j->var);
    ct_wgpu_in(&l, "weight", j->weight);
    ct_wgpu_in(&l, "bias", j->bias);
    ct_wgpu_scratch(&l, "settled", j->call, CT_F32, sums_bytes(j), settled_bytes(j), 0);
    constants(&l, j);
    return ct_wgpu_enqueue(j->call, &l, ct_wgpu_groups(quads ? p.total / QUAD : p.total, THREADS), &p, sizeof p);
}

static bool gradient_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const job j = gradient_job(call);
    const ct_view out = in_scratch(call, 0, results_of(&j));
    const bool parameters = j.dweight || j.dbias;
    if (j.channels == 0) return true;
    reduced r;
    reduced_of(&r, &j, &out, true, sums_bytes(&j) + settled_bytes(&j));
    r.reduce.formula = ct_wgsl_norm_channel_sums;
    r.reduce.with = with_cotangents, r.reduce.context = &j;
    const bool needs_sums = parameters || (j.dx && !j.fixed);
    if (needs_sums && !ct_wgpu_reduce_run(call, &r.reduce)) return false;
    if (j.dx && !j.fixed && !settle(&j, "settle", sets_of(&j))) return false;
    if (parameters && !settle(&j, "settle_channels", j.channels)) return false;
    return gradients(&j);
}

CT_WGPU_KERNELS(norm_channel_norm) = {
    CT_CANDIDATES(channel_norm, {"channels", can, plain_scratch, plain_run}),
    CT_CANDIDATES(channel_norm_relu, {"channels", can, relu_scratch, relu_run}),
    CT_CANDIDATES(channel_norm_grad, {"channels", can, gradient_scratch, gradient_run}),
    CT_CANDIDATES(channel_norm_fixed, {"channels", can, NULL, fixed_run}),
    {0},
};
