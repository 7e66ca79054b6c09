/* How many calls of an op a captured graph has: for tests of what passes leave, join and remove. */
#ifndef COTANGENT_TESTS_COUNT_CALLS_H
#define COTANGENT_TESTS_COUNT_CALLS_H

#include <string.h>

#include "core/graph.h"

static inline int count_calls(const ct_graph *graph, const char *op) {
    int n = 0;
    for (int i = 0; i < graph->n_records; i++)
        n += graph->records[i].kind == CT__CALL && strcmp(graph->records[i].call.op->name, op) == 0;
    return n;
}

#endif
