/* The job: joining it, leaving it, its groups. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cotangent/backend.h>

#include "dist/device.h"
#include "support/options.h"

static const double default_timeout = 300;

ct__job ct__job_state = {.world = {.size = 1}, .timeout = 300, .engine = "one process"};

double ct__seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Joining ---- */

static const ct__transport *open_module(const char *engine, int ranks, const char *who) {
    char name[40];
    snprintf(name, sizeof name, "mpi_%s", engine);
    const ct_module_function found = ct_backend_symbol(name, CT__TRANSPORT_ENTRY);
    if (!found) {
        char why[512];
        snprintf(why, sizeof why, "%s", ct_error());
        ct_error_clear();
        if (ranks > 1)
            ct_fail(CT_ERR_DEVICE, "dist_init", "%s started this process as one of %d, which needs its module: %s", who,
                    ranks, why);
        else ct_fail(CT_ERR_DEVICE, "dist_init", "engine '%s': %s", engine, why);
        return NULL;
    }
    const ct__transport *transport = ((ct__transport_entry)found)();
    if (transport->version == CT__TRANSPORT_VERSION && transport->size == sizeof *transport) return transport;
    ct_fail(CT_ERR_DEVICE, "dist_init", "the module libcotangent_%s.so is of another version of the library", name);
    return NULL;
}

/* Ranks of one machine that are not bound to processors of their own would fight for them. */
static void share_processors(int local_ranks) {
    cpu_set_t mask;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (local_ranks < 2 || getenv("CT_THREADS") || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    const int mine = CPU_COUNT(&mask);
    if (ct_get_threads() != mine || (long)mine * local_ranks <= processors) return;
    const int share = (int)(processors / local_ranks);
    ct_set_threads(share > 1 ? share : 1);
}

static bool join_by_nccl(void) {
    int local_ranks = 1;
    if (!ct__alone_join(&local_ranks)) return false;
    share_processors(local_ranks);
    return true;
}

/* What joining and leaving give; they may be under way until the process ends. */
static struct {
    const ct__transport *transport;
    int rank, ranks, local_rank, local_ranks;
    bool any_thread;
    char name[128];
    const char *problem;
} entry;

static void enter(void *context) {
    (void)context;
    entry.problem = entry.transport->open(&entry.rank, &entry.ranks, &entry.local_rank, &entry.local_ranks,
                                          &entry.any_thread, entry.name, sizeof entry.name);
}

static void leave(void *context) {
    (void)context;
    entry.problem = entry.transport->close();
}

/* Within the time limit, unless the program has initialized MPI itself: then it may be that its own thread has to call. */
static bool enter_or_leave(ct__patient_call call, bool by_caller) {
    if (!by_caller) return ct__patiently(call, &entry, ct__job_state.timeout);
    call(&entry);
    return true;
}

static const char *launched_rank(void) { /* as whoever started this process calls it */
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i])) return getenv(variables[i]);
    return "?";
}

static const char *count_text(int ranks) {
    static char text[32];
    text[0] = 0;
    if (ranks > 1) snprintf(text, sizeof text, " of %d", ranks);
    return text;
}

static bool join(const char *engine, int ranks, const char *who) {
    ct__job *job = &ct__job_state;
    if (strcmp(engine, "slurm") == 0)
        return ct_fail(CT_ERR_DEVICE, "dist_init",
                       "srun started this process as one of %d without telling MPI: use srun --mpi=pmix (Open MPI) or "
                       "--mpi=pmi2 (MPICH), or CT_DIST=nccl for CUDA devices without MPI",
                       ranks);
    if (strcmp(engine, "nccl") == 0) return join_by_nccl();
    if (strcmp(engine, "openmpi") != 0 && strcmp(engine, "mpich") != 0)
        return ct_fail(CT_ERR_VALUE, "dist_init", "there is no engine '%s': openmpi, mpich, nccl and none are known",
                       engine);
    const ct__transport *transport = open_module(engine, ranks, who);
    if (!transport) return false;
    entry.transport = transport;
    job->engine_is_hosts = transport->running();
    if (!enter_or_leave(enter, job->engine_is_hosts))
        return ct_fail(
            CT_ERR_STATE, "dist_init",
            "rank %s waits in MPI_Init: not all ranks%s have come to it within %g s; one is dead, stopped, or busy "
            "before its ct_dist_init",
            launched_rank(), count_text(ranks), job->timeout);
    if (entry.problem) return ct_fail(CT_ERR_DEVICE, "dist_init", "%s: %s", engine, entry.problem);
    job->world.rank = entry.rank, job->world.size = entry.ranks, job->local_rank = entry.local_rank;
    int *list = ct_malloc((size_t)job->world.size * sizeof *list);
    if (!list) return ct_fail(CT_ERR_MEMORY, "dist_init", "no memory for %d ranks", job->world.size);
    for (int i = 0; i < job->world.size; i++) list[i] = i;
    job->world.ranks = list;
    job->transport = transport;
    snprintf(job->engine, sizeof job->engine, "%s", entry.name);
    share_processors(entry.local_ranks);
    if (entry.any_thread && job->progress) ct__progress_start();
    return true;
}

