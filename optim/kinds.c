/* The kinds of optimizers: what they tell the fused steps (ops/optim), their constructors, and the table of
 * names. */
#include "optim/optim.h"
#include "optim/settings.h"

#include <math.h>

#include "gen/ops_decl.h"

/* ---- What each needs and does ---- */

#define KIND(k, LIST, ...) PLACES(k, LIST)
#include "optim/kinds.def"
#undef KIND

/* Writes a list of numbers to a; how many they are. */
#define GIVE(...)                                                                    \
    memcpy(a, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__})); \
    return (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
/* What every step's op takes first. */
#define TAKES(call) (call)->rates, (call)->clock, (call)->gate, (call)->items, (call)->n

static int sgd_states(const double *s) { return s[sgd_momentum] != 0; }
static bool sgd_check(const double *s) {
    if (!s[sgd_nesterov] || (s[sgd_momentum] > 0 && s[sgd_dampening] == 0)) return true;
    return ct_fail(CT_ERR_VALUE, "sgd", "nesterov needs a momentum above 0 and no dampening; they are %g and %g",
                   s[sgd_momentum], s[sgd_dampening]);
}
static int sgd_rates(const double *s, double *a) {
    GIVE(s[sgd_lr], s[sgd_momentum], 1 - s[sgd_dampening], s[sgd_weight_decay]);
}
static bool sgd_step(const double *s, const optim_call *call) {
    return ct__optim_sgd(TAKES(call), s[sgd_momentum] != 0, s[sgd_nesterov] != 0, call->master);
}

static int adam_states(const double *s) { return s[adam_amsgrad] ? 3 : 2; }
static int two_states(const double *s) {
    (void)s;
    return 2;
}
static int one_state(const double *s) {
    (void)s;
    return 1;
}

static int adam_rates(const double *s, double *a) {
    const double b1 = s[adam_beta1], b2 = s[adam_beta2];
    GIVE(s[adam_lr], b1, 1 - b1, b2, 1 - b2, s[adam_eps], s[adam_weight_decay], 0);
}
static bool adam_step(const double *s, const optim_call *call) {
    return ct__optim_adam(TAKES(call), false, false, false, s[adam_amsgrad] != 0, call->master);
}
static bool adamw_step(const double *s, const optim_call *call) {
    return ct__optim_adam(TAKES(call), false, false, true, s[adamw_amsgrad] != 0, call->master);
}
static bool radam_step(const double *s, const optim_call *call) {
    return ct__optim_adam(TAKES(call), true, false, s[radam_decoupled_weight_decay] != 0, false, call->master);
}
static int nadam_rates(const double *s, double *a) {
    const double b1 = s[nadam_beta1], b2 = s[nadam_beta2];
    GIVE(s[nadam_lr], b1, 1 - b1, b2, 1 - b2, s[nadam_eps], s[nadam_weight_decay], s[nadam_momentum_decay]);
}
static bool nadam_step(const double *s, const optim_call *call) {
    return ct__optim_adam(TAKES(call), false, true, s[nadam_decoupled_weight_decay] != 0, false, call->master);
}

static int rmsprop_states(const double *s) { return 1 + (s[rmsprop_centered] != 0) + (s[rmsprop_momentum] != 0); }
static int rmsprop_rates(const double *s, double *a) {
    GIVE(s[rmsprop_lr], s[rmsprop_alpha], 1 - s[rmsprop_alpha], s[rmsprop_eps], s[rmsprop_weight_decay],
         s[rmsprop_momentum]);
}
static bool rmsprop_step(const double *s, const optim_call *call) {
    return ct__optim_rmsprop(TAKES(call), s[rmsprop_momentum] != 0, s[rmsprop_centered] != 0, call->master);
}

static int adagrad_rates(const double *s, double *a) {
    GIVE(s[adagrad_lr], s[adagrad_lr_decay], s[adagrad_eps], s[adagrad_weight_decay]);
}
static bool adagrad_step(const double *s, const optim_call *call) {
    (void)s;
    return ct__optim_adagrad(TAKES(call), call->master);
}

static int adadelta_rates(const double *s, double *a) {
    GIVE(s[adadelta_lr], s[adadelta_rho], 1 - s[adadelta_rho], s[adadelta_eps], s[adadelta_weight_decay]);
}
static bool adadelta_step(const double *s, const optim_call *call) {
    (void)s;
    return ct__optim_adadelta(TAKES(call), call->master);
}

static int lamb_rates(const double *s, double *a) {
    const double b1 = s[lamb_beta1], b2 = s[lamb_beta2];
    GIVE(s[lamb_lr], b1, 1 - b1, b2, 1 - b2, s[lamb_eps], s[lamb_weight_decay]);
}
static bool lamb_step(const double *s, const optim_call *call) {
    (void)s;
    return ct__optim_lamb(TAKES(call), call->master);
}

static int lars_rates(const double *s, double *a) {
    GIVE(s[lars_lr], s[lars_momentum], s[lars_weight_decay], s[lars_trust], s[lars_eps]);
}
static bool lars_step(const double *s, const optim_call *call) {
    return ct__optim_lars(TAKES(call), s[lars_nesterov] != 0, call->master);
}

static int lion_rates(const double *s, double *a) {
    const double b1 = s[lion_beta1], b2 = s[lion_beta2];
    GIVE(s[lion_lr], b1, 1 - b1, b2, 1 - b2, s[lion_weight_decay]);
}
static bool lion_step(const double *s, const optim_call *call) {
    (void)s;
    return ct__optim_lion(TAKES(call), call->master);
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
#define STEP(which, how) .step = which##_step, .rates = how##_rates

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
