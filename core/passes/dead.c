/* Dead code: records whose results nobody reads. From the last record to the first: a slot is live if it is kept, or if a record that
 * stays reads it further on. Effects stay, and so does what may raise an error, since the function would raise it too; a random call that
 * goes leaves its position in the stream unused. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/passes/passes.h"

static bool is_needed(const ct_graph *g, const ct_record *record, const bool *live) {
    ct_access access;
    if (ct__record_may_fail(record)) return true;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (access.writes && live[access.slot]) return true;
    return false;
}

/* What is live before a record that stays, from what is live after it. */
static void step_back(const ct_graph *g, const ct_record *record, bool *live) {
    ct_access access;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (access.whole && !g->slots[access.slot].kept) live[access.slot] = false;
    for (int i = 0; ct__access_next(g, record, &i, &access);)
        if (access.reads) live[access.slot] = true;
}

bool ct__pass_dead(ct_graph *g) {
    const size_t bytes = (size_t)g->n_slots + 1;
    bool *live = ct__alloc(bytes);
    int dropped = 0;
    if (!live) return ct__fail_memory("capture", bytes);
    for (int i = 0; i < g->n_slots; i++) live[i] = g->slots[i].kept != NULL;
    for (int i = g->n_records - 1; i >= 0; i--) {
        ct_record *record = &g->records[i];
        if (is_needed(g, record, live)) {
            step_back(g, record, live);
        } else {
            ct__record_drop(record);
            dropped++;
        }
    }
    ct__free(live, bytes);
    if (!dropped) return true;
    ct__graph_compact(g);
    ct__pass_note(g, "%d records removed", dropped);
    return true;
}
