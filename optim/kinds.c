/* The kinds of optimizers: their settings, in one list each, from which the constructors, the table of names and the checks
 * are made, and what they tell the fused steps (ops/optim). */
#include "optim/optim.h"

#include <math.h>

/* S(k, name, how it is given, default, range, doc): number and count: 0 is the default; opt: a ct_opt; flag: a bool. */
#define LR(S, k, value)    S(k, lr, number, value, RANGE_ABOVE_0, "learning rate")
#define DECAY(S, k, value) S(k, weight_decay, opt, value, RANGE_FROM_0, "weight decay")
#define MAXIMIZE(S, k)     S(k, maximize, flag, 0, RANGE_FLAG, "climb instead of descend")
#define BETAS(S, k, second)                                                           \
    S(k, beta1, opt, 0.9, RANGE_0_TO_1, "how much of the average of gradients stays") \
    S(k, beta2, opt, second, RANGE_0_TO_1, "how much of the average of squares stays")
#define EPS(S, k, value)      S(k, eps, number, value, RANGE_ABOVE_0, "added to the divisor")
#define MOMENTUM(S, k, value) S(k, momentum, opt, value, RANGE_FROM_0, "how much of the last step stays")
#define NESTEROV(S, k)        S(k, nesterov, flag, 0, RANGE_FLAG, "look ahead along the momentum")
#define AMSGRAD(S, k)         S(k, amsgrad, flag, 0, RANGE_FLAG, "divide by the largest average of squares so far")
#define DECOUPLED(S, k)       S(k, decoupled_weight_decay, flag, 0, RANGE_FLAG, "decay apart from the gradient")

#define SGD(S, k)                                                                                         \
    LR(S, k, 1e-3)                                                                                        \
    MOMENTUM(S, k, 0) S(k, dampening, opt, 0, RANGE_ANY, "part of the gradient kept out of the momentum") \
        NESTEROV(S, k) DECAY(S, k, 0) MAXIMIZE(S, k)
#define ADAM(S, k)  LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 0) AMSGRAD(S, k) MAXIMIZE(S, k)
#define ADAMW(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 1e-2) AMSGRAD(S, k) MAXIMIZE(S, k)
#define RADAM(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 0) DECOUPLED(S, k) MAXIMIZE(S, k)
#define NADAM(S, k)                                                                                           \
    LR(S, k, 2e-3)                                                                                            \
    BETAS(S, k, 0.999) EPS(S, k, 1e-8) DECAY(S, k, 0)                                                         \
        S(k, momentum_decay, opt, 4e-3, RANGE_FROM_0, "how fast the momentum grows to beta1") DECOUPLED(S, k) \
            MAXIMIZE(S, k)
#define RMSPROP(S, k)                                                                                                  \
    LR(S, k, 1e-2)                                                                                                     \
    S(k, alpha, opt, 0.99, RANGE_0_TO_1, "how much of the average of squares stays") EPS(S, k, 1e-8) MOMENTUM(S, k, 0) \
        DECAY(S, k, 0) S(k, centered, flag, 0, RANGE_FLAG, "divide by the deviation from the average") MAXIMIZE(S, k)
#define ADAGRAD(S, k)                                                                                                 \
    LR(S, k, 1e-2)                                                                                                    \
    S(k, lr_decay, opt, 0, RANGE_FROM_0, "how fast the learning rate falls")                                          \
        S(k, initial_accumulator_value, opt, 0, RANGE_FROM_0, "what the sum of squares begins with") EPS(S, k, 1e-10) \
            DECAY(S, k, 0) MAXIMIZE(S, k)
#define ADADELTA(S, k) \
    LR(S, k, 1)        \
    S(k, rho, opt, 0.9, RANGE_0_TO_1, "how much of the averages stays") EPS(S, k, 1e-6) DECAY(S, k, 0) MAXIMIZE(S, k)
#define LAMB(S, k) LR(S, k, 1e-3) BETAS(S, k, 0.999) EPS(S, k, 1e-6) DECAY(S, k, 1e-2) MAXIMIZE(S, k)
#define LARS(S, k)                                                                                             \
    LR(S, k, 0.1)                                                                                              \
    MOMENTUM(S, k, 0.9) DECAY(S, k, 1e-4)                                                                      \
        S(k, trust, number, 1e-3, RANGE_ABOVE_0, "length of a step as a part of the weights'") EPS(S, k, 1e-8) \
            NESTEROV(S, k) MAXIMIZE(S, k)
