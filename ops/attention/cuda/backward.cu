// Attention backward on Tensor Cores, as in FlashAttention-2 (Dao, 2023): the scores are computed again from lse.
//     P = exp(S - lse)   dV = P^T g   dP = g V^T   dS = P (dP - delta)   dQ = scale dS K   dK = scale dS^T Q
// What differs: no sums are made by atomics. One kernel goes over queries for blocks of keys (dK and dV), another over keys for blocks of
// queries (dQ): seven products in place of five, and the same bits every time. In both a warp keeps 16 rows; scores, transposed in the
// first kernel, become operands where they are.
#include "ops/attention/cuda/tiles.cuh"

enum { AT_ONCE = 32 }; // rows of the other side whose scores are in registers

// P of query i and key j, dropout left aside. level: lse in units of log 2.
template <typename S, bool GENERAL>
CT_DEVICE float weight(const ct_cuda_sdpa &p, float s, float scale, float level, int64_t b, int h, int i, int j) {
    if (!GENERAL) return ct_fast_exp2(fmaf(s, scale, -level));
    s *= scale;
    if (p.mask_kind && i < p.tq && j < p.tk) s = fmaf(ct_sdpa_mask<S, float>(p, b, h, i, j), (float)CT_LOG2E, s);
    return ct_fast_exp2(s - level);
}

// ---- dK and dV ----

template <typename S, int D, bool GENERAL> __device__ void keys_backward(const ct_cuda_sdpa &p) {
    constexpr int STEP = CT_SDPA_STEP, ROW = ct_row<D>(), ROWS = CT_SDPA_ROWS;
    extern __shared__ __align__(16) char shared[];
    S *const key = (S *)shared, *const value = key + ROWS * ROW,
             *const stages = value + ROWS * ROW;                // two of queries and g
    float2 *const levels = (float2 *)(stages + 4 * STEP * ROW); // two of lse and delta
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.kv_heads, p.blocks, false);
    const int64_t b = place.b;
    const int hk = place.h, first = place.block * ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = first + 16 * warp; // of keys
    // The first query that sees any of these keys, at a multiple of STEP.
    const int64_t earliest = p.causal && first > p.ahead ? first - p.ahead : 0;
    const int begin = earliest < p.tq ? (int)(earliest / STEP * STEP) : p.tq;
    const int steps = (p.tq - begin + STEP - 1) / STEP, all = steps * p.group;
    const float scale = (float)(p.scale * CT_LOG2E);
    const ct_position position = GENERAL ? ct_sdpa_position(p) : ct_position{0, 0, 0};
    const S *const my_keys = key + 16 * warp * ROW, *const my_values = value + 16 * warp * ROW;

    auto take = [&](int step) { // queries of step `step` of all heads, one head after the other
        const int h = hk * p.group + step / steps, i0 = begin + step % steps * STEP, stage = step & 1;
        S *const to = stages + stage * 2 * STEP * ROW;
        ct_take_rows<S, D, STEP>(to, p.q, ct_sdpa_head<S>(p.q, b, h), i0, p.tq, p.d);
        ct_take_rows<S, D, STEP>(to + STEP * ROW, p.g, ct_sdpa_head<S>(p.g, b, h), i0, p.tq, p.d_v);
        if (threadIdx.x < STEP) {
            const int i = i0 + threadIdx.x;
            const float2 *const from = (const float2 *)p.rows + (b * p.heads + h) * p.tq;
            ct_async_copy<8>(levels + stage * STEP + threadIdx.x, i < p.tq ? from + i : from, i < p.tq);
        }
    };
    float dk[D / 8][4], dv[D / 8][4];
    ct_clear(dk);
    ct_clear(dv);
    ct_take_rows<S, D, ROWS>(key, p.k, ct_sdpa_head<S>(p.k, b, hk), first, p.tk, p.d);
    ct_take_rows<S, D, ROWS>(value, p.v, ct_sdpa_head<S>(p.v, b, hk), first, p.tk, p.d_v);
    if (all > 0) take(0);
