// A recurrence in one launch, as in persistent RNNs (Diamos and others, 2016): every block keeps its part of the recurrent weights in
// registers for all steps, 16 hidden units of them, and the blocks of 16 sequences tell each other what they computed through the L2.
// Sequences of different groups never meet. Products of f32 are made of three in TF32, which leaves out only what is below 2^-21:
//     a b = high(a) high(b) + high(a) low(b) + low(a) high(b)
#pragma once

#include "backends/cuda/mma.cuh"
#include "ops/rnn/cuda/barrier.cuh"
#include "ops/rnn/cuda/series.cuh"

// The high part is the nearest of 10 bits; the hardware does not look at the rest of the low one.
struct ct_parts {
    uint32_t high, low;
};
CT_DEVICE ct_parts ct_apart(float x) {
    const uint32_t high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    return {high, __float_as_uint(x - __uint_as_float(high)) + 0x1000u};
}

// Says to the compiler that the weights may have changed: else it keeps both parts of each, for which there are not enough registers.
template <int K, int N> CT_DEVICE void ct_rnn_hold(float (&w)[K][N][2]) {
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < N; n++) asm volatile("" : "+f"(w[k][n][0]), "+f"(w[k][n][1]));
}

// sum[n] += a b[n] for one step of 8 in k.
template <int N>
CT_DEVICE void ct_rnn_multiply(float (&sum)[N][4], const float (&a)[4], const float (&b)[N][2], bool fast) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const ct_parts x = ct_apart(a[e]);
        high[e] = x.high, low[e] = x.low;
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const ct_parts x = ct_apart(b[n][0]), y = ct_apart(b[n][1]);
        if (!fast) {
            ct_mma_tf32(sum[n], low, x.high, y.high);
            ct_mma_tf32(sum[n], high, x.low, y.low);
        }
        ct_mma_tf32(sum[n], high, x.high, y.high);
    }
}
