/* The exponential moving average of a network's parameters, and the network with its averages swapped in. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "gen/ops_decl.h"

typedef struct ema_entry {
    const ct_parameter *source;
    ct_tensor *x;       /* as it was when the average began; kept */
    ct_tensor *average; /* of a buffer: a copy */
    ct_tensor *away;    /* the network's own value while the average is in its place */
} ema_entry;

struct ct_ema {
    ct_parameters *list; /* holds the network */
    ema_entry *entries;
    ct_tensor **items; /* room for the list of one call */
    int count;
    int64_t updates;
    double decay;
    ct_tensor *rates, *copies; /* the decay, where the averages are, and none; kept */
    double sent, sent_copies;  /* what they hold */
    bool warmup, swapped;
    int64_t
        version; /* of what a captured step uses: another while the averages are swapped in, and after they were loaded */
};

/* A copy that is kept, in f32 for half types where average. */
static ct_tensor *copy_of(ct_tensor *x, bool average) {
    ct_tensor *copy = NULL;
    ct_scope {
        ct_no_grad {
            copy = average && optim_half(ct_dtype_of(x)) ? ct_cast(x, CT_F32) : ct_clone(x);
        }
        ct_keep(copy);
    }
    return copy;
}

/* A parameter is averaged; buffers are copied: those of floats in one call, by an average that keeps nothing. */
static bool is_averaged(const ema_entry *e) { return !e->source->buffer && ct_dtype_is_float(ct_dtype_of(e->x)); }
static bool is_listed(const ema_entry *e) { return ct_dtype_is_float(ct_dtype_of(e->x)); }

ct_ema *ct_ema_new_p(ct_module *net, const ct_ema_options *options) {
    const char *me = "ema_new";
    TAKE_OPTIONS(ct_ema_options, given, options);
    if (!optim_given(net, me, "net")) return NULL;
    const double decay = given.decay.set ? given.decay.value : 0.999;
    if (!(decay >= 0 && decay <= 1)) {
        ct_fail(CT_ERR_VALUE, me, "decay is %g; it has to be from 0 to 1", decay);
        return NULL;
    }
    ct_ema *ema = ct_calloc(1, sizeof *ema);
    if (!ema) {
        ct_fail(CT_ERR_MEMORY, me, "out of memory");
        return NULL;
    }
    ema->decay = decay;
    ema->warmup = given.warmup;
    ema->list = ct_module_parameters(net);
    const int count = ct_parameters_count(ema->list);
    bool ok = ema->list != NULL;
    if (ok) {
        ema->entries = ct_calloc((size_t)count + 1, sizeof *ema->entries);
        ema->items = ct_calloc(2 * (size_t)count + 1, sizeof *ema->items);
        ok = ema->entries && ema->items;
        if (!ok) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    }
    for (int i = 0; ok && i < count; i++) {
        ema_entry *e = &ema->entries[ema->count++];
        e->source = ct_parameters_at(ema->list, i);
        e->x = ct_keep(ct_parameter_tensor(e->source));
        ok = (e->average = copy_of(e->x, is_averaged(e))) != NULL;
    }
    if (ok) return ema;
    ct_ema_free(ema);
    return NULL;
}

/* Also while an error is pending, which would keep anything from being written: it is put aside meanwhile. */
static bool put_back(ct_ema *ema) {
    bool ok = true;
    optim_error pending;
    optim_error_take(&pending);
    ct_scope {
        ct_no_grad {
            for (int i = 0; i < ema->count; i++) {
                ema_entry *e = &ema->entries[i];
                if (!e->away) continue;
                ok = ct_assign(e->x, e->away) && ok;
                ct_drop(e->away);
                e->away = NULL;
            }
        }
    }
    ema->swapped = false;
    ema->version--;
    optim_error_put(&pending);
    return ok && ct_ok();
}

void ct_ema_free(ct_ema *ema) {
    if (!ema) return;
    if (ema->swapped) put_back(ema);
    for (int i = 0; i < ema->count; i++) {
        ct_drop(ema->entries[i].x);
        ct_drop(ema->entries[i].average);
        ct_drop(ema->entries[i].away);
    }
    ct_drop(ema->rates);
    ct_drop(ema->copies);
    ct_parameters_free(ema->list);
    ct_free(ema->entries);
    ct_free(ema->items);
    ct_free(ema);
}

static bool check(const ct_ema *ema, const char *function, bool swapped) {
    if (!optim_given(ema, function, "ema")) return false;
    if (ema->swapped != swapped)
        return ct_fail(CT_ERR_STATE, function,
                       swapped ? "the averages are not in the network"
                               : "the averages are in the network: swap them out");
    for (int i = 0; i < ema->count; i++)
        if (ct_parameter_tensor(ema->entries[i].source) != ema->entries[i].x)
            return ct_fail(CT_ERR_STATE, function,
                           "%s was moved or converted after the average was made: make a new one",
                           ema->entries[i].source->name);
    return true;
}

/* Brings the rate over, if it is not what is there. */
static bool send_rate(ct_tensor *rates, double *sent, double keep) {
    if (*sent == keep) return true;
    if (!optim_put_numbers(rates, (double[]){keep, 1 - keep})) return false;
    *sent = keep;
    return true;
}

