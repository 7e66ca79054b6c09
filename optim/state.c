/* An optimizer's memory, into a state and back: all of it is looked at and copied before any of it takes its place. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

char *optim_name(const char *function, const char *prefix, const char *name, const char *suffix) {
    const size_t a = strlen(prefix), b = strlen(name), c = strlen(suffix);
    char *text = ct_malloc(a + b + c + 1);
    if (!text) {
        ct_fail(CT_ERR_MEMORY, function, "out of memory");
        return NULL;
    }
    memcpy(text, prefix, a);
    memcpy(text + a, name, b);
    memcpy(text + a + b, suffix, c + 1);
    return text;
}

ct_tensor *optim_take_tensor(const char *function, const ct_state *state, const char *name, const ct_tensor *like,
                             ct_dtype dtype) {
    ct_tensor *x = ct_state_get(state, name), *copy = NULL;
    if (!x) {
        ct_fail(CT_ERR_STATE, function, "%s is missing", name);
        return NULL;
    }
    const ct_dims shape = ct_shape(x), expected = ct_shape(like);
    bool fits = ct_dtype_of(x) == dtype && shape.n == expected.n;
    for (int i = 0; fits && i < shape.n; i++) fits = shape.d[i] == expected.d[i];
    if (!fits) {
        ct_fail(CT_ERR_SHAPE, function, "%s is %s; %s%s is expected", name, ct_tensor_text(x), ct_dtype_name(dtype),
                ct_dims_text(expected));
        return NULL;
    }
    ct_scope {
        ct_no_grad {
            copy = ct_clone(ct_to(x, ct_device_of(like)));
        }
        ct_keep(copy);
    }
    return ct_ok() ? copy : NULL;
}

/* ---- Put ---- */

static bool put_tensor(ct_state *state, const char *prefix, const char *name, const char *what, ct_tensor *x) {
    if (!x) return true;
    char suffix[64] = ".";
    strncat(suffix, what, sizeof suffix - 2);
    char *full = optim_name("optim_put_state", prefix, name, suffix);
    const bool ok = full && ct_state_put(state, full, x);
    ct_free(full);
    return ok;
}

/* Which tensors a parameter has in the state: visited in this order for both ways. */
static const char *tensor_name(const ct_optim *o, int k) {
    return k < OPTIM_STATES ? o->kind->states[k] : k == OPTIM_STATES ? "master" : "slow";
}
enum { TENSORS = OPTIM_STATES + 2 };

static ct_tensor **tensor_of(optim_param *p, int k) {
    return k < OPTIM_STATES ? &p->state[k] : k == OPTIM_STATES ? &p->master : &p->slow;
}

/* Numbers under prefix + name. */
static bool put_numbers(ct_state *state, const char *prefix, const char *name, const double *values, int64_t n) {
    char *full = optim_name("optim_put_state", prefix, name, "");
    const bool ok = full && ct_state_put_numbers(state, full, values, n);
    ct_free(full);
    return ok;
}
static bool put_integers(ct_state *state, const char *prefix, const char *name, const int64_t *values, int64_t n) {
    char *full = optim_name("optim_put_state", prefix, name, "");
    const bool ok = full && ct_state_put_integers(state, full, values, n);
    ct_free(full);
    return ok;
}

/* The steps of each parameter and what its clock remembers, read from where they are. */
static bool read_clocks(const ct_optim *o, int64_t *steps, double *products) {
    for (int i = 0; i < o->count; i++) {
        steps[i] = 0;
        products[i] = 1;
    }
    for (int c = 0; c < o->clock_count; c++) {
        double taken, remembered;
        if (!o->clocks[c].x) continue;
        if (!optim_get_clock(o->clocks[c].x, &taken, &remembered)) return false;
        for (int i = 0; i < o->count; i++) {
            if (o->params[i].clock != c) continue;
            steps[i] = (int64_t)taken;
            if (o->kind->has_product) products[i] = remembered;
        }
    }
    return true;
}

