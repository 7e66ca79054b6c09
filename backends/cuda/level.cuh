// Sums of exponentials while the greatest element is not known yet (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018):
// the greatest so far and the sum of exp(x - greatest), which shrinks when a greater one comes. A NaN is no greatest element, but comes
// back in the sum; of -inf alone the sum is 0.
#pragma once

#include "backends/cuda/words.cuh"

template <typename N> struct ct_level { N top, sum; };

template <typename N> CT_DEVICE ct_level<N> ct_no_level() {
    ct_level<N> level;
    level.top = -(N)INFINITY;
    level.sum = 0;
    return level;
}
template <typename N> CT_DEVICE N ct_finite_top(N top) { return top == -(N)INFINITY ? (N)0 : top; }

template <typename N, int C> CT_DEVICE void ct_raise_level(ct_level<N> &level, const N (&x)[C]) {
    N top = level.top;
#pragma unroll
    for (int k = 0; k < C; k++) top = ct_fmax(top, x[k]);
    if (top > level.top) {
        level.sum *= ct_exp(level.top - top);
        level.top = top;
    }
    const N from = ct_finite_top(level.top);
    N sum = 0;
#pragma unroll
    for (int k = 0; k < C; k++) sum += ct_exp(x[k] - from);
    level.sum += sum;
}
template <typename N> CT_DEVICE ct_level<N> ct_merge_levels(const ct_level<N> &a, const ct_level<N> &b) {
    ct_level<N> level;
    level.top = ct_fmax(a.top, b.top);
    const N from = ct_finite_top(level.top);
    level.sum = a.sum * ct_exp(a.top - from) + b.sum * ct_exp(b.top - from);
    return level;
}
