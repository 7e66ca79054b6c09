/* What a captured graph does in a replay, for programs that look at it. */
#include <cotangent/fused.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/passes/passes.h"
#include "core/sized.h"

/* Fills as much of info as its size says; false after an error. */
static bool fill(const char *function, void *info, const void *all, size_t bytes) {
    uint32_t size;
    memcpy(&size, info, sizeof size);
    if (size < sizeof size)
        return ct_fail(CT_ERR_VALUE, function, "info->size is %u; it has to be that of the struct", size);
    ct__sized_fill(info, size, all, bytes);
    memcpy(info, &size, sizeof size);
    return true;
}

/* What a call of several is made of; NULL: it is one call. */
static const ct_fused *fused_of(const ct_record *record) {
    return record->kind == CT__CALL && record->call.op == &ct__op_fused ? record->call.attrs : NULL;
}

const char *ct_graph_step_part(const ct_graph *g, int64_t step, int part) {
    if (!g) return ct__fail_null("graph_step_part", "graph"), NULL;
    const ct_fused *fused = step >= 0 && step < g->n_records ? fused_of(&g->records[step]) : NULL;
    return fused && part >= 0 && part < fused->n_steps ? fused->steps[part].call.op->name : NULL;
}

bool ct_graph_step(const ct_graph *g, int64_t step, ct_graph_step_info *info) {
    if (!g || !info) return ct__fail_null("graph_step", g ? "info" : "graph");
    if (step < 0 || step >= g->n_records) return false;
    const ct_record *record = &g->records[step];
    ct_graph_step_info all = {.size = sizeof all, .random = record->generator >= 0};
    switch (record->kind) {
    case CT__CALL:
        all.kind = CT_GRAPH_STEP_CALL;
        all.op = record->call.op->name;
        all.kernel = record->call.kernel->name;
        all.device = record->call.device;
        all.inputs = record->call.n_in;
        all.outputs = record->call.n_out;
        all.scratch_bytes = (int64_t)record->call.scratch.bytes;
        if (fused_of(record)) all.parts = fused_of(record)->n_steps;
        break;
    case CT__EFFECT: all.kind = CT_GRAPH_STEP_EFFECT; break;
    default:
        all.kind = CT_GRAPH_STEP_WRITE;
        all.device = g->slots[record->slot].device;
        all.outputs = 1;
    }
    return fill("graph_step", info, &all, sizeof all);
}

static void describe_memory(const ct_graph *g, int slot, ct_graph_operand_info *all) {
    const ct_graph_slot *s = &g->slots[slot];
    all->kind = s->kept ? CT_GRAPH_MEMORY_KEPT : s->constant ? CT_GRAPH_MEMORY_CONSTANT : CT_GRAPH_MEMORY_PLANNED;
    all->memory = slot;
    all->memory_bytes = (int64_t)s->bytes;
}

static void describe_view(const ct_graph *g, const ct_record *record, int i, ct_graph_operand_info *all) {
    const ct_view *view = record->call.in[i]; /* those of outputs come right behind */
    if (!view) return;
    all->dtype = view->dtype;
    all->ndim = view->ndim;
    ct__copy_dims(all->dims, view->dims, view->ndim);
    ct__copy_dims(all->strides, view->strides, view->ndim);
    if (record->slots[i] < 0) {
        all->kind = CT_GRAPH_MEMORY_NUMBER;
        all->number = ct__dtype_get(view->dtype, view->buffer);
        return;
    }
    describe_memory(g, record->slots[i], all);
    all->offset = view->offset * (int64_t)ct_dtype_size(view->dtype);
    const bool output = i >= record->call.n_in;
    all->reads = !output;
    all->writes = output || ct__input_is_mutated(record->call.op, i);
}

bool ct_graph_operand(const ct_graph *g, int64_t step, int operand, ct_graph_operand_info *info) {
    if (!g || !info) return ct__fail_null("graph_operand", g ? "info" : "graph");
    if (step < 0 || step >= g->n_records || operand < 0) return false;
    const ct_record *record = &g->records[step];
    ct_graph_operand_info all = {.size = sizeof all, .kind = CT_GRAPH_MEMORY_NONE, .memory = -1};
    if (record->kind == CT__CALL && operand < record->n_views) {
        describe_view(g, record, operand, &all);
    } else if (record->slot >= 0 && operand == 0) {
        describe_memory(g, record->slot, &all);
        all.offset = (int64_t)record->offset;
        all.writes = true;
        all.dtype = CT_U8;
        all.ndim = 1;
        all.dims[0] = record->kind == CT__PUT ? (int64_t)record->bytes : all.memory_bytes;
        all.strides[0] = 1;
    } else {
        return false;
    }
    return fill("graph_operand", info, &all, sizeof all);
}
