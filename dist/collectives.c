/* The collectives as functions, at once and begun; sends and receives. */
#include <string.h>

#include "dist/device.h"

static ct_dist_work *works; /* all that have begun and were not freed */

/* ---- At once ---- */

ct_tensor *ct_dist_all_reduce(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group) {
    return ct__dist_apply(CT__ALL_REDUCE, x, reduction, 0, group, NULL);
}

ct_tensor *ct_dist_broadcast(ct_tensor *x, int root, ct_dist_group *group) {
    return ct__dist_apply(CT__BROADCAST, x, CT_DIST_SUM, root, group, NULL);
}

ct_tensor *ct_dist_all_gather(ct_tensor *x, ct_dist_group *group) {
    return ct__dist_apply(CT__ALL_GATHER, x, CT_DIST_SUM, 0, group, NULL);
}

ct_tensor *ct_dist_reduce_scatter(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group) {
    return ct__dist_apply(CT__REDUCE_SCATTER, x, reduction, 0, group, NULL);
}

ct_tensor *ct_dist_all_to_all(ct_tensor *x, ct_dist_group *group) {
    return ct__dist_apply(CT__ALL_TO_ALL, x, CT_DIST_SUM, 0, group, NULL);
}

static bool finish(ct_dist_work *work) {
    const bool fine = work && ct_dist_wait(work, NULL);
    ct_dist_work_free(work);
    return fine;
}
bool ct_dist_barrier(ct_dist_group *group) { return finish(ct_dist_barrier_start(group)); }
bool ct_dist_send(ct_tensor *x, int to, ct_dist_group *group) { return finish(ct_dist_send_start(x, to, group)); }
bool ct_dist_receive(ct_tensor *x, int from, ct_dist_group *group) {
    return finish(ct_dist_receive_start(x, from, group));
}

/* ---- Begun ---- */

static ct_tensor *on_host(ct_tensor *x) { return ct_contiguous(ct_to(ct_detach(x), (ct_device){CT_CPU, 0})); }

static ct_dist_work *new_work(ct__dist_kind kind) {
    static uint64_t last_id;
    ct_dist_work *work = ct_calloc(1, sizeof *work);
    if (!work) {
        ct_fail(CT_ERR_MEMORY, ct__kind_name(kind), "no memory for a call that has begun");
        return NULL;
    }
    work->id = ++last_id;
    work->next = works;
    return works = work;
}

static void release(ct_dist_work *work) {
    ct_dist_work **at = &works;
    while (*at && *at != work) at = &(*at)->next;
    if (*at) *at = work->next;
    if (work->flight.moving) return; /* it was given up, and the engine may still read and write there */
    ct_drop(work->x);
    ct_drop(work->staged);
    ct_drop(work->result);
    ct_free(work);
}

/* What every start checks; NULL after an error. */
static ct_dist_group *ready(ct__dist_kind kind, const ct_tensor *x, bool wants_x, ct_dist_group *group) {
    if (!ct_ok()) return NULL;
    if (wants_x && !x) {
        ct_fail(CT_ERR_NULL, ct__kind_name(kind), "x is NULL");
        return NULL;
    }
    return ct__group(group, ct__kind_name(kind));
}

/* Into the flight: x, or a copy of it in the host's memory, and the result there. */
static bool begin(ct_dist_work *work, ct_dist_group *group, ct__transfer transfer, ct_dims shape, const char *name) {
    if (work->staged) transfer.in = ct_data(work->staged);
    if (work->result) transfer.out = ct_data_mut(work->result);
    return ct_ok() && ct__flight_begin(&work->flight, group, &transfer, shape, name);
}

/* A call that is over for the host, or is on its way on the device. */
static ct_dist_work *passed(ct_dist_work *work, ct_dist_group *group, ct__dist_kind kind) {
    work->enqueued = true;
    work->flight = (ct__flight){.group = group, .stage = CT__OVER, .transfer = {.kind = kind}};
    return work;
}

