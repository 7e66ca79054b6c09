/* What changes between replays of a captured step: numbers of the program's own, and what was frozen by mistake, which a checked replay
 * names. And what is left where a step cannot be captured: whole steps. */
#include <cotangent/capture.h>
#include <cotangent/data.h>
#include <cotangent/dlpack.h>
#include <cotangent/graph.h>
#include <cotangent/nn.h>
#include <cotangent/optim.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/harness.h"

static const ct_device cpu = {CT_CPU, 0};

/* ---- Variables ---- */

typedef struct scaling {
    ct_tensor *x, *y; /* kept by the test's scope */
    double factor, power;
    bool with_number; /* the factor as a number, which is frozen */
    int calls;
} scaling;

/* y = factor x^power + noise */
static bool scale(void *context) {
    scaling *s = context;
    s->calls++;
    ct_tensor *y = ct_pow(s->x, ct_capture_variable("power", s->power, s->x));
    y = s->with_number ? ct_mul_s(y, s->factor) : ct_mul(y, ct_capture_variable("factor", s->factor, s->x));
    return ct_assign(s->y, ct_add(y, ct_randn(ct_shape(y), .device = ct_device_of(y)))) != NULL;
}

static scaling make_scaling(ct_device device) {
    return (scaling){
        .x = ct_to(ct_arange(1, 20, 1), device), .y = ct_to(ct_zeros(CT_DIMS(19)), device), .factor = 0.5, .power = 2};
}

static bool same_on_cpu(ct_tensor *a, ct_tensor *b) { return harness_same_bits(ct_to(a, cpu), ct_to(b, cpu)); }

static void check_variables(ct_device device, unsigned flags) {
    scaling eager = make_scaling(device), captured = make_scaling(device);
    ct_seed(5);
    ct_graph *graph = ct_capture(scale, &captured, flags);
    REQUIRE(graph);
    for (int k = 0; k < 5; k++) {
        const uint64_t position = ct_rng_position(NULL);
        eager.factor = 0.3 * k - 1;
        CHECK(ct_graph_set(graph, "factor", eager.factor));
        if (k == 3) CHECK(ct_graph_set(graph, "power", eager.power = 3));
        CHECK(ct_replay(graph));
        CHECK(ct_rng_set_position(NULL, position) && scale(&eager) && same_on_cpu(eager.y, captured.y));
    }
    ct_graph_free(graph);
}

TEST(a_variable_is_what_it_was_set_to_last) {
    check_variables(cpu, 0);
    check_variables(cpu, CT_CAPTURE_CHECK);
}

TEST(a_variable_on_a_device_is_brought_over_in_the_order_of_its_work) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", "1", 1);
    setenv("CT_GUARD_RECORD", "1", 1);
    REQUIRE(ct_device_parse("guard", &device));
    check_variables(device, 0);
    check_variables(device, CT_CAPTURE_CHECK);
}

static bool two_values(void *x) {
    ct_tensor *one = ct_capture_variable("a", 1, x);
    return ct_add(one, ct_capture_variable("a", 2, x)) != NULL;
}

