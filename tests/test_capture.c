/* Captured steps: the bits of eager ones whatever changes from step to step, nothing allocated in a replay, and errors for what cannot be
 * captured, after which the program goes on. */
#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/harness.h"
#include "tests/host_memory.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Trainings ---- */

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

static ct_tensor *loss_of(const training *t) {
    ct_tensor *loss = NULL;
    ct_autocast(t->precision) {
        ct_tensor *y = ct_forward(t->net, t->x);
        loss = ct_cross_entropy_loss(y ? ct_reshape(y, CT_DIMS(-1, ct_dim(y, -1))) : NULL, t->target);
    }
    return loss;
}

static bool step(void *context) {
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
static ct_module *make_net(int model) {
    switch (model) {
    case MLP: return ct_nn_sequential(ct_nn_linear(12, 20), ct_nn_gelu(), ct_nn_dropout(0.3), ct_nn_linear(20, 5));
    case CONVOLUTIONAL:
        return ct_nn_sequential(ct_nn_conv2d(2, 6, 3, .pad = 1), ct_nn_batch_norm(6), ct_nn_relu(), ct_nn_max_pool2d(2),
                                ct_nn_flatten(), ct_nn_linear(6 * 4 * 4, 5));
    case RECURRENT: return ct_nn_lstm_lm(5, .dim = 8, .hidden = 7, .dropout = 0.2);
    default: return ct_nn_gpt(5, .context = 7, .dim = 8, .layers = 2, .heads = 2, .dropout = 0.1);
    }
}

static ct_tensor *batch_of(int model, int k) {
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
static ct_tensor *targets_of(int model, int k) {
    const int64_t n = model < RECURRENT ? BATCH : BATCH * 7;
    return ct_remainder_s(ct_arange(k, (double)(n + k), 1, .dtype = CT_I64), 5);
}

static training make_training(int model, int kind, ct_dtype precision, ct_device device) {
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

static void free_training(training *t) {
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
static void go_on(training *t, int model, ct_graph *graph, int k, int n, float *losses) {
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

static bool same_networks(ct_module *a, ct_module *b) {
    ct_parameters *of[2] = {ct_module_parameters(a), ct_module_parameters(b)};
    bool same = ct_parameters_count(of[0]) == ct_parameters_count(of[1]);
    for (int i = 0; same && i < ct_parameters_count(of[0]); i++) {
        ct_tensor *x = ct_parameter_tensor(ct_parameters_at(of[0], i)),
                  *y = ct_parameter_tensor(ct_parameters_at(of[1], i));
        same = harness_same_bits(ct_to(ct_detach(x), cpu), ct_to(ct_detach(y), cpu));
    }
    ct_parameters_free(of[0]);
    ct_parameters_free(of[1]);
    return same;
}

enum { STEPS = 200 };
static void check_training(int model, int kind, ct_dtype precision, ct_device device, int steps) {
    training of[2];
    float losses[2][STEPS];
    uint64_t positions[2];
    for (int captured = 0; captured < 2; captured++) {
        training *t = &of[captured];
        *t = make_training(model, kind, precision, captured ? device : cpu);
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

TEST_LIMIT(trainings_of_every_model_have_the_bits_of_eager_ones_over_200_steps, 120) {
    for (int model = 0; model < MODELS; model++) check_training(model, model, CT_F32, cpu, STEPS);
}

TEST_LIMIT(every_optimizer_and_precision_has_them_too, 120) {
    for (int kind = 0; kind < 4; kind++) check_training(MLP, kind, kind % 2 ? CT_F16 : CT_BF16, cpu, 30);
}

static void check_device(const char *queued, const char *recorded) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", queued, 1);
    setenv("CT_GUARD_RECORD", recorded, 1);
    CHECK(ct_device_parse("guard", &device));
    for (int model = 0; model < MODELS; model++) check_training(model, 1, CT_F32, device, 12);
}

TEST_LIMIT(a_device_that_does_calls_as_one_has_them_too, 120) { check_device("0", "1"); }
TEST_LIMIT(a_device_that_cannot_has_them_too, 120) { check_device("0", "0"); }
TEST_LIMIT(a_device_that_holds_its_work_back_has_them_too, 120) { check_device("1", "1"); }

/* ---- Other functions ---- */

typedef struct gradients {
    ct_tensor *x, *y, *dx; /* y and dx are left behind by the function; kept */
} gradients;

static ct_tensor *region(ct_tensor *const *in, int n, void *context) {
    (void)n, (void)context;
    return ct_dropout(ct_tanh(ct_mul(in[0], in[0])), 0.4);
}
static bool one(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)m;
    return (out[0] = region(in, n, context)) != NULL;
}

static bool differentiate(void *context) {
    gradients *g = context;
    ct_tensor *y = NULL, *dx = NULL;
    if (!ct_checkpoint(one, NULL, NULL, &g->x, 1, &y, 1)) return false;
    ct_tensor *sum = ct_sum(y);
    if (!ct_grad(&sum, 1, NULL, &g->x, 1, &dx, 0)) return false;
    ct_drop(g->y);
    ct_drop(g->dx);
    g->y = ct_keep(ct_detach(y));
    g->dx = ct_keep(dx);
    return true;
}

TEST(what_the_function_leaves_behind_is_written_again_and_recomputation_draws_the_same_numbers) {
    gradients captured = {.x = ct_set_requires_grad(ct_randn(CT_DIMS(40)), true)},
              eager = {.x = ct_set_requires_grad(ct_randn(CT_DIMS(40)), true)};
    ct_graph *graph = ct_capture(differentiate, &captured, 0);
    CHECK(graph);
    for (int k = 0; graph && k < 3; k++)
        ct_scope {
            ct_no_grad {
                CHECK(ct_assign(eager.x, ct_randn(CT_DIMS(40))) && ct_assign(captured.x, ct_detach(eager.x)));
            }
            const uint64_t position = ct_rng_position(NULL);
            CHECK(ct_replay(graph));
            CHECK(ct_rng_set_position(NULL, position) && differentiate(&eager));
            CHECK(harness_same_bits(captured.y, eager.y) && harness_same_bits(captured.dx, eager.dx));
        }
    ct_graph_free(graph);
    ct_drop(captured.y), ct_drop(captured.dx), ct_drop(eager.y), ct_drop(eager.dx);
}

static int effects;
static bool count_effect(void *context) { return ++*(int *)context > 0; }
static bool with_effect(void *context) {
    return ct_capture_effect(count_effect, &effects) && ct_add_(context, context);
}

TEST(effects_are_done_in_replays_alone) {
    ct_tensor *x = ct_ones(CT_DIMS(3));
    effects = 0;
    ct_graph *graph = ct_capture(with_effect, x, 0);
    CHECK(graph && effects == 0 && ct_item(ct_select(x, 0, 0)) == 4);
    CHECK(ct_replay(graph) && ct_replay(graph) && effects == 2 && ct_item(ct_select(x, 0, 0)) == 16);
    ct_graph_free(graph);
    CHECK(ct_replay(NULL) == false);
    ct_error_clear();
    ct_graph_free(NULL);
}

TEST(a_replay_allocates_nothing) {
    ct_scope {
        training t = make_training(CONVOLUTIONAL, 1, CT_F32, cpu);
        ct_graph *graph = ct_capture(step, &t, 0);
        CHECK(graph && ct_replay(graph));
        const int64_t before = harness_memory().requests, live = ct_live_objects();
        for (int i = 0; i < 100; i++) CHECK(ct_replay(graph));
        CHECK(harness_memory().requests == before && ct_live_objects() == live);
        ct_graph_info info = {.size = sizeof info};
        CHECK(ct_graph_describe(graph, &info) && info.records > 20 && info.planned_bytes >= info.needed_bytes);
        CHECK(info.planned_bytes <= info.needed_bytes + info.needed_bytes / 4); /* the plan wastes little */
        ct_graph_free(graph);
        free_training(&t);
    }
}

/* ---- What cannot be captured ---- */

static ct_tensor *outside;
static bool reads_an_item(void *x) { return ct_item(ct_sum(x)) > 0; }
static bool reads_an_address(void *x) { return ct_data(x) != NULL; }
static bool has_a_shape_of_values(void *x) { return ct_nonzero(x) != NULL; }
static bool writes_to_what_was_there(void *x) {
    (void)x;
    return ct_write(outside, (float[]){1, 2}, 2 * sizeof(float));
}
static bool captures(void *x) {
    ct_graph *graph = ct_capture(reads_an_item, x, 0);
    ct_graph_free(graph);
    return graph != NULL;
}
static bool fails(void *x) { return ct_add(x, ct_ones(CT_DIMS(77))) != NULL; }
static bool gives_up(void *x) { return (void)x, false; }

TEST(what_cannot_be_captured_is_an_error_and_the_program_goes_on) {
    static const struct {
        bool (*function)(void *x);
        ct_code code;
        const char *says;
    } all[] = {{reads_an_item, CT_ERR_STATE, "a read of a tensor's values cannot be captured"},
               {reads_an_address, CT_ERR_STATE, "address of a tensor cannot be captured"},
               {has_a_shape_of_values, CT_ERR_STATE, "nonzero: an op whose result has a shape that depends on values"},
               {writes_to_what_was_there, CT_ERR_STATE, "a write of the host's to a tensor from before"},
               {captures, CT_ERR_STATE, "a capture cannot be part of another"},
               {fails, CT_ERR_SHAPE, "77"},
               {gives_up, CT_ERR_STATE, "the function failed without an error"}};
    ct_tensor *x = ct_ones(CT_DIMS(4));
    outside = ct_zeros(CT_DIMS(2));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t live = ct_live_objects();
        CHECK(!ct_capture(all[i].function, x, CT_CAPTURE_WARM));
        harness_check(ct_error_code() == all[i].code && strstr(ct_error(), all[i].says), __FILE__, __LINE__, "%zu: %s",
                      i, ct_error());
        ct_error_clear();
        CHECK(!ct_is_capturing() && ct_live_objects() == live && ct_item(ct_sum(x)) == 4);
    }
    CHECK(!ct_capture(NULL, NULL, 0) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_capture(gives_up, NULL, 64) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
}

static bool picks(void *context) {
    ct_tensor **t = context;
    return ct_assign(t[2], ct_gather(t[0], 0, t[1])) != NULL;
}

TEST(a_wrong_index_in_a_replay_is_its_error_and_the_next_replay_is_right) {
    ct_tensor *t[] = {ct_arange(0, 5, 1), ct_zeros(CT_DIMS(2), .dtype = CT_I64), ct_zeros(CT_DIMS(2))};
    ct_graph *graph = ct_capture(picks, t, 0);
    CHECK(graph && ct_fill_i64(t[1], 9) && !ct_replay(graph) && ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK(ct_fill_i64(t[1], 3) && ct_replay(graph) && ct_item(ct_sum(t[2])) == 6);
    ct_graph_free(graph);
}

/* ---- Memory and threads ---- */

static bool make_and_replay(void) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(9));
        gradients g = {.x = x ? ct_set_requires_grad(x, true) : NULL};
        ct_graph *graph = g.x ? ct_capture(differentiate, &g, 0) : NULL;
        ok = graph && ct_replay(graph);
        ct_graph_free(graph);
        ct_drop(g.y);
        ct_drop(g.dx);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_capture_may_fail, 120) { FAIL_EVERYWHERE(make_and_replay); }

static void *train_alone(void *context) {
    const int model = *(const int *)context;
    training t = make_training(model, 0, CT_F32, cpu);
    ct_graph *graph = NULL;
    ct_scope {
        graph = ct_capture(step, &t, 0);
    }
    CHECK(graph);
    for (int i = 0; graph && i < 50; i++) CHECK(ct_replay(graph));
    CHECK(ct_item(t.loss) > 0);
    ct_graph_free(graph);
    free_training(&t);
    return NULL;
}

TEST(two_threads_replay_graphs_of_their_own) {
    pthread_t threads[2];
    int models[2] = {MLP, CONVOLUTIONAL};
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, train_alone, &models[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}
