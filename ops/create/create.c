/* Tensors of one value: shapes and dtypes of zeros, ones, full, empty and their *_like forms, all of which are full. */

#include "ops/op_impl.h"

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

bool full_i64_infer(ct_infer *infer) {
    const full_i64_attrs *a = infer->attrs;
    return ct__infer_shape(infer, &a->shape, CT_I64);
}

void full_i64_lower(ct_lower *l) {
    const full_i64_attrs *a = l->attrs;
    l->out[0] = contiguous(expand(ct_scalar_i64(a->value, CT_I64), a->shape));
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

void zeros_lower(ct_lower *l) {
    const zeros_attrs *a = l->attrs;
    l->out[0] = full(a->shape, 0, .dtype = a->dtype);
}

void ones_lower(ct_lower *l) {
    const ones_attrs *a = l->attrs;
    l->out[0] = full(a->shape, 1, .dtype = a->dtype);
}

/* On a backend that has no kernel for it: one that does nothing is a line. */
void empty_lower(ct_lower *l) {
    const empty_attrs *a = l->attrs;
    l->out[0] = full(a->shape, 0, .dtype = a->dtype);
}
