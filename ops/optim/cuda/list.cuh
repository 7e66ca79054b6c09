// Lists of items, walked in chunks of elements by all blocks of a launch.
//
// A step reads its numbers (rates, clock, gate) on the device, and moves the clock on after all blocks have read it: each counts itself
// when it has, and the last one to come writes. A list too long for one table takes several launches, of which only the last does so.
// The counters are part of the device code and go back to 0 by themselves; calls take turns with them, so that two that run at once on
// different streams do not share one.
#pragma once

#include <cotangent.h>

#include "backends/cuda/thread.cuh"
#include "ops/optim/cuda/optim.h"
#include "ops/optim/numbers.h"

static __device__ unsigned counters[CT_OPTIM_COUNTERS];

// True in the block that is the last to call it.
CT_DEVICE bool ct_is_last_block(const ct_cuda_optim &a) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); // what the block has written is there before it is counted
        last = atomicInc(&counters[a.counter], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// ---- Numbers ----

template <typename C> CT_DEVICE C ct_element(const char *at, int dtype, int64_t i) {
    switch (dtype) {
    case CT_F64: return (C)((const double *)at)[i];
    case CT_F16: return (C)__half2float(((const __half *)at)[i]);
    case CT_BF16: return (C)__bfloat162float(((const __nv_bfloat16 *)at)[i]);
    default: return (C)((const float *)at)[i];
    }
}
template <typename C> CT_DEVICE void ct_put_element(char *at, int dtype, int64_t i, C x) {
    switch (dtype) {
    case CT_F64: ((double *)at)[i] = (double)x; break;
    case CT_F16: ((__half *)at)[i] = __float2half_rn((float)x); break;
    case CT_BF16: ((__nv_bfloat16 *)at)[i] = __float2bfloat16_rn((float)x); break;
    default: ((float *)at)[i] = (float)x; break;
    }
}
CT_DEVICE double ct_vector_at(const ct_optim_vector &v, int i) {
    return ct_element<double>(v.at, v.dtype, i * v.stride);
}
CT_DEVICE void ct_vector_put(const ct_optim_vector &v, int i, double x) {
    ct_put_element<double>(v.at, v.dtype, i * v.stride, x);
}

// The number of items, for a call that wants it.
CT_DEVICE void ct_put_count(const ct_cuda_optim &a) {
    if (a.last && a.out.at && blockIdx.x == 0 && threadIdx.x == 0) ct_vector_put(a.out, 0, a.all);
}

// The numbers of a step in shared memory, and the clock moved on if this is the call's last list. False: the step is left out.
// S: Numbers, RATES, and of(attributes, inputs).
template <typename S> __device__ bool ct_step_numbers(const ct_cuda_optim &a, typename S::Numbers &numbers) {
    __shared__ bool open;
    __shared__ double next[2];
    if (threadIdx.x == 0) {
        open = !ct_does_nothing(a.head) && ct_vector_at(a.gate, 1) != 0;
        if (open) {
            optim_inputs in;
            for (int i = 0; i < S::RATES; i++) in.rate[i] = ct_vector_at(a.rates, i);
            in.t = ct_vector_at(a.clock, 0) + 1;
            in.remembered = ct_vector_at(a.clock, 1);
            in.scale = in.rate[RATE_SIGN] * ct_vector_at(a.gate, 0);
            numbers = S::of(a.attrs.bytes, &in);
            next[0] = in.t;
            next[1] = in.remembered;
        }
    }
    if (!a.last) {
        __syncthreads();
        return open;
    }
    // Who comes last has seen what all others saw: an error word that was set in between shuts only what comes after.
    if (ct_is_last_block(a) && threadIdx.x == 0 && open) {
        ct_vector_put(a.clock, 0, next[0]);
        ct_vector_put(a.clock, 1, next[1]);
    }
    return open;
}

// ---- Chunks ----

// Elements start .. start + n of an item.
struct ct_part {
    int item;
    int64_t start, n;
};
CT_DEVICE uint32_t ct_first_chunk(const ct_cuda_optim &a, int item) {
    return item < a.items ? (uint32_t)a.table[a.items * (a.width + 1) + item] : a.chunks;
}
CT_DEVICE int ct_dtype_in(const ct_cuda_optim &a, int item, int k) {
    const uint32_t all = (uint32_t)(a.table[a.items * (a.width + 1) + item] >> 32);
    return all >> (k * CT_OPTIM_DTYPE_BITS) & ((1 << CT_OPTIM_DTYPE_BITS) - 1);
}
CT_DEVICE char *ct_tensor_in(const ct_cuda_optim &a, int item, int k) { return (char *)a.table[item * a.width + k]; }
CT_DEVICE ct_part ct_chunk_at(const ct_cuda_optim &a, uint32_t chunk) {
    int low = 0, high = a.items;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (ct_first_chunk(a, middle) <= chunk) low = middle;
        else high = middle;
    }
    const int64_t start = (int64_t)(chunk - ct_first_chunk(a, low)) * a.chunk;
    const int64_t left = (int64_t)a.table[a.items * a.width + low] - start;
    return ct_part{low, start, left < a.chunk ? left : (int64_t)a.chunk};
}

