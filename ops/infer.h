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
/* The shape of x reduced over the axes in mask. */
void ct__infer_reduced(ct_infer *infer, int output, const ct_view *x, unsigned mask, bool keepdim, ct_dtype dtype);

/* For lowerings that check their own arguments: arithmetic is defined on the dtype of x, else an error of op. */
bool ct__has_numbers(const ct_tensor *x, const char *op, const char *name);

/* For vjp and lower: axis resolved against ndim (valid by then), and the list form of a mask. */
int ct__axis(int64_t axis, int ndim);
ct_dims ct__axes_list(unsigned mask);

#endif
