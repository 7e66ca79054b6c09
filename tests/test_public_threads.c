/* What the headers say of threads, so that the thread sanitizer can see it: make tsan. References that bindings own. */
#include <cotangent/data.h>
#include <cotangent/io.h>
#include <cotangent/nn.h>
#include <cotangent/op.h>
#include <cotangent/optim.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness.h"

enum { THREADS = 4, ROUNDS = 50 };

/* Runs fn(context) on some threads at once. */
static void on_threads(int count, void *(*fn)(void *), void *context) {
    pthread_t threads[THREADS];
    for (int i = 0; i < count; i++)
        if (!CHECK(pthread_create(&threads[i], NULL, fn, context) == 0)) count = i;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* ---- Owned references ---- */

TEST_BARE(owned_results_need_no_scope) {
    const ct_op *add = ct_op_find("add"), *softmax = ct_op_find("softmax");
    const float numbers[4] = {1, 2, 3, 4};
    ct_tensor *x = NULL, *y = NULL, *z = NULL;
    ct_scope {
        x = ct_keep(ct_from_data(numbers, CT_DIMS(2, 2), CT_F32));
    }
    const int64_t before = ct_live_objects();
    /* no scope is open, so whatever was left in the root would stay */
    CHECK(ct_apply_owned(add, (ct_tensor *[]){x, x}, 2, NULL, &y, 1, NULL, NULL) && ct_live_objects() == before + 1);
    int64_t axis = 1;
    CHECK(ct_apply_owned(softmax, &y, 1, &axis, &z, 1, NULL, NULL) && ct_live_objects() == before + 2);
    ct_drop(y);
    ct_drop(z);
    CHECK(ct_live_objects() == before);
    /* casts and expansions on the way, a lowering, a graph, an error: nothing stays either */
    ct_tensor *row = NULL, *bad = (ct_tensor *)(void *)&before;
    ct_scope {
        row = ct_keep(ct_set_requires_grad(ct_from_data((double[]){1, 2}, CT_DIMS(2), CT_F64), true));
    }
    const int64_t with_row = ct_live_objects();
    CHECK(ct_apply_owned(add, (ct_tensor *[]){x, row}, 2, NULL, &y, 1, NULL, NULL) && ct_requires_grad(y));
    ct_drop(y);
    CHECK(ct_apply_owned(ct_op_find("logsumexp"), (ct_tensor *[]){row}, 1, NULL, &y, 1, NULL, NULL));
    ct_drop(y);
    CHECK(!ct_apply_owned(ct_op_find("matmul"), (ct_tensor *[]){x, NULL}, 2, NULL, &bad, 1, NULL, NULL) && bad == NULL);
    ct_error_clear();
    ct_tensor *two[2] = {NULL, NULL};
    const ct_op *topk = ct_op_find("topk");
    _Alignas(16) char attrs[512];
    REQUIRE(topk && topk->attr_size <= sizeof attrs);
    ct_attrs_default(topk, attrs);
    CHECK(ct_attrs_set(topk, attrs, "k", "1") && ct_attrs_set(topk, attrs, "axis", "1"));
    CHECK(ct_apply_owned(topk, &x, 1, attrs, two, 2, NULL, NULL) && two[0] && two[1]);
    ct_drop(two[0]);
    ct_drop(two[1]);
    CHECK(ct_live_objects() == with_row);
    ct_drop(row);
    ct_drop(x);
    CHECK(ct_live_objects() == before - 1);
}

TEST(a_result_written_where_it_was_told_is_owned_once_more) {
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *dst = ct_zeros(CT_DIMS(2)), *y = NULL;
    CHECK(ct_into(dst) && ct_apply_owned(ct_op_find("exp"), &x, 1, NULL, &y, 1, NULL, NULL) && y == dst);
    CHECK_NEAR(harness_at(dst, 0), exp(1), 1e-6);
    ct_drop(y);
    CHECK(ct_numel(dst) == 2); /* still the scope's */
}

/* ---- Released anywhere ---- */

static atomic_int hooks_released, wraps_released, users_released;
static ct_tensor *unchanged(void *context, ct_tensor *grad) {
    (void)context, (void)grad;
    return NULL;
}
static void hook_gone(void *context) {
    (void)context;
    atomic_fetch_add(&hooks_released, 1);
}
static void wrap_gone(void *context, void *data) {
    (void)context;
    free(data);
    atomic_fetch_add(&wraps_released, 1);
}
static void user_gone(void *pointer) {
    (void)pointer;
    atomic_fetch_add(&users_released, 1);
}

static void *drop_it(void *x) {
    ct_drop(x);
    return NULL;
}

TEST(what_one_thread_makes_another_may_release) {
    const int64_t before = ct_live_objects();
    for (int round = 0; round < ROUNDS; round++) {
        ct_tensor *kept = NULL;
        ct_scope {
            float *data = malloc(8 * sizeof *data);
            for (int i = 0; i < 8; i++) data[i] = (float)i;
            ct_tensor *w = ct_set_requires_grad(ct_wrap(data, CT_DIMS(8), CT_F32, .release = wrap_gone), true);
            ct_tensor *y = ct_sum(ct_mul(ct_exp(w), w));
            CHECK(ct_hook(y, unchanged, NULL, hook_gone) && ct_set_user(y, w, user_gone));
            kept = ct_keep(y);
        }
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, drop_it, kept) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(atomic_load(&hooks_released) == ROUNDS && atomic_load(&wraps_released) == ROUNDS &&
          atomic_load(&users_released) == ROUNDS);
    CHECK(ct_live_objects() == before);
}

static void *keep_and_drop(void *x) {
    for (int i = 0; i < 1000; i++) ct_drop(ct_keep(x));
    return NULL;
}

TEST(references_are_counted_by_any_thread_at_once) {
    ct_tensor *x = ct_ones(CT_DIMS(2));
    on_threads(THREADS, keep_and_drop, x);
    CHECK_VALUES(x, CT_DIMS(2), 0, 1, 1);
}

/* ---- Reading one tensor, differentiating graphs that share leaves ---- */

static void *read_it(void *shared) {
    ct_tensor *x = shared;
    for (int i = 0; i < ROUNDS; i++)
        ct_scope {
            CHECK(ct_item(ct_sum(ct_matmul(x, ct_t(x)))) == 100 * 16);
            CHECK(ct_data(x) != NULL && ct_dim(x, 0) == 4 && ct_numel(ct_slice(x, 1, 5)) == 380);
        }
    return NULL;
}

TEST(a_tensor_is_read_by_many_threads) { on_threads(THREADS, read_it, ct_ones(CT_DIMS(4, 100))); }

static void *differentiate(void *shared) {
    ct_tensor *w = shared;
    for (int i = 0; i < ROUNDS; i++)
        ct_scope {
            ct_tensor *y = ct_sum(ct_mul(ct_mul(w, w), w)), *g = NULL, *h = NULL;
            CHECK(ct_grad(&y, 1, NULL, &w, 1, &g, CT_CREATE_GRAPH));
            ct_tensor *z = ct_sum(g);
            CHECK(ct_grad(&z, 1, NULL, &w, 1, &h, 0));
            CHECK(harness_at(g, 1) == 12 && harness_at(h, 1) == 12);
        }
    return NULL;
}

TEST(threads_differentiate_graphs_that_share_leaves) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
    on_threads(THREADS, differentiate, w);
    CHECK(ct_grad_of(w) == NULL);
}

