/* A good guest: the host's pool, its threads, its forks and its signals. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/costs.h"
#include "core/threads.h"
#include "tests/harness.h"

/* ---- The library's pool ---- */

static _Atomic int64_t ran[100000];

static void count_chunk(void *ctx, int64_t chunk, int worker) {
    (void)ctx;
    (void)worker;
    atomic_fetch_add(&ran[chunk], 1);
}

TEST(every_chunk_runs_exactly_once) {
    ct_set_threads(7);
    for (int64_t chunks = 0; chunks < 100; chunks++) {
        for (int i = 0; i < 100; i++) atomic_store(&ran[i], 0);
        ct__parallel(chunks, count_chunk, NULL);
        for (int i = 0; i < 100; i++)
            if (!CHECK(atomic_load(&ran[i]) == (i < chunks))) return;
    }
    ct__parallel(100000, count_chunk, NULL);
    bool all = true;
    for (int i = 100; i < 100000; i++) all = all && atomic_load(&ran[i]) == 1;
    CHECK(all);
}

static _Atomic int in_use_by[256];

static void claim_worker(void *ctx, int64_t chunk, int worker) {
    (void)chunk;
    _Atomic int *clashes = ctx;
    if (worker < 0 || worker >= ct__threads()) atomic_fetch_add(clashes, 1);
    else if (atomic_exchange(&in_use_by[worker], 1)) atomic_fetch_add(clashes, 1);
    usleep(50);
    if (worker >= 0 && worker < 256) atomic_store(&in_use_by[worker], 0);
}

TEST(no_two_running_tasks_share_a_worker_number) {
    _Atomic int clashes = 0;
    ct_set_threads(5);
    for (int i = 0; i < 20; i++) ct__parallel(64, claim_worker, (void *)&clashes);
    CHECK(clashes == 0);
}

/* ---- How many threads a job gets ---- */

typedef struct shared_work {
    int microseconds; /* of sleep in each chunk */
    _Atomic int by_workers;
} shared_work;

static void sleep_chunk(void *ctx, int64_t chunk, int worker) {
    shared_work *w = ctx;
    (void)chunk;
    if (w->microseconds) usleep((useconds_t)w->microseconds);
    if (worker > 0) atomic_fetch_add(&w->by_workers, 1);
}

TEST(work_that_is_too_little_to_share_stays_with_the_caller) {
    shared_work w = {0};
    int shared = 0;
    ct_set_threads(4);
    for (int i = 0; i < 300; i++) {
        atomic_store(&w.by_workers, 0);
        ct__parallel(2, sleep_chunk, &w);
        shared += i >= 100 && atomic_load(&w.by_workers) > 0;
    }
    CHECK(shared < 100); /* of 200; now and then a chunk took long because this process was not running */
}

TEST(work_that_a_small_grain_has_cut_is_shared_whatever_it_takes) {
    shared_work w = {0};
    ct_set_threads(4);
    ct__set_grain(1);
    int shared = 0;
    for (int i = 0; i < 200; i++) {
        atomic_store(&w.by_workers, 0);
        w.microseconds = i % 10 ? 0 : 200;
        ct__parallel(16, sleep_chunk, &w);
        shared += i % 10 == 0 && atomic_load(&w.by_workers) > 0;
    }
    CHECK(shared > 10); /* of 20 */
}

TEST(work_that_pays_is_shared_even_if_it_was_little_before) {
    shared_work w = {0};
    ct_set_threads(4);
    for (int i = 0; i < 100; i++) ct__parallel(8, sleep_chunk, &w);
    atomic_store(&w.by_workers, 0);
    w.microseconds = 3000;
    ct__parallel(8, sleep_chunk, &w);
    CHECK(atomic_load(&w.by_workers) > 0);
    usleep(2000); /* all of them are parked */
    atomic_store(&w.by_workers, 0);
    ct__parallel(8, sleep_chunk, &w);
    CHECK(atomic_load(&w.by_workers) > 0);
}

static void weighed_chunk(void *ctx, int64_t chunk, int worker) { (void)ctx, (void)chunk, (void)worker; }

/* How many of so many jobs go alone that take so long either way; the first after others that went the other way takes three times that. */
static int jobs_alone(int jobs, int64_t chunks, int64_t alone, int64_t shared) {
    const ct_weighed job = {weighed_chunk, chunks, 20000};
    int count = 0;
    bool before = false;
    for (int i = 0; i < jobs; i++) {
        const bool by_itself = ct__cost_is_less_plain(&job);
        ct__cost_weigh(&job, by_itself, (by_itself ? alone : shared) * (by_itself == before ? 1 : 3));
        count += by_itself;
        before = by_itself;
    }
    return count;
}

