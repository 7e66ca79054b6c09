/* Data parallel training steps: by how many items a second ranks train together, and how much of the exchange of
 * gradients is hidden behind backward.
 *     cc -O2 bench/dist.c -Iinclude -Ibuild/generated/include -Lbuild/lib -lcotangent -Wl,-rpath,$PWD/build/lib -o dist
 *     CT_THREADS=2 ./dist resnet18 32                        one process, 32 items per step
 *     CT_THREADS=1 mpirun -n 2 ./dist resnet18 32            two, 16 items each
 *     CT_THREADS=1 mpirun -n 16 ./dist resnet18 32 --each    32 items each
 *     CT_THREADS=1 mpirun -n 2 ./dist resnet18 32 --stage1   the optimizer's state divided; compute alone gathers too
 * Prints one line: what bench/dist_model takes. cpu_ms is the processor time of a step by all ranks and threads: on a
 * machine that others use as well it tells more than the time that went by. */
#define _POSIX_C_SOURCE 200809L
#include <cotangent/dist.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *y;
    ct_dist_parallel *parallel;
} training;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_time(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static bool make(training *t, const char *name, int64_t batch, bool stage1) {
    if (!strcmp(name, "resnet18")) {
        t->net = ct_nn_resnet(18);
        if (stage1) ct_dist_divide(t->net, .stage = 1);
        t->x = ct_randn(CT_DIMS(batch, 3, 32, 32));
        t->y = ct_randint(CT_DIMS(batch), 0, 10);
        t->optim = ct_sgd(t->net, .lr = 0.01, .momentum = CT_SET(0.9));
    } else if (!strcmp(name, "gpt")) {
        t->net = ct_nn_gpt(512);
        if (stage1) ct_dist_divide(t->net, .stage = 1);
        t->x = ct_randint(CT_DIMS(batch, 256), 0, 512);
        t->y = ct_randint(CT_DIMS(batch * 256), 0, 512);
        t->optim = ct_adamw(t->net, .lr = 1e-3);
    } else return false;
    t->parallel = ct_dist_data_parallel(t->net);
    return ct_ok();
}

/* One step; without exchange its gradients stay where they are. */
static bool step(training *t, bool exchange) {
    bool ok = false;
    ct_scope {
        ct_dist_set_sync(t->parallel, exchange);
        ct_tensor *logits = ct_forward(t->net, t->x);
        if (ct_ndim(logits) == 3) logits = ct_flatten(logits, .start = 0, .end = CT_SET(1)); /* tokens are items */
        ok = ct_backward(ct_cross_entropy_loss(logits, t->y)) && ct_dist_reduce_gradients(t->parallel) &&
             ct_optim_step(t->optim) && ct_optim_zero_grad(t->optim);
    }
    return ok;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- Timing: what a round takes is the longest of all ranks, which meet before it ---- */

enum { COMPUTE, STEP, EXCHANGE, CPU, CALL, KINDS, LEAST = 5, MOST = 25 }; /* CPU: what a step takes; CALL: latency */
static const double enough = 4; /* seconds of rounds, beyond the least number */

/* The gradients' bytes as buckets of the size that ct_dist_data_parallel has, all on their way at once. */
static bool exchange(ct_tensor *gradients) {
    enum { BUCKET = 2 << 20, BUCKETS = 64 };
    ct_dist_work *works[BUCKETS];
    int n = 0;
    for (int64_t at = 0; at < ct_numel(gradients) && n < BUCKETS; at += BUCKET) {
        const int64_t left = ct_numel(gradients) - at;
        works[n++] =
            ct_dist_all_reduce_start(ct_narrow(gradients, 0, at, left < BUCKET ? left : BUCKET), CT_DIST_SUM, NULL);
    }
    for (int i = 0; i < n; i++) ct_dist_work_free(works[i]);
    return ct_ok();
}

static double once(training *t, int kind, ct_tensor *gradients, double *cpu) {
    double longest = 0;
    ct_dist_barrier(NULL);
    const double began = now(), used = processor_time();
    ct_scope {
        if (kind == EXCHANGE) exchange(gradients);
        else step(t, kind == STEP);
    }
    const double mine = now() - began;
    *cpu = processor_time() - used;
    ct_scope {
        longest = ct_item(ct_dist_all_reduce(ct_scalar(mine, CT_F64), CT_DIST_MAX, NULL));
        *cpu = ct_item(ct_dist_all_reduce(ct_scalar(*cpu, CT_F64), CT_DIST_SUM, NULL));
    }
    return longest;
}

/* The median time of a sum of one number: what a call costs beside its bytes. */
static double latency(void) {
    enum { CALLS = 201 };
    double list[CALLS];
    ct_tensor *one = ct_ones(CT_DIMS(1));
    for (int i = 0; i < CALLS && ct_ok(); i++) {
        const double began = now();
        ct_scope
            ct_dist_all_reduce(one, CT_DIST_SUM, NULL);
        list[i] = now() - began;
    }
    qsort(list, CALLS, sizeof *list, compare);
    return list[CALLS / 2];
}

/* The median of each kind. They take turns, so that a change of the machine's speed meets all of them. */
static void medians(training *t, int64_t bytes, double result[KINDS]) {
    double list[KINDS][MOST], total = 0, cpu;
    int n = 0;
    const int kinds = ct_dist_size() > 1 ? CPU : 1; /* one rank has nothing to exchange */
    const int full = kinds > 1 ? STEP : COMPUTE;
    ct_tensor *gradients = ct_ones(CT_DIMS(bytes / 4));          /* zeros may have no memory of their own */
    for (int k = 0; k < kinds; k++) once(t, k, gradients, &cpu); /* warms up */
    for (; ct_ok() && n < MOST && (n < LEAST || total < enough); n++)
        for (int k = 0; k < kinds; k++) {
            total += list[k][n] = once(t, k, gradients, &cpu);
            if (k == full) list[CPU][n] = cpu;
        }
    for (int k = 0; k < KINDS; k++) {
        if (k == CALL || (k >= kinds && k != CPU)) continue;
        qsort(list[k], (size_t)n, sizeof **list, compare);
        result[k] = list[k][n / 2];
    }
    result[CALL] = kinds > 1 ? latency() : 0;
    if (kinds == 1) result[STEP] = result[COMPUTE], result[EXCHANGE] = 0;
}

int main(int argc, char **argv) {
    training t = {0};
    if (argc < 3 || !ct_dist_init()) {
        fprintf(stderr, "%s\n", argc < 3 ? "usage: dist resnet18|gpt BATCH [--each] [--stage1]" : ct_error());
        return 2;
    }
    const int ranks = ct_dist_size();
    bool each = false, stage1 = false;
    for (int i = 3; i < argc; i++) {
        each = each || !strcmp(argv[i], "--each");
        stage1 = stage1 || !strcmp(argv[i], "--stage1");
    }
    const int64_t items = each ? atoll(argv[2]) * ranks : atoll(argv[2]);
    ct_seed(1);
    if (make(&t, argv[1], items / ranks, stage1)) {
        const int64_t bytes = 4 * ct_module_size(t.net);
        double ms[KINDS];
        medians(&t, bytes, ms);
        for (int k = 0; k < KINDS; k++) ms[k] *= 1e3;
        if (ct_dist_rank() == 0)
            printf("model %s ranks %d threads %d items %lld bytes %lld compute_ms %.2f exchange_ms %.2f step_ms %.2f "
                   "hidden %.2f items_per_s %.1f processors %ld cpu_ms %.2f call_us %.1f\n",
                   argv[1], ranks, ct_get_threads(), (long long)items, (long long)bytes, ms[COMPUTE], ms[EXCHANGE],
                   ms[STEP], ranks > 1 ? 1 - (ms[STEP] - ms[COMPUTE]) / ms[EXCHANGE] : 1,
                   1e3 * (double)items / ms[STEP], sysconf(_SC_NPROCESSORS_ONLN), ms[CPU], 1e3 * ms[CALL]);
    }
    ct_dist_parallel_free(t.parallel);
    ct_optim_free(t.optim);
    ct_module_free(t.net);
    if (ct_ok()) ct_dist_end();
    if (!ct_ok()) fprintf(stderr, "rank %d: %s\n", ct_dist_rank(), ct_error());
    return ct_ok() ? 0 : 1;
}
