// Small f32 products: a block makes one tile of C. Chunks of both operands come into shared memory by copies that do not wait, several
// ahead, so that most products have all of their operands on the way at once. Where C has few tiles these are small, and the k of a
// chunk are divided among the warps, whose sums are added in order at the end; else a thread sums over all k. The bits hang on sizes alone.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/thread.cuh"
#include "ops/matmul/cuda/small.h"

// Tiles of SIDE x SIDE, chunks of DEPTH k, which SLICES of the threads divide; a thread has ROWS x COLUMNS elements of C.
template <int SIDE_, int DEPTH_, int SLICES_, int ROWS_, int COLUMNS_> struct ct_small_tile {
    enum {
        SIDE = SIDE_,
        DEPTH = DEPTH_,
        SLICES = SLICES_,
        ROWS = ROWS_,
        COLUMNS = COLUMNS_,
        UP = SIDE / ROWS,
        ACROSS = SIDE / COLUMNS, // threads of a slice
        PARTS = CT_SMALL_THREADS / SIDE // that the sums over k are divided into
    };
};
typedef ct_small_tile<16, 128, 8, 2, 4> ct_small_narrow;
typedef ct_small_tile<64, 32, 1, 4, 4> ct_small_large;

// How one operand's chunk lies in shared memory, as in global memory: lines of k, or of the other dimension. Lines of k are apart by a pack
// more, so that threads that read different lines at the same k find them in different banks.
template <typename T, bool BY_K> struct ct_small_stage {
    enum { WIDTH = BY_K ? T::DEPTH : T::SIDE, LINE = BY_K ? T::DEPTH + 4 : T::SIDE, PACKS = T::SIDE * T::DEPTH / 4 };

    // use(place in the stage, line, first element in it) for each pack that this thread brings.
    template <typename F> static CT_DEVICE void each_pack(F use) {
#pragma unroll
        for (int p = 0; p < PACKS; p += CT_SMALL_THREADS) {
            const int i = p + (int)threadIdx.x, line = i / (WIDTH / 4), at = i % (WIDTH / 4) * 4;
            use(line * LINE + at, line, at);
        }
    }
    // Elements outside of the matrix, which has `count` along its side, are zeros.
    static CT_DEVICE void fetch(float *stage, const float *from, int64_t step, int first, int count, int first_k,
                                int depth, bool packed) {
        each_pack([&](int place, int line, int at) {
            const int outer = line + (BY_K ? first : first_k), inner = at + (BY_K ? first_k : first);
            const int left = outer < (BY_K ? count : depth) ? (BY_K ? depth : count) - inner : 0;
            const float *source = from + outer * step + inner;
            if (packed) ct_async_copy<16>(stage + place, left > 0 ? source : from, left > 0);
            else
#pragma unroll
                for (int i = 0; i < 4; i++) ct_async_copy<4>(stage + place + i, i < left ? source + i : from, i < left);
        });
    }
    // N elements of the thread at `group`, of GROUPS: by k they are GROUPS apart, else next to each other.
    template <int N, int GROUPS> static CT_DEVICE int element(int group, int i) {
        return BY_K ? group + i * GROUPS : group * N + i;
    }
    // N is 2 or 4.
    template <int N, int GROUPS> static CT_DEVICE void load(const float *stage, int group, int k, float (&to)[N][4]) {
        if (BY_K) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float4 v = *(const float4 *)(stage + element<N, GROUPS>(group, i) * LINE + k);
                to[i][0] = v.x, to[i][1] = v.y, to[i][2] = v.z, to[i][3] = v.w;
            }
        } else {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const float *line = stage + (k + q) * LINE + group * N;
                if (N == 4) {
                    const float4 v = *(const float4 *)line;
                    to[0][q] = v.x, to[1][q] = v.y, to[2 % N][q] = v.z, to[3 % N][q] = v.w;
                } else {
                    const float2 v = *(const float2 *)line;
                    to[0][q] = v.x, to[1][q] = v.y;
                }
            }
        }
    }
};

