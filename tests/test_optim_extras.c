/* Gradient clipping, averages of weights and the loss scaler. */
#include <cotangent/optim.h>
#include <math.h>
#include <string.h>

#include "tests/harness.h"

static ct_tensor *same(ct_module *self, ct_tensor *x) {
    (void)self;
    return x;
}
static const ct_module_class plain = {.size = sizeof(ct_module_class), .name = "plain", .forward = same};

static ct_module *make_net(ct_dtype dtype) {
    ct_module *net = ct_module_new(&plain);
    ct_scope {
        ct_module_add_param(net, "a", TENSOR(dtype, CT_DIMS(2), 1, 2));
        ct_module_add_param(net, "b", TENSOR(dtype, CT_DIMS(2, 2), 3, 4, 5, 6));
        ct_module_add_buffer(net, "seen", I64(CT_DIMS(1), 0));
    }
    return net;
}

static ct_tensor *at(ct_module *net, const char *name) { return ct_module_find(net, name); }

static void set_grads(ct_module *net, double a, double b) {
    const ct_dtype dtype = ct_dtype_of(at(net, "a"));
    ct_set_grad(at(net, "a"), TENSOR(dtype, CT_DIMS(2), a, -a));
    ct_set_grad(at(net, "b"), TENSOR(dtype, CT_DIMS(2, 2), b, 0, 0, -b));
}

/* ---- Clipping ---- */

TEST(clipping_scales_all_gradients_to_the_norm) {
    ct_module *net = make_net(CT_F64);
    set_grads(net, 3, 4); /* 9 + 9 + 16 + 16 = 50 */
    CHECK_NEAR(ct_grad_norm(net), sqrt(50), 1e-15);
    CHECK_NEAR(ct_clip_grad_norm(net, 100.0), sqrt(50), 1e-15);
    CHECK_VALUES(ct_grad_of(at(net, "a")), CT_DIMS(2), 0, 3, -3);
    CHECK_NEAR(ct_clip_grad_norm(net, 1.0), sqrt(50), 1e-15);
    CHECK_VALUES(ct_grad_of(at(net, "a")), CT_DIMS(2), 1e-15, 3 / (sqrt(50) + 1e-6), -3 / (sqrt(50) + 1e-6));
    CHECK_NEAR(ct_grad_norm(net), sqrt(50) / (sqrt(50) + 1e-6), 1e-15);
    set_grads(net, 3, 4);
    CHECK_NEAR(ct_clip_grad_norm(net, 2.0, .norm_type = INFINITY), 4, 0);
    CHECK_NEAR(harness_at(ct_grad_of(at(net, "b")), 0), 8 / (4 + 1e-6), 1e-15);
    set_grads(net, 3, 4);
    CHECK_NEAR(ct_clip_grad_norm(net, 100.0, .norm_type = 1), 14, 0);
    CHECK_NEAR(ct_clip_grad_norm(net, 100.0, .norm_type = 3), cbrt(2 * 27 + 2 * 64), 1e-14);
    ct_set_grad(at(net, "b"), NULL); /* does not count */
    CHECK_NEAR(ct_grad_norm(net), sqrt(18), 1e-15);
    ct_module_zero_grad(net);
    CHECK(ct_grad_norm(net) == 0 && ct_clip_grad_norm(net, 1.0) == 0);
    ct_module_free(net);
}

TEST(the_norm_of_small_dtypes_does_not_overflow) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(4), .dtype = CT_F16), true),
              *y = ct_set_requires_grad(ct_ones(CT_DIMS(2)), true);
    ct_optim *opt = ct_sgd(NULL);
    ct_optim_add_tensor(opt, "x", x);
    ct_optim_add_tensor(opt, "y", y);
    ct_set_grad(x, TENSOR(CT_F16, CT_DIMS(4), 30000, 30000, 30000, 30000));
    CHECK_NEAR(ct_optim_grad_norm(opt), 60000, 0);
    ct_set_grad(y, F32(CT_DIMS(2), 0x1p126, 0));
    CHECK_NEAR(ct_optim_grad_norm(opt) / 0x1p126, 1, 1e-15);
    ct_optim_free(opt);
}

TEST(without_a_limit_nothing_is_clipped) {
    ct_tensor *x = ct_set_requires_grad(ct_zeros(CT_DIMS(2)), true);
    ct_optim *opt = ct_sgd(NULL);
    CHECK(ct_optim_add_tensor(opt, "x", x) && ct_set_grad(x, F32(CT_DIMS(2), INFINITY, 3)));
    CHECK(isinf(ct_optim_clip_grad_norm(opt, INFINITY)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2), 0, INFINITY, 3);
    ct_optim_free(opt);
}

