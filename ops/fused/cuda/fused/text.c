/* Writing kernels for fused calls. A kernel runs over the elements of the call, each of which goes through all steps in registers, rounded to
 * the dtype of each value as calls of their own would. A thread takes a pack of neighbours where the shapes allow it; operands that are
 * broadcast or strided are read at the place that their dimensions say, which are constants of the text. */
#include <inttypes.h>
#include <stdio.h>

#include "ops/fused/cuda/fused/writer.h"

/* ---- Operands in memory ---- */

/* A pack of V elements from a multiple of V on lies together, or is one value. */
static bool in_packs(const ct_fused_layout *l, int pack) {
    const int last = l->ndim - 1;
    if (l->dense || l->single) return true;
    if (l->dims[last] % pack || (l->strides[last] != 1 && l->strides[last] != 0)) return false;
    for (int d = 0; d < last && l->strides[last] == 1; d++)
        if (l->strides[d] % pack) return false;
    return true;
}

/* The place of element `e` of operand i. */
static void put_place(ct_fused_text *t, int i, const ct_fused_layout *l) {
    if (l->dense || l->single) return;
    ct_fused_put(t, "CT_DEVICE ct_index place_%d(ct_index e) {\n    ct_index at = 0, whole;\n", i);
    for (int d = l->ndim - 1; d > 0; d--) {
        ct_fused_put(t, "    whole = e / (ct_index)%" PRId64 ";\n", l->dims[d]);
        if (l->strides[d])
            ct_fused_put(t, "    at += (e - whole * (ct_index)%" PRId64 ") * (ct_index)%" PRId64 ";\n", l->dims[d],
                         l->strides[d]);
        ct_fused_put(t, "    e = whole;\n");
    }
    ct_fused_put(t, "    return at + e * (ct_index)%" PRId64 ";\n}\n", l->strides[0]);
}

void ct_fused_put_read(ct_fused_text *t, const ct_call *call, int value, const char *to, bool any) {
    const ct_fused *fused = call->attrs;
    const int operand = fused->values[value].input;
    const char *stored = ct_fused_types[fused->values[value].dtype].stored, *read = any ? "ct_read_any" : "ct_read",
               *more = any ? ", a.packed" : "";
    const ct_fused_layout l = ct_fused_layout_of(call->in[operand]);
    if (l.dense || (!l.single && in_packs(&l, t->pack) && l.strides[l.ndim - 1])) t->in_packs |= (uint64_t)1 << operand;
    if (l.dense) ct_fused_put(t, "    %s = %s<V, %s>(a.at[%d], e%s);\n", to, read, stored, operand, more);
    else if (l.single) ct_fused_put(t, "    %s = ct_splat<V, %s>(a.at[%d], 0);\n", to, stored, operand);
    else if (!in_packs(&l, t->pack))
        ct_fused_put(
            t, "#pragma unroll\n    for (int k = 0; k < V; k++) %s.v[k] = ((const %s *)a.at[%d])[place_%d(e + k)];\n",
            to, stored, operand, operand);
    else if (l.strides[l.ndim - 1])
        ct_fused_put(t, "    %s = %s<V, %s>(a.at[%d], place_%d(e)%s);\n", to, read, stored, operand, operand, more);
    else ct_fused_put(t, "    %s = ct_splat<V, %s>(a.at[%d], place_%d(e));\n", to, stored, operand, operand);
}

