/* The engine: what flows backward, what is wanted, what is kept, and what is refused. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/harness.h"

TEST(the_same_tensor_twice_gets_both_parts) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 3, -2), true);
    CHECK(ct_backward(ct_sum(ct_mul(x, x))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 6, -4);
}

TEST(a_matrix_times_itself) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, 3, 4), true);
    CHECK(ct_backward(ct_sum(ct_matmul(x, x)))); /* d sum(XX) = 1 X' + X' 1 */
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 2), 1e-12, 3 + 4, 7 + 4, 3 + 6, 7 + 6);
}

TEST(diamonds_sum_over_their_paths) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 2), true), *a = ct_mul_s(x, 3), *b = ct_exp(a),
              *c = ct_mul(a, b), *d = ct_add(c, b);
    CHECK(ct_backward(ct_sum(d))); /* d = (a + 1) e^a, d' = 3 (a + 2) e^a */
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1), 1e-9, 3 * 8 * exp(6));
}

TEST(a_ladder_of_diamonds_takes_one_visit_a_node) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 1), true), *y = x;
    for (int i = 0; i < 60; i++) y = ct_add(y, y); /* 2^60 paths */
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1), 0, 0x1p60);
}

TEST(dead_branches_are_not_visited) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *dead = ct_log(ct_sub(x, x)),
              *y = ct_sum(ct_mul_s(x, 5));
    CHECK(dead != NULL); /* its gradient would be infinite */
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 5, 5);
}

TEST(broadcasting_sums_in_the_gradient) {
    ct_tensor *a = ct_set_requires_grad(F64(CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6), true),
              *b = ct_set_requires_grad(F64(CT_DIMS(3), 1, 10, 100), true);
    ct_tensor *c = ct_set_requires_grad(F64(CT_DIMS(2, 1), 2, 3), true),
              *s = ct_set_requires_grad(ct_scalar(5, CT_F64), true);
    ct_tensor *y = ct_sum(ct_mul(ct_sub(ct_mul(a, b), c), s));
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(a), CT_DIMS(2, 3), 0, 5, 50, 500, 5, 50, 500);
    CHECK_VALUES(ct_grad_of(b), CT_DIMS(3), 0, 25, 35, 45);
    CHECK_VALUES(ct_grad_of(c), CT_DIMS(2, 1), 0, -15, -15);
    CHECK_VALUES(ct_grad_of(s), CT_DIMS0, 1e-12, 321 + 654 - 6 - 9);
}

TEST(promotion_casts_in_the_gradient) {
    ct_tensor *a = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true),
              *b = ct_set_requires_grad(F64(CT_DIMS(2), 3, 4), true), *i = I64(CT_DIMS(2), 5, 6);
    CHECK(ct_backward(ct_sum(ct_mul(ct_mul(a, b), i))));
    CHECK(ct_dtype_of(ct_grad_of(a)) == CT_F32 && ct_dtype_of(ct_grad_of(b)) == CT_F64);
    CHECK_VALUES(ct_grad_of(a), CT_DIMS(2), 0, 15, 24);
    CHECK_VALUES(ct_grad_of(b), CT_DIMS(2), 0, 5, 12);
}

TEST(cotangents_of_stride_0_are_ordinary) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6), true), *y = ct_mul(x, x);
    ct_tensor *c = ct_expand(F64(CT_DIMS(3), 1, 2, 3), CT_DIMS(2, 3));
    CHECK(ct_strides(c).d[0] == 0);
    CHECK(ct_backward_from(y, c, 0));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 3), 0, 2, 8, 18, 8, 20, 36);
}

