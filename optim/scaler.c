/* The loss scaler: steps with gradients that are not finite are left out, and the scale follows. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

struct ct_scaler {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval, good; /* good: steps since the scale last changed */
    bool bad;                      /* some gradient since the last update was not finite */
    bool any;                      /* some gradients were looked at since then */
    bool skipped;
    const ct_optim *unscaled[8]; /* whose gradients were divided and not used yet */
    bool finite[8];              /* whether they were finite */
    int count;
};

ct_scaler *ct_scaler_new_p(double init_scale, const ct_scaler_options *options) {
    const char *me = "scaler_new";
    TAKE_OPTIONS(ct_scaler_options, given, options);
    if (!ct_ok()) return NULL;
    const ct_scaler made = {.scale = init_scale != 0 ? init_scale : 65536,
                            .growth_factor = given.growth_factor != 0 ? given.growth_factor : 2,
                            .backoff_factor = given.backoff_factor != 0 ? given.backoff_factor : 0.5,
                            .growth_interval = given.growth_interval ? given.growth_interval : 2000};
    ct_scaler *scaler = NULL;
    if (!(made.scale > 0) || !isfinite(made.scale))
        ct_fail(CT_ERR_VALUE, me, "init_scale is %g; it has to be above 0", made.scale);
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

void ct_scaler_free(ct_scaler *scaler) { ct_free(scaler); }
double ct_scaler_value(const ct_scaler *scaler) { return scaler ? scaler->scale : (double)NAN; }
bool ct_scaler_skipped(const ct_scaler *scaler) { return scaler && scaler->skipped; }

ct_tensor *ct_scaler_scale(ct_scaler *scaler, ct_tensor *loss) {
    if (!scaler) {
        optim_given(scaler, "scaler_scale", "scaler");
        return NULL;
    }
    return ct_mul_s(loss, scaler->scale);
}

static int place_of(const ct_scaler *scaler, const ct_optim *optim) {
    for (int i = 0; i < scaler->count; i++)
        if (scaler->unscaled[i] == optim) return i;
    return -1;
}

/* Multiplies the gradients of an optimizer by factor and finds out whether they are finite then. */
static bool multiply(ct_optim *optim, double factor, const char *function, bool *finite) {
    ct_optim *o = optim_base(optim);
    if (!optim_collect(o, function)) return false;
    int n = 0;
    double all = 1;
    bool ok = true;
    for (int i = 0; ok && i < o->count; i++) {
        ct_tensor *grad = o->params[i].grad;
        if (!grad) continue;
        if (!ct_is_contiguous(grad) || ct_requires_grad(grad))
            ct_scope { /* memory of others stays as it is */
                ct_tensor *copy = NULL;
                ct_no_grad {
                    copy = ct_contiguous(ct_clone(grad));
                }
                ok = copy && ct_set_grad(o->params[i].x, copy);
                grad = ct_grad_of(o->params[i].x);
            }
        o->items[n++] = grad;
    }
    if (ok && n) ok = optim_apply("optim_scale", o->items, n, "factor", factor, &all);
    *finite = all != 0;
    return ok;
}

static bool unscale(ct_scaler *scaler, ct_optim *optim, double factor, const char *me) {
    if (!optim_given(scaler, me, "scaler") || !optim_given(optim, me, "optim")) return false;
    if (place_of(scaler, optim) >= 0)
        return ct_fail(CT_ERR_STATE, me, "the gradients of this step are unscaled already");
    if (scaler->count == 8) return ct_fail(CT_ERR_STATE, me, "a scaler serves at most 8 optimizers at once");
    bool finite;
    if (!multiply(optim, factor, me, &finite)) return false;
    scaler->unscaled[scaler->count] = optim;
    scaler->finite[scaler->count++] = finite;
    scaler->bad |= !finite;
    scaler->any = true;
    return true;
}

bool ct_scaler_unscale(ct_scaler *scaler, ct_optim *optim) {
    return unscale(scaler, optim, scaler ? 1 / scaler->scale : 1, "scaler_unscale");
}

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
    if (place_of(scaler, optim) < 0 && !unscale(scaler, optim, late ? 1 : 1 / scaler->scale, me)) return false;
    const int at = place_of(scaler, optim);
    const bool finite = scaler->finite[at];
    base->grad_scale = late ? 1 / scaler->scale : 0;
    const bool ok = finite ? ct_optim_step(optim) : optim_forget(base);
    base->grad_scale = 0;
    if (!ok && !late) return false; /* the gradients are divided, and stay so */
    if (ok) scaler->skipped = !finite;
    scaler->count--;
    scaler->unscaled[at] = scaler->unscaled[scaler->count];
    scaler->finite[at] = scaler->finite[scaler->count];
    return ok;
}

bool ct_scaler_update(ct_scaler *scaler) {
    if (!optim_given(scaler, "scaler_update", "scaler")) return false;
    if (!scaler->any) return ct_fail(CT_ERR_STATE, "scaler_update", "no gradients were unscaled since the last update");
    if (scaler->bad) {
        scaler->scale *= scaler->backoff_factor;
        scaler->good = 0;
    } else if (++scaler->good >= scaler->growth_interval) {
        const double larger = scaler->scale * scaler->growth_factor;
        if (larger <= (double)3.4028234663852886e38f) scaler->scale = larger; /* the loss may be f32 */
        scaler->good = 0;
    }
    scaler->bad = scaler->any = false;
    scaler->count = 0;
    return true;
}

bool ct_scaler_put_state(ct_scaler *scaler, ct_state *state, const char *prefix) {
    const char *me = "scaler_put_state";
    if (!optim_given(scaler, me, "scaler") || !optim_given(state, me, "state") || !optim_given(prefix, me, "prefix"))
        return false;
    char *name = optim_name(me, prefix, "scaler", "");
    const bool ok = name && ct_state_put_numbers(state, name, (const double[]){scaler->scale, (double)scaler->good}, 2);
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
    if (ok && !(numbers[0] > 0 && isfinite(numbers[0]) && numbers[1] >= 0 && numbers[1] < 0x1p53))
        ok = ct_fail(CT_ERR_VALUE, me, "%s is %g, %g: not a scale and a number of steps", name, numbers[0], numbers[1]);
    ct_free(name);
    if (!ok) return false;
    scaler->scale = numbers[0];
    scaler->good = (int64_t)numbers[1];
    scaler->bad = scaler->any = scaler->skipped = false;
    scaler->count = 0;
    return true;
}
