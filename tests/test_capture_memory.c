/* The most memory that a captured training step has in use: not above that of the eager step, and less where cheap results are made again. */
#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/harness.h"

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

static training mlp(void) {
    ct_module *net = ct_nn_mlp(CT_DIMS(784, 256, 256, 10), CT_ACT_RELU);
    return (training){net, ct_sgd(net, .lr = 0.01), ct_randn(CT_DIMS(64, 784)), ct_randint(CT_DIMS(64), 0, 10)};
}
static training lenet(void) {
    ct_module *net = ct_nn_lenet(28);
    return (training){net, ct_adam(net, .lr = 1e-3), ct_randn(CT_DIMS(16, 1, 28, 28)), ct_randint(CT_DIMS(16), 0, 10)};
}
static training resnet(void) {
    ct_module *net = ct_nn_resnet(18, .width = 0.25);
    ct_optim *optim = ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .weight_decay = CT_SET(5e-4));
    return (training){net, optim, ct_randn(CT_DIMS(8, 3, 32, 32)), ct_randint(CT_DIMS(8), 0, 10)};
}
static training gpt(void) {
    ct_module *net = ct_nn_gpt(128, .context = 128, .dim = 64, .layers = 3, .heads = 4, .dropout = 0.1);
    return (training){net, ct_adamw(net, .lr = 3e-4), ct_randint(CT_DIMS(8, 128), 0, 128),
                      ct_randint(CT_DIMS(8 * 128), 0, 128)};
}

static int64_t peak_of(training *t, ct_graph *graph) {
    const ct_device cpu = {CT_CPU, 0};
    ct_memory memory = {.size = sizeof memory};
    for (int i = 0; i < 3; i++) {
        if (i == 1) CHECK(ct_memory_reset_peak(cpu)); /* the first is not like the others */
        CHECK(graph ? ct_replay(graph) : step(t));
    }
    CHECK(ct_memory_stats(cpu, &memory));
    return memory.peak;
}

static int64_t peak_of_training(training (*make)(void), bool captured, unsigned flags) {
    int64_t peak = 0;
    ct_scope {
        training t = make();
        CHECK(step(&t));
        ct_graph *graph = captured ? ct_capture(step, &t, CT_CAPTURE_WARM | flags) : NULL;
        CHECK(!captured || graph);
        peak = peak_of(&t, graph);
        ct_graph_free(graph);
        ct_optim_free(t.optim);
        ct_module_free(t.net);
    }
    return peak;
}

static training (*const all[])(void) = {mlp, lenet, resnet, gpt};

TEST_LIMIT(a_captured_step_has_no_more_memory_in_use_than_the_eager_one, 120) {
    for (int threads = 1; threads <= 2; threads++) {
        ct_set_threads(threads);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            const int64_t eager = peak_of_training(all[i], false, 0), captured = peak_of_training(all[i], true, 0);
            harness_check(captured <= eager, __FILE__, __LINE__, "%zu: %lld bytes captured, %lld eager", i,
                          (long long)captured, (long long)eager);
        }
    }
    ct_set_threads(0);
}

TEST_LIMIT(and_less_where_cheap_results_are_made_again, 120) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t captured = peak_of_training(all[i], true, 0),
                      recomputed = peak_of_training(all[i], true, CT_CAPTURE_RECOMPUTE);
        harness_check(all[i] == gpt ? recomputed < captured : recomputed <= captured, __FILE__, __LINE__,
                      "%zu: %lld bytes, %lld with recomputation", i, (long long)captured, (long long)recomputed);
    }
}