void ct_fused_put_write(ct_fused_text *t, const ct_call *call, int value, const char *from, bool any) {
    const ct_fused *fused = call->attrs;
    const int output = fused->values[value].output, operand = call->n_in + output;
    const char *stored = ct_fused_types[fused->values[value].dtype].stored, *write = any ? "ct_write_any" : "ct_write",
               *more = any ? ", a.packed" : "";
    const ct_fused_layout l = ct_fused_layout_of(call->out[output]);
    if (l.dense || (in_packs(&l, t->pack) && l.strides[l.ndim - 1] == 1)) t->in_packs |= (uint64_t)1 << operand;
    if (l.dense) ct_fused_put(t, "    %s<V, %s>(a.at[%d], e, %s%s);\n", write, stored, operand, from, more);
    else if (in_packs(&l, t->pack) && l.strides[l.ndim - 1] == 1)
        ct_fused_put(t, "    %s<V, %s>(a.at[%d], place_%d(e), %s%s);\n", write, stored, operand, operand, from, more);
    else
        ct_fused_put(t,
                     "#pragma unroll\n    for (int k = 0; k < V; k++) ((%s *)a.at[%d])[place_%d(e + k)] = %s.v[k];\n",
                     stored, operand, operand, from);
}

/* ---- Kernels over elements ---- */

/* 16 bytes of the smallest float or integer in memory, and for dropout whole blocks of words. */
static int pack_of(const ct_fused *fused) {
    int least = 8, pack;
    for (int i = 0; i < fused->n_values; i++) {
        const ct_fused_value *v = &fused->values[i];
        const int size = ct_fused_types[v->dtype].size < 2 ? 4 : ct_fused_types[v->dtype].size;
        if (ct_fused_is_element(fused, i) && (v->input >= 0 || v->output >= 0) && size < least) least = size;
    }
    pack = 16 / least;
    for (int i = 0; i < fused->n_steps; i++)
        if (ct_fused_kind_of(fused->steps[i].call.op) == CT_FUSED_DROPOUT && pack < 4) pack = 4;
    return pack;
}

void ct_fused_put_words(ct_fused_text *t, const ct_call *call, int first, int last) {
    const ct_fused *fused = call->attrs;
    for (int i = first; i < last; i++) {
        const ct_fused_step *step = &fused->steps[i];
        if (ct_fused_kind_of(step->call.op) != CT_FUSED_DROPOUT) continue;
        const int input = fused->values[step->values[1]].input;
        ct_fused_put(t, "    const ct_words<V> words_%d(ct_position_at<%s>(a.at[%d], %" PRId64 "), e);\n", i,
                     call->in[input]->dtype == CT_I64 ? "int64_t" : "int32_t", input, call->in[input]->strides[0]);
    }
}

/* An element of the call that is read. */
static bool is_loaded(const ct_fused *fused, int value) {
    const ct_fused_value *v = &fused->values[value];
    return v->input >= 0 && v->last >= 0 && ct_fused_is_element(fused, value);
}

void ct_fused_put_stored(ct_fused_text *t, const ct_fused *fused, int value, const char *to) {
    const ct_dtype dtype = fused->values[value].dtype;
    if (dtype == CT_BOOL) ct_fused_put(t, "        %s.v[k] = v%d;\n", to, value);
    else ct_fused_put(t, "        %s.v[k] = ct_store<%s>(v%d);\n", to, ct_fused_types[dtype].stored, value);
}

static void put_group(ct_fused_text *t, const ct_call *call) {
    const ct_fused *fused = call->attrs;
    char pack[16];
    ct_fused_put(t, "template <int V> CT_DEVICE void group(const ct_fused_arguments &a, const ct_index e) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        if (!is_loaded(fused, i)) continue;
        snprintf(pack, sizeof pack, "p%d", i);
        ct_fused_put(t, "    ct_pack<%s, V> %s;\n", ct_fused_types[fused->values[i].dtype].stored, pack);
        ct_fused_put_read(t, call, i, pack, false);
    }
    ct_fused_put_words(t, call, 0, fused->n_steps);
    for (int i = 0; i < fused->n_values; i++)
        if (fused->values[i].output >= 0)
            ct_fused_put(t, "    ct_pack<%s, V> q%d;\n", ct_fused_types[fused->values[i].dtype].stored, i);
    ct_fused_put(t, "#pragma unroll\n    for (int k = 0; k < V; k++) {\n");
    for (int i = 0; i < fused->n_values; i++) {
        if (!is_loaded(fused, i)) continue;
        ct_fused_put(t, "        const %s v%d = ", ct_fused_variable(fused->values[i].dtype), i);
        ct_fused_put_loaded(t, fused->values[i].dtype, "p%d.v[k]", i);
        ct_fused_put(t, ";\n");
    }
    for (int i = 0; i < fused->n_steps; i++) ct_fused_put_step(t, fused, i);
    for (int i = 0; i < fused->n_values; i++) {
        snprintf(pack, sizeof pack, "q%d", i);
        if (fused->values[i].output >= 0) ct_fused_put_stored(t, fused, i, pack);
    }
    ct_fused_put(t, "    }\n");
    for (int i = 0; i < fused->n_values; i++) {
        snprintf(pack, sizeof pack, "q%d", i);
        if (fused->values[i].output >= 0) ct_fused_put_write(t, call, i, pack, false);
    }
    ct_fused_put(t, "}\n");
}

