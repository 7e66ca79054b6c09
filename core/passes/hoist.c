/* Constants: what depends on constants alone is done once, when the graph is made. A constant is what the host wrote in the function, for
 * good; with CT_CAPTURE_FROZEN also a parameter that no record writes. What is done once is there in every replay and takes its memory for
 * all of it: where the peak would rise by more than a little, the larger results are made in each replay after all. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/passes.h"

typedef struct hoisting {
    ct_graph *graph;
    int *writers; /* of each slot, how many */
    int *writer;  /* the last one so far */
    int *order;   /* of the records: those that are done once, then the others */
    bool *hoisted;
} hoisting;

/* A slot that holds the same in every replay, from its only write on: what is done once writes to nothing that others write. */
static bool is_constant(const hoisting *h, int slot) {
    const ct_graph_slot *s = &h->graph->slots[slot];
    if (s->kept) return s->frozen && !s->shared && !h->writers[slot] && (h->graph->flags & CT_CAPTURE_FROZEN);
    return h->writer[slot] >= 0 && h->graph->records[h->writer[slot]].once;
}

static bool can_be_once(const hoisting *h, const ct_record *record) {
    ct_access access;
    if (record->kind != CT__CALL || !ct__record_is_pure(record)) return false;
    for (int i = 0; ct__access_next(h->graph, record, &i, &access);) {
        if (access.reads && !is_constant(h, access.slot)) return false;
        if (access.writes && (h->graph->slots[access.slot].kept || h->writers[access.slot] != 1)) return false;
    }
    return true;
}

static int64_t result_bytes(const ct_graph *g, const ct_record *record) {
    int64_t bytes = 0;
    for (int i = record->call.n_in; i < record->n_views; i++)
        if (record->slots[i] >= 0) bytes += (int64_t)g->slots[record->slots[i]].bytes;
    return bytes;
}

/* Marks all whose results are no larger than `limit`; returns how many, and the largest result among them. */
static int mark(hoisting *h, int64_t limit, int64_t *largest) {
    ct_graph *g = h->graph;
    ct_access access;
    int n = 0;
    *largest = 0;
    for (int i = 0; i < g->n_slots; i++) h->writer[i] = -1;
    for (int k = 0; k < g->n_records; k++) {
        ct_record *record = &g->records[k];
        if (!record->once && can_be_once(h, record) && result_bytes(g, record) <= limit) {
            record->once = h->hoisted[k] = true;
            if (result_bytes(g, record) > *largest) *largest = result_bytes(g, record);
            n++;
        }
        for (int i = 0; ct__access_next(g, record, &i, &access);)
            if (access.writes) h->writer[access.slot] = k;
    }
    return n;
}

static void take_back(hoisting *h) {
    for (int k = 0; k < h->graph->n_records; k++) {
        if (h->hoisted[k]) h->graph->records[k].once = false;
        h->hoisted[k] = false;
    }
}

/* Marks as much as the peak allows; returns how many records, -1 after an error. */
static int mark_within(hoisting *h, int64_t peak) {
    int64_t largest = 0;
    for (int64_t limit = INT64_MAX;; limit = largest / 2) {
        const int n = mark(h, limit, &largest);
        ct__order_once_first(h->graph, h->order);
        const int64_t now = n ? ct__order_usage(h->graph, h->order) : 0;
        if (n && now >= 0 && now <= peak) return n;
        take_back(h);
        if (now < 0) return -1;
        if (!n || !largest) return 0;
    }
}

bool ct__pass_hoist(ct_graph *g) {
    const size_t slot_bytes = (size_t)g->n_slots * sizeof(int), order_bytes = (size_t)g->n_records * sizeof(int),
                 flag_bytes = (size_t)g->n_records;
    hoisting h = {.graph = g, .writers = ct__graph_writers(g)};
    const int64_t peak = h.writers ? ct__graph_usage(g, NULL) : -1;
    bool ok = peak >= 0;
    if (ok) {
        h.writer = ct__alloc(slot_bytes);
        h.order = ct__alloc(order_bytes);
        h.hoisted = ct__alloc(flag_bytes);
        ok = (h.writer && h.order && h.hoisted) || ct__fail_memory("capture", slot_bytes + order_bytes + flag_bytes);
    }
    if (ok) {
        memset(h.hoisted, 0, flag_bytes);
        const int n = mark_within(&h, peak + CT__LITTLE_MEMORY);
        ok = n >= 0;
        if (n > 0) ct__graph_reorder(g, h.order), ct__pass_note(g, "%d records are done once", n);
    }
    ct__free(h.writers, slot_bytes);
    ct__free(h.writer, slot_bytes);
    ct__free(h.order, order_bytes);
    ct__free(h.hoisted, flag_bytes);
    return ok;
}
