// One step of a recurrence between two products, forward and backward: what persistent.cuh does not take, f64 and many hidden units. A thread makes one
// hidden unit of one sequence.
#include "ops/rnn/cuda/series.cuh"

template <typename C, int GATES> CT_DEVICE void forward_at(const ct_cuda_rnn_step &a, int row, int unit) {
    const ct_cuda_recurrence &p = a.r;
    const int64_t at = (int64_t)row * p.h + unit;
    const int length = ct_rnn_length(p, row, a.step == 0 && unit == 0), t = p.reverse ? p.steps - 1 - a.step : a.step;
    C h = a.step ? ((const C *)a.h_before)[at] : ct_rnn_number<C>(p.h0, true, row, unit);
    C c = a.step ? ((const C *)a.dc)[at] : ct_rnn_number<C>(p.c0, true, row, unit), result = 0, kept[CT_CELL_KEPT] = {};
    if (a.step < p.steps) {
        if (t < length) {
            C x[GATES], s[GATES];
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                const int64_t column = (int64_t)g * p.h + unit;
                x[g] = ct_rnn_number<C>(p.gx, true, t, row, column);
                s[g] = ct_rnn_number<C>(p.b_hh, true, column);
                if (a.product) s[g] += ((const C *)a.product)[(int64_t)row * GATES * p.h + column];
            }
            h = result = ct_cell_forward(p.cell, x, s, h, c, kept);
        }
        ((C *)a.h_after)[at] = h;
        ((C *)a.dc)[at] = c;
        ct_rnn_put<C>(p.y, result, t, row, unit);
#pragma unroll
        for (int k = 0; k < ct_cell_kept<GATES>(); k++)
            ct_rnn_put<C>(p.states, kept[k], t, row, (int64_t)k * p.h + unit);
    }
    if (a.step + 1 < p.steps) return;
    ct_rnn_put<C>(p.h_n, h, row, unit);
    if (GATES == 4) ct_rnn_put<C>(p.c_n, c, row, unit);
}

template <typename C, int GATES> CT_DEVICE void backward_at(const ct_cuda_rnn_step &a, int row, int unit) {
    const ct_cuda_recurrence &p = a.r;
    const int64_t at = (int64_t)row * p.h + unit;
    const bool begins = a.step == p.steps - 1;
    C dh = begins ? ct_rnn_number<C>(p.gh_n, true, row, unit) : ((const C *)a.dh)[at];
    C dc = begins ? ct_rnn_number<C>(p.gc_n, true, row, unit) : ((const C *)a.dc)[at];
    if (a.product) dh += ((const C *)a.product)[at];
    if (a.step < 0) {
        ct_rnn_put<C>(p.dh0, dh, row, unit);
        if (GATES == 4) ct_rnn_put<C>(p.dc0, dc, row, unit);
        return;
    }
    const int length = ct_rnn_length(p, row, begins && unit == 0), t = p.reverse ? p.steps - 1 - a.step : a.step;
    C dx[GATES] = {}, ds[GATES] = {};
    if (t < length) {
        const int last = p.reverse ? t + 1 : t - 1;
        const bool first = p.reverse ? last >= length : last < 0;
        C kept[CT_CELL_KEPT] = {};
#pragma unroll
        for (int k = 0; k < ct_cell_kept<GATES>(); k++)
            kept[k] = ct_rnn_number<C>(p.states, true, t, row, (int64_t)k * p.h + unit);
        ct_cell_before<C> b = {0, 0, 0};
        if (GATES == 1) b.y = ct_rnn_number<C>(p.y, true, t, row, unit);
        if (GATES == 3)
            b.h = first ? ct_rnn_number<C>(p.h0, true, row, unit) : ct_rnn_number<C>(p.y, true, last, row, unit);
        if (GATES == 4)
            b.c = first ? ct_rnn_number<C>(p.c0, true, row, unit)
                        : ct_rnn_number<C>(p.states, true, last, row, (int64_t)4 * p.h + unit);
        dh += ct_rnn_number<C>(p.gy, true, t, row, unit);
        ct_cell_backward(p.cell, kept, b, dh, dc, dx, ds);
    }
    ((C *)a.dh)[at] = dh;
    ((C *)a.dc)[at] = dc;
#pragma unroll
    for (int g = 0; g < GATES; g++) {
        const int64_t column = (int64_t)g * p.h + unit;
        ((C *)a.gates)[(int64_t)row * GATES * p.h + column] = ds[g];
        ct_rnn_put<C>(p.dgx, dx[g], t, row, column);
        if (GATES == 3) ct_rnn_put<C>(p.dgh, ds[g], t, row, column);
    }
}

template <typename C, bool BACKWARD> __device__ void step(const ct_cuda_rnn_step &a) {
    if (ct_does_nothing(a.r.head)) return;
    for (int64_t e = ct_first(); e < (int64_t)a.r.n * a.r.h; e += ct_step()) {
        const int row = (int)(e / a.r.h), unit = (int)(e % a.r.h);
        if (a.r.cell == CT_CELL_LSTM) BACKWARD ? backward_at<C, 4>(a, row, unit) : forward_at<C, 4>(a, row, unit);
        else if (a.r.cell == CT_CELL_GRU) BACKWARD ? backward_at<C, 3>(a, row, unit) : forward_at<C, 3>(a, row, unit);
        else BACKWARD ? backward_at<C, 1>(a, row, unit) : forward_at<C, 1>(a, row, unit);
    }
}

#define STEPS(name, C)                                                                          \
    extern "C" __global__ void rnn_step_##name(const ct_cuda_rnn_step a) { step<C, false>(a); } \
    extern "C" __global__ void rnn_step_back_##name(const ct_cuda_rnn_step a) { step<C, true>(a); }
STEPS(f32, float)
STEPS(f64, double)
