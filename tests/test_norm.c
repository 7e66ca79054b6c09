/* Normalization: running statistics, large offsets, the same results in both layouts, what is refused. */
#include <math.h>

#include "tests/harness.h"

/* ---- batch_norm: running statistics ---- */

TEST(training_moves_the_running_statistics) {
    ct_tensor *x = F32(CT_DIMS(2, 2, 2), 1, 3, 10, 10, 5, 7, 20, 20);
    ct_tensor *mean = F32(CT_DIMS(2), 1, 2), *var = F32(CT_DIMS(2), 1, 1);
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true, .momentum = CT_SET(0.25));
    /* channel 0: mean 4, unbiased variance 20/3; channel 1: mean 15, unbiased variance 100/3 */
    CHECK_VALUES(mean, CT_DIMS(2), 1e-6, 0.75 * 1 + 0.25 * 4, 0.75 * 2 + 0.25 * 15);
    CHECK_VALUES(var, CT_DIMS(2), 2e-6, 0.75 + 0.25 * 20 / 3, 0.75 + 0.25 * 100 / 3);
}

TEST(momentum_is_a_tenth_unless_given_and_zero_changes_nothing) {
    ct_tensor *x = F32(CT_DIMS(2, 1), 1, 3), *mean = F32(CT_DIMS(1), 0), *var = F32(CT_DIMS(1), 1);
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true);
    CHECK_VALUES(mean, CT_DIMS(1), 1e-7, 0.2);
    CHECK_VALUES(var, CT_DIMS(1), 1e-7, 0.9 + 0.2);
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true, .momentum = CT_SET(0));
    CHECK_VALUES(mean, CT_DIMS(1), 1e-7, 0.2);
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true, .momentum = CT_SET(1));
    CHECK_VALUES(mean, CT_DIMS(1), 0, 2);
    CHECK_VALUES(var, CT_DIMS(1), 0, 2);
}

TEST(inference_uses_the_running_statistics_and_leaves_them) {
    ct_tensor *x = F64(CT_DIMS(1, 2), 3, 8), *mean = F64(CT_DIMS(2), 1, 2), *var = F64(CT_DIMS(2), 4, 9);
    ct_tensor *y = ct_batch_norm(x, .running_mean = mean, .running_var = var, .eps = CT_SET(0));
    CHECK_VALUES(y, CT_DIMS(1, 2), 1e-15, 1, 2);
    CHECK_VALUES(mean, CT_DIMS(2), 0, 1, 2);
    CHECK_VALUES(var, CT_DIMS(2), 0, 4, 9);
}

TEST(gradients_of_inference_survive_a_later_change_of_the_statistics) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1, 1), 3), true), *mean = F64(CT_DIMS(1), 1),
              *var = F64(CT_DIMS(1), 4);
    ct_tensor *y = ct_batch_norm(x, .running_mean = mean, .running_var = var, .eps = CT_SET(0));
    ct_fill(var, 100);
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1, 1), 1e-15, 0.5);
}

TEST(half_running_statistics_are_changed_in_place) {
    ct_tensor *x = ct_cast(F32(CT_DIMS(2, 1), 1, 3), CT_BF16), *mean = ct_zeros(CT_DIMS(1), .dtype = CT_F16),
              *var = ct_ones(CT_DIMS(1), .dtype = CT_BF16);
    ct_tensor *y =
        ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true, .momentum = CT_SET(0.5));
    CHECK(ct_dtype_of(y) == CT_BF16);
    CHECK_VALUES(mean, CT_DIMS(1), 0, 1);
    CHECK_VALUES(var, CT_DIMS(1), 0, 1.5);
}

TEST(an_empty_batch_gives_an_empty_result_and_changes_no_statistics) {
    ct_tensor *x = ct_set_requires_grad(ct_zeros(CT_DIMS(0, 3, 4)), true),
              *w = ct_set_requires_grad(ct_ones(CT_DIMS(3)), true);
    ct_tensor *mean = F32(CT_DIMS(3), 1, 2, 3), *var = F32(CT_DIMS(3), 4, 5, 6);
    ct_tensor *y = ct_batch_norm(x, .running_mean = mean, .running_var = var, .weight = w, .training = true);
    REQUIRE(y != NULL);
    CHECK(ct_ndim(y) == 3 && ct_dim(y, 0) == 0 && ct_dim(y, 1) == 3 && ct_dim(y, 2) == 4);
    CHECK_VALUES(mean, CT_DIMS(3), 0, 1, 2, 3);
    CHECK_VALUES(var, CT_DIMS(3), 0, 4, 5, 6);
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(3), 0, 0, 0, 0);
}