TEST(cotangents_in_another_order_are_ordinary) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, 3, 4), true),
              *y = ct_matmul(x, F64(CT_DIMS(2, 2), 1, 1, 0, 1));
    ct_tensor *c = ct_t(F64(CT_DIMS(2, 2), 1, 2, 3, 4));
    CHECK(!ct_is_contiguous(c));
    CHECK(ct_backward_from(y, c, 0)); /* C W' with C = [[1,3],[2,4]] */
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 2), 0, 4, 3, 6, 4);
    ct_tensor *step = ct_slice(F64(CT_DIMS(4), 1, 0, 5, 0), 0, 0, .step = 2),
              *z = ct_set_requires_grad(F64(CT_DIMS(2), 1, 1), true);
    CHECK(ct_backward_from(ct_mul_s(z, 3), step, 0));
    CHECK_VALUES(ct_grad_of(z), CT_DIMS(2), 0, 3, 15);
}

TEST(backward_accumulates_in_leaves) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
    CHECK(ct_grad_of(x) == NULL);
    CHECK(ct_backward(ct_sum(x)));
    CHECK(ct_backward(ct_sum(ct_mul_s(x, 2))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 3, 3);
    CHECK(ct_set_grad(x, NULL));
    CHECK(ct_grad_of(x) == NULL);
    CHECK(ct_backward(ct_sum(x)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 1, 1);
    CHECK(ct_set_grad(x, F64(CT_DIMS(2), 7, 8)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 7, 8);
    CHECK(!ct_set_grad(x, F64(CT_DIMS(3), 7, 8, 9)));
    CHECK_ERROR(CT_ERR_SHAPE, "set_grad: the gradient is f64[3], the leaf f64[2]");
}

TEST(the_gradient_of_a_leaf_is_no_alias_of_anything_else) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *c = F64(CT_DIMS(2), 5, 6), *y = ct_add_s(x, 1);
    CHECK(ct_backward_from(y, c, 0)); /* the cotangent goes through unchanged */
    CHECK(ct_backward(ct_sum(x)));    /* and is added to: c must stay */
    CHECK_VALUES(c, CT_DIMS(2), 0, 5, 6);
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 6, 7);
}

TEST(grad_gives_zeros_where_no_path_leads) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true),
              *other = ct_set_requires_grad(F32(CT_DIMS(2, 1), 1, 2), true), *y = ct_sum(ct_mul(x, x));
    ct_tensor *xs[] = {other, x}, *g[2];
    REQUIRE(ct_grad(&y, 1, NULL, xs, 2, g, 0));
    CHECK_VALUES(g[0], CT_DIMS(2, 1), 0, 0, 0);
    CHECK_VALUES(g[1], CT_DIMS(2), 0, 2, 4);
    CHECK(ct_grad_of(x) == NULL); /* ct_grad leaves the leaves alone */
}

TEST(grad_works_for_inner_tensors_and_for_the_result_itself) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *h = ct_mul(x, x), *y = ct_sum(ct_mul(h, h)),
              *xs[] = {h, y, x, h}, *g[4];
    REQUIRE(ct_grad(&y, 1, NULL, xs, 4, g, 0));
    CHECK_VALUES(g[0], CT_DIMS(2), 0, 2, 8);
    CHECK_VALUES(g[1], CT_DIMS0, 0, 1);
    CHECK_VALUES(g[2], CT_DIMS(2), 0, 4, 32);
    CHECK_VALUES(g[3], CT_DIMS(2), 0, 2, 8);
}

