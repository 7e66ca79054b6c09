/* check_range: a copy behind a look at the values; the copy does nothing where a value was wrong and the call is one
 * of those that last. */
#include "ops/check/check.h"

#include <float.h>
#include <math.h>

#include "backends/webgpu/strided.h"

#include "gen/check.attrs.h"

typedef struct params {
    uint32_t total, rank, argument, what;
    uint32_t dims[CT_WGPU_DIMS], strides[1][CT_WGPU_DIMS];
    uint32_t low[2], high[2], places, count;
} params;

#define REAL    "fn is_right(v: f32) -> bool { return v >= bitcast<f32>(p.low.x) && v <= bitcast<f32>(p.high.x); }\n"
#define PAIR(x) "fn is_right(v: x_t) -> bool { return ct_i64_le(p.low, " x ") && ct_i64_le(" x ", p.high); }\n"
#define WORD    "ct_i64_from_i32(v)"
static const char real[] =
    REAL "fn note(v: x_t, e: u32) {\n"
         "    ct_wrong_value(p.argument, p.what, position_of(e), v, bitcast<f32>(p.low.x), bitcast<f32>(p.high.x));\n"
         "}\n";
#define COUNT(x) \
    PAIR(x) "fn note(v: x_t, e: u32) { ct_wrong_count(p.argument, p.what, position_of(e), " x ", p.low, p.high); }\n"
#define INDEX(x) PAIR(x) "fn note(v: x_t, e: u32) { ct_wrong_index(p.argument, e, " x ", p.count); }\n"
static const char word[] = COUNT(WORD), pair[] = COUNT("v"), word_index[] = INDEX(WORD), pair_index[] = INDEX("v");

/* What is no bound in f64 is none in f32. */
static float real_bound(double bound, bool low) {
    if (bound == DBL_MIN) return FLT_MIN;
    if (fabs(bound) >= DBL_MAX) return isinf(bound) ? (float)bound : bound > 0 ? FLT_MAX : -FLT_MAX;
    const float near = (float)bound;
    if (low) return (double)near < bound ? nextafterf(near, INFINITY) : near;
    return (double)near > bound ? nextafterf(near, -INFINITY) : near;
}

static int64_t whole(double bound, bool low) {
    bound = low ? ceil(bound) : floor(bound);
    return bound >= 0x1p63 ? CT_NO_BOUND : bound < -0x1p63 ? INT64_MIN : (int64_t)bound;
}

static void put_pair(uint32_t to[2], int64_t value) {
    to[0] = (uint32_t)value, to[1] = (uint32_t)((uint64_t)value >> 32);
}

static bool run(const ct_call *call, ct_stream *stream) {
    CT_WGPU_UNIT(check_check);
    (void)stream;
    const check_range_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0];
    const ct_op *of = ct_wgpu_host->op_find(attrs->of.s);
    const bool is_real = x->dtype <= CT_BF16, is_pair = x->dtype == CT_I64;
    ct_wgpu_walk walk = ct_wgpu_walk_begin(1);
    for (int d = 0; d < x->ndim; d++) ct_wgpu_walk_add(&walk, x->dims[d], &x->strides[d]);
    params p = {.total = (uint32_t)walk.total,
                .rank = (uint32_t)walk.ndim,
                .argument = of ? (uint32_t)attrs->argument : 0,
                .what = ct__checked_texts[attrs->what] != NULL,
                .places = attrs->what == CT_CHECKED_ELEMENT || ct__checked_by_row(attrs->what),
                .count = attrs->hi >= 0x1p32 - 2 ? UINT32_MAX : (uint32_t)(int64_t)(attrs->hi + 1)};
    ct_wgpu_walk_dims(&walk, p.dims);
    ct_wgpu_walk_strides(&walk, 0, p.strides[0]);
    const float low = real_bound(attrs->lo, true), high = real_bound(attrs->hi, false);
    put_pair(p.low, whole(attrs->lo, true));
    put_pair(p.high, whole(attrs->hi, false));
    if (is_real) memcpy(p.low, &low, sizeof low), memcpy(p.high, &high, sizeof high);
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "check", 256);
    ct_wgpu_in(&launch, "x", x);
    launch.whats[0] = ct__checked_texts[attrs->what];
    launch.more = is_real ? real : attrs->index ? (is_pair ? pair_index : word_index) : is_pair ? pair : word;
    ct_call noted = *call; /* errors are of the op that is lowered */
    if (of) noted.op = of;
    return ct_wgpu_enqueue(&noted, &launch, ct_wgpu_groups(walk.total, 256), &p, sizeof p) &&
           ct_wgpu_copy_view(call, call->out[0], x);
}

static const char *can(const ct_call *call) {
    return call->in[0]->dtype > CT_BOOL ? "there is no arithmetic on it" : ct_wgpu_refuses(call);
}

CT_WGPU_KERNELS(check_check) = {
    CT_CANDIDATES(check_range, {"look", can, NULL, run}),
    {0},
};