typedef struct layer {
    ct_tensor *mean, *var, *weight;
} layer;

static bool run_layer(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    layer *l = context;
    ct_scope {
        out[0] = ct_pass(ct_tanh(ct_batch_norm(in[0], .running_mean = l->mean, .running_var = l->var,
                                               .weight = l->weight, .training = true)));
    }
    return out[0] != NULL;
}

TEST(a_checkpoint_updates_running_statistics_once) {
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(8, 3, 5)), true);
    layer plain = {ct_zeros(CT_DIMS(3)), ct_ones(CT_DIMS(3)), ct_set_requires_grad(ct_full(CT_DIMS(3), 1.5), true)};
    layer again = {ct_zeros(CT_DIMS(3)), ct_ones(CT_DIMS(3)), ct_set_requires_grad(ct_full(CT_DIMS(3), 1.5), true)};
    ct_tensor *y = NULL, *z = NULL;
    CHECK(run_layer(&plain, &x, 1, &y, 1));
    CHECK(ct_backward(ct_sum(y)));
    ct_tensor *expected = ct_clone(ct_grad_of(x));
    ct_set_grad(x, NULL);
    CHECK(ct_checkpoint(run_layer, &again, NULL, &x, 1, &z, 1));
    CHECK(ct_backward(ct_sum(z)));
    CHECK(harness_at(again.mean, 0) != 0);
    CHECK(harness_same_bits(plain.mean, again.mean));
    CHECK(harness_same_bits(plain.var, again.var));
    CHECK(harness_same_bits(expected, ct_grad_of(x)));
    CHECK(harness_same_bits(ct_grad_of(plain.weight), ct_grad_of(again.weight)));
}

static bool run_with_arguments(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    ct_scope {
        out[0] = ct_pass(ct_tanh(ct_batch_norm(in[0], .running_mean = in[1], .running_var = in[2], .training = true)));
    }
    return out[0] != NULL;
}

TEST(running_statistics_may_be_arguments_of_a_checkpoint) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 1), 1, 3), true), *mean = F32(CT_DIMS(1), 0),
              *var = F32(CT_DIMS(1), 1);
    ct_tensor *y = NULL;
    CHECK(ct_checkpoint(run_with_arguments, NULL, NULL, (ct_tensor *[]){x, mean, var}, 3, &y, 1));
    CHECK(ct_backward_from(ct_sum(y), NULL, CT_RETAIN_GRAPH));
    CHECK(ct_backward(ct_sum(y))); /* repeats it once more */
    CHECK_VALUES(mean, CT_DIMS(1), 1e-7, 0.2);
    CHECK_VALUES(var, CT_DIMS(1), 1e-7, 0.9 + 0.2);
}

TEST(a_change_in_place_of_a_checkpoints_argument_is_still_noticed) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 1), 1, 3), true), *mean = F32(CT_DIMS(1), 0),
              *var = F32(CT_DIMS(1), 1);
    ct_tensor *y = NULL;
    CHECK(ct_checkpoint(run_with_arguments, NULL, NULL, (ct_tensor *[]){x, mean, var}, 3, &y, 1));
    ct_fill(var, 2);
    CHECK(!ct_backward(ct_sum(y)));
    CHECK_ERROR(CT_ERR_GRAD,
                "checkpoint: argument 2 was changed in place after the function ran, so it cannot run again");
}

/* ---- instance_norm: running statistics ---- */

TEST(running_statistics_of_instances_are_means_over_the_batch) {
    ct_tensor *x = F64(CT_DIMS(2, 1, 2), 1, 3, 10, 20); /* means 2 and 15, unbiased variances 2 and 50 */
    ct_tensor *mean = F64(CT_DIMS(1), 0), *var = F64(CT_DIMS(1), 1);
    ct_instance_norm(x, .running_mean = mean, .running_var = var, .momentum = CT_SET(0.5));
    CHECK_VALUES(mean, CT_DIMS(1), 1e-15, 0.5 * 8.5);
    CHECK_VALUES(var, CT_DIMS(1), 1e-14, 0.5 + 0.5 * 26);
    ct_tensor *y = ct_instance_norm(x, .running_mean = mean, .running_var = var, .use_running = true, .eps = CT_SET(0));
    CHECK_VALUES(mean, CT_DIMS(1), 1e-15, 4.25);
    CHECK_NEAR(harness_at(y, 0), (1 - 4.25) / sqrt(13.5), 1e-15);
    CHECK(!ct_instance_norm(x, .use_running = true));
    CHECK_ERROR(CT_ERR_VALUE,
                "instance_norm: running_mean is missing: with .use_running it is what x is normalized by");
}

