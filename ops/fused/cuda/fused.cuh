// What the kernels of fused calls are made of: packs of neighbours in and out of memory, constants, and dropout. The text of each kernel,
// which text.c writes, says which operand is read in which way.
#pragma once

#include "backends/cuda/thread.cuh"
#include "ops/fused/cuda/fused.h"

// V elements next to each other, in accesses of up to 16 bytes.
template <typename T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) ct_pack {
    T v[V];
};

template <int V, typename T> CT_DEVICE ct_pack<T, V> ct_read(const char *at, int64_t place) {
    return *(const ct_pack<T, V> *)((const T *)at + place);
}
// One value for all of the pack.
template <int V, typename T> CT_DEVICE ct_pack<T, V> ct_splat(const char *at, int64_t place) {
    const T x = ((const T *)at)[place];
    ct_pack<T, V> pack;
#pragma unroll
    for (int k = 0; k < V; k++) pack.v[k] = x;
    return pack;
}
template <int V, typename T> CT_DEVICE void ct_write(char *at, int64_t place, const ct_pack<T, V> &pack) {
    *(ct_pack<T, V> *)((T *)at + place) = pack;
}

// Where addresses may not be aligned.
template <int V, typename T> CT_DEVICE ct_pack<T, V> ct_read_any(const char *at, int64_t place, bool aligned) {
    if (aligned) return ct_read<V, T>(at, place);
    ct_pack<T, V> pack;
#pragma unroll
    for (int k = 0; k < V; k++) pack.v[k] = ((const T *)at)[place + k];
    return pack;
}
template <int V, typename T> CT_DEVICE void ct_write_any(char *at, int64_t place, const ct_pack<T, V> &pack, bool aligned) {
    if (aligned) {
        ct_write<V, T>(at, place, pack);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++) ((T *)at)[place + k] = pack.v[k];
}

template <typename S> CT_DEVICE S ct_from_bits(uint64_t bits) {
    S x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