TEST(small_work_goes_the_way_that_took_less_and_the_other_is_tried_again) {
    CHECK(jobs_alone(8, 5, 9000, 18000) == 4); /* both are tried */
    CHECK(jobs_alone(992, 5, 9000, 18000) == 992 - 12);
    CHECK(jobs_alone(1000, 6, 18000, 9000) == 16);
    CHECK(jobs_alone(10000, 6, 18000, 9000) < 60);
    CHECK(jobs_alone(10000, 5, 18000, 9000) < 1200); /* what changes is noticed when the other way is tried */
    CHECK(jobs_alone(10000, 6, 9000, 18000) > 8000);
    CHECK(jobs_alone(1000, 7, 10000, 9500) > 900); /* too little to gain */
}

enum { MANY = 16 };
static _Atomic int chunks_of[MANY];

static void sleep_and_count(void *ctx, int64_t chunk, int worker) {
    (void)ctx, (void)chunk;
    usleep(1000);
    atomic_fetch_add(&chunks_of[worker], 1);
}

TEST(no_worker_sleeps_through_work_that_is_enough_for_all) {
    enum { JOBS = 40 };
    int missed = 0;
    ct_set_threads(MANY);
    ct__parallel(8 * MANY, sleep_and_count, NULL); /* from now on it is known what a chunk takes */
    for (int job = 0; job < JOBS; job++) {
        usleep(job % 4 * 100); /* some of them, or all, are parked */
        for (int i = 0; i < MANY; i++) atomic_store(&chunks_of[i], 0);
        ct__parallel(8 * MANY, sleep_and_count, NULL);
        for (int i = 0; i < MANY; i++) missed += atomic_load(&chunks_of[i]) == 0;
    }
    CHECK(missed < JOBS * MANY / 50); /* a machine that has other work to do may not let one run for 8 ms */
}

#ifdef __linux__
static _Atomic int callers_cpu, clashes;

static void note_cpu(void *ctx, int64_t chunk, int worker) {
    (void)ctx, (void)chunk;
    usleep(500);
    if (worker > 0 && sched_getcpu() == atomic_load(&callers_cpu)) atomic_fetch_add(&clashes, 1);
}

TEST(a_worker_makes_room_for_a_caller_that_comes_to_its_processor) {
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    const int count = CPU_COUNT(&all);
    if (count < 2) SKIP("there is one processor");
    ct_set_pin(true); /* whatever CT_PIN says */
    ct_set_threads(0);
    if (ct_get_threads() < count) SKIP("there are more processors than threads, which are not pinned then");
    ct__parallel(8 * count, note_cpu, NULL);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
        atomic_store(&callers_cpu, cpu);
        atomic_store(&clashes, 0);
        ct__parallel(8 * count, note_cpu, NULL);
        CHECK(atomic_load(&clashes) == 0);
    }
    REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
}
#endif

static void nested(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    if (chunk < 4) ct__parallel(10, count_chunk, ctx);
}

TEST(parallel_work_inside_parallel_work_is_legal) {
    ct_set_threads(4);
    ct__parallel(4, nested, NULL);
    for (int i = 0; i < 10; i++) CHECK(atomic_load(&ran[i]) == 4);
}

TEST(the_number_of_threads_can_be_changed_at_any_time) {
    double first = 0;
    ct_tensor *x = ct_rand(CT_DIMS(512, 300));
    for (int threads = 1; threads <= 9; threads += 2) {
        CHECK(ct_set_threads(threads));
        CHECK(ct_get_threads() == threads);
        double sum = ct_item(ct_sum(ct_matmul(x, ct_t(x))));
        if (threads == 1) first = sum;
        CHECK(sum == first);
    }
    CHECK(ct_set_threads(0));
    CHECK(ct_get_threads() >= 1);
    CHECK(!ct_set_threads(-1));
    CHECK_ERROR(CT_ERR_VALUE, "set_threads: the number of threads is -1; it has to be 0 (all) or more");
}

static _Atomic int highest_worker;
static _Thread_local bool was_here;
static _Atomic int newcomers; /* threads that have worked */

static void note_worker(void *ctx, int64_t chunk, int worker) {
    (void)ctx, (void)chunk;
    if (worker > atomic_load(&highest_worker)) atomic_store(&highest_worker, worker);
    if (!was_here) atomic_fetch_add(&newcomers, 1);
    was_here = true;
    usleep(100);
}

