/* Helpers that the definitions of reductions share: shapes in infer, and gradients brought back to the shape of x. */
#ifndef COTANGENT_OPS_REDUCE_H
#define COTANGENT_OPS_REDUCE_H

#include <cotangent/op.h>

/* The axes of a valid list as a mask; an empty list is all of them. */
unsigned ct__reduce_mask(const ct_dims *axes, int ndim);

/* out[0] = x reduced over axes, of that dtype. An empty reduction that has results is an error when `needs` names
 * what it lacks. */
bool ct__infer_reduction(ct_infer *infer, const ct_dims *axes, bool keepdim, ct_dtype dtype, const char *needs);
/* Arithmetic is defined on x's dtype. */
bool ct__infer_arithmetic(const ct_infer *infer, int input);

/* The shape of x with 1 for each reduced axis. */
ct_dims ct__kept_shape(const ct_tensor *x, const ct_dims *axes);
/* A reduced tensor (with or without kept axes) as it broadcasts against x, and as large as x. */
ct_tensor *ct__unreduce(ct_tensor *y, const ct_tensor *x, const ct_dims *axes);
ct_tensor *ct__expand_reduced(ct_tensor *y, const ct_tensor *x, const ct_dims *axes);
/* How many elements of x go into one result. */
int64_t ct__reduced_count(const ct_tensor *x, const ct_dims *axes);

/* The reduced axes moved to the end and made one: the way there, the shapes on it, and the way back. */
typedef struct ct_reduced_layout {
    ct_dims order, moved, flat, result; /* result: as flat, with 1 in the place of the joined axis */
    ct_dims back;
} ct_reduced_layout;
ct_reduced_layout ct__reduced_layout(const ct_tensor *x, const ct_dims *axes);
ct_tensor *ct__flatten_reduced(ct_tensor *x, const ct_reduced_layout *layout);
ct_tensor *ct__unflatten_reduced(ct_tensor *flat, const ct_reduced_layout *layout);
/* g, one a result, at its place (row-major) in the reduced axes of x, zeros elsewhere. */
ct_tensor *ct__put_reduced(ct_tensor *g, ct_tensor *places, const ct_tensor *x, const ct_dims *axes);

#endif
