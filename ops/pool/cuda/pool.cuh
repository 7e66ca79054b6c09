// What the kernels of pooling share: places of results, and windows along an axis.
#pragma once

#include "backends/cuda/neighbors.cuh"
#include "backends/cuda/nest.cuh"
#include "ops/pool/cuda/pool.h"

// ---- Places ----

struct place {
    int64_t n, c;
    int32_t s[3];
};

// Result e; with LAST its channels count in packs of V, else the elements of a row do.
template <bool LAST, int V> CT_DEVICE place place_of(const ct_cuda_pool &a, int64_t e) {
    int64_t at[5];
#pragma unroll
    for (int d = 4; d > 0; d--) {
        int64_t next;
        if (a.results.small) {
            const uint32_t n = (uint32_t)e, q = ct_quotient(a.results, d, n);
            next = q, at[d] = n - q * (uint32_t)a.results.sizes[d];
        } else {
            next = e / a.results.sizes[d], at[d] = e - next * a.results.sizes[d];
        }
        e = next;
    }
    if (LAST) return {e, at[4] * V, {(int32_t)at[1], (int32_t)at[2], (int32_t)at[3]}};
    return {e, at[1], {(int32_t)at[2], (int32_t)at[3], (int32_t)at[4] * V}};
}
CT_DEVICE int64_t base_of(const ct_cuda_image &s, const place &p) { return p.n * s.n + p.c * s.c; }
CT_DEVICE int64_t offset_of(const ct_cuda_image &s, const place &p) {
    return base_of(s, p) + p.s[0] * s.s[0] + p.s[1] * s.s[1] + p.s[2] * s.s[2];
}
CT_DEVICE int32_t over_stride(const ct_cuda_pool &a, int axis, int32_t n) { // n >= 0
    return (int32_t)ct_quotient(a.strides, axis, (uint32_t)n);
}

// ---- Windows ----

// The taps [first, end) of window o that lie inside of the input.
struct taps {
    int32_t start, first, end;
};
CT_DEVICE taps taps_of(const ct_cuda_pool &a, int axis, int32_t o) {
    const int32_t d = a.dilation[axis];
    taps t;
    t.start = o * a.stride[axis] - a.before[axis];
    t.first = t.start < 0 ? (d == 1 ? -t.start : (-t.start + d - 1) / d) : 0;
    const int32_t end = d == 1 ? a.in[axis] - t.start : (a.in[axis] - t.start + d - 1) / d;
    t.end = min(end, a.kernel[axis]);
    return t;
}

// How many elements along an axis the mean of window o counts.
CT_DEVICE int32_t count_of(const ct_cuda_pool &a, int axis, int32_t o) {
    const int32_t start = o * a.stride[axis] - a.before[axis], end = start + a.kernel[axis],
                  limit = a.in[axis] + (a.exclude_pad ? 0 : a.after[axis]);
    return min(end, limit) - (a.exclude_pad && start < 0 ? 0 : start);
}

// The windows [first, end) that elements i to i + n - 1 of an axis may be in.
struct windows {
    int32_t first, end;
};
CT_DEVICE windows windows_of(const ct_cuda_pool &a, int axis, int32_t i, int32_t n) {
    const int32_t low = i + a.before[axis] - (a.kernel[axis] - 1) * a.dilation[axis];
    windows w;
    w.first = low <= 0 ? 0 : over_stride(a, axis, low + a.stride[axis] - 1);
    w.end = min(over_stride(a, axis, i + n - 1 + a.before[axis]) + 1, a.out[axis]);
    return w;
}
// Which tap of window o element i is, or -1.
CT_DEVICE int32_t tap_of(const ct_cuda_pool &a, int axis, int32_t o, int32_t i) {
    const int32_t away = i + a.before[axis] - o * a.stride[axis], d = a.dilation[axis];
    if (d == 1) return away;
    return away % d ? -1 : away / d;
}

CT_DEVICE int64_t tap_at(const ct_cuda_pool &a, int64_t at) {
    return a.at_size == 1 ? ((const uint8_t *)a.at)[at]
                          : a.at_size == 4 ? ((const int32_t *)a.at)[at] : ((const int64_t *)a.at)[at];
}
CT_DEVICE void set_tap(const ct_cuda_pool &a, int64_t at, int32_t tap) {
    if (a.at_size == 1) ((uint8_t *)a.at)[at] = (uint8_t)tap;
    else ((int32_t *)a.at)[at] = tap;
}

// Results of V channels to neighbors, or one by one.
template <typename S, int V>
CT_DEVICE void store_all(S *to, int64_t step, bool packed, const typename ct_number<S>::type (&x)[V]) {
    if (packed) {
        ct_neighbors<S, V> all;
        all.store(x);
        *(ct_neighbors<S, V> *)to = all;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) to[k * step] = ct_stored<S>(x[k]);
    }
}

// Taps of V channels, a byte each.
template <int V> struct alignas(V) tap_bytes { uint8_t v[V]; };
template <int V> CT_DEVICE void store_taps(char *to, const int32_t (&tap)[V]) {
    tap_bytes<V> all;
#pragma unroll
    for (int k = 0; k < V; k++) all.v[k] = (uint8_t)tap[k];
    *(tap_bytes<V> *)to = all;
}
template <int V> CT_DEVICE void load_taps(const char *from, int32_t (&tap)[V]) {
    const tap_bytes<V> all = *(const tap_bytes<V> *)from;
#pragma unroll
    for (int k = 0; k < V; k++) tap[k] = all.v[k];
}
