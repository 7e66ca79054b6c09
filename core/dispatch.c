/* Dispatch: one way for every call of every op. Check the arguments, make shapes and dtypes agree, infer the results, choose a
 * kernel or lower, run, record. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/anomaly.h"
#include "core/attrs.h"
#include "core/checkpoint.h"
#include "core/device.h"
#include "core/device_memory.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/inplace.h"
#include "core/log.h"
#include "core/node.h"
#include "core/registry.h"
#include "core/rng.h"
#include "core/stream.h"
#include "core/thread_block.h"
#include "core/threads.h"
#include "gen/ops_decl.h"

enum { INLINE_INPUTS = 8, INLINE_OUTPUTS = 4 };

/* A call on its way through the stages below. */
typedef struct request {
    const ct_op *op;
    const void *attrs;
    ct_tensor **in; /* the caller's, then cast and expanded; borrowed */
    int n_in;
    ct_tensor **out; /* owned until they are handed over */
    int n_out;
    const bool *want;
    ct_rng *rng;
    ct_random random;
    uint32_t *versions; /* of the inputs before the run */
    ct_tensor *target;  /* where output 0 has to go, or NULL */
    ct_device device;
    ct_device wanted; /* of an op that transfers: where its result goes */
    bool recording;
} request;

static _Thread_local ct_tensor *into_target;

static _Thread_local bool into_retained;
static _Thread_local uint32_t into_raised; /* errors so far: after another one the call it was for has failed */

static void forget_target(void) {
    if (into_retained) ct__tensor_release(into_target);
    into_retained = false;
    into_target = NULL;
}

bool ct__into(ct_tensor *dst, const char *op, const char *argument) {
    if (ct__pending() || !ct__writable(dst, op, argument)) return false;
    forget_target(); /* of a call that never came */
    into_target = dst;
    into_raised = ct__errors.raised;
    return true;
}

/* The program may let go of dst before its next call: until then it is held here. */
bool ct_into(ct_tensor *dst) {
    if (!ct__into(dst, "into", "dst")) return false;
    ct__tensor_retain(dst);
    into_retained = true;
    return true;
}

static const ct_arg *input_arg(const ct_op *op, int i, int *last) {
    while (*last < i && op->inputs[*last + 1].name && !(op->inputs[*last].flags & CT_ARG_LIST)) ++*last;
    return &op->inputs[*last];
}

/* ---- Arguments ---- */

static bool check_counts(const ct_op *op, ct_tensor *const *inputs, int n, ct_tensor **outputs, int m,
                         const bool *want) {
    int named = 0;
    bool list = false, list_out = op->outputs[0].flags & CT_ARG_LIST;
    for (; op->inputs[named].name; named++) list = op->inputs[named].flags & CT_ARG_LIST;
    if (list ? n < named - 1 : n != named)
        return ct_fail(CT_ERR_VALUE, op->name, "takes %s%d inputs, not %d", list ? "at least " : "",
                       list ? named - 1 : named, n);
    if (!inputs && n) return ct__fail_null(op->name, "inputs");
    if (!outputs || m < 1) return ct__fail_null(op->name, "outputs");
    for (int i = 0; !list_out && i < m; i++)
        if (!op->outputs[i].name) return ct_fail(CT_ERR_VALUE, op->name, "has %d results, not %d", i, m);
    /* an internal op is called by code that knows which of its results it can be without; not the only one, unless it is what
     * the op changes that matters */
    const bool knows = (op->flags & CT_OP_INTERNAL) && (m > 1 || (op->flags & CT_OP_MUTATES));
    for (int i = 0; want && i < m && !knows; i++)
        if (!want[i] && (list_out || !(op->outputs[i].flags & CT_ARG_OPTIONAL)))
            return ct_fail(CT_ERR_VALUE, op->name, "result %d, %s, is always computed; it cannot be left out", i,
                           op->outputs[list_out ? 0 : i].name);
    return true;
}

static bool replace(ct_tensor **in, ct_tensor *by) {
    if (by) *in = by;
    return by != NULL;
}

