/* Jacobian-vector products, Hessians and the like: all from ct_grad, and so themselves differentiable. */
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"

/* Places in the graph of their own for the arguments, so that derivatives are taken here and not at what made them.
 * With CT_CREATE_GRAPH they stay connected to it. */
static ct_tensor *fresh(ct_tensor *x, bool connected) {
    if (connected && ct_requires_grad(x)) return ct_mul_s(x, 1.0);
    return ct_set_requires_grad(ct_detach(x), true);
}

static bool run(const char *me, ct_function fn, void *context, ct_tensor **in, int n, ct_tensor **out, int m) {
    for (int i = 0; i < m; i++) out[i] = NULL;
    if (!fn(context, in, n, out, m))
        return ct_ok() ? ct_fail(CT_ERR_STATE, me, "the function failed without an error") : false;
    for (int i = 0; i < m; i++)
        if (!out[i]) return ct__fail_null(me, "out (a result of the function)");
    return ct_ok();
}

/* Four lists of up to n tensors on the heap. */
typedef struct lists {
    ct_tensor **block;
    size_t bytes;
} lists;

static ct_tensor **lists_open(lists *l, const char *me, int n) {
    l->bytes = (size_t)n * sizeof(ct_tensor *);
    l->block = ct__alloc(l->bytes);
    if (!l->block) {
        ct__fail_memory(me, l->bytes);
        return NULL;
    }
    memset(l->block, 0, l->bytes);
    return l->block;
}

/* J v: the vjp u -> J^T u is linear in u, and its own vjp with cotangent v is J v. */
bool ct_jvp(ct_function fn, void *context, ct_tensor *const *x, ct_tensor *const *v, int n, ct_tensor **out, int m,
            unsigned flags) {
    if (ct__pending()) return false;
    if (!fn || !x || !v || !out || n < 1 || m < 1)
        return ct__fail_null("jvp", !fn ? "fn" : !x ? "x" : !v ? "v" : "out");
    for (int i = 0; i < n; i++)
        if (!ct__valid(x[i], "jvp", "x[i]") || !ct__valid(v[i], "jvp", "v[i]")) return false;
    bool connected = flags & CT_CREATE_GRAPH, ok = true, before = ct_set_grad_enabled(true);
    lists l;
    ct_tensor **in = lists_open(&l, "jvp", 2 * n + 2 * m), **back = in + n, **ys = in + 2 * n, **us = ys + m;
    ok = in != NULL;
    ct_scope_mark mark = ct_scope_begin();
    for (int i = 0; ok && i < n; i++) ok = (in[i] = fresh(x[i], connected)) != NULL;
    ok = ok && run("jvp", fn, context, in, n, ys, m);
    for (int i = 0; ok && i < m; i++) ok = (us[i] = ct_set_requires_grad(ct_zeros_like(ys[i]), true)) != NULL;
    ok = ok && ct_grad(ys, m, us, in, n, back, CT_CREATE_GRAPH);
    ok = ok && ct_grad(back, n, v, us, m, out, connected ? CT_CREATE_GRAPH : 0);
    for (int i = 0; ok && i < m; i++) ct_pass(out[i]);
    ct_scope_end(mark);
    ct_set_grad_enabled(before);
    if (l.block) ct__free(l.block, l.bytes);
    return ok;
}

/* H v = d <grad f, v> / dx. */
bool ct_hvp(ct_function fn, void *context, ct_tensor *const *x, ct_tensor *const *v, int n, ct_tensor **out,
            unsigned flags) {
    if (ct__pending()) return false;
    if (!fn || !x || !v || !out || n < 1) return ct__fail_null("hvp", !fn ? "fn" : !x ? "x" : !v ? "v" : "out");
    for (int i = 0; i < n; i++)
        if (!ct__valid(x[i], "hvp", "x[i]") || !ct__valid(v[i], "hvp", "v[i]")) return false;
    bool connected = flags & CT_CREATE_GRAPH, before = ct_set_grad_enabled(true);
    lists l;
    ct_tensor **in = lists_open(&l, "hvp", 2 * n), **first = in + n, *y;
    bool ok = in != NULL;
    ct_scope_mark mark = ct_scope_begin();
    for (int i = 0; ok && i < n; i++) ok = (in[i] = fresh(x[i], connected)) != NULL;
    ok = ok && run("hvp", fn, context, in, n, &y, 1) && ct_grad(&y, 1, NULL, in, n, first, CT_CREATE_GRAPH);
    ok = ok && ct_grad(first, n, v, in, n, out, connected ? CT_CREATE_GRAPH : 0);
    for (int i = 0; ok && i < n; i++) ct_pass(out[i]);
    ct_scope_end(mark);
    ct_set_grad_enabled(before);
    if (l.block) ct__free(l.block, l.bytes);
    return ok;
}

/* The rows d y_i / d x, stacked: shape [y..., x...]. */
static ct_tensor *rows_of(const char *me, ct_tensor *y, ct_tensor *x, bool connected) {
    int64_t count = ct_numel(y);
    ct_dims shape = ct_shape(y), tail = ct_shape(x);
    if (shape.n + tail.n > CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, me, "the result of %s by %s would have more than %d dimensions", ct_tensor_text(y),
                ct_tensor_text(x), CT_MAX_DIMS);
        return NULL;
    }
    for (int i = 0; i < tail.n; i++) shape.d[shape.n++] = tail.d[i];
    if (count == 0) return ct_zeros(shape, .dtype = ct_dtype_of(x), .device = ct_device_of(x));
    lists l;
    ct_tensor **rows = lists_open(&l, me, (int)count), *result = NULL;
    bool ok = rows != NULL;
    for (int64_t i = 0; ok && i < count; i++) {
        ct_scope {
            ct_tensor *unit = ct_zeros(CT_DIMS(count), .dtype = ct_dtype_of(y), .device = ct_device_of(y));
            ok = unit && ct_fill(ct_narrow(unit, 0, i, 1), 1) && (unit = ct_reshape(unit, ct_shape(y))) &&
                 ct_grad(&y, 1, &unit, &x, 1, &rows[i], CT_RETAIN_GRAPH | (connected ? CT_CREATE_GRAPH : 0)) &&
                 ct_pass(rows[i]);
        }
    }
    if (ok) result = ct_reshape(ct_stack(rows, (int)count, 0), shape);
    if (l.block) ct__free(l.block, l.bytes);
    return result;
}

static ct_tensor *jacobian(const char *me, ct_function fn, void *context, ct_tensor *x, unsigned flags, bool second) {
    if (ct__pending() || !ct__valid(x, me, "x")) return NULL;
    if (!fn) {
        ct__fail_null(me, "fn");
        return NULL;
    }
    ct_tensor *result = NULL, *in, *y, *first;
    bool connected = flags & CT_CREATE_GRAPH, before = ct_set_grad_enabled(true);
    ct_scope {
        if ((in = fresh(x, connected)) && run(me, fn, context, &in, 1, &y, 1)) {
            if (!second) result = rows_of(me, y, in, connected);
            else if (ct_grad(&y, 1, NULL, &in, 1, &first, CT_CREATE_GRAPH)) result = rows_of(me, first, in, connected);
        }
        if (result) ct_pass(result);
    }
    ct_set_grad_enabled(before);
    return result;
}

ct_tensor *ct_jacobian(ct_function fn, void *context, ct_tensor *x, unsigned flags) {
    return jacobian("jacobian", fn, context, x, flags, false);
}
ct_tensor *ct_hessian(ct_function fn, void *context, ct_tensor *x, unsigned flags) {
    return jacobian("hessian", fn, context, x, flags, true);
}
