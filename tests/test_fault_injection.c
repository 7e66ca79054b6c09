/* Every allocation of a training step fails once: an error or success, no crash, no leak, and the next step is as if
 * nothing had happened. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "tests/harness.h"

enum { IN = 5, HIDDEN = 7, CLASSES = 4, BATCH = 6 };

typedef struct model {
    ct_tensor *x, *labels, *w1, *b1, *w2, *b2;
} model;

static model make_model(void) {
    ct_seed(11);
    return (model){.x = ct_randn(CT_DIMS(BATCH, IN)),
                   .labels = I64(CT_DIMS(BATCH, 1), 0, 1, 2, 3, 1, 2),
                   .w1 = ct_set_requires_grad(ct_randn(CT_DIMS(IN, HIDDEN)), true),
                   .b1 = ct_set_requires_grad(ct_zeros(CT_DIMS(HIDDEN)), true),
                   .w2 = ct_set_requires_grad(ct_randn(CT_DIMS(HIDDEN, CLASSES)), true),
                   .b2 = ct_set_requires_grad(ct_zeros(CT_DIMS(CLASSES)), true)};
}

static bool update(ct_tensor *w) {
    bool ok = ct_grad_of(w) != NULL;
    ct_no_grad {
        ct_scope {
            ok = ok && ct_sub_(w, ct_mul_s(ct_grad_of(w), 0.1)) != NULL;
        }
    }
    return ok;
}

static bool train_step(const model *m) {
    bool ok = false;
    ct_scope {
        ct_tensor *hidden = ct_relu(ct_add(ct_matmul(m->x, m->w1), m->b1));
        ct_tensor *scores = ct_log_softmax(ct_add(ct_matmul(hidden, m->w2), m->b2), -1);
        ct_tensor *loss = ct_neg(ct_mean(ct_gather(scores, 1, m->labels)));
        ok = ct_backward(loss);
        ok = ok && update(m->w1) && update(m->b1) && update(m->w2) && update(m->b2);
    }
    return ok;
}

static void forget_gradients(const model *m) {
    ct_tensor *all[] = {m->w1, m->b1, m->w2, m->b2};
    for (int i = 0; i < 4; i++) ct_set_grad(all[i], NULL);
}

/* Runs step with its nth allocation failing, for every n until one is never reached. Returns how many there were. */
static int64_t fail_everywhere(const char *name, bool (*step)(const model *), const model *m) {
    int64_t n = 0;
    bool reached = true;
    step(m); /* caches fill up, tables are made */
    forget_gradients(m);
    CHECK(ct_ok());
    int64_t live = ct_live_objects(), in_use = harness_memory().in_use;
    for (n = 1; reached; n++) {
        ct__alloc_fail_at(n);
        bool ok = step(m);
        reached = ct__alloc_fail_left() <= 0 && n < 1000000;
        ct__alloc_fail_at(0);
        char where[96];
        snprintf(where, sizeof where, "%s, allocation %lld", name, (long long)n);
        /* an allocation that is only a wish (a cache that could grow) may fail without an error; an error is of memory */
        harness_check(ok == ct_ok(), __FILE__, __LINE__, "%s: it returned %s with error '%s'", where,
                      ok ? "true" : "false", ct_error());
        harness_check(ct_ok() || ct_error_code() == CT_ERR_MEMORY, __FILE__, __LINE__, "%s: the error is '%s'", where,
                      ct_error());
        ct_error_clear();
        forget_gradients(m);
        harness_check(ct_live_objects() == live, __FILE__, __LINE__, "%s: %lld objects leaked", where,
                      (long long)(ct_live_objects() - live));
        harness_check(harness_memory().in_use <= in_use + harness_buried(), __FILE__, __LINE__, "%s: %lld bytes leaked",
                      where, (long long)(harness_memory().in_use - in_use));
        harness_check(ct_grad_enabled(), __FILE__, __LINE__, "%s: grad mode was left off", where);
        if (harness_failed()) break;
    }
    return n;
}

TEST_LIMIT(a_training_step_survives_the_failure_of_any_allocation, 120) {
    model m = make_model();
    int64_t allocations = fail_everywhere("step", train_step, &m);
    CHECK(allocations > 50);
    CHECK(train_step(&m)); /* and after all that it still trains */
    forget_gradients(&m);
}

static bool second_order(const model *m) {
    bool ok = false;
    ct_scope {
        ct_tensor *y = ct_sum(ct_tanh(ct_matmul(m->x, m->w1))), *g = NULL;
        ok = ct_grad(&y, 1, NULL, &m->w1, 1, &g, CT_CREATE_GRAPH) && ct_backward(ct_sum(ct_mul(g, g)));
    }
    return ok;
}

TEST_LIMIT(gradients_of_gradients_survive_the_failure_of_any_allocation, 120) {
    model m = make_model();
    CHECK(fail_everywhere("second order", second_order, &m) > 20);
}

static bool layer(void *context, ct_tensor *const *in, int n, ct_tensor **out, int count) {
    (void)n, (void)count;
    ct_scope {
        out[0] = ct_pass(ct_tanh(ct_matmul(in[0], context)));
    }
    return out[0] != NULL;
}

static bool checkpointed(const model *m) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = m->x, *h = NULL;
        ok = ct_checkpoint(layer, m->w1, NULL, &x, 1, &h, 1) && ct_backward(ct_sum(ct_mul(h, h)));
    }
    return ok;
}

