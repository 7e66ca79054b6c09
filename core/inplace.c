/* Changes in place: each is an ordinary op whose result is given the argument's own storage as its destination. A view and its base
 * share that storage, so a recorded change of one is written into the graph of the other: base' = base with the view's part
 * replaced, view' = that part of base'. Other views notice at their next use, by counting the base's changes. */
#include "core/inplace.h"

#include <string.h>

#include "core/call.h"
#include "core/error.h"
#include "core/node.h"
#include "core/number.h"
#include "gen/ops_decl.h"

/* The place of x in its base, as as_strided_view and strided_scatter have it. */
static ct_dims dims_of(int n, const int64_t *values) {
    ct_dims dims = {.n = n};
    memcpy(dims.d, values, (size_t)n * sizeof *values);
    return dims;
}

bool ct__view_refresh(ct_tensor *x) {
    ct_tensor *base = x->base;
    x->changes = base->changes;
    ct_node *before = x->node;
    x->node = NULL;
    if (before) ct__node_release(before);
    if (!base->node) return true;
    as_strided_view_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = dims_of(x->view.ndim, x->view.dims);
    attrs.strides = dims_of(x->view.ndim, x->view.strides);
    attrs.offset = x->view.offset - base->view.offset;
    uint32_t version = 0;
    return ct__record(&ct__op_as_strided_view, &base, 1, &attrs, &x, 1, &version);
}

bool ct__view_changed(ct_tensor *x) {
    ct_tensor *base = x->base;
    if (!base) { /* its views are stale now */
        x->changes++;
        return true;
    }
    strided_scatter_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = dims_of(x->view.ndim, x->view.dims);
    attrs.strides = dims_of(x->view.ndim, x->view.strides);
    attrs.offset = x->view.offset - base->view.offset;
    uint32_t versions[2] = {0};
    if (!ct__record(&ct__op_strided_scatter, (ct_tensor *[]){base, x}, 2, &attrs, &base, 1, versions)) return false;
    base->changes++;
    return ct__view_refresh(x);
}

bool ct__overwritten(ct_tensor *x) {
    bool recorded = x->node != NULL;
    if (recorded) ct__node_release(x->node);
    x->node = NULL;
    if (x->base && x->base->node) return ct__view_changed(x); /* a part of something recorded became constant */
    if (recorded) x->changes++;
    return true;
}

bool ct__writable(const ct_tensor *x, const char *op, const char *argument) {
    if (!ct__valid(x, op, argument)) return false;
    if (x->storage && x->storage->read_only)
        return ct_fail(CT_ERR_STATE, op,
                       "%s, %s, lies in memory that was wrapped as read-only, so it cannot be written; take a ct_clone "
                       "of it",
                       argument, ct_view_text(&x->view));
    if (!ct__view_overlaps(&x->view)) return true;
    return ct_fail(CT_ERR_SHAPE, op,
                   "%s is %s with strides %s: some of its elements share memory, so it cannot be written; take a "
                   "ct_clone of it",
                   argument, ct_view_text(&x->view), ct_dims_text(dims_of(x->view.ndim, x->view.strides)));
}

static bool broadcasts_to(const ct_view *from, const ct_view *to) {
    if (from->ndim > to->ndim) return false;
    for (int i = 1; i <= from->ndim; i++) {
        const int64_t size = from->dims[from->ndim - i];
        if (size != 1 && size != to->dims[to->ndim - i]) return false;
    }
    return true;
}

/* x becomes op(x, y), of which y alone is the argument where only y is read; y broadcasts to x and gets its dtype. */
static ct_tensor *change(const char *me, const ct_op *op, ct_tensor *x, ct_tensor *y) {
    if (ct__pending() || !ct__writable(x, me, "x") || !ct__valid(y, me, "y")) return NULL;
    if (!broadcasts_to(&y->view, &x->view)) {
        ct_fail(CT_ERR_SHAPE, me, "y is %s and does not broadcast to x, %s", ct_view_text(&y->view),
                ct_view_text(&x->view));
        return NULL;
    }
    const bool replaced = op == &ct__op_clone;
    bool ok = true;
    ct_scope {
        if (y->view.dtype != x->view.dtype) ok = (y = ct_cast(y, x->view.dtype)) != NULL;
        if (ok && replaced && !ct__view_same_shape(&y->view, &x->view)) ok = (y = ct_expand(y, ct_shape(x))) != NULL;
        ct_tensor *in[] = {replaced ? y : x, y};
        ok = ok && ct__apply_into(x, me, op, in, replaced ? 1 : 2, NULL);
    }
    return ok ? x : NULL;
}

ct_tensor *ct_assign(ct_tensor *x, ct_tensor *value) { return change("assign", &ct__op_clone, x, value); }
ct_tensor *ct_add_(ct_tensor *x, ct_tensor *y) { return change("add_", &ct__op_add, x, y); }
ct_tensor *ct_sub_(ct_tensor *x, ct_tensor *y) { return change("sub_", &ct__op_sub, x, y); }
ct_tensor *ct_mul_(ct_tensor *x, ct_tensor *y) { return change("mul_", &ct__op_mul, x, y); }

/* On integers ct_div gives f32, which would not fit: there a change in place divides and rounds down. */
ct_tensor *ct_div_(ct_tensor *x, ct_tensor *y) {
    const bool whole = x && !ct_dtype_is_float(x->view.dtype);
    return change("div_", whole ? &ct__op_floor_div : &ct__op_div, x, y);
}

ct_tensor *ct_fill(ct_tensor *x, double value) {
    ct_tensor number;
    if (ct__pending() || !ct__writable(x, "fill", "x") || !ct__number(&number, x, value, "fill")) return NULL;
    if (!x->storage) return ct_fail(CT_ERR_STATE, "fill", "x has a shape but no data"), NULL;
    full_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = dims_of(x->view.ndim, x->view.dims);
    attrs.value = value;
    attrs.dtype = x->view.dtype;
    attrs.device = x->storage->device;
    return ct__apply_into(x, "fill", &ct__op_full, NULL, 0, &attrs) ? x : NULL;
}

ct_tensor *ct_fill_i64(ct_tensor *x, int64_t value) {
    if (ct__pending() || !ct__valid(x, "fill_i64", "x")) return NULL;
    ct_tensor *result = NULL;
    ct_scope {
        ct_tensor *scalar = ct__scalar_exact(value, x->view.dtype, ct_device_of(x), "fill_i64");
        if (scalar) result = change("fill_i64", &ct__op_clone, x, scalar);
    }
    return result;
}

ct_tensor *ct_zero(ct_tensor *x) { return ct_fill(x, 0); }