/* Dtypes: promotion among the inputs that declare it, then floats where floats are asked for. */
static bool agree_dtypes(const ct_op *op, ct_tensor **in, int n) {
    ct_dtype common = CT_BOOL;
    bool any = false;
    int last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(input_arg(op, i, &last)->flags & CT_ARG_PROMOTE)) continue;
        common = any ? ct_dtype_promote(common, in[i]->view.dtype) : in[i]->view.dtype;
        any = true;
    }
    last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i]) continue;
        const ct_arg *arg = input_arg(op, i, &last);
        ct_dtype dtype = in[i]->view.dtype, wanted = arg->flags & CT_ARG_PROMOTE ? common : dtype;
        if ((arg->flags & CT_ARG_FLOAT) && !ct_dtype_is_float(wanted)) {
            if (!ct_dtype_is_int(wanted) && wanted != CT_BOOL)
                return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; there is no arithmetic on %s, cast it first",
                               arg->name, ct_view_text(&in[i]->view), ct_dtype_name(dtype));
            wanted = CT_F32;
        }
        if ((arg->flags & CT_ARG_INDEX) && dtype != CT_I32 && dtype != CT_I64)
            return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; indices are i32 or i64", arg->name,
                           ct_view_text(&in[i]->view));
        if ((arg->flags & CT_ARG_BOOL) && dtype != CT_BOOL)
            return ct_fail(CT_ERR_DTYPE, op->name, "%s is %s; it has to be bool", arg->name,
                           ct_view_text(&in[i]->view));
        if (wanted != dtype && !replace(&in[i], ct_cast(in[i], wanted))) return false;
    }
    return true;
}

/* Mixed precision. An f64 among the inputs says that the caller wants more precision, not less. What the op changes is
 * given as it is: the change of a copy would be lost. */
static bool autocast(const ct_op *op, ct_tensor **in, int n) {
    const ct_dtype to = op->flags & CT_OP_NARROW ? ct__autocast : CT_F32;
    int last = 0;
    for (int i = 0; i < n; i++)
        if (in[i] && in[i]->view.dtype == CT_F64) return true;
    for (int i = 0; i < n; i++) {
        if (!in[i] || in[i]->view.dtype == to || !ct__dtype_is_float(in[i]->view.dtype)) continue;
        if (input_arg(op, i, &last)->flags & CT_ARG_MUTATED) continue;
        if (!replace(&in[i], ct_cast(in[i], to))) return false;
    }
    return true;
}

/* Names the two arguments that disagree about a dimension, counted from the last. */
static bool fail_broadcast(const ct_op *op, ct_tensor *const *in, int i, int d, int64_t expected) {
    int last = 0, first = 0;
    const char *names[2] = {"", ""};
    for (int j = 0; j <= i; j++) {
        const ct_arg *arg = input_arg(op, j, &last);
        if (!in[j] || !(arg->flags & CT_ARG_BROADCAST)) continue;
        const ct_view *view = &in[j]->view;
        if (j == i) names[1] = arg->name;
        if (j < i && d < view->ndim && view->dims[view->ndim - 1 - d] == expected && !names[0][0]) {
            names[0] = arg->name;
            first = j;
        }
    }
    const ct_view *a = &in[first]->view, *b = &in[i]->view;
    return ct_fail(CT_ERR_SHAPE, op->name, "shapes do not broadcast: %s is %s, %s is %s (%lld vs %lld)", names[0],
                   ct_view_text(a), names[1], ct_view_text(b), (long long)expected,
                   (long long)b->dims[b->ndim - 1 - d]);
}

/* Shapes: those that broadcast are expanded to their common shape, a stride-0 view. */
static bool agree_shapes(const ct_op *op, ct_tensor **in, int n) {
    ct_dims common = {.n = 0};
    int last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(input_arg(op, i, &last)->flags & CT_ARG_BROADCAST)) continue;
        const ct_view *view = &in[i]->view;
        ct_dims merged = {.n = view->ndim > common.n ? view->ndim : common.n};
        for (int d = 0; d < merged.n; d++) { /* counted from the last dimension */
            int64_t a = d < common.n ? common.d[common.n - 1 - d] : 1,
                    b = d < view->ndim ? view->dims[view->ndim - 1 - d] : 1;
            if (a != b && a != 1 && b != 1) return fail_broadcast(op, in, i, d, a);
            merged.d[merged.n - 1 - d] = a == 1 ? b : a;
        }
        common = merged;
    }
    last = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(input_arg(op, i, &last)->flags & CT_ARG_BROADCAST)) continue;
        const ct_view *view = &in[i]->view;
        bool same = view->ndim == common.n && memcmp(view->dims, common.d, (size_t)common.n * sizeof(int64_t)) == 0;
        if (!same && !replace(&in[i], ct_expand(in[i], common))) return false;
    }
    return true;
}

