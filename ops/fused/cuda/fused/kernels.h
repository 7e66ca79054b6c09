/* Kernels that are compiled for fused calls: found by their text, in memory, in a file, or by compiling them. */
#ifndef COTANGENT_OPS_FUSED_CUDA_KERNELS_H
#define COTANGENT_OPS_FUSED_CUDA_KERNELS_H

#include "backends/cuda/cuda.h"
#include "ops/fused/cuda/fused/text.h"

typedef struct ct_fused_kernel ct_fused_kernel;

/* The one for a call, whether or not it is compiled yet; NULL: out of memory. It lives as long as the process. */
ct_fused_kernel *ct_fused_kernel_of(const ct_call *call);
int ct_fused_kernel_pack(const ct_fused_kernel *kernel);
uint64_t ct_fused_kernel_in_packs(const ct_fused_kernel *kernel);
const ct_fused_rows *ct_fused_kernel_rows(const ct_fused_kernel *kernel);
/* Compiles what is not there yet, several at once. After it each is there, or cannot be had. */
void ct_fused_compile(ct_fused_kernel *const *kernels, int n);
bool ct_fused_is_there(ct_fused_kernel *kernel);
/* Its function on the call's device, or the one that sums over parts, where it is there; NULL after an error. The context is current. */
CUfunction ct_fused_function(ct_fused_kernel *kernel, const ct_call *call, ct_cuda_device *device, bool total);

#endif
