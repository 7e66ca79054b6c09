/* Attention on WebGPU: what the device code is given. */
#include "backends/webgpu/webgpu.h"

#include "gen/attention.attrs.h"

CT_WGPU_UNIT(attention_sdpa);

enum { THREADS = 256, SIDE = 64 };

typedef struct params {
    uint32_t batch, heads, kv_heads, heads_each;
    uint32_t tq, tk, d, d_v;
    uint32_t blocks, chunks;
    int32_t ahead;
    float scale;
    uint32_t causal, threshold;
    float keep;
    uint32_t stream_step;
    uint32_t q[4], k[4], v[4], mask[4], y[4], lse[4], g[4], g_lse[4], dq[4], dk[4], dv[4], dmask[4];
} params;

static const char no_mask[] = "fn mask_at(i: u32) -> f32 { return 0.0; }\n";
static const char bool_mask[] = "fn mask_at(i: u32) -> f32 { return select(-ct_inf(), 0.0, mask_load(i) != 0); }\n";
static const char added_mask[] = "fn mask_at(i: u32) -> f32 { return mask_load(i); }\n";

/* (B,T,H,D) as (B,H,T,D) where rows_first. */
static void set_heads(uint32_t *to, const ct_view *x, bool rows_first) {
    for (int d = 0; x && d < x->ndim; d++) to[d] = (uint32_t)x->strides[d];
    if (!rows_first) return;
    const uint32_t rows = to[1];
    to[1] = to[2], to[2] = rows;
}

typedef struct problem {
    const ct_call *call;
    const ct_view *mask, *stream;
    bool drops;
    params p;
} problem;

static problem problem_of(const ct_call *call, double scale, bool causal, bool bottom_right, double dropout) {
    const ct_view *q = call->in[0], *k = call->in[1], *v = call->in[2];
    problem o = {.call = call, .mask = call->in[3], .stream = call->in[4]};
    params *p = &o.p;
    set_heads(p->q, q, false), set_heads(p->k, k, false), set_heads(p->v, v, false), set_heads(p->mask, o.mask, false);
    p->batch = (uint32_t)q->dims[0], p->heads = (uint32_t)q->dims[1], p->kv_heads = (uint32_t)k->dims[1];
    p->heads_each = p->kv_heads ? p->heads / p->kv_heads : 1;
    p->tq = (uint32_t)q->dims[2], p->tk = (uint32_t)k->dims[2], p->d = (uint32_t)q->dims[3],
    p->d_v = (uint32_t)v->dims[3];
    p->causal = causal;
    p->ahead = bottom_right ? (int32_t)(k->dims[2] - q->dims[2]) : 0;
    p->scale = (float)scale;
    o.drops = o.stream && dropout > 0;
    if (!o.drops) return o;
    const double words = dropout * 0x1p32;
    p->threshold = words >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)words;
    p->keep = dropout < 1 ? (float)(1 / (1 - dropout)) : 0;
    p->stream_step = (uint32_t)(o.stream->strides[0] * (o.stream->dtype == CT_I64 ? 2 : 1));
    return o;
}

/* Whether sizes fit the device code's integers, and `operands` the bindings. */
static const char *refuses(const ct_call *call, double dropout, int operands) {
    const ct_view *q = call->in[0], *k = call->in[1];
    const char *why = ct_wgpu_refuses(call);
    if (why) return why;
    const double scores = (double)q->dims[0] * (double)q->dims[1] * (double)q->dims[2] * (double)k->dims[2];
    if (call->in[4] && dropout > 0 && scores >= 0x1p32) return "it has more than 2^32 scores to drop";
    const int all = operands + (call->in[3] != NULL) + (call->in[4] && dropout > 0);
    return all < (int)ct_wgpu_limits_of(call)->bindings ? NULL : "the device has too few bindings";
}

static int64_t chunks_of(int64_t columns) { return columns > SIDE ? ct_wgpu_ceil_div(columns, SIDE) : 1; }

static void add_inputs(ct_wgpu_launch *l, const problem *o) {
    ct_wgpu_in(l, "q", o->call->in[0]);
    ct_wgpu_in(l, "k", o->call->in[1]);
    ct_wgpu_in(l, "v", o->call->in[2]);
    ct_wgpu_in(l, "mask", o->mask);
    ct_wgpu_in(l, "stream", o->drops ? o->stream : NULL);
    l->operands[l->n - 1].dtype = CT_I32; /* in words */
    ct_wgpu_constant(l, "ROLLED", ct_wgpu_limits_of(o->call)->software);
    ct_wgpu_constant(l, "MASK", o->mask != NULL);
    ct_wgpu_constant(l, "DROPS", o->drops);
    ct_wgpu_constant(l, "WIDE", o->drops && o->stream->dtype == CT_I64);
    l->more = !o->mask ? no_mask : o->mask->dtype == CT_BOOL ? bool_mask : added_mask;
}

