/* Copies between the host and a device, through memory that is pinned. */
#ifndef COTANGENT_BACKENDS_CUDA_STAGING_H
#define COTANGENT_BACKENDS_CUDA_STAGING_H

#include "backends/cuda/cuda.h"

/* The context is current. The host's memory has been read when ct_cuda_upload returns, and written when ct_cuda_download does. */
bool ct_cuda_upload(ct_cuda_device *device, int index, CUdeviceptr to, const void *host, size_t bytes, CUstream stream);
bool ct_cuda_download(ct_cuda_device *device, int index, void *host, CUdeviceptr from, size_t bytes, CUstream stream);

#endif
