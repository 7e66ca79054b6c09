/* The thread pool: started on first use, spins briefly, then parks. The host may put its own pool in its place. */
#include "core/threads.h"

#include <cotangent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/error.h"

enum { MAX_THREADS = 256, SPINS = 4000 };

/* A worker's own part of the chunks, on a line of its own. Others take from it once they have done theirs. */
typedef struct part {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} part;

typedef struct job {
    ct_task fn;
    void *ctx;
    part *parts;
    int count; /* of parts */
    int limit; /* of workers: others leave it alone */
    pthread_mutex_t error_lock;
    ct_error_record error; /* the first that a worker raised */
} job;

static struct {
    pthread_mutex_t owner; /* held by the thread whose job runs */
    pthread_mutex_t park_lock;
    pthread_cond_t wake;
    _Atomic(job *) current;      /* the open job, or NULL */
    _Atomic int inside;          /* workers that look at the current job */
    _Atomic unsigned generation; /* counts jobs: what parked and spinning workers watch */
    _Atomic int parked;
    _Atomic int wanted; /* threads that may work, the caller's included; 0: not decided yet */
    int started;        /* workers that exist */
    bool stop;
    pthread_t thread[MAX_THREADS];
    ct_pool_run host_run;
    void *host_context;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .park_lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static _Atomic int64_t grain_limit = -1; /* -1: look at CT_GRAIN */
static _Atomic int pinning = -1;         /* -1: look at CT_PIN */
static _Thread_local bool inside_job;
static _Thread_local int held_threads; /* 0: not held */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int available_cpus(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

static int clamp_threads(long count) {
    if (count <= 0) count = available_cpus();
    return count > MAX_THREADS ? MAX_THREADS : (int)count;
}

void ct__threads_hold(int threads) { held_threads = threads; }

int ct__threads(void) {
    if (held_threads) return held_threads;
    int wanted = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (wanted) return wanted;
    const char *text = getenv("CT_THREADS");
    wanted = clamp_threads(text ? strtol(text, NULL, 10) : 0);
    int expected = 0;
    atomic_compare_exchange_strong(&pool.wanted, &expected, wanted);
    return atomic_load(&pool.wanted);
}

int64_t ct__grain(int64_t normal) {
    int64_t limit = atomic_load_explicit(&grain_limit, memory_order_relaxed);
    if (limit < 0) {
        const char *text = getenv("CT_GRAIN");
        limit = text ? strtoll(text, NULL, 10) : 0;
        if (limit < 0) limit = 0;
        atomic_store(&grain_limit, limit);
    }
    return limit && limit < normal ? limit : normal;
}

_Atomic uint32_t ct__tuning;

void ct__set_grain(int64_t grain) {
    atomic_store(&grain_limit, grain < 0 ? 0 : grain);
    atomic_fetch_add(&ct__tuning, 1);
}

bool ct_set_grain(int64_t elements) {
    if (elements < 0)
        return ct_fail(CT_ERR_VALUE, "set_grain", "the limit is %lld; it has to be 0 (none) or more",
                       (long long)elements);
    ct__set_grain(elements);
    return true;
}

bool ct_set_pin(bool on) {
    atomic_store(&pinning, on);
    return true;
}

/* Every worker begins with the part that is its own in every job of as many chunks: what it wrote in one job is in its
 * cache in the next. */
static void work_on(job *work, int worker) {
    for (int i = 0; i < work->count; i++) {
        part *p = &work->parts[(worker + i) % work->count];
        for (;;) {
            int64_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
            if (chunk >= p->end) break;
            work->fn(work->ctx, chunk, worker);
        }
    }
}

/* A worker's part in a job: its thread's error, if any, goes into the job. */
static void help(job *work, int worker) {
    if (worker >= work->limit) return;
    inside_job = true;
    work_on(work, worker);
    inside_job = false;
    ct_error_record error;
    ct__error_take(&error);
    if (error.code == CT_OK) return;
    pthread_mutex_lock(&work->error_lock);
    if (work->error.code == CT_OK) work->error = error;
    pthread_mutex_unlock(&work->error_lock);
}

static void pin(int worker) {
#ifdef __linux__
    const char *text = getenv("CT_PIN");
    int wanted = atomic_load(&pinning);
    if (wanted < 0 ? text && text[0] == '0' : !wanted) return;
    cpu_set_t mask, one;
    /* Only when the workers and the caller fill the mask: otherwise the scheduler knows better. */
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) != ct__threads()) return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask) || seen++ != worker) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
#else
    (void)worker;
#endif
}