/* A workgroup for each block of rows of each head, and for each 64 columns of what it makes. */
static bool enqueue(problem *o, const ct_wgpu_launch *l, int64_t heads, int64_t rows, int64_t columns) {
    params *p = &o->p;
    p->chunks = (uint32_t)chunks_of(columns);
    p->blocks = (uint32_t)ct_wgpu_ceil_div(rows, SIDE);
    return ct_wgpu_enqueue(o->call, l, (int64_t)p->batch * heads * p->blocks * p->chunks, p, sizeof *p);
}

/* ---- Forward ---- */

static const char *forward_can(const ct_call *call) {
    return call->out[0] ? refuses(call, ((const sdpa_attrs *)call->attrs)->dropout, 5) : "y is not wanted";
}

static bool forward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sdpa_attrs *a = call->attrs;
    problem o = problem_of(call, a->scale, a->causal, a->bottom_right, a->dropout);
    const ct_view *lse = call->n_out > 1 ? call->out[1] : NULL;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "forward", THREADS);
    add_inputs(&l, &o);
    ct_wgpu_in(&l, "g", NULL);
    ct_wgpu_out(&l, "y", call->out[0]);
    ct_wgpu_out(&l, "lse", lse);
    set_heads(o.p.y, call->out[0], a->rows_first), set_heads(o.p.lse, lse, false);
    return enqueue(&o, &l, o.p.heads, o.p.tq, o.p.d_v);
}

/* ---- Backward ---- */

static const char *backward_can(const ct_call *call) {
    return refuses(call, ((const sdpa_grad_attrs *)call->attrs)->dropout, 7);
}

static size_t backward_scratch(const ct_call *call) {
    const ct_view *q = call->in[0];
    return (size_t)(q->dims[0] * q->dims[1] * q->dims[2]) * 2 * sizeof(float);
}

static void add_rows(ct_wgpu_launch *l, const ct_call *call, unsigned mode) {
    ct_wgpu_scratch(l, "rows", call, CT_F32, 0, backward_scratch(call), mode);
}

static bool run_levels(problem *o) {
    const ct_call *call = o->call;
    const int64_t rows = (int64_t)o->p.batch * o->p.heads * o->p.tq;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "levels", THREADS);
    ct_wgpu_in(&l, "y", call->in[5]);
    ct_wgpu_in(&l, "lse", call->in[6]);
    ct_wgpu_in(&l, "g", call->in[7]);
    ct_wgpu_in(&l, "g_lse", call->in[8]);
    add_rows(&l, call, CT_WGPU_WRITTEN);
    return ct_wgpu_enqueue(call, &l, ct_wgpu_ceil_div(rows, 16), &o->p, sizeof o->p);
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sdpa_grad_attrs *a = call->attrs;
    problem o = problem_of(call, a->scale, a->causal, a->bottom_right, a->dropout);
    params *p = &o.p;
    set_heads(p->y, call->in[5], a->rows_first), set_heads(p->g, call->in[7], a->rows_first);
    set_heads(p->lse, call->in[6], false), set_heads(p->g_lse, call->in[8], false);
    const ct_view *out[4] = {NULL};
    ct_view parts[3];
    for (int i = 0; i < call->n_out; i++) out[i] = call->out[i];
    for (int i = 0; a->together && i < 3; i++) { /* dk and dv behind dq */
        parts[i] = *call->out[0];
        parts[i].dims[2] = i == 0 ? p->heads : p->kv_heads;
        parts[i].offset += (i == 0 ? 0 : p->heads + (uint32_t)(i - 1) * p->kv_heads) * parts[i].strides[2];
        out[i] = &parts[i];
    }
    set_heads(p->dq, out[0], a->rows_first), set_heads(p->dk, out[1], a->rows_first);
    set_heads(p->dv, out[2], a->rows_first), set_heads(p->dmask, out[3], false);
    if (!run_levels(&o)) return false;
    if (out[0] || out[3]) {
        ct_wgpu_launch l = ct_wgpu_begin(&unit, "queries_backward", THREADS);
        add_inputs(&l, &o);
        ct_wgpu_in(&l, "g", call->in[7]);
        add_rows(&l, call, 0);
        ct_wgpu_out(&l, "dq", out[0]);
        ct_wgpu_out(&l, "dmask", out[3]);
        if (!enqueue(&o, &l, p->heads, p->tq, p->d)) return false;
    }
    if (!out[1] && !out[2]) return true;
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "keys_backward", THREADS);
    add_inputs(&l, &o);
    ct_wgpu_in(&l, "g", call->in[7]);
    add_rows(&l, call, 0);
    ct_wgpu_out(&l, "dk", out[1]);
    ct_wgpu_out(&l, "dv", out[2]);
    return enqueue(&o, &l, p->kv_heads, p->tk, p->d > p->d_v ? p->d : p->d_v);
}

CT_WGPU_KERNELS(attention_sdpa) = {
    CT_CANDIDATES(sdpa, {"flash", forward_can, NULL, forward_run}),
    CT_CANDIDATES(sdpa_grad, {"flash_grad", backward_can, backward_scratch, backward_run}),
    {0},
};
