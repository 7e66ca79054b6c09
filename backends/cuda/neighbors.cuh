// Packs of neighbors in memory, loaded and stored at once.
#pragma once

#include "backends/cuda/number.cuh"

// V neighbors as they lie in memory, and as numbers. Halves go in pairs: apart, each would take a register.
template <typename S, int V> struct alignas(sizeof(S) * V > 16 ? 16 : sizeof(S) * V) ct_neighbors {
    typedef typename ct_number<S>::type C;
    S v[V];
    CT_DEVICE void numbers(C (&x)[V]) const {
#pragma unroll
        for (int k = 0; k < V; k++) x[k] = ct_number_of(v[k]);
    }
    CT_DEVICE void store(const C (&x)[V]) {
#pragma unroll
        for (int k = 0; k < V; k++) v[k] = ct_stored<S>(x[k]);
    }
};
CT_DEVICE void ct_pair_numbers(__half2 pair, float *x) {
    const float2 both = __half22float2(pair);
    x[0] = both.x, x[1] = both.y;
}
CT_DEVICE void ct_pair_numbers(__nv_bfloat162 pair, float *x) {
    const float2 both = __bfloat1622float2(pair);
    x[0] = both.x, x[1] = both.y;
}
CT_DEVICE void ct_pair_store(__half2 &pair, const float *x) { pair = __floats2half2_rn(x[0], x[1]); }
CT_DEVICE void ct_pair_store(__nv_bfloat162 &pair, const float *x) { pair = __floats2bfloat162_rn(x[0], x[1]); }
template <typename PAIR, int V> struct alignas(2 * V) ct_half_neighbors {
    PAIR v[V / 2];
    CT_DEVICE void numbers(float (&x)[V]) const {
#pragma unroll
        for (int k = 0; k < V; k += 2) ct_pair_numbers(v[k / 2], x + k);
    }
    CT_DEVICE void store(const float (&x)[V]) {
#pragma unroll
        for (int k = 0; k < V; k += 2) ct_pair_store(v[k / 2], x + k);
    }
};
template <> struct ct_neighbors<__half, 8> : ct_half_neighbors<__half2, 8> {};
template <> struct ct_neighbors<__nv_bfloat16, 8> : ct_half_neighbors<__nv_bfloat162, 8> {};
template <> struct ct_neighbors<__half, 4> : ct_half_neighbors<__half2, 4> {};
template <> struct ct_neighbors<__nv_bfloat16, 4> : ct_half_neighbors<__nv_bfloat162, 4> {};
