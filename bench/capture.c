/* Captured training steps beside eager ones, in turns: the median of each and how many times faster the captured ones are. With one thread
 * (CT_THREADS=1) the time of the processor counts, which other work on the machine disturbs little; otherwise that of the clock.
 *     cc -O2 bench/capture.c -Iinclude -Ibuild/generated/include -Lbuild/lib -lcotangent -Wl,-rpath,$PWD/build/lib -o capture
 *     ./capture [NAME]          rows whose name contains NAME
 *     ./capture NAME STEPS      replays that row so many times and prints nothing: for a profiler */
#define _POSIX_C_SOURCE 200809L
#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *y;
} training;

static bool step(void *context) {
    training *t = context;
    bool ok = false;
    ct_scope {
        ct_tensor *logits = ct_forward(t->net, t->x);
        if (ct_ndim(logits) == 3) logits = ct_flatten(logits, .start = 0, .end = CT_SET(1)); /* tokens are items */
        ok = ct_backward(ct_cross_entropy_loss(logits, t->y)) && ct_optim_step(t->optim);
    }
    return ok;
}

static training mlp(ct_dims sizes, int64_t batch) {
    ct_module *net = ct_nn_mlp(sizes, CT_ACT_RELU);
    return (training){net, ct_sgd(net, .lr = 0.01), ct_randn(CT_DIMS(batch, sizes.d[0])),
                      ct_randint(CT_DIMS(batch), 0, sizes.d[sizes.n - 1])};
}
static training small(void) { return mlp(CT_DIMS(16, 32, 32, 4), 1); }
static training large(void) { return mlp(CT_DIMS(784, 512, 512, 10), 64); }
static training lenet(void) {
    ct_module *net = ct_nn_lenet(28);
    return (training){net, ct_adam(net, .lr = 1e-3), ct_randn(CT_DIMS(64, 1, 28, 28)), ct_randint(CT_DIMS(64), 0, 10)};
}
static training resnet(void) {
    ct_module *net = ct_nn_resnet(18);
    ct_optim *optim = ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .weight_decay = CT_SET(5e-4));
    return (training){net, optim, ct_randn(CT_DIMS(32, 3, 32, 32)), ct_randint(CT_DIMS(32), 0, 10)};
}
static training gpt(void) {
    ct_module *net = ct_nn_gpt(512, .context = 256, .dim = 384, .layers = 6, .heads = 6);
    return (training){net, ct_adamw(net, .lr = 3e-4), ct_randint(CT_DIMS(4, 256), 0, 512),
                      ct_randint(CT_DIMS(4 * 256), 0, 512)};
}

static double now(void) {
    struct timespec t;
    clock_gettime(ct_get_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double seconds_of(training *t, ct_graph *graph, int steps) {
    const double begin = now();
    for (int i = 0; i < steps && ct_ok(); i++) graph ? (void)ct_replay(graph) : (void)step(t);
    return (now() - begin) / steps;
}

enum { ROUNDS = 21 };

/* In turns, since other work on the machine comes and goes. */
static void measure(const char *name, training *t, ct_graph *graph) {
    double eager[ROUNDS], captured[ROUNDS];
    seconds_of(t, NULL, 3), seconds_of(t, graph, 3);
    const double once = seconds_of(t, NULL, 1);
    const int steps = once > 0.02 ? 1 : (int)(0.02 / once) + 1;
    for (int i = 0; i < ROUNDS; i++) {
        eager[i] = seconds_of(t, NULL, steps);
        captured[i] = seconds_of(t, graph, steps);
    }
    qsort(eager, ROUNDS, sizeof *eager, by_value);
    qsort(captured, ROUNDS, sizeof *captured, by_value);
    ct_graph_info info = {.size = sizeof info};
    ct_graph_describe(graph, &info);
    printf("%-26s %10.4f %10.4f %8.2f %8lld %10.1f\n", name, 1e3 * eager[ROUNDS / 2], 1e3 * captured[ROUNDS / 2],
           eager[ROUNDS / 2] / captured[ROUNDS / 2], (long long)info.records, (double)info.planned_bytes / 1e6);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        training (*make)(void);
    } rows[] = {{"mlp 16-32-32-4 batch 1", small},
                {"mlp 784-512-512-10 batch 64", large},
                {"lenet batch 64", lenet},
                {"resnet18 batch 32", resnet},
                {"gpt 6x384 4x256", gpt}};
    if (argc < 3)
        printf("%-26s %10s %10s %8s %8s %10s\n", "ms per step", "eager", "captured", "faster", "records", "MB");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && ct_ok(); i++) {
        if (argc > 1 && !strstr(rows[i].name, argv[1])) continue;
        ct_scope {
            training t = rows[i].make();
            ct_graph *graph = ct_ok() ? ct_capture(step, &t, 0) : NULL;
            if (graph && argc > 2) seconds_of(&t, graph, atoi(argv[2]));
            else if (graph) measure(rows[i].name, &t, graph);
            ct_graph_free(graph);
            ct_optim_free(t.optim);
            ct_module_free(t.net);
        }
    }
    if (!ct_ok()) fprintf(stderr, "error: %s\n", ct_error());
    return ct_ok() ? 0 : 1;
}
