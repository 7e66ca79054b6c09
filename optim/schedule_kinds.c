/* The kinds of schedules: the learning rate as a part of the base, in closed form of the step t. */
#include <math.h>
#include <stdlib.h>

#include "optim/schedule.h"

static const double pi = 3.14159265358979323846;

/* ---- Checks ---- */

static bool is_steps(const char *me, const char *what, int64_t steps) {
    return steps >= 1 || ct_fail(CT_ERR_VALUE, me, "%s is %lld; it has to be above 0", what, (long long)steps);
}
static bool is_positive(const char *me, const char *what, double x) {
    return (x > 0 && isfinite(x)) || ct_fail(CT_ERR_VALUE, me, "%s is %g; it has to be above 0", what, x);
}
static bool is_rate(const char *me, const char *what, double x) {
    return (x >= 0 && isfinite(x)) || ct_fail(CT_ERR_VALUE, me, "%s is %g; it has to be 0 or more", what, x);
}

#define MAKE(kind, optim, ...)                                                   \
    schedule_begin(schedule_new(&(kind), (optim), (const double[]){__VA_ARGS__}, \
                                (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))))

/* ---- Steps and powers ---- */

static double step_factor(const ct_schedule *s, int64_t t) { return pow(s->p[1], (double)(t / (int64_t)s->p[0])); }
static const schedule_kind step_decay = {"schedule_step_decay", step_factor, NULL, false};

ct_schedule *ct_schedule_step_decay_p(ct_optim *optim, int64_t every, const ct_schedule_gamma_options *options) {
    const char *me = step_decay.name;
    TAKE_OPTIONS(ct_schedule_gamma_options, given, options);
    const double gamma = given.gamma.set ? given.gamma.value : 0.1;
    if (!optim_given(optim, me, "optim") || !is_steps(me, "every", every) || !is_rate(me, "gamma", gamma)) return NULL;
    return MAKE(step_decay, optim, (double)every, gamma);
}

static double multi_factor(const ct_schedule *s, int64_t t) {
    int reached = 0;
    for (int i = 0; i < s->milestones.n; i++) reached += s->milestones.d[i] <= t;
    return pow(s->p[0], reached);
}
static const schedule_kind multi_step = {"schedule_multi_step", multi_factor, NULL, false};

ct_schedule *ct_schedule_multi_step_p(ct_optim *optim, ct_dims milestones, const ct_schedule_gamma_options *options) {
    const char *me = multi_step.name;
    TAKE_OPTIONS(ct_schedule_gamma_options, given, options);
    const double gamma = given.gamma.set ? given.gamma.value : 0.1;
    if (!optim_given(optim, me, "optim") || !is_rate(me, "gamma", gamma)) return NULL;
    if (milestones.n < 0 || milestones.n > CT_MAX_LIST) {
        ct_fail(CT_ERR_VALUE, me, "milestones: a list holds at most %d numbers", CT_MAX_LIST);
        return NULL;
    }
    ct_schedule *s = schedule_new(&multi_step, optim, &gamma, 1);
    if (s) s->milestones = milestones;
    return schedule_begin(s);
}

static double exponential_factor(const ct_schedule *s, int64_t t) { return pow(s->p[0], (double)t); }
static const schedule_kind exponential = {"schedule_exponential", exponential_factor, NULL, false};

ct_schedule *ct_schedule_exponential(ct_optim *optim, double gamma) {
    const char *me = exponential.name;
    if (!optim_given(optim, me, "optim") || !is_rate(me, "gamma", gamma)) return NULL;
    return MAKE(exponential, optim, gamma);
}

static double polynomial_factor(const ct_schedule *s, int64_t t) {
    return pow(1 - fmin((double)t, s->p[0]) / s->p[0], s->p[1]);
}
static const schedule_kind polynomial = {"schedule_polynomial", polynomial_factor, NULL, false};

ct_schedule *ct_schedule_polynomial_p(ct_optim *optim, int64_t steps, const ct_schedule_polynomial_options *options) {
    const char *me = polynomial.name;
    TAKE_OPTIONS(ct_schedule_polynomial_options, given, options);
    const double power = given.power != 0 ? given.power : 1;
    if (!optim_given(optim, me, "optim") || !is_steps(me, "steps", steps) || !is_positive(me, "power", power))
        return NULL;
    return MAKE(polynomial, optim, (double)steps, power);
}

/* ---- Lines ---- */

static double warmup_factor(const ct_schedule *s, int64_t t) {
    return s->p[1] + (s->p[2] - s->p[1]) * fmin((double)t, s->p[0]) / s->p[0];
}
static const schedule_kind warmup = {"schedule_warmup", warmup_factor, NULL, false};

