/* Views of a range or an element of one axis: narrow, select, slice. Their gradient puts the cotangent back into
 * zeros. */
#include "ops/view/view.h"

#include "ops/op_impl.h"

/* ---- narrow ---- */

bool narrow_infer(ct_infer *infer) {
    const narrow_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    int axis;
    if (x->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar has no axis to narrow", ct_view_text(x));
    if (!ct__infer_axis(infer, at->axis, x->ndim, &axis)) return false;
    const int64_t size = x->dims[axis], start = at->start < 0 ? at->start + size : at->start;
    if (start < 0 || at->length < 0 || at->length > size || start > size - at->length)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "start %lld and length %lld leave axis %d of x, which is %s",
                             (long long)at->start, (long long)at->length, axis, ct_view_text(x));
    view_keep(&infer->out[0], x);
    infer->out[0].dims[axis] = at->length;
    infer->out[0].offset += start * x->strides[axis];
    return true;
}

/* Zeros before and after g along one axis of a tensor of the given shape. */
static ct_tensor *framed(ct_tensor *g, ct_dims shape, int axis, int64_t start, int64_t length) {
    ct_dims pads = {.n = 2 * shape.n};
    pads.d[2 * axis] = start;
    pads.d[2 * axis + 1] = shape.d[axis] - start - length;
    return pad_constant(g, pads, 0);
}

void narrow_vjp(ct_vjp *v) {
    const narrow_attrs *at = v->attrs;
    const ct_dims shape = ct_shape(v->in[0]);
    const int axis = ct__axis(at->axis, shape.n);
    v->grad[0] = framed(v->cot[0], shape, axis, at->start < 0 ? at->start + shape.d[axis] : at->start, at->length);
}

/* ---- select ---- */

bool select_infer(ct_infer *infer) {
    const select_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    ct_view *out = &infer->out[0];
    int axis;
    if (x->ndim == 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar has no axis to select from", ct_view_text(x));
    if (!ct__infer_axis(infer, at->axis, x->ndim, &axis)) return false;
    const int64_t size = x->dims[axis], index = at->index < 0 ? at->index + size : at->index;
    if (index < 0 || index >= size)
        return ct_infer_fail(infer, CT_ERR_INDEX, "index %lld is out of range for axis %d of x, which is %s",
                             (long long)at->index, axis, ct_view_text(x));
    view_keep(out, x);
    out->offset += index * x->strides[axis];
    out->ndim--;
    for (int i = axis; i < out->ndim; i++) {
        out->dims[i] = x->dims[i + 1];
        out->strides[i] = x->strides[i + 1];
    }
    return true;
}

void select_vjp(ct_vjp *v) {
    const select_attrs *at = v->attrs;
    const ct_dims shape = ct_shape(v->in[0]);
    const int axis = ct__axis(at->axis, shape.n);
    v->grad[0] =
        framed(unsqueeze(v->cot[0], axis), shape, axis, at->index < 0 ? at->index + shape.d[axis] : at->index, 1);
}

/* ---- slice ---- */

bool slice_view_infer(ct_infer *infer) {
    const slice_view_attrs *at = infer->attrs;
    const ct_view *x = infer->in[0];
    int axis;
    if (x->ndim == 0) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; a scalar has no slices", ct_view_text(x));
    if (!ct__infer_axis(infer, at->axis, x->ndim, &axis)) return false;
    const int64_t size = x->dims[axis];
    if (at->length < 0 || at->step < 1 || at->step > (size > 1 ? size : 1) || at->start < 0 || at->start > size ||
        (at->length && ct__add(at->start, ct__mul(at->length - 1, at->step)) >= size))
        return ct_infer_fail(infer, CT_ERR_SHAPE,
                             "start %lld, length %lld and step %lld leave axis %d of x, which is %s",
                             (long long)at->start, (long long)at->length, (long long)at->step, axis, ct_view_text(x));
    view_keep(&infer->out[0], x);
    infer->out[0].dims[axis] = at->length;
    infer->out[0].strides[axis] = at->step * x->strides[axis];
    infer->out[0].offset += at->start * x->strides[axis];
    return true;
}

void slice_view_vjp(ct_vjp *v) {
    const slice_view_attrs *at = v->attrs;
    const ct_dims shape = ct_shape(v->in[0]);
    const int axis = ct__axis(at->axis, shape.n);
    ct_dims strides = dense_strides(shape);
    const int64_t offset = at->start * strides.d[axis];
    if (at->step == 1) {
        v->grad[0] = framed(v->cot[0], shape, axis, at->start, at->length);
        return;
    }
    strides.d[axis] *= at->step;
    v->grad[0] = strided_grad(v->cot[0], shape, strides, offset);
}

/* Python's rule: from `first` on, `length` elements, |step| apart, in ascending order; backwards when step is
 * negative. */
bool ct__slice_range(const char *op, const ct_tensor *x, int64_t axis, int64_t start, ct_opt end, int64_t step,
                     ct_range *range) {
    const int ndim = ct_ndim(x);
    if (axis < -ndim || axis >= ndim)
        return ct_fail(CT_ERR_SHAPE, op, "axis %lld is out of range for %s, which has %d dimension%s", (long long)axis,
                       ct_tensor_text(x), ndim, ndim == 1 ? "" : "s");
    const int64_t size = ct_dim(x, (int)axis);
    if (step == 0) return ct_fail(CT_ERR_VALUE, op, "step is 0; it is how far to go, forwards or backwards");
    if (step == INT64_MIN) return ct_fail(CT_ERR_VALUE, op, "step %lld is too far", (long long)step);
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1; /* where places outside are moved to */
    int64_t stop = step > 0 ? high : low;
    if (end.set)
        stop = end.value >= (double)size ? size : end.value <= -(double)size - 1 ? -size - 1 : (int64_t)end.value;
    if (start < 0) start += size;
    if (end.set && stop < 0) stop += size;
    start = start < low ? low : start > high ? high : start;
    stop = stop < low ? low : stop > high ? high : stop;
    const int64_t distance = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
    range->axis = ct__axis(axis, ndim);
    range->length = distance > 0 ? (distance - 1) / stride + 1 : 0;
    range->step = range->length > 1 ? stride : 1; /* a single element is no distance from the next */
    range->backwards = step < 0;
    range->first = range->length == 0 ? 0 : step > 0 ? start : start - (range->length - 1) * stride;
    return true;
}

void slice_lower(ct_lower *l) {
    const slice_attrs *at = l->attrs;
    ct_range r;
    if (!ct__slice_range("slice", l->in[0], at->axis, at->start, at->stop, at->step, &r)) return;
    ct_tensor *part = slice_view(l->in[0], r.axis, r.first, r.length, r.step);
    l->out[0] = r.backwards ? flip(part, CT_DIMS(r.axis)) : part;
}