/* A captured call holds the number of threads that it has scratch for. */
TEST(a_call_that_holds_a_number_of_threads_has_no_more_than_are_wanted_and_lets_the_others_be) {
    REQUIRE(ct_set_threads(2));
    for (int i = 0; i < 4; i++) {
        ct__threads_hold(i % 2 ? 5 : 0);
        ct__parallel(64, note_worker, NULL);
    }
    CHECK(atomic_load(&highest_worker) <= 1);
    REQUIRE(ct_set_threads(4));
    atomic_store(&newcomers, 0);
    for (int i = 0; i < 40; i++) {
        atomic_store(&highest_worker, 0);
        ct__threads_hold(i % 2 ? 2 : 0);
        ct__parallel(64, note_worker, NULL);
        if (i % 2) CHECK(atomic_load(&highest_worker) <= 1);
    }
    ct__threads_hold(0);
    CHECK(atomic_load(&newcomers) <= 3); /* they were started once */
}

static _Atomic bool enough;
static void *change_threads(void *context) {
    (void)context;
    for (int i = 0; !atomic_load(&enough); i++) ct_set_threads(i % 2 ? 1 : 16);
    return NULL;
}

/* Kernels have scratch for each thread: as many as there were when it was made. */
TEST(the_number_of_threads_can_be_changed_by_another_thread_while_ops_run) {
    ct_tensor *x = ct_rand(CT_DIMS(4, 16, 20, 20)), *w = ct_rand(CT_DIMS(32, 16, 5, 5));
    const double sum = ct_item(ct_sum(ct_conv2d(x, w, .pad = 2)));
    pthread_t other;
    CHECK(pthread_create(&other, NULL, change_threads, NULL) == 0);
    bool same = true;
    for (int i = 0; i < 300; i++)
        ct_scope {
            same = same && ct_item(ct_sum(ct_conv2d(x, w, .pad = 2))) == sum;
        }
    atomic_store(&enough, true);
    pthread_join(other, NULL);
    CHECK(same);
    CHECK(ct_set_threads(0));
}

static _Atomic int on_worker, on_main;
static pthread_t main_thread;

static void count_signal(int signal) {
    (void)signal;
    atomic_fetch_add(pthread_equal(pthread_self(), main_thread) ? &on_main : &on_worker, 1);
}

static void note_mask(void *ctx, int64_t chunk, int worker) {
    (void)chunk;
    _Atomic int *open = ctx;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (worker > 0 && (!sigismember(&mask, SIGINT) || !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGUSR1)))
        atomic_fetch_add(open, 1);
    usleep(300);
}

TEST(workers_block_signals_and_the_caller_does_not) {
    _Atomic int open = 0;
    main_thread = pthread_self();
    signal(SIGUSR1, count_signal);
    ct_set_threads(4);
    ct__parallel(64, note_mask, (void *)&open);
    CHECK(open == 0);
    for (int i = 0; i < 50; i++)
        kill(getpid(), SIGUSR1); /* to the process: some thread that does not block it takes it */
    for (int i = 0; i < 100 && atomic_load(&on_main) == 0; i++) usleep(1000);
    CHECK(atomic_load(&on_worker) == 0);
    CHECK(atomic_load(&on_main) > 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGUSR1));
}

static void raise_on_worker(void *ctx, int64_t chunk, int worker) {
    (void)ctx, (void)chunk;
    if (worker > 0) raise(SIGILL);
    usleep(300);
}

TEST(a_fault_of_a_worker_reaches_the_hosts_handler) {
    main_thread = pthread_self();
    signal(SIGILL, count_signal);
    ct_set_threads(4);
    ct__parallel(64, raise_on_worker, NULL);
    CHECK(atomic_load(&on_worker) > 0);
}

/* ---- The host's pool ---- */

static _Atomic int host_runs, host_tasks;

typedef struct host_thread {
    pthread_t thread;
    void (*task)(void *, int64_t);
    void *context;
    int64_t index;
} host_thread;

static void *run_task(void *argument) {
    host_thread *t = argument;
    t->task(t->context, t->index);
    return NULL;
}

static void host_run(void *context, int64_t tasks, void (*task)(void *task_context, int64_t i), void *task_context) {
    host_thread threads[16];
    if (context != &host_runs || tasks > 16) abort();
    atomic_fetch_add(&host_runs, 1);
    atomic_fetch_add(&host_tasks, (int)tasks);
    for (int64_t i = 0; i < tasks; i++)
        threads[i] = (host_thread){.task = task, .context = task_context, .index = tasks - 1 - i};
    for (int64_t i = 0; i < tasks; i++)
        if (pthread_create(&threads[i].thread, NULL, run_task, &threads[i]) != 0) abort();
    for (int64_t i = 0; i < tasks; i++) pthread_join(threads[i].thread, NULL);
}

