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

// A tile is read along from's dense dimension and written along to's, through shared memory with rows one longer than a tile, so that
// neither way two threads of a warp meet in a bank.
template <typename T> CT_DEVICE void transpose(const ct_cuda_transpose &a) {
    __shared__ T tile[CT_CUDA_TILE][CT_CUDA_TILE + 1];
    if (ct_does_nothing(a.head)) return;
    const int x = threadIdx.x % CT_CUDA_TILE, y = threadIdx.x / CT_CUDA_TILE;
    const int64_t tiles = a.row_tiles * a.column_tiles;
    for (int64_t t = blockIdx.x; t < tiles * a.nest.total; t += gridDim.x) {
        const int64_t batch = t / tiles, in_batch = t - batch * tiles, row_tile = in_batch / a.column_tiles;
        const int64_t row = row_tile * CT_CUDA_TILE, column = (in_batch - row_tile * a.column_tiles) * CT_CUDA_TILE;
        int64_t at[2];
        ct_nest_place(a.nest, batch, at);
        const T *from = (const T *)a.from + at[1] + row + column * a.from_column;
        T *to = (T *)a.to + at[0] + row * a.to_row + column;
        for (int c = y; c < CT_CUDA_TILE; c += CT_CUDA_TILE_ROWS)
            if (row + x < a.rows && column + c < a.columns) tile[c][x] = from[x + c * a.from_column];
        __syncthreads();
        for (int r = y; r < CT_CUDA_TILE; r += CT_CUDA_TILE_ROWS)
            if (row + r < a.rows && column + x < a.columns) to[r * a.to_row + x] = tile[x][r];
        __syncthreads();
    }
}

#define MOVE(size, T)                                                                         \
    extern "C" __global__ void move_##size(const ct_cuda_move a) { move<T>(a); }              \
    extern "C" __global__ void transpose_##size(const ct_cuda_transpose a) { transpose<T>(a); }
MOVE(1, uint8_t)
MOVE(2, uint16_t)
MOVE(4, uint32_t)
MOVE(8, uint64_t)
MOVE(16, uint4)
