/* Derivatives of several steps in half precision. */
#ifndef COTANGENT_OPS_WIDE_VJP_H
#define COTANGENT_OPS_WIDE_VJP_H

#include <cotangent/op.h>

/* For half types runs vjp in f32, on the inputs and cotangents of v widened and on results computed again from those
 * inputs (the saved ones have too few digits), and rounds the gradients once: true then. The op saves all inputs that
 * its results depend on: `recompute` in its .def where it reads results. False, nothing done, for other dtypes. */
bool ct__vjp_wide(ct_vjp *v, void (*vjp)(ct_vjp *v));

#endif