TEST(several_results_add_up) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *ys[] = {ct_sum(x), ct_mul(x, x)},
              *cs[] = {NULL, F64(CT_DIMS(2), 1, 10)}, *g;
    REQUIRE(ct_grad(ys, 2, cs, &x, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 0, 1 + 2, 1 + 40);
    ct_tensor *same[] = {ys[0], ys[0]};
    ct_tensor *y = ct_sum(x);
    same[0] = same[1] = y;
    REQUIRE(ct_grad(same, 2, NULL, &x, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 0, 2, 2);
}

TEST(only_what_is_wanted_is_computed) {
    ct_tensor *w1 = ct_set_requires_grad(ct_rand(CT_DIMS(4, 4)), true),
              *w2 = ct_set_requires_grad(ct_rand(CT_DIMS(4, 4)), true),
              *w3 = ct_set_requires_grad(ct_rand(CT_DIMS(4, 4)), true);
    ct_tensor *y = ct_sum(ct_matmul(ct_matmul(w1, w2), w3)), *g;
    harness_log_start();
    REQUIRE(ct_grad(&y, 1, NULL, &w3, 1, &g, CT_RETAIN_GRAPH));
    harness_log_stop();
    CHECK(harness_log_calls("matmul") == 1); /* neither the other factor nor the earlier product */
    harness_log_start();
    REQUIRE(ct_grad(&y, 1, NULL, &w1, 1, &g, CT_RETAIN_GRAPH));
    harness_log_stop();
    CHECK(harness_log_calls("matmul") == 2);
    harness_log_start();
    CHECK(ct_backward(y));
    harness_log_stop();
    CHECK(harness_log_calls("matmul") == 4);
}

TEST(inputs_that_need_no_gradient_cost_none) {
    ct_tensor *x = ct_rand(CT_DIMS(4, 4)), *w = ct_set_requires_grad(ct_rand(CT_DIMS(4, 4)), true),
              *y = ct_sum(ct_matmul(x, w));
    harness_log_start();
    CHECK(ct_backward(y));
    harness_log_stop();
    CHECK(harness_log_calls("matmul") == 1);
}

TEST(a_result_of_several_elements_needs_a_cotangent) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *y = ct_mul(x, x), *g;
    CHECK(!ct_backward(y));
    CHECK_ERROR(CT_ERR_GRAD, "backward: y is f32[2]; only a result of one element needs no cotangent");
    CHECK(!ct_grad(&y, 1, NULL, &x, 1, &g, 0));
    CHECK_ERROR(CT_ERR_GRAD, "grad: y is f32[2]; only a result of one element needs no cotangent");
    CHECK(!ct_backward_from(y, ct_ones(CT_DIMS(3)), 0));
    CHECK_ERROR(CT_ERR_SHAPE, "backward: the cotangent is f32[3] and has to be like y, f32[2]");
    CHECK(!ct_backward_from(y, ct_ones(CT_DIMS(2), .dtype = CT_F64), 0));
    CHECK_ERROR(CT_ERR_SHAPE, "backward: the cotangent is f64[2] and has to be like y, f32[2]");
    CHECK(ct_backward_from(y, ct_ones(CT_DIMS(2)), 0)); /* the graph is still whole */
}

TEST(one_element_of_any_shape_needs_no_cotangent) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(1, 1), 3), true);
    CHECK(ct_backward(ct_mul(x, x)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1, 1), 0, 6);
}

TEST(without_a_differentiable_path_backward_is_an_error) {
    ct_tensor *x = F32(CT_DIMS(1), 3), *w = ct_set_requires_grad(F32(CT_DIMS(1), 3), true), *y = NULL, *g;
    CHECK(!ct_backward(ct_mul(x, x)));
    CHECK_ERROR(CT_ERR_GRAD, "backward: y is f32[1] and depends on no tensor that requires grad (was it computed under "
                             "ct_no_grad, or from detached tensors?)");
    ct_no_grad {
        y = ct_mul(w, w);
    }
    CHECK(!ct_requires_grad(y));
    CHECK(!ct_backward(y));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
    CHECK(!ct_backward(NULL));
    CHECK_ERROR(CT_ERR_NULL, "backward: argument y is NULL");
    y = ct_mul(w, w);
    CHECK(!ct_grad(&y, 1, NULL, &x, 1, &g, 0));
    CHECK_ERROR(CT_ERR_GRAD,
                "grad: x 0, f32[1], does not require grad; call ct_set_requires_grad before computing with it");
    CHECK(!ct_grad(&y, 0, NULL, &w, 1, &g, 0));
    CHECK_ERROR(CT_ERR_VALUE, "grad: it takes at least one y and one x, not 0 and 1");
}

