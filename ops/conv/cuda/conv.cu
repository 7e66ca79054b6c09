// Convolutions as products whose operands are gathered: rows are positions of the result (of weights: output channels), columns its
// channels (taps of input channels), and what is summed over the other two.
#include "backends/cuda/thread.cuh"
#include "backends/cuda/tile.cuh"
#include "ops/conv/cuda/conv.h"

// A number below a * b * c as three, the last innermost.
struct place {
    int64_t at[3];
    CT_DEVICE place(int64_t number, const int64_t *sizes) {
        at[2] = number % sizes[2];
        number /= sizes[2];
        at[1] = number % sizes[1];
        at[0] = number / sizes[1];
    }
};

// y [batch, positions; out] = sum over in channels and taps of x w.
template <typename S> __device__ void forward(const ct_cuda_conv &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    if (ct_does_nothing(p.head)) return;
    const int64_t m = p.batch * p.positions, n = p.out_each, k_all = p.in_each * p.taps;
    const int64_t columns = (n + CT_TILE - 1) / CT_TILE, tiles = columns * ((m + CT_TILE - 1) / CT_TILE);
    for (int64_t item = blockIdx.x; item < tiles * p.groups; item += gridDim.x) {
        const int64_t tile = item % tiles, group = item / tiles, in0 = group * p.in_each, out0 = group * p.out_each;
        ct_multiply_tile<C>(
            m, n, 0, k_all, tile / columns * CT_TILE, tile % columns * CT_TILE, p.x_c == 1, p.w_o != 1,
            [&](int64_t i, int64_t k) {
                const int64_t channel = p.x_c == 1 ? k % p.in_each : k / p.taps,
                              tap = p.x_c == 1 ? k / p.in_each : k % p.taps;
                const place o(i % p.positions, p.out), t(tap, p.kernel);
                int64_t offset = i / p.positions * p.x_n + (in0 + channel) * p.x_c;
                for (int d = 0; d < 3; d++) {
                    const int64_t at = o.at[d] * p.stride[d] + t.at[d] * p.dilation[d] - p.before[d];
                    if (at < 0 || at >= p.in[d]) return C(0);
                    offset += at * p.x_s[d];
                }
                return P::load(((const S *)p.x)[offset]);
            },
            [&](int64_t k, int64_t j) {
                const int64_t channel = p.x_c == 1 ? k % p.in_each : k / p.taps,
                              tap = p.x_c == 1 ? k / p.in_each : k % p.taps;
                const place t(tap, p.kernel);
                return P::load(((const S *)p.w)[(out0 + j) * p.w_o + channel * p.w_i + t.at[0] * p.w_k[0] +
                                                t.at[1] * p.w_k[1] + t.at[2] * p.w_k[2]]);
            },
            [&](int64_t i, int64_t j, C sum) {
                const place o(i % p.positions, p.out);
                if (p.bias) sum += P::load(((const S *)p.bias)[(out0 + j) * p.bias_stride]);
                ((S *)p.y)[i / p.positions * p.y_n + (out0 + j) * p.y_c + o.at[0] * p.y_s[0] + o.at[1] * p.y_s[1] +
                           o.at[2] * p.y_s[2]] = P::store(sum);
            });
    }
}

// x [batch, positions; in] = sum over out channels and taps of y w, at the windows that see the position.
template <typename S> __device__ void input_grad(const ct_cuda_conv &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    if (ct_does_nothing(p.head)) return;
    const int64_t m = p.batch * p.positions, n = p.in_each, k_all = p.out_each * p.taps;
    const int64_t columns = (n + CT_TILE - 1) / CT_TILE, tiles = columns * ((m + CT_TILE - 1) / CT_TILE);
    for (int64_t item = blockIdx.x; item < tiles * p.groups; item += gridDim.x) {
        const int64_t tile = item % tiles, group = item / tiles, in0 = group * p.in_each, out0 = group * p.out_each;
        ct_multiply_tile<C>(
            m, n, 0, k_all, tile / columns * CT_TILE, tile % columns * CT_TILE, p.y_c == 1, p.w_i != 1,
            [&](int64_t i, int64_t k) {
                const int64_t channel = p.y_c == 1 ? k % p.out_each : k / p.taps,
                              tap = p.y_c == 1 ? k / p.out_each : k % p.taps;
                const place at(i % p.positions, p.in), t(tap, p.kernel);
                int64_t offset = i / p.positions * p.y_n + (out0 + channel) * p.y_c;
                for (int d = 0; d < 3; d++) {
                    const int64_t from = at.at[d] + p.before[d] - t.at[d] * p.dilation[d], o = from / p.stride[d];
                    if (from < 0 || o * p.stride[d] != from || o >= p.out[d]) return C(0);
                    offset += o * p.y_s[d];
                }
                return P::load(((const S *)p.y)[offset]);
            },
            [&](int64_t k, int64_t j) {
                const int64_t channel = p.y_c == 1 ? k % p.out_each : k / p.taps,
                              tap = p.y_c == 1 ? k / p.out_each : k % p.taps;
                const place t(tap, p.kernel);
                return P::load(((const S *)p.w)[(out0 + channel) * p.w_o + j * p.w_i + t.at[0] * p.w_k[0] +
                                                t.at[1] * p.w_k[1] + t.at[2] * p.w_k[2]]);
            },
            [&](int64_t i, int64_t j, C sum) {
                const place at(i % p.positions, p.in);
                if (p.bias) sum += P::load(((const S *)p.bias)[(in0 + j) * p.bias_stride]);
                ((S *)p.x)[i / p.positions * p.x_n + (in0 + j) * p.x_c + at.at[0] * p.x_s[0] + at.at[1] * p.x_s[1] +
                           at.at[2] * p.x_s[2]] = P::store(sum);
            });
    }
}

