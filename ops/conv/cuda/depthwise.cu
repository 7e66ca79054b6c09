// Device code of depthwise convolutions. A thread computes a block of neighbouring results from a window of x that it keeps in registers, row by
// row; sums for weights go over parts that depend on the shapes alone, then over the parts in their order: always the same bits.
#include "ops/conv/cuda/depthwise.h"

#include "backends/cuda/lanes.cuh"
#include "backends/cuda/number.cuh"
#include "backends/cuda/thread.cuh"

enum { Q = CT_DEPTHWISE_QUAD };
template <typename S, int V> struct alignas(V * sizeof(S)) pack { S of[V]; };
template <typename S> using quad = pack<S, Q>;

// ---- Channels first ----

// A thread has Q results of each of R rows. RUN is how many rows of x they look at, WIN how many of its columns.
template <int K, int ST> struct block_shape {
    enum { R = ST == 1 ? 4 : 2, RUN = (R - 1) * ST + K, WIN = (Q - 1) * ST + K };
};

// One row of the window, 0 outside. With quads only the edges are looked at one by one: a quad in the middle is in x if its first element is.
template <typename S, int K, int ST>
CT_DEVICE void load_window(const ct_cuda_depthwise &a, const S *plane, int row, int column, float *window) {
    enum { WIN = block_shape<K, ST>::WIN, EDGE = K / 2 };
    const bool inside = row >= 0 && row < a.in_h;
    const S *from = plane + (int64_t)row * a.in_w;
    if (ST == 1 && a.quads) {
        quad<S> middle;
#pragma unroll
        for (int i = 0; i < Q; i++) middle.of[i] = ct_stored<S>(0.0f);
        if (inside) middle = *(const quad<S> *)(from + column + EDGE);
#pragma unroll
        for (int i = 0; i < Q; i++) window[EDGE + i] = ct_number_of(middle.of[i]);
#pragma unroll
        for (int i = 0; i < EDGE; i++) {
            const int left = column + i, right = column + EDGE + Q + i;
            window[i] = inside && left >= 0 ? (float)ct_number_of(from[left]) : 0.0f;
            window[EDGE + Q + i] = inside && right < a.in_w ? (float)ct_number_of(from[right]) : 0.0f;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < WIN; i++) {
        const int at = column + i;
        window[i] = inside && at >= 0 && at < a.in_w ? (float)ct_number_of(from[at]) : 0.0f;
    }
}

template <typename S, int K, int ST> CT_DEVICE void forward_first(const ct_cuda_depthwise &a) {
    typedef block_shape<K, ST> B;
    if (ct_does_nothing(a.head)) return;
    const uint32_t all = (uint32_t)(a.batch * a.channels) * (uint32_t)(a.across * a.down);
    for (uint32_t at = (uint32_t)ct_first(); at < all; at += (uint32_t)ct_step()) {
        const uint32_t run = at / (uint32_t)a.across, plane = run / (uint32_t)a.down;
        const int column = (int)(at - run * (uint32_t)a.across) * Q, first = (int)(run - plane * (uint32_t)a.down) * B::R;
        const int channel = (int)(plane % (uint32_t)a.channels);
        const S *x = (const S *)a.x + (int64_t)plane * a.in_h * a.in_w, *w = (const S *)a.w + (int64_t)channel * a.w_channel;
        S *y = (S *)a.y + (int64_t)plane * a.out_h * a.out_w;
        const float bias = a.bias ? (float)ct_number_of(((const S *)a.bias)[channel]) : 0.0f;
        float weights[K * K], sums[B::R][Q], window[B::WIN];
#pragma unroll
        for (int k = 0; k < K * K; k++) weights[k] = ct_number_of(w[(a.flipped ? K * K - 1 - k : k) * a.w_tap]);
#pragma unroll
        for (int r = 0; r < B::R; r++)
#pragma unroll
            for (int i = 0; i < Q; i++) sums[r][i] = bias;
#pragma unroll
        for (int row = 0; row < B::RUN; row++) {
            load_window<S, K, ST>(a, x, first * ST - a.pad_y + row, column * ST - a.pad_x, window);
#pragma unroll
            for (int r = 0; r < B::R; r++) {
                if (row < r * ST || row >= r * ST + K) continue;
#pragma unroll
                for (int k = 0; k < K; k++)
#pragma unroll
                    for (int i = 0; i < Q; i++)
                        sums[r][i] = ct_fma(weights[(row - r * ST) * K + k], window[i * ST + k], sums[r][i]);
            }
        }
#pragma unroll
        for (int r = 0; r < B::R; r++) {
            if (first + r >= a.out_h) break;
            S *to = y + (int64_t)(first + r) * a.out_w + column;
            if (a.quads) {
                quad<S> results;
#pragma unroll
                for (int i = 0; i < Q; i++) results.of[i] = ct_stored<S>(sums[r][i]);
                *(quad<S> *)to = results;
                continue;
            }
#pragma unroll
            for (int i = 0; i < Q; i++)
                if (column + i < a.out_w) to[i] = ct_stored<S>(sums[r][i]);
        }
    }
}

// A block sums over the images of one part, for one channel.
template <typename S, int K, int ST> CT_DEVICE void weight_first(const ct_cuda_depthwise &a) {
    typedef block_shape<K, ST> B;
    if (ct_does_nothing(a.head)) return;
    const int channel = (int)blockIdx.x, part = (int)blockIdx.y;
    const int64_t image = (int64_t)part * a.part;
    const int images = (int)min((int64_t)a.part, a.batch - image);
    float sums[K * K], bias = 0, window[B::WIN], g[B::R][Q];
#pragma unroll
    for (int k = 0; k < K * K; k++) sums[k] = 0;
    const int runs = a.across * a.down;
    for (int at = (int)threadIdx.x; at < images * runs; at += CT_DEPTHWISE_THREADS) {
        const int i_image = at / runs, run = (at - i_image * runs) / a.across;
        const int column = (at - i_image * runs - run * a.across) * Q, first = run * B::R;
        const int64_t plane = (image + i_image) * a.channels + channel;
        const S *x = (const S *)a.x + plane * a.in_h * a.in_w, *from = (const S *)a.y + plane * a.out_h * a.out_w;
#pragma unroll
        for (int r = 0; r < B::R; r++) {
            const S *row = from + (int64_t)(first + r) * a.out_w + column;
            const bool inside = first + r < a.out_h;
            quad<S> results;
#pragma unroll
            for (int i = 0; i < Q; i++) results.of[i] = ct_stored<S>(0.0f);
            if (a.quads && inside) results = *(const quad<S> *)row;
#pragma unroll
            for (int i = 0; i < Q; i++) {
                if (!a.quads && inside && column + i < a.out_w) results.of[i] = row[i];
                g[r][i] = ct_number_of(results.of[i]);
                bias += g[r][i];
            }
        }
#pragma unroll
        for (int row = 0; row < B::RUN; row++) {
            load_window<S, K, ST>(a, x, first * ST - a.pad_y + row, column * ST - a.pad_x, window);
#pragma unroll
            for (int r = 0; r < B::R; r++) {
                if (row < r * ST || row >= r * ST + K) continue;
#pragma unroll
                for (int k = 0; k < K; k++)
#pragma unroll
                    for (int i = 0; i < Q; i++)
                        sums[(row - r * ST) * K + k] = ct_fma(g[r][i], window[i * ST + k], sums[(row - r * ST) * K + k]);
            }
        }
    }
    float *to = (float *)a.sums + ((int64_t)part * a.channels + channel) * (K * K + 1);
#pragma unroll
    for (int k = 0; k < K * K; k++) {
        const float sum = ct_sum_group(sums[k], CT_DEPTHWISE_THREADS);
        if (threadIdx.x == 0) to[k] = sum;
    }
    bias = ct_sum_group(bias, CT_DEPTHWISE_THREADS);
    if (threadIdx.x == 0) to[K * K] = bias;
}

// ---- Channels last: a thread has Q channels of Q results of a row ----

template <int V, typename S> CT_DEVICE void load_pack(const S *from, bool inside, float *numbers) {
    pack<S, V> elements;
#pragma unroll
    for (int i = 0; i < V; i++) elements.of[i] = ct_stored<S>(0.0f);
    if (inside) elements = *(const pack<S, V> *)from;
#pragma unroll
    for (int i = 0; i < V; i++) numbers[i] = ct_number_of(elements.of[i]);
}

template <int ST> struct run_shape {
    enum { R = ST == 1 ? 4 : 2 }; // results of a row
};

template <typename S, int K, int ST> CT_DEVICE void forward_last(const ct_cuda_depthwise &a) {
    enum { R = run_shape<ST>::R, WIN = (R - 1) * ST + K };
    if (ct_does_nothing(a.head)) return;
    const uint32_t runs = (uint32_t)(a.out_w + R - 1) / R;
    const uint32_t all = (uint32_t)a.across * (uint32_t)a.out_h * runs * (uint32_t)a.batch;
    for (uint32_t at = (uint32_t)ct_first(); at < all; at += (uint32_t)ct_step()) {
        // channels, then rows, so that a block finds most of its windows in the cache
        uint32_t rest = at / (uint32_t)a.across;
        const int channel = (int)(at - rest * (uint32_t)a.across) * Q;
        const uint32_t above = rest / (uint32_t)a.out_h;
        const int row = (int)(rest - above * (uint32_t)a.out_h);
        const uint32_t image = above / runs;
        const int column = (int)(above - image * runs) * R;
        const S *x = (const S *)a.x + (int64_t)image * a.in_h * a.in_w * a.channels + channel, *w = (const S *)a.w + channel;
        float sums[R][Q], window[WIN][Q], weight[Q], bias[Q];
        load_pack<Q>((const S *)a.bias + channel, a.bias != NULL, bias);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < Q; i++) sums[r][i] = bias[i];
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            const int y = row * ST - a.pad_y + ky;
            if (y < 0 || y >= a.in_h) continue;
#pragma unroll
            for (int j = 0; j < WIN; j++) {
                const int at_x = column * ST - a.pad_x + j;
                load_pack<Q>(x + ((int64_t)y * a.in_w + at_x) * a.channels, at_x >= 0 && at_x < a.in_w, window[j]);
            }
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                const int k = ky * K + kx;
                load_pack<Q>(w + (int64_t)(a.flipped ? K * K - 1 - k : k) * a.w_tap, true, weight);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int i = 0; i < Q; i++) sums[r][i] = ct_fma(weight[i], window[r * ST + kx][i], sums[r][i]);
            }
        }
        S *to = (S *)a.y + (((int64_t)image * a.out_h + row) * a.out_w + column) * a.channels + channel;
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (column + r >= a.out_w) break;
            quad<S> results;
