/* CUDA tensors by NCCL, where all ranks of a group have it; otherwise, and for other devices, collectives go through
 * the host's memory. What ranks are about to do is compared by MPI first, as ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cotangent/backend.h>

#include "dist/device.h"

static const ct__nccl *nccl; /* NULL: it is not there */
static char missing[512];    /* why */

const ct__nccl *ct__nccl_open(char *name, size_t room) {
    static bool tried;
    static char version[64];
    if (!tried) {
        tried = true;
        const ct_module_function found = ct_ok() ? ct_backend_symbol("nccl", CT__NCCL_ENTRY) : NULL;
        const ct__nccl *table = found ? ((ct__nccl_entry)found)() : NULL;
        const char *problem = NULL;
        if (!found) {
            snprintf(missing, sizeof missing, "%s", ct_error());
            ct_error_clear();
        } else if (table->version != CT__NCCL_VERSION || table->size != sizeof *table)
            problem = "its module is of another version of the library";
        else problem = table->open(version, sizeof version);
        if (problem) snprintf(missing, sizeof missing, "%s", problem);
        if (found && !problem) nccl = table;
    }
    if (name) snprintf(name, room, "%s", nccl ? version : missing);
    return nccl;
}

static const char meeting[] =
    "NCCL_COMM_ID"; /* the address at which NCCL's ranks meet, for those without an identity */

/* torchrun tells an address at which nothing of ours listens: NCCL's own rendezvous uses the port after it. */
static void tell_address(void) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    char address[300];
    if (!host || !port || getenv(meeting)) return;
    snprintf(address, sizeof address, "%s:%d", host, atoi(port) + 1);
    setenv(meeting, address, 1);
}

/* One that no other group has: not that of an address, which is where all ranks have met. */
bool ct__nccl_new_id(void *id) {
    const char *address = getenv(meeting);
    char *kept = address ? ct_malloc(strlen(address) + 1) : NULL;
    if (kept) memcpy(kept, address, strlen(address) + 1), unsetenv(meeting);
    const char *problem = address && !kept ? "no memory" : nccl ? nccl->new_id(id) : missing;
    if (kept) setenv(meeting, kept, 1);
    ct_free(kept);
    return problem ? ct_fail(CT_ERR_DEVICE, "dist", "NCCL: %s", problem) : true;
}

/* Rank 0's identity on all ranks of the group. */
static bool share_id(ct_dist_group *group, unsigned char *id) {
    const char *problem = NULL;
    const bool alone = !ct__job_state.transport, world = group == &ct__job_state.world;
    if (alone && !world && group->size > 1) {
        memcpy(id, group->nccl_id, sizeof group->nccl_id);
        return true;
    }
    if (alone && group->size > 1) tell_address();
    if (group->rank == 0 || alone) problem = nccl->new_id(id);
    if (problem) return ct_fail(CT_ERR_DEVICE, "dist", "NCCL: %s", problem);
    if (alone || group->size == 1) return true;
    ct__flight flight;
    const ct__transfer transfer = {
        .kind = CT__BROADCAST, .dtype = CT_U8, .count = CT__NCCL_ID_BYTES, .in = id, .out = id};
    return ct__flight_begin(&flight, group, &transfer, (ct_dims){.n = 1, .d = {CT__NCCL_ID_BYTES}},
                            "NCCL's identity") &&
           ct__flight_wait(&flight);
}

/* Whether every rank has NCCL, and later whether it has joined them: else none uses it. */
static bool all_have(ct_dist_group *group, bool mine, bool *all) {
    ct__flight flight;
    unsigned char flag = mine;
    const ct__transfer transfer = {
        .kind = CT__ALL_REDUCE, .reduction = CT_DIST_MIN, .dtype = CT_U8, .count = 1, .in = &flag, .out = &flag};
    const bool fine =
        ct__flight_begin(&flight, group, &transfer, (ct_dims){.n = 1, .d = {1}}, "whether there is NCCL") &&
        ct__flight_wait(&flight);
    *all = flag;
    return fine;
}

/* What joining gives: it may be under way until the process ends. */
static struct {
    unsigned char id[CT__NCCL_ID_BYTES];
    int rank, size, device;
    void *comm;
    const char *problem;
} entry;

static void enter(void *context) {
    (void)context;
    entry.problem = nccl->join(entry.id, entry.rank, entry.size, entry.device, &entry.comm);
}

/* Within the time limit; NCCL itself waits for ever for a rank that does not come. False after an error. */
static bool enter_in_time(ct_dist_group *group, const unsigned char *id, int device, const char **problem) {
    memcpy(entry.id, id, sizeof entry.id);
    entry.rank = group->rank, entry.size = group->size, entry.device = device, entry.comm = NULL;
    if (!ct__patiently(enter, &entry, ct__job_state.timeout)) {
        char text[200];
        snprintf(text, sizeof text, "rank %d waits until NCCL has joined %d ranks: not all have come to it within %g s",
                 group->rank, group->size, ct__job_state.timeout);
        ct__lock(); /* other calls are on their way, and the thread that moves them at work */
        ct__break("dist", CT_ERR_STATE, text);
        ct__unlock();
        return false;
    }
    group->nccl = entry.comm;
    *problem = entry.problem;
    return true;
}

