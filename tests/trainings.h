/* Small trainings of every kind, as functions that can be captured, for the tests of captured steps on each device. */
#ifndef COTANGENT_TESTS_TRAININGS_H
#define COTANGENT_TESTS_TRAININGS_H

#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>

#include "tests/harness.h"

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_schedule *schedule;
    ct_ema *ema;
    ct_scaler *scaler;
    ct_tensor *x, *target, *loss; /* kept */
    ct_dtype precision;
    int micro_batches;
} training;

static inline ct_tensor *loss_of(const training *t) {
    ct_tensor *loss = NULL;
    ct_autocast(t->precision) {
        ct_tensor *y = ct_forward(t->net, t->x);
        loss = ct_cross_entropy_loss(y ? ct_reshape(y, CT_DIMS(-1, ct_dim(y, -1))) : NULL, t->target);
    }
    return loss;
}

static inline bool step(void *context) {
    training *t = context;
    for (int i = 0; i < t->micro_batches; i++) {
        ct_tensor *loss = loss_of(t);
        if (!loss || !ct_assign(t->loss, ct_detach(loss)) ||
            !ct_backward(t->scaler ? ct_scaler_scale(t->scaler, loss) : loss))
            return false;
    }
    if (t->scaler && !ct_scaler_unscale(t->scaler, t->optim)) return false;
    if (!ct_optim_clip_grad_norm_tensor(t->optim, 0.5)) return false;
    if (!(t->scaler ? ct_scaler_step(t->scaler, t->optim) && ct_scaler_update(t->scaler) : ct_optim_step(t->optim)))
        return false;
    return ct_ema_update(t->ema) && ct_optim_zero_grad(t->optim);
}

enum { MLP, CONVOLUTIONAL, RECURRENT, TRANSFORMER, MODELS, BATCH = 6 };
static inline ct_module *make_net(int model) {
    switch (model) {
    case MLP: return ct_nn_sequential(ct_nn_linear(12, 20), ct_nn_gelu(), ct_nn_dropout(0.3), ct_nn_linear(20, 5));
    case CONVOLUTIONAL:
        return ct_nn_sequential(ct_nn_conv2d(2, 6, 3, .pad = 1), ct_nn_batch_norm(6), ct_nn_relu(), ct_nn_max_pool2d(2),
                                ct_nn_flatten(), ct_nn_linear(6 * 4 * 4, 5));
    case RECURRENT: return ct_nn_lstm_lm(5, .dim = 8, .hidden = 7, .dropout = 0.2);
    default: return ct_nn_gpt(5, .context = 7, .dim = 8, .layers = 2, .heads = 2, .dropout = 0.1);
    }
}

static inline ct_tensor *batch_of(int model, int k) {
    ct_rng *rng = ct_rng_new(7, (uint64_t)k);
    ct_tensor *x = NULL;
    switch (model) {
    case MLP: x = ct_randn(CT_DIMS(BATCH, 12), .rng = rng); break;
    case CONVOLUTIONAL: x = ct_randn(CT_DIMS(BATCH, 2, 8, 8), .rng = rng); break;
    default: x = ct_randint(CT_DIMS(BATCH, 7), 0, 5, .rng = rng);
    }
    ct_rng_free(rng);
    return x;
}
static inline ct_tensor *targets_of(int model, int k) {
    const int64_t n = model < RECURRENT ? BATCH : BATCH * 7;
    return ct_remainder_s(ct_arange(k, (double)(n + k), 1, .dtype = CT_I64), 5);
}

static inline training make_training(int model, int kind, ct_dtype precision, ct_device device) {
    training t = {.precision = precision, .micro_batches = 1 + kind % 2};
    ct_seed(3);
    t.net = make_net(model);
    CHECK(t.net && ct_module_to_device(t.net, device));
    t.optim = kind == 0   ? ct_sgd(t.net, .lr = 0.1, .momentum = CT_SET(0.9))
              : kind == 1 ? ct_adamw(t.net, .lr = 0.01)
              : kind == 2 ? ct_lamb(t.net)
                          : ct_rmsprop(t.net, .centered = true);
    CHECK(ct_optim_group(t.optim, "*.bias", .lr = 0.02));
    t.schedule = ct_schedule_warmup(t.optim, 9);
    t.ema = ct_ema_new(t.net, .warmup = true);
    if (precision == CT_F16) t.scaler = ct_scaler_new(0x1p40, .growth_interval = 3);
    t.x = ct_keep(ct_to(batch_of(model, 0), device));
    t.target = ct_keep(ct_to(targets_of(model, 0), device));
    t.loss = ct_keep(ct_to(ct_zeros(CT_DIMS0), device));
    return t;
}

