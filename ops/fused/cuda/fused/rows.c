/* Writing kernels with steps along rows: a group of threads takes a row, keeps it in registers and takes it from step to step. Between two
 * steps along rows lies a phase in which elements go through the steps that concern them alone, as in kernels over elements. What is read
 * behind the phase that makes it is kept in an array: w3 is value 3. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/fused/cuda/fused/writer.h"
#include "ops/norm/cuda/row_norm.h"

#include "gen/norm.attrs.h"

/* ---- What can be written ---- */

static bool is_gradient(const ct_fused_step *step) { return ct_fused_kind_of(step->call.op) == CT_FUSED_ROW_NORM_GRAD; }
static int elements_in(const ct_fused_step *step) { return is_gradient(step) ? 2 : 1; } /* inputs that are rows */
static const ct_view *rows_of(const ct_fused_step *step) { return step->call.in[0]; }

static int value_of_output(const ct_fused_step *step, int i) {
    const ct_call *call = &step->call;
    return i < call->n_out && call->out[i] ? step->values[call->n_in + i] : -1;
}

/* Weight and bias, and the gradients of both, are vectors of a row's length in what is computed in. */
static bool is_vector(const ct_view *view, const ct_view *rows) {
    return view->ndim == 1 && view->dims[0] == rows->dims[1] && (view->dims[0] == 1 || view->strides[0] == 1) &&
           view->dtype == (rows->dtype == CT_F64 ? CT_F64 : CT_F32);
}

const char *ct_fused_row_step_refusal(const ct_fused *fused, const ct_fused_step *step) {
    const ct_call *call = &step->call;
    const ct_view *rows = rows_of(step);
    if (!rows || rows->ndim != 2 || rows->dtype > CT_BF16) return "a step along rows is for rows of floats";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) {
            if (i < elements_in(step)) return "an operand is missing";
            continue;
        }
        const int value = step->values[i];
        if (value < 0) return "a step along rows has a number";
        if (i < elements_in(step) && (call->in[i]->dtype != rows->dtype || !ct_fused_is_element(fused, value)))
            return "rows differ";
        if (i >= elements_in(step) && (fused->values[value].input < 0 || !is_vector(call->in[i], rows)))
            return "a vector along rows is made by a step, or is of another kind";
    }
    for (int i = 1; i < call->n_out; i++) {
        const int value = value_of_output(step, i);
        if (value < 0) continue;
        if (!is_gradient(step) || fused->values[value].output < 0 || fused->values[value].last >= 0)
            return "a result along rows is read by a step";
        if (!is_vector(call->out[i], rows)) return "a result along rows is of another kind";
    }
    return call->out[0]->dtype == rows->dtype ? NULL : "rows differ";
}

static bool sums_columns(const ct_fused_step *step) {
    return is_gradient(step) && (value_of_output(step, 1) >= 0 || value_of_output(step, 2) >= 0);
}

/* The step by which rows are divided: the one that sums columns, or the first. */
static const ct_fused_step *leading(const ct_fused *fused) {
    const ct_fused_step *lead = NULL;
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (ct_fused_is_row(step) && (!lead || (sums_columns(step) && !sums_columns(lead)))) lead = step;
    }
    return lead;
}

/* Threads of a row in steps that sum no columns, as in their own kernels. */
static int lanes_of_others(int64_t n, int64_t size) { return ct_cuda_row_lanes(n, size, CT_ROW_PACKS); }

const char *ct_fused_rows_refusal(const ct_fused *fused) {
    const ct_fused_step *lead = leading(fused);
    const ct_view *rows = rows_of(lead);
    const int64_t n = rows->dims[1], size = ct_fused_types[rows->dtype].size, pack = 16 / size;
    int sums = 0, others = 0;
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (ct_fused_kind_of(step->call.op) == CT_FUSED_DROPOUT && pack < 4) return "dropout along rows of f64";
        if (!ct_fused_is_row(step)) continue;
        if (rows_of(step)->dims[1] != n || rows_of(step)->dtype != rows->dtype) return "rows of two kinds";
        *(sums_columns(step) ? &sums : &others) += 1;
    }
    if (sums > 1) return "columns are summed twice";
    if (n % pack || n * size > 16 * CT_ROW_PACKS * CT_ROW_LONGEST) return "rows do not fit into registers";
    const ct_norm_division d = ct_norm_division_of(n, size);
    if (sums && !ct_norm_keeps(&d, n, size)) return "rows do not fit into registers";
    /* sums along a row would be of other terms than those of the call by itself */
    return sums && others && d.lanes != lanes_of_others(n, size) ? "rows are divided in two ways" : NULL;
}

