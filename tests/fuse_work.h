/* Functions of a few tensors, captured and replayed beside eager calls, for tests of fusion. */
#ifndef COTANGENT_TESTS_FUSE_WORK_H
#define COTANGENT_TESTS_FUSE_WORK_H

#include <cotangent/capture.h>
#include <cotangent/fused.h>
#include <string.h>

#include "core/graph.h"
#include "tests/harness.h"

/* Steps of all fused calls. */
static inline int count_steps(const ct_graph *graph) {
    int n = 0;
    for (int i = 0; i < graph->n_records; i++)
        if (graph->records[i].kind == CT__CALL && strcmp(graph->records[i].call.op->name, "fused") == 0)
            n += ((const ct_fused *)graph->records[i].call.attrs)->n_steps;
    return n;
}

typedef struct work {
    ct_tensor *x[6];
    ct_tensor *y[64]; /* kept */
    int n;
    uint64_t seed;
} work;

static inline void leave(work *w, ct_tensor *y) {
    if (y && w->n < 64) w->y[w->n++] = ct_keep(y);
}

static inline void drop_results(work *w) {
    for (int i = 0; i < w->n; i++) ct_drop(w->y[i]);
    w->n = 0;
}

/* Captured on the values that x has, replayed on others, against the function itself on those; the graph, or NULL. */
static inline ct_graph *capture_and_compare(bool (*function)(void *), work *captured, work *eager) {
    ct_graph *graph = ct_capture(function, captured, CT_CAPTURE_WARM);
    CHECK(graph != NULL);
    if (!graph) return NULL;
    ct_no_grad {
        for (int i = 0; i < 6; i++)
            if (captured->x[i]) CHECK(ct_assign(captured->x[i], ct_detach(eager->x[i])));
    }
    for (int round = 0; round < 2; round++) { /* what changes from replay to replay is not frozen */
        ct_seed(7 + (uint64_t)round);
        ct_scope {
            CHECK(function(eager));
        }
        ct_seed(7 + (uint64_t)round);
        CHECK(ct_replay(graph));
        CHECK(captured->n == eager->n);
        for (int i = 0; i < captured->n; i++)
            harness_check(harness_same_bits(captured->y[i], eager->y[i]), __FILE__, __LINE__,
                          "result %d of seed %llu has other bits", i, (unsigned long long)captured->seed);
        for (int i = 0; i < 6; i++)
            if (captured->x[i])
                harness_check(harness_same_bits(captured->x[i], eager->x[i]), __FILE__, __LINE__,
                              "input %d of seed %llu has other bits", i, (unsigned long long)captured->seed);
    }
    drop_results(captured);
    drop_results(eager);
    return graph;
}

static inline work inputs(int n, ct_dims shape, uint64_t stream) {
    work w = {.n = 0};
    ct_rng *rng = ct_rng_new(11, stream);
    for (int i = 0; i < n; i++) w.x[i] = ct_randn(shape, .rng = rng);
    ct_rng_free(rng);
    return w;
}

#endif
