/* Gradients in half precision, at inputs where a result rounded to 8 or 11 digits does not tell enough: what the ops make of
 * the same numbers in f64 is known in closed form. A gradient may be off by its own rounding, v |g| with v half a unit
 * in the last place (2^-9 of bf16, 2^-12 of f16, each doubled for the factor g), not by that of the result. */
#include <math.h>

#include "tests/harness.h"

static const struct {
    ct_dtype dtype;
    double unit;
} halves[] = {{CT_BF16, 0x1p-8}, {CT_F16, 0x1p-11}};

static ct_tensor *leaf(const double *values, int64_t n, ct_dtype dtype) {
    ct_tensor *x = ct_cast(ct_from_data(values, CT_DIMS(n), CT_F64), dtype);
    ct_set_requires_grad(x, true);
    return x;
}

static double grad_at(const ct_tensor *x, int64_t i) {
    return ct_item(ct_cast(ct_select(ct_grad_of(x), 0, i), CT_F64));
}

TEST(logsumexp_of_large_numbers_shares_its_cotangent_out) {
    const double values[] = {30, 29.5};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 2, halves[h].dtype);
        REQUIRE(ct_backward(ct_logsumexp(x)));
        for (int i = 0; i < 2; i++) { /* softmax */
            const double expected = 1 / (1 + exp(i ? 0.5 : -0.5));
            CHECK_NEAR(grad_at(x, i), expected, halves[h].unit * expected);
        }
    }
}

TEST(logcumsumexp_of_large_numbers_shares_its_cotangents_out) {
    const double values[] = {30, 29.5, 28};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 3, halves[h].dtype);
        REQUIRE(ct_backward_from(ct_logcumsumexp(x, 0), ct_ones_like(x), 0));
        for (int i = 0; i < 3; i++) { /* the shares of x[i] in the sums up to j */
            double expected = 0, sum = 0;
            for (int j = 0; j < 3; j++) {
                sum += exp(values[j] - 30);
                if (j >= i) expected += exp(values[i] - 30) / sum;
            }
            CHECK_NEAR(grad_at(x, i), expected, halves[h].unit * expected);
        }
    }
}

/* y is -log 1014 = -6.9217 everywhere; the nearest number in bf16 is 0.0154 away. */
TEST(the_gradient_of_log_softmax_sums_to_zero) {
    enum { N = 1014 };
    double values[N] = {0};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, N, halves[h].dtype);
        REQUIRE(ct_backward(ct_select(ct_log_softmax(x, 0), 0, 7)));
        CHECK_NEAR(grad_at(x, 0), -1.0 / N, halves[h].unit / N);
        CHECK_NEAR(grad_at(x, 7), 1 - 1.0 / N, halves[h].unit);
    }
}

/* exp(-8) = 3.4e-4: the greater share rounds to 1 in bf16. */
TEST(softmax_near_one_keeps_its_gradient) {
    const double values[] = {8, 0};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 2, halves[h].dtype);
        REQUIRE(ct_backward(ct_select(ct_softmax(x, 0), 0, 0)));
        const double share = 1 / (1 + exp(-8)), expected = share * (1 - share);
        for (int i = 0; i < 2; i++) CHECK_NEAR(grad_at(x, i), i ? -expected : expected, 2 * halves[h].unit * expected);
        ct_tensor *same = leaf(values, 2, halves[h].dtype);
        REQUIRE(ct_backward(ct_sum(ct_softmax(same, 0))));
        for (int i = 0; i < 2; i++) CHECK_NEAR(grad_at(same, i), 0, 0x1p-23);
    }
}

TEST(saturated_activations_keep_their_gradients) {
    const double values[] = {4, -4};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 2, halves[h].dtype), *z = leaf(values, 2, halves[h].dtype);
        REQUIRE(ct_backward(ct_sum(ct_tanh(x))));
        REQUIRE(ct_backward(ct_sum(ct_sigmoid(z))));
        const double of_tanh = 1 / (cosh(4) * cosh(4)), of_sigmoid = 1 / (2 + 2 * cosh(4));
        for (int i = 0; i < 2; i++) {
            CHECK_NEAR(grad_at(x, i), of_tanh, halves[h].unit * of_tanh);
            CHECK_NEAR(grad_at(z, i), of_sigmoid, halves[h].unit * of_sigmoid);
        }
    }
}

TEST(a_saturated_activation_of_linear_keeps_its_gradient) {
    const double value[] = {4}, one[] = {1};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(value, 1, halves[h].dtype), *w = ct_reshape(leaf(one, 1, halves[h].dtype), CT_DIMS(1, 1));
        REQUIRE(ct_backward(ct_sum(ct_linear(x, w, .activation = CT_ACT_TANH))));
        const double expected = 1 / (cosh(4) * cosh(4));
        CHECK_NEAR(grad_at(x, 0), expected, halves[h].unit * expected);
    }
}

/* The mean, 100.5, is no bf16 (their spacing is 0.5 there, but those of the deviations are finer). */
TEST(variance_far_from_zero_has_the_gradient_of_deviations) {
    const double values[] = {100, 100.5, 101.5};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 3, halves[h].dtype), *z = leaf(values, 3, halves[h].dtype);
        REQUIRE(ct_backward(ct_var(x)) && ct_backward(ct_std(z)));
        const double mean = 302.0 / 3, deviation = sqrt(7.0 / 12);
        for (int i = 0; i < 3; i++) {
            const double expected = values[i] - mean; /* 2 / (3 - 1) of it */
            CHECK_NEAR(grad_at(x, i), expected, halves[h].unit * fabs(expected));
            CHECK_NEAR(grad_at(z, i), expected / (2 * deviation), halves[h].unit * fabs(expected));
        }
    }
}

/* The Hessian of logsumexp is diag(p) - p p^T: for two elements +-p q. */
TEST(the_second_derivative_in_half_precision_comes_from_the_same_numbers) {
    const double values[] = {30, 29.5};
    for (int h = 0; h < 2; h++) {
        ct_tensor *x = leaf(values, 2, halves[h].dtype), *y = ct_logsumexp(x), *first = NULL, *second = NULL;
        REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &first, CT_CREATE_GRAPH));
        ct_tensor *share = ct_select(first, 0, 0);
        REQUIRE(ct_grad(&share, 1, NULL, &x, 1, &second, 0));
        const double p = 1 / (1 + exp(-0.5)), expected = p * (1 - p);
        for (int i = 0; i < 2; i++)
            CHECK_NEAR(ct_item(ct_cast(ct_select(second, 0, i), CT_F64)), i ? -expected : expected,
                       2 * halves[h].unit * expected);
    }
}