/* NULLs, released tensors, devices. Sets *uniform when neither shapes nor dtypes need work. */
static bool check_inputs(request *r, bool *uniform) {
    const ct_op *op = r->op;
    const ct_view *broadcast = NULL;
    ct_dtype promote = CT_DTYPE_COUNT;
    int last = 0;
    bool device_set = false;
    *uniform = true;
    for (int i = 0; i < r->n_in; i++) {
        const ct_arg *arg = input_arg(op, i, &last);
        ct_tensor *x = r->in[i];
        if (!x) {
            /* While an error is pending, nobody knows whether it was left out or is what failed. */
            if ((arg->flags & CT_ARG_OPTIONAL) && !ct__pending()) continue;
            return ct__fail_null(op->name, arg->name);
        }
        if (!ct__valid(x, op->name, arg->name)) return false;
        /* of a list the op changes some, and knows which */
        if ((arg->flags & CT_ARG_MUTATED) && !(arg->flags & CT_ARG_LIST) && !ct__writable(x, op->name, arg->name))
            return false;
        if (!x->storage)
            return ct_fail(CT_ERR_STATE, op->name, "%s has a shape but no data: a vjp reads only what its op saves",
                           arg->name);
        if (x->base && x->changes != x->base->changes && !ct__view_refresh(x)) return false;
        if (!device_set) {
            r->device = x->storage->device;
            device_set = true;
        } else if (!ct__same_device(x->storage->device, r->device)) {
            return ct_fail(CT_ERR_DEVICE, op->name,
                           "%s is on %s and the arguments before it on %s; bring it over: ct_to", arg->name,
                           ct_device_text(x->storage->device), ct_device_text(r->device));
        }
        if (arg->flags & (CT_ARG_INDEX | CT_ARG_BOOL)) *uniform = false;
        if ((arg->flags & CT_ARG_FLOAT) && !ct__dtype_is_float(x->view.dtype)) *uniform = false;
        if (arg->flags & CT_ARG_PROMOTE) {
            if (promote == CT_DTYPE_COUNT) promote = x->view.dtype;
            if (promote != x->view.dtype) *uniform = false;
        }
        if (arg->flags & CT_ARG_BROADCAST) {
            if (!broadcast) broadcast = &x->view;
            if (!ct__view_same_shape(broadcast, &x->view)) *uniform = false;
        }
    }
    return true;
}

/* ---- Choice of a kernel ---- */

/* The choice for one combination of op, attributes, dtypes, shapes and strides is remembered, a few hundred a thread. */
enum { CHOICES = 512 };
typedef struct choice {
    uint64_t key;
    const ct_kernel *list, *kernel;
} choice;

static choice *remembered(uint64_t key) { /* where the choice for key is, or would be; NULL: there is no memory */
    static _Thread_local choice *choices;
    if (!choices && !ct__thread_block((void **)&choices, CHOICES * sizeof *choices)) return NULL;
    return &choices[key % CHOICES];
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash ^= word;
    hash *= 0x9FB21C651E98DF25ull;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const char *at = bytes;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, at, size);
    return mix(hash, rest);
}

static uint64_t hash_view(uint64_t hash, const ct_view *view) {
    if (!view) return mix(hash, 0x51);
    hash = mix(hash, (uint64_t)view->dtype << 8 | (uint64_t)view->ndim);
    hash = hash_bytes(hash, view->dims, (size_t)view->ndim * sizeof view->dims[0]);
    return hash_bytes(hash, view->strides, (size_t)view->ndim * sizeof view->strides[0]);
}

