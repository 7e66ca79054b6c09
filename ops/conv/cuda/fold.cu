// Between images and filters as they lie and their folded copies.
#include "backends/cuda/thread.cuh"
#include "ops/conv/cuda/fold.h"

template <typename T> struct alignas(16) pack {
    T v[16 / sizeof(T)];
};

template <typename T> CT_DEVICE void fold(const ct_cuda_conv_fold &a) {
    constexpr uint32_t V = 16 / sizeof(T);
    const uint32_t packs = a.padded / V;
    for (int64_t item = ct_first(); item < a.items; item += ct_step()) {
        uint32_t rest = (uint32_t)item / packs;
        const uint32_t channel = ((uint32_t)item - rest * packs) * V;
        const uint32_t j = rest % a.folded_size[1];
        rest /= a.folded_size[1];
        const uint32_t i = rest % a.folded_size[0], n = rest / a.folded_size[0];
        const uint32_t r = channel / a.channels;
        uint32_t c = channel - r * a.channels, r1 = r % a.stride[1], r0 = r / a.stride[1];
        pack<T> out;
#pragma unroll
        for (uint32_t v = 0; v < V; v++) {
            // below zero they wrap and are outside as well
            const uint32_t at0 = i * a.stride[0] + r0 - a.before[0], at1 = j * a.stride[1] + r1 - a.before[1];
            const bool inside = r0 < a.stride[0] && at0 < a.size[0] && at1 < a.size[1];
            const int64_t at = n * a.outer_stride + c * a.channel_stride + at0 * a.strides[0] + at1 * a.strides[1];
            out.v[v] = inside ? ((const T *)a.plain)[at] : T(0);
            if (++c == a.channels) {
                c = 0;
                if (++r1 == a.stride[1]) r1 = 0, r0++;
            }
        }
        ((pack<T> *)a.folded)[item] = out;
    }
}

template <typename T> CT_DEVICE void unfold(const ct_cuda_conv_fold &a) {
    if (ct_does_nothing(a.head)) return;
    for (int64_t item = ct_first(); item < a.items; item += ct_step()) {
        uint32_t rest = (uint32_t)item, c = 0;
        if (a.channels_inner) c = rest % a.channels, rest /= a.channels;
        const uint32_t w = rest % a.size[1];
        rest /= a.size[1];
        const uint32_t h = rest % a.size[0];
        rest /= a.size[0];
        if (!a.channels_inner) c = rest % a.channels, rest /= a.channels;
        const uint32_t i = (h + a.before[0]) / a.stride[0], r0 = h + a.before[0] - i * a.stride[0],
                       j = (w + a.before[1]) / a.stride[1], r1 = w + a.before[1] - j * a.stride[1];
        const int64_t from = (((int64_t)rest * a.folded_size[0] + i) * a.folded_size[1] + j) * a.padded +
                             (r0 * a.stride[1] + r1) * a.channels + c;
        ((T *)a.plain)[rest * a.outer_stride + c * a.channel_stride + h * a.strides[0] + w * a.strides[1]] =
            i < a.folded_size[0] && j < a.folded_size[1] ? ((const T *)a.folded)[from] : T(0);
    }
}

#define FOLD(size, T)                                                               \
    extern "C" __global__ void fold_##size(const ct_cuda_conv_fold a) { fold<T>(a); } \
    extern "C" __global__ void unfold_##size(const ct_cuda_conv_fold a) { unfold<T>(a); }
FOLD(2, uint16_t)
FOLD(4, uint32_t)