/* ---- Large offsets ---- */

/* x = 1e6 + noise of deviation 1, rounded to f32, whose spacing there is 1/16; the same numbers in f64. The mean is known to more
 * digits than f32 has, so that results are right to a few roundings of the deviations: n u times their size, with room for
 * the noise's largest value. */
static ct_tensor *far_away(ct_dims shape) { return ct_add_s(ct_randn(shape), 1e6); }

static void check_offsets(ct_tensor *(*norm)(ct_tensor *x), ct_dims shape) {
    ct_tensor *x = ct_set_requires_grad(far_away(shape), true),
              *wide = ct_set_requires_grad(ct_cast(ct_detach(x), CT_F64), true);
    ct_tensor *y = norm(x), *exact = norm(wide), *g = ct_randn(shape);
    REQUIRE(y && exact);
    double tolerance = 64 * 0x1p-24 * 5;
    CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(ct_cast(y, CT_F64), exact)))), 0, tolerance);
    CHECK(ct_backward_from(y, g, 0) && ct_backward_from(exact, ct_cast(g, CT_F64), 0));
    ct_tensor *apart = ct_sub(ct_cast(ct_grad_of(x), CT_F64), ct_grad_of(wide));
    CHECK_NEAR(ct_item(ct_amax(ct_abs(apart))), 0, tolerance);
    CHECK(ct_item(ct_amax(ct_abs(ct_grad_of(wide)))) > 1); /* there is something to be near to */
}

static ct_tensor *by_layer(ct_tensor *x) { return ct_layer_norm(x, CT_DIMS(ct_dim(x, -1))); }
static ct_tensor *by_group(ct_tensor *x) { return ct_group_norm(x, 2); }
static ct_tensor *by_group_last(ct_tensor *x) { return ct_group_norm(x, 2, .channels_last = true); }
static ct_tensor *by_instance(ct_tensor *x) { return ct_instance_norm(x); }
static ct_tensor *by_batch(ct_tensor *x) { return ct_batch_norm(x, .training = true); }
static ct_tensor *by_batch_last(ct_tensor *x) { return ct_batch_norm(x, .training = true, .channels_last = true); }

TEST(rows_with_a_large_mean_keep_their_digits) {
    check_offsets(by_layer, CT_DIMS(16, 1000));
    check_offsets(by_layer, CT_DIMS(3, 20000));
}
TEST(groups_with_a_large_mean_keep_their_digits) {
    check_offsets(by_group, CT_DIMS(3, 4, 17, 29));
    check_offsets(by_group_last, CT_DIMS(3, 17, 29, 4));
    check_offsets(by_instance, CT_DIMS(3, 4, 500));
}
TEST(channels_with_a_large_mean_keep_their_digits) {
    check_offsets(by_batch, CT_DIMS(8, 6, 13, 17));
    check_offsets(by_batch_last, CT_DIMS(8, 13, 17, 40));
    check_offsets(by_batch, CT_DIMS(3000, 5));
}

/* The first block of zeros, the rest far away: no running sum may start from a bad guess of the mean. */
TEST(a_first_element_far_from_the_others_costs_no_digits) {
    double values[256];
    for (int i = 0; i < 256; i++) values[i] = i == 0 ? 0 : 1e6 + (i % 7) - 3;
    ct_tensor *x = harness_tensor(CT_F32, CT_DIMS(256, 1), values, 256), *wide = ct_cast(x, CT_F64);
    ct_tensor *y = ct_batch_norm(x, .training = true), *exact = ct_batch_norm(wide, .training = true);
    /* the outlier makes the deviation 62500 and the others' results differ by 1.6e-5 */
    CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(ct_cast(y, CT_F64), exact)))), 0, 16 * 0x1p-24 * 16);
}

/* ---- Layouts ---- */

TEST(both_layouts_give_the_same) {
    ct_tensor *x = ct_randn(CT_DIMS(3, 6, 5, 7), .dtype = CT_F64), *w = ct_randn(CT_DIMS(6), .dtype = CT_F64);
    ct_tensor *last = ct_contiguous(ct_movedim(x, CT_DIMS(1), CT_DIMS(-1)));
    ct_tensor *pairs[][2] = {
        {ct_batch_norm(x, .weight = w, .training = true),
         ct_batch_norm(last, .weight = w, .training = true, .channels_last = true)},
        {ct_group_norm(x, 3, .weight = w), ct_group_norm(last, 3, .weight = w, .channels_last = true)},
        {ct_instance_norm(x, .bias = w), ct_instance_norm(last, .bias = w, .channels_last = true)},
        {ct_local_response_norm(x, 3, .alpha = CT_SET(1)),
         ct_local_response_norm(last, 3, .alpha = CT_SET(1), .channels_last = true)}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ct_tensor *back = ct_movedim(pairs[i][1], CT_DIMS(-1), CT_DIMS(1));
        CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(pairs[i][0], back)))), 0, 64 * 0x1p-53 * 8);
    }
}