static const ct_kernel *choose(const ct_call *call, ct_device device, char *refusals, size_t room) {
    const ct_kernel *list = ct__kernels_of(call->op, device.type);
    if (!list || !list->name) return NULL;
    bool single = list[1].name == NULL;
    if (single && !list->can) return list;
    uint64_t key = 0;
    choice *known = NULL;
    if (!single && !refusals) {
        key = mix((uintptr_t)call->op, (uint64_t)device.type);
        key = hash_bytes(key, call->attrs, call->attrs ? call->op->attr_size : 0);
        for (int i = 0; i < call->n_in; i++) key = hash_view(key, call->in[i]);
        for (int i = 0; i < call->n_out; i++) key = hash_view(key, call->out[i]);
        known = remembered(key);
        if (known && known->key == key && known->list == list) return known->kernel;
    }
    const ct_kernel *found = NULL;
    for (const ct_kernel *kernel = list; kernel->name && !found; kernel++) {
        const char *reason = kernel->can ? kernel->can(call) : NULL;
        if (!reason) found = kernel;
        else if (refusals && strlen(refusals) < room)
            snprintf(refusals + strlen(refusals), room - strlen(refusals), " (%s: %s)", kernel->name, reason);
    }
    if (known) *known = (choice){key, list, found};
    return found;
}

/* ---- Running ---- */

static bool run_kernel(ct_call *call, const ct_kernel *kernel) {
    ct__threads_hold(true);
    size_t bytes = kernel->scratch ? kernel->scratch(call) : 0;
    ct_block *block = NULL;
    bool ok = !bytes || ct__scratch_take(call->device, call->stream, bytes, &call->scratch, &block);
    call->kernel = kernel;
    if (ok) {
        ok = kernel->run(call, call->stream);
        if (bytes) ct__scratch_give(call->device, &call->scratch, block);
    } else {
        ct__fail_memory(call->op->name, bytes);
    }
    ct__threads_hold(false);
    return ok;
}

/* Takes over what lower made: new handles for results that are arguments, casts back to half. */
static bool adopt_lowered(request *r, ct_tensor **made, const ct_dtype *dtypes, const ct_view *views) {
    for (int i = 0; i < r->n_out; i++) {
        if (!r->want[i]) continue;
        ct_tensor *y = made[i];
        if (!y) return ct__pending() ? false : ct_fail(CT_ERR_STATE, r->op->name, "its lowering gave no result %d", i);
        if (views && !ct__view_same_shape(&y->view, &views[i]))
            return ct_fail(CT_ERR_SHAPE, r->op->name, "its lowering gave %s as result %d, where its infer said %s",
                           ct_view_text(&y->view), i, ct_view_text(&views[i]));
        if (dtypes[i] != CT_DTYPE_COUNT && y->view.dtype != dtypes[i] && !(y = ct_cast(y, dtypes[i]))) return false;
        if (r->recording && y->node) { /* recorded at this level, by vjp: cut the lower level's graph */
            if (!(y = ct_detach(y))) return false;
        } else {
            for (int j = 0; j < r->n_in && r->recording; j++)
                if (y == r->in[j] && !(y = ct_detach(y))) return false;
        }
        r->out[i] = ct__tensor_retain(y);
    }
    return true;
}

static ct_dtype half_among(const request *r) {
    ct_dtype half = CT_DTYPE_COUNT;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        ct_dtype dtype = r->in[i]->view.dtype;
        if (dtype == CT_F32 || dtype == CT_F64) return CT_DTYPE_COUNT;
        if (dtype == CT_F16 || dtype == CT_BF16) half = half == CT_DTYPE_COUNT || half == dtype ? dtype : CT_F32;
    }
    return half;
}