TEST(a_second_pass_needs_the_graph_retained) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *y = ct_sum(ct_mul(x, x));
    CHECK(ct_backward_from(y, NULL, CT_RETAIN_GRAPH));
    CHECK(ct_backward_from(y, NULL, CT_RETAIN_GRAPH));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 4, 8);
    CHECK(ct_backward(y));
    CHECK(!ct_backward(y));
    CHECK_ERROR(CT_ERR_GRAD, "mul: backward has run through this graph already and released what it saved; pass "
                             "CT_RETAIN_GRAPH to the first pass");
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 6, 12);
}

TEST(backward_releases_what_it_saved_as_it_goes) {
    enum { N = 1 << 16, DEPTH = 20 };
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(N)), true), *y = NULL;
    ct_scope {
        ct_tensor *h = x;
        for (int i = 0; i < DEPTH; i++) h = ct_tanh(h);
        y = ct_pass(ct_sum(h));
    }
    int64_t saved = harness_memory().in_use;
    CHECK(ct_backward(y));
    CHECK(harness_memory().in_use < saved - (DEPTH - 2) * N * (int64_t)sizeof(float));
}

TEST(nothing_is_recorded_under_no_grad) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(1), 1), true);
    CHECK(ct_grad_enabled());
    ct_no_grad {
        CHECK(!ct_grad_enabled());
        ct_no_grad {
            CHECK(!ct_requires_grad(ct_exp(x)));
        }
        CHECK(!ct_grad_enabled());
    }
    CHECK(ct_grad_enabled());
    CHECK(ct_requires_grad(ct_exp(x)));
    CHECK(ct_is_leaf(x) && !ct_is_leaf(ct_exp(x)));
}

static double leaves_no_grad_early(ct_tensor *x) {
    ct_no_grad {
        return ct_item(x);
    }
    return 0;
}

TEST(an_early_return_restores_the_mode) {
    leaves_no_grad_early(ct_ones(CT_DIMS(1)));
    CHECK(ct_grad_enabled());
}

TEST(requiring_grad_of_a_computed_tensor_changes_nothing) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(1), 2), true), *y = ct_mul(x, x);
    CHECK(ct_set_requires_grad(y, true) == y && !ct_is_leaf(y));
    CHECK(ct_set_requires_grad(x, true) == x);
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1), 0, 4);
    CHECK(ct_grad_of(y) == NULL);
}

TEST(a_batch_of_nothing_flows_through_a_network_and_back) {
    ct_tensor *x = ct_zeros(CT_DIMS(0, 5)), *w1 = ct_set_requires_grad(ct_ones(CT_DIMS(5, 4)), true),
              *b = ct_set_requires_grad(ct_ones(CT_DIMS(4)), true);
    ct_tensor *w2 = ct_set_requires_grad(ct_ones(CT_DIMS(4, 3)), true), *h = ct_relu(ct_add(ct_matmul(x, w1), b));
    ct_tensor *scores = ct_log_softmax(ct_matmul(h, w2), -1),
              *loss = ct_neg(ct_sum(ct_gather(scores, 1, ct_zeros(CT_DIMS(0, 1), .dtype = CT_I64))));
    CHECK(ct_item(loss) == 0);
    REQUIRE(ct_backward(loss));
    CHECK(ct_item(ct_sum(ct_abs(ct_grad_of(w1)))) == 0 && ct_dim(ct_grad_of(w1), 0) == 5);
    CHECK_VALUES(ct_grad_of(b), CT_DIMS(4), 0, 0, 0, 0, 0);
    CHECK(ct_item(ct_sum(ct_abs(ct_grad_of(w2)))) == 0);
}

