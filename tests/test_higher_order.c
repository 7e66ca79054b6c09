/* Gradients of gradients, and what stands on them: jvp, hvp, jacobian, hessian, check_grad. */
#include <math.h>
#include <string.h>

#include "tests/harness.h"

TEST(derivatives_to_third_order) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 1.5, -0.5), true),
              *y = ct_sum(ct_mul(ct_mul(x, x), ct_mul(x, x))), *g, *gg, *ggg;
    REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
    CHECK_VALUES(g, CT_DIMS(2), 1e-12, 4 * 3.375, 4 * -0.125);
    ct_tensor *s = ct_sum(g);
    REQUIRE(ct_grad(&s, 1, NULL, &x, 1, &gg, CT_CREATE_GRAPH));
    CHECK_VALUES(gg, CT_DIMS(2), 1e-12, 12 * 2.25, 12 * 0.25);
    s = ct_sum(gg);
    REQUIRE(ct_grad(&s, 1, NULL, &x, 1, &ggg, CT_CREATE_GRAPH));
    CHECK_VALUES(ggg, CT_DIMS(2), 1e-12, 24 * 1.5, 24 * -0.5);
    s = ct_sum(ggg);
    REQUIRE(ct_grad(&s, 1, NULL, &x, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 1e-12, 24, 24);
}

TEST(derivatives_of_fused_gradients_to_third_order) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 0.4), true), *y = ct_tanh(x), *g, *gg, *ggg;
    double t = tanh(0.4);
    REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH) && ct_grad(&g, 1, NULL, &x, 1, &gg, CT_CREATE_GRAPH) &&
            ct_grad(&gg, 1, NULL, &x, 1, &ggg, 0));
    CHECK_VALUES(g, CT_DIMS(1), 1e-12, 1 - t * t);
    CHECK_VALUES(gg, CT_DIMS(1), 1e-12, -2 * t * (1 - t * t));
    CHECK_VALUES(ggg, CT_DIMS(1), 1e-12, (1 - t * t) * (6 * t * t - 2));
}

TEST(second_order_through_the_cotangent) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 2, 3), true),
              *c = ct_set_requires_grad(F64(CT_DIMS(2), 5, 7), true), *y = ct_mul(x, x), *g, *h;
    REQUIRE(ct_grad(&y, 1, &c, &x, 1, &g, CT_CREATE_GRAPH));
    ct_tensor *s = ct_sum(g);
    REQUIRE(ct_grad(&s, 1, NULL, &c, 1, &h, 0)); /* d (2 x c) / dc */
    CHECK_VALUES(h, CT_DIMS(2), 0, 4, 6);
}

TEST(a_gradient_penalty_trains) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, -1, 0.5), true),
              *x = ct_set_requires_grad(F64(CT_DIMS(1, 2), 0.3, -0.7), true), *g;
    ct_tensor *y = ct_sum(ct_tanh(ct_matmul(x, w)));
    REQUIRE(ct_grad(&y, 1, NULL, &x, 1, &g, CT_CREATE_GRAPH));
    ct_tensor *penalty = ct_sum(ct_mul(g, g));
    CHECK(ct_backward(penalty));
    /* by differences */
    for (int k = 0; k < 4; k++) {
        double side[2];
        for (int s = 0; s < 2; s++) {
            double w0[4] = {1, 2, -1, 0.5};
            w0[k] += s ? 1e-5 : -1e-5;
            ct_tensor *v = ct_from_data(w0, CT_DIMS(2, 2), CT_F64), *z = ct_sum(ct_tanh(ct_matmul(x, v))), *gz;
            REQUIRE(ct_grad(&z, 1, NULL, &x, 1, &gz, 0));
            side[s] = ct_item(ct_sum(ct_mul(gz, gz)));
        }
        CHECK_NEAR(harness_at(ct_grad_of(w), k), (side[1] - side[0]) / 2e-5, 1e-8);
    }
}

