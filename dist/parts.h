/* Which part of the whole network a rank has, where layers are cut or sharded: what checkpoints, and the norm of all
 * gradients, need to know. */
#ifndef COTANGENT_DIST_PARTS_H
#define COTANGENT_DIST_PARTS_H

#include "dist/parallel.h"

/* Some of the elements of a parameter of the whole network. */
typedef struct ct__part {
    char *name; /* in the whole network */
    int local;  /* of the parameters that this rank has */
    /* Elements `at` to `at + count` of the local tensor are those from `first` of the cut tensor, whose place in the
     * whole the cut tells. A shard may have none of them. */
    int64_t at, count, first;
    ct__cut cut;
    int copies; /* ranks that have the same elements */
    bool first_copy;
} ct__part;

/* A parameter or buffer that this rank has. */
typedef struct ct__local {
    char *name;
    ct_tensor *x; /* not kept */
    bool buffer, divided;
    int part, parts;    /* its first part, and how many there are */
    bool learned_apart; /* an optimizer's state is of some of its elements alone (stage 1): */
    ct__part state;     /* a part of that state; its name is the local's */
} ct__local;

typedef struct ct__parts {
    ct__local *locals;
    ct__part *parts;
    int local_count, count;
    bool divided; /* some local is, or is learned apart */
} ct__parts;

/* In the order of ct_module_parameters, of the network as it is and of the whole one. False after an error; to be freed
 * in any case. */
bool ct__parts_of(ct_module *net, ct__parts *parts);
void ct__parts_free(ct__parts *parts);

/* Calls fn with each run of elements of a part that lies together in the whole: from element `from` of the local tensor
 * to element `to` of the whole. */
bool ct__part_runs(const ct__part *part, bool (*fn)(void *context, int64_t from, int64_t to, int64_t count),
                   void *context);

#endif