void ct_fused_divide_rows(const ct_fused *fused, ct_fused_text *t) {
    const ct_fused_step *lead = leading(fused);
    const ct_view *rows = rows_of(lead);
    const int64_t n = rows->dims[1], size = ct_fused_types[rows->dtype].size;
    t->pack = (int)(16 / size);
    t->rows = (ct_fused_rows){.rows = rows->dims[0], .n = (int)n, .number = rows->dtype == CT_F64 ? 8 : 4};
    if (sums_columns(lead)) {
        const ct_norm_division d = ct_norm_division_of(n, size);
        t->rows.lanes = d.lanes;
        t->rows.block = d.block;
        t->rows.parts = d.parts;
    } else {
        t->rows.lanes = lanes_of_others(n, size);
        t->rows.block = t->rows.lanes > 32 ? t->rows.lanes : CT_ROW_THREADS;
    }
    const int packs = (int)(n / t->pack);
    t->rows.kept = (packs + t->rows.lanes - 1) / t->rows.lanes;
}

/* ---- Phases ---- */

/* Steps first to last - 1, none of which is along rows. */
typedef struct phase {
    int first, last;
} phase;

static bool reads(const ct_fused_step *step, int value) {
    for (int i = 0; i < step->call.n_in; i++)
        if (step->values[i] == value) return true;
    return false;
}

static bool is_read_in(const ct_fused *fused, phase p, int value) {
    for (int i = p.first; i < p.last; i++)
        if (reads(&fused->steps[i], value)) return true;
    return false;
}

/* It is read behind the phase, or by a step along rows. */
static bool is_kept(const ct_fused *fused, int value) {
    const int made = fused->values[value].made;
    bool along = false, rows_since = false;
    if (!ct_fused_is_element(fused, value)) return false;
    for (int i = made < 0 ? 0 : made; i < fused->n_steps; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (reads(step, value)) along |= ct_fused_is_row(step) || (rows_since && made >= 0);
        rows_since |= ct_fused_is_row(step);
    }
    return along || (made >= 0 && ct_fused_is_row(&fused->steps[made]));
}

/* A phase over all packs of a thread: what it reads of earlier ones, its steps, and what of it is kept or written. `after` is the step
 * along rows before it, whose result is written here too; -1: none. */