// Parts of w [out; in, taps] = sum over images and positions of y x. Each part is summed by itself, then all in order.
template <typename S> __device__ void weight_parts(const ct_cuda_conv &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    const int64_t m = p.out_each, n = p.in_each * p.taps, k_all = p.batch * p.positions;
    const int64_t columns = (n + CT_TILE - 1) / CT_TILE, tiles = columns * ((m + CT_TILE - 1) / CT_TILE);
    for (int64_t item = blockIdx.x; item < tiles * p.groups * p.parts; item += gridDim.x) {
        const int64_t tile = item % tiles, rest = item / tiles, group = rest % p.groups, part = rest / p.groups,
                      in0 = group * p.in_each, out0 = group * p.out_each, first = part * p.part,
                      last = first + p.part < k_all ? first + p.part : k_all;
        C *sums = (C *)p.scratch + (part * p.groups + group) * m * n;
        ct_multiply_tile<C>(
            m, n, first, last, tile / columns * CT_TILE, tile % columns * CT_TILE, p.y_c != 1, p.x_c != 1,
            [&](int64_t i, int64_t k) {
                const place o(k % p.positions, p.out);
                return P::load(((const S *)p.y)[k / p.positions * p.y_n + (out0 + i) * p.y_c + o.at[0] * p.y_s[0] +
                                                o.at[1] * p.y_s[1] + o.at[2] * p.y_s[2]]);
            },
            [&](int64_t k, int64_t j) {
                const int64_t channel = j % p.in_each, tap = j / p.in_each;
                const place o(k % p.positions, p.out), t(tap, p.kernel);
                int64_t offset = k / p.positions * p.x_n + (in0 + channel) * p.x_c;
                for (int d = 0; d < 3; d++) {
                    const int64_t at = o.at[d] * p.stride[d] + t.at[d] * p.dilation[d] - p.before[d];
                    if (at < 0 || at >= p.in[d]) return C(0);
                    offset += at * p.x_s[d];
                }
                return P::load(((const S *)p.x)[offset]);
            },
            [&](int64_t i, int64_t j, C sum) { sums[i * n + j] = sum; });
    }
}

template <typename S> __device__ void weight_sum(const ct_cuda_conv &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    if (ct_does_nothing(p.head)) return;
    const int64_t m = p.out_each, n = p.in_each * p.taps, all = p.groups * m * n;
    for (int64_t e = ct_first(); e < all; e += ct_step()) {
        C sum = C(0);
        for (int part = 0; part < p.parts; part++) sum += ((const C *)p.scratch)[part * all + e];
        const int64_t j = e % n, i = e / n; /* i counts the output channels of all groups */
        const place t(j / p.in_each, p.kernel);
        ((S *)p.w)[i * p.w_o + j % p.in_each * p.w_i + t.at[0] * p.w_k[0] + t.at[1] * p.w_k[1] + t.at[2] * p.w_k[2]] =
            P::store(sum);
    }
}

// One block per channel: each thread a share in a fixed order, then a tree.
template <typename S> __device__ void bias_sum(const ct_cuda_conv &p) {
    typedef ct_product_of<S> P;
    typedef typename P::type C;
    __shared__ C shares[CT_TILE_THREADS];
    if (ct_does_nothing(p.head)) return;
    for (int64_t channel = blockIdx.x; channel < p.groups * p.out_each; channel += gridDim.x) {
        C sum = C(0);
        for (int64_t k = threadIdx.x; k < p.batch * p.positions; k += CT_TILE_THREADS) {
            const place o(k % p.positions, p.out);
            sum += P::load(((const S *)p.y)[k / p.positions * p.y_n + channel * p.y_c + o.at[0] * p.y_s[0] +
                                            o.at[1] * p.y_s[1] + o.at[2] * p.y_s[2]]);
        }
        shares[threadIdx.x] = sum;
        __syncthreads();
        for (int half = CT_TILE_THREADS / 2; half; half /= 2) {
            if ((int)threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) ((S *)p.bias_grad)[channel * p.bias_grad_stride] = P::store(shares[0]);
        __syncthreads();
    }
}

#define KERNELS(name, S)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) forward_##name(const ct_cuda_conv p) { forward<S>(p); }  \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) input_grad_##name(const ct_cuda_conv p) {                \
        input_grad<S>(p);                                                                                                  \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) weight_parts_##name(const ct_cuda_conv p) {              \
        weight_parts<S>(p);                                                                                                \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) weight_sum_##name(const ct_cuda_conv p) {                \
        weight_sum<S>(p);                                                                                                  \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(CT_TILE_THREADS) bias_sum_##name(const ct_cuda_conv p) { bias_sum<S>(p); }
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