bool optim_average(ct_tensor **rates, double *sent, double keep, ct_tensor *const *items, int n) {
    bool ok = true;
    if (!n) return true;
    ct_scope {
        ct_no_grad {
            if (!*rates) {
                ct_tensor *made = optim_numbers(CT_DIMS(2), 0, ct_device_of(items[0]));
                if (made) *rates = ct_keep(made);
                *sent = (double)NAN;
            }
            ok = *rates && send_rate(*rates, sent, keep) && ct__optim_average(*rates, items, n);
        }
    }
    return ok;
}

/* The pairs of all that are averaged, or of the other floats. Returns the number of tensors. */
static int collect(ct_ema *ema, bool averaged) {
    int n = 0;
    for (int i = 0; i < ema->count; i++) {
        const ema_entry *e = &ema->entries[i];
        if (!is_listed(e) || is_averaged(e) != averaged) continue;
        ema->items[n++] = e->average;
        ema->items[n++] = e->x;
    }
    return n;
}

static double decay_now(const ct_ema *ema) {
    const double t = (double)ema->updates, limit = (1 + t) / (10 + t);
    return ema->warmup && limit < ema->decay ? limit : ema->decay;
}

/* In a replay of a captured step, before its calls: what the host does in each. */
static bool replayed(void *average) {
    ct_ema *ema = average;
    const bool ok = !ema->rates || send_rate(ema->rates, &ema->sent, decay_now(ema));
    ema->updates++;
    return ok;
}

bool ct_ema_update(ct_ema *ema) {
    if (!check(ema, "ema_update", false)) return false;
    bool ok = ct_capture_effect_early(replayed, ema) &&
              ct_capture_guard(&ema->version, "the averages have been swapped in or replaced since the capture") &&
              optim_average(&ema->rates, &ema->sent, decay_now(ema), ema->items, collect(ema, true)) &&
              optim_average(&ema->copies, &ema->sent_copies, 0, ema->items, collect(ema, false));
    ct_scope {
        ct_no_grad {
            for (int i = 0; ok && i < ema->count; i++)
                if (!is_listed(&ema->entries[i])) ok = ct_assign(ema->entries[i].average, ema->entries[i].x) != NULL;
        }
    }
    if (ok) ema->updates++;
    return ok;
}

bool ct_ema_swap_in(ct_ema *ema) {
    if (!check(ema, "ema_swap_in", false)) return false;
    bool ok = true;
    for (int i = 0; ok && i < ema->count; i++) /* all memory first */
        ok = (ema->entries[i].away = copy_of(ema->entries[i].x, false)) != NULL;
    ct_scope {
        ct_no_grad {
            for (int i = 0; ok && i < ema->count; i++)
                ok = ct_assign(ema->entries[i].x, ema->entries[i].average) != NULL;
        }
    }
    ema->swapped = true;
    ema->version++;
    if (!ok) put_back(ema);
    return ok;
}

bool ct_ema_swap_out(ct_ema *ema) { return check(ema, "ema_swap_out", true) && put_back(ema); }

bool ct_ema_put_state(ct_ema *ema, ct_state *state, const char *prefix) {
    const char *me = "ema_put_state";
    if (!optim_given(ema, me, "ema") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    char *name = optim_name(me, prefix, "updates", "");
    bool ok = name && ct_state_put_integers(state, name, &ema->updates, 1);
    ct_free(name);
    for (int i = 0; ok && i < ema->count; i++) {
        name = optim_name(me, prefix, ema->entries[i].source->name, ".average");
        ok = name && ct_state_put(state, name, ema->entries[i].average);
        ct_free(name);
    }
    return ok;
}

bool ct_ema_take_state(ct_ema *ema, const ct_state *state, const char *prefix) {
    const char *me = "ema_take_state";
    if (!check(ema, me, false) || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix")) return false;
    int64_t updates = 0;
    ct_tensor **taken = ct_calloc((size_t)ema->count + 1, sizeof *taken);
    if (!taken) return ct_fail(CT_ERR_MEMORY, me, "out of memory");
    char *name = optim_name(me, prefix, "updates", "");
    bool ok = name && ct_state_integers(state, name, &updates, 1);
    if (ok && updates < 0) ok = ct_fail(CT_ERR_VALUE, me, "%s is %lld", name, (long long)updates);
    ct_free(name);
    for (int i = 0; ok && i < ema->count; i++) {
        const ema_entry *e = &ema->entries[i];
        name = optim_name(me, prefix, e->source->name, ".average");
        ok = name && (taken[i] = optim_take_tensor(me, state, name, e->average, ct_dtype_of(e->average)));
        ct_free(name);
    }
    for (int i = 0; i < ema->count; i++) {
        if (ok) {
            ct_tensor *before = ema->entries[i].average;
            ema->entries[i].average = taken[i];
            taken[i] = before;
        }
        ct_drop(taken[i]);
    }
    if (ok) ema->updates = updates, ema->version += 2;
    ct_free(taken);
    return ok;
}
