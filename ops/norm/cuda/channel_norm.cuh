// What the kernels of channel_norm share: vectors of any dtype, and coefficients.
#pragma once

#include "backends/cuda/lanes.cuh"
#include "backends/cuda/neighbors.cuh"
#include "backends/cuda/thread.cuh"
#include "ops/norm/cuda/channel_norm.h"
#include <cotangent.h>

CT_DEVICE double ct_vector_at(const ct_cuda_vector &v, int64_t i, double otherwise) {
    if (!v.data) return otherwise;
    switch (v.dtype) {
    case CT_F32: return ((const float *)v.data)[i];
    case CT_F64: return ((const double *)v.data)[i];
    case CT_F16: return __half2float(((const __half *)v.data)[i]);
    default: return __bfloat162float(((const __nv_bfloat16 *)v.data)[i]);
    }
}
CT_DEVICE void ct_vector_set(const ct_cuda_vector &v, int64_t i, double x) {
    if (!v.data) return;
    switch (v.dtype) {
    case CT_F32: ((float *)v.data)[i] = (float)x; break;
    case CT_F64: ((double *)v.data)[i] = x; break;
    case CT_F16: ((__half *)v.data)[i] = ct_stored<__half>(x); break;
    default: ((__nv_bfloat16 *)v.data)[i] = ct_stored<__nv_bfloat16>(x);
    }
}

// ---- Coefficients ----

template <typename C> CT_DEVICE C *ct_coefficient(const ct_cuda_channels &a, int k, int64_t item) {
    const int64_t rows = a.batch ? 1 : a.items;
    return (C *)a.coefficients + (k * rows + (a.batch ? 0 : item)) * a.channels;
}
CT_DEVICE int64_t ct_set_of(const ct_cuda_channels &a, int64_t item, int64_t channel) {
    return a.batch ? channel : item * a.groups + channel / a.members;
}

// y = (x - m) scale + shift
template <typename C> struct ct_forward_coefficients { C m, scale, shift; };
template <typename C>
CT_DEVICE ct_forward_coefficients<C> ct_forward_of(const ct_cuda_channels &a, double mean, double rstd, int64_t c) {
    ct_forward_coefficients<C> by;
    const double scale = rstd * ct_vector_at(a.weight, c, 1);
    by.m = (C)mean;
    by.scale = (C)scale;
    by.shift = (C)(ct_vector_at(a.bias, c, 0) - (mean - (double)by.m) * scale);
    return by;
}

// dx = (g - middle) of_g + (x - m) of_x + of_1. With h = g weight and means over a set it is rstd (h - mean(h) - xhat mean(h xhat)) +
// g_mean / count + 2 g_var (x - mean) / count. The difference comes before the factor rstd, which may be large and is rounded; what
// mean(h) / weight loses in rounding goes into of_1, and all of it where weight is (nearly) 0.
template <typename C> struct ct_backward_coefficients { C m, of_g, of_x, of_1, middle; };
struct ct_set_sums {
    double g, product, rest; // of h, of h (x - m), of x - m
    double rstd, projection, shift;
};
// From the sums of a set, all but what a channel's weight changes.
CT_DEVICE void ct_settle_sums(const ct_cuda_channels &a, int64_t set, ct_set_sums &s) {
    if (a.fixed) { // dx is g weight rstd
        s.g = s.rest = s.projection = s.shift = 0;
        return;
    }
    s.rest *= a.share;
    s.projection = (2 * ct_vector_at(a.g_var, set, 0) - s.rstd * s.rstd * s.rstd * (s.product - s.rest * s.g)) * a.share;
    s.shift = ct_vector_at(a.g_mean, set, 0) * a.share - s.projection * s.rest;
}
template <typename C>
CT_DEVICE ct_backward_coefficients<C> ct_backward_of(const ct_cuda_channels &a, const ct_set_sums &s, C m, int64_t c) {
    ct_backward_coefficients<C> by;
    const double w = ct_vector_at(a.weight, c, 1), by_w = s.g * a.share / w;
    const bool divides = fabs(by_w) < 1e30;
    by.m = m;
    by.of_g = (C)(s.rstd * w);
    by.of_x = (C)s.projection;
    by.middle = divides ? (C)by_w : (C)0;
    by.of_1 = (C)(s.shift - (divides ? s.rstd * w * (by_w - (double)by.middle) : s.rstd * s.g * a.share));
    return by;
}
CT_DEVICE double ct_rstd_of(const ct_cuda_channels &a, int64_t set) {
    return 1 / sqrt(ct_vector_at(a.var, set, 0) + a.eps);
}

// ---- relu ----

template <typename C> CT_DEVICE C ct_relu_of(C x) { return x <= 0 ? (C)0 : x; }
