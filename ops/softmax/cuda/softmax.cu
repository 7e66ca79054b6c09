// Device code of softmax, log_softmax and their gradients. A kind says what is done:
//   M                 operands
//   State             what is gathered of a line: from nothing() on, take(state, elements), merge(a, b)
//   filler(m)         an element of operand m that changes nothing
//   Scale             what is computed of the state of the whole line, once
//   result(scale, v)  of the operands' elements
// Lines whose elements are neighbours are rows, one for a group of threads, which keeps them unless they are long or begin
// anywhere. Otherwise neighbouring threads have neighbouring lines.
#include "ops/softmax/cuda/softmax.h"

#include "backends/cuda/level.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/row.cuh"

template <typename S> struct of_exponentials {
    typedef typename ct_number<S>::type N;
    enum { M = 1 };
    typedef ct_level<N> State;
    CT_DEVICE static State nothing() { return ct_no_level<N>(); }
    CT_DEVICE static N filler(int) { return -(N)INFINITY; }
    template <int C> CT_DEVICE static void take(State &s, const N (&v)[1][C]) {
        ct_raise_level<S, C>(s, [&](int k) { return v[0][k]; });
    }
    CT_DEVICE static State merge(const State &a, const State &b) { return ct_merge_levels(a, b); }
};

template <typename S> struct softmax : of_exponentials<S> {
    typedef typename ct_number<S>::type N;
    typedef ct_level<N> Scale;
    CT_DEVICE static Scale scale(Scale s) {
        s.sum = 1 / s.sum;
        return s;
    }
    CT_DEVICE static N result(const Scale &s, const N *v) { return ct_exponential<S>::of(v[0] - s.top) * s.sum; }
};

template <typename S> struct log_softmax : of_exponentials<S> {
    typedef typename ct_number<S>::type N;
    typedef ct_level<N> Scale;
    CT_DEVICE static Scale scale(Scale s) {
        s.sum = ct_log(s.sum);
        return s;
    }
    CT_DEVICE static N result(const Scale &s, const N *v) { return (v[0] - s.top) - s.sum; }
};

// y (g - sum g y / sum y)
template <typename S> struct softmax_grad {
    typedef typename ct_number<S>::type N;
    enum { M = 2 };
    struct State {
        N products, sum;
    };
    typedef N Scale;
    CT_DEVICE static State nothing() {
        State s;
        s.products = s.sum = 0;
        return s;
    }
    CT_DEVICE static N filler(int) { return 0; }
    template <int C> CT_DEVICE static void take(State &s, const N (&v)[2][C]) {
        State of = nothing();
#pragma unroll
        for (int k = 0; k < C; k++) {
            of.products = ct_fma(v[0][k], v[1][k], of.products);
            of.sum += v[1][k];
        }
        s = merge(s, of);
    }
    CT_DEVICE static State merge(const State &a, const State &b) {
        State s;
        s.products = a.products + b.products;
        s.sum = a.sum + b.sum;
        return s;
    }
    CT_DEVICE static Scale scale(const State &s) { return s.products / s.sum; }
    CT_DEVICE static N result(Scale mean, const N *v) { return v[1] * (v[0] - mean); }
};

template <typename N, int C> CT_DEVICE N sum_of(const N (&v)[C]) {
    N sum = 0;
#pragma unroll
    for (int k = 0; k < C; k++) sum += v[k];
    return sum;
}

// g - exp(y) sum g
template <typename S> struct log_softmax_grad {
    typedef typename ct_number<S>::type N;
    enum { M = 2 };
    typedef N State;
    typedef N Scale;
    CT_DEVICE static State nothing() { return 0; }
    CT_DEVICE static N filler(int) { return 0; }
    template <int C> CT_DEVICE static void take(State &s, const N (&v)[2][C]) { s += sum_of(v[0]); }
    CT_DEVICE static State merge(State a, State b) { return a + b; }
    CT_DEVICE static Scale scale(State s) { return -s; }
    CT_DEVICE static N result(Scale s, const N *v) { return ct_fma(ct_exponential<S>::of(v[1]), s, v[0]); }
};

// g - exp(x - top) / sum exp(x - top) sum g
template <typename S> struct log_softmax_half_grad {
    typedef typename ct_number<S>::type N;
    enum { M = 2 };
    struct State {
        ct_level<N> level;
        N cotangents;
    };
    typedef ct_level<N> Scale;
    CT_DEVICE static State nothing() {
        State s;
        s.level = ct_no_level<N>();
        s.cotangents = 0;
        return s;
    }
    CT_DEVICE static N filler(int m) { return m == 0 ? (N)0 : -(N)INFINITY; }
    template <int C> CT_DEVICE static void take(State &s, const N (&v)[2][C]) {
        ct_raise_level<S, C>(s.level, [&](int k) { return v[1][k]; });
        s.cotangents += sum_of(v[0]);
    }
    CT_DEVICE static State merge(const State &a, const State &b) {
        State s;
        s.level = ct_merge_levels(a.level, b.level);
        s.cotangents = a.cotangents + b.cotangents;
        return s;
    }
    CT_DEVICE static Scale scale(State s) {
        s.level.sum = -s.cotangents / s.level.sum;
        return s.level;
    }
    CT_DEVICE static N result(const Scale &s, const N *v) {
        return ct_fma(ct_exponential<S>::of(v[1] - s.top), s.sum, v[0]);
    }
};

