/* gather, scatter_add and the gradient they share. Each is the other's derivative: gather_grad of a cotangent is a
 * scatter_add to zeros, whose derivative is gather. */
#include "ops/index/fit.h"

#include "ops/op_impl.h"

bool gather_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *index = infer->in[1];
    int axis;
    if (!ct__infer_axis(infer, ((const gather_attrs *)infer->attrs)->axis, x->ndim, &axis) ||
        !ct__index_fits(infer, x, index, axis, "x"))
        return false;
    ct__infer_like(infer, 0, index, x->dtype);
    return true;
}

void gather_vjp(ct_vjp *v) {
    const gather_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = gather_grad(v->cot[0], v->in[1], ct_shape(v->in[0]), at->axis);
}

bool gather_grad_infer(ct_infer *infer) {
    const gather_grad_attrs *at = infer->attrs;
    const ct_view *src = infer->in[0];
    int axis;
    if (!ct__has_arithmetic(infer, src, "src")) return false;
    if (!ct__infer_shape(infer, &at->shape, src->dtype) || !ct__infer_axis(infer, at->axis, at->shape.n, &axis) ||
        !ct__index_fits(infer, src, infer->in[1], -1, "src"))
        return false;
    return ct__index_fits(infer, &infer->out[0], infer->in[1], axis, "the result");
}

void gather_grad_lower(ct_lower *l) {
    const gather_grad_attrs *at = l->attrs;
    l->out[0] = scatter_add(zeros(at->shape, .dtype = ct_dtype_of(l->in[0])), at->axis, l->in[1], l->in[0]);
}

void gather_grad_vjp(ct_vjp *v) {
    const gather_grad_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = ct__grown(gather(v->cot[0], at->axis, v->in[1]), v->in[0]);
}

bool scatter_add_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0], *index = infer->in[1], *src = infer->in[2];
    int axis;
    if (!ct__has_arithmetic(infer, x, "x")) return false;
    if (!ct__infer_axis(infer, ((const scatter_add_attrs *)infer->attrs)->axis, x->ndim, &axis) ||
        !ct__index_fits(infer, x, index, axis, "x") || !ct__index_fits(infer, src, index, -1, "src"))
        return false;
    ct__infer_like(infer, 0, x, x->dtype);
    return true;
}

void scatter_add_vjp(ct_vjp *v) {
    const scatter_add_attrs *at = v->attrs;
    if (v->need[0]) v->grad[0] = v->cot[0];
    if (v->need[2]) v->grad[2] = ct__grown(gather(v->cot[0], at->axis, v->in[1]), v->in[2]);
}
