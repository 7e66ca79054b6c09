/* Captured steps: the bits of eager ones whatever changes from step to step, nothing allocated in a replay, and errors for what cannot be
 * captured, after which the program goes on. */
#include <cotangent/backend.h>
#include <cotangent/capture.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/harness.h"
#include "tests/host_memory.h"
#include "tests/trainings.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Trainings ---- */

TEST_LIMIT(trainings_of_every_model_have_the_bits_of_eager_ones_over_200_steps, 120) {
    for (int model = 0; model < MODELS; model++) check_training(model, model, CT_F32, cpu, cpu, STEPS);
}

TEST_LIMIT(every_optimizer_and_precision_has_them_too, 120) {
    for (int kind = 0; kind < 4; kind++) check_training(MLP, kind, kind % 2 ? CT_F16 : CT_BF16, cpu, cpu, 30);
}

static void check_device(const char *queued, const char *recorded) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", queued, 1);
    setenv("CT_GUARD_RECORD", recorded, 1);
    CHECK(ct_device_parse("guard", &device));
    for (int model = 0; model < MODELS; model++) check_training(model, 1, CT_F32, cpu, device, 12);
}

TEST_LIMIT(a_device_that_does_calls_as_one_has_them_too, 120) { check_device("0", "1"); }
TEST_LIMIT(a_device_that_cannot_has_them_too, 120) { check_device("0", "0"); }
TEST_LIMIT(a_device_that_holds_its_work_back_has_them_too, 120) { check_device("1", "1"); }

/* The same data of the host's on two devices: two tensors. */
static bool on_both(void *context) {
    ct_tensor **t = context;
    const float numbers[4] = {1, 2, 3, 4};
    ct_tensor *here = ct_from_data(numbers, CT_DIMS(4), CT_F32), *there = NULL;
    if (!ct_set_device(ct_device_of(t[1]))) return false;
    there = ct_from_data(numbers, CT_DIMS(4), CT_F32);
    return ct_set_device(cpu) && ct_assign(t[0], ct_add(t[0], here)) && ct_assign(t[1], ct_add(t[1], there));
}

TEST(the_same_data_on_two_devices_is_on_both_in_replays) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    REQUIRE(ct_device_parse("guard", &device));
    ct_tensor *t[] = {ct_zeros(CT_DIMS(4)), ct_zeros(CT_DIMS(4), .device = device)};
    ct_graph *graph = ct_capture(on_both, t, 0);
    REQUIRE(graph);
    CHECK(ct_replay(graph) && ct_item(ct_sum(t[0])) == 30 && ct_item(ct_sum(ct_to(t[1], cpu))) == 30);
    ct_graph_free(graph);
}

/* Random positions, rates, what is put and what is filled: nothing of it comes between. */
TEST_LIMIT(a_step_is_one_piece_of_work_on_a_device_that_does_work_as_one, 120) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    CHECK(ct_device_parse("guard", &device));
    for (int model = 0; model < MODELS; model++) {
        training t = make_training(model, 1, CT_F32, device);
        ct_graph *graph = ct_capture(step, &t, 0);
        long (*launches)(void) = (long (*)(void))ct_backend_symbol("guard", "guard_launches");
        REQUIRE(graph && launches);
        CHECK(ct_replay(graph));
        const long before = launches();
        for (int k = 0; k < 3; k++) CHECK(ct_replay(graph));
        harness_check(launches() - before == 3, __FILE__, __LINE__, "model %d: %ld launches", model,
                      launches() - before);
        ct_graph_free(graph);
        free_training(&t);
    }
}

/* ---- Branches ---- */

/* Three towers that share an input, and their gradients: what is done for one need not wait for the other. */
typedef struct towers {
    ct_module *nets[3];
    ct_tensor *x, *loss, *scale;
} towers;

static bool towers_step(void *context) {
    const towers *t = context;
    ct_tensor *sum = NULL;
    for (int i = 0; i < 3; i++) {
        ct_tensor *y = ct_mean(ct_square(ct_tanh(ct_forward(t->nets[i], ct_mul(t->x, t->scale)))));
        sum = sum ? ct_add(sum, y) : y;
    }
    if (!ct_assign(t->loss, ct_detach(sum)) || !ct_assign(t->scale, ct_mul_s(t->scale, 0.99)) || !ct_backward(sum))
        return false;
    for (int i = 0; i < 3; i++)
        ct_no_grad {
            ct_parameters *all = ct_module_parameters(t->nets[i]);
            for (int k = 0; k < ct_parameters_count(all); k++) {
                ct_tensor *p = ct_parameter_tensor(ct_parameters_at(all, k));
                ct_assign(ct_detach(p), ct_sub(p, ct_mul_s(ct_grad_of(p), 0.05)));
                ct_set_grad(p, NULL);
            }
            ct_parameters_free(all);
        }
    return ct_ok();
}

