// Device code of max and average pooling and of their gradients. A thread makes one result, or a pack of neighbors: with channels as the
// innermost dimension a pack of channels (LAST), else one window, and of a gradient a few elements of a row. Gradients are gathered: an
// element looks for the windows that it is in, in their order, so nothing is added to memory.
#include "backends/cuda/nest.cuh"
#include "backends/cuda/number.cuh"
#include "ops/pool/cuda/pool.h"

template <typename T, int V> struct alignas(sizeof(T) * V > 16 ? 16 : sizeof(T) * V) ct_elements { T v[V]; };

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

// V neighbors `step` apart, in one access where they are aligned.
template <typename S, int V> CT_DEVICE void load(const S *from, int64_t step, bool packed, S (&x)[V]) {
    if (packed) {
        const ct_elements<S, V> all = *(const ct_elements<S, V> *)from;
#pragma unroll
        for (int k = 0; k < V; k++) x[k] = all.v[k];
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) x[k] = from[k * step];
    }
}

// ---- Forward ----

template <typename S, bool LAST, int V> CT_DEVICE void max_windows(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<LAST, V>(a, e);
        const S *x = (const S *)a.from + base_of(a.from_s, p);
        const taps t0 = taps_of(a, 0, p.s[0]), t1 = taps_of(a, 1, p.s[1]), t2 = taps_of(a, 2, p.s[2]);
        C best[V];
        int32_t tap[V];
        const int32_t first = (t0.first * a.kernel[1] + t1.first) * a.kernel[2] + t2.first;
#pragma unroll
        for (int k = 0; k < V; k++) best[k] = -(C)INFINITY, tap[k] = first;
        for (int32_t k0 = t0.first; k0 < t0.end; k0++)
            for (int32_t k1 = t1.first; k1 < t1.end; k1++) {
                const S *row = x + (t0.start + k0 * a.dilation[0]) * a.from_s.s[0] +
                               (t1.start + k1 * a.dilation[1]) * a.from_s.s[1];
                const int32_t number = (k0 * a.kernel[1] + k1) * a.kernel[2];
#pragma unroll 4
                for (int32_t k2 = t2.first; k2 < t2.end; k2++) {
                    S loaded[V];
                    load(row + (t2.start + k2 * a.dilation[2]) * a.from_s.s[2], a.from_s.c, a.packed, loaded);
#pragma unroll
                    for (int k = 0; k < V; k++) { // of equals the first wins, and NaN over numbers
                        const C v = ct_number_of(loaded[k]);
                        const bool wins = v > best[k] || (v != v && best[k] == best[k]);
                        best[k] = wins ? v : best[k];
                        tap[k] = wins ? number + k2 : tap[k];
                    }
                }
            }
        S *y = (S *)a.to + offset_of(a.to_s, p);
        if (V > 1 && a.packed) {
            ct_elements<S, V> packed;
#pragma unroll
            for (int k = 0; k < V; k++) packed.v[k] = ct_stored<S>(best[k]);
            *(ct_elements<S, V> *)y = packed;
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) y[k * a.to_s.c] = ct_stored<S>(best[k]);
        }
        if (!a.at) continue;
        const int64_t at = offset_of(a.at_s, p);
        if (V > 1 && a.at_packed) {
            ct_elements<uint8_t, V> packed;
#pragma unroll
            for (int k = 0; k < V; k++) packed.v[k] = (uint8_t)tap[k];
            *(ct_elements<uint8_t, V> *)(a.at + at) = packed;
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) set_tap(a, at + k * a.at_s.c, tap[k]);
        }
    }
}

