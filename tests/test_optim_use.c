/* How optimizers behave around the arithmetic: networks, groups, frozen parameters, layouts and dtypes, threads, state, errors. */
#include <cotangent/optim.h>
#include <math.h>
#include <string.h>

#include "tests/harness.h"

/* A network of two modules with weight and bias each, and a buffer. */
static ct_tensor *same(ct_module *self, ct_tensor *x) {
    (void)self;
    return x;
}
static const ct_module_class plain = {.size = sizeof(ct_module_class), .name = "plain", .forward = same};

static ct_tensor *upto(double n, ct_dtype dtype) { return ct_arange(0, n, 1, .dtype = dtype); }

static ct_module *make_net(ct_dtype dtype) {
    ct_module *net = ct_module_new(&plain);
    for (int i = 0; i < 2; i++) {
        ct_module *layer = ct_module_new(&plain);
        ct_scope {
            ct_module_add_param(layer, "weight", ct_cast(ct_sin(upto(40.0 + i, CT_F64)), dtype));
            ct_module_add_param(layer, "bias", ct_ones(CT_DIMS(3), .dtype = dtype));
            ct_module_add_buffer(layer, "count", ct_ones(CT_DIMS(2), .dtype = dtype));
        }
        ct_module_add(net, i ? "second" : "first", layer);
    }
    return net;
}

static ct_tensor *at(ct_module *net, const char *path) { return ct_module_find(net, path); }

/* Every parameter gets a gradient that depends on t. */
static void set_grads(ct_module *net, int t) {
    ct_parameters *list = ct_module_parameters(net);
    for (int i = 0; i < ct_parameters_count(list); i++)
        ct_scope {
            const ct_parameter *p = ct_parameters_at(list, i);
            ct_tensor *x = ct_parameter_tensor(p);
            if (p->buffer || !ct_requires_grad(x)) continue;
            ct_no_grad {
                ct_set_grad(x, ct_cast(ct_cos(ct_add_s(ct_mul_s(ct_cast(x, CT_F64), 2), t + i)), ct_dtype_of(x)));
            }
        }
    ct_parameters_free(list);
}

static bool same_nets(ct_module *a, ct_module *b) {
    static const char *const names[] = {"first.weight", "first.bias", "second.weight", "second.bias"};
    bool same = true;
    for (int i = 0; i < 4; i++) same = same && harness_same_bits(at(a, names[i]), at(b, names[i]));
    return same;
}

/* ---- Networks and groups ---- */

