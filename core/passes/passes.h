/* Passes improve a captured graph between its recording and its memory plan; each lies in a file of its own. What they share is here:
 * what records read and write, and how records come and go. Which of them may change places is in depends.h.
 *
 * Every pass keeps the bits of what stays (kept slots, effects, random positions), and one that fails leaves a graph that can be freed. */
#ifndef COTANGENT_CORE_PASSES_H
#define COTANGENT_CORE_PASSES_H

#include "core/graph.h"

typedef struct ct_graph_pass {
    const char *name;
    bool (*run)(ct_graph *graph); /* false after an error */
    bool on;                      /* without being asked for */
    unsigned flag;                /* of ct_capture that asks for it; 0: none does */
} ct_graph_pass;

bool ct__pass_dead(ct_graph *graph);
bool ct__pass_cse(ct_graph *graph);
bool ct__pass_hoist(ct_graph *graph);
bool ct__pass_layout(ct_graph *graph);
bool ct__pass_recompute(ct_graph *graph);
bool ct__pass_casts(ct_graph *graph);
bool ct__pass_order(ct_graph *graph);
bool ct__pass_overwrite(ct_graph *graph);

/* Runs those that are on, in the order of the table; or what CT_PASSES says: names in the order in which they run ("cse,dead"), names to
 * leave out ("-fuse,-cse"), or "none". False after an error. */
bool ct__passes_run(ct_graph *graph);
/* The same for captures of this thread, and before CT_PASSES; NULL: as without it. The text is borrowed. */
void ct__passes_set(const char *passes);
const ct_graph_pass *ct__pass_at(int i); /* in the order of the table; NULL: there are no more */
/* What a pass did, for the log: "3 records removed". Without it the log says that it did nothing. */
void ct__pass_note(ct_graph *graph, const char *format, ...) CT_PRINTF(2, 3);

/* ---- What a record uses ---- */

typedef struct ct_access {
    int slot;
    size_t low, high;    /* bytes from low up to high, of the slot; some between them may be left out */
    bool reads, writes;  /* a mutated input is both, scratch is written */
    bool whole;          /* it writes every byte of the slot */
    const ct_view *view; /* NULL: scratch, or what the host writes */
} ct_access;

/* One after the other; *i is 0 to begin with. False: there are no more. */
bool ct__access_next(const ct_graph *graph, const ct_record *record, int *i, ct_access *access);
/* The slots alone, which is quicker: the next one, -1 after the last. A slot may come more than once. */
static inline int ct__slot_next(const ct_record *record, int *i) {
    while (*i < record->n_views) {
        const int slot = record->slots[(*i)++];
        if (slot >= 0) return slot;
    }
    return (*i)++ > record->n_views ? -1 : record->kind == CT__CALL ? record->scratch : record->slot;
}
/* It changes nothing but outputs, which depend on its inputs alone: it may be left out, done once or done again. */
bool ct__record_is_pure(const ct_record *record);
/* Values of its inputs may be an error (an index out of range), or it may be a program's own kernel: what lasts is written before it or
 * after it as in the function, so that an error leaves behind what it does there. */
bool ct__record_may_fail(const ct_record *record);
/* Slots that may be the same memory have one number: that of the slot, or of the first one that is shared. */
int ct__slot_memory(const ct_graph *graph, int slot);
/* For each slot how many records write it; of n_slots numbers, which the caller frees. NULL after an error. */
int *ct__graph_writers(const ct_graph *graph);

/* ---- Changes ---- */

void ct__record_drop(ct_record *record); /* it goes with the next ct__graph_compact */
void ct__record_free(ct_record *record); /* the arrays of one that is in no graph */
void ct__graph_compact(ct_graph *graph);
/* first and last of all slots anew, after records have come, gone or moved. What is made once is alive until the end. */
void ct__graph_lifetimes(ct_graph *graph);
/* Puts the records into an order (of n_records numbers, which are used up): the first is then records[order[0]]. */
void ct__graph_reorder(ct_graph *graph, int *order);
/* The order in which what is done once comes first, and which stays otherwise. */
void ct__order_once_first(const ct_graph *graph, int *order);
bool ct__graph_once_first(ct_graph *graph); /* brings the records into it; false after an error */
/* Puts a record in front of record `at`; the graph owns its block from then on. False after an error. */
bool ct__graph_insert(ct_graph *graph, int at, const ct_record *record);
/* A copy with arrays of its own. False after an error. */
bool ct__record_clone(const ct_record *record, ct_record *copy);
/* Chooses the kernel for a call whose op, attributes and views are there, and adds a slot for the scratch that it wants. False: none
 * takes it, or after an error (ct_ok tells). */
bool ct__record_choose(ct_graph *graph, ct_record *record);

/* ---- Memory ---- */

/* By so many bytes sharing and hoisting may raise the peak: a number that is held for long is worth a call. */
enum { CT__LITTLE_MEMORY = 4096 };

/* For each record, bytes of the slots in the plan that are in use there (NULL: it is not asked for); returns the most. -1 after an
 * error. */
int64_t ct__graph_usage(const ct_graph *graph, int64_t *in_use);
int64_t ct__order_usage(const ct_graph *graph, const int *order); /* the most of the records in another order */

/* ---- Those there are ---- */

bool ct__pass_fuse(ct_graph *graph); /* calls over the same elements become one, where a backend can do that */

/* ---- Text ---- */

void ct__record_log(const ct_graph *graph, int record,
                    const char *before);   /* its line behind that text, and its steps */
void ct__graph_log(const ct_graph *graph); /* a line for each record */

#endif
