// Device code of row_norm and of its gradients. A row's mean is counted from a first estimate, `centre`, so that the
// squares of deviations lose no digits and the mean has more of them than the dtype.
// Gradients of weight and bias are summed in parts, a block's rows each, and then over the parts in their order: always
// the same bits.
#include "ops/norm/cuda/row_norm.h"

#include "backends/cuda/row.cuh"

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
    CT_DEVICE explicit terms(const ct_cuda_row_norm &a) : inverse((N)1 / (N)a.n), eps((N)a.eps), rms(a.rms) {}
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

template <typename S, bool WHOLE, int KEPT> CT_DEVICE void row_norm_rows(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    if (ct_does_nothing(a.head)) return;
    const terms<N> of(a);
    ct_each_row(a.rows, a.lanes, [&](int64_t at, int lane, bool inside) {
        ct_row<S, 1, WHOLE, KEPT> row;
        row.at[0] = (const S *)a.x + at * a.n;
        row.otherwise[0] = 0;
        row.take((int)a.n, lane, a.lanes);
        const N centre = centre_of(of, row);
        two<N> sums;
        sums.a = sums.b = 0;
        row.each([&](const ct_row_packs<S, 1> &packs, int p) {
            two<N> few;
            few.a = few.b = 0;
#pragma unroll
            for (int k = 0; k < V; k++) {
                const N d = row.shape.has(row.shape.first(p) + k) ? packs.of[0].get(k) - centre : (N)0;
                few.a += d;
                few.b = ct_fma(d, d, few.b);
            }
            sums.a += few.a, sums.b += few.b;
        });
        sums = sum_two(sums, a.lanes);
        if (!inside) return;
        const moments<N> m = moments_of(of, centre, sums.a, sums.b);
        S *y = (S *)a.y + at * a.n;
        row.each([&](const ct_row_packs<S, 1> &packs, int p) {
            const beside<S, WHOLE> weight(row.shape, a.weight, p, 1), bias(row.shape, a.bias, p, 0);
            ct_row_pack<S> results = {};
#pragma unroll
            for (int k = 0; k < V; k++)
                results.set(k, hat(m, packs.of[0].get(k)) * weight.numbers[k] + bias.numbers[k]);
            row.shape.store(y, p, results);
        });
    });
}

