/* Execution: infer the results, choose a kernel or lower, run. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/call.h"
#include "core/capture.h"
#include "core/device.h"
#include "core/device_memory.h"
#include "core/error.h"
#include "core/hot.h"
#include "core/inplace.h"
#include "core/log.h"
#include "core/node.h"
#include "core/number.h"
#include "core/stream.h"
#include "core/threads.h"
#include "gen/ops_decl.h"

/* With scratch on the stack: what is small is had sooner than from the allocator, which has to count it. */
enum { NEAR_BYTES = 2048 };
__attribute__((noinline)) static bool run_near(ct_call *call, size_t bytes) {
    _Alignas(64) char near[NEAR_BYTES];
    call->scratch.buffer = near;
    call->scratch.bytes = bytes;
    return call->kernel->run(call, call->stream);
}

static bool is_near(const ct_call *call, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__) /* whose guards lie around what was allocated */
    (void)call, (void)bytes;
    return false;
#else
    return bytes <= NEAR_BYTES && call->device.type == CT_CPU;
#endif
}

/* Runs the chosen kernel of a call that is complete but for its scratch. */
CT__HOT static bool run_kernel(ct_call *call, ct_choice *known) {
    const ct_kernel *kernel = call->kernel;
    if (!kernel->scratch) return kernel->run(call, call->stream);
    const int threads = call->workers = ct__threads();
    ct__threads_hold(threads);
    const size_t bytes = known && known->threads == threads ? known->scratch : kernel->scratch(call);
    if (known) {
        known->scratch = bytes;
        known->threads = threads;
    }
    ct_block *block = NULL;
    bool ok;
    if (!bytes) {
        ok = kernel->run(call, call->stream);
    } else if (is_near(call, bytes)) {
        ok = run_near(call, bytes);
    } else if ((ok = ct__scratch_take(call->device, call->stream, bytes, &call->scratch, &block))) {
        ok = kernel->run(call, call->stream);
        ct__scratch_give(call->device, &call->scratch, block);
    } else {
        ct__fail_device_memory(call->op->name, call->device, bytes);
    }
    ct__threads_hold(0);
    return ok;
}

/* Takes over what lower made: new handles for results that are arguments, casts back to half. */
static bool adopt_lowered(ct_request *r, ct_tensor **made, const ct_dtype *dtypes, const ct_view *views) {
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

static ct_dtype half_among(const ct_request *r) {
    ct_dtype half = CT_DTYPE_COUNT;
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        ct_dtype dtype = r->in[i]->view.dtype;
        if (dtype == CT_F32 || dtype == CT_F64) return CT_DTYPE_COUNT;
        if (dtype == CT_F16 || dtype == CT_BF16) half = half == CT_DTYPE_COUNT || half == dtype ? dtype : CT_F32;
    }
    return half;
}

