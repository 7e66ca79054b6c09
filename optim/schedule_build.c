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
                              .mode = (ct_cyclic_mode)(int)o->v[4], .gamma = o->v[5]);
}
static ct_schedule *build_plateau(const order *o) {
    return ct_schedule_plateau(o->optim, .maximize = o->v[0] != 0, .factor = CT_SET(o->v[1]),
                               .patience = CT_SET(o->v[2]), .threshold = CT_SET(o->v[3]), .cooldown = (int64_t)o->v[4],
                               .min_lr = o->v[5]);
}

#define WARMUP \
    { "warmup", 0, "steps of linear warm-up before it" }
#define STEPS \
    { "steps", 0, "how many steps it takes; 0: all that are left" }
static const ct_setting constant_settings[] = {WARMUP};
static const ct_setting step_decay_settings[] = {
    WARMUP, {"every", 1.0 / 3, "steps between reductions"}, {"gamma", 0.1, "what it is multiplied by"}};
static const ct_setting multi_step_settings[] = {WARMUP,
                                                 {"milestone1", 0.5, "where it is reduced; 0: nowhere"},
                                                 {"milestone2", 0.75, "where it is reduced; 0: nowhere"},
                                                 {"milestone3", 0, "where it is reduced; 0: nowhere"},
                                                 {"milestone4", 0, "where it is reduced; 0: nowhere"},
                                                 {"gamma", 0.1, "what it is multiplied by"}};
static const ct_setting exponential_settings[] = {WARMUP, {"gamma", 0.999, "what it is multiplied by at every step"}};
static const ct_setting cosine_settings[] = {WARMUP, STEPS, {"min_lr", 0, "where it ends"}};
static const ct_setting restarts_settings[] = {WARMUP,
                                               {"first", 0.1, "steps of the first fall"},
                                               {"multiply", 1, "how many times as long each next one is"},
                                               {"min_lr", 0, "where each ends"}};
static const ct_setting linear_settings[] = {
    WARMUP, STEPS, {"end", 0, "where it ends, as a part of the learning rate"}};
static const ct_setting polynomial_settings[] = {WARMUP, STEPS, {"power", 1, "of the part that is left"}};
static const ct_setting one_cycle_settings[] = {WARMUP,
                                                STEPS,
                                                {"max_lr", 0, "the top; 0: the learning rate"},
                                                {"pct_start", 0.3, "part of the steps that goes up"},
                                                {"div_factor", 25, "the top divided by the start"},
                                                {"final_div_factor", 1e4, "the start divided by the end"},
                                                {"linear", 0, "straight lines rather than cosines"},
                                                {"three_phase", 0, "down as slowly as up, then on to the end"},
                                                {"keep_momentum", 0, "leave the momentum alone"}};
static const ct_setting cyclic_settings[] = {WARMUP,
                                             {"base_lr", 0, "the bottom"},
                                             {"max_lr", 0, "the top; 0: the learning rate"},
                                             {"up", 0.05, "steps that go up"},
                                             {"down", 0, "steps that go down; 0: as many"},
                                             {"mode", 0, "0 triangular, 1 each cycle half as high, 2 times gamma^t"},
                                             {"gamma", 1, "of mode 2"}};
static const ct_setting plateau_settings[] = {WARMUP,
                                              {"maximize", 0, "larger is better"},
                                              {"factor", 0.1, "what it is multiplied by"},
                                              {"patience", 10, "epochs without better before a reduction"},
                                              {"threshold", 1e-4, "better by less does not count"},
                                              {"cooldown", 0, "epochs to wait after a reduction"},
                                              {"min_lr", 0, "not below this"}};

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
        if (v[i] >= 0 && v[i] <= 0x1p53) continue; /* a whole number, where it counts */
        ct_fail(CT_ERR_VALUE, me, "%s: %s is %g; it has to be %s", info->name, info->settings[i].name, v[i],
                v[i] > 0 ? "2^53 or less" : "0 or more");
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