/* ---- Large results, which are written past the caches ---- */

/* y and dx of rows (or items) from `first` on are, to the bit, those of these rows alone. */
static void check_part(ct_tensor *(*norm)(ct_tensor *x), ct_dims shape, int64_t first) {
    ct_tensor *x = ct_set_requires_grad(ct_randn(shape), true), *g = ct_randn(shape), *y = norm(x);
    ct_tensor *some = ct_set_requires_grad(ct_clone(ct_narrow(ct_detach(x), 0, first, 2)), true), *few = norm(some);
    REQUIRE(ct_backward_from(y, g, 0) && ct_backward_from(few, ct_clone(ct_narrow(g, 0, first, 2)), 0));
    CHECK(ct_numel(y) * 4 > 8 << 20 && ct_numel(few) * 4 < 8 << 20);
    CHECK(harness_same_bits(ct_clone(ct_narrow(ct_detach(y), 0, first, 2)), ct_detach(few)));
    CHECK(harness_same_bits(ct_clone(ct_narrow(ct_grad_of(x), 0, first, 2)), ct_grad_of(some)));
}

/* relu(norm(x) + residual) by one call and by ops of their own: the same bits, and those of the gradients. x is far from 0, where a
 * mean of as many digits as x has would not tell what lies above it. */
static void check_relu(ct_dims shape, bool training, bool last, bool adds, ct_dtype dtype) {
    const ct_dims channels = CT_DIMS(last ? shape.d[shape.n - 1] : shape.d[1]);
    ct_tensor *leaves[4] = {ct_add_s(ct_randn(shape, .dtype = dtype), 1e3), ct_randn(channels, .dtype = dtype),
                            ct_randn(channels, .dtype = dtype), ct_randn(shape, .dtype = dtype)};
    ct_tensor *mean[2], *var[2], *y[2], *g = ct_randn(shape, .dtype = dtype), *grads[2][4];
    for (int i = 0; i < 4; i++) ct_set_requires_grad(leaves[i], true);
    for (int i = 0; i < 2; i++) {
        mean[i] = ct_full(channels, 1e3, .dtype = dtype), var[i] = ct_ones(channels, .dtype = dtype);
        y[i] = ct_batch_norm(leaves[0], .running_mean = mean[i], .running_var = var[i], .weight = leaves[1],
                             .bias = leaves[2], .residual = i && adds ? leaves[3] : NULL, .relu = i,
                             .training = training, .channels_last = last);
        if (!i) y[i] = ct_relu(adds ? ct_add(y[i], leaves[3]) : y[i]);
        CHECK(ct_grad(&y[i], 1, &g, leaves, 3 + adds, grads[i], 0));
    }
    CHECK(harness_same_bits(y[0], y[1]) && harness_same_bits(mean[0], mean[1]) && harness_same_bits(var[0], var[1]));
    for (int i = 0; i < 3 + adds; i++) CHECK(harness_same_bits(grads[0][i], grads[1][i]));
    const double above = ct_item(ct_mean(ct_cast(ct_gt_s(y[1], 0), CT_F64)));
    CHECK(above > 0.2 && above < 0.8);
}

TEST(a_sum_and_relu_behind_a_norm_are_as_the_ops_behind_it) {
    const ct_dims first[] = {CT_DIMS(3, 6, 4, 5), CT_DIMS(2, 7, 83), CT_DIMS(4, 3, 130, 70), CT_DIMS(9, 20, 33)},
                  last[] = {CT_DIMS(3, 4, 5, 6), CT_DIMS(2, 83, 67), CT_DIMS(4, 130, 40, 70), CT_DIMS(9, 33, 200)};
    for (int i = 0; i < 4 * 16; i++)
        ct_scope {
            if (i % 16 == 0) ct_set_threads(1 + i / 16 * 2);
            check_relu(i & 1 ? last[i / 16] : first[i / 16], i & 2, i & 1, i & 4, i & 8 ? CT_F64 : CT_F32);
        }
    /* past the caches */
    check_relu(CT_DIMS(12, 64, 56, 56), true, false, true, CT_F32);
    check_relu(CT_DIMS(12, 56, 56, 64), true, true, true, CT_F32);
    ct_set_threads(0);
}

