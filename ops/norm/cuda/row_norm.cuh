// The arithmetic of row_norm and of its gradients, for rows wherever they lie. A row's mean is counted from a first estimate, `centre`, so
// that the squares of deviations lose no digits and the mean has more of them than the dtype.
#pragma once

#include "backends/cuda/row.cuh"
#include "ops/norm/cuda/row_norm.h"

template <typename N> struct moments { N centre, rest, rstd; }; // xhat = (x - centre) rstd - rest
template <typename N> struct two { N a, b; };
template <typename N> struct four { N a, b, c, d; };

template <typename N> CT_DEVICE two<N> sum_two(two<N> x, int lanes) {
    return ct_merge_group(x, lanes, [](two<N> p, two<N> q) {
        p.a += q.a, p.b += q.b;
        return p;
    });
}
template <typename N> CT_DEVICE four<N> sum_four(four<N> x, int lanes) {
    return ct_merge_group(x, lanes, [](four<N> p, four<N> q) {
        p.a += q.a, p.b += q.b, p.c += q.c, p.d += q.d;
        return p;
    });
}

// What is the same for all rows.
template <typename N> struct terms {
    N inverse, eps; // of n
    bool rms;
    CT_DEVICE terms(int64_t n, double of_eps, bool of_rms) : inverse((N)1 / (N)n), eps((N)of_eps), rms(of_rms) {}
    CT_DEVICE explicit terms(const ct_cuda_row_norm &a) : terms(a.n, a.eps, a.rms) {}
};

// The mean of a row to the digits of its dtype; 0 where only mean squares count.
template <typename N, typename R> CT_DEVICE N centre_of(const terms<N> &of, const R &row) {
    if (of.rms) return 0;
    N sum = 0;
    row.each([&](const auto &packs, int) {
        N few = 0;
#pragma unroll
        for (int k = 0; k < R::V; k++) few += packs.of[0].get(k);
        sum += few;
    });
    const N mean = ct_sum_group(sum, row.lanes) * of.inverse;
    return ct_isfinite(mean) ? mean : (N)0; // any number does, so long as it is one
}
// Sums of the deviations from the centre, and of their squares.
template <typename N, typename R> CT_DEVICE two<N> deviations_of(const R &row, N centre) {
    two<N> sums;
    sums.a = sums.b = 0;
    row.each([&](const auto &packs, int p) {
        two<N> few;
        few.a = few.b = 0;
#pragma unroll
        for (int k = 0; k < R::V; k++) {
            const N d = row.shape.has(row.shape.first(p) + k) ? packs.of[0].get(k) - centre : (N)0;
            few.a += d;
            few.b = ct_fma(d, d, few.b);
        }
        sums.a += few.a, sums.b += few.b;
    });
    return sum_two(sums, row.lanes);
}
// From the sums of deviations from the centre and of their squares.
template <typename N> CT_DEVICE moments<N> moments_of(const terms<N> &of, N centre, N deviations, N squares) {
    moments<N> m;
    const N rest = of.rms ? (N)0 : deviations * of.inverse, mean = squares * of.inverse - rest * rest;
    m.centre = centre;
    m.rstd = ct_rsqrt((mean < 0 ? (N)0 : mean) + of.eps); // a NaN stays one
    m.rest = rest * m.rstd;
    return m;
}
template <typename N> CT_DEVICE N hat(const moments<N> &m, N x) { return ct_fma(x - m.centre, m.rstd, -m.rest); }

// Elements of weight or bias beside pack p, in what is computed in; where there is none, another number.
template <typename S, bool WHOLE> struct beside {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V, PACKS = V * (int)sizeof(N) / 16 };
    union {
        N numbers[V];
        uint4 packs[PACKS];
    };
    CT_DEVICE beside(const ct_row_shape<S, WHOLE> &shape, const char *from, int p, N otherwise) {
        const N *first = (const N *)from + shape.first(p);
        if (WHOLE && from) {
#pragma unroll
            for (int i = 0; i < PACKS; i++) packs[i] = ((const uint4 *)first)[i];
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) numbers[k] = from && shape.has(shape.first(p) + k) ? first[k] : otherwise;
        }
    }
};

