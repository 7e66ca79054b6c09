// Scans along an axis. M says which:
//   In, Out       elements as they are stored
//   State         what some elements in a row come to; none() is that of no element
//   of(a, line, i)    the state of element i alone
//   step(state, element)   of an element behind others, as a loop over the line would have it
//   join(first, second)    of two pieces, in this order
//   put(a, line, i, state)  stores the result at i
#pragma once

#include "backends/cuda/number.cuh"
#include "backends/cuda/walk.cuh"
#include "ops/scan/cuda/scan.h"

struct ct_scan_line {
    int64_t x, y, third; // offsets of its first elements in the order of the scan
    int64_t x_step, y_step, third_step;
};

// A reversed scan begins at the end.
CT_DEVICE ct_scan_line ct_scan_line_of(const ct_cuda_scan &a, int64_t number) {
    const int64_t skipped = a.reverse ? a.n - 1 : 0, sign = a.reverse ? -1 : 1;
    ct_scan_line line;
    line.x = ct_offset(a.lines, 0, number) + skipped * a.step[0];
    line.y = ct_offset(a.lines, 1, number) + skipped * a.step[1];
    line.third = ct_offset(a.lines, 2, number) + skipped * a.step[2];
    line.x_step = sign * a.step[0];
    line.y_step = sign * a.step[1];
    line.third_step = sign * a.step[2];
    return line;
}

template <typename T> CT_DEVICE T ct_from_before(T x, int distance) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    uint32_t words[sizeof(T) / 4];
    memcpy(words, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++) words[i] = __shfl_up_sync(0xffffffffu, words[i], distance);
    memcpy(&x, words, sizeof x);
    return x;
}

// What all threads before this one come to, and in `all` what the whole block does.
template <typename M> CT_DEVICE typename M::State ct_scan_block(typename M::State own, typename M::State &all) {
    __shared__ typename M::State warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = blockDim.x / 32;
    typename M::State through = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        const typename M::State before = ct_from_before(through, distance);
        if (lane >= distance) through = M::join(before, through);
    }
    typename M::State before = ct_from_before(through, 1);
    if (lane == 0) before = M::none();
    __syncthreads(); // what was there has been read
    if (lane == 31) warps[warp] = through;
    __syncthreads();
    typename M::State earlier = M::none(), total = M::none();
    for (int w = 0; w < count; w++) {
        if (w == warp) earlier = total;
        total = M::join(total, warps[w]);
    }
    all = total;
    return M::join(earlier, before);
}

// A block per chunk: threads take neighboring pieces of it.
template <typename M> __device__ void ct_scan_blocks(const ct_cuda_scan &a) {
    if (a.head.lasting && *(volatile uint32_t *)&a.head.word->set) return;
    typedef typename M::State State;
    const int64_t jobs = a.lines.total * a.chunks;
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64_t number = a.chunks == 1 ? job : job / a.chunks, chunk = job - number * a.chunks;
        const int64_t from = chunk * a.chunk, to = min(from + a.chunk, a.n);
        const ct_scan_line line = ct_scan_line_of(a, number);
        State carry = M::none();
        if (a.partial && !a.totals) { // there are no more chunks than threads
            const State *totals = (const State *)a.partial + number * a.chunks;
            ct_scan_block<M>((int64_t)threadIdx.x < chunk ? totals[threadIdx.x] : M::none(), carry);
        }
        for (int64_t at = from; at < to; at += (int64_t)blockDim.x * CT_SCAN_EACH) {
            const int64_t first = at + (int64_t)threadIdx.x * CT_SCAN_EACH;
            State elements[CT_SCAN_EACH], own = M::none(), all;
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) elements[k] = first + k < to ? M::of(a, line, first + k) : M::none();
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) own = M::step(own, elements[k]);
            State state = M::join(carry, ct_scan_block<M>(own, all));
            carry = M::join(carry, all);
            if (a.totals) continue;
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) {
                state = M::step(state, elements[k]);
                if (first + k < to) M::put(a, line, first + k, state);
            }
        }
        if (a.totals && threadIdx.x == 0) ((State *)a.partial)[job] = carry;
    }
}

// A thread per chunk; neighbors stand at neighboring lines.
template <typename M> __device__ void ct_scan_threads(const ct_cuda_scan &a) {
    if (a.head.lasting && *(volatile uint32_t *)&a.head.word->set) return;
    typedef typename M::State State;
    const int64_t jobs = a.lines.total * a.chunks;
    for (int64_t job = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; job < jobs; job += (int64_t)gridDim.x * blockDim.x) {
        const int64_t chunk = a.chunks == 1 ? 0 : job / a.lines.total, number = job - chunk * a.lines.total;
        const int64_t from = chunk * a.chunk, to = min(from + a.chunk, a.n);
        const ct_scan_line line = ct_scan_line_of(a, number);
        State state = M::none();
        if (a.partial && !a.totals)
            for (int64_t c = 0; c < chunk; c++) state = M::join(state, ((const State *)a.partial)[c * a.lines.total + number]);
        for (int64_t i = from; i < to; i += CT_SCAN_EACH) {
            State elements[CT_SCAN_EACH];
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) elements[k] = i + k < to ? M::of(a, line, i + k) : M::none();
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) {
                state = M::step(state, elements[k]);
                if (!a.totals && i + k < to) M::put(a, line, i + k, state);
            }
        }
        if (a.totals) ((State *)a.partial)[job] = state;
    }
}

#define CT_SCAN_PART(name, part, suffix, M)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) name##_##part##_##suffix(const __grid_constant__ ct_cuda_scan a) { \
        ct_scan_##part<M>(a);                                                                                          \
    }
#define CT_SCAN(name, suffix, M)             \
    CT_SCAN_PART(name, blocks, suffix, M)  \
    CT_SCAN_PART(name, threads, suffix, M)
#define CT_SCAN_OF_FLOATS(name, M)        \
    CT_SCAN(name, f32, M<float>)          \
    CT_SCAN(name, f64, M<double>)         \
    CT_SCAN(name, f16, M<__half>)         \
    CT_SCAN(name, bf16, M<__nv_bfloat16>)
#define CT_SCAN_OF_INTEGERS(name, M) \
    CT_SCAN(name, i8, M<int8_t>)     \
    CT_SCAN(name, i16, M<int16_t>)   \
    CT_SCAN(name, i32, M<int32_t>)   \
    CT_SCAN(name, i64, M<int64_t>)   \
    CT_SCAN(name, u8, M<uint8_t>)
