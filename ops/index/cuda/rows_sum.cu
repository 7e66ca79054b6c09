// index_add, index_select_grad and embedding_grad: the places of index are sorted by the row that they name (by counting), and a thread
// makes each element of the result from the rows of src that go there, so that it is written once. Within a row the sort leaves any
// order; sums of several rows are therefore in fixed point (exact.cuh), which has none.
#include "ops/index/cuda/rows_sum.h"

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"
#include "ops/index/cuda/exact.cuh"

// ---- The sort ----

extern "C" __global__ void sort_clear(const ct_cuda_rows_sum a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t v = ct_first(); v <= a.rows; v += step) a.starts[v] = 0;
}

extern "C" __global__ void sort_count(const ct_cuda_rows_sum a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        const int64_t v = ct_index_at(a.index, a.wide, at[0]);
        if ((uint64_t)v >= (uint64_t)a.rows) ct_wrong_index(a.head, a.argument, e, v, a.rows);
        else if (v != a.skip) atomicAdd(&a.starts[v], 1u);
    }
}

// Counts become beginnings, by one block: every thread sums its part of the rows, the parts' sums are scanned, and it goes over its part again.
extern "C" __global__ void sort_scan(const ct_cuda_rows_sum a) {
    __shared__ uint32_t sums[CT_CUDA_SCAN_THREADS];
    if (ct_does_nothing(a.head)) return;
    const int64_t part = (a.rows + CT_CUDA_SCAN_THREADS - 1) / CT_CUDA_SCAN_THREADS, t = threadIdx.x;
    const int64_t first = t * part < a.rows ? t * part : a.rows, end = first + part < a.rows ? first + part : a.rows;
    uint32_t sum = 0;
    for (int64_t v = first; v < end; v++) sum += a.starts[v];
    sums[t] = sum;
    __syncthreads();
    for (int distance = 1; distance < CT_CUDA_SCAN_THREADS; distance *= 2) {
        const uint32_t before = t >= distance ? sums[t - distance] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    uint32_t start = sums[t] - sum;
    for (int64_t v = first; v < end; v++) {
        const uint32_t count = a.starts[v];
        a.starts[v] = a.next[v] = start;
        start += count;
    }
    if (t == CT_CUDA_SCAN_THREADS - 1) a.starts[a.rows] = sums[t];
}

extern "C" __global__ void sort_place(const ct_cuda_rows_sum a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        const int64_t v = ct_index_at(a.index, a.wide, at[0]);
        if ((uint64_t)v < (uint64_t)a.rows && v != a.skip) a.order[atomicAdd(&a.next[v], 1u)] = (uint32_t)e;
    }
}

// ---- The sums ----

template <int D> CT_DEVICE void rows_sum(const ct_cuda_rows_sum &a) {
    typedef typename ct_stored<D>::type S;
    typedef typename ct_stored<D>::wide C;
    typedef ct_exact<C> exact;
    if (ct_does_nothing(a.head)) return;
    const C alpha = (C)a.alpha;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        const uint32_t first = a.starts[at[3]], end = a.starts[at[3] + 1];
        const S *src = (const S *)a.src + at[2];
        S *to = (S *)a.to + at[0];
        const S x = a.from ? ((const S *)a.from)[at[1]] : ct_stored<D>::store((C)0);
        if (end <= first + 1) {
            if (end == first) *to = x;
            else *to = ct_stored<D>::store(ct_stored<D>::load(x) +
                                           alpha * ct_stored<D>::load(src[a.order[first] * a.src_row]));
            continue;
        }
        const C own = ct_stored<D>::load(x);
        uint32_t exponent = exact::exponent(own), flags = exponent & CT_NOT_FINITE;
#pragma unroll 4
        for (uint32_t i = first; i < end; i++) {
            const uint32_t mine = exact::exponent(alpha * ct_stored<D>::load(src[a.order[i] * a.src_row]));
            flags |= mine & CT_NOT_FINITE;
            exponent = mine > exponent ? mine : exponent;
        }
        if (flags) {
            *to = ct_stored<D>::store(ct_not_finite<C>(flags));
            continue;
        }
        const int growth = 33 - __clz(end - first); // of all and x's own
        int64_t sum[exact::LIMBS], limbs[exact::LIMBS];
        exact::split(own, exponent, growth, sum);
#pragma unroll 4
        for (uint32_t i = first; i < end; i++) {
            exact::split(alpha * ct_stored<D>::load(src[a.order[i] * a.src_row]), exponent, growth, limbs);
#pragma unroll
            for (int l = 0; l < exact::LIMBS; l++) sum[l] += limbs[l];
        }
        *to = ct_stored<D>::store(exact::join(sum, exponent, growth));
    }
}

// Integers wrap, in any order; truth values are true where one is.
template <int D> CT_DEVICE void rows_sum_whole(const ct_cuda_rows_sum &a) {
    typedef typename ct_stored<D>::type S;
    if (ct_does_nothing(a.head)) return;
    const uint64_t alpha = (uint64_t)(int64_t)a.alpha;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        const uint32_t first = a.starts[at[3]], end = a.starts[at[3] + 1];
        const S *src = (const S *)a.src + at[2];
        uint64_t sum = a.from ? (uint64_t)ct_stored<D>::load(((const S *)a.from)[at[1]]) : 0;
        for (uint32_t i = first; i < end; i++)
            sum += alpha * (uint64_t)ct_stored<D>::load(src[a.order[i] * a.src_row]);
        ((S *)a.to)[at[0]] = ct_stored<D>::store((int64_t)sum);
    }
}

extern "C" __global__ void sum_f32(const ct_cuda_rows_sum a) { rows_sum<CT_F32>(a); }
extern "C" __global__ void sum_f64(const ct_cuda_rows_sum a) { rows_sum<CT_F64>(a); }
extern "C" __global__ void sum_f16(const ct_cuda_rows_sum a) { rows_sum<CT_F16>(a); }
extern "C" __global__ void sum_bf16(const ct_cuda_rows_sum a) { rows_sum<CT_BF16>(a); }
extern "C" __global__ void sum_i8(const ct_cuda_rows_sum a) { rows_sum_whole<CT_I8>(a); }
extern "C" __global__ void sum_i16(const ct_cuda_rows_sum a) { rows_sum_whole<CT_I16>(a); }
extern "C" __global__ void sum_i32(const ct_cuda_rows_sum a) { rows_sum_whole<CT_I32>(a); }
extern "C" __global__ void sum_i64(const ct_cuda_rows_sum a) { rows_sum_whole<CT_I64>(a); }
extern "C" __global__ void sum_u8(const ct_cuda_rows_sum a) { rows_sum_whole<CT_U8>(a); }
extern "C" __global__ void sum_bool(const ct_cuda_rows_sum a) { rows_sum_whole<CT_BOOL>(a); }