/* The op in simpler ops. Half inputs are computed in f32 and rounded once at the end. */
static bool run_lower(request *r, const ct_view *views) {
    const ct_op *op = r->op;
    size_t slots = (size_t)(r->n_in + r->n_out);
    ct_tensor **in = ct__alloc(slots * sizeof *in);
    ct_dtype *dtypes = ct__alloc((size_t)r->n_out * sizeof *dtypes);
    bool ok = in && dtypes;
    if (!ok) ct__fail_memory(op->name, slots * sizeof *in);
    ct_tensor **made = in + r->n_in;
    bool before = ct__grad_mode;
    ct_dtype autocast_before = ct__autocast;
    ct__autocast = CT_F32;                   /* this op's inputs have been cast */
    if (r->recording) ct__grad_mode = false; /* the node is made at this level */
    ct_scope {
        bool widening = !(op->flags & CT_OP_MOVES);
        ct_dtype half = widening ? half_among(r) : CT_DTYPE_COUNT;
        for (int i = 0; ok && i < r->n_in; i++) {
            in[i] = r->in[i];
            bool widen = widening && in[i] && (in[i]->view.dtype == CT_F16 || in[i]->view.dtype == CT_BF16);
            if (widen && !(in[i] = ct_cast(in[i], CT_F32))) ok = false;
        }
        for (int i = 0; ok && i < r->n_out; i++) {
            made[i] = NULL;
            dtypes[i] = views ? views[i].dtype : CT_DTYPE_COUNT;
        }
        if (ok) {
            ct_lower lower = {.op = op,
                              .attrs = r->attrs,
                              .n_in = r->n_in,
                              .n_out = r->n_out,
                              .in = in,
                              .out = made,
                              .want = r->want,
                              .device = r->wanted,
                              .random = &r->random};
            op->lower(&lower);
            for (int i = 0; !views && half != CT_DTYPE_COUNT && i < r->n_out; i++)
                if (made[i] && made[i]->view.dtype == CT_F32) dtypes[i] = half;
            ok = adopt_lowered(r, made, dtypes, views);
        }
    }
    ct__grad_mode = before;
    ct__autocast = autocast_before;
    ct__free(in, slots * sizeof *in);
    ct__free(dtypes, (size_t)r->n_out * sizeof *dtypes);
    return ok;
}

static bool is_same_place(const request *r, const ct_view *view) {
    bool pointwise = r->op->flags & (CT_OP_ELEMENTWISE | CT_OP_ALIAS_OK);
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i] || r->in[i]->storage != r->target->storage) continue;
        if (!pointwise || !ct__view_same_layout(&r->in[i]->view, view)) return false;
    }
    return true;
}

/* A tensor for each wanted result: a view of the first input, the destination that was given, or fresh memory. */
static bool make_outputs(request *r, ct_view *views) {
    for (int i = 0; i < r->n_out; i++) {
        if (!r->want[i]) continue;
        if (r->op->flags & CT_OP_VIEW) r->out[i] = ct__tensor_view(&views[i], r->in[0]);
        else if (i == 0 && r->target && is_same_place(r, &r->target->view)) r->out[i] = ct__tensor_retain(r->target);
        else r->out[i] = ct__tensor_dense(&views[i], r->device, r->op->name);
        if (!r->out[i]) return false;
    }
    return true;
}

static bool check_target(const request *r, const ct_view *view) {
    const ct_view *dst = &r->target->view;
    if (dst->dtype == view->dtype && ct__view_same_shape(dst, view)) return true;
    return ct_fail(CT_ERR_SHAPE, r->op->name, "the result is %s and does not fit into dst, which is %s",
                   ct_view_text(view), ct_view_text(dst));
}

/* Moves a result that could not be computed in place to the destination it was given. */
static bool move_to_target(request *r) {
    if (!r->target || r->out[0] == r->target) return true;
    ct_tensor *made = r->out[0], *moved = NULL;
    if (!check_target(r, &made->view)) return false;
    bool before = ct__grad_mode;
    ct__grad_mode = false;
    ct_scope {
        into_target = r->target;
        into_raised = ct__errors.raised;
        moved = ct_clone(made);
        into_target = NULL;
    }
    ct__grad_mode = before;
    if (!moved) return false;
    r->out[0] = ct__tensor_retain(r->target);
    ct__tensor_release(made);
    return true;
}

/* What infer says is believed only if it can be: of an op that user code registered, it may be anything. */
static bool check_inferred(const request *r, const ct_view *views) {
    const ct_op *op = r->op;
    const bool ours = op->slot->index <= ct__op_total && op->slot->index > 0;
    if (ours && !(op->flags & CT_OP_VIEW)) return true; /* memory for it will be counted */
    for (int i = 0; i < r->n_out; i++) {
        const ct_view *view = &views[i];
        if (view->ndim < 0 || view->ndim > CT_MAX_DIMS)
            return ct_fail(CT_ERR_SHAPE, op->name, "its infer gave result %d %d dimensions; 0 to %d can be had", i,
                           view->ndim, CT_MAX_DIMS);
        if ((unsigned)view->dtype >= CT_DTYPE_COUNT)
            return ct_fail(CT_ERR_DTYPE, op->name, "its infer gave result %d the dtype %d, which there is not", i,
                           (int)view->dtype);
        if (ct__count(view->ndim, view->dims) < 0) return ct__fail_count(op->name, view);
        if ((op->flags & CT_OP_VIEW) && !ours && !ct__view_inside(view, r->in[0]->storage))
            return ct_fail(CT_ERR_SHAPE, op->name,
                           "its infer gave result %d, %s, elements outside of the storage of %s", i, ct_view_text(view),
                           op->inputs[0].name);
    }
    return true;
}

