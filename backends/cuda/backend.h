/* The parts of the backend struct that lie in several files. */
#ifndef COTANGENT_BACKENDS_CUDA_BACKEND_H
#define COTANGENT_BACKENDS_CUDA_BACKEND_H

#include "backends/cuda/cuda.h"

extern const ct_backend ct_cuda_backend;

bool ct_cuda_start(char *why, size_t room); /* finds the devices */
bool ct_cuda_kernels_start(void);           /* makes the table of kernels; false: no memory */
const ct_kernel *ct_cuda_kernels_of(void *self, const ct_op *op);
/* n elements of 8 or 16 bytes. The context is current. */
bool ct_cuda_fill_wide(ct_cuda_device *device, int index, CUdeviceptr to, const void *pattern, size_t size, size_t n,
                       CUstream stream);
/* The kernel that does so, of elements of any size up to 16 bytes; NULL after an error. The context is current. */
CUfunction ct_cuda_fill_function(ct_cuda_device *device, int index);
void ct_cuda_prepare(void *self, const ct_call *const *calls, int n, bool *ready); /* ops/fused/cuda/fused.c */

#endif
