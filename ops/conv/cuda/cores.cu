// Gradients of convolutions in TF32 by implicit products, mma.sync m16n8k8 as in CUTLASS's implicit GEMM. What differs from it: a window of each
// image comes into shared memory once, with its halo, and all taps read it there, shifted; so no operand is copied in another layout.
//
// Windows of the next chunk are copied (cp.async) into the second of two buffers while a chunk is computed. The thread that copied a cotangent then
// multiplies it by the activation's derivative and rounds it in place, which needs no barrier; one barrier ends a chunk, and another is before
// weights are rounded, which other threads have copied.
#include "ops/conv/cuda/cores.h"

#include "backends/cuda/activation.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/thread.cuh"

enum {
    THREADS = CT_CORES_THREADS,
    WARPS = CT_CORES_WARPS,
    TILES = CT_CORES_WEIGHT_TILES,
    INPUT_TILES = CT_CORES_INPUT_TILES,
    SUM_WARPS = CT_CORES_SUM_THREADS / 32
};

// What a test counts bank conflicts of: `bytes` at `at`, in the array.
#ifndef CT_SHARED_ACCESS
#define CT_SHARED_ACCESS(array, at, bytes)
#endif

// n / d for n and d below 2^16, of which `over` is 2^32 / d rounded up; d = 1 has none.
CT_DEVICE int divided(int n, uint32_t over) { return over ? (int)__umulhi((uint32_t)n, over) : n; }

struct place {
    int c, row, column;
    CT_DEVICE place(const ct_cores_window &v, int item) {
        const int inner = v.last ? v.channels : v.packs, middle = v.last ? v.packs : v.rows;
        const int line = divided(item, v.over_inner), outer = divided(line, v.over_middle);
        const int i = item - line * inner, m = line - outer * middle;
        c = v.last ? i : outer, row = v.last ? outer : m, column = (v.last ? m : i) * v.pack;
    }
    CT_DEVICE int at(const ct_cores_window &v) const { return c * v.pitch + row * v.columns + column; }
};

// The window at row h0 and column w0 of the channels from `image` on, of which `there` exist.
CT_DEVICE void copy_window(const ct_cores_window &v, float *tile, const float *image, int there, int h0, int w0) {
    for (int item = threadIdx.x; item < v.items; item += THREADS) {
        const place p(v, item);
        const int h = h0 + p.row, w = w0 + p.column;
        const bool inside = p.c < there && h >= 0 && h < v.height && w >= 0 && w < v.width;
        // in 32 bits that may wrap around where nothing is, and so without a branch
        const uint32_t offset = (uint32_t)p.c * (uint32_t)v.c + (uint32_t)h * (uint32_t)v.h + (uint32_t)w * (uint32_t)v.w;
        const float *from = image + (inside ? (int)offset : 0);
        float *to = tile + p.at(v);
        CT_SHARED_ACCESS(tile, to, v.pack * 4);
        if (v.pack == 4) ct_async_copy<16>(to, from, inside);
        else if (v.pack == 2) ct_async_copy<8>(to, from, inside);
        else ct_async_copy<4>(to, from, inside);
    }
}

// What this thread has copied of a cotangent: through the activation, rounded to TF32, and added up before that, by packs. KNOWN: the activation, or
// -1 where it is another one.
template <int KNOWN> CT_DEVICE void settle_as(const ct_cuda_cores &a, float *tile, const float *active, float *sums) {
    const ct_cores_window &v = a.gs;
    auto through = [&](float y, float g) { return ct_activation_grad(KNOWN < 0 ? a.activation : KNOWN, y, g); };
    for (int item = threadIdx.x; item < v.items; item += THREADS) {
        const place p(v, item);
        const int at = p.at(v);
        float sum = 0;
        CT_SHARED_ACCESS(tile, tile + at, v.pack * 4);
        if (KNOWN) CT_SHARED_ACCESS(active, active + at, v.pack * 4);
        CT_SHARED_ACCESS(tile, tile + at, v.pack * 4);
        if (v.pack == 4) {
            float4 g = *(const float4 *)(tile + at), y = g;
            if (KNOWN) y = *(const float4 *)(active + at);
            g.x = through(y.x, g.x), g.y = through(y.y, g.y), g.z = through(y.z, g.z), g.w = through(y.w, g.w);
            sum = (g.x + g.y) + (g.z + g.w);
            uint4 rounded = {ct_tf32(g.x), ct_tf32(g.y), ct_tf32(g.z), ct_tf32(g.w)};
            *(uint4 *)(tile + at) = rounded;
        } else {
#pragma unroll 1
            for (int k = 0; k < v.pack; k++) {
                const float g = through(KNOWN ? active[at + k] : 0.0f, tile[at + k]);
                sum += g;
                tile[at + k] = __uint_as_float(ct_tf32(g));
            }
        }
        if (sums) sums[item] += sum;
    }
}
CT_DEVICE void settle(const ct_cuda_cores &a, float *tile, const float *active, float *sums) {
    if (!active) settle_as<CT_ACT_NONE>(a, tile, active, sums);
    else if (a.activation == CT_ACT_RELU) settle_as<CT_ACT_RELU>(a, tile, active, sums);
    else settle_as<-1>(a, tile, active, sums);
}