ct_dist_work *ct__start(ct__dist_kind kind, ct_tensor *x, ct_dist_reduction reduction, int root, ct_dist_group *given,
                        const char *name, bool in_place, float scale) {
    ct_dist_group *group = ready(kind, x, true, given);
    ct_dims result;
    char why[256];
    if (!group) return NULL;
    const ct_dtype dtype = ct_dtype_of(x);
    if (!ct__dist_result(kind, dtype, reduction, root, group->size, ct_shape(x), &result, why, sizeof why)) {
        ct_fail(CT_ERR_VALUE, ct__kind_name(kind), "%s", why);
        return NULL;
    }
    ct_dist_work *work = new_work(kind);
    if (!work) return NULL;
    bool fine = false;
    const bool alone = ct__alone_carries(group);
    if (alone || (ct_device_of(x).type == CT_CUDA && ct__device_ready(group, x) &&
                  group->nccl)) { /* the device goes on by itself */
        ct_scope {
            ct_tensor *y = ct__dist_apply(kind, x, reduction, root, given, NULL);
            work->result = ct_keep(y && scale != 0 ? ct_mul_s(y, scale) : y);
        }
        if (work->result) return passed(work, group, kind);
    }
    if (!ct_ok()) {
        release(work);
        return NULL;
    }
    ct_scope {
        work->x = ct_keep(x);
        work->staged = ct_keep(on_host(x));
        work->result = ct_keep(in_place ? work->staged : ct_empty(result, .dtype = dtype, .device = {CT_CPU, 0}));
        ct__transfer transfer = ct__transfer_of(kind, reduction, dtype, root, ct_numel(x), group->size);
        transfer.scale = scale;
        fine = work->staged && work->result && begin(work, group, transfer, ct_shape(x), name);
    }
    if (fine) return work;
    release(work);
    return NULL;
}

ct_dist_work *ct_dist_all_reduce_start(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group) {
    return ct__start(CT__ALL_REDUCE, x, reduction, 0, group, "", false, 0);
}

ct_dist_work *ct_dist_broadcast_start(ct_tensor *x, int root, ct_dist_group *group) {
    return ct__start(CT__BROADCAST, x, CT_DIST_SUM, root, group, "", false, 0);
}

ct_dist_work *ct_dist_all_gather_start(ct_tensor *x, ct_dist_group *group) {
    return ct__start(CT__ALL_GATHER, x, CT_DIST_SUM, 0, group, "", false, 0);
}

ct_dist_work *ct_dist_reduce_scatter_start(ct_tensor *x, ct_dist_reduction reduction, ct_dist_group *group) {
    return ct__start(CT__REDUCE_SCATTER, x, reduction, 0, group, "", false, 0);
}

ct_dist_work *ct_dist_all_to_all_start(ct_tensor *x, ct_dist_group *group) {
    return ct__start(CT__ALL_TO_ALL, x, CT_DIST_SUM, 0, group, "", false, 0);
}

ct_dist_work *ct_dist_barrier_start(ct_dist_group *given) {
    ct_dist_group *group = ready(CT__BARRIER, NULL, false, given);
    ct_dist_work *work = group ? new_work(CT__BARRIER) : NULL;
    if (work && ct__alone_carries(group)) {
        if (ct__alone_barrier(group)) return passed(work, group, CT__BARRIER);
        release(work);
        return NULL;
    }
    if (!work || begin(work, group, (ct__transfer){.kind = CT__BARRIER}, (ct_dims){0}, "")) return work;
    release(work);
    return NULL;
}

static bool good_peer(ct__dist_kind kind, int peer, const ct_dist_group *group) {
    if (peer >= 0 && peer < group->size && peer != group->rank) return true;
    return ct_fail(CT_ERR_VALUE, ct__kind_name(kind), "%s is %d, which is %s (this is rank %d of %d)",
                   kind == CT__SEND ? "to" : "from", peer,
                   peer == group->rank ? "this rank itself" : "no rank of the group", group->rank, group->size);
}

