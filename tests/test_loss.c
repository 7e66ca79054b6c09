/* Losses: empty batches, ignored targets, large logits, gradients of every floating argument, what is refused. */
#include <math.h>

#include "tests/harness.h"

/* ---- Edges ---- */

TEST(an_empty_batch_has_a_sum_but_no_mean) {
    ct_tensor *x = ct_set_requires_grad(ct_zeros(CT_DIMS(0, 3)), true), *t = ct_zeros(CT_DIMS(0), .dtype = CT_I64);
    CHECK(!ct_cross_entropy_loss(x, t));
    CHECK_ERROR(CT_ERR_SHAPE,
                "cross_entropy_loss: x is f32[0,3]: there is no mean over an empty batch (reduction sum gives 0)");
    ct_tensor *y = ct_cross_entropy_loss(x, t, .reduction = CT_SUM);
    CHECK_NEAR(ct_item(y), 0, 0);
    CHECK(ct_backward(y));
    CHECK(!ct_mse_loss(x, x));
    CHECK_ERROR(CT_ERR_SHAPE, "mse_loss: x is f32[0,3]: there is no mean over an empty batch (reduction sum gives 0)");
    CHECK_NEAR(ct_item(ct_mse_loss(x, x, .reduction = CT_SUM)), 0, 0);
}

TEST(when_all_targets_are_ignored_the_mean_is_0_and_so_are_its_gradients) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 3), 1, NAN, 3, 4, 5, INFINITY), true),
              *t = I64(CT_DIMS(2), -100, -100);
    ct_tensor *y = ct_cross_entropy_loss(x, t, .label_smoothing = 0.1);
    CHECK_NEAR(ct_item(y), 0, 0);
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 3), 0, 0, 0, 0, 0, 0, 0);
}

TEST(an_ignored_target_changes_nothing_but_its_own_row) {
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(3, 4), .dtype = CT_F64), true), *t = I64(CT_DIMS(3), 1, 2, 0);
    ct_tensor *y = ct_cross_entropy_loss(x, t, .ignore_index = CT_SET(2));
    ct_tensor *rest = ct_cat(((ct_tensor *[]){ct_narrow(x, 0, 0, 1), ct_narrow(x, 0, 2, 1)}), 2, 0);
    CHECK_NEAR(ct_item(y), ct_item(ct_cross_entropy_loss(rest, I64(CT_DIMS(2), 1, 0))), 4 * 0x1p-52);
    CHECK(ct_backward(y));
    for (int i = 4; i < 8; i++) CHECK(harness_at(ct_grad_of(x), i) == 0);
    CHECK(harness_at(ct_grad_of(x), 0) != 0);
}

/* ---- Large logits ---- */

TEST(logits_of_ten_thousand_are_as_exact_as_small_ones) {
    /* the same differences, far away: 1e4 has a spacing of 2^-10 in f32, so these are exact */
    ct_tensor *small = ct_set_requires_grad(F32(CT_DIMS(1, 3), 0, 0.5, -1), true), *t = I64(CT_DIMS(1), 2);
    ct_tensor *large = ct_set_requires_grad(F32(CT_DIMS(1, 3), 1e4, 1e4 + 0.5, 1e4 - 1), true);
    ct_tensor *a = ct_cross_entropy_loss(small, t), *b = ct_cross_entropy_loss(large, t);
    CHECK_NEAR(ct_item(b), ct_item(a), 2 * 0x1p-24 * 2);
    CHECK(ct_backward(a) && ct_backward(b));
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(harness_at(ct_grad_of(large), i), harness_at(ct_grad_of(small), i), 4 * 0x1p-24);
}

TEST(losses_of_logits_of_ten_thousand_are_finite_with_finite_gradients) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(4), 1e4, -1e4, 1e4, -1e4), true), *t = F32(CT_DIMS(4), 1, 1, 0, 0);
    ct_tensor *bce = ct_bce_with_logits_loss(x, t, .reduction = CT_NONE);
    CHECK_VALUES(bce, CT_DIMS(4), 0, 0, 1e4, 1e4, 0);
    CHECK(ct_backward(ct_sum(bce)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(4), 0, 0, -1, 1, 0);
    ct_set_grad(x, NULL);
    ct_tensor *focal = ct_focal_loss(x, t, .reduction = CT_NONE, .gamma = CT_SET(0.5));
    CHECK_VALUES(focal, CT_DIMS(4), 0.01, 0, 0.25e4, 0.75e4, 0);
    CHECK(ct_backward(ct_sum(focal)));
    for (int i = 0; i < 4; i++) CHECK(isfinite(harness_at(ct_grad_of(x), i)));
    ct_tensor *rows = ct_set_requires_grad(F32(CT_DIMS(2, 3), 1e4, -1e4, 0, -1e4, -1e4, 1e4), true);
    ct_tensor *ce = ct_cross_entropy_loss(rows, I64(CT_DIMS(2), 1, 2), .reduction = CT_NONE);
    CHECK_VALUES(ce, CT_DIMS(2), 0, 2e4, 0);
    CHECK(ct_backward(ct_sum(ce)));
    CHECK_VALUES(ct_grad_of(rows), CT_DIMS(2, 3), 0, 1, -1, 0, 0, 0, 0);
}

