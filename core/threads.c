/* The thread pool: started on first use, spins briefly, then parks. The host may put its own pool in its place.
 *
 * A job is a range of chunks, cut into as many parts as threads are called for. The caller publishes it in one word that idle workers watch,
 * and goes to work itself; a worker that comes begins with its own part and then takes from the others'. Nobody waits for a worker that has not
 * come. How many are called depends on what the chunks took before (costs.h): each one that is awake has to save more than it costs to
 * have it join, and a parked one has to have more to do than the time it takes to wake it, which the pool measures. A small job stays with
 * its caller where that took less. Workers that are woken wake others in their turn, so that the caller is soon at its own work. */
#include "core/threads.h"

#include <cotangent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/costs.h"
#include "core/cpus.h"
#include "core/error.h"
#include "core/parking.h"

enum {
    MAX_THREADS = 256,
    LINE = 128,              /* bytes that no two threads write: processors fetch cache lines in pairs */
    SPIN_TIME = 100000,      /* nanoseconds that an idle worker looks for the next job before it parks */
    SPINS_PER_LOOK = 32,     /* between two looks at the clock */
    FORK_TIME = 1200,        /* nanoseconds that a job takes longer for not being the caller's alone, */
    JOIN_TIME = 100,         /* and for each thread to find it, take from it and be waited for */
    FIRST_WAKE_TIME = 20000, /* nanoseconds from a call to a parked worker until it works, before any was measured */
    LEAST_WAKE_TIME = 2000,
    MOST_WAKE_TIME = 200000,
    WAKES_EACH = 3,       /* workers that a woken one, or the caller, wakes */
    WEIGHED_TIME = 200000 /* nanoseconds of jobs of which it is measured whether to share them pays */
};

/* A worker's own part of the chunks, on a line of its own. Others take from it once they have done theirs. */
typedef struct part {
    _Alignas(LINE) _Atomic int64_t next;
    int64_t end;
} part;

/* What a worker reads of a job, up to `cost`, is one cache line, which nobody writes as a rule while the job runs. */
typedef struct job {
    _Alignas(LINE) ct_task fn;
    void *ctx;
    part *parts;
    int count;           /* of parts */
    int limit;           /* of workers: others leave it alone */
    _Atomic int to_wake; /* parked workers that are still to be woken */
    int called;          /* threads: the caller and the workers below this */
    bool all;            /* none of those is to sleep */
    bool open;           /* others may see it */
    int64_t chunks;
    int64_t cost; /* nanoseconds of a chunk, as expected */
    pthread_mutex_t error_lock;
    ct_error_record *error; /* the first that a worker raised */
} job;

/* What others read of a worker, on lines that only it and the one who wakes it write. */
typedef struct worker_state {
    _Alignas(LINE) ct_parking parking;
    pthread_t thread;
    int cpu;                /* that it is pinned to; -1: none */
    _Atomic int busy;       /* it looks at the current job */
    _Atomic int64_t called; /* when it was woken */
} worker_state;

/* By who writes it: a line that a job's owner writes is none that workers read. */
static struct {
    pthread_mutex_t owner; /* held by the thread whose job runs, as is what follows */
    int started;           /* workers that exist */
    int free_cpu;          /* that no worker is pinned to, for the caller; -1: they are not pinned */
    int64_t unshared;      /* nanoseconds of work for which nobody was woken, of jobs that followed closely */
    int64_t last_end;      /* when the last job ended */
    struct {               /* read by all, seldom written */
        _Alignas(LINE) _Atomic int wanted; /* threads that may work, the caller's included; 0: not decided yet */
        _Atomic int64_t spin_time;
        _Atomic int64_t wake_time; /* nanoseconds from the call to a parked worker until it works, a running mean */
        ct_pool_run host_run;
        void *host_context;
    };
    struct {
        _Alignas(LINE) _Atomic(job *) current; /* the open job, or NULL */
        _Atomic uint64_t call; /* counts jobs, times CALL_STEP, plus the workers below which are called */
        _Atomic bool stop;
    } open;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .free_cpu = -1, .wake_time = FIRST_WAKE_TIME};

