/* Recurrences step by step: the host side. What is read or written once, at the beginning or the end, goes through scratch in dispatches of
 * its own, so that a step binds few buffers. */
#include "backends/webgpu/webgpu.h"
#include "ops/rnn/cells.h"

#include "gen/rnn.attrs.h"

CT_WGPU_UNIT(rnn_recurrence);

enum { THREADS = 256, TILE = 16 };

typedef struct params {
    uint32_t steps, rows, units;
    int32_t step;
    uint32_t reverse, product, before, after;
    uint32_t gx[4], w[4], y[4], states[4], gy[4], dgx[4], dgh[4];
    uint32_t first[4], second[4], third[4];
    uint32_t lengths_stride, argument, bias_stride, tiles;
} params;

typedef struct problem {
    const ct_call *call;
    int cell;
    uint32_t gates;
    size_t area; /* bytes of [rows, units] */
    size_t kept; /* bytes of scratch before the lengths */
    bool backward;
    params p;
} problem;

static void set_strides(uint32_t *to, const ct_view *view) {
    for (int d = 0; view && d < view->ndim && d < 4; d++) to[d] = (uint32_t)view->strides[d];
}

static problem problem_of(const ct_call *call, const ct_view *y, const ct_view *w, int cell, bool reverse,
                          bool backward) {
    problem o = {.call = call, .cell = cell, .gates = (uint32_t)ct__cell_gates(cell), .backward = backward};
    o.p = (params){.steps = (uint32_t)y->dims[0],
                   .rows = (uint32_t)y->dims[1],
                   .units = (uint32_t)y->dims[2],
                   .reverse = reverse,
                   .tiles = (uint32_t)ct_wgpu_ceil_div(y->dims[2], TILE)};
    set_strides(o.p.w, w);
    o.area = (size_t)o.p.rows * o.p.units * sizeof(float);
    o.kept = (o.area * (backward ? 4 + 2 * o.gates : 3) + 255) / 256 * 256;
    return o;
}

static size_t scratch_of(const problem *o) { return o->kept + (size_t)o->p.rows * sizeof(int32_t) + 256; }

static void add_scratch(ct_wgpu_launch *l, const problem *o) {
    ct_wgpu_scratch(l, "kept", o->call, CT_F32, 0, o->kept, CT_WGPU_WRITTEN);
    ct_wgpu_scratch(l, "ends", o->call, CT_I32, o->kept, (size_t)o->p.rows * sizeof(int32_t), CT_WGPU_WRITTEN);
    ct_wgpu_constant(l, "GATES", o->gates);
    ct_wgpu_constant(l, "ROLLED", ct_wgpu_limits_of(o->call)->software);
    ct_wgpu_constant(l, "RELU", o->cell == CT_CELL_RELU);
}

static int64_t area_groups(const problem *o) { return ct_wgpu_groups((int64_t)o->p.rows * o->p.units, THREADS); }

static bool run_begin(problem *o, const ct_view *a, const ct_view *b, const ct_view *c, const ct_view *lengths,
                      uint32_t argument) {
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "begin", THREADS);
    params *p = &o->p;
    ct_wgpu_in(&l, "a", a);
    ct_wgpu_in(&l, "b", b);
    ct_wgpu_in(&l, "c", c);
    ct_wgpu_in(&l, "lengths", lengths);
    l.operands[l.n - 1].dtype = CT_I32; /* in words */
    add_scratch(&l, o);
    ct_wgpu_constant(&l, "WIDE", lengths && lengths->dtype == CT_I64);
    ct_wgpu_constant(&l, "FOURTH", o->backward); /* there is such an area */
    set_strides(p->first, a), set_strides(p->second, b), set_strides(p->third, c);
    p->argument = argument;
    p->lengths_stride = lengths ? (uint32_t)(lengths->strides[0] * (lengths->dtype == CT_I64 ? 2 : 1)) : 0;
    return ct_wgpu_enqueue(o->call, &l, area_groups(o), p, sizeof *p);
}

static bool run_end(problem *o, const ct_view *a, const ct_view *b) {
    if (!a && !b) return true;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "end", THREADS);
    ct_wgpu_out(&l, "a", a);
    ct_wgpu_out(&l, "b", b);
    add_scratch(&l, o);
    set_strides(o->p.first, a), set_strides(o->p.second, b);
    return ct_wgpu_enqueue(o->call, &l, area_groups(o), &o->p, sizeof o->p);
}

static const ct_view *with_elements(const ct_view *view) { return view && ct_wgpu_count(view) ? view : NULL; }
static const ct_view *output(const ct_call *call, int i) {
    return i < call->n_out ? with_elements(call->out[i]) : NULL;
}