TEST(a_norm_that_is_not_finite_can_be_an_error) {
    ct_module *net = make_net(CT_F32);
    set_grads(net, 1, NAN);
    CHECK(isnan(ct_clip_grad_norm(net, 1.0, .error_if_nonfinite = true)));
    CHECK_ERROR(CT_ERR_VALUE, "clip_grad_norm: the norm of the gradients is nan");
    CHECK_VALUES(ct_grad_of(at(net, "a")), CT_DIMS(2), 0, 1, -1);
    CHECK(isnan(ct_clip_grad_norm(net, 1.0)) && ct_ok());
    CHECK(isnan(harness_at(ct_grad_of(at(net, "a")), 0)));
    set_grads(net, 1, INFINITY);
    CHECK(isinf(ct_clip_grad_norm(net, 1.0, .norm_type = INFINITY)));
    CHECK_VALUES(ct_grad_of(at(net, "a")), CT_DIMS(2), 0, 0, 0);
    ct_module_free(net);
}

TEST(clipping_by_value_and_of_shared_gradients) {
    ct_module *net = make_net(CT_F32);
    set_grads(net, 3, 0.5);
    CHECK(ct_clip_grad_value(net, 1));
    CHECK_VALUES(ct_grad_of(at(net, "a")), CT_DIMS(2), 0, 1, -1);
    CHECK_VALUES(ct_grad_of(at(net, "b")), CT_DIMS(2, 2), 0, 0.5, 0, 0, -0.5);
    /* a gradient that repeats one number is scaled once, and that number is not the net's to change */
    ct_tensor *one = F32(CT_DIMS(1), 2), *wide = ct_expand(one, CT_DIMS(2));
    ct_module_zero_grad(net);
    ct_set_grad(at(net, "a"), wide);
    CHECK_NEAR(ct_clip_grad_norm(net, 1.0), sqrt(8), 1e-15);
    CHECK_NEAR(harness_at(ct_grad_of(at(net, "a")), 1), 2 / sqrt(8), 1e-6);
    CHECK_VALUES(one, CT_DIMS(1), 0, 2);
    CHECK(!ct_clip_grad_value(net, -1));
    CHECK_ERROR(CT_ERR_VALUE, "clip_grad_value: limit is -1; it has to be 0 or more");
    CHECK(isnan(ct_clip_grad_norm(net, NAN)));
    CHECK_ERROR(CT_ERR_VALUE, "clip_grad_norm: max_norm is nan; it has to be 0 or more");
    CHECK(isnan(ct_clip_grad_norm(NULL, 1.0)));
    CHECK_ERROR(CT_ERR_NULL, "clip_grad_norm: argument net is NULL");
    ct_module_free(net);
}

/* Both are the very same numbers, which may be one tensor: it must not be scaled twice. */
TEST(gradients_that_are_alike_are_clipped_one_by_one) {
    ct_tensor *x[2] = {ct_set_requires_grad(ct_ones(CT_DIMS(3)), true),
                       ct_set_requires_grad(ct_ones(CT_DIMS(3)), true)};
    ct_optim *opt = ct_sgd(NULL, .lr = 1);
    CHECK(ct_optim_add_tensor(opt, "a", x[0]) && ct_optim_add_tensor(opt, "b", x[1]));
    for (unsigned flags = 0; flags <= CT_CREATE_GRAPH; flags += CT_CREATE_GRAPH) {
        CHECK(ct_optim_zero_grad(opt));
        CHECK(ct_backward_from(ct_sum(ct_mul_s(ct_add(x[0], x[1]), 2)), NULL, flags));
        CHECK_NEAR(ct_optim_clip_grad_norm(opt, 1.0), sqrt(24), 1e-6);
        for (int i = 0; i < 2; i++) CHECK_NEAR(harness_at(ct_grad_of(x[i]), 0), 1 / sqrt(6), 1e-6);
    }
    ct_optim_free(opt);
}

/* ---- Averages ---- */

