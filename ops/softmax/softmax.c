/* softmax, log_softmax, logsumexp: shapes, lowerings, derivatives. */
#include "core/dtype.h"
#include "ops/reduce/reduce.h"
#include "ops/wide_vjp.h"

#include "ops/op_impl.h"

static bool infer_along(ct_infer *infer, int64_t axis) {
    const ct_view *x = infer->in[0];
    int resolved;
    if (!ct__infer_axis(infer, axis, x->ndim, &resolved)) return false;
    for (int k = 1; k < infer->n_in; k++) {
        bool same = infer->in[k]->ndim == x->ndim;
        for (int i = 0; i < x->ndim && same; i++) same = infer->in[k]->dims[i] == x->dims[i];
        if (!same)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "the shapes differ: %s and %s", ct_view_text(x),
                                 ct_view_text(infer->in[k]));
    }
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

bool softmax_infer(ct_infer *infer) { return infer_along(infer, ((const softmax_attrs *)infer->attrs)->axis); }
bool softmax_grad_infer(ct_infer *infer) {
    return infer_along(infer, ((const softmax_grad_attrs *)infer->attrs)->axis);
}
bool log_softmax_infer(ct_infer *infer) { return infer_along(infer, ((const log_softmax_attrs *)infer->attrs)->axis); }
bool log_softmax_grad_infer(ct_infer *infer) {
    return infer_along(infer, ((const log_softmax_grad_attrs *)infer->attrs)->axis);
}
bool log_softmax_half_grad_infer(ct_infer *infer) {
    return infer_along(infer, ((const log_softmax_half_grad_attrs *)infer->attrs)->axis);
}

/* A scalar has one axis of one element. */
static ct_dims axes_of(const ct_tensor *x, int64_t axis) { return ct_ndim(x) ? CT_DIMS(axis) : CT_DIMS0; }

static ct_tensor *sum_along(ct_tensor *x, int64_t axis) { return sum(x, .axes = axes_of(x, axis), .keepdim = true); }

static ct_tensor *below_greatest(ct_tensor *x, int64_t axis) {
    return ct_numel(x) ? sub(x, ct_detach(amax(x, .axes = axes_of(x, axis), .keepdim = true))) : x;
}

void softmax_lower(ct_lower *lower) {
    int64_t axis = ((const softmax_attrs *)lower->attrs)->axis;
    ct_tensor *e = ct_exp(below_greatest(lower->in[0], axis));
    lower->out[0] = div(e, sum_along(e, axis));
}

void softmax_vjp(ct_vjp *v) {
    v->grad[0] = softmax_grad(v->cot[0], v->out[0], ((const softmax_attrs *)v->attrs)->axis);
}

void softmax_grad_lower(ct_lower *lower) {
    const int64_t axis = ((const softmax_grad_attrs *)lower->attrs)->axis;
    ct_tensor *g = lower->in[0], *y = lower->in[1];
    lower->out[0] = mul(y, sub(g, div(sum_along(mul(g, y), axis), sum_along(y, axis))));
}

void log_softmax_lower(ct_lower *lower) {
    int64_t axis = ((const log_softmax_attrs *)lower->attrs)->axis;
    ct_tensor *below = below_greatest(lower->in[0], axis);
    lower->out[0] = sub(below, ct_log(sum_along(ct_exp(below), axis)));
}

void log_softmax_vjp(ct_vjp *v) {
    const int64_t axis = ((const log_softmax_attrs *)v->attrs)->axis;
    v->grad[0] = ct__dtype_is_half(ct_dtype_of(v->cot[0])) ? log_softmax_half_grad(v->cot[0], v->in[0], axis)
                                                           : log_softmax_grad(v->cot[0], v->out[0], axis);
}

void log_softmax_grad_lower(ct_lower *lower) {
    ct_tensor *g = lower->in[0], *y = lower->in[1];
    lower->out[0] = sub(g, mul(ct_exp(y), sum_along(g, ((const log_softmax_grad_attrs *)lower->attrs)->axis)));
}

void log_softmax_half_grad_lower(ct_lower *lower) {
    const int64_t axis = ((const log_softmax_half_grad_attrs *)lower->attrs)->axis;
    ct_tensor *g = lower->in[0];
    lower->out[0] = sub(g, mul(softmax(lower->in[1], axis), sum_along(g, axis)));
}

/* ---- logsumexp ---- */

bool logsumexp_infer(ct_infer *infer) {
    const logsumexp_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype, NULL);
}

/* y where it is finite, else 0: what may be subtracted from an infinite x. */
static ct_tensor *finite_part(ct_tensor *y) { return where(ct_isinf(y), zeros_like(y), y); }

void logsumexp_lower(ct_lower *lower) {
    const logsumexp_attrs *attrs = lower->attrs;
    ct_tensor *x = lower->in[0];
    if (ct_numel(x) == 0) {
        lower->out[0] = ct_log(sum(x, .axes = attrs->axes, .keepdim = attrs->keepdim));
        return;
    }
    ct_tensor *level = finite_part(amax(x, .axes = attrs->axes, .keepdim = true));
    ct_tensor *y = sum(ct_exp(sub(x, level)), .axes = attrs->axes, .keepdim = attrs->keepdim);
    lower->out[0] = ct_add(ct_log(y), reshape(level, ct_shape(y)));
}

/* g exp(x - y), 0 where all of x is -inf. */
void logsumexp_vjp(ct_vjp *v) {
    if (ct__vjp_wide(v, logsumexp_vjp)) return;
    const logsumexp_attrs *attrs = v->attrs;
    ct_tensor *x = v->in[0], *y = ct__unreduce(v->out[0], x, &attrs->axes),
              *g = ct__unreduce(v->cot[0], x, &attrs->axes);
    ct_tensor *level = where(eq_s(y, -__builtin_inf()), zeros_like(y), y);
    v->grad[0] = mul(g, ct_exp(sub(x, level)));
}
