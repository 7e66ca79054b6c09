/* Dispatch: one way for every call of every op. Check the arguments, make shapes and dtypes agree, infer the results, choose a
 * kernel or lower, run, record. */
#include "core/call.h"
#include "core/hot.h"

#include <string.h>

#include "core/alloc.h"
#include "core/anomaly.h"
#include "core/attrs.h"
#include "core/capture.h"
#include "core/checkpoint.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/inplace.h"
#include "core/log.h"
#include "core/node.h"
#include "core/registry.h"
#include "core/rng.h"

/* What ct_into named for the next call. */
static _Thread_local ct_tensor *into_target;

static _Thread_local uint32_t into_raised; /* errors so far: after another one the call it was for has failed */

/* The program may let go of dst before its next call: until then it is held here. */
bool ct_into(ct_tensor *dst) {
    if (ct__pending() || !ct__writable(dst, "into", "dst")) return false;
    ct__tensor_release(into_target); /* of a call that never came */
    into_target = ct__tensor_retain(dst);
    into_raised = ct__errors.raised;
    return true;
}

static bool check_in_place(const ct_request *r) {
    const ct_tensor *target = r->target;
    if (ct__grad_mode && target->node && target->node->op == NULL)
        return ct_fail(CT_ERR_GRAD, r->caller,
                       "a leaf that requires grad cannot be changed in place while recording; put it into ct_no_grad");
    const ct_node *base = target->base ? target->base->node : NULL;
    if (ct__grad_mode && base && base->op == NULL)
        return ct_fail(
            CT_ERR_GRAD, r->caller,
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
CT__HOT static inline bool perform(ct_request *r) {
    const ct_op *op = r->op;
    bool wants = false;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        const ct_storage *storage = r->in[i]->storage;
        r->versions[i] = storage ? atomic_load_explicit(&storage->version, memory_order_relaxed) : 0;
        if (r->in[i]->node) wants = true;
    }
    r->recording = wants && ct__grad_mode;
    if ((r->target || (op->flags & CT_OP_MUTATES)) && ct__pending()) return false;
    if (ct__capturing && (op->flags & CT_OP_WAITS))
        ct_capture_refuse(op->name, "an op whose result has a shape that depends on values", NULL);
    if (r->target && !ct__same_device(r->target->storage->device, r->device))
        return ct_fail(CT_ERR_DEVICE, op->name, "the result is on %s and dst on %s; bring it over: ct_to",
                       ct_device_text(r->device), ct_device_text(r->target->storage->device));
    if (r->target && !check_in_place(r)) return false;
    if (op->flags & CT_OP_RANDOM) {
        r->random = ct__rng_draw(r->rng);
        if (!ct__region_random(&r->random)) return false;
        if (ct__capturing) ct__capture_drew(r->rng, r->random);
    }
    if (!ct__execute(r)) return false;
    if (r->target) atomic_fetch_add(&r->target->storage->version, 1);
    if ((op->flags & CT_OP_MUTATES) && !ct_is_recomputing()) {
        int last = 0;
        for (int i = 0; i < r->n_in; i++) {
            if (!r->in[i] || !(ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED)) continue;
            atomic_fetch_add(&r->in[i]->storage->version, 1);
        }
        last = 0; /* after all of them: two may be views of one storage */
        for (int i = 0; i < r->n_in; i++)
            if (r->in[i] && (ct__input_arg(op, i, &last)->flags & CT_ARG_MUTATED))
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
    return !ct__anomaly() || ct__anomaly_check_call(op, r->in, r->n_in, r->out, r->n_out);
}

/* Goes on with the op that this one hands on to, where it does. */
CT__HOT __attribute__((noinline)) static bool hand_on_and_perform(ct_request *r) {
    _Alignas(16) char attrs[CT_HANDED_BYTES];
    const ct_view *pointers[CT__INLINE_INPUTS];
    ct_tensor *in[CT_HANDED_INPUTS];
    ct_view result;
    result.ndim = 0;
    result.dtype = CT_F32;
    result.offset = 0;
    result.buffer = NULL;
    bool wants = false;
    for (int i = 0; i < r->n_in; i++) {
        pointers[i] = r->in[i] ? &r->in[i]->view : NULL;
        wants |= r->in[i] && r->in[i]->node;
    }
    ct_handing h = {
        .infer = {.op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = 1, .in = pointers, .out = &result},
        .recording = wants && ct__grad_mode,
        .attrs = attrs};
    if (!r->op->hand_on(&h))
        return ct__pending() ? false : ct_fail(CT_ERR_SHAPE, r->op->name, "the arguments do not fit");
    if (!h.to) return perform(r);
    if (ct__log_dispatch()) ct__log_handed(&h.infer, h.to);
    /* A view has nothing to run: where it is not recorded either, its handle is all there is to make. */
    if ((h.to->flags & CT_OP_VIEW) && !h.recording && !r->target && !ct__anomaly())
        return (r->out[0] = ct__tensor_view(&result, r->in[h.in[0]])) != NULL;
    for (int i = 0; i < h.n_in; i++) in[i] = h.in[i] < 0 ? NULL : r->in[h.in[i]];
    r->op = h.to;
    r->attrs = h.attrs;
    r->in = in;
    r->n_in = h.n_in;
    r->inferred = &result;
    return perform(r);
}

CT__HOT static bool agree_and_perform(ct_request *r, ct_tensor *const *inputs) {
    const ct_op *op = r->op;
    const bool mixed = ct__autocast != CT_F32 && (op->flags & (CT_OP_NARROW | CT_OP_WIDE));
    bool ok = true;
    if (!ct__check_inputs(r, inputs)) return false;
    if (r->device.type == CT_CURRENT) { /* no input: it makes something */
        r->device = creation_device(op, r->attrs);
        if (r->device.type != CT_CPU && !ct__device_ok(r->device, op->name)) return false;
    }
    if (op->flags & CT_OP_TRANSFERS) r->wanted = creation_device(op, r->attrs);
    const ct_device current = ct__current_device;
    ct__current_device = r->device; /* what its parts make lands where its data is */
    ct_dims common;
    if (mixed || r->disagree) ok = ct__agree(r, mixed, &common);
    const bool handed = op->hand_on && r->n_in <= CT__INLINE_INPUTS && r->n_out == 1;
    ok = ok && (handed ? hand_on_and_perform(r) : perform(r));
    if (r->scoped) ct_scope_end(r->scope);
    ct__current_device = current;
    return ok;
}

/* Member by member: cleared as a whole, it would take as long as a tenth of a small op. */
static void start_request(ct_request *r, ct_tensor *target, const char *caller, const ct_op *op, int n,
                          const void *attrs, ct_tensor **outputs, int m, const bool *want, ct_rng *rng) {
    r->op = op;
    r->attrs = attrs;
    r->in = NULL;
    r->n_in = n;
    r->out = outputs;
    r->n_out = m;
    r->want = want;
    r->rng = rng;
    r->random.seed = r->random.stream = r->random.call = 0;
    r->versions = NULL;
    r->target = target;
    r->caller = caller;
    r->device.type = r->wanted.type = CT_CURRENT;
    r->device.index = r->wanted.index = 0;
    r->numbers = r->expanded = 0;
    r->ndim = 0;
    r->shape = NULL;
    r->inferred = NULL;
    r->disagree = 0;
    r->recording = r->scoped = false;
}

/* Memory of a request with more inputs or outputs than have room on the stack, or without attributes: it has the default ones. */
typedef struct blocks {
    void *in, *want, *attrs;
    size_t in_bytes, want_bytes, attr_bytes; /* 0: not needed */
} blocks;

static void give_blocks(const blocks *b) {
    ct__free(b->in, b->in_bytes);
    ct__free(b->want, b->want_bytes);
    ct__free(b->attrs, b->attr_bytes);
}

__attribute__((noinline)) static bool take_blocks(ct_request *r, blocks *b) {
    b->in_bytes = (size_t)r->n_in * (sizeof(ct_tensor *) + sizeof(uint32_t));
    b->want_bytes = r->want ? 0 : (size_t)r->n_out;
    b->attr_bytes = r->attrs ? 0 : r->op->attr_size;
    b->in = b->in_bytes ? ct__alloc(b->in_bytes) : NULL;
    b->want = b->want_bytes ? ct__alloc(b->want_bytes) : NULL;
    b->attrs = b->attr_bytes ? ct__alloc(b->attr_bytes) : NULL;
    if ((b->in_bytes && !b->in) || (b->want_bytes && !b->want) || (b->attr_bytes && !b->attrs)) {
        give_blocks(b);
        return ct__fail_memory(r->op->name, b->in_bytes + b->want_bytes + b->attr_bytes);
    }
    r->in = b->in;
    r->versions = b->in ? (uint32_t *)(r->in + r->n_in) : NULL;
    if (b->want) r->want = memset(b->want, 1, b->want_bytes);
    if (b->attrs) {
        ct_attrs_default(r->op, b->attrs);
        r->attrs = b->attrs;
    }
    return true;
}

/* A call whose op, numbers of arguments and attributes are known to be right. The results, NULL as yet, will belong to the current
 * scope or, owned, to the caller. */
CT__HOT static bool apply_into(ct_tensor *target, const char *caller, const ct_op *op, ct_tensor *const *inputs, int n,
                               const void *attrs, ct_tensor **outputs, int m, const bool *want, ct_rng *rng,
                               bool owned) {
    if (target && want && !want[0])
        return ct_fail(CT_ERR_VALUE, op->name, "dst is for the first result, which is left out");
    const char *called = ct__errors.called;
    const uint32_t raised = ct__errors.raised;
    if (!called) ct__errors.called = caller ? caller : op->name;
    ct_request r;
    start_request(&r, target, caller, op, n, attrs, outputs, m, want, rng);
    static const bool all[CT__INLINE_OUTPUTS] = {true, true, true, true};
    ct_tensor *in[CT__INLINE_INPUTS];
    uint32_t versions[CT__INLINE_INPUTS];
    blocks more;
    const bool few = n <= CT__INLINE_INPUTS && (want || m <= CT__INLINE_OUTPUTS) && (attrs || !op->attr_size);
    if (few) {
        r.in = in;
        r.versions = versions;
        if (!want) r.want = all;
    }
    bool ok = few || take_blocks(&r, &more);
    if (ok) {
        ok = agree_and_perform(&r, inputs);
        if (!few) give_blocks(&more);
    }
    /* Whatever went wrong inside, there is no result: a lowering may not have noticed that a part of it is missing. */
    if (ct__errors.raised != raised && ct__pending()) ok = false;
    for (int i = 0; i < m; i++) {
        if (!outputs[i]) continue;
        if (ok) ok = owned || (outputs[i] = ct__scope_adopt(outputs[i])) != NULL;
        else ct__tensor_release(outputs[i]);
        if (!ok) outputs[i] = NULL;
    }
    ct__errors.called = called;
    return ok;
}

bool ct__apply_into(ct_tensor *target, const char *caller, const ct_op *op, ct_tensor *const *inputs, int n,
                    const void *attrs) {
    bool ok = false;
    ct_scope {
        ct_tensor *result = NULL;
        ok = apply_into(target, caller, op, inputs, n, attrs, &result, 1, NULL, NULL, false);
    }
    return ok;
}

static bool check_call(const ct_op **op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m,
                       const bool *want) {
    for (int i = 0; outputs && i < m; i++) outputs[i] = NULL;
    if (!*op) return ct__fail_null("apply", "op");
    ct__registry_start();
    if ((*op)->size != sizeof **op && !(*op = ct__op_known(*op))) return false; /* of another version of op.h */
    return ct__check_counts(*op, inputs, n, outputs, m, want) && ct__attrs_check(*op, attrs);
}

static bool apply(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m,
                  const bool *want, ct_rng *rng, bool owned) {
    const bool stale = into_raised != ct__errors.raised;
    ct_tensor *target = into_target; /* this call's, whether it comes to it or not */
    into_target = NULL;
    bool ok = check_call(&op, inputs, n, attrs, outputs, m, want);
    ok = ok && apply_into(stale ? NULL : target, op->name, op, inputs, n, attrs, outputs, m, want, rng, owned);
    ct__tensor_release(target);
    return ok;
}

bool ct_apply_with(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m,
                   const bool *want, ct_rng *rng) {
    return apply(op, inputs, n, attrs, outputs, m, want, rng, false);
}

bool ct_apply_owned(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m,
                    const bool *want, ct_rng *rng) {
    return apply(op, inputs, n, attrs, outputs, m, want, rng, true);
}

bool ct_apply(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs, ct_tensor **outputs, int m) {
    return apply(op, inputs, n, attrs, outputs, m, NULL, NULL, false);
}

CT__HOT ct_tensor *ct__apply_plain(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs) {
    ct_tensor *out = NULL;
    if (into_target) return ct_apply(op, inputs, n, attrs, &out, 1) ? out : NULL;
    ct__registry_start();
    return apply_into(NULL, NULL, op, inputs, n, attrs, &out, 1, NULL, NULL, false) ? out : NULL;
}

CT__HOT ct_tensor *ct__apply_one(const ct_op *op, ct_tensor *const *inputs, int n, const void *attrs) {
    if (!into_target && attrs && !ct__attrs_check(op, attrs)) return NULL;
    return ct__apply_plain(op, inputs, n, attrs);
}
