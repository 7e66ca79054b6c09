#include "backends/cuda/activation.cuh"
#include "backends/cuda/thread.cuh"
#include "ops/conv/cuda/single.h"

enum { V = CT_SINGLE_PACK, THREADS = CT_SINGLE_THREADS, AHEAD = 4 };

template <typename S> struct alignas(sizeof(S) * V) pack {
    S v[V];
};
struct lanes {
    float v[V];
};

// Channels last: a block has `lanes` threads along channels, and the others take rows of results. A thread goes along its row with the
// window of x in registers; all lanes read the same pixels. What lies outside of the image is left out, not multiplied by 0.
template <typename S, int SIDE> __device__ void last(const ct_cuda_single &a) {
    constexpr int TAPS = SIDE * SIDE;
    __shared__ lanes shares[THREADS];
    const int workers = THREADS / a.lanes, worker = threadIdx.x / a.lanes, packs = a.channels / V;
    const int part = blockIdx.x % a.parts, at = blockIdx.x / a.parts * a.lanes + threadIdx.x % a.lanes;
    const int c = at * V, rows = a.batch * a.out[0];
    lanes sum[TAPS + 1] = {};
    for (int row = part * workers + worker; at < packs && row < rows; row += a.parts * workers) {
        const int n = row / a.out[0], y0 = row - n * a.out[0];
        const S *g = (const S *)a.g + n * a.g_n + y0 * a.g_s[0] + c;
        const S *x[SIDE]; // at the column that enters the window next; NULL: the row is outside
        float window[SIDE][SIDE];
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
            const int h = y0 + i - a.before[0];
            x[i] = h >= 0 && h < a.in[0] ? (const S *)a.x + n * a.x_n + h * a.x_s[0] - a.before[1] * a.x_s[1] : NULL;
#pragma unroll
            for (int j = 1; j < SIDE; j++) { // shifted down by the first step
                const int w = j - 1 - a.before[1];
                window[i][j] = x[i] && w >= 0 && w < a.in[1] ? ct_load<float>(x[i][(j - 1) * a.x_s[1]]) : 0.0f;
            }
            if (x[i]) x[i] += (SIDE - 1) * a.x_s[1];
        }
        pack<S> next = *(const pack<S> *)g; // one ahead, so that memory is not waited for
        for (int x0 = 0; x0 < a.out[1]; x0++) {
            const pack<S> read = next;
            g += a.g_s[1];
            if (x0 + 1 < a.out[1]) next = *(const pack<S> *)g;
            const int enters = x0 + SIDE - 1 - a.before[1];
            const bool inside = enters >= 0 && enters < a.in[1], whole = x0 >= a.before[1] && enters < a.in[1];
            lanes value;
#pragma unroll
            for (int v = 0; v < V; v++) value.v[v] = ct_load<float>(read.v[v]), sum[TAPS].v[v] += value.v[v];
#pragma unroll
            for (int i = 0; i < SIDE; i++) {
#pragma unroll
                for (int j = 0; j + 1 < SIDE; j++) window[i][j] = window[i][j + 1];
                if (!x[i]) continue;
                window[i][SIDE - 1] = inside ? ct_load<float>(*x[i]) : 0.0f;
                x[i] += a.x_s[1];
#pragma unroll
                for (int j = 0; j < SIDE; j++) {
                    const int w = x0 + j - a.before[1];
                    if (!whole && (w < 0 || w >= a.in[1])) continue;
#pragma unroll
                    for (int v = 0; v < V; v++)
                        sum[i * SIDE + j].v[v] = fmaf(window[i][j], value.v[v], sum[i * SIDE + j].v[v]);
                }
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

// Any strides, as channels first: a block takes an output channel of some images, a thread some rows of results in a column of one. It goes
// down the rows of x that they meet with the gradients in registers that a row meets: those of results y = row + before - tap.
template <typename S, int SIDE> __device__ void first(const ct_cuda_single &a) {
    constexpr int TAPS = SIDE * SIDE;
    __shared__ float shares[THREADS / 32][TAPS + 1];
    const int part = blockIdx.x % a.parts, c = blockIdx.x / a.parts;
    const int each = (a.batch + a.parts - 1) / a.parts, begin = part * each,
              images = begin + each < a.batch ? each : a.batch - begin;
    float sum[TAPS + 1] = {};
    for (int item = threadIdx.x; item < images * a.segments * a.out[1]; item += THREADS) {
        const int strip = item / a.out[1], x0 = item - strip * a.out[1], image = strip / a.segments, n = begin + image;
        const int top = (strip - image * a.segments) * a.rows, end = top + a.rows < a.out[0] ? top + a.rows : a.out[0];
        const S *g = (const S *)a.g + n * a.g_n + c * a.g_c + top * a.g_s[0] + x0 * a.g_s[1],
                *x = (const S *)a.x + n * a.x_n;
        bool inside[SIDE];
        const S *column[SIDE];
        float met[SIDE];
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            const int w = x0 + j - a.before[1];
            inside[j] = w >= 0 && w < a.in[1];
            column[j] = x + w * a.x_s[1];
            met[j] = 0.0f;
        }
        // rows outside of x meet nothing, but the bias has their results
        for (int row0 = top - a.before[0]; row0 < end - a.before[0] + SIDE - 1; row0 += AHEAD) {
            float coming[AHEAD], pixels[AHEAD][SIDE]; // read at once: one at a time would wait for memory each time
#pragma unroll
            for (int r = 0; r < AHEAD; r++) {
                const int row = row0 + r, enters = row + a.before[0];
                coming[r] = enters < end ? ct_load<float>(g[r * a.g_s[0]]) : 0.0f;
#pragma unroll
                for (int j = 0; j < SIDE; j++)
                    pixels[r][j] =
                        inside[j] && row >= 0 && row < a.in[0] ? ct_load<float>(column[j][row * a.x_s[0]]) : 0.0f;
            }
            g += AHEAD * a.g_s[0];
#pragma unroll
            for (int r = 0; r < AHEAD; r++) {
                const int row = row0 + r, enters = row + a.before[0];
#pragma unroll
                for (int i = SIDE - 1; i > 0; i--) met[i] = met[i - 1];
                met[0] = coming[r];
                sum[TAPS] += coming[r];
                if (row < 0 || row >= a.in[0]) continue;
#pragma unroll
                for (int i = 0; i < SIDE; i++) {
                    if (enters - i < top || enters - i >= end) continue;
#pragma unroll
                    for (int j = 0; j < SIDE; j++)
                        if (inside[j]) sum[i * SIDE + j] = fmaf(pixels[r][j], met[i], sum[i * SIDE + j]);
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k <= TAPS; k++) {
#pragma unroll
        for (int distance = 16; distance; distance /= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], distance);
        if (threadIdx.x % 32 == 0) shares[threadIdx.x / 32][k] = sum[k];
    }
    __syncthreads();
    const int k = threadIdx.x;
    if (k > TAPS) return;
    float all = shares[0][k];
#pragma unroll
    for (int warp = 1; warp < THREADS / 32; warp++) all += shares[warp][k];
    a.partial[((int64_t)part * (TAPS + 1) + k) * a.channels + c] = all;
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

// ---- Forward ----

struct pixel {
    int n, y, x;
    CT_DEVICE pixel(const ct_cuda_single_forward &a, uint32_t number) {
        const uint32_t row = number / a.out[1];
        x = (int)(number - row * a.out[1]);
        n = (int)(row / a.out[0]);
        y = (int)(row - (uint32_t)n * a.out[0]);
    }
};

// The window of a result; 0 outside of the image, where weights are left out.
template <typename S, int SIDE>
CT_DEVICE void look(const ct_cuda_single_forward &a, const pixel &p, float *window, bool *inside) {
    const S *x = (const S *)a.x + p.n * a.x_n;
#pragma unroll
    for (int k = 0; k < SIDE * SIDE; k++) {
        const int h = p.y + k / SIDE - a.before[0], w = p.x + k % SIDE - a.before[1];
        inside[k] = h >= 0 && h < a.in[0] && w >= 0 && w < a.in[1];
        window[k] = inside[k] ? ct_load<float>(x[h * a.x_s[0] + w * a.x_s[1]]) : 0.0f;
    }
}

// A thread has a pixel and a.each channels, so that few pixels are still many threads; neighbours have neighbouring pixels.
template <typename S, int SIDE> __device__ void forward_first(const ct_cuda_single_forward &a) {
    constexpr int TAPS = SIDE * SIDE;
    __shared__ float weights[CT_SINGLE_CHANNELS][TAPS + 1]; // the bias behind them
    if (ct_does_nothing(a.head)) return;
    for (int e = threadIdx.x; e < a.channels * (TAPS + 1); e += THREADS) {
        const int c = e / (TAPS + 1), k = e - c * (TAPS + 1);
        const S *w = (const S *)a.w + c * a.w_o + k / SIDE * a.w_k[0] + k % SIDE * a.w_k[1];
        weights[c][k] = k < TAPS ? ct_load<float>(*w)
                        : a.bias ? ct_load<float>(((const S *)a.bias)[c * a.bias_stride])
                                 : 0.0f;
    }
    __syncthreads();
    const uint32_t pixels = (uint32_t)a.batch * a.out[0] * a.out[1];
    for (int64_t item = ct_first(); item < a.items; item += ct_step()) {
        const uint32_t group = (uint32_t)item / pixels;
        const pixel p(a, (uint32_t)item - group * pixels);
        const int from = (int)group * a.each, to = from + a.each < a.channels ? from + a.each : a.channels;
        float window[TAPS];
        bool inside[TAPS];
        look<S, SIDE>(a, p, window, inside);
        S *y = (S *)a.y + p.n * a.y_n + p.y * a.y_s[0] + p.x * a.y_s[1];
#pragma unroll 2
        for (int c = from; c < to; c++) {
            float sum = weights[c][TAPS];
#pragma unroll
            for (int k = 0; k < TAPS; k++) sum = inside[k] ? fmaf(window[k], weights[c][k], sum) : sum;
            y[c * a.y_c] = ct_store<S>(ct_activate(a.activation, sum));
        }
    }
}

// Channels last: a thread has a pack of channels, whose weights it keeps, and goes from pixel to pixel.
template <typename S, int SIDE> __device__ void forward_last(const ct_cuda_single_forward &a) {
    constexpr int TAPS = SIDE * SIDE;
    if (ct_does_nothing(a.head)) return;
    const uint32_t packs = a.channels / V;
    // the grid is a multiple of the packs, so the step keeps a thread at its channels
    const int64_t first = ct_first(), step = ct_step();
    const int c = (int)((uint32_t)first % packs) * V;
    lanes weights[TAPS], bias = {};
#pragma unroll
    for (int k = 0; k < TAPS; k++)
#pragma unroll
        for (int v = 0; v < V; v++)
            weights[k].v[v] =
                ct_load<float>(((const S *)a.w)[(c + v) * a.w_o + k / SIDE * a.w_k[0] + k % SIDE * a.w_k[1]]);
    if (a.bias)
#pragma unroll
        for (int v = 0; v < V; v++) bias.v[v] = ct_load<float>(((const S *)a.bias)[(c + v) * a.bias_stride]);
    for (int64_t item = first; item < a.items; item += step) {
        const pixel p(a, (uint32_t)item / packs);
        float window[TAPS];
        bool inside[TAPS];
        look<S, SIDE>(a, p, window, inside);
        lanes sum = bias;
#pragma unroll
        for (int k = 0; k < TAPS; k++)
#pragma unroll
            for (int v = 0; v < V; v++) sum.v[v] = inside[k] ? fmaf(window[k], weights[k].v[v], sum.v[v]) : sum.v[v];
        pack<S> out;
#pragma unroll
        for (int v = 0; v < V; v++) out.v[v] = ct_store<S>(ct_activate(a.activation, sum.v[v]));
        *(pack<S> *)((S *)a.y + p.n * a.y_n + p.y * a.y_s[0] + p.x * a.y_s[1] + c) = out;
    }
}

#define FORWARD(name, type, call)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS) single_##name##_##type(const ct_cuda_single_forward a) { \
        ct_wait_for_kernel_before();                                                                               \
        call(a);                                                                                                   \
    }
#define KERNEL(name, type, at_once, call)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, at_once) single_##name##_##type(const ct_cuda_single a) { \
        ct_wait_for_kernel_before();                                                                                \
        call(a);                                                                                                    \
    }
#define KERNELS(type, S)                    \
    KERNEL(last_3, type, 1, (last<S, 3>))      \
    KERNEL(last_5, type, 1, (last<S, 5>))      \
    KERNEL(first_3, type, 4, (first<S, 3>))    \
    KERNEL(first_5, type, 2, (first<S, 5>))    \
    KERNEL(merge, type, 1, merge<S>)           \
    FORWARD(forward_first_3, type, (forward_first<S, 3>)) \
    FORWARD(forward_first_5, type, (forward_first<S, 5>)) \
    FORWARD(forward_last_3, type, (forward_last<S, 3>))   \
    FORWARD(forward_last_5, type, (forward_last<S, 5>))
KERNELS(f32, float)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
