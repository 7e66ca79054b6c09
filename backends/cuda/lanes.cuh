// What the threads of a group tell each other.
#pragma once

#include "backends/cuda/words.cuh"

template <typename T> CT_DEVICE T ct_from_lane(T x, int distance) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    uint32_t words[sizeof(T) / 4];
    memcpy(words, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++) words[i] = __shfl_xor_sync(0xffffffffu, words[i], distance);
    memcpy(&x, words, sizeof x);
    return x;
}

// x of all threads of a group merged, the same bits in each of them. A group is a power of two of threads up to a warp, or
// the block. merge(a, b) does not depend on the order of its arguments.
template <typename T, typename F> CT_DEVICE T ct_merge_group(T x, int lanes, F merge) {
    for (int distance = (lanes < 32 ? lanes : 32) / 2; distance; distance /= 2) x = merge(x, ct_from_lane(x, distance));
    if (lanes <= 32) return x;
    __shared__ T warps[32];
    __syncthreads(); // what was there before has been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[threadIdx.x & (lanes / 32 - 1)];
    for (int distance = lanes / 64; distance; distance /= 2) x = merge(x, ct_from_lane(x, distance));
    return x;
}

template <typename N> CT_DEVICE N ct_sum_group(N x, int lanes) {
    return ct_merge_group(x, lanes, [](N a, N b) { return a + b; });
}
