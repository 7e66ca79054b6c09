/* The step: all parameters that share their numbers go to one fused op (ops/optim). What changes from step to step lies on their
 * device, where the op reads it: the rates of each group, which the host brings over in one block when one of them has changed, and
 * clocks, which the ops move on themselves. So nothing is read back, and a recorded step can be run again. */
#include "optim/optim.h"

#include "gen/ops_decl.h"

/* ---- Clocks ---- */

void optim_set_clock(ct_optim *o, optim_param *p, int clock) {
    if (p->clock >= 0 && --o->clocks[p->clock].users == 0) {
        ct_drop(o->clocks[p->clock].x);
        o->clocks[p->clock].x = NULL;
    }
    p->clock = clock;
    if (clock >= 0) o->clocks[clock].users++;
}

/* A place for a clock, which then owns x; where x is NULL it fails. */
static bool add_clock(ct_optim *o, ct_tensor *x, int *clock) {
    if (!x) return false;
    int at = 0;
    while (at < o->clock_count && o->clocks[at].x) at++;
    if (at == o->clock_count) {
        optim_clock *clocks = ct_realloc(o->clocks, ((size_t)at + 1) * sizeof *clocks);
        if (!clocks) {
            ct_drop(x);
            return ct_fail(CT_ERR_MEMORY, o->kind->info.name, "out of memory");
        }
        o->clocks = clocks;
        o->clock_count++;
    }
    o->clocks[at] = (optim_clock){x, 0};
    *clock = at;
    return true;
}

static ct_tensor *numbers_on(ct_device device, const double *values, ct_dims shape) {
    ct_tensor *x = NULL;
    ct_scope {
        x = optim_numbers(shape, 0, device);
        if (x && !optim_put_numbers(x, values)) x = NULL;
        if (x) ct_keep(x);
    }
    return x;
}

bool optim_new_clock(ct_optim *o, double steps, double remembered, ct_device device, int *clock) {
    return add_clock(o, numbers_on(device, (double[]){steps, remembered}, CT_DIMS(2)), clock);
}

static bool copy_clock(ct_optim *o, int from, int *clock) {
    ct_tensor *copy = NULL;
    ct_scope {
        copy = ct_clone(o->clocks[from].x);
        if (copy) ct_keep(copy);
    }
    return add_clock(o, copy, clock);
}

static bool together(const optim_param *a, const optim_param *b) {
    return a->clock == b->clock && a->group == b->group && a->half == b->half;
}

/* Whoever steps in one call gets a clock that nobody else has. The first of them is given. */
static bool share_clock(ct_optim *o, int first) {
    const optim_param lead = o->params[first];
    int n = 0, clock = lead.clock;
    for (int i = first; i < o->count; i++) n += o->params[i].grad && together(&lead, &o->params[i]);
    if (lead.clock >= 0 && o->clocks[lead.clock].users == n) return true;
    if (!(lead.clock < 0 ? optim_new_clock(o, 0, 1, ct_device_of(lead.x), &clock) : copy_clock(o, lead.clock, &clock)))
        return false;
    o->version++;
    for (int i = first; i < o->count; i++)
        if (o->params[i].grad && together(&lead, &o->params[i])) optim_set_clock(o, &o->params[i], clock);
    return true;
}

/* ---- Rates ---- */

/* The block for all groups, and a view of it for each. */
static bool make_rates(ct_optim *o, const double *values, int count, ct_device device) {
    ct_tensor *rates = numbers_on(device, values, CT_DIMS(o->group_count, count));
    for (int i = 0; rates && i < o->group_count; i++)
        ct_scope {
            ct_tensor *row = ct_select(rates, 0, i);
            if (row) ct_keep(row);
            ct_drop(o->groups[i].rates);
            o->groups[i].rates = row;
        }
    o->version++;
    if (!o->gate) o->gate = numbers_on(device, (double[]){1, 1}, CT_DIMS(2));
    ct_drop(o->rates);
    o->rates = ct_ok() ? rates : NULL; /* without it all of them are made again */
    if (!o->rates) ct_drop(rates);
    return o->rates != NULL;
}

/* Brings over what the settings say now, if that is not what is there. */
static bool send_rates(ct_optim *o, ct_device device) {
    double values[OPTIM_RATES * 4], *all = values, row[OPTIM_RATES];
    const int groups = o->group_count, count = 1 + o->kind->rates(o->groups[0].s, row);
    const size_t bytes = (size_t)groups * (size_t)count * sizeof *all;
    const bool first = !o->rates || ct_dim(o->rates, 0) != groups;
    if (first) {
        double *sent = ct_realloc(o->sent, bytes);
        if (!sent) return ct_fail(CT_ERR_MEMORY, "optim_step", "out of memory");
        o->sent = sent;
    }
    if (bytes > sizeof values && !(all = ct_malloc(bytes)))
        return ct_fail(CT_ERR_MEMORY, "optim_step", "out of memory");
    for (int i = 0; i < groups; i++) {
        const double *s = o->groups[i].s;
        all[i * count] = o->maximize >= 0 && s[o->maximize] != 0 ? -1 : 1;
        o->kind->rates(s, all + i * count + 1);
    }
    bool ok = true;
    if (first) ok = make_rates(o, all, count, device);
    else if (memcmp(all, o->sent, bytes) != 0) ok = optim_put_numbers(o->rates, all);
    if (ok) memcpy(o->sent, all, bytes);
    if (all != values) ct_free(all);
    return ok;
}

