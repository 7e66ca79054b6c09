/* The collectives as ops: shapes, derivatives, kernels for the host's memory, and the way of other devices through it.
 *
 * Derivatives. The loss is the sum over ranks of what each rank differentiates, so the cotangent of x on rank s is
 * the sum over ranks r of that of y on r, carried back: of a sum it is the sum of the cotangents, of a broadcast
 * that sum on the root, of all_gather a reduce_scatter, of reduce_scatter an all_gather, and all_to_all is its own
 * adjoint. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cotangent/backend.h>

#include "dist/device.h"

/* ---- Shapes ---- */

static const char *cannot_reduce(ct_dtype dtype, ct_dist_reduction reduction) {
    if ((unsigned)reduction > CT_DIST_PRODUCT) return "there is no such reduction";
    if (dtype == CT_F8E4M3 || dtype == CT_F8E5M2 || dtype == CT_COMPLEX64) return "this dtype has no reductions";
    if (dtype == CT_BOOL && reduction != CT_DIST_MAX && reduction != CT_DIST_MIN)
        return "bool has max (or) and min (and) alone; cast it to count";
    if (reduction == CT_DIST_MEAN && !ct_dtype_is_float(dtype)) return "only floating dtypes have a mean";
    return NULL;
}

bool ct__dist_result(ct__dist_kind kind, ct_dtype dtype, ct_dist_reduction reduction, int root, int size, ct_dims shape,
                     ct_dims *result, char *why, size_t room) {
    const bool reduces = kind == CT__ALL_REDUCE || kind == CT__REDUCE_SCATTER;
    const bool parts = kind == CT__REDUCE_SCATTER || kind == CT__ALL_TO_ALL;
    const char *problem = reduces ? cannot_reduce(dtype, reduction) : NULL;
    int64_t elements = 1;
    *result = shape;
    for (int i = 0; i < shape.n; i++) elements *= shape.d[i];
    if (problem) snprintf(why, room, "%s (x is %s%s)", problem, ct_dtype_name(dtype), ct_dims_text(shape));
    else if (elements > INT_MAX)
        snprintf(why, room, "x is %s%s, and at most 2^31 - 1 elements go in one call", ct_dtype_name(dtype),
                 ct_dims_text(shape));
    else if (kind == CT__BROADCAST && (root < 0 || root >= size))
        snprintf(why, room, "root is %d, and the group has %d rank%s", root, size, size == 1 ? "" : "s");
    else if (parts && (shape.n == 0 || shape.d[0] % size != 0))
        snprintf(why, room, "the first axis of x is cut into one part per rank: x is %s%s, and the group has %d ranks",
                 ct_dtype_name(dtype), ct_dims_text(shape), size);
    else {
        if (kind == CT__SEND) *result = (ct_dims){.n = 1, .d = {0}};
        if (kind == CT__REDUCE_SCATTER) result->d[0] /= size;
        if (kind == CT__ALL_GATHER) {
            if (shape.n == 0) *result = (ct_dims){.n = 1, .d = {1}};
            result->d[0] *= size;
        }
        return true;
    }
    return false;
}

ct__transfer ct__transfer_of(ct__dist_kind kind, ct_dist_reduction reduction, ct_dtype dtype, int root,
                             int64_t elements, int size) {
    const bool parts = kind == CT__REDUCE_SCATTER || kind == CT__ALL_TO_ALL;
    return (ct__transfer){.kind = kind,
                          .reduction = reduction,
                          .dtype = dtype,
                          .root = root,
                          .count = parts ? elements / size : elements};
}

ct__dist_kind ct__op_kind(const ct_op *op) { return *(const ct__dist_kind *)op->context; }

