/* Reductions over a list of axes: shapes, and the derivatives of sum, mean and the extrema. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

unsigned ct__reduce_mask(const ct_dims *axes, int ndim) {
    unsigned mask = 0;
    for (int i = 0; i < axes->n; i++) {
        int64_t axis = axes->d[i] < 0 ? axes->d[i] + (ndim ? ndim : 1) : axes->d[i];
        mask |= 1u << axis;
    }
    return axes->n ? mask : (1u << ndim) - 1;
}

bool ct__infer_arithmetic(const ct_infer *infer, int input) {
    ct_dtype dtype = infer->in[input]->dtype;
    if (ct_dtype_is_float(dtype) || ct_dtype_is_int(dtype) || dtype == CT_BOOL) return true;
    return ct_infer_fail(infer, CT_ERR_DTYPE, "%s is %s; there is no arithmetic on %s, cast it first",
                         infer->op->inputs[input].name, ct_view_text(infer->in[input]), ct_dtype_name(dtype));
}

bool ct__infer_reduction(ct_infer *infer, const ct_dims *axes, bool keepdim, ct_dtype dtype, const char *needs) {
    const ct_view *x = infer->in[0];
    unsigned mask;
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_axes(infer, axes, x->ndim, &mask)) return false;
    ct__infer_reduced(infer, 0, x, mask, keepdim, dtype);
    if (!needs || ct__count(infer->out[0].ndim, infer->out[0].dims) == 0 || ct__count(x->ndim, x->dims) != 0)
        return true;
    return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, which leaves nothing to reduce, and %s", ct_view_text(x),
                         needs);
}

ct_dims ct__kept_shape(const ct_tensor *x, const ct_dims *axes) {
    ct_dims shape = ct_shape(x);
    unsigned mask = ct__reduce_mask(axes, shape.n);
    for (int i = 0; i < shape.n; i++)
        if (mask >> i & 1) shape.d[i] = 1;
    return shape;
}

ct_tensor *ct__unreduce(ct_tensor *y, const ct_tensor *x, const ct_dims *axes) {
    return reshape(y, ct__kept_shape(x, axes));
}

ct_tensor *ct__expand_reduced(ct_tensor *y, const ct_tensor *x, const ct_dims *axes) {
    return expand(ct__unreduce(y, x, axes), ct_shape(x));
}

int64_t ct__reduced_count(const ct_tensor *x, const ct_dims *axes) {
    ct_dims shape = ct_shape(x);
    unsigned mask = ct__reduce_mask(axes, shape.n);
    int64_t count = 1;
    for (int i = 0; i < shape.n; i++)
        if (mask >> i & 1) count *= shape.d[i];
    return count;
}

ct_reduced_layout ct__reduced_layout(const ct_tensor *x, const ct_dims *axes) {
    ct_dims shape = ct_shape(x);
    unsigned mask = ct__reduce_mask(axes, shape.n);
    ct_reduced_layout l = {.order.n = shape.n, .moved.n = shape.n, .back.n = shape.n};
    int at = 0;
    for (int i = 0; i < shape.n; i++)
        if (!(mask >> i & 1)) l.order.d[at++] = i;
    l.flat.n = at + 1;
    for (int i = 0; i < shape.n; i++)
        if (mask >> i & 1) l.order.d[at++] = i;
    for (int i = 0; i < shape.n; i++) {
        l.moved.d[i] = shape.d[l.order.d[i]];
        l.back.d[l.order.d[i]] = i;
        if (i < l.flat.n - 1) l.flat.d[i] = l.moved.d[i];
    }
    l.flat.d[l.flat.n - 1] = ct__reduced_count(x, axes);
    l.result = l.flat;
    l.result.d[l.flat.n - 1] = 1;
    return l;
}

ct_tensor *ct__flatten_reduced(ct_tensor *x, const ct_reduced_layout *layout) {
    return reshape(permute(x, layout->order), layout->flat);
}

ct_tensor *ct__unflatten_reduced(ct_tensor *flat, const ct_reduced_layout *layout) {
    return permute(reshape(flat, layout->moved), layout->back);
}

ct_tensor *ct__put_reduced(ct_tensor *g, ct_tensor *places, const ct_tensor *x, const ct_dims *axes) {
    if (axes->n == 1)
        return gather_grad(ct__unreduce(g, x, axes), ct__unreduce(places, x, axes), ct_shape(x), axes->d[0]);
    ct_reduced_layout layout = ct__reduced_layout(x, axes);
    return ct__unflatten_reduced(
        gather_grad(reshape(g, layout.result), reshape(places, layout.result), layout.flat, -1), &layout);
}

/* ---- sum, mean ---- */

static ct_dtype sum_dtype(ct_dtype dtype) { return ct_dtype_is_float(dtype) ? dtype : CT_I64; }

bool sum_infer(ct_infer *infer) {
    const sum_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, sum_dtype(infer->in[0]->dtype), NULL);
}

void sum_vjp(ct_vjp *v) {
    const sum_attrs *attrs = v->attrs;
    v->grad[0] = ct__expand_reduced(v->cot[0], v->in[0], &attrs->axes);
}

bool mean_infer(ct_infer *infer) {
    const mean_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype, NULL);
}

void mean_lower(ct_lower *l) {
    const mean_attrs *attrs = l->attrs;
    const double count = (double)ct__reduced_count(l->in[0], &attrs->axes);
    l->out[0] = div_s(sum(l->in[0], .axes = attrs->axes, .keepdim = attrs->keepdim), count);
}

void mean_vjp(ct_vjp *v) {
    const mean_attrs *attrs = v->attrs;
    double count = (double)ct__reduced_count(v->in[0], &attrs->axes);
    v->grad[0] = ct__expand_reduced(mul_s(v->cot[0], 1 / count), v->in[0], &attrs->axes);
}

/* ---- Truth ---- */

bool any_infer(ct_infer *infer) {
    const any_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, CT_BOOL, NULL);
}

bool all_infer(ct_infer *infer) {
    const all_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, CT_BOOL, NULL);
}

bool count_nonzero_infer(ct_infer *infer) {
    const count_nonzero_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, CT_I64, NULL);
}

void any_lower(ct_lower *l) {
    const any_attrs *attrs = l->attrs;
    l->out[0] = gt_s(sum(ne_s(l->in[0], 0), .axes = attrs->axes, .keepdim = attrs->keepdim), 0);
}

void all_lower(ct_lower *l) {
    const all_attrs *attrs = l->attrs;
    l->out[0] = eq_s(sum(eq_s(l->in[0], 0), .axes = attrs->axes, .keepdim = attrs->keepdim), 0);
}

void count_nonzero_lower(ct_lower *l) {
    const count_nonzero_attrs *attrs = l->attrs;
    l->out[0] = sum(ne_s(l->in[0], 0), .axes = attrs->axes, .keepdim = attrs->keepdim);
}

/* ---- Extrema ---- */

bool amax_infer(ct_infer *infer) {
    const amax_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype,
                               "there is no greatest of nothing");
}

bool amin_infer(ct_infer *infer) {
    const amin_attrs *attrs = infer->attrs;
    return ct__infer_reduction(infer, &attrs->axes, attrs->keepdim, infer->in[0]->dtype,
                               "there is no least of nothing");
}