static unsigned call_flags(const request *r) {
    const bool lasting = r->target || (r->op->flags & CT_OP_MUTATES);
    return (lasting ? CT_CALL_LASTING : 0) | (ct__errors.in_gradient ? CT_CALL_GRADIENT : 0);
}

static bool execute(request *r) {
    const ct_op *op = r->op;
    ct_view inline_views[INLINE_OUTPUTS];
    const ct_view *inline_pointers[INLINE_INPUTS + INLINE_OUTPUTS];
    size_t view_bytes = (size_t)r->n_out * sizeof(ct_view),
           pointer_bytes = (size_t)(r->n_in + r->n_out) * sizeof(ct_view *);
    ct_view *views = r->n_out <= INLINE_OUTPUTS ? inline_views : ct__alloc(view_bytes);
    const ct_view **pointers =
        r->n_in + r->n_out <= INLINE_INPUTS + INLINE_OUTPUTS ? inline_pointers : ct__alloc(pointer_bytes);
    bool ok = views && pointers;
    if (!ok) ct__fail_memory(op->name, view_bytes + pointer_bytes);
    bool inferred = ok && op->infer;
    if (inferred) {
        for (int i = 0; i < r->n_in; i++) pointers[i] = r->in[i] ? &r->in[i]->view : NULL;
        for (int i = 0; i < r->n_out; i++) {
            views[i].ndim = 0;
            views[i].dtype = CT_F32;
            views[i].offset = 0;
            views[i].buffer = NULL;
        }
        ct_infer infer = {
            .op = op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = pointers, .out = views};
        ok = op->infer(&infer) && check_inferred(r, views) && (!r->target || check_target(r, &views[0]));
        if (!ok && ct_ok()) ct_fail(CT_ERR_SHAPE, op->name, "the arguments do not fit");
    }
    /* Without a vjp the derivative is that of the lowering, so a recorded call has to take it. */
    const ct_kernel *kernels = ct__kernels_of(op, r->device.type);
    bool no_kernel = op->lower && !(op->flags & CT_OP_VIEW) && (!kernels || !kernels->name);
    bool by_lower = !inferred || no_kernel || (r->recording && !op->vjp && op->lower && !(op->flags & CT_OP_NO_GRAD));
    if (by_lower && r->recording && !op->vjp && !(op->flags & CT_OP_NO_GRAD)) r->recording = false;
    if (ok && !by_lower && !(op->flags & CT_OP_VIEW)) {
        ct_call call = {.op = op,
                        .attrs = r->attrs,
                        .n_in = r->n_in,
                        .n_out = r->n_out,
                        .in = pointers,
                        .random = r->random,
                        .device = r->device,
                        .called = ct__errors.called,
                        .flags = call_flags(r)};
        ct_view *const *out_pointers = (ct_view *const *)(pointers + r->n_in);
        call.out = out_pointers;
        ok = make_outputs(r, views);
        for (int i = 0; ok && i < r->n_out; i++) pointers[r->n_in + i] = r->out[i] ? &r->out[i]->view : NULL;
        char refusals[512] = "";
        bool logging = ct__log_dispatch();
        const ct_kernel *kernel = ok ? choose(&call, r->device, logging ? refusals : NULL, sizeof refusals) : NULL;
        if (kernel && r->device.type != CT_CPU)
            ok = ct__stream_enter(&call, r->in, r->out);
        if (kernel && ok) {
            uint64_t start = logging ? ct__log_now() : 0;
            ok = run_kernel(&call, kernel);
            if (logging) ct__log_call(&call, kernel->name, refusals, start);
        } else if (ok && !kernel) {
            for (int i = 0; i < r->n_out; i++) {
                ct__tensor_release(r->out[i]);
                r->out[i] = NULL;
            }
            if (logging) ct__log_call(&call, "lower", refusals, 0);
            by_lower = op->lower != NULL;
            if (!by_lower) {
                refusals[0] = 0;
                choose(&call, r->device, refusals, sizeof refusals);
                ok = ct_fail(CT_ERR_UNSUPPORTED, op->name, "no kernel of %s takes %s%s, and the op has no lowering",
                             ct_backend_name(r->device.type),
                             r->n_in && r->in[0] ? ct_view_text(&r->in[0]->view) : "this call", refusals);
            }
        }
    } else if (ok && !by_lower) {
        ok = make_outputs(r, views);
    }
    if (ok && by_lower) ok = run_lower(r, inferred ? views : NULL);
    if (views && views != inline_views) ct__free(views, view_bytes);
    if (pointers && pointers != inline_pointers) ct__free(pointers, pointer_bytes);
    return ok && move_to_target(r);
}

