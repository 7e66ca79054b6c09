/* Fused calls by kernels whose text is written for them, of the same formulas as the kernels of single ops. It is
 * written at the first run, when it is known where operands lie, and compiled with all other texts that wait
 * (backends/webgpu/pipeline.c). */
#include "ops/fused/webgpu/text/text.h"

#include "gen/dropout.attrs.h"
#include "gen/fused.attrs.h"

enum {
    THREADS = CT_WGPU_ROW_THREADS,
    LONG = 1 << 20, /* elements from which on more is read ahead */
    AHEAD = 4,      /* operands of which twice four fit into registers */
    COSTLY = 400,   /* simple instructions from which on texts are kept short for fewer elements than that */
    QUAD = CT_WGPU_QUADS | CT_WGPU_QUADS_ONLY,
};

/* As in the device code. */
typedef struct params {
    uint32_t total, rows, pad[2];
    uint64_t draws[CT_WGPU_FUSED_DRAWS][4];
} params;

static size_t sums_bytes(const ct_wgpu_fused_plan *plan) {
    return plan->sums < 0 ? 0 : (size_t)plan->division.parts * 2 * (size_t)plan->n * sizeof(float);
}

static size_t scratch(const ct_call *call) {
    ct_wgpu_fused_plan plan;
    ct_wgpu_fused_divide(call, &plan);
    return sums_bytes(&plan);
}

static void add_operands(ct_wgpu_launch *l, const ct_call *call, const ct_wgpu_fused_plan *plan) {
    static const char *const names[CT_WGPU_OPERANDS] = {"o0", "o1", "o2",  "o3",  "o4",  "o5",  "o6",  "o7",
                                                        "o8", "o9", "o10", "o11", "o12", "o13", "o14", "o15"};
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        if (!(plan->used >> i & 1)) continue;
        const bool quads = plan->quads >> i & 1;
        ct_wgpu_operand_of(l, names[l->n], i < call->n_in ? call->in[i] : call->out[i - call->n_in],
                           (quads ? QUAD : 0) | (i < call->n_in ? 0 : CT_WGPU_WRITTEN));
        ct_wgpu_operand *o = &l->operands[l->n - 1];
        if (quads) o->high = (o->high + 15) & ~(uint64_t)15; /* storages are padded */
        if (o->dtype == CT_COMPLEX64) o->dtype = CT_I64;     /* it is only moved, and converted by its bits */
    }
}

/* Positions are those of this run. */
static size_t fill_params(params *p, const ct_fused *fused, const ct_wgpu_fused_plan *plan) {
    int draws = 0;
    p->total = (uint32_t)fused->count, p->rows = plan->n ? (uint32_t)(fused->count / plan->n) : 0;
    p->pad[0] = p->pad[1] = 0;
    for (int i = 0; i < fused->n_steps; i++) {
        if (strcmp(fused->steps[i].call.op->name, CT_OP_NAME_dropout_draw) != 0) continue;
        const dropout_draw_attrs *a = fused->steps[i].call.attrs;
        const uint64_t position[4] = {(uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->call, 0};
        memcpy(p->draws[draws++], position, sizeof position);
    }
    return offsetof(params, draws) + (size_t)draws * sizeof p->draws[0];
}

static bool run_rows(const ct_call *call, const ct_wgpu_fused_plan *plan, ct_wgpu_launch *l, const params *p,
                     size_t bytes) {
    const ct_wgpu_row_division *d = &plan->division;
    l->function = "fused_rows";
    ct_wgpu_constant(l, "N", (uint32_t)plan->n);
    ct_wgpu_constant(l, "LANES", d->lanes);
    ct_wgpu_constant(l, "KEPT", d->kept);
    if (plan->sums < 0) return ct_wgpu_enqueue(call, l, ct_wgpu_ceil_div(p->rows, THREADS / d->lanes), p, bytes);
    ct_wgpu_scratch(l, "sums", call, CT_F32, 0, sums_bytes(plan), CT_WGPU_WRITTEN | QUAD);
    const ct_fused *fused = call->attrs;
    const ct_fused_step *step = &fused->steps[plan->sums];
    const ct_view *vectors[2] = {NULL};
    for (int i = 1; i < step->call.n_out && i < 3; i++) {
        const int value = step->call.out[i] ? step->values[step->call.n_in + i] : -1;
        if (value >= 0) vectors[i - 1] = call->out[fused->values[value].output];
    }
    return ct_wgpu_enqueue(call, l, d->groups, p, bytes) &&
           ct_wgpu_norm_total(call, 0, d->parts, plan->n, vectors[0], vectors[1]);
}

static bool run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    CT_WGPU_UNIT(fused_fused);
    const ct_fused *fused = call->attrs;
    ct_wgpu_fused_plan *plan = fused->prepared;
    if (!plan->text) {
        ct_wgpu_fused_divide(call, plan);
        if (!ct_wgpu_fused_write(call, plan))
            return ct_wgpu_host->fail(CT_ERR_MEMORY, "fused", "no memory for a shader");
    }
    const bool is_long = fused->count >= LONG, software = ct_wgpu_limits_of(call)->software;
    params p;
    const size_t bytes = fill_params(&p, fused, plan);
    ct_wgpu_launch l = ct_wgpu_begin(&unit, "quads", THREADS);
    l.more = plan->text;
    l.words = CT_WGPU_F32;
    add_operands(&l, call, plan);
    ct_wgpu_constant(&l, "ROLLED",
                     software || (plan->cost > COSTLY && !is_long && !plan->n)); /* rows stay in registers */
    if (plan->n) return run_rows(call, plan, &l, &p, bytes);
    const bool ahead = is_long && !software && plan->loads <= AHEAD;
    if (ahead) l.function = "octets";
    return ct_wgpu_enqueue(call, &l, ct_wgpu_groups(ct_wgpu_ceil_div(fused->count, ahead ? 8 : 4), THREADS), &p, bytes);
}

CT_WGPU_KERNELS(fused_fused) = {
    CT_CANDIDATES(fused, {"wgsl", ct_wgpu_fused_refusal, scratch, run}),
    {0},
};