TEST(a_network_learns_through_backward) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_adamw(net, .lr = 0.05);
    double loss = 0;
    for (int t = 0; t < 60; t++)
        ct_scope {
            ct_tensor *y =
                ct_add(ct_sum(ct_square(at(net, "first.weight"))), ct_sum(ct_square(at(net, "second.bias"))));
            loss = ct_item(y);
            CHECK(ct_backward(y) && ct_optim_step(opt));
            CHECK(!ct_grad_of(at(net, "first.weight"))); /* forgotten */
        }
    CHECK(loss < 1);
    CHECK(ct_optim_steps(opt) == 60);
    CHECK_VALUES(at(net, "first.bias"), CT_DIMS(3), 0, 1, 1, 1); /* it had no gradient */
    CHECK_VALUES(at(net, "first.count"), CT_DIMS(2), 0, 1, 1);
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(a_group_has_its_own_decay_and_rate) {
    ct_module *net = make_net(CT_F64);
    ct_optim *opt = ct_sgd(net, .lr = 0.5, .weight_decay = CT_SET(0.1));
    CHECK(ct_optim_group(opt, "*.bias", .weight_decay = CT_SET(0)));
    CHECK(ct_optim_group(opt, "second.*", .lr = 0.25));
    ct_no_grad {
        for (int i = 0; i < 4; i++) {
            ct_tensor *x = at(net, (const char *[]){"first.weight", "first.bias", "second.weight", "second.bias"}[i]);
            ct_fill(x, 1);
            ct_set_grad(x, ct_zeros(ct_shape(x), .dtype = CT_F64));
        }
    }
    CHECK(ct_optim_step(opt));
    CHECK_NEAR(harness_at(at(net, "first.weight"), 0), 1 - 0.5 * 0.1, 1e-15);
    CHECK(harness_at(at(net, "first.bias"), 0) == 1);
    CHECK_NEAR(harness_at(at(net, "second.weight"), 0), 1 - 0.25 * 0.1, 1e-15);
    CHECK_NEAR(harness_at(at(net, "second.bias"), 0), 1 - 0.25 * 0.1, 1e-15); /* the later group took it over */
    CHECK(ct_optim_set_lr(opt, 1) && ct_optim_lr(opt) == 1);
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(frozen_parameters_stay_and_go_on_later) {
    ct_module *net = make_net(CT_F64);
    ct_optim *opt = ct_adam(net, .lr = 0.1);
    set_grads(net, 0);
    CHECK(ct_optim_step(opt));
    ct_tensor *before = ct_clone(ct_detach(at(net, "first.weight")));
    CHECK(ct_module_freeze(ct_module_find_child(net, "first"), true));
    set_grads(net, 1);
    CHECK(ct_optim_step(opt));
    CHECK(harness_same_bits(ct_detach(at(net, "first.weight")), before));
    CHECK(ct_module_freeze(ct_module_find_child(net, "first"), false));
    set_grads(net, 2);
    CHECK(ct_optim_step(opt));
    CHECK(!harness_same_bits(ct_detach(at(net, "first.weight")), before));
    CHECK(ct_optim_steps(opt) == 3);
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(gradients_are_kept_when_asked) {
    ct_module *net = make_net(CT_F64);
    ct_optim *opt = ct_sgd(net);
    CHECK(ct_optim_keep_grad(opt, true));
    set_grads(net, 0);
    CHECK(ct_optim_step(opt));
    CHECK(ct_grad_of(at(net, "first.weight")) != NULL);
    CHECK(ct_optim_zero_grad(opt) && !ct_grad_of(at(net, "first.weight")));
    ct_optim_free(opt);
    ct_module_free(net);
}

/* ---- Layouts and dtypes ---- */

TEST(gradients_of_any_layout_give_the_same_step) {
    for (int kind = 0; kind < 3; kind++)
        ct_scope {
            ct_tensor *x[2], *base = ct_sin(ct_reshape(upto(35.0, CT_F64), CT_DIMS(5, 7)));
            ct_optim *opt[2];
            for (int i = 0; i < 2; i++) {
                x[i] = ct_set_requires_grad(ct_clone(base), true);
                opt[i] = ct_adam(NULL, .lr = 0.1, .amsgrad = true);
                ct_optim_add_tensor(opt[i], "x", x[i]);
            }
            for (int t = 0; t < 3; t++) {
                ct_tensor *row = ct_cos(upto(7.0 + t, CT_F64)), *odd;
                if (kind == 0) odd = ct_expand(ct_narrow(row, 0, t, 7), CT_DIMS(5, 7)); /* stride 0 */
                else if (kind == 1) odd = ct_t(ct_cos(ct_reshape(upto(35.0, CT_F64), CT_DIMS(7, 5))));
                else odd = ct_narrow(ct_cos(ct_reshape(upto(60.0, CT_F64), CT_DIMS(5, 12))), 1, 3, 7);
                CHECK(!ct_is_contiguous(odd));
                CHECK(ct_set_grad(x[0], odd) && ct_set_grad(x[1], ct_contiguous(odd)));
                CHECK(ct_optim_step(opt[0]) && ct_optim_step(opt[1]));
            }
            CHECK(harness_same_bits(x[0], x[1]));
            ct_optim_free(opt[0]);
            ct_optim_free(opt[1]);
        }
}

TEST(parameters_that_are_not_contiguous_learn_too) {
    ct_tensor *base = ct_sin(ct_reshape(upto(35.0, CT_F32), CT_DIMS(5, 7)));
    ct_tensor *x = ct_set_requires_grad(ct_detach(ct_t(base)), true),
              *y = ct_set_requires_grad(ct_contiguous(ct_detach(x)), true);
    REQUIRE(!ct_is_contiguous(x));
    ct_optim *opt = ct_adamw(NULL, .lr = 0.1);
    ct_optim_add_tensor(opt, "x", x);
    ct_optim_add_tensor(opt, "y", y);
    for (int t = 0; t < 3; t++) {
        ct_tensor *g = ct_cos(ct_reshape(upto(35.0, CT_F32), CT_DIMS(7, 5)));
        CHECK(ct_set_grad(x, g) && ct_set_grad(y, g));
        CHECK(ct_optim_step(opt));
    }
    CHECK(harness_same_bits(x, y));
    ct_optim_free(opt);
}

TEST(half_parameters_follow_a_master_copy) {
    static const ct_dtype halves[] = {CT_BF16, CT_F16};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; ct_optim_info_at(i); i++)
            ct_scope {
                const ct_optim_info *info = ct_optim_info_at(i);
                if (info->needs_loss) continue;
                ct_tensor *start = ct_cast(ct_add_s(ct_sin(upto(67.0, CT_F32)), 4), halves[k]);
                ct_tensor *x = ct_set_requires_grad(ct_clone(start), true),
                          *wide = ct_set_requires_grad(ct_cast(start, CT_F32), true);
                ct_optim *a = ct_optim_build(info, NULL, NULL), *b = ct_optim_build(info, NULL, NULL);
                ct_optim_add_tensor(a, "x", x);
                ct_optim_add_tensor(b, "x", wide);
                for (int t = 0; t < 5; t++) {
                    ct_tensor *g = ct_cast(ct_cos(ct_add_s(upto(67.0, CT_F32), t)), halves[k]);
                    CHECK(ct_set_grad(x, g) && ct_set_grad(wide, ct_cast(g, CT_F32)));
                    CHECK(ct_optim_step(a) && ct_optim_step(b));
                }
                harness_check(harness_same_bits(ct_detach(x), ct_cast(ct_detach(wide), halves[k])), __FILE__, __LINE__,
                              "%s in %s", info->name, ct_dtype_name(halves[k]));
                ct_optim_free(a);
                ct_optim_free(b);
            }
    }
}

