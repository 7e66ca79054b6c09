/* What passes look at and change: accesses of records, their order, their coming and going. */
#include <string.h>

#include "core/alloc.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/passes/passes.h"
#include "core/threads.h"
#include "gen/ops_decl.h"

/* ---- Accesses ---- */

static void measure(const ct_graph *g, ct_access *access) {
    const ct_view *view = access->view;
    const size_t size = ct_dtype_size(view->dtype);
    const int64_t count = ct__view_count(view);
    int64_t low = 0, high = 0;
    if (count && ct__view_reach(view, &low, &high)) {
        access->low = (size_t)(view->offset + low) * size;
        access->high = (size_t)(view->offset + high + 1) * size;
    }
    access->whole = access->writes && !access->reads && (size_t)count * size == g->slots[access->slot].bytes;
}

bool ct__access_next(const ct_graph *g, const ct_record *record, int *i, ct_access *access) {
    const bool by_host = record->kind == CT__PUT || record->kind == CT__FILL;
    for (; *i < record->n_views; ++*i) {
        if (record->slots[*i] < 0) continue;
        const bool output = *i >= record->call.n_in;
        *access = (ct_access){.slot = record->slots[*i], .view = &record->views[*i]};
        access->reads = !output;
        access->writes = output || ct__input_is_mutated(record->call.op, *i);
        measure(g, access);
        ++*i;
        return true;
    }
    const int slot = by_host ? record->slot : record->scratch;
    if (*i > record->n_views || slot < 0) return false;
    ++*i;
    const size_t bytes = g->slots[slot].bytes, low = by_host ? record->offset : 0;
    const size_t high = record->kind == CT__PUT ? low + record->bytes : bytes;
    *access = (ct_access){.slot = slot, .low = low, .high = high, .writes = true, .whole = high - low == bytes};
    return true;
}

bool ct__record_is_pure(const ct_record *record) {
    if (record->generator >= 0) return false;
    if (record->kind != CT__CALL) return record->kind != CT__EFFECT;
    if (record->call.op == &ct__op_fused) return false; /* it may have kept results among its own */
    return !(record->call.op->flags & (CT_OP_MUTATES | CT_OP_RANDOM));
}

bool ct__record_may_fail(const ct_record *record) {
    if (record->kind != CT__CALL) return record->kind == CT__EFFECT;
    const ct_op *op = record->call.op;
    if (op == &ct__op_fused) return false; /* of steps that do not */
    if (!ct__op_is_builtin(op)) return true;
    if (op->flags & (CT_OP_ELEMENTWISE | CT_OP_MUTATES)) return false; /* steps of optimizers, norms */
    if (op->flags & (CT_OP_RANDOM | CT_OP_NO_GRAD)) return true;
    for (int i = 0; i < record->call.n_in; i++)
        if (record->call.in[i] && !ct__dtype_is_float(record->call.in[i]->dtype)) return true;
    return false;
}

int ct__slot_memory(const ct_graph *g, int slot) {
    int first = 0;
    if (!g->slots[slot].shared) return slot;
    while (!g->slots[first].shared) first++;
    return first;
}

int *ct__graph_writers(const ct_graph *g) {
    const size_t bytes = (size_t)g->n_slots * sizeof(int);
    int *writers = ct__alloc(bytes);
    ct_access access;
    if (!writers) return ct__fail_memory("capture", bytes), NULL;
    memset(writers, 0, bytes);
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);)
            if (access.writes) writers[access.slot]++;
    return writers;
}

/* ---- Changes ---- */

void ct__record_drop(ct_record *record) { record->gone = true; }

void ct__record_free(ct_record *record) { ct__free(record->block, record->block_bytes); }

void ct__graph_compact(ct_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_records; i++) {
        if (g->records[i].gone) ct__record_free(&g->records[i]);
        else g->records[n++] = g->records[i];
    }
    g->n_records = n;
    ct__graph_lifetimes(g);
}

/* The k-th record uses a slot; with an order that is order[k]. */
static void extend_life(const ct_graph *g, const int *order, int k, int *first, int *last) {
    if (k < *first) *first = k;
    const bool once = g->records[order ? order[k] : k].once,
               made_once = g->records[order ? order[*first] : *first].once;
    const int until =
        made_once && !once ? g->n_records - 1 : k; /* what was made once is there for the next replay too */
    if (until > *last) *last = until;
}

void ct__graph_lifetimes(ct_graph *g) {
    for (int i = 0; i < g->n_slots; i++) g->slots[i].first = INT32_MAX, g->slots[i].last = -1;
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0, slot; (slot = ct__slot_next(&g->records[k], &i)) >= 0;)
            extend_life(g, NULL, k, &g->slots[slot].first, &g->slots[slot].last);
}

/* ---- Order ---- */

/* Cycle by cycle. */
void ct__graph_reorder(ct_graph *g, int *order) {
    for (int i = 0; i < g->n_records; i++) {
        if (order[i] < 0) continue;
        const ct_record first = g->records[i];
        int at = i;
        while (order[at] != i) {
            const int from = order[at];
            g->records[at] = g->records[from];
            order[at] = -1;
            at = from;
        }
        g->records[at] = first;
        order[at] = -1;
    }
}

