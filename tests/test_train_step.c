/* Training steps as one call: captured ones have the bits of eager ones through everything that happens between them, and what cannot be
 * captured is taken eagerly. */
#include <cotangent/capture.h>
#include <cotangent/io.h>
#include <cotangent/run.h>
#include <cotangent/train.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/files.h"

static const ct_device cpu = {CT_CPU, 0};

typedef struct training {
    ct_run run;
    ct_dataset *data;
    ct_train_step *step;
    ct_device device;
    bool reads; /* the loss, on the host: it cannot be captured */
} training;

static ct_tensor *loss_of(void *context, ct_tensor *const *batch, int n, ct_tensor **extra) {
    training *t = context;
    (void)n;
    ct_tensor *y = ct_forward(t->run.net, batch[0]), *loss = ct_cross_entropy_loss(y, batch[1]);
    if (t->reads && !(ct_item(loss) >= 0)) return NULL;
    ct_no_grad {
        *extra = ct_sum(ct_cast(ct_eq(ct_argmax(ct_detach(y), .axis = CT_SET(1)), batch[1]), CT_F32));
    }
    return loss;
}

enum { ITEMS = 46, BATCH = 10 }; /* the last batch of an epoch has six items */

static training make(ct_device device, bool scaled) {
    training t = {.run.size = sizeof t.run, .device = device};
    ct_scope {
        ct_rng *rng = ct_rng_new(99, 1);
        ct_tensor *fields[] = {ct_randn(CT_DIMS(ITEMS, 12), .rng = rng), ct_randint(CT_DIMS(ITEMS), 0, 3, .rng = rng)};
        t.data = ct_dataset_tensors(fields, 2);
        ct_rng_free(rng);
    }
    ct_seed(7);
    t.run.net = ct_nn_sequential(ct_nn_linear(12, 16), ct_nn_batch_norm(16), ct_nn_relu(), ct_nn_dropout(0.3),
                                 ct_nn_linear(16, 3));
    CHECK(ct_module_to_device(t.run.net, device));
    t.run.optim = ct_adamw(t.run.net, .lr = 1e-2);
    t.run.schedule = ct_schedule_cosine(t.run.optim, 300);
    t.run.ema = ct_ema_new(t.run.net, .decay = CT_SET(0.9), .warmup = true);
    if (scaled) t.run.scaler = ct_scaler_new(1024, .growth_interval = 5);
    t.run.loader = ct_batches(t.data, BATCH, .shuffle = true, .seed = 3, .threads = CT_SET(0), .device = device);
    return t;
}

static bool begin(training *t, ct_train_mode mode, int64_t accumulate) {
    /* recomputation changes no bit, and without images there is no layout */
    t->step = ct_train_step_new(t->run.optim, loss_of, t, .scaler = t->run.scaler, .ema = t->run.ema, .clip_norm = 0.5,
                                .accumulate = accumulate, .mode = mode, .recompute = accumulate == 1,
                                .channels_last = accumulate == 1);
    return CHECK(t->step != NULL);
}

static void end(training *t) {
    ct_train_step_free(t->step);
    ct_loader_free(t->run.loader);
    ct_dataset_free(t->data);
    ct_ema_free(t->run.ema);
    ct_scaler_free(t->run.scaler);
    ct_schedule_free(t->run.schedule);
    ct_optim_free(t->run.optim);
    ct_module_free(t->run.net);
}

/* Until step n; losses and numbers of right answers are written. An evaluation, of the averages, here and there. */
static void go_on(training *t, int n, float (*seen)[2]) {
    while (t->run.step < n && !harness_failed()) {
        ct_batch b;
        if (!ct_next(t->run.loader, &b)) {
            CHECK(ct_ok());
            continue;
        }
        ct_scope {
            ct_tensor *loss = NULL, *right = NULL;
            const int64_t k = t->run.step++;
            harness_check(ct_train_step_take(t->step, b.field, 2, &loss, &right), __FILE__, __LINE__, "step %lld: %s",
                          (long long)k, ct_error());
            seen[k][0] = (float)ct_item(loss), seen[k][1] = (float)ct_item(right);
            CHECK(ct_schedule_step(t->run.schedule));
            if (k % 11 == 10) {
                CHECK(ct_ema_swap_in(t->run.ema) && ct_eval(t->run.net) && ct_forward(t->run.net, b.x) &&
                      ct_randn(CT_DIMS(3)) && ct_train(t->run.net) && ct_ema_swap_out(t->run.ema));
            }
        }
    }
}