TEST(wrong_variables_are_errors) {
    scaling s = make_scaling(cpu);
    ct_graph *graph = ct_capture(scale, &s, 0);
    CHECK(graph && !ct_graph_set(graph, "noise", 1));
    CHECK_ERROR(CT_ERR_VALUE, "graph_set: the graph has no variable named noise; there are: power, factor");
    CHECK(!ct_graph_set(NULL, "noise", 1) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_graph_set(graph, NULL, 1) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_capture_variable("", 1, s.x) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(!ct_capture_variable("half", 0.5, ct_arange(0, 3, 1, .dtype = CT_I64)) && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    CHECK(!ct_capture_variable("a", 1, NULL) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_capture(two_values, s.x, CT_CAPTURE_WARM));
    CHECK_ERROR(CT_ERR_STATE, "capture_variable: a is 1 and 2 in one function; two numbers need two names");
    CHECK(ct_replay(graph));
    ct_graph_free(graph);
}

static bool set_and_replay(void) {
    bool ok = false;
    ct_scope {
        scaling s = make_scaling(cpu);
        ct_graph *graph = s.x && s.y ? ct_capture(scale, &s, CT_CAPTURE_CHECK) : NULL;
        ok = graph && ct_graph_set(graph, "factor", 3) && ct_replay(graph);
        ct_graph_free(graph);
    }
    return ok;
}

TEST_LIMIT(any_allocation_of_a_checked_graph_may_fail, 120) { FAIL_EVERYWHERE(set_and_replay); }

/* ---- Checked replays ---- */

TEST(a_frozen_number_is_named_with_both_values) {
    scaling s = make_scaling(cpu);
    s.with_number = true;
    ct_seed(1);
    ct_graph *graph = ct_capture(scale, &s, CT_CAPTURE_CHECK);
    REQUIRE(graph && s.calls == 2);
    CHECK(ct_replay(graph) && s.calls == 3);
    s.factor = 0.25;
    const uint64_t position = ct_rng_position(NULL);
    CHECK(!ct_replay(graph));
    CHECK_ERROR(CT_ERR_STATE, "replay: record 1, mul: input 1 is the number 0.5 in the graph and 0.25 in the function "
                              "now (ct_capture_variable is for numbers that change)");
    const uint64_t after = ct_rng_position(NULL);
    scaling eager = make_scaling(cpu);
    eager.with_number = true, eager.factor = 0.25;
    CHECK(ct_rng_set_position(NULL, position) && scale(&eager)); /* what is left is what the function did */
    CHECK(harness_same_bits(eager.y, s.y) && after == ct_rng_position(NULL));
    ct_graph_free(graph);
}

typedef struct changing {
    ct_tensor *x, *y, *left, *others[2];
    int axis, other;
    bool one_more;
    float data[3];
} changing;

static bool change(void *context) {
    changing *c = context;
    ct_tensor *data = ct_from_data(c->data, CT_DIMS(3), CT_F32);
    ct_tensor *y = ct_add(ct_softmax(ct_mul(c->x, c->others[c->other]), c->axis), data);
    if (c->one_more) y = ct_neg(y);
    ct_drop(c->left);
    c->left = ct_keep(ct_exp(y));
    return ct_assign(c->y, y) != NULL;
}

static changing make_changing(void) {
    return (changing){.x = harness_randn(CT_DIMS(3, 3)),
                      .y = ct_zeros(CT_DIMS(3, 3)),
                      .others = {ct_ones(CT_DIMS(3)), ct_full(CT_DIMS(3), 2)},
                      .data = {1, 2, 3}};
}

TEST(every_kind_of_change_is_named) {
    static const char *const says[] = {"axis is 0 in the graph and 1 in the function now",
                                       "element 1 of what the host writes is 2 in the graph and 7 in the function now",
                                       "is another tensor in the function now", "the function now calls neg here"};
    for (int k = 0; k < 4; k++) {
        changing c = make_changing();
        ct_graph *graph = ct_capture(change, &c, CT_CAPTURE_CHECK);
        CHECK(graph && ct_replay(graph));
        if (k == 0) c.axis = 1;
        if (k == 1) c.data[1] = 7;
        if (k == 2) c.other = 1;
        if (k == 3) c.one_more = true;
        CHECK(!ct_replay(graph));
        harness_check(ct_error_code() == CT_ERR_STATE && strstr(ct_error(), says[k]), __FILE__, __LINE__, "%d: %s", k,
                      ct_error());
        ct_error_clear();
        CHECK(change(&c)); /* it goes on eagerly */
        ct_graph_free(graph);
        ct_drop(c.left);
    }
}

TEST(what_the_function_leaves_behind_stays_with_the_program_after_a_check) {
    changing c = make_changing();
    setenv("CT_CAPTURE", "check", 1);
    ct_graph *graph = ct_capture(change, &c, 0);
    unsetenv("CT_CAPTURE");
    REQUIRE(graph && ct_graph_name(graph, "left", c.left));
    ct_tensor *named = ct_graph_tensor(graph, "left");
    for (int k = 0; k < 3; k++) {
        CHECK(ct_assign(c.x, ct_randn(CT_DIMS(3, 3))) && ct_replay(graph));
        CHECK(harness_same_bits(c.left, ct_exp(c.y)));
        CHECK(named == ct_graph_tensor(graph, "left") && harness_same_bits(named, c.left));
    }
    int memory = -1;
    ct_view view;
    CHECK(ct_graph_named(graph, "left", &memory, &view) && memory >= 0);
    ct_graph_free(graph);
    setenv("CT_CAPTURE", "yes", 1);
    CHECK(!ct_capture(change, &c, 0));
    CHECK_ERROR(CT_ERR_VALUE, "capture: CT_CAPTURE is \"yes\"; \"check\" is all there is");
    unsetenv("CT_CAPTURE");
    ct_drop(c.left);
}

/* ---- Trainings that cannot be captured ---- */

enum { READS, DATA, NONZERO, WRITES, LOADS, EXPORTS, METRIC, VARIABLES, KINDS };

typedef struct training {
    ct_module *net;
    ct_optim *optim;
    ct_ema *ema;
    ct_schedule *schedule, *plateau;
    ct_loader *loader;
    ct_dataset *data;
    ct_tensor *x, *target, *seen;
    int kind; /* what of it cannot be captured; KINDS: all can */
} training;

static bool spoil(training *t, ct_tensor *loss) {
    ct_batch b;
    switch (t->kind) {
    case READS: return ct_item(loss) > 0;
    case DATA: return ct_data(ct_detach(loss)) != NULL;
    case NONZERO: return ct_nonzero(ct_detach(loss)) != NULL;
    case WRITES: return ct_write(t->seen, &(float){1}, sizeof(float));
    case LOADS: return ct_next(t->loader, &b) || (ct_ok() && ct_next(t->loader, &b));
    case EXPORTS: {
        ct_dl_managed *managed = ct_to_dlpack(ct_detach(loss));
        if (managed) managed->deleter(managed);
        return managed != NULL;
    }
    case METRIC: return ct_schedule_step_metric(t->plateau, 1);
    case VARIABLES:
        for (int i = 0; ct_ok() && i < 100; i++) ct_capture_variable((char[]){'v', (char)(' ' + i), 0}, i, loss);
        return ct_ok();
    default: return true;
    }
}

/* In the middle, where running statistics and random numbers have moved on and nothing else has. */
static bool train(void *context) {
    training *t = context;
    ct_tensor *loss = ct_cross_entropy_loss(ct_forward(t->net, t->x), t->target);
    return spoil(t, loss) && ct_backward(loss) && ct_optim_step(t->optim) && ct_ema_update(t->ema) &&
           ct_schedule_step(t->schedule);
}

static training make_training(int kind) {
    training t = {.kind = kind};
    ct_seed(11);
    t.net = ct_nn_sequential(ct_nn_linear(6, 10), ct_nn_batch_norm(10), ct_nn_dropout(0.5), ct_nn_linear(10, 3));
    t.optim = ct_adamw(t.net, .lr = 0.1);
    t.ema = ct_ema_new(t.net, .warmup = true);
    t.plateau = ct_schedule_plateau(t.optim);
    t.schedule = ct_schedule_cosine(t.optim, 20);
    t.x = harness_randn(CT_DIMS(8, 6));
    t.target = ct_remainder_s(ct_arange(0, 8, 1, .dtype = CT_I64), 3);
    t.seen = ct_zeros(CT_DIMS(1));
    t.data = ct_dataset_tensors(&t.x, 1);
    t.loader = ct_batches(t.data, 2, .threads = CT_SET(0));
    return t;
}

static ct_state *state_of(training *t) {
    ct_state *state = ct_state_new();
    CHECK(ct_module_put_state(t->net, state, "net.") && ct_optim_put_state(t->optim, state, "optim.") &&
          ct_ema_put_state(t->ema, state, "ema.") && ct_schedule_put_state(t->schedule, state, "schedule."));
    return state;
}

static bool same_states(const ct_state *a, const ct_state *b) {
    bool same = ct_state_count(a) == ct_state_count(b);
    for (int i = 0; same && i < ct_state_count(a); i++) {
        ct_tensor *x = ct_state_get(a, ct_state_name(a, i)), *y = ct_state_get(b, ct_state_name(a, i));
        same = x && y ? harness_same_bits(ct_detach(x), ct_detach(y)) : x == y;
        if (!same) fprintf(stderr, "    %s differs\n", ct_state_name(a, i));
    }
    return same;
}

static void free_training(training *t) {
    ct_loader_free(t->loader);
    ct_dataset_free(t->data);
    ct_schedule_free(t->schedule);
    ct_schedule_free(t->plateau);
    ct_ema_free(t->ema);
    ct_optim_free(t->optim);
    ct_module_free(t->net);
}

/* Everything that the next step depends on is as after so many eager steps; then it goes on. */
static void check_refusal(int kind, unsigned flags) {
    training eager = make_training(kind);
    for (int k = 0; k < (flags & CT_CAPTURE_WARM ? 1 : 2); k++)
        ct_scope {
            CHECK(train(&eager));
        }
    const uint64_t position = ct_rng_position(NULL);
    training refused = make_training(kind);
    CHECK(!ct_capture(train, &refused, flags));
    harness_check(ct_error_code() == CT_ERR_STATE &&
                      strstr(ct_error(), kind == VARIABLES ? "at most 64 variables" : "cannot be captured"),
                  __FILE__, __LINE__, "kind %d: %s", kind, ct_error());
    ct_error_clear();
    CHECK(!ct_is_capturing() && ct_rng_position(NULL) == position);
    CHECK(ct_optim_steps(eager.optim) == ct_optim_steps(refused.optim) &&
          ct_optim_lr(eager.optim) == ct_optim_lr(refused.optim));
    for (int round = 0; round < 2; round++) {
        ct_state *a = state_of(&eager), *b = state_of(&refused);
        harness_check(same_states(a, b), __FILE__, __LINE__, "kind %d, round %d: other states", kind, round);
        ct_state_free(a);
        ct_state_free(b);
        ct_scope {
            CHECK(train(&eager) && ct_rng_set_position(NULL, position) && train(&refused));
        }
    }
    free_training(&eager);
    free_training(&refused);
}

TEST(where_a_step_cannot_be_captured_whole_eager_steps_have_been_taken) {
    for (int kind = 0; kind < KINDS; kind++) {
        check_refusal(kind, 0);
        check_refusal(kind, CT_CAPTURE_WARM);
    }
}

TEST(a_schedule_in_the_step_moves_on_in_replays) {
    training eager = make_training(KINDS), captured;
    for (int k = 0; k < 12; k++)
        ct_scope {
            CHECK(train(&eager));
        }
    captured = make_training(KINDS);
    ct_graph *graph = ct_capture(train, &captured, CT_CAPTURE_CHECK);
    for (int k = 2; graph && k < 8; k++) CHECK(ct_replay(graph));
    ct_graph_free(graph);
    graph = ct_capture(train, &captured, CT_CAPTURE_WARM);
    for (int k = 9; graph && k < 12; k++) CHECK(ct_replay(graph));
    harness_check(graph != NULL, __FILE__, __LINE__, "%s", ct_error());
    ct_state *a = state_of(&eager), *b = state_of(&captured);
    CHECK(same_states(a, b) && ct_optim_lr(eager.optim) == ct_optim_lr(captured.optim));
    ct_state_free(a);
    ct_state_free(b);
    ct_graph_free(graph);
    free_training(&eager);
    free_training(&captured);
}

static bool nothing_but_lookahead(void *context) {
    training *t = context;
    return ct_backward(ct_cross_entropy_loss(ct_forward(t->net, t->x), t->target)) && ct_optim_step(t->optim);
}

TEST(a_step_of_lookahead_says_why_it_is_not_captured) {
    training t = make_training(KINDS);
    ct_schedule_free(t.schedule);
    ct_schedule_free(t.plateau);
    t.schedule = t.plateau = NULL;
    t.optim = ct_lookahead(t.optim);
    CHECK(!ct_capture(nothing_but_lookahead, &t, 0));
    CHECK_ERROR(CT_ERR_STATE, "optim_step: a step of lookahead cannot be captured: every k-th one does something else");
    CHECK(ct_optim_steps(t.optim) == 2);
    free_training(&t);
}

/* ---- Gradients from one function, steps in another ---- */

static bool add_gradients(void *context) {
    training *t = context;
    bool ok = false;
    ct_scope {
        ok = ct_backward(ct_cross_entropy_loss(ct_forward(t->net, t->x), t->target));
    }
    return ok;
}
static bool take_step(void *context) { return ct_optim_step(((training *)context)->optim); }

TEST(a_step_that_forgets_gradients_from_before_is_not_captured_and_has_been_taken) {
    training t = make_training(KINDS);
    CHECK(add_gradients(&t) && !ct_capture(take_step, &t, CT_CAPTURE_WARM));
    CHECK_ERROR(CT_ERR_STATE,
                "optim_step: a step that forgets gradients from before the capture cannot be captured: replays "
                "would use the same ones again; ct_optim_reuse_grad keeps their memory and clears it");
    CHECK(ct_optim_steps(t.optim) == 1 && !ct_capture_is_outside(t.x));
    free_training(&t);
}

/* Three batches, then a step, over and over. */
static void accumulate(training *t, ct_graph *gradients, ct_graph *update) {
    for (int k = 0; k < 12; k++) {
        ct_scope {
            ct_rng *rng = ct_rng_new(2, (uint64_t)k);
            CHECK(ct_assign(t->x, ct_randn(ct_shape(t->x), .rng = rng)));
            ct_rng_free(rng);
        }
        CHECK(gradients ? ct_replay(gradients) : add_gradients(t));
        if (k % 3 == 2) CHECK(update ? ct_replay(update) : take_step(t));
    }
}

TEST(where_gradients_are_used_again_two_graphs_accumulate_and_step) {
    training captured = make_training(KINDS), eager = make_training(KINDS);
    training *both[] = {&captured, &eager};
    for (int i = 0; i < 2; i++) {
        ct_seed(4);
        CHECK(ct_optim_reuse_grad(both[i]->optim, true));
        CHECK(add_gradients(both[i]) && take_step(both[i]) && add_gradients(both[i]));
        if (i) CHECK(add_gradients(&eager) && take_step(&eager));
        ct_graph *gradients = i ? NULL : ct_capture(add_gradients, &captured, CT_CAPTURE_WARM);
        ct_graph *update = i ? NULL : ct_capture(take_step, &captured, CT_CAPTURE_WARM);
        CHECK(i || (gradients && update));
        accumulate(both[i], gradients, update);
        ct_graph_free(gradients);
        ct_graph_free(update);
    }
    ct_state *a = state_of(&captured), *b = state_of(&eager);
    CHECK(same_states(a, b));
    ct_state_free(a);
    ct_state_free(b);
    free_training(&captured);
    free_training(&eager);
}

TEST(a_replay_takes_no_step_of_a_network_that_has_other_tensors_now) {
    training t = make_training(KINDS);
    ct_graph *graph = ct_capture(train, &t, 0);
    REQUIRE(graph && ct_replay(graph) && ct_module_to_dtype(t.net, CT_F64));
    CHECK(!ct_replay(graph) && ct_error_code() == CT_ERR_STATE);
    CHECK(strstr(ct_error(), "was moved or converted after the optimizer was made: make a new one"));
    ct_error_clear();
    CHECK(ct_optim_steps(t.optim) == 3);
    ct_graph_free(graph);
    free_training(&t);
}

TEST(a_graph_whose_state_was_replaced_is_refused_and_captured_again) {
    training t = make_training(KINDS);
    ct_graph *graph = ct_capture(train, &t, 0);
    REQUIRE(graph && ct_replay(graph) && ct_graph_is_good(graph));
    ct_state *state = state_of(&t);
    CHECK(ct_optim_take_state(t.optim, state, "optim.") && !ct_graph_is_good(graph) && !ct_replay(graph));
    CHECK_ERROR(CT_ERR_STATE,
                "replay: the state of the optimizer has been replaced since the capture: capture it again");
    CHECK(ct_optim_steps(t.optim) == 3);
    ct_graph_free(graph);
    graph = ct_capture(train, &t, CT_CAPTURE_WARM);
    CHECK(graph && ct_replay(graph) && ct_ema_swap_in(t.ema) && !ct_replay(graph));
    CHECK_ERROR(CT_ERR_STATE,
                "replay: the averages have been swapped in or replaced since the capture: capture it again");
    CHECK(ct_ema_swap_out(t.ema) && ct_replay(graph) && ct_optim_steps(t.optim) == 6);
    ct_state_free(state);
    ct_graph_free(graph);
    free_training(&t);
    CHECK(!ct_capture_guard(NULL, "") && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
}
