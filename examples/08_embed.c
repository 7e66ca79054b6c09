/* A host program that keeps control: its own allocator with a limit, its own threads, its own log and policy for errors. */
#include <cotangent.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory: counted, and refused beyond a limit ---- */

typedef struct budget {
    _Atomic size_t used, most;
    size_t limit;
} budget;

static void *take(void *context, size_t bytes, size_t alignment) {
    budget *b = context;
    const size_t now = atomic_fetch_add(&b->used, bytes) + bytes;
    void *memory = now > b->limit ? NULL : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!memory) atomic_fetch_sub(&b->used, bytes);
    else if (now > atomic_load(&b->most)) atomic_store(&b->most, now);
    return memory;
}

static void give_back(void *context, void *memory, size_t bytes) {
    free(memory);
    atomic_fetch_sub(&((budget *)context)->used, bytes);
}

/* ---- Threads: two of the host's, started once ---- */

enum { WORKERS = 2 };
typedef struct workers {
    pthread_t threads[WORKERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*task)(void *context, int64_t i);
    void *context;
    int64_t next, tasks, finished;
    int64_t jobs; /* for the report */
    bool stop;
} workers;

static void work(workers *w) { /* with the lock held */
    while (w->next < w->tasks) {
        const int64_t mine = w->next++;
        pthread_mutex_unlock(&w->lock);
        w->task(w->context, mine);
        pthread_mutex_lock(&w->lock);
        if (++w->finished == w->tasks) pthread_cond_broadcast(&w->changed);
    }
}

static void *worker(void *context) {
    workers *w = context;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        work(w);
        if (!w->stop) pthread_cond_wait(&w->changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* What the library calls: every task, on any thread, and back when all are done. */
static void run_on_workers(void *context, int64_t tasks, void (*task)(void *, int64_t), void *task_context) {
    workers *w = context;
    pthread_mutex_lock(&w->lock);
    w->task = task, w->context = task_context, w->next = 0, w->finished = 0, w->tasks = tasks, w->jobs++;
    pthread_cond_broadcast(&w->changed);
    work(w);
    while (w->finished < w->tasks) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* ---- Errors: the host logs them and goes on ---- */

static bool handled(const char *what) {
    if (ct_ok()) return true;
    printf("%s failed (%s): %.60s...\n", what, ct_code_text(ct_error_code()), ct_error());
    ct_error_clear();
    return false;
}

int main(void) {
    static budget memory = {.limit = 64 << 20};
    static workers pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&pool.threads[i], NULL, worker, &pool)) return 1;
    ct_set_allocator(take, give_back, &memory);
    ct_set_pool(run_on_workers, &pool, WORKERS + 1);

    ct_seed(1);
    ct_module *net = ct_nn_mlp(CT_DIMS(64, 256, 256, 8), CT_ACT_RELU);
    ct_optim *opt = ct_sgd(net, .lr = 0.05, .momentum = CT_SET(0.9));
    double first = 0, last = 0;
    for (int step = 0; step < 50 && ct_ok(); step++) {
        ct_scope {
            ct_tensor *x = ct_randn(CT_DIMS(256, 64));
            ct_tensor *loss = ct_mse_loss(ct_forward(net, x), ct_narrow(x, 1, 0, 8));
            ct_backward(loss);
            ct_optim_step(opt);
            last = ct_item(loss);
            if (step == 0) first = last;
        }
    }
    const bool trained = handled("training") && last < first;
    printf("loss %.3f at first, %.3f at last\n", first, last);

    /* Two mistakes, neither of which ends the program. */
    bool lost = false;
    ct_scope {
        ct_ones(CT_DIMS(1024, 1024, 64));
        lost = !handled("a tensor of 256 MiB");
    }
    ct_scope {
        ct_forward(net, ct_ones(CT_DIMS(1, 63)));
        lost = !handled("a row of 63") && lost;
    }
    ct_optim_free(opt);
    ct_module_free(net);
    ct_set_pool(NULL, NULL, 0);
    pthread_mutex_lock(&pool.lock);
    pool.stop = true;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < WORKERS; i++) pthread_join(pool.threads[i], NULL);
    printf("the host's threads ran %s jobs; its memory stayed below the limit: %s\n",
           pool.jobs > 0 ? "the library's" : "no", atomic_load(&memory.most) <= memory.limit ? "yes" : "no");
    return trained && lost && pool.jobs > 0 ? 0 : 1;
}