enum { STEPS = 200 };
static void check_training(ct_device device, int64_t accumulate, bool scaled, int steps) {
    float seen[2][STEPS][2];
    char path[2][600];
    for (int captured = 0; captured < 2; captured++) {
        training t = make(captured ? device : cpu, scaled);
        if (!begin(&t, captured ? CT_TRAIN_CAPTURED : CT_TRAIN_EAGER, accumulate)) return;
        go_on(&t, steps, seen[captured]);
        /* all but the first two of each of the two shapes */
        CHECK(ct_train_step_replays(t.step) == (captured ? steps - 4 : 0) && !ct_train_step_note(t.step)[0]);
        snprintf(path[captured], sizeof path[captured], "%s/%d.safetensors", own_folder(), captured);
        CHECK(ct_run_save(&t.run, own_folder(), captured ? "1" : "0"));
        end(&t);
    }
    for (int k = 0; k < steps; k++)
        if (!harness_check(memcmp(seen[0][k], seen[1][k], sizeof seen[0][k]) == 0, __FILE__, __LINE__,
                           "step %d: loss %g with %g right, not %g with %g", k, seen[1][k][0], seen[1][k][1],
                           seen[0][k][0], seen[0][k][1]))
            break;
    CHECK(same_files(path[0], path[1]));
}

TEST_LIMIT(captured_steps_have_the_bits_of_eager_ones_over_200_steps, 120) {
    check_training(cpu, 1, false, STEPS);
    remove_own_folder();
}
TEST_LIMIT(with_a_loss_scaler_and_batches_cut_into_parts_too, 120) {
    check_training(cpu, 3, true, STEPS);
    remove_own_folder();
}
TEST_LIMIT(on_a_device_that_does_calls_as_one_too, 120) {
    ct_device device;
    setenv("CT_BACKEND_PATH", CT_TEST_MODULES, 1);
    setenv("CT_GUARD_QUEUE", "1", 1);
    setenv("CT_GUARD_RECORD", "1", 1);
    REQUIRE(ct_device_parse("guard", &device));
    check_training(device, 2, true, 40);
    remove_own_folder();
}

TEST(a_captured_training_is_resumed_to_the_same_bits) {
    ct_state *nothing = ct_safetensors_load(given_file("nothing.safetensors"));
    NEEDS(nothing);
    ct_state_free(nothing);
    float whole[60][2], parts[60][2], longer[70][2], eager[70][2];
    training a = make(cpu, true);
    REQUIRE(begin(&a, CT_TRAIN_EAGER, 1));
    go_on(&a, 60, whole);
    end(&a);
    for (int k = 0; k < 3; k++) {
        training t = make(cpu, true);
        REQUIRE(begin(&t, CT_TRAIN_AUTO, 1));
        CHECK(ct_run_resume(&t.run, own_folder()));
        go_on(&t, 20 * k + 20, parts);
        CHECK(ct_train_step_replays(t.step) > 0 && ct_run_checkpoint(&t.run, own_folder(), 1));
        if (k == 2) { /* back, in the middle of it */
            training b = make(cpu, true);
            REQUIRE(begin(&b, CT_TRAIN_AUTO, 1));
            go_on(&b, 30, longer);
            CHECK(ct_run_resume(&b.run, own_folder()) && b.run.step == 60);
            go_on(&b, 70, longer); /* without a word to the step */
            CHECK(ct_train_step_replays(b.step) > 30);
            training c = make(cpu, true);
            REQUIRE(begin(&c, CT_TRAIN_EAGER, 1));
            CHECK(ct_run_resume(&c.run, own_folder()));
            go_on(&c, 70, eager);
            CHECK(memcmp(longer + 60, eager + 60, 10 * sizeof *eager) == 0);
            end(&c);
            end(&b);
        }
        end(&t);
    }
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
    remove_own_folder();
}

