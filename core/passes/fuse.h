/* Fusion: groups of calls that become one. fuse.c finds groups, fuse_order.c tells where records may go, fuse_build.c makes the call.
 *
 * Every record has a position, its own place in the graph, and the records of a group share that of one of them, where the fused call
 * will be. What holds all along: of two records that may not change places and are not in one group, the one that came first has the
 * lower position. Two groups become one where this still holds with one of them moved to the other's position. */
#ifndef COTANGENT_CORE_PASSES_FUSE_H
#define COTANGENT_CORE_PASSES_FUSE_H

#include <cotangent/fused.h>

#include "core/passes/passes.h"

enum { CT__FUSE_STEPS = 64, CT__FUSE_OPERANDS = 512 }; /* of a group, at most */

/* What one record does to one slot, and its neighbors in the same memory, in the order of records; -1: there is none. */
typedef struct fuse_access {
    ct_access is;
    int record;
    int before, after, write_before, write_after; /* the latter two are the nearest that write */
} fuse_access;

typedef struct fuse_group {
    int first, size; /* members, in order: first, next[first] ... */
    int position;
    int64_t count;   /* elements */
    int64_t scratch; /* bytes, where it is of more than one */
    bool apart;      /* it cannot be done as one after all */
} fuse_group;

typedef struct fuse_state {
    ct_graph *graph;
    int n_records; /* before any is put in */
    fuse_access *accesses;
    int *begin;                        /* of a record's accesses; those of the next one begin where they end */
    int *slot_first;                   /* the first access to the memory of a slot */
    int *group, *next;                 /* by record; -1: none */
    fuse_group *groups;                /* by the record that began it */
    int *effect_before, *effect_after; /* by record: what the host does next to it; -1, n_records: nothing */
    int *fail_before, *fail_after; /* the same for what may fail: calls that leave something behind do not pass it */
    bool *uses_kept, *writes_kept; /* by record */
    bool *fixed;                   /* by record: it stays at its place */
    int *stamp, now;               /* by record: it is one of those that are looked at if this is `now` */
    void *block;                   /* all of these */
    size_t block_bytes;
} fuse_state;

/* ---- fuse_order.c ---- */

bool ct__fuse_state_make(fuse_state *state, ct_graph *graph); /* false after an error; */
void ct__fuse_state_free(fuse_state *state);                  /* either way */
/* Once it is known which records are in groups: those cannot fail. */
void ct__fuse_find_failing(fuse_state *state);
/* Elements of two views are the same, in the same order: a reshape may lie between them. */
bool ct__fuse_same_elements(const ct_view *a, const ct_view *b);
/* Whether b can be moved to a's position, or a to b's: then *position is that. */
bool ct__fuse_may_join(const fuse_state *state, int a, int b, int *position);
/* Whether two groups, done together element by element, mean the same as one after the other. */
bool ct__fuse_agree(const fuse_state *state, int a, int b);
/* The most bytes in use at a time with groups as they are, and where: a position. -1 after an error. */
int64_t ct__fuse_usage(const fuse_state *state, int *where);

/* ---- fuse_build.c ---- */

/* The call of records members[0] to members[n - 1], whose steps have `count` elements, as one. *record has no block where they cannot be:
 * no kernel takes them. False after an error. */
bool ct__fuse_build(fuse_state *state, const int *members, int n, int64_t count, ct_record *record);
size_t ct__fuse_scratch(ct_call *call); /* of a call that some kernel takes */

#endif
