/* Dropout: what is dropped and how often, the same numbers forwards, backwards and again, identity where nothing is dropped. */
#include <math.h>

#include "tests/harness.h"

static double share_of_zeros(ct_tensor *y) {
    return 1 - ct_item(ct_cast(ct_count_nonzero(y), CT_F64)) / (double)ct_numel(y);
}

TEST(elements_are_dropped_with_probability_p_and_the_others_scaled) {
    ct_tensor *y = ct_dropout(ct_ones(CT_DIMS(400, 1000)), 0.3);
    /* binomial: five deviations of sqrt(p (1 - p) / n) */
    CHECK_NEAR(share_of_zeros(y), 0.3, 5 * sqrt(0.3 * 0.7 / 400000));
    CHECK_NEAR(ct_item(ct_amax(y)), 1 / 0.7, 1e-6);
    CHECK_NEAR(ct_item(ct_mean(y)), 1, 5 * sqrt(0.3 / 0.7 / 400000));
}

TEST(the_gradient_drops_what_the_result_dropped) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(37, 53)), true), *y = ct_dropout(x, 0.6);
    CHECK(ct_backward(ct_sum(y)));
    CHECK(harness_same_bits(ct_detach(y), ct_grad_of(x)));
}

TEST(the_same_seed_drops_the_same_and_the_next_call_others) {
    ct_tensor *x = ct_ones(CT_DIMS(1000));
    ct_seed(7);
    ct_tensor *a = ct_dropout(x, 0.5), *b = ct_dropout(x, 0.5);
    ct_seed(7);
    ct_tensor *c = ct_dropout(x, 0.5);
    CHECK(harness_same_bits(a, c));
    CHECK(!harness_same_bits(a, b));
    ct_rng *one = ct_rng_new(3, 1), *two = ct_rng_new(3, 1);
    ct_tensor *d = ct_dropout(x, 0.5, .rng = one), *e = ct_dropout(x, 0.5, .rng = two);
    CHECK(harness_same_bits(d, e));
    CHECK(!harness_same_bits(a, d));
    ct_rng_free(one);
    ct_rng_free(two);
}

TEST(layout_does_not_change_what_is_dropped) {
    ct_tensor *x = ct_ones(CT_DIMS(31, 45));
    ct_seed(1);
    ct_tensor *a = ct_dropout(x, 0.5);
    ct_seed(1);
    ct_tensor *b = ct_dropout(ct_transpose(ct_ones(CT_DIMS(45, 31)), 0, 1), 0.5);
    CHECK(harness_same_bits(a, ct_contiguous(b)));
}

TEST(nothing_is_dropped_in_evaluation_or_with_p_0_and_the_graph_goes_on) {
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(5)), true),
              *same[] = {ct_dropout(x, 0), ct_dropout(x, 0.5, .eval = true), ct_alpha_dropout(x, 0)};
    for (int i = 0; i < 3; i++) {
        CHECK(harness_same_bits(ct_detach(x), ct_detach(same[i])));
        CHECK(ct_requires_grad(same[i]));
        CHECK(ct_backward(ct_sum(same[i])));
    }
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(5), 0, 3, 3, 3, 3, 3);
}

TEST(p_1_gives_zeros_even_of_infinities) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(3), INFINITY, NAN, 2), true), *y = ct_dropout(x, 1);
    CHECK_VALUES(y, CT_DIMS(3), 0, 0, 0, 0);
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(3), 0, 0, 0, 0);
}

TEST(channels_are_dropped_whole) {
    ct_tensor *y = ct_dropout2d(ct_ones(CT_DIMS(20, 50, 3, 4)), 0.5), *sums = ct_sum(y, .axes = CT_DIMS(2, 3));
    int dropped = 0;
    for (int i = 0; i < 1000; i++) {
        double sum = harness_at(sums, i);
        CHECK(sum == 0 || sum == 24);
        dropped += sum == 0;
    }
    CHECK_NEAR(dropped / 1000.0, 0.5, 5 * sqrt(0.25 / 1000));
    ct_tensor *last =
        ct_sum(ct_dropout3d(ct_ones(CT_DIMS(20, 2, 3, 2, 50)), 0.5, .channels_last = true), .axes = CT_DIMS(1, 2, 3));
    for (int i = 0; i < 1000; i++) CHECK(harness_at(last, i) == 0 || harness_at(last, i) == 24);
}

TEST(alpha_dropout_keeps_mean_and_variance) {
    ct_tensor *y = ct_alpha_dropout(ct_randn(CT_DIMS(1000, 400)), 0.4);
    CHECK_NEAR(ct_item(ct_mean(y)), 0, 0.01);
    CHECK_NEAR(ct_item(ct_var(y)), 1, 0.02);
}

TEST(stochastic_depth_drops_items_or_all) {
    ct_tensor *y = ct_stochastic_depth(ct_ones(CT_DIMS(1000, 4)), 0.25);
    for (int i = 0; i < 1000; i++) CHECK(harness_at(y, 4 * i) == harness_at(y, 4 * i + 3));
    CHECK_NEAR(share_of_zeros(y), 0.25, 5 * sqrt(0.25 * 0.75 / 1000));
    ct_tensor *all = ct_stochastic_depth(ct_ones(CT_DIMS(10, 4)), 0.5, .batch = true);
    double share = share_of_zeros(all);
    CHECK(share == 0 || share == 1);
}

static bool run_dropout(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    ct_scope {
        out[0] = ct_pass(ct_square(ct_dropout(in[0], 0.5)));
    }
    return out[0] != NULL;
}

TEST(a_checkpoint_draws_the_same_numbers_again) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(300)), true), *y = NULL;
    CHECK(ct_checkpoint(run_dropout, NULL, NULL, &x, 1, &y, 1));
    ct_dropout(x, 0.5); /* moves the stream on */
    CHECK(ct_backward(ct_sum(y)));
    for (int i = 0; i < 300; i++) CHECK(harness_at(y, i) * 2 == harness_at(ct_grad_of(x), i));
}

TEST(a_probability_outside_of_0_to_1_is_refused) {
    CHECK(!ct_dropout(ct_ones(CT_DIMS(3)), 1.5));
    CHECK_ERROR(CT_ERR_VALUE, "dropout: p is 1.5; a probability lies in [0, 1]");
    CHECK(!ct_dropout2d(ct_ones(CT_DIMS(3, 4, 5)), 0.5));
    CHECK_ERROR(CT_ERR_SHAPE, "dropout2d: x is f32[3,4,5]; it has to have 4 dimensions, [batch, channels, ...]");
}
