// Device code of class_loss and of its gradient. The logits of a target are a row, which a group of threads reads once,
// or, where places follow the classes, a column of one thread. Losses are summed by threads, blocks and then over the
// blocks, in double and always in the same order.
#include "ops/loss/cuda/class_loss.h"

#include <cotangent/enums.h>

#include "backends/cuda/level.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/row.cuh"
#include "backends/cuda/wrong.cuh"

struct totals {
    double losses, weights;
};

template <typename S> struct numbers { // of N or S, by index
    typedef typename ct_number<S>::type N;
    const char *from;
    bool wide;
    CT_DEVICE N operator[](int64_t i) const { return wide ? ((const N *)from)[i] : ct_number_of(((const S *)from)[i]); }
};
template <typename S> CT_DEVICE numbers<S> weights_of(const ct_cuda_class_loss &a) {
    numbers<S> w;
    w.from = a.weight;
    w.wide = a.wide_weight;
    return w;
}

// The class of target i; -1: it is ignored, or no class, which is noted as a wrong value of that argument.
CT_DEVICE int64_t class_of(const ct_cuda_class_loss &a, int64_t i, int argument, bool notes) {
    const int64_t t = ct_index_at(a.target, a.wide_target, i);
    if (t == a.ignored) return -1;
    if (t >= 0 && t < a.classes) return t;
    if (notes) ct_wrong_index(a.head, argument, i, t, a.classes);
    return -1;
}

// The logarithms of probabilities are x less both.
template <typename N> struct normalizer { N top, log_sum; };
template <typename N> CT_DEVICE normalizer<N> normalizer_of(const ct_level<N> &level) {
    normalizer<N> of;
    of.top = level.top;
    of.log_sum = ct_log(level.sum);
    return of;
}

// Sums over the classes of weight (x - top) and of weight.
template <typename N> struct spread { N below, weights; };
template <typename N> CT_DEVICE spread<N> merge_spreads(spread<N> a, spread<N> b) {
    a.below += b.below, a.weights += b.weights;
    return a;
}

// What follows from the logits of a target: their level and, where there is smoothing, their spread.
template <typename S, typename N>
CT_DEVICE void put_loss(const ct_cuda_class_loss &a, int64_t i, int64_t t, N logit, const ct_level<N> &level,
                        const spread<N> &smooth, totals &sums) {
    N loss = 0, weight = 0;
    normalizer<N> of;
    of.top = of.log_sum = 0;
    if (t >= 0) {
        const N e = (N)a.smoothing;
        of = normalizer_of(level);
        weight = a.weight ? weights_of<S>(a)[t] : (N)1;
        loss = weight * (of.log_sum - (logit - of.top));
        if (a.smoothing > 0) loss = loss * (1 - e) + e / (N)a.classes * (smooth.weights * of.log_sum - smooth.below);
    }
    if (a.level) {
        ((N *)a.level)[i] = of.top;
        ((N *)a.level)[a.targets + i] = of.log_sum;
    }
    if (a.y && a.reduction == CT_NONE) ((N *)a.y)[i] = loss;
    sums.losses += (double)loss;
    sums.weights += (double)weight;
}

