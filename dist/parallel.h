/* What data_parallel.c and shards.c share: a network on every rank, and what is known of its parameters. */
#ifndef COTANGENT_DIST_PARALLEL_H
#define COTANGENT_DIST_PARALLEL_H

#include <cotangent/nn.h>

#include "dist/dist.h"

/* Gradients that go in one call: small ones of one dtype and device, flat, one after the other, or a large one where
 * it is. */
typedef struct ct__bucket {
    int first, last, count; /* places in `learned`; between them there may be large ones, which have their own */
    bool large;             /* one parameter, whose gradient is not copied */
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
    int arrived;               /* a large parameter whose gradient is complete, and about to be the leaf's; -1: none */
    struct ct__shards *shards; /* NULL: not in shards */
    struct ct_dist_parallel *next;
};

/* Parameters and buffers of the group's rank 0 become those of all; what is sharded stays. False after an error. */
bool ct__broadcast_parameters(const ct_parameters *list, ct_dist_group *group);

/* Whether gradients of all of these are averaged over the group, by whatever ct_dist_data_parallel there is; else an
 * error. */
bool ct__parallel_averages(ct_tensor *const *leaves, int n, ct_dist_group *group);

/* In stage1.c. Optimizers that are made from here on learn a part of each parameter of net, one for each rank of the
 * group. */
bool ct__divide_learning(ct_module *net, ct_dist_group *group);
bool ct__learned_apart(const ct_module *module, ct_dist_group **group); /* whether that is so of its own parameters */

/* In shards.c. A sum of gradients and buffers, flat. */
struct ct__shards *ct__shards_new(ct_dist_parallel *parallel, int shards);
void ct__shards_free(struct ct__shards *shards);
bool ct__shards_reduce(ct_dist_parallel *parallel);
/* In sharded.c. The places of a sharded module's parameters in its shard, one after the other. */
bool ct__is_sharded(const ct_module *module);
typedef struct ct__place {
    ct_module *owner; /* inside, and which of its parameters it is */
    int index;
    ct_dims shape;
    int64_t offset, elements; /* in all ranks' shards together */
} ct__place;
int ct__sharded_places(const ct_module *sharded, const ct__place **places, ct_module **inner, ct_dist_group **group);

/* In tensor_parallel.c. How a tensor lies in that of the whole layer: its element i is number i / run * stride + i % run + start there. */
typedef struct ct__cut {
    ct_dims shape; /* of the whole */
    int64_t run, stride, start;
    int ranks; /* that it is cut among; 1: it is whole */
    ct_dist_group *group;
} ct__cut;
bool ct__cut_of(const ct_module *module, int parameter, ct_dims shape, ct__cut *cut); /* false: it is whole */
/* A rank's part of a layer that is not cut; NULL after an error. */
ct_module *ct__cut_columns(ct_module *linear, ct_dist_group *group);
ct_module *ct__cut_rows(ct_module *linear, ct_dist_group *group);
ct_module *ct__cut_heads(ct_module *attention, ct_dist_group *group);

bool ct__parallel_same(
    const ct_dist_parallel *parallel); /* parameters are those that it was made with; else an error */

#endif
