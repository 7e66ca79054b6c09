/* Arguments of conversions. */
#ifndef COTANGENT_OPS_CAST_CUDA_H
#define COTANGENT_OPS_CAST_CUDA_H

#include "backends/cuda/nest.h"

typedef struct ct_cuda_convert {
    ct_cuda_head head;
    char *to;
    const char *from;
    int32_t dtype;     /* of to */
    int32_t packs;     /* both are dense and begin at multiples of 16 bytes */
    ct_cuda_nest nest; /* to, from */
} ct_cuda_convert;

#endif
