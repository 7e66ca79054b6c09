/* How recorded changes in place travel between a tensor and its views. */
#ifndef COTANGENT_CORE_INPLACE_H
#define COTANGENT_CORE_INPLACE_H

#include "core/tensor.h"

bool ct__writable(const ct_tensor *x, const char *op,
                  const char *argument); /* valid, and no two elements share memory */
bool ct__view_refresh(ct_tensor *x);     /* its base has changed: place x in the graph anew */
bool ct__view_changed(ct_tensor *x);     /* x has just been changed in place, recorded */
bool ct__overwritten(ct_tensor *x);      /* x has just been changed in place to constants */

#endif
