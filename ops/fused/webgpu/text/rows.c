/* Writing kernels with steps along rows: a group of invocations takes a row, keeps it in registers and takes it from
 * step to step. Between two steps along rows lies a phase in which elements go through the steps that concern them
 * alone, as in kernels over elements. What is read behind the phase that makes it is kept: w3 is value 3. Rows are
 * divided as ops/norm/webgpu and ops/softmax/webgpu divide them. */
#include <stdio.h>

#include "ops/fused/webgpu/text/writer.h"

#include "gen/norm.attrs.h"
#include "gen/softmax.attrs.h"

/* ---- What can be written ---- */

static const ct_view *rows_of(const ct_fused_step *step) { return step->call.in[0]; }
static int64_t length_of(const ct_fused_step *step) { return rows_of(step)->dims[rows_of(step)->ndim - 1]; }

/* Whether it goes along the last dimension. All the ops of CT_WGPU_ROW have an axis, and nothing else. */
static bool is_along_rows(const ct_fused_step *step) {
    const ct_view *rows = rows_of(step);
    if (ct_wgpu_fused_kind_of(&step->call) != CT_WGPU_ROW) return rows->ndim == 2;
    const int64_t axis = ((const softmax_attrs *)step->call.attrs)->axis;
    return rows->ndim > 0 && (axis == rows->ndim - 1 || axis == -1);
}

/* Weight and bias, and the gradients of both. */
static bool is_vector(const ct_view *view, int64_t n) {
    return view->ndim == 1 && view->dims[0] == n && view->strides[0] == 1 && view->dtype == CT_F32;
}

const char *ct_wgpu_row_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    if (!is_along_rows(step)) return "a step goes along another axis";
    const ct_view *rows = rows_of(step);
    if (rows->dtype > CT_BF16 || call->out[0]->dtype != rows->dtype) return "a step along rows is for rows of floats";
    for (int i = 0; i < call->n_in; i++) {
        const bool elements = ct_wgpu_takes_elements(step, i);
        if (elements && call->in[i]->dtype != rows->dtype) return "rows differ";
        if (elements || !call->in[i]) continue;
        if (step->values[i] < 0 || fused->values[step->values[i]].input < 0 || !is_vector(call->in[i], length_of(step)))
            return "a vector along rows is made by a step, or is of another kind";
    }
    for (int i = 1; i < call->n_out; i++) {
        const int value = call->out[i] ? step->values[call->n_in + i] : -1;
        if (value < 0) continue;
        if (ct_wgpu_fused_kind_of(call) != CT_WGPU_ROW_NORM_GRAD || fused->values[value].output < 0 ||
            fused->values[value].last >= 0)
            return "a result along rows is read by a step";
        if (!is_vector(call->out[i], length_of(step))) return "a result along rows is of another kind";
    }
    return NULL;
}

const char *ct_wgpu_rows_refusal(const ct_fused *fused) {
    int64_t n = 0;
    int sums = 0;
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        bool columns = false;
        if (!ct_wgpu_is_row(step)) continue;
        if (n && length_of(step) != n) return "rows of two kinds";
        n = length_of(step);
        for (int k = 1; k < step->call.n_out; k++) columns |= step->call.out[k] != NULL;
        sums += columns;
    }
    if (sums > 1) return "columns are summed twice";
    return ct_wgpu_divide_rows(fused->count / n, n).kept ? NULL : "rows do not fit into registers";
}

/* ---- Phases ---- */

bool ct_wgpu_is_kept(const ct_wgpu_writer *w, int value) {
    const ct_fused *fused = w->fused;
    const int made = fused->values[value].made;
    bool rows_since = false, kept = made >= 0 && ct_wgpu_is_row(&fused->steps[made]);
    if (ct_wgpu_is_beside(fused, value)) return false;
    for (int i = made + 1; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (ct_wgpu_step_reads(step, value)) kept |= ct_wgpu_is_row(step) || (rows_since && made >= 0);
        rows_since |= ct_wgpu_is_row(step);
    }
    return kept;
}

static void begin_quads(ct_wgpu_writer *w) {
    ct_wgpu_put(&w->t,
                "    for (var k = 0u; k < KEPT; k++) {\n    let at = 4u * (lane + k * LANES);\n    if (at < N) {\n"
                "    let i = start + at;\n");
}
static void end_quads(ct_wgpu_writer *w) { ct_wgpu_put(&w->t, "    }\n    }\n"); }

