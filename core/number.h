/* Numbers among the arguments of an op, as the 2 of ct_add_s(x, 2). A number is a handle without storage: its value lies in
 * the handle, view.buffer points at it, it has any shape and is on any device. Only elementwise ops get one, as an argument of
 * their kernels (ct_call.numbers); for all others dispatch makes a tensor of it. */
#ifndef COTANGENT_CORE_NUMBER_H
#define COTANGENT_CORE_NUMBER_H

#include "core/tensor.h"

static inline bool ct__is_number(const ct_tensor *x) { return !x->storage && x->view.buffer; }

/* The number, of x's dtype, in the handle at place, which the caller keeps alive for the call. NULL after an error: x is NULL, or
 * its dtype cannot hold the value; op is named. */
ct_tensor *ct__number(ct_tensor *place, const ct_tensor *x, double value, const char *op);
ct_tensor *ct__scalar_for(const ct_tensor *x, double value, const char *op); /* the same in the current scope */
ct_tensor *ct__number_hold(ct_tensor *number); /* a reference of one's own; of one in a caller's place, to a copy */
ct_tensor *ct__number_cast(const ct_tensor *number, ct_dtype dtype); /* in the scope */
ct_tensor *ct__number_tensor(const ct_tensor *number); /* of no dimensions, on the current device, in the scope */

#endif