TEST(what_cannot_be_captured_is_eager_and_says_why) {
    float plain[30][2], reading[30][2];
    for (int reads = 0; reads < 2; reads++) {
        training t = make(cpu, false);
        t.reads = reads;
        REQUIRE(begin(&t, CT_TRAIN_CAPTURED, 1));
        go_on(&t, 30, reads ? reading : plain);
        CHECK((ct_train_step_replays(t.step) == 0) == reads);
        CHECK_TEXT(ct_train_step_note(t.step),
                   reads ? "read: a read of a tensor's values cannot be captured: it would be "
                           "the same in every replay"
                         : "");
        end(&t);
    }
    CHECK(memcmp(plain, reading, sizeof plain) == 0);
}

TEST(more_shapes_than_there_are_graphs_for_are_eager) {
    training t = make(cpu, false);
    REQUIRE(begin(&t, CT_TRAIN_AUTO, 1));
    for (int round = 0; round < 3; round++)
        for (int64_t n = 2; n < 22; n++)
            ct_scope {
                ct_tensor *batch[] = {ct_randn(CT_DIMS(n, 12)), ct_randint(CT_DIMS(n), 0, 3)}, *loss = NULL;
                CHECK(ct_train_step_take(t.step, batch, 2, &loss, NULL) && ct_item(loss) > 0);
            }
    CHECK(ct_train_step_replays(t.step) == 8);
    end(&t);
}

static ct_tensor *no_loss(void *context, ct_tensor *const *batch, int n, ct_tensor **extra) {
    return (void)context, (void)batch, (void)n, (void)extra, NULL;
}

TEST(wrong_batches_and_options_are_errors) {
    training t = make(cpu, false);
    ct_tensor *batch[] = {ct_zeros(CT_DIMS(4, 12)), ct_zeros(CT_DIMS(3), .dtype = CT_I64)};
    REQUIRE(begin(&t, CT_TRAIN_AUTO, 1));
    CHECK(!ct_train_step_take(t.step, batch, 2, NULL, NULL));
    CHECK_ERROR(CT_ERR_SHAPE,
                "train_step_take: tensor 1 of the batch is i64[3]: its first size has to be the number of items");
    CHECK(!ct_train_step_take(t.step, batch, 9, NULL, NULL) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(!ct_train_step_take(NULL, batch, 1, NULL, NULL) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_train_step_new(t.run.optim, NULL, NULL) && ct_error_code() == CT_ERR_NULL);
    ct_error_clear();
    CHECK(!ct_train_step_new(t.run.optim, loss_of, NULL, .clip_norm = -1) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    ct_train_step *none = ct_train_step_new(t.run.optim, no_loss, NULL);
    CHECK(none && !ct_train_step_take(none, batch, 1, NULL, NULL));
    CHECK_ERROR(CT_ERR_STATE, "train_step: the loss function gave no loss");
    ct_train_step_free(none);
    ct_train_step_free(NULL);
    end(&t);
}

static bool three_steps(void) {
    bool ok = false;
    ct_scope {
        ct_module *net = ct_nn_linear(2, 2);
        ct_optim *optim = ct_sgd(net);
        training t = {.run.net = net};
        ct_train_step *step = optim ? ct_train_step_new(optim, loss_of, &t) : NULL;
        ct_tensor *batch[] = {ct_ones(CT_DIMS(3, 2)), ct_zeros(CT_DIMS(3), .dtype = CT_I64)};
        ok = step && ct_ok();
        for (int i = 0; ok && i < 3; i++) ok = ct_train_step_take(step, batch, 2, NULL, NULL);
        ct_train_step_free(step);
        ct_optim_free(optim);
        ct_module_free(net);
    }
    return ok;
}

/* Where there is no memory for a graph, steps are eager: an allocation that fails there is no error. */
TEST_LIMIT(any_allocation_of_a_step_may_fail, 120) { FAIL_EVERYWHERE(three_steps); }
