// Beside the products of linear: bias and activation where the product has no epilogue for them, the slope of the activation, and sums of
// columns where the product does not make them.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/elementwise.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/number.cuh"
#include "ops/matmul/cuda/linear.h"

template <typename S, typename Z> __device__ void finish(const ct_linear_finish &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    const Z *z = (const Z *)a.z;
    const S *bias = (const S *)a.bias;
    S *y = (S *)a.y;
    const int64_t step = ct_step();
    if (a.packed) {
        const int64_t width = a.n / 4, total = a.rows * width;
        for (int64_t e = ct_first(); e < total; e += step) {
            const int64_t i = e / width, j = (e - i * width) * 4;
            const ct_pack<Z, 4> in = *(const ct_pack<Z, 4> *)(z + i * a.z_row + j);
            ct_pack<S, 4> add, out;
            if (bias) add = *(const ct_pack<S, 4> *)(bias + j);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                C x = ct_load<C>(in.v[k]);
                if (bias) x += ct_load<C>(add.v[k]);
                out.v[k] = ct_store<S>(ct_activate(a.activation, x));
            }
            *(ct_pack<S, 4> *)(y + i * a.y_row + j) = out;
        }
        return;
    }
    for (int64_t e = ct_first(); e < a.rows * a.n; e += step) {
        const int64_t i = e / a.n, j = e - i * a.n;
        C x = ct_load<C>(z[i * a.z_row + j]);
        if (bias) x += ct_load<C>(bias[j]);
        y[i * a.y_row + j] = ct_store<S>(ct_activate(a.activation, x));
    }
}

template <typename S> __device__ void slope(const ct_linear_slope &a) {
    typedef typename ct_number<S>::type C;
    if (ct_does_nothing(a.head)) return;
    constexpr int V = 16 / sizeof(S);
    const S *g = (const S *)a.g, *y = (const S *)a.y;
    S *out = (S *)a.out;
    const int64_t step = ct_step(), packs = a.packed ? a.nest.total / V : 0;
    for (int64_t p = ct_first(); p < packs; p += step) {
        ct_pack<S, V> from = ((const ct_pack<S, V> *)g)[p], at;
        if (y) at = ((const ct_pack<S, V> *)y)[p];
#pragma unroll
        for (int k = 0; k < V && y; k++)
            from.v[k] = ct_store<S>(ct_activation_grad(a.activation, ct_load<C>(at.v[k]), ct_load<C>(from.v[k])));
        ((ct_pack<S, V> *)out)[p] = from;
    }
    for (int64_t e = packs * V + ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        out[e] = y ? ct_store<S>(ct_activation_grad(a.activation, ct_load<C>(y[at[1]]), ct_load<C>(g[at[0]]))) : g[at[0]];
    }
}

// Each warp adds every eighth row of the chunk, a lane the columns of a pack; the eight are added in order.
template <typename S> __device__ void parts(const ct_linear_parts &a) {
    typedef typename ct_number<S>::type C;
    constexpr int V = 16 / sizeof(S);
    __shared__ C part[CT_LINEAR_ROWS][32 * V];
    if (ct_does_nothing(a.head)) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * 32 * V, column = first + lane * V, start = blockIdx.y * a.chunk;
    const int64_t end = start + a.chunk < a.rows ? start + a.chunk : a.rows;
    C sum[V];
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = C(0);
    if (column < a.n) {
#pragma unroll 4
        for (int64_t i = start + warp; i < end; i += CT_LINEAR_ROWS) {
            const ct_pack<S, V> in = *(const ct_pack<S, V> *)((const S *)a.g + i * a.g_row + column);
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] += ct_load<C>(in.v[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < V; k++) part[warp][lane * V + k] = sum[k];
    __syncthreads();
    for (int c = threadIdx.x; c < 32 * V && first + c < a.n; c += blockDim.x) {
        C all = part[0][c];
#pragma unroll
        for (int w = 1; w < CT_LINEAR_ROWS; w++) all += part[w][c];
        ((C *)a.out)[blockIdx.y * a.n + first + c] = all;
    }
}

// Each thread adds every eighth row of its column, in order; the eight are added as a tree, so that the bits are always the same. I is how
// rows are stored.
template <typename S, typename I> __device__ void sums(const ct_linear_sums &a) {
    typedef typename ct_number<S>::type C;
    __shared__ C part[CT_LINEAR_ROWS][CT_LINEAR_COLUMNS];
    if (ct_does_nothing(a.head)) return;
    const int lane = threadIdx.x % CT_LINEAR_COLUMNS, row = threadIdx.x / CT_LINEAR_COLUMNS;
    for (int64_t first = (int64_t)blockIdx.x * CT_LINEAR_COLUMNS; first < a.n; first += (int64_t)gridDim.x * CT_LINEAR_COLUMNS) {
        const int64_t j = first + lane;
        C sum = C(0);
        for (int64_t i = row; i < a.rows && j < a.n; i += CT_LINEAR_ROWS)
            sum += ct_load<C>(((const I *)a.g)[i * a.g_row + j * a.g_col]);
        part[row][lane] = sum;
        for (int half = CT_LINEAR_ROWS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (row < half) part[row][lane] += part[row + half][lane];
        }
        if (row == 0 && j < a.n) {
            if (a.wide) ((float *)a.out)[j] = (float)part[0][lane];
            else ((S *)a.out)[j] = ct_store<S>(part[0][lane]);
        }
        __syncthreads();
    }
}

#define LINEAR(name, S, C)                                                                          \
    extern "C" __global__ void linear_finish_##name(const ct_linear_finish a) { finish<S, C>(a); }  \
    extern "C" __global__ void linear_slope_##name(const ct_linear_slope a) { slope<S>(a); }        \
    extern "C" __global__ void linear_parts_##name(const ct_linear_parts a) { parts<S>(a); }        \
    extern "C" __global__ void linear_total_##name(const ct_linear_sums a) { sums<S, C>(a); }       \
    extern "C" __global__ void linear_sums_##name(const ct_linear_sums a) { sums<S, S>(a); }
LINEAR(f32, float, float)
LINEAR(f64, double, double)
LINEAR(f16, __half, float)
LINEAR(bf16, __nv_bfloat16, float)
