/* ct_check_grad: derivatives against central differences, along random directions so that one number tests all entries. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/sized.h"
#include "core/tensor.h"

typedef struct check {
    ct_function fn;
    void *context;
    int n, m;
    double step, tolerance;
    ct_rng *rng;
} check;

/* sum_i <a_i, b_i>, recorded. */
static ct_tensor *inner(ct_tensor *const *a, ct_tensor *const *b, int n) {
    ct_tensor *total = NULL;
    for (int i = 0; i < n; i++) {
        if (!ct_dtype_is_float(ct_dtype_of(a[i]))) continue;
        ct_tensor *part = ct_sum(ct_mul(a[i], b[i]));
        total = total ? ct_add(total, part) : part;
    }
    return total;
}

static bool directions(const check *c, ct_tensor *const *like, int n, ct_tensor **out) {
    for (int i = 0; i < n; i++) {
        out[i] = NULL;
        if (!ct_dtype_is_float(ct_dtype_of(like[i]))) continue;
        if (!(out[i] = ct_uniform(ct_shape(like[i]), -1, 1, .dtype = ct_dtype_of(like[i]), .rng = c->rng)))
            return false;
    }
    return true;
}

/* The scalar that is differentiated: <u, f(x)> (order 1), or <v, d<u, f>/dx> (order 2). in must be recorded leaves for order 2. */
static ct_tensor *objective(const check *c, int order, ct_tensor **in, ct_tensor *const *u, ct_tensor *const *v,
                            ct_tensor **scratch) {
    ct_tensor **out = scratch, **leaves = scratch + c->m, **grads = leaves + c->n;
    memset(out, 0, (size_t)c->m * sizeof *out);
    if (!c->fn(c->context, in, c->n, out, c->m)) {
        if (ct_ok()) ct_fail(CT_ERR_STATE, "check_grad", "the function failed without an error");
        return NULL;
    }
    for (int i = 0; i < c->m; i++)
        if (!out[i]) return ct__fail_null("check_grad", "out (a result of the function)"), NULL;
    ct_tensor *y = inner(out, u, c->m);
    if (!y) return ct_ok() ? (ct_fail(CT_ERR_GRAD, "check_grad", "the function has no floating result"), NULL) : NULL;
    if (order == 1) return y;
    int wanted = 0;
    ct_tensor **along = grads + c->n;
    for (int i = 0; i < c->n; i++) {
        if (!ct_requires_grad(in[i])) continue;
        leaves[wanted] = in[i];
        along[wanted++] = v[i];
    }
    if (!ct_grad(&y, 1, NULL, leaves, wanted, grads, CT_CREATE_GRAPH)) return NULL;
    return inner(grads, along, wanted);
}

/* Value at x + t * w for the floating inputs; leaves require grad. */
static ct_tensor *value_at(const check *c, int order, ct_tensor *const *x, ct_tensor *const *w, double t,
                           ct_tensor *const *u, ct_tensor *const *v, ct_tensor **in, ct_tensor **scratch) {
    for (int i = 0; i < c->n; i++) {
        in[i] = x[i];
        if (!x[i] || !ct_dtype_is_float(ct_dtype_of(x[i]))) continue;
        ct_tensor *moved = NULL;
        ct_no_grad {
            moved = t == 0 ? ct_clone(x[i]) : ct_add(x[i], ct_mul_s(w[i], t));
        }
        if (!(in[i] = ct_set_requires_grad(moved, true))) return NULL;
    }
    return objective(c, order, in, u, v, scratch);
}

