/* Recording: making nodes, saving what their derivatives read, and letting graphs of any depth go. */
#include "core/node.h"
#include "core/hot.h"

#include <string.h>

#include "core/alloc.h"
#include "core/checkpoint.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/number.h"

_Atomic int64_t ct__leaf_hooks;
static _Atomic uint64_t next_sequence = 1;
static _Thread_local ct_node *dead; /* a worklist, so that a chain of a million ops needs no stack */
static _Thread_local bool burying;

static size_t aligned(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

CT__HOT static ct_node *node_new(const ct_op *op, int n_in, int n_out, bool input_metas, size_t attr_size) {
    size_t slots = (size_t)(n_in + n_out), metas = input_metas ? slots : (size_t)n_out;
    size_t edges_at = aligned(sizeof(ct_node)), saved_at = edges_at + aligned((size_t)n_in * sizeof(ct_edge));
    size_t metas_at = saved_at + aligned(slots * sizeof(ct_saved)),
           attrs_at = metas_at + aligned(metas * sizeof(ct_meta));
    size_t bytes = attrs_at + attr_size;
    char *block = ct__alloc(bytes);
    if (!block) {
        ct__fail_memory(op ? op->name : "set_requires_grad", bytes);
        return NULL;
    }
    ct_node *node = (ct_node *)block;
    *node = (ct_node){.n_in = n_in, .n_out = n_out, .op = op, .bytes = bytes, .has_metas = input_metas};
    atomic_init(&node->refs, 1);
    node->sequence = atomic_fetch_add_explicit(&next_sequence, 1, memory_order_relaxed);
    node->edges = (ct_edge *)(block + edges_at);
    node->saved = (ct_saved *)(block + saved_at);
    node->metas = (ct_meta *)(block + metas_at);
    node->attrs = attr_size ? block + attrs_at : NULL;
    memset(node->saved, 0, slots * sizeof(ct_saved));
    ct__live_add(1);
    return node;
}

static void set_meta(ct_meta *meta, const ct_view *view) {
    meta->dtype = view->dtype;
    meta->ndim = view->ndim;
    for (int i = 0; i < view->ndim; i++) meta->dims[i] = view->dims[i];
}

ct_node *ct__node_leaf(const ct_tensor *x) {
    ct_node *node = node_new(NULL, 0, 1, false, 0);
    if (node) set_meta(&node->metas[0], &x->view);
    return node;
}

CT__HOT void ct__node_drop_saved(ct_node *node) {
    node->released = true;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        ct_tensor *tensor = node->saved[i].tensor;
        node->saved[i].tensor = NULL;
        ct__tensor_release(tensor);
    }
}

static void bury(ct_node *node) {
    ct__node_drop_saved(node);
    for (int i = 0; i < node->n_in; i++)
        if (node->edges[i].node) ct__node_release(node->edges[i].node);
    while (node->hooks) {
        ct_hook_entry *hook = node->hooks;
        node->hooks = hook->next;
        if (!node->op) atomic_fetch_sub(&ct__leaf_hooks, 1);
        if (hook->release) hook->release(hook->context);
        ct__free(hook, sizeof *hook);
    }
    ct__tensor_release(node->grad);
    if (node->region) ct__region_release(node->region);
    ct__live_add(-1);
    ct__free(node, node->bytes);
}

CT__HOT void ct__node_release(ct_node *node) {
    if (atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) != 1) return;
    node->next_dead = dead;
    dead = node;
    if (burying) return;
    burying = true;
    while (dead) {
        ct_node *next = dead;
        dead = next->next_dead;
        bury(next);
    }
    burying = false;
}

static bool is_listed(const ct_tensor *x, ct_tensor *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i] == x) return true;
    return false;
}

