/* What ops that drop something inside share with dropout. */
#ifndef COTANGENT_OPS_DROPOUT_H
#define COTANGENT_OPS_DROPOUT_H

#include <cotangent/op.h>

/* The position in the random stream that a call of a random op has been given, as the tensor that dropout_replay takes. */
ct_tensor *ct__position_of(const ct_lower *l);

#endif