ct_schedule *ct_schedule_warmup_p(ct_optim *optim, int64_t steps, const ct_schedule_warmup_options *options) {
    const char *me = warmup.name;
    TAKE_OPTIONS(ct_schedule_warmup_options, given, options);
    const double start = given.start != 0 ? given.start : 1.0 / 3, end = given.end.set ? given.end.value : 1;
    if (!optim_given(optim, me, "optim") || !is_steps(me, "steps", steps) || !is_positive(me, "start", start) ||
        !is_rate(me, "end", end))
        return NULL;
    return MAKE(warmup, optim, (double)steps, start, end);
}

static double constant_factor(const ct_schedule *s, int64_t t) { return (double)t < s->p[1] ? s->p[0] : 1; }
static const schedule_kind constant = {"schedule_constant", constant_factor, NULL, false};

ct_schedule *ct_schedule_constant(ct_optim *optim, double factor, int64_t steps) {
    const char *me = constant.name;
    if (!optim_given(optim, me, "optim") || !is_rate(me, "factor", factor)) return NULL;
    if (steps < 0) {
        ct_fail(CT_ERR_VALUE, me, "steps is %lld; it has to be 0 or more", (long long)steps);
        return NULL;
    }
    return MAKE(constant, optim, factor, (double)steps);
}

/* ---- Cosines ---- */

/* From 1 to low as part goes from 0 to 1. */
static double half_cosine(double low, double part) { return low + (1 - low) * (1 + cos(pi * part)) / 2; }

static double cosine_factor(const ct_schedule *s, int64_t t) {
    return half_cosine(s->p[1] / s->base, (double)t / s->p[0]);
}
static const schedule_kind cosine = {"schedule_cosine", cosine_factor, NULL, false};

ct_schedule *ct_schedule_cosine_p(ct_optim *optim, int64_t steps, const ct_schedule_min_options *options) {
    const char *me = cosine.name;
    TAKE_OPTIONS(ct_schedule_min_options, given, options);
    if (!optim_given(optim, me, "optim") || !is_steps(me, "steps", steps) || !is_rate(me, "min_lr", given.min_lr))
        return NULL;
    return MAKE(cosine, optim, (double)steps, given.min_lr);
}

static double restarts_factor(const ct_schedule *s, int64_t t) {
    double length = s->p[0], left = (double)t;
    const double multiply = s->p[1];
    if (multiply == 1) left = fmod(left, length);
    while (left >= length) {
        left -= length;
        length *= multiply;
    }
    return half_cosine(s->p[2] / s->base, left / length);
}
static const schedule_kind restarts = {"schedule_cosine_restarts", restarts_factor, NULL, false};

ct_schedule *ct_schedule_cosine_restarts_p(ct_optim *optim, int64_t first,
                                           const ct_schedule_restarts_options *options) {
    const char *me = restarts.name;
    TAKE_OPTIONS(ct_schedule_restarts_options, given, options);
    const int64_t multiply = given.multiply ? given.multiply : 1;
    if (!optim_given(optim, me, "optim") || !is_steps(me, "first", first) || !is_steps(me, "multiply", multiply) ||
        !is_rate(me, "min_lr", given.min_lr))
        return NULL;
    return MAKE(restarts, optim, (double)first, (double)multiply, given.min_lr);
}

/* ---- One cycle ---- */

enum { ONE_MAX_LR, ONE_STEPS, ONE_PART, ONE_DIV, ONE_FINAL_DIV, ONE_LINEAR, ONE_THREE, ONE_KEEP, ONE_LOW, ONE_HIGH };

/* Where in which phase t is: between values[i] and values[i + 1], a part of the way. */
static double one_cycle_at(const ct_schedule *s, int64_t t, const double *values) {
    const double *p = s->p, turn = p[ONE_PART] * p[ONE_STEPS];
    const double ends[] = {turn - 1, p[ONE_THREE] != 0 ? 2 * turn - 2 : p[ONE_STEPS] - 1, p[ONE_STEPS] - 1};
    const int last = p[ONE_THREE] != 0 ? 2 : 1;
    int i = 0;
    while (i < last && (double)t > ends[i]) i++;
    const double begin = i ? ends[i - 1] : 0, length = ends[i] - begin;
    const double part = length > 0 ? fmin(1, ((double)t - begin) / length) : 1;
    if (p[ONE_LINEAR] != 0) return values[i] + (values[i + 1] - values[i]) * part;
    return values[i + 1] + (values[i] - values[i + 1]) / 2 * (1 + cos(pi * part));
}

static double one_cycle_factor(const ct_schedule *s, int64_t t) {
    const double most = s->p[ONE_MAX_LR], start = most / s->p[ONE_DIV], least = start / s->p[ONE_FINAL_DIV];
    const double two[] = {start, most, least}, three[] = {start, most, start, least};
    return one_cycle_at(s, t, s->p[ONE_THREE] != 0 ? three : two) / s->base;
}