static void towers_run(ct_device device, int captured, float *losses, int n) {
    towers t = {0};
    ct_seed(5);
    for (int i = 0; i < 3; i++) {
        t.nets[i] = ct_nn_mlp(CT_DIMS(12, 24 + i, 7), CT_ACT_GELU);
        REQUIRE(t.nets[i] && ct_module_to_device(t.nets[i], device));
    }
    ct_scope {
        t.x = ct_keep(ct_to(ct_randn(CT_DIMS(9, 12)), device));
        t.loss = ct_keep(ct_zeros(CT_DIMS0, .device = device));
        t.scale = ct_keep(ct_ones(CT_DIMS0, .device = device));
        CHECK(towers_step(&t));
    }
    ct_graph *graph = captured ? ct_capture(towers_step, &t, CT_CAPTURE_WARM) : NULL;
    if (captured) REQUIRE(graph != NULL);
    for (int i = 0; i < n; i++)
        ct_scope {
            if (i || !captured) CHECK(captured ? ct_replay(graph) : towers_step(&t));
            losses[i] = (float)ct_item(t.loss);
        }
    ct_graph_free(graph);
    for (int i = 0; i < 3; i++) ct_module_free(t.nets[i]);
    ct_drop(t.x), ct_drop(t.loss), ct_drop(t.scale);
}

static void check_branches(const char *queued) {
    enum { N = 20 };
    float eager[N], replayed[N];
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", queued, 1);
    REQUIRE(ct_device_parse("guard", &device));
    long (*branched)(void) = (long (*)(void))ct_backend_symbol("guard", "guard_branched");
    REQUIRE(branched);
    const char *passes[] = {"", "none", "-fuse"};
    for (int i = 0; i < 3; i++) {
        if (i) setenv("CT_PASSES", passes[i], 1);
        const long before = branched();
        towers_run(device, 0, eager, N);
        towers_run(device, 1, replayed, N);
        for (int k = 0; k < N; k++)
            harness_check(eager[k] == replayed[k], __FILE__, __LINE__, "passes %s: loss %d is %g, not %g", passes[i], k,
                          replayed[k], eager[k]);
        /* 54; 19 if what is beside each other shared places in the plan */
        harness_check(branched() - before >= 40, __FILE__, __LINE__, "passes %s: %ld records were beside others",
                      passes[i], branched() - before);
    }
    unsetenv("CT_PASSES");
}

TEST_LIMIT(what_does_not_depend_on_each_other_is_done_in_any_order_with_the_same_bits, 120) { check_branches("0"); }
TEST_LIMIT(so_it_is_where_work_is_held_back, 120) { check_branches("1"); }

TEST(without_branches_a_step_is_done_in_order) {
    ct_device device;
    float losses[3];
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_BRANCHES", "0", 1);
    REQUIRE(ct_device_parse("guard", &device));
    towers_run(device, 1, losses, 3);
    long (*branched)(void) = (long (*)(void))ct_backend_symbol("guard", "guard_branched");
    CHECK(branched && branched() == 0);
}

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
    effects = -1; /* so that it fails, and says nothing */
    CHECK(!ct_replay(graph));
    CHECK_ERROR(CT_ERR_STATE, "replay: an effect failed without an error");
    ct_graph_free(graph);
    CHECK(ct_replay(NULL) == false);
    ct_error_clear();
    ct_graph_free(NULL);
}

/* Lines of the log: of records with a time, and of all replays. */
static int timed_records, timed_replays;
static bool timed_enqueued, timed_on_device;
static void take_time(void *context, const char *line) {
    (void)context;
    timed_enqueued |= strstr(line, "the time to enqueue") != NULL;
    timed_on_device |= strstr(line, "on the device") != NULL;
    if (strstr(line, " us ") && strstr(line, " % ")) timed_records++;
    sscanf(line, "replay: %d replays", &timed_replays);
}

TEST(the_log_of_replays_tells_the_time_of_every_record_when_the_graph_is_freed) {
    ct_tensor *x = ct_ones(CT_DIMS(3));
    ct_graph_info info = {.size = sizeof info};
    effects = timed_records = timed_replays = 0;
    ct_graph *graph = ct_capture(with_effect, x, 0);
    CHECK(graph && ct_replay(graph) && ct_graph_describe(graph, &info) && info.records > 1);
    ct_set_log_sink(take_time, NULL);
    CHECK(ct_set_log("replay") && ct_replay(graph) && ct_replay(graph) && ct_set_log(NULL) && ct_replay(graph));
    CHECK(timed_records == 0);
    ct_graph_free(graph);
    ct_set_log_sink(NULL, NULL);
    CHECK(timed_records == info.records && timed_replays == 2);
    CHECK(!timed_enqueued && !timed_on_device);
}

/* Two calls, which it does as one. */
static bool double_twice(void *context) { return ct_add_(context, context) && ct_mul_(context, context); }

