/* ct_checkpoint: less memory, the same bits, the same random numbers, any order. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

enum { LAYERS = 20, WIDTH = 64, BATCH = 512 };

typedef struct layer {
    ct_tensor *weight; /* captured, not passed as an input */
    double dropout;
    int runs, repeats, released;
} layer;

static bool run_layer(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    layer *l = context;
    l->runs++;
    l->repeats += ct_is_recomputing();
    ct_scope {
        ct_tensor *h = ct_tanh(ct_tanh(ct_matmul(in[0], l->weight)));
        if (l->dropout > 0) h = ct_mul(h, ct_gt(ct_rand(ct_shape(h)), ct_scalar(l->dropout, CT_F32)));
        out[0] = ct_pass(h);
    }
    return out[0] != NULL;
}

static void release_layer(void *context) { ((layer *)context)->released++; }

typedef struct outcome {
    ct_tensor *gradient_x, *gradient_first, *gradient_last;
    double loss;
    int64_t peak;
} outcome;

/* Forward and backward through the chain; gradients are kept. */
static outcome train_step(layer *layers, ct_tensor *x, bool checkpointed, int group) {
    outcome o = {0};
    ct_seed(42);
    harness_reset_peak();
    int64_t base = harness_memory().in_use;
    ct_scope {
        ct_tensor *h = x;
        for (int i = 0; i < LAYERS; i += group) {
            ct_tensor *next = NULL;
            ct_scope {
                if (checkpointed) ct_checkpoint(run_layer, &layers[i], release_layer, &h, 1, &next, 1);
                else run_layer(&layers[i], &h, 1, &next, 1);
                ct_pass(next);
            }
            h = next;
        }
        ct_tensor *loss = ct_mean(ct_mul(h, h));
        h = NULL;
        o.loss = ct_item(loss);
        CHECK(ct_backward(loss));
    }
    o.peak = harness_memory().peak - base;
    o.gradient_x = ct_keep(ct_grad_of(x));
    o.gradient_first = ct_keep(ct_grad_of(layers[0].weight));
    o.gradient_last = ct_keep(ct_grad_of(layers[LAYERS - 1].weight));
    ct_set_grad(x, NULL);
    for (int i = 0; i < LAYERS; i++) ct_set_grad(layers[i].weight, NULL);
    return o;
}

static void drop_outcome(outcome *o) {
    ct_drop(o->gradient_x);
    ct_drop(o->gradient_first);
    ct_drop(o->gradient_last);
}

static void make_layers(layer *layers, double dropout) {
    ct_seed(1);
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (layer){.weight = ct_set_requires_grad(ct_mul_s(ct_randn(CT_DIMS(WIDTH, WIDTH)), 0.2), true),
                            .dropout = dropout};
}

TEST(checkpointing_takes_less_memory_and_gives_the_same_bits) {
    layer layers[LAYERS];
    make_layers(layers, 0);
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(BATCH, WIDTH)), true);
    outcome plain = train_step(layers, x, false, 1), saved = train_step(layers, x, true, 1);
    CHECK(plain.loss == saved.loss);
    CHECK(harness_same_bits(plain.gradient_x, saved.gradient_x));
    CHECK(harness_same_bits(plain.gradient_first, saved.gradient_first));
    CHECK(harness_same_bits(plain.gradient_last, saved.gradient_last));
    /* a layer keeps its input and two results (tanh saves its result) of 128 KiB; checkpointed, its input alone */
    int64_t activation = BATCH * WIDTH * (int64_t)sizeof(float);
    CHECK(plain.peak >= 2 * LAYERS * activation);
    int64_t gradients = LAYERS * WIDTH * WIDTH * (int64_t)sizeof(float);
    harness_check(saved.peak <= (LAYERS + 6) * activation + gradients + harness_buried(), __FILE__, __LINE__,
                  "the peak is %.1f activations, without checkpoints %.1f", (double)saved.peak / (double)activation,
                  (double)plain.peak / (double)activation);
    for (int i = 0; i < LAYERS; i++) CHECK(layers[i].runs == 3 && layers[i].repeats == 1 && layers[i].released == 1);
    drop_outcome(&plain);
    drop_outcome(&saved);
}

