/* The graph that recording builds: a node an op call, an edge an input that wants a gradient. */
#ifndef COTANGENT_CORE_NODE_H
#define COTANGENT_CORE_NODE_H

#include "core/tensor.h"

typedef struct ct_edge {
    ct_node *node; /* NULL: this input wants no gradient */
    int output;    /* which result of node it is */
} ct_edge;

/* A tensor that vjp will read. Inputs keep their handle; of outputs only the storage is held (through a handle without a
 * node), so a node never owns itself. */
typedef struct ct_saved {
    ct_tensor *tensor; /* NULL: not saved, or to be recomputed */
    uint32_t version;
    bool wanted;
} ct_saved;

typedef struct ct_meta {
    ct_dtype dtype;
    int ndim;
    int64_t dims[CT_MAX_DIMS];
} ct_meta;

typedef struct ct_hook_entry {
    struct ct_hook_entry *next;
    int output;
    ct_hook_fn fn;
    void *context;
    void (*release)(void *context);
} ct_hook_entry;

typedef struct ct_region ct_region; /* a checkpointed stretch: see checkpoint.h */

/* One block of memory: the header, then edges, saved, metas and attributes. A leaf has op NULL and a grad. */
struct ct_node {
    _Atomic int refs;
    int n_in, n_out;
    uint64_t sequence; /* larger than that of every node it depends on */
    const ct_op *op;
    ct_device device; /* of its inputs */
    size_t bytes;
    bool has_metas, released;
    ct_edge *edges;
    ct_saved *saved; /* n_in of the inputs, then n_out of the outputs */
    ct_meta *metas;  /* likewise; elementwise ops keep only those of the outputs */
    void *attrs;
    ct_hook_entry *hooks;
    ct_tensor *grad; /* of a leaf */
    ct_region *region;
    int64_t region_save; /* index of its first saved tensor in the region */
    ct_node *next_dead;
};

ct_node *ct__node_leaf(const ct_tensor *x); /* NULL after an error */
static inline ct_node *ct__node_retain(ct_node *node) {
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}
void ct__node_release(ct_node *node);
extern _Atomic int64_t ct__leaf_hooks; /* hooks on leaves, of all threads */
void ct__node_drop_saved(ct_node *node);

/* Records a call: the outputs that can carry a gradient get the new node. Inputs hold their nodes from before the call. */
bool ct__record(const ct_op *op, ct_tensor *const *in, int n_in, const void *attrs, ct_tensor *const *out, int n_out,
                const uint32_t *versions);
/* The tensor saved at slot (inputs first), with its place in the graph when attach; owned by the caller. */
ct_tensor *ct__node_unpack(ct_node *node, int slot, bool attach);
ct_tensor *ct__node_shape_only(const ct_node *node, int slot); /* owned by the caller */
const ct_meta *ct__node_output_meta(const ct_node *node, int output);

extern _Thread_local bool ct__grad_mode;
extern _Thread_local ct_dtype ct__autocast; /* CT_F32: off */

#endif
