/* Tensors of one value: shapes and dtypes of zeros, ones, full, empty and their *_like forms. */
#include "ops/create/create.h"

#include "ops/op_impl.h"

bool ct__infer_shape(ct_infer *infer, const ct_dims *shape, ct_dtype dtype) {
    if ((unsigned)dtype >= CT_DTYPE_COUNT)
        return ct_infer_fail(infer, CT_ERR_DTYPE, "there is no dtype %d", (int)dtype);
    if (shape->n < 0 || shape->n > CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "shape has %d dimensions; a tensor has at most %d", shape->n,
                             CT_MAX_DIMS);
    for (int i = 0; i < shape->n; i++)
        if (shape->d[i] < 0)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "shape %s: dimension %d is negative", ct_dims_text(*shape), i);
    int64_t count = ct__count(shape->n, shape->d);
    if (count < 0 || count > INT64_MAX / 16)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "shape %s has more elements than memory can hold",
                             ct_dims_text(*shape));
    ct__infer_set(infer, 0, dtype, shape->n, shape->d);
    return true;
}

bool zeros_infer(ct_infer *infer) {
    const zeros_attrs *a = infer->attrs;
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

bool ones_infer(ct_infer *infer) {
    const ones_attrs *a = infer->attrs;
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

bool full_infer(ct_infer *infer) {
    const full_attrs *a = infer->attrs;
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

bool empty_infer(ct_infer *infer) {
    const empty_attrs *a = infer->attrs;
    return ct__infer_shape(infer, &a->shape, a->dtype);
}

static bool infer_like(ct_infer *infer) {
    ct__infer_like(infer, 0, infer->in[0], infer->in[0]->dtype);
    return true;
}

bool zeros_like_infer(ct_infer *infer) { return infer_like(infer); }
bool ones_like_infer(ct_infer *infer) { return infer_like(infer); }
bool full_like_infer(ct_infer *infer) { return infer_like(infer); }
bool empty_like_infer(ct_infer *infer) { return infer_like(infer); }

/* No value of x matters: a gradient that is not set is zero. */
void zeros_like_vjp(ct_vjp *v) { v->grad[0] = NULL; }
void ones_like_vjp(ct_vjp *v) { v->grad[0] = NULL; }
void full_like_vjp(ct_vjp *v) { v->grad[0] = NULL; }
void empty_like_vjp(ct_vjp *v) { v->grad[0] = NULL; }

void zeros_like_lower(ct_lower *l) {
    ct_tensor *x = l->in[0];
    l->out[0] = zeros(ct_shape(x), .dtype = ct_dtype_of(x), .device = ct_device_of(x));
}

void ones_like_lower(ct_lower *l) {
    ct_tensor *x = l->in[0];
    l->out[0] = ones(ct_shape(x), .dtype = ct_dtype_of(x), .device = ct_device_of(x));
}

void full_like_lower(ct_lower *l) {
    const full_like_attrs *a = l->attrs;
    ct_tensor *x = l->in[0];
    l->out[0] = full(ct_shape(x), a->value, .dtype = ct_dtype_of(x), .device = ct_device_of(x));
}

void empty_like_lower(ct_lower *l) {
    ct_tensor *x = l->in[0];
    l->out[0] = empty(ct_shape(x), .dtype = ct_dtype_of(x), .device = ct_device_of(x));
}