/* ---- In place ---- */

static bool check_in_place(const request *r) {
    const ct_tensor *target = r->target;
    if (ct__grad_mode && target->node && target->node->op == NULL)
        return ct_fail(CT_ERR_GRAD, r->op->name,
                       "a leaf that requires grad cannot be changed in place while recording; put it into ct_no_grad");
    const ct_node *base = target->base ? target->base->node : NULL;
    if (ct__grad_mode && base && base->op == NULL)
        return ct_fail(
            CT_ERR_GRAD, r->op->name,
            "a view of a leaf that requires grad cannot be changed in place while recording; put it into ct_no_grad");
    return true;
}

static ct_device creation_device(const ct_op *op, const void *attrs) {
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (attr->type == CT_ATTR_DEVICE && attrs)
            return ct__resolved(*(const ct_device *)((const char *)attrs + attr->offset));
    return ct__current_device;
}

/* The call, once its arguments agree. */
static bool perform(request *r) {
    const ct_op *op = r->op;
    bool wants = false;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        r->versions[i] = atomic_load_explicit(&r->in[i]->storage->version, memory_order_relaxed);
        if (r->in[i]->node) wants = true;
    }
    r->recording = wants && ct__grad_mode;
    if ((r->target || (op->flags & CT_OP_MUTATES)) && ct__pending()) return false;
    if (r->target && !ct__same_device(r->target->storage->device, r->device))
        return ct_fail(CT_ERR_DEVICE, op->name, "the result is on %s and dst on %s; bring it over: ct_to",
                       ct_device_text(r->device), ct_device_text(r->target->storage->device));
    if (r->target && !check_in_place(r)) return false;
    if (op->flags & CT_OP_RANDOM) {
        r->random = ct__rng_draw(r->rng);
        if (!ct__region_random(&r->random)) return false;
    }
    if (!execute(r)) return false;
    if (r->target) atomic_fetch_add(&r->target->storage->version, 1);
    if ((op->flags & CT_OP_MUTATES) && !ct_is_recomputing()) {
        int last = 0;
        for (int i = 0; i < r->n_in; i++) {
            if (!r->in[i] || !(input_arg(op, i, &last)->flags & CT_ARG_MUTATED)) continue;
            atomic_fetch_add(&r->in[i]->storage->version, 1);
        }
        last = 0; /* after all of them: two may be views of one storage */
        for (int i = 0; i < r->n_in; i++)
            if (r->in[i] && (input_arg(op, i, &last)->flags & CT_ARG_MUTATED))
                ct__region_mutated(r->in[i]->storage, r->versions[i]);
    }
    if (r->recording) {
        bool floats = false;
        for (int i = 0; i < r->n_out; i++) floats |= r->out[i] && ct__dtype_is_float(r->out[i]->view.dtype);
        if (floats && !ct__record(op, r->in, r->n_in, r->attrs, r->out, r->n_out, r->versions)) return false;
        if (r->target && !ct__view_changed(r->target)) return false;
    } else if (r->target && ct__grad_mode && !ct__overwritten(r->target)) {
        return false;
    }
    return !ct__anomaly || ct__anomaly_check_call(op, r->in, r->n_in, r->out, r->n_out);
}