static bool infer(ct_infer *infer) {
    const ct__dist_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    const ct_dist_group *group = ct__group_by_id((uint64_t)a->group, infer->op->name);
    ct_dims shape = {.n = x->ndim}, result;
    char why[256];
    if (!group) return false;
    for (int i = 0; i < x->ndim; i++) shape.d[i] = x->dims[i];
    if (!ct__dist_result(ct__op_kind(infer->op), x->dtype, (ct_dist_reduction)a->reduction, (int)a->root, group->size,
                         shape, &result, why, sizeof why))
        return ct_infer_fail(infer, CT_ERR_VALUE, "%s", why);
    infer->out[0].dtype = x->dtype;
    infer->out[0].ndim = result.n;
    for (int i = 0; i < result.n; i++) infer->out[0].dims[i] = result.d[i];
    return true;
}

/* ---- In the host's memory ---- */

bool ct__view_dense(const ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] == 0) return true;
        if (view->dims[i] > 1 && view->strides[i] != stride) return false;
        stride *= view->dims[i];
    }
    return true;
}

static const char *can(const ct_call *call) {
    return ct__view_dense(call->in[0]) && ct__view_dense(call->out[0]) ? NULL
                                                                       : "x and its result have to be contiguous";
}

static int64_t elements_of(const ct_view *view) {
    int64_t n = 1;
    for (int i = 0; i < view->ndim; i++) n *= view->dims[i];
    return n;
}

static char *address(const ct_view *view) {
    return (char *)view->buffer + (size_t)view->offset * ct_dtype_size(view->dtype);
}

ct_dims ct__call_shape(const ct_call *call) {
    ct_dims shape = {.n = call->in[0]->ndim};
    for (int i = 0; i < shape.n; i++) shape.d[i] = call->in[0]->dims[i];
    return shape;
}

ct__transfer ct__transfer_of_call(const ct_call *call, int size) {
    const ct__dist_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    return ct__transfer_of(ct__op_kind(call->op), (ct_dist_reduction)a->reduction, x->dtype, (int)a->root,
                           elements_of(x), size);
}

static bool run(const ct_call *call, ct_stream *stream) {
    const ct__dist_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    ct_view *y = call->out[0];
    (void)stream;
    if (a->work) { /* it was computed when it was begun */
        const ct_tensor *result = ct__work_result(a->work);
        return result && ct_read(result, address(y), (size_t)elements_of(y) * ct_dtype_size(y->dtype));
    }
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, call->op->name);
    if (!group) return false;
    ct__transfer transfer = ct__transfer_of_call(call, group->size);
    transfer.in = address(x);
    transfer.out = address(y);
    ct__flight flight;
    return ct__flight_begin(&flight, group, &transfer, ct__call_shape(call), "") && ct__flight_wait(&flight);
}

/* The sum on the root alone, zeros on the others: what a broadcast's gradient is. All ranks take part in it and in
 * its gradient. */
static bool run_reduce(const ct_call *call, ct_stream *stream) {
    const ct__dist_attrs *a = call->attrs;
    const ct_dist_group *group = ct__group_by_id((uint64_t)a->group, call->op->name);
    ct_view *y = call->out[0];
    if (!group || !run(call, stream)) return false;
    if (group->rank != (int)a->root) memset(address(y), 0, (size_t)elements_of(y) * ct_dtype_size(y->dtype));
    return true;
}

static const ct_kernel kernels[] = {{.name = "host_memory", .can = can, .run = run}, {.name = NULL}};
static const ct_kernel reduce_kernels[] = {{.name = "host_memory", .can = can, .run = run_reduce}, {.name = NULL}};

static ct_tensor *sum_over_ranks(ct_tensor *x, const ct__dist_attrs *attrs);
static bool is_reduce(const ct_op *op);

