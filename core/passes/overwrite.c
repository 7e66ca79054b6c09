/* Results in place of operands: where the most memory is in use, a result takes the place of an operand that nobody uses afterwards, if the
 * op's kernels may write where they read (CT_OP_ALIAS_OK) and both lie alike. The gradient of a loss is then written over its logits. Repeated
 * as long as the peak can fall; elsewhere nothing is gained, and what lives longer is harder to place. */
#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/passes/passes.h"

/* A slot of the graph's own that is made anew in each replay. */
static bool is_planned(const ct_graph *g, int slot) {
    const ct_graph_slot *s = &g->slots[slot];
    return !s->kept && !g->records[s->first].once;
}

static bool lie_alike(const ct_view *a, const ct_view *b) {
    bool alike = a->dtype == b->dtype && a->offset == b->offset && ct__view_same_shape(a, b);
    for (int i = 0; alike && i < a->ndim; i++) alike = a->dims[i] == 1 || a->strides[i] == b->strides[i];
    return alike;
}

static bool is_elementwise(const ct_record *record) { return record->call.op->flags & CT_OP_ELEMENTWISE; }

/* Whether record k, which is the last to use a slot, does so by operands that lie as its result does, and by nothing else; if it is not
 * elementwise, by one of them. */
static bool reads_alike(const ct_graph *g, int k, int slot, const ct_view *result) {
    const ct_record *record = &g->records[k];
    ct_access access;
    int reads = 0;
    for (int i = 0; ct__access_next(g, record, &i, &access);) {
        if (access.slot != slot) continue;
        if (access.writes || !lie_alike(access.view, result) || (reads++ && !is_elementwise(record))) return false;
    }
    return true;
}

static bool may_be_overwritten(const ct_graph *g, int k, int slot, const ct_access *made) {
    const ct_graph_slot *s = &g->slots[slot], *to = &g->slots[made->slot];
    return is_planned(g, slot) && s->last == k && s->bytes == to->bytes && ct__same_device(s->device, to->device) &&
           reads_alike(g, k, slot, made->view);
}

/* The slot of an operand of record k that its result in `made` may overwrite; -1: there is none. */
static int find_operand(const ct_graph *g, int k, const ct_access *made) {
    const ct_record *record = &g->records[k];
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);) {
        if (access.slot == made->slot || !access.reads || !ct__view_same_shape(access.view, made->view)) continue;
        if (lie_alike(access.view, made->view) && may_be_overwritten(g, k, access.slot, made)) return access.slot;
        if (!is_elementwise(record)) return -1; /* it is the first of the result's shape that may be */
    }
    return -1;
}

static void replace(ct_graph *g, int slot, int by) {
    for (int k = 0; k < g->n_records; k++) {
        ct_record *record = &g->records[k];
        for (int i = 0; i < record->n_views; i++)
            if (record->slots[i] == slot) record->slots[i] = by;
        if ((record->kind == CT__PUT || record->kind == CT__FILL) && record->slot == slot) record->slot = by;
    }
    g->slots[by].written |= g->slots[slot].written;
    g->slots[by].puts += g->slots[slot].puts;
}

/* Has one result of record k overwrite an operand; false: none can. */
static bool overwrite(ct_graph *g, int k) {
    const ct_record *record = &g->records[k];
    ct_access access;
    if (record->kind != CT__CALL || record->once) return false;
    if (!(record->call.op->flags & CT_OP_ALIAS_OK) || (record->call.op->flags & CT_OP_MUTATES)) return false;
    for (int i = 0; ct__access_next(g, record, &i, &access);) {
        if (!access.view || !access.whole || !is_planned(g, access.slot) || g->slots[access.slot].first != k) continue;
        const int operand = find_operand(g, k, &access);
        if (operand < 0) continue;
        replace(g, access.slot, operand);
        return true;
    }
    return false;
}

bool ct__pass_overwrite(ct_graph *g) {
    const size_t bytes = ((size_t)g->n_records + 1) * sizeof(int64_t);
    int64_t *in_use = ct__alloc(bytes), before = -1, peak;
    if (!in_use) return ct__fail_memory("capture", bytes);
    int n = 0, at = 0;
    do {
        ct__graph_lifetimes(g);
        peak = ct__graph_usage(g, in_use);
        if (before < 0) before = peak;
        for (at = 0; at < g->n_records && in_use[at] < peak; at++) {
        }
    } while (peak > 0 && at < g->n_records && overwrite(g, at) && ++n);
    ct__free(in_use, bytes);
    if (peak >= 0 && n)
        ct__pass_note(g, "%d results overwrite an operand, %lld bytes less at once", n, (long long)(before - peak));
    return peak >= 0;
}