template <typename N> CT_DEVICE void put_sums(const ct_cuda_class_loss &a, totals sums) {
    if (threadIdx.x != 0) return;
    if (a.reduction == CT_MEAN) sums.losses /= sums.weights == 0 ? 1.0 : sums.weights;
    if (a.y && a.reduction != CT_NONE) *(N *)a.y = (N)sums.losses;
    if (a.total) *(N *)a.total = (N)sums.weights;
}
CT_DEVICE totals no_totals() {
    totals sums;
    sums.losses = sums.weights = 0;
    return sums;
}
CT_DEVICE totals sum_block(totals sums) {
    return ct_merge_group(sums, (int)blockDim.x, [](totals p, totals q) {
        p.losses += q.losses, p.weights += q.weights;
        return p;
    });
}
// The sums of a block's threads; those of the only block are the result.
template <typename N> CT_DEVICE void gather_sums(const ct_cuda_class_loss &a, totals sums) {
    if (a.reduction == CT_NONE && !a.total) return;
    sums = sum_block(sums);
    if (gridDim.x == 1) put_sums<N>(a, sums);
    else if (threadIdx.x == 0) {
        a.sums[2 * blockIdx.x] = sums.losses;
        a.sums[2 * blockIdx.x + 1] = sums.weights;
    }
}
template <typename N> CT_DEVICE void loss_total(const ct_cuda_class_loss &a) {
    if (ct_does_nothing(a.head)) return;
    totals sums = no_totals();
    for (int64_t b = threadIdx.x; b < a.blocks; b += blockDim.x)
        sums.losses += a.sums[2 * b], sums.weights += a.sums[2 * b + 1];
    put_sums<N>(a, sum_block(sums));
}

// ---- Rows ----

template <typename S, bool WHOLE>
CT_DEVICE ct_level<typename ct_number<S>::type> level_of(const ct_row<S, 1, WHOLE, 0> &row) {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    ct_level<N> level = ct_no_level<N>();
    row.each_few([&](const auto &packs, int) {
        ct_raise_level<S, V *(int)(sizeof packs / sizeof packs[0])>(
            level, [&](int k) { return packs[k / V].of[0].get(k % V); });
    });
    return ct_merge_group(level, row.lanes, ct_merge_levels<N>);
}

template <typename S, bool WHOLE> CT_DEVICE void loss_rows(const ct_cuda_class_loss &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    totals sums = no_totals();
    const numbers<S> weights = weights_of<S>(a);
    ct_each_row(a.targets, a.lanes, [&](int64_t i, int lane, bool inside) {
        const int64_t t = class_of(a, i, 1, inside && lane == 0);
        ct_row<S, 1, WHOLE, 0> row;
        row.at[0] = (const S *)a.x + i * a.classes;
        row.otherwise[0] = -(N)INFINITY;
        row.take(t < 0 ? 0 : (int)a.classes, lane, a.lanes);
        const ct_level<N> level = level_of(row);
        spread<N> smooth;
        smooth.below = smooth.weights = 0;
        if (a.smoothing > 0) {
            const spread<N> nothing = smooth;
            row.each([&](const ct_row_packs<S, 1> &packs, int p) {
                spread<N> few = nothing;
#pragma unroll
                for (int k = 0; k < ct_row_pack<S>::V; k++) {
                    const int c = row.shape.first(p) + k;
                    if (!row.shape.has(c)) continue;
                    const N weight = a.weight ? weights[c] : (N)1;
                    few.below = ct_fma(packs.of[0].get(k) - level.top, weight, few.below);
                    few.weights += weight;
                }
                smooth = merge_spreads(smooth, few);
            });
            smooth = ct_merge_group(smooth, a.lanes, merge_spreads<N>);
        }
        if (inside && lane == 0)
            put_loss<S, N>(a, i, t, t < 0 ? (N)0 : ct_number_of(row.at[0][t]), level, smooth, sums);
    });
    gather_sums<N>(a, sums);
}

