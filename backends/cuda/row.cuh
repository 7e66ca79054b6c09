// Rows of M operands in packs of 16 bytes. Where they are WHOLE every row begins at a multiple of 16 bytes and has
// whole packs. Otherwise pack p has the elements p V - astray to p V - astray + V - 1 of a row whose first operand
// begins `astray` elements behind such a multiple; what lies outside of the row has a value that changes nothing, and
// operands that begin elsewhere come by element.
#pragma once

#include "backends/cuda/lanes.cuh"
#include "backends/cuda/number.cuh"
#include "backends/cuda/row.h"
#include "backends/cuda/thread.cuh"

// As words, which stay in registers; element k as it is computed with, and as it is stored.
template <typename S> struct alignas(16) ct_row_pack {
    enum { V = 16 / sizeof(S) };
    typedef typename ct_number<S>::type N;
    uint32_t words[4];
    CT_DEVICE N get(int k) const;
    CT_DEVICE void set(int k, N x);
};
template <> CT_DEVICE float ct_row_pack<float>::get(int k) const { return __uint_as_float(words[k]); }
template <> CT_DEVICE void ct_row_pack<float>::set(int k, float x) { words[k] = __float_as_uint(x); }
template <> CT_DEVICE double ct_row_pack<double>::get(int k) const {
    return __hiloint2double((int)words[2 * k + 1], (int)words[2 * k]);
}
template <> CT_DEVICE void ct_row_pack<double>::set(int k, double x) {
    words[2 * k] = (uint32_t)__double2loint(x);
    words[2 * k + 1] = (uint32_t)__double2hiint(x);
}
template <> CT_DEVICE float ct_row_pack<__nv_bfloat16>::get(int k) const {
    return __uint_as_float(k % 2 ? words[k / 2] & 0xffff0000u : words[k / 2] << 16);
}
template <> CT_DEVICE float ct_row_pack<__half>::get(int k) const {
    return __half2float(__ushort_as_half((unsigned short)(k % 2 ? words[k / 2] >> 16 : words[k / 2] & 0xffffu)));
}
CT_DEVICE uint32_t ct_with_half(uint32_t word, int k, uint32_t bits) {
    return k % 2 ? (word & 0xffffu) | bits << 16 : (word & 0xffff0000u) | bits;
}
template <> CT_DEVICE void ct_row_pack<__nv_bfloat16>::set(int k, float x) {
    words[k / 2] = ct_with_half(words[k / 2], k, __bfloat16_as_ushort(__float2bfloat16_rn(x)));
}
template <> CT_DEVICE void ct_row_pack<__half>::set(int k, float x) {
    words[k / 2] = ct_with_half(words[k / 2], k, __half_as_ushort(__float2half_rn(x)));
}
template <typename S, int M> struct ct_row_packs { ct_row_pack<S> of[M]; };

// Packs by element: at the ends of a row few, and the code would be copied into every unrolled loop.
template <typename S>
static __device__ __noinline__ ct_row_pack<S> ct_load_edge(const S *row, int at, int n,
                                                           typename ct_number<S>::type otherwise) {
    ct_row_pack<S> pack = {};
#pragma unroll
    for (int k = 0; k < ct_row_pack<S>::V; k++)
        pack.set(k, at + k >= 0 && at + k < n ? ct_number_of(row[at + k]) : otherwise);
    return pack;
}
template <typename S> static __device__ __noinline__ void ct_store_edge(S *row, int at, int n, ct_row_pack<S> pack) {
#pragma unroll
    for (int k = 0; k < ct_row_pack<S>::V; k++)
        if (at + k >= 0 && at + k < n) row[at + k] = ct_stored<S>(pack.get(k));
}

