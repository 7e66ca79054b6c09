/* Elementwise ops: the texts that mkops writes (gen/webgpu/elementwise.inc) in the loops of elementwise*.wgsl. */
#ifndef COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H
#define COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H

#include "backends/webgpu/webgpu.h"

bool ct_wgpu_elementwise_start(void);                     /* false: no memory */
const ct_kernel *ct_wgpu_elementwise_of(const ct_op *op); /* NULL: it is none */

#endif