// dx = (g + g' sum w) p - g' w, and less g at the target: g is the cotangent of a target's own loss, g' that of the sum
// over all classes.
template <typename N> struct cotangents { N own, each, factor; };
template <typename S>
CT_DEVICE cotangents<typename ct_number<S>::type> cotangents_of(const ct_cuda_class_loss &a, int64_t i, int64_t t,
                                                                typename ct_number<S>::type all_weights) {
    typedef typename ct_number<S>::type N;
    numbers<S> given;
    given.from = a.g;
    given.wide = a.wide_g;
    N g = given[a.reduction == CT_NONE ? i : 0];
    if (a.reduction == CT_MEAN) {
        const N total = *(const N *)a.total;
        g /= total == 0 ? (N)1 : total;
    }
    cotangents<N> c;
    c.own = g * (1 - (N)a.smoothing) * (a.weight && t >= 0 ? weights_of<S>(a)[t] : (N)1);
    c.each = g * ((N)a.smoothing / (N)a.classes);
    c.factor = c.own + c.each * all_weights;
    return c;
}
// Of logit x, all but what is its target's, and what smoothing adds to it.
template <typename S, typename N> CT_DEVICE N loss_gradient(const cotangents<N> &g, const normalizer<N> &of, N x) {
    return ct_exponential<S>::of((x - of.top) - of.log_sum) * g.factor;
}
template <typename S, typename N>
CT_DEVICE N smoothed_gradient(const ct_cuda_class_loss &a, const cotangents<N> &g, const normalizer<N> &of, int64_t c,
                              N x) {
    return ct_fma(-g.each, a.weight ? weights_of<S>(a)[c] : (N)1, loss_gradient<S>(g, of, x));
}
template <typename N> CT_DEVICE normalizer<N> known_normalizer(const ct_cuda_class_loss &a, int64_t i) {
    normalizer<N> of;
    of.top = ((const N *)a.level)[i];
    of.log_sum = ((const N *)a.level)[a.targets + i];
    return of;
}

template <typename S, bool WHOLE> CT_DEVICE void grad_rows(const ct_cuda_class_loss &a) {
    typedef typename ct_number<S>::type N;
    enum { V = ct_row_pack<S>::V };
    if (ct_does_nothing(a.head)) return;
    const numbers<S> weights = weights_of<S>(a);
    N all = (N)a.classes;
    if (a.smoothing > 0 && a.weight) {
        all = 0;
        for (int64_t c = (int)threadIdx.x & (a.lanes - 1); c < a.classes; c += a.lanes) all += weights[c];
        all = ct_sum_group(all, a.lanes);
    }
    ct_each_row(a.targets, a.lanes, [&](int64_t i, int lane, bool inside) {
        const int64_t t = class_of(a, i, 2, inside && lane == 0);
        ct_row<S, 1, WHOLE, 0> row;
        row.at[0] = (const S *)a.x + i * a.classes;
        row.otherwise[0] = -(N)INFINITY;
        row.take(t < 0 ? 0 : (int)a.classes, lane, a.lanes);
        const normalizer<N> of = a.level ? known_normalizer<N>(a, i) : normalizer_of(level_of(row));
        if (!inside) return;
        S *dx = (S *)a.dx + i * a.classes;
        if (t < 0) {
            const ct_row_shape<S, WHOLE> shape(row.at[0], (int)a.classes);
            for (int p = lane; p < shape.packs; p += a.lanes) shape.store(dx, p, ct_row_pack<S>{});
            return;
        }
        const cotangents<N> g = cotangents_of<S>(a, i, t, all);
        const int place = (int)t + row.shape.astray;
        const auto put = [&](const ct_row_packs<S, 1> &packs, int p, auto gradient) {
            ct_row_pack<S> results = {};
#pragma unroll
            for (int k = 0; k < V; k++) {
                const N d = gradient(k, packs.of[0].get(k));
                results.set(k, p * V + k == place ? d - g.own : d);
            }
            row.shape.store(dx, p, results);
        };
        if (a.smoothing > 0)
            row.each([&](const ct_row_packs<S, 1> &packs, int p) {
                put(packs, p, [&](int k, N x) {
                    const int c = row.shape.first(p) + k;
                    return smoothed_gradient<S>(a, g, of, row.shape.has(c) ? c : 0, x);
                });
            });
        else
            row.each([&](const ct_row_packs<S, 1> &packs, int p) {
                put(packs, p, [&](int, N x) { return loss_gradient<S>(g, of, x); });
            });
    });
}

// ---- Columns ----

