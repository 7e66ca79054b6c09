// Attention on Tensor Cores: rows of a head in shared memory, as operands of products, and back to global memory. D is the size of a head
// filled up with zeros.
#pragma once

#include "backends/cuda/mma.cuh"
#include "ops/attention/cuda/sdpa.cuh"

template <int D> CT_DEVICE constexpr int ct_row() { return D + CT_SDPA_PAD; }

// Rows first to first + N - 1 of a head with `rows` rows of `columns` elements; what lies outside is zero. Copies of 16 bytes
// are still on their way.
template <typename S, int D, int N>
CT_DEVICE void ct_take_rows(S *to, const ct_cuda_heads &x, const S *head, int first, int rows, int columns) {
    if (x.packed) {
        constexpr int CHUNKS = D / 8;
#pragma unroll
        for (int e = threadIdx.x; e < N * CHUNKS; e += CT_SDPA_THREADS) {
            const int r = e / CHUNKS, c = e % CHUNKS * 8;
            const bool there = first + r < rows && c < columns;
            ct_async_copy<16>(to + r * ct_row<D>() + c, there ? head + (first + r) * x.strides[2] + c : head, there);
        }
    } else {
#pragma unroll 1
        for (int e = threadIdx.x; e < N * D; e += CT_SDPA_THREADS) {
            const int r = e / D, c = e % D;
            const bool there = first + r < rows && c < columns;
            to[r * ct_row<D>() + c] = there ? head[(first + r) * x.strides[2] + c * x.strides[3]] : S(0.0f);
        }
    }
}

// The 16 rows at `at` as the first operands of products over columns 16 k to 16 k + 15.
template <typename S, int D> CT_DEVICE void ct_take_operand(uint32_t (&a)[4], const S *at, int k) {
    const int lane = threadIdx.x % 32;
    ct_load_matrices(a, at + (lane % 16) * ct_row<D>() + 16 * k + lane / 16 * 8);
}

// s += a x^T for N rows of x, in pairs of eight.
template <typename S, int D, int N>
CT_DEVICE void ct_multiply_rows(float (&s)[N / 8][4], const uint32_t (&a)[4], const S *x, int k) {
    const int lane = threadIdx.x % 32;
    const S *at = x + (lane % 8 + lane / 16 * 8) * ct_row<D>() + 16 * k + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t b[4];
        ct_load_matrices(b, at + 16 * n * ct_row<D>());
        ct_mma<S>(s[2 * n], a, b[0], b[1]);
        ct_mma<S>(s[2 * n + 1], a, b[2], b[3]);
    }
}

// sum += a x for the 16 rows of x from x on.
template <typename S, int D>
CT_DEVICE void ct_multiply_columns(float (&sum)[D / 8][4], const uint32_t (&a)[4], const S *x) {
    const int lane = threadIdx.x % 32;
    const S *at = x + (lane % 16) * ct_row<D>() + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t b[4];
        ct_load_matrices_transposed(b, at + 16 * n);
        ct_mma<S>(sum[2 * n], a, b[0], b[1]);
        ct_mma<S>(sum[2 * n + 1], a, b[2], b[3]);
    }
}

// Two neighbors of eight columns, as sums lie, become the first operand of a product over these 16.
template <typename S>
CT_DEVICE void ct_sums_to_operand(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
    a[0] = ct_pair<S>(low[0], low[1]);
    a[1] = ct_pair<S>(low[2], low[3]);
    a[2] = ct_pair<S>(high[0], high[1]);
    a[3] = ct_pair<S>(high[2], high[3]);
}

template <int N> CT_DEVICE void ct_clear(float (&x)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[n][e] = 0;
}

// The warp's 16 rows of sums, each times its factor, to rows first.. of a head, by way of 16 rows of shared memory of the warp's own.
template <typename S, int D>
CT_DEVICE void ct_put_rows(const ct_cuda_heads &x, S *head, S *buffer, const float (&sum)[D / 8][4], float factor,
                           float factor8, int first, int rows, int columns) {
    const int lane = threadIdx.x % 32;
    uint32_t *to = (uint32_t *)(buffer + lane / 4 * ct_row<D>() + lane % 4 * 2);
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        to[4 * n] = ct_pair<S>(sum[n][0] * factor, sum[n][1] * factor);
        to[4 * n + 4 * ct_row<D>()] = ct_pair<S>(sum[n][2] * factor8, sum[n][3] * factor8);
    }
    __syncwarp();
    if (x.packed) {
        constexpr int CHUNKS = D / 8;
#pragma unroll
        for (int e = lane; e < 16 * CHUNKS; e += 32) {
            const int r = e / CHUNKS, c = e % CHUNKS * 8;
            if (first + r < rows && c < columns)
                *(uint4 *)(head + (first + r) * x.strides[2] + c) = *(const uint4 *)(buffer + r * ct_row<D>() + c);
        }
    } else {
#pragma unroll 1
        for (int e = lane; e < 16 * D; e += 32) {
            const int r = e / D, c = e % D;
            if (first + r < rows && c < columns)
                head[(first + r) * x.strides[2] + c * x.strides[3]] = buffer[r * ct_row<D>() + c];
        }
    }
    __syncwarp();
}
