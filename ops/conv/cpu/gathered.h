/* Convolutions as products whose patches are gathered while they are packed (once/gathered.c). */
#ifndef COTANGENT_OPS_CONV_GATHERED_H
#define COTANGENT_OPS_CONV_GATHERED_H

#include "ops/conv/cpu/implicit.h"

/* NULL, or why it is none. */
const char *ct__conv_gathered_can(const ct_conv_problem *problem);
size_t ct__conv_gathered_scratch(const ct_conv_problem *problem, ct_gemm_activate activate);
bool ct__conv_gathered(const ct_conv_problem *problem, ct_gemm_activate activate, void *scratch);

#endif
