/* Elementwise ops: the structs of arguments that the generated device code (gen/cuda/elementwise_*.cu) reads. */
#ifndef COTANGENT_BACKENDS_CUDA_ELEMENTWISE_H
#define COTANGENT_BACKENDS_CUDA_ELEMENTWISE_H

#include "backends/cuda/view.h"

enum { CT_CUDA_INPUTS = 5, CT_CUDA_ATTRS = 8 };

/* All that the kernels over dense operands read. It is kept short: every launch copies it to the device. */
typedef struct ct_cuda_flat {
    ct_cuda_head head;
    char *out;
    const char *in[CT_CUDA_INPUTS]; /* NULL: a number */
    int64_t total, packs; /* elements, and how many packs of them can be read and written at once; the rest follows */
    uint32_t single;      /* bit i: input i is one value */
    double attrs[CT_CUDA_ATTRS]; /* in the order of the op's table */
    uint8_t given[CT_CUDA_ATTRS];
    unsigned char numbers[CT_CUDA_INPUTS][16];
} ct_cuda_flat;

/* With strides. It begins as the other does, which is what a launch of a kernel over dense operands takes of it. */
typedef struct ct_cuda_elementwise {
    ct_cuda_flat flat;
    int32_t ndim;
    uint32_t still; /* bit i: input i has one value along the last dimension */
    int64_t dims[CT_CUDA_DIMS];
    int64_t strides[CT_CUDA_INPUTS + 1][CT_CUDA_DIMS]; /* the output's, then the inputs' */
} ct_cuda_elementwise;

#ifndef __CUDACC__
#include <cotangent/backend.h>
bool ct_cuda_elementwise_start(void);                     /* false: no memory */
const ct_kernel *ct_cuda_elementwise_of(const ct_op *op); /* NULL: it is none */
#endif

#endif