TEST(work_runs_on_the_hosts_pool_and_gives_the_same_bits) {
    ct_tensor *x = ct_rand(CT_DIMS(700, 500)), *own = ct_matmul(x, ct_t(x)), *sum = ct_sum(x);
    REQUIRE(ct_set_pool(host_run, (void *)&host_runs, 3));
    CHECK(ct_get_threads() == 3);
    CHECK(harness_same_bits(own, ct_matmul(x, ct_t(x))));
    CHECK(harness_same_bits(sum, ct_sum(x)));
    CHECK(host_runs > 0 && host_tasks > 0);
    ct__parallel(50, count_chunk, NULL);
    for (int i = 0; i < 50; i++) CHECK(atomic_load(&ran[i]) == 1);
    int runs = host_runs;
    REQUIRE(ct_set_pool(NULL, NULL, 0)); /* back to the library's own */
    CHECK(harness_same_bits(own, ct_matmul(x, ct_t(x))));
    CHECK(host_runs == runs);
    CHECK(!ct_set_pool(host_run, NULL, 0));
    CHECK_ERROR(CT_ERR_VALUE, "set_pool: the host's pool has 0 threads; it needs at least 1");
}

static void failing_chunk(void *ctx, int64_t chunk, int worker) {
    (void)ctx;
    (void)worker;
    if (chunk == 5) ct_fail(CT_ERR_VALUE, "task", "chunk 5");
}

TEST(errors_of_the_hosts_threads_reach_the_caller) {
    REQUIRE(ct_set_pool(host_run, (void *)&host_runs, 4));
    ct__parallel(64, failing_chunk, NULL);
    CHECK_ERROR(CT_ERR_VALUE, "task: chunk 5");
}

/* ---- fork ---- */

TEST(a_forked_child_starts_a_pool_of_its_own) {
#ifdef __SANITIZE_THREAD__
    SKIP("the thread sanitizer does not follow threads after a fork");
#endif
    ct_set_threads(4);
    ct_tensor *x = ct_rand(CT_DIMS(400, 400)), *y = ct_matmul(x, x); /* the pool runs now */
    for (int turn = 0; turn < 5; turn++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            bool good = harness_same_bits(y, ct_matmul(x, x)) && ct_get_threads() == 4;
            ct__parallel(64, count_chunk, NULL);
            for (int i = 0; i < 64; i++) good = good && atomic_load(&ran[i]) == 1;
            good = good && ct_set_threads(2) && harness_same_bits(y, ct_matmul(x, x));
            _exit(good ? 0 : 1);
        }
        int status;
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(harness_same_bits(y, ct_matmul(x, x)));
}

/* ---- Several host threads ---- */

typedef struct training {
    uint64_t seed;
    int steps;
    float weights[8 * 16 + 16];
    bool ok;
} training;

/* Trains a small network on data of its own; everything that it makes is this thread's. */
static void *train(void *argument) {
    training *t = argument;
    ct_scope {
        ct_rng *rng = ct_rng_new(t->seed, 0);
        ct_tensor *x = ct_randn(CT_DIMS(256, 8), .rng = rng),
                  *target = ct_sin(ct_sum(x, .axes = CT_DIMS(1), .keepdim = true));
        ct_tensor *w1 = ct_set_requires_grad(ct_mul_s(ct_randn(CT_DIMS(8, 16), .rng = rng), 0.3), true);
        ct_tensor *w2 = ct_set_requires_grad(ct_mul_s(ct_randn(CT_DIMS(16, 1), .rng = rng), 0.3), true);
        for (int step = 0; step < t->steps; step++) {
            ct_scope {
                ct_tensor *error = ct_sub(ct_matmul(ct_tanh(ct_matmul(x, w1)), w2), target);
                ct_backward(ct_mean(ct_mul(error, error)));
                ct_no_grad {
                    ct_sub_(w1, ct_mul_s(ct_grad_of(w1), 0.1));
                    ct_sub_(w2, ct_mul_s(ct_grad_of(w2), 0.1));
                }
                ct_set_grad(w1, NULL);
                ct_set_grad(w2, NULL);
            }
        }
        t->ok = ct_read(w1, t->weights, 8 * 16 * sizeof(float)) &&
                ct_read(w2, t->weights + 8 * 16, 16 * sizeof(float)) && ct_ok();
        ct_rng_free(rng);
    }
    return NULL;
}