TEST(the_networks_own_values_come_back_although_an_error_is_pending) {
    ct_module *net = make_net(CT_F32);
    ct_ema *ema = ct_ema_new(net);
    ct_no_grad
        ct_fill(at(net, "a"), 5);
    CHECK(ct_ema_swap_in(ema));
    ct_fail(CT_ERR_VALUE, "test", "pending");
    ct_ema_free(ema);
    CHECK_ERROR(CT_ERR_VALUE, "test: pending");
    CHECK_VALUES(at(net, "a"), CT_DIMS(2), 0, 5, 5);
    ct_module_free(net);
}

TEST(averages_of_what_never_changes_are_that_to_the_bit) {
    ct_module *net = ct_nn_linear(37, 19);
    ct_ema *ema = ct_ema_new(net, .decay = CT_SET(0.9), .warmup = true);
    ct_tensor *before = ct_clone(ct_module_param(net, 0));
    for (int i = 0; i < 50; i++) CHECK(ct_ema_update(ema));
    CHECK(ct_ema_swap_in(ema));
    CHECK(memcmp(ct_data(before), ct_data(ct_module_param(net, 0)), 37 * 19 * sizeof(float)) == 0);
    ct_ema_free(ema);
    ct_module_free(net);
}

/* With decay 0 the average is the new value, however far the two are apart; in between no difference overflows. */
TEST(averages_of_values_far_apart_lose_neither) {
    static const struct {
        ct_dtype dtype;
        double decay, before, after, average, tolerance;
    } cases[] = {
        {CT_F32, 0, 1e8, 1, 1, 0},
        {CT_F32, 0, 1, 1e8, 1e8, 0},
        {CT_F32, 0, 0x1p127, -0x1.8p127, -0x1.8p127, 0},
        {CT_F32, 0.25, 0x1p127, -0x1p127, -0x1p126, 0},
        {CT_F32, 0.5, 0x1p127, -0x1p127, 0, 0},
        {CT_F32, 0.75, 0x1p127, -0x1p127, 0x1p126, 0},
        {CT_F32, 1, 0x1p127, -0x1p127, 0x1p127, 0},
        {CT_F64, 0, 1e17, 1, 1, 0},
        {CT_F64, 0, 0x1p1023, -0x1.8p1023, -0x1.8p1023, 0},
        {CT_F64, 0.75, 0x1p1023, -0x1p1023, 0x1p1022, 0},
        {CT_F64, 0.1, 3, 5, 4.8, 1e-15},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_module *net = make_net(cases[i].dtype);
        CHECK(ct_init_constant(at(net, "a"), cases[i].before));
        ct_ema *ema = ct_ema_new(net, .decay = CT_SET(cases[i].decay));
        CHECK(ct_init_constant(at(net, "a"), cases[i].after));
        CHECK(ct_ema_update(ema) && ct_ema_swap_in(ema));
        const double got = ct_item(ct_select(at(net, "a"), 0, 0));
        harness_check(fabs(got - cases[i].average) <= cases[i].tolerance, __FILE__, __LINE__, "case %zu: %g, not %g", i,
                      got, cases[i].average);
        ct_ema_free(ema);
        ct_module_free(net);
    }
}

