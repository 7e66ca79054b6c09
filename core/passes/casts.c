/* Casts at once: those that wait for nothing in the step, of weights to a half type above all, become one call at the place of the first, where
 * a device has a kernel for that (cast_all). Of small tensors a launch takes longer than the work. What they make is then there from the
 * beginning on: where the peak of memory would rise, the larger ones stay at their places. */
#include <string.h>

#include "core/alloc.h"
#include "core/call.h"
#include "core/device.h"
#include "core/error.h"
#include "core/passes/passes.h"

#include "gen/cast.attrs.h"
#include "gen/ops_decl.h"

typedef struct gathering {
    ct_graph *graph;
    int first;    /* cast of the graph: the others are like it */
    int *members; /* in order; they are done at the place of the first of them */
    int n;
    int64_t largest; /* result among them */
    int *order;      /* of the records, with the members one after the other */
} gathering;

static bool is_cast(const ct_record *record) {
    const ct_call *call = &record->call;
    if (record->kind != CT__CALL || record->once || call->op != &ct__op_cast || record->scratch >= 0) return false;
    const ct_kernel *kernels = ct__kernels_of(&ct__op_cast_all, call->device.type);
    return kernels && kernels->name && ct__view_is_dense(call->in[0]) && ct__view_is_dense(call->out[0]);
}

static bool is_alike(const ct_call *a, const ct_call *b) {
    return ct__same_device(a->device, b->device) && a->flags == b->flags && a->in[0]->dtype == b->in[0]->dtype &&
           a->out[0]->dtype == b->out[0]->dtype;
}

static int64_t result_bytes(const ct_graph *g, const ct_record *record) {
    return (int64_t)g->slots[record->slots[record->call.n_in]].bytes;
}

static bool uses_kept(const ct_graph *g, const ct_record *record) {
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (g->slots[access.slot].kept) return true;
    return false;
}

static bool collide(const ct_graph *g, const ct_access *x, const ct_access *y) {
    if (!x->writes && !y->writes) return false;
    if (x->slot == y->slot) return x->low < y->high && y->low < x->high;
    return ct__slot_memory(g, x->slot) == ct__slot_memory(g, y->slot);
}

/* Two neighbours may change places: neither uses what the other writes, and an effect stays where it is among what is kept. */
static bool may_swap(const ct_graph *g, const ct_record *a, const ct_record *b) {
    if (a->kind == CT__EFFECT || b->kind == CT__EFFECT) /* it may do anything to what is kept */
        return a->kind != b->kind && !uses_kept(g, a->kind == CT__EFFECT ? b : a);
    ct_access x, y;
    for (int i = 0; ct__access_next(g, a, &i, &x);)
        for (int k = 0; ct__access_next(g, b, &k, &y);)
            if (collide(g, &x, &y)) return false;
    return true;
}

static bool may_go_to(const ct_graph *g, int k, int first) {
    for (int i = k - 1; i >= first; i--)
        if (!may_swap(g, &g->records[i], &g->records[k])) return false;
    return true;
}

/* Those that can be done where the first is, and so at any place from there to their own, with results no larger than `limit`. */
static void gather(gathering *s, int64_t limit) {
    const ct_graph *g = s->graph;
    s->n = 0;
    s->largest = 0;
    for (int k = s->first; k < g->n_records; k++) {
        const ct_record *record = &g->records[k];
        if (!is_cast(record) || !is_alike(&g->records[s->first].call, &record->call)) continue;
        const int64_t bytes = result_bytes(g, record);
        if (bytes > limit || !may_go_to(g, k, s->first)) continue;
        if (bytes > s->largest) s->largest = bytes;
        s->members[s->n++] = k;
    }
}

/* The order in which they follow each other. */
static void put_together(gathering *s) {
    int n = 0, next = 0;
    for (int k = 0; k < s->graph->n_records; k++) {
        if (k == s->members[0])
            for (int i = 0; i < s->n; i++) s->order[n++] = s->members[i];
        if (next < s->n && s->members[next] == k) next++;
        else s->order[n++] = k;
    }
}

/* As many as the peak allows. False after an error. */
static bool gather_within(gathering *s, int64_t peak) {
    for (int64_t limit = INT64_MAX;; limit = s->largest / 2) {
        gather(s, limit);
        if (s->n < 2) return true;
        put_together(s);
        const int64_t now = ct__order_usage(s->graph, s->order);
        if (now < 0) return false;
        if (now <= peak) return true;
    }
}

static bool build(const gathering *s, ct_record *made) {
    const ct_graph *g = s->graph;
    const ct_call *first = &g->records[s->members[0]].call;
    memset(made, 0, sizeof *made);
    if (!ct__record_arrays(made, s->n, s->n, 0, sizeof(cast_all_attrs))) return false;
    const ct_view **pointer = (const ct_view **)(uintptr_t)made->call.in;
    for (int i = 0; i < 2 * s->n; i++) {
        const ct_record *from = &g->records[s->members[i % s->n]];
        made->views[i] = from->views[i / s->n];
        made->slots[i] = from->slots[i / s->n];
        pointer[i] = &made->views[i];
    }
    *(cast_all_attrs *)(uintptr_t)made->call.attrs = (cast_all_attrs){.to = first->out[0]->dtype};
    made->call.op = &ct__op_cast_all;
    made->call.device = first->device;
    made->call.called = first->called;
    made->call.flags = first->flags;
    made->generator = made->scratch = -1;
    return true;
}

/* Puts one call in place of the members; without a kernel that takes it nothing changes. False after an error. */
static bool replace(gathering *s) {
    ct_graph *g = s->graph;
    ct_record made;
    if (!build(s, &made)) return false;
    if (!ct__record_choose(g, &made)) {
        ct__record_free(&made);
        return ct_ok();
    }
    for (int i = 1; i < s->n; i++) ct__record_drop(&g->records[s->members[i]]);
    ct__record_free(&g->records[s->members[0]]);
    g->records[s->members[0]] = made;
    ct__pass_note(g, "%d casts are done at once", s->n);
    return true;
}

bool ct__pass_casts(ct_graph *g) {
    const size_t bytes = 2 * ((size_t)g->n_records + 1) * sizeof(int);
    gathering s = {.graph = g};
    const int64_t peak = ct__graph_usage(g, NULL);
    if (peak < 0) return false;
    while (s.first < g->n_records && !is_cast(&g->records[s.first])) s.first++;
    if (s.first == g->n_records) return true;
    if (!(s.members = ct__alloc(bytes))) return ct__fail_memory("capture", bytes);
    s.order = s.members + g->n_records + 1;
    const bool ok = gather_within(&s, peak + CT__LITTLE_MEMORY) && (s.n < 2 || replace(&s));
    ct__free(s.members, bytes);
    ct__graph_compact(g);
    return ok;
}
