/* Writing kernels for fused calls. A kernel runs over the elements of the call, four neighbours in an invocation,
 * each of which goes through all steps in registers. Operands that are broadcast or strided are read at the place
 * that their dimensions say, which are constants of the text; how many elements there are is not, so that calls of
 * several sizes share a text. */
#include "ops/fused/webgpu/text/text.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ops/fused/webgpu/text/writer.h"

/* ---- Operands in memory ---- */

/* Elements i to i + 3, i a multiple of 4, lie together from such a place on; are one. */
static bool lies_in_quads(const ct_fused_layout *l) {
    const int last = l->ndim - 1;
    if (l->dense) return true;
    if (last < 0 || l->dims[last] % 4 || l->strides[last] != 1) return false;
    for (int d = 0; d < last; d++)
        if (l->strides[d] % 4) return false;
    return true;
}
static bool is_one_in_four(const ct_fused_layout *l) {
    const int last = l->ndim - 1;
    return l->single || (l->dims[last] % 4 == 0 && l->strides[last] == 0);
}

/* Of a call, the bytes that an output is in, to whole quads. */
static void bytes_of(const ct_view *view, int64_t *low, int64_t *high) {
    const int64_t size = (int64_t)ct_wgpu_dtype_size(view->dtype);
    *low = *high = (int64_t)view->origin + view->offset * size;
    for (int d = 0; d < view->ndim; d++) {
        const int64_t reach = (view->dims[d] - 1) * view->strides[d] * size;
        *(reach < 0 ? low : high) += reach;
    }
    *low &= ~(int64_t)15;
    *high = (*high + size + 15) & ~(int64_t)15;
}

/* No other output lies in the quads of this one: then what is in its last quad beside it can be written as it was. */
static bool is_apart(const ct_call *call, int output) {
    int64_t low, high, other_low, other_high;
    bytes_of(call->out[output], &low, &high);
    for (int i = 0; i < call->n_out; i++) {
        if (i == output || !call->out[i] || call->out[i]->buffer != call->out[output]->buffer) continue;
        bytes_of(call->out[i], &other_low, &other_high);
        if (low < other_high && other_low < high) return false;
    }
    return true;
}

static bool takes_quads(const ct_call *call, int operand) {
    const ct_view *view = ct_wgpu_operand_view(call, operand);
    const ct_fused_layout l = ct_fused_layout_of(view);
    if (ct_wgpu_dtype_size(view->dtype) > 4 || !ct_wgpu_fits(view, 4) || !lies_in_quads(&l)) return false;
    return operand < call->n_in || is_apart(call, operand - call->n_in);
}

/* The place of element `e` of an operand that is neither dense nor one value. */
static void put_place(ct_wgpu_writer *w, int operand) {
    const ct_fused_layout l = ct_fused_layout_of(ct_wgpu_operand_view(w->call, operand));
    if (l.dense || l.single) return;
    ct_wgpu_put(&w->t, "fn place_%d(e: u32) -> u32 {\n    var at = 0u;\n    var rest = e;\n    var whole = e;\n",
                ct_wgpu_operand_number(w, operand));
    for (int d = l.ndim - 1; d > 0; d--) {
        ct_wgpu_put(&w->t, "    whole = rest / %uu;\n", (uint32_t)l.dims[d]);
        if (l.strides[d])
            ct_wgpu_put(&w->t, "    at += (rest - whole * %uu) * %uu;\n", (uint32_t)l.dims[d], (uint32_t)l.strides[d]);
        ct_wgpu_put(&w->t, "    rest = whole;\n");
    }
    ct_wgpu_put(&w->t, "    return at + rest * %uu;\n}\n", (uint32_t)l.strides[0]);
}

static void put_at(ct_wgpu_writer *w, int operand, const ct_fused_layout *l, const char *element) {
    if (l->single) ct_wgpu_put(&w->t, "0u");
    else if (l->dense) ct_wgpu_put(&w->t, "%s", element);
    else ct_wgpu_put(&w->t, "place_%d(%s)", ct_wgpu_operand_number(w, operand), element);
}

