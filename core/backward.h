/* The one engine behind ct_backward and ct_grad. */
#ifndef COTANGENT_CORE_BACKWARD_H
#define COTANGENT_CORE_BACKWARD_H

#include "core/node.h"

/* With grads: the gradients of the xs (which have nodes), owned by the caller, NULL where nothing arrived. Without: adds
 * to the gradient of every leaf. me names the caller in errors. */
bool ct__backward_pass(const char *me, ct_tensor *const *ys, int ny, ct_tensor *const *cotangents, ct_tensor *const *xs,
                       int nx, ct_tensor **grads, unsigned flags);

#endif