static void *train_own(void *unused) {
    (void)unused;
    ct_scope {
        ct_tensor *w = ct_set_requires_grad(ct_zeros(CT_DIMS(3)), true);
        for (int i = 0; i < ROUNDS; i++)
            ct_scope {
                CHECK(ct_backward(ct_sum(ct_square(ct_sub_s(w, 1)))));
                ct_no_grad {
                    CHECK(ct_sub_(w, ct_mul_s(ct_grad_of(w), 0.25)) && ct_set_grad(w, NULL));
                }
            }
        CHECK_NEAR(harness_at(w, 2), 1, 1e-6);
    }
    return NULL;
}

TEST(threads_train_each_their_own) { on_threads(THREADS, train_own, NULL); }

/* ---- Networks, data, files ---- */

typedef struct shared_net {
    ct_module *net;
    ct_tensor *x, *expected;
} shared_net;

static void *predict(void *shared) {
    const shared_net *s = shared;
    for (int i = 0; i < 10; i++)
        ct_scope {
            CHECK(harness_same_bits(ct_forward(s->net, s->x), s->expected));
        }
    return NULL;
}

TEST(a_network_in_evaluation_serves_many_threads) {
    ct_module *nets[] = {
        ct_nn_sequential(ct_nn_conv2d(3, 8, 3, .pad = 1), ct_nn_batch_norm(8), ct_nn_relu(), ct_nn_dropout(0.5),
                         ct_nn_max_pool2d(2), ct_nn_flatten(), ct_nn_linear(8 * 16, 4)),
        ct_nn_lstm(8, 6),
        ct_nn_transformer_encoder_layer(8, 2),
    };
    ct_tensor *inputs[] = {harness_randn(CT_DIMS(2, 3, 8, 8)), harness_randn(CT_DIMS(2, 5, 8)),
                           harness_randn(CT_DIMS(2, 5, 8))};
    for (int i = 0; i < 3; i++) {
        REQUIRE(nets[i] && ct_eval(nets[i]));
        shared_net s = {nets[i], inputs[i], ct_forward(nets[i], inputs[i])};
        REQUIRE(s.expected != NULL);
        on_threads(THREADS, predict, &s);
        ct_module_free(nets[i]);
    }
}

