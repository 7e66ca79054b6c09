/* Whole training steps, forward, backward and optimizer, on the models that bench/peers/torch_bench.py builds as well. */
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "cli/bench.h"

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_tensor *x, *y;
} training;

static bool run_step(void *context) {
    training *t = context;
    bool ok = false;
    ct_scope {
        ct_tensor *logits = ct_forward(t->net, t->x);
        if (ct_ndim(logits) == 3) logits = ct_flatten(logits, .start = 0, .end = CT_SET(1)); /* tokens are items */
        ok =
            ct_optim_zero_grad(t->optim) && ct_backward(ct_cross_entropy_loss(logits, t->y)) && ct_optim_step(t->optim);
    }
    return ok;
}

static bool captures; /* the steps of what is measured next */

/* Owns net and optim. */
static bool measure_steps(training t, double min_time, bench_result *result) {
    bool ok = ct_ok() && (captures ? bench_replays : bench_measure)(run_step, &t, min_time, result);
    ct_optim_free(t.optim);
    ct_module_free(t.net);
    return ok;
}

static bool measure_mlp(ct_dims sizes, int64_t batch, double min_time, bench_result *result) {
    ct_module *net = ct_nn_mlp(sizes, CT_ACT_RELU);
    return measure_steps((training){net, ct_sgd(net, .lr = 0.01), ct_randn(CT_DIMS(batch, sizes.d[0])),
                                    ct_randint(CT_DIMS(batch), 0, sizes.d[sizes.n - 1])},
                         min_time, result);
}

bool bench_train_mlp(double min_time, bench_result *result) {
    return measure_mlp(CT_DIMS(784, 512, 512, 10), 64, min_time, result);
}
bool bench_train_small_mlp(double min_time, bench_result *result) {
    return measure_mlp(CT_DIMS(16, 32, 32, 4), 1, min_time, result);
}

static bool measure_lenet(bool channels_last, double min_time, bench_result *result) {
    ct_module *net = ct_nn_lenet(28, .channels_last = channels_last);
    return measure_steps(
        (training){net, ct_adam(net, .lr = 1e-3), ct_randn(CT_DIMS(64, 1, 28, 28)), ct_randint(CT_DIMS(64), 0, 10)},
        min_time, result);
}

bool bench_train_lenet(double min_time, bench_result *result) { return measure_lenet(false, min_time, result); }
bool bench_train_lenet_cl(double min_time, bench_result *result) { return measure_lenet(true, min_time, result); }

static bool measure_resnet(bool channels_last, double min_time, bench_result *result) {
    ct_module *net = ct_nn_resnet(18, .channels_last = channels_last);
    ct_optim *optim = ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .weight_decay = CT_SET(5e-4));
    return measure_steps((training){net, optim, ct_randn(CT_DIMS(32, 3, 32, 32)), ct_randint(CT_DIMS(32), 0, 10)},
                         min_time, result);
}

bool bench_train_resnet(double min_time, bench_result *result) { return measure_resnet(false, min_time, result); }
bool bench_train_resnet_cl(double min_time, bench_result *result) { return measure_resnet(true, min_time, result); }

bool bench_train_gpt(double min_time, bench_result *result) {
    ct_module *net = ct_nn_gpt(512, .context = 256, .dim = 384, .layers = 6, .heads = 6);
    return measure_steps((training){net, ct_adamw(net, .lr = 3e-4), ct_randint(CT_DIMS(4, 256), 0, 512),
                                    ct_randint(CT_DIMS(4 * 256), 0, 512)},
                         min_time, result);
}

/* ---- In bf16 ---- */

static bool in_bf16(bench_case steps, double min_time, bench_result *result) {
    bool ok = false;
    ct_autocast(CT_BF16) ok = steps(min_time, result);
    return ok;
}

bool bench_train_resnet_bf16(double min_time, bench_result *result) {
    return in_bf16(bench_train_resnet_cl, min_time, result);
}
bool bench_train_gpt_bf16(double min_time, bench_result *result) { return in_bf16(bench_train_gpt, min_time, result); }

/* ---- Captured ---- */

static bool captured(bench_case steps, double min_time, bench_result *result) {
    captures = true;
    const bool ok = steps(min_time, result);
    captures = false;
    return ok;
}

bool bench_train_mlp_graph(double min_time, bench_result *result) {
    return captured(bench_train_mlp, min_time, result);
}
bool bench_train_small_mlp_graph(double min_time, bench_result *result) {
    return captured(bench_train_small_mlp, min_time, result);
}
bool bench_train_lenet_graph(double min_time, bench_result *result) {
    return captured(bench_train_lenet, min_time, result);
}
bool bench_train_resnet_graph(double min_time, bench_result *result) {
    return captured(bench_train_resnet_cl, min_time, result);
}
bool bench_train_gpt_graph(double min_time, bench_result *result) {
    return captured(bench_train_gpt, min_time, result);
}