TEST(any_number_of_threads_gives_the_same_bits) {
    static const int threads[] = {1, 2, 7};
    for (int i = 0; ct_optim_info_at(i); i++)
        ct_scope {
            const ct_optim_info *info = ct_optim_info_at(i);
            ct_tensor *x[3], *small[3];
            double norm[3];
            if (info->needs_loss) continue;
            for (int k = 0; k < 3; k++) {
                ct_set_threads(threads[k]);
                x[k] = ct_set_requires_grad(ct_sin(upto(100003.0, CT_F32)), true);
                small[k] = ct_set_requires_grad(ct_ones(CT_DIMS(5)), true);
                ct_optim *opt = ct_optim_build(info, NULL, NULL);
                ct_optim_add_tensor(opt, "x", x[k]);
                ct_optim_add_tensor(opt, "small", small[k]);
                for (int t = 0; t < 3; t++) {
                    ct_set_grad(x[k], ct_cos(ct_add_s(upto(100003.0, CT_F32), t)));
                    ct_set_grad(small[k], ct_ones(CT_DIMS(5)));
                    norm[k] = ct_optim_clip_grad_norm(opt, 1.0);
                    CHECK(ct_optim_step(opt));
                }
                ct_optim_free(opt);
            }
            for (int k = 1; k < 3; k++) {
                harness_check(harness_same_bits(x[0], x[k]) && harness_same_bits(small[0], small[k]), __FILE__,
                              __LINE__, "%s with %d threads", info->name, threads[k]);
                CHECK(norm[0] == norm[k]);
            }
        }
    ct_set_threads(0);
}

/* ---- State ---- */