// What the gradient of a row needs of it: with h = g weight, dx = rstd (h - mean(h) - xhat mean(h xhat)); without a
// mean of x, no mean(h).
// weight_at(p) has the weights beside pack p.
template <typename N, typename R, typename W> CT_DEVICE four<N> gradient_sums(const R &row, N centre, W weight_at) {
    four<N> sums; // of d, d^2, h and h d, with d = x - centre
    sums.a = sums.b = sums.c = sums.d = 0;
    row.each([&](const auto &packs, int p) {
        const auto weight = weight_at(p);
        four<N> few;
        few.a = few.b = few.c = few.d = 0;
#pragma unroll
        for (int k = 0; k < R::V; k++) {
            const N d = row.shape.has(row.shape.first(p) + k) ? packs.of[0].get(k) - centre : (N)0;
            const N h = packs.of[1].get(k) * weight.numbers[k];
            few.a += d;
            few.b = ct_fma(d, d, few.b);
            few.c += h;
            few.d = ct_fma(h, d, few.d);
        }
        sums.a += few.a, sums.b += few.b, sums.c += few.c, sums.d += few.d;
    });
    return sum_four(sums, row.lanes);
}

template <typename N> struct projection { N mean, along, scale; };
template <typename N>
CT_DEVICE projection<N> projection_of(const terms<N> &of, const moments<N> &m, const four<N> &sums) {
    projection<N> p;
    p.mean = of.rms ? (N)0 : sums.c * of.inverse;
    p.along = (m.rstd * sums.d - m.rest * sums.c) * of.inverse;
    p.scale = m.rstd;
    if (of.rms && of.inverse == 1) { // 1 - xhat^2 = eps rstd^2, of which a difference would leave nothing
        p.along = 0;
        p.scale *= of.eps * m.rstd * m.rstd;
    }
    return p;
}
// Differences first: rstd may be large, and rounded is not itself.
template <typename N> CT_DEVICE N row_gradient(const projection<N> &p, N xhat, N h) {
    return ct_fma(-xhat, p.along, h - p.mean) * p.scale;
}

// The threads of a warp stand at neighbouring columns, its warps, a power of two, take every so-manieth of `count` terms;
// the first warp has the sums.
template <typename N, typename F> CT_DEVICE two<N> sum_columns(int64_t count, F term) {
    __shared__ two<N> sums[CT_NORM_MOST / CT_NORM_SIDE][CT_NORM_SIDE];
    const int warps = (int)blockDim.x / CT_NORM_SIDE, warp = (int)threadIdx.x / CT_NORM_SIDE,
              column = (int)threadIdx.x % CT_NORM_SIDE;
    two<N> sum;
    sum.a = sum.b = 0;
#pragma unroll 4
    for (int64_t i = warp; i < count; i += warps) {
        const two<N> more = term(i);
        sum.a += more.a, sum.b += more.b;
    }
    sums[warp][column] = sum;
    __syncthreads();
    for (int half = warps / 2; half; half /= 2) {
        if (warp < half) {
            sums[warp][column].a += sums[warp + half][column].a;
            sums[warp][column].b += sums[warp + half][column].b;
        }
        __syncthreads();
    }
    return sums[0][column];
}

// The sums of a block's groups, (2, n), come together: the last group begins, the first writes.
template <typename N, int K, int V>
CT_DEVICE void gather_columns(N *sums, N *gathered, int n, int lane, int lanes, N (&by_weight)[K][V], N (&by_bias)[K][V]) {
    const int groups = (int)blockDim.x / lanes, group = (int)threadIdx.x / lanes;
    for (int turn = groups - 1; turn >= 0; turn--) {
        if (turn == group) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int p = lane + k * lanes;
                if (p >= n / V) continue;
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const int at = p * V + v;
                    if (turn < groups - 1) by_weight[k][v] += gathered[at], by_bias[k][v] += gathered[n + at];
                    if (turn > 0) gathered[at] = by_weight[k][v], gathered[n + at] = by_bias[k][v];
                    else sums[at] = by_weight[k][v], sums[n + at] = by_bias[k][v];
                }
            }
        }
        if (groups > 1) __syncthreads();
    }
}

// Over all parts, by blocks of CT_NORM_SIDE columns.
template <typename N> CT_DEVICE void sum_parts(const N *all, int64_t parts, int64_t n, N *dweight, N *dbias) {
    const int64_t column = (int64_t)blockIdx.x * CT_NORM_SIDE + threadIdx.x % CT_NORM_SIDE;
    const bool inside = column < n;
    const two<N> sum = sum_columns<N>(parts, [&](int64_t part) {
        const N *sums = all + part * 2 * n;
        two<N> term;
        term.a = inside ? sums[column] : (N)0;
        term.b = inside ? sums[n + column] : (N)0;
        return term;
    });
    if (threadIdx.x >= CT_NORM_SIDE || !inside) return;
    if (dweight) dweight[column] = sum.a;
    if (dbias) dbias[column] = sum.b;
}
