/* Arguments of the kernel that fills memory with elements of up to 16 bytes. */
#ifndef COTANGENT_BACKENDS_CUDA_FILL_H
#define COTANGENT_BACKENDS_CUDA_FILL_H

#include <stdint.h>

typedef struct ct_cuda_fill_arguments {
    char *to;
    int32_t size;
    int64_t n;
    unsigned char pattern[16];
} ct_cuda_fill_arguments;

#endif