TEST(create_graph_in_backward_makes_gradients_that_can_be_differentiated) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 3), true), *g;
    CHECK(ct_backward_from(ct_mul(ct_mul(x, x), x), NULL, CT_CREATE_GRAPH));
    ct_tensor *first = ct_grad_of(x);
    CHECK(ct_requires_grad(first));
    REQUIRE(ct_grad(&first, 1, NULL, &x, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(1), 1e-12, 18);
    ct_set_grad(x, NULL); /* it would hold itself otherwise */
}

/* ---- Where a formula divides by what may be zero ---- */

static bool product(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    return (out[0] = ct_prod(in[0], .axes = CT_DIMS(1))) != NULL;
}
static bool running_product(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    return (out[0] = ct_cumprod(in[0], 1)) != NULL;
}

TEST(products_with_zeros_are_right_to_second_order) {
    ct_tensor *x = F64(CT_DIMS(4, 3), 2, 0, 3, 0, 0, 5, 1, 2, 4, 0, 0, 0);
    CHECK(ct_check_grad(product, NULL, &x, 1, 1));
    CHECK(ct_check_grad(running_product, NULL, &x, 1, 1));
}

static bool power(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)n, (void)m;
    return (out[0] = ct_pow_s(in[0], *(double *)context)) != NULL;
}

