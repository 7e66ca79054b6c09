/* Orthonormal rows, for ct_init_orthogonal. */
#ifndef COTANGENT_NN_ORTHOGONAL_H
#define COTANGENT_NN_ORTHOGONAL_H

#include <cotangent.h>

/* Rows that span what the rows of a, f64 [r, c] with r <= c and contiguous, span from the first on: a = L Q with a positive
 * diagonal in the lower triangle L. Q [r, c], in the current scope; a is used up. NULL with an error. */
ct_tensor *ct__orthonormal_rows(ct_tensor *a);

#endif