static bool agree_and_perform(request *r) {
    const ct_op *op = r->op;
    const bool mixed = ct__autocast != CT_F32 && (op->flags & (CT_OP_NARROW | CT_OP_WIDE));
    bool uniform, ok = true;
    if (!check_inputs(r, &uniform)) return false;
    if (r->device.type == CT_CURRENT) { /* no input: it makes something */
        r->device = creation_device(op, r->attrs);
        if (r->device.type != CT_CPU && !ct__device_ok(r->device, op->name)) return false;
    }
    if (op->flags & CT_OP_TRANSFERS) r->wanted = creation_device(op, r->attrs);
    const ct_device current = ct__current_device;
    ct__current_device = r->device; /* what its parts make lands where its data is */
    const bool changes = mixed || !uniform;
    ct_scope_mark mark = {0};
    if (changes) { /* casts and expansions live only as long as the call */
        mark = ct_scope_begin();
        ok = (!mixed || autocast(op, r->in, r->n_in)) && agree_dtypes(op, r->in, r->n_in) &&
             agree_shapes(op, r->in, r->n_in);
    }
    ok = ok && perform(r);
    if (changes) ct_scope_end(mark);
    ct__current_device = current;
    return ok;
}

static bool apply_into(ct_tensor *target, const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs,
                       ct_tensor **outputs, int m, const bool *want, ct_rng *rng) {
    for (int i = 0; outputs && i < m; i++) outputs[i] = NULL;
    if (!op) return ct__fail_null("apply", "op");
    ct__registry_start();
    if (!check_counts(op, inputs, n, outputs, m, want) || !ct__attrs_check(op, attrs)) return false;
    if (target && want && !want[0])
        return ct_fail(CT_ERR_VALUE, op->name, "dst is for the first result, which is left out");
    const ct_op *called = ct__errors.called;
    const uint32_t raised = ct__errors.raised;
    if (!called) ct__errors.called = op;
    ct_tensor *inline_in[INLINE_INPUTS];
    uint32_t inline_versions[INLINE_INPUTS];
    bool inline_want[INLINE_OUTPUTS] = {true, true, true, true};
    size_t in_bytes = (size_t)n * (sizeof(ct_tensor *) + sizeof(uint32_t)), attr_bytes = 0, want_bytes = 0;
    bool small = n <= INLINE_INPUTS;
    request r = {
        .op = op, .attrs = attrs, .n_in = n, .out = outputs, .n_out = m, .want = want, .rng = rng, .target = target};
    void *block = small ? NULL : ct__alloc(in_bytes), *attr_block = NULL, *want_block = NULL;
    r.in = small ? inline_in : block;
    r.versions = small ? inline_versions : block ? (uint32_t *)(r.in + n) : NULL;
    bool ok = r.in != NULL;
    if (ok && !attrs && op->attr_size) {
        attr_bytes = op->attr_size;
        r.attrs = attr_block = ct__alloc(attr_bytes);
        if (attr_block) ct_attrs_default(op, attr_block);
        else ok = false;
    }
    if (ok && !want) {
        r.want = inline_want;
        if (m > INLINE_OUTPUTS) {
            want_bytes = (size_t)m;
            r.want = want_block = ct__alloc(want_bytes);
            if (want_block) memset(want_block, 1, want_bytes);
            else ok = false;
        }
    }
    if (!ok) {
        ct__fail_memory(op->name, in_bytes + attr_bytes + want_bytes);
    } else {
        for (int i = 0; i < n; i++) r.in[i] = inputs[i];
        ok = agree_and_perform(&r);
    }
    ct__free(block, in_bytes);
    ct__free(attr_block, attr_bytes);
    ct__free(want_block, want_bytes);
    /* Whatever went wrong inside, there is no result: a lowering may not have noticed that a part of it is missing. */
    if (ct__errors.raised != raised && ct__pending()) ok = false;
    for (int i = 0; i < m; i++) {
        if (!outputs[i]) continue;
        if (ok) ok = (outputs[i] = ct__scope_adopt(outputs[i])) != NULL;
        else ct__tensor_release(outputs[i]);
        if (!ok) outputs[i] = NULL;
    }
    ct__errors.called = called;
    return ok;
}

bool ct_apply_with(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m,
                   const bool *want, ct_rng *rng) {
    if (into_target && into_raised != ct__errors.raised) forget_target();
    ct_tensor *target = into_target;
    const bool retained = into_retained;
    into_target = NULL;
    into_retained = false;
    const bool ok = apply_into(target, op, inputs, n, attrs, outputs, m, want, rng);
    if (retained) ct__tensor_release(target);
    return ok;
}

bool ct_apply(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m) {
    return ct_apply_with(op, inputs, n, attrs, outputs, m, NULL, NULL);
}
