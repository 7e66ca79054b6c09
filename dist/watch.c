/* Collectives that NCCL has enqueued and that do not end: a rank has not come to them, or is gone. A device waits for ever, and the
 * host with it as soon as it reads something. A thread looks at what is under way; what is over its time limit ends the job:
 * communicators are aborted, so that devices and those who wait for them go on, and every later call tells why. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "dist/device.h"
#include "support/signals.h"

/* Of a stream the later ones end later: when there is no room for one, those before it are enough to see that it stands still. */
enum { ROOM = 64 };
typedef struct watched {
    const ct_dist_group *group; /* NULL: it is gone */
    ct__call_text call;
    double began;
    bool enqueued;
    void *mark; /* an event behind it; NULL: it cannot be told, and is not waited for */
} watched;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool running;
    const ct__nccl *nccl;
    watched list[ROOM];
    uint64_t first, end; /* places, modulo ROOM */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

static void drop_ended(void) {
    for (; watch.first < watch.end; watch.first++) {
        watched *w = &watch.list[watch.first % ROOM];
        if (w->group && (!w->enqueued || (w->mark && !watch.nccl->passed(w->mark)))) return;
        if (w->mark) watch.nccl->forget(w->mark);
        w->mark = NULL;
    }
}

/* Without the lock here: who frees a group holds that of the engine, and then wants this one. */
static void end_job(const ct__call_text *what) {
    ct__job *job = &ct__job_state;
    char call[256], text[640];
    ct__call_describe(what, call, sizeof call);
    snprintf(text, sizeof text,
             "%s: it has not ended on the device of rank %d within %g s: another rank has not come to it, or is gone",
             call, job->world.rank, job->timeout);
    ct__lock();
    ct__break(ct__kind_name((ct__dist_kind)what->kind), CT_ERR_STATE, text);
    ct_error_clear(); /* it is told by the next call of the program */
    for (ct_dist_group *g = &job->world; g; g = g->next)
        if (g->nccl) watch.nccl->abort(g->nccl);
    ct__unlock();
}

static void *run(void *none) {
    (void)none;
    pthread_mutex_lock(&watch.lock);
    for (bool over = false; !over;) {
        while (watch.first == watch.end) pthread_cond_wait(&watch.news, &watch.lock);
        drop_ended();
        const watched oldest = watch.list[watch.first % ROOM];
        over = watch.first < watch.end && ct__seconds() - oldest.began > ct__job_state.timeout;
        pthread_mutex_unlock(&watch.lock);
        if (over) end_job(&oldest.call);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        pthread_mutex_lock(&watch.lock);
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

static void start(void) {
    pthread_t thread;
    sigset_t before;
    if (watch.running) return;
    ct__signals_block(&before);
    watch.running = pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

uint64_t ct__watch_begin(const ct__nccl *nccl, const ct_dist_group *group, const ct__transfer *t, ct_dims shape) {
    uint64_t place = UINT64_MAX;
    pthread_mutex_lock(&watch.lock);
    watch.nccl = nccl;
    start();
    drop_ended();
    if (watch.end - watch.first < ROOM) {
        place = watch.end++;
        watched *w = &watch.list[place % ROOM];
        *w = (watched){.group = group, .began = ct__seconds()};
        w->call.kind = (int32_t)t->kind, w->call.reduction = (int32_t)t->reduction;
        w->call.dtype = (int32_t)t->dtype, w->call.root = (int32_t)t->root;
        w->call.ndim = shape.n;
        for (int i = 0; i < shape.n && i < CT_MAX_DIMS; i++) w->call.dims[i] = shape.d[i];
        pthread_cond_signal(&watch.news);
    }
    pthread_mutex_unlock(&watch.lock);
    return place;
}

void ct__watch_enqueued(uint64_t place, void *stream) {
    if (place == UINT64_MAX) return;
    pthread_mutex_lock(&watch.lock);
    watched *w = &watch.list[place % ROOM];
    w->enqueued = true;
    w->mark = watch.nccl->mark(stream);
    pthread_mutex_unlock(&watch.lock);
}

void ct__watch_leave(const ct_dist_group *group) {
    pthread_mutex_lock(&watch.lock);
    for (uint64_t i = watch.first; i < watch.end; i++)
        if (watch.list[i % ROOM].group == group) watch.list[i % ROOM].group = NULL;
    drop_ended();
    pthread_mutex_unlock(&watch.lock);
}
