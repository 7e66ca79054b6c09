/* Calls in flight. A collective goes through two stages: in the first all ranks compare what they are about to do, by
 * the minimum over ranks of a hash of it and of the hash's complement, which are equal on all ranks if and only if
 * minimum and maximum are; in the second the data moves. A send first tells the receiver what it is, and waits for the
 * answer. Nothing here blocks in MPI: it is polled, so that a time limit can end it.
 *
 * MPI wants collectives of one communicator to begin in the same order everywhere. The two stages have a
 * communicator each: comparisons begin in the order of the calls, and so does the moving of data, since a call waits
 * for the comparison of the one before it. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dist/dist.h"

enum { TAG_CALL = 1, TAG_ANSWER, TAG_DATA };

static uint64_t hash(const ct__call_text *text) { /* FNV-1a, 64 bits */
    const unsigned char *byte = (const unsigned char *)text;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *text; i++) h = (h ^ byte[i]) * 1099511628211u;
    return h;
}

/* What both ends have to agree on. */
static bool same_message(const ct__call_text *a, const ct__call_text *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static bool is_message(const ct__flight *flight) {
    return flight->transfer.kind == CT__SEND || flight->transfer.kind == CT__RECEIVE;
}

static bool has_data(ct__dist_kind kind) { return kind < CT__BARRIER; }

/* ---- Alone ---- */

static bool alone(ct__flight *flight) { /* in a group of one every collective gives back what it was given */
    const ct__transfer *t = &flight->transfer;
    if (has_data(t->kind) && t->out != t->in && t->count > 0)
        memcpy(t->out, t->in, (size_t)t->count * ct_dtype_size(t->dtype));
    flight->stage = CT__OVER;
    return true;
}

/* ---- Beginning ---- */

static void end_comparison(ct__flight *flight) {
    ct_free(flight->comparison);
    flight->comparison = NULL;
}

static const char *begin_message(ct__flight *flight) {
    const ct__transport *transport = ct__job_state.transport;
    const int group = flight->group->number, peer = flight->transfer.root;
    ct__call_text *theirs = &flight->comparison->theirs;
    if (flight->transfer.kind == CT__RECEIVE)
        return transport->receive(group, CT__POINT, theirs, sizeof *theirs, peer, TAG_CALL, &flight->request);
    const char *problem =
        transport->send(group, CT__POINT, &flight->text, sizeof flight->text, peer, TAG_CALL, &flight->other);
    if (problem) return problem;
    return transport->receive(group, CT__POINT, theirs, sizeof *theirs, peer, TAG_ANSWER, &flight->request);
}

static const char *begin_comparison(ct__flight *flight) {
    const uint64_t h = hash(&flight->text);
    uint64_t *agreement = flight->comparison->agreement;
    agreement[0] = h;
    agreement[1] = ~h;
    ct__transfer comparison = {.kind = CT__ALL_REDUCE,
                               .reduction = CT_DIST_MIN,
                               .dtype = CT_U64,
                               .count = 2,
                               .in = agreement,
                               .out = agreement};
    return ct__job_state.transport->collective(flight->group->number, CT__CALLS, &comparison, &flight->request);
}

/* What was called, in its order, until it is begun. */
static struct {
    pthread_mutex_t lock;
    ct__flight *first, **end;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &queue.first};

static ct__flight *take_queued(void) {
    pthread_mutex_lock(&queue.lock);
    ct__flight *flight = queue.first;
    if (flight && !(queue.first = flight->next)) queue.end = &queue.first;
    pthread_mutex_unlock(&queue.lock);
    return flight;
}

bool ct__flights_queued(void) {
    pthread_mutex_lock(&queue.lock);
    const bool some = queue.first != NULL;
    pthread_mutex_unlock(&queue.lock);
    return some;
}

void ct__flights_fail_queued(void) {
    for (ct__flight *flight; (flight = take_queued());) {
        end_comparison(flight); /* the engine does not know of it */
        flight->stage = CT__FAILED;
    }
}

/* With the lock held. */
static bool begin_queued(void) {
    for (ct__flight *flight; (flight = take_queued());) {
        ct_dist_group *group = flight->group;
        if (!ct__group(group, ct__kind_name(flight->transfer.kind))) { /* the job has broken since it was called */
            end_comparison(flight);
            flight->stage = CT__FAILED;
            return ct__flights_fail_queued(), false;
        }
        const char *problem = is_message(flight) ? begin_message(flight) : begin_comparison(flight);
        if (problem) {
            flight->stage = CT__FAILED;
            return ct__fail_engine(flight, problem);
        }
        flight->next = NULL;
        if (group->last) group->last->next = flight;
        else group->first = flight;
        group->last = flight;
    }
    return true;
}

static bool start_queued(void) {
    const bool fine = begin_queued();
    ct__unlock();
    return fine;
}

bool ct__flight_begin(ct__flight *flight, ct_dist_group *group, const ct__transfer *transfer, ct_dims shape,
                      const char *name) {
    memset(flight, 0, sizeof *flight); /* also what lies between members: all of the text is hashed */
    flight->group = group;
    flight->transfer = *transfer;
    flight->stage = CT__AGREEING;
    if (!ct__group(group, ct__kind_name(transfer->kind))) {
        flight->stage = CT__FAILED;
        return false;
    }
    const bool message = is_message(flight);
    flight->text.kind = (int32_t)transfer->kind;
    flight->text.dtype = (int32_t)transfer->dtype;
    flight->text.reduction = (int32_t)transfer->reduction;
    flight->text.root = (int32_t)transfer->root;
    flight->text.ndim = shape.n;
    for (int i = 0; i < shape.n && i < CT_MAX_DIMS; i++) flight->text.dims[i] = shape.d[i];
    snprintf(flight->text.name, sizeof flight->text.name, "%s", name);
    if (!message) flight->text.sequence = ++group->sequence;
    ct__job_state.stats.calls++;
    ct__job_state.stats.bytes +=
        transfer->count * (int64_t)(has_data(transfer->kind) || message ? ct_dtype_size(transfer->dtype) : 0);
    if (group->size == 1) return alone(flight);
    if (ct__job_state.nccl_alone && transfer->kind == CT__END) return alone(flight);
    if (ct__job_state.nccl_alone) {
        flight->stage = CT__FAILED;
        return ct_fail(CT_ERR_DEVICE, ct__kind_name(transfer->kind),
                       "there is NCCL alone in this job, which does not do this");
    }
    if (!(flight->comparison = ct_calloc(1, sizeof *flight->comparison))) {
        flight->stage = CT__FAILED;
        return ct_fail(CT_ERR_MEMORY, ct__kind_name(transfer->kind), "no memory for a call");
    }
    pthread_mutex_lock(&queue.lock);
    *queue.end = flight;
    queue.end = &flight->next;
    pthread_mutex_unlock(&queue.lock);
    /* While the thread that moves calls is at work, it begins this one as well: the program does not wait for it. */
    const bool fine = !ct__try_lock() || start_queued();
    if (fine) ct__progress_begun();
    return fine;
}

/* ---- Moving on ---- */

static bool test(ct__flight *flight, ct__request *request, bool *done) {
    const char *problem = ct__job_state.transport->test(request, done);
    return problem ? ct__fail_engine(flight, problem) : true;
}

static bool compared(ct__flight *flight) {
    const bool same = flight->comparison->agreement[0] == ~flight->comparison->agreement[1];
    end_comparison(flight);
    if (!same) return ct__fail_disagreement(flight);
    if (!has_data(flight->transfer.kind) || flight->transfer.count == 0) {
        flight->stage = CT__OVER;
        return true;
    }
    flight->stage = CT__MOVING;
    flight->moving = true;
    const char *problem =
        ct__job_state.transport->collective(flight->group->number, CT__DATA, &flight->transfer, &flight->request);
    return problem ? ct__fail_engine(flight, problem) : true;
}

static bool answered(ct__flight *flight) {
    const ct__transport *transport = ct__job_state.transport;
    const ct__transfer *t = &flight->transfer;
    const int group = flight->group->number;
    const size_t bytes = (size_t)t->count * ct_dtype_size(t->dtype);
    const bool receives = t->kind == CT__RECEIVE, same = same_message(&flight->text, &flight->comparison->theirs);
    const char *problem = NULL;
    if (receives)
        problem =
            transport->send(group, CT__POINT, &flight->text, sizeof flight->text, t->root, TAG_ANSWER, &flight->other);
    flight->moving = same;
    if (!problem && same)
        problem = receives ? transport->receive(group, CT__POINT, t->out, bytes, t->root, TAG_DATA, &flight->request)
                           : transport->send(group, CT__POINT, t->in, bytes, t->root, TAG_DATA, &flight->request);
    if (problem) return ct__fail_engine(flight, problem);
    flight->stage = CT__MOVING;
    if (same) return end_comparison(flight), true;
    for (bool told = !receives; !told;) /* the sender has to hear of it too */
        if (!test(flight, &flight->other, &told)) return false;
    ct__fail_disagreement(flight);
    end_comparison(flight);
    return false;
}

/* Whether an earlier call of the list has to be moved first. */
static bool behind(const ct__flight *flight) {
    for (const ct__flight *f = flight->group->first; f != flight; f = f->next)
        if (f->stage == CT__AGREEING && is_message(f) == is_message(flight) &&
            (!is_message(f) ||
             (f->transfer.kind == flight->transfer.kind && f->transfer.root == flight->transfer.root)))
            return true;
    return false;
}

/* By whoever moves the call, so that the program has nothing left to do. */
static void scale(const ct__transfer *t) {
    typedef float four __attribute__((vector_size(16), aligned(4)));
    float *y = t->out;
    int64_t i = 0;
    if (t->scale == 0) return;
    for (; i + 16 <= t->count; i += 16)
        for (int k = 0; k < 16; k += 4) *(four *)(y + i + k) *= t->scale;
    for (; i < t->count; i++) y[i] *= t->scale;
}

static bool move(ct__flight *flight) {
    bool done = false;
    if (flight->stage == CT__AGREEING && behind(flight)) return true;
    if (flight->stage == CT__AGREEING) {
        if (!test(flight, &flight->request, &done)) return false;
        if (!done) return true;
        if (!(is_message(flight) ? answered(flight) : compared(flight))) return false;
    }
    if (flight->stage != CT__MOVING) return true;
    if (!test(flight, &flight->request, &done)) return false;
    if (done && is_message(flight) && !test(flight, &flight->other, &done)) return false;
    if (!done) return true;
    scale(&flight->transfer);
    flight->moving = false;
    flight->stage = CT__OVER;
    return true;
}

static void drop_finished(ct_dist_group *group) {
    ct__flight **at = &group->first, *last = NULL;
    while (*at) {
        if ((*at)->stage == CT__OVER) *at = (*at)->next;
        else last = *at, at = &(*at)->next;
    }
    group->last = last;
}

bool ct__flights_move(void) {
    ct__job *job = &ct__job_state;
    ct__lock();
    bool fine = begin_queued();
    for (ct_dist_group *g = &job->world; g && fine; g = g->next) {
        if (!g->first) continue;
        for (ct__flight *f = g->first; f && fine; f = f->next) fine = move(f);
        if (fine) drop_finished(g);
    }
    ct__unlock();
    return fine;
}

ct__stage ct__flight_stage(const ct__flight *flight) {
    ct__lock();
    const ct__stage stage = flight->stage;
    ct__unlock();
    return stage;
}

/* One look: true when there is nothing more to wait for. */
static bool look(ct__flight *flight, unsigned polls, double began, double limit) {
    const ct__job *job = &ct__job_state;
    if (flight->stage == CT__OVER) return true;
    if (flight->stage == CT__FAILED || job->broken[0]) {
        ct__flights_fail_queued(); /* this one may be among them, and its owner may let go of it */
        ct__group(flight->group, ct__kind_name(flight->transfer.kind)); /* the error, where it was another call's */
        return true;
    }
    if (!ct__flights_move() || flight->stage == CT__OVER || polls % 32 != 31) return flight->stage == CT__OVER;
    const bool told = ct__trouble_heard();
    if (!told && ct__seconds() - began <= limit) return false;
    ct__fail_missing(flight, told);
    return true;
}

bool ct__flight_wait(ct__flight *flight) {
    ct__job *job = &ct__job_state;
    /* the last part of the time is for finding out who is missing */
    const double limit = job->timeout > 2 ? job->timeout - 1 : job->timeout / 2, began = ct__seconds();
    ct__progress_waits(true);
    for (unsigned polls = 0;; polls++) {
        ct__lock();
        const bool done = look(flight, polls, began, limit);
        ct__unlock();
        if (done) break;
        if (polls % 32 != 31) continue;
        /* others on this processor may be what we wait for */
        if (ct__seconds() - began > 0.01) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        else sched_yield();
    }
    ct__progress_waits(false);
    job->stats.seconds += ct__seconds() - began;
    return ct__flight_stage(flight) == CT__OVER;
}
