// Where the i-th element of a nest lies in its operands.
#pragma once

#include "backends/cuda/nest.h"
#include "backends/cuda/thread.cuh"

CT_DEVICE uint32_t ct_quotient(const ct_cuda_nest &nest, int d, uint32_t n) {
    return (__umulhi(n, nest.multipliers[d]) + n) >> nest.shifts[d];
}

// at[k] = the place of element e in operand k, for the first N operands.
template <int N> CT_DEVICE void ct_nest_place(const ct_cuda_nest &nest, int64_t e, int64_t (&at)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = 0;
#pragma unroll 1
    for (int d = nest.ndim - 1; d > 0; d--) {
        int64_t next, i;
        if (nest.small) {
            const uint32_t n = (uint32_t)e, q = ct_quotient(nest, d, n);
            next = q, i = n - q * (uint32_t)nest.sizes[d];
        } else {
            next = e / nest.sizes[d], i = e - next * nest.sizes[d];
        }
#pragma unroll
        for (int k = 0; k < N; k++) at[k] += i * nest.strides[k][d];
        e = next;
    }
#pragma unroll
    for (int k = 0; k < N; k++) at[k] += e * nest.strides[k][0];
}

// The place of element e in one operand. One function for all: it would be copied into every unrolled loop.
static __device__ __noinline__ int64_t ct_offset_far(const ct_cuda_nest &nest, int which, int64_t e) {
    int64_t offset = 0;
    if (nest.small) {
        uint32_t rest = (uint32_t)e;
        for (int d = nest.ndim - 1; d > 0; d--) {
            const uint32_t whole = ct_quotient(nest, d, rest);
            offset += (int64_t)(rest - whole * (uint32_t)nest.sizes[d]) * nest.strides[which][d];
            rest = whole;
        }
        return offset + (int64_t)rest * nest.strides[which][0];
    }
    for (int d = nest.ndim - 1; d > 0; d--) {
        const int64_t whole = e / nest.sizes[d];
        offset += (e - whole * nest.sizes[d]) * nest.strides[which][d];
        e = whole;
    }
    return offset + e * nest.strides[which][0];
}
CT_DEVICE int64_t ct_offset(const ct_cuda_nest &nest, int which, int64_t e) {
    return nest.ndim == 1 ? e * nest.strides[which][0] : ct_offset_far(nest, which, e);
}

// Of an index, i32 or i64, element `at`.
CT_DEVICE int64_t ct_index_at(const char *index, int wide, int64_t at) {
    return wide ? ((const int64_t *)index)[at] : (int64_t)((const int32_t *)index)[at];
}
