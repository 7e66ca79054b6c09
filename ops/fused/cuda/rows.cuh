// Steps along rows in fused kernels. A group of threads has a row in registers, K packs each as ct_row has them (backends/cuda/row.cuh), but
// what is in them comes from steps. The arithmetic is that of ops/norm/cuda.
#pragma once

#include "ops/fused/cuda/fused.cuh"
#include "ops/norm/cuda/row_norm.cuh"

template <typename N> struct ct_held_pack {
    const N *at;
    CT_DEVICE N get(int k) const { return at[k]; }
};
template <typename N, int M> struct ct_held_packs {
    ct_held_pack<N> of[M];
};
template <typename S, int M, int K> struct ct_held_row {
    enum { V = ct_row_pack<S>::V };
    typedef typename ct_number<S>::type N;
    ct_row_shape<S, true> shape;
    int lane, lanes;
    const N (*values[M])[V];
    CT_DEVICE ct_held_row(int n, int of_lane, int of_lanes) : shape(nullptr, n), lane(of_lane), lanes(of_lanes) {}
    template <typename F> CT_DEVICE void each(F use) const {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (lane + k * lanes < shape.packs) {
                ct_held_packs<N, M> packs;
#pragma unroll
                for (int m = 0; m < M; m++) packs.of[m].at = values[m][k];
                use(packs, lane + k * lanes);
            }
    }
};

// Elements of weight or bias beside pack p, as `beside` has them; aligned: all addresses are.
template <typename S> struct ct_held_beside {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    N numbers[V];
    CT_DEVICE ct_held_beside(const char *from, int p, N otherwise, bool aligned) {
        if (from) {
            const ct_pack<N, V> pack = ct_read_any<V, N>(from, (int64_t)p * V, aligned);
#pragma unroll
            for (int k = 0; k < V; k++) numbers[k] = pack.v[k];
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) numbers[k] = otherwise;
        }
    }
};

template <typename S> CT_DEVICE typename ct_number<S>::type ct_rounded(typename ct_number<S>::type x) {
    return ct_load<typename ct_number<S>::type>(ct_store<S>(x));
}

template <typename S, int K, typename N, int V>
CT_DEVICE void ct_row_norm_step(const N (&x)[K][V], N (&y)[K][V], const char *weights, const char *biases, int n,
                                double eps, bool rms, int lane, int lanes, bool aligned) {
    const terms<N> of(n, eps, rms);
    ct_held_row<S, 1, K> row(n, lane, lanes);
    row.values[0] = x;
    const N centre = centre_of(of, row);
    const two<N> sums = deviations_of(row, centre);
    const moments<N> m = moments_of(of, centre, sums.a, sums.b);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int p = lane + k * lanes;
        if (p >= row.shape.packs) continue;
        const ct_held_beside<S> weight(weights, p, 1, aligned), bias(biases, p, 0, aligned);
#pragma unroll
        for (int v = 0; v < V; v++) y[k][v] = ct_rounded<S>(hat(m, x[k][v]) * weight.numbers[v] + bias.numbers[v]);
    }
}

// SUMS: of the columns too, for the gradients of weight and bias.
template <typename S, bool SUMS, int K, typename N, int V>
CT_DEVICE void ct_row_norm_grad_step(const N (&g)[K][V], const N (&x)[K][V], N (&dx)[K][V], const char *weights, int n,
                                     double eps, bool rms, int lane, int lanes, bool aligned, bool inside,
                                     N (&by_weight)[K][V], N (&by_bias)[K][V]) {
    const terms<N> of(n, eps, rms);
    ct_held_row<S, 2, K> row(n, lane, lanes);
    row.values[0] = x;
    row.values[1] = g;
    const N centre = centre_of(of, row);
    const four<N> sums =
        gradient_sums(row, centre, [&](int p) { return ct_held_beside<S>(weights, p, 1, aligned); });
    if (!inside) return;
    const moments<N> m = moments_of(of, centre, sums.a, sums.b);
    const projection<N> of_row = projection_of(of, m, sums);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int p = lane + k * lanes;
        if (p >= row.shape.packs) continue;
        const ct_held_beside<S> weight(weights, p, 1, aligned);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const N xhat = hat(m, x[k][v]);
            if (SUMS) {
                by_weight[k][v] = ct_fma(g[k][v], xhat, by_weight[k][v]);
                by_bias[k][v] += g[k][v];
            }
            dx[k][v] = ct_rounded<S>(row_gradient(of_row, xhat, g[k][v] * weight.numbers[v]));
        }
    }
}