// What the gradient of a row needs of it: with h = g weight, dx = rstd (h - mean(h) - xhat mean(h xhat)); without a
// mean of x, no mean(h).
template <typename S, bool WHOLE, int KEPT>
CT_DEVICE four<typename ct_number<S>::type>
gradient_sums(const ct_cuda_row_norm &a, const ct_row<S, 2, WHOLE, KEPT> &row, typename ct_number<S>::type centre) {
    typedef typename ct_number<S>::type N;
    four<N> sums; // of d, d^2, h and h d, with d = x - centre
    sums.a = sums.b = sums.c = sums.d = 0;
    row.each([&](const ct_row_packs<S, 2> &packs, int p) {
        const beside<S, WHOLE> weight(row.shape, a.weight, p, 1);
        four<N> few;
        few.a = few.b = few.c = few.d = 0;
#pragma unroll
        for (int k = 0; k < ct_row_pack<S>::V; k++) {
            const N d = row.shape.has(row.shape.first(p) + k) ? packs.of[0].get(k) - centre : (N)0;
            const N h = packs.of[1].get(k) * weight.numbers[k];
            few.a += d;
            few.b = ct_fma(d, d, few.b);
            few.c += h;
            few.d = ct_fma(h, d, few.d);
        }
        sums.a += few.a, sums.b += few.b, sums.c += few.c, sums.d += few.d;
    });
    return sum_four(sums, a.lanes);
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

// Gradients of x, and the moments of rows where gradients of weight are summed apart.
template <typename S, bool WHOLE, int KEPT> CT_DEVICE void row_norm_grads(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    if (ct_does_nothing(a.head)) return;
    const terms<N> of(a);
    ct_each_row(a.rows, a.lanes, [&](int64_t at, int lane, bool inside) {
        ct_row<S, 2, WHOLE, KEPT> row;
        row.at[0] = (const S *)a.x + at * a.n;
        row.at[1] = (const S *)a.g + at * a.n;
        row.otherwise[0] = row.otherwise[1] = 0;
        row.take((int)a.n, lane, a.lanes);
        const N centre = centre_of(of, row);
        const four<N> sums = gradient_sums(a, row, centre);
        if (!inside) return;
        const moments<N> m = moments_of(of, centre, sums.a, sums.b);
        if (a.moments && lane == 0) ((moments<N> *)a.moments)[at] = m;
        if (!a.dx) return;
        const projection<N> of_row = projection_of(of, m, sums);
        S *dx = (S *)a.dx + at * a.n;
        row.each([&](const ct_row_packs<S, 2> &packs, int p) {
            const beside<S, WHOLE> weight(row.shape, a.weight, p, 1);
            ct_row_pack<S> results = {};
#pragma unroll
            for (int k = 0; k < V; k++)
                results.set(k,
                            row_gradient(of_row, hat(m, packs.of[0].get(k)), packs.of[1].get(k) * weight.numbers[k]));
            row.shape.store(dx, p, results);
        });
    });
}

// All gradients at once, of rows that are whole and fit into registers: a group keeps the sums of its columns, and
// reads its next row while it works on this one. The groups of a block come together in the end.
template <typename S, int K> CT_DEVICE void row_norm_all(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    extern __shared__ __align__(16) char shared[];
    if (ct_does_nothing(a.head)) return;
    const terms<N> of(a);
    const int lanes = a.lanes, lane = (int)threadIdx.x & (lanes - 1), groups = (int)blockDim.x / lanes,
              group = (int)threadIdx.x / lanes;
    const int64_t step = (int64_t)gridDim.x * groups;
    N by_weight[K][V], by_bias[K][V];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int v = 0; v < V; v++) by_weight[k][v] = by_bias[k][v] = 0;
    ct_row<S, 2, true, K> row, next;
    auto fetch = [&](ct_row<S, 2, true, K> &into, int64_t at) {
        into.at[0] = (const S *)a.x + at * a.n;
        into.at[1] = (const S *)a.g + at * a.n;
        into.take((int)a.n, lane, lanes);
    };
    int64_t first = (int64_t)blockIdx.x * groups;
    fetch(next, min(first + group, a.rows - 1));
    for (; first < a.rows; first += step) {
        const int64_t at = first + group;
        row = next;
        if (first + step < a.rows) fetch(next, min(at + step, a.rows - 1));
        const N centre = centre_of(of, row);
        const four<N> sums = gradient_sums(a, row, centre);
        if (at >= a.rows) continue;
        const moments<N> m = moments_of(of, centre, sums.a, sums.b);
        const projection<N> of_row = projection_of(of, m, sums);
        S *dx = (S *)a.dx + at * a.n;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int p = lane + k * lanes;
            if (p >= row.shape.packs) continue;
            const beside<S, true> weight(row.shape, a.weight, p, 1);
            ct_row_pack<S> results = {};
#pragma unroll
            for (int v = 0; v < V; v++) {
                const N g = row.kept[k].of[1].get(v), xhat = hat(m, row.kept[k].of[0].get(v));
                by_weight[k][v] = ct_fma(g, xhat, by_weight[k][v]);
                by_bias[k][v] += g;
                results.set(v, row_gradient(of_row, xhat, g * weight.numbers[v]));
            }
            if (a.dx) row.shape.store(dx, p, results);
        }
    }
    N *sums = (N *)a.sums + (int64_t)blockIdx.x * 2 * a.n, *gathered = (N *)shared; // (2, n)
    for (int turn = groups - 1; turn >= 0; turn--) { // the last group begins, the first writes
        if (turn == group) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int p = lane + k * lanes;
                if (p >= (int)a.n / V) continue;
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const int at = p * V + v;
                    if (turn < groups - 1) by_weight[k][v] += gathered[at], by_bias[k][v] += gathered[a.n + at];
                    if (turn > 0) gathered[at] = by_weight[k][v], gathered[a.n + at] = by_bias[k][v];
                    else sums[at] = by_weight[k][v], sums[a.n + at] = by_bias[k][v];
                }
            }
        }
        if (groups > 1) __syncthreads();
    }
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

