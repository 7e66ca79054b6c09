// Where the i-th element of a nest lies in its operands.
#pragma once

#include "backends/cuda/nest.h"
#include "backends/cuda/words.cuh"

// at[k] = the place of element e in operand k, for the first N operands.
template <int N> CT_DEVICE void ct_nest_place(const ct_cuda_nest &nest, int64_t e, int64_t (&at)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = 0;
#pragma unroll 1
    for (int d = nest.ndim - 1; d > 0; d--) {
        int64_t next, i;
        if (nest.small) {
            const uint32_t n = (uint32_t)e, q = (__umulhi(n, nest.multipliers[d]) + n) >> nest.shifts[d];
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

// Of an index, i32 or i64, element `at`.
CT_DEVICE int64_t ct_index_at(const char *index, int wide, int64_t at) {
    return wide ? ((const int64_t *)index)[at] : (int64_t)((const int32_t *)index)[at];
}

CT_DEVICE int64_t ct_first() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
CT_DEVICE int64_t ct_step() { return (int64_t)gridDim.x * blockDim.x; }
CT_DEVICE bool ct_does_nothing(const ct_cuda_head &head) {
    return head.lasting && *(volatile uint32_t *)&head.word->set;
}