TEST(random_numbers_are_replayed) {
    layer layers[LAYERS];
    make_layers(layers, 0.3);
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(16, WIDTH)), true);
    outcome plain = train_step(layers, x, false, 1), saved = train_step(layers, x, true, 1);
    CHECK(plain.loss == saved.loss);
    CHECK(harness_same_bits(plain.gradient_x, saved.gradient_x));
    CHECK(harness_same_bits(plain.gradient_first, saved.gradient_first));
    drop_outcome(&plain);
    drop_outcome(&saved);
}

TEST(the_random_stream_goes_on_after_a_checkpoint_as_without) {
    layer l = {.weight = ct_set_requires_grad(ct_randn(CT_DIMS(WIDTH, WIDTH)), true), .dropout = 0.5};
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(4, WIDTH)), true), *y = NULL;
    ct_seed(3);
    REQUIRE(run_layer(&l, &x, 1, &y, 1));
    uint64_t position = ct_rng_position(NULL);
    ct_seed(3);
    REQUIRE(ct_checkpoint(run_layer, &l, NULL, &x, 1, &y, 1));
    CHECK(ct_rng_position(NULL) == position);
    CHECK(ct_backward(ct_sum(y)));
    CHECK(l.repeats == 1);
}

/* x -> sin(x) * exp(w x), w captured */
static bool curved(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    ct_scope {
        out[0] = ct_pass(ct_mul(ct_sin(in[0]), ct_exp(ct_mul(in[0], context))));
    }
    return out[0] != NULL;
}

TEST(a_checkpoint_can_be_differentiated_twice_and_thrice) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 0.5, -0.3), true),
              *x = ct_set_requires_grad(F64(CT_DIMS(2), 0.7, 1.1), true);
    ct_tensor *results[2][5];
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        ct_tensor *y = NULL, *xs[] = {x, w}, *g[2], *h[2], *k;
        REQUIRE(checkpointed ? ct_checkpoint(curved, w, NULL, &x, 1, &y, 1) : curved(w, &x, 1, &y, 1));
        ct_tensor *s = ct_sum(ct_mul(y, y));
        REQUIRE(ct_grad(&s, 1, NULL, xs, 2, g, CT_CREATE_GRAPH));
        ct_tensor *t = ct_add(ct_sum(ct_mul(g[0], g[0])), ct_sum(g[1]));
        REQUIRE(ct_grad(&t, 1, NULL, xs, 2, h, CT_CREATE_GRAPH));
        ct_tensor *u = ct_sum(ct_add(h[0], h[1]));
        REQUIRE(ct_grad(&u, 1, NULL, &x, 1, &k, 0));
        ct_tensor *all[5] = {g[0], g[1], h[0], h[1], k};
        for (int i = 0; i < 5; i++) results[checkpointed][i] = all[i];
    }
    for (int i = 0; i < 5; i++) CHECK(harness_same_bits(results[0][i], results[1][i]));
}

static bool checkpointed_curve(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    return ct_checkpoint(curved, context, NULL, in, n, out, m);
}

TEST(a_checkpoint_passes_check_grad) {
    ct_tensor *w = F64(CT_DIMS(2), 0.5, -0.3), *x = F64(CT_DIMS(2), 0.7, 1.1);
    CHECK(ct_check_grad(checkpointed_curve, w, &x, 1, 1));
}

TEST(checkpoints_nest) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 0.5, -0.3), true),
              *x = ct_set_requires_grad(F64(CT_DIMS(2), 0.7, 1.1), true), *y = NULL, *z = NULL, *xs[] = {x, w}, *g[2],
              *h[2];
    REQUIRE(ct_checkpoint(checkpointed_curve, w, NULL, &x, 1, &y, 1));
    REQUIRE(curved(w, &x, 1, &z, 1));
    y = ct_sum(y);
    z = ct_sum(z);
    REQUIRE(ct_grad(&y, 1, NULL, xs, 2, g, 0) && ct_grad(&z, 1, NULL, xs, 2, h, 0));
    CHECK(harness_same_bits(g[0], h[0]) && harness_same_bits(g[1], h[1]));
}