#define LION(S, k) LR(S, k, 1e-4) BETAS(S, k, 0.99) DECAY(S, k, 0) MAXIMIZE(S, k)
#define LBFGS(S, k)                                                                                           \
    LR(S, k, 1)                                                                                               \
    S(k, max_iter, number, 20, RANGE_COUNT, "iterations a step") S(k, max_eval, number, 0, RANGE_FROM_0,      \
                                                                   "evaluations a step; 0: max_iter * 5 / 4") \
        S(k, tolerance_grad, opt, 1e-7, RANGE_FROM_0, "done when no gradient is larger")                      \
            S(k, tolerance_change, opt, 1e-9, RANGE_FROM_0, "done when nothing changes by more")              \
                S(k, history_size, number, 100, RANGE_COUNT, "how many steps are remembered")                 \
                    S(k, strong_wolfe, flag, 0, RANGE_FLAG, "search along the line by the strong Wolfe conditions")

/* ---- What each needs and does ---- */

/* Where the settings of a kind are: sgd_lr and so on. */
#define PLACE(k, name, how, value, range, doc) k##_##name,
#define PLACES(k, LIST)                        enum { LIST(PLACE, k) k##_settings_count };
PLACES(sgd, SGD)
PLACES(adam, ADAM)
PLACES(radam, RADAM)
PLACES(nadam, NADAM)
PLACES(rmsprop, RMSPROP)
PLACES(adagrad, ADAGRAD)
PLACES(adadelta, ADADELTA)
PLACES(lamb, LAMB)
PLACES(lars, LARS)
PLACES(lion, LION)

#define NAMES(kind, ...) static const char *const kind##_attrs[] = {__VA_ARGS__, NULL};
#define GIVE(...)        memcpy(a, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}))

NAMES(sgd, "lr", "momentum", "dampening", "decay", "nesterov", "first")
static int sgd_states(const double *s) { return s[sgd_momentum] != 0; }
static bool sgd_check(const double *s) {
    if (!s[sgd_nesterov] || (s[sgd_momentum] > 0 && s[sgd_dampening] == 0)) return true;
    return ct_fail(CT_ERR_VALUE, "sgd", "nesterov needs a momentum above 0 and no dampening; they are %g and %g",
                   s[sgd_momentum], s[sgd_dampening]);
}
static void sgd_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)t, (void)product;
    GIVE(s[sgd_lr], s[sgd_momentum], s[sgd_dampening], s[sgd_weight_decay], s[sgd_nesterov], fresh);
}

NAMES(adam, "beta1", "beta2", "eps", "decay", "shrink", "gradient", "moment", "root", "amsgrad", "plain")
static int adam_states(const double *s) { return s[adam_amsgrad] ? 3 : 2; }
static int two_states(const double *s) {
    (void)s;
    return 2;
}
static int one_state(const double *s) {
    (void)s;
    return 1;
}

static void adam_like(const double *s, int64_t t, bool decoupled, double *a) {
    const double b1 = s[adam_beta1], b2 = s[adam_beta2], decay = s[adam_weight_decay];
    const double bias1 = 1 - pow(b1, (double)t), bias2 = 1 - pow(b2, (double)t);
    GIVE(b1, b2, s[adam_eps], decoupled ? 0 : decay, decoupled ? 1 - s[adam_lr] * decay : 1, 0, s[adam_lr] / bias1,
         1 / sqrt(bias2), s[adam_amsgrad], 0);
}
static void adam_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh, (void)product;
    adam_like(s, t, false, a);
}
static void adamw_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh, (void)product;
    adam_like(s, t, true, a);
}