static bool compare(const check *c, int order, ct_tensor *const *x, ct_tensor **room) {
    ct_tensor **u = room, **v = u + c->m, **w = v + c->n, **in = w + c->n, **grads = in + c->n, **leaves = grads + c->n,
              **scratch = leaves + c->n;
    bool ok = true;
    ct_scope {
        /* Results' shapes, for u, come from a first run. */
        for (int i = 0; i < c->n; i++) in[i] = x[i];
        memset(scratch, 0, (size_t)c->m * sizeof *scratch);
        ct_no_grad {
            ok = c->fn(c->context, in, c->n, scratch, c->m);
        }
        if (!ok && ct_ok()) ct_fail(CT_ERR_STATE, "check_grad", "the function failed without an error");
        for (int i = 0; ok && i < c->m; i++)
            if (!scratch[i]) ok = ct__fail_null("check_grad", "out (a result of the function)");
        ok = ok && directions(c, scratch, c->m, u) && directions(c, x, c->n, v) && directions(c, x, c->n, w);
        ct_tensor *y = ok ? value_at(c, order, x, w, 0, u, v, in, scratch) : NULL;
        int wanted = 0;
        for (int i = 0; y && i < c->n; i++)
            if (ct_requires_grad(in[i])) leaves[wanted++] = in[i];
        ok = y && ct_grad(&y, 1, NULL, leaves, wanted, grads, 0);
        double size = ok ? fabs(ct_item(y)) : 0;
        /* One input moves at a time, so that an error can name it. */
        for (int i = 0, k = 0; ok && i < c->n; i++) {
            if (!x[i] || !ct_dtype_is_float(ct_dtype_of(x[i]))) continue;
            ct_tensor *g = grads[k++];
            ct_scope {
                ct_tensor **only = scratch + 4 * (c->n + c->m);
                for (int j = 0; j < c->n; j++) only[j] = j == i || !w[j] ? w[j] : ct_zeros_like(w[j]);
                double expected = ct_item(ct_sum(ct_mul(g, w[i])));
                double high = ct_item(value_at(c, order, x, only, c->step, u, v, in, scratch));
                double low = ct_item(value_at(c, order, x, only, -c->step, u, v, in, scratch));
                double numeric = (high - low) / (2 * c->step);
                double scale = fmax(1, fmax(fmax(fabs(expected), fabs(numeric)), size));
                if (ct_ok() && !(fabs(expected - numeric) <= c->tolerance * scale))
                    ct_fail(CT_ERR_GRAD, "check_grad",
                            "the %s derivative along a random direction of input %d (%s) is %.10g, central differences "
                            "give %.10g",
                            order == 1 ? "first" : "second", i, ct_tensor_text(x[i]), expected, numeric);
                ok = ct_ok();
            }
        }
    }
    return ok;
}

bool ct_check_grad_p(ct_function fn, void *context, ct_tensor *const *x, int n, int m,
                     const ct_check_options *options) {
    ct_check_options o;
    if (ct__pending() || !ct__take_sized(&o, sizeof o, options, "check_grad")) return false;
    if (!fn || !x) return ct__fail_null("check_grad", fn ? "x" : "fn");
    if (n < 1 || m < 1)
        return ct_fail(CT_ERR_VALUE, "check_grad", "it takes at least one input and one result, not %d and %d", n, m);
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (!ct__valid(x[i], "check_grad", "x[i]")) return false;
        ct_dtype dtype = x[i]->view.dtype;
        if (ct_dtype_is_float(dtype) && dtype != CT_F64)
            return ct_fail(CT_ERR_DTYPE, "check_grad", "input %d is %s; differences need f64", i, ct_tensor_text(x[i]));
        any |= dtype == CT_F64;
    }
    if (!any) return ct_fail(CT_ERR_DTYPE, "check_grad", "no input is f64");
    check c = {.fn = fn,
               .context = context,
               .n = n,
               .m = m,
               .step = o.step > 0 ? o.step : 1e-5,
               .tolerance = o.tolerance > 0 ? o.tolerance : 1e-6};
    size_t bytes = (size_t)(20 * (n + m)) * sizeof(ct_tensor *);
    ct_tensor **room = ct__alloc(bytes);
    c.rng = ct_rng_new(o.seed + 0x9E37, 1);
    bool ok = room && c.rng, before = ct_set_grad_enabled(true);
    if (!ok && ct_ok()) ct__fail_memory("check_grad", bytes);
    for (int order = 1; ok && order <= (o.order ? o.order : 2); order++) {
        memset(room, 0, bytes);
        ok = compare(&c, order, x, room);
    }
    ct_set_grad_enabled(before);
    ct_rng_free(c.rng);
    if (room) ct__free(room, bytes);
    return ok;
}