/* ---- Large gradients, which are written past the caches ---- */

TEST(large_gradients_are_those_of_their_rows) {
    for (int columns = 1024; columns <= 5008; columns += 3984) { /* 5008: longer than what is kept of a row */
        ct_scope {
            ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(2111, columns)), true),
                      *t = ct_randint(CT_DIMS(2111), 0, columns);
            ct_tensor *some = ct_set_requires_grad(ct_clone(ct_narrow(ct_detach(x), 0, 1000, 20)), true);
            ct_tensor *y = ct_cross_entropy_loss(x, t, .reduction = CT_SUM),
                      *few = ct_cross_entropy_loss(some, ct_narrow(t, 0, 1000, 20), .reduction = CT_SUM);
            CHECK(ct_backward(y) && ct_backward(few));
            CHECK(harness_same_bits(ct_clone(ct_narrow(ct_grad_of(x), 0, 1000, 20)), ct_grad_of(some)));
            /* and a row of probabilities less a one sums to 0 */
            ct_tensor *sums = ct_sum(ct_grad_of(x), .axes = CT_DIMS(1));
            CHECK_NEAR(ct_item(ct_amax(ct_abs(sums))), 0, 8 * 0x1p-24 * 4);
        }
    }
}

/* ---- Gradients of the other arguments ---- */

static ct_tensor *weighted(void *context, ct_tensor *const *in, int n) {
    (void)context, (void)n;
    return ct_cross_entropy_loss(in[0], I64(CT_DIMS(3), 1, 3, 0), .weight = in[1], .label_smoothing = 0.2);
}
static ct_tensor *soft(void *context, ct_tensor *const *in, int n) {
    (void)context, (void)n;
    return ct_cross_entropy_loss(in[0], in[1], .weight = in[2], .label_smoothing = 0.1);
}

TEST(class_weights_and_probabilities_have_gradients_to_second_order) {
    ct_tensor *x = ct_randn(CT_DIMS(3, 4), .dtype = CT_F64), *w = ct_add_s(ct_rand(CT_DIMS(4), .dtype = CT_F64), 0.5),
              *q = ct_rand(CT_DIMS(3, 4), .dtype = CT_F64);
    struct {
        ct_tensor *(*loss)(void *, ct_tensor *const *, int);
        ct_tensor *in[3];
        int n;
    } cases[] = {{weighted, {x, w}, 2}, {soft, {x, q, w}, 3}};
    for (int k = 0; k < 2; k++) {
        ct_tensor *xs[3], *g[3], *h[3];
        for (int i = 0; i < cases[k].n; i++) xs[i] = ct_set_requires_grad(ct_clone(cases[k].in[i]), true);
        ct_tensor *y = cases[k].loss(NULL, xs, cases[k].n);
        REQUIRE(ct_grad(&y, 1, NULL, xs, cases[k].n, g, CT_CREATE_GRAPH));
        ct_tensor *total = NULL, *directions[3];
        for (int i = 0; i < cases[k].n; i++) {
            directions[i] = ct_randn(ct_shape(xs[i]), .dtype = CT_F64);
            ct_tensor *term = ct_sum(ct_mul(g[i], directions[i]));
            total = total ? ct_add(total, term) : term;
        }
        /* first order along the directions, second order along them again, against central differences: d is right to about
         * step^2, and d2 to 1e-16 / step^2 */
        const double step = 1e-4;
        double f[3];
        for (int s = -1; s <= 1; s++) {
            ct_tensor *moved[3];
            for (int i = 0; i < cases[k].n; i++) moved[i] = ct_add(ct_detach(xs[i]), ct_mul_s(directions[i], s * step));
            f[s + 1] = ct_item(cases[k].loss(NULL, moved, cases[k].n));
        }
        CHECK_NEAR(ct_item(total), (f[2] - f[0]) / (2 * step), 1e-6);
        REQUIRE(ct_grad(&total, 1, NULL, xs, cases[k].n, h, 0));
        double second = 0;
        for (int i = 0; i < cases[k].n; i++) second += ct_item(ct_sum(ct_mul(h[i], directions[i])));
        CHECK_NEAR(second, (f[2] - 2 * f[1] + f[0]) / (step * step), 1e-5);
    }
}

/* ---- ctc ---- */

/* Two steps, labels {blank, 1}: the paths of "1" are 11, b1 and 1b. */
TEST(ctc_sums_the_paths_of_a_target) {
    ct_tensor *p = F64(CT_DIMS(2, 1, 2), 0.25, 0.75, 0.5, 0.5);
    ct_tensor *y = ct_ctc_loss(ct_log(p), I64(CT_DIMS(1, 1), 1), .reduction = CT_SUM);
    CHECK_NEAR(ct_item(y), -log(0.75 * 0.5 + 0.25 * 0.5 + 0.75 * 0.5), 1e-15);
    /* "11" needs a blank between: no path of two steps */
    ct_tensor *none = ct_ctc_loss(ct_log(p), I64(CT_DIMS(1, 2), 1, 1), .reduction = CT_NONE);
    CHECK(isinf(ct_item(none)));
    ct_tensor *x = ct_set_requires_grad(ct_log(p), true);
    ct_tensor *zero = ct_ctc_loss(x, I64(CT_DIMS(1, 2), 1, 1), .zero_infinity = true);
    CHECK_NEAR(ct_item(zero), 0, 0);
    CHECK(ct_backward(zero));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 1, 2), 0, 0, 0, 0, 0);
}