template <typename S, bool LAST, int V> CT_DEVICE void mean_windows(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<LAST, V>(a, e);
        const S *x = (const S *)a.from + base_of(a.from_s, p);
        const taps t0 = taps_of(a, 0, p.s[0]), t1 = taps_of(a, 1, p.s[1]), t2 = taps_of(a, 2, p.s[2]);
        C sum[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = 0;
        for (int32_t k0 = t0.first; k0 < t0.end; k0++)
            for (int32_t k1 = t1.first; k1 < t1.end; k1++) {
                const S *row = x + (t0.start + k0) * a.from_s.s[0] + (t1.start + k1) * a.from_s.s[1];
                C line[V]; // rows by themselves: fewer digits are lost in a long sum
#pragma unroll
                for (int k = 0; k < V; k++) line[k] = 0;
#pragma unroll 4
                for (int32_t k2 = t2.first; k2 < t2.end; k2++) {
                    S loaded[V];
                    load(row + (t2.start + k2) * a.from_s.s[2], a.from_s.c, a.packed, loaded);
#pragma unroll
                    for (int k = 0; k < V; k++) line[k] += ct_number_of(loaded[k]);
                }
#pragma unroll
                for (int k = 0; k < V; k++) sum[k] += line[k];
            }
        const C divisor = a.divisor ? (C)a.divisor
                                    : (C)count_of(a, 0, p.s[0]) * (C)count_of(a, 1, p.s[1]) * (C)count_of(a, 2, p.s[2]);
        S *y = (S *)a.to + offset_of(a.to_s, p);
        if (V > 1 && a.packed) {
            ct_elements<S, V> packed;
#pragma unroll
            for (int k = 0; k < V; k++) packed.v[k] = ct_stored<S>(sum[k] / divisor);
            *(ct_elements<S, V> *)y = packed;
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) y[k * a.to_s.c] = ct_stored<S>(sum[k] / divisor);
        }
    }
}

// ---- Gradients ----

// V elements of a row, or V channels of one.
template <typename S, bool MAX, bool LAST, int V> CT_DEVICE void gather(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<LAST, V>(a, e);
        const int64_t g_base = base_of(a.from_s, p), at_base = MAX ? base_of(a.at_s, p) : 0;
        const windows w0 = windows_of(a, 0, p.s[0], 1), w1 = windows_of(a, 1, p.s[1], 1),
                      w2 = windows_of(a, 2, p.s[2], LAST ? 1 : V);
        C sum[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = 0;
        for (int32_t o0 = w0.first; o0 < w0.end; o0++) {
            const int32_t k0 = tap_of(a, 0, o0, p.s[0]);
            if (k0 < 0) continue;
            for (int32_t o1 = w1.first; o1 < w1.end; o1++) {
                const int32_t k1 = tap_of(a, 1, o1, p.s[1]), number = (k0 * a.kernel[1] + k1) * a.kernel[2];
                if (k1 < 0) continue;
                const int64_t g_row = g_base + o0 * a.from_s.s[0] + o1 * a.from_s.s[1],
                              at_row = MAX ? at_base + o0 * a.at_s.s[0] + o1 * a.at_s.s[1] : 0;
                const C count = MAX || a.divisor ? (C)a.divisor : (C)count_of(a, 0, o0) * (C)count_of(a, 1, o1);
                for (int32_t o2 = w2.first; o2 < w2.end; o2++) {
                    const S *g = (const S *)a.from + g_row + o2 * a.from_s.s[2];
                    const int64_t at = at_row + (MAX ? o2 * a.at_s.s[2] : 0);
                    if (LAST) {
                        S loaded[V];
                        const int32_t k2 = tap_of(a, 2, o2, p.s[2]);
                        if (k2 < 0) continue;
                        load(g, a.from_s.c, a.packed, loaded);
                        if (MAX) {
                            if (a.at_packed) {
                                uint8_t won[V];
                                load((const uint8_t *)a.at + at, 1, true, won);
#pragma unroll
                                for (int k = 0; k < V; k++)
                                    sum[k] += won[k] == number + k2 ? ct_number_of(loaded[k]) : (C)0;
                            } else {
#pragma unroll
                                for (int k = 0; k < V; k++)
                                    sum[k] += tap_at(a, at + k * a.at_s.c) == number + k2 ? ct_number_of(loaded[k]) : (C)0;
                            }
                        } else {
                            const C divisor = a.divisor ? count : count * (C)count_of(a, 2, o2);
#pragma unroll
                            for (int k = 0; k < V; k++) sum[k] += ct_number_of(loaded[k]) / divisor;
                        }
                    } else if (MAX) { // the tap of this row that won, if any
                        const int64_t k2 = tap_at(a, at) - number;
                        if (k2 < 0 || k2 >= a.kernel[2]) continue;
                        const int32_t i = o2 * a.stride[2] - a.before[2] + (int32_t)k2 * a.dilation[2] - p.s[2];
                        const C x = ct_number_of(*g);
#pragma unroll
                        for (int k = 0; k < V; k++) sum[k] += i == k ? x : (C)0;
                    } else {
                        const int32_t i = o2 * a.stride[2] - a.before[2] - p.s[2];
                        const C x = ct_number_of(*g) / (a.divisor ? count : count * (C)count_of(a, 2, o2));
#pragma unroll
                        for (int k = 0; k < V; k++) sum[k] += k >= i && k < i + a.kernel[2] ? x : (C)0;
                    }
                }
            }
        }
        S *dx = (S *)a.to + offset_of(a.to_s, p);
        if (a.packed) {
            ct_elements<S, V> packed;
#pragma unroll
            for (int k = 0; k < V; k++) packed.v[k] = ct_stored<S>(sum[k]);
            *(ct_elements<S, V> *)dx = packed;
        } else {
            const int64_t step = LAST ? a.to_s.c : a.to_s.s[2];
#pragma unroll
            for (int k = 0; k < V; k++)
                if (LAST || p.s[2] + k < a.in[2]) dx[k * step] = ct_stored<S>(sum[k]);
        }
    }
}