void ct__order_once_first(const ct_graph *g, int *order) {
    int n = 0;
    for (int once = 1; once >= 0; once--)
        for (int i = 0; i < g->n_records; i++)
            if (g->records[i].once == once) order[n++] = i;
}

bool ct__graph_once_first(ct_graph *g) {
    const size_t bytes = (size_t)g->n_records * sizeof(int);
    int *order = ct__alloc(bytes);
    if (!order) return ct__fail_memory("capture", bytes);
    ct__order_once_first(g, order);
    ct__graph_reorder(g, order);
    ct__free(order, bytes);
    return true;
}

bool ct__graph_insert(ct_graph *g, int at, const ct_record *record) {
    if (!ct__graph_grow(g)) return false;
    memmove(&g->records[at + 1], &g->records[at], (size_t)(g->n_records - at) * sizeof *record);
    g->records[at] = *record;
    g->n_records++;
    return true;
}

bool ct__record_clone(const ct_record *record, ct_record *copy) {
    char *block = record->block ? ct__alloc(record->block_bytes) : NULL;
    if (record->block && !block) return ct__fail_memory("capture", record->block_bytes);
    *copy = *record;
    copy->block = block;
    if (!block) return true;
    memcpy(block, record->block, record->block_bytes);
#define MOVED(pointer) \
    ((pointer) ? (void *)(block + ((const char *)(const void *)(pointer) - (char *)record->block)) : NULL)
    copy->call.attrs = MOVED(record->call.attrs);
    copy->views = MOVED(record->views);
    copy->slots = MOVED(record->slots);
    copy->numbers = MOVED(record->numbers);
    copy->position = MOVED(record->position);
    copy->data = MOVED(record->data);
    copy->call.in = MOVED(record->call.in);
    copy->call.out = MOVED(record->call.out);
    const ct_view **pointer = (const ct_view **)(uintptr_t)copy->call.in;
    for (int i = 0; i < copy->n_views; i++) {
        pointer[i] = MOVED(pointer[i]);
        if (i < copy->call.n_in && i < 32 && copy->call.numbers >> i & 1)
            copy->views[i].buffer = MOVED(record->views[i].buffer);
    }
#undef MOVED
    return true;
}

bool ct__record_choose(ct_graph *g, ct_record *record) {
    ct_call *call = &record->call;
    ct_choice *known;
    call->scratch = (ct_memory_part){0};
    record->scratch = -1;
    call->kernel = ct__choose(call, &known, NULL, 0);
    if (!call->kernel) return false;
    if (!call->kernel->scratch) return true;
    call->workers = ct__threads();
    ct__threads_hold(call->workers);
    call->scratch.bytes = call->kernel->scratch(call);
    ct__threads_hold(0);
    if (!call->scratch.bytes) return true;
    record->scratch = ct__graph_slot(g, call->device, call->scratch.bytes);
    return record->scratch >= 0;
}

/* ---- Memory ---- */

typedef struct span {
    int first, last;
} span;

/* That of slots that live from spans[i].first to spans[i].last. */
static int64_t usage(const ct_graph *g, const span *spans, int64_t *in_use) {
    const size_t bytes = ((size_t)g->n_records + 1) * sizeof(int64_t);
    int64_t *change = ct__alloc(bytes), now = 0, most = 0;
    if (!change) return ct__fail_memory("capture", bytes), -1;
    memset(change, 0, bytes);
    for (int i = 0; i < g->n_slots; i++) {
        if (g->slots[i].kept || g->slots[i].data || spans[i].first > spans[i].last) continue;
        change[spans[i].first] += (int64_t)g->slots[i].bytes;
        change[spans[i].last + 1] -= (int64_t)g->slots[i].bytes;
    }
    for (int i = 0; i < g->n_records; i++) {
        now += change[i];
        if (in_use) in_use[i] = now;
        if (now > most) most = now;
    }
    ct__free(change, bytes);
    return most;
}

static int64_t usage_in_order(const ct_graph *g, const int *order, int64_t *in_use) {
    const size_t bytes = ((size_t)g->n_slots + 1) * sizeof(span);
    span *spans = ct__alloc(bytes);
    if (!spans) return ct__fail_memory("capture", bytes), -1;
    for (int i = 0; i < g->n_slots; i++) spans[i] = (span){INT32_MAX, -1};
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0, slot; (slot = ct__slot_next(&g->records[order ? order[k] : k], &i)) >= 0;)
            extend_life(g, order, k, &spans[slot].first, &spans[slot].last);
    const int64_t most = usage(g, spans, in_use);
    ct__free(spans, bytes);
    return most;
}

int64_t ct__graph_usage(const ct_graph *g, int64_t *in_use) { return usage_in_order(g, NULL, in_use); }
int64_t ct__order_usage(const ct_graph *g, const int *order) { return usage_in_order(g, order, NULL); }
