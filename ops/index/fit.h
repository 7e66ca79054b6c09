/* Shape checks and a helper that gather, scatter and their relatives share. */
#ifndef COTANGENT_OPS_INDEX_FIT_H
#define COTANGENT_OPS_INDEX_FIT_H

#include <cotangent/op.h>

/* index has as many dimensions as x and is not larger, except along axis (-1: there is no exception). */
bool ct__index_fits(const ct_infer *infer, const ct_view *x, const ct_view *index, int axis, const char *name);
bool ct__has_arithmetic(const ct_infer *infer, const ct_view *x, const char *name);
/* g within zeros of src's shape: the gradient of the part of src that index covers. */
ct_tensor *ct__grown(ct_tensor *g, const ct_tensor *src);

#endif