TEST(the_log_of_replays_says_where_a_device_tells_no_times) {
    ct_device device;
    REQUIRE(ct_device_parse("guard", &device));
    ct_tensor *x = ct_ones(CT_DIMS(3), .device = device);
    timed_records = timed_replays = 0;
    timed_enqueued = timed_on_device = false;
    ct_graph *graph = ct_capture(double_twice, x, 0);
    ct_set_log_sink(take_time, NULL);
    CHECK(graph && ct_set_log("replay") && ct_replay(graph) && ct_replay(graph) && ct_set_log(NULL));
    ct_graph_free(graph);
    ct_set_log_sink(NULL, NULL);
    CHECK(timed_records > 0 && timed_replays == 2 && timed_enqueued && !timed_on_device);
}

static bool do_nothing(void *context) { return context == NULL; }

TEST(a_function_that_calls_nothing_is_a_graph) {
    const unsigned flags[] = {0, CT_CAPTURE_CHECK, CT_CAPTURE_SAVE, CT_CAPTURE_LAYOUT | CT_CAPTURE_RECOMPUTE};
    for (int i = 0; i < 4; i++) {
        ct_graph *graph = ct_capture(do_nothing, NULL, flags[i]);
        CHECK(graph && ct_replay(graph));
        ct_graph_free(graph);
    }
}

static bool normalize(void *context) {
    ct_tensor **t = context, *loss = ct_sum(ct_layer_norm(t[0], CT_DIMS(20), .weight = t[1])), *grad = NULL;
    return ct_grad(&loss, 1, NULL, &t[1], 1, &grad, 0) && ct_assign(t[2], grad);
}

TEST(a_graph_is_captured_again_where_chunks_have_another_size) {
    ct_tensor *t[] = {harness_randn(CT_DIMS(3000, 20)), ct_set_requires_grad(ct_ones(CT_DIMS(20)), true),
                      ct_zeros(CT_DIMS(20))};
    ct_graph *graph = ct_capture(normalize, t, 0);
    REQUIRE(graph && ct_replay(graph) && ct_set_grain(40));
    CHECK(!ct_graph_is_good(graph) && !ct_replay(graph));
    CHECK_ERROR(CT_ERR_STATE, "replay: the size of chunks or the level of instructions has been set since the capture: "
                              "capture it again");
    ct_graph_free(graph);
    graph = ct_capture(normalize, t, 0);
    CHECK(graph && ct_graph_is_good(graph) && ct_replay(graph));
    ct_graph_free(graph);
    CHECK(ct_set_grain(0));
}

/* Effects that may come early come before calls, not before each other. */
static char order[16];
static int ordered;
static bool note_order(void *context) { return (order[ordered++] = *(const char *)context) != 0; }
static bool with_effects(void *context) {
    return ct_capture_effect_early(note_order, "a") && ct_add_(context, context) &&
           ct_capture_effect_early(note_order, "b") && ct_add_(context, context) &&
           ct_capture_effect(note_order, "c") && ct_add_(context, context) &&
           ct_capture_effect_early(note_order, "d") && ct_add_(context, context) &&
           ct_capture_effect_early(note_order, "a");
}

TEST(effects_keep_their_order_where_some_of_them_come_early) {
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    const char *names[] = {"cpu", "guard"};
    for (int i = 0; i < 2; i++) {
        ct_device device;
        CHECK(ct_device_parse(names[i], &device));
        ct_tensor *x = ct_to(ct_ones(CT_DIMS(3)), device);
        ct_graph *graph = ct_capture(with_effects, x, CT_CAPTURE_WARM);
        memset(order, 0, sizeof order), ordered = 0;
        CHECK(graph && ct_replay(graph));
        CHECK_TEXT(order, "abcda");
        CHECK(ct_item(ct_select(x, 0, 0)) == 256);
        ct_graph_free(graph);
    }
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

typedef struct counting {
    ct_tensor *n;
    ct_graph *graph;
    _Atomic int replays;
} counting;

static bool count_up(void *context) {
    ct_tensor *n = ((counting *)context)->n;
    return ct_assign(n, ct_add_s(n, 1)) != NULL;
}

static void *replay_often(void *context) {
    counting *c = context;
    for (int i = 0; i < 2000; i++) {
        if (ct_replay(c->graph)) atomic_fetch_add(&c->replays, 1);
        else CHECK(ct_error_code() == CT_ERR_STATE);
        ct_error_clear();
    }
    return NULL;
}

TEST(a_graph_that_two_threads_replay_at_once_is_refused_to_one_of_them) {
    counting c = {.n = ct_zeros(CT_DIMS0)};
    pthread_t threads[2];
    REQUIRE((c.graph = ct_capture(count_up, &c, 0)));
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, replay_often, &c) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(ct_item(c.n) == 2 + atomic_load(&c.replays));
    ct_graph_free(c.graph);
}