CT__HOT bool ct__record(const ct_op *op, ct_tensor *const *in, int n_in, const void *attrs, ct_tensor *const *out,
                        int n_out, const uint32_t *versions) {
    bool elementwise = op->flags & CT_OP_ELEMENTWISE;
    ct_node *node = node_new(op, n_in, n_out, !elementwise, op->attr_size);
    if (!node) return false;
    if (node->attrs) memcpy(node->attrs, attrs, op->attr_size);
    for (int i = 0; i < n_in; i++) {
        if (in[i] && in[i]->storage) node->device = in[i]->storage->device;
        bool wants = in[i] && in[i]->node && ct__dtype_is_float(in[i]->view.dtype);
        node->edges[i].node = wants ? ct__node_retain(in[i]->node) : NULL;
        node->edges[i].output = wants ? in[i]->node_output : 0;
        if (!elementwise) {
            if (in[i]) set_meta(&node->metas[i], &in[i]->view);
            else node->metas[i].ndim = -1; /* skipped */
        }
    }
    ct_meta *out_metas = node->metas + (elementwise ? 0 : n_in);
    for (int i = 0; i < n_out; i++) {
        if (out[i]) set_meta(&out_metas[i], &out[i]->view);
        else out_metas[i].ndim = -1;
    }
    bool ok = true;
    ct_saves saves = {op->saves_in, op->saves_out};
    if (op->saves_for) { /* only what the wanted gradients read */
        saves = (ct_saves){0};
        for (int i = 0; i < n_in; i++) {
            if (!node->edges[i].node) continue;
            saves.in |= op->saves_for[i].in;
            saves.out |= op->saves_for[i].out;
        }
    }
    if (op->saves_less) {
        ct_saving saving = {op, attrs, n_in, n_out, in, out, node->device, saves};
        op->saves_less(&saving);
        saves = (ct_saves){saves.in & saving.saves.in, saves.out & saving.saves.out};
    }
    if ((op->flags & CT_OP_RECOMPUTE) && saves.out && out[0] && ct__dtype_is_half(out[0]->view.dtype) &&
        !(elementwise && is_listed(out[0], in, n_in)))
        saves = (ct_saves){~(uint64_t)0, 0};
    node->region = ct__region_enter_node(node);
    bool keep = node->region == NULL;
    for (int i = 0; i < n_in && ok; i++) {
        if (!in[i] || !(saves.in >> (i < 63 ? i : 63) & 1)) continue; /* a list sets all bits from its own on */
        ct_saved *saved = &node->saved[i];
        saved->wanted = true;
        saved->version = versions[i];
        /* what is changed in place is going to hold this node, so the node must not hold it */
        if (keep && is_listed(in[i], out, n_out))
            ok = (saved->tensor = ct__tensor_new(&in[i]->view, in[i]->storage)) != NULL;
        else if (keep && in[i]->storage) saved->tensor = ct__tensor_retain(in[i]);
        else if (keep) ok = (saved->tensor = ct__number_hold(in[i])) != NULL;
        else ok = ct__region_save(node->region, in[i]);
    }
    for (int i = 0; i < n_out && ok; i++) {
        if (!out[i] || !(saves.out >> (i < 63 ? i : 63) & 1)) continue;
        ct_saved *saved = &node->saved[n_in + i];
        saved->wanted = true;
        saved->version = atomic_load(&out[i]->storage->version);
        if (keep) ok = (saved->tensor = ct__tensor_new(&out[i]->view, out[i]->storage)) != NULL; /* without its node */
        else ok = ct__region_save(node->region, out[i]);
    }
    for (int i = 0; i < n_out && ok; i++) {
        if (!out[i] || !ct__dtype_is_float(out[i]->view.dtype)) continue;
        ct_node *before = out[i]->node; /* of a tensor changed in place */
        out[i]->node = ct__node_retain(node);
        out[i]->node_output = i;
        if (before) ct__node_release(before);
    }
    ct__node_release(node); /* the outputs hold it now */
    return ok;
}

const ct_meta *ct__node_output_meta(const ct_node *node, int output) {
    return &node->metas[node->has_metas ? node->n_in + output : output];
}

ct_tensor *ct__node_shape_only(const ct_node *node, int slot) {
    const ct_meta *meta = slot >= node->n_in ? ct__node_output_meta(node, slot - node->n_in)
                          : node->has_metas  ? &node->metas[slot]
                                             : &node->metas[0];
    if (meta->ndim < 0) return NULL;
    ct_view view = {.dtype = meta->dtype, .ndim = meta->ndim};
    for (int i = 0; i < meta->ndim; i++) view.dims[i] = meta->dims[i];
    ct__view_dense_strides(&view);
    return ct__tensor_new(&view, NULL);
}

static const char *slot_name(const ct_node *node, int slot) {
    const ct_arg *args = slot < node->n_in ? node->op->inputs : node->op->outputs;
    int index = slot < node->n_in ? slot : slot - node->n_in;
    for (int i = 0; args[i].name; i++)
        if (i == index || args[i + 1].name == NULL) return args[i].name;
    return "?";
}

ct_tensor *ct__node_unpack(ct_node *node, int slot, bool attach) {
    ct_saved *saved = &node->saved[slot];
    const char *name = node->op->name;
    if (!saved->wanted) return ct__node_shape_only(node, slot);
    ct_tensor *tensor = saved->tensor;
    if (!tensor && node->region && !node->released) tensor = ct__region_load(node, slot);
    if (!tensor) {
        if (!ct__pending())
            ct_fail(CT_ERR_GRAD, name,
                    "backward has run through this graph already and released what it saved; pass CT_RETAIN_GRAPH to "
                    "the first pass");
        return NULL;
    }
    if (ct__is_number(tensor)) return ct__tensor_retain(tensor);
    if (tensor == saved->tensor && atomic_load(&tensor->storage->version) != saved->version) {
        ct_fail(CT_ERR_GRAD, name,
                "%s %s was changed in place after the op ran, and its gradient needs the old values; clone it first, "
                "or change it out of place",
                slot < node->n_in ? "argument" : "result", slot_name(node, slot));
        return NULL;
    }
    /* An input's handle is at its place in the graph already, unless it was recomputed; an output's never is. */
    ct_edge edge = slot < node->n_in ? node->edges[slot] : (ct_edge){node, slot - node->n_in};
    if (!attach || (tensor->node == edge.node && tensor->node_output == edge.output)) return ct__tensor_retain(tensor);
    ct_tensor *placed = ct__tensor_new(&tensor->view, tensor->storage);
    if (placed && edge.node && ct__dtype_is_float(placed->view.dtype)) {
        placed->node = ct__node_retain(edge.node);
        placed->node_output = edge.output;
    }
    return placed;
}