// ---- Elements ----
//
// D, what is done: N tensors of an item (x[0] what is learned, x[1] the gradient), READS and WRITES with a bit for each that it takes
// and that it changes, and operator()(C (&x)[N]), which computes in C.

struct alignas(8) ct_halves {
    uint16_t v[4];
};
CT_DEVICE float ct_from_half(uint16_t x, bool bf16) {
    return bf16 ? __uint_as_float((uint32_t)x << 16) : __half2float(__ushort_as_half(x));
}
CT_DEVICE uint16_t ct_to_half(float x, bool bf16) {
    return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : __half_as_ushort(__float2half_rn(x));
}

// All dense, aligned and f32, but for those in HALVES, which are of one half type, as is the rounded parameter.
template <unsigned HALVES> struct ct_fast {
    template <typename D> CT_DEVICE static void chunk(const ct_cuda_optim &a, const ct_part &c, D &does) {
        enum { N = D::N, HALF = HALVES & 1 ? 0 : 1 };
        const bool master = HALVES && a.master;
        const bool bf16 = HALVES && ct_dtype_in(a, c.item, master + HALF) == CT_BF16;
        char *at[N], *rounded = master ? ct_tensor_in(a, c.item, 0) + c.start * 2 : NULL;
#pragma unroll
        for (int k = 0; k < N; k++)
            at[k] = ct_tensor_in(a, c.item, k + master) + c.start * (HALVES >> k & 1 ? 2 : 4);
        const int n = (int)c.n, packs = n / 4;
        // As many loads under way at once as keep the memory busy, whatever N is.
        constexpr int U = N == 1 ? 4 : N == 2 ? 2 : 1;
        for (int first = threadIdx.x; first < packs; first += U * CT_OPTIM_THREADS) {
            float4 x[U][N];
            ct_halves h[U][N];
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < N; k++) {
                    const int p = first + u * CT_OPTIM_THREADS;
                    h[u][k] = ct_halves{}, x[u][k] = float4{};
                    if (!(D::READS >> k & 1) || (u && p >= packs)) continue;
                    if (HALVES >> k & 1) h[u][k] = ((const ct_halves *)at[k])[p];
                    else x[u][k] = ((const float4 *)at[k])[p];
                }
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int p = first + u * CT_OPTIM_THREADS;
                if (u && p >= packs) break;
                ct_halves r;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float v[N];
#pragma unroll
                    for (int k = 0; k < N; k++)
                        v[k] = HALVES >> k & 1 ? ct_from_half(h[u][k].v[i], bf16) : ((const float *)&x[u][k])[i];
                    does(v);
#pragma unroll
                    for (int k = 0; k < N; k++) {
                        if (HALVES >> k & 1) h[u][k].v[i] = ct_to_half(v[k], bf16);
                        else ((float *)&x[u][k])[i] = v[k];
                    }
                    if (master) r.v[i] = ct_to_half(v[0], bf16);
                }
#pragma unroll
                for (int k = 0; k < N; k++) {
                    if (!(D::WRITES >> k & 1)) continue;
                    if (HALVES >> k & 1) ((ct_halves *)at[k])[p] = h[u][k];
                    else ((float4 *)at[k])[p] = x[u][k];
                }
                if (master && D::WRITES & 1) ((ct_halves *)rounded)[p] = r;
            }
        }
        const int e = packs * 4 + threadIdx.x;
        if (e >= n) return;
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (!(D::READS >> k & 1)) v[k] = 0;
            else v[k] = HALVES >> k & 1 ? ct_from_half(((const uint16_t *)at[k])[e], bf16) : ((const float *)at[k])[e];
        }
        does(v);
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (!(D::WRITES >> k & 1)) continue;
            if (HALVES >> k & 1) ((uint16_t *)at[k])[e] = ct_to_half(v[k], bf16);
            else ((float *)at[k])[e] = v[k];
        }
        if (master && D::WRITES & 1) ((uint16_t *)rounded)[e] = ct_to_half(v[0], bf16);
    }
};

