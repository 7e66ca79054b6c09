// Elements as numbers, where no formula is computed: in reductions, scans and orders.
#pragma once

#include "backends/cuda/words.cuh"

// What an element is compared in: floats, and integers of whole words.
template <typename S> struct ct_number {
    typedef int32_t type;
};
template <> struct ct_number<float> {
    typedef float type;
};
template <> struct ct_number<__half> {
    typedef float type;
};
template <> struct ct_number<__nv_bfloat16> {
    typedef float type;
};
template <> struct ct_number<double> {
    typedef double type;
};
template <> struct ct_number<int64_t> {
    typedef int64_t type;
};
CT_DEVICE float ct_number_of(__half x) { return __half2float(x); }
CT_DEVICE float ct_number_of(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename S> CT_DEVICE typename ct_number<S>::type ct_number_of(S x) { return x; }
template <typename S, typename N> CT_DEVICE S ct_stored(N x) { return (S)x; }
template <> CT_DEVICE __half ct_stored(float x) { return __float2half_rn(x); }
template <> CT_DEVICE __nv_bfloat16 ct_stored(float x) { return __float2bfloat16_rn(x); }
template <> CT_DEVICE __half ct_stored(double x) { return __float2half_rn((float)x); }
template <> CT_DEVICE __nv_bfloat16 ct_stored(double x) { return __float2bfloat16_rn((float)x); }