// The largest multiple of pack, a power of two, that is not above n.
CT_DEVICE int aligned_down(int n, int pack) { return n & -pack; }

// A chunk of results of one image, from (row, column) on.
struct chunk {
    int n, row, column;
    CT_DEVICE chunk(const ct_cuda_cores &a, int number) {
        const int line = number / a.chunks_across;
        n = line / a.chunks_down;
        row = (line - n * a.chunks_down) * a.rows, column = (number - line * a.chunks_across) * a.columns;
    }
    CT_DEVICE void next(const ct_cuda_cores &a) {
        if ((column += a.columns) < a.chunks_across * a.columns) return;
        column = 0;
        if ((row += a.rows) < a.chunks_down * a.rows) return;
        row = 0, n++;
    }
};

// ---- Weights ----

// dw [out; taps, in] = sum over pixels of g x. Rows are output channels, 16 MT of them in a block, columns tiles of 8 input channels at one
// tap, k pixels. A block adds up some chunks of pixels; lanes write their sums as they have them.
enum { NO_PIXEL = INT32_MIN };
struct weight_memory {
    int *offsets; // of the chunk's pixels in x; NO_PIXEL: there is none. This, g and x twice
    float *g, *x, *active, *sums;
    int g_size, x_size;
    CT_DEVICE weight_memory(const ct_cuda_cores &a, char *memory) {
        g_size = a.gs.channels * a.gs.pitch, x_size = a.xs.channels * a.xs.pitch;
        offsets = (int *)memory;
        g = (float *)(offsets + 2 * CT_CORES_PIXELS), x = g + 2 * g_size;
        active = a.active ? x + 2 * x_size : nullptr;
        sums = a.dbias ? x + 2 * x_size + (a.active ? g_size : 0) : nullptr;
    }
};

