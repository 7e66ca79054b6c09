/* Schedules: stepping them, putting them together, and their state. The kinds are in schedule_kinds.c. */
#include "optim/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double schedule_base(const ct_optim *optim) { return optim_base(optim)->groups[0].initial_lr; }

ct_schedule *schedule_new(const schedule_kind *kind, ct_optim *optim, const double *p, int n) {
    ct_schedule *s = ct_calloc(1, sizeof *s);
    if (!s) {
        ct_fail(CT_ERR_MEMORY, kind->name, "out of memory");
        return NULL;
    }
    s->kind = kind;
    s->optim = optim;
    s->base = schedule_base(optim);
    s->current = 1;
    if (n) memcpy(s->p, p, (size_t)n * sizeof *p);
    return s;
}

/* ---- Stepping ---- */

static bool apply(const ct_schedule *s) {
    double momentum;
    if (!ct_optim_set_lr(s->optim, s->base * s->kind->factor(s, s->t))) return false;
    if (!s->kind->momentum || !s->kind->momentum(s, s->t, &momentum)) return true;
    return ct_optim_set_momentum(s->optim, momentum);
}

ct_schedule *schedule_begin(ct_schedule *s) {
    if (!s || apply(s)) return s;
    ct_schedule_free(s);
    return NULL;
}

void ct_schedule_free(ct_schedule *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) ct_schedule_free(s->parts[i]);
    ct_free(s->parts);
    ct_free(s->starts);
    ct_free(s);
}

/* The part of a sequence that rules at t. */
static int active(const ct_schedule *s, int64_t t) {
    int i = s->count - 1;
    while (i > 0 && s->starts[i] > t) i--;
    return i;
}

bool ct_schedule_needs_metric(const ct_schedule *s) {
    if (!s) return false;
    for (int i = 0; i < s->count; i++)
        if (ct_schedule_needs_metric(s->parts[i])) return true;
    return s->kind->needs_metric;
}

static void advance(ct_schedule *s, double metric) {
    s->t++;
    if (s->kind->needs_metric) schedule_observe(s, metric);
    if (s->starts) { /* a part that begins is at its own 0 */
        const int i = active(s, s->t);
        if (s->t > s->starts[i]) advance(s->parts[i], metric);
    } else {
        for (int i = 0; i < s->count; i++) advance(s->parts[i], metric);
    }
}

/* In a replay of a captured step. */
static bool replayed(void *schedule) { return ct_schedule_step(schedule); }

bool ct_schedule_step_metric(ct_schedule *s, double metric) {
    if (!optim_given(s, "schedule_step", "schedule")) return false;
    if (ct_schedule_needs_metric(s)) ct_capture_refuse("schedule_step", "a step by a metric", NULL);
    if (!ct_capture_effect_early(replayed, s)) return false;
    advance(s, metric);
    return apply(s);
}

bool ct_schedule_step(ct_schedule *s) {
    if (!optim_given(s, "schedule_step", "schedule")) return false;
    if (ct_schedule_needs_metric(s))
        return ct_fail(CT_ERR_STATE, "schedule_step", "%s needs a metric: ct_schedule_step_metric", s->kind->name);
    return ct_schedule_step_metric(s, 0);
}

int64_t ct_schedule_steps(const ct_schedule *s) { return s ? s->t : 0; }
const char *ct_schedule_name(const ct_schedule *s) { return s ? s->kind->name : ""; }

/* ---- Together ---- */

static double chain_factor(const ct_schedule *s, int64_t t) {
    double factor = 1;
    (void)t;
    for (int i = 0; i < s->count; i++) factor *= s->parts[i]->kind->factor(s->parts[i], s->parts[i]->t);
    return factor;
}

static bool chain_momentum(const ct_schedule *s, int64_t t, double *momentum) {
    bool any = false;
    (void)t;
    for (int i = 0; i < s->count; i++) {
        const ct_schedule *part = s->parts[i];
        any = (part->kind->momentum && part->kind->momentum(part, part->t, momentum)) || any;
    }
    return any;
}

static double sequence_factor(const ct_schedule *s, int64_t t) {
    const ct_schedule *part = s->parts[active(s, t)];
    return part->kind->factor(part, part->t);
}

static bool sequence_momentum(const ct_schedule *s, int64_t t, double *momentum) {
    const ct_schedule *part = s->parts[active(s, t)];
    return part->kind->momentum && part->kind->momentum(part, part->t, momentum);
}

static const schedule_kind chain = {"schedule_chain", chain_factor, chain_momentum, false};
static const schedule_kind sequence = {"schedule_sequence", sequence_factor, sequence_momentum, false};

static bool check_parts(const char *me, ct_schedule *const *parts, int n) {
    if (!ct_ok()) return false;
    if (n < 1 || !parts) return ct_fail(CT_ERR_VALUE, me, "it takes at least one part, not %d", n);
    for (int i = 0; i < n; i++) {
        if (!parts[i]) return ct_fail(CT_ERR_NULL, me, "part %d is NULL", i);
        if (parts[i]->optim != parts[0]->optim)
            return ct_fail(CT_ERR_VALUE, me, "part %d is of another optimizer than part 0", i);
        if (parts[i]->t) return ct_fail(CT_ERR_STATE, me, "part %d has made steps of its own", i);
        if (parts[i]->depth >= CT__MOST_DEPTH)
            return ct_fail(CT_ERR_VALUE, me, "more than %d schedules within one another", CT__MOST_DEPTH);
    }
    return true;
}

