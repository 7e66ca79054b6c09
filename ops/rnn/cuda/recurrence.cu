// The recurrence forward: see persistent.cuh. It looks at no error word, since all
// blocks have to go on or none. At each step the warps of a block divide the sum over the state among them; what they found
// meets in shared memory, where each thread makes one hidden unit of one sequence of it.
#include "ops/rnn/cuda/persistent.cuh"

// KS: steps of 8 in k that each warp takes, so H is at most 64 KS.
template <int GATES, int KS> __device__ void forward(const ct_cuda_recurrence &p) {
    constexpr int ROW = 64 * KS + 8, COLUMNS = CT_RNN_UNITS * GATES, APART = COLUMNS + 8; // not on the same banks
    extern __shared__ __align__(16) char shared[];
    float *const state = (float *)shared, *const partial = state + CT_RNN_ROWS * ROW; // (16,ROW) (warps,16,APART)
    const int me = blockIdx.x % p.blocks, warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4, at = lane / 4;
    const int width = p.blocks * CT_RNN_UNITS, unit = me * CT_RNN_UNITS + threadIdx.x % CT_RNN_UNITS;
    const int first_k = warp * 8 * KS + 2 * q;
    float w[KS][2 * GATES][2], bias[GATES];
#pragma unroll
    for (int k = 0; k < KS; k++)
#pragma unroll
        for (int n = 0; n < 2 * GATES; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int column = 8 * n + at, to = me * CT_RNN_UNITS + column % CT_RNN_UNITS,
                          from = first_k + 8 * k + e;
                w[k][n][e] = ct_rnn_number<float>(p.w, to < p.h && from < p.h,
                                                  (int64_t)(column / CT_RNN_UNITS) * p.h + to, from);
            }
#pragma unroll
    for (int g = 0; g < GATES; g++) bias[g] = ct_rnn_number<float>(p.b_hh, unit < p.h, (int64_t)g * p.h + unit);
    const int place = blockIdx.x / p.blocks, together = gridDim.x / p.blocks;
    float *const exchange = p.exchange + (int64_t)place * 2 * CT_RNN_ROWS * width; // (2,16,width)
    uint32_t *const counter = p.counters + place * CT_RNN_LINE, blocks = (uint32_t)p.blocks;
    uint32_t arrived = 0; // what the counter has when all have arrived as often as this block
#pragma unroll 1
    for (int group = place; group < p.groups; group += together) {
        const int row = group * CT_RNN_ROWS + threadIdx.x / CT_RNN_UNITS,
                  length = ct_rnn_length(p, row, me == 0 && threadIdx.x % CT_RNN_UNITS == 0);
        const bool there = row < p.n && unit < p.h;
        const int mine = threadIdx.x / CT_RNN_UNITS * width + unit;
        float h = ct_rnn_number<float>(p.h0, there, row, unit), c = ct_rnn_number<float>(p.c0, there, row, unit);
        ct_wait(counter, arrived); // nobody reads what is left of another group
        exchange[mine] = h;
        ct_arrive(counter), arrived += blocks;
#pragma unroll 1
        for (int step = 0; step < p.steps; step++) {
            const int t = p.reverse ? p.steps - 1 - step : step;
            float x[GATES], s[GATES];
#pragma unroll
            for (int g = 0; g < GATES; g++) x[g] = ct_rnn_number<float>(p.gx, there, t, row, (int64_t)g * p.h + unit);
            ct_wait(counter, arrived);
            const float *const from = exchange + (step & 1) * CT_RNN_ROWS * width;
#pragma unroll
            for (int e = threadIdx.x; e < CT_RNN_ROWS * 16 * KS; e += CT_RNN_THREADS) {
                const int r = e / (16 * KS), k = e % (16 * KS) * 4;
                ct_async_copy<16>(state + r * ROW + k, from + (k < width ? r * width + k : 0), k < width);
            }
            ct_async_wait();
            __syncthreads();
            ct_rnn_hold(w);
            float sum[2 * GATES][4];
#pragma unroll
            for (int n = 0; n < 2 * GATES; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
#pragma unroll
            for (int k = 0; k < KS; k++) {
                const float2 low = *(const float2 *)(state + at * ROW + first_k + 8 * k),
                             high = *(const float2 *)(state + (at + 8) * ROW + first_k + 8 * k);
                const float a[4] = {low.x, high.x, low.y, high.y};
                ct_rnn_multiply(sum, a, w[k], p.fast);
            }
#pragma unroll
            for (int n = 0; n < 2 * GATES; n++) {
                float *const to = partial + (warp * CT_RNN_ROWS + at) * APART + 8 * n + 2 * q;
                *(float2 *)to = make_float2(sum[n][0], sum[n][1]);
                *(float2 *)(to + 8 * APART) = make_float2(sum[n][2], sum[n][3]);
            }
            __syncthreads();
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                const float *const mine_of =
                    partial + threadIdx.x / CT_RNN_UNITS * APART + g * CT_RNN_UNITS + threadIdx.x % CT_RNN_UNITS;
                s[g] = 0;
#pragma unroll
                for (int k = 0; k < CT_RNN_WARPS; k++) s[g] += mine_of[k * CT_RNN_ROWS * APART];
                s[g] += bias[g];
            }
            const bool inside = there && t < length;
            float kept[CT_CELL_KEPT] = {}, result = 0;
            if (inside) h = result = ct_cell_forward(p.cell, x, s, h, c, kept);
            exchange[((step + 1) & 1) * CT_RNN_ROWS * width + mine] = h;
            ct_arrive(counter), arrived += blocks;
            if (!there) continue;
            ct_rnn_put<float>(p.y, result, t, row, unit);
#pragma unroll
            for (int k = 0; k < ct_cell_kept<GATES>(); k++)
                ct_rnn_put<float>(p.states, kept[k], t, row, (int64_t)k * p.h + unit);
        }
        if (!there) continue;
        ct_rnn_put<float>(p.h_n, h, row, unit);
        if (GATES == 4) ct_rnn_put<float>(p.c_n, c, row, unit);
    }
}

#define FORWARD(GATES, KS)                                          \
    extern "C" __global__ void __launch_bounds__(CT_RNN_THREADS, 1) \
        recurrence_##GATES##_##KS(const ct_cuda_recurrence p) {     \
        forward<GATES, KS>(p);                                      \
    }
FORWARD(1, 2)
FORWARD(3, 2)
FORWARD(4, 2)
FORWARD(1, 8)
FORWARD(3, 8)
FORWARD(4, 8)