TEST(identity_paths_keep_the_graph) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, 3, 4), true);
    ct_tensor *all[] = {ct_cast(x, CT_F64),
                        ct_reshape(x, CT_DIMS(2, 2)),
                        ct_contiguous(x),
                        ct_expand(x, CT_DIMS(2, 2)),
                        ct_squeeze(x),
                        ct_clone(x),
                        ct_narrow(x, 0, 0, 2),
                        ct_permute(x, CT_DIMS(0, 1)),
                        ct_flatten(x, .start = 1)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ct_tensor *y = ct_sum(ct_mul(all[i], all[i])), *g;
        REQUIRE(ct_requires_grad(all[i]) && ct_grad(&y, 1, NULL, &x, 1, &g, 0));
        CHECK_VALUES(g, CT_DIMS(2, 2), 0, 2, 4, 6, 8);
    }
}

TEST(masked_scores_get_zero_gradients_not_nan) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 3), 1, -INFINITY, 2, -INFINITY, 0.5, -INFINITY), true),
              *c = F64(CT_DIMS(2, 3), 1, 0, 2, 0, 3, 0);
    ct_tensor *all[] = {ct_softmax(x, 1), ct_exp(ct_log_softmax(x, 1)), ct_exp(x)};
    for (int i = 0; i < 3; i++) {
        ct_tensor *y = ct_sum(ct_mul(all[i], c)), *g, *h;
        REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
        CHECK(ct_item(ct_any(ct_isnan(g))) == 0 && harness_at(g, 1) == 0 && harness_at(g, 5) == 0);
        y = ct_sum(ct_mul(g, c));
        REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &h, 0));
        CHECK(ct_item(ct_any(ct_isnan(h))) == 0);
    }
}

/* ---- Ops without gradients ---- */

TEST(integer_results_carry_no_gradient) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true);
    CHECK(!ct_requires_grad(ct_gt(x, x)));
    CHECK(!ct_requires_grad(ct_cast(x, CT_I32)));
    CHECK(!ct_requires_grad(ct_argmax(x)));
}

TEST(a_gradient_of_integers_and_a_cotangent_of_the_wrong_shape_are_refused_for_constants_too) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *g, *y = ct_argmax(x), *c = ct_ones(CT_DIMS(3));
    CHECK(!ct_grad(&y, 1, NULL, &x, 1, &g, 0));
    CHECK_ERROR(CT_ERR_GRAD, "grad: y is i64[]; only floats have gradients");
    y = ct_detach(x);
    CHECK(!ct_grad(&y, 1, &c, &x, 1, &g, 0));
    CHECK_ERROR(CT_ERR_SHAPE, "grad: the cotangent is f32[3] and has to be like y, f32[2]");
}

TEST(a_cast_to_integers_and_back_says_that_it_is_no_path) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *y = ct_sum(ct_cast(ct_cast(x, CT_I32), CT_F32));
    CHECK(!ct_backward(y));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(steps_have_gradient_zero_everywhere) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(3), 0.3, -1.7, 2.5), true);
    ct_tensor *all[] = {ct_floor(x), ct_ceil(x), ct_round(x), ct_trunc(x), ct_sign(x)};
    for (int i = 0; i < 5; i++) {
        ct_tensor *y = ct_sum(all[i]), *g;
        REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, 0));
        CHECK_VALUES(g, CT_DIMS(3), 0, 0, 0, 0);
    }
}

/* ---- Hooks ---- */

typedef struct hook_record {
    int calls, released;
    double sum;
    ct_tensor *replacement;
} hook_record;

static ct_tensor *note_gradient(void *context, ct_tensor *grad) {
    hook_record *record = context;
    record->calls++;
    record->sum = ct_item(ct_sum(grad));
    return record->replacement;
}
static void note_release(void *context) { ((hook_record *)context)->released++; }
static ct_tensor *double_gradient(void *context, ct_tensor *grad) {
    (void)context;
    return ct_mul_s(grad, 2);
}
static ct_tensor *wrong_shape(void *context, ct_tensor *grad) {
    (void)context;
    (void)grad;
    return ct_ones(CT_DIMS(17));
}

