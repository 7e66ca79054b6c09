/* The dependencies between records. Of each slot those accesses are remembered that no later write has covered: a read comes after the
 * writes that it overlaps, a write also after the reads. An effect may do anything to what is kept, so what uses that stays on its side of it.
 * What may raise an error and what writes kept memory do not change places, or an error would leave behind something else than in the
 * function: runs of the one and of the other take turns, with a barrier in between. */
#include "core/passes/depends.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"

enum { MANY = 64, FAILS = 1, LASTS = 2 }; /* after so many partial writes of a slot the next one counts as whole */

/* An access that has not been covered; next: of the same slot, -1 for the last. */
typedef struct use {
    int record, next;
    size_t low, high;
} use;

typedef struct uses {
    int reads, writes; /* the first, -1 for none */
    int n_writes;
} uses;

typedef struct builder {
    const ct_graph *graph;
    ct_depends *depends;
    uses *of; /* each slot */
    use *pool;
    int n_uses, uses_room;
    int *since; /* records since the last effect that may not pass the next */
    int n_since, effect;
    int *run; /* records of the run that goes on, FAILS or LASTS */
    int n_run, run_kind, barrier;
} builder;

static bool add_edge(builder *b, int from, int to) {
    ct_depends *d = b->depends;
    if (from == to || from < 0) return true;
    if (!ct__graph_grow_list((void **)&d->edges, &d->room, d->n_edges, sizeof *d->edges)) return false;
    d->edges[d->n_edges].from = from;
    d->edges[d->n_edges++].to = to;
    return true;
}

/* ---- Memory ---- */

static bool after_uses(builder *b, int use_at, const ct_access *access, bool all, int record) {
    bool ok = true;
    for (; ok && use_at >= 0; use_at = b->pool[use_at].next) {
        const use *u = &b->pool[use_at];
        if (all || (u->low < access->high && access->low < u->high)) ok = add_edge(b, u->record, record);
    }
    return ok;
}

static bool remember(builder *b, int *list, const ct_access *access, bool all, int record) {
    if (!ct__graph_grow_list((void **)&b->pool, &b->uses_room, b->n_uses, sizeof *b->pool)) return false;
    b->pool[b->n_uses] =
        (use){.record = record, .next = *list, .low = all ? 0 : access->low, .high = all ? SIZE_MAX : access->high};
    *list = b->n_uses++;
    return true;
}

static bool add_access(builder *b, const ct_access *access, int record) {
    const int memory = ct__slot_memory(b->graph, access->slot);
    const bool shared = b->graph->slots[access->slot].shared; /* bytes tell nothing where several slots share them */
    uses *of = &b->of[memory];
    const bool all = shared || (access->writes && (access->whole || of->n_writes >= MANY));
    if (!after_uses(b, of->writes, access, all, record)) return false;
    if (!access->writes) return remember(b, &of->reads, access, shared, record);
    if (!after_uses(b, of->reads, access, all, record)) return false;
    if (all) *of = (uses){.reads = -1, .writes = -1};
    of->n_writes++;
    return remember(b, &of->writes, access, all, record);
}

/* ---- Effects and errors ---- */

static bool pass_effects(builder *b, int record, bool bound) {
    const bool is_effect = b->graph->records[record].kind == CT__EFFECT;
    bool ok = true;
    if (!is_effect && !bound) return true;
    ok = add_edge(b, b->effect, record);
    for (int i = 0; ok && is_effect && i < b->n_since; i++) ok = add_edge(b, b->since[i], record);
    if (is_effect) b->effect = record, b->n_since = 0;
    else b->since[b->n_since++] = record;
    return ok;
}

static bool keep_runs_apart(builder *b, int record, int kind) {
    bool ok = true;
    if (!kind) return true;
    if (kind != b->run_kind || kind == (FAILS | LASTS)) {
        const int barrier = b->depends->n_nodes;
        for (int i = 0; ok && i < b->n_run; i++) ok = add_edge(b, b->run[i], barrier);
        if (b->n_run) b->barrier = b->depends->n_nodes++;
        b->n_run = 0;
        b->run_kind = kind;
    }
    b->run[b->n_run++] = record;
    return ok && add_edge(b, b->barrier, record);
}

static bool add_record(builder *b, int k) {
    const ct_record *record = &b->graph->records[k];
    ct_access access;
    bool ok = true, uses_kept = false;
    int kind = ct__record_may_fail(record) ? FAILS : 0;
    for (int i = 0; ok && ct__access_next(b->graph, record, &i, &access);) {
        ok = add_access(b, &access, k);
        if (!b->graph->slots[access.slot].kept) continue;
        uses_kept = true;
        if (access.writes) kind |= LASTS;
    }
    return ok && pass_effects(b, k, uses_kept || kind) && keep_runs_apart(b, k, kind);
}

/* ---- The whole ---- */

/* The edges by the node that they leave; backward: by that which they reach. */
static bool sort_edges(ct_depends *d, bool backward) {
    const size_t begin_bytes = ((size_t)d->n_nodes + 1) * sizeof(int),
                 to_bytes = ((size_t)d->n_edges + 1) * sizeof(int);
    int *begin = d->begin[backward] = ct__alloc(begin_bytes), *to = d->to[backward] = ct__alloc(to_bytes);
    if (!begin || !to) return ct__fail_memory("capture", begin_bytes + to_bytes);
    memset(begin, 0, begin_bytes);
    for (int i = 0; i < d->n_edges; i++) begin[backward ? d->edges[i].to : d->edges[i].from]++;
    for (int i = 0, sum = 0; i <= d->n_nodes; i++) begin[i] = sum += begin[i];
    for (int i = d->n_edges - 1; i >= 0; i--) {
        const struct ct_depends_edge *edge = &d->edges[i];
        to[--begin[backward ? edge->to : edge->from]] = backward ? edge->from : edge->to;
    }
    return true;
}

bool ct__depends_build(const ct_graph *g, int from, ct_depends *d) {
    *d = (ct_depends){.n_nodes = g->n_records};
    builder b = {.graph = g, .depends = d, .effect = -1, .barrier = -1};
    const size_t of_bytes = (size_t)g->n_slots * sizeof *b.of, list_bytes = (size_t)g->n_records * sizeof(int);
    b.of = ct__alloc(of_bytes);
    b.since = ct__alloc(list_bytes);
    b.run = ct__alloc(list_bytes);
    bool ok = b.of && b.since && b.run;
    if (!ok) ct__fail_memory("capture", of_bytes + 2 * list_bytes);
    for (int i = 0; ok && i < g->n_slots; i++) b.of[i] = (uses){.reads = -1, .writes = -1};
    for (int k = from; ok && k < g->n_records; k++) ok = add_record(&b, k);
    ct__free(b.of, of_bytes);
    ct__free(b.since, list_bytes);
    ct__free(b.run, list_bytes);
    ct__free(b.pool, (size_t)b.uses_room * sizeof *b.pool);
    return ok && sort_edges(d, false) && sort_edges(d, true);
}

void ct__depends_free(ct_depends *d) {
    for (int i = 0; i < 2; i++) {
        ct__free(d->begin[i], ((size_t)d->n_nodes + 1) * sizeof(int));
        ct__free(d->to[i], ((size_t)d->n_edges + 1) * sizeof(int));
    }
    ct__free(d->edges, (size_t)d->room * sizeof *d->edges);
    *d = (ct_depends){0};
}
