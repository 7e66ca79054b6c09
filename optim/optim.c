/* Optimizers: making them, their parameters, groups and gradients. The step is in step.c, what the kinds differ in in kinds.c. */
#include "optim/optim.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool optim_given(const void *object, const char *function, const char *argument) {
    if (!ct_ok()) return false;
    return object || ct_fail(CT_ERR_NULL, function, "argument %s is NULL", argument);
}

void optim_error_take(optim_error *error) {
    error->code = ct_error_code();
    if (error->code == CT_OK) return;
    snprintf(error->op, sizeof error->op, "%s", ct_error_op());
    /* ct_error begins with the op, and so will the new one */
    const size_t prefix = error->op[0] ? strlen(error->op) + 2 : 0;
    snprintf(error->text, sizeof error->text, "%s", ct_error() + prefix);
    ct_error_clear();
}

void optim_error_put(const optim_error *error) {
    if (error->code == CT_OK) return;
    ct_error_clear();
    ct_fail(error->code, error->op, "%s", error->text);
}

bool optim_half(ct_dtype dtype) { return dtype == CT_F16 || dtype == CT_BF16; }

int optim_setting(const optim_kind *kind, const char *name) {
    for (int i = 0; i < kind->info.count; i++)
        if (strcmp(kind->info.settings[i].name, name) == 0) return i;
    return -1;
}

bool optim_check_value(const char *function, const ct_setting *setting, optim_range range, double value) {
    const char *expected = NULL;
    if (!isfinite(value)) expected = "a finite number";
    else if (range == RANGE_ABOVE_0 && !(value > 0)) expected = "above 0";
    else if (range == RANGE_FROM_0 && !(value >= 0)) expected = "0 or more";
    else if (range == RANGE_0_TO_1 && !(value >= 0 && value < 1)) expected = "from 0 to below 1";
    else if (range == RANGE_FLAG && value != 0 && value != 1) expected = "0 or 1";
    else if (range == RANGE_COUNT && !(value >= 1 && value == floor(value))) expected = "a whole number above 0";
    else if (range == RANGE_COUNT_OR_0 && !(value >= 0 && value == floor(value)))
        expected = "a whole number, 0 or more";
    return !expected || ct_fail(CT_ERR_VALUE, function, "%s is %g; it has to be %s", setting->name, value, expected);
}

/* ---- Making and freeing ---- */

static optim_param *add_param(ct_optim *o, const char *function, const char *name, ct_tensor *x) {
    if (o->count == o->capacity) {
        const int larger = o->capacity ? 2 * o->capacity : 16;
        optim_param *params = ct_realloc(o->params, (size_t)larger * sizeof *params);
        if (params) o->params = params;
        ct_tensor **items = ct_realloc(o->items, (size_t)larger * (OPTIM_STATES + 3) * sizeof *items);
        if (items) o->items = items;
        if (!params || !items) {
            ct_fail(CT_ERR_MEMORY, function, "out of memory");
            return NULL;
        }
        o->capacity = larger;
    }
    char *copy = optim_name(function, "", name, "");
    if (!copy) return NULL;
    optim_param *p = &o->params[o->count++];
    *p = (optim_param){.name = copy, .x = ct_keep(x), .clock = -1, .half = optim_half(ct_dtype_of(x))};
    return p;
}

/* Takes over how the owner's parameters are divided. */
static bool divide(const ct_optim *o, optim_param *p) {
    const ct_division *division = ct_module_division(p->source->owner);
    if (!division) return true;
    if (o->kind->by_tensor || o->kind->info.needs_loss)
        return ct_fail(CT_ERR_UNSUPPORTED, o->kind->info.name,
                       "%s is learned by %d processes, each a part of its elements, and %s needs all of them", p->name,
                       division->parts, o->kind->info.name);
    if (!ct_is_contiguous(p->x))
        return ct_fail(CT_ERR_VALUE, o->kind->info.name, "%s is %s, which is not contiguous: it cannot be divided",
                       p->name, ct_tensor_text(p->x));
    p->division = *division;
    return true;
}

ct_tensor *optim_part(const optim_param *p, ct_tensor *x) {
    int64_t from, count;
    if (!p->division.parts) return x;
    ct_division_range(&p->division, ct_numel(x), &from, &count);
    return ct_narrow(ct_reshape(ct_detach(x), CT_DIMS(ct_numel(x))), 0, from, count);
}

