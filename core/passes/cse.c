/* Common subexpressions: two records that compute the same of the same memory share one result. They are alike if op, kernel, attributes,
 * numbers and random position are, and if their inputs are the same views of the same slots, which nothing writes in between. Results that
 * are kept, or that more than one record writes, stay by themselves. Where to share means to keep a result for longer, it is done only if the
 * peak of memory does not rise, but for a little. */
#include <string.h>

#include "core/alloc.h"
#include "core/attrs.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/passes/passes.h"

#include "gen/ops_decl.h"

typedef struct sharing {
    ct_graph *graph;
    int *writers;    /* of each slot */
    int *written;    /* by which record a slot was written last; -1: none yet */
    int *same;       /* the slot that has taken a slot's place */
    int *table;      /* 1 + record, by hash */
    int64_t *in_use; /* bytes at each record */
    int64_t peak;
    size_t capacity; /* of the table, a power of two */
    int effect;      /* the last one; -1: none yet */
    int shared;
} sharing;

/* ---- Alike ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const ct_record *record) {
    uint64_t hash = mix((uint64_t)record->kind, record->bytes);
    hash = mix(mix(hash, (uintptr_t)record->call.op), (uintptr_t)record->call.kernel);
    for (int i = 0; i < record->n_views; i++) {
        const ct_view *view = &record->views[i];
        if (i < record->call.n_in) hash = mix(hash, (uint64_t)record->slots[i]);
        if (record->slots[i] < 0) continue;
        hash = mix(hash, (uint64_t)view->offset << 8 | (uint64_t)view->dtype);
        for (int d = 0; d < view->ndim; d++) hash = mix(hash, (uint64_t)view->dims[d]);
    }
    return hash;
}

static bool same_layout(const ct_view *a, const ct_view *b) {
    if (a->dtype != b->dtype || a->offset != b->offset || !ct__view_same_shape(a, b)) return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->strides[d] != b->strides[d]) return false;
    return true;
}

static bool same_number(const ct_view *a, const ct_view *b) {
    return a->dtype == b->dtype && ct__view_same_shape(a, b) &&
           memcmp(a->buffer, b->buffer, ct_dtype_size(a->dtype)) == 0;
}

static bool same_views(const ct_record *a, const ct_record *b) {
    for (int i = 0; i < a->n_views; i++) {
        const ct_view *x = a->call.in[i], *y = b->call.in[i]; /* those of outputs come right behind */
        if (!x != !y) return false;
        if (!x) continue;
        const bool input = i < a->call.n_in;
        if (input && a->slots[i] != b->slots[i]) return false;
        if (a->slots[i] < 0 ? !same_number(x, y) : !same_layout(x, y)) return false;
    }
    return true;
}

static bool same_position(const ct_record *a, const ct_record *b) {
    const ct_random *x = &a->call.random, *y = &b->call.random;
    if (a->generator != b->generator) return false;
    if (a->generator >= 0) return a->draw == b->draw;
    if (a->kind != CT__CALL || !(a->call.op->flags & CT_OP_RANDOM)) return true;
    return x->seed == y->seed && x->stream == y->stream && x->call == y->call;
}

static bool are_alike(const ct_record *a, const ct_record *b) {
    if (a->kind != b->kind || a->once != b->once || !same_position(a, b)) return false;
    if (a->kind != CT__CALL)
        return a->bytes == b->bytes && a->offset == b->offset && memcmp(a->data, b->data, a->bytes) == 0;
    const ct_call *x = &a->call, *y = &b->call;
    return x->op == y->op && x->kernel == y->kernel && x->n_in == y->n_in && x->n_out == y->n_out &&
           x->numbers == y->numbers && !((x->flags ^ y->flags) & ~(unsigned)CT_CALL_GRADIENT) &&
           x->device.type == y->device.type && x->device.index == y->device.index && same_views(a, b) &&
           ct__attrs_same(x->op, x->attrs, y->attrs);
}

/* ---- What may be shared ---- */

/* Nothing has written the inputs of record k since it was done. */
static bool is_current(const sharing *s, int k) {
    const ct_graph *g = s->graph;
    ct_access access;
    for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);) {
        if (!access.reads) continue;
        if (s->written[ct__slot_memory(g, access.slot)] >= k) return false;
        if (g->slots[access.slot].kept && s->effect > k) return false;
    }
    return true;
}

/* The result in slot a in place of that in slot b; total: bytes of all results of the record. */
static bool can_stand_for(const sharing *s, int a, int b, int record, int64_t total) {
    const ct_graph_slot *x = &s->graph->slots[a], *y = &s->graph->slots[b];
    if (!ct__same_device(x->device, y->device)) return false; /* what the host puts has none of its own to compare */
    if (x->kept || y->kept || s->writers[a] != 1 || s->writers[b] != 1 || y->first != record || x->bytes != y->bytes)
        return false;
    for (int k = x->last + 1; k < y->first; k++)
        if (s->in_use[k] + total > s->peak) return false;
    return true;
}

