// A cotangent with channels first becomes one with channels last, through shared memory: tiles are read along positions and written along
// channels, in packs both ways. What is read is multiplied by the activation's derivative and summed by channel on the way.
#include "ops/conv/cuda/grads.h"

#include "backends/cuda/activation.cuh"
#include "backends/cuda/lanes.cuh"
#include "backends/cuda/neighbors.cuh"
#include "backends/cuda/thread.cuh"

template <typename S, int V>
CT_DEVICE void read_pack(const char *from, int64_t at, bool aligned, typename ct_number<S>::type (&x)[V]) {
    if (aligned) {
        (*(const ct_neighbors<S, V> *)((const S *)from + at)).numbers(x);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) x[k] = ct_number_of(((const S *)from)[at + k]);
    }
}

template <typename S> CT_DEVICE void channels_last(const ct_cuda_conv_grads &a) {
    typedef typename ct_number<S>::type C;
    enum {
        V = 16 / sizeof(S),
        SIDE = CT_CUDA_GRADS_SIDE,
        SLOTS = SIDE / V,
        STEP = CT_CUDA_GRADS_THREADS / SLOTS,
        ROUNDS = SIDE / STEP
    };
    __shared__ S tile[SIDE][SIDE + 4 / sizeof(S)]; // by channel
    if (ct_does_nothing(a.head)) return;
    const int slot = threadIdx.x % SLOTS, line = threadIdx.x / SLOTS;
    const int64_t part = blockIdx.x / a.channel_tiles, channel = (blockIdx.x - part * a.channel_tiles) * SIDE;
    const int64_t end = min((part + 1) * a.each, a.tiles);
    double sums[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) sums[i] = 0;
    for (int64_t t = part * a.each; t < end; t++) {
        const int64_t image = t / a.position_tiles, position = (t - image * a.position_tiles) * SIDE;
        C g[ROUNDS][V], y[ROUNDS][V];
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) { // channels line, line + STEP, ...
            const int64_t c = channel + line + i * STEP, p = position + slot * V;
            if (c < a.channels && p < a.positions) {
                const int64_t at = (image * a.channels + c) * a.positions + p;
                read_pack<S, V>(a.g, at, a.aligned, g[i]);
                if (a.y) read_pack<S, V>(a.y, at, a.aligned, y[i]);
            } else {
#pragma unroll
                for (int k = 0; k < V; k++) g[i][k] = y[i][k] = 0;
            }
        }
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            C sum = 0;
#pragma unroll
            for (int k = 0; k < V; k++) {
                const C x = a.y ? ct_activation_grad(a.activation, y[i][k], g[i][k]) : g[i][k];
                tile[line + i * STEP][slot * V + k] = ct_stored<S>(x);
                sum += x;
            }
            sums[i] += (double)sum;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) { // positions line, line + STEP, ...
            const int64_t p = position + line + i * STEP, c = channel + slot * V;
            if (p >= a.positions || c >= a.channels) continue;
            struct alignas(16) {
                S v[V];
            } x;
#pragma unroll
            for (int k = 0; k < V; k++) x.v[k] = tile[slot * V + k][line + i * STEP];
            *(decltype(x) *)((S *)a.to + (image * a.positions + p) * a.channels + c) = x;
        }
        __syncthreads();
    }
    if (!a.sums) return;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t c = channel + line + i * STEP;
        for (int distance = SLOTS / 2; distance; distance /= 2) sums[i] += ct_from_lane(sums[i], distance);
        if (slot == 0 && c < a.channels) a.sums[c * a.parts + part] = sums[i];
    }
}

// A block for each channel.
template <typename S> CT_DEVICE void bias_grad(const ct_cuda_conv_grads &a) {
    if (ct_does_nothing(a.head)) return;
    for (int64_t c = blockIdx.x; c < a.channels; c += gridDim.x) {
        double sum = 0;
        for (int64_t part = threadIdx.x; part < a.parts; part += CT_CUDA_GRADS_THREADS) sum += a.sums[c * a.parts + part];
        sum = ct_sum_group(sum, CT_CUDA_GRADS_THREADS);
        if (threadIdx.x == 0) ((S *)a.dbias)[c * a.dbias_stride] = ct_stored<S>((typename ct_number<S>::type)sum);
    }
}

// at_once: blocks of a multiprocessor, at the price of a few registers in memory; where f32 is in TF32, batches are often small, and a block
// that comes alone behind all others takes as long as they do.
#define GRADS(name, S, at_once)                                                                              \
    extern "C" __global__ void __launch_bounds__(CT_CUDA_GRADS_THREADS, at_once)                             \
        channels_last_##name(const __grid_constant__ ct_cuda_conv_grads a) {                                 \
        channels_last<S>(a);                                                                                 \
    }                                                                                                        \
    extern "C" __global__ void bias_grad_##name(const __grid_constant__ ct_cuda_conv_grads a) { bias_grad<S>(a); }
GRADS(f32, float, 5)
GRADS(f16, __half, 4)
GRADS(bf16, __nv_bfloat16, 4)