// Any dtypes, and any strides; computed in C.
template <typename C> struct ct_mixed {
    CT_DEVICE static void places(const ct_cuda_optim &a, int64_t e, int64_t (&at)[OPTIM_WIDTH]) {
        for (int k = 0; k < OPTIM_WIDTH; k++) at[k] = a.strided ? 0 : e;
        if (!a.strided) return;
        const ct_optim_strides &s = *(const ct_optim_strides *)&a.table[a.width + 2];
        for (int d = (int)s.ndim - 1; d >= 0; d--) {
            const int64_t whole = e / s.dims[d], i = e - whole * s.dims[d];
            for (int k = 0; k < OPTIM_WIDTH; k++) at[k] += i * s.strides[k][d];
            e = whole;
        }
    }
    template <typename D> CT_DEVICE static void chunk(const ct_cuda_optim &a, const ct_part &c, D &does) {
        enum { N = D::N };
        const int master = a.master;
        for (int64_t e = c.start + threadIdx.x; e < c.start + c.n; e += CT_OPTIM_THREADS) {
            int64_t at[OPTIM_WIDTH];
            places(a, e, at);
            C v[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = !(D::READS >> k & 1) ? (C)0
                                            : ct_element<C>(ct_tensor_in(a, c.item, k + master),
                                                            ct_dtype_in(a, c.item, k + master), master ? at[k + 1] : at[k]);
            does(v);
#pragma unroll
            for (int k = 0; k < N; k++)
                if (D::WRITES >> k & 1)
                    ct_put_element<C>(ct_tensor_in(a, c.item, k + master), ct_dtype_in(a, c.item, k + master),
                                      master ? at[k + 1] : at[k], v[k]);
            if (master && D::WRITES & 1)
                ct_put_element<C>(ct_tensor_in(a, c.item, 0), ct_dtype_in(a, c.item, 0), at[0], v[0]);
        }
    }
};

// ---- Sums, always in the same order ----

CT_DEVICE double ct_double_from_lane(double x, int distance) {
    return __hiloint2double(__shfl_xor_sync(0xffffffffu, __double2hiint(x), distance),
                            __shfl_xor_sync(0xffffffffu, __double2loint(x), distance));
}

struct ct_added {
    CT_DEVICE static double join(double x, double y) { return x + y; }
};
struct ct_largest { // NaN is largest of all
    CT_DEVICE static double join(double x, double y) { return y > x || y != y ? y : x; }
};

// Of all threads of the block, in every thread.
template <typename J> __device__ double ct_block_sum(double x) {
    __shared__ double warps[CT_OPTIM_THREADS / 32];
    for (int distance = 16; distance; distance /= 2) x = J::join(x, ct_double_from_lane(x, distance));
    __syncthreads(); // what was there before has been read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[0];
    for (int i = 1; i < CT_OPTIM_THREADS / 32; i++) x = J::join(x, warps[i]);
    return x;
}

// Of n numbers that lie `stride` apart, by the whole block.
template <typename J> __device__ double ct_sum_of(const double *x, int64_t n, int stride) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += CT_OPTIM_THREADS) sum = J::join(sum, __ldcg(&x[i * stride])); // other blocks may have just written it
    return ct_block_sum<J>(sum);
}

// ---- Kernels of every kind of list ----

// name_f32 and name_half, where it goes fast, with tables of either length, and name_mixed and name_mixed64 for all others.
// BODY<C, L, ...>(a) with the type that is computed in and how chunks are walked; HALVES are the tensors of a half type where it goes fast.
#define CT_OPTIM_KERNEL(name, ARGUMENTS, ...)                                          \
    extern "C" __global__ void __launch_bounds__(CT_OPTIM_THREADS)                     \
        name(const __grid_constant__ ARGUMENTS a) {                                    \
        ct_wait_for_kernel_before();                                                   \
        __VA_ARGS__(*(const ct_cuda_optim *)&a);                                       \
    }
#define CT_OPTIM_KERNELS(name, BODY, HALVES, ...)                                                          \
    CT_OPTIM_KERNEL(name##_f32, ct_cuda_optim, BODY<float, ct_fast<0>, __VA_ARGS__>)                       \
    CT_OPTIM_KERNEL(name##_f32_few, ct_cuda_optim_few, BODY<float, ct_fast<0>, __VA_ARGS__>)               \
    CT_OPTIM_KERNEL(name##_half, ct_cuda_optim, BODY<float, ct_fast<HALVES>, __VA_ARGS__>)                 \
    CT_OPTIM_KERNEL(name##_half_few, ct_cuda_optim_few, BODY<float, ct_fast<HALVES>, __VA_ARGS__>)         \
    CT_OPTIM_KERNEL(name##_mixed, ct_cuda_optim, BODY<float, ct_mixed<float>, __VA_ARGS__>)                \
    CT_OPTIM_KERNEL(name##_mixed64, ct_cuda_optim, BODY<double, ct_mixed<double>, __VA_ARGS__>)