void ct_wgpu_put_load(ct_wgpu_writer *w, int input) {
    const ct_view *view = w->call->in[input];
    const ct_fused_layout l = ct_fused_layout_of(view);
    const int number = ct_wgpu_operand_number(w, input);
    const char *const places[] = {"i", "min(i + 1u, p.total - 1u)", "min(i + 2u, p.total - 1u)",
                                  "min(i + 3u, p.total - 1u)"};
    if (w->plan->quads >> input & 1) {
        ct_wgpu_put(&w->t, "o%d_load4(", number);
        put_at(w, input, &l, "i");
        ct_wgpu_put(&w->t, ")");
        return;
    }
    const bool one = is_one_in_four(&l) && ct_wgpu_dtype_size(view->dtype) <= 4;
    ct_wgpu_put(&w->t, "%s(", ct_wgpu_four(view->dtype));
    for (int k = 0; k < (one ? 1 : 4); k++) {
        ct_wgpu_put(&w->t, "%so%d_load(", k ? ", " : "", number);
        put_at(w, input, &l, places[k]);
        ct_wgpu_put(&w->t, ")");
    }
    ct_wgpu_put(&w->t, ")");
}

void ct_wgpu_put_store(ct_wgpu_writer *w, int value) {
    const int operand = w->call->n_in + w->fused->values[value].output, number = ct_wgpu_operand_number(w, operand);
    const ct_fused_layout l = ct_fused_layout_of(ct_wgpu_operand_view(w->call, operand));
    if (!(w->plan->quads >> operand & 1)) {
        ct_wgpu_put(&w->t, "    for (var c = 0u; c < min(p.total - i, 4u); c++) { o%d_store(", number);
        put_at(w, operand, &l, "i + c");
        ct_wgpu_put(&w->t, ", y%d[c]); }\n", value);
        return;
    }
    ct_wgpu_put(&w->t, "    ");
    if (w->fused->count % 4) /* what lies behind the last ones is kept: nobody else writes it meanwhile */
        ct_wgpu_put(&w->t,
                    "if (i + 4u > p.total) { o%d_store4(i, select(o%d_load4(i), y%d, i + vec4<u32>(0u, 1u, 2u, 3u) < "
                    "vec4<u32>(p.total))); } else { ",
                    number, number, value);
    ct_wgpu_put(&w->t, "o%d_store4(", number);
    put_at(w, operand, &l, "i");
    ct_wgpu_put(&w->t, ", y%d);%s\n", value, w->fused->count % 4 ? " }" : "");
}

/* ---- Phases ---- */

bool ct_wgpu_phase_takes(const ct_wgpu_writer *w, const ct_wgpu_phase *p, int value) {
    if (ct_wgpu_is_made_in(p, &w->fused->values[value])) return false;
    for (int i = p->first; i < p->last; i++)
        if (ct_wgpu_step_reads(&w->fused->steps[i], value)) return true;
    return false;
}

bool ct_wgpu_phase_gives(const ct_wgpu_writer *w, const ct_wgpu_phase *p, int value) {
    const ct_fused_value *v = &w->fused->values[value];
    if (!ct_wgpu_is_made_in(p, v) || ct_wgpu_is_beside(w->fused, value)) return false;
    return v->output >= 0 || ct_wgpu_is_kept(w, value);
}

static bool gives_any(const ct_wgpu_writer *w, const ct_wgpu_phase *p) {
    for (int i = 0; i < w->fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i)) return true;
    return false;
}

void ct_wgpu_put_phase(ct_wgpu_writer *w, const ct_wgpu_phase *p) {
    const ct_fused *fused = w->fused;
    const char *comma = "";
    if (!gives_any(w, p)) return;
    ct_wgpu_put(&w->t, "struct Made_%d {\n", p->number);
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i))
            ct_wgpu_put(&w->t, "    v%d: %s,\n", i, ct_wgpu_variable(fused->values[i].dtype));
    ct_wgpu_put(&w->t, "}\nfn phase_%d(", p->number);
    for (int i = 0; i < fused->n_values; i++) {
        if (!ct_wgpu_phase_takes(w, p, i)) continue;
        ct_wgpu_put(&w->t, "%sv%d: %s", comma, i, ct_wgpu_variable(fused->values[i].dtype));
        comma = ", ";
    }
    for (int i = p->first; i < p->last; i++) {
        if (!ct_wgpu_is_dropout(&fused->steps[i])) continue;
        ct_wgpu_put(&w->t, "%sr%d: u32", comma, i);
        comma = ", ";
    }
    ct_wgpu_put(&w->t, ") -> Made_%d {\n", p->number);
    for (int i = p->first; i < p->last; i++) ct_wgpu_put_step(w, i);
    ct_wgpu_put(&w->t, "    return Made_%d(", p->number);
    comma = "";
    for (int i = 0; i < fused->n_values; i++) {
        if (!ct_wgpu_phase_gives(w, p, i)) continue;
        ct_wgpu_put(&w->t, "%sv%d", comma, i);
        comma = ", ";
    }
    ct_wgpu_put(&w->t, ");\n}\n");
}