template <typename S> struct column {
    typedef typename ct_number<S>::type N;
    const ct_cuda_class_loss &a;
    int64_t at; // of class 0
    CT_DEVICE column(const ct_cuda_class_loss &call, int64_t i)
        : a(call), at(i / call.places * call.classes * call.places + i % call.places) {}
    CT_DEVICE N operator[](int64_t c) const { return ct_number_of(((const S *)a.x)[at + c * a.places]); }
    CT_DEVICE ct_level<N> level() const {
        enum { C = 4 };
        ct_level<N> level = ct_no_level<N>();
        for (int64_t c = 0; c < a.classes; c += C) {
            N v[C];
#pragma unroll
            for (int k = 0; k < C; k++) v[k] = c + k < a.classes ? (*this)[c + k] : -(N)INFINITY;
            ct_raise_level<S, C>(level, [&](int k) { return v[k]; });
        }
        return level;
    }
};

template <typename S> CT_DEVICE void loss_columns(const ct_cuda_class_loss &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    totals sums = no_totals();
    for (int64_t i = ct_first(); i < a.targets; i += ct_step()) {
        const int64_t t = class_of(a, i, 1, true);
        const column<S> x(a, i);
        ct_level<N> level = ct_no_level<N>();
        spread<N> smooth;
        smooth.below = smooth.weights = 0;
        if (t >= 0) level = x.level();
        if (t >= 0 && a.smoothing > 0)
            for (int64_t c = 0; c < a.classes; c++) {
                const N weight = a.weight ? weights_of<S>(a)[c] : (N)1;
                smooth.below = ct_fma(x[c] - level.top, weight, smooth.below);
                smooth.weights += weight;
            }
        put_loss<S, N>(a, i, t, t < 0 ? (N)0 : x[t], level, smooth, sums);
    }
    gather_sums<N>(a, sums);
}

template <typename S> CT_DEVICE void grad_columns(const ct_cuda_class_loss &a) {
    typedef typename ct_number<S>::type N;
    if (ct_does_nothing(a.head)) return;
    N all = (N)a.classes;
    if (a.smoothing > 0 && a.weight) {
        all = 0;
        for (int64_t c = 0; c < a.classes; c++) all += weights_of<S>(a)[c];
    }
    for (int64_t i = ct_first(); i < a.targets; i += ct_step()) {
        const int64_t t = class_of(a, i, 2, true);
        const column<S> x(a, i);
        const normalizer<N> of = a.level ? known_normalizer<N>(a, i) : normalizer_of(x.level());
        const cotangents<N> g = cotangents_of<S>(a, i, t, all);
#pragma unroll 4
        for (int64_t c = 0; c < a.classes; c++) {
            const N d = t < 0             ? (N)0
                        : a.smoothing > 0 ? smoothed_gradient<S>(a, g, of, c, x[c])
                                          : loss_gradient<S>(g, of, x[c]);
            ((S *)a.dx)[x.at + c * a.places] = ct_stored<S>(c == t ? d - g.own : d);
        }
    }
}

#define KERNEL(name, suffix, threads, ...)                                      \
    extern "C" __global__ void __launch_bounds__(threads)                       \
        class_##name##_##suffix(const __grid_constant__ ct_cuda_class_loss a) { \
        __VA_ARGS__(a);                                                         \
    }
#define KERNELS(suffix, S)                                                            \
    KERNEL(loss_rows, suffix, CT_LOSS_MOST, loss_rows<S, true>)                       \
    KERNEL(loss_ragged, suffix, CT_LOSS_MOST, loss_rows<S, false>)                    \
    KERNEL(loss_columns, suffix, CT_LOSS_THREADS, loss_columns<S>)                    \
    KERNEL(loss_total, suffix, CT_LOSS_MOST, loss_total<typename ct_number<S>::type>) \
    KERNEL(grad_rows, suffix, CT_LOSS_MOST, grad_rows<S, true>)                       \
    KERNEL(grad_ragged, suffix, CT_LOSS_MOST, grad_rows<S, false>)                    \
    KERNEL(grad_columns, suffix, CT_LOSS_THREADS, grad_columns<S>)
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