/* What the phase takes, its steps, and what of it, and of the step along rows before it, is kept or written. */
static void put_quads_of_phase(ct_wgpu_writer *w, const ct_wgpu_phase *p) {
    const ct_fused *fused = w->fused;
    begin_quads(w);
    for (int i = 0; i < fused->n_values && p->number == 0; i++) {
        if (fused->values[i].input < 0 || !ct_wgpu_is_kept(w, i)) continue;
        ct_wgpu_put(&w->t, "    w%d[k] = ", i);
        ct_wgpu_put_load(w, fused->values[i].input);
        ct_wgpu_put(&w->t, ";\n");
    }
    for (int i = 0; i < fused->n_values; i++) {
        if (!ct_wgpu_phase_takes(w, p, i)) continue;
        ct_wgpu_put(&w->t, "    var a%d = ", i);
        if (ct_wgpu_is_kept(w, i)) ct_wgpu_put(&w->t, "w%d[k]", i);
        else ct_wgpu_put_load(w, fused->values[i].input);
        ct_wgpu_put(&w->t, ";\n");
    }
    ct_wgpu_put_phase_of_four(w, p, "4u + p.ct_zero");
    for (int i = 0; i < fused->n_values; i++)
        if (ct_wgpu_phase_gives(w, p, i) && ct_wgpu_is_kept(w, i)) ct_wgpu_put(&w->t, "    w%d[k] = y%d;\n", i, i);
    ct_wgpu_put(&w->t, "    if (inside) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        const bool of_row = p->after >= 0 && v->made == p->after && !ct_wgpu_is_beside(fused, i);
        if (v->output < 0 || !(of_row || ct_wgpu_phase_gives(w, p, i))) continue;
        if (of_row) ct_wgpu_put(&w->t, "    var y%d = w%d[k];\n", i, i);
        ct_wgpu_put_store(w, i);
    }
    if (p->number == 0) ct_wgpu_put_positions(w);
    ct_wgpu_put(&w->t, "    }\n");
    end_quads(w);
}

/* ---- Steps along rows ---- */

/* Elements of weight or bias beside those of the row, or what stands for them: u3_1 is input 1 of step 3. */
static void put_vector(ct_wgpu_writer *w, int number, int i, const char *otherwise) {
    const ct_fused_step *step = &w->fused->steps[number];
    const bool given = i < step->call.n_in && step->call.in[i];
    ct_wgpu_put(&w->t, "    var u%d_%d: Row;\n", number, i);
    begin_quads(w);
    if (!given) {
        ct_wgpu_put(&w->t, "    u%d_%d[k] = vec4<f32>(%s);\n", number, i, otherwise);
    } else {
        const int input = w->fused->values[step->values[i]].input, operand = ct_wgpu_operand_number(w, input);
        if (w->plan->quads >> input & 1) ct_wgpu_put(&w->t, "    u%d_%d[k] = o%d_load4(at);\n", number, i, operand);
        else
            ct_wgpu_put(&w->t,
                        "    u%d_%d[k] = vec4<f32>(o%d_load(at), o%d_load(at + 1u), o%d_load(at + 2u), o%d_load(at + "
                        "3u));\n",
                        number, i, operand, operand, operand, operand);
    }
    end_quads(w);
}

static void put_norm_kind(ct_wgpu_writer *w, double eps, bool rms) {
    ct_wgpu_put(&w->t, "ct_norm(N, %af, %af, %uu), ", (double)(float)(1.0 / w->plan->n), (double)(float)eps, rms);
}

