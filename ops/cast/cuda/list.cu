// Conversions of f32 to halves, several tensors in one launch: the weights of a network at the beginning of a step.
#include "ops/cast/cuda/list.h"

#include "backends/cuda/number.cuh"
#include "backends/cuda/thread.cuh"

// The last item that begins at or before a chunk.
CT_DEVICE int item_of(const ct_cuda_cast_list &a, uint32_t chunk) {
    int low = 0, high = a.items;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (a.first[middle] <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

template <typename S> struct alignas(16) halves { S v[8]; };

template <typename S> CT_DEVICE void cast_chunk(const float *from, S *to, uint32_t n) {
    enum { PACK = 8, EACH = CT_CAST_CHUNK / PACK / CT_CAST_THREADS };
    const bool aligned = ((uintptr_t)from | (uintptr_t)to) % 16 == 0;
    const uint32_t packs = aligned ? n / PACK : 0;
    float4 in[EACH][2];
#pragma unroll
    for (int i = 0; i < EACH; i++) { // all loads before the first store
        const uint32_t p = threadIdx.x + i * CT_CAST_THREADS;
        if (p < packs) in[i][0] = ((const float4 *)from)[2 * p], in[i][1] = ((const float4 *)from)[2 * p + 1];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t p = threadIdx.x + i * CT_CAST_THREADS;
        if (p >= packs) continue;
        halves<S> out;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            out.v[4 * k] = ct_stored<S>(in[i][k].x), out.v[4 * k + 1] = ct_stored<S>(in[i][k].y);
            out.v[4 * k + 2] = ct_stored<S>(in[i][k].z), out.v[4 * k + 3] = ct_stored<S>(in[i][k].w);
        }
        ((halves<S> *)to)[p] = out;
    }
    for (uint32_t e = packs * PACK + threadIdx.x; e < n; e += CT_CAST_THREADS) to[e] = ct_stored<S>(from[e]);
}

template <typename S> CT_DEVICE void cast_list(const ct_cuda_cast_list &a) {
    if (ct_does_nothing(a.head)) return;
    for (uint32_t chunk = blockIdx.x; chunk < a.chunks; chunk += gridDim.x) {
        const int item = item_of(a, chunk);
        const uint32_t at = (chunk - a.first[item]) * CT_CAST_CHUNK, left = a.count[item] - at;
        cast_chunk((const float *)a.from[item] + at, (S *)a.to[item] + at, left < CT_CAST_CHUNK ? left : CT_CAST_CHUNK);
    }
}

extern "C" __global__ void __launch_bounds__(CT_CAST_THREADS)
    cast_list_f16(const __grid_constant__ ct_cuda_cast_list a) {
    cast_list<__half>(a);
}
extern "C" __global__ void __launch_bounds__(CT_CAST_THREADS)
    cast_list_bf16(const __grid_constant__ ct_cuda_cast_list a) {
    cast_list<__nv_bfloat16>(a);
}
