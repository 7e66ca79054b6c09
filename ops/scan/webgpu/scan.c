/* Scans: how lines are shared out, and which formula runs. */
#include "backends/webgpu/lines.h"

#include "gen/scan.attrs.h"

enum {
    THREADS = 256,
    EACH = 8,       /* elements that an invocation takes at once, as in the device code */
    CHUNKS = 256,   /* the most in a line */
    BLOCKS = 1056,  /* workgroups that keep a large device busy; constants, since the bits of sums hang on them */
    WALKS = 131072, /* the same of invocations */
    TINY = 32,      /* lines that an invocation walks even where neighbors lie along them */
    CHUNK_BYTES = 16,
};

CT_WGPU_UNIT(scan_scan);

extern const char ct_wgsl_scan_sums_real[], ct_wgsl_scan_sums_whole[], ct_wgsl_scan_products_real[],
    ct_wgsl_scan_products_whole[], ct_wgsl_scan_recurrence[], ct_wgsl_scan_extrema_word[], ct_wgsl_scan_extrema_wide[];

typedef struct scan {
    const char *real, *word, *wide; /* the formula of floats, of integers in a word, of i64 */
    bool greatest;                  /* of extrema */
    bool places;                    /* the third operand are places, not b of a recurrence */
} scan;
#define SUMS    ct_wgsl_scan_sums_whole
#define FACTORS ct_wgsl_scan_products_whole
#define EXTREMA ct_wgsl_scan_extrema_word, ct_wgsl_scan_extrema_word, ct_wgsl_scan_extrema_wide
static const scan cumsum_scan = {ct_wgsl_scan_sums_real, SUMS, SUMS, false, false},
                  cumsum_back_scan = {ct_wgsl_scan_sums_real, SUMS, SUMS, false, false},
                  cumprod_scan = {ct_wgsl_scan_products_real, FACTORS, FACTORS, false, false},
                  linear_scan_scan = {ct_wgsl_scan_recurrence, NULL, NULL, false, false},
                  cummax_scan = {EXTREMA, true, true}, cummin_scan = {EXTREMA, false, true};

/* As in the device code. */
typedef struct params {
    uint32_t lines, n, chunks, chunk, totals, pad[3];
    uint32_t first[4], step[4];
    uint32_t dims[CT_WGPU_DIMS], strides[3][CT_WGPU_DIMS];
} params;

typedef struct division {
    params p;
    uint32_t rank, threads;
    bool walks; /* an invocation per chunk, not a workgroup */
} division;

static int64_t between(int64_t low, int64_t a, int64_t high) { return a > high ? high : a < low ? low : a; }

/* By shapes alone. There is at least one element. */
static division plan_of(const ct_call *call, int64_t axis, bool reverse) {
    const ct_view *third = call->n_in > 1 ? call->in[1] : ct_wgpu_output(call, 1);
    const ct_view *views[3] = {call->in[0], call->out[0], third};
    const ct_wgpu_lines l = ct_wgpu_lines_of(views, 3, axis);
    const int64_t lines = l.nest.total, n = l.n;
    division plan;
    memset(&plan, 0, sizeof plan);
    params *p = &plan.p;
    p->lines = l.nest.total, p->n = (uint32_t)n;
    for (int i = 0; i < 3; i++) {
        p->first[i] = reverse ? (uint32_t)((n - 1) * l.step[i]) : 0;
        p->step[i] = (uint32_t)(reverse ? -l.step[i] : l.step[i]);
        memcpy(p->strides[i], l.nest.strides[i], sizeof p->strides[i]);
    }
    memcpy(p->dims, l.nest.dims, sizeof p->dims);
    plan.rank = l.nest.rank;

    const int64_t step = l.step[0] < 0 ? -l.step[0] : l.step[0];
    const int64_t stride = (int32_t)l.nest.strides[0][l.nest.rank - 1], aside = stride < 0 ? -stride : stride;
    plan.walks = (lines >= 32 && aside != 0 && aside < step) || (n <= TINY && lines > 1);
    int64_t chunks = 1;
    if (plan.walks) {
        plan.threads = 128;
        if (lines < WALKS) chunks = between(1, ct_wgpu_ceil_div(WALKS, lines), ct_wgpu_ceil_div(n, 64));
    } else {
        plan.threads = 32;
        while (plan.threads < THREADS && plan.threads * EACH < n) plan.threads *= 2;
        if (lines < BLOCKS)
            chunks = between(1, ct_wgpu_ceil_div(BLOCKS, lines), ct_wgpu_ceil_div(n, THREADS * EACH * 2));
    }
    if (chunks > CHUNKS) chunks = CHUNKS;
    p->chunk = (uint32_t)(ct_wgpu_ceil_div(ct_wgpu_ceil_div(n, chunks), EACH) * EACH);
    p->chunks = (uint32_t)ct_wgpu_ceil_div(n, p->chunk);
    return plan;
}

