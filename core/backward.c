/* The engine: from cotangents of results to gradients of inputs, over the recorded graph, newest node first. */
#include <string.h>

#include "core/alloc.h"
#include "core/anomaly.h"
#include "core/backward.h"
#include "core/device.h"
#include "core/error.h"
#include "core/hot.h"
#include "core/map.h"
#include "gen/ops_decl.h"

enum { INLINE_SLOTS = 8 };

/* One pass. */
typedef struct pass {
    ct_map slots;   /* node -> ct_tensor *[n_out], the cotangents that have arrived, owned */
    ct_map needed;  /* node -> itself, when it leads to a wanted input; unused when every leaf is wanted */
    ct_map targets; /* node -> index + 1 of the first wanted input that it computed */
    ct_map uses;    /* leaf with a hook -> how many edges to it the pass has still to go through */
    ct_node **heap; /* nodes with a cotangent, newest first */
    size_t heap_count, heap_capacity;
    ct_tensor *const *xs;
    ct_tensor **grads; /* owned */
    int nx;
    unsigned flags;
    bool leaves; /* accumulate in every leaf (ct_backward) */
} pass;

static _Thread_local bool accumulates; /* the pass that goes on */
bool ct_backward_accumulates(void) { return accumulates; }

/* ---- The queue ---- */

CT__HOT static bool heap_push(pass *p, ct_node *node) {
    if (p->heap_count == p->heap_capacity) {
        size_t larger = p->heap_capacity ? 2 * p->heap_capacity : 64;
        ct_node **heap = ct__grow(p->heap, p->heap_capacity * sizeof *heap, larger * sizeof *heap);
        if (!heap) return ct__fail_memory("backward", larger * sizeof *heap);
        p->heap = heap;
        p->heap_capacity = larger;
    }
    size_t i = p->heap_count++;
    for (; i > 0 && p->heap[(i - 1) / 2]->sequence < node->sequence; i = (i - 1) / 2) p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = node;
    return true;
}

CT__HOT static ct_node *heap_pop(pass *p) {
    ct_node *top = p->heap[0], *last = p->heap[--p->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= p->heap_count) break;
        if (child + 1 < p->heap_count && p->heap[child + 1]->sequence > p->heap[child]->sequence) child++;
        if (p->heap[child]->sequence <= last->sequence) break;
        p->heap[i] = p->heap[child];
        i = child;
    }
    if (p->heap_count) p->heap[i] = last;
    return top;
}

/* ---- Cotangents ---- */

static size_t slot_bytes(const ct_node *node) { return (size_t)node->n_out * sizeof(ct_tensor *); }

/* Adds g (borrowed) to the cotangent of one result of node. */
CT__HOT static bool arrive(pass *p, ct_node *node, int output, ct_tensor *g) {
    void **found = ct__map_find(&p->slots, node);
    ct_tensor **cots;
    if (found) {
        cots = *found;
    } else {
        cots = ct__alloc(slot_bytes(node));
        if (!cots) return ct__fail_memory("backward", slot_bytes(node));
        memset(cots, 0, slot_bytes(node));
        if (!ct__map_put(&p->slots, node, cots)) {
            ct__free(cots, slot_bytes(node));
            return ct__fail_memory("backward", slot_bytes(node));
        }
        if (!heap_push(p, node)) { /* what is not in the queue would never be released */
            ct__free(ct__map_take(&p->slots, node), slot_bytes(node));
            return false;
        }
        ct__node_retain(node);
    }
    if (!cots[output]) {
        cots[output] = ct__tensor_retain(g);
        return true;
    }
    ct_tensor *sum = NULL;
    ct_scope {
        ct_tensor *before = cots[output];
        /* A sum of ours that nobody else sees can grow in place. */
        bool own = !ct__grad_mode && before->view.dtype == g->view.dtype && atomic_load(&before->refs) == 1 &&
                   atomic_load(&before->storage->refs) == 1 && !before->base && ct__view_is_dense(&before->view) &&
                   !before->node;
        sum = (own && ct_into(before)) ? ct_add(before, g) : ct_add(before, g);
        if (sum) ct__tensor_retain(sum);
    }
    if (!sum) return false;
    ct__tensor_release(cots[output]);
    cots[output] = sum;
    return true;
}