/* By worker; the first is the caller and unused. Apart from the pool, whose struct is initialized and so takes its size in the file. */
static worker_state workers[MAX_THREADS];

enum { CALL_STEP = 1024 };

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

static int clamp_threads(long count) {
    if (count <= 0) count = ct__cpu_count();
    return count > MAX_THREADS ? MAX_THREADS : (int)count;
}

void ct__threads_hold(int threads) { held_threads = threads; }

/* Those that the program wants. */
static int wanted_threads(void) {
    int wanted = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    if (wanted) return wanted;
    const char *text = getenv("CT_THREADS");
    wanted = clamp_threads(text ? strtol(text, NULL, 10) : 0);
    int expected = 0;
    atomic_compare_exchange_strong(&pool.wanted, &expected, wanted);
    return atomic_load(&pool.wanted);
}

int ct__threads(void) { return held_threads ? held_threads : wanted_threads(); }

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

/* ---- Working ---- */

/* The next chunk of a part, or -1. Looking first leaves the line of a part that is done where it is. */
static int64_t take(part *p) {
    if (atomic_load_explicit(&p->next, memory_order_relaxed) >= p->end) return -1;
    const int64_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
    return chunk < p->end ? chunk : -1;
}

/* Every worker begins with the part that is its own in every job of as many chunks: what it wrote in one job is in its
 * cache in the next. */
