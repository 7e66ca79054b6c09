/* Helpers that infer functions share: axes, shapes, dtypes. No mathematics and no kernels here. */
#ifndef COTANGENT_OPS_INFER_H
#define COTANGENT_OPS_INFER_H

#include <cotangent/op.h>

#include "core/tensor.h"

/* Resolves a possibly negative axis of a tensor of ndim dimensions (a scalar counts as one dimension). */
bool ct__infer_axis(const ct_infer *infer, int64_t axis, int ndim, int *resolved);
/* Resolves a list of axes into a mask of 8 bits; an empty list is all axes. Repeated axes are an error. */
bool ct__infer_axes(const ct_infer *infer, const ct_dims *axes, int ndim, unsigned *mask);
/* out[i] = the shape and dtype of view / of dims. */
void ct__infer_like(ct_infer *infer, int output, const ct_view *view, ct_dtype dtype);
void ct__infer_set(ct_infer *infer, int output, ct_dtype dtype, int ndim, const int64_t *dims);
/* Input i, where it is given, has to be of this shape. For internal ops, whose callers know it: an error without advice. */
bool ct__infer_is(const ct_infer *infer, int input, int ndim, const int64_t *dims);
/* The dtype of a result that autocast leaves wide, of an op that takes half inputs as they are: f32 for these while it is on. */
ct_dtype ct__infer_wide(ct_dtype dtype);
/* The shape of x reduced over the axes in mask. */
void ct__infer_reduced(ct_infer *infer, int output, const ct_view *x, unsigned mask, bool keepdim, ct_dtype dtype);
/* Result 0 has a shape that comes from an option, and that dtype: an error unless a tensor can have them. */
bool ct__infer_shape(ct_infer *infer, const ct_dims *shape, ct_dtype dtype);
/* What is wrong with it, unless value is 0 or more. */
bool ct__infer_not_negative(const ct_infer *infer, const char *name, int64_t value);

/* For lowerings that check their own arguments: arithmetic is defined on the dtype of x, else an error of op. */
bool ct__has_numbers(const ct_tensor *x, const char *op, const char *name);

/* Sizes that come from options are added and multiplied with these: a result that an int64 does not hold is the largest (or
 * least) one, which no tensor has, so that it is refused where the tensor would be made. The sizes of one tensor may be
 * multiplied without: their product, zeros left out, always fits. */
static inline int64_t ct__mul(int64_t a, int64_t b) {
    int64_t product;
    return !__builtin_mul_overflow(a, b, &product) ? product : (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}
static inline int64_t ct__add(int64_t a, int64_t b) {
    int64_t sum;
    return !__builtin_add_overflow(a, b, &sum) ? sum : a > 0 ? INT64_MAX : INT64_MIN;
}
static inline int64_t ct__sub(int64_t a, int64_t b) {
    int64_t difference;
    return !__builtin_sub_overflow(a, b, &difference) ? difference : a >= 0 ? INT64_MAX : INT64_MIN;
}
/* An option that is a double, as a whole number; what no int64 holds is the largest or least one, and so is NaN. */
static inline int64_t ct__whole(double value) {
    return value >= 0x1p63 ? INT64_MAX : value >= -0x1p63 ? (int64_t)value : INT64_MIN;
}

/* For vjp and lower, where an inner call may have failed and its result's shape then has no dimensions: the size at an axis,
 * counted from the end when it is negative, or 0 if there is none; and its replacement, or nothing. */
static inline int ct__place(const ct_dims *shape, int axis) {
    const int at = axis < 0 ? axis + shape->n : axis;
    return at >= 0 && at < shape->n ? at : -1;
}
static inline int64_t ct__size_at(const ct_dims *shape, int axis) {
    const int at = ct__place(shape, axis);
    return at < 0 ? 0 : shape->d[at];
}
static inline void ct__set_size(ct_dims *shape, int axis, int64_t size) {
    const int at = ct__place(shape, axis);
    if (at >= 0) shape->d[at] = size;
}

/* For vjp: whether result i, which the derivative reads, was asked for; an error if not. */
bool ct__vjp_has(const ct_vjp *v, int i);
/* For vjp and lower: axis resolved against ndim (valid by then), and the list form of a mask. */
int ct__axis(int64_t axis, int ndim);
ct_tensor *ct__counted(int64_t n); /* 0, 1, ... n - 1: i64 [n], on the current device */

/* f64, or f32 on a current device that has no f64: what infer and lower take where more digits than those of the arguments help. */
ct_dtype ct__widest_float(void);
/* A table that a lowering makes of its options alone, in f64: between these two the current device is one that has f64, the CPU if
 * need be. The end takes what begin gave, and gives the table as dtype where it is wanted. */
ct_device ct__table_begin(void);
ct_tensor *ct__table_end(ct_device device, ct_tensor *table, ct_dtype dtype);
ct_dims ct__axes_list(unsigned mask);

#endif