template <typename T, bool A_BY_K, bool B_BY_K, bool SLOPE, bool SUMS> struct ct_small_multiply {
    typedef ct_small_stage<T, A_BY_K> stage_a;
    typedef ct_small_stage<T, B_BY_K> stage_b;
    enum {
        AHEAD = SLOPE ? CT_SMALL_AHEAD_BY_SLOPE : CT_SMALL_AHEAD,
        STAGE = (SLOPE ? 3 : 2) * CT_SMALL_STAGE,
        GROUP = CT_SMALL_THREADS / T::SLICES,
        EACH = T::DEPTH / T::SLICES
    };
    const ct_small_product &p;
    float *shared;
    int row, column;
    float c[T::ROWS][T::COLUMNS];
    float part; // of the sums over k

    CT_DEVICE ct_small_multiply(const ct_small_product &product, int tile, char *memory)
        : p(product), shared((float *)memory), row(tile / product.tiles_across * T::SIDE),
          column(tile % product.tiles_across * T::SIDE), part(0) {
#pragma unroll
        for (int i = 0; i < T::ROWS; i++)
#pragma unroll
            for (int j = 0; j < T::COLUMNS; j++) c[i][j] = 0;
    }

    CT_DEVICE void fetch(int chunk) {
        float *stage = shared + chunk % AHEAD * STAGE;
        const int k = chunk * T::DEPTH;
        if (k < p.k) {
            stage_a::fetch(stage, p.a, p.a_step, row, p.m, k, p.k, p.a_packed);
            stage_b::fetch(stage + CT_SMALL_STAGE, p.b, p.b_step, column, p.n, k, p.k, p.b_packed);
            if (SLOPE && p.y) stage_a::fetch(stage + 2 * CT_SMALL_STAGE, p.y, p.a_step, row, p.m, k, p.k, p.a_packed);
        }
        ct_async_end_group(); // empty ones count as well
    }

    // The derivative at y, of what this thread has brought itself.
    CT_DEVICE void apply_slope(float *stage) const {
        stage_a::each_pack([&](int place, int, int) {
            float4 *a = (float4 *)(stage + place);
            const float4 y = *(const float4 *)(stage + 2 * CT_SMALL_STAGE + place);
            float4 v = *a;
            v.x = ct_activation_grad(p.activation, y.x, v.x), v.y = ct_activation_grad(p.activation, y.y, v.y);
            v.z = ct_activation_grad(p.activation, y.z, v.z), v.w = ct_activation_grad(p.activation, y.w, v.w);
            *a = v;
        });
    }

    CT_DEVICE void multiply(const float *stage, int left) {
        const int slice = (int)threadIdx.x / GROUP, i = (int)threadIdx.x % GROUP;
        const int up = i / T::ACROSS, across = i % T::ACROSS;
#pragma unroll 4
        for (int k = slice * EACH; k < (slice + 1) * EACH && k < left; k += 4) {
            float a[T::ROWS][4], b[T::COLUMNS][4];
            stage_a::template load<T::ROWS, T::UP>(stage, up, k, a);
            stage_b::template load<T::COLUMNS, T::ACROSS>(stage + CT_SMALL_STAGE, across, k, b);
#pragma unroll
            for (int q = 0; q < 4; q++)
#pragma unroll
                for (int r = 0; r < T::ROWS; r++)
#pragma unroll
                    for (int j = 0; j < T::COLUMNS; j++) c[r][j] = fmaf(a[r][q], b[j][q], c[r][j]);
        }
    }

    // A thread adds some k of one row of A, which lies by rows.
    CT_DEVICE void add_sums(const float *stage) {
        enum { SOME = T::DEPTH / T::PARTS };
        const int r = (int)threadIdx.x % T::SIDE, first = (int)threadIdx.x / T::SIDE * SOME;
#pragma unroll
        for (int k = 0; k < SOME; k++) part += stage[(first + k) * stage_a::LINE + r];
    }

    CT_DEVICE void put(int r, int j, float x) const {
        if (row + r >= p.m || column + j >= p.n) return;
        if (p.bias) x += p.bias[column + j];
        p.c[(row + r) * p.c_step + column + j] = SLOPE ? x : ct_activate(p.activation, x);
    }

    // Sums of slices, one element for each thread.
    CT_DEVICE void put_slices() {
        const int slice = (int)threadIdx.x / GROUP, i = (int)threadIdx.x % GROUP;
#pragma unroll
        for (int r = 0; r < T::ROWS; r++)
#pragma unroll
            for (int j = 0; j < T::COLUMNS; j++)
                shared[(slice * T::SIDE + stage_a::template element<T::ROWS, T::UP>(i / T::ACROSS, r)) * T::SIDE +
                       stage_b::template element<T::COLUMNS, T::ACROSS>(i % T::ACROSS, j)] = c[r][j];
        __syncthreads();
        for (int e = (int)threadIdx.x; e < T::SIDE * T::SIDE; e += CT_SMALL_THREADS) {
            float sum = shared[e];
#pragma unroll
            for (int s = 1; s < T::SLICES; s++) sum += shared[s * T::SIDE * T::SIDE + e];
            put(e / T::SIDE, e % T::SIDE, sum);
        }
    }

    CT_DEVICE void put_own() const {
        const int up = (int)threadIdx.x / T::ACROSS, across = (int)threadIdx.x % T::ACROSS;
#pragma unroll
        for (int r = 0; r < T::ROWS; r++) {
            const int at = stage_a::template element<T::ROWS, T::UP>(up, r);
            const int first = column + across * T::COLUMNS; // of COLUMNS next to each other, if B lies so
            if (!B_BY_K && p.c_packed && !p.bias && (SLOPE || p.activation == CT_ACT_NONE)) {
                if (row + at < p.m && first < p.n)
                    *(float4 *)(p.c + (row + at) * p.c_step + first) =
                        make_float4(c[r][0], c[r][1], c[r][2], c[r][3]);
                continue;
            }
#pragma unroll
            for (int j = 0; j < T::COLUMNS; j++)
                put(at, stage_b::template element<T::COLUMNS, T::ACROSS>(across, j), c[r][j]);
        }
    }

    CT_DEVICE void put_sums() {
        __syncthreads();
        shared[threadIdx.x] = part;
        __syncthreads();
        const int r = (int)threadIdx.x;
        if (r >= T::SIDE || row + r >= p.m) return;
        float sum = shared[r];
#pragma unroll
        for (int s = 1; s < T::PARTS; s++) sum += shared[s * T::SIDE + r];
        p.sums[row + r] = sum;
    }

    CT_DEVICE void run() {
        const int chunks = (p.k + T::DEPTH - 1) / T::DEPTH;
        const bool slopes = SLOPE && p.y, adds = SUMS && p.sums && column == 0;
        for (int chunk = 0; chunk < AHEAD; chunk++) fetch(chunk);
        for (int chunk = 0; chunk < chunks; chunk++) {
            float *stage = shared + chunk % AHEAD * STAGE;
            ct_async_wait_but<AHEAD - 1>();
            if (slopes) apply_slope(stage);
            __syncthreads();
            multiply(stage, p.k - chunk * T::DEPTH);
            if (adds) add_sums(stage);
            __syncthreads();
            fetch(chunk + AHEAD);
        }
        if (T::SLICES > 1) put_slices();
        else put_own();
        if (adds) put_sums();
    }
};

template <bool A_BY_K, bool B_BY_K, bool SLOPE, bool SUMS>
CT_DEVICE void ct_small_run(const ct_small_product &p, int tile, char *memory) {
    if (p.large) ct_small_multiply<ct_small_large, A_BY_K, B_BY_K, SLOPE, SUMS>(p, tile, memory).run();
    else ct_small_multiply<ct_small_narrow, A_BY_K, B_BY_K, SLOPE, SUMS>(p, tile, memory).run();
}