// The sums of one part of the rows, from their moments.
template <typename S> CT_DEVICE void row_norm_parts(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    const int64_t column = (int64_t)blockIdx.x * CT_NORM_SIDE + threadIdx.x % CT_NORM_SIDE,
                  first = blockIdx.y * a.chunk;
    const bool inside = column < a.n;
    const two<N> sum = sum_columns<N>(min(a.chunk, a.rows - first), [&](int64_t i) {
        two<N> term;
        term.a = term.b = 0;
        if (inside) {
            const int64_t at = (first + i) * a.n + column;
            const N g = ct_number_of(((const S *)a.g)[at]);
            term.a = g * hat(((const moments<N> *)a.moments)[first + i], ct_number_of(((const S *)a.x)[at]));
            term.b = g;
        }
        return term;
    });
    if (threadIdx.x >= CT_NORM_SIDE || !inside) return;
    N *sums = (N *)a.sums + (int64_t)blockIdx.y * 2 * a.n;
    sums[column] = sum.a;
    sums[a.n + column] = sum.b;
}

// Over all parts.
template <typename S> CT_DEVICE void row_norm_total(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    const int64_t column = (int64_t)blockIdx.x * CT_NORM_SIDE + threadIdx.x % CT_NORM_SIDE;
    const bool inside = column < a.n;
    const two<N> sum = sum_columns<N>(a.parts, [&](int64_t part) {
        const N *sums = (const N *)a.sums + part * 2 * a.n;
        two<N> term;
        term.a = inside ? sums[column] : (N)0;
        term.b = inside ? sums[a.n + column] : (N)0;
        return term;
    });
    if (threadIdx.x >= CT_NORM_SIDE || !inside) return;
    if (a.dweight) ((N *)a.dweight)[column] = sum.a;
    if (a.dbias) ((N *)a.dbias)[column] = sum.b;
}

#define AND ,
#define KERNEL(name, suffix, threads, ...)                                       \
    extern "C" __global__ void __launch_bounds__(threads)                        \
        row_norm_##name##_##suffix(const __grid_constant__ ct_cuda_row_norm a) { \
        __VA_ARGS__(a);                                                          \
    }
#define KERNELS(suffix, S)                                                                          \
    KERNEL(rows, suffix, CT_ROW_LONGEST AND 2, row_norm_rows<S, true, CT_ROW_PACKS>)                \
    KERNEL(ragged, suffix, CT_ROW_LONGEST, row_norm_rows<S, false, 0>)                              \
    KERNEL(grad_rows, suffix, CT_ROW_LONGEST, row_norm_grads<S, true, CT_ROW_PACKS>)                \
    KERNEL(grad_ragged, suffix, CT_ROW_LONGEST, row_norm_grads<S, false, 0>)                        \
    KERNEL(grad_all, suffix, CT_NORM_THREADS AND 2, row_norm_all<S, CT_NORM_PACKS(sizeof(S))>)      \
    KERNEL(grad_warps, suffix, CT_NORM_WARPS AND 3, row_norm_all<S, CT_NORM_WARP_PACKS(sizeof(S))>) \
    KERNEL(grad_parts, suffix, CT_NORM_THREADS, row_norm_parts<S>)                                  \
    KERNEL(grad_total, suffix, CT_NORM_MOST, row_norm_total<S>)
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