/* A reduction that NCCL does not have, where there is nothing else: what all ranks have is gathered, and reduced by each. */
static ct_tensor *reduce_here(ct_tensor *x, const ct__dist_attrs *a, ct__dist_kind kind) {
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, "dist_all_reduce");
    ct_tensor *all = group ? ct_dist_all_gather(ct_unsqueeze(x, 0), group) : NULL, *y;
    if (all && !ct_dtype_is_float(ct_dtype_of(x))) all = ct_cast(all, CT_I32); /* 16 bits: others NCCL has */
    switch ((ct_dist_reduction)a->reduction) {
    case CT_DIST_MAX: y = ct_amax(all, .axes = CT_DIMS(0)); break;
    case CT_DIST_MIN: y = ct_amin(all, .axes = CT_DIMS(0)); break;
    case CT_DIST_PRODUCT: y = ct_prod(all, .axes = CT_DIMS(0)); break;
    default: y = ct_sum(all, .axes = CT_DIMS(0));
    }
    if (y && ct_dtype_of(y) != ct_dtype_of(x)) y = ct_cast(y, ct_dtype_of(x));
    if (!y || kind != CT__REDUCE_SCATTER) return y;
    const int64_t part = ct_dim(x, 0) / group->size;
    return ct_contiguous(ct_narrow(y, 0, part * group->rank, part));
}

/* Other devices, and what is not contiguous. */
static void lower(ct_lower *l) {
    const ct__dist_attrs *a = l->attrs;
    const ct_dist_group *group = ct__group_by_id((uint64_t)a->group, l->op->name);
    if (!group) return;
    if (group->nccl && is_reduce(l->op)) { /* by NCCL the sum goes to all */
        ct_tensor *sum = sum_over_ranks(l->in[0], a);
        l->out[0] = sum && group->rank != (int)a->root ? ct_zeros_like(sum) : sum;
        return;
    }
    if (ct__job_state.nccl_alone && group->nccl) {
        l->out[0] = reduce_here(l->in[0], a, ct__op_kind(l->op));
        return;
    }
    ct_tensor *host = ct_contiguous(ct_to(l->in[0], (ct_device){CT_CPU, 0})), *y = NULL;
    if (ct_apply(l->op, &host, 1, l->attrs, &y, 1)) l->out[0] = ct_to(y, ct_device_of(l->in[0]));
}

/* ---- Derivatives ---- */

/* The cotangent of all ranks. */
static ct_tensor *total(ct_tensor *cotangent, ct_dist_group *group) {
    return ct_dist_all_reduce(cotangent, CT_DIST_SUM, group);
}

static void vjp_sum(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (group) v->grad[0] = total(v->cot[0], group);
}

/* The product of the other ranks' x: a quotient would not do where x is 0. */
static ct_tensor *product_of_others(ct_tensor *x, ct_dist_group *group) {
    ct_tensor *all = ct_dist_all_gather(ct_unsqueeze(x, 0), group), *parts[2];
    int n = 0;
    if (group->rank > 0) parts[n++] = ct_narrow(all, 0, 0, group->rank);
    if (group->rank + 1 < group->size) parts[n++] = ct_narrow(all, 0, group->rank + 1, group->size - group->rank - 1);
    if (n == 0) return ct_ones_like(x);
    return ct_prod(n == 1 ? parts[0] : ct_cat(parts, n, 0), .axes = CT_DIMS(0));
}

static void vjp_extreme(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (!group) return;
    ct_tensor *x = v->in[0], *g = total(v->cot[0], group);
    if (a->reduction == CT_DIST_PRODUCT) {
        v->grad[0] = ct_mul(g, product_of_others(x, group));
        return;
    }
    /* the first rank that has it: where(x == y, rank, size), and the least of that */
    ct_tensor *has = ct_cast(ct_eq(x, v->out[0]), CT_I32);
    ct_tensor *owner =
        ct_dist_all_reduce(ct_add_s(ct_mul_s(has, group->rank - group->size), group->size), CT_DIST_MIN, group);
    v->grad[0] = ct_mul(g, ct_cast(ct_eq_s(owner, group->rank), ct_dtype_of(x)));
}

static ct_tensor *reduce_to(ct_tensor *x, int root, ct_dist_group *group);

static void vjp_broadcast(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (group) v->grad[0] = reduce_to(v->cot[0], (int)a->root, group);
}

static void vjp_reduce(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (group) v->grad[0] = ct_dist_broadcast(v->cot[0], (int)a->root, group);
}

static void vjp_all_gather(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (group)
        v->grad[0] =
            ct_reshape(ct_dist_reduce_scatter(v->cot[0], (ct_dist_reduction)a->reduction, group), ct_shape(v->in[0]));
}

