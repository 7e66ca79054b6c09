// scatter, scatter_add, index_add and scatter_extreme, with the same bits at every run. Threads take elements of the index in any order, and
// meet in scratch memory by atomics whose result does not depend on it: the largest position for scatter, sums of integers, sums of
// floats in fixed point (exact.cuh), extremes as integers in the same order. Products of floats are worked off lane by lane.
#include "ops/index/cuda/scatter.h"

#include <cotangent/enums.h>

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"
#include "backends/cuda/exact.cuh"

typedef unsigned long long word;

// The index that element e of the nest takes, which lies at `at`; -1 if it is out of range.
CT_DEVICE int64_t index_of(const ct_cuda_scatter &a, int64_t e, int64_t at) {
    const int64_t k = ct_index_at(a.index, a.wide, at);
    if ((uint64_t)k < (uint64_t)a.bound) return k;
    int64_t all[4];
    ct_nest_place(a.nest, e, all);
    ct_wrong_index(a.head, 1, all[3], k, a.bound);
    return -1;
}

// Indices that send nothing, of rows without elements, have to be in range all the same.
extern "C" __global__ void scatter_look(const __grid_constant__ ct_cuda_scatter a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        index_of(a, e, at[1]);
    }
}

extern "C" __global__ void scatter_clear(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) a.sums[e] = 0;
}

// ---- scatter: the last one stays ----

extern "C" __global__ void scatter_mark(const __grid_constant__ ct_cuda_scatter a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        const int64_t k = index_of(a, e, at[1]);
        if (k >= 0) atomicMax((word *)&a.sums[at[0] + k * a.along], (word)e + 1);
    }
}

template <typename T> CT_DEVICE void put(const ct_cuda_scatter &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        const int64_t k = ct_index_at(a.index, a.wide, at[1]);
        if ((uint64_t)k >= (uint64_t)a.bound || a.sums[at[0] + k * a.along] != (uint64_t)e + 1) continue;
        ((T *)a.out)[at[3] + k * a.out_along] = ((const T *)a.src)[at[2]];
    }
}

// Short lanes, each by one thread; no scratch is needed.
template <typename T> CT_DEVICE void put_lanes(const ct_cuda_scatter &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        for (int64_t i = 0; i < a.length; i++) {
            const int64_t k = ct_index_at(a.index, a.wide, at[1] + i * a.index_axis);
            if ((uint64_t)k < (uint64_t)a.bound)
                ((T *)a.out)[at[0] + k * a.along] = ((const T *)a.src)[at[2] + i * a.src_axis];
            else ct_wrong_index(a.head, 1, at[3] + i * a.place_axis, k, a.bound);
        }
    }
}

#define PUT(size, T)                                                                              \
    extern "C" __global__ void scatter_put_##size(const __grid_constant__ ct_cuda_scatter a) { put<T>(a); }         \
    extern "C" __global__ void scatter_lanes_##size(const __grid_constant__ ct_cuda_scatter a) { put_lanes<T>(a); }
PUT(1, uint8_t)
PUT(2, uint16_t)
PUT(4, uint32_t)
PUT(8, uint64_t)

// ---- Sums of floats ----

template <int D> struct summed {
    typedef typename ct_of_dtype<D>::type S;
    typedef typename ct_of_dtype<D>::wide C;
    typedef ct_exact<C> exact;
};

template <int D> CT_DEVICE void add_begin(const ct_cuda_scattered &a) {
    typedef summed<D> s;
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        a.exponents[e] = s::exact::exponent(ct_of_dtype<D>::load(((const typename s::S *)a.from)[at[1]]));
        for (int l = 0; l < s::exact::LIMBS; l++) a.sums[e + l * a.nest.total] = 0;
    }
}

template <int D> CT_DEVICE typename summed<D>::C addend(const ct_cuda_scatter &a, int64_t at) {
    typedef typename summed<D>::C C;
    return (C)a.alpha * ct_of_dtype<D>::load(((const typename summed<D>::S *)a.src)[at]);
}

template <int D> CT_DEVICE void add_mark(const ct_cuda_scatter &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[3];
        ct_nest_place(a.nest, e, at);
        const int64_t k = index_of(a, e, at[1]);
        if (k < 0) continue;
        uint32_t *exponent = &a.exponents[at[0] + k * a.along];
        const uint32_t mine = summed<D>::exact::exponent(addend<D>(a, at[2]));
        const uint32_t there = *(volatile uint32_t *)exponent; // which only grows: most have nothing to do
        if (mine & CT_NOT_FINITE) {
            if (!(there & mine)) atomicOr(exponent, mine);
        } else if (mine > there) {
            atomicMax(exponent, mine);
        }
    }
}

