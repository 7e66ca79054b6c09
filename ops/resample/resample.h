/* Linear maps along one axis given as whole matrices: the meaning of resampling and of average pooling, in ops. */
#ifndef COTANGENT_OPS_RESAMPLE_RESAMPLE_H
#define COTANGENT_OPS_RESAMPLE_RESAMPLE_H

#include <cotangent/op.h>

/* A matrix of zeros, (rows, columns) in f64, and its elements, to be filled. */
/* x with every line along axis replaced by matrix times that line; transposed: by its transposed times the line. */
ct_tensor *ct__along_axis(ct_tensor *x, int axis, ct_tensor *matrix, bool transposed);

#endif
