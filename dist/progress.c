/* The thread that moves calls on while the program computes: MPI does nothing between its calls, so what was begun
 * would stand still until somebody asks. All use of the engine is under one lock. It sleeps while nothing is on its
 * way, and while the program itself waits. */
#include <pthread.h>
#include <time.h>

#include "dist/dist.h"
#include "support/signals.h"

enum { NAP = 200000 }; /* nanoseconds between two looks: a few percent of a processor while something is on its way */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_t thread;
static bool running, stop;
static int waiting; /* the program polls by itself */
/* What there is to look at is told under a lock of its own: who begins a call does not wait for the engine. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool news;
} rest = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

void ct__lock(void) { pthread_mutex_lock(&lock); }
bool ct__try_lock(void) { return pthread_mutex_trylock(&lock) == 0; }
void ct__unlock(void) { pthread_mutex_unlock(&lock); }

static bool on_their_way(void) {
    for (const ct_dist_group *g = &ct__job_state.world; g; g = g->next)
        if (g->first) return true;
    return ct__flights_queued();
}

static void wake_up(void) {
    pthread_mutex_lock(&rest.lock);
    rest.news = true;
    pthread_cond_signal(&rest.wake);
    pthread_mutex_unlock(&rest.lock);
}

static void sleep_until_there_is_news(void) {
    pthread_mutex_lock(&rest.lock);
    while (!rest.news) pthread_cond_wait(&rest.wake, &rest.lock);
    rest.news = false;
    pthread_mutex_unlock(&rest.lock);
}

static void *run(void *none) {
    (void)none;
    ct__lock();
    while (!stop) {
        if (waiting || !on_their_way()) {
            ct__unlock();
            sleep_until_there_is_news();
            ct__lock();
            continue;
        }
        ct__flights_move();
        ct_error_clear(); /* what went wrong is told by the next call of the program */
        ct__unlock();
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
        ct__lock();
    }
    ct__unlock();
    return NULL;
}

void ct__progress_start(void) {
    sigset_t before;
    ct__signals_block(&before);
    stop = false;
    running = pthread_create(&thread, NULL, run, NULL) == 0; /* without it calls move when the program calls */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ct__progress_stop(void) {
    if (!running) return;
    ct__lock();
    stop = true;
    ct__unlock();
    wake_up();
    pthread_join(thread, NULL);
    running = false;
}

bool ct__progress_runs(void) { return running; }

void ct__progress_begun(void) {
    if (running) wake_up();
}

void ct__progress_waits(bool on) {
    ct__lock();
    waiting += on ? 1 : -1;
    const bool over = !waiting;
    ct__unlock();
    if (over && running) wake_up();
}