static inline void free_training(training *t) {
    ct_scaler_free(t->scaler);
    ct_ema_free(t->ema);
    ct_schedule_free(t->schedule);
    ct_optim_free(t->optim);
    ct_module_free(t->net);
    ct_drop(t->x);
    ct_drop(t->target);
    ct_drop(t->loss);
}

/* Steps k to n with other batches and rates each, and an evaluation here and there; losses are written. */
static inline void go_on(training *t, int model, ct_graph *graph, int k, int n, float *losses) {
    for (; k < n; k++)
        ct_scope {
            CHECK(ct_assign(t->x, ct_to(batch_of(model, k), ct_device_of(t->x))));
            CHECK(ct_assign(t->target, ct_to(targets_of(model, k), ct_device_of(t->x))));
            harness_check(graph ? ct_replay(graph) : step(t), __FILE__, __LINE__, "step %d: %s", k, ct_error());
            losses[k] = (float)ct_item(t->loss);
            CHECK(ct_schedule_step(t->schedule));
            if (k % 10 == 9) { /* with random numbers of its own */
                CHECK(ct_eval(t->net) && ct_randn(CT_DIMS(3)) && loss_of(t) && ct_train(t->net));
            }
        }
}

static inline bool same_networks(ct_module *a, ct_module *b) {
    ct_parameters *of[2] = {ct_module_parameters(a), ct_module_parameters(b)};
    bool same = ct_parameters_count(of[0]) == ct_parameters_count(of[1]);
    for (int i = 0; same && i < ct_parameters_count(of[0]); i++) {
        ct_tensor *x = ct_parameter_tensor(ct_parameters_at(of[0], i)),
                  *y = ct_parameter_tensor(ct_parameters_at(of[1], i));
        same =
            harness_same_bits(ct_to(ct_detach(x), (ct_device){CT_CPU, 0}), ct_to(ct_detach(y), (ct_device){CT_CPU, 0}));
    }
    ct_parameters_free(of[0]);
    ct_parameters_free(of[1]);
    return same;
}

enum { STEPS = 200 };
/* Losses, weights and averages of a training on one device, and of the same captured on another, have the same bits. */
static inline void check_training(int model, int kind, ct_dtype precision, ct_device eager, ct_device device,
                                  int steps) {
    training of[2];
    float losses[2][STEPS];
    uint64_t positions[2];
    for (int captured = 0; captured < 2; captured++) {
        training *t = &of[captured];
        *t = make_training(model, kind, precision, captured ? device : eager);
        go_on(t, model, NULL, 0, 2, losses[captured]);
        ct_graph *graph = NULL;
        if (captured) {
            graph = ct_capture(step, t, CT_CAPTURE_WARM); /* step 2 */
            harness_check(graph != NULL, __FILE__, __LINE__, "model %d: %s", model, ct_error());
            CHECK(ct_schedule_step(t->schedule));
        } else {
            ct_scope {
                CHECK(step(t) && ct_schedule_step(t->schedule));
            }
        }
        go_on(t, model, graph, 3, steps, losses[captured]);
        positions[captured] = ct_rng_position(NULL);
        ct_graph_free(graph);
    }
    for (int k = 3; k < steps; k++)
        if (!harness_check(losses[0][k] == losses[1][k], __FILE__, __LINE__,
                           "model %d, optimizer %d, %s: the loss of step %d is %g, not %g", model, kind,
                           ct_dtype_name(precision), k, losses[1][k], losses[0][k]))
            break;
    harness_check(same_networks(of[0].net, of[1].net), __FILE__, __LINE__, "model %d, optimizer %d: other weights",
                  model, kind);
    CHECK(positions[0] == positions[1] && ct_optim_steps(of[0].optim) == ct_optim_steps(of[1].optim));
    if (of[0].scaler) CHECK(ct_scaler_value(of[0].scaler) == ct_scaler_value(of[1].scaler));
    CHECK(ct_ema_swap_in(of[0].ema) && ct_ema_swap_in(of[1].ema) && same_networks(of[0].net, of[1].net));
    for (int i = 0; i < 2; i++) free_training(&of[i]);
}

#endif