/* What is not asked for is not computed, and what is does not hang on it. */
TEST(gradients_behind_relu_are_given_one_by_one) {
    for (int i = 0; i < 2 * 4; i++) {
        const bool last = i & 1;
        const ct_dims shape = last ? CT_DIMS(3, 35, 20) : CT_DIMS(3, 20, 35);
        ct_tensor *leaves[4] = {ct_randn(shape), ct_randn(CT_DIMS(20)), ct_randn(CT_DIMS(20)), ct_randn(shape)};
        for (int k = 0; k < 4; k++) ct_set_requires_grad(leaves[k], true);
        ct_tensor *all[4], *one, *g = ct_randn(shape);
        ct_tensor *y = ct_batch_norm(leaves[0], .weight = leaves[1], .bias = leaves[2], .residual = leaves[3],
                                     .relu = true, .training = true, .channels_last = last);
        REQUIRE(ct_grad(&y, 1, &g, leaves, 4, all, CT_RETAIN_GRAPH) && ct_grad(&y, 1, &g, &leaves[i / 2], 1, &one, 0));
        CHECK(harness_same_bits(all[i / 2], one));
    }
}

/* The bias says nothing of relu's gradient that the result does not, and without relu the result nothing at all. */
TEST(what_the_gradient_of_a_norm_does_not_read_may_change_in_place) {
    for (int i = 0; i < 4; i++) {
        const bool training = i & 1, relu = i & 2;
        ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(3, 5, 7)), true), *bias = ct_randn(CT_DIMS(5)),
                  *g = ct_randn(CT_DIMS(3, 5, 7)), *mean = ct_randn(CT_DIMS(5)),
                  *var = ct_add_s(ct_rand(CT_DIMS(5)), 0.5), *y[2], *dx[2];
        for (int k = 0; k < 2; k++)
            y[k] = ct_batch_norm(x, .running_mean = mean, .running_var = var, .bias = bias, .momentum = CT_SET(0),
                                 .training = training, .relu = relu);
        ct_no_grad {
            ct_fill(bias, 100);
            if (!relu) ct_fill(y[1], 7);
        }
        for (int k = 0; k < 2; k++) REQUIRE(ct_grad(&y[k], 1, &g, &x, 1, &dx[k], 0));
        CHECK(harness_same_bits(dx[0], dx[1]));
        ct_tensor *masked = relu ? ct_mul(g, ct_cast(ct_gt_s(y[0], 0), CT_F32)) : g;
        ct_tensor *plain =
            ct_batch_norm(x, .running_mean = mean, .running_var = var, .momentum = CT_SET(0), .training = training);
        REQUIRE(ct_grad(&plain, 1, &masked, &x, 1, &dx[1], 0));
        CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(dx[0], dx[1])))), 0, 1e-5);
    }
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(3, 5, 7)), true);
    ct_tensor *y = ct_batch_norm(x, .training = true, .relu = true), *sum = ct_sum(y);
    ct_no_grad {
        ct_fill(y, 7);
    }
    CHECK(!ct_backward(sum));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(half_activations_stay_half_beside_parameters_in_f32) {
    ct_tensor *x = ct_set_requires_grad(ct_randn(CT_DIMS(8, 3, 5), .dtype = CT_BF16), true),
              *w = ct_set_requires_grad(ct_full(CT_DIMS(3), 1.5), true), *mean = ct_zeros(CT_DIMS(3));
    ct_tensor *y =
        ct_batch_norm(x, .running_mean = mean, .running_var = ct_ones(CT_DIMS(3)), .weight = w, .training = true);
    ct_tensor *wide = ct_batch_norm(ct_cast(x, CT_F32), .weight = w, .training = true);
    CHECK(ct_dtype_of(y) == CT_BF16 && harness_same_bits(y, ct_cast(wide, CT_BF16)));
    CHECK(ct_backward(ct_sum(ct_square(y))));
    CHECK(ct_dtype_of(ct_grad_of(x)) == CT_BF16 && ct_dtype_of(ct_grad_of(w)) == CT_F32);
    CHECK(harness_at(mean, 0) != 0);
}