static bool join(ct_dist_group *group, ct_device device) {
    unsigned char id[CT__NCCL_ID_BYTES] = {0};
    bool all = true;
    const bool mine = ct__nccl_open(NULL, 0) != NULL;
    if (ct__job_state.transport && !all_have(group, mine, &all)) return false;
    if (!mine && !ct__job_state.transport) return ct_fail(CT_ERR_DEVICE, "dist", "NCCL: %s", missing);
    if (!all) return true;
    if (!share_id(group, id)) return false;
    const char *problem = NULL;
    if (!enter_in_time(group, id, device.index, &problem)) return false;
    if (problem && !ct__job_state.transport)
        return ct_fail(CT_ERR_DEVICE, "dist", "NCCL: rank %d: %s", group->rank, problem);
    /* NCCL refuses ranks that share a device, say: then all go through the host */
    if (ct__job_state.transport && !all_have(group, !problem, &all)) return false;
    if (all) return (group->stream = ct_stream_new(device)) != NULL;
    if (!problem) nccl->leave(group->nccl);
    group->nccl = NULL;
    return true;
}

bool ct__device_ready(ct_dist_group *group, const ct_tensor *x) {
    const ct_device device = ct_device_of(x);
    if (device.type != CT_CUDA || (group->size == 1 && !ct__job_state.nccl_alone)) return true;
    if (!group->asked) {
        group->asked = true;
        group->device = device.index;
        if (!join(group, device)) return false;
    }
    if (!group->nccl || group->device == device.index) return true;
    return ct_fail(CT_ERR_DEVICE, "dist",
                   "this rank's first CUDA tensor was on cuda:%d, and x is on cuda:%d: a rank has one device",
                   group->device, device.index);
}

void ct__device_leave(ct_dist_group *group) {
    ct__watch_leave(group);
    if (group->nccl && nccl && !ct__job_state.broken[0]) nccl->leave(group->nccl);
    ct_stream_free(group->stream);
    group->nccl = NULL;
    group->stream = NULL;
    group->asked = false;
}

/* ---- Kernels ---- */

static const char *can(const ct_call *call) {
    const ct__dist_attrs *a = call->attrs;
    const ct_dist_group *group = ct__group_by_id((uint64_t)a->group, call->op->name);
    if (!group || !group->nccl) return "there is no NCCL here";
    if (ct_get_stream(call->device) != group->stream) return "it runs on a stream of its own";
    if (a->work) return "its result is in the host's memory";
    const char *refused = nccl->cannot(ct__op_kind(call->op), call->in[0]->dtype, (ct_dist_reduction)a->reduction);
    if (refused) return refused;
    return ct__view_dense(call->in[0]) && ct__view_dense(call->out[0]) ? NULL
                                                                       : "x and its result have to be contiguous";
}

static char *address(const ct_view *view) {
    return (char *)view->buffer + view->origin + (size_t)view->offset * ct_dtype_size(view->dtype);
}

static bool run(const ct_call *call, ct_stream *stream) {
    const ct__dist_attrs *a = call->attrs;
    ct_dist_group *group = ct__group_by_id((uint64_t)a->group, call->op->name);
    if (!group) return false;
    if (!stream) /* as a replay may choose it: NCCL's work would have no order with that of the device's own stream */
        return ct_fail(CT_ERR_UNSUPPORTED, call->op->name, "NCCL's collectives run on a stream of their own");
    ct__transfer transfer = ct__transfer_of_call(call, group->size);
    if (ct__job_state.transport &&
        group->size > 1) { /* who does not agree, or does not come, is told before the device waits for him */
        ct__transfer nothing = transfer;
        ct__flight flight;
        nothing.count = 0;
        if (!ct__flight_begin(&flight, group, &nothing, ct__call_shape(call), "") || !ct__flight_wait(&flight))
            return false;
    }
    transfer.in = address(call->in[0]);
    transfer.out = address(call->out[0]);
    if (!ct__job_state.transport || group->size == 1) ct__job_state.stats.calls++;
    ct__job_state.stats.bytes += transfer.count * (int64_t)ct_dtype_size(transfer.dtype);
    if (transfer.count == 0) return true;
    const uint64_t place = ct__watch_begin(nccl, group, &transfer, ct__call_shape(call));
    const char *problem = nccl->collective(group->nccl, &transfer, group->size, stream->handle);
    ct__watch_enqueued(place, stream->handle);
    if (problem && ct__job_state.broken[0]) return ct_fail(CT_ERR_STATE, call->op->name, "%s", ct__job_state.broken);
    return problem ? ct_fail(CT_ERR_DEVICE, call->op->name, "NCCL: %s", problem) : true;
}

const ct_kernel ct__nccl_kernels[] = {{.name = "nccl", .can = can, .run = run}, {.name = NULL}};