static bool run_hooks(ct_node *node, ct_tensor **cots) {
    for (ct_hook_entry *hook = node->hooks; hook; hook = hook->next) {
        ct_tensor *g = cots[hook->output];
        if (!g) continue;
        ct_tensor *changed = NULL;
        bool ok = true;
        ct_scope {
            changed = hook->fn(hook->context, g);
            if (changed && (changed->view.ndim != g->view.ndim ||
                            memcmp(changed->view.dims, g->view.dims, (size_t)g->view.ndim * sizeof(int64_t)) != 0 ||
                            changed->view.dtype != g->view.dtype))
                ok = ct_fail(CT_ERR_SHAPE, "hook", "it was given %s and returned %s", ct_view_text(&g->view),
                             ct_view_text(&changed->view));
            else if (changed) ct__tensor_retain(changed);
        }
        if (!ok || !ct_ok()) return false;
        if (!changed) continue;
        ct__tensor_release(g);
        cots[hook->output] = changed;
    }
    return true;
}

/* ---- Leaves ---- */

/* A gradient that the leaf can own and later add to: dense, and in memory of its own. */
static ct_tensor *own_gradient(ct_tensor *g) {
    bool own = atomic_load(&g->refs) == 1 && atomic_load(&g->storage->refs) == 1 && ct__view_is_dense(&g->view) &&
               g->view.offset == 0;
    /* another shape of what nobody else holds: the storage is as good as its own */
    if (own && g->base && atomic_load(&g->base->refs) == 1 && !g->node) return ct__tensor_new(&g->view, g->storage);
    own = own && !g->base;
    ct_tensor *mine = NULL;
    ct_scope {
        mine = own ? g : ct_clone(g);
        if (mine) ct__tensor_retain(mine);
    }
    return mine;
}

static bool accumulate(pass *p, ct_node *leaf, ct_tensor *g) {
    const bool keep = (p->flags & CT_CREATE_GRAPH) && g->node; /* a part of the graph; nobody writes into it */
    if (!leaf->grad) return (leaf->grad = keep ? ct__tensor_retain(g) : own_gradient(g)) != NULL;
    ct_tensor *sum = NULL;
    ct_scope {
        if (!(p->flags & CT_CREATE_GRAPH) && !leaf->grad->node) sum = ct_add_(leaf->grad, g);
        else sum = ct_add(leaf->grad, g);
        if (sum) ct__tensor_retain(sum);
    }
    if (!sum) return false;
    ct__tensor_release(leaf->grad);
    leaf->grad = sum;
    return true;
}

/* ---- One node ---- */

/* The gradient of a half that is nothing but an f32 cast may come in f32: the vjp of the cast has nothing to do then. Not where
 * somebody looks at it on the way. */
static bool takes_f32(const pass *p, const ct_node *from) {
    const bool cast = from->op == &ct__op_cast || from->op == &ct__op_convert;
    return cast && from->has_metas && from->metas[0].dtype == CT_F32 && !from->hooks && !ct__grad_mode &&
           !(p->targets.count && ct__map_find(&p->targets, from));
}

CT__HOT static bool check_gradient(const ct_node *node, int i, const ct_tensor *grad, bool wide) {
    if (!node->has_metas) return true;
    const ct_meta *meta = &node->metas[i];
    bool fits = (grad->view.dtype == meta->dtype || (wide && grad->view.dtype == CT_F32)) &&
                grad->view.ndim == meta->ndim &&
                memcmp(grad->view.dims, meta->dims, (size_t)meta->ndim * sizeof(int64_t)) == 0;
    if (fits) return true;
    ct_view expected = {.dtype = meta->dtype, .ndim = meta->ndim};
    memcpy(expected.dims, meta->dims, sizeof expected.dims);
    return ct_fail(CT_ERR_GRAD, node->op->name, "its vjp gave %s as the gradient of input %d, which is %s",
                   ct_view_text(&grad->view), i, ct_view_text(&expected));
}

/* Zeros of a result's shape, where no cotangent arrived. */
static ct_tensor *missing_cotangent(const ct_node *node, int output) {
    const ct_meta *meta = ct__node_output_meta(node, output);
    if (meta->ndim < 0 || !ct_dtype_is_float(meta->dtype)) return NULL;
    ct_dims shape = {.n = meta->ndim};
    memcpy(shape.d, meta->dims, (size_t)meta->ndim * sizeof(int64_t));
    ct_tensor *zero = ct_expand(ct_zeros(CT_DIMS0, .dtype = meta->dtype), shape); /* no memory for what is not there */
    return zero ? ct__tensor_retain(zero) : NULL;
}

