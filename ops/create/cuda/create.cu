// Memory filled with one value, and with values that follow from their index.
#include "ops/create/cuda/create.h"

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"

// The value is converted once by each thread, and only its bits are written, 16 bytes at a time where that can be.
template <typename T> CT_DEVICE void fill(const ct_cuda_create &a) {
    constexpr int PACK = 16 / sizeof(T);
    union {
        uint4 all;
        T each[PACK];
    } bits;
    if (ct_does_nothing(a.head)) return;
    bits.each[0] = 0;
    ct_by_dtype(a.dtype, [&](auto tag) {
        typedef ct_of_dtype<decltype(tag)::value> stored;
        if constexpr (sizeof(typename stored::type) == sizeof(T)) {
            const auto value = a.whole ? stored::store(a.whole_start) : stored::store(a.start);
            memcpy(&bits.each[0], &value, sizeof(T));
        }
    });
#pragma unroll
    for (int k = 1; k < PACK; k++) bits.each[k] = bits.each[0];
    const int64_t first = ct_first(), step = ct_step(), packs = a.packs ? a.nest.total / PACK : 0;
    for (int64_t p = first; p < packs; p += step) ((uint4 *)a.to)[p] = bits.all;
    for (int64_t e = packs * PACK + first; e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        ((T *)a.to)[at[0]] = bits.each[0];
    }
}
extern "C" __global__ void fill_1(const __grid_constant__ ct_cuda_create a) { fill<uint8_t>(a); }
extern "C" __global__ void fill_2(const __grid_constant__ ct_cuda_create a) { fill<uint16_t>(a); }
extern "C" __global__ void fill_4(const __grid_constant__ ct_cuda_create a) { fill<uint32_t>(a); }
extern "C" __global__ void fill_8(const __grid_constant__ ct_cuda_create a) { fill<uint64_t>(a); }

extern "C" __global__ void line(const __grid_constant__ ct_cuda_create a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        if (a.whole) { // modulo 2^64, in which no step can overflow
            ((int64_t *)a.to)[at[0]] = (int64_t)((uint64_t)a.whole_start + (uint64_t)e * (uint64_t)a.whole_step);
            continue;
        }
        const double value = a.start + (double)e * a.step;
        ct_by_dtype(a.dtype, [&](auto tag) {
            typedef ct_of_dtype<decltype(tag)::value> stored;
            ((typename stored::type *)a.to)[at[0]] = stored::store(value);
        });
    }
}