static bool one_cycle_momentum(const ct_schedule *s, int64_t t, double *momentum) {
    const double low = s->p[ONE_LOW], high = s->p[ONE_HIGH], values[] = {high, low, high, high};
    if (s->p[ONE_KEEP] != 0) return false;
    *momentum = one_cycle_at(s, t, values);
    return true;
}
static const schedule_kind one_cycle = {"schedule_one_cycle", one_cycle_factor, one_cycle_momentum, false};

/* Two momenta in order, both below 1; an optimizer that has no momentum is an error. */
static bool are_momenta(const char *me, const ct_optim *optim, double low, double high) {
    if (optim_base(optim)->momentum < 0)
        return ct_fail(CT_ERR_VALUE, me, "%s has no momentum to move", ct_optim_name(optim));
    return (low >= 0 && low <= high && high < 1) ||
           ct_fail(CT_ERR_VALUE, me, "the momenta are %g and %g; they have to be in order, from 0 to below 1", low,
                   high);
}

ct_schedule *ct_schedule_one_cycle_p(ct_optim *optim, double max_lr, int64_t steps,
                                     const ct_schedule_one_cycle_options *options) {
    const char *me = one_cycle.name;
    TAKE_OPTIONS(ct_schedule_one_cycle_options, given, options);
    const double part = given.pct_start != 0 ? given.pct_start : 0.3,
                 div = given.div_factor != 0 ? given.div_factor : 25,
                 final_div = given.final_div_factor != 0 ? given.final_div_factor : 1e4,
                 low = given.base_momentum != 0 ? given.base_momentum : 0.85,
                 high = given.max_momentum != 0 ? given.max_momentum : 0.95;
    if (!optim_given(optim, me, "optim") || !is_positive(me, "max_lr", max_lr) || !is_steps(me, "steps", steps) ||
        !is_positive(me, "div_factor", div) || !is_positive(me, "final_div_factor", final_div))
        return NULL;
    if (!(part > 0 && part < 1)) {
        ct_fail(CT_ERR_VALUE, me, "pct_start is %g; it has to be between 0 and 1", part);
        return NULL;
    }
    if (!given.keep_momentum && !are_momenta(me, optim, low, high)) return NULL;
    return MAKE(one_cycle, optim, max_lr, (double)steps, part, div, final_div, given.linear, given.three_phase,
                given.keep_momentum, low, high);
}

/* ---- Cyclic ---- */

enum { CYCLE_BASE, CYCLE_MAX, CYCLE_UP, CYCLE_DOWN, CYCLE_MODE, CYCLE_GAMMA, CYCLE_MOMENTUM, CYCLE_LOW, CYCLE_HIGH };

/* How high in its cycle t is, from 0 to 1 and less as cycles get smaller. */
static double height(const ct_schedule *s, int64_t t) {
    const double *p = s->p, whole = p[CYCLE_UP] + p[CYCLE_DOWN], cycle = floor((double)t / whole);
    const double x = (double)t - cycle * whole;
    const double part = x <= p[CYCLE_UP] ? x / p[CYCLE_UP] : (whole - x) / p[CYCLE_DOWN];
    if (p[CYCLE_MODE] == CT_TRIANGULAR2) return part * pow(0.5, cycle);
    return p[CYCLE_MODE] == CT_EXP_RANGE ? part * pow(p[CYCLE_GAMMA], (double)t) : part;
}

static double cyclic_factor(const ct_schedule *s, int64_t t) {
    return (s->p[CYCLE_BASE] + (s->p[CYCLE_MAX] - s->p[CYCLE_BASE]) * height(s, t)) / s->base;
}

static bool cyclic_momentum(const ct_schedule *s, int64_t t, double *momentum) {
    if (s->p[CYCLE_MOMENTUM] == 0) return false;
    *momentum = s->p[CYCLE_HIGH] - (s->p[CYCLE_HIGH] - s->p[CYCLE_LOW]) * height(s, t);
    return true;
}
static const schedule_kind cyclic = {"schedule_cyclic", cyclic_factor, cyclic_momentum, false};