static void radam_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh, (void)product;
    const double b1 = s[radam_beta1], b2 = s[radam_beta2], lr = s[radam_lr], decay = s[radam_weight_decay];
    const bool decoupled = s[radam_decoupled_weight_decay] != 0;
    const double power = pow(b2, (double)t), bias1 = 1 - pow(b1, (double)t), bias2 = 1 - power;
    const double most = 2 / (1 - b2) - 1, rho = most - 2 * (double)t * power / bias2; /* length of the average */
    double moment = lr / bias1;
    const bool plain = !(rho > 5);
    if (!plain) moment *= sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) * sqrt(bias2);
    GIVE(b1, b2, s[radam_eps], decoupled ? 0 : decay, decoupled ? 1 - lr * decay : 1, 0, moment, 1, 0, plain);
}

static void nadam_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh;
    const double b1 = s[nadam_beta1], b2 = s[nadam_beta2], lr = s[nadam_lr], decay = s[nadam_weight_decay];
    const bool decoupled = s[nadam_decoupled_weight_decay] != 0;
    const double rate = s[nadam_momentum_decay], mu = b1 * (1 - 0.5 * pow(0.96, (double)t * rate));
    const double next = b1 * (1 - 0.5 * pow(0.96, (double)(t + 1) * rate));
    *product *= mu;
    GIVE(b1, b2, s[nadam_eps], decoupled ? 0 : decay, decoupled ? 1 - lr * decay : 1, lr * (1 - mu) / (1 - *product),
         lr * next / (1 - *product * next), 1 / sqrt(1 - pow(b2, (double)t)), 0, 0);
}

NAMES(rmsprop, "lr", "alpha", "eps", "decay", "momentum", "centered")
static int rmsprop_states(const double *s) { return 1 + (s[rmsprop_centered] != 0) + (s[rmsprop_momentum] != 0); }
static void rmsprop_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)t, (void)fresh, (void)product;
    GIVE(s[rmsprop_lr], s[rmsprop_alpha], s[rmsprop_eps], s[rmsprop_weight_decay], s[rmsprop_momentum],
         s[rmsprop_centered]);
}

NAMES(adagrad, "lr", "eps", "decay")
static void adagrad_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh, (void)product;
    GIVE(s[adagrad_lr] / (1 + (double)(t - 1) * s[adagrad_lr_decay]), s[adagrad_eps], s[adagrad_weight_decay]);
}

NAMES(adadelta, "lr", "rho", "eps", "decay")
static void adadelta_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)t, (void)fresh, (void)product;
    GIVE(s[adadelta_lr], s[adadelta_rho], s[adadelta_eps], s[adadelta_weight_decay]);
}

NAMES(lamb, "lr", "beta1", "beta2", "eps", "decay", "moment", "root")
static void lamb_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)fresh, (void)product;
    GIVE(s[lamb_lr], s[lamb_beta1], s[lamb_beta2], s[lamb_eps], s[lamb_weight_decay],
         1 / (1 - pow(s[lamb_beta1], (double)t)), 1 / sqrt(1 - pow(s[lamb_beta2], (double)t)));
}

NAMES(lars, "lr", "momentum", "decay", "trust", "eps", "nesterov")
static void lars_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)t, (void)fresh, (void)product;
    GIVE(s[lars_lr], s[lars_momentum], s[lars_weight_decay], s[lars_trust], s[lars_eps], s[lars_nesterov]);
}

NAMES(lion, "lr", "beta1", "beta2", "shrink")
static void lion_prepare(const double *s, int64_t t, bool fresh, double *product, double *a) {
    (void)t, (void)fresh, (void)product;
    GIVE(s[lion_lr], s[lion_beta1], s[lion_beta2], 1 - s[lion_lr] * s[lion_weight_decay]);
}

/* ---- Tables and constructors ---- */

#define ROW(k, name, how, value, range, doc)   {#name, (value), (doc)},
#define RANGE(k, name, how, value, range, doc) (range),
#define VALUE(k, name, how, value, range, doc) GIVEN_##how(name, value),
#define GIVEN_number(name, normal)             (o.name != 0 ? (double)o.name : (normal))
#define GIVEN_opt(name, normal)                (o.name.set ? o.name.value : (normal))
#define GIVEN_flag(name, normal)               (double)o.name

