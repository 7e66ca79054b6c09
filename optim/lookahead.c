/* Lookahead: slow weights that follow those of another optimizer every k steps. */
#include "optim/optim.h"

#include <stdlib.h>

const optim_kind optim_lookahead = {.info.name = "lookahead",
                                    .info.doc = "slow weights that follow those of another optimizer"};

ct_optim *ct_lookahead_p(ct_optim *inner, const ct_lookahead_options *options) {
    const char *me = "lookahead";
    TAKE_OPTIONS(ct_lookahead_options, given, options);
    const double alpha = given.alpha.set ? given.alpha.value : 0.5;
    const int64_t k = given.k ? given.k : 5;
    ct_optim *o = NULL;
    if (optim_given(inner, me, "inner")) {
        if (inner->inner) ct_fail(CT_ERR_VALUE, me, "inner is lookahead itself");
        else if (inner->kind->info.needs_loss)
            ct_fail(CT_ERR_VALUE, me, "it does not go around %s", ct_optim_name(inner));
        else if (!(alpha >= 0 && alpha <= 1)) ct_fail(CT_ERR_VALUE, me, "alpha is %g; it has to be from 0 to 1", alpha);
        else if (k < 1) ct_fail(CT_ERR_VALUE, me, "k is %lld; it has to be above 0", (long long)k);
        else if (!(o = ct_calloc(1, sizeof *o))) ct_fail(CT_ERR_MEMORY, me, "out of memory");
    }
    if (!o) {
        ct_optim_free(inner);
        return NULL;
    }
    o->kind = &optim_lookahead;
    o->inner = inner;
    o->alpha = alpha;
    o->k = k;
    return o;
}

/* Before the first step the slow weights are the weights. */
static bool begin(ct_optim *base) {
    bool ok = true;
    for (int i = 0; ok && i < base->count; i++) {
        optim_param *p = &base->params[i];
        if (p->slow) continue;
        ct_scope {
            ct_no_grad {
                p->slow = ct_clone(optim_part(p, p->x));
            }
            ct_keep(p->slow);
        }
        ok = p->slow != NULL;
    }
    return ok;
}

bool optim_lookahead_step(ct_optim *o) {
    ct_optim *base = o->inner;
    ct_capture_refuse("optim_step", "a step of lookahead", "every k-th one does something else");
    if (!begin(base) || !ct_optim_step(base)) return false;
    if (base->steps % o->k) return true;
    int n = 0;
    bool ok = true;
    ct_scope {
        ct_no_grad {
            for (int i = 0; i < base->count; i++) {
                base->items[n++] = base->params[i].slow;
                base->items[n++] = optim_part(&base->params[i], base->params[i].x);
            }
            ok = ct_ok() && optim_average(&o->rates, &o->sent_keep, 1 - o->alpha, base->items, n);
            for (int i = 0; ok && i < base->count; i++) {
                optim_param *p = &base->params[i];
                ok = ct_assign(optim_part(p, p->x), p->slow) && (!p->master || ct_assign(p->master, p->slow));
            }
            ok = ok && optim_gather(base, true);
        }
    }
    return ok;
}
