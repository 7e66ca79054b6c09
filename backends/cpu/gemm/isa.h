/* Which instruction set this copy of a per-ISA source is compiled for. */
#ifndef CT_BACKENDS_CPU_GEMM_ISA_H
#define CT_BACKENDS_CPU_GEMM_ISA_H

#include "backends/cpu/simd/simd.h"

#define CT__STRING2(x) #x
#define CT__STRING(x) CT__STRING2(x)
/* "f32_14x32_avx512"; columns as vectors x lanes, spelled by the tile macros. */
#define CT__KERNEL_NAME(type) type "_" CT__STRING(CT_ISA)

#endif
