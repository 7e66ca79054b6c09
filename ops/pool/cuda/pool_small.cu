// Windows of 2 x 2 and 3 x 3 over planes, the usual ones: all loads of a thread are under way before the first is used, and few instructions
// go into finding places. A forward thread makes a column of CT_POOL_COLUMN results, or with channels innermost (LAST) one pack of channels.
// Gradients have strides of 2 at least: then a tile of 2 x CT_POOL_ROW elements lies in 2 x 3 windows at most, and one of 2 x 2 in 2 x 2.
#include "ops/pool/cuda/pool.cuh"

// Offsets inside of a plane, 32 bits wide.
CT_DEVICE int32_t in_plane(const ct_cuda_image &s, int32_t row, int32_t column) {
    return row * (int32_t)s.s[1] + column * (int32_t)s.s[2];
}

// ---- Forward ----

// One window of K x K; its results in best, or the sum, and the tap that won.
template <typename S, bool MAX, int V, int K>
CT_DEVICE void take_window(const ct_cuda_pool &a, const S *x, const taps &t1, const taps &t2,
                           typename ct_number<S>::type (&result)[V], int32_t (&tap)[V]) {
    typedef typename ct_number<S>::type C;
    ct_neighbors<S, V> loaded[K * K];
    bool inside[K * K];
#pragma unroll
    for (int k = 0; k < K * K; k++) {
        const int k1 = k / K, k2 = k % K;
        inside[k] = k1 >= t1.first && k1 < t1.end && k2 >= t2.first && k2 < t2.end;
        if (inside[k])
            loaded[k] = *(const ct_neighbors<S, V> *)(x + in_plane(a.from_s, t1.start + k1 * a.dilation[1],
                                                                  t2.start + k2 * a.dilation[2]));
    }
    const int32_t first = t1.first * K + t2.first;
#pragma unroll
    for (int q = 0; q < V; q++) result[q] = MAX ? -(C)INFINITY : (C)0, tap[q] = first;
#pragma unroll
    for (int k = 0; k < K * K; k++)
        if (inside[k]) {
            C n[V];
            loaded[k].numbers(n);
#pragma unroll
            for (int q = 0; q < V; q++) {
                if (MAX) { // of equals the first wins, and NaN over numbers
                    const bool wins = !(n[q] <= result[q]) && result[q] == result[q];
                    result[q] = wins ? n[q] : result[q];
                    tap[q] = wins ? k : tap[q];
                } else {
                    result[q] += n[q];
                }
            }
        }
}

template <typename S, bool MAX, bool LAST, int V, int K> CT_DEVICE void forward(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    enum { ROWS = LAST ? 1 : CT_POOL_COLUMN };
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        place p = place_of<LAST, V>(a, e);
        const int32_t row = p.s[1] * ROWS;
        const taps t2 = taps_of(a, 2, p.s[2]);
        const S *x = (const S *)a.from + base_of(a.from_s, p);
        S *y = (S *)a.to + base_of(a.to_s, p);
        const int64_t at = a.at ? base_of(a.at_s, p) : 0;
#pragma unroll 1
        for (int32_t o = row; o < row + ROWS && o < a.out[1]; o++) {
            const taps t1 = taps_of(a, 1, o);
            C result[V];
            int32_t tap[V];
            take_window<S, MAX, V, K>(a, x, t1, t2, result, tap);
            if (!MAX) {
                const C divisor = a.divisor ? (C)a.divisor : (C)count_of(a, 1, o) * (C)count_of(a, 2, p.s[2]);
#pragma unroll
                for (int q = 0; q < V; q++) result[q] /= divisor;
            }
            store_all<S, V>(y + in_plane(a.to_s, o, p.s[2]), 1, true, result);
            if (MAX && a.at) store_taps<V>(a.at + at + in_plane(a.at_s, o, p.s[2]), tap);
        }
    }
}

// ---- Gradients ----

// A tile of 2 x W elements, W being CT_POOL_ROW.
template <typename S, bool MAX, int K> CT_DEVICE void gather_tile(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    enum { W = CT_POOL_ROW, OVER = 2, ACROSS = 3 };
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<false, W>(a, e);
        const int32_t row = 2 * p.s[1], column = p.s[2];
        const windows w1 = windows_of(a, 1, row, 2), w2 = windows_of(a, 2, column, W);
        const S *from = (const S *)a.from + base_of(a.from_s, p);
        const uint8_t *won = MAX ? (const uint8_t *)a.at + base_of(a.at_s, p) : NULL;
        S g[OVER][ACROSS];
        int32_t tap[OVER][ACROSS];
#pragma unroll
        for (int i = 0; i < OVER; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++) {
                const int32_t o1 = w1.first + i, o2 = w2.first + j;
                tap[i][j] = K * K; // none
                if (o1 < w1.end && o2 < w2.end) {
                    g[i][j] = from[in_plane(a.from_s, o1, o2)];
                    tap[i][j] = MAX ? won[in_plane(a.at_s, o1, o2)] : 0;
                }
            }
        C sum[2][W];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int q = 0; q < W; q++) sum[r][q] = 0;
