// Offsets of a walk, on the device.
#pragma once

#include "backends/cuda/walk.h"
#include "backends/cuda/words.cuh"

CT_DEVICE uint32_t ct_quotient(const ct_cuda_walk &walk, int d, uint32_t i) {
    return (__umulhi(i, walk.factor[d]) + i) >> walk.shift[d];
}

// One function for all: it would be copied into every unrolled loop.
static __device__ __noinline__ int64_t ct_offset_far(const ct_cuda_walk &walk, int which, int64_t index) {
    int64_t offset = 0;
    if (!walk.wide) {
        uint32_t rest = (uint32_t)index;
        for (int d = walk.ndim - 1; d > 0; d--) {
            const uint32_t whole = ct_quotient(walk, d, rest);
            offset += (int64_t)(rest - whole * (uint32_t)walk.dims[d]) * walk.strides[which][d];
            rest = whole;
        }
        return offset + (int64_t)rest * walk.strides[which][0];
    }
    for (int d = walk.ndim - 1; d > 0; d--) {
        const int64_t whole = index / walk.dims[d];
        offset += (index - whole * walk.dims[d]) * walk.strides[which][d];
        index = whole;
    }
    return offset + index * walk.strides[which][0];
}

// Where place `index` lies for operand `which`.
CT_DEVICE int64_t ct_offset(const ct_cuda_walk &walk, int which, int64_t index) {
    return walk.ndim == 1 ? index * walk.strides[which][0] : ct_offset_far(walk, which, index);
}
