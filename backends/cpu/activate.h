/* The activations of epilogues: in place over sums of f32 or f64, while they are in cache. */
#ifndef COTANGENT_BACKENDS_CPU_ACTIVATE_H
#define COTANGENT_BACKENDS_CPU_ACTIVATE_H

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/kernel.h"

/* NULL for none. activation is a ct_activation. */
ct_gemm_activate CT_ISA_FN(ct__activation)(ct_dtype dtype, int activation);

#endif