TEST(a_residual_in_f32_is_added_to_halves_before_they_are_rounded) {
    for (int i = 0; i < 4; i++) {
        const ct_dtype dtype = i & 1 ? CT_BF16 : CT_F16;
        ct_tensor *x = ct_cast(harness_randn(CT_DIMS(4, 8, 64)), dtype), *residual = harness_randn(CT_DIMS(4, 8, 64));
        ct_tensor *mean = ct_zeros(CT_DIMS(8)), *var = ct_ones(CT_DIMS(8)), *bias = ct_full(CT_DIMS(8), 9), *y[3];
        for (int k = 0; k < 3; k++)
            y[k] = ct_batch_norm(k ? x : ct_cast(x, CT_F32), .running_mean = mean, .running_var = var, .bias = bias,
                                 .residual = residual, .relu = k > 1, .training = i & 2, .momentum = CT_SET(0));
        for (int k = 1; k < 3; k++) CHECK(harness_same_bits(y[k], ct_cast(y[0], dtype)));
    }
}

/* x is the numbers around where y crosses 0. */
TEST(relu_behind_given_statistics_passes_the_gradient_where_the_result_is_above_0) {
    enum { CHANNELS = 64, PLACES = 256 };
    ct_tensor *w = harness_randn(CT_DIMS(CHANNELS)), *b = harness_randn(CT_DIMS(CHANNELS)),
              *mean = harness_randn(CT_DIMS(CHANNELS)),
              *var = ct_add_s(ct_square(harness_randn(CT_DIMS(CHANNELS))), 0.1);
    static float values[CHANNELS * PLACES];
    for (int c = 0; c < CHANNELS; c++) {
        float x = (float)(harness_at(mean, c) - harness_at(b, c) * sqrt(harness_at(var, c) + 1e-5) / harness_at(w, c));
        for (int i = 0; i < PLACES / 2; i++) x = nextafterf(x, -INFINITY);
        for (int i = 0; i < PLACES; i++, x = nextafterf(x, INFINITY)) values[c * PLACES + i] = x;
    }
    ct_tensor *x = ct_set_requires_grad(ct_from_data(values, CT_DIMS(1, CHANNELS, PLACES), CT_F32), true), *dx;
    ct_tensor *y = ct_batch_norm(x, .running_mean = mean, .running_var = var, .weight = w, .bias = b, .relu = true);
    ct_tensor *g = ct_ones(ct_shape(x));
    REQUIRE(ct_grad(&y, 1, &g, &x, 1, &dx, 0));
    CHECK(harness_same_bits(ct_gt_s(y, 0), ct_ne_s(dx, 0)));
}

TEST(large_results_are_those_of_their_parts) {
    check_part(by_layer, CT_DIMS(2111, 1024), 2100);
    check_part(by_layer, CT_DIMS(2111, 1027), 17); /* not aligned */
    check_part(by_group, CT_DIMS(12, 64, 56, 56), 7);
    check_part(by_group_last, CT_DIMS(12, 56, 56, 64), 7);
    check_part(by_group_last, CT_DIMS(3, 128, 128, 48), 1);
}

TEST(large_batches_agree_with_f64_in_both_layouts) {
    ct_dims shapes[] = {CT_DIMS(12, 64, 56, 56), CT_DIMS(4, 3, 300, 320), CT_DIMS(12, 56, 56, 64)};
    for (int i = 0; i < 3; i++) {
        ct_scope {
            ct_tensor *x = ct_set_requires_grad(ct_randn(shapes[i]), true),
                      *wide = ct_set_requires_grad(ct_cast(ct_detach(x), CT_F64), true);
            ct_tensor *g = ct_randn(shapes[i]), *y = i < 2 ? by_batch(x) : by_batch_last(x),
                      *exact = i < 2 ? by_batch(wide) : by_batch_last(wide);
            CHECK(ct_backward_from(y, g, 0) && ct_backward_from(exact, ct_cast(g, CT_F64), 0));
            CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(y, exact)))), 0, 8 * 0x1p-24 * 6);
            CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(ct_grad_of(x), ct_grad_of(wide))))), 0, 8 * 0x1p-24 * 6);
        }
    }
}

/* Grains that are no multiple of a vector: what goes past the caches has to begin with a cache line all the same. */
TEST(large_results_are_right_however_small_the_chunks) {
    for (int last = 0; last < 2; last++) {
        ct_tensor *x = ct_set_requires_grad(harness_randn(last ? CT_DIMS(12, 56, 56, 64) : CT_DIMS(12, 64, 56, 56)),
                                            true),
                  *g = harness_randn(ct_shape(x)), *y[4], *dx[4];
        for (int i = 0; i < 4; i++) {
            ct_set_grain((int[]){0, 20, 100, 1000}[i]);
            y[i] = ct_batch_norm(x, .training = true, .channels_last = last);
            REQUIRE(ct_grad(&y[i], 1, &g, &x, 1, &dx[i], 0));
            CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(y[i], y[0])))), 0, 8 * 0x1p-24 * 6);
            CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_sub(dx[i], dx[0])))), 0, 8 * 0x1p-24 * 6);
        }
        ct_set_grain(0);
    }
}

