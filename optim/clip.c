/* The norm of gradients, and gradients made smaller: over the parameters of a network or of an optimizer, in one pass. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

#include "gen/ops_decl.h"

/* The gradients of some parameters, and whose they are. */
typedef struct gradients {
    ct_tensor **leaf, **grad;
    int n;
} gradients;

static bool room(gradients *g, const char *function, int count) {
    g->leaf = ct_malloc(((size_t)count + 1) * sizeof *g->leaf);
    g->grad = ct_malloc(((size_t)count + 1) * sizeof *g->grad);
    g->n = 0;
    return (g->leaf && g->grad) || ct_fail(CT_ERR_MEMORY, function, "out of memory");
}

static void add(gradients *g, ct_tensor *leaf) {
    ct_tensor *grad = ct_grad_of(leaf);
    if (!grad) return;
    g->leaf[g->n] = leaf;
    g->grad[g->n++] = grad;
}

static void release(gradients *g) {
    ct_free(g->leaf);
    ct_free(g->grad);
}

static bool of_module(gradients *g, const char *function, ct_module *net) {
    if (!optim_given(net, function, "net")) return false;
    ct_parameters *list = ct_module_parameters(net);
    const bool ok = list && room(g, function, ct_parameters_count(list));
    for (int i = 0; ok && i < ct_parameters_count(list); i++)
        if (!ct_parameters_at(list, i)->buffer) add(g, ct_parameter_tensor(ct_parameters_at(list, i)));
    ct_parameters_free(list);
    return ok;
}

static bool of_optim(gradients *g, const char *function, const ct_optim *optim) {
    if (!optim_given(optim, function, "optim")) return false;
    const ct_optim *o = optim_base(optim);
    if (!room(g, function, o->count)) return false;
    for (int i = 0; i < o->count; i++) add(g, o->params[i].x);
    return true;
}

/* Gradients that lie in memory of others, or are part of a graph, are replaced by copies before they are changed. */
static bool own(gradients *g) {
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) ok = (g->grad[i] = optim_own_grad(g->leaf[i], g->grad[i])) != NULL;
    return ok;
}

/* The norm where the gradients are; without any, where new tensors are. */
static ct_tensor *norm_of(const gradients *g, double kind) {
    ct_tensor *norm = NULL;
    ct_no_grad {
        norm = g->n ? ct__optim_norm(g->grad, g->n, kind) : optim_numbers(CT_DIMS0, 0, ct_get_device());
    }
    return norm;
}

/* The norm before it. number: NULL, or where the norm goes as a number, which is waited for; then nothing is done to gradients that
 * are small enough. */
static ct_tensor *clip_norm(gradients *g, const char *function, double max_norm, const ct_clip_options *options,
                            double *number) {
    TAKE_OPTIONS(ct_clip_options, given, options);
    const double kind = given.norm_type != 0 ? given.norm_type : 2;
    if (!(max_norm >= 0)) {
        ct_fail(CT_ERR_VALUE, function, "max_norm is %g; it has to be 0 or more", max_norm);
        return NULL;
    }
    if (!(kind > 0)) {
        ct_fail(CT_ERR_VALUE, function, "norm_type is %g; it has to be above 0", kind);
        return NULL;
    }
    ct_tensor *norm = norm_of(g, kind);
    const bool known = norm && (number || given.error_if_nonfinite);
    const double value = known ? ct_item(norm) : (double)NAN;
    if (known && given.error_if_nonfinite && !isfinite(value)) {
        ct_fail(CT_ERR_VALUE, function, "the norm of the gradients is %g", value);
        return NULL;
    }
    const bool small = g->n == 0 || isinf(max_norm) || max_norm / (value + 1e-6) >= 1;
    bool ok = norm && ct_ok() && (small || own(g));
    if (ok && !small)
        ct_no_grad
            ok = ct__optim_clip(norm, g->grad, g->n, max_norm);
    if (ok && number) *number = value;
    return ok ? norm : NULL;
}

static bool clip_value(gradients *g, const char *function, double limit) {
    if (!(limit >= 0)) return ct_fail(CT_ERR_VALUE, function, "limit is %g; it has to be 0 or more", limit);
    bool ok = own(g);
    for (int i = 0; ok && i < g->n; i++) {
        ct_scope {
            ct_no_grad {
                ct_into(g->grad[i]);
                ok = ct_clamp(g->grad[i], .min = CT_SET(-limit), .max = CT_SET(limit)) != NULL;
            }
        }
    }
    return ok;
}

/* ---- The interface: as a tensor, which waits for nothing, and as a number ---- */

static ct_tensor *clip_module(ct_module *net, double max_norm, const ct_clip_options *options, double *number) {
    gradients g = {0};
    const char *me = "clip_grad_norm";
    ct_tensor *norm = of_module(&g, me, net) ? clip_norm(&g, me, max_norm, options, number) : NULL;
    release(&g);
    return norm;
}

static ct_tensor *clip_optim(ct_optim *optim, double max_norm, const ct_clip_options *options, double *number) {
    gradients g = {0};
    const char *me = "optim_clip_grad_norm";
    ct_tensor *norm = of_optim(&g, me, optim) ? clip_norm(&g, me, max_norm, options, number) : NULL;
    release(&g);
    return norm;
}

ct_tensor *ct_clip_grad_norm_tensor_p(ct_module *net, double max_norm, const ct_clip_options *options) {
    return clip_module(net, max_norm, options, NULL);
}

ct_tensor *ct_optim_clip_grad_norm_tensor_p(ct_optim *optim, double max_norm, const ct_clip_options *options) {
    return clip_optim(optim, max_norm, options, NULL);
}

double ct_clip_grad_norm_p(ct_module *net, double max_norm, const ct_clip_options *options) {
    double norm = (double)NAN;
    ct_scope {
        clip_module(net, max_norm, options, &norm);
    }
    return norm;
}

double ct_optim_clip_grad_norm_p(ct_optim *optim, double max_norm, const ct_clip_options *options) {
    double norm = (double)NAN;
    ct_scope {
        clip_optim(optim, max_norm, options, &norm);
    }
    return norm;
}

bool ct_clip_grad_value(ct_module *net, double limit) {
    gradients g = {0};
    const bool ok = of_module(&g, "clip_grad_value", net) && clip_value(&g, "clip_grad_value", limit);
    release(&g);
    return ok;
}

bool ct_optim_clip_grad_value(ct_optim *optim, double limit) {
    gradients g = {0};
    const char *me = "optim_clip_grad_value";
    const bool ok = of_optim(&g, me, optim) && clip_value(&g, me, limit);
    release(&g);
    return ok;
}

ct_tensor *ct_grad_norm_tensor(ct_module *net) {
    gradients g = {0};
    ct_tensor *norm = of_module(&g, "grad_norm", net) ? norm_of(&g, 2) : NULL;
    release(&g);
    return norm;
}

ct_tensor *ct_optim_grad_norm_tensor(ct_optim *optim) {
    gradients g = {0};
    ct_tensor *norm = of_optim(&g, "optim_grad_norm", optim) ? norm_of(&g, 2) : NULL;
    release(&g);
    return norm;
}

double ct_grad_norm(ct_module *net) {
    double norm = (double)NAN;
    ct_scope {
        ct_tensor *x = ct_grad_norm_tensor(net);
        if (x) norm = ct_item(x);
    }
    return norm;
}

double ct_optim_grad_norm(ct_optim *optim) {
    double norm = (double)NAN;
    ct_scope {
        ct_tensor *x = ct_optim_grad_norm_tensor(optim);
        if (x) norm = ct_item(x);
    }
    return norm;
}
