/* What passes look at and change: accesses of records, their order, their coming and going. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/passes.h"
#include "core/threads.h"
#include "gen/ops_decl.h"

/* ---- Accesses ---- */

static bool is_mutated(const ct_op *op, int i) {
    int last = 0;
    return (op->flags & CT_OP_MUTATES) && (ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED);
}

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
        access->writes = output || is_mutated(record->call.op, *i);
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

bool ct__record_reads(const ct_graph *g, const ct_record *record, int slot) {
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (access.slot == slot && access.reads) return true;
    return false;
}

bool ct__record_writes(const ct_graph *g, const ct_record *record, int slot) {
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (access.slot == slot && access.writes) return true;
    return false;
}

bool ct__record_is_pure(const ct_record *record) {
    if (record->generator >= 0) return false;
    if (record->kind != CT__CALL) return record->kind != CT__EFFECT;
    if (record->call.op == &ct__op_fused) return false; /* it may have kept results among its own */
    return !(record->call.op->flags & (CT_OP_MUTATES | CT_OP_RANDOM));
}

static bool uses_kept(const ct_graph *g, const ct_record *record) {
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (g->slots[access.slot].kept) return true;
    return false;
}

bool ct__may_swap(const ct_graph *g, const ct_record *a, const ct_record *b) {
    if (a->kind == CT__EFFECT || b->kind == CT__EFFECT) /* it may do anything to what is kept */
        return a->kind != b->kind && !uses_kept(g, a->kind == CT__EFFECT ? b : a);
    ct_access x, y;
    for (int i = 0; ct__access_next(g, a, &i, &x);)
        for (int k = 0; ct__access_next(g, b, &k, &y);)
            if (x.slot == y.slot && (x.writes || y.writes) && x.low < y.high && y.low < x.high) return false;
    return true;
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

void ct__graph_lifetimes(ct_graph *g) {
    ct_access access;
    for (int i = 0; i < g->n_slots; i++) g->slots[i].first = INT32_MAX, g->slots[i].last = -1;
    for (int k = 0; k < g->n_records; k++)
        for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);) {
            ct_graph_slot *s = &g->slots[access.slot];
            if (k < s->first) s->first = k;
            /* what was made once is there for the next replay too */
            s->last = !g->records[k].once && s->first < k && g->records[s->first].once ? g->n_records - 1 : k;
        }
}

void ct__graph_once_first(ct_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_records; i++) {
        if (!g->records[i].once) continue;
        const ct_record record = g->records[i];
        memmove(&g->records[n + 1], &g->records[n], (size_t)(i - n) * sizeof record);
        g->records[n++] = record;
    }
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
        if (i < copy->call.n_in && copy->call.numbers >> i & 1) copy->views[i].buffer = MOVED(record->views[i].buffer);
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

int64_t ct__graph_usage(const ct_graph *g, int64_t *in_use) {
    const size_t bytes = ((size_t)g->n_records + 1) * sizeof(int64_t);
    int64_t *change = ct__alloc(bytes), now = 0, most = 0;
    if (!change) return ct__fail_memory("capture", bytes), -1;
    memset(change, 0, bytes);
    for (int i = 0; i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        if (s->kept || s->data || s->first > s->last) continue;
        change[s->first] += (int64_t)s->bytes;
        change[s->last + 1] -= (int64_t)s->bytes;
    }
    for (int i = 0; i < g->n_records; i++) {
        now += change[i];
        if (in_use) in_use[i] = now;
        if (now > most) most = now;
    }
    ct__free(change, bytes);
    return most;
}