TEST(a_leafs_hook_fires_once_with_the_complete_gradient) {
    hook_record record = {0};
    ct_scope {
        ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
        REQUIRE(ct_hook(x, note_gradient, &record, note_release));
        ct_tensor *y = ct_add(ct_mul(x, x), ct_add(ct_mul_s(x, 10), x));
        CHECK(ct_backward(ct_sum(y)));
        CHECK(record.calls == 1);
        CHECK(record.sum == 2 + 4 + 22);
        CHECK(ct_backward(ct_sum(x))); /* once per pass */
        CHECK(record.calls == 2 && record.sum == 2);
        CHECK(record.released == 0);
    }
    CHECK(record.released == 1);
}

/* What a hook has seen, in order. */
static const char *order[16];
static int order_count;
static ct_tensor *note(void *context, ct_tensor *grad) {
    (void)grad;
    if (order_count < 16) order[order_count++] = context;
    return NULL;
}
static void watch(ct_tensor *x, const char *name) { CHECK(ct_hook(x, note, (void *)(size_t)name, NULL)); }
static void check_order(const char *expected) {
    char text[128] = "";
    for (int i = 0; i < order_count; i++) strcat(strcat(text, i ? " " : ""), order[i]);
    CHECK_TEXT(text, expected);
    order_count = 0;
}

TEST(a_leafs_hook_fires_as_soon_as_its_gradient_is_complete) {
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *w[4], *h[4];
    static const char *const names[] = {"w0", "w1", "w2", "w3"}, *const inner[] = {"h0", "h1", "h2", "h3"};
    for (int i = 0; i < 4; i++) w[i] = ct_set_requires_grad(F32(CT_DIMS(2), 2, 3), true);
    for (int i = 0; i < 4; i++) watch(w[i], names[i]);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 4; i++) watch(h[i] = ct_mul(i ? h[i - 1] : x, w[i]), inner[i]);
        CHECK(ct_backward(ct_sum(h[3])));
        check_order("h3 w3 h2 w2 h1 w1 h0 w0"); /* each weight before the layer below is gone through */
    }
    CHECK_VALUES(ct_grad_of(w[1]), CT_DIMS(2), 0, 16, 108); /* twice x w0 w2 w3 */
    /* one that is used twice waits for both; what it leads to beside the loss does not count */
    watch(h[0] = ct_mul(x, w[0]), "h0");
    watch(h[1] = ct_mul(h[0], w[1]), "h1");
    watch(h[2] = ct_mul(h[1], w[0]), "h2");
    CHECK(ct_backward(ct_sum(h[2])));
    check_order("h2 h1 w1 h0 w0");
    watch(h[1] = ct_mul(h[0] = ct_mul(x, w[0]), w[1]), "h1");
    ct_tensor *aside = ct_exp(w[1]);
    CHECK(ct_backward_from(ct_sum(h[1]), ct_scalar(1, CT_F32), CT_RETAIN_GRAPH) && aside);
    check_order("h1 w1 w0");
}

static ct_tensor *note_pass(void *context, ct_tensor *grad) {
    (void)grad;
    *(int *)context = ct_backward_accumulates() ? 1 : -1;
    return NULL;
}

TEST(a_hook_knows_whether_its_pass_adds_to_leaves) {
    int seen = 0;
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *y, *g = NULL;
    REQUIRE(ct_hook(x, note_pass, &seen, NULL));
    CHECK(ct_backward(ct_sum(ct_square(x))) && seen == 1 && !ct_backward_accumulates());
    CHECK((y = ct_sum(ct_square(x))) && ct_grad(&y, 1, NULL, &x, 1, &g, 0) && seen == -1);
}

TEST(a_hook_replaces_the_gradient) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *h = ct_mul_s(x, 3);
    REQUIRE(ct_hook(h, double_gradient, NULL, NULL)); /* of an inner tensor: what goes on below it */
    REQUIRE(ct_hook(h, double_gradient, NULL, NULL)); /* and once more */
    CHECK(ct_backward(ct_sum(h)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 12, 12);
}