#pragma unroll 1
    for (int step = 0; step < all; step++) {
        ct_async_wait();
        __syncthreads();
        if (step + 1 < all) take(step + 1);
        const int stage = step & 1, h = hk * p.group + step / steps;
        const S *const query = stages + stage * 2 * STEP * ROW, *const cotangent = query + STEP * ROW;
#pragma unroll 1
        for (int part = 0; part < STEP; part += AT_ONCE) {
            const int i0 = begin + step % steps * STEP + part;
            if (i0 >= p.tq || (p.causal && i0 + AT_ONCE - 1 + p.ahead < row))
                continue; // these keys are seen by none of them
            float s[AT_ONCE / 8][4], ds[AT_ONCE / 8][4];
            ct_clear(s);
            ct_clear(ds);
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                uint32_t a[4];
                ct_take_operand<S, D>(a, my_keys, k);
                ct_multiply_rows<S, D, AT_ONCE>(s, a, query + part * ROW, k);
                ct_take_operand<S, D>(a, my_values, k);
                ct_multiply_rows<S, D, AT_ONCE>(ds, a, cotangent + part * ROW, k);
            }
            const bool edge = p.causal && row + 15 > i0 + p.ahead;
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++) {
                const float4 level = *(const float4 *)(levels + stage * STEP + part + 8 * n + lane % 4 * 2);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int i = i0 + 8 * n + lane % 4 * 2 + e % 2, j = row + lane / 4 + e / 2 * 8;
                    const float lse = e % 2 ? level.z : level.x, delta = e % 2 ? level.w : level.y;
                    float w = weight<S, GENERAL>(p, s[n][e], scale, lse, b, h, i, j);
                    if (edge && j > i + p.ahead) w = 0;
                    float kept = 1;
                    if (GENERAL && p.drops) kept = ct_sdpa_factor<float>(p, position, b, h, i, j);
                    ds[n][e] = w * ((GENERAL ? ds[n][e] * kept : ds[n][e]) - delta);
                    s[n][e] = GENERAL ? w * kept : w;
                }
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE / 16; k++) {
                uint32_t a[4];
                ct_sums_to_operand<S>(a, s[2 * k], s[2 * k + 1]);
                ct_multiply_columns<S, D>(dv, a, cotangent + (part + 16 * k) * ROW);
                ct_sums_to_operand<S>(a, ds[2 * k], ds[2 * k + 1]);
                ct_multiply_columns<S, D>(dk, a, query + (part + 16 * k) * ROW);
            }
        }
    }
    ct_async_wait();
    __syncthreads(); // the results take the place of keys and values
    S *const buffer = key + 16 * warp * ROW;
    const float out = (float)p.scale;
    if (p.dk.data) ct_put_rows<S, D>(p.dk, ct_sdpa_head<S>(p.dk, b, hk), buffer, dk, out, out, row, p.tk, p.d);
    if (p.dv.data) ct_put_rows<S, D>(p.dv, ct_sdpa_head<S>(p.dv, b, hk), buffer, dv, 1, 1, row, p.tk, p.d_v);
}

// ---- dQ, and the gradient of an additive mask ----

template <typename S, int D, bool GENERAL> __device__ void queries_backward(const ct_cuda_sdpa &p) {
    constexpr int STEP = CT_SDPA_STEP, ROW = ct_row<D>(), ROWS = CT_SDPA_ROWS;
    extern __shared__ __align__(16) char shared[];
    S *const buffer = (S *)shared; // queries and g, then two stages of keys and values, then the result
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = first + 16 * warp, my_row = row + lane / 4;
    const S *const keys = ct_sdpa_head<S>(p.k, b, h / p.group), *const values = ct_sdpa_head<S>(p.v, b, h / p.group);
    const int last = first + ROWS < p.tq ? first + ROWS : p.tq;
    // The mask's gradient is written everywhere.
    const bool whole = GENERAL && p.dmask.data;
    const int end = whole ? p.tk : ct_sdpa_seen(p, last - 1), most = ct_sdpa_seen(p, row),
              rows_end = whole ? p.tk : ct_sdpa_seen(p, row + 15);
    const float scale = (float)(p.scale * CT_LOG2E);
    const ct_position position = GENERAL ? ct_sdpa_position(p) : ct_position{0, 0, 0};

    uint32_t q[D / 16][4], g[D / 16][4];
    ct_take_rows<S, D, ROWS>(buffer, p.q, ct_sdpa_head<S>(p.q, b, h), first, p.tq, p.d);
    ct_take_rows<S, D, ROWS>(buffer + ROWS * ROW, p.g, ct_sdpa_head<S>(p.g, b, h), first, p.tq, p.d_v);
    float lse[2], delta[2];
    int seen[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = my_row + 8 * r;
        const float2 level = i < p.tq ? ((const float2 *)p.rows)[(b * p.heads + h) * p.tq + i] : make_float2(0, 0);
        lse[r] = level.x, delta[r] = level.y, seen[r] = ct_sdpa_seen(p, i);
    }
    ct_async_wait();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        ct_take_operand<S, D>(q[k], buffer + 16 * warp * ROW, k);
        ct_take_operand<S, D>(g[k], buffer + (ROWS + 16 * warp) * ROW, k);
    }
    __syncthreads();

    auto take = [&](int j0, int stage) {
        S *const to = buffer + stage * 2 * STEP * ROW;
        ct_take_rows<S, D, STEP>(to, p.k, keys, j0, p.tk, p.d);
        ct_take_rows<S, D, STEP>(to + STEP * ROW, p.v, values, j0, p.tk, p.d_v);
    };
    float dq[D / 8][4];
    ct_clear(dq);
    if (end > 0) take(0, 0);