template <int D> CT_DEVICE void add_sum(const ct_cuda_scatter &a) {
    typedef typename summed<D>::exact exact;
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[3];
        ct_nest_place(a.nest, e, at);
        const int64_t k = ct_index_at(a.index, a.wide, at[1]);
        if ((uint64_t)k >= (uint64_t)a.bound) continue;
        const int64_t to = at[0] + k * a.along;
        const uint32_t exponent = a.exponents[to];
        if (exponent & CT_NOT_FINITE) continue;
        int64_t limbs[exact::LIMBS];
        exact::split(addend<D>(a, at[2]), exponent, a.growth, limbs);
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++)
            if (limbs[l]) atomicAdd((word *)&a.sums[to + l * a.places], (word)limbs[l]);
    }
}

template <int D> CT_DEVICE void add_end(const ct_cuda_scattered &a) {
    typedef typename summed<D>::S S;
    typedef typename summed<D>::C C;
    typedef typename summed<D>::exact exact;
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2], sum[exact::LIMBS], own[exact::LIMBS];
        ct_nest_place(a.nest, e, at);
        const S x = ((const S *)a.from)[at[1]];
        S y = x; // also where nothing was sent
        const uint32_t exponent = a.exponents[e];
        int64_t any = 0;
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) any |= sum[l] = (int64_t)a.sums[e + l * a.nest.total];
        if (exponent & CT_NOT_FINITE) {
            y = ct_of_dtype<D>::store(ct_not_finite<C>(exponent));
        } else if (any) {
            exact::split(ct_of_dtype<D>::load(x), exponent, a.growth, own);
#pragma unroll
            for (int l = 0; l < exact::LIMBS; l++) sum[l] += own[l];
            y = ct_of_dtype<D>::store(exact::join(sum, exponent, a.growth));
        }
        ((S *)a.to)[at[0]] = y;
    }
}

#define ADD(name, D)                                                                             \
    extern "C" __global__ void add_begin_##name(const __grid_constant__ ct_cuda_scattered a) { add_begin<D>(a); }  \
    extern "C" __global__ void add_mark_##name(const __grid_constant__ ct_cuda_scatter a) { add_mark<D>(a); }      \
    extern "C" __global__ void add_sum_##name(const __grid_constant__ ct_cuda_scatter a) { add_sum<D>(a); }        \
    extern "C" __global__ void add_end_##name(const __grid_constant__ ct_cuda_scattered a) { add_end<D>(a); }
ADD(f32, CT_F32)
ADD(f64, CT_F64)
ADD(f16, CT_F16)
ADD(bf16, CT_BF16)

// ---- Integers, and folds of any dtype ----

CT_DEVICE bool is_real(int dtype) { return dtype <= CT_BF16; }

CT_DEVICE int64_t whole_at(int dtype, const char *from, int64_t at) {
    switch (dtype) {
    case CT_I8: return ((const int8_t *)from)[at];
    case CT_I16: return ((const int16_t *)from)[at];
    case CT_I32: return ((const int32_t *)from)[at];
    case CT_I64: return ((const int64_t *)from)[at];
    default: return ((const uint8_t *)from)[at];
    }
}
CT_DEVICE void put_whole(int dtype, char *to, int64_t at, int64_t x) {
    switch (dtype) {
    case CT_I16: ((int16_t *)to)[at] = (int16_t)x; break;
    case CT_I32: ((int32_t *)to)[at] = (int32_t)x; break;
    case CT_I64: ((int64_t *)to)[at] = x; break;
    case CT_BOOL: ((uint8_t *)to)[at] = x != 0; break;
    default: ((uint8_t *)to)[at] = (uint8_t)x; break;
    }
}
CT_DEVICE double real_at(int dtype, const char *from, int64_t at) {
    switch (dtype) {
    case CT_F32: return ((const float *)from)[at];
    case CT_F64: return ((const double *)from)[at];
    case CT_F16: return __half2float(((const __half *)from)[at]);
    default: return __bfloat162float(((const __nv_bfloat16 *)from)[at]);
    }
}
CT_DEVICE void put_real(int dtype, char *to, int64_t at, double x) {
    switch (dtype) {
    case CT_F32: ((float *)to)[at] = (float)x; break;
    case CT_F64: ((double *)to)[at] = x; break;
    case CT_F16: ((__half *)to)[at] = __float2half_rn((float)x); break;
    default: ((__nv_bfloat16 *)to)[at] = __float2bfloat16_rn((float)x); break;
    }
}