template <typename S, bool WHOLE> struct ct_row_shape {
    enum { V = ct_row_pack<S>::V };
    typedef typename ct_number<S>::type N;
    int n, astray, packs;
    CT_DEVICE ct_row_shape() {}
    CT_DEVICE ct_row_shape(const void *row, int length)
        : n(length), astray(WHOLE ? 0 : (int)((uintptr_t)row % 16 / sizeof(S))), packs((length + astray + V - 1) / V) {}
    CT_DEVICE int first(int p) const { return p * V - astray; }
    CT_DEVICE bool is_whole(const void *pack, int at) const {
        return WHOLE || (at >= 0 && at + V <= n && (uintptr_t)pack % 16 == 0);
    }
    CT_DEVICE bool has(int i) const { return WHOLE || (i >= 0 && i < n); }
    CT_DEVICE ct_row_pack<S> load(const S *row, int p, N otherwise) const {
        const int at = first(p);
        return is_whole(row + at, at) ? *(const ct_row_pack<S> *)(row + at) : ct_load_edge(row, at, n, otherwise);
    }
    CT_DEVICE void store(S *row, int p, const ct_row_pack<S> &pack) const {
        const int at = first(p);
        if (is_whole(row + at, at)) *(ct_row_pack<S> *)(row + at) = pack;
        else ct_store_edge(row, at, n, pack);
    }
};

// A row as one group sees it. A thread keeps up to KEPT packs of it from take() on, as many as it has; 0: none, and it
// is read at each pass.
template <typename S, int M, bool WHOLE, int KEPT> struct ct_row {
    enum { V = ct_row_pack<S>::V };
    ct_row_shape<S, WHOLE> shape;
    const S *at[M];
    typename ct_number<S>::type otherwise[M];
    int lane, lanes;
    ct_row_packs<S, M> kept[KEPT ? KEPT : 1];

    CT_DEVICE ct_row_packs<S, M> load(int p) const {
        ct_row_packs<S, M> packs;
#pragma unroll
        for (int m = 0; m < M; m++) packs.of[m] = shape.load(at[m], p, otherwise[m]);
        return packs;
    }
    CT_DEVICE void take(int length, int of_lane, int of_lanes) {
        shape = ct_row_shape<S, WHOLE>(at[0], length);
        lane = of_lane, lanes = of_lanes;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if (lane + k * lanes < shape.packs) kept[k] = load(lane + k * lanes);
    }
    // use(packs, p) for packs p, p + lanes, ... of this thread: an array of as many as it has at hand, or of one.
    template <typename F> CT_DEVICE void each_few(F use) const {
        if (KEPT) {
#pragma unroll
            for (int k = 0; k < KEPT; k++)
                if (lane + k * lanes < shape.packs) {
                    const ct_row_packs<S, M> one[1] = {kept[k]};
                    use(one, lane + k * lanes);
                }
            return;
        }
        int p = lane;
        for (; p + (CT_ROW_PACKS - 1) * lanes < shape.packs; p += CT_ROW_PACKS * lanes) {
            ct_row_packs<S, M> loaded[CT_ROW_PACKS];
#pragma unroll
            for (int k = 0; k < CT_ROW_PACKS; k++) loaded[k] = load(p + k * lanes);
            use(loaded, p);
        }
        for (; p < shape.packs; p += lanes) {
            const ct_row_packs<S, M> one[1] = {load(p)};
            use(one, p);
        }
    }
    // use(packs, p) for the packs of this thread, one by one.
    template <typename F> CT_DEVICE void each(F use) const {
        each_few([&](const auto &packs, int p) {
#pragma unroll
            for (int k = 0; k < (int)(sizeof packs / sizeof packs[0]); k++) use(packs[k], p + k * lanes);
        });
    }
};

// body(row, lane, inside) for every row, by groups of `lanes` threads; outside of the rows, where a group has none left
// while others of its warp do, with the last row and inside false.
template <typename F> CT_DEVICE void ct_each_row(int64_t rows, int lanes, F body) {
    const int lane = (int)threadIdx.x & (lanes - 1), groups = (int)blockDim.x / lanes;
    for (int64_t first = (int64_t)blockIdx.x * groups; first < rows; first += (int64_t)gridDim.x * groups) {
        const int64_t row = first + (int)threadIdx.x / lanes;
        body(row < rows ? row : rows - 1, lane, row < rows);
    }
}
