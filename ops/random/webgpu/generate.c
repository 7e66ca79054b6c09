/* Random tensors: the host side. Everything that is random is made by one function of the device code, with the words that the CPU takes. */
#include <float.h>
#include <math.h>
#include <stddef.h>

#include "backends/webgpu/webgpu.h"
#include "ops/random/random.h"

#include "gen/random.attrs.h"

CT_WGPU_UNIT(random_generate);

enum kind { WORDS, UNIFORM, NORMAL, TRUNCATED, INTEGERS, BERNOULLI, BERNOULLI_FULL };
enum { THREADS = 256 };

typedef struct params {
    ct_wgpu_nest nest;
    uint64_t seed, stream;
    uint64_t call, lo;
    uint64_t range;
    uint32_t shift, bound;
    float unit, low, width, most; /* of TRUNCATED unit is the least number */
    float from_scaled, width_scaled, above, width_above;
    float scale, log_scale;
    uint32_t step, one;
} params;

/* How values are stored, by what the result is computed in: all in quads of elements, all but the last few, or one by one. */
#define ONE(type)  "fn put1(i: u32, low: u32, high: u32) { y_store(i, bitcast<" type ">(low)); }\n"
#define FOUR(type) "fn put4(i: u32, low: vec4<u32>, high: vec4<u32>) { y_store4(i, bitcast<vec4<" type ">>(low)); }\n"
#define NO_ONE     "fn put1(i: u32, low: u32, high: u32) {}\n"
#define NO_FOUR    "fn put4(i: u32, low: vec4<u32>, high: vec4<u32>) {}\n"
enum how { QUADS, MOSTLY_QUADS, SINGLES };
static const char *const floats[] = {NO_ONE FOUR("f32"), ONE("f32") FOUR("f32"), ONE("f32") NO_FOUR};
static const char *const integers[] = {NO_ONE FOUR("i32"), ONE("i32") FOUR("i32"), ONE("i32") NO_FOUR};
static const char pairs[] = "fn put1(i: u32, low: u32, high: u32) { y_store(i, ct_i64(low, high)); }\n"
                            "fn put4(i: u32, low: vec4<u32>, high: vec4<u32>) {\n"
                            "    for (var k = 0u; k < 4u; k++) { y_store(i + k, ct_i64(low[k], high[k])); }\n"
                            "}\n";

static bool is_float(ct_dtype dtype) { return dtype <= CT_BF16; }

/* position: NULL, or where the position lies as three integers; chance: NULL, or the probabilities of a bernoulli. */
static bool generate(const ct_call *call, enum kind kind, params *p, const ct_view *position, const ct_view *chance) {
    const ct_view *y = call->out[0];
    const bool dense = ct_wgpu_is_dense(y), wide = y->dtype == CT_I64;
    const enum how how = !dense || wide || !ct_wgpu_fits(y, 4) ? SINGLES : ct_wgpu_count(y) % 4 ? MOSTLY_QUADS : QUADS;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "generate", THREADS);
    ct_wgpu_operand_of(
        &l, "y", y, CT_WGPU_WRITTEN | (how == SINGLES ? 0 : CT_WGPU_QUADS) | (how == QUADS ? CT_WGPU_QUADS_ONLY : 0));
    ct_wgpu_in(&l, "position", position);
    l.operands[l.n - 1].dtype = CT_I32; /* in words */
    ct_wgpu_in(&l, "chance", chance);
    ct_wgpu_constant(&l, "KIND", kind);
    ct_wgpu_constant(&l, "WIDE", position && position->dtype == CT_I64);
    ct_wgpu_constant(&l, "DENSE", wide ? dense : how != SINGLES);
    l.more = wide ? pairs : (is_float(y->dtype) ? floats : integers)[how];
    ct_wgpu_nest_of(&p->nest, (const ct_view *const[]){y, chance ? chance : y}, 2);
    if (position) p->step = (uint32_t)(position->strides[0] * (position->dtype == CT_I64 ? 2 : 1));
    p->seed = call->random.seed, p->stream = call->random.stream, p->call = call->random.call;
    return ct_wgpu_enqueue(call, &l, ct_wgpu_groups(((int64_t)p->nest.total + 3) / 4, THREADS), p, sizeof *p);
}