/* One of each kind, and each with the options that have states of their own. */
static ct_optim *make_optim(int i, ct_module *net) {
    switch (i) {
    case 0: return ct_sgd(net, .lr = 0.1);
    case 1: return ct_sgd(net, .lr = 0.1, .momentum = CT_SET(0.9), .nesterov = true);
    case 2: return ct_adam(net, .amsgrad = true);
    case 3: return ct_adamw(net);
    case 4: return ct_radam(net);
    case 5: return ct_nadam(net);
    case 6: return ct_rmsprop(net, .centered = true, .momentum = CT_SET(0.9));
    case 7: return ct_rmsprop(net, .momentum = CT_SET(0.9));
    case 8: return ct_adagrad(net, .initial_accumulator_value = CT_SET(0.1), .lr_decay = CT_SET(0.1));
    case 9: return ct_adadelta(net);
    case 10: return ct_lamb(net);
    case 11: return ct_lars(net);
    case 12: return ct_lion(net);
    case 13: return ct_lookahead(ct_adam(net, .lr = 0.05), .k = 3);
    default: return NULL;
    }
}

static void check_resumed(int kind, ct_dtype dtype) {
    ct_module *a = make_net(dtype), *b = make_net(dtype);
    ct_optim *first = make_optim(kind, a), *second = make_optim(kind, b);
    CHECK(ct_optim_group(first, "*.bias", .lr = 0.01) && ct_optim_group(second, "*.bias", .lr = 0.01));
    ct_state *state = ct_state_new();
    ct_scope {
        for (int t = 0; t < 4; t++) {
            set_grads(a, t);
            if (t == 0) ct_set_grad(at(a, "first.bias"), NULL); /* one that began later */
            CHECK(ct_optim_step(first));
        }
        CHECK(ct_optim_set_lr(first, 0.03));
        CHECK(ct_module_put_state(a, state, "net.") && ct_optim_put_state(first, state, "optim."));
        CHECK(ct_module_take_state(b, state, "net.") && ct_optim_take_state(second, state, "optim."));
        CHECK(ct_optim_steps(second) == 4 && ct_optim_lr(second) == 0.03);
        for (int t = 4; t < 9; t++) {
            set_grads(a, t);
            set_grads(b, t);
            CHECK(ct_optim_step(first) && ct_optim_step(second));
        }
        harness_check(same_nets(a, b), __FILE__, __LINE__, "%s in %s", ct_optim_name(first), ct_dtype_name(dtype));
        CHECK(ct_ok());
    }
    ct_state_free(state);
    ct_optim_free(first);
    ct_optim_free(second);
    ct_module_free(a);
    ct_module_free(b);
}

TEST(a_resumed_optimizer_goes_on_to_the_same_bits) {
    for (int kind = 0; kind < 14; kind++) {
        check_resumed(kind, CT_F32);
        check_resumed(kind, CT_F64);
        check_resumed(kind, CT_BF16);
    }
}

static ct_tensor *valley(void *context) {
    ct_tensor *x = at(context, "first.weight"), *y = at(context, "second.bias");
    ct_tensor *edge = ct_sub(ct_narrow(x, 0, 1, 39), ct_square(ct_narrow(x, 0, 0, 39)));
    return ct_add(ct_mul_s(ct_sum(ct_square(edge)), 10), ct_sum(ct_square(ct_square(y))));
}

TEST(a_resumed_lbfgs_goes_on_to_the_same_bits) {
    ct_module *a = make_net(CT_F64), *b = make_net(CT_F64);
    ct_optim *first = ct_lbfgs(a, .max_iter = 3, .history_size = 4, .strong_wolfe = true),
             *second = ct_lbfgs(b, .max_iter = 3, .history_size = 4, .strong_wolfe = true);
    ct_state *state = ct_state_new();
    for (int t = 0; t < 4; t++) ct_optim_step_with(first, valley, a);
    CHECK(ct_module_put_state(a, state, "net.") && ct_optim_put_state(first, state, "optim."));
    CHECK(ct_module_take_state(b, state, "net.") && ct_optim_take_state(second, state, "optim."));
    for (int t = 0; t < 4; t++) CHECK(ct_optim_step_with(first, valley, a) == ct_optim_step_with(second, valley, b));
    CHECK(same_nets(a, b));
    ct_state_free(state);
    ct_optim_free(first);
    ct_optim_free(second);
    ct_module_free(a);
    ct_module_free(b);
}