static bool set_timeout(double given) {
    ct__job *job = &ct__job_state;
    const char *text = getenv("CT_DIST_TIMEOUT");
    char *end = NULL;
    job->timeout = default_timeout;
    if (given == 0 && (!text || !*text)) return true;
    const double limit = given != 0 ? given : strtod(text, &end);
    if (given == 0 && (*end || !(limit > 0)))
        return ct_fail(CT_ERR_VALUE, "dist_init", "CT_DIST_TIMEOUT is '%s'; expected seconds, more than 0", text);
    if (!(limit > 0)) return ct_fail(CT_ERR_VALUE, "dist_init", "timeout is %g; expected seconds, more than 0", limit);
    job->timeout = limit;
    return true;
}

bool ct_dist_init_p(const ct_dist_options *options) {
    ct__job *job = &ct__job_state;
    if (!ct_ok()) return false;
    TAKE_OPTIONS(ct_dist_options, o, options);
    if (!ct_ok()) return false;
    if (job->joined) return true;
    if (job->ended) return ct_fail(CT_ERR_STATE, "dist_init", "this process has left its job: a job is joined once");
    if (!set_timeout(o.timeout)) return false;
    const char *progress = getenv("CT_DIST_PROGRESS");
    job->progress = !o.no_progress && !(progress && strcmp(progress, "0") == 0);
    const char *who, *named = o.engine ? o.engine : getenv("CT_DIST");
    int ranks = 1;
    const char *started = ct__launcher(&ranks, &who);
    if (named && *named && strcmp(named, "none") != 0) {
        if (!join(named, 1, "")) return false;
    } else if (!(named && *named) && started && ranks > 1) {
        if (!join(started, ranks, who)) return false;
    }
    job->joined = true;
    return true;
}

bool ct_dist_end(void) {
    ct__job *job = &ct__job_state;
    bool left = true;
    if (!job->joined) return true;
    if (job->transport && job->broken[0])
        ct__progress_stop(), left = false; /* the others may be gone: MPI would wait for them for ever */
    else if (job->transport) {
        ct__flight flight;
        left = ct__flight_begin(&flight, &job->world, &(ct__transfer){.kind = CT__END}, (ct_dims){0}, "") &&
               ct__flight_wait(&flight);
        ct__progress_stop();
        if (left && !enter_or_leave(leave, job->engine_is_hosts))
            left = ct_fail(CT_ERR_STATE, "dist_end", "MPI_Finalize has not returned within %g s", job->timeout);
        else if (left && entry.problem) left = ct_fail(CT_ERR_STATE, "dist_end", "%s", entry.problem);
    }
    if (!job->transport && job->broken[0]) {
        left = false;
        if (ct_ok()) ct_fail(CT_ERR_STATE, "dist_end", "%s", job->broken);
    }
    for (ct_dist_group *g = &job->world; g; g = g->next) ct__device_leave(g);
    ct_free(job->world.ranks);
    job->world = (ct_dist_group){.size = 1, .next = job->world.next}; /* groups are still to be freed */
    job->transport = NULL;
    job->ended = true;
    job->joined = false;
    return left;
}

int ct_dist_rank(void) { return ct__job_state.world.rank; }
int ct_dist_size(void) { return ct__job_state.world.size; }
int ct_dist_local_rank(void) { return ct__job_state.local_rank; }
bool ct_dist_get_stats(ct_dist_stats *stats) {
    if (!stats) return ct_fail(CT_ERR_NULL, "dist_get_stats", "stats is NULL");
    const size_t size = stats->size, known = sizeof *stats;
    if (size < sizeof size) return ct_fail(CT_ERR_VALUE, "dist_get_stats", "stats.size is %zu", size);
    memcpy(stats, &ct__job_state.stats, size < known ? size : known);
    stats->size = size;
    return true;
}
const char *ct_dist_engine(void) { return ct__job_state.engine; }

