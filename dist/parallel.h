/* What data_parallel.c and shards.c share: a network on every rank, and what is known of its parameters. */
#ifndef COTANGENT_DIST_PARALLEL_H
#define COTANGENT_DIST_PARALLEL_H

#include <cotangent/nn.h>

#include "dist/dist.h"

/* Gradients that go in one call: those of neighboring parameters of one dtype and device, flat, one after the other. */
typedef struct ct__bucket {
    int first, count; /* places in `learned` */
    int64_t elements; /* with what the last bucket has behind them: a flag for each parameter, whether it was used */
    ct_tensor *flat;  /* kept, from the first gradient of a step to its end */
    int filled;
    ct_dist_work *work;
    char name[80]; /* the names of its first and last parameter */
} ct__bucket;

typedef struct ct__watch ct__watch;

/* A parameter that is learned; the last one of the network, whose gradient comes first, first. */
typedef struct ct__learned {
    const ct_parameter *parameter;
    ct_tensor *leaf; /* kept */
    ct__watch *watch;
    int bucket;
    int64_t offset, elements; /* in the bucket */
    bool ready, used;         /* its gradient is in the bucket; there is one */
} ct__learned;

struct ct_dist_parallel {
    ct_module *net;
    ct_parameters *list;
    ct_dist_group *group; /* as it was given */
    bool bf16, sync;
    ct__learned *learned;
    int learned_count;
    ct__bucket *buckets;
    int bucket_count, launched;
    struct ct__shards *shards; /* NULL: not in shards */
};

/* In shards.c. A sum of gradients and buffers, flat. */
struct ct__shards *ct__shards_new(ct_dist_parallel *parallel, int shards);
void ct__shards_free(struct ct__shards *shards);
bool ct__shards_reduce(ct_dist_parallel *parallel);
bool ct__is_sharded(const ct_module *module); /* in sharded.c */
bool ct__parallel_same(
    const ct_dist_parallel *parallel); /* parameters are those that it was made with; else an error */

#endif