/* Calls the op's vjp in a scope of its own and sends its gradients on. */
CT__HOT static bool differentiate(pass *p, ct_node *node, ct_tensor **cots) {
    const ct_op *op = node->op;
    if ((op->flags & CT_OP_NO_GRAD) || !op->vjp) return ct_fail(CT_ERR_GRAD, op->name, "this op is not differentiable");
    int n_in = node->n_in, n_out = node->n_out, slots = n_in + n_out;
    struct {
        ct_tensor *io[INLINE_SLOTS], *grad[INLINE_SLOTS];
        bool need[INLINE_SLOTS], wide[INLINE_SLOTS];
    } small;
    size_t bytes = (size_t)slots * (2 * sizeof(ct_tensor *) + 2 * sizeof(bool));
    char *block = slots > INLINE_SLOTS ? ct__alloc(bytes) : NULL;
    if (slots > INLINE_SLOTS && !block) return ct__fail_memory(op->name, bytes);
    ct_tensor **io = block ? (ct_tensor **)block : small.io;
    ct_tensor **grad = block ? io + slots : small.grad;
    bool *need = block ? (bool *)(grad + slots) : small.need, *wide = block ? need + slots : small.wide;
    bool attach = ct__grad_mode, ok = true;
    for (int i = 0; i < slots; i++) io[i] = NULL;
    for (int i = 0; i < n_in; i++) {
        grad[i] = NULL;
        ct_node *from = node->edges[i].node;
        need[i] = from && (p->leaves || ct__map_find(&p->needed, from));
        wide[i] = need[i] && takes_f32(p, from);
    }
    const ct_device current = ct__current_device;
    for (int i = 0; i < n_out; i++) /* what the vjp makes lands where its cotangents are */
        if (cots[i]) ct__current_device = cots[i]->storage->device;
    ct_scope {
        for (int i = 0; ok && i < n_out; i++)
            if (!cots[i] && n_out > 1 && !(op->flags & CT_OP_PARTIAL)) {
                cots[i] = missing_cotangent(node, i);
                ok = ct_ok();
            }
        for (int i = 0; ok && i < slots; i++) {
            if (!node->saved[i].wanted && !node->has_metas) continue; /* elementwise: not even the shape is read */
            io[i] = ct__node_unpack(node, i, attach);
            ok = ct_ok();
        }
        if (ok) {
            ct_vjp vjp = {.op = op,
                          .attrs = node->attrs,
                          .n_in = n_in,
                          .n_out = n_out,
                          .in = io,
                          .out = io + n_in,
                          .cot = cots,
                          .need = need,
                          .grad = grad,
                          .device = node->device,
                          .wide = wide};
            const char *called = ct__errors.called;
            if (!called) ct__errors.called = op->name, ct__errors.in_gradient = true;
            op->vjp(&vjp);
            if (!called) ct__errors.called = NULL, ct__errors.in_gradient = false;
            ok = ct_ok();
        }
        if (ok && ct__anomaly()) ok = ct__anomaly_check_grads(op, cots, n_out, grad, n_in);
        for (int i = 0; ok && i < n_in; i++)
            if (need[i] && grad[i])
                ok = check_gradient(node, i, grad[i], wide[i]) &&
                     arrive(p, node->edges[i].node, node->edges[i].output, grad[i]);
    }
    ct__current_device = current;
    for (int i = 0; i < slots; i++) ct__tensor_release(io[i]);
    ct__free(block, bytes);
    if (!(p->flags & (CT_RETAIN_GRAPH | CT_CREATE_GRAPH))) ct__node_drop_saved(node);
    return ok;
}

/* A node's cotangents are complete: hand them to whoever wants them, then go through the node. */
CT__HOT static bool process(pass *p, ct_node *node, ct_tensor **cots) {
    if (node->hooks && !run_hooks(node, cots)) return false;
    void **first = p->targets.count ? ct__map_find(&p->targets, node) : NULL;
    for (int i = first ? (int)(intptr_t)*first - 1 : p->nx; i < p->nx; i++)
        if (p->xs[i]->node == node && cots[p->xs[i]->node_output])
            p->grads[i] = ct__tensor_retain(cots[p->xs[i]->node_output]);
    if (!node->op) return !p->leaves || !cots[0] || accumulate(p, node, cots[0]);
    if (!p->leaves) {
        bool onward = false;
        for (int i = 0; i < node->n_in && !onward; i++)
            onward = node->edges[i].node && ct__map_find(&p->needed, node->edges[i].node);
        if (!onward) return true;
    }
    return differentiate(p, node, cots);
}