template <int MT> CT_DEVICE void weight_parts(const ct_cuda_cores &a) {
    CT_DYNAMIC_SHARED(memory);
    const weight_memory m(a, memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int part = blockIdx.x % a.parts, block = blockIdx.x / a.parts, column_block = block % a.column_blocks,
              line = block / a.column_blocks, row_block = line % a.row_blocks, group = line / a.row_blocks;
    const int first_tile = column_block * a.tiles_each, tiles = min(a.tiles_each, a.tiles - first_tile);
    const int first_in = first_tile / a.taps * 8, first_out = row_block * 16 * MT;
    const float *x = a.x + (int64_t)(group * a.in_each + first_in) * a.xs.c;
    const int64_t g_from = (int64_t)(group * a.out_each + first_out) * a.gs.c;
    const int first = part * a.each, last = min(first + a.each, a.chunks);
    const bool wants_sums = m.sums && column_block == 0;

    ct_wait_for_kernel_before();
    // columns behind a chunk's pixels stay zero
    for (int i = threadIdx.x; i < 2 * m.g_size; i += THREADS) m.g[i] = 0.0f;
    if (wants_sums)
        for (int i = threadIdx.x; i < a.gs.items; i += THREADS) m.sums[i] = 0.0f;
    __syncthreads();

    auto begin = [&](const chunk &c, int b) {
        const int h0 = c.row * a.stride[0] - a.before[0], w0 = c.column * a.stride[1] - a.before[1],
                  w = aligned_down(w0, a.xs.pack);
        copy_window(a.xs, m.x + b * m.x_size, x + c.n * a.xs.n, a.in_each - first_in, h0, w);
        copy_window(a.gs, m.g + b * m.g_size, a.g + g_from + c.n * a.gs.n, a.out_each - first_out, c.row, c.column);
        if (m.active)
            copy_window(a.gs, m.active, a.active + g_from + c.n * a.gs.n, a.out_each - first_out, c.row, c.column);
        if (threadIdx.x < CT_CORES_PIXELS) {
            const int pixel = threadIdx.x, row = divided(pixel, a.over_columns), column = pixel - row * a.columns;
            const bool inside = row < a.rows && c.row + row < a.out[0] && c.column + column < a.out[1];
            m.offsets[b * CT_CORES_PIXELS + pixel] =
                inside ? row * a.stride[0] * a.xs.columns + column * a.stride[1] + w0 - w : NO_PIXEL;
        }
    };
    auto end = [&](int b) {
        ct_async_wait();
        settle(a, m.g + b * m.g_size, m.active, wants_sums ? m.sums : nullptr);
        __syncthreads();
    };

    // this warp's tiles, of which one that does not exist computes what the first does, and writes nothing
    const int mine = warp % a.warps_n * a.tiles_warp, k_group = warp / a.warps_n;
    int from[TILES]; // bytes
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        const int t = first_tile + (j < a.tiles_warp && mine + j < tiles ? mine + j : 0);
        const int channels = t / a.taps, tap = t - channels * a.taps, down = divided(tap, a.over_width);
        from[j] = ((channels * 8 - first_in + lane / 4) * a.xs.pitch + down * a.dilation[0] * a.xs.columns +
                   (tap - down * a.kernel[1]) * a.dilation[1]) *
                  (int)sizeof(float);
    }
    const bool works = mine < tiles && k_group < a.warps_k;
    const int g_at = lane % 16 * a.gs.pitch + lane / 16 * 4;
    float sum[MT][TILES][4] = {};

    // begin and end are in the loop alone, which so starts before the first chunk: code in two places is fetched twice
    chunk next(a, first);
    int b = 1, rows_left = 0;
#pragma unroll 1
    for (int number = first; number <= last; number++, b ^= 1) {
        const int steps = works ? (min(a.rows, rows_left) * a.columns + 7) / 8 : 0;
        if (number < last) begin(next, b ^ 1);
        rows_left = a.out[0] - next.row, next.next(a);
        const float *g = m.g + b * m.g_size + g_at, *xs = m.x + b * m.x_size;
        const int *offsets = m.offsets + b * CT_CORES_PIXELS + lane % 4;
        for (int step = k_group; step < steps; step += a.warps_k) {
            uint32_t rows[MT][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                CT_SHARED_ACCESS(m.g, g + i * 16 * a.gs.pitch + step * 8, 16);
                ct_load_matrices(rows[i], g + i * 16 * a.gs.pitch + step * 8);
            }
            // of a pixel that does not exist the first one is read and its bits are cleared: a load on a condition would wait for it
            const int p0 = offsets[step * 8], p1 = offsets[step * 8 + 4];
            const uint32_t keep0 = ~(uint32_t)(p0 >> 31), keep1 = ~(uint32_t)(p1 >> 31);
            const char *x0 = (const char *)(xs + (p0 & INT32_MAX)), *x1 = (const char *)(xs + (p1 & INT32_MAX));
            CT_SHARED_ACCESS(m.offsets, offsets + step * 8, 4);
            CT_SHARED_ACCESS(m.offsets, offsets + step * 8 + 4, 4);
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                const uint32_t b0 = ct_tf32(__uint_as_float(*(const uint32_t *)(x0 + from[j]) & keep0)),
                               b1 = ct_tf32(__uint_as_float(*(const uint32_t *)(x1 + from[j]) & keep1));
                CT_SHARED_ACCESS(m.x, x0 + from[j], 4);
                CT_SHARED_ACCESS(m.x, x1 + from[j], 4);
#pragma unroll
                for (int i = 0; i < MT; i++) ct_mma_tf32(sum[i][j], rows[i], b0, b1);
            }
        }
        if (number < last) end(b ^ 1);
    }

    if (works) {
        const int64_t slot = part * a.warps_k + k_group, all = (int64_t)a.groups * a.row_blocks * a.tiles * MT * 128;
        float *out = a.partial + slot * all + (int64_t)line * a.tiles * MT * 128 + lane * 4;
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            if (j >= a.tiles_warp || mine + j >= tiles) continue;
#pragma unroll
            for (int i = 0; i < MT; i++)
                *(float4 *)(out + ((int64_t)(first_tile + mine + j) * MT + i) * 128) =
                    make_float4(sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]);
        }
    }
    if (!wants_sums) return;
    __syncthreads();
    const int row = threadIdx.x, packs = a.gs.items / a.gs.channels; // of a channel
    if (row >= 16 * MT) return;
    float total = 0;
    for (int i = 0; i < packs; i++) total += m.sums[a.gs.last ? i * a.gs.channels + row : row * packs + i];
    a.dbias_partial[(int64_t)part * a.groups * a.row_blocks * 16 * MT + line * 16 * MT + row] = total;
}

