// Products by tiles of 64 x 64 in shared memory, 4 x 4 sums per thread and block of 256, with k in order, so that the bits are always the
// same. Where operands come from is the loaders' business: element (i, k) of A, (k, j) of B, and what becomes of (i, j).
#pragma once

#include "backends/cuda/words.cuh"

enum { CT_TILE = 64, CT_TILE_K = 16, CT_TILE_THREADS = 256, CT_TILE_EACH = 4 };

// How elements are multiplied: halves in float; integers modulo 2^64, of which the stored bits are a part.
template <typename S> struct ct_product_of {
    typedef float type;
    CT_DEVICE static float load(S x) { return ct_load<float>(x); }
    CT_DEVICE static S store(float x) { return ct_store<S>(x); }
};
template <> struct ct_product_of<double> {
    typedef double type;
    CT_DEVICE static double load(double x) { return x; }
    CT_DEVICE static double store(double x) { return x; }
};
template <typename T> struct ct_whole_product {
    typedef uint64_t type;
    CT_DEVICE static uint64_t load(T x) { return (uint64_t)(int64_t)x; }
    CT_DEVICE static T store(uint64_t x) { return (T)x; }
};
template <> struct ct_product_of<int8_t> : ct_whole_product<int8_t> {};
template <> struct ct_product_of<int16_t> : ct_whole_product<int16_t> {};
template <> struct ct_product_of<int32_t> : ct_whole_product<int32_t> {};
template <> struct ct_product_of<int64_t> : ct_whole_product<int64_t> {};
template <> struct ct_product_of<uint8_t> : ct_whole_product<uint8_t> {};

CT_DEVICE float ct_multiply_add(float x, float y, float sum) { return fmaf(x, y, sum); }
CT_DEVICE double ct_multiply_add(double x, double y, double sum) { return fma(x, y, sum); }
CT_DEVICE uint64_t ct_multiply_add(uint64_t x, uint64_t y, uint64_t sum) { return x * y + sum; }

// The tile at (i0, j0) of the sum over k from first to last - 1. along_a: neighbours along k lie next to each other in A, else those along
// i; along_b likewise for k and j. Loaders are asked for what lies inside only.
template <typename C, typename A, typename B, typename W>
__device__ void ct_multiply_tile(int64_t m, int64_t n, int64_t first, int64_t last, int64_t i0, int64_t j0, bool along_a,
                                 bool along_b, A load_a, B load_b, W write) {
    __shared__ C a_tile[CT_TILE_K][CT_TILE + 1], b_tile[CT_TILE_K][CT_TILE + 1];
    const int row = threadIdx.x / 16 * CT_TILE_EACH, column = threadIdx.x % 16 * CT_TILE_EACH;
    C sums[CT_TILE_EACH][CT_TILE_EACH];
#pragma unroll
    for (int i = 0; i < CT_TILE_EACH; i++)
#pragma unroll
        for (int j = 0; j < CT_TILE_EACH; j++) sums[i][j] = C(0);
    for (int64_t k0 = first; k0 < last; k0 += CT_TILE_K) {
        for (int e = threadIdx.x; e < CT_TILE * CT_TILE_K; e += CT_TILE_THREADS) {
            const int ai = along_a ? e / CT_TILE_K : e % CT_TILE, ak = along_a ? e % CT_TILE_K : e / CT_TILE;
            a_tile[ak][ai] = i0 + ai < m && k0 + ak < last ? load_a(i0 + ai, k0 + ak) : C(0);
            const int bj = along_b ? e / CT_TILE_K : e % CT_TILE, bk = along_b ? e % CT_TILE_K : e / CT_TILE;
            b_tile[bk][bj] = j0 + bj < n && k0 + bk < last ? load_b(k0 + bk, j0 + bj) : C(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < CT_TILE_K; k++) {
            C x[CT_TILE_EACH], y[CT_TILE_EACH];
#pragma unroll
            for (int i = 0; i < CT_TILE_EACH; i++) x[i] = a_tile[k][row + i], y[i] = b_tile[k][column + i];
#pragma unroll
            for (int i = 0; i < CT_TILE_EACH; i++)
#pragma unroll
                for (int j = 0; j < CT_TILE_EACH; j++) sums[i][j] = ct_multiply_add(x[i], y[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < CT_TILE_EACH; i++)
#pragma unroll
        for (int j = 0; j < CT_TILE_EACH; j++)
            if (i0 + row + i < m && j0 + column + j < n) write(i0 + row + i, j0 + column + j, sums[i][j]);
}
