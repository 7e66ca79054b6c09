// Sums of exponentials while the greatest element is not known yet (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018): the greatest so far and the sum of exp(x - greatest), which shrinks when a greater
// one comes. A NaN is no greatest element, but comes back in the sum; of -inf alone the sum is 0.
#pragma once

#include "backends/cuda/number.cuh"

// exp of a difference of elements of S: for halves with as many digits as the unit has, which are more than theirs.
template <typename S> struct ct_exponential {
    typedef typename ct_number<S>::type N;
    CT_DEVICE static N of(N x) { return ct_exp(x); }
};
struct ct_half_exponential {
    CT_DEVICE static float of(float x) { return ct_fast_exp2(x * 1.44269504f); }
};
template <> struct ct_exponential<__half> : ct_half_exponential {};
template <> struct ct_exponential<__nv_bfloat16> : ct_half_exponential {};

template <typename N> struct ct_level { N top, sum; };

template <typename N> CT_DEVICE ct_level<N> ct_no_level() {
    ct_level<N> level;
    level.top = -(N)INFINITY;
    level.sum = 0;
    return level;
}
template <typename N> CT_DEVICE N ct_finite_top(N top) { return top == -(N)INFINITY ? (N)0 : top; }

// With C more elements, get(0) to get(C - 1).
template <typename S, int C, typename N, typename G> CT_DEVICE void ct_raise_level(ct_level<N> &level, G get) {
    N top = level.top;
#pragma unroll
    for (int k = 0; k < C; k++) top = ct_fmax(top, get(k));
    if (top > level.top) {
        level.sum *= ct_exponential<S>::of(level.top - top);
        level.top = top;
    }
    const N from = ct_finite_top(level.top);
    N sum = 0;
#pragma unroll
    for (int k = 0; k < C; k++) sum += ct_exponential<S>::of(get(k) - from);
    level.sum += sum;
}
template <typename N> CT_DEVICE ct_level<N> ct_merge_levels(const ct_level<N> &a, const ct_level<N> &b) {
    ct_level<N> level;
    level.top = ct_fmax(a.top, b.top);
    const N from = ct_finite_top(level.top);
    level.sum = a.sum * ct_exp(a.top - from) + b.sum * ct_exp(b.top - from);
    return level;
}