static void put_phase(ct_fused_text *t, const ct_call *call, phase p, int after) {
    const ct_fused *fused = call->attrs;
    char name[32];
    ct_fused_put(t, "#pragma unroll\n    for (int j = 0; j < K; j++) {\n    const int p = lane + j * LANES;\n"
                    "    if (p >= PACKS) continue;\n    const ct_index e = start + (ct_index)(p * V);\n");
    ct_fused_put_words(t, call, p.first, p.last);
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (v->output >= 0 && ct_fused_is_element(fused, i) &&
            ((v->made >= p.first && v->made < p.last) || v->made == after))
            ct_fused_put(t, "    ct_pack<%s, V> q%d;\n", ct_fused_types[v->dtype].stored, i);
    }
    ct_fused_put(t, "#pragma unroll\n    for (int k = 0; k < V; k++) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        const bool made_here = v->made >= p.first && v->made < p.last,
                   to_keep = v->input >= 0 && p.first == 0 && after < 0 && is_kept(fused, i);
        const bool to_write = v->made == after && after >= 0 && v->output >= 0;
        if (made_here || !ct_fused_is_element(fused, i) || !(is_read_in(fused, p, i) || to_keep || to_write)) continue;
        ct_fused_put(t, "        const %s v%d = ", ct_fused_variable(v->dtype), i);
        if (v->input >= 0) ct_fused_put_loaded(t, v->dtype, "p%d[j].v[k]", i);
        else ct_fused_put(t, "w%d[j][k]", i);
        ct_fused_put(t, ";\n");
        if (to_keep) ct_fused_put(t, "        w%d[j][k] = v%d;\n", i, i);
    }
    for (int i = p.first; i < p.last; i++) ct_fused_put_step(t, fused, i);
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        const bool made_here = v->made >= p.first && v->made < p.last;
        if (!ct_fused_is_element(fused, i)) continue;
        if (made_here && is_kept(fused, i)) ct_fused_put(t, "        w%d[j][k] = v%d;\n", i, i);
        snprintf(name, sizeof name, "q%d", i);
        if (v->output >= 0 && (made_here || (after >= 0 && v->made == after))) ct_fused_put_stored(t, fused, i, name);
    }
    ct_fused_put(t, "    }\n    if (inside) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        snprintf(name, sizeof name, "q%d", i);
        if (v->output >= 0 && ct_fused_is_element(fused, i) &&
            ((v->made >= p.first && v->made < p.last) || (after >= 0 && v->made == after)))
            ct_fused_put_write(t, call, i, name, true);
    }
    ct_fused_put(t, "    }\n    }\n");
}

/* ---- Steps along rows ---- */

static void put_vector(ct_fused_text *t, const ct_fused *fused, const ct_fused_step *step, int i) {
    if (i < step->call.n_in && step->call.in[i]) {
        const int input = fused->values[step->values[i]].input;
        t->in_packs |= (uint64_t)1 << input;
        ct_fused_put(t, "a.at[%d]", input);
    } else {
        ct_fused_put(t, "nullptr");
    }
}

static void put_row_step(ct_fused_text *t, const ct_fused *fused, const ct_fused_step *step) {
    const char *stored = ct_fused_types[rows_of(step)->dtype].stored;
    const int made = value_of_output(step, 0);
    uint64_t eps;
    bool rms;
    if (is_gradient(step)) {
        const row_norm_grad_attrs *attrs = step->call.attrs;
        memcpy(&eps, &attrs->eps, sizeof eps);
        rms = attrs->rms;
        ct_fused_put(t, "    ct_row_norm_grad_step<%s, %s, K>(w%d, w%d, w%d, ", stored,
                     sums_columns(step) ? "true" : "false", step->values[0], step->values[1], made);
        put_vector(t, fused, step, 2);
    } else {
        const row_norm_attrs *attrs = step->call.attrs;
        memcpy(&eps, &attrs->eps, sizeof eps);
        rms = attrs->rms;
        ct_fused_put(t, "    ct_row_norm_step<%s, K>(w%d, w%d, ", stored, step->values[0], made);
        put_vector(t, fused, step, 1);
        ct_fused_put(t, ", ");
        put_vector(t, fused, step, 2);
    }
    ct_fused_put(t, ", N, ct_from_bits<double>(0x%" PRIx64 "ull), %s, lane, LANES, a.packed", eps,
                 rms ? "true" : "false");
    ct_fused_put(t, is_gradient(step) ? ", inside, by_weight, by_bias);\n" : ");\n");
}

/* ---- The kernel ---- */

static void put_declarations(ct_fused_text *t, const ct_call *call) {
    const ct_fused *fused = call->attrs;
    char name[32];
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        if (is_kept(fused, i)) ct_fused_put(t, "    %s w%d[K][V];\n", ct_fused_variable(v->dtype), i);
        if (v->input >= 0 && v->last >= 0 && ct_fused_is_element(fused, i))
            ct_fused_put(t, "    ct_pack<%s, V> p%d[K];\n", ct_fused_types[v->dtype].stored, i);
    }
    ct_fused_put(t, "#pragma unroll\n    for (int j = 0; j < K; j++) {\n    const int p = lane + j * LANES;\n"
                    "    if (p >= PACKS) continue;\n    const ct_index e = start + (ct_index)(p * V);\n");
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        snprintf(name, sizeof name, "p%d[j]", i);
        if (v->input >= 0 && v->last >= 0 && ct_fused_is_element(fused, i)) ct_fused_put_read(t, call, i, name, true);
    }
    ct_fused_put(t, "    }\n");
}