/* In a replay of a captured step, before its calls: what the host does in each. */
static bool replayed(void *optim) {
    ct_optim *o = optim;
    if (!optim_is_current(o, "optim_step")) return false;
    o->steps++;
    return send_rates(o, ct_device_of(o->rates));
}

/* ---- The step ---- */

/* What a parameter needs from here on and does not have yet. */
static bool make_states(const ct_optim *o, optim_param *p, int needed) {
    const ct_dtype dtype = p->half ? CT_F32 : ct_dtype_of(p->x);
    const int start = optim_setting(o->kind, "initial_accumulator_value");
    ct_scope {
        ct_tensor *part = optim_part(p, p->x);
        if (p->half && !p->master) p->master = ct_keep(ct_cast(ct_detach(part), CT_F32));
        for (; ct_ok() && p->states < needed; p->states++) {
            const double value = start >= 0 ? o->groups[p->group].s[start] : 0;
            ct_tensor *x = ct_full(ct_shape(part), value, .dtype = dtype, .device = ct_device_of(p->x));
            if (!ct_ok()) break;
            p->state[p->states] = ct_keep(x);
        }
    }
    return ct_ok();
}

/* All memory first: a step is whole or not at all. */
static bool prepare(ct_optim *o) {
    const optim_param *any = NULL;
    for (int i = 0; i < o->count; i++) {
        optim_param *p = &o->params[i];
        if (!p->grad) continue;
        const int needed = o->kind->state_count(o->groups[p->group].s);
        if ((p->states < needed || (p->half && !p->master)) && !make_states(o, p, needed)) return false;
        any = p;
    }
    if (any && !(send_rates(o, ct_device_of(any->x)) && ct_capture_effect_early(replayed, o) &&
                 ct_capture_guard(&o->version, "the state of the optimizer has been replaced since the capture")))
        return false;
    for (int i = 0; i < o->count; i++) {
        bool seen = !o->params[i].grad;
        for (int k = 0; k < i && !seen; k++) seen = o->params[k].grad && together(&o->params[k], &o->params[i]);
        if (!seen && !share_clock(o, i)) return false;
    }
    return true;
}

/* One call for the parameter `first` and all after it of its clock. */
static bool step_together(ct_optim *o, int first) {
    const optim_param *lead = &o->params[first];
    const optim_group *group = &o->groups[lead->group];
    const int states = o->kind->state_count(group->s), clock = lead->clock;
    optim_call call = {.rates = group->rates,
                       .clock = o->clocks[clock].x,
                       .gate = o->given_gate ? o->given_gate : o->gate,
                       .items = o->items,
                       .master = lead->half};
    for (int i = first; i < o->count; i++) {
        optim_param *p = &o->params[i];
        if (!p->grad || p->clock != clock) continue;
        o->items[call.n++] = optim_part(p, p->x);
        if (p->half) o->items[call.n++] = p->master;
        o->items[call.n++] = optim_part(p, p->grad);
        for (int k = 0; k < states; k++) o->items[call.n++] = p->state[k];
        p->grad = NULL;
    }
    return ct_ok() && o->kind->step(group->s, &call);
}

bool optim_gather(ct_optim *o, bool all) {
    bool ok = true;
    for (int i = 0; ok && i < o->count; i++) {
        const ct_division *lead = &o->params[i].division;
        int n = 0;
        bool done = !lead->parts || !(all || o->params[i].stepped);
        for (int k = 0; k < o->count && !done; k++) { /* all of one way in one call, by the first of them */
            const optim_param *p = &o->params[k];
            if (p->division.gather != lead->gather || p->division.context != lead->context || !(all || p->stepped))
                continue;
            done = k < i;
            o->items[n++] = p->x;
        }
        if (done) continue;
        ct_capture_refuse("optim_step", "a step that processes divide", "they exchange what each has learned");
        ok = ct_ok() && lead->gather(lead->context, o->items, n);
    }
    return ok;
}

/* A step that the gate leaves out is counted as such, where the gate is. */
static bool count_shut(ct_optim *o) {
    if (!o->shut) {
        ct_tensor *count = optim_numbers(CT_DIMS0, 0, ct_device_of(o->given_gate));
        if (!count) return false;
        o->shut = ct_keep(count);
    }
    return ct__optim_left_out(o->given_gate, o->shut);
}

bool ct_optim_step(ct_optim *o) {
    if (!optim_given(o, "optim_step", "optim")) return false;
    if (o->inner) return optim_lookahead_step(o);
    if (!o->kind->step)
        return ct_fail(CT_ERR_STATE, "optim_step", "%s evaluates the loss itself: ct_optim_step_with",
                       o->kind->info.name);
    if (!optim_collect(o, "optim_step")) return false;
    const bool before = ct_set_grad_enabled(false);
    bool ok = true;
    ct_scope {
        for (int i = 0; i < o->count; i++) o->params[i].stepped = o->params[i].grad != NULL;
        ok = prepare(o);
        for (int i = 0; ok && i < o->count; i++)
            if (o->params[i].grad) ok = step_together(o, i);
        if (ok && o->given_gate) ok = count_shut(o);
        ok = ok && optim_gather(o, false);
    }
    ct_set_grad_enabled(before);
    if (!ok) return false;
    o->steps++;
    return optim_forget(o);
}
