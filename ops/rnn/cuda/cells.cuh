// The cells, one hidden unit of one sequence at a time, forward and backward.
#pragma once

#include "backends/cuda/words.cuh"
#include "ops/rnn/cells.h"

// What the gradient reads of a step: i f g o c of an lstm; r z n and h W_hn^T + b_hn of a gru.
template <int GATES> CT_DEVICE constexpr int ct_cell_kept() { return GATES == 4 ? 5 : GATES == 3 ? 4 : 0; }
enum { CT_CELL_KEPT = 5 };

// The new h, from sums over x and over h (bias included); c and what is kept change too.
template <int GATES, typename C>
CT_DEVICE C ct_cell_forward(int cell, const C (&x)[GATES], const C (&s)[GATES], C h, C &c, C (&kept)[CT_CELL_KEPT]) {
    if constexpr (GATES == 4) {
        const C i = ct_sigmoid(x[0] + s[0]), f = ct_sigmoid(x[1] + s[1]), g = ct_tanh(x[2] + s[2]),
                o = ct_sigmoid(x[3] + s[3]);
        c = ct_fma(f, c, i * g);
        kept[0] = i, kept[1] = f, kept[2] = g, kept[3] = o, kept[4] = c;
        return o * ct_tanh(c);
    } else if constexpr (GATES == 3) {
        const C r = ct_sigmoid(x[0] + s[0]), z = ct_sigmoid(x[1] + s[1]), n = ct_tanh(ct_fma(r, s[2], x[2]));
        kept[0] = r, kept[1] = z, kept[2] = n, kept[3] = s[2];
        return ct_fma(z, h - n, n); // (1 - z) n + z h
    } else {
        const C sum = x[0] + s[0];
        return cell == CT_CELL_RELU ? (sum < 0 ? C(0) : sum) : ct_tanh(sum);
    }
}

template <typename C> struct ct_cell_before {
    C y, h, c; // the step's result, and the states that it started from
};
template <typename C> CT_DEVICE C ct_slope_sigmoid(C y) { return y * (1 - y); }
template <typename C> CT_DEVICE C ct_slope_tanh(C y) { return 1 - y * y; }

// From dh and dc: the gradients of the gates with respect to x's sums and to h's; dh becomes what goes past the product, dc what goes on.
template <int GATES, typename C>
CT_DEVICE void ct_cell_backward(int cell, const C (&kept)[CT_CELL_KEPT], const ct_cell_before<C> &b, C &dh, C &dc,
                                C (&dx)[GATES], C (&ds)[GATES]) {
    if constexpr (GATES == 4) {
        const C i = kept[0], f = kept[1], g = kept[2], o = kept[3], tc = ct_tanh(kept[4]);
        const C d = ct_fma(dh * o, ct_slope_tanh(tc), dc);
        dx[0] = ds[0] = d * g * ct_slope_sigmoid(i);
        dx[1] = ds[1] = d * b.c * ct_slope_sigmoid(f);
        dx[2] = ds[2] = d * i * ct_slope_tanh(g);
        dx[3] = ds[3] = dh * tc * ct_slope_sigmoid(o);
        dc = d * f;
        dh = 0;
    } else if constexpr (GATES == 3) {
        const C r = kept[0], z = kept[1], n = kept[2], hn = kept[3];
        const C dn = dh * (1 - z) * ct_slope_tanh(n);
        dx[0] = ds[0] = dn * hn * ct_slope_sigmoid(r);
        dx[1] = ds[1] = dh * (b.h - n) * ct_slope_sigmoid(z);
        dx[2] = dn;
        ds[2] = dn * r;
        dh *= z;
    } else {
        dx[0] = ds[0] = cell == CT_CELL_RELU ? (b.y > 0 ? dh : C(0)) : dh * ct_slope_tanh(b.y);
        dh = 0;
    }
}