static void put_row_step(ct_wgpu_writer *w, int number) {
    const ct_fused_step *step = &w->fused->steps[number];
    const ct_call *call = &step->call;
    const ct_wgpu_fused_kind kind = ct_wgpu_fused_kind_of(call);
    const int made = step->values[call->n_in];
    if (kind == CT_WGPU_ROW_NORM) put_vector(w, number, 1, "1.0"), put_vector(w, number, 2, "0.0");
    if (kind == CT_WGPU_ROW_NORM_GRAD) put_vector(w, number, 2, "1.0");
    if (kind == CT_WGPU_ROW_NORM_GRAD && w->plan->sums != number)
        ct_wgpu_put(&w->t, "    var spare_a%d: Row;\n    var spare_b%d: Row;\n", number, number);
    ct_wgpu_put(&w->t, kind == CT_WGPU_ROW ? "    row_%s(" : "    %s(", call->op->name);
    if (kind == CT_WGPU_ROW_NORM) {
        const row_norm_attrs *attrs = call->attrs;
        put_norm_kind(w, attrs->eps, attrs->rms);
        ct_wgpu_put(&w->t, "&w%d, &u%d_1, &u%d_2, &w%d, local);\n", step->values[0], number, number, made);
    } else if (kind == CT_WGPU_ROW_NORM_GRAD) {
        const row_norm_grad_attrs *attrs = call->attrs;
        const bool sums = w->plan->sums == number;
        put_norm_kind(w, attrs->eps, attrs->rms);
        ct_wgpu_put(&w->t, "&w%d, &w%d, &u%d_2, &w%d", step->values[0], step->values[1], number, made);
        if (sums) ct_wgpu_put(&w->t, ", &by_weight, &by_bias, inside, local);\n");
        else ct_wgpu_put(&w->t, ", &spare_a%d, &spare_b%d, inside, local);\n", number, number);
    } else {
        for (int i = 0; i < call->n_in; i++) ct_wgpu_put(&w->t, "&w%d, ", step->values[i]);
        ct_wgpu_put(&w->t, "&w%d, local);\n", made);
    }
    static const char *const parts[] = {"x", "y", "z", "w"};
    ct_wgpu_put(&w->t, "    for (var k = 0u; k < KEPT; k++) {\n    w%d[k] = vec4<f32>(", made);
    for (int c = 0; c < 4; c++) {
        char part[32];
        snprintf(part, sizeof part, "w%d[k].%s", made, parts[c]);
        ct_wgpu_put(&w->t, c ? ", " : "");
        ct_wgpu_put_rounding(w, call->out[0]->dtype, part);
    }
    ct_wgpu_put(&w->t, ");\n    }\n");
}

/* ---- The kernel ---- */

typedef void phase_action(ct_wgpu_writer *w, const ct_wgpu_phase *p);

static void for_each_phase(ct_wgpu_writer *w, phase_action *act, void (*between)(ct_wgpu_writer *w, int number)) {
    ct_wgpu_phase p = {.after = -1};
    for (int i = 0; i <= w->fused->n_steps; i++) {
        if (i < w->fused->n_steps && !ct_wgpu_is_row(&w->fused->steps[i])) continue;
        p.last = i;
        act(w, &p);
        if (i < w->fused->n_steps && between) between(w, i);
        p = (ct_wgpu_phase){.number = p.number + 1, .first = i + 1, .after = i};
    }
}

/* Sums of columns of all rows that the invocations of a row have had, one part for each group of them. */
static void put_sums(ct_wgpu_writer *w) {
    ct_wgpu_put(&w->t,
                "    let part = 2u * N * (group * (THREADS / LANES) + local / LANES);\n"
                "    for (var k = 0u; k < KEPT; k++) {\n    let at = 4u * (lane + k * LANES);\n    if (at < N) {\n"
                "    sums_store4(part + at, by_weight[k]);\n    sums_store4(part + N + at, by_bias[k]);\n    }\n"
                "    }\n");
}

void ct_wgpu_put_rows(ct_wgpu_writer *w) {
    for_each_phase(w, ct_wgpu_put_phase, NULL);
    ct_wgpu_put(&w->t, "fn fused_rows(group: u32, local: u32, groups: u32) {\n    let lane = local %% LANES;\n");
    if (w->plan->sums >= 0) ct_wgpu_put(&w->t, "    var by_weight: Row;\n    var by_bias: Row;\n");
    ct_wgpu_put(&w->t,
                "    for (var first = group * (THREADS / LANES); first < p.rows; first += groups * (THREADS / LANES)) "
                "{\n    let row = first + local / LANES;\n    let inside = row < p.rows;\n"
                "    let start = min(row, p.rows - 1u) * N;\n");
    for (int i = 0; i < w->fused->n_values; i++) {
        const ct_dtype dtype = w->fused->values[i].dtype;
        if (!ct_wgpu_is_kept(w, i)) continue;
        if (dtype <= CT_BF16) ct_wgpu_put(&w->t, "    var w%d: Row;\n", i);
        else ct_wgpu_put(&w->t, "    var w%d: array<%s, KEPT>;\n", i, ct_wgpu_four(dtype));
    }
    for_each_phase(w, put_quads_of_phase, put_row_step);
    ct_wgpu_put(&w->t, "    }\n");
    if (w->plan->sums >= 0) put_sums(w);
    ct_wgpu_put(&w->t, "}\n");
}