TEST(a_state_that_does_not_fit_changes_nothing) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_adam(net), *sgd = ct_sgd(net);
    ct_state *state = ct_state_new(), *torn = ct_state_new();
    ct_scope {
        set_grads(net, 0);
        CHECK(ct_optim_step(opt));
        CHECK(ct_optim_put_state(opt, state, "o."));
        CHECK(!ct_optim_take_state(sgd, state, "o."));
        CHECK_ERROR(CT_ERR_STATE, "optim_take_state: the state is that of adam, the optimizer is sgd");
        CHECK(!ct_optim_take_state(opt, state, "x."));
        CHECK_ERROR(CT_ERR_STATE, "optim_take_state: there is no optimizer under x.");
        /* everything but one tensor, which is of another shape */
        ct_state_put_text(torn, "o.optimizer", "adam");
        for (int64_t i = 0; i < ct_state_count(state); i++) {
            const char *name = ct_state_name(state, i);
            const bool last = strcmp(name, "o.second.bias.exp_avg_sq") == 0;
            ct_state_put(torn, name, last ? F32(CT_DIMS(2), 1, 2) : ct_state_at(state, i));
        }
        set_grads(net, 1);
        CHECK(ct_optim_step(opt));
        CHECK(!ct_optim_take_state(opt, torn, "o."));
        CHECK_ERROR(CT_ERR_SHAPE, "optim_take_state: o.second.bias.exp_avg_sq is f32[2]; f32[3] is expected");
        CHECK(ct_optim_steps(opt) == 2);
    }
    ct_state_free(state);
    ct_state_free(torn);
    ct_optim_free(opt);
    ct_optim_free(sgd);
    ct_module_free(net);
}

/* ---- Errors ---- */

TEST(a_pending_error_leaves_parameters_untouched) {
    ct_module *net = make_net(CT_F64), *copy = make_net(CT_F64);
    ct_optim *opt = ct_adam(net);
    ct_scope {
        set_grads(net, 0);
        ct_fail(CT_ERR_VALUE, "test", "pending");
        CHECK(!ct_optim_step(opt) && !ct_optim_set_lr(opt, 3) && !ct_optim_zero_grad(opt));
        CHECK(isnan(ct_clip_grad_norm(net, 1e-3)) && !ct_clip_grad_value(net, 0));
        CHECK(!ct_adam(net) && !ct_ema_new(net) && !ct_scaler_new(0));
        CHECK_ERROR(CT_ERR_VALUE, "test: pending");
        CHECK(same_nets(net, copy));
        CHECK(ct_optim_steps(opt) == 0 && ct_optim_lr(opt) == 1e-3);
    }
    ct_optim_free(opt);
    ct_module_free(net);
    ct_module_free(copy);
}