TEST_LIMIT(a_checkpoint_survives_the_failure_of_any_allocation, 120) {
    model m = make_model();
    CHECK(fail_everywhere("checkpoint", checkpointed, &m) > 20);
}

static bool derivatives(const model *m) {
    bool ok = false;
    ct_scope {
        ct_tensor *x = ct_narrow(ct_detach(m->x), 0, 0, 1), *v = ct_ones_like(x), *out = NULL;
        ok = ct_jacobian(layer, m->w1, x, 0) != NULL && ct_jvp(layer, m->w1, &x, &v, 1, &out, 1, 0);
    }
    return ok;
}

TEST_LIMIT(jacobians_survive_the_failure_of_any_allocation, 120) {
    model m = make_model();
    CHECK(fail_everywhere("jacobian", derivatives, &m) > 50);
}

static bool shapes_and_indices(const model *m) {
    bool ok = false;
    ct_scope {
        ct_tensor *parts[] = {m->w1, m->w1}, *y = ct_cat(parts, 2, 0), *values, *indices = NULL;
        y = ct_contiguous(ct_t(ct_pad(y, CT_DIMS(1, 1, 0, 2))));
        values = ct_sort(y, -1, .indices = &indices);
        y = ct_add(ct_cumsum(values, 0), ct_cast(indices, CT_F32));
        y = ct_einsum("ij,kj->ik", (ct_tensor *[]){y, y}, 2);
        ok = y && ct_backward(ct_sum(y));
    }
    return ok;
}

TEST_LIMIT(copies_sorts_and_sums_survive_the_failure_of_any_allocation, 120) {
    model m = make_model();
    CHECK(fail_everywhere("shapes", shapes_and_indices, &m) > 50);
}

TEST_LIMIT(making_things_survives_the_failure_of_any_allocation, 120) {
    for (int64_t n = 1, reached = 1; reached && !harness_failed(); n++) {
        int64_t live = ct_live_objects(), in_use = harness_memory().in_use;
        ct__alloc_fail_at(n);
        ct_scope {
            float data[4] = {1, 2, 3, 4};
            ct_tensor *x = ct_from_data(data, CT_DIMS(2, 2), CT_F32), *w = ct_wrap(data, CT_DIMS(4), CT_F32);
            ct_rng *rng = ct_rng_new(1, 2);
            ct_set_requires_grad(x, true);
            ct_drop(ct_keep(ct_rand(CT_DIMS(3), .rng = rng)));
            ct_add(x, ct_reshape(w, CT_DIMS(2, 2)));
            char text[256];
            ct_to_string(x, text, sizeof text);
            ct_rng_free(rng);
        }
        reached = ct__alloc_fail_left() <= 0;
        ct__alloc_fail_at(0);
        CHECK(ct_ok() || ct_error_code() == CT_ERR_MEMORY);
        ct_error_clear();
        CHECK(ct_live_objects() == live);
        /* the stack of scopes may have been made, once */
        CHECK(harness_memory().in_use <= in_use + harness_buried() || n < 10);
    }
}

/* Ops that lower, and whose lowering could go on without what an inner call did not give. */
static ct_tensor *with_mask(void) {
    ct_tensor *x = ct_ones(CT_DIMS(2, 5, 6)), *w = ct_ones(CT_DIMS(6, 6));
    return ct_multi_head_attention(x, x, x, w, w, w, w, 2, .mask = ct_ones(CT_DIMS(5, 5), .dtype = CT_BOOL));
}
static ct_tensor *image(void) { return ct_ones(CT_DIMS(2, 4, 5, 3)); }
static ct_tensor *layer_normed(void) { return ct_layer_norm(image(), CT_DIMS(3), .weight = ct_ones(CT_DIMS(3))); }
static ct_tensor *rms_normed(void) { return ct_rms_norm(image(), CT_DIMS(3), .weight = ct_ones(CT_DIMS(3))); }
static ct_tensor *instance_normed(void) { return ct_instance_norm(image(), .bias = ct_ones(CT_DIMS(4))); }
static ct_tensor *batch_normed(void) {
    return ct_batch_norm(image(), .running_mean = ct_zeros(CT_DIMS(4)), .running_var = ct_ones(CT_DIMS(4)));
}
static ct_tensor *pooled(void) { return ct_adaptive_max_pool2d(image(), CT_DIMS(2, 2)); }
static ct_tensor *biased(void) { return ct_alibi(2, 5); }
static ct_tensor *stepped(void) {
    return ct_gru_cell(ct_ones(CT_DIMS(2, 3)), ct_ones(CT_DIMS(12, 3)), ct_ones(CT_DIMS(12, 4)),
                       .b_ih = ct_ones(CT_DIMS(12)));
}

TEST_LIMIT(a_result_and_an_error_never_come_together, 120) {
    ct_tensor *(*const calls[])(void) = {with_mask,    layer_normed, rms_normed, instance_normed,
                                         batch_normed, pooled,       biased,     stepped};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            ct__alloc_fail_at(n);
            ct_scope {
                ct_tensor *y = calls[i]();
                reached = ct__alloc_fail_left() <= 0;
                ct__alloc_fail_at(0);
                harness_check((y != NULL) == ct_ok(), __FILE__, __LINE__,
                              "call %zu, allocation %lld: %s with error '%s'", i, (long long)n,
                              y ? "a result" : "no result", ct_error());
            }
            ct_error_clear();
        }
    }
}