static void work_on(job *work, int worker) {
    for (int i = 0; i < work->count; i++) {
        part *p = &work->parts[(worker + i) % work->count];
        for (int64_t chunk; (chunk = take(p)) >= 0;) work->fn(work->ctx, chunk, worker);
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
    if (work->error->code == CT_OK) *work->error = error;
    pthread_mutex_unlock(&work->error_lock);
}

/* ---- Calling workers ---- */

/* One slow wake-up in between is not the rule. */
static void note_wake_time(int64_t nanoseconds) {
    const int64_t before = atomic_load_explicit(&pool.wake_time, memory_order_relaxed);
    int64_t mean = (7 * before + (nanoseconds < 4 * before ? nanoseconds : 4 * before)) / 8;
    if (mean < LEAST_WAKE_TIME) mean = LEAST_WAKE_TIME;
    if (mean > MOST_WAKE_TIME) mean = MOST_WAKE_TIME;
    atomic_store_explicit(&pool.wake_time, mean, memory_order_relaxed);
}

/* Wakes some of the parked workers that a job still calls for. Many do this at once, so each begins behind itself, and who finds that another
 * was faster leaves the count as it was: workers would sleep through the job otherwise. */
static void wake_some(job *work, int from) {
    for (int i = 1, woken = 0; i < work->limit && woken < WAKES_EACH; i++) {
        worker_state *w = &workers[(from + i) % work->limit];
        if (atomic_load_explicit(&work->to_wake, memory_order_relaxed) <= 0) return;
        if (w == workers || !ct__is_parked(&w->parking)) continue;
        const bool mine = atomic_fetch_sub_explicit(&work->to_wake, 1, memory_order_relaxed) > 0;
        if (mine) atomic_store_explicit(&w->called, ct__nanoseconds(), memory_order_relaxed);
        if (mine && ct__unpark(&w->parking)) woken++;
        else atomic_fetch_add_explicit(&work->to_wake, 1, memory_order_relaxed);
    }
}

static int count_parked(int threads) {
    int parked = 0;
    for (int i = 1; i < threads && i <= pool.started; i++) parked += ct__is_parked(&workers[i].parking);
    return parked;
}

/* How many threads, the caller's included, a job is worth when all are awake: n for which T / n + FORK_TIME + n JOIN_TIME is least, or one
 * where they save less than twice what it takes to call them. */
static int threads_that_pay(int64_t nanoseconds, int64_t chunks, int threads) {
    const int most = chunks < threads ? (int)chunks : threads;
    int pay = 1;
    while (pay < most && (int64_t)pay * (pay + 1) * JOIN_TIME <= nanoseconds) pay++;
    return nanoseconds - nanoseconds / pay > 2 * (FORK_TIME + pay * JOIN_TIME) ? pay : 1;
}

/* Decides how many threads work on what is left of a job: those of the first `threads` that are awake, and as many of the parked ones as
 * have more to do than the time that it takes to wake them. Work that was too little to wake anybody is added up from job to job as long as
 * jobs follow closely, for then those who are woken stay awake. */
static int plan_call(job *work, int threads, int64_t nanoseconds) {
    const int most = threads <= pool.started ? threads : pool.started + 1, parked = count_parked(threads);
    const int awake = most - parked;
    if (parked) pool.unshared += nanoseconds;
    const int64_t worth = pool.unshared / atomic_load_explicit(&pool.wake_time, memory_order_relaxed) - awake;
    const int wake = worth <= 0 ? 0 : worth < parked ? (int)worth : parked;
    if (wake == parked) pool.unshared = 0;
    atomic_store_explicit(&work->to_wake, wake, memory_order_relaxed);
    work->all = wake == parked;
    work->called = awake + wake > 1 ? threads : 1;
    return awake + wake;
}

/* Opens the job to those called, or to more of them than before. Workers that have parked since they were counted are counted again: either
 * they have seen the call, or it is seen here that they are parked. */
static void call_workers(job *work) {
    const uint64_t before = atomic_load_explicit(&pool.open.call, memory_order_relaxed);
    work->open = true;
    /* Workers watch the line of both: one store that waits for it is enough. */
    atomic_store_explicit(&pool.open.current, work, memory_order_release);
    atomic_store(&pool.open.call, before - before % CALL_STEP + CALL_STEP + (uint64_t)work->called);
    const int parked = work->all ? count_parked(work->called) : 0;
    if (parked > atomic_load_explicit(&work->to_wake, memory_order_relaxed))
        atomic_store_explicit(&work->to_wake, parked, memory_order_relaxed);
    wake_some(work, 0);
}

/* When chunks turn out to take much longer than expected, more threads are called. */
static void reconsider(job *work, int64_t done, int64_t nanoseconds) {
    const int64_t cost = nanoseconds / done, left = work->chunks - done * work->count;
    if (cost <= 2 * work->cost || left <= 0 || pool.host_run) return;
    const int threads = threads_that_pay(cost * left, left, work->limit);
    if (threads <= work->called) return;
    work->cost = cost;
    if (plan_call(work, threads, cost * left) > 1) call_workers(work);
}

/* The caller's own part in a job, by which its cost is known the next time. */
static void work_as_caller(job *work, int64_t start) {
    int64_t done = 0, look = 1;
    inside_job = true;
    for (int i = 0; i < work->count; i++) {
        for (int64_t chunk; (chunk = take(&work->parts[i])) >= 0;) {
            work->fn(work->ctx, chunk, 0);
            if (++done != look) continue;
            look *= 4; /* a look at the clock takes as long as the smallest chunks */
            if (work->called < work->limit) reconsider(work, done, ct__nanoseconds() - start);
        }
    }
    inside_job = false;
    pool.last_end = ct__nanoseconds();
    if (done) ct__cost_remember(work->fn, work->chunks, (pool.last_end - start) / done);
}

/* ---- Workers ---- */

/* Where the workers from `first` on are to run. They are pinned only when they and the caller fill the processors: otherwise the scheduler knows
 * better. The caller is not: where it goes is the program's affair (make_room). */
static void place_workers(int first, int threads) {
    int cpus[MAX_THREADS], count = 0, from = 0;
    const char *text = getenv("CT_PIN");
    const int wanted = atomic_load(&pinning), caller = ct__cpu_current();
    const bool pins = wanted < 0 ? !text || text[0] != '0' : wanted;
    if (pins && ct__cpu_count() == threads) count = ct__cpu_order(cpus, MAX_THREADS);
    for (int i = 0; i < count; i++)
        if (cpus[i] == caller) from = i;
    for (int i = first; i < threads; i++) workers[i].cpu = count ? cpus[(from + i) % count] : -1;
    pool.free_cpu = count ? cpus[from] : -1;
}

/* A caller that the system has put where a worker is pinned would take turns with it, for milliseconds, beside a processor that nobody uses: the
 * worker goes there. */
static void make_room(void) {
    if (pool.free_cpu < 0) return;
    const int cpu = ct__cpu_current();
    if (cpu == pool.free_cpu) return;
    for (int i = 1; i <= pool.started; i++) {
        if (workers[i].cpu != cpu) continue;
        workers[i].cpu = pool.free_cpu;
        pool.free_cpu = cpu;
        ct__cpu_pin(workers[i].thread, workers[i].cpu);
        return;
    }
}

/* Whether the worker is called by what is published, if that is new to it. */
static bool is_called(int worker, uint64_t *seen) {
    const uint64_t call = atomic_load(&pool.open.call);
    if (call == *seen) return false;
    *seen = call;
    return (uint64_t)worker < call % CALL_STEP;
}

/* Returns when the worker is called: spins for a while, then parks. */
static void wait_for_call(int worker, uint64_t *seen) {
    worker_state *me = &workers[worker];
    for (;;) {
        const int64_t until = ct__nanoseconds() + atomic_load(&pool.spin_time);
        do {
            for (int spin = 0; spin < SPINS_PER_LOOK; spin++) {
                if (is_called(worker, seen)) return;
                relax();
            }
        } while (ct__nanoseconds() < until);
        ct__park_announce(&me->parking);
        if (is_called(worker, seen)) {
            ct__park_cancel(&me->parking);
            return;
        }
        ct__park_sleep(&me->parking);
        note_wake_time(ct__nanoseconds() - atomic_load_explicit(&me->called, memory_order_relaxed));
    }
}

static void *worker_main(void *argument) {
    const int worker = (int)(intptr_t)argument;
    worker_state *me = &workers[worker];
    uint64_t seen = 0;
    for (;;) {
        wait_for_call(worker, &seen);
        if (atomic_load(&pool.open.stop)) return NULL;
        /* Either we see the job closed, or its owner sees us busy and waits. */
        atomic_store(&me->busy, 1);
        job *work = atomic_load(&pool.open.current);
        if (work) {
            wake_some(work, worker);
            help(work, worker);
        }
        atomic_store_explicit(&me->busy, 0, memory_order_release);
    }
}

/* Nobody comes to the job any more; those who did have left it. */
static void close_job(void) {
    atomic_store(&pool.open.current, NULL);
    for (int i = 1; i <= pool.started; i++)
        for (int spin = 0; atomic_load(&workers[i].busy); spin++) {
            if (spin < 100000) relax();
            else sched_yield();
        }
}

/* After fork only the calling thread exists: the child starts with an empty pool. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.owner, NULL);
    atomic_store(&pool.open.current, NULL);
    pool.started = 0;
    atomic_store(&pool.open.stop, false);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

static void stop_workers_locked(void) {
    atomic_store(&pool.open.stop, true);
    atomic_fetch_add(&pool.open.call, CALL_STEP);
    atomic_fetch_or(&pool.open.call, CALL_STEP - 1); /* everybody */
    for (int i = 1; i <= pool.started; i++) {
        atomic_store_explicit(&workers[i].called, ct__nanoseconds(), memory_order_relaxed);
        ct__unpark(&workers[i].parking);
        pthread_join(workers[i].thread, NULL);
    }
    pool.started = 0;
    atomic_store(&pool.open.stop, false);
}