TEST(a_hook_that_returns_another_shape_is_an_error) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
    REQUIRE(ct_hook(x, wrong_shape, NULL, NULL));
    CHECK(!ct_backward(ct_sum(x)));
    CHECK_ERROR(CT_ERR_SHAPE, "hook: it was given f64[2] and returned f32[17]");
    CHECK(ct_grad_of(x) == NULL);
}

TEST(a_hook_that_is_refused_is_released_at_once) {
    hook_record record = {0};
    CHECK(!ct_hook(F32(CT_DIMS(1), 1), note_gradient, &record, note_release));
    CHECK_ERROR(CT_ERR_GRAD, "hook: x does not require grad, so no gradient will come by");
    CHECK(record.released == 1);
}

TEST(hooks_are_differentiable_with_the_rest) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 3), true), *h = ct_mul(x, x), *g, *gg;
    REQUIRE(ct_hook(h, double_gradient, NULL, NULL));
    ct_tensor *y = ct_sum(h);
    REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
    CHECK_VALUES(g, CT_DIMS(1), 0, 12);
    REQUIRE(ct_grad(&g, 1, NULL, &x, 1, &gg, 0));
    CHECK(ct_ok());
}

/* ---- Anomaly mode ---- */

TEST(anomaly_mode_names_the_op_that_made_the_first_nan) {
    bool before = ct_set_anomaly(true);
    ct_tensor *x = F32(CT_DIMS(2), 1, -1);
    CHECK(ct_add(ct_log(x), x) == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "log: anomaly: the first NaN was born here, from f32[2]");
    CHECK(ct_add(F32(CT_DIMS(1), NAN), F32(CT_DIMS(1), 1)) != NULL); /* not born here */
    CHECK(ct_set_anomaly(before));
    CHECK(ct_log(x) != NULL && ct_ok());
}

TEST(anomaly_mode_finds_a_nan_of_the_backward_pass) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 4, 0), true);
    ct_tensor *y = ct_sum(ct_mul(ct_sqrt(x), F32(CT_DIMS(2), 1, 0))); /* 0 * inf at x = 0 */
    bool before = ct_set_anomaly(true);
    CHECK(!ct_backward(y));
    CHECK(ct_error_code() == CT_ERR_GRAD || ct_error_code() == CT_ERR_VALUE);
    CHECK(strstr(ct_error(), "sqrt") != NULL && strstr(ct_error(), "anomaly") != NULL);
    ct_error_clear();
    ct_set_anomaly(before);
}

/* ---- Depth ---- */

static void grow_and_free(int64_t length) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(1), .dtype = CT_F64), true),
              *one = ct_ones(CT_DIMS(1), .dtype = CT_F64), *y = ct_keep(x);
    for (int64_t i = 0; i < length; i++) {
        ct_tensor *next = NULL;
        ct_scope {
            next = ct_keep(i % 2 ? ct_neg(y) : ct_mul(y, one));
        }
        ct_drop(y);
        y = next;
        if (!y) break;
    }
    REQUIRE(y != NULL);
    CHECK(ct_backward_from(y, NULL, CT_RETAIN_GRAPH));
    ct_tensor *g = NULL;
    ct_scope {
        CHECK(ct_grad(&y, 1, NULL, &x, 1, &g, 0));
        CHECK(fabs(ct_item(g)) == 1);
    }
    ct_drop(y);
}

TEST_LIMIT(a_chain_of_a_million_ops_runs_backward_and_is_freed_on_a_small_stack, 120) {
    struct rlimit limit = {.rlim_cur = 256 << 10, .rlim_max = 256 << 10};
    REQUIRE(setrlimit(RLIMIT_STACK, &limit) == 0);
    grow_and_free(harness_sanitized() ? 100000 : 1000000);
}