static void *worker_main(void *argument) {
    int worker = (int)(intptr_t)argument;
    pin(worker);
    unsigned seen = 0;
    for (;;) {
        for (int spin = 0; spin < SPINS && atomic_load(&pool.generation) == seen; spin++) relax();
        if (atomic_load(&pool.generation) == seen) {
            pthread_mutex_lock(&pool.park_lock);
            atomic_fetch_add(&pool.parked, 1);
            while (atomic_load(&pool.generation) == seen && !pool.stop) pthread_cond_wait(&pool.wake, &pool.park_lock);
            atomic_fetch_sub(&pool.parked, 1);
            bool stop = pool.stop;
            pthread_mutex_unlock(&pool.park_lock);
            if (stop) return NULL;
        }
        seen = atomic_load(&pool.generation);
        /* Either we see the job closed, or its owner sees us inside and waits. */
        atomic_fetch_add(&pool.inside, 1);
        job *work = atomic_load(&pool.current);
        if (work) help(work, worker);
        atomic_fetch_sub(&pool.inside, 1);
    }
}

/* After fork only the calling thread exists: the child starts with an empty pool. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.park_lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    atomic_store(&pool.current, NULL);
    atomic_store(&pool.inside, 0);
    atomic_store(&pool.parked, 0);
    pool.started = 0;
    pool.stop = false;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

static void stop_workers_locked(void) {
    pthread_mutex_lock(&pool.park_lock);
    pool.stop = true;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.park_lock);
    for (int i = 0; i < pool.started; i++) pthread_join(pool.thread[i], NULL);
    pool.started = 0;
    pool.stop = false;
}

static void start_workers_locked(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (pool.started == threads - 1) return;
    if (pool.started > threads - 1) stop_workers_locked();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the host's business */
    while (pool.started < threads - 1) {
        /* Fewer threads than wanted is slower, not wrong. */
        if (pthread_create(&pool.thread[pool.started], NULL, worker_main, (void *)(intptr_t)(pool.started + 1)) != 0)
            break;
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void host_task(void *context, int64_t i) {
    job *work = context;
    help(work, (int)i);
}

void ct__parallel(int64_t chunks, ct_task fn, void *ctx) {
    int threads = ct__threads();
    if (chunks <= 1 || threads <= 1 || inside_job || pthread_mutex_trylock(&pool.owner) != 0) {
        for (int64_t i = 0; i < chunks; i++) fn(ctx, i, 0);
        return;
    }
    part parts[MAX_THREADS];
    job work = {
        .fn = fn, .ctx = ctx, .parts = parts, .count = chunks < threads ? (int)chunks : threads, .limit = threads};
    for (int i = 0; i < work.count; i++) {
        atomic_init(&parts[i].next, chunks / work.count * i + (chunks % work.count < i ? chunks % work.count : i));
        parts[i].end = chunks / work.count * (i + 1) + (chunks % work.count < i + 1 ? chunks % work.count : i + 1);
    }
    pthread_mutex_init(&work.error_lock, NULL);
    if (pool.host_run) {
        pool.host_run(pool.host_context, work.count, host_task, &work);
    } else {
        start_workers_locked(threads);
        atomic_store(&pool.current, &work);
        atomic_fetch_add(&pool.generation, 1);
        if (atomic_load(&pool.parked) > 0) {
            pthread_mutex_lock(&pool.park_lock);
            if (chunks == 2) pthread_cond_signal(&pool.wake);
            else pthread_cond_broadcast(&pool.wake);
            pthread_mutex_unlock(&pool.park_lock);
        }
        inside_job = true;
        work_on(&work, 0);
        inside_job = false;
        atomic_store(&pool.current, NULL);
        for (int spin = 0; atomic_load(&pool.inside) != 0; spin++) {
            if (spin < 100000) relax();
            else sched_yield();
        }
    }
    pthread_mutex_unlock(&pool.owner);
    ct__error_put(&work.error);
    pthread_mutex_destroy(&work.error_lock);
}

bool ct_set_threads(int count) {
    if (count < 0)
        return ct_fail(CT_ERR_VALUE, "set_threads", "the number of threads is %d; it has to be 0 (all) or more", count);
    pthread_mutex_lock(&pool.owner);
    if (!pool.host_run) {
        stop_workers_locked();
        atomic_store(&pool.wanted, clamp_threads(count));
    }
    pthread_mutex_unlock(&pool.owner);
    return true;
}

int ct_get_threads(void) { return ct__threads(); }

bool ct_set_pool(ct_pool_run run, void *context, int threads) {
    if (run && threads < 1)
        return ct_fail(CT_ERR_VALUE, "set_pool", "the host's pool has %d threads; it needs at least 1", threads);
    pthread_mutex_lock(&pool.owner);
    stop_workers_locked();
    pool.host_run = run;
    pool.host_context = context;
    atomic_store(&pool.wanted, run ? clamp_threads(threads) : 0);
    pthread_mutex_unlock(&pool.owner);
    return true;
}