ct_dist_work *ct_dist_send_start(ct_tensor *x, int to, ct_dist_group *given) {
    ct_dist_group *group = ready(CT__SEND, x, true, given);
    if (!group || !good_peer(CT__SEND, to, group)) return NULL;
    if (ct_requires_grad(x) && !ct_is_leaf(x)) {
        ct_fail(CT_ERR_GRAD, "dist_send",
                "x, %s, is part of a graph, and its gradient would not come back: send ct_detach(x)",
                ct_tensor_text(x));
        return NULL;
    }
    ct_dist_work *work = new_work(CT__SEND);
    if (!work) return NULL;
    bool fine = false;
    if (ct__alone_carries(group)) {
        work->x = ct_keep(x);
        ct__alone_begin(work, group, CT__SEND, to);
        return work;
    }
    ct_scope {
        work->staged = ct_keep(on_host(x));
        fine = work->staged &&
               begin(work, group, ct__transfer_of(CT__SEND, CT_DIST_SUM, ct_dtype_of(x), to, ct_numel(x), group->size),
                     ct_shape(x), "");
    }
    if (fine) return work;
    release(work);
    return NULL;
}

ct_dist_work *ct_dist_receive_start(ct_tensor *x, int from, ct_dist_group *given) {
    ct_dist_group *group = ready(CT__RECEIVE, x, true, given);
    if (!group || !good_peer(CT__RECEIVE, from, group)) return NULL;
    if (!ct_is_contiguous(x)) {
        ct_fail(CT_ERR_VALUE, "dist_receive", "x, %s, is not contiguous", ct_tensor_text(x));
        return NULL;
    }
    ct_dist_work *work = new_work(CT__RECEIVE);
    if (!work) return NULL;
    work->x = ct_keep(x);
    if (ct__alone_carries(group)) {
        ct__alone_begin(work, group, CT__RECEIVE, from);
        return work;
    }
    ct_scope
        work->result = ct_keep(ct_empty(ct_shape(x), .dtype = ct_dtype_of(x), .device = {CT_CPU, 0}));
    if (work->result &&
        begin(work, group, ct__transfer_of(CT__RECEIVE, CT_DIST_SUM, ct_dtype_of(x), from, ct_numel(x), group->size),
              ct_shape(x), ""))
        return work;
    release(work);
    return NULL;
}

bool ct_dist_done(ct_dist_work *work) {
    if (!work) return ct_fail(CT_ERR_NULL, "dist_done", "work is NULL");
    if (ct__flight_stage(&work->flight) < CT__OVER && work->enqueued) ct__alone_deliver();
    else if (ct__flight_stage(&work->flight) < CT__OVER) ct__flights_move();
    return ct__flight_stage(&work->flight) == CT__OVER;
}

ct_tensor *ct__work_result(int64_t id) {
    for (ct_dist_work *w = works; w; w = w->next)
        if ((int64_t)w->id == id) return w->result;
    ct_fail(CT_ERR_STATE, "dist_wait", "the call whose result is wanted was freed");
    return NULL;
}

bool ct_dist_wait(ct_dist_work *work, ct_tensor **result) {
    if (result) *result = NULL;
    if (!work) return ct_fail(CT_ERR_NULL, "dist_wait", "work is NULL");
    const ct__transfer *t = &work->flight.transfer;
    if (work->enqueued && work->flight.stage < CT__OVER && !ct__alone_deliver()) return false;
    if (!ct__flight_wait(&work->flight)) return false;
    if (work->enqueued && t->kind == CT__RECEIVE) {
        if (result) *result = work->x;
    } else if (work->enqueued) {
        if (result && work->result)
            *result = ct_reshape(work->result, ct_shape(work->result)); /* one that belongs to the scope */
    } else if (t->kind == CT__RECEIVE) {
        if (!work->waited && !ct_write(work->x, ct_data(work->result), (size_t)t->count * ct_dtype_size(t->dtype)))
            return false;
        if (result) *result = work->x;
    } else if (result && work->result)
        *result = ct__dist_apply(t->kind, work->x, t->reduction, t->root, work->flight.group, work);
    work->waited = true;
    return ct_ok();
}

void ct_dist_work_free(ct_dist_work *work) {
    if (!work) return;
    if (ct__flight_stage(&work->flight) < CT__OVER && work->enqueued) ct__alone_deliver();
    else if (ct__flight_stage(&work->flight) < CT__OVER) ct__flight_wait(&work->flight);
    release(work);
}