static int64_t tile_groups(const problem *o) { return ct_wgpu_ceil_div(o->p.rows, TILE) * o->p.tiles; }

/* ---- Forward ---- */

static problem forward_problem(const ct_call *call) {
    const recurrence_attrs *a = call->attrs;
    return problem_of(call, call->out[0], call->in[1], a->cell, a->reverse, false);
}

static const char *forward_can(const ct_call *call) {
    if (!call->out[0]) return "y is not wanted";
    return call->out[0]->dtype == CT_F32 ? ct_wgpu_refuses(call) : "it is not of f32";
}

static size_t forward_scratch(const ct_call *call) {
    const problem o = forward_problem(call);
    return scratch_of(&o);
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    problem o = forward_problem(call);
    params *p = &o.p;
    const ct_view *bias = call->in[2], *h0 = call->in[3], *states = output(call, 3);
    if (!run_begin(&o, h0, call->in[4], NULL, call->in[5], 5)) return false;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "forward", THREADS);
    ct_wgpu_in(&l, "gx", call->in[0]);
    ct_wgpu_in(&l, "w", call->in[1]);
    ct_wgpu_in(&l, "bias", bias);
    ct_wgpu_out(&l, "y", call->out[0]);
    ct_wgpu_out(&l, "states", states);
    add_scratch(&l, &o);
    set_strides(p->gx, call->in[0]), set_strides(p->y, call->out[0]), set_strides(p->states, states);
    p->bias_stride = bias ? (uint32_t)bias->strides[0] : 0;
    const uint32_t turn = p->rows * p->units;
    for (uint32_t s = 0; s < p->steps; s++) {
        p->step = (int32_t)s;
        p->product = s > 0 || h0;
        p->after = turn - p->before;
        if (!ct_wgpu_enqueue(call, &l, tile_groups(&o), p, sizeof *p)) return false;
        p->before = p->after;
    }
    return run_end(&o, output(call, 1), output(call, 2));
}

/* ---- Backward ---- */

static problem backward_problem(const ct_call *call) {
    const recurrence_grad_attrs *a = call->attrs;
    return problem_of(call, call->in[4], call->in[0], a->cell, a->reverse, true);
}

static const char *backward_can(const ct_call *call) {
    if (call->in[9]) return "states have a cotangent of their own";
    if (!call->out[0]) return "dgx is not wanted";
    return call->in[4]->dtype == CT_F32 ? ct_wgpu_refuses(call) : "it is not of f32";
}

static size_t backward_scratch(const ct_call *call) {
    const problem o = backward_problem(call);
    return scratch_of(&o);
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    problem o = backward_problem(call);
    params *p = &o.p;
    const ct_view *states = with_elements(call->in[5]), *dgh = output(call, 1);
    const bool lstm = o.cell == CT_CELL_LSTM;
    if (!run_begin(&o, call->in[7], call->in[8], call->in[lstm ? 2 : 1], call->in[3], 3)) return false;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "backward", THREADS);
    ct_wgpu_in(&l, "w", call->in[0]);
    ct_wgpu_in(&l, "y", call->in[4]);
    ct_wgpu_in(&l, "states", states);
    ct_wgpu_in(&l, "gy", call->in[6]);
    ct_wgpu_out(&l, "dgx", call->out[0]);
    ct_wgpu_out(&l, "dgh", dgh);
    add_scratch(&l, &o);
    set_strides(p->y, call->in[4]), set_strides(p->states, states), set_strides(p->gy, call->in[6]);
    set_strides(p->dgx, call->out[0]), set_strides(p->dgh, dgh);
    const uint32_t area = p->rows * p->units, turns[2] = {4 * area, (4 + o.gates) * area};
    for (int32_t s = (int32_t)p->steps - 1; s >= -1; s--) {
        p->step = s;
        p->product = s < (int32_t)p->steps - 1;
        p->before = turns[(s + 1) % 2], p->after = turns[s >= 0 ? s % 2 : 0];
        if (!ct_wgpu_enqueue(call, &l, tile_groups(&o), p, sizeof *p)) return false;
    }
    p->before = 0;
    return run_end(&o, output(call, 2), output(call, 3));
}

CT_WGPU_KERNELS(rnn_recurrence) = {
    CT_CANDIDATES(recurrence, {"steps", forward_can, forward_scratch, forward_run}),
    CT_CANDIDATES(recurrence_grad, {"steps_grad", backward_can, backward_scratch, backward_run}),
    {0},
};
