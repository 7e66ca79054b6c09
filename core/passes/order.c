/* Order for a lower peak of memory: list scheduling. Of the records that can be done next, one is taken that frees more than it takes; where
 * none does, the next as recorded, or the one that takes the least. The same from the end to the beginning, where what is made goes as near
 * as it can to what uses it. The best of the four orders is taken if it has a lower peak than the recorded one; what is done once stays in
 * front. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/depends.h"

/* A node that waits for its turn, with what its key was when it was put in: keys change, and stale entries are passed over. */
typedef struct waiting {
    int64_t key;
    int node;
} waiting;

typedef struct scheduler {
    const ct_graph *graph;
    const ct_depends *depends;
    int from; /* the first record that is not done once */
    bool backward, greedy;
    /* the slots in the plan that a record uses, each once, and the records that use a slot */
    int *slots, *slots_begin, *users, *users_begin;
    int *blocked;  /* of each node, how many it has to wait for */
    int *left;     /* of each slot, how many of its users are still to come */
    int *last;     /* these users, all of them by exclusive or: of one that is left, it is the number */
    bool *in_use;  /* of each slot */
    bool *done;    /* of each node */
    int64_t *cost; /* of each record, the bytes that it takes less those that it frees */
    waiting *heap;
    int n_waiting, heap_room;
    int *order, *best; /* of the records */
} scheduler;

/* ---- The heap: the lowest key first, and as recorded among equals ---- */

static bool comes_first(const scheduler *s, const waiting *a, const waiting *b) {
    if (a->key != b->key) return a->key < b->key;
    return s->backward ? a->node > b->node : a->node < b->node;
}