static bool words_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    params p = {0};
    return generate(call, WORDS, &p, call->in[0], NULL);
}

/* ---- Uniform ---- */

/* The largest number of a dtype with `digits` bits in its significand and exponents from `least` on that is below x. */
static double below(double x, int digits, int least) {
    int exponent;
    frexp(x, &exponent); /* |x| is at most 2^exponent */
    if (x > 0 && ldexp(1, exponent - 1) == x) exponent--;
    const double step = ldexp(1, (exponent > least ? exponent : least) - digits);
    return (ceil(x / step) - 1) * step;
}

static double uniform_most(ct_dtype dtype, double lo, double hi) {
    const double most = !(lo < hi)         ? lo
                        : dtype == CT_F16  ? below(hi, 11, -13)
                        : dtype == CT_BF16 ? below(hi, 8, -125)
                                           : below(hi, FLT_MANT_DIG, FLT_MIN_EXP);
    return most < lo ? lo : most;
}

static bool uniform(const ct_call *call, double lo, double hi) {
    const ct_dtype dtype = call->out[0]->dtype;
    const int bits = dtype == CT_F16 ? 11 : dtype == CT_BF16 ? 8 : 24;
    params p = {.shift = (uint32_t)(32 - bits),
                .unit = (float)ldexp(1, -bits),
                .low = (float)lo,
                .width = (float)(hi - lo),
                .most = (float)uniform_most(dtype, lo, hi)};
    return generate(call, UNIFORM, &p, NULL, NULL);
}

static bool rand_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return uniform(call, 0, 1);
}

static bool uniform_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const uniform_attrs *a = call->attrs;
    return uniform(call, a->lo, a->hi);
}

/* ---- Normal ---- */

static bool normal(const ct_call *call, double mean, double std) {
    params p = {.low = (float)mean, .width = (float)std};
    return generate(call, NORMAL, &p, NULL, NULL);
}

static bool randn_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return normal(call, 0, 1);
}

static bool normal_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const normal_attrs *a = call->attrs;
    return normal(call, a->mean, a->std);
}

static bool truncated_normal_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const truncated_normal_attrs *a = call->attrs;
    const ct_truncation part = ct__truncation(a->mean, a->std, a->lo, a->hi);
    const double end = part.from + part.width, scale = end > 0 && end < 1e-3 ? end : 1;
    params p = {.unit = (float)a->lo,
                .most = (float)a->hi,
                .low = (float)a->mean,
                .width = (float)(a->std * part.sign),
                .from_scaled = (float)(part.from / scale),
                .width_scaled = (float)(part.width / scale),
                .above = (float)part.above,
                .width_above = (float)part.width,
                .scale = (float)scale,
                .log_scale = (float)log(scale)};
    return generate(call, TRUNCATED, &p, NULL, NULL);
}

/* ---- Integers, choices ---- */

static bool randint_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const randint_attrs *a = call->attrs;
    params p = {.lo = (uint64_t)a->lo, .range = (uint64_t)a->hi - (uint64_t)a->lo};
    return generate(call, INTEGERS, &p, NULL, NULL);
}

static uint32_t one_of(ct_dtype dtype) { return is_float(dtype) ? 0x3f800000u : 1; }

static bool bernoulli_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    params p = {.one = one_of(call->out[0]->dtype)};
    return generate(call, BERNOULLI, &p, NULL, call->in[0]);
}

static bool bernoulli_full_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const bernoulli_full_attrs *a = call->attrs;
    params p = {.one = one_of(call->out[0]->dtype), .bound = (uint32_t)ceil(a->p * 0x1p24)};
    return generate(call, BERNOULLI_FULL, &p, NULL, NULL);
}

#define ROW(op) CT_CANDIDATES(op, {"philox", ct_wgpu_refuses, NULL, op##_run})
CT_WGPU_KERNELS(random_generate) = {
    CT_CANDIDATES(random_words, {"philox", ct_wgpu_refuses, NULL, words_run}),
    ROW(rand),
    ROW(uniform),
    ROW(randn),
    ROW(normal),
    ROW(truncated_normal),
    ROW(randint),
    ROW(bernoulli),
    ROW(bernoulli_full),
    {0},
};
