/* Elementwise ops: kernels made of the formulas that mkops writes. */
#ifndef COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H
#define COTANGENT_BACKENDS_WEBGPU_ELEMENTWISE_H

#include <cotangent/backend.h>

bool ct_wgpu_elementwise_start(void); /* false: no memory */
const ct_kernel *ct_wgpu_elementwise_of(const ct_op *op); /* NULL: it is none */

#endif