static void vjp_reduce_scatter(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (!group) return;
    if (a->reduction != CT_DIST_SUM && a->reduction != CT_DIST_MEAN)
        ct_fail(CT_ERR_GRAD, v->op->name,
                "only a sum and a mean have a gradient here; dist_all_reduce has all of them");
    else v->grad[0] = ct_dist_all_gather(v->cot[0], group);
}

static void vjp_all_to_all(ct_vjp *v) {
    const ct__dist_attrs *a = v->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, v->op->name);
    if (group) v->grad[0] = ct_dist_all_to_all(v->cot[0], group);
}

/* ---- The table ---- */

static const ct_arg inputs[] = {{"x", 0}, {NULL, 0}};
static const ct_arg outputs[] = {{"y", 0}, {NULL, 0}};
static const ct_attr schema[] = {
    {.name = "group", .type = CT_ATTR_INT, .offset = offsetof(ct__dist_attrs, group), .doc = "0: all ranks"},
    {.name = "reduction",
     .type = CT_ATTR_INT,
     .offset = offsetof(ct__dist_attrs, reduction),
     .doc = "ct_dist_reduction"},
    {.name = "root", .type = CT_ATTR_INT, .offset = offsetof(ct__dist_attrs, root), .doc = "of a broadcast"},
    {.name = "work", .type = CT_ATTR_INT, .offset = offsetof(ct__dist_attrs, work), .doc = "0: none that has begun"},
    {.name = NULL}};

enum { EXTREME = CT__BARRIER, REDUCE, GIVE, TAKE, OPS };
static ct_op_slot slots[OPS];
static const ct__dist_kind kinds[OPS] = {CT__ALL_REDUCE,     CT__BROADCAST,  CT__ALL_GATHER,
                                         CT__REDUCE_SCATTER, CT__ALL_TO_ALL, CT__ALL_REDUCE,
                                         CT__ALL_REDUCE,     CT__SEND,       CT__RECEIVE};
#define DIST_OP(at, title, text, derivative, saved)                                                                  \
    {                                                                                                                \
        .size = sizeof(ct_op), .name = title, .doc = text, .inputs = inputs, .outputs = outputs, .attrs = schema,    \
        .attr_size = sizeof(ct__dist_attrs), .flags = CT_OP_MOVES, .saves_in = saved, .saves_out = saved,            \
        .infer = infer, .vjp = derivative, .lower = lower, .slot = &slots[at], .context = (void *)(size_t)&kinds[at] \
    }
static const ct_op ops[OPS] = {
    DIST_OP(CT__ALL_REDUCE, "dist_all_reduce", "The sum over ranks.", vjp_sum, 0),
    DIST_OP(CT__BROADCAST, "dist_broadcast", "x of one rank.", vjp_broadcast, 0),
    DIST_OP(CT__ALL_GATHER, "dist_all_gather", "x of all ranks, one after the other.", vjp_all_gather, 0),
    DIST_OP(CT__REDUCE_SCATTER, "dist_reduce_scatter", "This rank's part of the sum over ranks.", vjp_reduce_scatter,
            0),
    DIST_OP(CT__ALL_TO_ALL, "dist_all_to_all", "Part r of every rank's x, on rank r.", vjp_all_to_all, 0),
    DIST_OP(EXTREME, "dist_all_reduce_extreme", "The largest, smallest or product over ranks.", vjp_extreme, 1),
    DIST_OP(REDUCE, "dist_reduce", "The sum over ranks on one of them, zeros on the others.", vjp_reduce, 0),
    /* by NCCL alone; elsewhere messages are no ops */
    DIST_OP(GIVE, "dist_send", "x to another rank.", NULL, 0),
    DIST_OP(TAKE, "dist_receive", "What another rank has sent, of the shape of x.", NULL, 0),
};