bool ct_optim_put_state(ct_optim *optim, ct_state *state, const char *prefix) {
    const char *me = "optim_put_state";
    if (!optim_given(optim, me, "optim") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    ct_optim *o = optim_base(optim);
    const int n = o->count, groups = o->group_count;
    int64_t *steps = ct_malloc(((size_t)n + 1) * sizeof *steps);
    double *numbers = ct_malloc(((size_t)n + 2 * (size_t)groups) * sizeof *numbers);
    char *full = optim_name(me, prefix, "optimizer", "");
    bool ok = steps && numbers && full;
    if (!steps || !numbers) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    ok = ok && ct_state_put_text(state, full, optim->kind->info.name);
    if (ok) {
        steps[0] = ct_optim_steps(o);
        ok = read_clocks(o, steps + 1, numbers + 2 * groups);
        for (int i = 0; i < groups; i++) {
            numbers[2 * i] = o->groups[i].s[0];
            numbers[2 * i + 1] = o->momentum >= 0 ? o->groups[i].s[o->momentum] : 0;
        }
        ok = ok && put_integers(state, prefix, "steps", steps, n + 1) &&
             put_numbers(state, prefix, "numbers", numbers, 2 * groups + n) &&
             (o->steps == steps[0] || put_integers(state, prefix, "tried", &o->steps, 1));
    }
    for (int i = 0; ok && i < n; i++)
        for (int k = 0; ok && k < TENSORS; k++)
            ok = put_tensor(state, prefix, o->params[i].name, tensor_name(o, k), *tensor_of(&o->params[i], k));
    ok = ok && (!o->kind->info.needs_loss || optim_lbfgs_put(o, state, prefix));
    ct_free(full);
    ct_free(steps);
    ct_free(numbers);
    return ok;
}

/* ---- Take ---- */

typedef struct taking {
    ct_optim *o;
    const ct_state *state;
    const char *prefix;
    int64_t *steps;    /* all, then of each parameter */
    int64_t tried;     /* all, with those that a loss scaler left out */
    double *numbers;   /* lr and momentum of each group, then the product of each parameter */
    ct_tensor **taken; /* TENSORS for each parameter; kept */
    int *clocks;       /* of each parameter; -1: none */
    ct_tensor *shut;   /* steps that were tried and not made; kept; NULL: none */
    lbfgs *history;
} taking;

static bool take_kind(const taking *t, const char *expected) {
    const char *me = "optim_take_state";
    char *full = optim_name(me, t->prefix, "optimizer", "");
    if (!full) return false;
    const char *found = ct_state_text(t->state, full);
    ct_free(full);
    if (!found) return ct_fail(CT_ERR_STATE, me, "there is no optimizer under %s", t->prefix);
    if (strcmp(found, expected) == 0) return true;
    return ct_fail(CT_ERR_STATE, me, "the state is that of %s, the optimizer is %s", found, expected);
}

static bool take_numbers(taking *t) {
    const char *me = "optim_take_state";
    char *steps = optim_name(me, t->prefix, "steps", ""), *numbers = optim_name(me, t->prefix, "numbers", "");
    const int n = t->o->count, groups = t->o->group_count;
    bool ok = steps && numbers && ct_state_integers(t->state, steps, t->steps, n + 1) &&
              ct_state_numbers(t->state, numbers, t->numbers, 2 * groups + n);
    ct_free(steps);
    ct_free(numbers);
    char *tried = ok ? optim_name(me, t->prefix, "tried", "") : NULL;
    if (tried) t->tried = t->steps[0];
    ok = tried && (!ct_state_get(t->state, tried) || ct_state_integers(t->state, tried, &t->tried, 1));
    ct_free(tried);
    if (ok && t->tried < t->steps[0])
        ok = ct_fail(CT_ERR_VALUE, me, "%lld steps were tried and %lld made", (long long)t->tried,
                     (long long)t->steps[0]);
    for (int i = 0; ok && i <= n; i++)
        if (t->steps[i] < 0) ok = ct_fail(CT_ERR_VALUE, me, "a number of steps is %lld", (long long)t->steps[i]);
    for (int i = 0; ok && i < 2 * groups + n; i++)
        if (!isfinite(t->numbers[i])) ok = ct_fail(CT_ERR_VALUE, me, "%snumbers holds %g", t->prefix, t->numbers[i]);
    for (int i = 0; ok && i < groups; i++) {
        const double lr = t->numbers[2 * i];
        if (lr < 0) ok = ct_fail(CT_ERR_VALUE, me, "a learning rate is %g; it has to be 0 or more", lr);
        const int place = t->o->momentum;
        ok = ok && (place < 0 || optim_check_value(me, &t->o->kind->info.settings[place], t->o->kind->ranges[place],
                                                   t->numbers[2 * i + 1]));
    }
    return ok;
}

static bool take_param(const taking *t, int i, bool lookahead) {
    const char *me = "optim_take_state";
    optim_param *p = &t->o->params[i];
    const ct_dtype dtype = p->half ? CT_F32 : ct_dtype_of(p->x);
    double s[OPTIM_SETTINGS];
    memcpy(s, t->o->groups[p->group].s, sizeof s);
    if (t->o->momentum >= 0) s[t->o->momentum] = t->numbers[2 * p->group + 1];
    const bool began = t->steps[1 + i] > 0;
    const int needed = t->o->kind->step && began ? t->o->kind->state_count(s) : 0;
    bool ok = true;
    for (int k = 0; ok && k < TENSORS; k++) {
        const char *what = tensor_name(t->o, k);
        if (!what) continue;
        char suffix[64] = ".";
        strncat(suffix, what, sizeof suffix - 2);
        char *full = optim_name(me, t->prefix, p->name, suffix);
        if (!full) return false;
        const bool required = k < OPTIM_STATES    ? k < needed
                              : k == OPTIM_STATES ? p->half && began
                                                  : lookahead && t->steps[0] > 0;
        const ct_dtype kind = k <= OPTIM_STATES ? dtype : ct_dtype_of(p->x);
        if (required || ct_state_get(t->state, full))
            ct_scope
                ok = (t->taken[i * TENSORS + k] = optim_take_tensor(me, t->state, full, optim_part(p, p->x), kind)) !=
                     NULL;
        ct_free(full);
    }
    return ok;
}

/* The clocks of the parameters, as many as differ; where one was made is where its first user stands. */
static bool take_clocks(taking *t) {
    ct_optim *o = t->o;
    const double *product = t->numbers + 2 * o->group_count;
    for (int i = 0; i < o->count; i++) {
        const optim_param *p = &o->params[i];
        const int64_t steps = t->steps[1 + i];
        t->clocks[i] = -1;
        for (int k = 0; steps && k < i && t->clocks[i] < 0; k++) {
            const optim_param *q = &o->params[k];
            if (steps == t->steps[1 + k] && product[i] == product[k] && p->group == q->group && p->half == q->half)
                t->clocks[i] = t->clocks[k];
        }
        const bool had_states = t->taken[i * TENSORS] != NULL;
        if (steps && t->clocks[i] < 0 &&
            !optim_new_clock(o, (double)steps,
                             o->kind->has_product ? product[i]
                             : had_states         ? 0
                                                  : 1,
                             ct_device_of(p->x), &t->clocks[i]))
            return false;
    }
    return true;
}

static bool take_shut(taking *t) {
    if (t->tried == t->steps[0] || !t->o->count) return true;
    ct_scope {
        ct_tensor *count = optim_numbers(CT_DIMS0, (double)(t->tried - t->steps[0]), ct_device_of(t->o->params[0].x));
        if (count) t->shut = ct_keep(count);
    }
    return t->shut != NULL;
}

static void drop_unused_clocks(ct_optim *o) {
    for (int c = 0; c < o->clock_count; c++) {
        if (o->clocks[c].users) continue;
        ct_drop(o->clocks[c].x);
        o->clocks[c].x = NULL;
    }
}

static void commit(taking *t) {
    ct_optim *o = t->o;
    o->steps = t->tried;
    o->version++;
    ct_drop(o->shut);
    o->shut = t->shut;
    t->shut = NULL;
    for (int i = 0; i < o->group_count; i++) {
        o->groups[i].s[0] = t->numbers[2 * i];
        if (o->momentum >= 0) o->groups[i].s[o->momentum] = t->numbers[2 * i + 1];
    }
    for (int i = 0; i < o->count; i++) {
        optim_param *p = &o->params[i];
        optim_set_clock(o, p, t->clocks[i]);
        for (int k = 0; k < TENSORS; k++) {
            ct_tensor **place = tensor_of(p, k), *before = *place;
            *place = t->taken[i * TENSORS + k];
            t->taken[i * TENSORS + k] = before; /* dropped at the end */
        }
        for (p->states = 0; p->states < OPTIM_STATES && p->state[p->states];) p->states++;
    }
    if (o->kind->info.needs_loss) {
        lbfgs *before = o->history;
        o->history = t->history;
        t->history = before;
    }
}

bool ct_optim_take_state(ct_optim *optim, const ct_state *state, const char *prefix) {
    const char *me = "optim_take_state";
    if (!optim_given(optim, me, "optim") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    ct_optim *o = optim_base(optim);
    const size_t n = (size_t)o->count;
    taking t = {.o = o, .state = state, .prefix = prefix};
    t.steps = ct_malloc((n + 1) * sizeof *t.steps);
    t.numbers = ct_malloc((n + 2 * (size_t)o->group_count) * sizeof *t.numbers);
    t.taken = ct_calloc(n * TENSORS + 1, sizeof *t.taken);
    t.clocks = ct_malloc((n + 1) * sizeof *t.clocks);
    bool ok = t.steps && t.numbers && t.taken && t.clocks;
    if (!ok) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    ok = ok && take_kind(&t, optim->kind->info.name) && take_numbers(&t);
    for (int i = 0; ok && i < o->count; i++) ok = take_param(&t, i, optim != o);
    ok = ok && (!o->kind->info.needs_loss || optim_lbfgs_take(o, state, prefix, &t.history));
    ok = ok && take_clocks(&t) && take_shut(&t);
    if (ok) commit(&t);
    drop_unused_clocks(o);
    ct_drop(t.shut);
    for (size_t i = 0; t.taken && i < n * TENSORS; i++) ct_drop(t.taken[i]);
    optim_lbfgs_free(t.history);
    ct_free(t.steps);
    ct_free(t.numbers);
    ct_free(t.taken);
    ct_free(t.clocks);
    return ok;
}