ct_schedule *ct_schedule_cyclic_p(ct_optim *optim, double base_lr, double max_lr,
                                  const ct_schedule_cyclic_options *options) {
    const char *me = cyclic.name;
    TAKE_OPTIONS(ct_schedule_cyclic_options, given, options);
    const int64_t up = given.up ? given.up : 2000, down = given.down ? given.down : up;
    const double gamma = given.gamma != 0 ? given.gamma : 1, low = given.base_momentum != 0 ? given.base_momentum : 0.8,
                 high = given.max_momentum != 0 ? given.max_momentum : 0.9;
    if (!optim_given(optim, me, "optim") || !is_rate(me, "base_lr", base_lr) || !is_positive(me, "max_lr", max_lr) ||
        !is_steps(me, "up", up) || !is_steps(me, "down", down) || !is_positive(me, "gamma", gamma))
        return NULL;
    if ((int)given.mode < CT_TRIANGULAR || given.mode > CT_EXP_RANGE) {
        ct_fail(CT_ERR_VALUE, me, "mode: %d is not a value of its enum", (int)given.mode);
        return NULL;
    }
    if (max_lr < base_lr) {
        ct_fail(CT_ERR_VALUE, me, "max_lr is %g and base_lr %g; they have to be in order", max_lr, base_lr);
        return NULL;
    }
    if (given.cycle_momentum && !are_momenta(me, optim, low, high)) return NULL;
    return MAKE(cyclic, optim, base_lr, max_lr, (double)up, (double)down, (double)given.mode, gamma,
                given.cycle_momentum, low, high);
}

/* ---- Plateau ---- */

enum {
    PLATEAU_MAXIMIZE,
    PLATEAU_FACTOR,
    PLATEAU_PATIENCE,
    PLATEAU_THRESHOLD,
    PLATEAU_ABSOLUTE,
    PLATEAU_COOLDOWN,
    PLATEAU_MIN_LR,
    PLATEAU_EPS
};

static double plateau_factor(const ct_schedule *s, int64_t t) {
    (void)t;
    return s->current;
}
static const schedule_kind plateau = {"schedule_plateau", plateau_factor, NULL, true};

void schedule_observe(ct_schedule *s, double metric) {
    const double sign = s->p[PLATEAU_MAXIMIZE] != 0 ? 1 : -1, margin = s->p[PLATEAU_THRESHOLD];
    const double limit = s->p[PLATEAU_ABSOLUTE] != 0 ? s->best + sign * margin : s->best * (1 + sign * margin);
    if (sign * metric > sign * limit) {
        s->best = metric;
        s->bad = 0;
    } else {
        s->bad++;
    }
    if (s->cooling > 0) {
        s->cooling--;
        s->bad = 0;
    }
    if ((double)s->bad <= s->p[PLATEAU_PATIENCE]) return;
    const double lower = fmax(s->base * s->current * s->p[PLATEAU_FACTOR], s->p[PLATEAU_MIN_LR]);
    if (s->base * s->current - lower > s->p[PLATEAU_EPS]) s->current = lower / s->base;
    s->cooling = (int64_t)s->p[PLATEAU_COOLDOWN];
    s->bad = 0;
}

ct_schedule *ct_schedule_plateau_p(ct_optim *optim, const ct_schedule_plateau_options *options) {
    const char *me = plateau.name;
    TAKE_OPTIONS(ct_schedule_plateau_options, given, options);
    const double factor = given.factor.set ? given.factor.value : 0.1,
                 patience = given.patience.set ? given.patience.value : 10,
                 threshold = given.threshold.set ? given.threshold.value : 1e-4,
                 eps = given.eps.set ? given.eps.value : 1e-8;
    if (!optim_given(optim, me, "optim")) return NULL;
    if (!(factor >= 0 && factor < 1)) {
        ct_fail(CT_ERR_VALUE, me, "factor is %g; it has to be from 0 to below 1", factor);
        return NULL;
    }
    if (!is_rate(me, "patience", patience) || !is_rate(me, "threshold", threshold) || !is_rate(me, "eps", eps) ||
        !is_rate(me, "min_lr", given.min_lr) || !is_rate(me, "cooldown", (double)given.cooldown))
        return NULL;
    ct_schedule *s = MAKE(plateau, optim, given.maximize, factor, patience, threshold, given.absolute,
                          (double)given.cooldown, given.min_lr, eps);
    if (s) s->best = given.maximize ? (double)-INFINITY : (double)INFINITY;
    return s;
}

/* ---- A function of the host's ---- */

static double lambda_factor(const ct_schedule *s, int64_t t) { return s->fn(s->context, t); }
static const schedule_kind lambda = {"schedule_lambda", lambda_factor, NULL, false};

ct_schedule *ct_schedule_lambda(ct_optim *optim, double (*fn)(void *context, int64_t t), void *context) {
    const char *me = lambda.name;
    if (!optim_given(optim, me, "optim")) return NULL;
    if (!fn) {
        ct_fail(CT_ERR_NULL, me, "argument fn is NULL");
        return NULL;
    }
    ct_schedule *s = schedule_new(&lambda, optim, NULL, 0);
    if (s) {
        s->fn = fn;
        s->context = context;
    }
    return schedule_begin(s);
}