static bool add_module(ct_optim *o, ct_module *net) {
    o->list = ct_module_parameters(net);
    if (!o->list) return false;
    for (int i = 0; i < ct_parameters_count(o->list); i++) {
        const ct_parameter *source = ct_parameters_at(o->list, i);
        if (source->buffer) continue;
        optim_param *p = add_param(o, o->kind->info.name, source->name, ct_parameter_tensor(source));
        if (!p) return false;
        p->source = source;
        if (!divide(o, p)) return false;
    }
    return true;
}

ct_optim *optim_new(const optim_kind *kind, ct_module *net, const double *values) {
    const char *function = kind->info.name;
    if (!ct_ok()) return NULL;
    for (int i = 0; i < kind->info.count; i++)
        if (!optim_check_value(function, &kind->info.settings[i], kind->ranges[i], values[i])) return NULL;
    if (kind->check && !kind->check(values)) return NULL;
    ct_optim *o = ct_calloc(1, sizeof *o);
    bool ok = o && (o->groups = ct_calloc(1, sizeof *o->groups));
    if (!ok) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
    } else {
        o->kind = kind;
        o->group_count = 1;
        o->groups[0].initial_lr = values[0];
        memcpy(o->groups[0].s, values, (size_t)kind->info.count * sizeof *values);
        o->momentum = optim_setting(kind, "momentum");
        if (o->momentum < 0) o->momentum = optim_setting(kind, "beta1");
        o->weight_decay = optim_setting(kind, "weight_decay");
        o->maximize = optim_setting(kind, "maximize");
        ok = !net || add_module(o, net);
    }
    if (ok) return o;
    ct_optim_free(o);
    return NULL;
}

void ct_optim_free(ct_optim *o) {
    if (!o) return;
    ct_optim_free(o->inner);
    for (int i = 0; i < o->count; i++) {
        optim_param *p = &o->params[i];
        for (int k = 0; k < OPTIM_STATES; k++) ct_drop(p->state[k]);
        ct_drop(p->master);
        ct_drop(p->slow);
        ct_drop(p->x);
        ct_free(p->name);
    }
    optim_lbfgs_free(o->history);
    ct_parameters_free(o->list);
    for (int i = 0; i < o->clock_count; i++) ct_drop(o->clocks[i].x);
    for (int i = 0; i < o->group_count && o->groups; i++) ct_drop(o->groups[i].rates);
    ct_drop(o->rates);
    ct_drop(o->gate);
    ct_drop(o->shut);
    ct_free(o->sent);
    ct_free(o->clocks);
    ct_free(o->params);
    ct_free(o->items);
    ct_free(o->groups);
    ct_free(o);
}

bool ct_optim_add_tensor(ct_optim *optim, const char *name, ct_tensor *x) {
    const char *me = "optim_add_tensor";
    if (!optim_given(optim, me, "optim") || !optim_given(name, me, "name") || !optim_given(x, me, "x")) return false;
    ct_optim *o = optim_base(optim);
    if (!ct_requires_grad(x) || !ct_is_leaf(x))
        return ct_fail(CT_ERR_GRAD, me, "%s is %s, which is no leaf that requires grad", name, ct_tensor_text(x));
    if (o->steps) return ct_fail(CT_ERR_STATE, me, "%s comes after the first step", name);
    for (int i = 0; i < o->count; i++) {
        if (strcmp(o->params[i].name, name) == 0)
            return ct_fail(CT_ERR_VALUE, me, "there is a parameter %s already", name);
        if (o->params[i].x == x)
            return ct_fail(CT_ERR_VALUE, me, "%s is the same tensor as %s", name, o->params[i].name);
    }
    return add_param(o, me, name, x) != NULL;
}

/* ---- Groups, learning rate, momentum ---- */

