/* Convolutions of f16 and bf16 by kernels of f32: what they read is converted into scratch, as it lies, so that every stride stays what it is, and
 * what they write is converted back, so that results are rounded once. */
#ifndef COTANGENT_OPS_CONV_HALVES_H
#define COTANGENT_OPS_CONV_HALVES_H

#include "backends/cpu/elementwise.h"
#include "ops/conv/cpu/kernels.h"

/* NULL, or why not: tensors that are not dense, or so large that the copies would be a burden. */
const char *ct__conv_halves_refuse(const ct_conv_problem *problem);
size_t ct__conv_halves_bytes(const ct_conv_problem *problem); /* of scratch, before that of the kernel of f32 */

/* The problem in f32, in the first of these bytes; then the result of it to where that of halves belongs. */
ct_conv_problem ct__conv_halves_widen(const ct_conv_problem *problem, const ct_elementwise_isa *isa, void *scratch);
void ct__conv_halves_narrow(const ct_conv_problem *problem, const ct_conv_problem *wide, const ct_elementwise_isa *isa);

#endif