TEST(ctc_of_a_long_sequence_is_finite) {
    ct_tensor *x = ct_set_requires_grad(ct_log_softmax(ct_randn(CT_DIMS(400, 2, 30)), -1), true);
    ct_tensor *y = ct_ctc_loss(x, ct_randint(CT_DIMS(2, 60), 1, 30));
    CHECK(isfinite(ct_item(y)));
    ct_tensor *g;
    CHECK(ct_grad(&y, 1, NULL, &x, 1, &g, 0));
    /* each step's posterior sums to 1, over lengths and batch: -1 / (60 * 2) */
    ct_tensor *sums = ct_sum(g, .axes = CT_DIMS(2));
    CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_add_s(sums, 1.0 / 120)))), 0, 1e-5 / 120);
}

/* ---- Errors ---- */

TEST(what_a_loss_cannot_take_is_said) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3)), *t = I64(CT_DIMS(2), 1, 3);
    CHECK(!ct_cross_entropy_loss(x, t));
    CHECK_ERROR(CT_ERR_INDEX, "cross_entropy_loss: target is 3 at element 1; it has to be in 0 to 2");
    CHECK(!ct_nll_loss(x, I64(CT_DIMS(2), -1, 0)));
    CHECK_ERROR(CT_ERR_INDEX, "nll_loss: target is -1 at element 0; it has to be in 0 to 2");
    CHECK(!ct_cross_entropy_loss(x, I64(CT_DIMS(3), 0, 0, 0)));
    CHECK_ERROR(CT_ERR_SHAPE, "cross_entropy_loss: target is i64[3]; x is f32[2,3], so class indices are [2]");
    CHECK(!ct_cross_entropy_loss(x, ct_zeros(CT_DIMS(2), .dtype = CT_U8)));
    CHECK_ERROR(CT_ERR_DTYPE,
                "cross_entropy_loss: target is u8[2]; class indices are i32 or i64, probabilities floating");
    CHECK(!ct_cross_entropy_loss(x, I64(CT_DIMS(2), 0, 0), .weight = ct_ones(CT_DIMS(2))));
    CHECK_ERROR(CT_ERR_SHAPE,
                "cross_entropy_loss: weight is f32[2]; x is f32[2,3], so it has to be [3], one value a class");
    CHECK(!ct_cross_entropy_loss(x, I64(CT_DIMS(2), 0, 0), .label_smoothing = 1.5));
    CHECK_ERROR(CT_ERR_VALUE, "cross_entropy_loss: label_smoothing is 1.5; it has to be between 0 and 1");
    CHECK(!ct_huber_loss(x, x, .delta = -1));
    CHECK_ERROR(CT_ERR_VALUE, "huber_loss: delta is -1; it has to be positive");
    CHECK(!ct_mse_loss(x, ct_zeros(CT_DIMS(2))));
    CHECK_ERROR(CT_ERR_SHAPE, "mse_loss: shapes do not broadcast: x is f32[2,3], target is f32[2] (3 vs 2)");
    ct_tensor *steps = ct_zeros(CT_DIMS(4, 2, 3)), *labels = I64(CT_DIMS(2, 2), 1, 2, 1, 2);
    CHECK(!ct_ctc_loss(steps, labels, .blank = 3));
    CHECK_ERROR(CT_ERR_VALUE, "ctc_loss: blank is 3; there are 3 classes");
    CHECK(!ct_ctc_loss(steps, I64(CT_DIMS(2, 1), 1, 3)));
    CHECK_ERROR(CT_ERR_INDEX, "ctc_loss: targets is 3 at element 1; it has to be in 0 to 2");
    CHECK(!ct_ctc_loss(steps, labels, .input_lengths = I64(CT_DIMS(2), 4, 5)));
    CHECK_ERROR(CT_ERR_VALUE, "ctc_loss: input_lengths is 5 at element 1; it has to be in 1 to 4");
}

TEST(lengths_of_targets_behind_each_other_have_to_add_up) {
    ct_tensor *x = ct_zeros(CT_DIMS(5, 2, 4)), *lengths = I64(CT_DIMS(2), 2, 2);
    CHECK(ct_ctc_loss(x, I64(CT_DIMS(4), 1, 2, 3, 1), .target_lengths = lengths));
    CHECK(!ct_ctc_loss(x, I64(CT_DIMS(3), 1, 2, 3), .target_lengths = lengths));
    CHECK_ERROR(CT_ERR_VALUE, "ctc_loss: the sum of target_lengths is 4; it has to be 3");
}
