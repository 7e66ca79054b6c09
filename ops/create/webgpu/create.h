/* Tensors of one value, for kernels that have that value at hand. */
#ifndef COTANGENT_OPS_CREATE_WEBGPU_CREATE_H
#define COTANGENT_OPS_CREATE_WEBGPU_CREATE_H

#include "backends/webgpu/webgpu.h"

/* False: the call's kernel does something else. bits: of an element, in one word or two. */
bool ct_wgpu_filled_with(const ct_call *call, uint32_t bits[2]);

#endif