/* ---- Groups ---- */

ct_dist_group *ct__group(ct_dist_group *group, const char *op) {
    ct__job *job = &ct__job_state;
    if (job->ended) {
        ct_fail(CT_ERR_STATE, op, "this process has left its job (ct_dist_end)");
        return NULL;
    }
    if (job->broken[0]) {
        ct_fail(CT_ERR_STATE, op, "nothing can be exchanged after an earlier error: %s", job->broken);
        return NULL;
    }
    return group ? group : &job->world;
}

ct_dist_group *ct__group_by_id(uint64_t id, const char *op) {
    if (!ct__group(NULL, op)) return NULL;
    for (ct_dist_group *g = &ct__job_state.world; g; g = g->next)
        if (g->id == id) return g;
    ct_fail(CT_ERR_STATE, op, "its group of ranks was freed");
    return NULL;
}

/* Which ranks of the job are in a new group. */
static bool learn_ranks(ct_dist_group *group) {
    const int32_t mine = ct__job_state.world.rank;
    ct__flight flight;
    const ct__transfer transfer = {
        .kind = CT__ALL_GATHER, .dtype = CT_I32, .count = 1, .in = &mine, .out = group->ranks};
    return ct__flight_begin(&flight, group, &transfer, (ct_dims){.n = 1, .d = {1}}, "ranks of the group") &&
           ct__flight_wait(&flight);
}

/* With the lock held. Whether it was among the job's groups. */
static bool unlist(ct_dist_group *group) {
    for (ct_dist_group **at = &ct__job_state.world.next; *at; at = &(*at)->next)
        if (*at == group) return *at = group->next, true;
    return false;
}

ct_dist_group *ct_dist_split(ct_dist_group *group, int color, int key) {
    static uint64_t last_id;
    ct__job *job = &ct__job_state;
    if (!ct_ok()) return NULL;
    ct_dist_group *from = ct__group(group, "dist_split");
    if (!from) return NULL;
    ct_dist_group *made = ct_calloc(1, sizeof *made);
    if (made) *made = (ct_dist_group){.number = -1, .size = 1, .id = ++last_id};
    const char *problem = NULL;
    const bool alone = ct__alone_carries(from);
    if (alone && made && !ct__alone_split(from, color, key, made)) goto failed;
    if (from->size > 1 && !alone) {
        ct__flight flight;
        if (!ct__flight_begin(&flight, from, &(ct__transfer){.kind = CT__SPLIT}, (ct_dims){0}, "") ||
            !ct__flight_wait(&flight))
            goto failed;
        int number = -1, rank = 0, size = 1;
        ct__lock();
        problem = job->transport->split(from->number, color, key, &number, &rank, &size);
        ct__unlock();
        if (problem) {
            ct_fail(CT_ERR_STATE, "dist_split", "%s", problem);
            goto failed;
        }
        if (made) made->number = number, made->rank = rank, made->size = size;
    }
    if (!made || (!made->ranks && !(made->ranks = ct_calloc((size_t)made->size, sizeof *made->ranks)))) {
        ct_fail(CT_ERR_MEMORY, "dist_split", "no memory for a group of ranks");
        goto failed;
    }
    ct__lock();
    made->next = job->world.next;
    job->world.next = made;
    ct__unlock();
    if (alone || learn_ranks(made)) return made;
    ct__lock();
    unlist(made);
    ct__unlock();
failed:
    if (made) ct_free(made->ranks);
    ct_free(made);
    return NULL;
}

void ct_dist_group_free(ct_dist_group *group) {
    ct__job *job = &ct__job_state;
    if (!group) return;
    ct__lock();
    if (unlist(group)) {
        ct__device_leave(group);
        if (job->transport && !job->broken[0] && group->number >= 0) job->transport->release(group->number);
        ct_free(group->ranks);
        ct_free(group);
    }
    ct__unlock();
}

int ct_dist_group_rank(const ct_dist_group *group) { return group ? group->rank : ct_dist_rank(); }
int ct_dist_group_size(const ct_dist_group *group) { return group ? group->size : ct_dist_size(); }