TEST(lookahead_that_follows_all_the_way_is_where_the_inner_one_is) {
    ct_module *net = make_net(CT_F32);
    CHECK(ct_init_constant(at(net, "a"), 1e8));
    ct_optim *opt = ct_lookahead(ct_sgd(net, .lr = 1), .alpha = CT_SET(1), .k = 2);
    CHECK(ct_set_grad(at(net, "a"), F32(CT_DIMS(2), 1e8, 1e8)) && ct_optim_step(opt));
    CHECK(ct_set_grad(at(net, "a"), F32(CT_DIMS(2), -1, -1)) && ct_optim_step(opt));
    CHECK_VALUES(at(net, "a"), CT_DIMS(2), 0, 1, 1); /* 1 - 1e8 is no float */
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(averages_follow_and_swap) {
    ct_module *net = make_net(CT_F64);
    ct_ema *ema = ct_ema_new(net, .decay = CT_SET(0.9));
    ct_no_grad {
        ct_fill(at(net, "a"), 5);
        ct_fill(at(net, "seen"), 7);
    }
    CHECK(ct_ema_update(ema));
    CHECK(ct_ema_update(ema));
    CHECK(ct_ema_swap_in(ema));
    CHECK_VALUES(at(net, "a"), CT_DIMS(2), 1e-14, 0.81 * 1 + 0.19 * 5, 0.81 * 2 + 0.19 * 5);
    CHECK_VALUES(at(net, "seen"), CT_DIMS(1), 0, 7);
    CHECK(!ct_ema_update(ema));
    CHECK_ERROR(CT_ERR_STATE, "ema_update: the averages are in the network: swap them out");
    CHECK(!ct_ema_swap_in(ema));
    CHECK_ERROR(CT_ERR_STATE, "ema_swap_in: the averages are in the network: swap them out");
    CHECK(ct_ema_swap_out(ema));
    CHECK_VALUES(at(net, "a"), CT_DIMS(2), 0, 5, 5);
    CHECK(ct_requires_grad(at(net, "a")));
    CHECK(!ct_ema_swap_out(ema));
    CHECK_ERROR(CT_ERR_STATE, "ema_swap_out: the averages are not in the network");
    CHECK(ct_ema_swap_in(ema));
    ct_ema_free(ema); /* puts them back */
    CHECK_VALUES(at(net, "a"), CT_DIMS(2), 0, 5, 5);
    CHECK(!ct_ema_new(net, .decay = CT_SET(2)));
    CHECK_ERROR(CT_ERR_VALUE, "ema_new: decay is 2; it has to be from 0 to 1");
    ct_ema_free(NULL);
    ct_module_free(net);
}

TEST(averages_warm_up_and_half_types_keep_their_digits) {
    ct_module *net = make_net(CT_BF16);
    ct_ema *ema = ct_ema_new(net, .decay = CT_SET(0.999), .warmup = true);
    double expected = 1;
    ct_no_grad {
        ct_fill(at(net, "a"), 2);
    }
    for (int t = 0; t < 5; t++) {
        const double decay = (1.0 + t) / (10.0 + t);
        CHECK(ct_ema_update(ema));
        expected = decay * expected + (1 - decay) * 2;
    }
    ct_state *state = ct_state_new();
    CHECK(ct_ema_put_state(ema, state, "ema."));
    ct_tensor *a = ct_state_get(state, "ema.a.average");
    REQUIRE(a != NULL);
    CHECK(ct_dtype_of(a) == CT_F32);
    CHECK_NEAR(harness_at(a, 0), expected, 1e-6);
    ct_state_free(state);
    ct_ema_free(ema);
    ct_module_free(net);
}

TEST(resumed_averages_go_on_to_the_same_bits) {
    ct_module *net = make_net(CT_F32);
    ct_ema *a = ct_ema_new(net, .warmup = true);
    ct_no_grad {
        ct_fill(at(net, "b"), 0.1);
    }
    for (int t = 0; t < 3; t++) CHECK(ct_ema_update(a));
    ct_state *state = ct_state_new(), *torn = ct_state_new();
    ct_ema *b = ct_ema_new(net, .warmup = true);
    CHECK(ct_ema_put_state(a, state, "ema."));
    CHECK(!ct_ema_take_state(b, state, "x."));
    CHECK(!ct_ok());
    ct_error_clear();
    ct_state_put_integers(torn, "ema.updates", (int64_t[]){3}, 1);
    ct_state_put(torn, "ema.a.average", F32(CT_DIMS(3), 1, 2, 3));
    CHECK(!ct_ema_take_state(b, torn, "ema."));
    CHECK_ERROR(CT_ERR_SHAPE, "ema_take_state: ema.a.average is f32[3]; f32[2] is expected");
    CHECK(ct_ema_take_state(b, state, "ema."));
    for (int t = 0; t < 3; t++) CHECK(ct_ema_update(a) && ct_ema_update(b));
    CHECK(ct_ema_swap_in(a));
    ct_tensor *first = ct_clone(ct_detach(at(net, "b")));
    CHECK(ct_ema_swap_out(a) && ct_ema_swap_in(b));
    CHECK(harness_same_bits(first, ct_detach(at(net, "b"))));
    ct_state_free(state);
    ct_state_free(torn);
    ct_ema_free(a);
    ct_ema_free(b);
    ct_module_free(net);
}

/* ---- Scaler ---- */

TEST(the_scaler_skips_and_recovers) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_sgd(net, .lr = 1);
    ct_scaler *scaler = ct_scaler_new(1024, .growth_interval = 2);
    CHECK_NEAR(ct_item(ct_scaler_scale(scaler, F32(CT_DIMS(1), 2))), 2048, 0);
    /* bad, then two good ones, after which it grows, then one more */
    static const struct {
        double grad, scale_after;
        bool skipped;
    } rounds[] = {{INFINITY, 512, true}, {512, 512, false}, {1024, 1024, false}, {NAN, 512, true}, {512, 512, false}};
    double expected = 1;
    for (int i = 0; i < 5; i++) {
        const double scale = ct_scaler_value(scaler);
        set_grads(net, rounds[i].grad, 0);
        CHECK(ct_scaler_step(scaler, opt) && ct_scaler_update(scaler));
        if (!rounds[i].skipped) expected -= rounds[i].grad / scale;
        CHECK(ct_scaler_skipped(scaler) == rounds[i].skipped);
        CHECK_NEAR(ct_scaler_value(scaler), rounds[i].scale_after, 0);
        CHECK_NEAR(harness_at(at(net, "a"), 0), expected, 0);
        CHECK(!ct_grad_of(at(net, "a")));
    }
    CHECK(ct_optim_steps(opt) == 3);
    ct_scaler_free(scaler);
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(unscaled_gradients_can_be_clipped_before_the_step) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_sgd(net, .lr = 1);
    ct_scaler *scaler = ct_scaler_new(8);
    set_grads(net, 24, 32);
    CHECK(ct_scaler_unscale(scaler, opt));
    CHECK_NEAR(ct_optim_clip_grad_norm(opt, 1.0), sqrt(50), 1e-15);
    CHECK(!ct_scaler_unscale(scaler, opt));
    CHECK_ERROR(CT_ERR_STATE, "scaler_unscale: the gradients of this step are unscaled already");
    CHECK(ct_scaler_step(scaler, opt));
    CHECK_NEAR(harness_at(at(net, "a"), 0), 1 - 3 / sqrt(50), 1e-6);
    CHECK(ct_scaler_update(scaler));
    CHECK(!ct_scaler_update(scaler));
    CHECK_ERROR(CT_ERR_STATE, "scaler_update: no gradients were unscaled since the last update");
    ct_scaler_free(scaler);
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(small_half_gradients_do_not_vanish_in_the_scaler) {
    ct_tensor *x = ct_set_requires_grad(ct_zeros(CT_DIMS(2), .dtype = CT_F16), true);
    ct_optim *opt = ct_sgd(NULL, .lr = 1024);
    ct_optim_add_tensor(opt, "x", x);
    ct_scaler *scaler = ct_scaler_new(0);
    ct_set_grad(x, TENSOR(CT_F16, CT_DIMS(2), 0x1p-12, 1)); /* divided by 2^16 they are below the smallest f16 */
    CHECK(ct_scaler_step(scaler, opt));
    CHECK_VALUES(x, CT_DIMS(2), 0, -0x1p-18, -0x1p-6);
    ct_scaler_free(scaler);
    ct_optim_free(opt);
}

TEST(a_resumed_scaler_goes_on) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_sgd(net);
    ct_scaler *a = ct_scaler_new(4, .growth_interval = 3), *b = ct_scaler_new(0, .growth_interval = 3);
    ct_state *state = ct_state_new(), *wrong = ct_state_new();
    for (int t = 0; t < 2; t++) {
        set_grads(net, 1, 1);
        CHECK(ct_scaler_step(a, opt) && ct_scaler_update(a));
    }
    CHECK(ct_scaler_put_state(a, state, "s.") && ct_scaler_take_state(b, state, "s."));
    set_grads(net, 1, 1);
    CHECK(ct_scaler_step(b, opt) && ct_scaler_update(b));
    CHECK(ct_scaler_value(b) == 8);
    ct_state_put_numbers(wrong, "s.scaler", (double[]){-1, 0}, 2);
    CHECK(!ct_scaler_take_state(b, wrong, "s."));
    CHECK_ERROR(CT_ERR_VALUE, "scaler_take_state: s.scaler is -1, 0: not a scale and a number of steps");
    CHECK(ct_scaler_value(b) == 8);
    CHECK(!ct_scaler_new(-1));
    CHECK_ERROR(CT_ERR_VALUE, "scaler_new: init_scale is -1; it has to be above 0");
    CHECK(!ct_scaler_new(1, .growth_factor = 0.5));
    CHECK_ERROR(CT_ERR_VALUE, "scaler_new: growth_factor is 0.5; it has to be above 1");
    ct_scaler_free(a);
    ct_scaler_free(b);
    ct_scaler_free(NULL);
    ct_state_free(state);
    ct_state_free(wrong);
    ct_optim_free(opt);
    ct_module_free(net);
}
