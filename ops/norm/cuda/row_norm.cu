// Device code of row_norm and of its gradients. Gradients of weight and bias are summed in parts, a block's rows each, and then over the
// parts in their order: always the same bits.
#include "ops/norm/cuda/row_norm.cuh"

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
        const two<N> sums = deviations_of(row, centre);
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
        const four<N> sums = gradient_sums(row, centre, [&](int p) { return beside<S, WHOLE>(row.shape, a.weight, p, 1); });
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
    CT_DYNAMIC_SHARED(shared);
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
        const four<N> sums = gradient_sums(row, centre, [&](int p) { return beside<S, true>(row.shape, a.weight, p, 1); });
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
    gather_columns<N, K, V>((N *)a.sums + (int64_t)blockIdx.x * 2 * a.n, (N *)shared, (int)a.n, lane, lanes, by_weight, by_bias);
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

template <typename S> CT_DEVICE void row_norm_total(const ct_cuda_row_norm &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    sum_parts((const N *)a.sums, a.parts, a.n, (N *)a.dweight, (N *)a.dbias);
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