// The sums of all parts, in their order: a block for each tile of 16 x 8, and behind them one for each row block's bias.
template <int MT> CT_DEVICE void weight_sum(const ct_cuda_cores &a) {
    __shared__ float shares[SUM_WARPS * 128];
    if (ct_does_nothing(a.head)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = a.groups * a.row_blocks * a.tiles * MT;
    if ((int)blockIdx.x >= blocks) {
        enum { ROWS = 16 * MT, WORKERS = CT_CORES_SUM_THREADS / ROWS };
        const int line = blockIdx.x - blocks, row = threadIdx.x % ROWS, worker = threadIdx.x / ROWS;
        const int64_t all = (int64_t)a.groups * a.row_blocks * ROWS;
        float sum = 0;
        for (int part = worker; part < a.parts; part += WORKERS) sum += a.dbias_partial[part * all + line * ROWS + row];
        shares[threadIdx.x] = sum;
        __syncthreads();
        const int group = line / a.row_blocks, o = (line - group * a.row_blocks) * ROWS + row;
        if (worker || o >= a.out_each) return;
        for (int i = 1; i < WORKERS; i++) sum += shares[i * ROWS + row];
        a.dbias[(group * a.out_each + o) * a.dbias_stride] = sum;
        return;
    }
    const int slots = a.parts * a.warps_k;
    const int64_t all = (int64_t)blocks * 128;
    const float *from = a.partial + (int64_t)blockIdx.x * 128 + lane * 4;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int slot = warp; slot < slots; slot += SUM_WARPS) {
        const float4 more = *(const float4 *)(from + slot * all);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    *(float4 *)(shares + threadIdx.x * 4) = sum;
    __syncthreads();
    const int e = threadIdx.x;
    if (e >= 128) return;
    float total = shares[e];
#pragma unroll
    for (int i = 1; i < SUM_WARPS; i++) total += shares[i * 128 + e];
    const int i = blockIdx.x % MT, rest = blockIdx.x / MT, tile = rest % a.tiles, line = rest / a.tiles,
              group = line / a.row_blocks, row_block = line - group * a.row_blocks;
    const int channels = tile / a.taps, tap = tile - channels * a.taps, down = divided(tap, a.over_width);
    const int o = (row_block * MT + i) * 16 + e / 16 + e % 4 / 2 * 8, c = channels * 8 + e / 4 % 4 * 2 + e % 2;
    if (o >= a.out_each || c >= a.in_each) return;
    a.w[(group * a.out_each + o) * a.w_o + c * a.w_i + down * a.w_k[0] + (tap - down * a.kernel[1]) * a.w_k[1]] = total;
}

// ---- Inputs, with stride 1 ----

// dx [in; pixels] = sum over output channels and taps of w g, where g is shifted by the tap from the other end. Rows are input channels, 16 MT of
// them in a block, columns pixels, up to INPUT_TILES times 8 of each warp; k goes over a.depth output channels at a time, all taps of each.
// Weights are copied as they lie (raw) and then rounded into tiles as lanes want them: 4 words of each for a tile of 16 x 8.
template <int MT> CT_DEVICE void copy_weights(const ct_cuda_cores &a, float *raw, const float *kernel, int outs, int ins) {
    const int shift = a.w_pack == 4 ? 2 : 0, packs = (a.w_o == 1 ? a.depth : 16 * MT * a.taps) >> shift,
              items = (a.depth * 16 * MT * a.taps) >> shift, octaves = (a.depth == 16 ? 4 : 3) - shift;
    for (int item = threadIdx.x; item < items; item += THREADS) {
        int o, c, tap;
        if (a.w_o == 1) {
            const int line = item >> octaves; // 2^octaves packs of a line
            o = (item - line * packs) * a.w_pack, c = line % (16 * MT), tap = line / (16 * MT);
        } else {
            o = divided(item, a.over_row);
            const int k = (item - o * packs) * a.w_pack;
            c = divided(k, a.over_taps), tap = k - c * a.taps;
        }
        const bool inside = o < outs && c < ins;
        const int down = divided(tap, a.over_width);
        const int64_t at = o * a.w_o + c * a.w_i + down * a.w_k[0] + (tap - down * a.kernel[1]) * a.w_k[1];
        float *to = raw + o * a.raw_o + c * a.raw_c + tap * a.raw_tap;
        CT_SHARED_ACCESS(raw, to, a.w_pack * 4);
        if (a.w_pack == 4) ct_async_copy<16>(to, inside ? kernel + at : a.w, inside);
        else ct_async_copy<4>(to, inside ? kernel + at : a.w, inside);
    }
}
template <int MT> CT_DEVICE void settle_weights(const ct_cuda_cores &a, float *tiles, const float *raw) {
    const int lane = threadIdx.x % 32, eights = a.depth / 8, all = a.taps * eights * MT;
    raw += lane / 4 * a.raw_c + lane % 4 * a.raw_o;
    for (int tile = threadIdx.x / 32; tile < all; tile += WARPS) {
        const int i = tile % MT, line = tile / MT, tap = eights == 2 ? line / 2 : line, eight = line - tap * eights;
        const float *from = raw + tap * a.raw_tap + i * 16 * a.raw_c + eight * 8 * a.raw_o, *next = from + 8 * a.raw_c;
        const int four = 4 * a.raw_o;
        CT_SHARED_ACCESS(raw, from, 4);
        CT_SHARED_ACCESS(raw, next + four, 4);
        CT_SHARED_ACCESS(tiles, tiles + tile * 128 + lane * 4, 16);
        const uint4 rounded = {ct_tf32(from[0]), ct_tf32(next[0]), ct_tf32(from[four]), ct_tf32(next[four])};
        *(uint4 *)(tiles + tile * 128 + lane * 4) = rounded;
    }
}

template <int MT> CT_DEVICE void input_grad(const ct_cuda_cores &a) {
    CT_DYNAMIC_SHARED(memory);
    if (ct_does_nothing(a.head)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, weights = a.taps * a.depth * 16 * MT,
              g_size = a.gs.channels * a.gs.pitch;
    float *w_tiles = (float *)memory, *raw = w_tiles + weights, *g_tiles = raw + a.raw_size, *active = a.active ? g_tiles + 2 * g_size : nullptr;
    const chunk c(a, blockIdx.x % a.chunks);
    const int line = blockIdx.x / a.chunks, channel_block = line % a.row_blocks, group = line / a.row_blocks,
              first_in = channel_block * 16 * MT;
    const int h0 = c.row + a.before[0] - (a.kernel[0] - 1) * a.dilation[0],
              w0 = c.column + a.before[1] - (a.kernel[1] - 1) * a.dilation[1], w = aligned_down(w0, a.gs.pack);
    const float *kernel = a.w + group * a.out_each * a.w_o + first_in * a.w_i;

    auto begin = [&](int o0, int b) {
        const int64_t from = c.n * a.gs.n + (group * a.out_each + o0) * a.gs.c;
        copy_window(a.gs, g_tiles + b * g_size, a.g + from, a.out_each - o0, h0, w);
        if (active) copy_window(a.gs, active, a.active + from, a.out_each - o0, h0, w);
        copy_weights<MT>(a, raw, kernel + o0 * a.w_o, a.out_each - o0, a.in_each - first_in);
    };
    auto end = [&](int b) {
        ct_async_wait();
        settle(a, g_tiles + b * g_size, active, nullptr);
        __syncthreads(); // all have copied their weights, and computed with those before
        settle_weights<MT>(a, w_tiles, raw);
        __syncthreads();
    };

    // pixels that are not there compute what the first ones do
    const int tiles = (a.rows * a.columns + 7) / 8, mine = warp * a.tiles_warp;
    int from[INPUT_TILES];
#pragma unroll
    for (int j = 0; j < INPUT_TILES; j++) {
        int pixel = (mine + j) * 8 + lane / 4;
        if (j >= a.tiles_warp || pixel >= a.rows * a.columns) pixel = min(lane / 4, a.rows * a.columns - 1);
        const int row = divided(pixel, a.over_columns);
        from[j] = row * a.gs.columns + pixel - row * a.columns + w0 - w + lane % 4 * a.gs.pitch;
    }
    float sum[MT][INPUT_TILES][4] = {};
    int b = 1;
#pragma unroll 1
    for (int o0 = -a.depth; o0 < a.out_each; o0 += a.depth, b ^= 1) {
        const bool more = o0 + a.depth < a.out_each;
        if (more) begin(o0 + a.depth, b ^ 1);
        const uint4 *rows = (const uint4 *)w_tiles + lane;
        const float *g = g_tiles + b * g_size + (a.kernel[0] - 1) * a.dilation[0] * a.gs.columns +
                         (a.kernel[1] - 1) * a.dilation[1];
        for (int down = 0; o0 >= 0 && mine < tiles && down < a.kernel[0]; down++)
            for (int right = 0; right < a.kernel[1]; right++) {
                const float *at = g - down * a.dilation[0] * a.gs.columns - right * a.dilation[1];
                for (int step = 0; step < a.depth; step += 8, at += 8 * a.gs.pitch) {
                    uint32_t row[MT][4];
#pragma unroll
                    for (int i = 0; i < MT; i++, rows += 32) {
                        CT_SHARED_ACCESS(w_tiles, rows, 16);
                        const uint4 four = *rows;
                        row[i][0] = four.x, row[i][1] = four.y, row[i][2] = four.z, row[i][3] = four.w;
                    }
#pragma unroll
                    for (int j = 0; j < INPUT_TILES; j++) {
                        const uint32_t b0 = __float_as_uint(at[from[j]]), b1 = __float_as_uint(at[from[j] + 4 * a.gs.pitch]);
                        CT_SHARED_ACCESS(g_tiles, at + from[j], 4);
                        CT_SHARED_ACCESS(g_tiles, at + from[j] + 4 * a.gs.pitch, 4);
#pragma unroll
                        for (int i = 0; i < MT; i++) ct_mma_tf32(sum[i][j], row[i], b0, b1);
                    }
                }
            }
        if (more) end(b ^ 1);
    }

#pragma unroll
    for (int j = 0; j < INPUT_TILES; j++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int pixel = (mine + j) * 8 + lane % 4 * 2 + k;
            const int row = divided(pixel, a.over_columns), column = pixel - row * a.columns;
            const bool inside = j < a.tiles_warp && row < a.rows && c.row + row < a.in[0] && c.column + column < a.in[1];
            if (!inside) continue;
            float *to = a.dx + c.n * a.xs.n + (c.row + row) * a.xs.h + (c.column + column) * a.xs.w;
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int channel = first_in + i * 16 + half * 8 + lane / 4, of_all = group * a.in_each + channel;
                    if (channel >= a.in_each) continue;
                    const float bias = a.bias ? a.bias[of_all * a.bias_stride] : 0.0f;
                    to[of_all * a.xs.c] = sum[i][j][half * 2 + k] + bias;
                }
        }
}

#define KERNELS(rows, MT)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) cores_weight_parts_##rows(const __grid_constant__ ct_cuda_cores a) { \
        weight_parts<MT>(a);                                                                                                 \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(CT_CORES_SUM_THREADS) cores_weight_sum_##rows(const __grid_constant__ ct_cuda_cores a) { \
        weight_sum<MT>(a);                                                                                                   \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) cores_input_##rows(const __grid_constant__ ct_cuda_cores a) {   \
        input_grad<MT>(a);                                                                                                   \
    }
KERNELS(16, 1)
KERNELS(32, 2)
KERNELS(64, 4)