TEST(a_second_pass_repeats_the_region_once_more_where_the_graph_is_retained) {
    layer l = {.weight = ct_set_requires_grad(ct_randn(CT_DIMS(WIDTH, WIDTH)), true)};
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(4, WIDTH)), true), *y = NULL;
    REQUIRE(ct_checkpoint(run_layer, &l, NULL, &x, 1, &y, 1));
    ct_tensor *s = ct_sum(y);
    CHECK(ct_backward_from(s, NULL, CT_RETAIN_GRAPH));
    ct_tensor *first = ct_clone(ct_detach(ct_grad_of(x)));
    ct_set_grad(x, NULL);
    CHECK(ct_backward(s));
    CHECK(harness_same_bits(first, ct_grad_of(x)));
    CHECK(!ct_backward(s));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(under_no_grad_a_checkpoint_is_only_the_function) {
    layer l = {.weight = ct_set_requires_grad(ct_randn(CT_DIMS(WIDTH, WIDTH)), true)};
    ct_tensor *x = ct_randn(CT_DIMS(4, WIDTH)), *y = NULL;
    ct_no_grad {
        CHECK(ct_checkpoint(run_layer, &l, release_layer, &x, 1, &y, 1));
    }
    CHECK(!ct_requires_grad(y) && l.released == 1 && l.runs == 1);
}

TEST(an_argument_changed_before_backward_is_an_error) {
    layer l = {.weight = ct_set_requires_grad(ct_randn(CT_DIMS(WIDTH, WIDTH)), true)};
    ct_tensor *x = ct_randn(CT_DIMS(4, WIDTH)), *y = NULL;
    REQUIRE(ct_checkpoint(run_layer, &l, NULL, &x, 1, &y, 1));
    ct_fill(x, 0);
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_GRAD,
                "checkpoint: argument 0 was changed in place after the function ran, so it cannot run again");
}

static int turn;
static bool changes_its_mind(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    out[0] = turn++ ? ct_neg(in[0]) : ct_exp(ct_exp(in[0]));
    return out[0] != NULL;
}

TEST(a_function_that_does_something_else_the_second_time_is_an_error) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 0.1, 0.2), true), *y = NULL;
    REQUIRE(ct_checkpoint(changes_its_mind, NULL, NULL, &x, 1, &y, 1));
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_GRAD,
                "checkpoint: the function did something else when it ran again: it saved less than before");
}

static bool fails(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)in, (void)n, (void)out, (void)m;
    return false;
}

TEST(a_function_that_fails_releases_its_context) {
    layer l = {0};
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 1), true), *y = NULL;
    CHECK(!ct_checkpoint(fails, &l, release_layer, &x, 1, &y, 1));
    CHECK_ERROR(CT_ERR_STATE, "checkpoint: the function failed without an error");
    CHECK(l.released == 1);
    CHECK(!ct_checkpoint(NULL, &l, release_layer, &x, 1, &y, 1));
    CHECK_ERROR(CT_ERR_NULL, "checkpoint: argument fn is NULL");
    CHECK(l.released == 2);
}

static bool normalize(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    out[0] = ct_batch_norm(in[0], .running_mean = ct_select(in[1], 0, 0), .running_var = ct_select(in[1], 0, 1),
                           .training = true);
    return out[0] != NULL;
}

TEST(running_statistics_may_be_rows_of_one_tensor) {
    ct_tensor *in[] = {ct_set_requires_grad(ct_randn(CT_DIMS(4, 3)), true), ct_ones(CT_DIMS(2, 3))}, *y = NULL;
    CHECK(ct_checkpoint(normalize, NULL, NULL, in, 2, &y, 1));
    CHECK(ct_backward(ct_sum(ct_mul(y, y))));
}
