/* Which records have to come before which: a graph that is built once, in time near to linear in the records. */
#ifndef COTANGENT_CORE_DEPENDS_H
#define COTANGENT_CORE_DEPENDS_H

#include "core/passes/passes.h"

/* Nodes are the records, by their place, and barriers behind them: what comes before a barrier comes before all that comes after it. */
typedef struct ct_depends {
    int n_nodes;
    int *begin[2]; /* n_nodes + 1: where the edges of a node begin in `to` */
    int *to[2];    /* nodes that come later than the node; [1]: earlier than it */
    int n_edges;
    struct ct_depends_edge {
        int from, to;
    } * edges; /* all of them, in no order */
    int room;
} ct_depends;

/* Those of records from `from` on, among each other; they have to be freed in any case. False after an error. */
bool ct__depends_build(const ct_graph *graph, int from, ct_depends *depends);
void ct__depends_free(ct_depends *depends);

#endif
