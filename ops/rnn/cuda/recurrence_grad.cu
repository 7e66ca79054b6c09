// The recurrence backward in time: see persistent.cuh. It looks at no error word, since all
// blocks have to go on or none. A block has the gradients of its own gates, so of the sum over all gates that makes
// dh it makes a part for every hidden unit; each block then adds up the parts for its own units, in the order of the blocks.
#include "ops/rnn/cuda/persistent.cuh"

template <int GATES, int KS> __device__ void backward(const ct_cuda_recurrence &p) {
    constexpr int COLUMNS = CT_RNN_UNITS * GATES, ROW = COLUMNS + 8; // not on the same banks
    extern __shared__ __align__(16) char shared[];
    float *const gates = (float *)shared; // (16,ROW)
    const int me = blockIdx.x % p.blocks, warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4, at = lane / 4;
    const int my_row = threadIdx.x / CT_RNN_UNITS, my_unit = threadIdx.x % CT_RNN_UNITS,
              unit = me * CT_RNN_UNITS + my_unit;
    float w[2 * GATES][KS][2];
#pragma unroll
    for (int k = 0; k < 2 * GATES; k++)
#pragma unroll
        for (int n = 0; n < KS; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int column = 8 * k + 2 * q + e, from = me * CT_RNN_UNITS + column % CT_RNN_UNITS,
                          to = 8 * (warp * KS + n) + at;
                w[k][n][e] = ct_rnn_number<float>(p.w, from < p.h && to < p.h,
                                                  (int64_t)(column / CT_RNN_UNITS) * p.h + from, to);
            }
    const int place = blockIdx.x / p.blocks, together = gridDim.x / p.blocks,
              square = p.blocks * p.blocks * CT_RNN_THREADS;
    float *const exchange = p.exchange + (int64_t)place * 2 * square; // (2, to, from, 16, 16)
    uint32_t *const counter = p.counters + place * CT_RNN_LINE, blocks = (uint32_t)p.blocks;
    uint32_t arrived = 0; // what the counter has when all have arrived as often as this block
#pragma unroll 1
    for (int group = place; group < p.groups; group += together) {
        const int row = group * CT_RNN_ROWS + my_row, length = ct_rnn_length(p, row, me == 0 && my_unit == 0);
        const bool there = row < p.n && unit < p.h;
        float dh = ct_rnn_number<float>(p.gh_n, there, row, unit), dc = ct_rnn_number<float>(p.gc_n, there, row, unit);
        auto collect = [&](int done) { // the parts of dh for this unit that step `done`, counted from the end, has left
            ct_wait(counter, arrived);
            const float *const parts = exchange + (done & 1) * square + me * p.blocks * CT_RNN_THREADS + threadIdx.x;
            float sum = 0;
#pragma unroll 8
            for (int k = 0; k < p.blocks; k++) sum += __ldcg(parts + k * CT_RNN_THREADS);
            return sum;
        };
#pragma unroll 1
        for (int done = 0; done < p.steps; done++) {
            const int step = p.steps - 1 - done, t = p.reverse ? p.steps - 1 - step : step,
                      last = p.reverse ? t + 1 : t - 1;
            const bool inside = there && t < length, first = p.reverse ? last >= length : last < 0;
            float kept[CT_CELL_KEPT] = {};
#pragma unroll
            for (int k = 0; k < ct_cell_kept<GATES>(); k++)
                kept[k] = ct_rnn_number<float>(p.states, inside, t, row, (int64_t)k * p.h + unit);
            const float gy = ct_rnn_number<float>(p.gy, inside, t, row, unit);
            ct_cell_before<float> b = {0, 0, 0};
            if (GATES == 1) b.y = ct_rnn_number<float>(p.y, inside, t, row, unit);
            if (GATES == 3)
                b.h = first ? ct_rnn_number<float>(p.h0, inside, row, unit)
                            : ct_rnn_number<float>(p.y, inside, last, row, unit);
            if (GATES == 4)
                b.c = first ? ct_rnn_number<float>(p.c0, inside, row, unit)
                            : ct_rnn_number<float>(p.states, inside, last, row, (int64_t)4 * p.h + unit);
            if (done > 0) dh += collect(done - 1);
            float dx[GATES], ds[GATES];
#pragma unroll
            for (int g = 0; g < GATES; g++) dx[g] = ds[g] = 0;
            if (inside) {
                dh += gy;
                ct_cell_backward(p.cell, kept, b, dh, dc, dx, ds);
            }
#pragma unroll
            for (int g = 0; g < GATES; g++) gates[my_row * ROW + g * CT_RNN_UNITS + my_unit] = ds[g];
            __syncthreads();
            if (step > 0 || p.dh0.data) {
                ct_rnn_hold(w);
                float sum[KS][4];
#pragma unroll
                for (int n = 0; n < KS; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
#pragma unroll
                for (int k = 0; k < 2 * GATES; k++) {
                    const float2 low = *(const float2 *)(gates + at * ROW + 8 * k + 2 * q),
                                 high = *(const float2 *)(gates + (at + 8) * ROW + 8 * k + 2 * q);
                    const float a[4] = {low.x, high.x, low.y, high.y};
                    ct_rnn_multiply(sum, a, w[k], p.fast);
                }
                float *const parts = exchange + (done & 1) * square + me * CT_RNN_THREADS;
#pragma unroll
                for (int n = 0; n < KS; n++) {
                    const int to = (8 * (warp * KS + n) + 2 * q) / CT_RNN_UNITS,
                              column = (8 * (warp * KS + n) + 2 * q) % CT_RNN_UNITS;
                    if (to >= p.blocks) continue;
                    float *const part = parts + to * p.blocks * CT_RNN_THREADS + at * CT_RNN_UNITS + column;
                    __stcg((float2 *)part, make_float2(sum[n][0], sum[n][1]));
                    __stcg((float2 *)(part + 8 * CT_RNN_UNITS), make_float2(sum[n][2], sum[n][3]));
                }
            }
            ct_arrive(counter), arrived += blocks;
            if (!there) continue;
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                ct_rnn_put<float>(p.dgx, dx[g], t, row, (int64_t)g * p.h + unit);
                if (GATES == 3) ct_rnn_put<float>(p.dgh, ds[g], t, row, (int64_t)g * p.h + unit);
            }
        }
        if (p.dh0.data) {
            if (p.steps > 0) dh += collect(p.steps - 1);
            if (there) ct_rnn_put<float>(p.dh0, dh, row, unit);
        }
        if (GATES == 4 && there) ct_rnn_put<float>(p.dc0, dc, row, unit);
        ct_arrive(counter), arrived += blocks; // this block has read all that the others left for it
        if (group + together < p.groups) ct_wait(counter, arrived);
    }
}

#define BACKWARD(GATES, KS)                                          \
    extern "C" __global__ void __launch_bounds__(CT_RNN_THREADS, 1)  \
        recurrence_grad_##GATES##_##KS(const ct_cuda_recurrence p) { \
        backward<GATES, KS>(p);                                      \
    }
BACKWARD(1, 2)
BACKWARD(3, 2)
BACKWARD(4, 2)
BACKWARD(1, 8)
BACKWARD(3, 8)
BACKWARD(4, 8)