CT__HOT static void free_cotangents(ct_node *node, ct_tensor **cots) {
    for (int i = 0; i < node->n_out; i++) ct__tensor_release(cots[i]);
    ct__free(cots, slot_bytes(node));
}

/* A leaf is older than what is computed from it, so in order of age all leaves would come last. Those that somebody watches come as
 * soon as their gradient is complete: it is sent to other processes, say, while the rest is computed. They stay in the queue, without
 * cotangents. */
static bool process_watched(pass *p, const ct_node *node) {
    bool ok = true;
    for (int i = 0; ok && i < node->n_in; i++) {
        ct_node *leaf = node->edges[i].node;
        void **uses = leaf && !leaf->op && leaf->hooks ? ct__map_find(&p->uses, leaf) : NULL;
        if (!uses) continue;
        const intptr_t left = (intptr_t)*uses - 1;
        *uses = (void *)left;
        ct_tensor **cots = left == 0 && ct__map_find(&p->slots, leaf) ? ct__map_take(&p->slots, leaf) : NULL;
        if (!cots) continue;
        ok = process(p, leaf, cots);
        free_cotangents(leaf, cots);
    }
    return ok;
}

CT__HOT static bool run(pass *p) {
    bool ok = true;
    while (p->heap_count) {
        ct_node *node = heap_pop(p);
        ct_tensor **cots = ct__map_take(&p->slots, node);
        if (ok && cots) ok = process(p, node, cots); /* after an error only tidy up */
        if (ok && p->uses.count) ok = process_watched(p, node);
        if (cots) free_cotangents(node, cots);
        ct__node_release(node);
    }
    return ok;
}

/* ---- What is wanted ---- */

/* Marks every node from which a wanted input can be reached: depth first with a stack of our own, newest to oldest. */
typedef struct walk {
    ct_node **stack;
    size_t count, capacity;
} walk;

static bool walk_push(walk *w, ct_node *node) {
    if (w->count == w->capacity) {
        size_t larger = w->capacity ? 2 * w->capacity : 256;
        ct_node **stack = ct__grow(w->stack, w->capacity * sizeof *stack, larger * sizeof *stack);
        if (!stack) return ct__fail_memory("grad", larger * sizeof *stack);
        w->stack = stack;
        w->capacity = larger;
    }
    w->stack[w->count++] = node;
    return true;
}

static bool mark_needed(pass *p, ct_tensor *const *ys, int ny) {
    walk w = {0};
    ct_map seen = {0};            /* node -> (void *)1 while its inputs are being looked at, 2 when done */
    uint64_t oldest = UINT64_MAX; /* nothing older than every target can lead to one */
    bool ok = true;
    for (int i = 0; i < p->nx; i++)
        if (p->xs[i]->node->sequence < oldest) oldest = p->xs[i]->node->sequence;
    for (int i = 0; i < ny && ok; i++)
        if (ys[i]->node) ok = walk_push(&w, ys[i]->node);
    while (ok && w.count) {
        ct_node *node = w.stack[w.count - 1];
        void **state = ct__map_find(&seen, node);
        if (!state) {
            ok = ct__map_put(&seen, node, (void *)1);
            if (ok && ct__map_find(&p->targets, node)) ok = ct__map_put(&p->needed, node, node);
            for (int i = 0; ok && i < node->n_in; i++) {
                ct_node *from = node->edges[i].node;
                if (from && from->sequence >= oldest && !ct__map_find(&seen, from)) ok = walk_push(&w, from);
            }
            if (!ok && ct_ok()) ct__fail_memory("grad", 0);
            continue;
        }
        w.count--;
        if (*state == (void *)2) continue;
        *state = (void *)2;
        for (int i = 0; ok && i < node->n_in; i++) {
            ct_node *from = node->edges[i].node;
            if (!from || !ct__map_find(&p->needed, from)) continue;
            if (!ct__map_put(&p->needed, node, node)) ok = ct__fail_memory("grad", 0);
            break;
        }
    }
    ct__free(w.stack, w.capacity * sizeof *w.stack);
    ct__map_free(&seen);
    return ok;
}

