// The loops that every elementwise op runs in. The generated code gives the formula.
#pragma once

#include "backends/cuda/elementwise.h"
#include "backends/cuda/thread.cuh"

// N operands of one element, as numbers of the type that is computed in; masks are 0 or 1.
template <typename C, int N> struct ct_values {
    C x[N];
    __device__ C operator[](int i) const { return x[i]; }
    __device__ bool mask(int i) const { return ct_truth(x[i]); }
};

// V elements next to each other, read and written at once.
template <typename T, int V> struct alignas(sizeof(T) * V) ct_pack { T v[V]; };

// How many elements are read at once; of bytes few, since the code of a formula is repeated for each.
template <typename S> constexpr int ct_pack_length() { return sizeof(S) == 1 ? 4 : 16 / sizeof(S); }

// Whether an attribute is that number, by its bits: to convert it first takes a kernel longer than to begin reading.
CT_DEVICE bool ct_is(double attribute, double number) {
    return __double_as_longlong(attribute) == __double_as_longlong(number);
}

// Inputs that are one value, a bit each.
template <typename S, typename C, int N, unsigned MASKS>
CT_DEVICE ct_values<C, N> ct_single_values(const ct_cuda_flat &a, uint32_t one) {
    ct_values<C, N> single;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const void *at = a.in[i] ? (const void *)a.in[i] : (const void *)a.numbers[i];
        if (!(one >> i & 1)) single.x[i] = C(0);
        else single.x[i] = MASKS >> i & 1 ? ct_from_bool<C>(*(const uint8_t *)at) : ct_load<C>(*(const S *)at);
    }
    return single;
}

// The results of one pack of each input.
template <typename S, typename C, typename R, int N, unsigned MASKS, int V, typename F>
CT_DEVICE ct_pack<R, V> ct_compute(uint32_t one, const ct_values<C, N> &single, const ct_pack<S, V> (&in)[N],
                                   const ct_pack<uint8_t, V> (&masks)[N], F formula) {
    ct_pack<R, V> out;
#pragma unroll
    for (int k = 0; k < V; k++) {
        ct_values<C, N> v;
#pragma unroll
        for (int i = 0; i < N; i++)
            v.x[i] = one >> i & 1     ? single.x[i]
                     : MASKS >> i & 1 ? ct_from_bool<C>(masks[i].v[k])
                                      : ct_load<C>(in[i].v[k]);
        out.v[k] = ct_store<R>(formula(v));
    }
    return out;
}

// Where pack p of V elements along the last dimension lies in each operand. Inputs that stay there (a.still) do not move along it.
template <int N, int V>
CT_DEVICE void ct_row_offsets(const ct_cuda_elementwise &a, int64_t p, int64_t (&offset)[N + 1]) {
    int64_t rest = p;
#pragma unroll 1
    for (int d = a.ndim - 1; d >= 0; d--) {
        const bool last = d == a.ndim - 1;
        int64_t next, at;
        if (a.flat.total < INT32_MAX) {
            const uint32_t size = (uint32_t)a.dims[d] / (last ? V : 1), whole = (uint32_t)rest / size;
            next = whole, at = (uint32_t)rest - whole * size;
        } else {
            const int64_t size = a.dims[d] / (last ? V : 1);
            next = rest / size, at = rest - next * size;
        }
        rest = next;
#pragma unroll
        for (int i = 0; i <= N; i++) {
            if (last) offset[i] = i && (a.still >> (i - 1) & 1) ? 0 : at * V;
            else offset[i] += at * a.strides[i][d];
        }
    }
}

// The result of one element, which lies at offset[i + 1] in input i.
template <typename S, typename C, typename R, int N, unsigned MASKS, typename F>
CT_DEVICE R ct_compute_one(const ct_cuda_flat &a, uint32_t one, const ct_values<C, N> &single,
                           const int64_t (&offset)[N + 1], F formula) {
    ct_values<C, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v.x[i] = one >> i & 1     ? single.x[i]
                 : MASKS >> i & 1 ? ct_from_bool<C>(((const uint8_t *)a.in[i])[offset[i + 1]])
                                  : ct_load<C>(((const S *)a.in[i])[offset[i + 1]]);
    return ct_store<R>(formula(v));
}

