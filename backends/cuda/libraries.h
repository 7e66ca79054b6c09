/* The versions of the driver and of NVIDIA's libraries, for people. */
#ifndef COTANGENT_BACKENDS_CUDA_LIBRARIES_H
#define COTANGENT_BACKENDS_CUDA_LIBRARIES_H

#include <stddef.h>

void ct_cuda_driver_text(char *text, size_t room); /* "driver 580.95.05 (CUDA 13.0)" */
void ct_cuda_libraries(char *text, size_t room);   /* "cuBLASLt 13.1.0, no cuDNN, NVRTC 13.0, no NCCL" */

#endif
