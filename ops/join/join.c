/* cat and stack; split and chunk, which are views. The gradient of cat is cut up again, that of split joined. */
#include <stdlib.h>

#include "core/tensor.h"
#include "ops/view/view.h"

#include "ops/op_impl.h"

/* ---- cat, stack ---- */

bool cat_infer(ct_infer *infer) {
    int axis;
    if (infer->n_in == 0) return ct_infer_fail(infer, CT_ERR_VALUE, "xs is empty; at least one tensor is needed");
    const ct_view *first = infer->in[0];
    if (first->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "xs[0] is %s; scalars have no axis to be joined along (ct_stack makes one)",
                             ct_view_text(first));
    if (!ct__infer_axis(infer, ((const cat_attrs *)infer->attrs)->axis, first->ndim, &axis)) return false;
    ct__infer_like(infer, 0, first, first->dtype);
    for (int k = 1; k < infer->n_in; k++) {
        const ct_view *x = infer->in[k];
        bool fits = x->ndim == first->ndim;
        for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || x->dims[i] == first->dims[i];
        if (!fits)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "xs[%d] is %s and xs[0] %s: they have to agree but for axis %d",
                                 k, ct_view_text(x), ct_view_text(first), axis);
        if (__builtin_add_overflow(infer->out[0].dims[axis], x->dims[axis], &infer->out[0].dims[axis]))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "axis %d of the result would be longer than can be counted",
                                 axis);
    }
    return true;
}

void cat_vjp(ct_vjp *v) {
    const int64_t axis = ct__axis(((const cat_attrs *)v->attrs)->axis, ct_ndim(v->cot[0]));
    int64_t start = 0;
    for (int k = 0; k < v->n_in; k++) {
        const int64_t length = ct_dim(v->in[k], (int)axis);
        if (v->need[k]) v->grad[k] = narrow(v->cot[0], axis, start, length);
        start += length;
    }
}

/* Stacking is joining along an axis of size 1; the tensors are passed on in place of each other. */
void stack_lower(ct_lower *l) {
    const int64_t axis = ((const stack_attrs *)l->attrs)->axis;
    if (l->n_in == 0) {
        ct_fail(CT_ERR_VALUE, "stack", "xs is empty; at least one tensor is needed");
        return;
    }
    const ct_dims shape = ct_shape(l->in[0]);
    for (int k = 1; k < l->n_in; k++) {
        const ct_dims other = ct_shape(l->in[k]);
        bool same = other.n == shape.n;
        for (int i = 0; same && i < shape.n; i++) same = other.d[i] == shape.d[i];
        if (!same) {
            ct_fail(CT_ERR_SHAPE, "stack", "xs[%d] is %s and xs[0] %s: they have to be of one shape", k,
                    ct_tensor_text(l->in[k]), ct_tensor_text(l->in[0]));
            return;
        }
    }
    if (axis < -shape.n - 1 || axis > shape.n || shape.n == CT_MAX_DIMS) {
        ct_fail(CT_ERR_SHAPE, "stack", "axis %lld: xs[0] is %s, so a new axis goes to %d to %d, and %d are the most",
                (long long)axis, ct_tensor_text(l->in[0]), -shape.n - 1, shape.n, CT_MAX_DIMS);
        return;
    }
    ct_tensor *near[16], **parts = l->n_in <= 16 ? near : malloc((size_t)l->n_in * sizeof *parts);
    if (!parts) {
        ct_fail(CT_ERR_MEMORY, "stack", "no memory for a list of %d tensors", l->n_in);
        return;
    }
    for (int k = 0; k < l->n_in; k++) parts[k] = unsqueeze(l->in[k], axis);
    const int64_t at = axis < 0 ? axis + shape.n + 1 : axis;
    if (ct_ok()) l->out[0] = cat(parts, l->n_in, at);
    if (parts != near) free(parts);
}

/* ---- split, chunk ---- */

