/* A job of NCCL alone, as torchrun starts them: there is no MPI, so tensors of the host's memory go through this rank's device, and
 * what elsewhere is MPI's (barriers, groups, messages) is made of collectives on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/device.h"

/* ---- Joining ---- */

/* Who may have started this process, and the variables that say which one it is. */
static const struct {
    const char *rank, *size, *local_rank, *local_size;
} starters[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, /* torchrun */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

static bool number_of(const char *variable, int otherwise, int *value) {
    const char *text = getenv(variable);
    char *end = NULL;
    *value = otherwise;
    if (!text || !*text) return true;
    const long number = strtol(text, &end, 10);
    if (*end || number < 0 || number > 1 << 24)
        return ct_fail(CT_ERR_VALUE, "dist_init", "%s is '%s'; expected a number", variable, text);
    *value = (int)number;
    return true;
}

bool ct__alone_join(int *local_ranks) {
    ct__job *job = &ct__job_state;
    char name[512];
    size_t who = 0;
    int rank, size;
    while (who + 1 < sizeof starters / sizeof *starters && !(getenv(starters[who].rank) && getenv(starters[who].size)))
        who++;
    if (!getenv(starters[who].rank)) who = 0;
    if (!ct__nccl_open(name, sizeof name)) return ct_fail(CT_ERR_DEVICE, "dist_init", "engine 'nccl': %s", name);
    if (!number_of(starters[who].rank, 0, &rank) || !number_of(starters[who].size, 1, &size) ||
        !number_of(starters[who].local_rank, 0, &job->local_rank) ||
        !number_of(starters[who].local_size, 1, local_ranks))
        return false;
    if (size < 1 || rank >= size)
        return ct_fail(CT_ERR_VALUE, "dist_init", "%s is %d and %s %d", starters[who].rank, rank, starters[who].size,
                       size);
    if (size > 1 && !getenv("NCCL_COMM_ID") && !(getenv("MASTER_ADDR") && getenv("MASTER_PORT")))
        return ct_fail(CT_ERR_VALUE, "dist_init",
                       "NCCL alone is to join %d ranks, and does not know where they meet: MASTER_ADDR and MASTER_PORT "
                       "name a machine of theirs and a port",
                       size);
    if (!(job->world.ranks = ct_calloc((size_t)size, sizeof *job->world.ranks)))
        return ct_fail(CT_ERR_MEMORY, "dist_init", "no memory for %d ranks", size);
    for (int i = 0; i < size; i++) job->world.ranks[i] = i;
    job->world.rank = rank;
    job->world.size = size;
    job->nccl_alone = true;
    snprintf(job->engine, sizeof job->engine, "%.100s", name);
    return true;
}

/* ---- Through the device ---- */

bool ct__alone_carries(const ct_dist_group *group) { return ct__job_state.nccl_alone && group->size > 1; }

bool ct__alone_device(const ct_dist_group *group, ct_device *device) {
    const int count = ct_device_count(CT_CUDA);
    *device = (ct_device){CT_CUDA, group->asked ? group->device : count ? ct__job_state.local_rank % count : 0};
    return count > 0 || ct_fail(CT_ERR_DEVICE, "dist", "NCCL alone joins these ranks, and this one has no device: %s",
                                ct_backend_missing(CT_CUDA));
}

/* ---- Messages ---- */

static ct_dist_work *first, **last = &first; /* that have begun, in their order */

void ct__alone_begin(ct_dist_work *work, ct_dist_group *group, ct__dist_kind kind, int peer) {
    work->enqueued = true;
    work->flight = (ct__flight){
        .group = group, .stage = CT__AGREEING, .transfer = {.kind = kind, .dtype = ct_dtype_of(work->x), .root = peer}};
    *last = work;
    last = &work->later;
}

bool ct__alone_deliver(void) {
    ct_dist_work *all = first;
    if (!all) return ct_ok();
    const ct__nccl *nccl = ct__nccl_open(NULL, 0);
    bool fine = ct_ok();
    first = NULL;
    last = &first;
    /* ranks are joined before, by all of those that meet here */
    for (ct_dist_work *w = all; w && fine; w = w->later) {
        ct_device device;
        ct_scope
            fine = ct__alone_device(w->flight.group, &device) &&
                   ct__device_ready(w->flight.group, ct_zeros(CT_DIMS(1), .device = device));
    }
    ct_scope { /* what is sent has to be there until the end */
        const char *problem = fine ? nccl->group(false) : NULL;
        if (problem) fine = ct_fail(CT_ERR_DEVICE, "dist", "NCCL: %s", problem);
        const bool begun = fine;
        for (ct_dist_work *w = all; w && fine; w = w->later) {
            ct_tensor *y = ct__dist_message(w->flight.transfer.kind, w->x, w->flight.transfer.root, w->flight.group);
            fine = y != NULL;
            if (fine && w->flight.transfer.kind == CT__RECEIVE) w->staged = ct_keep(y);
        }
        ct_dist_group *group = all->flight.group;
        const uint64_t place =
            begun ? ct__watch_begin(nccl, group, &all->flight.transfer, ct_shape(all->x)) : UINT64_MAX;
        problem = begun ? nccl->group(true) : NULL;
        ct__watch_enqueued(place, group->stream ? group->stream->handle : NULL);
        if (problem && fine) fine = ct_fail(CT_ERR_DEVICE, "dist", "NCCL: %s", problem);
        /* what is enqueued at the end of a group is behind what its ops have told of the stream: it is waited for here */
        for (ct_dist_work *w = all; w && fine; w = w->later) fine = ct_stream_synchronize(w->flight.group->stream);
        for (ct_dist_work *w = all; w; w = w->later) {
            ct_no_grad
                fine = fine && (!w->staged || ct_assign(w->x, ct_to(w->staged, ct_device_of(w->x))) != NULL);
            w->flight.stage = fine ? CT__OVER : CT__FAILED;
        }
    }
    return fine;
}

bool ct__alone_barrier(ct_dist_group *group) {
    bool fine = false;
    ct_scope {
        const int32_t one = 1;
        int32_t sum = 0;
        ct_tensor *all = ct_dist_all_reduce(ct_from_data(&one, CT_DIMS(1), CT_I32), CT_DIST_SUM, group);
        fine = all && ct_read(all, &sum, sizeof sum) &&
               (sum == group->size ||
                ct_fail(CT_ERR_DEVICE, "dist_barrier", "NCCL counts %d ranks of %d", sum, group->size));
    }
    return fine;
}

/* ---- Groups ---- */

enum { ID_WORDS = CT__NCCL_ID_BYTES / 8 };

/* n numbers of every rank of the group, rank by rank. */
static bool gather(ct_dist_group *group, const int64_t *mine, int n, int64_t *all) {
    bool fine = false;
    ct_scope {
        ct_tensor *every = ct_dist_all_gather(ct_from_data(mine, CT_DIMS(n), CT_I64), group);
        fine = every && ct_read(every, all, (size_t)group->size * (size_t)n * sizeof *all);
    }
    return fine;
}

/* The ranks of that color, by key and then by rank, into made. */
static bool choose_ranks(const ct_dist_group *from, const int64_t *calls, int color, ct_dist_group *made) {
    int *list = ct_calloc((size_t)from->size, sizeof *list), n = 0;
    if (!list) return ct_fail(CT_ERR_MEMORY, "dist_split", "no memory for a group of ranks");
    for (int r = 0; r < from->size; r++) {
        if (color < 0 ? r != from->rank : calls[2 * r] != color) continue;
        int at = n++;
        for (; at > 0 && calls[2 * list[at - 1] + 1] > calls[2 * r + 1]; at--) list[at] = list[at - 1];
        list[at] = r;
    }
    made->size = n;
    for (int i = 0; i < n; i++)
        if (list[i] == from->rank) made->rank = i;
    made->ranks = list; /* of `from`, until its own are known */
    return true;
}

bool ct__alone_split(ct_dist_group *from, int color, int key, ct_dist_group *made) {
    const int64_t mine[2] = {color < 0 ? -1 : color, key};
    int64_t id[ID_WORDS] = {0};
    int64_t *calls = ct_calloc((size_t)from->size, 2 * sizeof *calls), *ids = ct_calloc((size_t)from->size, sizeof id);
    bool fine = (calls && ids) || ct_fail(CT_ERR_MEMORY, "dist_split", "no memory for a group of ranks");
    fine = fine && gather(from, mine, 2, calls) && choose_ranks(from, calls, color, made);
    if (fine && made->rank == 0 && made->size > 1) fine = ct__nccl_new_id(id);
    fine = fine && gather(from, id, ID_WORDS, ids);
    if (fine) {
        memcpy(made->nccl_id, ids + (size_t)made->ranks[0] * ID_WORDS, sizeof made->nccl_id);
        for (int i = 0; i < made->size; i++) made->ranks[i] = from->ranks[made->ranks[i]];
    }
    ct_free(calls);
    ct_free(ids);
    return fine;
}