static bool push(scheduler *s, waiting w) {
    if (s->n_waiting == s->heap_room) {
        const int more = 2 * s->heap_room;
        waiting *larger = ct__grow(s->heap, (size_t)s->heap_room * sizeof w, (size_t)more * sizeof w);
        if (!larger) return ct__fail_memory("capture", (size_t)more * sizeof w);
        s->heap = larger;
        s->heap_room = more;
    }
    int at = s->n_waiting++;
    for (; at && comes_first(s, &w, &s->heap[(at - 1) / 2]); at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = w;
    return true;
}

static waiting pop(scheduler *s) {
    const waiting top = s->heap[0], w = s->heap[--s->n_waiting];
    int at = 0;
    for (int child; (child = 2 * at + 1) < s->n_waiting; at = child) {
        if (child + 1 < s->n_waiting && comes_first(s, &s->heap[child + 1], &s->heap[child])) child++;
        if (!comes_first(s, &s->heap[child], &w)) break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = w;
    return top;
}

/* ---- One order ---- */

static bool is_record(const scheduler *s, int node) { return node < s->graph->n_records; }

static int64_t key_of(const scheduler *s, int node) {
    if (!is_record(s, node)) return INT64_MIN; /* a barrier costs nothing, and others wait for it */
    return s->greedy || s->cost[node] < 0 ? s->cost[node] : 0;
}

static bool offer(scheduler *s, int node) {
    return s->done[node] || s->blocked[node] > 0 || push(s, (waiting){key_of(s, node), node});
}

static bool change_cost(scheduler *s, int record, int64_t by) {
    s->cost[record] += by;
    return offer(s, record);
}

/* Record is done: what it uses is in use from then on, and what nobody uses after it is not. */
static bool use_slots(scheduler *s, int record) {
    bool ok = true;
    for (int i = s->slots_begin[record]; ok && i < s->slots_begin[record + 1]; i++) {
        const int slot = s->slots[i];
        const int64_t bytes = (int64_t)s->graph->slots[slot].bytes;
        s->last[slot] ^= record;
        s->left[slot]--;
        if (!s->in_use[slot]) {
            s->in_use[slot] = true;
            for (int k = s->users_begin[slot]; ok && k < s->users_begin[slot + 1]; k++)
                if (!s->done[s->users[k]]) ok = change_cost(s, s->users[k], -bytes);
        }
        if (ok && s->left[slot] == 1) ok = change_cost(s, s->last[slot], -bytes);
    }
    return ok;
}

static void start(scheduler *s) {
    const ct_graph *g = s->graph;
    const ct_depends *d = s->depends;
    memset(s->blocked, 0, (size_t)d->n_nodes * sizeof(int));
    memset(s->done, 0, (size_t)d->n_nodes);
    memset(s->in_use, 0, (size_t)g->n_slots);
    memset(s->last, 0, (size_t)g->n_slots * sizeof(int));
    memset(s->cost, 0, (size_t)g->n_records * sizeof(int64_t));
    for (int i = 0; i < d->n_edges; i++) s->blocked[s->backward ? d->edges[i].from : d->edges[i].to]++;
    for (int slot = 0; slot < g->n_slots; slot++) {
        const int64_t bytes = (int64_t)g->slots[slot].bytes;
        const int n = s->left[slot] = s->users_begin[slot + 1] - s->users_begin[slot];
        for (int k = s->users_begin[slot]; k < s->users_begin[slot + 1]; k++) {
            s->last[slot] ^= s->users[k];
            s->cost[s->users[k]] += n > 1 ? bytes : 0;
        }
    }
    s->n_waiting = 0;
}

/* Those that had to wait for a node. */
static bool unblock(scheduler *s, int node) {
    const int *begin = s->depends->begin[s->backward], *to = s->depends->to[s->backward];
    bool ok = true;
    for (int i = begin[node]; ok && i < begin[node + 1]; i++)
        if (--s->blocked[to[i]] == 0) ok = offer(s, to[i]);
    return ok;
}

static bool schedule(scheduler *s) {
    const int n = s->graph->n_records;
    int placed = s->from;
    bool ok = true;
    start(s);
    for (int node = s->from; ok && node < s->depends->n_nodes; node++) ok = offer(s, node);
    while (ok && s->n_waiting) {
        const waiting w = pop(s);
        if (s->done[w.node] || w.key != key_of(s, w.node)) continue;
        s->done[w.node] = true;
        if (is_record(s, w.node)) {
            s->order[s->backward ? n - 1 - (placed - s->from) : placed] = w.node;
            placed++;
            ok = use_slots(s, w.node);
        }
        ok = ok && unblock(s, w.node);
    }
    for (int i = 0; i < s->from; i++) s->order[i] = i;
    return ok;
}

/* ---- Who uses what ---- */

static bool is_planned(const scheduler *s, int slot) {
    const ct_graph_slot *of = &s->graph->slots[slot];
    return !of->kept && of->first >= s->from; /* a constant is always there */
}

/* Fills slots and users; without them, the places where those of each begin. */
static void find_uses(scheduler *s, bool fill) {
    const ct_graph *g = s->graph;
    int n = 0, *seen = s->last; /* 1 + the last record that was seen to use a slot */
    memset(seen, 0, (size_t)g->n_slots * sizeof(int));
    if (!fill) memset(s->users_begin, 0, ((size_t)g->n_slots + 1) * sizeof(int));
    for (int k = 0; k < g->n_records; k++) {
        s->slots_begin[k] = n;
        for (int i = 0, slot; k >= s->from && (slot = ct__slot_next(&g->records[k], &i)) >= 0;) {
            if (!is_planned(s, slot) || seen[slot] == k + 1) continue;
            seen[slot] = k + 1;
            if (fill) {
                s->slots[n] = slot;
                s->users[--s->users_begin[slot]] = k;
            } else {
                s->users_begin[slot]++;
            }
            n++;
        }
    }
    s->slots_begin[g->n_records] = n;
    for (int i = 0, sum = 0; !fill && i <= g->n_slots; i++) s->users_begin[i] = sum += s->users_begin[i];
}

/* ---- The best of them ---- */

/* Fills best, if one has a lower peak, which it becomes. */
static bool find_best(scheduler *s, int64_t *peak) {
    for (int i = 0; i < 4; i++) {
        s->backward = i & 1;
        s->greedy = i & 2;
        if (!schedule(s)) return false;
        const int64_t now = ct__order_usage(s->graph, s->order);
        if (now < 0) return false;
        if (now >= *peak) continue;
        *peak = now;
        memcpy(s->best, s->order, (size_t)s->graph->n_records * sizeof(int));
    }
    return true;
}

/* The arrays, in one block each; the second when it is known how many uses there are. */
static bool take_arrays(scheduler *s, int **numbers, size_t *number_bytes, int **lists, size_t *list_bytes) {
    const size_t n = (size_t)s->graph->n_records, m = (size_t)s->graph->n_slots, nodes = (size_t)s->depends->n_nodes;
    *number_bytes = (3 * n + 3 * m + nodes + 2) * sizeof(int) + m + nodes;
    int *at = *numbers = ct__alloc(*number_bytes);
    if (!at) return ct__fail_memory("capture", *number_bytes);
    s->slots_begin = at, at += n + 1;
    s->users_begin = at, at += m + 1;
    s->left = at, at += m;
    s->last = at, at += m;
    s->order = at, at += n;
    s->best = at, at += n;
    s->blocked = at, at += nodes;
    s->in_use = (bool *)at;
    s->done = s->in_use + m;
    find_uses(s, false);
    const size_t uses = (size_t)s->slots_begin[n];
    *list_bytes = 2 * uses * sizeof(int) + n * sizeof(int64_t) + sizeof(int64_t);
    *lists = ct__alloc(*list_bytes);
    if (!*lists) return ct__fail_memory("capture", *list_bytes);
    s->cost = (int64_t *)(void *)*lists;
    s->slots = (int *)(void *)(s->cost + n);
    s->users = s->slots + uses;
    find_uses(s, true);
    s->heap_room = (int)nodes + 64;
    s->heap = ct__alloc((size_t)s->heap_room * sizeof *s->heap);
    return s->heap || ct__fail_memory("capture", (size_t)s->heap_room * sizeof *s->heap);
}

bool ct__pass_order(ct_graph *g) {
    ct_depends depends = {0};
    scheduler s = {.graph = g, .depends = &depends};
    int *numbers = NULL, *lists = NULL;
    size_t number_bytes = 0, list_bytes = 0;
    while (s.from < g->n_records && g->records[s.from].once) s.from++;
    const int64_t before = ct__graph_usage(g, NULL);
    int64_t peak = before;
    const bool ok = before >= 0 && ct__depends_build(g, s.from, &depends) &&
                    take_arrays(&s, &numbers, &number_bytes, &lists, &list_bytes) && find_best(&s, &peak);
    if (ok && peak < before) {
        ct__graph_reorder(g, s.best);
        ct__pass_note(g, "%lld bytes less at once", (long long)(before - peak));
    }
    ct__free(numbers, number_bytes);
    ct__free(lists, list_bytes);
    ct__free(s.heap, (size_t)s.heap_room * sizeof *s.heap);
    ct__depends_free(&depends);
    return ok;
}