TEST(optimizers_say_what_is_wrong) {
    ct_module *net = make_net(CT_F32);
    CHECK(!ct_sgd(net, .lr = -1));
    CHECK_ERROR(CT_ERR_VALUE, "sgd: lr is -1; it has to be above 0");
    CHECK(!ct_sgd(net, .nesterov = true));
    CHECK_ERROR(CT_ERR_VALUE, "sgd: nesterov needs a momentum above 0 and no dampening; they are 0 and 0");
    CHECK(!ct_adam(net, .beta1 = CT_SET(1)));
    CHECK_ERROR(CT_ERR_VALUE, "adam: beta1 is 1; it has to be from 0 to below 1");
    CHECK(!ct_adamw(net, .weight_decay = CT_SET(-1)));
    CHECK_ERROR(CT_ERR_VALUE, "adamw: weight_decay is -1; it has to be 0 or more");
    CHECK(!ct_lbfgs(net, .max_iter = -2));
    CHECK_ERROR(CT_ERR_VALUE, "lbfgs: max_iter is -2; it has to be a whole number above 0");
    CHECK(!ct_lookahead(ct_sgd(net), .k = -1));
    CHECK_ERROR(CT_ERR_VALUE, "lookahead: k is -1; it has to be above 0");
    CHECK(!ct_lookahead(NULL));
    CHECK_ERROR(CT_ERR_NULL, "lookahead: argument inner is NULL");
    CHECK(!ct_optim_step(NULL));
    CHECK_ERROR(CT_ERR_NULL, "optim_step: argument optim is NULL");
    CHECK(!ct_optim_find("adamm") && ct_ok());
    ct_optim *opt = ct_adagrad(net);
    CHECK(!ct_optim_group(opt, "third.*", .lr = 1));
    CHECK_ERROR(CT_ERR_VALUE,
                "optim_group: the pattern third.* fits none of the 4 parameters, of which the first is first.weight");
    CHECK(!ct_optim_group(opt, "*", .momentum = CT_SET(0.5)));
    CHECK_ERROR(CT_ERR_VALUE, "optim_group: adagrad has no momentum");
    CHECK(!ct_optim_set_momentum(opt, 0.5));
    CHECK_ERROR(CT_ERR_VALUE, "optim_set_momentum: adagrad has no momentum");
    CHECK(!ct_optim_set_lr(opt, -1));
    CHECK_ERROR(CT_ERR_VALUE, "optim_set_lr: lr is -1; it has to be 0 or more");
    CHECK(!ct_optim_add_tensor(opt, "x", F32(CT_DIMS(2), 1, 2)));
    CHECK_ERROR(CT_ERR_GRAD, "optim_add_tensor: x is f32[2], which is no leaf that requires grad");
    CHECK(!ct_optim_add_tensor(opt, "first.bias", ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true)));
    CHECK_ERROR(CT_ERR_VALUE, "optim_add_tensor: there is a parameter first.bias already");
    ct_optim_free(opt);
    opt = ct_lbfgs(net);
    CHECK(!ct_optim_step(opt));
    CHECK_ERROR(CT_ERR_STATE, "optim_step: lbfgs evaluates the loss itself: ct_optim_step_with");
    ct_optim_free(opt);
    ct_module_free(net);
    ct_optim_free(NULL);
}

TEST(a_network_that_was_converted_needs_a_new_optimizer) {
    ct_module *net = make_net(CT_F32);
    ct_optim *opt = ct_sgd(net);
    CHECK(ct_module_to_dtype(net, CT_BF16));
    CHECK(!ct_optim_step(opt));
    CHECK_ERROR(CT_ERR_STATE, "optim_step: the parameter first.weight was moved or converted after the optimizer was "
                              "made: make a new one");
    ct_optim_free(opt);
    ct_module_free(net);
}

TEST(an_older_caller_has_shorter_options) {
    ct_adam_options options = {.lr = 0.5, .beta1 = CT_SET(0.5), .weight_decay = CT_SET(7)};
    options.size = offsetof(ct_adam_options, weight_decay); /* it knew no more than this */
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 1), true);
    ct_optim *opt = ct_adam_p(NULL, &options);
    ct_optim_add_tensor(opt, "x", x);
    ct_set_grad(x, F64(CT_DIMS(1), 0));
    CHECK(ct_optim_step(opt) && ct_optim_lr(opt) == 0.5 && ct_optim_momentum(opt) == 0.5);
    CHECK(harness_at(x, 0) == 1); /* no weight decay */
    ct_optim_free(opt);
    opt = ct_adam_p(NULL, NULL);
    CHECK(ct_optim_lr(opt) == 1e-3);
    ct_optim_free(opt);
}

TEST(the_momentum_can_appear_during_a_run) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1), 0), true);
    ct_optim *opt = ct_sgd(NULL, .lr = 1);
    ct_optim_add_tensor(opt, "x", x);
    ct_set_grad(x, F64(CT_DIMS(1), 1));
    CHECK(ct_optim_step(opt));
    CHECK(ct_optim_set_momentum(opt, 0.5));
    ct_set_grad(x, F64(CT_DIMS(1), 1));
    CHECK(ct_optim_step(opt)); /* b = 1 */
    ct_set_grad(x, F64(CT_DIMS(1), 1));
    CHECK(ct_optim_step(opt)); /* b = 1.5 */
    CHECK(harness_at(x, 0) == -3.5);
    ct_optim_free(opt);
}