static void keep_longer(sharing *s, int a, int b) {
    ct_graph_slot *x = &s->graph->slots[a];
    const ct_graph_slot *y = &s->graph->slots[b];
    const int64_t bytes = (int64_t)x->bytes;
    for (int k = x->last + 1; k < y->first; k++) s->in_use[k] += bytes;
    for (int k = y->first; k <= y->last && k <= x->last; k++) s->in_use[k] -= bytes;
    if (y->last > x->last) x->last = y->last;
    s->same[b] = a;
}

/* Slot of output i; -1: it has none. What the host writes is the only output. */
static int output_slot(const ct_record *record, int i) {
    return record->kind == CT__CALL ? record->slots[record->call.n_in + i] : record->slot;
}

static bool share(sharing *s, int first, int second) {
    ct_record *a = &s->graph->records[first], *b = &s->graph->records[second];
    const int n = a->kind == CT__CALL ? a->call.n_out : 1;
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        if (output_slot(a, i) >= 0) total += (int64_t)s->graph->slots[output_slot(a, i)].bytes;
    for (int i = 0; i < n; i++)
        if (output_slot(a, i) >= 0 && !can_stand_for(s, output_slot(a, i), output_slot(b, i), second, total))
            return false;
    for (int i = 0; i < n; i++)
        if (output_slot(a, i) >= 0) keep_longer(s, output_slot(a, i), output_slot(b, i));
    ct__record_drop(b);
    s->shared++;
    return true;
}

/* ---- The walk ---- */

static bool is_candidate(const ct_record *record) {
    if (record->kind == CT__EFFECT) return false;
    if (record->kind == CT__CALL && record->call.op == &ct__op_fused) return false; /* its steps are not compared */
    return record->kind != CT__CALL || (record->call.n_out > 0 && !(record->call.op->flags & CT_OP_MUTATES));
}

/* Looks for a record like k that was done before, and shares its results; else k is there to be found. */
static void look_up(sharing *s, int k) {
    const ct_record *records = s->graph->records;
    size_t at = hash_of(&records[k]) & (s->capacity - 1);
    while (s->table[at] && !are_alike(&records[s->table[at] - 1], &records[k])) at = (at + 1) & (s->capacity - 1);
    const int found = s->table[at] - 1;
    if (found < 0 || !is_current(s, found) || !share(s, found, k)) s->table[at] = k + 1;
}

static void walk(sharing *s) {
    ct_graph *g = s->graph;
    ct_access access;
    for (int k = 0; k < g->n_records; k++) {
        ct_record *record = &g->records[k];
        if (record->kind == CT__EFFECT) s->effect = k;
        for (int i = 0; i < record->n_views; i++)
            if (record->slots[i] >= 0) record->slots[i] = s->same[record->slots[i]];
        if (is_candidate(record)) look_up(s, k);
        if (record->gone) continue;
        for (int i = 0; ct__access_next(g, record, &i, &access);)
            if (access.writes) s->written[ct__slot_memory(g, access.slot)] = k;
    }
}

bool ct__pass_cse(ct_graph *g) {
    sharing s = {.graph = g, .effect = -1, .capacity = 64};
    while (s.capacity < 2 * (size_t)g->n_records) s.capacity *= 2;
    const size_t slot_bytes = ((size_t)g->n_slots + 1) * sizeof(int), table_bytes = s.capacity * sizeof(int),
                 use_bytes = ((size_t)g->n_records + 1) * sizeof(int64_t);
    s.written = ct__alloc(slot_bytes);
    s.same = ct__alloc(slot_bytes);
    s.table = ct__alloc(table_bytes);
    s.in_use = ct__alloc(use_bytes);
    bool ok = s.written && s.same && s.table && s.in_use;
    if (!ok) ct__fail_memory("capture", 2 * slot_bytes + table_bytes + use_bytes);
    ok = ok && (s.writers = ct__graph_writers(g)) && (s.peak = ct__graph_usage(g, s.in_use)) >= 0;
    if (ok) {
        memset(s.table, 0, table_bytes);
        for (int i = 0; i < g->n_slots; i++) s.written[i] = -1, s.same[i] = i;
        s.peak += CT__LITTLE_MEMORY;
        walk(&s);
        if (s.shared) ct__graph_compact(g), ct__pass_note(g, "%d results shared", s.shared);
    }
    ct__free(s.writers, (size_t)g->n_slots * sizeof(int));
    ct__free(s.written, slot_bytes);
    ct__free(s.same, slot_bytes);
    ct__free(s.table, table_bytes);
    ct__free(s.in_use, use_bytes);
    return ok;
}
