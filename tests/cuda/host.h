// What device code needs of CUDA's language to be compiled for the host. The threads of a block are threads of the host, which meet at barriers;
// blocks come one after the other. With tests/cuda/warps.h before it they are coroutines, whose warps work together.
#pragma once

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __shared__       static

#ifndef CT_WARPS
#define CT_DYNAMIC_SHARED(name) alignas(16) static char name[1 << 16]

struct ct_place {
    unsigned x, y;
};
static thread_local ct_place blockIdx, threadIdx;
static ct_place gridDim, blockDim;
static pthread_barrier_t ct_barrier;
static uint32_t ct_exchanged[1024];

static void __syncthreads() { pthread_barrier_wait(&ct_barrier); }
static uint32_t __shfl_xor_sync(unsigned, uint32_t x, int distance) {
    ct_exchanged[threadIdx.x] = x;
    __syncthreads();
    const uint32_t y = ct_exchanged[threadIdx.x ^ (unsigned)distance];
    __syncthreads();
    return y;
}

struct ct_host_thread {
    void (*kernel)(const void *arguments);
    const void *arguments;
    unsigned block, thread;
};
static void *ct_run_thread(void *context) {
    const ct_host_thread *t = (const ct_host_thread *)context;
    blockIdx.x = t->block, threadIdx.x = t->thread;
    t->kernel(t->arguments);
    return nullptr;
}
extern "C" int ct_run_blocks(void (*kernel)(const void *), const void *arguments, unsigned blocks, unsigned threads) {
    static pthread_t running[1024];
    static ct_host_thread all[1024];
    gridDim.x = blocks, blockDim.x = threads;
    for (unsigned b = 0; b < blocks; b++) {
        pthread_barrier_init(&ct_barrier, nullptr, threads);
        for (unsigned t = 0; t < threads; t++) {
            all[t] = ct_host_thread{kernel, arguments, b, t};
            if (pthread_create(&running[t], nullptr, ct_run_thread, &all[t])) return 0;
        }
        for (unsigned t = 0; t < threads; t++) pthread_join(running[t], nullptr);
        pthread_barrier_destroy(&ct_barrier);
    }
    return 1;
}

#endif

template <typename To, typename From> static To ct_same_bits(From x) {
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static float __uint_as_float(uint32_t x) { return ct_same_bits<float>(x); }
static uint32_t __float_as_uint(float x) { return ct_same_bits<uint32_t>(x); }
static uint32_t __umulhi(uint32_t x, uint32_t y) { return (uint32_t)((uint64_t)x * y >> 32); }
static double __hiloint2double(int high, int low) {
    return ct_same_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}
static int __double2loint(double x) { return (int)(uint32_t)ct_same_bits<uint64_t>(x); }
static int __double2hiint(double x) { return (int)(uint32_t)(ct_same_bits<uint64_t>(x) >> 32); }
static double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static float erfinvf(float) { return NAN; }
static double erfinv(double) { return NAN; }
static int64_t min(int64_t x, int64_t y) { return x < y ? x : y; }
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
static float2 make_float2(float x, float y) { return float2{x, y}; }