/* ---- Parts of gradients ---- */

/* 300 channels of two parts: sixteen threads go over spans of them, in which the last is shorter. */
TEST(channels_that_are_shared_out_among_threads_keep_their_bits) {
    for (int last = 0; last < 2; last++) {
        const ct_dims shape = last ? CT_DIMS(2, 150, 300) : CT_DIMS(2, 300, 150);
        ct_tensor *x = ct_set_requires_grad(harness_randn(shape), true), *g = harness_randn(shape);
        ct_tensor *y[3], *dx[3];
        for (int i = 0; i < 3; i++) {
            ct_set_threads((int[]){1, 3, 16}[i]);
            y[i] = ct_batch_norm(x, .training = true, .channels_last = last);
            REQUIRE(ct_grad(&y[i], 1, &g, &x, 1, &dx[i], 0));
            CHECK(harness_same_bits(y[0], y[i]) && harness_same_bits(dx[0], dx[i]));
        }
        ct_set_threads(0);
    }
}

TEST(gradients_that_are_not_wanted_are_not_computed) {
    ct_tensor *x = ct_randn(CT_DIMS(4, 6, 5)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(6)), true),
              *b = ct_set_requires_grad(ct_randn(CT_DIMS(6)), true);
    CHECK(ct_backward(ct_sum(ct_batch_norm(x, .weight = w, .bias = b, .training = true))));
    CHECK_NEAR(harness_at(ct_grad_of(b), 0), 20, 0);
    CHECK_NEAR(ct_item(ct_amax(ct_abs(ct_grad_of(w)))), 0, 20 * 64 * 0x1p-24);
    ct_tensor *only = ct_set_requires_grad(ct_zeros(CT_DIMS(5)), true);
    CHECK(ct_backward(ct_sum(ct_layer_norm(x, CT_DIMS(5), .bias = only))));
    CHECK_VALUES(ct_grad_of(only), CT_DIMS(5), 0, 24, 24, 24, 24, 24);
}

/* ---- Errors ---- */

TEST(what_does_not_fit_is_said) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 6, 3)), *w = ct_ones(CT_DIMS(3));
    CHECK(!ct_batch_norm(ct_zeros(CT_DIMS(1, 6)), .training = true));
    CHECK_ERROR(CT_ERR_SHAPE,
                "batch_norm: x is f32[1,6]: one value a channel has no variance; training needs more than one");
    CHECK(!ct_batch_norm(x));
    CHECK_ERROR(CT_ERR_VALUE, "batch_norm: running_mean is missing: without .training it is what x is normalized by");
    CHECK(!ct_batch_norm(x, .weight = w, .training = true));
    CHECK_ERROR(CT_ERR_SHAPE,
                "batch_norm: weight is f32[3]; x is f32[2,6,3], so it has to be [6], one value a channel");
    CHECK(!ct_batch_norm(x, .training = true, .momentum = CT_SET(2)));
    CHECK_ERROR(CT_ERR_VALUE, "batch_norm: momentum is 2; it has to be between 0 and 1");
    CHECK(!ct_batch_norm(x, .running_mean = ct_zeros(CT_DIMS(6), .dtype = CT_I32), .training = true));
    CHECK_ERROR(CT_ERR_DTYPE, "batch_norm: running_mean is i32[6]; it has to be floating");
    CHECK(!ct_batch_norm(w, .training = true));
    CHECK_ERROR(CT_ERR_SHAPE, "batch_norm: x is f32[3]; it has to be [batch, channels, ...]");
    CHECK(!ct_group_norm(x, 4));
    CHECK_ERROR(CT_ERR_VALUE, "group_norm: groups is 4; x is f32[2,6,3], and its 6 channels have to be a multiple");
    CHECK(!ct_instance_norm(ct_zeros(CT_DIMS(2, 6, 1))));
    CHECK_ERROR(CT_ERR_SHAPE,
                "instance_norm: x is f32[2,6,1]: one value a channel has no variance; more than one is needed");
    CHECK(!ct_layer_norm(x, CT_DIMS(6)));
    CHECK_ERROR(CT_ERR_SHAPE, "layer_norm: x is f32[2,6,3]; shape is [6] and has to be its last dimensions");
    CHECK(!ct_layer_norm(x, CT_DIMS(6, 3), .weight = w));
    CHECK_ERROR(CT_ERR_SHAPE, "layer_norm: weight is f32[3]; it has to be [6,3], the shape that is normalized");
    CHECK(!ct_rms_norm(x, CT_DIMS(3), .eps = CT_SET(-1)));
    CHECK_ERROR(CT_ERR_VALUE, "rms_norm: eps is -1; it has to be finite and not negative");
    CHECK(!ct_weight_norm(x, w));
    CHECK_ERROR(CT_ERR_SHAPE, "weight_norm: g is f32[3]; v is f32[2,6,3], so it has to have 2 values, one a norm");
}