TEST(a_tensor_with_a_thousand_uses) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(2), .dtype = CT_F64), true),
              *y = ct_zeros(CT_DIMS(2), .dtype = CT_F64);
    for (int i = 0; i < 1000; i++) y = ct_add(y, ct_mul_s(x, i));
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 499500, 499500);
}

/* ---- A vjp that is wrong ---- */

static bool like_input(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static void twice(ct_lower *l) { l->out[0] = ct_add(l->in[0], l->in[0]); }
static void scalar_gradient(ct_vjp *v) { v->grad[0] = ct_sum(v->cot[0]); }
static const ct_arg input[] = {{"x", 0}, {NULL, 0}}, output[] = {{"y", 0}, {NULL, 0}};
static ct_op_slot slot;
static const ct_op misshapen = {.size = sizeof(ct_op),
                                .name = "misshapen",
                                .doc = "",
                                .inputs = input,
                                .outputs = output,
                                .infer = like_input,
                                .lower = twice,
                                .vjp = scalar_gradient,
                                .slot = &slot};

TEST(a_gradient_of_the_wrong_shape_is_an_error_that_names_the_op) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *y;
    REQUIRE(ct_op_register(&misshapen) && ct_apply(&misshapen, &x, 1, NULL, &y, 1));
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_GRAD, "misshapen: its vjp gave f32[] as the gradient of input 0, which is f32[2]");
}

static void reads_unsaved(ct_vjp *v) { v->grad[0] = ct_mul(v->cot[0], v->in[0]); }
static ct_op_slot unsaved_slot;
static const ct_op unsaved = {.size = sizeof(ct_op),
                              .name = "unsaved",
                              .doc = "",
                              .inputs = input,
                              .outputs = output,
                              .infer = like_input,
                              .lower = twice,
                              .vjp = reads_unsaved,
                              .slot = &unsaved_slot};

TEST(a_vjp_that_reads_what_its_op_does_not_save_is_an_error) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *y;
    REQUIRE(ct_op_register(&unsaved) && ct_apply(&unsaved, &x, 1, NULL, &y, 1));
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_STATE,
                "unsaved: b has a shape but no data: a vjp reads only what its op saves (in mul, in its gradient)");
}

TEST(a_leaf_that_was_frozen_between_forward_and_backward_gets_its_gradient_when_it_is_wanted_again) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *y = ct_sum(ct_square(x));
    CHECK(ct_set_requires_grad(x, false) && !ct_requires_grad(x) && !ct_grad_of(x));
    CHECK(ct_set_requires_grad(x, true) == x);
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, 2, 4);
    CHECK(ct_set_requires_grad(x, false) && !ct_grad_of(x));
    ct_set_requires_grad(x, true);
    CHECK(!ct_grad_of(x)); /* forgotten */
    y = ct_sum(ct_square(x));
    CHECK(ct_set_requires_grad(x, false) && ct_backward(y));
    ct_set_requires_grad(x, true);
    CHECK(!ct_grad_of(x)); /* it arrived while it was not wanted */
}

static int64_t kept_by(ct_activation activation) {
    const ct_device cpu = {CT_CPU, 0};
    ct_memory before = {.size = sizeof before}, after = {.size = sizeof after};
    ct_tensor *x = ct_ones(CT_DIMS(512, 8)), *w = ct_set_requires_grad(ct_ones(CT_DIMS(512, 8)), true);
    ct_memory_stats(cpu, &before);
    ct_tensor *sum = NULL;
    ct_scope {
        sum = ct_pass(ct_sum(ct_linear(x, w, .activation = activation)));
    }
    ct_memory_stats(cpu, &after);
    CHECK(ct_backward(sum) && ct_item(ct_sum(ct_grad_of(w))) == 512 * 512 * 8);
    return after.in_use - before.in_use;
}

TEST(linear_keeps_its_result_for_an_activation_only) {
    const int64_t bytes = 512 * 512 * 4;
    CHECK(kept_by(CT_ACT_RELU) >= bytes);
    CHECK(kept_by(CT_ACT_NONE) < bytes);
}
