// A recurrence in one launch, as in persistent RNNs (Diamos and others, 2016): every block keeps its part of the recurrent weights in
// registers for all steps, 16 hidden units of them, and the blocks of 16 sequences tell each other what they computed through the L2.
// Sequences of different groups never meet. Products of f32 are made of three in TF32, which leaves out only what is below 2^-21:
//     a b = high(a) high(b) + high(a) low(b) + low(a) high(b)
#pragma once

#include "backends/cuda/mma.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"
#include "ops/rnn/cells.h"
#include "ops/rnn/cuda/barrier.cuh"
#include "ops/rnn/cuda/recurrence.h"

template <typename S> CT_DEVICE S *ct_rnn_at(const ct_cuda_series &x, int64_t i, int64_t j = 0, int64_t k = 0) {
    return (S *)x.data + i * x.strides[0] + j * x.strides[1] + k * x.strides[2];
}
template <typename S> CT_DEVICE float ct_rnn_number(const ct_cuda_series &x, bool there, int64_t i, int64_t j = 0, int64_t k = 0) {
    return there && x.data ? ct_load<float>(*ct_rnn_at<S>(x, i, j, k)) : 0.0f;
}
template <typename S> CT_DEVICE void ct_rnn_put(const ct_cuda_series &x, float value, int64_t i, int64_t j = 0, int64_t k = 0) {
    if (x.data) *ct_rnn_at<S>(x, i, j, k) = ct_store<S>(value);
}

// Halves are exact in TF32.
template <typename S> struct ct_rnn_exact { static constexpr bool value = true; };
template <> struct ct_rnn_exact<float> { static constexpr bool value = false; };

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
template <typename S, int N>
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
        if (!ct_rnn_exact<S>::value && !fast) {
            ct_mma_tf32(sum[n], low, x.high, y.high);
            ct_mma_tf32(sum[n], high, x.low, y.low);
        }
        ct_mma_tf32(sum[n], high, x.high, y.high);
    }
}

// The length of a sequence, the first block of its group reporting one that is wrong.
CT_DEVICE int ct_rnn_length(const ct_cuda_recurrence &p, int row, bool reports) {
    if (!p.lengths || row >= p.n) return p.steps;
    const int64_t n = ct_index_at(p.lengths, p.lengths_wide, row * p.lengths_stride);
    if (n >= 0 && n <= p.steps) return (int)n;
    const ct_cuda_head head = p.head; // a copy, since all that is passed by its address has to lie in memory
    if (reports) ct_wrong_index(head, p.lengths_argument, row, n, (int64_t)p.steps + 1);
    return n < 0 ? 0 : p.steps;
}