bool ct_optim_group_p(ct_optim *optim, const char *pattern, const ct_group_options *options) {
    const char *me = "optim_group";
    TAKE_OPTIONS(ct_group_options, given, options);
    if (!optim_given(optim, me, "optim") || !optim_given(pattern, me, "pattern")) return false;
    ct_optim *o = optim_base(optim);
    if (o->kind->info.needs_loss) return ct_fail(CT_ERR_VALUE, me, "%s has one group only", o->kind->info.name);
    optim_group group = o->groups[0];
    group.rates = NULL;
    if (given.lr != 0) {
        /* relative to where the first group is now, so that a schedule that runs already counts */
        group.initial_lr = given.lr;
        group.s[0] = given.lr * (o->groups[0].s[0] / o->groups[0].initial_lr);
    }
    const struct {
        const char *name;
        int place;
        ct_opt value;
    } changes[] = {{"weight_decay", o->weight_decay, given.weight_decay}, {"momentum", o->momentum, given.momentum}};
    if (given.lr != 0 && !optim_check_value(me, &o->kind->info.settings[0], o->kind->ranges[0], given.lr)) return false;
    for (int i = 0; i < 2; i++) {
        if (!changes[i].value.set) continue;
        const int place = changes[i].place;
        if (place < 0) return ct_fail(CT_ERR_VALUE, me, "%s has no %s", o->kind->info.name, changes[i].name);
        if (!optim_check_value(me, &o->kind->info.settings[place], o->kind->ranges[place], changes[i].value.value))
            return false;
        group.s[place] = changes[i].value.value;
    }
    if (o->kind->check && !o->kind->check(group.s)) return false;
    int fitting = 0;
    for (int i = 0; i < o->count; i++) fitting += fnmatch(pattern, o->params[i].name, 0) == 0;
    if (!fitting)
        return ct_fail(CT_ERR_VALUE, me, "the pattern %s fits none of the %d parameters%s%s", pattern, o->count,
                       o->count ? ", of which the first is " : "", o->count ? o->params[0].name : "");
    optim_group *groups = ct_realloc(o->groups, ((size_t)o->group_count + 1) * sizeof *groups);
    if (!groups) return ct_fail(CT_ERR_MEMORY, me, "out of memory");
    o->groups = groups;
    for (int i = 0; i < o->count; i++)
        if (fnmatch(pattern, o->params[i].name, 0) == 0) o->params[i].group = o->group_count;
    groups[o->group_count++] = group;
    return true;
}

double ct_optim_lr(const ct_optim *optim) {
    return optim_given(optim, "optim_lr", "optim") ? optim_base(optim)->groups[0].s[0] : (double)NAN;
}

bool ct_optim_set_lr(ct_optim *optim, double lr) {
    if (!optim_given(optim, "optim_set_lr", "optim")) return false;
    if (!(lr >= 0) || !isfinite(lr))
        return ct_fail(CT_ERR_VALUE, "optim_set_lr", "lr is %g; it has to be 0 or more", lr);
    ct_optim *o = optim_base(optim);
    for (int i = o->group_count - 1; i >= 0; i--)
        o->groups[i].s[0] = i ? lr * (o->groups[i].initial_lr / o->groups[0].initial_lr) : lr;
    return true;
}

static bool has_momentum(const ct_optim *o, const char *function) {
    return o->momentum >= 0 || ct_fail(CT_ERR_VALUE, function, "%s has no momentum", o->kind->info.name);
}

double ct_optim_momentum(const ct_optim *optim) {
    if (!optim_given(optim, "optim_momentum", "optim")) return (double)NAN;
    const ct_optim *o = optim_base(optim);
    return has_momentum(o, "optim_momentum") ? o->groups[0].s[o->momentum] : (double)NAN;
}

bool ct_optim_set_momentum(ct_optim *optim, double momentum) {
    const char *me = "optim_set_momentum";
    if (!optim_given(optim, me, "optim")) return false;
    ct_optim *o = optim_base(optim);
    if (!has_momentum(o, me) ||
        !optim_check_value(me, &o->kind->info.settings[o->momentum], o->kind->ranges[o->momentum], momentum))
        return false;
    for (int i = 0; i < o->group_count; i++) o->groups[i].s[o->momentum] = momentum;
    return true;
}

int64_t ct_optim_steps(const ct_optim *optim) {
    if (!optim) return 0;
    const ct_optim *o = optim_base(optim);
    return o->steps - (o->shut ? (int64_t)ct_item(o->shut) : 0);
}
const char *ct_optim_name(const ct_optim *optim) { return optim ? optim->kind->info.name : ""; }

bool ct_optim_keep_grad(ct_optim *optim, bool keep) {
    if (!optim_given(optim, "optim_keep_grad", "optim")) return false;
    optim_base(optim)->keep_grad = keep;
    return true;
}

bool ct_optim_reuse_grad(ct_optim *optim, bool reuse) {
    if (!optim_given(optim, "optim_reuse_grad", "optim")) return false;
    optim_base(optim)->reuse_grad = reuse;
    return true;
}