/* The op in simpler ops. Half inputs are computed in f32 and rounded once at the end; by the op itself, if it has kernels for f32. */
static bool run_lower(ct_request *r, const ct_view *views) {
    const ct_op *op = r->op;
    ct_tensor *inline_slots[CT__INLINE_INPUTS + CT__INLINE_OUTPUTS];
    ct_dtype inline_dtypes[CT__INLINE_OUTPUTS];
    const size_t slots = (size_t)(r->n_in + r->n_out), slot_bytes = slots * sizeof(ct_tensor *),
                 dtype_bytes = (size_t)r->n_out * sizeof(ct_dtype);
    const bool few = r->n_in <= CT__INLINE_INPUTS && r->n_out <= CT__INLINE_OUTPUTS;
    ct_tensor **in = few ? inline_slots : ct__alloc(slot_bytes);
    ct_dtype *dtypes = few ? inline_dtypes : ct__alloc(dtype_bytes);
    bool ok = in && dtypes;
    if (!ok) ct__fail_memory(op->name, slot_bytes + dtype_bytes);
    ct_tensor **made = in + r->n_in;
    bool before = ct__grad_mode;
    ct_dtype autocast_before = ct__autocast;
    ct__autocast = CT_F32;                   /* this op's inputs have been cast */
    if (r->recording) ct__grad_mode = false; /* the node is made at this level */
    ct_scope {
        if (r->expanded) ok = ok && ct__expand_inputs(r);
        const ct_kernel *kernels = ct__kernels_of(op, r->device.type);
        bool widening = !(op->flags & CT_OP_MOVES), again = false;
        ct_dtype half = widening ? half_among(r) : CT_DTYPE_COUNT;
        for (int i = 0; ok && i < r->n_in; i++) {
            in[i] = r->in[i];
            bool widen = widening && in[i] && (in[i]->view.dtype == CT_F16 || in[i]->view.dtype == CT_BF16);
            if (widen && !(in[i] = ct__cast_input(in[i], CT_F32))) ok = false;
            again |= widen && kernels && kernels->name && !(op->flags & CT_OP_RANDOM);
        }
        for (int i = 0; ok && i < r->n_out; i++) {
            made[i] = NULL;
            dtypes[i] = views ? views[i].dtype : CT_DTYPE_COUNT;
        }
        if (ok && again) {
            ok = ct_apply_with(op, in, r->n_in, r->attrs, made, r->n_out, r->want, NULL) &&
                 adopt_lowered(r, made, dtypes, views);
        } else if (ok) {
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
    if (!few) {
        ct__free(in, slot_bytes);
        ct__free(dtypes, dtype_bytes);
    }
    return ok;
}

static bool is_same_place(const ct_request *r, const ct_view *view) {
    const bool elementwise = r->op->flags & CT_OP_ELEMENTWISE;
    bool may = elementwise || (r->op->flags & CT_OP_ALIAS_OK);
    for (int i = 0; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        const bool shares = r->in[i]->storage == r->target->storage;
        if (shares && (!may || !ct__view_same_layout(&r->in[i]->view, view))) return false;
        may = may && (elementwise || !ct__view_same_shape(&r->in[i]->view, view)); /* the first of its shape alone */
    }
    return true;
}

/* A tensor for each wanted result: a view of the first input, the destination that was given, or fresh memory. */
CT__HOT static bool make_outputs(ct_request *r, ct_view *views) {
    for (int i = 0; i < r->n_out; i++) {
        if (!r->want[i]) continue;
        if (r->op->flags & CT_OP_VIEW) r->out[i] = ct__tensor_view(&views[i], r->in[0]);
        else if (i == 0 && r->target && is_same_place(r, &r->target->view)) r->out[i] = ct__tensor_retain(r->target);
        else r->out[i] = ct__tensor_dense(&views[i], r->device, r->op->name);
        if (!r->out[i]) return false;
    }
    return true;
}

static bool check_target(const ct_request *r, const ct_view *view) {
    const ct_view *dst = &r->target->view;
    if (dst->dtype == view->dtype && ct__view_same_shape(dst, view)) return true;
    return ct_fail(CT_ERR_SHAPE, r->op->name, "the result is %s and does not fit into dst, which is %s",
                   ct_view_text(view), ct_view_text(dst));
}

/* Moves a result that could not be computed in place to the destination it was given. */
static bool move_to_target(ct_request *r) {
    if (!r->target || r->out[0] == r->target) return true;
    ct_tensor *made = r->out[0];
    if (!check_target(r, &made->view)) return false;
    const bool before = ct__grad_mode;
    ct__grad_mode = false;
    const bool moved = ct__apply_into(r->target, r->caller, &ct__op_clone, &made, 1, NULL);
    ct__grad_mode = before;
    if (!moved) return false;
    r->out[0] = ct__tensor_retain(r->target);
    ct__tensor_release(made);
    return true;
}

/* What infer says is believed only if it can be: of an op that user code registered, it may be anything. */
static bool check_inferred(const ct_request *r, const ct_view *views) {
    const ct_op *op = r->op;
    const bool ours = ct__op_is_builtin(op);
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

/* The views of inputs that are expanded: of the common shape, with a stride of 0 where they have one element. */
static void show_expanded(const ct_request *r, const ct_view **pointers, ct_view *shown) {
    for (uint32_t left = r->expanded; left; left &= left - 1, shown++) {
        const int i = __builtin_ctz(left);
        const ct_view *view = &r->in[i]->view;
        const int missing = r->ndim - view->ndim;
        shown->buffer = view->buffer;
        shown->offset = view->offset;
        shown->origin = view->origin;
        shown->dtype = view->dtype;
        shown->ndim = r->ndim;
        for (int d = 0; d < r->ndim; d++) {
            shown->dims[d] = r->shape[d];
            shown->strides[d] = d < missing || view->dims[d - missing] != r->shape[d] ? 0 : view->strides[d - missing];
        }
        pointers[i] = shown;
    }
}

static bool infer_results(const ct_request *r, const ct_view **pointers, ct_view *views) {
    const ct_op *op = r->op;
    for (int i = 0; i < r->n_out; i++) {
        views[i].ndim = 0;
        views[i].dtype = CT_F32;
        views[i].offset = 0;
        views[i].buffer = NULL;
    }
    ct_infer infer = {.op = op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = pointers, .out = views};
    if (op->infer(&infer) && check_inferred(r, views)) return true;
    return ct_ok() ? ct_fail(CT_ERR_SHAPE, op->name, "the arguments do not fit") : false;
}

static bool fail_unsupported(const ct_call *call, char *refusals, size_t room) {
    refusals[0] = 0;
    ct_choice *known;
    ct__choose(call, &known, refusals, room);
    return ct_fail(CT_ERR_UNSUPPORTED, call->op->name, "no kernel of %s takes %s%s, and the op has no lowering",
                   ct_backend_name(call->device.type),
                   call->n_in && call->in[0] ? ct_view_text(call->in[0]) : "this call", refusals);
}

static atomic_int tf32_wanted; /* 0: not asked yet, 1: no, 2: yes */

static bool is_tf32(void) {
    int state = atomic_load_explicit(&tf32_wanted, memory_order_relaxed);
    if (!state) {
        const char *text = getenv("CT_TF32");
        const int wanted = text && *text && strcmp(text, "0") != 0 ? 2 : 1;
        /* unless somebody has set it meanwhile: then state becomes that */
        if (atomic_compare_exchange_strong(&tf32_wanted, &state, wanted)) state = wanted;
    }
    return state == 2;
}

bool ct_set_tf32(bool on) {
    const bool before = is_tf32();
    atomic_store_explicit(&tf32_wanted, on ? 2 : 1, memory_order_relaxed);
    return before;
}

static unsigned call_flags(const ct_request *r) {
    const bool lasting = r->target || (r->op->flags & CT_OP_MUTATES);
    return (lasting ? CT_CALL_LASTING : 0) | (ct__errors.in_gradient ? CT_CALL_GRADIENT : 0) |
           (is_tf32() ? CT_CALL_TF32 : 0);
}

/* Member by member, as start_request does it. */
static void start_call(ct_call *call, const ct_request *r, const ct_view **pointers) {
    call->op = r->op;
    call->kernel = NULL;
    call->attrs = r->attrs;
    call->n_in = r->n_in;
    call->n_out = r->n_out;
    call->in = pointers;
    call->out = (ct_view *const *)(pointers + r->n_in);
    call->scratch.buffer = NULL;
    call->scratch.offset = call->scratch.bytes = 0;
    call->random = r->random;
    call->device = r->device;
    call->stream = NULL;
    call->called = ct__errors.called;
    call->flags = call_flags(r);
    call->numbers = r->numbers;
    call->workers = 0;
}

/* Fills the record of the call and runs it. Where no kernel takes it, *refused is set and nothing is done. */
CT__HOT static bool run_by_kernel(ct_request *r, const ct_view **pointers, ct_view *views, bool *refused) {
    char refusals[512];
    const bool logging = ct__log_dispatch();
    if (!make_outputs(r, views)) return false;
    for (int i = 0; i < r->n_out; i++) pointers[r->n_in + i] = r->out[i] ? &r->out[i]->view : NULL;
    ct_call call;
    start_call(&call, r, pointers);
    refusals[0] = 0;
    ct_choice *known;
    call.kernel = ct__choose(&call, &known, logging ? refusals : NULL, sizeof refusals);
    if (call.kernel && r->device.type != CT_CPU && !ct__stream_enter(&call, r->in, r->out)) return false;
    if (call.kernel) {
        const uint64_t start = logging ? ct__log_now() : 0;
        const bool ok = run_kernel(&call, known);
        if (logging) ct__log_call(&call, call.kernel->name, refusals, start);
        if (ok && ct__capturing) ct__capture_call(&call, r);
        return ok;
    }
    for (int i = 0; i < r->n_out; i++) {
        ct__tensor_release(r->out[i]);
        r->out[i] = NULL;
    }
    if (logging) ct__log_call(&call, "lower", refusals, 0);
    *refused = true;
    return r->op->lower || fail_unsupported(&call, refusals, sizeof refusals);
}

/* A line for an op that is computed by others, which have their own. */
static void log_lower(const ct_request *r, const ct_view *const *pointers) {
    if (!ct__log_dispatch()) return;
    ct_call call = {.op = r->op, .n_in = r->n_in, .in = pointers, .device = r->device, .numbers = r->numbers};
    ct__log_call(&call, "lower", "", 0);
}

CT__HOT bool ct__execute(ct_request *r) {
    const ct_op *op = r->op;
    ct_view inline_views[CT__INLINE_OUTPUTS], shown[CT__EXPANDED];
    const ct_view *inline_pointers[CT__INLINE_INPUTS + CT__INLINE_OUTPUTS];
    const size_t view_bytes = (size_t)r->n_out * sizeof(ct_view),
                 pointer_bytes = (size_t)(r->n_in + r->n_out) * sizeof(ct_view *);
    ct_view *views = r->inferred ? r->inferred : r->n_out <= CT__INLINE_OUTPUTS ? inline_views : ct__alloc(view_bytes);
    const ct_view **pointers =
        r->n_in + r->n_out <= CT__INLINE_INPUTS + CT__INLINE_OUTPUTS ? inline_pointers : ct__alloc(pointer_bytes);
    bool ok = views && pointers;
    if (!ok) ct__fail_memory(op->name, view_bytes + pointer_bytes);
    for (int i = 0; ok && i < r->n_in; i++) pointers[i] = r->in[i] ? &r->in[i]->view : NULL;
    if (ok && op->infer) {
        if (r->expanded) show_expanded(r, pointers, shown);
        ok = (r->inferred || infer_results(r, pointers, views)) && (!r->target || check_target(r, &views[0]));
    }
    /* Without a vjp the derivative is that of the lowering, so a recorded call has to take it. */
    const ct_kernel *kernels = ct__kernels_of(op, r->device.type);
    const bool is_view = op->flags & CT_OP_VIEW, by_parts = r->recording && !op->vjp && !(op->flags & CT_OP_NO_GRAD);
    const bool no_kernel = op->lower && !is_view && (!kernels || !kernels->name);
    const bool moves = ct__capturing && !is_view && ct__capture_lowers(op, r->device);
    bool by_lower = !op->infer || no_kernel || (by_parts && op->lower) || moves;
    if (by_lower && by_parts) r->recording = false;
    if (ok && !by_lower) ok = is_view ? make_outputs(r, views) : run_by_kernel(r, pointers, views, &by_lower);
    if (ok && by_lower && no_kernel) log_lower(r, pointers);
    const bool draws = by_lower && ct__capturing && (moves || (op->flags & CT_OP_RANDOM));
    if (draws) ct__capture_random_lowering(1);
    if (ok && by_lower) ok = run_lower(r, op->infer ? views : NULL);
    if (draws) ct__capture_random_lowering(-1);
    if (views && views != inline_views && views != r->inferred) ct__free(views, view_bytes);
    if (pointers && pointers != inline_pointers) ct__free(pointers, pointer_bytes);
    return ok && move_to_target(r);
}
