/* Schedules by name, with settings that are numbers, for programs that read them from a file. */
#include <math.h>

#include "optim/schedule.h"

enum { MOST = 10 };

/* A number of steps: a part of all of them when below 1, what is left after the warm-up when 0. */
static int64_t steps_of(double value, int64_t total, int64_t left) {
    if (value == 0) return left;
    const double steps = value < 1 ? floor(value * (double)total + 0.5) : value;
    return steps < 1 ? 1 : (int64_t)steps;
}

/* What a builder sees: the settings after the warm-up, all steps, and those after the warm-up. */
typedef struct order {
    ct_optim *optim;
    const double *v;
    int64_t total, left;
} order;

static int64_t steps_at(const order *o, int i) { return steps_of(o->v[i], o->total, o->left); }

static ct_schedule *build_constant(const order *o) { return ct_schedule_constant(o->optim, 1, 0); }
static ct_schedule *build_step_decay(const order *o) {
    return ct_schedule_step_decay(o->optim, steps_at(o, 0), .gamma = CT_SET(o->v[1]));
}
static ct_schedule *build_multi_step(const order *o) {
    ct_dims milestones = {0};
    for (int i = 0; i < 4; i++)
        if (o->v[i] != 0) milestones.d[milestones.n++] = steps_at(o, i);
    return ct_schedule_multi_step(o->optim, milestones, .gamma = CT_SET(o->v[4]));
}
static ct_schedule *build_exponential(const order *o) { return ct_schedule_exponential(o->optim, o->v[0]); }
static ct_schedule *build_cosine(const order *o) {
    return ct_schedule_cosine(o->optim, steps_at(o, 0), .min_lr = o->v[1]);
}
static ct_schedule *build_restarts(const order *o) {
    return ct_schedule_cosine_restarts(o->optim, steps_at(o, 0), .multiply = (int64_t)o->v[1], .min_lr = o->v[2]);
}
static ct_schedule *build_linear(const order *o) {
    return ct_schedule_warmup(o->optim, steps_at(o, 0), .start = 1, .end = CT_SET(o->v[1]));
}
static ct_schedule *build_polynomial(const order *o) {
    return ct_schedule_polynomial(o->optim, steps_at(o, 0), .power = o->v[1]);
}
static ct_schedule *build_one_cycle(const order *o) {
    const double most = o->v[1] != 0 ? o->v[1] : schedule_base(o->optim);
    return ct_schedule_one_cycle(o->optim, most, steps_at(o, 0), .pct_start = o->v[2], .div_factor = o->v[3],
                                 .final_div_factor = o->v[4], .linear = o->v[5] != 0, .three_phase = o->v[6] != 0,
                                 .keep_momentum = o->v[7] != 0);
}
static ct_schedule *build_cyclic(const order *o) {
    const double most = o->v[1] != 0 ? o->v[1] : schedule_base(o->optim);
    return ct_schedule_cyclic(o->optim, o->v[0], most, .up = steps_at(o, 2), .down = o->v[3] != 0 ? steps_at(o, 3) : 0,
                              .mode = (ct_cyclic_mode)(int)fmin(o->v[4], CT_EXP_RANGE + 1), .gamma = o->v[5]);
}
static ct_schedule *build_plateau(const order *o) {
    return ct_schedule_plateau(o->optim, .maximize = o->v[0] != 0, .factor = CT_SET(o->v[1]),
                               .patience = CT_SET(o->v[2]), .threshold = CT_SET(o->v[3]), .cooldown = (int64_t)o->v[4],
                               .min_lr = o->v[5]);
}

#define WARMUP \
    { "warmup", 0, "steps of linear warm-up before it", CT_SETTING_STEPS }
#define STEPS \
    { "steps", 0, "how many steps it takes; 0: all that are left", CT_SETTING_STEPS }
static const ct_setting constant_settings[] = {WARMUP};
static const ct_setting step_decay_settings[] = {WARMUP,
                                                 {"every", 1.0 / 3, "steps between reductions", CT_SETTING_STEPS},
                                                 {"gamma", 0.1, "what it is multiplied by", CT_SETTING_NUMBER}};
static const ct_setting multi_step_settings[] = {
    WARMUP,
    {"milestone1", 0.5, "where it is reduced; 0: nowhere", CT_SETTING_STEPS},
    {"milestone2", 0.75, "where it is reduced; 0: nowhere", CT_SETTING_STEPS},
    {"milestone3", 0, "where it is reduced; 0: nowhere", CT_SETTING_STEPS},
    {"milestone4", 0, "where it is reduced; 0: nowhere", CT_SETTING_STEPS},
    {"gamma", 0.1, "what it is multiplied by", CT_SETTING_NUMBER}};
static const ct_setting exponential_settings[] = {
    WARMUP, {"gamma", 0.999, "what it is multiplied by at every step", CT_SETTING_NUMBER}};
static const ct_setting cosine_settings[] = {WARMUP, STEPS, {"min_lr", 0, "where it ends", CT_SETTING_NUMBER}};
static const ct_setting restarts_settings[] = {
    WARMUP,
    {"first", 0.1, "steps of the first fall", CT_SETTING_STEPS},
    {"multiply", 1, "how many times as long each next one is", CT_SETTING_WHOLE},
    {"min_lr", 0, "where each ends", CT_SETTING_NUMBER}};
static const ct_setting linear_settings[] = {
    WARMUP, STEPS, {"end", 0, "where it ends, as a part of the learning rate", CT_SETTING_NUMBER}};
