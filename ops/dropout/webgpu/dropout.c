/* Dropout at a position of the random stream, in memory or as numbers: the host side. */
#include "backends/webgpu/webgpu.h"

#include "gen/dropout.attrs.h"

CT_WGPU_UNIT(dropout_dropout);

enum { THREADS = 256 };

typedef struct params {
    ct_wgpu_nest nest;
    uint64_t seed, stream;
    uint64_t call;
    uint32_t threshold;
    float scale;
    uint32_t step, kept_step, pad[2];
} params;

/* All in quads of elements, all but the last few, or one by one. */
#define ONE    "fn put1(i: u32, v: f32) { y_store(i, v); }\n"
#define NO_ONE "fn put1(i: u32, v: f32) {}\n"
#define FOUR                                              \
    "fn x4(i: u32) -> vec4<f32> { return x_load4(i); }\n" \
    "fn put4(i: u32, v: vec4<f32>) { y_store4(i, v); }\n"
#define NO_FOUR                                            \
    "fn x4(i: u32) -> vec4<f32> { return vec4<f32>(); }\n" \
    "fn put4(i: u32, v: vec4<f32>) {}\n"
enum how { QUADS, MOSTLY_QUADS, SINGLES };
static const char *const texts[] = {NO_ONE FOUR, ONE FOUR, ONE NO_FOUR};

/* Three integers as words; NULL: not given. Returns the words from one to the next. */
static uint32_t add_position(ct_wgpu_launch *l, const char *name, const ct_view *position, unsigned mode) {
    ct_wgpu_operand_of(l, name, position, mode);
    l->operands[l->n - 1].dtype = CT_I32;
    return position ? (uint32_t)(position->strides[0] * (position->dtype == CT_I64 ? 2 : 1)) : 0;
}

static bool drop(const ct_call *call, params *p, double chance, const ct_view *position, const ct_view *kept) {
    const ct_view *x = call->in[0], *y = call->out[0];
    const double threshold = chance * 0x1p32;
    const bool none = threshold >= 0x1p32; /* it is 1, or as good as */
    const bool fits = y && ct_wgpu_is_dense(x) && ct_wgpu_is_dense(y) && ct_wgpu_fits(x, 4) && ct_wgpu_fits(y, 4);
    const enum how how = !fits ? SINGLES : ct_wgpu_count(y) % 4 ? MOSTLY_QUADS : QUADS;
    const unsigned mode = (how == SINGLES ? 0 : CT_WGPU_QUADS) | (how == QUADS ? CT_WGPU_QUADS_ONLY : 0);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "dropout", THREADS);
    ct_wgpu_operand_of(&l, "y", y, CT_WGPU_WRITTEN | mode);
    ct_wgpu_operand_of(&l, "x", x, mode);
    p->step = add_position(&l, "position", position, 0);
    p->kept_step = add_position(&l, "kept", kept, CT_WGPU_WRITTEN);
    ct_wgpu_constant(&l, "WIDE", position && position->dtype == CT_I64);
    ct_wgpu_constant(&l, "QUADS", how != SINGLES);
    l.more = texts[how];
    p->threshold = none ? 0 : (uint32_t)threshold;
    p->scale = none ? 0 : (float)(1 / (1 - chance));
    if (y) ct_wgpu_nest_of(&p->nest, (const ct_view *const[]){y, x}, 2);
    int64_t groups = ct_wgpu_groups(((int64_t)p->nest.total + 3) / 4, THREADS);
    if (kept && groups == 0) groups = 1;
    return ct_wgpu_enqueue(call, &l, groups, p, sizeof *p);
}

static bool replay_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    params p = {0};
    return drop(call, &p, ((const dropout_replay_attrs *)call->attrs)->p, call->in[1], NULL);
}

static bool draw_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const dropout_draw_attrs *a = call->attrs;
    params p = {.seed = (uint64_t)a->seed, .stream = (uint64_t)a->stream, .call = (uint64_t)a->call};
    return drop(call, &p, a->p, NULL, call->n_out > 1 ? call->out[1] : NULL);
}

CT_WGPU_KERNELS(dropout_dropout) = {
    CT_CANDIDATES(dropout_draw, {"philox", ct_wgpu_refuses, NULL, draw_run}),
    CT_CANDIDATES(dropout_replay, {"philox", ct_wgpu_refuses, NULL, replay_run}),
    {0},
};