/* The phase of element c, of a3[c]. */
static void put_call(ct_wgpu_writer *w, const ct_wgpu_phase *p, const char *c) {
    const char *comma = "";
    ct_wgpu_put(&w->t, "phase_%d(", p->number);
    for (int i = 0; i < w->fused->n_values; i++) {
        if (!ct_wgpu_phase_takes(w, p, i)) continue;
        ct_wgpu_put(&w->t, "%sa%d[%s]", comma, i, c);
        comma = ", ";
    }
    for (int i = p->first; i < p->last; i++) {
        if (!ct_wgpu_is_dropout(&w->fused->steps[i])) continue;
        ct_wgpu_put(&w->t, "%sr%d[%s]", comma, i, c);
        comma = ", ";
    }
    ct_wgpu_put(&w->t, ");\n");
}

/* Once in a loop whose end no compiler knows, or four times: where compiling takes longer than running, or the other
 * way round. */
void ct_wgpu_put_phase_of_four(ct_wgpu_writer *w, const ct_wgpu_phase *p, const char *end) {
    const ct_fused *fused = w->fused;
    if (!gives_any(w, p)) return;
    for (int i = p->first; i < p->last; i++)
        if (ct_wgpu_is_dropout(&fused->steps[i]))
            ct_wgpu_put(&w->t, "    var r%d = ct_philox(position_%d(), i / 4u);\n", i, i);
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i))
            ct_wgpu_put(&w->t, "    var y%d: %s;\n", i, ct_wgpu_four(fused->values[i].dtype));
    ct_wgpu_put(&w->t, "    if (ROLLED == 1u) {\n    for (var c = 0u; c < %s; c++) {\n        let one = ", end);
    put_call(w, p, "c");
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i)) ct_wgpu_put(&w->t, "        y%d[c] = one.v%d;\n", i, i);
    ct_wgpu_put(&w->t, "    }\n    } else {\n");
    for (int c = 0; c < 4; c++) {
        const char *const numbers[] = {"0", "1", "2", "3"};
        ct_wgpu_put(&w->t, "        let one_%d = ", c);
        put_call(w, p, numbers[c]);
    }
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i))
            ct_wgpu_put(&w->t, "        y%d = %s(one_0.v%d, one_1.v%d, one_2.v%d, one_3.v%d);\n", i,
                        ct_wgpu_four(fused->values[i].dtype), i, i, i, i);
    ct_wgpu_put(&w->t, "    }\n");
}

/* ---- Kernels over elements ---- */

static void put_elements(ct_wgpu_writer *w) {
    const ct_fused *fused = w->fused;
    const ct_wgpu_phase all = {.number = 0, .first = 0, .last = fused->n_steps, .after = -1};
    ct_wgpu_put(&w->t, "struct Four {\n    i: u32,\n");
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_takes(w, &all, i))
            ct_wgpu_put(&w->t, "    a%d: %s,\n", i, ct_wgpu_four(fused->values[i].dtype));
    ct_wgpu_put(&w->t, "}\nfn load_four(i: u32) -> Four {\n    return Four(i");
    for (int i = 0; i < fused->n_values; i++) {
        if (!ct_wgpu_phase_takes(w, &all, i)) continue;
        ct_wgpu_put(&w->t, ", ");
        ct_wgpu_put_load(w, fused->values[i].input);
    }
    ct_wgpu_put(&w->t, ");\n}\n");
    ct_wgpu_put_phase(w, &all);
    ct_wgpu_put(&w->t, "fn finish_four(four: Four) {\n    let i = four.i;\n");
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_takes(w, &all, i)) ct_wgpu_put(&w->t, "    var a%d = four.a%d;\n", i, i);
    ct_wgpu_put_phase_of_four(w, &all, "min(p.total - i, 4u)");
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, &all, i)) ct_wgpu_put_store(w, i);
    ct_wgpu_put_positions(w);
    ct_wgpu_put(&w->t, "}\n");
}

/* ---- The whole ---- */