/* ---- One element, and equal ones ---- */

static double largest_gradient(ct_tensor *(*norm)(ct_tensor *x), ct_tensor *x, ct_tensor *g) {
    ct_set_requires_grad(x, true);
    if (!ct_backward_from(norm(x), g, 0)) return NAN;
    return ct_item(ct_amax(ct_abs(ct_grad_of(x))));
}

static ct_tensor *by_single_groups(ct_tensor *x) { return ct_group_norm(x, ct_dim(x, 1)); }
static ct_tensor *by_single_groups_last(ct_tensor *x) { return ct_group_norm(x, ct_dim(x, -1), .channels_last = true); }
static ct_tensor *by_weighted_layer(ct_tensor *x) {
    return ct_layer_norm(x, CT_DIMS(1), .weight = F32(CT_DIMS(1), 0.7f));
}

/* Less its mean one element is 0, whatever it is. */
TEST(the_norm_of_one_element_has_no_gradient) {
    ct_tensor *g = ct_mul_s(harness_randn(CT_DIMS(40, 1)), 7);
    CHECK(largest_gradient(by_layer, ct_add_s(harness_randn(CT_DIMS(40, 1)), 3), g) == 0);
    CHECK(largest_gradient(by_weighted_layer, ct_add_s(harness_randn(CT_DIMS(40, 1)), 3), g) == 0);
    g = ct_mul_s(harness_randn(CT_DIMS(3, 40)), 7);
    CHECK(largest_gradient(by_single_groups, harness_randn(CT_DIMS(3, 40)), g) == 0);
    CHECK(largest_gradient(by_single_groups_last, harness_randn(CT_DIMS(3, 40)), g) == 0);
}

/* x / sqrt(x^2 + eps) has the derivative eps / (x^2 + eps)^1.5, far below what rounding x / |x| leaves. */
TEST(rms_norm_of_one_element_has_the_gradient_that_eps_leaves) {
    ct_tensor *x = ct_set_requires_grad(F32(CT_DIMS(2, 1), 3, -0.25), true);
    REQUIRE(ct_backward(ct_sum(ct_rms_norm(x, CT_DIMS(1), .eps = CT_SET(1e-6)))));
    for (int i = 0; i < 2; i++) {
        const double v = i ? -0.25 : 3, expected = 1e-6 / pow(v * v + 1e-6, 1.5);
        CHECK_NEAR(harness_at(ct_grad_of(x), i), expected, 8 * 0x1p-24 * expected);
    }
}

/* The variance is 0 and 1 / sqrt(eps) 316: the gradient is that times the deviations of g from their mean, and
 * these are 0 where g is the same everywhere. */
TEST(equal_elements_pass_on_the_deviations_of_their_cotangents) {
    static const struct {
        ct_tensor *(*norm)(ct_tensor *x);
        ct_dims shape;
    } cases[] = {{by_layer, {2, {3, 8}}},       {by_group, {3, {2, 4, 8}}},  {by_group_last, {3, {2, 8, 4}}},
                 {by_instance, {3, {2, 4, 8}}}, {by_batch, {3, {2, 4, 16}}}, {by_batch_last, {3, {2, 16, 4}}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_tensor *same = ct_full(cases[i].shape, 0.3);
        CHECK_NEAR(largest_gradient(cases[i].norm, ct_full(cases[i].shape, 1.7), same), 0,
                   32 * 0x1p-24 * 316.3 * 0.3); /* sums of up to 32 */
        ct_tensor *x = ct_set_requires_grad(ct_full(cases[i].shape, 1.7), true), *g = harness_randn(cases[i].shape),
                  *wide = ct_set_requires_grad(ct_cast(ct_detach(x), CT_F64), true);
        REQUIRE(ct_backward_from(cases[i].norm(x), g, 0) &&
                ct_backward_from(cases[i].norm(wide), ct_cast(g, CT_F64), 0));
        ct_tensor *apart = ct_sub(ct_cast(ct_grad_of(x), CT_F64), ct_grad_of(wide));
        CHECK_NEAR(ct_item(ct_amax(ct_abs(apart))), 0, 8 * 0x1p-24 * 316.3 * 3); /* |g| < 3 */
    }
}
