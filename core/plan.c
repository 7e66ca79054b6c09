/* The memory plan of a captured graph: everything that lives only within a replay gets a place in one block for each device. Two that are in
 * use at the same time do not overlap; largest first, each goes to the lowest place that is free as long as it lives. Constants live as long
 * as the graph and are made here. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/device.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/passes/passes.h"
#include "core/stream.h"

static bool is_planned(const ct_graph_slot *s) { return !s->kept && !s->data && s->first <= s->last; }

static size_t alignment_of(ct_device device) {
    const size_t wanted = device.type == CT_CPU ? 64 : ct__backend(device.type)->alignment;
    return wanted > 64 ? wanted : 64;
}

static size_t room_of(const ct_graph_slot *s) {
    const size_t alignment = alignment_of(s->device);
    return ((s->bytes ? s->bytes : 1) + alignment - 1) / alignment * alignment;
}

static int by_size(const void *a, const void *b) {
    const ct_graph_slot *x = *(ct_graph_slot *const *)a, *y = *(ct_graph_slot *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* A slot that has a place: while it lives, and from where to where, in bytes. They are kept in the order of their places, in
 * memory that is walked through once for each slot. */
typedef struct placed {
    int first, last;
    size_t begin, end;
} placed;

/* The lowest place for what is wanted (end: its bytes), beside n that are placed; *at: where it comes among them. */
static size_t lowest_place(const placed *all, int n, const placed *wanted, int *at) {
    size_t begin = 0;
    int i = 0;
    for (; i < n; i++) {
        if (all[i].last < wanted->first || all[i].first > wanted->last) continue;
        if (all[i].begin >= begin && all[i].begin - begin >= wanted->end) break; /* it fits in between */
        if (all[i].end > begin) begin = all[i].end;
    }
    while (i > 0 && all[i - 1].begin > begin) i--;
    *at = i;
    return begin;
}

/* Offsets for the slots of one device in `order`; returns the bytes of all. `all` is room for as many. */
static size_t place_all(ct_graph_slot **order, int n, placed *all) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        placed p = {.first = order[i]->first, .last = order[i]->last, .end = room_of(order[i])};
        int at;
        p.begin = lowest_place(all, i, &p, &at);
        p.end += p.begin;
        memmove(&all[at + 1], &all[at], (size_t)(i - at) * sizeof p);
        all[at] = p;
        order[i]->offset = p.begin;
        if (p.end > bytes) bytes = p.end;
    }
    return bytes;
}

static bool plan_device(ct_graph *g, ct_device device, ct_graph_slot **order, placed *all) {
    int n = 0;
    for (int i = 0; i < g->n_slots; i++)
        if (is_planned(&g->slots[i]) && ct__same_device(g->slots[i].device, device)) order[n++] = &g->slots[i];
    qsort(order, (size_t)n, sizeof *order, by_size);
    const size_t bytes = place_all(order, n, all);
    if (g->n_blocks == CT__GRAPH_BLOCKS)
        return ct_fail(CT_ERR_STATE, "capture", "it uses more than %d devices", CT__GRAPH_BLOCKS);
    ct_storage *block = ct__storage_new(device, bytes + alignment_of(device), "capture");
    if (!block) return false;
    g->blocks[g->n_blocks++] = block;
    return true;
}

ct_storage *ct__graph_block(const ct_graph *g, ct_device device) {
    for (int i = 0; i < g->n_blocks; i++)
        if (ct__same_device(g->blocks[i]->device, device)) return g->blocks[i];
    return NULL;
}

ct_storage *ct__graph_place(const ct_graph *g, const ct_graph_slot *s, size_t *offset) {
    *offset = s->kept ? 0 : s->offset;
    return s->kept ? s->kept : s->data ? g->data[s->data - 1].there : ct__graph_block(g, s->device);
}

/* The same as a buffer, and bytes from there. */
static void find(const ct_graph *g, const ct_graph_slot *s, void **buffer, size_t *origin) {
    size_t offset;
    const ct_storage *storage = ct__graph_place(g, s, &offset);
    if (s->device.type == CT_CPU) {
        *buffer = (char *)storage->buffer + offset;
        *origin = 0;
    } else {
        *buffer = storage->buffer;
        *origin = storage->block->offset + offset;
    }
}

static void bind_record(ct_graph *g, ct_record *record) {
    for (int i = 0; i < record->n_views; i++)
        if (record->slots[i] >= 0)
            find(g, &g->slots[record->slots[i]], &record->views[i].buffer, &record->views[i].origin);
    if (record->scratch >= 0)
        find(g, &g->slots[record->scratch], &record->call.scratch.buffer, &record->call.scratch.offset);
}

void ct__graph_bind(ct_graph *g) {
    for (int i = 0; i < g->n_records; i++) bind_record(g, &g->records[i]);
}

/* What a replay looks at besides its records: few of many slots. */
static bool list_changed(ct_graph *g) {
    const size_t bytes = ((size_t)g->n_slots + 1) * sizeof *g->changed;
    if (!(g->changed = ct__alloc(bytes))) return ct__fail_memory("capture", bytes);
    for (int i = 0; i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        if (s->kept && s->written) g->changed[g->n_changed++] = i;
        g->on_devices |= s->device.type != CT_CPU;
    }
    return true;
}

/* Does what is done once, and takes its records out. */
static bool make_constants(ct_graph *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n_records; i++) {
        ct_record *record = &g->records[i];
        if (!record->once) continue;
        ct_access access;
        for (int k = 0; ct__access_next(g, record, &k, &access);)
            if (access.writes) g->slots[access.slot].constant = true;
        ok = ct__graph_run(g, record);
        ct__record_drop(record);
    }
    ct__graph_compact(g);
    return ok;
}

bool ct__graph_plan(ct_graph *g) {
    const size_t order_bytes = ((size_t)g->n_slots + 1) * sizeof(ct_graph_slot *),
                 place_bytes = ((size_t)g->n_slots + 1) * sizeof(placed);
    ct_graph_slot **order = ct__alloc(order_bytes);
    placed *all = ct__alloc(place_bytes);
    bool ok = order && all;
    if (!ok) ct__fail_memory("capture", order_bytes + place_bytes);
    ok = ok && ct__graph_once_first(g);
    ct__graph_lifetimes(g);
    ok = ok && ct__graph_data_plan(g) && ct__branches_plan(g);
    for (int i = 0; ok && i < g->n_slots; i++)
        if (is_planned(&g->slots[i]) && !ct__graph_block(g, g->slots[i].device))
            ok = plan_device(g, g->slots[i].device, order, all);
    ok = ok && (g->needed = ct__graph_usage(g, NULL)) >= 0;
    if (ok) ct__graph_bind(g);
    ok = ok && make_constants(g) && list_changed(g);
    ct__free(order, order_bytes);
    ct__free(all, place_bytes);
    return ok;
}