TEST(whole_powers_are_right_at_zero_and_for_negative_bases_to_second_order) {
    ct_tensor *x = F64(CT_DIMS(4), 0, -1.5, 2, -0.25);
    for (double exponent = 1; exponent <= 4; exponent++) CHECK(ct_check_grad(power, &exponent, &x, 1, 1));
    ct_tensor *y = ct_set_requires_grad(F64(CT_DIMS(2), 0, 3), true), *p = ct_sum(ct_pow_s(y, 0)), *g;
    REQUIRE(ct_grad(&p, 1, NULL, &y, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 0, 0, 0); /* x^0 has gradient 0 everywhere */
}

TEST(kinks_have_the_documented_slope) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(3), 0, -1, 1), true), *g;
    const struct {
        ct_tensor *y;
        double at_zero, below, above;
    } all[] = {{ct_relu(x), 0, 0, 1},
               {ct_abs(x), 0, -1, 1},
               {ct_clamp(x, .min = CT_SET(0)), 1, 0, 1},
               {ct_norm(x), 0, -sqrt(0.5), sqrt(0.5)},
               {ct_sign(x), 0, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ct_tensor *s = ct_sum(all[i].y);
        REQUIRE(ct_grad(&s, 1, NULL, &x, 1, &g, 0));
        CHECK_VALUES(g, CT_DIMS(3), 1e-12, all[i].at_zero, all[i].below, all[i].above);
    }
    ct_tensor *zero = ct_set_requires_grad(ct_zeros(CT_DIMS(2), .dtype = CT_F64), true), *n = ct_norm(zero);
    REQUIRE(ct_grad(&n, 1, NULL, &zero, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 0, 0, 0);
    ct_tensor *root = ct_sum(ct_sqrt(zero));
    REQUIRE(ct_grad(&root, 1, NULL, &zero, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(2), 0, INFINITY, INFINITY);
}

/* ---- Functions ---- */

/* f(x) = (x0 x1, x0^2, sin x1) */
static bool vector_function(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    ct_scope {
        ct_tensor *a = ct_narrow(in[0], 0, 0, 1), *b = ct_narrow(in[0], 0, 1, 1),
                  *parts[] = {ct_mul(a, b), ct_mul(a, a), ct_sin(b)};
        out[0] = ct_pass(ct_cat(parts, 3, 0));
    }
    return out[0] != NULL;
}

static const double x0 = 1.2, x1 = -0.7;

TEST(the_jacobian_is_the_closed_form) {
    ct_tensor *x = F64(CT_DIMS(2), x0, x1), *j = ct_jacobian(vector_function, NULL, x, 0);
    CHECK_VALUES(j, CT_DIMS(3, 2), 1e-12, x1, x0, 2 * x0, 0, 0, cos(x1));
}

TEST(jvp_is_the_jacobian_times_the_vector) {
    ct_tensor *x = F64(CT_DIMS(2), x0, x1), *v = F64(CT_DIMS(2), 2, -3), *out = NULL;
    REQUIRE(ct_jvp(vector_function, NULL, &x, &v, 1, &out, 1, 0));
    CHECK_VALUES(out, CT_DIMS(3), 1e-12, 2 * x1 - 3 * x0, 4 * x0, -3 * cos(x1));
    CHECK(!ct_requires_grad(out));
}

/* g(x, y) = sum of x' y x with x (2), y (2, 2) */
static bool quadratic(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)m;
    ct_scope {
        out[0] = ct_pass(ct_sum(ct_mul(in[0], n == 2 ? ct_matmul(in[1], in[0]) : ct_mul(in[0], in[0]))));
    }
    return out[0] != NULL;
}

TEST(jvp_takes_several_arguments) {
    ct_tensor *x[] = {F64(CT_DIMS(2), 1, 2), F64(CT_DIMS(2, 2), 1, 2, 3, 4)},
              *v[] = {F64(CT_DIMS(2), 1, 0), F64(CT_DIMS(2, 2), 0, 0, 0, 1)}, *out = NULL;
    REQUIRE(ct_jvp(quadratic, NULL, x, v, 2, &out, 1, 0));
    CHECK_NEAR(ct_item(out), (2 * 1 * 1 + (2 + 3) * 2) + 4, 1e-12); /* ((Y + Y') x)_0 + x1^2 */
}

TEST(the_hessian_is_the_closed_form) {
    ct_tensor *x = F64(CT_DIMS(2), x0, x1), *h = ct_hessian(quadratic, NULL, x, 0); /* of sum x^3 */
    CHECK_VALUES(h, CT_DIMS(2, 2), 1e-12, 6 * x0, 0, 0, 6 * x1);
}

TEST(hvp_is_the_hessian_times_the_vector) {
    ct_tensor *x[] = {F64(CT_DIMS(2), 1, 2), F64(CT_DIMS(2, 2), 1, 2, 3, 4)},
              *v[] = {F64(CT_DIMS(2), 1, -1), F64(CT_DIMS(2, 2), 1, 0, 0, 0)}, *out[2];
    REQUIRE(ct_hvp(quadratic, NULL, x, v, 2, out, 0));
    /* d/dx: (Y + Y') v + (V + V') x; d/dY: v x' + x v' */
    CHECK_VALUES(out[0], CT_DIMS(2), 1e-12, 2 - 5 + 2, 5 - 8);
    CHECK_VALUES(out[1], CT_DIMS(2, 2), 1e-12, 2, 2 - 1, -1 + 2, -4);
}

TEST(the_jacobian_can_be_differentiated_again) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), x0, x1), true),
              *j = ct_jacobian(vector_function, NULL, x, CT_CREATE_GRAPH), *g;
    REQUIRE(j != NULL);
    ct_tensor *s = ct_sum(ct_mul(j, j));
    REQUIRE(ct_grad(&s, 1, NULL, &x, 1, &g, 0)); /* x1^2 + x0^2 + 4 x0^2 + cos^2 x1 */
    CHECK_VALUES(g, CT_DIMS(2), 1e-12, 10 * x0, 2 * x1 - 2 * cos(x1) * sin(x1));
}

TEST(the_shape_of_a_jacobian_is_result_then_argument) {
    ct_tensor *x = ct_ones(CT_DIMS(2, 1), .dtype = CT_F64), *h = ct_hessian(quadratic, NULL, x, 0);
    REQUIRE(h != NULL);
    CHECK(ct_ndim(h) == 4 && ct_dim(h, 0) == 2 && ct_dim(h, 1) == 1 && ct_dim(h, 2) == 2 && ct_dim(h, 3) == 1);
}

static bool fails(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)in, (void)n, (void)out, (void)m;
    return false;
}
static bool gives_nothing(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)in, (void)n, (void)out, (void)m;
    return true;
}

