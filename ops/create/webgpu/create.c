/* Tensors made of nothing: of one value, of a line of values, or of whatever is there. */
#include <math.h>

#include "backends/webgpu/strided.h"
#include "ops/create/webgpu/create.h"

#include "gen/create.attrs.h"

CT_WGPU_UNIT(create_create);

/* ---- One value ---- */

static bool fill_with(const ct_call *call, double value) {
    uint32_t bits[2];
    ct_wgpu_bits_of(call->out[0]->dtype, value, bits);
    return ct_wgpu_fill_view(call, call->out[0], bits);
}

static bool run_zeros(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 0);
}

static bool run_ones(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 1);
}

static bool run_full(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_attrs *)call->attrs)->value);
}

static bool run_full_like(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_like_attrs *)call->attrs)->value);
}

static bool run_full_i64(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const uint64_t value = (uint64_t)((const full_i64_attrs *)call->attrs)->value;
    return ct_wgpu_fill_view(call, call->out[0], (const uint32_t[]){(uint32_t)value, (uint32_t)(value >> 32)});
}

bool ct_wgpu_filled_with(const ct_call *call, uint32_t bits[2]) {
    double value = 0;
    bool (*const run)(const ct_call *, ct_stream *) = call->kernel ? call->kernel->run : NULL;
    if (run == run_ones) value = 1;
    else if (run == run_full) value = ((const full_attrs *)call->attrs)->value;
    else if (run == run_full_like) value = ((const full_like_attrs *)call->attrs)->value;
    else if (run != run_zeros) return false;
    ct_wgpu_bits_of(call->out[0]->dtype, value, bits);
    return true;
}

static bool run_empty(const ct_call *call, ct_stream *stream) {
    (void)call, (void)stream;
    return true;
}

/* ---- A line ---- */

typedef struct line_params {
    uint32_t total, rank, middle, pad;
    uint32_t dims[CT_WGPU_DIMS], strides[1][CT_WGPU_DIMS];
    uint64_t start, step, stop;
    int32_t least, most;
} line_params;

static const char reals[] = "fn value_at(e: u32) -> y_t { return ct_f64_to_f32(line_at(e)); }\n";
static const char wholes[] = "fn value_at(e: u32) -> y_t { return ct_f64_to_i32(line_at(e), p.least, p.most); }\n";
static const char truths[] = "fn value_at(e: u32) -> y_t { return select(1, 0, ct_f64_is_zero(line_at(e))); }\n";
static const char pairs[] = "fn value_at(e: u32) -> y_t { return ct_f64_to_i64(line_at(e)); }\n";
/* modulo 2^64, in which no step can overflow */
static const char exact_pairs[] =
    "fn value_at(e: u32) -> y_t { return ct_i64_add(p.start, ct_i64_mul(p.step, ct_i64(e, 0u))); }\n";

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool line(const ct_call *call, uint64_t start, uint64_t step, uint64_t stop, int64_t middle, const char *value) {
    const ct_view *y = call->out[0];
    ct_wgpu_walk walk = ct_wgpu_walk_begin(1);
    for (int d = 0; d < y->ndim; d++) ct_wgpu_walk_add(&walk, y->dims[d], &y->strides[d]);
    line_params p = {.total = (uint32_t)walk.total,
                     .rank = (uint32_t)walk.ndim,
                     .middle = (uint32_t)middle,
                     .start = start,
                     .step = step,
                     .stop = stop};
    const int bits = 8 * (int)ct_wgpu_dtype_size(y->dtype);
    p.most = y->dtype == CT_U8 ? UINT8_MAX : (int32_t)(((int64_t)1 << (bits < 32 ? bits - 1 : 31)) - 1);
    p.least = y->dtype == CT_U8 ? 0 : -p.most - 1;
    ct_wgpu_walk_dims(&walk, p.dims);
    ct_wgpu_walk_strides(&walk, 0, p.strides[0]);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "line", 256);
    ct_wgpu_out(&launch, "y", y);
    launch.more = value                 ? value
                  : y->dtype <= CT_BF16 ? reals
                  : y->dtype == CT_BOOL ? truths
                  : y->dtype == CT_I64  ? pairs
                                        : wholes;
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(walk.total, 256), &p, sizeof p);
}

static bool run_arange(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const arange_attrs *a = call->attrs;
    return line(call, bits_of(a->start), bits_of(a->step), 0, UINT32_MAX, NULL);
}

static bool run_arange_i64(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const arange_i64_attrs *a = call->attrs;
    return line(call, (uint64_t)a->start, (uint64_t)a->step, 0, UINT32_MAX, exact_pairs);
}

static bool run_linspace(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const linspace_attrs *a = call->attrs;
    const double step = a->n > 1 ? (a->stop - a->start) / (double)(a->n - 1) : 0;
    return line(call, bits_of(a->start), bits_of(step), bits_of(a->stop), a->n > 1 ? (a->n - 1) / 2 : 0, NULL);
}

/* Types without arithmetic are cast to, and not counted. */
static const char *can_line(const ct_call *call) {
    return call->out[0]->dtype > CT_BOOL ? "there is no arithmetic on it" : ct_wgpu_refuses(call);
}

CT_WGPU_KERNELS(create_create) = {
    CT_CANDIDATES(zeros, {"fill", ct_wgpu_refuses, NULL, run_zeros}),
    CT_CANDIDATES(ones, {"fill", ct_wgpu_refuses, NULL, run_ones}),
    CT_CANDIDATES(full, {"fill", ct_wgpu_refuses, NULL, run_full}),
    CT_CANDIDATES(full_i64, {"fill", ct_wgpu_refuses, NULL, run_full_i64}),
    CT_CANDIDATES(empty, {"leave", ct_wgpu_refuses, NULL, run_empty}),
    CT_CANDIDATES(zeros_like, {"fill", ct_wgpu_refuses, NULL, run_zeros}),
    CT_CANDIDATES(ones_like, {"fill", ct_wgpu_refuses, NULL, run_ones}),
    CT_CANDIDATES(full_like, {"fill", ct_wgpu_refuses, NULL, run_full_like}),
    CT_CANDIDATES(empty_like, {"leave", ct_wgpu_refuses, NULL, run_empty}),
    CT_CANDIDATES(arange, {"line", can_line, NULL, run_arange}),
    CT_CANDIDATES(arange_i64, {"line", can_line, NULL, run_arange_i64}),
    CT_CANDIDATES(linspace, {"line", can_line, NULL, run_linspace}),
    {0},
};