extern "C" __global__ void add_sum_whole(const __grid_constant__ ct_cuda_scatter a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    const word alpha = (word)(int64_t)a.alpha;
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[3];
        ct_nest_place(a.nest, e, at);
        const int64_t k = index_of(a, e, at[1]);
        if (k < 0) continue;
        const word x = alpha * (word)whole_at(a.dtype, a.src, at[2]);
        if (x) atomicAdd((word *)&a.sums[at[0] + k * a.along], x);
    }
}

extern "C" __global__ void add_end_whole(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        put_whole(a.dtype, a.to, at[0], (int64_t)((uint64_t)whole_at(a.dtype, a.from, at[1]) + a.sums[e]));
    }
}

// ---- Extremes: as integers of which the larger one stays, NaN being the largest ----

CT_DEVICE uint64_t rank_of(double x, bool least) {
    if (x != x) return ~(uint64_t)0;
    const uint64_t bits = (uint64_t)__double_as_longlong(x), sign = (uint64_t)1 << 63;
    const uint64_t rank = bits & sign ? ~bits : bits | sign;
    return least ? ~rank : rank;
}
CT_DEVICE double real_of_rank(uint64_t rank, bool least) {
    if (rank == ~(uint64_t)0) return (double)NAN;
    const uint64_t sign = (uint64_t)1 << 63;
    if (least) rank = ~rank;
    return __longlong_as_double((long long)(rank & sign ? rank & ~sign : ~rank));
}
CT_DEVICE uint64_t rank_at(int dtype, const char *from, int64_t at, bool least) {
    if (is_real(dtype)) return rank_of(real_at(dtype, from, at), least);
    const uint64_t rank = (uint64_t)whole_at(dtype, from, at) ^ (uint64_t)1 << 63;
    return least ? ~rank : rank;
}

extern "C" __global__ void extreme_begin(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        a.sums[e] = rank_at(a.dtype, a.from, at[1], a.fold == CT_FOLD_MIN);
    }
}

extern "C" __global__ void extreme_fold(const __grid_constant__ ct_cuda_scatter a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[3];
        ct_nest_place(a.nest, e, at);
        const int64_t k = index_of(a, e, at[1]);
        if (k < 0) continue;
        word *to = (word *)&a.sums[at[0] + k * a.along];
        const word mine = rank_at(a.dtype, a.src, at[2], a.fold == CT_FOLD_MIN);
        if (mine > *(volatile word *)to) atomicMax(to, mine);
    }
}

extern "C" __global__ void extreme_end(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const bool least = a.fold == CT_FOLD_MIN;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        const uint64_t rank = a.sums[e];
        if (is_real(a.dtype)) put_real(a.dtype, a.to, at[0], real_of_rank(rank, least));
        else put_whole(a.dtype, a.to, at[0], (int64_t)((least ? ~rank : rank) ^ (uint64_t)1 << 63));
    }
}

// ---- Products: in order, since they round; in scratch, where halves are floats ----

CT_DEVICE uint64_t factor_bits(int dtype, const char *from, int64_t at) {
    if (!is_real(dtype)) return (uint64_t)whole_at(dtype, from, at);
    return (uint64_t)__double_as_longlong(real_at(dtype, from, at));
}

extern "C" __global__ void product_begin(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        a.sums[e] = factor_bits(a.dtype, a.from, at[1]);
    }
}

extern "C" __global__ void product_lanes(const __grid_constant__ ct_cuda_scatter a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        for (int64_t i = 0; i < a.length; i++) {
            const int64_t k = ct_index_at(a.index, a.wide, at[1] + i * a.index_axis);
            if ((uint64_t)k >= (uint64_t)a.bound) {
                ct_wrong_index(a.head, 1, at[3] + i * a.place_axis, k, a.bound);
                continue;
            }
            uint64_t *to = &a.sums[at[0] + k * a.along];
            const uint64_t factor = factor_bits(a.dtype, a.src, at[2] + i * a.src_axis);
            if (!is_real(a.dtype)) {
                *to *= factor;
                continue;
            }
            const double x = __longlong_as_double((long long)*to), z = __longlong_as_double((long long)factor);
            const double product = a.dtype == CT_F64 ? x * z : (double)((float)x * (float)z);
            *to = (uint64_t)__double_as_longlong(product);
        }
    }
}

extern "C" __global__ void product_end(const __grid_constant__ ct_cuda_scattered a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[2];
        ct_nest_place(a.nest, e, at);
        if (is_real(a.dtype)) put_real(a.dtype, a.to, at[0], __longlong_as_double((long long)a.sums[e]));
        else put_whole(a.dtype, a.to, at[0], (int64_t)a.sums[e]);
    }
}
