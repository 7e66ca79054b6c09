// Attention forward on Tensor Cores: FlashAttention-2 (Dao, 2023). A warp keeps 16 queries, their running softmax and their part of the
// result in registers; keys and values come through shared memory 64 at a time, the next while these are used. Scores never leave
// the registers: as sums lie, they are the first operand of the product with V.
#include "ops/attention/cuda/tiles.cuh"

// Scores of a tile as they are exponentiated, in units of log 2; -inf where a key takes no part. GENERAL: scale and masks of any kind are
// applied, else the caller multiplies by a positive scale.
template <typename S, bool GENERAL, int N>
CT_DEVICE void prepare(const ct_cuda_sdpa &p, float (&s)[N][4], int64_t b, int h, int row, int j0, int most) {
    const int column = j0 + threadIdx.x % 4 * 2;
    if (GENERAL) {
        const float scale = (float)(p.scale * CT_LOG2E);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = row + e / 2 * 8, j = column + 8 * n + e % 2;
                s[n][e] *= scale;
                if (p.mask_kind && i < p.tq && j < p.tk)
                    s[n][e] = fmaf(ct_sdpa_mask<S, float>(p, b, h, i, j), (float)CT_LOG2E, s[n][e]);
            }
    }
    if (j0 + 8 * N <= most) return; // all of the warp's rows see all of the keys
    const int seen = ct_sdpa_seen(p, row), seen8 = ct_sdpa_seen(p, row + 8);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (column + 8 * n + e % 2 >= (e < 2 ? seen : seen8)) s[n][e] = -INFINITY;
}

CT_DEVICE float highest_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
CT_DEVICE float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <typename S, int D, bool GENERAL> __device__ void forward(const ct_cuda_sdpa &p) {
    constexpr int STEP = CT_SDPA_STEP, ROW = ct_row<D>(), N = STEP / 8;
    extern __shared__ __align__(16) char shared[];
    S *const buffer = (S *)shared; // queries, then two stages of keys and values, then the result
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * CT_SDPA_ROWS, warp = threadIdx.x / 32, row = first + 16 * warp;
    const S *const keys = ct_sdpa_head<S>(p.k, b, h / p.group), *const values = ct_sdpa_head<S>(p.v, b, h / p.group);
    const int last = first + CT_SDPA_ROWS < p.tq ? first + CT_SDPA_ROWS : p.tq;
    const int end = ct_sdpa_seen(p, last - 1), most = ct_sdpa_seen(p, row), rows_end = ct_sdpa_seen(p, row + 15);

    uint32_t q[D / 16][4];
    ct_take_rows<S, D, CT_SDPA_ROWS>(buffer, p.q, ct_sdpa_head<S>(p.q, b, h), first, p.tq, p.d);
    ct_async_wait();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < D / 16; k++) ct_take_operand<S, D>(q[k], buffer + 16 * warp * ROW, k);
    __syncthreads();

    const ct_position position = GENERAL ? ct_sdpa_position(p) : ct_position{0, 0, 0};
    const float factor = GENERAL ? 1.0f : (float)(p.scale * CT_LOG2E);
    const int my_row = row + threadIdx.x % 32 / 4;
    float o[D / 8][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    ct_clear(o);
    if (end > 0) {
        ct_take_rows<S, D, STEP>(buffer, p.k, keys, 0, p.tk, p.d);
        ct_take_rows<S, D, STEP>(buffer + STEP * ROW, p.v, values, 0, p.tk, p.d_v);
    }
#pragma unroll 1
    for (int j0 = 0, stage = 0; j0 < end; j0 += STEP, stage ^= 1) {
        const S *const key = buffer + stage * 2 * STEP * ROW, *const value = key + STEP * ROW;
        ct_async_wait();
        __syncthreads(); // these have come, and nobody reads the other stage any more
        if (j0 + STEP < end) {
            S *const next = buffer + (stage ^ 1) * 2 * STEP * ROW;
            ct_take_rows<S, D, STEP>(next, p.k, keys, j0 + STEP, p.tk, p.d);
            ct_take_rows<S, D, STEP>(next + STEP * ROW, p.v, values, j0 + STEP, p.tk, p.d_v);
        }
        if (j0 >= rows_end) continue;
        float s[N][4];
        ct_clear(s);
#pragma unroll
        for (int k = 0; k < D / 16; k++) ct_multiply_rows<S, D, STEP>(s, q[k], key, k);
        prepare<S, GENERAL>(p, s, b, h, my_row, j0, most);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float now = top[r];
#pragma unroll
            for (int n = 0; n < N; n++) now = fmaxf(now, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
            now = highest_of_four(now);
            const float level = now == -INFINITY ? 0 : now * factor;
            const float down = ct_fast_exp2(fmaf(top[r], factor, -level));
            top[r] = now;
            sum[r] *= down;
#pragma unroll
            for (int n = 0; n < D / 8; n++) o[n][2 * r] *= down, o[n][2 * r + 1] *= down;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    s[n][e] = ct_fast_exp2(fmaf(s[n][e], factor, -level));
                    sum[r] += s[n][e];
                }
        }
        if (GENERAL && p.drops) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[n][e] *= ct_sdpa_factor<float>(p, position, b, h, my_row + e / 2 * 8,
                                                     j0 + 8 * n + threadIdx.x % 4 * 2 + e % 2);
        }
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            uint32_t a[4];
            ct_sums_to_operand<S>(a, s[2 * k], s[2 * k + 1]);
            ct_multiply_columns<S, D>(o, a, value + 16 * k * ROW);
        }
    }
    __syncthreads(); // the result takes the place of keys and values
    float share[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float total = sum_of_four(sum[r]);
        share[r] = total == 0 ? 0 : 1 / total;
        const int i = my_row + 8 * r;
        if (p.lse.data && threadIdx.x % 4 == 0 && i < p.tq)
            ct_sdpa_head<float>(p.lse, b, h)[i * p.lse.strides[2]] =
                total == 0 ? (float)INFINITY : fmaf(top[r] * factor, (float)CT_LN2, logf(total));
    }
    ct_put_rows<S, D>(p.y, ct_sdpa_head<S>(p.y, b, h), buffer + 16 * warp * ROW, o, share[0], share[1], row, p.tq,
                      p.d_v);
}

#define FORWARD(name, S, D, GENERAL, BLOCKS)                                                                          \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) sdpa_forward_##name(const ct_cuda_sdpa p) { \
        forward<S, D, GENERAL>(p);                                                                                    \
    }
#define FORWARDS(name, S)                      \
    FORWARD(name##_32, S, 32, false, 2)        \
    FORWARD(name##_64, S, 64, false, 2)        \
    FORWARD(name##_128, S, 128, false, 1)      \
    FORWARD(name##_general_64, S, 64, true, 1) \
    FORWARD(name##_general_128, S, 128, true, 1)
FORWARDS(f16, __half)
FORWARDS(bf16, __nv_bfloat16)