TEST(a_function_that_fails_is_an_error_everywhere) {
    ct_tensor *x = F64(CT_DIMS(2), 1, 2), *out = NULL;
    CHECK(ct_jacobian(fails, NULL, x, 0) == NULL);
    CHECK_ERROR(CT_ERR_STATE, "jacobian: the function failed without an error");
    CHECK(!ct_jvp(gives_nothing, NULL, &x, &x, 1, &out, 1, 0));
    CHECK_ERROR(CT_ERR_NULL, "jvp: argument out (a result of the function) is NULL");
    CHECK(!ct_hvp(vector_function, NULL, &x, &x, 1, &out, 0));
    CHECK(ct_error_code() == CT_ERR_GRAD); /* not a scalar */
    ct_error_clear();
    CHECK(ct_hessian(NULL, NULL, x, 0) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "hessian: argument fn is NULL");
}

/* ---- check_grad ---- */

TEST(check_grad_accepts_what_is_right) {
    ct_tensor *x = F64(CT_DIMS(2), x0, x1);
    CHECK(ct_check_grad(vector_function, NULL, &x, 1, 1));
    ct_tensor *two[] = {F64(CT_DIMS(2), 1, 2), F64(CT_DIMS(2, 2), 1, 2, 3, 4)};
    CHECK(ct_check_grad(quadratic, NULL, two, 2, 1));
}

static bool like_input(ct_infer *infer) {
    infer->out[0] = *infer->in[0];
    return true;
}
static const ct_arg input[] = {{"x", 0}, {NULL, 0}}, output[] = {{"y", 0}, {NULL, 0}};
static void cube(ct_lower *l) { l->out[0] = ct_mul(ct_mul(l->in[0], l->in[0]), l->in[0]); }
/* 2 x^2 instead of 3 x^2 */
static void wrong_first(ct_vjp *v) { v->grad[0] = ct_mul(v->cot[0], ct_mul_s(ct_mul(v->in[0], v->in[0]), 2)); }
/* right, but cut from the graph: the second derivative is lost */
static void wrong_second(ct_vjp *v) {
    v->grad[0] = ct_mul(v->cot[0], ct_mul_s(ct_detach(ct_mul(v->in[0], v->in[0])), 3));
}
static ct_op_slot slots[2];
static const ct_op ops[2] = {
    {.size = sizeof(ct_op),
     .name = "wrong_first",
     .doc = "",
     .inputs = input,
     .outputs = output,
     .saves_in = 1,
     .infer = like_input,
     .lower = cube,
     .vjp = wrong_first,
     .slot = &slots[0]},
    {.size = sizeof(ct_op),
     .name = "wrong_second",
     .doc = "",
     .inputs = input,
     .outputs = output,
     .saves_in = 1,
     .infer = like_input,
     .lower = cube,
     .vjp = wrong_second,
     .slot = &slots[1]},
};
static bool call_op(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    return ct_apply(context, in, n, NULL, out, m);
}

TEST(check_grad_catches_a_wrong_first_derivative) {
    REQUIRE(ct_op_register(&ops[0]));
    ct_tensor *x = F64(CT_DIMS(3), 1, 2, 3);
    CHECK(!ct_check_grad(call_op, (void *)&ops[0], &x, 1, 1));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    CHECK(strstr(ct_error(), "check_grad: the first derivative along a random direction of input 0 (f64[3]) is ") ==
          ct_error());
    CHECK(strstr(ct_error(), "central differences give ") != NULL);
    ct_error_clear();
}

TEST(check_grad_catches_a_gradient_that_is_cut_at_second_order) {
    REQUIRE(ct_op_register(&ops[1]));
    ct_tensor *x = F64(CT_DIMS(3), 1, 2, 3);
    CHECK(ct_check_grad(call_op, (void *)&ops[1], &x, 1, 1, .order = 1));
    CHECK(!ct_check_grad(call_op, (void *)&ops[1], &x, 1, 1));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    CHECK(strstr(ct_error(), "check_grad: the second derivative") == ct_error());
    ct_error_clear();
}

TEST(check_grad_wants_f64) {
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *i = I64(CT_DIMS(2), 1, 2);
    CHECK(!ct_check_grad(quadratic, NULL, &x, 1, 1));
    CHECK_ERROR(CT_ERR_DTYPE, "check_grad: input 0 is f32[2]; differences need f64");
    CHECK(!ct_check_grad(quadratic, NULL, &i, 1, 1));
    CHECK_ERROR(CT_ERR_DTYPE, "check_grad: no input is f64");
}