static ct_schedule *together(const schedule_kind *kind, ct_schedule *const *parts, int n, const int64_t *milestones) {
    const char *me = kind->name;
    bool ok = check_parts(me, parts, n);
    for (int i = 0; ok && milestones && i < n - 1; i++)
        if (milestones[i] <= (i ? milestones[i - 1] : 0))
            ok = ct_fail(CT_ERR_VALUE, me, "milestone %d is %lld; milestones have to be above 0 and grow", i,
                         (long long)milestones[i]);
    ct_schedule *s = ok ? schedule_new(kind, parts[0]->optim, NULL, 0) : NULL;
    if (s) {
        s->parts = ct_malloc((size_t)n * sizeof *s->parts);
        s->starts = milestones || kind == &sequence ? ct_calloc((size_t)n, sizeof *s->starts) : NULL;
        if (!s->parts || (kind == &sequence && !s->starts)) {
            ct_fail(CT_ERR_MEMORY, me, "out of memory");
            ct_schedule_free(s);
            s = NULL;
        }
    }
    if (!s) {
        for (int i = 0; parts && i < n; i++) ct_schedule_free(parts[i]);
        return NULL;
    }
    memcpy(s->parts, parts, (size_t)n * sizeof *s->parts);
    s->count = n;
    for (int i = 0; i < n; i++)
        if (parts[i]->depth >= s->depth) s->depth = parts[i]->depth + 1;
    for (int i = 1; s->starts && i < n; i++) s->starts[i] = milestones[i - 1];
    return schedule_begin(s);
}

ct_schedule *ct_schedule_chain(ct_schedule *const *parts, int n) { return together(&chain, parts, n, NULL); }

ct_schedule *ct_schedule_sequence(ct_schedule *const *parts, int n, const int64_t *milestones) {
    if (n > 1 && !milestones) {
        if (ct_ok()) ct_fail(CT_ERR_NULL, "schedule_sequence", "argument milestones is NULL");
        for (int i = 0; parts && i < n; i++) ct_schedule_free(parts[i]);
        return NULL;
    }
    return together(&sequence, parts, n, milestones);
}

/* ---- State ---- */

enum { NUMBERS = 5 };

/* The schedule and all below it, each with a name of its own: fn sees them in order. */
typedef bool (*visit_fn)(ct_schedule *s, const char *name, void *context);
static bool visit(ct_schedule *s, const char *prefix, const char *me, visit_fn fn, void *context) {
    char *name = optim_name(me, prefix, "schedule", "");
    bool ok = name && fn(s, name, context);
    ct_free(name);
    for (int i = 0; ok && i < s->count; i++) {
        char number[32];
        snprintf(number, sizeof number, "%d.", i);
        char *below = optim_name(me, prefix, number, "");
        ok = below && visit(s->parts[i], below, me, fn, context);
        ct_free(below);
    }
    return ok;
}

static bool put_one(ct_schedule *s, const char *name, void *context) {
    const double numbers[NUMBERS] = {(double)s->t, s->current, s->best, (double)s->bad, (double)s->cooling};
    char *kind = optim_name("schedule_put_state", name, ".kind", "");
    const bool ok = kind && ct_state_put_text(context, kind, s->kind->name) &&
                    ct_state_put_numbers(context, name, numbers, NUMBERS);
    ct_free(kind);
    return ok;
}

static bool is_count(double x) { return x >= 0 && x < 0x1p53 && x == floor(x); }

static bool check_one(ct_schedule *s, const char *name, void *context) {
    const char *me = "schedule_take_state";
    double n[NUMBERS];
    char *kind = optim_name(me, name, ".kind", "");
    if (!kind) return false;
    const char *found = ct_state_text(context, kind);
    ct_free(kind);
    if (!found) return ct_fail(CT_ERR_STATE, me, "there is no schedule under %s", name);
    if (strcmp(found, s->kind->name) != 0)
        return ct_fail(CT_ERR_STATE, me, "the state is that of %s, the schedule is %s", found, s->kind->name);
    if (!ct_state_numbers(context, name, n, NUMBERS)) return false;
    if (is_count(n[0]) && n[1] >= 0 && n[1] <= 1 && is_count(n[3]) && is_count(n[4])) return true;
    return ct_fail(CT_ERR_VALUE, me, "%s holds numbers that no schedule has", name);
}

static bool take_one(ct_schedule *s, const char *name, void *context) {
    double n[NUMBERS];
    if (!ct_state_numbers(context, name, n, NUMBERS)) return false;
    s->t = (int64_t)n[0];
    s->current = n[1];
    s->best = n[2];
    s->bad = (int64_t)n[3];
    s->cooling = (int64_t)n[4];
    return true;
}

bool ct_schedule_put_state(ct_schedule *s, ct_state *state, const char *prefix) {
    const char *me = "schedule_put_state";
    return optim_given(s, me, "schedule") && optim_given(state, me, "state") && optim_given(prefix, me, "prefix") &&
           visit(s, prefix, me, put_one, state);
}

bool ct_schedule_take_state(ct_schedule *s, const ct_state *state, const char *prefix) {
    const char *me = "schedule_take_state";
    return optim_given(s, me, "schedule") && optim_given(state, me, "state") && optim_given(prefix, me, "prefix") &&
           visit(s, prefix, me, check_one, (void *)state) && visit(s, prefix, me, take_one, (void *)state) && apply(s);
}
