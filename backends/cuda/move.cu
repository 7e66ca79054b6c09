// Copies by element size. The host has made elements as wide as sizes, strides and addresses allow, up to 16 bytes.
#include "backends/cuda/move.h"
#include "backends/cuda/nest.cuh"

template <typename T> CT_DEVICE void move(const ct_cuda_move &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    if (a.nest.ndim == 1) {
        const int64_t to = a.nest.strides[0][0], from = a.nest.strides[1][0];
        for (int64_t e = ct_first(); e < a.nest.total; e += step) ((T *)a.to)[e * to] = ((const T *)a.from)[e * from];
        return;
    }
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        ((T *)a.to)[at[0]] = ((const T *)a.from)[at[1]];
    }
}

// A tile is read along from's dense dimension and written along to's, in packs where these lie in line, through shared memory with rows that
// are one longer than a tile, so that threads of a warp meet in few banks. TR and TC: its rows and columns.
template <typename T, int TR, int TC> CT_DEVICE void transpose(const ct_cuda_transpose &a) {
    enum { V = CT_CUDA_MOVE_PACK(sizeof(T)), THREADS = CT_CUDA_TRANSPOSE_THREADS };
    struct alignas(sizeof(T) * V) pack { T v[V]; };
    __shared__ T tile[TC][TR + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)]; // by column
    if (ct_does_nothing(a.head)) return;
    const int64_t tiles = a.row_tiles * a.column_tiles;
    for (int64_t t = blockIdx.x; t < tiles * a.nest.total; t += gridDim.x) {
        const int64_t batch = t / tiles, in_batch = t - batch * tiles, row_tile = in_batch / a.column_tiles;
        const int64_t row = row_tile * TR, column = (in_batch - row_tile * a.column_tiles) * TC;
        const int rows = (int)min(a.rows - row, (int64_t)TR), columns = (int)min(a.columns - column, (int64_t)TC);
        int64_t at[2];
        ct_nest_place(a.nest, batch, at);
        const T *from = (const T *)a.from + at[1] + row + column * a.from_column;
        T *to = (T *)a.to + at[0] + row * a.to_row + column;
        if (a.packs_read) {
            enum { SLOTS = TR / V, STEP = THREADS / SLOTS };
            const int r = threadIdx.x % SLOTS * V;
            pack loaded[TC / STEP];
#pragma unroll
            for (int i = 0; i < TC / STEP; i++) {
                const int c = threadIdx.x / SLOTS + i * STEP;
                if (r < rows && c < columns) loaded[i] = *(const pack *)(from + r + c * a.from_column);
            }
#pragma unroll
            for (int i = 0; i < TC / STEP; i++)
#pragma unroll
                for (int k = 0; k < V; k++) tile[threadIdx.x / SLOTS + i * STEP][r + k] = loaded[i].v[k];
        } else {
            for (int e = threadIdx.x; e < TR * TC; e += THREADS)
                if (e % TR < rows && e / TR < columns) tile[e / TR][e % TR] = from[e % TR + e / TR * a.from_column];
        }
        __syncthreads();
        if (a.packs_written) {
            enum { SLOTS = TC / V, STEP = THREADS / SLOTS };
            const int c = threadIdx.x % SLOTS * V;
#pragma unroll
            for (int i = 0; i < TR / STEP; i++) {
                const int r = threadIdx.x / SLOTS + i * STEP;
                pack x;
#pragma unroll
                for (int k = 0; k < V; k++) x.v[k] = tile[c + k][r];
                if (r < rows && c < columns) *(pack *)(to + r * a.to_row + c) = x;
            }
        } else {
            for (int e = threadIdx.x; e < TR * TC; e += THREADS)
                if (e / TC < rows && e % TC < columns) to[e / TC * a.to_row + e % TC] = tile[e % TC][e / TC];
        }
        __syncthreads();
    }
}

#define TRANSPOSE(name, T, TR, TC)                                                            \
    extern "C" __global__ void __launch_bounds__(CT_CUDA_TRANSPOSE_THREADS)                   \
        name(const __grid_constant__ ct_cuda_transpose a) {                                   \
        transpose<T, TR, TC>(a);                                                              \
    }
#define MOVE(size, T)                                                                                                \
    extern "C" __global__ void move_##size(const __grid_constant__ ct_cuda_move a) { move<T>(a); }                   \
    TRANSPOSE(transpose_##size, T, CT_CUDA_MOVE_SIDE(size), CT_CUDA_MOVE_SIDE(size))                                 \
    TRANSPOSE(transpose_tall_##size, T, 2 * CT_CUDA_MOVE_SIDE(size), CT_CUDA_MOVE_SIDE(size) / 2)                    \
    TRANSPOSE(transpose_wide_##size, T, CT_CUDA_MOVE_SIDE(size) / 2, 2 * CT_CUDA_MOVE_SIDE(size))
MOVE(1, uint8_t)
MOVE(2, uint16_t)
MOVE(4, uint32_t)
MOVE(8, uint64_t)
MOVE(16, uint4)