#pragma unroll
            for (int i = 0; i < Q; i++) results.of[i] = ct_stored<S>(sums[r][i]);
            *(quad<S> *)(to + (int64_t)r * a.channels) = results;
        }
    }
}

// A block sums over the rows of one part, for a.lanes times V channels; threads of the same channels take rows in turn.
// x of the threads of a lane, in their order. One function for all taps: it would be copied for each.
static __device__ __noinline__ void put_sum(float *shared, float x, int lanes, bool puts, float *to) {
    __syncthreads();
    shared[threadIdx.x] = x;
    __syncthreads();
    if (!puts) return;
    float sum = 0;
    for (int t = (int)threadIdx.x; t < CT_DEPTHWISE_THREADS; t += lanes) sum += shared[t];
    *to = sum;
}

template <typename S, int K, int ST> CT_DEVICE void weight_last(const ct_cuda_depthwise &a) {
    enum { R = run_shape<ST>::R, WIN = (R - 1) * ST + K, V = K == 3 ? 4 : 2, TAPS = K * K };
    __shared__ float shared[CT_DEPTHWISE_THREADS];
    if (ct_does_nothing(a.head)) return;
    const int lane = (int)threadIdx.x % a.lanes, turn = (int)threadIdx.x / a.lanes, turns = CT_DEPTHWISE_THREADS / a.lanes;
    const int channel = ((int)blockIdx.x * a.lanes + lane) * V, part = (int)blockIdx.y;
    const bool takes = channel < a.channels;
    float sums[TAPS][V], bias[V], g[R][V], window[WIN][V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        bias[i] = 0;
#pragma unroll
        for (int k = 0; k < TAPS; k++) sums[k][i] = 0;
    }
    const int64_t rows = a.batch * a.out_h, end = min(rows, (int64_t)(part + 1) * a.part);
    for (int64_t at = (int64_t)part * a.part + turn; takes && at < end; at += turns) {
        const int64_t image = at / a.out_h;
        const int row = (int)(at - image * a.out_h);
        const S *x = (const S *)a.x + image * a.in_h * a.in_w * a.channels + channel;
        const S *from = (const S *)a.y + at * a.out_w * a.channels + channel;
        for (int column = 0; column < a.out_w; column += R) {
#pragma unroll
            for (int r = 0; r < R; r++) {
                load_pack<V>(from + (int64_t)(column + r) * a.channels, column + r < a.out_w, g[r]);
#pragma unroll
                for (int i = 0; i < V; i++) bias[i] += g[r][i];
            }
#pragma unroll
            for (int ky = 0; ky < K; ky++) {
                const int y = row * ST - a.pad_y + ky;
                const bool there = y >= 0 && y < a.in_h;
#pragma unroll
                for (int j = 0; j < WIN; j++) {
                    const int at_x = column * ST - a.pad_x + j;
                    load_pack<V>(x + ((int64_t)y * a.in_w + at_x) * a.channels, there && at_x >= 0 && at_x < a.in_w, window[j]);
                }
#pragma unroll
                for (int kx = 0; kx < K; kx++)
#pragma unroll
                    for (int r = 0; r < R; r++)
#pragma unroll
                        for (int i = 0; i < V; i++)
                            sums[ky * K + kx][i] = ct_fma(g[r][i], window[r * ST + kx][i], sums[ky * K + kx][i]);
            }
        }
    }
    float *to = (float *)a.sums + ((int64_t)part * a.channels + channel) * (TAPS + 1);
    const bool puts = turn == 0 && takes;
#pragma unroll
    for (int k = 0; k <= TAPS; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            put_sum(shared, k < TAPS ? sums[k < TAPS ? k : 0][i] : bias[i], a.lanes, puts, to + i * (TAPS + 1) + k);
}

// Over all parts, an element of weight or bias for each warp.
template <typename S> CT_DEVICE void total(const ct_cuda_depthwise &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t each = a.taps + 1, all = a.channels * each, at = ct_first() / 32;
    if (at >= all) return;
    const int channel = (int)(at / each), tap = (int)(at - channel * each), lane = (int)threadIdx.x % 32;
    float sum = 0;
    for (int part = lane; part < a.parts; part += 32) sum += ((const float *)a.sums)[part * all + at];
    sum = ct_sum_group(sum, 32);
    if (lane != 0) return;
    if (tap == a.taps) {
        if (a.bias_grad) ((S *)a.bias_grad)[channel] = ct_stored<S>(sum);
    } else if (a.weight_grad) {
        ((S *)a.weight_grad)[(int64_t)channel * a.w_channel + (int64_t)tap * a.w_tap] = ct_stored<S>(sum);
    }
}

#define KERNEL_AT(name, at_once, ...)                                             \
    extern "C" __global__ void __launch_bounds__(CT_DEPTHWISE_THREADS, at_once)   \
        depthwise_##name(const __grid_constant__ ct_cuda_depthwise a) {           \
        __VA_ARGS__(a);                                                           \
    }