#pragma unroll 1
    for (int j0 = 0, stage = 0; j0 < end; j0 += STEP, stage ^= 1) {
        ct_async_wait();
        __syncthreads();
        if (j0 + STEP < end) take(j0 + STEP, stage ^ 1);
        const S *const key = buffer + stage * 2 * STEP * ROW, *const value = key + STEP * ROW;
#pragma unroll 1
        for (int part = 0; part < STEP; part += AT_ONCE) {
            const int j1 = j0 + part;
            if (j1 >= rows_end) continue;
            float s[AT_ONCE / 8][4], ds[AT_ONCE / 8][4];
            ct_clear(s);
            ct_clear(ds);
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                ct_multiply_rows<S, D, AT_ONCE>(s, q[k], key + part * ROW, k);
                ct_multiply_rows<S, D, AT_ONCE>(ds, g[k], value + part * ROW, k);
            }
            const bool edge = j1 + AT_ONCE > most;
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int i = my_row + e / 2 * 8, j = j1 + 8 * n + lane % 4 * 2 + e % 2;
                    float w = weight<S, GENERAL>(p, s[n][e], scale, lse[e / 2], b, h, i, j);
                    if (GENERAL && p.drops) ds[n][e] *= ct_sdpa_factor<float>(p, position, b, h, i, j);
                    ds[n][e] = edge && j >= seen[e / 2] ? 0 : w * (ds[n][e] - delta[e / 2]);
                    if (GENERAL && whole && i < p.tq && j < p.tk)
                        ct_sdpa_head<S>(p.dmask, b, h)[i * p.dmask.strides[2] + j * p.dmask.strides[3]] =
                            ct_store<S>(ds[n][e]);
                }
#pragma unroll
            for (int k = 0; k < AT_ONCE / 16; k++) {
                uint32_t a[4];
                ct_sums_to_operand<S>(a, ds[2 * k], ds[2 * k + 1]);
                ct_multiply_columns<S, D>(dq, a, key + (part + 16 * k) * ROW);
            }
        }
    }
    __syncthreads();
    const float out = (float)p.scale;
    if (p.dq.data)
        ct_put_rows<S, D>(p.dq, ct_sdpa_head<S>(p.dq, b, h), buffer + 16 * warp * ROW, dq, out, out, row, p.tq, p.d);
}

#define BACKWARD(name, S, D, GENERAL, BLOCKS)                                                                         \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) sdpa_keys_##name(const ct_cuda_sdpa p) {    \
        keys_backward<S, D, GENERAL>(p);                                                                              \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) sdpa_queries_##name(const ct_cuda_sdpa p) { \
        queries_backward<S, D, GENERAL>(p);                                                                           \
    }
#define BACKWARDS(name, S)                      \
    BACKWARD(name##_32, S, 32, false, 2)        \
    BACKWARD(name##_64, S, 64, false, 2)        \
    BACKWARD(name##_128, S, 128, false, 1)      \
    BACKWARD(name##_general_64, S, 64, true, 1) \
    BACKWARD(name##_general_128, S, 128, true, 1)
BACKWARDS(f16, __half)
BACKWARDS(bf16, __nv_bfloat16)
