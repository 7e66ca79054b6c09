// What device code needs of CUDA's language to be compiled for the host, one thread at a time.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __noinline__
#define __launch_bounds__(...)

struct ct_place {
    unsigned x;
};
static ct_place blockIdx, threadIdx, gridDim, blockDim;
extern "C" void set_place(unsigned block, unsigned thread, unsigned blocks, unsigned threads) {
    blockIdx.x = block, threadIdx.x = thread, gridDim.x = blocks, blockDim.x = threads;
}

template <typename To, typename From> static To ct_same_bits(From x) {
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static float __uint_as_float(uint32_t x) { return ct_same_bits<float>(x); }
static uint32_t __float_as_uint(float x) { return ct_same_bits<uint32_t>(x); }
static uint32_t __umulhi(uint32_t x, uint32_t y) { return (uint32_t)((uint64_t)x * y >> 32); }
static double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static float erfinvf(float) { return NAN; }
static double erfinv(double) { return NAN; }
struct float2 {
    float x, y;
};
static float2 make_float2(float x, float y) { return float2{x, y}; }