#pragma unroll
        for (int i = 0; i < OVER; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++) {
                if (tap[i][j] >= K * K) continue;
                const int32_t o1 = w1.first + i, o2 = w2.first + j;
                // where the window begins in this tile
                const int32_t top = o1 * a.stride[1] - a.before[1] - row, left = o2 * a.stride[2] - a.before[2] - column;
                C x = ct_number_of(g[i][j]);
                if (MAX) {
                    const int32_t r = top + tap[i][j] / K, c = left + tap[i][j] % K;
#pragma unroll
                    for (int k = 0; k < 2 * W; k++) sum[k / W][k % W] += r == k / W && c == k % W ? x : (C)0;
                } else {
                    x /= a.divisor ? (C)a.divisor : (C)count_of(a, 1, o1) * (C)count_of(a, 2, o2);
#pragma unroll
                    for (int k = 0; k < 2 * W; k++) {
                        const int32_t r = k / W - top, c = k % W - left;
                        sum[k / W][k % W] += (uint32_t)r < K && (uint32_t)c < K ? x : (C)0;
                    }
                }
            }
        S *dx = (S *)a.to + base_of(a.to_s, p);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (row + r < a.in[1]) {
                S *to = dx + in_plane(a.to_s, row + r, column);
                if (a.packed) {
                    store_all<S, W>(to, 1, true, sum[r]);
                } else {
#pragma unroll
                    for (int q = 0; q < W; q++)
                        if (column + q < a.in[2]) to[q * (int32_t)a.to_s.s[2]] = ct_stored<S>(sum[r][q]);
                }
            }
    }
}

// V channels of 2 x 2 elements.
template <typename S, bool MAX, int V, int K> CT_DEVICE void gather_channels(const ct_cuda_pool &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    for (int64_t e = ct_first(); e < a.results.total; e += ct_step()) {
        const place p = place_of<true, V>(a, e);
        const int32_t row = 2 * p.s[1], column = 2 * p.s[2];
        const windows w1 = windows_of(a, 1, row, 2), w2 = windows_of(a, 2, column, 2);
        const S *from = (const S *)a.from + base_of(a.from_s, p);
        const char *won = MAX ? a.at + base_of(a.at_s, p) : NULL;
        ct_neighbors<S, V> g[4];
        tap_bytes<V> tap[4];
        bool there[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t o1 = w1.first + i / 2, o2 = w2.first + i % 2;
            there[i] = o1 < w1.end && o2 < w2.end;
            if (there[i]) {
                g[i] = *(const ct_neighbors<S, V> *)(from + in_plane(a.from_s, o1, o2));
                if (MAX) tap[i] = *(const tap_bytes<V> *)(won + in_plane(a.at_s, o1, o2));
            }
        }
        C sum[4][V];
#pragma unroll
        for (int k = 0; k < 4 * V; k++) sum[k / V][k % V] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!there[i]) continue;
            const int32_t o1 = w1.first + i / 2, o2 = w2.first + i % 2;
            const int32_t down = row + a.before[1] - o1 * a.stride[1], right = column + a.before[2] - o2 * a.stride[2];
            C n[V];
            g[i].numbers(n);
            if (!MAX) {
                const C divisor = a.divisor ? (C)a.divisor : (C)count_of(a, 1, o1) * (C)count_of(a, 2, o2);
#pragma unroll
                for (int q = 0; q < V; q++) n[q] /= divisor;
            }
#pragma unroll
            for (int k = 0; k < 4; k++) { // which tap of the window this element is
                const int32_t k1 = down + k / 2, k2 = right + k % 2, number = k1 * K + k2;
                if ((uint32_t)k1 >= K || (uint32_t)k2 >= K) continue;
#pragma unroll
                for (int q = 0; q < V; q++) sum[k][q] += !MAX || tap[i].v[q] == number ? n[q] : (C)0;
            }
        }
        S *dx = (S *)a.to + base_of(a.to_s, p);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (row + k / 2 < a.in[1] && column + k % 2 < a.in[2])
                store_all<S, V>(dx + in_plane(a.to_s, row + k / 2, column + k % 2), 1, true, sum[k]);
    }
}

#define KERNEL(name, body)                                                                                       \
    extern "C" __global__ void __launch_bounds__(CT_POOL_THREADS) name(const __grid_constant__ ct_cuda_pool a) { \
        body;                                                                                                    \
    }
#define SIZE(K, suffix, S)                                                                               \
    KERNEL(small_max_##K##_##suffix, (forward<S, true, false, 1, K>(a)))                                 \
    KERNEL(small_max_last_##K##_##suffix, (forward<S, true, true, 16 / sizeof(S), K>(a)))                \
    KERNEL(small_mean_##K##_##suffix, (forward<S, false, false, 1, K>(a)))                               \
    KERNEL(small_mean_last_##K##_##suffix, (forward<S, false, true, 16 / sizeof(S), K>(a)))              \
    KERNEL(small_max_grad_##K##_##suffix, (gather_tile<S, true, K>(a)))                                  \
    KERNEL(small_max_grad_last_##K##_##suffix, (gather_channels<S, true, 16 / sizeof(S), K>(a)))         \
    KERNEL(small_mean_grad_##K##_##suffix, (gather_tile<S, false, K>(a)))                                \
    KERNEL(small_mean_grad_last_##K##_##suffix, (gather_channels<S, false, 16 / sizeof(S), K>(a)))
#define SIZES(suffix, S) SIZE(2, suffix, S) SIZE(3, suffix, S)
SIZES(f32, float)
SIZES(f16, __half)
SIZES(bf16, __nv_bfloat16)