/* Networks of one process that stand for those of several: a gather copies what the others have learned. */
enum { PARTS = 5 }; /* of a bias of 3 elements some have none */
typedef struct team {
    ct_module *nets[PARTS];
    int gathered;
} team;

static bool count_gathers(void *context, ct_tensor *const *xs, int n) {
    ((team *)context)->gathered++;
    return xs && n == 4;
}

static bool set_division(void *context, const char *path, ct_module *module) {
    (void)path;
    return ct_module_set_division(module, context);
}

TEST(processes_that_divide_the_learning_have_the_weights_of_one_and_a_part_of_the_state) {
    static const char *const names[] = {"first.weight", "first.bias", "second.weight", "second.bias"};
    team t = {0};
    ct_optim *opts[PARTS], *opt;
    ct_module *whole = make_net(CT_BF16);
    opt = ct_adamw(whole, .lr = 0.05);
    for (int i = 0; i < PARTS; i++) {
        ct_division division = {.part = i, .parts = PARTS, .gather = count_gathers, .context = &t};
        t.nets[i] = make_net(CT_BF16);
        CHECK(ct_module_apply(t.nets[i], set_division, &division));
        opts[i] = ct_adamw(t.nets[i], .lr = 0.05);
    }
    for (int step = 0; step < 3; step++) {
        set_grads(whole, step);
        for (int i = 0; i < PARTS; i++) set_grads(t.nets[i], step);
        CHECK(ct_optim_step(opt));
        for (int i = 0; i < PARTS; i++) CHECK(ct_optim_step(opts[i]));
        for (int i = 0; i < PARTS; i++) /* of each its own run is the whole network's; the rest is brought */
            for (int k = 0; k < 4; k++)
                ct_scope {
                    ct_no_grad {
                        ct_tensor *x = at(t.nets[i], names[k]), *y = at(whole, names[k]);
                        int64_t from, count;
                        ct_division_range(&(ct_division){.part = i, .parts = PARTS}, ct_numel(x), &from, &count);
                        CHECK(harness_same_bits(ct_narrow(x, 0, from, count), ct_narrow(y, 0, from, count)));
                        ct_assign(x, y);
                    }
                }
    }
    CHECK(t.gathered == 3 * PARTS);
    ct_state *state = ct_state_new();
    CHECK(ct_optim_put_state(opts[0], state, "o.") && ct_optim_put_state(opts[PARTS - 1], state, "last."));
    CHECK(ct_numel(ct_state_get(state, "o.first.weight.exp_avg")) == 8 &&
          ct_numel(ct_state_get(state, "o.second.weight.master")) == 9 &&
          ct_numel(ct_state_get(state, "last.first.bias.exp_avg")) == 0);
    CHECK(ct_optim_take_state(opts[0], state, "o."));
    ct_state_free(state);
    CHECK(!ct_lars(t.nets[0]));
    CHECK_ERROR(CT_ERR_UNSUPPORTED, "lars: first.weight is learned by 5 processes, each a part of its elements, and "
                                    "lars needs all of them");
    CHECK(ct_module_set_division(ct_module_child(t.nets[1], 0), NULL) && !ct_optim_step(opts[1]));
    CHECK_ERROR(CT_ERR_STATE, "optim_step: the parameter first.weight was divided among processes, or no longer, after "
                              "the optimizer was made: make a new one");
    CHECK(!ct_module_set_division(whole, &(ct_division){.part = 2, .parts = 2, .gather = count_gathers}));
    CHECK_ERROR(CT_ERR_VALUE, "module_set_division: part 2 of 2");
    ct_optim_free(opt);
    ct_module_free(whole);
    for (int i = 0; i < PARTS; i++) {
        ct_optim_free(opts[i]);
        ct_module_free(t.nets[i]);
    }
}