static void *learn_own(void *unused) {
    (void)unused;
    ct_module *net = ct_nn_linear(3, 1);
    ct_optim *learner = ct_adam(net, .lr = 0.1);
    ct_scope {
        ct_tensor *x = harness_randn(CT_DIMS(16, 3)), *y = ct_sum(x, .axes = CT_DIMS(1), .keepdim = true);
        double first = 0, last = 0;
        for (int i = 0; i < ROUNDS; i++)
            ct_scope {
                ct_tensor *loss = ct_mean(ct_square(ct_sub(ct_forward(net, x), y)));
                last = ct_item(loss);
                if (i == 0) first = last;
                CHECK(ct_backward(loss) && ct_optim_step(learner) && ct_optim_zero_grad(learner));
            }
        CHECK(last < first / 4);
    }
    ct_optim_free(learner);
    ct_module_free(net);
    return NULL;
}

TEST(threads_learn_each_with_an_optimizer) { on_threads(THREADS, learn_own, NULL); }

static void *read_items(void *shared) {
    ct_dataset *data = shared;
    ct_loader *batches = ct_batches(data, 4, .shuffle = true, .seed = 3, .threads = CT_SET(2));
    int64_t seen = 0;
    for (int i = 0; i < 20; i++)
        ct_scope {
            ct_tensor *fields[2];
            CHECK(ct_dataset_get(data, i, fields, 2) && ct_item_i64(fields[1]) == i);
        }
    for (ct_batch b; ct_next(batches, &b);)
        ct_scope {
            seen += ct_dim(b.x, 0);
        }
    CHECK(seen == 20);
    ct_loader_free(batches);
    return NULL;
}

TEST(a_dataset_serves_many_loaders_and_threads) {
    ct_tensor *fields[] = {harness_randn(CT_DIMS(20, 3)), ct_arange_i64(0, 20, 1)};
    ct_dataset *data = ct_dataset_tensors(fields, 2);
    REQUIRE(data != NULL);
    on_threads(3, read_items, data);
    ct_dataset_free(data);
}

static void *write_and_read(void *path) {
    for (int i = 0; i < 5; i++)
        ct_scope {
            ct_tensor *x = ct_full(CT_DIMS(1000), i);
            CHECK(ct_npy_save(path, x));
            ct_tensor *y = ct_npy_load(path, false); /* by whomever it is, it is whole */
            CHECK(y && ct_numel(y) == 1000 && harness_at(y, 0) == harness_at(y, 999));
        }
    return NULL;
}

TEST(one_file_is_written_and_read_by_many_threads) {
    char folder[] = "/tmp/cotangent-threads-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/x.npy", folder);
    on_threads(THREADS, write_and_read, path);
    CHECK(remove(path) == 0 && rmdir(folder) == 0);
}

/* ---- Modes of a thread ---- */

