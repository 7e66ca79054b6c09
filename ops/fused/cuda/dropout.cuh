// Dropout in fused kernels, with the bits of ops/dropout/cuda.
#pragma once

#include "ops/fused/cuda/fused.cuh"
#include "ops/random/cuda/philox.cuh"

template <typename I> CT_DEVICE ct_position ct_position_at(const char *at, int64_t stride) {
    const I *numbers = (const I *)at;
    const ct_position position = {(uint64_t)(int64_t)numbers[0], (uint64_t)(int64_t)numbers[stride],
                                  (uint64_t)(int64_t)numbers[2 * stride]};
    return position;
}

// The words of V elements from e on: V is 1, or a multiple of 4 as e is then.
template <int V> struct ct_words {
    uint32_t v[V];
    CT_DEVICE ct_words(const ct_position &position, int64_t e) {
        uint32_t four[4];
        if constexpr (V == 1) {
            ct_philox(position, (uint64_t)e / 4, four);
            v[0] = four[e % 4];
        } else {
#pragma unroll
            for (int b = 0; b < V / 4; b++) {
                ct_philox(position, (uint64_t)e / 4 + b, four);
#pragma unroll
                for (int k = 0; k < 4; k++) v[4 * b + k] = four[k];
            }
        }
    }
};