// ---- Winners ----

// The place of the winner in the plane of x, or -1 for a tap that the kernel does not have.
CT_DEVICE int64_t winner_of(const ct_cuda_pool &a, const place &p, int64_t tap, int32_t (&s)[3]) {
    if (tap < 0 || tap >= (int64_t)a.kernel[0] * a.kernel[1] * a.kernel[2]) return -1;
    const int64_t k01 = tap / a.kernel[2], k0 = k01 / a.kernel[1];
    const int32_t k[3] = {(int32_t)k0, (int32_t)(k01 - k0 * a.kernel[1]), (int32_t)(tap - k01 * a.kernel[2])};
#pragma unroll
    for (int i = 0; i < 3; i++) s[i] = p.s[i] * a.stride[i] - a.before[i] + k[i] * a.dilation[i];
    return ((int64_t)s[0] * a.in[1] + s[1]) * a.in[2] + s[2];
}

extern "C" __global__ void __launch_bounds__(CT_POOL_THREADS) pool_places(const __grid_constant__ ct_cuda_pool a) {
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<false, 1>(a, e);
        int32_t s[3];
        ((int64_t *)a.to)[offset_of(a.to_s, p)] = winner_of(a, p, tap_at(a, offset_of(a.at_s, p)), s);
    }
}

// The elements that won, as words of their size.
template <typename W> CT_DEVICE void take_winners(const ct_cuda_pool &a) {
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<false, 1>(a, e);
        place from = p;
        const int64_t plane = winner_of(a, p, tap_at(a, offset_of(a.at_s, p)), from.s);
        ((W *)a.to)[offset_of(a.to_s, p)] = plane < 0 ? (W)0 : ((const W *)a.from)[offset_of(a.from_s, from)];
    }
}

#define POOL(name, body)                                                                                       \
    extern "C" __global__ void __launch_bounds__(CT_POOL_THREADS) name(const __grid_constant__ ct_cuda_pool a) { \
        body;                                                                                                  \
    }
#define IN_PACKS(S, call)                  \
    enum { V = 16 / sizeof(S) };           \
    if (a.packed) call(true, V);           \
    else call(true, 1)
#define MAX(last, v)       max_windows<S, last, v>(a)
#define MEAN(last, v)      mean_windows<S, last, v>(a)
#define MAX_GRAD(last, v)  gather<S, true, last, v>(a)
#define MEAN_GRAD(last, v) gather<S, false, last, v>(a)
#define POOLS(suffix, type)                                                         \
    POOL(pool_max_##suffix, typedef type S; MAX(false, 1))                          \
    POOL(pool_max_last_##suffix, typedef type S; IN_PACKS(S, MAX))                  \
    POOL(pool_mean_##suffix, typedef type S; MEAN(false, 1))                        \
    POOL(pool_mean_last_##suffix, typedef type S; IN_PACKS(S, MEAN))                \
    POOL(pool_max_grad_##suffix, typedef type S; MAX_GRAD(false, CT_POOL_ROW))      \
    POOL(pool_max_grad_last_##suffix, typedef type S; IN_PACKS(S, MAX_GRAD))        \
    POOL(pool_mean_grad_##suffix, typedef type S; MEAN_GRAD(false, CT_POOL_ROW))    \
    POOL(pool_mean_grad_last_##suffix, typedef type S; IN_PACKS(S, MEAN_GRAD))
POOLS(f32, float)
POOLS(f64, double)
POOLS(f16, __half)
POOLS(bf16, __nv_bfloat16)
POOL(pool_take_16, take_winners<uint16_t>(a))
POOL(pool_take_32, take_winners<uint32_t>(a))
POOL(pool_take_64, take_winners<uint64_t>(a))
