/* What the definitions of losses share. */
#ifndef COTANGENT_OPS_LOSS_H
#define COTANGENT_OPS_LOSS_H

#include <cotangent/op.h>

/* out[0] is one loss for each of dims, or [] after a reduction. Nothing to take a mean of is an error. */
bool ct__infer_loss(ct_infer *infer, int reduction, ct_dtype dtype, int ndim, const int64_t *dims);
/* The losses put together. */
ct_tensor *ct__reduce_loss(ct_tensor *losses, int reduction);

#endif