static bool registered(void) {
    static bool done;
    for (int i = 0; !done && i < OPS; i++)
        if (!ct_op_register(&ops[i]) ||
            (i < GIVE && !ct_op_add_kernels(&ops[i], "cpu", i == REDUCE ? reduce_kernels : kernels)))
            return false;
    return done = true;
}

/* NCCL's kernels, once there is a CUDA tensor to use them. The sum on one rank alone is made of theirs (lower). */
static bool registered_cuda(void) {
    static bool done;
    for (int i = 0; !done && i < OPS; i++)
        if (i != REDUCE && !ct_op_add_kernels(&ops[i], "cuda", ct__nccl_kernels)) return false;
    return done = true;
}

/* One op, on the stream of the group where NCCL carries it: what comes after waits for it on the device. */
static ct_tensor *apply(const ct_op *op, ct_tensor *x, const ct__dist_attrs *attrs, ct_dist_group *group) {
    ct_tensor *y = NULL;
    ct_device through;
    if (x && ct__alone_carries(group) && ct_device_of(x).type != CT_CUDA) { /* there and back */
        y = ct__alone_device(group, &through) ? apply(op, ct_to(x, through), attrs, group) : NULL;
        return y ? ct_to(y, ct_device_of(x)) : NULL;
    }
    if (!x || !ct__device_ready(group, x)) return NULL;
    const bool by_nccl = group->nccl && ct_device_of(x).type == CT_CUDA;
    if (by_nccl && !registered_cuda()) return NULL;
    const ct_device device = ct_device_of(x);
    ct_stream *before = by_nccl ? ct_get_stream(device) : NULL;
    if (by_nccl && !ct_set_stream(device, group->stream)) return NULL;
    const bool fine = ct_apply(op, &x, 1, attrs, &y, 1);
    if (by_nccl) ct_set_stream(device, before);
    return fine ? y : NULL;
}

static bool is_reduce(const ct_op *op) { return op->slot == &slots[REDUCE]; }

static ct_tensor *sum_over_ranks(ct_tensor *x, const ct__dist_attrs *attrs) {
    ct_tensor *dense_x = ct_contiguous(x), *y = NULL;
    return ct_apply(&ops[CT__ALL_REDUCE], &dense_x, 1, attrs, &y, 1) ? y : NULL;
}

static ct_tensor *reduce_to(ct_tensor *x, int root, ct_dist_group *group) {
    const ct__dist_attrs attrs = {(int64_t)group->id, CT_DIST_SUM, root, 0};
    return apply(&ops[REDUCE], ct_contiguous(x), &attrs, group);
}

ct_tensor *ct__dist_message(ct__dist_kind kind, ct_tensor *x, int peer, ct_dist_group *group) {
    const ct__dist_attrs attrs = {(int64_t)group->id, CT_DIST_SUM, peer, 0};
    ct_device device;
    if (!registered() || !ct__alone_device(group, &device)) return NULL;
    return apply(&ops[kind == CT__SEND ? GIVE : TAKE], ct_to(ct_contiguous(ct_detach(x)), device), &attrs, group);
}

ct_tensor *ct__dist_apply(ct__dist_kind kind, ct_tensor *x, ct_dist_reduction reduction, int root, ct_dist_group *group,
                          ct_dist_work *work) {
    ct_dist_group *g = ct__group(group, ct__kind_name(kind));
    if (!g || !registered()) return NULL;
    const bool extreme = kind == CT__ALL_REDUCE && reduction != CT_DIST_SUM && reduction != CT_DIST_MEAN;
    const ct__dist_attrs attrs = {(int64_t)g->id, (int64_t)reduction, root, work ? (int64_t)work->id : 0};
    if (!x) {
        if (ct_ok()) ct_fail(CT_ERR_NULL, ct__kind_name(kind), "x is NULL");
        return NULL;
    }
    ct_tensor *y = apply(&ops[extreme ? EXTREME : (int)kind], ct_contiguous(x), &attrs, g);
    const bool mean = reduction == CT_DIST_MEAN && (kind == CT__ALL_REDUCE || kind == CT__REDUCE_SCATTER);
    return mean ? ct_div_s(y, g->size) : y;
}
