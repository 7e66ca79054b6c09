/* What the ops that make tensors from a shape share. */
#ifndef COTANGENT_OPS_CREATE_H
#define COTANGENT_OPS_CREATE_H

#include <cotangent/op.h>

/* Checks a shape given as an argument, and a dtype, and sets output 0 to them. */
bool ct__infer_shape(ct_infer *infer, const ct_dims *shape, ct_dtype dtype);

#endif