/* Counts, for each leaf with a hook, the edges that lead to it from what ys were computed from. */
static bool count_uses(pass *p, ct_tensor *const *ys, int ny) {
    walk w = {0};
    ct_map seen = {0};
    bool ok = true;
    for (int i = 0; i < ny && ok; i++)
        if (ys[i]->node) ok = walk_push(&w, ys[i]->node);
    while (ok && w.count) {
        const ct_node *node = w.stack[--w.count];
        if (ct__map_find(&seen, node)) continue;
        ok = ct__map_put(&seen, node, (void *)1) || ct__fail_memory("backward", 0);
        for (int i = 0; ok && i < node->n_in; i++) {
            ct_node *from = node->edges[i].node;
            if (from && from->op) ok = ct__map_find(&seen, from) || walk_push(&w, from);
            if (!from || from->op || !from->hooks) continue;
            void **uses = ct__map_find(&p->uses, from);
            if (uses) *uses = (void *)((intptr_t)*uses + 1);
            else ok = ct__map_put(&p->uses, from, (void *)1) || ct__fail_memory("backward", 0);
        }
    }
    ct__free(w.stack, w.capacity * sizeof *w.stack);
    ct__map_free(&seen);
    return ok;
}

/* ---- Starting ---- */

static bool start(pass *p, const char *me, ct_tensor *y, ct_tensor *cotangent) {
    bool ok = true;
    ct_scope {
        if (!ct_dtype_is_float(y->view.dtype))
            ok = ct_fail(CT_ERR_GRAD, me, "y is %s; only floats have gradients", ct_view_text(&y->view));
        else if (!cotangent) {
            if (ct__view_count(&y->view) != 1)
                ok = ct_fail(CT_ERR_GRAD, me, "y is %s; only a result of one element needs no cotangent",
                             ct_view_text(&y->view));
            else ok = (cotangent = ct_ones(ct_shape(y), .dtype = y->view.dtype, .device = ct_device_of(y))) != NULL;
        } else if (cotangent->view.dtype != y->view.dtype || cotangent->view.ndim != y->view.ndim ||
                   memcmp(cotangent->view.dims, y->view.dims, (size_t)y->view.ndim * sizeof(int64_t)) != 0) {
            ok = ct_fail(CT_ERR_SHAPE, me, "the cotangent is %s and has to be like y, %s",
                         ct_view_text(&cotangent->view), ct_view_text(&y->view));
        }
        /* a constant contributes nothing */
        ok = ok && (!y->node || arrive(p, y->node, y->node_output, cotangent));
    }
    return ok;
}

static void finish(pass *p) {
    ct__map_free(&p->slots);
    ct__map_free(&p->needed);
    ct__map_free(&p->targets);
    ct__map_free(&p->uses);
    ct__free(p->heap, p->heap_capacity * sizeof *p->heap);
}

bool ct__backward_pass(const char *me, ct_tensor *const *ys, int ny, ct_tensor *const *cotangents, ct_tensor *const *xs,
                       int nx, ct_tensor **grads, unsigned flags) {
    pass p = {.xs = xs, .grads = grads, .nx = nx, .flags = flags, .leaves = grads == NULL};
    bool ok = true, before = ct_set_grad_enabled((flags & CT_CREATE_GRAPH) != 0);
    const bool around = accumulates; /* this one may be part of another's derivative */
    accumulates = p.leaves;
    const ct_dtype autocast = ct__autocast;
    ct__autocast = CT_F32; /* the graph has its dtypes already */
    for (int i = nx - 1; ok && i >= 0; i--)
        ok = ct__map_put(&p.targets, xs[i]->node, (void *)(intptr_t)(i + 1)) || ct__fail_memory(me, 0);
    if (ok && !p.leaves) ok = mark_needed(&p, ys, ny);
    if (ok && p.leaves && atomic_load(&ct__leaf_hooks) > 0) ok = count_uses(&p, ys, ny);
    for (int i = 0; ok && i < ny; i++) ok = start(&p, me, ys[i], cotangents ? cotangents[i] : NULL);
    if (!ok) p.flags |= CT_RETAIN_GRAPH; /* nothing has been used yet */
    if (ok) ok = run(&p);
    else
        while (p.heap_count) {
            ct_node *node = heap_pop(&p);
            free_cotangents(node, ct__map_take(&p.slots, node));
            ct__node_release(node);
        }
    finish(&p);
    ct_set_grad_enabled(before);
    ct__autocast = autocast;
    accumulates = around;
    return ok;
}