static void piece(ct_infer *infer, int k, int axis, int64_t start, int64_t length) {
    const ct_view *x = infer->in[0];
    view_keep(&infer->out[k], x);
    infer->out[k].dims[axis] = length;
    infer->out[k].offset += start * x->strides[axis];
}

static bool split_axis(ct_infer *infer, int64_t wanted, int *axis) {
    const ct_view *x = infer->in[0];
    if (x->ndim == 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar cannot be split", ct_view_text(x));
    return ct__infer_axis(infer, wanted, x->ndim, axis);
}

bool split_infer(ct_infer *infer) {
    const split_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    const bool equal = at->sizes.n == 1;
    int64_t start = 0;
    int axis;
    if (!split_axis(infer, at->axis, &axis)) return false;
    for (int i = 0; i < at->sizes.n; i++)
        if (at->sizes.d[i] < 0 || (equal && at->sizes.d[i] == 0 && x->dims[axis]))
            return ct_infer_fail(infer, CT_ERR_SHAPE, "sizes is %s: not the sizes of pieces", ct_dims_text(at->sizes));
    if (!equal && at->sizes.n != infer->n_out)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "sizes is %s, but %d pieces are asked for", ct_dims_text(at->sizes),
                             infer->n_out);
    for (int k = 0; k < infer->n_out; k++) {
        const int64_t left = x->dims[axis] - start,
                      length = equal ? (at->sizes.d[0] < left ? at->sizes.d[0] : left) : at->sizes.d[k];
        if (length > left || (k && equal && left == 0)) {
            start = -1;
            break;
        }
        piece(infer, k, axis, start, length);
        start += length;
    }
    if (start == x->dims[axis]) return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE, "%d pieces of sizes %s do not make up axis %d of x, which is %s",
                         infer->n_out, ct_dims_text(at->sizes), axis, ct_view_text(x));
}

bool chunk_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    int axis;
    if (!split_axis(infer, ((const chunk_attrs *)infer->attrs)->axis, &axis)) return false;
    const int64_t size = x->dims[axis], length = (size + infer->n_out - 1) / infer->n_out;
    for (int k = 0; k < infer->n_out; k++) {
        const int64_t start = k * length < size ? k * length : size;
        piece(infer, k, axis, start, start + length < size ? length : size - start);
    }
    return true;
}

/* Tensors that lie in one storage as cat would lay them, as a view; NULL: they do not. Gradients of attention do, whose heads are cut from one
 * projection. A pass that is recorded needs a derivative, which this has not. */
static ct_tensor *side_by_side(ct_tensor *const *xs, int n, int64_t axis) {
    if (ct_grad_enabled() || n < 2 || !xs[0] || !xs[0]->storage) return NULL;
    ct_view whole = xs[0]->view;
    if (axis < 0) axis += whole.ndim;
    for (int k = 1; k < n; k++) {
        const ct_view *x = xs[k] ? &xs[k]->view : NULL;
        if (!x || xs[k]->storage != xs[0]->storage || x->dtype != whole.dtype || x->ndim != whole.ndim) return NULL;
        for (int i = 0; i < x->ndim; i++)
            if (x->strides[i] != whole.strides[i] || (i != axis && x->dims[i] != whole.dims[i])) return NULL;
        if (x->offset != whole.offset + whole.dims[axis] * whole.strides[axis]) return NULL;
        whole.dims[axis] += x->dims[axis];
    }
    ct_tensor *made = ct__tensor_view(&whole, xs[0]);
    return made ? ct__scope_adopt(made) : NULL;
}

static ct_tensor *joined(ct_tensor *const *xs, int n, int64_t axis) {
    ct_tensor *whole = side_by_side(xs, n, axis);
    return whole ? whole : cat(xs, n, axis);
}

void split_vjp(ct_vjp *v) { v->grad[0] = joined(v->cot, v->n_out, ((const split_attrs *)v->attrs)->axis); }
void chunk_vjp(ct_vjp *v) { v->grad[0] = joined(v->cot, v->n_out, ((const chunk_attrs *)v->attrs)->axis); }