static void put_element_kernel(ct_fused_text *t, const ct_call *call) {
    const int64_t count = ((const ct_fused *)call->attrs)->count;
    put_group(t, call);
    ct_fused_put(
        t,
        "extern \"C\" __global__ void __launch_bounds__(256) fused(const __grid_constant__ ct_fused_arguments a) {\n"
        "    if (ct_does_nothing(a.head)) return;\n"
        "    const int64_t count = %" PRId64 ", first = ct_first(), step = ct_step();\n"
        "    const int64_t packs = a.packed ? count / %d : 0;\n"
        "    for (int64_t p = first; p < packs; p += step) group<%d>(a, (ct_index)(p * %d));\n"
        "    for (int64_t e = packs * %d + first; e < count; e += step) group<1>(a, (ct_index)e);\n"
        "}\n",
        count, t->pack, t->pack, t->pack, t->pack);
}

/* ---- The whole ---- */

static void put_includes(ct_fused_text *t, const ct_fused *fused) {
    bool has[CT_FUSED_ROW_NORM_GRAD + 1] = {false};
    for (int i = 0; i < fused->n_steps; i++) has[ct_fused_kind_of(fused->steps[i].call.op)] = true;
    ct_fused_put(t, "#include \"ops/fused/cuda/%s.cuh\"\n", has[CT_FUSED_DROPOUT] ? "dropout" : "fused");
    if (t->rows.n) ct_fused_put(t, "#include \"ops/fused/cuda/rows.cuh\"\n");
    if (has[CT_FUSED_CAST]) ct_fused_put(t, "#include \"backends/cuda/convert.cuh\"\n");
    for (int i = 0; i < fused->n_steps; i++) {
        const ct_op *op = fused->steps[i].call.op;
        bool before = ct_fused_kind_of(op) != CT_FUSED_ELEMENTWISE;
        for (int k = 0; k < i && !before; k++) before = fused->steps[k].call.op == op;
        if (!before) ct_fused_put(t, "%s", ct_fused_formula(op));
    }
}

bool ct_fused_write(const ct_call *call, ct_fused_text *t) {
    const ct_fused *fused = call->attrs;
    bool wide = fused->count >= INT32_MAX, rows = false;
    *t = (ct_fused_text){.pack = pack_of(fused)};
    for (int i = 0; i < fused->n_steps; i++) rows |= ct_fused_is_row(&fused->steps[i]);
    if (rows) ct_fused_divide_rows(fused, t);
    put_includes(t, fused);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (view) wide |= ct_fused_layout_of(view).wide;
    }
    ct_fused_put(t, "typedef %s ct_index;\n", wide ? "int64_t" : "uint32_t");
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (!view) continue;
        const ct_fused_layout l = ct_fused_layout_of(view);
        put_place(t, i, &l);
    }
    if (rows) ct_fused_put_row_kernel(t, call);
    else put_element_kernel(t, call);
    return !t->failed;
}
