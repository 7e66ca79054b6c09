/* Scans: how lines are shared out, and which device code runs. */
#include "ops/scan/cuda/scan.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/scan.attrs.h"

enum {
    DTYPES = CT_BOOL + 1,
    BLOCKS = 1056,    /* that keep a large device busy; constants, since the bits of sums hang on them */
    THREADS = 131072, /* the same of threads */
    TINY = 32,        /* lines that a thread walks even where neighbors lie along them */
};

extern const unsigned char ct_fatbin_scan_sums[], ct_fatbin_scan_extrema[];
static ct_cuda_unit sums_unit = CT_CUDA_UNIT_FROM("scan_sums", ct_fatbin_scan_sums, false);
static ct_cuda_unit extrema_unit = CT_CUDA_UNIT_FROM("scan_extrema", ct_fatbin_scan_extrema, false);

typedef struct scan {
    ct_cuda_function blocks[DTYPES], threads[DTYPES];
    size_t state; /* bytes */
} scan;

#define OF_DTYPE(unit, name, code, suffix) [code] = CT_CUDA_FUNCTION_OF(&unit, name #suffix)
#define OF_FLOATS(unit, name)                                                                                \
    OF_DTYPE(unit, name, CT_F32, f32), OF_DTYPE(unit, name, CT_F64, f64), OF_DTYPE(unit, name, CT_F16, f16), \
        OF_DTYPE(unit, name, CT_BF16, bf16)
#define OF_INTEGERS(unit, name)                                                                            \
    OF_DTYPE(unit, name, CT_I8, i8), OF_DTYPE(unit, name, CT_I16, i16), OF_DTYPE(unit, name, CT_I32, i32), \
        OF_DTYPE(unit, name, CT_I64, i64), OF_DTYPE(unit, name, CT_U8, u8), OF_DTYPE(unit, name, CT_BOOL, u8)
