/* The loss scaler: steps with gradients that are not finite are left out, and the scale follows. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "gen/ops_decl.h"

enum { MOST_OPTIMS = 8 };

/* What it decides is decided on the device, where its numbers are from the first use on: nothing here waits for a gradient. */
struct ct_scaler {
    double growth_factor, backoff_factor;
    int64_t growth_interval;
    double first_scale, first_good; /* before there is a device */
    ct_tensor *scale, *good;        /* f32 scalars; good: steps since the scale last changed; kept; NULL: not yet */
    ct_tensor *clean; /* since the last update all gradients were finite: 1, else 0; kept; NULL: none was seen */
    ct_tensor *last;  /* the gate of the last step; kept */
    const ct_optim *unscaled[MOST_OPTIMS]; /* whose gradients were divided and not used yet */
    ct_tensor *gates[MOST_OPTIMS];         /* what their steps take (ops/optim); kept */
    int count;
    int64_t version; /* of the tensors that a captured step uses: counts up when some are replaced */
};

ct_scaler *ct_scaler_new_p(double init_scale, const ct_scaler_options *options) {
    const char *me = "scaler_new";
    TAKE_OPTIONS(ct_scaler_options, given, options);
    if (!ct_ok()) return NULL;
    const ct_scaler made = {.first_scale = init_scale != 0 ? init_scale : 65536,
                            .growth_factor = given.growth_factor != 0 ? given.growth_factor : 2,
                            .backoff_factor = given.backoff_factor != 0 ? given.backoff_factor : 0.5,
                            .growth_interval = given.growth_interval ? given.growth_interval : 2000};
    ct_scaler *scaler = NULL;
    if (!(made.first_scale > 0) || !isfinite((float)made.first_scale))
        ct_fail(CT_ERR_VALUE, me, "init_scale is %g; it has to be above 0", made.first_scale);
    else if (!(made.growth_factor > 1))
        ct_fail(CT_ERR_VALUE, me, "growth_factor is %g; it has to be above 1", made.growth_factor);
    else if (!(made.backoff_factor > 0 && made.backoff_factor < 1))
        ct_fail(CT_ERR_VALUE, me, "backoff_factor is %g; it has to be between 0 and 1", made.backoff_factor);
    else if (made.growth_interval < 1)
        ct_fail(CT_ERR_VALUE, me, "growth_interval is %lld; it has to be above 0", (long long)made.growth_interval);
    else if (!(scaler = ct_malloc(sizeof *scaler))) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    else *scaler = made;
    return scaler;
}

/* A kept tensor takes the place of another; false where it is NULL. */
static bool replace(ct_tensor **home, ct_tensor *by) {
    if (!by) return false;
    ct_keep(by);
    ct_drop(*home);
    *home = by;
    return true;
}

static void forget(ct_tensor **home) {
    ct_drop(*home);
    *home = NULL;
}

static void forget_step(ct_scaler *scaler) {
    for (int i = 0; i < scaler->count; i++) forget(&scaler->gates[i]);
    forget(&scaler->clean);
    scaler->count = 0;
}

void ct_scaler_free(ct_scaler *scaler) {
    if (!scaler) return;
    forget_step(scaler);
    forget(&scaler->last);
    forget(&scaler->scale);
    forget(&scaler->good);
    ct_free(scaler);
}

double ct_scaler_value(const ct_scaler *scaler) {
    if (!scaler) return (double)NAN;
    return scaler->scale ? ct_item(scaler->scale) : scaler->first_scale;
}

bool ct_scaler_skipped(const ct_scaler *scaler) {
    bool skipped = false;
    if (scaler && scaler->last)
        ct_scope {
            skipped = ct_item(ct_select(scaler->last, 0, 1)) == 0;
        }
    return skipped;
}

/* The scaler's numbers on the device of x. */
static bool settle(ct_scaler *scaler, const ct_tensor *x) {
    const ct_device device = ct_device_of(x);
    bool ok = true;
    ct_scope {
        ct_no_grad {
            if (!scaler->scale) {
                ct_tensor *scale = ct_full(CT_DIMS0, scaler->first_scale, .device = device);
                ct_tensor *good = ct_full(CT_DIMS0, scaler->first_good, .device = device);
                ok = scale && good && replace(&scaler->scale, scale) && replace(&scaler->good, good);
            } else {
                ok = replace(&scaler->scale, ct_to(scaler->scale, device)) &&
                     replace(&scaler->good, ct_to(scaler->good, device)) &&
                     (!scaler->clean || replace(&scaler->clean, ct_to(scaler->clean, device)));
            }
        }
    }
    return ok;
}

ct_tensor *ct_scaler_scale(ct_scaler *scaler, ct_tensor *loss) {
    const char *me = "scaler_scale";
    if (!optim_given(scaler, me, "scaler") || !optim_given(loss, me, "loss") || !settle(scaler, loss)) return NULL;
    /* the scale may be more than an f16 can hold */
    return ct_mul(optim_half(ct_dtype_of(loss)) ? ct_cast(loss, CT_F32) : loss, scaler->scale);
}

static int place_of(const ct_scaler *scaler, const ct_optim *optim) {
    for (int i = 0; i < scaler->count; i++)
        if (scaler->unscaled[i] == optim) return i;
    return -1;
}

/* The gate for the step of an optimizer, whose gradients are divided meanwhile unless that is left to the step. NULL after an
 * error. */