/* All steps on one row. */
static void put_row(ct_fused_text *t, const ct_call *call) {
    const ct_fused *fused = call->attrs;
    phase p = {0, 0};
    int after = -1;
    put_declarations(t, call);
    for (int i = 0; i <= fused->n_steps; i++) {
        if (i < fused->n_steps && !ct_fused_is_row(&fused->steps[i])) continue;
        p.last = i;
        put_phase(t, call, p, after);
        if (i == fused->n_steps) break;
        put_row_step(t, fused, &fused->steps[i]);
        after = i;
        p.first = i + 1;
    }
}

static void put_total(ct_fused_text *t, const ct_call *call, const char *number) {
    const ct_fused *fused = call->attrs;
    const ct_fused_step *lead = leading(fused);
    ct_fused_put(t,
                 "extern \"C\" __global__ void __launch_bounds__(CT_NORM_MOST) fused_total(const __grid_constant__ "
                 "ct_fused_arguments a) {\n    if (ct_does_nothing(a.head)) return;\n"
                 "    sum_parts((const %s *)a.sums, a.parts, %d",
                 number, t->rows.n);
    for (int i = 1; i < 3; i++) {
        const int value = value_of_output(lead, i);
        if (value < 0) ct_fused_put(t, ", (%s *)nullptr", number);
        else ct_fused_put(t, ", (%s *)a.at[%d]", number, call->n_in + fused->values[value].output);
    }
    ct_fused_put(t, ");\n}\n");
}

/* Of the blocks that sum columns all run at once on a large device, so registers have to be enough for so many on a multiprocessor. */
static int blocks_at_once(const ct_fused_rows *r) {
    if (!r->parts) return 1;
    return r->block == CT_NORM_WARPS && r->lanes == 32 ? 3 : 2 * CT_NORM_THREADS / r->block;
}

void ct_fused_put_row_kernel(ct_fused_text *t, const ct_call *call) {
    const ct_fused_rows *r = &t->rows;
    const char *number = r->number == 8 ? "double" : "float";
    ct_fused_put(
        t,
        "enum { V = %d, N = %d, PACKS = %d, LANES = %d, K = %d };\n"
        "extern \"C\" __global__ void __launch_bounds__(%d, %d) fused(const __grid_constant__ ct_fused_arguments a) {\n"
        "    CT_DYNAMIC_SHARED(shared);\n"
        "    if (ct_does_nothing(a.head)) return;\n"
        "    const int lane = (int)threadIdx.x & (LANES - 1), groups = (int)blockDim.x / LANES;\n"
        "    const int64_t rows = %" PRId64 ";\n"
        "    %s by_weight[K][V] = {}, by_bias[K][V] = {};\n"
        "    for (int64_t first = (int64_t)blockIdx.x * groups; first < rows; first += (int64_t)gridDim.x * groups) {\n"
        "    const int64_t row = first + (int)threadIdx.x / LANES;\n"
        "    const bool inside = row < rows;\n"
        "    const ct_index start = (ct_index)((inside ? row : rows - 1) * N);\n",
        t->pack, r->n, r->n / t->pack, r->lanes, r->kept, r->block, blocks_at_once(r), r->rows, number);
    put_row(t, call);
    ct_fused_put(t, "    }\n");
    if (r->parts)
        ct_fused_put(t,
                     "    gather_columns<%s, K, V>((%s *)a.sums + (int64_t)blockIdx.x * 2 * N, (%s *)shared, N, lane, "
                     "LANES, by_weight, by_bias);\n",
                     number, number, number);
    ct_fused_put(t, "}\n");
    if (r->parts) put_total(t, call, number);
}