static size_t scratch_for(const params *p) { return p->chunks > 1 ? (size_t)p->lines * p->chunks * CHUNK_BYTES : 0; }

static size_t scratch_of(const ct_call *call, int64_t axis, bool reverse) {
    if (ct_wgpu_count(call->in[0]) == 0) return 0;
    const division plan = plan_of(call, axis, reverse);
    return scratch_for(&plan.p);
}

/* Whether x and y of a scan that makes floats of floats come in aligned quads. */
static bool in_quads(const scan *s, const ct_call *call, const division *plan) {
    const ct_view *x = call->in[0], *y = call->out[0];
    const params *p = &plan->p;
    if (s->places || call->n_in > 1 || plan->walks || x->dtype > CT_BF16) return false;
    if (p->n % 4 != 0 || p->step[0] != 1 || p->step[1] != 1 || !ct_wgpu_fits(x, 4) || !ct_wgpu_fits(y, 4)) return false;
    for (uint32_t d = 0; d < plan->rank; d++)
        if (p->strides[0][d] % 4 != 0 || p->strides[1][d] % 4 != 0) return false;
    return true;
}

static bool run(const scan *s, const ct_call *call, int64_t axis, bool reverse) {
    const ct_view *x = call->in[0];
    if (ct_wgpu_count(x) == 0) return true;
    const bool real = x->dtype <= CT_BF16, wide = x->dtype == CT_I64;
    division plan = plan_of(call, axis, reverse);
    params *p = &plan.p;
    const bool quads = in_quads(s, call, &plan);
    const unsigned mode = quads ? CT_WGPU_QUADS | (x->dtype == CT_F32 ? CT_WGPU_QUADS_ONLY : 0) : 0;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, plan.walks ? "threads" : quads ? "quad_blocks" : "blocks", plan.threads);
    l.more = real ? s->real : wide ? s->wide : s->word;
    ct_wgpu_operand_of(&l, "x", x, mode);
    if (call->out[0]) ct_wgpu_operand_of(&l, "y", call->out[0], CT_WGPU_WRITTEN | mode);
    else ct_wgpu_missing(&l, "y", x->dtype, CT_WGPU_WRITTEN);
    if (s->places) ct_wgpu_out_or(&l, "third", ct_wgpu_output(call, 1), CT_I64);
    else ct_wgpu_in_or(&l, "third", call->n_in > 1 ? call->in[1] : NULL, CT_F32);
    if (p->chunks > 1) ct_wgpu_scratch(&l, "partial", call, CT_I64, 0, scratch_for(p), CT_WGPU_WRITTEN);
    else ct_wgpu_missing(&l, "partial", CT_I64, CT_WGPU_WRITTEN);
    ct_wgpu_constant(&l, "RANK", plan.rank);
    ct_wgpu_constant(&l, "REAL", real);
    ct_wgpu_constant(&l, "WIDE", wide);
    ct_wgpu_constant(&l, "GREATEST", s->greatest);
    const int64_t jobs = (int64_t)p->lines * p->chunks,
                  groups = plan.walks ? ct_wgpu_ceil_div(jobs, plan.threads) : jobs;
    if (p->chunks > 1) {
        p->totals = 1;
        if (!ct_wgpu_enqueue(call, &l, groups, p, sizeof *p)) return false;
        p->totals = 0;
    }
    return ct_wgpu_enqueue(call, &l, groups, p, sizeof *p);
}

static const char *can(const ct_call *call) {
    return call->in[0]->dtype <= CT_BOOL ? ct_wgpu_refuses(call) : "no arithmetic on this dtype";
}

#define KERNEL(name, REVERSE)                                        \
    static size_t name##_scratch(const ct_call *call) {              \
        const name##_attrs *attrs = call->attrs;                     \
        return scratch_of(call, attrs->axis, REVERSE);               \
    }                                                                \
    static bool name##_run(const ct_call *call, ct_stream *stream) { \
        (void)stream;                                                \
        const name##_attrs *attrs = call->attrs;                     \
        return run(&name##_scan, call, attrs->axis, REVERSE);        \
    }
KERNEL(cumsum, false)
KERNEL(cumsum_back, true)
KERNEL(cumprod, false)
KERNEL(linear_scan, attrs->reverse)
KERNEL(cummax, false)
KERNEL(cummin, false)

CT_WGPU_KERNELS(scan_scan) = {
    CT_CANDIDATES(cumsum, {"cumsum", can, cumsum_scratch, cumsum_run}),
    CT_CANDIDATES(cumsum_back, {"cumsum_back", can, cumsum_back_scratch, cumsum_back_run}),
    CT_CANDIDATES(cumprod, {"cumprod", can, cumprod_scratch, cumprod_run}),
    CT_CANDIDATES(linear_scan, {"linear_scan", can, linear_scan_scratch, linear_scan_run}),
    CT_CANDIDATES(cummax, {"cummax", can, cummax_scratch, cummax_run}),
    CT_CANDIDATES(cummin, {"cummin", can, cummin_scratch, cummin_run}),
    {0},
};
