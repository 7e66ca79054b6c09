// Memory filled with elements of up to 16 bytes.
#include "backends/cuda/fill.h"

extern "C" __global__ void fill_wide(const __grid_constant__ ct_cuda_fill_arguments a) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step)
        for (int k = 0; k < a.size; k++) a.to[i * a.size + k] = a.pattern[k];
}