/* ---- Gradients ---- */

bool optim_is_current(const ct_optim *o, const char *function) {
    for (int i = 0; i < o->count; i++) {
        const optim_param *p = &o->params[i];
        if (p->source && ct_parameter_tensor(p->source) != p->x)
            return ct_fail(CT_ERR_STATE, function,
                           "the parameter %s was moved or converted after the optimizer was made: make a new one",
                           p->name);
    }
    return true;
}

bool optim_collect(ct_optim *o, const char *function) {
    if (!optim_is_current(o, function)) return false;
    for (int i = 0; i < o->count; i++) {
        optim_param *p = &o->params[i];
        const ct_division *division = p->source ? ct_module_division(p->source->owner) : NULL;
        if ((division ? division->parts : 0) != p->division.parts)
            return ct_fail(CT_ERR_STATE, function,
                           "the parameter %s was divided among processes, or no longer, after the optimizer was made: "
                           "make a new one",
                           p->name);
        p->grad = ct_grad_of(p->x); /* NULL too when it is frozen */
    }
    return true;
}

ct_tensor *optim_own_grad(ct_tensor *leaf, ct_tensor *grad) {
    if (ct_is_contiguous(grad) && !ct_requires_grad(grad)) return grad;
    ct_scope { /* memory of others, and what is part of a graph, stays as it is */
        ct_tensor *copy = NULL;
        ct_no_grad {
            copy = ct_contiguous(ct_clone(grad));
        }
        grad = copy && ct_set_grad(leaf, copy) ? copy : NULL; /* held by the leaf */
    }
    return grad;
}

/* Gradients that are used again keep their memory, and begin anew with zeros in it. */
static bool forget(const ct_optim *o, ct_tensor *leaf, ct_tensor *grad) {
    if (!o->reuse_grad) return ct_set_grad(leaf, NULL);
    grad = optim_own_grad(leaf, grad);
    return grad && ct_zero(grad);
}

bool ct_optim_zero_grad(ct_optim *optim) {
    if (!optim_given(optim, "optim_zero_grad", "optim")) return false;
    const ct_optim *o = optim_base(optim);
    const bool before = ct_set_grad_enabled(false);
    bool ok = true;
    for (int i = 0; i < o->count; i++) {
        ct_tensor *grad = ct_grad_of(o->params[i].x);
        if (grad) ok = forget(o, o->params[i].x, grad) && ok;
    }
    ct_set_grad_enabled(before);
    return ok;
}

/* A captured step reads gradients where they are: those from before the capture that it lets go of would be used in every replay again. */
static void refuse_old_gradients(const ct_optim *o) {
    for (int i = 0; ct_is_capturing() && i < o->count; i++) {
        const ct_tensor *grad = ct_grad_of(o->params[i].x);
        if (grad && ct_capture_is_outside(grad))
            ct_capture_refuse(
                "optim_step", "a step that forgets gradients from before the capture",
                "replays would use the same ones again; ct_optim_reuse_grad keeps their memory and clears it");
    }
}

bool optim_forget(ct_optim *o) {
    if (o->keep_grad) return true;
    const ct_optim *base = optim_base(o);
    if (!base->reuse_grad) refuse_old_gradients(base);
    return ct_optim_zero_grad(o);
}

double ct_optim_step_with(ct_optim *optim, ct_loss_fn fn, void *context) {
    double loss = (double)NAN;
    if (!optim_given(optim, "optim_step_with", "optim")) return loss;
    if (!fn) return ct_fail(CT_ERR_NULL, "optim_step_with", "argument fn is NULL"), loss;
    if (optim->kind->info.needs_loss) return optim_lbfgs_step(optim, fn, context);
    if (optim_base(optim)->kind->info.needs_loss)
        return ct_fail(CT_ERR_UNSUPPORTED, "optim_step_with", "lookahead does not go around %s",
                       optim_base(optim)->kind->info.name),
               loss;
    bool ok = ct_optim_zero_grad(optim);
    ct_scope {
        ct_tensor *y = ok ? fn(context) : NULL;
        if (ok && !y && ct_ok()) ct_fail(CT_ERR_NULL, "optim_step_with", "fn gave no loss");
        if (y && ct_backward(y)) loss = ct_item(y);
    }
    return ct_ok() && ct_optim_step(optim) ? loss : (double)NAN;
}