#define KERNEL(name, ...) KERNEL_AT(name, 1, __VA_ARGS__)
#define COMMA ,
#define SIZES(suffix, S, K)                                            \
    KERNEL(forward_first_##K##_1_##suffix, forward_first<S COMMA K COMMA 1>) \
    KERNEL(forward_first_##K##_2_##suffix, forward_first<S COMMA K COMMA 2>) \
    KERNEL(forward_last_##K##_1_##suffix, forward_last<S COMMA K COMMA 1>)   \
    KERNEL(forward_last_##K##_2_##suffix, forward_last<S COMMA K COMMA 2>)   \
    KERNEL(weight_first_##K##_1_##suffix, weight_first<S COMMA K COMMA 1>)   \
    KERNEL(weight_first_##K##_2_##suffix, weight_first<S COMMA K COMMA 2>)   \
    KERNEL_AT(weight_last_##K##_1_##suffix, (K == 5 ? 2 : 1), weight_last<S COMMA K COMMA 1>) \
    KERNEL_AT(weight_last_##K##_2_##suffix, (K == 5 ? 2 : 1), weight_last<S COMMA K COMMA 2>)
#define DTYPE(suffix, S)  \
    SIZES(suffix, S, 3)   \
    SIZES(suffix, S, 5)   \
    KERNEL(total_##suffix, total<S>)
DTYPE(f32, float)
DTYPE(f16, __half)
DTYPE(bf16, __nv_bfloat16)