static ct_tensor *make_gate(ct_scaler *scaler, ct_optim *optim, bool late, const char *function) {
    ct_optim *o = optim_base(optim);
    if (!optim_collect(o, function)) return NULL;
    int n = 0;
    for (int i = 0; i < o->count; i++) {
        ct_tensor *grad = o->params[i].grad;
        if (grad && !(o->items[n++] = optim_own_grad(o->params[i].x, grad))) return NULL;
    }
    if (n && !settle(scaler, o->items[0])) return NULL;
    if (n) return ct__optim_unscale(scaler->scale, o->items, n, late);
    return ct_ones(CT_DIMS(2), .device = scaler->scale ? ct_device_of(scaler->scale) : ct_get_device());
}

static bool unscale(ct_scaler *scaler, ct_optim *optim, bool late, const char *me) {
    if (!optim_given(scaler, me, "scaler") || !optim_given(optim, me, "optim")) return false;
    if (place_of(scaler, optim) >= 0)
        return ct_fail(CT_ERR_STATE, me, "the gradients of this step are unscaled already");
    if (scaler->count == MOST_OPTIMS)
        return ct_fail(CT_ERR_STATE, me, "a scaler serves at most %d optimizers at once", MOST_OPTIMS);
    bool ok = false;
    ct_scope {
        ct_no_grad {
            ct_tensor *gate = make_gate(scaler, optim, late, me), *finite = gate ? ct_select(gate, 0, 1) : NULL;
            if (finite && scaler->clean) finite = ct_mul(scaler->clean, finite);
            ok = finite && replace(&scaler->clean, finite) && replace(&scaler->gates[scaler->count], gate);
        }
    }
    if (ok) scaler->unscaled[scaler->count++] = optim;
    return ok;
}

bool ct_scaler_unscale(ct_scaler *scaler, ct_optim *optim) { return unscale(scaler, optim, false, "scaler_unscale"); }

static bool has_half(const ct_optim *o) {
    for (int i = 0; i < o->count; i++)
        if (o->params[i].half) return true;
    return false;
}

bool ct_scaler_step(ct_scaler *scaler, ct_optim *optim) {
    const char *me = "scaler_step";
    if (!optim_given(scaler, me, "scaler") || !optim_given(optim, me, "optim")) return false;
    ct_optim *base = optim_base(optim);
    /* Divided gradients of f16 could vanish: there the step itself divides, in f32. */
    const bool late = place_of(scaler, optim) < 0 && has_half(base);
    if (place_of(scaler, optim) < 0 && !unscale(scaler, optim, late, me)) return false;
    const int at = place_of(scaler, optim);
    base->given_gate = scaler->gates[at];
    const bool ok = ct_optim_step(optim);
    base->given_gate = NULL;
    if (!ok && !late) return false; /* the gradients are divided, and stay so */
    if (ok) replace(&scaler->last, scaler->gates[at]);
    forget(&scaler->gates[at]);
    scaler->count--;
    scaler->unscaled[at] = scaler->unscaled[scaler->count];
    scaler->gates[at] = scaler->gates[scaler->count];
    scaler->gates[scaler->count] = NULL;
    return ok;
}

/* After a bad gradient the scale falls, after growth_interval good steps it grows, as long as the loss may be f32. */
bool ct_scaler_update(ct_scaler *scaler) {
    if (!optim_given(scaler, "scaler_update", "scaler")) return false;
    if (!scaler->clean)
        return ct_fail(CT_ERR_STATE, "scaler_update", "no gradients were unscaled since the last update");
    bool ok = ct_capture_guard(&scaler->version, "the state of the loss scaler has been replaced since the capture") &&
              settle(scaler, scaler->clean);
    ct_no_grad
        ok = ok && ct__optim_rescale(scaler->scale, scaler->good, scaler->clean, scaler->growth_factor,
                                     scaler->backoff_factor, (double)scaler->growth_interval);
    if (ok) forget_step(scaler);
    return ok;
}

bool ct_scaler_put_state(ct_scaler *scaler, ct_state *state, const char *prefix) {
    const char *me = "scaler_put_state";
    if (!optim_given(scaler, me, "scaler") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    char *name = optim_name(me, prefix, "scaler", "");
    const double good = scaler->good ? ct_item(scaler->good) : scaler->first_good;
    const bool ok =
        name && ct_ok() && ct_state_put_numbers(state, name, (const double[]){ct_scaler_value(scaler), good}, 2);
    ct_free(name);
    return ok;
}

bool ct_scaler_take_state(ct_scaler *scaler, const ct_state *state, const char *prefix) {
    const char *me = "scaler_take_state";
    if (!optim_given(scaler, me, "scaler") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    double numbers[2];
    char *name = optim_name(me, prefix, "scaler", "");
    bool ok = name && ct_state_numbers(state, name, numbers, 2);
    if (ok && !(numbers[0] > 0 && isfinite((float)numbers[0]) && numbers[1] >= 0 && numbers[1] < 0x1p53))
        ok = ct_fail(CT_ERR_VALUE, me, "%s is %g, %g: not a scale and a number of steps", name, numbers[0], numbers[1]);
    ct_free(name);
    if (!ok) return false;
    scaler->version++;
    scaler->first_scale = numbers[0];
    scaler->first_good = numbers[1];
    forget_step(scaler);
    forget(&scaler->last);
    forget(&scaler->scale); /* made anew at the next use */
    forget(&scaler->good);
    return true;
}
