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
// are one longer than a tile, so that threads of a warp meet in few banks.
template <typename T> CT_DEVICE void transpose(const ct_cuda_transpose &a) {
    enum { SIDE = CT_CUDA_MOVE_SIDE(sizeof(T)), V = CT_CUDA_MOVE_PACK(sizeof(T)), THREADS = CT_CUDA_TRANSPOSE_THREADS };
    struct alignas(sizeof(T) * V) pack { T v[V]; };
    __shared__ T tile[SIDE][SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)]; // by column
    if (ct_does_nothing(a.head)) return;
    const int64_t tiles = a.row_tiles * a.column_tiles;
    for (int64_t t = blockIdx.x; t < tiles * a.nest.total; t += gridDim.x) {
        const int64_t batch = t / tiles, in_batch = t - batch * tiles, row_tile = in_batch / a.column_tiles;
        const int64_t row = row_tile * SIDE, column = (in_batch - row_tile * a.column_tiles) * SIDE;
        const int rows = (int)min(a.rows - row, (int64_t)SIDE), columns = (int)min(a.columns - column, (int64_t)SIDE);
        int64_t at[2];
        ct_nest_place(a.nest, batch, at);
        const T *from = (const T *)a.from + at[1] + row + column * a.from_column;
        T *to = (T *)a.to + at[0] + row * a.to_row + column;
        if (a.packs_read) {
            enum { SLOTS = SIDE / V, STEP = THREADS / SLOTS };
            const int r = threadIdx.x % SLOTS * V;
            pack loaded[SIDE / STEP];
#pragma unroll
            for (int i = 0; i < SIDE / STEP; i++) {
                const int c = threadIdx.x / SLOTS + i * STEP;
                if (r < rows && c < columns) loaded[i] = *(const pack *)(from + r + c * a.from_column);
            }
#pragma unroll
            for (int i = 0; i < SIDE / STEP; i++)
#pragma unroll
                for (int k = 0; k < V; k++) tile[threadIdx.x / SLOTS + i * STEP][r + k] = loaded[i].v[k];
        } else {
            for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS)
                if (e % SIDE < rows && e / SIDE < columns) tile[e / SIDE][e % SIDE] = from[e % SIDE + e / SIDE * a.from_column];
        }
        __syncthreads();
        if (a.packs_written) {
            enum { SLOTS = SIDE / V, STEP = THREADS / SLOTS };
            const int c = threadIdx.x % SLOTS * V;
#pragma unroll
            for (int i = 0; i < SIDE / STEP; i++) {
                const int r = threadIdx.x / SLOTS + i * STEP;
                pack x;
#pragma unroll
                for (int k = 0; k < V; k++) x.v[k] = tile[c + k][r];
                if (r < rows && c < columns) *(pack *)(to + r * a.to_row + c) = x;
            }
        } else {
            for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS)
                if (e / SIDE < rows && e % SIDE < columns) to[e / SIDE * a.to_row + e % SIDE] = tile[e % SIDE][e / SIDE];
        }
        __syncthreads();
    }
}

#define MOVE(size, T)                                                                         \
    extern "C" __global__ void move_##size(const __grid_constant__ ct_cuda_move a) { move<T>(a); }              \
    extern "C" __global__ void transpose_##size(const __grid_constant__ ct_cuda_transpose a) { transpose<T>(a); }
MOVE(1, uint8_t)
MOVE(2, uint16_t)
MOVE(4, uint32_t)
MOVE(8, uint64_t)
MOVE(16, uint4)
