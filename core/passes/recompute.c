/* Recomputation, by CT_CAPTURE_RECOMPUTE: what is cheap and lives long is dropped, and made again in front of its next use. Where the most
 * memory is in use, the largest result is taken that nobody uses there, and that elementwise records (casts and dropout too, whose position
 * in the random stream stays the same) make of memory that is in use at its next use anyway, in a few steps. Their copies go in front of
 * that use. This is repeated as long as the peak falls: the same bits, time for memory. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/passes.h"

enum { STEPS = 3, SMALL = 512 }; /* a result below this part of the peak is not worth a call */

typedef struct recomputing {
    ct_graph *graph;
    int *writers;        /* of each slot: how many records write it */
    int *writer;         /* of each slot the last of them; -1: none */
    int *before, *after; /* of each slot, its uses around the peak; -1: none */
    int *effects;        /* how many come before a record */
    int64_t *in_use;
    int n_slots; /* before copies */
    size_t slot_bytes, record_bytes;
} recomputing;

static void free_arrays(recomputing *r) {
    ct__free(r->writers, (size_t)r->n_slots * sizeof(int));
    ct__free(r->writer, r->slot_bytes);
    ct__free(r->in_use, r->record_bytes);
    r->writers = r->writer = NULL;
    r->in_use = NULL;
}

/* The arrays anew, for the graph as it is now. */
static bool take_arrays(recomputing *r) {
    const ct_graph *g = r->graph;
    const size_t m = (size_t)g->n_slots, n = (size_t)g->n_records + 1;
    r->n_slots = g->n_slots;
    r->slot_bytes = 3 * m * sizeof(int);
    r->record_bytes = n * (sizeof(int64_t) + sizeof(int));
    if (!(r->writers = ct__graph_writers(g))) return false;
    r->writer = ct__alloc(r->slot_bytes);
    r->in_use = ct__alloc(r->record_bytes);
    if (!r->writer || !r->in_use) return ct__fail_memory("capture", r->slot_bytes + r->record_bytes);
    r->before = r->writer + m;
    r->after = r->before + m;
    r->effects = (int *)(void *)(r->in_use + n);
    return true;
}

static void look_around(recomputing *r, int peak) {
    const ct_graph *g = r->graph;
    ct_access access;
    for (int i = 0; i < g->n_slots; i++) r->writer[i] = r->before[i] = r->after[i] = -1;
    r->effects[0] = 0;
    for (int k = 0; k < g->n_records; k++) {
        r->effects[k + 1] = r->effects[k] + (g->records[k].kind == CT__EFFECT);
        for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);) {
            if (access.writes) r->writer[access.slot] = k;
            if (k <= peak) r->before[access.slot] = k;
            else if (r->after[access.slot] < 0) r->after[access.slot] = k;
        }
    }
}

/* It makes one result worth a name: what dropout tells of its position beside it is small. */
static bool is_cheap(const ct_graph *g, const ct_record *record) {
    const ct_call *call = &record->call;
    if (record->kind != CT__CALL || record->once || record->scratch >= 0 || !call->n_in || !call->n_out) return false;
    for (int i = 1; i < call->n_out; i++)
        if (call->out[i] && g->slots[record->slots[call->n_in + i]].bytes > 64) return false;
    if (!call->in[0] || !call->out[0] || (call->op->flags & (CT_OP_MUTATES | CT_OP_RANDOM))) return false;
    if (call->attrs && !call->op->attrs) return false; /* nobody knows what they point at */
    if (call->op->flags & CT_OP_ELEMENTWISE) return true;
    return ((call->op->flags & CT_OP_MOVES) || record->generator >= 0) &&
           ct__view_same_shape(call->in[0], call->out[0]); /* a cast, a copy, dropout */
}

/* What record `reader` found in a slot is there at record `at` as well. */
static bool is_there(const recomputing *r, int slot, int reader, int at) {
    const ct_graph_slot *s = &r->graph->slots[slot];
    if (r->writers[slot] > 1 || (r->writers[slot] && r->writer[slot] >= reader && r->writer[slot] < at)) return false;
    return s->kept ? !s->shared && r->effects[reader] == r->effects[at] : s->last >= at;
}

/* The record that makes a slot, if it can be done again for its use `at`, and what it needs before; -1: it cannot. *extra grows by the bytes
 * that are in use there for that. */
