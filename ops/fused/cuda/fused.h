/* Arguments of the kernels that are made for fused calls. */
#ifndef COTANGENT_OPS_FUSED_CUDA_H
#define COTANGENT_OPS_FUSED_CUDA_H

#include "backends/cuda/view.h"

enum { CT_FUSED_OPERANDS = 64 };

typedef struct ct_fused_arguments {
    ct_cuda_head head;
    int32_t packed;              /* addresses are aligned for packs */
    char *at[CT_FUSED_OPERANDS]; /* inputs, then outputs */
    char *sums;                  /* of columns: (parts, 2, n) */
    int64_t parts;
} ct_fused_arguments;

#endif