static const ct_setting polynomial_settings[] = {
    WARMUP, STEPS, {"power", 1, "of the part that is left", CT_SETTING_NUMBER}};
static const ct_setting one_cycle_settings[] = {
    WARMUP,
    STEPS,
    {"max_lr", 0, "the top; 0: the learning rate", CT_SETTING_NUMBER},
    {"pct_start", 0.3, "part of the steps that goes up", CT_SETTING_NUMBER},
    {"div_factor", 25, "the top divided by the start", CT_SETTING_NUMBER},
    {"final_div_factor", 1e4, "the start divided by the end", CT_SETTING_NUMBER},
    {"linear", 0, "straight lines rather than cosines", CT_SETTING_FLAG},
    {"three_phase", 0, "down as slowly as up, then on to the end", CT_SETTING_FLAG},
    {"keep_momentum", 0, "leave the momentum alone", CT_SETTING_FLAG}};
static const ct_setting cyclic_settings[] = {
    WARMUP,
    {"base_lr", 0, "the bottom", CT_SETTING_NUMBER},
    {"max_lr", 0, "the top; 0: the learning rate", CT_SETTING_NUMBER},
    {"up", 0.05, "steps that go up", CT_SETTING_STEPS},
    {"down", 0, "steps that go down; 0: as many", CT_SETTING_STEPS},
    {"mode", 0, "0 triangular, 1 each cycle half as high, 2 times gamma^t", CT_SETTING_WHOLE},
    {"gamma", 1, "of mode 2", CT_SETTING_NUMBER}};
static const ct_setting plateau_settings[] = {
    WARMUP,
    {"maximize", 0, "larger is better", CT_SETTING_FLAG},
    {"factor", 0.1, "what it is multiplied by", CT_SETTING_NUMBER},
    {"patience", 10, "epochs without better before a reduction", CT_SETTING_WHOLE},
    {"threshold", 1e-4, "better by less does not count", CT_SETTING_NUMBER},
    {"cooldown", 0, "epochs to wait after a reduction", CT_SETTING_WHOLE},
    {"min_lr", 0, "not below this", CT_SETTING_NUMBER}};

#define INFO(name, doc, id, metric) \
    { {name, doc, id##_settings, (int)(sizeof id##_settings / sizeof *id##_settings), metric}, build_##id }
static const struct {
    ct_schedule_info info;
    ct_schedule *(*build)(const order *o);
} kinds[] = {
    INFO("constant", "the learning rate as it is", constant, false),
    INFO("step_decay", "smaller every so many steps", step_decay, false),
    INFO("multi_step", "smaller at some steps", multi_step, false),
    INFO("exponential", "smaller by a factor at every step", exponential, false),
    INFO("cosine", "along half a cosine", cosine, false),
    INFO("cosine_restarts", "along half a cosine, again and again", restarts, false),
    INFO("linear", "along a straight line", linear, false),
    INFO("polynomial", "along a power of what is left", polynomial, false),
    INFO("one_cycle", "up, then far down; the momentum the other way", one_cycle, false),
    INFO("cyclic", "up and down, again and again", cyclic, false),
    INFO("plateau", "smaller when the metric gets no better", plateau, true),
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const ct_schedule_info *ct_schedule_info_at(int i) { return i >= 0 && i < KINDS ? &kinds[i].info : NULL; }

const ct_schedule_info *ct_schedule_find(const char *name) {
    for (int i = 0; name && i < KINDS; i++)
        if (strcmp(kinds[i].info.name, name) == 0) return &kinds[i].info;
    return NULL;
}

ct_schedule *ct_schedule_build(const ct_schedule_info *info, ct_optim *optim, const double *values,
                               int64_t total_steps) {
    const char *me = "schedule_build";
    if (!optim_given(info, me, "info") || !optim_given(optim, me, "optim")) return NULL;
    int kind = 0;
    while (kind < KINDS && info != &kinds[kind].info) kind++;
    if (kind == KINDS) {
        ct_fail(CT_ERR_VALUE, me, "info is not from ct_schedule_find");
        return NULL;
    }
    if (total_steps < 1) {
        ct_fail(CT_ERR_VALUE, me, "total_steps is %lld; it has to be above 0", (long long)total_steps);
        return NULL;
    }
    double v[MOST];
    for (int i = 0; i < info->count; i++) {
        v[i] = values ? values[i] : info->settings[i].value;
        const char *wanted = v[i] < 0 ? "0 or more" : ct__setting_wants(&info->settings[i], v[i]);
        if (!wanted) continue;
        ct_fail(CT_ERR_VALUE, me, "%s: %s is %.10g; it has to be %s", info->name, info->settings[i].name, v[i], wanted);
        return NULL;
    }
    const int64_t ahead = v[0] != 0 ? steps_of(v[0], total_steps, 0) : 0;
    if (ahead >= total_steps) {
        ct_fail(CT_ERR_VALUE, me, "the warm-up takes %lld of %lld steps", (long long)ahead, (long long)total_steps);
        return NULL;
    }
    const order o = {optim, v + 1, total_steps, total_steps - ahead};
    if (!ahead) return kinds[kind].build(&o);
    ct_schedule *parts[2];
    parts[0] = ct_schedule_warmup(optim, ahead, .start = 1 / ((double)ahead + 1));
    parts[1] = kinds[kind].build(&o);
    return ct_schedule_sequence(parts, 2, &ahead);
}
