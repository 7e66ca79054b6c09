/* Conversion between dtypes as text, for kernels that convert on their way. */
#ifndef COTANGENT_OPS_CAST_WEBGPU_CAST_H
#define COTANGENT_OPS_CAST_WEBGPU_CAST_H

#include "backends/webgpu/webgpu.h"

/* An expression: an element of another dtype as its bits, a vec2<u32>, from an element's bits, which are the text
 * `bits`, or, of a float, from its number `real` (NULL: from its bits). */
void ct_wgpu_put_conversion(char *text, size_t room, ct_dtype from, ct_dtype to, const char *bits, const char *real);

#endif