#define KIND(k, LIST, text, ...)                                                                         \
    static const ct_setting k##_settings[] = {LIST(ROW, k)};                                             \
    static const optim_range k##_ranges[] = {LIST(RANGE, k)};                                            \
    static const optim_kind k##_kind = {.info.name = #k,                                                 \
                                        .info.doc = (text),                                              \
                                        .info.settings = k##_settings,                                   \
                                        .info.count = (int)(sizeof k##_settings / sizeof *k##_settings), \
                                        .ranges = k##_ranges,                                            \
                                        __VA_ARGS__};                                                    \
    ct_optim *ct_##k##_p(ct_module *net, const ct_##k##_options *options) {                              \
        OPTIM_TAKE(ct_##k##_options, o, options);                                                        \
        const double values[] = {LIST(VALUE, k)};                                                        \
        return optim_new(&k##_kind, net, values);                                                        \
    }
#define STEP(which, names, how) .op = "optim_" #which, .attrs = names##_attrs, .prepare = how##_prepare

KIND(sgd, SGD, "stochastic gradient descent, with momentum", STEP(sgd, sgd, sgd), .state_count = sgd_states,
     .check = sgd_check, .states = {"momentum_buffer"})
KIND(adam, ADAM, "Adam", STEP(adam, adam, adam), .state_count = adam_states,
     .states = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
KIND(adamw, ADAMW, "Adam with decoupled weight decay", STEP(adam, adam, adamw), .state_count = adam_states,
     .states = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
KIND(radam, RADAM, "rectified Adam", STEP(adam, adam, radam), .state_count = two_states,
     .states = {"exp_avg", "exp_avg_sq"})
KIND(nadam, NADAM, "Adam with Nesterov's momentum", STEP(adam, adam, nadam), .state_count = two_states,
     .states = {"exp_avg", "exp_avg_sq"})
KIND(rmsprop, RMSPROP, "gradients divided by the root of their average square", STEP(rmsprop, rmsprop, rmsprop),
     .state_count = rmsprop_states, .states = {"square_avg", "grad_avg", "momentum_buffer"})
KIND(adagrad, ADAGRAD, "gradients divided by the root of the sum of their squares", STEP(adagrad, adagrad, adagrad),
     .state_count = one_state, .states = {"sum"})
KIND(adadelta, ADADELTA, "steps in units of earlier steps", STEP(adadelta, adadelta, adadelta),
     .state_count = two_states, .states = {"square_avg", "acc_delta"})
KIND(lamb, LAMB, "Adam with steps scaled to each tensor's length, for large batches", STEP(lamb, lamb, lamb),
     .state_count = two_states, .states = {"exp_avg", "exp_avg_sq"})
KIND(lars, LARS, "SGD with steps scaled to each tensor's length, for large batches", STEP(lars, lars, lars),
     .state_count = one_state, .states = {"momentum_buffer"})
KIND(lion, LION, "steps of one size along the sign of the momentum", STEP(lion, lion, lion), .state_count = one_state,
     .states = {"exp_avg"})
KIND(lbfgs, LBFGS, "a quasi-Newton method, for problems without noise", .info.needs_loss = true)

const optim_kind *const optim_kinds[] = {
    &sgd_kind,      &adam_kind, &adamw_kind, &radam_kind, &nadam_kind, &rmsprop_kind, &adagrad_kind,
    &adadelta_kind, &lamb_kind, &lars_kind,  &lion_kind,  &lbfgs_kind, NULL};

/* ---- By name ---- */

const ct_optim_info *ct_optim_info_at(int i) {
    for (int k = 0; i >= 0 && optim_kinds[k]; k++)
        if (k == i) return &optim_kinds[k]->info;
    return NULL;
}

const ct_optim_info *ct_optim_find(const char *name) {
    for (int k = 0; name && optim_kinds[k]; k++)
        if (strcmp(optim_kinds[k]->info.name, name) == 0) return &optim_kinds[k]->info;
    return NULL;
}

ct_optim *ct_optim_build(const ct_optim_info *info, ct_module *net, const double *values) {
    if (!optim_given(info, "optim_build", "info")) return NULL;
    for (int k = 0; optim_kinds[k]; k++) {
        if (&optim_kinds[k]->info != info) continue;
        double given[OPTIM_SETTINGS];
        for (int i = 0; i < info->count; i++) given[i] = values ? values[i] : info->settings[i].value;
        return optim_new(optim_kinds[k], net, given);
    }
    ct_fail(CT_ERR_VALUE, "optim_build", "info is not from ct_optim_find");
    return NULL;
}