static int maker(const recomputing *r, int slot, int at, int steps, int64_t *extra) {
    const ct_graph *g = r->graph;
    const int k = r->writer[slot];
    ct_access access;
    if (g->slots[slot].kept || r->writers[slot] != 1 || k >= at || !is_cheap(g, &g->records[k])) return -1;
    for (int i = 0; ct__access_next(g, &g->records[k], &i, &access);) {
        if (access.writes) {
            if (access.slot == slot && !access.whole) return -1;
        } else if (!is_there(r, access.slot, k, at)) {
            if (steps <= 1 || maker(r, access.slot, at, steps - 1, extra) < 0) return -1;
            *extra += (int64_t)g->slots[access.slot].bytes;
        }
    }
    return k;
}

/* Puts a copy of the record that makes a slot, and of those before it, in front of record *at, which moves. Returns the slot of the copy; -1
 * after an error. */
static int remake(recomputing *r, int slot, int *at, int first_use) {
    ct_graph *g = r->graph;
    ct_record copy;
    if (!ct__record_clone(&g->records[r->writer[slot]], &copy)) return -1;
    bool ok = true;
    for (int i = 0; ok && i < copy.call.n_in; i++) {
        const int input = copy.slots[i];
        if (input < 0 || input >= r->n_slots || is_there(r, input, r->writer[slot], first_use)) continue;
        const int made = remake(r, input, at, first_use);
        ok = made >= 0;
        for (int k = i; k < copy.call.n_in; k++)
            if (copy.slots[k] == input) copy.slots[k] = made;
    }
    int result = -1;
    for (int i = copy.call.n_in; ok && i < copy.n_views; i++) {
        if (copy.slots[i] < 0) continue;
        const int old = copy.slots[i];
        copy.slots[i] = ct__graph_slot(g, g->slots[old].device, g->slots[old].bytes);
        ok = copy.slots[i] >= 0;
        if (ok) g->slots[copy.slots[i]].made = true;
        if (old == slot) result = copy.slots[i];
    }
    if (ok && ct__graph_insert(g, *at, &copy)) return ++*at, result;
    ct__free(copy.block, copy.block_bytes);
    return -1;
}

static bool make_again(recomputing *r, int slot) {
    ct_graph *g = r->graph;
    const int use = r->after[slot];
    int at = use;
    const int made = remake(r, slot, &at, use);
    if (made < 0) return false;
    for (int k = at; k < g->n_records; k++)
        for (int i = 0; i < g->records[k].n_views; i++)
            if (g->records[k].slots[i] == slot) g->records[k].slots[i] = made;
    return true;
}

/* The largest result that nobody uses where the peak is, and that can be made again below it; -1: there is none. */
static int find_largest(const recomputing *r, int at, int64_t peak) {
    const ct_graph *g = r->graph;
    int best = -1;
    for (int i = 0; i < g->n_slots; i++) {
        const ct_graph_slot *s = &g->slots[i];
        int64_t extra = 0;
        if (s->kept || r->before[i] < 0 || r->before[i] == at || r->after[i] < 0) continue;
        if ((int64_t)s->bytes * SMALL < peak || (best >= 0 && s->bytes <= g->slots[best].bytes)) continue;
        if (maker(r, i, r->after[i], STEPS, &extra) < 0 || r->in_use[r->after[i]] + extra >= peak) continue;
        best = i;
    }
    return best;
}

bool ct__pass_recompute(ct_graph *g) {
    recomputing r = {.graph = g};
    bool ok = true, more = true;
    int n = 0;
    const int64_t before = ct__graph_usage(g, NULL);
    if (before < 0) return false;
    while (ok && more) {
        ct__graph_lifetimes(g);
        ok = take_arrays(&r);
        const int64_t peak = ok ? ct__graph_usage(g, r.in_use) : -1;
        int at = 0, slot = -1;
        if (peak > 0) {
            while (r.in_use[at] < peak) at++;
            look_around(&r, at);
            slot = find_largest(&r, at, peak);
        }
        ok = peak >= 0 && (slot < 0 || make_again(&r, slot));
        more = slot >= 0;
        n += more;
        free_arrays(&r);
    }
    if (ok && n) {
        const int64_t after = ct__graph_usage(g, NULL);
        ok = after >= 0;
        ct__pass_note(g, "%d results are made again, %lld bytes less at once", n, (long long)(before - after));
    }
    return ok;
}
