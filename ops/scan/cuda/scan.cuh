// Scans along an axis. M says which:
//   In, Out                elements of x and y as they are stored
//   RECURS, PLACES         what is third: a second input, or places as a second result
//   State                  what some elements in a row come to; none() is that of no element
//   of(x, third, i)        the state of element i alone
//   step(state, element)   of an element behind others, as a loop over the line would have it
//   join(first, second)    of two pieces, in this order
//   out(state), place(state)   what is stored
#pragma once

#include "backends/cuda/number.cuh"
#include "backends/cuda/nest.cuh"
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

// CT_SCAN_EACH neighbors in packs where that can be, else the first `count` of them singly.
template <typename T> struct ct_scan_packs {
    enum { W = 16 / sizeof(T) < CT_SCAN_EACH ? 16 / sizeof(T) : CT_SCAN_EACH };
    struct alignas(sizeof(T) * W) pack {
        T v[W];
    };
    CT_DEVICE static bool fit(const T *at, int64_t step, int count) {
        return step == 1 && count == CT_SCAN_EACH && (uintptr_t)at % sizeof(pack) == 0;
    }
    CT_DEVICE static void load(T *to, const T *at, int64_t step, int count) {
        if (fit(at, step, count)) {
#pragma unroll
            for (int p = 0; p < CT_SCAN_EACH / W; p++) {
                const pack loaded = ((const pack *)at)[p];
#pragma unroll
                for (int k = 0; k < W; k++) to[p * W + k] = loaded.v[k];
            }
            return;
        }
#pragma unroll
        for (int k = 0; k < CT_SCAN_EACH; k++)
            if (k < count) to[k] = at[k * step];
    }
    CT_DEVICE static void store(T *at, int64_t step, int count, const T *from) {
        if (fit(at, step, count)) {
#pragma unroll
            for (int p = 0; p < CT_SCAN_EACH / W; p++) {
                pack stored;
#pragma unroll
                for (int k = 0; k < W; k++) stored.v[k] = from[p * W + k];
                ((pack *)at)[p] = stored;
            }
            return;
        }
#pragma unroll
        for (int k = 0; k < CT_SCAN_EACH; k++)
            if (k < count) at[k * step] = from[k];
    }
};

// The states of up to CT_SCAN_EACH elements from `first` on.
template <typename M>
CT_DEVICE void ct_scan_load(const ct_cuda_scan &a, const ct_scan_line &line, int64_t first, int count,
                            typename M::State *elements) {
    typedef typename M::In In;
    In x[CT_SCAN_EACH], third[CT_SCAN_EACH];
    ct_scan_packs<In>::load(x, (const In *)a.at[0] + line.x + first * line.x_step, line.x_step, count);
    if (M::RECURS)
        ct_scan_packs<In>::load(third, (const In *)a.at[2] + line.third + first * line.third_step, line.third_step,
                                count);
#pragma unroll
    for (int k = 0; k < CT_SCAN_EACH; k++) elements[k] = k < count ? M::of(x[k], third[k], first + k) : M::none();
}

// Their results, from the state before them on, which becomes that behind them.
template <typename M>
CT_DEVICE void ct_scan_store(const ct_cuda_scan &a, const ct_scan_line &line, int64_t first, int count,
                             const typename M::State *elements, typename M::State &state) {
    typedef typename M::Out Out;
    Out y[CT_SCAN_EACH];
    int64_t places[CT_SCAN_EACH];
#pragma unroll
    for (int k = 0; k < CT_SCAN_EACH; k++) {
        state = M::step(state, elements[k]);
        y[k] = M::out(state);
        if (M::PLACES) places[k] = M::place(state);
    }
    if (a.at[1]) ct_scan_packs<Out>::store((Out *)a.at[1] + line.y + first * line.y_step, line.y_step, count, y);
    if (M::PLACES && a.at[2])
        ct_scan_packs<int64_t>::store((int64_t *)a.at[2] + line.third + first * line.third_step, line.third_step, count,
                                      places);
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
    if (ct_does_nothing(a.head)) return;
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
            const int count = (int)max((int64_t)0, min((int64_t)CT_SCAN_EACH, to - first));
            State elements[CT_SCAN_EACH], own = M::none(), all;
            ct_scan_load<M>(a, line, first, count, elements);
#pragma unroll
            for (int k = 0; k < CT_SCAN_EACH; k++) own = M::step(own, elements[k]);
            State state = M::join(carry, ct_scan_block<M>(own, all));
            carry = M::join(carry, all);
            if (!a.totals) ct_scan_store<M>(a, line, first, count, elements, state);
        }
        if (a.totals && threadIdx.x == 0) ((State *)a.partial)[job] = carry;
    }
}

// A thread per chunk; neighbors stand at neighboring lines.
template <typename M> __device__ void ct_scan_threads(const ct_cuda_scan &a) {
    if (ct_does_nothing(a.head)) return;
    typedef typename M::State State;
    const int64_t jobs = a.lines.total * a.chunks;
    for (int64_t job = ct_first(); job < jobs; job += ct_step()) {
        const int64_t chunk = a.chunks == 1 ? 0 : job / a.lines.total, number = job - chunk * a.lines.total;
        const int64_t from = chunk * a.chunk, to = min(from + a.chunk, a.n);
        const ct_scan_line line = ct_scan_line_of(a, number);
        State state = M::none();
        if (a.partial && !a.totals)
            for (int64_t c = 0; c < chunk; c++)
                state = M::join(state, ((const State *)a.partial)[c * a.lines.total + number]);
        for (int64_t i = from; i < to; i += CT_SCAN_EACH) {
            const int count = (int)min((int64_t)CT_SCAN_EACH, to - i);
            State elements[CT_SCAN_EACH];
            ct_scan_load<M>(a, line, i, count, elements);
            if (!a.totals) ct_scan_store<M>(a, line, i, count, elements, state);
            else {
#pragma unroll
                for (int k = 0; k < CT_SCAN_EACH; k++) state = M::step(state, elements[k]);
            }
        }
        if (a.totals) ((State *)a.partial)[job] = state;
    }
}

#define CT_SCAN_PART(name, part, suffix, M)                                \
    extern "C" __global__ void __launch_bounds__(256)                      \
        name##_##part##_##suffix(const __grid_constant__ ct_cuda_scan a) { \
        ct_scan_##part<M>(a);                                              \
    }
#define CT_SCAN(name, suffix, M)          \
    CT_SCAN_PART(name, blocks, suffix, M) \
    CT_SCAN_PART(name, threads, suffix, M)
#define CT_SCAN_OF_FLOATS(name, M) \
    CT_SCAN(name, f32, M<float>)   \
    CT_SCAN(name, f64, M<double>)  \
    CT_SCAN(name, f16, M<__half>)  \
    CT_SCAN(name, bf16, M<__nv_bfloat16>)
#define CT_SCAN_OF_INTEGERS(name, M) \
    CT_SCAN(name, i8, M<int8_t>)     \
    CT_SCAN(name, i16, M<int16_t>)   \
    CT_SCAN(name, i32, M<int32_t>)   \
    CT_SCAN(name, i64, M<int64_t>)   \
    CT_SCAN(name, u8, M<uint8_t>)