// Dense operands. S is how elements are stored, C what they are computed in, MASKS the operands that are bool whatever S
// is, R how results are stored, P how many packs a thread reads before it computes. One keeps memory busiest, as long as
// all threads that a device has room for are there and the formula is short; where it is long, two share what a thread
// does besides. A kernel of its own, in which no strides take registers. An only input is never one value here: to choose
// between that and the pack would take an instruction for each element.
template <typename S, typename C, typename R, int N, unsigned MASKS, int P, typename F>
__device__ void ct_elementwise_flat(const ct_cuda_flat &a, F formula) {
    constexpr int V = ct_pack_length<S>();
    if (ct_does_nothing(a.head)) return;
    const uint32_t one = N == 1 ? 0 : a.single;
    const ct_values<C, N> single = ct_single_values<S, C, N, MASKS>(a, one);
    for (int64_t p = (int64_t)blockIdx.x * (blockDim.x * P) + threadIdx.x; p < a.packs; p += ct_step() * P) {
        ct_pack<S, V> in[P][N];
        ct_pack<uint8_t, V> masks[P][N];
#pragma unroll
        for (int k = 0; k < P; k++) {
            const int64_t at = p + k * blockDim.x;
            if (k && at >= a.packs) break;
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (one >> i & 1) continue;
                if (MASKS >> i & 1) masks[k][i] = ((const ct_pack<uint8_t, V> *)a.in[i])[at];
                else in[k][i] = ((const ct_pack<S, V> *)a.in[i])[at];
            }
        }
#pragma unroll
        for (int k = 0; k < P; k++) {
            const int64_t at = p + k * blockDim.x;
            if (k && at >= a.packs) break;
            ((ct_pack<R, V> *)a.out)[at] = ct_compute<S, C, R, N, MASKS, V>(one, single, in[k], masks[k], formula);
        }
    }
    for (int64_t e = a.packs * V + ct_first(); e < a.total; e += ct_step()) {
        int64_t offset[N + 1];
#pragma unroll
        for (int i = 0; i <= N; i++) offset[i] = e;
        ((R *)a.out)[e] = ct_compute_one<S, C, R, N, MASKS>(a, one, single, offset, formula);
    }
}

// Operands of any strides, element by element.
template <typename S, typename C, typename R, int N, unsigned MASKS, typename F>
__device__ void ct_elementwise_strided(const ct_cuda_elementwise &a, F formula) {
    if (ct_does_nothing(a.flat.head)) return;
    const ct_values<C, N> single = ct_single_values<S, C, N, MASKS>(a.flat, a.flat.single);
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.flat.total; e += step) {
        int64_t offset[N + 1] = {0}, rest = e;
#pragma unroll 1 // each division waits for the one before it: four copies of them would only take the compiler's time
        for (int d = a.ndim - 1; d >= 0; d--) {
            int64_t next, at;
            if (a.flat.total < INT32_MAX) {
                const uint32_t size = (uint32_t)a.dims[d], whole = (uint32_t)rest / size;
                next = whole, at = (uint32_t)rest - whole * size;
            } else {
                next = rest / a.dims[d], at = rest - next * a.dims[d];
            }
            rest = next;
#pragma unroll
            for (int i = 0; i <= N; i++) offset[i] += at * a.strides[i][d];
        }
        ((R *)a.flat.out)[offset[0]] =
            ct_compute_one<S, C, R, N, MASKS>(a.flat, a.flat.single, single, offset, formula);
    }
}

// Rows along the last dimension that consist of whole packs, in which inputs are dense or stay where they are. A kernel
// of its own, since its offsets take registers, and with them threads.
template <typename S, typename C, typename R, int N, unsigned MASKS, typename F>
__device__ void ct_elementwise_rows(const ct_cuda_elementwise &a, F formula) {
    if (ct_does_nothing(a.flat.head)) return;
    const ct_values<C, N> single = ct_single_values<S, C, N, MASKS>(a.flat, a.flat.single);
    constexpr int V = ct_pack_length<S>();
    const int64_t step = ct_step();
    for (int64_t p = ct_first(); p < a.flat.total / V; p += step) {
        int64_t offset[N + 1];
        ct_row_offsets<N, V>(a, p, offset);
        ct_pack<S, V> in[N];
        ct_pack<uint8_t, V> masks[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (a.flat.single >> i & 1) continue;
            if (a.still >> i & 1) { // one value for all of the pack
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if (MASKS >> i & 1) masks[i].v[k] = ((const uint8_t *)a.flat.in[i])[offset[i + 1]];
                    else in[i].v[k] = ((const S *)a.flat.in[i])[offset[i + 1]];
                }
            } else if (MASKS >> i & 1) {
                masks[i] = *(const ct_pack<uint8_t, V> *)((const uint8_t *)a.flat.in[i] + offset[i + 1]);
            } else {
                in[i] = *(const ct_pack<S, V> *)((const S *)a.flat.in[i] + offset[i + 1]);
            }
        }
        *(ct_pack<R, V> *)((R *)a.flat.out + offset[0]) =
            ct_compute<S, C, R, N, MASKS, V>(a.flat.single, single, in, masks, formula);
    }
}
