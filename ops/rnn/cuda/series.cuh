// Elements of what a recurrence reads and writes, and lengths.
#pragma once

#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"
#include "ops/rnn/cuda/cells.cuh"
#include "ops/rnn/cuda/recurrence.h"

template <typename C> CT_DEVICE C *ct_rnn_at(const ct_cuda_series &x, int64_t i, int64_t j = 0, int64_t k = 0) {
    return (C *)x.data + i * x.strides[0] + j * x.strides[1] + k * x.strides[2];
}
template <typename C>
CT_DEVICE C ct_rnn_number(const ct_cuda_series &x, bool there, int64_t i, int64_t j = 0, int64_t k = 0) {
    return there && x.data ? *ct_rnn_at<C>(x, i, j, k) : C(0);
}
template <typename C>
CT_DEVICE void ct_rnn_put(const ct_cuda_series &x, C value, int64_t i, int64_t j = 0, int64_t k = 0) {
    if (x.data) *ct_rnn_at<C>(x, i, j, k) = value;
}

// The length of a sequence, one that is wrong being noted where `reports`.
CT_DEVICE int ct_rnn_length(const ct_cuda_recurrence &p, int row, bool reports) {
    if (!p.lengths || row >= p.n) return p.steps;
    const int64_t n = ct_index_at(p.lengths, p.lengths_wide, row * p.lengths_stride);
    if (n >= 0 && n <= p.steps) return (int)n;
    const ct_cuda_head head = p.head; // a copy, since all that is passed by its address has to lie in memory
    if (reports) ct_wrong_index(head, p.lengths_argument, row, n, (int64_t)p.steps + 1);
    return n < 0 ? 0 : p.steps;
}
