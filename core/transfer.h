/* Copies between devices. */
#ifndef COTANGENT_CORE_TRANSFER_H
#define COTANGENT_CORE_TRANSFER_H

#include "core/tensor.h"

/* x on that device, in the scope and without a node: x itself where it is there already. NULL after an error. */
ct_tensor *ct__transfer(ct_tensor *x, ct_device device, const char *op);

#endif