TEST(two_host_threads_train_at_once_and_get_the_bits_of_running_alone) {
    enum { MODELS = 2 };
    int steps = harness_sanitized() ? 20 : 200;
    training alone[MODELS] = {{.seed = 1, .steps = steps}, {.seed = 2, .steps = steps}}, together[MODELS];
    memcpy(together, alone, sizeof together);
    ct_set_threads(2);
    ct__set_grain(64); /* so that the pool is fought over */
    for (int i = 0; i < MODELS; i++) train(&alone[i]);
    for (int turn = 0; turn < 3; turn++) {
        pthread_t threads[MODELS];
        for (int i = 0; i < MODELS; i++) REQUIRE(pthread_create(&threads[i], NULL, train, &together[i]) == 0);
        for (int i = 0; i < MODELS; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < MODELS; i++) {
            CHECK(alone[i].ok && together[i].ok);
            CHECK(memcmp(alone[i].weights, together[i].weights, sizeof alone[i].weights) == 0);
        }
    }
    CHECK(memcmp(alone[0].weights, alone[1].weights, sizeof alone[0].weights) != 0);
}

enum { PRODUCTS = 6 };
typedef struct products {
    ct_tensor *a[PRODUCTS], *b[PRODUCTS], *expected[PRODUCTS];
    int turns;
    _Atomic int different;
} products;

static void *multiply_in_turns(void *argument) {
    products *p = argument;
    for (int turn = 0; turn < p->turns; turn++)
        ct_scope {
            const int i = turn % PRODUCTS;
            if (!harness_same_bits(ct_matmul(p->a[i], p->b[i]), p->expected[i])) atomic_fetch_add(&p->different, 1);
        }
    return NULL;
}

/* Workers of a large pool pack for themselves, and keep it from one chunk to the next of the same product. */
TEST(products_on_a_large_pool_leave_nothing_to_each_other) {
    static const int64_t sizes[PRODUCTS][3] = {{200, 300, 260}, {200, 300, 260}, {64, 700, 500},
                                               {400, 90, 300},  {130, 520, 700}, {256, 256, 256}};
    products p = {.turns = harness_sanitized() ? 12 : 60};
    REQUIRE(ct_set_threads(1));
    for (int i = 0; i < PRODUCTS; i++) {
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        const ct_dtype dtype = i == 3 ? CT_F64 : CT_F32;
        p.a[i] = ct_t(ct_randn(CT_DIMS(k, m), .dtype = dtype));
        p.b[i] = i % 2 ? ct_t(ct_randn(CT_DIMS(n, k), .dtype = dtype)) : ct_randn(CT_DIMS(k, n), .dtype = dtype);
        p.expected[i] = ct_matmul(p.a[i], p.b[i]);
    }
    for (int threads = 8; threads <= 16; threads += 4) {
        REQUIRE(ct_set_threads(threads));
        pthread_t others[3];
        for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&others[i], NULL, multiply_in_turns, &p) == 0);
        multiply_in_turns(&p);
        for (int i = 0; i < 3; i++) pthread_join(others[i], NULL);
        multiply_in_turns(&p);
    }
    CHECK(atomic_load(&p.different) == 0);
    CHECK(ct_set_threads(0));
}

static void *reads_shared(void *argument) {
    ct_tensor *w = argument;
    double total = 0;
    for (int i = 0; i < 50; i++) {
        ct_scope {
            ct_tensor *y = ct_sum(ct_mul(w, w)), *g = NULL;
            ct_grad(&y, 1, NULL, &w, 1, &g, 0);
            total += ct_item(ct_sum(g));
        }
    }
    return (void *)(intptr_t)(ct_ok() && total == 50 * 2 * 100.0);
}

TEST(threads_may_differentiate_through_a_tensor_that_they_share) {
    ct_tensor *w = ct_set_requires_grad(ct_ones(CT_DIMS(100)), true);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, reads_shared, w) == 0);
    for (int i = 0; i < 4; i++) {
        void *good = NULL;
        pthread_join(threads[i], &good);
        CHECK(good != NULL);
    }
}

static void *fails_alone(void *argument) {
    (void)argument;
    ct_fail(CT_ERR_VALUE, "thread", "mine");
    return (void *)(intptr_t)(ct_error_code() == CT_ERR_VALUE);
}

TEST(every_thread_has_errors_and_grad_mode_of_its_own) {
    pthread_t thread;
    void *good = NULL;
    bool before = ct_set_grad_enabled(false);
    REQUIRE(pthread_create(&thread, NULL, fails_alone, NULL) == 0);
    pthread_join(thread, &good);
    CHECK(good != NULL);
    CHECK(ct_ok());
    CHECK(!ct_grad_enabled());
    ct_set_grad_enabled(before);
}
