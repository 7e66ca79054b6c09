// Elements chosen along one axis. Where neighbours are chosen together, as in rows, an element is up to 16 bytes of them.
#include "ops/index/cuda/gather.h"

#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"

template <typename T> CT_DEVICE void gather(const ct_cuda_gather &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[3];
        ct_nest_place(a.nest, e, at);
        const int64_t k = ct_index_at(a.index, a.wide, at[2]);
        if ((uint64_t)k >= (uint64_t)a.bound) {
            int64_t all[4];
            ct_nest_place(a.nest, e, all);
            ct_wrong_index(a.head, a.argument, all[3], k, a.bound);
        } else if (a.to) {
            ((T *)a.to)[at[0]] = ((const T *)a.from)[at[1] + k * a.along];
        }
    }
}

extern "C" __global__ void gather_1(const __grid_constant__ ct_cuda_gather a) { gather<uint8_t>(a); }
extern "C" __global__ void gather_2(const __grid_constant__ ct_cuda_gather a) { gather<uint16_t>(a); }
extern "C" __global__ void gather_4(const __grid_constant__ ct_cuda_gather a) { gather<uint32_t>(a); }
extern "C" __global__ void gather_8(const __grid_constant__ ct_cuda_gather a) { gather<uint64_t>(a); }
extern "C" __global__ void gather_16(const __grid_constant__ ct_cuda_gather a) { gather<uint4>(a); }
