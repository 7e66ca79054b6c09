/* The norm of gradients, and gradients made smaller: over the parameters of a network or of an optimizer, in one pass. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

bool optim_apply(const char *name, ct_tensor *const *xs, int n, const char *attr, double value, double *result) {
    const ct_op *op = ct_op_find(name);
    if (!op) return ct_fail(CT_ERR_STATE, name, "the op is missing");
    _Alignas(double) unsigned char attrs[sizeof(double)] = {0}; /* these ops have one attribute, a number */
    const bool simple = op->attr_size == sizeof(double) && strcmp(op->attrs[0].name, attr) == 0;
    if (!simple) return ct_fail(CT_ERR_STATE, name, "the op has other attributes than %s", attr);
    memcpy(attrs, &value, sizeof value);
    bool ok = false;
    const bool before = ct_set_grad_enabled(false), wanted = result != NULL;
    ct_scope {
        ct_tensor *y = NULL;
        ok = ct_apply_with(op, xs, n, attrs, &y, 1, &wanted, NULL);
        if (ok && result) *result = ct_item(y);
    }
    ct_set_grad_enabled(before);
    return ok && ct_ok();
}

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
    for (int i = 0; ok && i < g->n; i++) {
        if (ct_is_contiguous(g->grad[i]) && !ct_requires_grad(g->grad[i])) continue;
        ct_scope {
            ct_tensor *copy = NULL;
            ct_no_grad {
                copy = ct_clone(g->grad[i]);
                if (copy && !ct_is_contiguous(copy)) copy = ct_contiguous(copy);
            }
            ok = copy && ct_set_grad(g->leaf[i], copy);
            if (ok) g->grad[i] = copy;
        }
    }
    return ok;
}

static double norm_of(const gradients *g, double kind) {
    double norm = 0;
    if (g->n && !optim_apply("optim_norm", g->grad, g->n, "kind", kind, &norm)) return (double)NAN;
    return norm;
}

static double clip_norm(gradients *g, const char *function, double max_norm, const ct_clip_options *options) {
    TAKE_OPTIONS(ct_clip_options, given, options);
    const double kind = given.norm_type != 0 ? given.norm_type : 2;
    if (!(max_norm >= 0))
        return ct_fail(CT_ERR_VALUE, function, "max_norm is %g; it has to be 0 or more", max_norm), (double)NAN;
    if (!(kind > 0)) return ct_fail(CT_ERR_VALUE, function, "norm_type is %g; it has to be above 0", kind), (double)NAN;
    const double norm = norm_of(g, kind);
    if (!ct_ok()) return (double)NAN;
    if (given.error_if_nonfinite && !isfinite(norm))
        return ct_fail(CT_ERR_VALUE, function, "the norm of the gradients is %g", norm), (double)NAN;
    const double factor = isinf(max_norm) ? 1 : max_norm / (norm + 1e-6); /* no limit: nothing is larger */
    if (!(factor >= 1) && g->n && !(own(g) && optim_apply("optim_scale", g->grad, g->n, "factor", factor, NULL)))
        return (double)NAN;
    return norm;
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

double ct_clip_grad_norm_p(ct_module *net, double max_norm, const ct_clip_options *options) {
    gradients g = {0};
    const double norm =
        of_module(&g, "clip_grad_norm", net) ? clip_norm(&g, "clip_grad_norm", max_norm, options) : (double)NAN;
    release(&g);
    return norm;
}

double ct_optim_clip_grad_norm_p(ct_optim *optim, double max_norm, const ct_clip_options *options) {
    gradients g = {0};
    const char *me = "optim_clip_grad_norm";
    const double norm = of_optim(&g, me, optim) ? clip_norm(&g, me, max_norm, options) : (double)NAN;
    release(&g);
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

double ct_grad_norm(ct_module *net) {
    gradients g = {0};
    const double norm = of_module(&g, "grad_norm", net) ? norm_of(&g, 2) : (double)NAN;
    release(&g);
    return norm;
}

double ct_optim_grad_norm(ct_optim *optim) {
    gradients g = {0};
    const double norm = of_optim(&g, "optim_grad_norm", optim) ? norm_of(&g, 2) : (double)NAN;
    release(&g);
    return norm;
}
