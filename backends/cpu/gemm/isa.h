/* Which instruction set this copy of a per-ISA source is compiled for. */
#ifndef CT_BACKENDS_CPU_GEMM_ISA_H
#define CT_BACKENDS_CPU_GEMM_ISA_H

#include "backends/cpu/simd/simd.h"

#define CT__STRING2(x) #x
#define CT__STRING(x)  CT__STRING2(x)
/* "f32_14x32_avx512": a kernel's name tells type, tile and instruction set. */
#define CT__KERNEL_NAME(type) type "_" CT__STRING(TILE_ROWS) "x" CT__STRING(TILE_WIDTH) "_" CT__STRING(CT_ISA)

#endif
