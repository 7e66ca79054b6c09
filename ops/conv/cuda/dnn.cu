// What follows a convolution that cuDNN could not do in its pass.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/nest.cuh"
#include "ops/conv/cuda/dnn.h"

template <typename T, int V> struct alignas(sizeof(T) * V) pack {
    T v[V];
};

// V neighbours at once; sums are of T. out may be sum.
template <typename S, typename T, typename C, int V> CT_DEVICE void finish(const ct_cuda_conv_finish &a) {
    for (int64_t e = ct_first(); e < a.nest.total / V; e += ct_step()) {
        int64_t at[4];
        ct_nest_place(a.nest, e * V, at);
        const pack<T, V> sum = *(const pack<T, V> *)((const T *)a.sum + at[1]);
        pack<S, V> residual, out;
        if (a.residual) residual = *(const pack<S, V> *)((const S *)a.residual + at[2]);
#pragma unroll
        for (int k = 0; k < V; k++) {
            C x = ct_load<C>(sum.v[k]);
            if (a.bias) x += ct_load<C>(((const S *)a.bias)[at[3] + (a.bias_along ? k : 0)]);
            if (a.residual) x += ct_load<C>(residual.v[k]);
            out.v[k] = ct_store<S>(ct_activate(a.activation, x));
        }
        *(pack<S, V> *)((S *)a.out + at[0]) = out;
    }
}

template <typename S, typename T, typename C> CT_DEVICE void finish_all(const ct_cuda_conv_finish &a) {
    if (a.packed) finish<S, T, C, 4>(a);
    else finish<S, T, C, 1>(a);
}

#define FINISH(name, S, C)                                                  \
    extern "C" __global__ void finish_##name(const ct_cuda_conv_finish a) { \
        if (ct_does_nothing(a.head)) return;                                \
        if (a.wide) finish_all<S, C, C>(a);                                 \
        else finish_all<S, S, C>(a);                                        \
    }
FINISH(f32, float, float)
FINISH(f64, double, double)
FINISH(f16, __half, float)
FINISH(bf16, __nv_bfloat16, float)
