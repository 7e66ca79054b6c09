/* Optimizers: making them, their parameters and groups, and the step, which hands all parameters that share their numbers to
 * one fused op. What the kinds differ in is in kinds.c. */
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

static bool find_attrs(ct_optim *o) {
    const char *function = o->kind->info.name;
    o->op = ct_op_find(o->kind->op);
    if (!o->op) return ct_fail(CT_ERR_STATE, function, "the op %s is missing", o->kind->op);
    o->attrs = ct_calloc(1, o->op->attr_size);
    if (!o->attrs) return ct_fail(CT_ERR_MEMORY, function, "out of memory");
    for (int i = 0; i < 2 || o->kind->attrs[i - 2]; i++, o->attr_count++) {
        const char *name = i == 0 ? "scale" : i == 1 ? "master" : o->kind->attrs[i - 2];
        const ct_attr *attr = o->op->attrs;
        while (attr->name && strcmp(attr->name, name) != 0) attr++;
        if (!attr->name) return ct_fail(CT_ERR_STATE, function, "the op %s has no %s", o->kind->op, name);
        o->offsets[i] = attr->offset;
        o->flags[i] = attr->type == CT_ATTR_BOOL;
    }
    return true;
}

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
    *p = (optim_param){.name = copy, .x = ct_keep(x), .product = 1, .half = optim_half(ct_dtype_of(x))};
    return p;
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
        ok = (!kind->op || find_attrs(o)) && (!net || add_module(o, net));
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
    ct_free(o->params);
    ct_free(o->items);
    ct_free(o->groups);
    ct_free(o->attrs);
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

int64_t ct_optim_steps(const ct_optim *optim) { return optim ? optim_base(optim)->steps : 0; }
const char *ct_optim_name(const ct_optim *optim) { return optim ? optim->kind->info.name : ""; }

bool ct_optim_keep_grad(ct_optim *optim, bool keep) {
    if (!optim_given(optim, "optim_keep_grad", "optim")) return false;
    optim_base(optim)->keep_grad = keep;
    return true;
}

/* ---- Gradients ---- */

bool optim_collect(ct_optim *o, const char *function) {
    for (int i = 0; i < o->count; i++) {
        optim_param *p = &o->params[i];
        if (p->source && ct_parameter_tensor(p->source) != p->x)
            return ct_fail(CT_ERR_STATE, function,
                           "the parameter %s was moved or converted after the optimizer was made: make a new one",
                           p->name);
        p->grad = ct_grad_of(p->x); /* NULL too when it is frozen */
    }
    return true;
}

bool optim_forget(ct_optim *o) {
    bool ok = true;
    for (int i = 0; i < o->count && !o->keep_grad; i++)
        if (o->params[i].grad || ct_grad_of(o->params[i].x)) ok = ct_set_grad(o->params[i].x, NULL) && ok;
    return ok;
}

bool ct_optim_zero_grad(ct_optim *optim) {
    if (!optim_given(optim, "optim_zero_grad", "optim")) return false;
    ct_optim *o = optim_base(optim);
    bool ok = true;
    for (int i = 0; i < o->count; i++)
        if (ct_grad_of(o->params[i].x)) ok = ct_set_grad(o->params[i].x, NULL) && ok;
    return ok;
}

/* ---- The step ---- */

/* What a parameter needs from here on and does not have yet. */
static bool make_states(const ct_optim *o, optim_param *p, int needed) {
    const ct_dtype dtype = p->half ? CT_F32 : ct_dtype_of(p->x);
    const int start = optim_setting(o->kind, "initial_accumulator_value");
    ct_scope {
        if (p->half && !p->master) p->master = ct_keep(ct_cast(ct_detach(p->x), CT_F32));
        for (; ct_ok() && p->states < needed; p->states++) {
            const double value = start >= 0 ? o->groups[p->group].s[start] : 0;
            ct_tensor *x = ct_full(ct_shape(p->x), value, .dtype = dtype, .device = ct_device_of(p->x));
            if (!ct_ok()) break;
            p->state[p->states] = ct_keep(x);
            p->fresh = true;
        }
    }
    return ct_ok();
}

static bool alike(const optim_param *a, const optim_param *b) {
    return a->group == b->group && a->steps == b->steps && a->product == b->product && a->fresh == b->fresh &&
           a->half == b->half;
}

/* One call for the parameter `first` and all after it that share its numbers. */
static bool step_alike(ct_optim *o, int first) {
    optim_param lead = o->params[first];
    const double *s = o->groups[lead.group].s;
    const int states = o->kind->state_count(s);
    double values[OPTIM_ATTRS + 2] = {o->maximize >= 0 && s[o->maximize] != 0 ? -1 : 1, lead.half};
    if (o->grad_scale != 0) values[0] *= o->grad_scale;
    double product = lead.product;
    int n = 0;
    o->kind->prepare(s, lead.steps + 1, lead.fresh, &product, values + 2);
    for (int i = 0; i < o->attr_count; i++) {
        void *at = (char *)o->attrs + o->offsets[i];
        if (o->flags[i]) *(bool *)at = values[i] != 0;
        else *(double *)at = values[i];
    }
    for (int i = first; i < o->count; i++) {
        const optim_param *p = &o->params[i];
        if (!p->grad || !alike(&lead, p)) continue;
        o->items[n++] = p->x;
        if (p->half) o->items[n++] = p->master;
        o->items[n++] = p->grad;
        for (int k = 0; k < states; k++) o->items[n++] = p->state[k];
    }
    ct_tensor *unused = NULL;
    if (!ct_apply_with(o->op, o->items, n, o->attrs, &unused, 1, &(bool){false}, NULL)) return false;
    for (int i = first; i < o->count; i++) {
        optim_param *p = &o->params[i];
        if (!p->grad || !alike(&lead, p)) continue;
        p->grad = NULL;
        p->steps++;
        p->product = product;
        p->fresh = false;
    }
    return true;
}

bool ct_optim_step(ct_optim *o) {
    if (!optim_given(o, "optim_step", "optim")) return false;
    if (o->inner) return optim_lookahead_step(o);
    if (!o->kind->op)
        return ct_fail(CT_ERR_STATE, "optim_step", "%s evaluates the loss itself: ct_optim_step_with",
                       o->kind->info.name);
    if (!optim_collect(o, "optim_step")) return false;
    const bool before = ct_set_grad_enabled(false);
    bool ok = true;
    for (int i = 0; ok && i < o->count; i++) { /* all memory first: a step is whole or not at all */
        optim_param *p = &o->params[i];
        if (!p->grad) continue;
        const int needed = o->kind->state_count(o->groups[p->group].s);
        if (p->states < needed || (p->half && !p->master)) ok = make_states(o, p, needed);
    }
    for (int i = 0; ok && i < o->count; i++)
        if (o->params[i].grad) ok = step_alike(o, i);
    ct_set_grad_enabled(before);
    if (!ok) return false;
    o->steps++;
    return optim_forget(o);
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
