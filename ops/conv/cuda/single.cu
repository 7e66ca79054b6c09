#include "backends/cuda/thread.cuh"
#include "ops/conv/cuda/single.h"

enum { V = CT_SINGLE_PACK, R = CT_SINGLE_ROWS, THREADS = CT_SINGLE_THREADS };

template <typename S> struct alignas(sizeof(S) * V) pack {
    S v[V];
};
struct lanes {
    float v[V];
};

// Channels last: a block has `lanes` threads along channels, and the others take rows of results. All lanes read the same pixels of x.
template <typename S, int SIDE> __device__ void last(const ct_cuda_single &a) {
    constexpr int TAPS = SIDE * SIDE;
    __shared__ lanes shares[THREADS];
    const int workers = THREADS / a.lanes, worker = threadIdx.x / a.lanes, packs = a.channels / V;
    const int part = blockIdx.x % a.parts, at = blockIdx.x / a.parts * a.lanes + threadIdx.x % a.lanes;
    const int c = at * V, rows = a.batch * a.out[0];
    lanes sum[TAPS + 1] = {};
    for (int row = part * workers + worker; at < packs && row < rows; row += a.parts * workers) {
        const int n = row / a.out[0], y0 = row - n * a.out[0];
        const S *x = (const S *)a.x + n * a.x_n, *g = (const S *)a.g + n * a.g_n + y0 * a.g_s[0] + c;
        for (int x0 = 0; x0 < a.out[1]; x0++) {
            const pack<S> read = *(const pack<S> *)(g + x0 * a.g_s[1]);
            lanes value;
#pragma unroll
            for (int v = 0; v < V; v++) value.v[v] = ct_load<float>(read.v[v]), sum[TAPS].v[v] += value.v[v];
#pragma unroll
            for (int k = 0; k < TAPS; k++) {
                const int h = y0 + k / SIDE - a.before[0], w = x0 + k % SIDE - a.before[1];
                if (h < 0 || h >= a.in[0] || w < 0 || w >= a.in[1]) continue;
                const float pixel = ct_load<float>(x[h * a.x_s[0] + w * a.x_s[1]]);
#pragma unroll
                for (int v = 0; v < V; v++) sum[k].v[v] = fmaf(pixel, value.v[v], sum[k].v[v]);
            }
        }
    }
#pragma unroll
    for (int k = 0; k <= TAPS; k++) {
        shares[threadIdx.x] = sum[k];
        __syncthreads();
        for (int half = workers / 2; half; half /= 2) {
            if (worker < half)
#pragma unroll
                for (int v = 0; v < V; v++) shares[threadIdx.x].v[v] += shares[threadIdx.x + half * a.lanes].v[v];
            __syncthreads();
        }
        if (worker == 0 && at < packs)
#pragma unroll
            for (int v = 0; v < V; v++)
                a.partial[((int64_t)part * (TAPS + 1) + k) * a.channels + c + v] = shares[threadIdx.x].v[v];
        __syncthreads();
    }
}

// Any strides, as channels first: a block takes an output channel of some images, a thread R results of a column.
template <typename S, int SIDE> __device__ void first(const ct_cuda_single &a) {
    constexpr int TAPS = SIDE * SIDE;
    __shared__ float shares[THREADS];
    const int part = blockIdx.x % a.parts, c = blockIdx.x / a.parts;
    const int each = (a.batch + a.parts - 1) / a.parts, begin = part * each,
              images = begin + each < a.batch ? each : a.batch - begin, items = a.strips * a.out[1];
    float sum[TAPS + 1] = {};
    for (int item = threadIdx.x; item < images * items; item += THREADS) {
        const int image = item / items, rest = item - image * items, strip = rest / a.out[1];
        const int n = begin + image, x0 = rest - strip * a.out[1], y0 = strip * R;
        const S *x = (const S *)a.x + n * a.x_n, *g = (const S *)a.g + n * a.g_n + c * a.g_c;
        float value[R];
#pragma unroll
        for (int r = 0; r < R; r++) {
            value[r] = y0 + r < a.out[0] ? ct_load<float>(g[(y0 + r) * a.g_s[0] + x0 * a.g_s[1]]) : 0.0f;
            sum[TAPS] += value[r];
        }
#pragma unroll
        for (int i = 0; i < R + SIDE - 1; i++) {
            const int h = y0 + i - a.before[0];
            if (h < 0 || h >= a.in[0]) continue;
#pragma unroll
            for (int j = 0; j < SIDE; j++) {
                const int w = x0 + j - a.before[1];
                if (w < 0 || w >= a.in[1]) continue;
                const float pixel = ct_load<float>(x[h * a.x_s[0] + w * a.x_s[1]]);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    const int k = i - r;
                    // beyond the last row the gradient is 0, and an infinity there must not make it NaN
                    if (k >= 0 && k < SIDE && y0 + r < a.out[0])
                        sum[k * SIDE + j] = fmaf(pixel, value[r], sum[k * SIDE + j]);
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k <= TAPS; k++) {
        shares[threadIdx.x] = sum[k];
        __syncthreads();
        for (int half = THREADS / 2; half; half /= 2) {
            if ((int)threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) a.partial[((int64_t)part * (TAPS + 1) + k) * a.channels + c] = shares[0];
        __syncthreads();
    }
}

template <typename S> __device__ void merge(const ct_cuda_single &a) {
    __shared__ float shares[THREADS];
    if (ct_does_nothing(a.head)) return;
    const int width = THREADS / CT_SINGLE_MERGE, worker = threadIdx.x / width, taps = a.side * a.side;
    const int64_t all = (int64_t)(taps + 1) * a.channels, at = (int64_t)blockIdx.x * width + threadIdx.x % width;
    float sum = 0;
    for (int part = worker; at < all && part < a.parts; part += CT_SINGLE_MERGE) sum += a.partial[part * all + at];
    shares[threadIdx.x] = sum;
    __syncthreads();
    for (int half = CT_SINGLE_MERGE / 2; half; half /= 2) {
        if (worker < half) shares[threadIdx.x] += shares[threadIdx.x + half * width];
        __syncthreads();
    }
    if (worker || at >= all) return;
    const int k = (int)(at / a.channels), c = (int)(at - (int64_t)k * a.channels);
    const S out = ct_store<S>(shares[threadIdx.x]);
    if (k < taps && a.w) ((S *)a.w)[c * a.w_o + k / a.side * a.w_k[0] + k % a.side * a.w_k[1]] = out;
    if (k == taps && a.bias) ((S *)a.bias)[c * a.bias_stride] = out;
}

#define KERNEL(name, type, call) \
    extern "C" __global__ void __launch_bounds__(THREADS) single_##name##_##type(const ct_cuda_single a) { call(a); }
#define KERNELS(type, S)                    \
    KERNEL(last_3, type, (last<S, 3>))      \
    KERNEL(last_5, type, (last<S, 5>))      \
    KERNEL(first_3, type, (first<S, 3>))    \
    KERNEL(first_5, type, (first<S, 5>))    \
    KERNEL(merge, type, merge<S>)
KERNELS(f32, float)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