static void *has_none(void *unused) {
    (void)unused;
    CHECK(ct_grad_enabled() && ct_set_autocast(CT_F32) == CT_F32 && ct_get_device().type == CT_CPU && ct_ok());
    ct_tensor *zero = ct_zeros(CT_DIMS(1));
    CHECK(isnan(ct_item(ct_div(zero, zero))) && ct_ok()); /* anomaly mode is off here */
    CHECK(ct_set_anomaly(true) == false);
    CHECK(!ct_div(zero, zero) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    return NULL;
}

TEST(modes_and_errors_are_the_threads) {
    CHECK(ct_set_anomaly(true) == false);
    ct_set_autocast(CT_BF16);
    ct_set_grad_enabled(false);
    ct_fail(CT_ERR_STATE, "test", "pending here");
    on_threads(1, has_none, NULL);
    CHECK_ERROR(CT_ERR_STATE, "test: pending here");
    ct_set_grad_enabled(true);
    ct_set_autocast(CT_F32);
    CHECK(ct_set_anomaly(false) == true);
    ct_tensor *zero = ct_zeros(CT_DIMS(1));
    CHECK(isnan(ct_item(ct_div(zero, zero))) && ct_ok()); /* what the other thread set is its own */
}

static void *find_nan(void *unused) {
    (void)unused;
    ct_tensor *zero = ct_zeros(CT_DIMS(1));
    CHECK(!ct_div(zero, zero) && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_set_anomaly(false) == true);
    CHECK(isnan(ct_item(ct_div(zero, zero))) && ct_ok());
    return NULL;
}

TEST_BARE(the_environment_turns_anomaly_mode_on_for_every_thread) {
    harness_may_leak();
    setenv("CT_ANOMALY", "1", 1);
    on_threads(2, find_nan, NULL);
    find_nan(NULL);
    on_threads(1, find_nan, NULL); /* that this one turned it off is its own affair */
}

/* ---- The process ---- */

static void *set_things(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++)
        ct_scope {
            ct_seed((uint64_t)i);
            ct_set_exact_conv(i % 2);
            ct_set_tf32(i % 3 == 0);
            ct_set_log(NULL);
            ct_set_pin(i % 2);
            if (i % 10 == 0) CHECK(ct_set_threads(1 + i % 3));
            CHECK(ct_get_threads() >= 1 && ct_get_seed() < ROUNDS && ct_live_objects() >= 0);
            CHECK(ct_rand(CT_DIMS(70000)) && ct_op_find("matmul") && ct_op_count() > 100);
            CHECK(ct_version() == CT_VERSION && ct_version_text()[0] == '0' + CT_VERSION_MAJOR);
        }
    return NULL;
}

TEST(settings_of_the_process_may_be_changed_while_ops_run) {
    on_threads(THREADS, set_things, NULL);
    ct_set_exact_conv(false);
    ct_set_tf32(false);
}

static bool same(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static void doubled(ct_lower *l) { l->out[0] = ct_add(l->in[0], l->in[0]); }
static const ct_arg input[] = {{"x", 0}, {NULL, 0}}, output[] = {{"y", 0}, {NULL, 0}};

static void *register_ops(void *shared) {
    static atomic_int next;
    for (int i = 0; i < 20; i++) {
        const int number = atomic_fetch_add(&next, 1);
        char *name = malloc(32);
        ct_op *op = calloc(1, sizeof *op);
        snprintf(name, 32, "test_threads_%d", number);
        *op = (ct_op){.size = sizeof *op,
                      .name = name,
                      .doc = "",
                      .inputs = input,
                      .outputs = output,
                      .infer = same,
                      .lower = doubled,
                      .slot = calloc(1, sizeof *op->slot)};
        CHECK(ct_op_register(op) && ct_op_find(name) == op);
        ct_op *again = calloc(1, sizeof *again); /* of one name one is taken, whoever comes first */
        *again = *op;
        again->name = "test_threads_wanted";
        again->slot = calloc(1, sizeof *again->slot);
        if (ct_op_register(again)) atomic_fetch_add((atomic_int *)shared, 1);
        ct_error_clear();
        ct_scope {
            ct_tensor *x = ct_ones(CT_DIMS(2)), *y = NULL;
            CHECK(ct_apply(op, &x, 1, NULL, &y, 1) && harness_at(y, 1) == 2);
        }
    }
    return NULL;
}

TEST(threads_register_ops) {
    atomic_int wanted = 0;
    harness_may_leak();
    on_threads(THREADS, register_ops, &wanted);
    CHECK(atomic_load(&wanted) == 1);
}