void ct_wgpu_fused_divide(const ct_call *call, ct_wgpu_fused_plan *plan) {
    const ct_fused *fused = call->attrs;
    *plan = (ct_wgpu_fused_plan){.sums = -1};
    for (int s = 0; s < fused->n_steps; s++) {
        const ct_fused_step *step = &fused->steps[s];
        if (ct_wgpu_fused_kind_of(&step->call) == CT_WGPU_FILL) continue;
        for (int i = 0; i < step->call.n_in; i++)
            if (step->values[i] >= 0 && fused->values[step->values[i]].input >= 0)
                plan->used |= (uint64_t)1 << fused->values[step->values[i]].input;
    }
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->input >= 0) plan->loads += v->count == fused->count && plan->used >> v->input & 1;
        if (v->output >= 0) plan->used |= (uint64_t)1 << (call->n_in + v->output);
    }
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        plan->cost += ct_wgpu_step_cost(step);
        if (!ct_wgpu_is_row(step)) continue;
        plan->n = (int)step->call.in[0]->dims[step->call.in[0]->ndim - 1];
        for (int k = 1; k < step->call.n_out; k++)
            if (step->call.out[k]) plan->sums = i;
    }
    if (plan->n) plan->division = ct_wgpu_divide_rows(fused->count / plan->n, plan->n);
}

/* A binding for each operand, whatever buffers they will lie in. Views of one buffer that touch share a range, which
 * may be longer than a binding, and takes two for each of them at most. */
static const char *bindings_refusal(const ct_call *call) {
    const ct_wgpu_limits *limits = ct_wgpu_limits_of(call);
    const int most = (int)limits->bindings - 1 < CT_WGPU_OPERANDS ? (int)limits->bindings - 1 : CT_WGPU_OPERANDS;
    uint64_t all = 0;
    ct_wgpu_fused_plan plan;
    ct_wgpu_fused_divide(call, &plan);
    const int n = __builtin_popcountll(plan.used) + (plan.sums >= 0);
    if (n > most) return "it has more operands than bindings";
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        int64_t low, high;
        if (!(plan.used >> i & 1)) continue;
        bytes_of(ct_wgpu_operand_view(call, i), &low, &high);
        const uint64_t bytes = (uint64_t)(high - low) + CT_WGPU_ALIGNMENT;
        if (bytes > limits->binding) return "an operand is larger than a binding";
        all += bytes;
    }
    return all > limits->binding && 2 * n > most ? "it has more operands than bindings" : NULL;
}

const char *ct_wgpu_fused_refusal(const ct_call *call) {
    const ct_fused *fused = call->attrs;
    bool rows = false, any = false;
    int draws = 0;
    if (call->n_in + call->n_out > CT_WGPU_FUSED_OPERANDS) return "it has too many operands";
    if (fused->count < 1 || fused->count > INT32_MAX) return "it has no elements, or too many";
    for (int i = 0; i < fused->n_values; i++) {
        if (fused->values[i].dtype == CT_F64) return "WebGPU has no f64";
        any |= fused->values[i].output >= 0 && !ct_wgpu_is_beside(fused, i);
    }
    if (!any) return "it leaves no elements";
    for (int i = 0; i < fused->n_steps; i++) {
        const char *reason = ct_wgpu_step_refusal(fused, &fused->steps[i]);
        if (reason) return reason;
        rows |= ct_wgpu_is_row(&fused->steps[i]);
        draws += ct_wgpu_fused_kind_of(&fused->steps[i].call) == CT_WGPU_DRAW;
    }
    if (draws > CT_WGPU_FUSED_DRAWS) return "it draws too often";
    const char *reason = rows ? ct_wgpu_rows_refusal(fused) : NULL;
    if (!reason) reason = ct_wgpu_refuses(call);
    return reason ? reason : bindings_refusal(call);
}

bool ct_wgpu_fused_write(const ct_call *call, ct_wgpu_fused_plan *plan) {
    plan->quads = 0;
    for (int i = 0; i < call->n_in + call->n_out; i++)
        if (plan->used >> i & 1 && takes_quads(call, i)) plan->quads |= (uint64_t)1 << i;
    ct_wgpu_writer w = {.call = call, .fused = call->attrs, .plan = plan};
    ct_wgpu_put_functions(&w);
    for (int i = 0; i < call->n_in + call->n_out; i++)
        if (plan->used >> i & 1) put_place(&w, i);
    if (plan->n) ct_wgpu_put_rows(&w);
    else put_elements(&w);
    plan->text = w.t.failed ? NULL : ct_wgpu_fused_keep(w.t.s);
    free(w.t.s);
    return plan->text != NULL;
}