template <typename S, typename K, bool WHOLE, int KEPT> CT_DEVICE void softmax_rows(const ct_cuda_softmax &a) {
    typedef typename ct_number<S>::type N;
    enum { M = K::M, V = ct_row_pack<S>::V };
    if (ct_does_nothing(a.head)) return;
    ct_each_row(a.lines.total, a.lanes, [&](int64_t line, int lane, bool inside) {
        int64_t at[M + 1];
        ct_nest_place(a.lines, line, at);
        ct_row<S, M, WHOLE, KEPT> row;
#pragma unroll
        for (int m = 0; m < M; m++) {
            row.at[m] = (const S *)a.in[m] + at[m + 1];
            row.otherwise[m] = K::filler(m);
        }
        row.take((int)a.n, lane, a.lanes);
        typename K::State state = K::nothing();
        row.each([&](const ct_row_packs<S, M> &packs, int) {
            N v[M][V];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int k = 0; k < V; k++) v[m][k] = packs.of[m].get(k);
            K::take(state, v);
        });
        state = ct_merge_group(state, a.lanes, K::merge);
        if (!inside) return;
        const typename K::Scale scale = K::scale(state);
        S *out = (S *)a.out + at[0];
        row.each([&](const ct_row_packs<S, M> &packs, int p) {
            ct_row_pack<S> results = {};
#pragma unroll
            for (int k = 0; k < V; k++) {
                N v[M];
#pragma unroll
                for (int m = 0; m < M; m++) v[m] = packs.of[m].get(k);
                results.set(k, K::result(scale, v));
            }
            row.shape.store(out, p, results);
        });
    });
}

// Threads side by side at neighbouring lines, in groups that take every so-manieth element.
template <typename S, typename K> CT_DEVICE void softmax_columns(const ct_cuda_softmax &a) {
    typedef typename ct_number<S>::type N;
    enum { M = K::M, C = 8 };
    __shared__ typename K::State states[CT_SOFTMAX_COLUMN_THREADS];
    if (ct_does_nothing(a.head)) return;
    const int side = a.lanes, groups = CT_SOFTMAX_COLUMN_THREADS / side, group = (int)threadIdx.x / side;
    const int64_t blocks = (a.lines.total + side - 1) / side;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int64_t line = block * side + (threadIdx.x & (side - 1));
        const bool inside = line < a.lines.total;
        int64_t at[M + 1];
        ct_nest_place(a.lines, inside ? line : a.lines.total - 1, at);
        typename K::State state = K::nothing();
        for (int64_t i = group; i < a.n; i += C * groups) {
            N v[M][C];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int k = 0; k < C; k++) {
                    const int64_t e = i + k * groups;
                    v[m][k] =
                        e < a.n ? ct_number_of(((const S *)a.in[m])[at[m + 1] + e * a.strides[m + 1]]) : K::filler(m);
                }
            K::take(state, v);
        }
        __syncthreads(); // what was there before has been read
        states[threadIdx.x] = state;
        __syncthreads();
        for (int half = groups / 2; half; half /= 2) {
            if (group < half) states[threadIdx.x] = K::merge(states[threadIdx.x], states[threadIdx.x + half * side]);
            __syncthreads();
        }
        const typename K::Scale scale = K::scale(states[threadIdx.x & (side - 1)]);
        if (!inside) continue;
        for (int64_t i = group; i < a.n; i += groups) {
            N v[M];
#pragma unroll
            for (int m = 0; m < M; m++) v[m] = ct_number_of(((const S *)a.in[m])[at[m + 1] + i * a.strides[m + 1]]);
            ((S *)a.out)[at[0] + i * a.strides[0]] = ct_stored<S>(K::result(scale, v));
        }
    }
}

#define KERNEL_OF(name, way, suffix, threads, ...)                           \
    extern "C" __global__ void __launch_bounds__(threads)                    \
        name##_##way##_##suffix(const __grid_constant__ ct_cuda_softmax a) { \
        __VA_ARGS__(a);                                                      \
    }
#define KERNELS_OF(name, suffix, S)                                                             \
    KERNEL_OF(name, rows, suffix, CT_ROW_LONGEST, softmax_rows<S, name<S>, true, CT_ROW_PACKS>) \
    KERNEL_OF(name, ragged, suffix, CT_ROW_LONGEST, softmax_rows<S, name<S>, false, 0>)         \
    KERNEL_OF(name, columns, suffix, CT_SOFTMAX_COLUMN_THREADS, softmax_columns<S, name<S>>)
#define KERNELS(name)             \
    KERNELS_OF(name, f32, float)  \
    KERNELS_OF(name, f64, double) \
    KERNELS_OF(name, f16, __half) \
    KERNELS_OF(name, bf16, __nv_bfloat16)
KERNELS(softmax)
KERNELS(log_softmax)
KERNELS(softmax_grad)
KERNELS(log_softmax_grad)
KERNELS(log_softmax_half_grad)
