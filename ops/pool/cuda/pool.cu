// Device code of max and average pooling and of their gradients. A thread makes one result, or a pack of neighbors: with channels as the
// innermost dimension a pack of channels (LAST), else one window, and of a gradient a few elements of a row. Gradients are gathered: an
// element looks for the windows that it is in, in their order, so nothing is added to memory.
#include "ops/pool/cuda/pool.cuh"

// V neighbors `step` apart, in one access where they are aligned.
template <typename S, int V>
CT_DEVICE void load(const S *from, int64_t step, bool packed, typename ct_number<S>::type (&x)[V]) {
    if (packed) {
        ((const ct_neighbors<S, V> *)from)->numbers(x);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) x[k] = ct_number_of(from[k * step]);
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
                    C loaded[V];
                    load(row + (t2.start + k2 * a.dilation[2]) * a.from_s.s[2], a.from_s.c, a.packed, loaded);
#pragma unroll
                    for (int k = 0; k < V; k++) { // of equals the first wins, and NaN over numbers
                        const C v = loaded[k];
                        const bool wins = v > best[k] || (v != v && best[k] == best[k]);
                        best[k] = wins ? v : best[k];
                        tap[k] = wins ? number + k2 : tap[k];
                    }
                }
            }
        S *y = (S *)a.to + offset_of(a.to_s, p);
        store_all<S, V>(y, a.to_s.c, V > 1 && a.packed, best);
        if (!a.at) continue;
        const int64_t at = offset_of(a.at_s, p);
        if (V > 1 && a.at_packed) {
            store_taps<V>(a.at + at, tap);
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
                    C loaded[V];
                    load(row + (t2.start + k2) * a.from_s.s[2], a.from_s.c, a.packed, loaded);
#pragma unroll
                    for (int k = 0; k < V; k++) line[k] += loaded[k];
                }
#pragma unroll
                for (int k = 0; k < V; k++) sum[k] += line[k];
            }
        const C divisor = a.divisor ? (C)a.divisor
                                    : (C)count_of(a, 0, p.s[0]) * (C)count_of(a, 1, p.s[1]) * (C)count_of(a, 2, p.s[2]);
        S *y = (S *)a.to + offset_of(a.to_s, p);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] /= divisor;
        store_all<S, V>(y, a.to_s.c, V > 1 && a.packed, sum);
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
                        C loaded[V];
                        const int32_t k2 = tap_of(a, 2, o2, p.s[2]);
                        if (k2 < 0) continue;
                        load(g, a.from_s.c, a.packed, loaded);
                        if (MAX) {
                            if (a.at_packed) {
                                int32_t won[V];
                                load_taps<V>(a.at + at, won);
#pragma unroll
                                for (int k = 0; k < V; k++) sum[k] += won[k] == number + k2 ? loaded[k] : (C)0;
                            } else {
#pragma unroll
                                for (int k = 0; k < V; k++)
                                    sum[k] += tap_at(a, at + k * a.at_s.c) == number + k2 ? loaded[k] : (C)0;
                            }
                        } else {
                            const C divisor = a.divisor ? count : count * (C)count_of(a, 2, o2);
#pragma unroll
                            for (int k = 0; k < V; k++) sum[k] += loaded[k] / divisor;
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
            store_all<S, V>(dx, 1, true, sum);
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
