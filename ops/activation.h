/* The activations that linear and the convolutions apply to their results, in ops: values, and gradients from results. */
#ifndef COTANGENT_OPS_ACTIVATION_H
#define COTANGENT_OPS_ACTIVATION_H

#include <cotangent/op.h>

ct_tensor *ct__activated(ct_tensor *x, int activation);

/* Whether the derivative is a function of the result alone, so that the argument need not be kept. Of sigmoid and tanh
 * a half result has too few digits near 1 and -1. */
bool ct__activation_by_result(int activation, ct_dtype dtype);

/* The cotangent of the argument from g, that of the result y; NULL with an error where the result does not tell. */
ct_tensor *ct__activation_grad(const ct_op *op, ct_tensor *g, ct_tensor *y, int activation);

#endif