/* What a worker's own fault raises. Blocked, it would end the process past the handler that the host has for it. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void start_workers_locked(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (pool.started == threads - 1) return;
    if (pool.started > threads - 1) stop_workers_locked();
    sigset_t blocked, before;
    sigfillset(&blocked); /* signals are the host's business */
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    atomic_store(&pool.spin_time,
                 threads <= ct__cpu_count() ? SPIN_TIME : 0); /* no spinning where another could work */
    place_workers(pool.started + 1, threads);
    while (pool.started < threads - 1) {
        const int worker = pool.started + 1;
        ct__parking_init(&workers[worker].parking);
        atomic_store(&workers[worker].busy, 0);
        /* Fewer threads than wanted is slower, not wrong. */
        if (pthread_create(&workers[worker].thread, NULL, worker_main, (void *)(intptr_t)worker) != 0) break;
        if (workers[worker].cpu >= 0) ct__cpu_pin(workers[worker].thread, workers[worker].cpu);
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- Jobs ---- */

/* Where part i of `count` begins. */
static int64_t part_start(int64_t chunks, int count, int64_t i) {
    const int64_t rest = chunks % count;
    return chunks / count * i + (rest < i ? rest : i);
}

int64_t ct__mirrored(int64_t chunk, int64_t chunks) {
    const int threads = ct__threads(), count = chunks < threads ? (int)chunks : threads;
    const int64_t each = chunks / count, longer = chunks % count * (each + 1); /* the first parts have one more */
    const int64_t i = chunk < longer ? chunk / (each + 1) : chunks % count + (chunk - longer) / each;
    return part_start(chunks, count, i) + part_start(chunks, count, i + 1) - 1 - chunk;
}

static void host_task(void *context, int64_t i) {
    job *work = context;
    const int64_t start = ct__nanoseconds();
    help(work, (int)i);
    if (i == 0) ct__cost_remember(work->fn, work->chunks, (ct__nanoseconds() - start) * work->count / work->chunks);
}

void ct__parallel(int64_t chunks, ct_task fn, void *ctx) {
    /* What is held is scratch, for so many workers: the program may want fewer, and those it wants stay when a job can do with fewer. */
    const int wanted = wanted_threads(), threads = held_threads && held_threads < wanted ? held_threads : wanted;
    if (chunks <= 1 || threads <= 1 || inside_job || pthread_mutex_trylock(&pool.owner) != 0) {
        for (int64_t i = 0; i < chunks; i++) fn(ctx, i, 0);
        return;
    }
    part parts[MAX_THREADS];
    ct_error_record error;
    error.code = CT_OK;
    job work = {.fn = fn, .ctx = ctx, .parts = parts, .limit = threads, .chunks = chunks, .error = &error};
    work.cost = ct__cost_of_chunk(fn, chunks);
    if (atomic_load_explicit(&grain_limit, memory_order_relaxed) > 0)
        work.cost = MOST_WAKE_TIME; /* who cuts everything wants everybody */
    const int64_t nanoseconds = chunks < INT64_MAX / 4 / (work.cost + 1) ? work.cost * chunks : INT64_MAX / 4;
    work.count = work.called = threads_that_pay(nanoseconds, chunks, threads);
    const bool weighed = work.called > 1 && nanoseconds < WEIGHED_TIME && !pool.host_run;
    const ct_weighed kind = {fn, chunks, nanoseconds};
    if (weighed && ct__cost_is_less_plain(&kind)) work.count = work.called = 1;
    const int64_t start = ct__nanoseconds();
    if (!pool.host_run) {
        start_workers_locked(wanted);
        if (work.called > 1) make_room();
        if (start - pool.last_end > SPIN_TIME) pool.unshared = 0;
        work.count = plan_call(&work, work.called, nanoseconds);
    }
    for (int i = 0; i < work.count; i++) {
        atomic_init(&parts[i].next, part_start(chunks, work.count, i));
        parts[i].end = part_start(chunks, work.count, i + 1);
    }
    pthread_mutex_init(&work.error_lock, NULL);
    if (pool.host_run && work.count > 1) {
        pool.host_run(pool.host_context, work.count, host_task, &work);
    } else {
        if (work.called > 1) call_workers(&work);
        work_as_caller(&work, work.open ? ct__nanoseconds() : start);
        if (work.open) close_job();
        if (weighed) ct__cost_weigh(&kind, !work.open, (work.open ? ct__nanoseconds() : pool.last_end) - start);
    }
    pthread_mutex_unlock(&pool.owner);
    if (error.code != CT_OK) ct__error_put(&error);
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
