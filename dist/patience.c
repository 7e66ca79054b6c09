/* Calls of an engine that wait for other ranks inside it: MPI_Init, MPI_Finalize, NCCL's joining of a group. They have no time
 * limit of their own, so they are made by a thread that is kept for them, and whoever wants one waits no longer than the limit.
 * One thread makes all of them, since MPI is to be left by the one that has joined it. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "dist/dist.h"
#include "support/signals.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted, made;
    bool running, lost; /* lost: it is in a call that did not return within its limit */
    ct__patient_call call;
    void *context; /* NULL: nothing is to be done */
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .made = PTHREAD_COND_INITIALIZER};

static void *run(void *none) {
    (void)none;
    pthread_mutex_lock(&keeper.lock);
    for (;;) {
        while (!keeper.context) pthread_cond_wait(&keeper.posted, &keeper.lock);
        const ct__patient_call call = keeper.call;
        void *context = keeper.context;
        pthread_mutex_unlock(&keeper.lock);
        call(context);
        pthread_mutex_lock(&keeper.lock);
        keeper.context = NULL;
        pthread_cond_broadcast(&keeper.made);
    }
    return NULL;
}

static bool start(void) {
    pthread_t thread;
    sigset_t before;
    if (keeper.running) return true;
    ct__signals_block(&before);
    keeper.running = pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return keeper.running;
}

bool ct__patiently(ct__patient_call call, void *context, double seconds) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    const double whole = seconds < 1e9 ? seconds : 1e9;
    limit.tv_sec += (time_t)whole;
    limit.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (limit.tv_nsec >= 1000000000) limit.tv_sec++, limit.tv_nsec -= 1000000000;
    pthread_mutex_lock(&keeper.lock);
    if (keeper.lost || !start()) { /* without a thread there is no limit */
        const bool lost = keeper.lost;
        pthread_mutex_unlock(&keeper.lock);
        if (!lost) call(context);
        return !lost;
    }
    keeper.call = call;
    keeper.context = context;
    pthread_cond_signal(&keeper.posted);
    while (keeper.context && !keeper.lost)
        if (pthread_cond_timedwait(&keeper.made, &keeper.lock, &limit) == ETIMEDOUT && keeper.context)
            keeper.lost = true;
    const bool returned = !keeper.lost;
    pthread_mutex_unlock(&keeper.lock);
    return returned;
}
