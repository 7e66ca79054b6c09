/* The kinds of optimizers: what they tell the fused steps (ops/optim), their constructors, and the table of
 * names. */
#include "optim/optim.h"
#include "optim/settings.h"

#include <math.h>

/* ---- What each needs and does ---- */

#define KIND(k, LIST, ...) PLACES(k, LIST)
#include "optim/kinds.def"
#undef KIND

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

static bool lbfgs_check(const double *s) {
    const double most = 1 << 20;
    if (s[lbfgs_history_size] <= most && s[lbfgs_max_iter] <= 0x1p52) return true;
    return ct_fail(CT_ERR_VALUE, "lbfgs", "history_size is %g and max_iter %g; that is too many", s[lbfgs_history_size],
                   s[lbfgs_max_iter]);
}

/* ---- Tables and constructors ---- */

#define ROW(k, name, how, value, range, doc)   {#name, (value), (doc), KIND_OF_##range},
#define KIND_OF_RANGE_ANY                      CT_SETTING_NUMBER
#define KIND_OF_RANGE_ABOVE_0                  CT_SETTING_NUMBER
#define KIND_OF_RANGE_FROM_0                   CT_SETTING_NUMBER
#define KIND_OF_RANGE_0_TO_1                   CT_SETTING_NUMBER
#define KIND_OF_RANGE_FLAG                     CT_SETTING_FLAG
#define KIND_OF_RANGE_COUNT                    CT_SETTING_WHOLE
#define KIND_OF_RANGE_COUNT_OR_0               CT_SETTING_WHOLE
#define RANGE(k, name, how, value, range, doc) (range),
#define VALUE(k, name, how, value, range, doc) GIVEN_##how(name, value),
#define GIVEN_number(name, normal)             (o.name != 0 ? (double)o.name : (normal))
#define GIVEN_opt(name, normal)                (o.name.set ? o.name.value : (normal))
#define GIVEN_flag(name, normal)               (double)o.name

#define KIND(k, LIST, text, ...)                                                            \
    static const ct_setting k##_settings[] = {LIST(ROW, k)};                                \
    _Static_assert((int)k##_setting_count <= (int)OPTIM_SETTINGS, "room for the settings"); \
    static const optim_range k##_ranges[] = {LIST(RANGE, k)};                               \
    static const optim_kind k##_kind = {.info.name = #k,                                    \
                                        .info.doc = (text),                                 \
                                        .info.settings = k##_settings,                      \
                                        .info.count = k##_setting_count,                    \
                                        .ranges = k##_ranges,                               \
                                        __VA_ARGS__};                                       \
    ct_optim *ct_##k##_p(ct_module *net, const ct_##k##_options *options) {                 \
        TAKE_OPTIONS(ct_##k##_options, o, options);                                         \
        const double values[] = {LIST(VALUE, k)};                                           \
        return optim_new(&k##_kind, net, values);                                           \
    }
#define STEP(which, names, how) .op = "optim_" #which, .attrs = names##_attrs, .prepare = how##_prepare

#include "optim/kinds.def"
#undef KIND

#define KIND(k, ...) &k##_kind,
const optim_kind *const optim_kinds[] = {
#include "optim/kinds.def"
    NULL};
#undef KIND

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