#define SCAN(name, unit, state)                                                                            \
    static scan name##_scan = {{OF_FLOATS(unit, #name "_blocks_"), OF_INTEGERS(unit, #name "_blocks_")},   \
                               {OF_FLOATS(unit, #name "_threads_"), OF_INTEGERS(unit, #name "_threads_")}, \
                               state}
SCAN(cumsum, sums_unit, 8);
SCAN(cumprod, sums_unit, 8);
SCAN(cummax, extrema_unit, 16);
SCAN(cummin, extrema_unit, 16);
static scan linear_scan_scan = {
    {OF_FLOATS(sums_unit, "linear_scan_blocks_")}, {OF_FLOATS(sums_unit, "linear_scan_threads_")}, 16};

typedef struct plan {
    ct_cuda_scan a;
    bool threads;
    unsigned block;
} plan;

static int64_t between(int64_t low, int64_t a, int64_t high) { return a > high ? high : a < low ? low : a; }

/* By shapes alone. There is at least one element. */
static plan plan_of(const ct_call *call, int64_t axis, bool reverse) {
    const ct_view *x = call->in[0];
    const ct_view *third = call->n_in > 1 ? call->in[1] : call->n_out > 1 ? call->out[1] : NULL;
    const ct_view *views[3] = {x, call->out[0], third};
    const int at = x->ndim ? (int)(axis < 0 ? axis + x->ndim : axis) : 0;
    plan p;
    memset(&p, 0, sizeof p);
    ct_cuda_scan *a = &p.a;
    a->lines = ct_cuda_lines(views, 3, at);
    a->n = x->ndim ? x->dims[at] : 1;
    a->reverse = reverse;
    for (int i = 0; i < 3; i++) a->step[i] = views[i] && x->ndim ? views[i]->strides[at] : 0;
    const int64_t lines = a->lines.total, step = a->step[0] < 0 ? -a->step[0] : a->step[0];
    const int64_t aside = a->lines.strides[0][a->lines.ndim - 1];
    const bool across = lines >= 32 && aside != 0 && (aside < 0 ? -aside : aside) < step;
    p.threads = across || (a->n <= TINY && lines > 1);
    if (p.threads) {
        p.block = 128;
        a->chunks = lines < THREADS ? between(1, ct_cuda_ceil_div(THREADS, lines), ct_cuda_ceil_div(a->n, 64)) : 1;
        if (a->chunks > CT_SCAN_CHUNKS) a->chunks = CT_SCAN_CHUNKS;
    } else {
        p.block = 32;
        while (p.block < 256 && p.block * CT_SCAN_EACH < a->n) p.block *= 2;
        a->chunks = lines < BLOCKS
                        ? between(1, ct_cuda_ceil_div(BLOCKS, lines), ct_cuda_ceil_div(a->n, 256 * CT_SCAN_EACH * 2))
                        : 1;
        if (a->chunks > CT_SCAN_CHUNKS) a->chunks = CT_SCAN_CHUNKS;
    }
    a->chunk = ct_cuda_ceil_div(ct_cuda_ceil_div(a->n, a->chunks), CT_SCAN_EACH) * CT_SCAN_EACH;
    a->chunks = ct_cuda_ceil_div(a->n, a->chunk);
    return p;
}

static size_t scratch_of(const scan *s, const ct_call *call, int64_t axis, bool reverse) {
    if (ct_cuda_count(call->in[0]) == 0) return 0;
    const plan p = plan_of(call, axis, reverse);
    return p.a.chunks > 1 ? (size_t)(p.a.lines.total * p.a.chunks) * s->state : 0;
}

static bool run(scan *s, const ct_call *call, int64_t axis, bool reverse) {
    const ct_view *x = call->in[0];
    if (ct_cuda_count(x) == 0) return true;
    plan p = plan_of(call, axis, reverse);
    ct_cuda_scan *a = &p.a;
    a->at[0] = ct_cuda_address(x);
    a->at[1] = call->out[0] ? ct_cuda_address(call->out[0]) : NULL;
    if (call->n_in > 1) a->at[2] = ct_cuda_address(call->in[1]);
    else if (call->n_out > 1 && call->out[1]) a->at[2] = ct_cuda_address(call->out[1]);
    const int64_t jobs = a->lines.total * a->chunks, blocks = p.threads ? ct_cuda_ceil_div(jobs, p.block) : jobs;
    const ct_cuda_shape shape = {.grid = (unsigned)between(1, blocks, 1 << 20), .block = p.block};
    ct_cuda_function *function = p.threads ? &s->threads[x->dtype] : &s->blocks[x->dtype];
    if (a->chunks > 1) {
        a->partial = ct_cuda_scratch(call);
        a->totals = 1;
        if (!ct_cuda_launch(call, function, shape, a)) return false;
        a->totals = 0;
    }
    return ct_cuda_launch(call, function, shape, a);
}

static const char *can(const ct_call *call) {
    return (int)call->in[0]->dtype < DTYPES ? NULL : "no arithmetic on this dtype";
}

#define KERNEL(name, REVERSE)                                        \
    static size_t name##_scratch(const ct_call *call) {              \
        const name##_attrs *attrs = call->attrs;                     \
        return scratch_of(&name##_scan, call, attrs->axis, REVERSE); \
    }                                                                \
    static bool name##_run(const ct_call *call, ct_stream *stream) { \
        (void)stream;                                                \
        const name##_attrs *attrs = call->attrs;                     \
        return run(&name##_scan, call, attrs->axis, REVERSE);        \
    }
KERNEL(cumsum, false)
KERNEL(cumprod, false)
KERNEL(linear_scan, attrs->reverse)
KERNEL(cummax, false)
KERNEL(cummin, false)

CT_CUDA_KERNELS(scan_scan) = {
    CT_CANDIDATES(cumsum, {"cumsum", can, cumsum_scratch, cumsum_run}),
    CT_CANDIDATES(cumprod, {"cumprod", can, cumprod_scratch, cumprod_run}),
    CT_CANDIDATES(linear_scan, {"linear_scan", can, linear_scan_scratch, linear_scan_run}),
    CT_CANDIDATES(cummax, {"cummax", can, cummax_scratch, cummax_run}),
    CT_CANDIDATES(cummin, {"cummin", can, cummin_scratch, cummin_run}),
    {0},
};
