/* Mixed precision: which ops take their inputs narrow, which wide, and that gradients keep the dtype of what they belong
 * to. */
#include "tests/harness.h"

TEST(products_run_in_the_chosen_dtype_and_losses_in_f32) {
    ct_tensor *x = ct_randn(CT_DIMS(5, 17)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(9, 17)), true);
    ct_tensor *y = NULL, *loss = NULL;
    ct_autocast(CT_BF16) {
        y = ct_linear(x, w);
        loss = ct_cross_entropy_loss(y, ct_zeros(CT_DIMS(5), .dtype = CT_I64));
    }
    CHECK(ct_dtype_of(y) == CT_BF16 && ct_dtype_of(loss) == CT_F32);
    CHECK(ct_dtype_of(ct_linear(x, w)) == CT_F32);
    CHECK(harness_same_bits(y, ct_linear(ct_cast(x, CT_BF16), ct_cast(w, CT_BF16))));
    CHECK(ct_backward(loss));
    CHECK(ct_dtype_of(ct_grad_of(w)) == CT_F32);
}

TEST(gradients_are_those_of_the_casts_written_by_hand) {
    ct_tensor *x = ct_randn(CT_DIMS(2, 3, 8, 8)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(4, 3, 3, 3)), true), *g[2],
              *y[2];
    ct_autocast(CT_BF16) { y[0] = ct_sum(ct_conv2d(x, w, .pad = 1)); }
    y[1] = ct_sum(ct_cast(ct_conv2d(ct_cast(x, CT_BF16), ct_cast(w, CT_BF16), .pad = 1), CT_F32));
    for (int i = 0; i < 2; i++) CHECK(ct_grad(&y[i], 1, NULL, &w, 1, &g[i], 0));
    CHECK(harness_same_bits(y[0], y[1]) && harness_same_bits(g[0], g[1]));
}

TEST(backward_inside_the_block_gives_the_same) {
    ct_tensor *x = ct_randn(CT_DIMS(6, 8)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(4, 8)), true), *inside = NULL,
              *outside = NULL;
    ct_autocast(CT_F16) {
        ct_tensor *y = ct_mean(ct_square(ct_linear(x, w)));
        CHECK(ct_grad(&y, 1, NULL, &w, 1, &inside, CT_RETAIN_GRAPH));
        CHECK(ct_set_autocast(CT_F32) == CT_F16);
        CHECK(ct_grad(&y, 1, NULL, &w, 1, &outside, 0));
    }
    CHECK(ct_dtype_of(inside) == CT_F32 && harness_same_bits(inside, outside));
    CHECK(ct_set_autocast(CT_F32) == CT_F32);
}

TEST(f64_and_integers_are_left_alone) {
    ct_tensor *a = ct_ones(CT_DIMS(3, 4), .dtype = CT_F64), *b = ct_ones(CT_DIMS(4, 2), .dtype = CT_F64);
    ct_autocast(CT_BF16) {
        CHECK(ct_dtype_of(ct_matmul(a, b)) == CT_F64);
        CHECK(ct_dtype_of(ct_matmul(ct_cast(a, CT_I32), ct_cast(b, CT_I32))) == CT_I32);
        CHECK(ct_dtype_of(ct_add(ct_ones(CT_DIMS(2)), ct_ones(CT_DIMS(2)))) == CT_F32);
    }
}

static bool layer(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    return (out[0] = ct_relu(ct_linear(in[0], context))) != NULL;
}

TEST(a_checkpoint_repeats_in_the_dtype_of_the_first_run) {
    ct_tensor *x = ct_randn(CT_DIMS(5, 7)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(3, 7)), true), *y[2], *g[2];
    ct_autocast(CT_BF16) {
        y[0] = ct_relu(ct_linear(x, w));
        CHECK(ct_checkpoint(layer, w, NULL, &x, 1, &y[1], 1));
    }
    for (int i = 0; i < 2; i++) {
        ct_tensor *loss = ct_sum(ct_cast(y[i], CT_F32));
        CHECK(ct_grad(&loss, 1, NULL, &w, 1, &g[i], 0));
    }
    CHECK(harness_same_bits(y[0], y[1]) && harness_same_bits(g[0], g[1]));
}

TEST(what_an_op_changes_is_given_as_it_is) {
    ct_tensor *x = ct_cast(ct_add_s(ct_randn(CT_DIMS(2, 3, 8)), 3), CT_BF16), *mean[2], *var[2];
    for (int i = 0; i < 2; i++) {
        mean[i] = ct_zeros(CT_DIMS(3), .dtype = CT_BF16);
        var[i] = ct_ones(CT_DIMS(3), .dtype = CT_BF16);
        const ct_dtype before = ct_set_autocast(i ? CT_BF16 : CT_F32);
        CHECK(ct_instance_norm(x, .running_mean = mean[i], .running_var = var[i]) != NULL);
        ct_set_autocast(before);
    }
    CHECK(harness_at(mean[0], 0) > 0);
    CHECK(harness_same_bits(mean[0], mean[1]) && harness_same_bits(var[0], var[1]));
}

TEST(other_dtypes_are_refused) {
    CHECK(ct_set_autocast(CT_I8) == CT_F32);
    CHECK_ERROR(CT_ERR_DTYPE, "set_autocast: the dtype is i8; it can be bf16, f16 or f32");
}
