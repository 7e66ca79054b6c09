/* Extrema with places: shapes, and how a gradient finds the element that won. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

static const char *const no_greatest = "there is no greatest of nothing", *const no_least =
                                                                              "there is no least of nothing";

static bool infer_one_axis(ct_infer *infer, int64_t axis, bool keepdim, const char *needs) {
    const ct_view *x = infer->in[0];
    ct_dims axes = {.n = 1, .d = {axis}};
    if (!ct__infer_reduction(infer, &axes, keepdim, x->dtype, needs)) return false;
    if (infer->n_out > 1) ct__infer_like(infer, 1, &infer->out[0], CT_I64);
    return true;
}

static bool infer_arg(ct_infer *infer, ct_opt axis, bool keepdim, const char *needs) {
    bool whole = axis.value > -1e9 && axis.value < 1e9 && axis.value == (double)(int)axis.value;
    if (axis.set && !whole)
        return ct_infer_fail(infer, CT_ERR_VALUE, "axis is %.15g, expected the number of an axis", axis.value);
    ct_dims axes = {.n = axis.set, .d = {(int64_t)axis.value}};
    return ct__infer_reduction(infer, &axes, keepdim, CT_I64, needs);
}

bool max_infer(ct_infer *infer) {
    const max_attrs *attrs = infer->attrs;
    return infer_one_axis(infer, attrs->axis, attrs->keepdim, no_greatest);
}

bool min_infer(ct_infer *infer) {
    const min_attrs *attrs = infer->attrs;
    return infer_one_axis(infer, attrs->axis, attrs->keepdim, no_least);
}

bool argmax_infer(ct_infer *infer) {
    const argmax_attrs *attrs = infer->attrs;
    return infer_arg(infer, attrs->axis, attrs->keepdim, no_greatest);
}

bool argmin_infer(ct_infer *infer) {
    const argmin_attrs *attrs = infer->attrs;
    return infer_arg(infer, attrs->axis, attrs->keepdim, no_least);
}

bool amax_place_infer(ct_infer *infer) {
    const amax_place_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, true, CT_I64, no_greatest);
}

bool amin_place_infer(ct_infer *infer) {
    const amin_place_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, true, CT_I64, no_least);
}

/* A scalar has one axis of one element. */
static ct_dims axes_of(const ct_tensor *x, int64_t axis) { return ct_ndim(x) ? CT_DIMS(axis) : CT_DIMS0; }

void max_lower(ct_lower *lower) {
    const max_attrs *attrs = lower->attrs;
    ct_tensor *x = lower->in[0];
    lower->out[0] = amax(x, .axes = axes_of(x, attrs->axis), .keepdim = attrs->keepdim);
    if (lower->n_out > 1 && lower->want[1])
        lower->out[1] = argmax(x, .axis = CT_SET(attrs->axis), .keepdim = attrs->keepdim);
}

void min_lower(ct_lower *lower) {
    const min_attrs *attrs = lower->attrs;
    ct_tensor *x = lower->in[0];
    lower->out[0] = amin(x, .axes = axes_of(x, attrs->axis), .keepdim = attrs->keepdim);
    if (lower->n_out > 1 && lower->want[1])
        lower->out[1] = argmin(x, .axis = CT_SET(attrs->axis), .keepdim = attrs->keepdim);
}

/* Places with the reduced axes kept, without them. */
static ct_tensor *without_axes(ct_tensor *places, ct_opt axis) {
    ct_dims kept = ct_shape(places), shape = {0};
    for (int i = 0; axis.set && i < kept.n; i++)
        if (i != ct__axis((int64_t)axis.value, kept.n)) shape.d[shape.n++] = kept.d[i];
    return reshape(places, shape);
}

void argmax_lower(ct_lower *l) {
    const argmax_attrs *attrs = l->attrs;
    ct_dims axes = attrs->axis.set ? axes_of(l->in[0], (int64_t)attrs->axis.value) : CT_DIMS0;
    ct_tensor *places = amax_place(l->in[0], .axes = axes);
    l->out[0] = attrs->keepdim ? places : without_axes(places, attrs->axis);
}

void argmin_lower(ct_lower *l) {
    const argmin_attrs *attrs = l->attrs;
    ct_dims axes = attrs->axis.set ? axes_of(l->in[0], (int64_t)attrs->axis.value) : CT_DIMS0;
    ct_tensor *places = amin_place(l->in[0], .axes = axes);
    l->out[0] = attrs->keepdim ? places : without_axes(places, attrs->axis);
}

/* ---- Gradients ---- */

void amax_vjp(ct_vjp *v) {
    const amax_attrs *attrs = v->attrs;
    v->grad[0] = ct__put_reduced(v->cot[0], amax_place(v->in[0], .axes = attrs->axes), v->in[0], &attrs->axes);
}

void amin_vjp(ct_vjp *v) {
    const amin_attrs *attrs = v->attrs;
    v->grad[0] = ct__put_reduced(v->cot[0], amin_place(v->in[0], .axes = attrs->axes), v->in[0], &attrs->axes);
}

/* The indices, if they were asked for; else they are found now. */
void max_vjp(ct_vjp *v) {
    const max_attrs *attrs = v->attrs;
    ct_dims axes = axes_of(v->in[0], attrs->axis);
    ct_tensor *places = v->n_out > 1 && v->out[1] ? v->out[1] : amax_place(v->in[0], .axes = axes);
    v->grad[0] = ct__put_reduced(v->cot[0], places, v->in[0], &axes);
}

void min_vjp(ct_vjp *v) {
    const min_attrs *attrs = v->attrs;
    ct_dims axes = axes_of(v->in[0], attrs->axis);
    ct_tensor *places = v->n_out > 1 && v->out[1] ? v->out[1] : amin_place(v->in[0], .axes = axes);
    v->grad[0] = ct__put_reduced(v->cot[0], places, v->in[0], &axes);
}
