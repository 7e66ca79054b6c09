// Reductions over any axes. R says what is done:
//   In, Out          elements as they are stored
//   V                elements in a pack
//   Short            what a few elements are gathered in: from nothing_short() on, take(s, element, place)
//   Sum              what all of them are: from nothing() on, add(sum, s), merge(sum, other)
//   result(sum)      what is stored
#pragma once

#include "backends/cuda/lanes.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/number.cuh"
#include "ops/reduce/cuda/reduce.h"

enum { UNROLLED = 4, AT_ONCE = 8 };

template <typename T, int V> struct alignas(sizeof(T) * V) ct_elements { T v[V]; };

// The sums of each group of `lanes` threads, a power of two; its first thread has them.
template <typename R> CT_DEVICE typename R::Sum ct_merge_lanes(typename R::Sum sum, int lanes) {
    for (int distance = (lanes < 32 ? lanes : 32) / 2; distance; distance /= 2)
        R::merge(sum, ct_from_lane(sum, distance));
    if (lanes <= 32) return sum;
    __shared__ typename R::Sum warps[CT_REDUCE_THREADS / 32];
    const int lane = threadIdx.x & (lanes - 1), first = (threadIdx.x - lane) / 32;
    __syncthreads(); // what was there before has been read
    if (lane % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (lane < 32) {
        sum = lane < lanes / 32 ? warps[first + lane] : R::nothing();
        for (int distance = 16; distance; distance /= 2) R::merge(sum, ct_from_lane(sum, distance));
    }
    return sum;
}

template <typename R> CT_DEVICE void ct_take_one(typename R::Sum &sum, typename R::In x, int64_t place) {
    typename R::Short s = R::nothing_short();
    R::take(s, x, place);
    R::add(sum, s);
}

template <typename R, int V>
CT_DEVICE void ct_take_pack(typename R::Short &s, const ct_elements<typename R::In, V> &pack, int64_t place) {
#pragma unroll
    for (int k = 0; k < V; k++) R::take(s, pack.v[k], place + k);
}

// Packs at, at + step, ... of which N are read at once and added in short sums over UNROLLED of them; the first is at `place`.
template <typename R, int N>
CT_DEVICE void ct_take_packs(typename R::Sum &sum, const ct_elements<typename R::In, R::V> *at, int step, int64_t place) {
    ct_elements<typename R::In, R::V> packs[N];
#pragma unroll
    for (int u = 0; u < N; u++) packs[u] = at[u * step];
#pragma unroll
    for (int from = 0; from < N; from += UNROLLED) {
        typename R::Short s = R::nothing_short();
#pragma unroll
        for (int u = from; u < from + UNROLLED && u < N; u++) ct_take_pack<R, R::V>(s, packs[u], place + u * step * R::V);
        R::add(sum, s);
    }
}

// Elements from..to of a row, those of this lane, in packs of V. TWO: it has two dimensions, and fewer than 2^31 elements.
template <typename R, int V, bool TWO>
CT_DEVICE void ct_reduce_row(const ct_cuda_nest &nest, const typename R::In *x, int64_t from, int64_t to, int lane,
                                int lanes, typename R::Sum &sum) {
    typedef ct_elements<typename R::In, V> pack;
    for (int64_t i = from + lane * V; i < to; i += UNROLLED * lanes * V) {
        pack loaded[UNROLLED];
#pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
            const int64_t place = i + u * lanes * V;
            if (place < to) {
                const uint32_t outer = TWO ? ct_quotient(nest, 1, (uint32_t)place) : 0;
                const int64_t at = TWO ? outer * nest.strides[0][0] +
                                             ((uint32_t)place - outer * (uint32_t)nest.sizes[1]) * nest.strides[0][1]
                                       : ct_offset(nest, 0, place);
                loaded[u] = *(const pack *)(x + at);
            }
        }
        typename R::Short s = R::nothing_short();
#pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
            const int64_t place = i + u * lanes * V;
            if (place < to) ct_take_pack<R, V>(s, loaded[u], place);
        }
        R::add(sum, s);
    }
}

// FLAT: results lie at one distance.
template <typename R, bool FLAT>
CT_DEVICE void ct_put_sum(const ct_cuda_reduce &a, const typename R::Sum &sum, int64_t result, int64_t part) {
    if (a.partial) ((typename R::Sum *)a.partial)[result * a.parts + part] = sum;
    else {
        const int64_t at = FLAT ? result * a.kept.strides[1][0] : ct_offset(a.kept, 1, result);
        ((typename R::Out *)a.out)[at] = R::result(sum);
    }
}

// Groups of threads go along rows. TWO: packs in two dimensions, with results at one distance.
template <typename R, bool TWO> CT_DEVICE void ct_reduce_rows_by(const ct_cuda_reduce &a) {
    if (ct_does_nothing(a.head)) return;
    const int lanes = a.lanes, lane = threadIdx.x & (lanes - 1), groups = CT_REDUCE_THREADS / lanes;
    const int64_t jobs = a.kept.total * a.parts;
    for (int64_t first = (int64_t)blockIdx.x * groups; first < jobs; first += (int64_t)gridDim.x * groups) {
        const int64_t job = first + threadIdx.x / lanes, result = a.parts == 1 ? job : job / a.parts,
                      part = job - result * a.parts;
        typename R::Sum sum = R::nothing();
        if (job < jobs) {
            const typename R::In *x = (const typename R::In *)a.x + (TWO ? a.kept.strides[0][0] * result : ct_offset(a.kept, 0, result));
            const int64_t from = part * a.chunk, to = min(from + a.chunk, a.reduced.total);
            if (TWO) ct_reduce_row<R, R::V, true>(a.reduced, x, from, to, lane, lanes, sum);
            else if (a.packed) ct_reduce_row<R, R::V, false>(a.reduced, x, from, to, lane, lanes, sum);
            else ct_reduce_row<R, 1, false>(a.reduced, x, from, to, lane, lanes, sum);
        }
        sum = ct_merge_lanes<R>(sum, lanes);
        if (lane == 0 && job < jobs) ct_put_sum<R, TWO>(a, sum, result, part);
    }
}

template <typename R> __device__ void ct_reduce_rows(const ct_cuda_reduce &a) { ct_reduce_rows_by<R, false>(a); }
template <typename R> __device__ void ct_reduce_pieces(const ct_cuda_reduce &a) { ct_reduce_rows_by<R, true>(a); }

// The same of dense rows: a kernel of its own, since what finds any place takes registers, and with them threads.
template <typename R> __device__ void ct_reduce_dense(const ct_cuda_reduce &a) {
    typedef ct_elements<typename R::In, R::V> pack;
    if (ct_does_nothing(a.head)) return;
    const int lanes = a.lanes, lane = threadIdx.x & (lanes - 1), groups = CT_REDUCE_THREADS / lanes;
    const int64_t jobs = a.kept.total * a.parts;
    for (int64_t first = (int64_t)blockIdx.x * groups; first < jobs; first += (int64_t)gridDim.x * groups) {
        const int64_t job = first + threadIdx.x / lanes, result = a.parts == 1 ? job : job / a.parts,
                      part = job - result * a.parts;
        typename R::Sum sum = R::nothing();
        if (job < jobs) {
            const typename R::In *x = (const typename R::In *)a.x + a.kept.strides[0][0] * result;
            const int64_t from = part * a.chunk, to = min(from + a.chunk, a.reduced.total);
            // what lies before the first aligned pack and behind the last one goes singly
            const int astray = (int)((uintptr_t)(x + from) % sizeof(pack) / sizeof(typename R::In));
            const int64_t start = min(from + (astray ? R::V - astray : 0), to), packs = (to - start) / R::V;
            for (int64_t i = from + lane; i < start; i += lanes) ct_take_one<R>(sum, x[i], i);
            const pack *at = (const pack *)(x + start) + lane;
            int64_t left = packs - lane, place = start + lane * R::V;
#define TAKE(n)                                                                                        \
    ct_take_packs<R, n>(sum, at, lanes, place), at += n * lanes, left -= n * lanes, place += n * lanes * R::V
            while (left > (AT_ONCE - 1) * lanes) TAKE(AT_ONCE);
            if (left > (UNROLLED - 1) * lanes) TAKE(UNROLLED);
            if (left > lanes) TAKE(2);
            if (left > 0) TAKE(1);
#undef TAKE
            for (int64_t i = start + packs * R::V + lane; i < to; i += lanes) ct_take_one<R>(sum, x[i], i);
        }
        sum = ct_merge_lanes<R>(sum, lanes);
        if (lane == 0 && job < jobs) ct_put_sum<R, true>(a, sum, result, part);
    }
}

// Whether the sums of a pack of columns take so many registers that fewer packs, and fewer threads, can be under way.
template <typename R> constexpr bool ct_wide_columns() { return R::V * sizeof(typename R::Sum) > 32; }

// Elements i, i + groups, ... of V columns as long as as many are left as are read at once; i is where it stops. Nothing
// is asked for each of them, so that the loads come one right behind the other.
template <typename R, int V>
CT_DEVICE void ct_take_whole_columns(const ct_cuda_reduce &a, const typename R::In *x, int64_t &i, int64_t to, int groups,
                                     typename R::Sum (&sum)[V]) {
    typedef ct_elements<typename R::In, V> pack;
    enum { N = ct_wide_columns<R>() ? UNROLLED : AT_ONCE };
    const int64_t step = groups * a.reduced.strides[0][0];
    const typename R::In *at = x + i * a.reduced.strides[0][0];
    for (; i + (N - 1) * groups < to; i += N * groups, at += N * step) {
        pack loaded[N];
#pragma unroll
        for (int u = 0; u < N; u++) loaded[u] = *(const pack *)(at + u * step);
#pragma unroll
        for (int first = 0; first < N; first += UNROLLED)
#pragma unroll
            for (int k = 0; k < V; k++) {
                typename R::Short s = R::nothing_short();
#pragma unroll
                for (int u = first; u < first + UNROLLED; u++) R::take(s, loaded[u].v[k], i + u * groups);
                R::add(sum[k], s);
            }
    }
}

// Threads side by side at V results each, in groups that take every so-manieth element.
// FLAT: what is reduced lies at one distance.
template <typename R, int V, bool FLAT> CT_DEVICE void ct_reduce_columns_by(const ct_cuda_reduce &a) {
    typedef ct_elements<typename R::In, V> pack;
    __shared__ typename R::Sum sums[CT_REDUCE_THREADS][V];
    const int side = a.lanes, groups = CT_REDUCE_THREADS / side, group = threadIdx.x / side;
    const int64_t columns = a.kept.total / V, blocks = (columns + side - 1) / side, jobs = blocks * a.parts;
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64_t part = job / blocks, column = (job - part * blocks) * side + (threadIdx.x & (side - 1));
        typename R::Sum sum[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = R::nothing();
        if (column < columns) {
            const typename R::In *x =
                (const typename R::In *)a.x + (FLAT ? column * V * a.kept.strides[0][0] : ct_offset(a.kept, 0, column * V));
            const int64_t from = part * a.chunk, to = min(from + a.chunk, a.reduced.total);
            int64_t i = from + group;
            if (FLAT) ct_take_whole_columns<R, V>(a, x, i, to, groups, sum);
            for (; i < to; i += UNROLLED * groups) {
                pack loaded[UNROLLED];
#pragma unroll
                for (int u = 0; u < UNROLLED; u++)
                    if (i + u * groups < to)
                        loaded[u] = *(const pack *)(x + (FLAT ? (i + u * groups) * a.reduced.strides[0][0]
                                                              : ct_offset(a.reduced, 0, i + u * groups)));
                typename R::Short s[V];
#pragma unroll
                for (int k = 0; k < V; k++) s[k] = R::nothing_short();
#pragma unroll
                for (int u = 0; u < UNROLLED; u++)
                    if (i + u * groups < to) {
#pragma unroll
                        for (int k = 0; k < V; k++) R::take(s[k], loaded[u].v[k], i + u * groups);
                    }
#pragma unroll
                for (int k = 0; k < V; k++) R::add(sum[k], s[k]);
            }
        }
        __syncthreads(); // what was there before has been read
#pragma unroll
        for (int k = 0; k < V; k++) sums[threadIdx.x][k] = sum[k];
        __syncthreads();
        for (int half = groups / 2; half; half /= 2) {
            if (group < half) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    R::merge(sum[k], sums[threadIdx.x + half * side][k]);
                    sums[threadIdx.x][k] = sum[k];
                }
            }
            __syncthreads();
        }
        if (group == 0 && column < columns) {
#pragma unroll
            for (int k = 0; k < V; k++) ct_put_sum<R, FLAT>(a, sum[k], column * V + k, part);
        }
    }
}
template <typename R> __device__ void ct_reduce_columns(const ct_cuda_reduce &a) {
    if (ct_does_nothing(a.head)) return;
    if (a.packed) ct_reduce_columns_by<R, R::V, false>(a);
    else ct_reduce_columns_by<R, 1, false>(a);
}
// Packed and flat.
template <typename R> __device__ void ct_reduce_flat(const ct_cuda_reduce &a) {
    if (!ct_does_nothing(a.head)) ct_reduce_columns_by<R, R::V, true>(a);
}

// Results of their parts.
template <typename R> __device__ void ct_reduce_parts(const ct_cuda_reduce &a) {
    if (ct_does_nothing(a.head)) return;
    const int lanes = a.lanes, lane = threadIdx.x & (lanes - 1), groups = CT_REDUCE_THREADS / lanes;
    for (int64_t first = (int64_t)blockIdx.x * groups; first < a.kept.total; first += (int64_t)gridDim.x * groups) {
        const int64_t result = first + threadIdx.x / lanes;
        typename R::Sum sum = R::nothing();
        if (result < a.kept.total)
            for (int64_t part = lane; part < a.parts; part += lanes)
                R::merge(sum, ((const typename R::Sum *)a.partial)[result * a.parts + part]);
        sum = ct_merge_lanes<R>(sum, lanes);
        if (lane == 0 && result < a.kept.total)
            ((typename R::Out *)a.out)[ct_offset(a.kept, 1, result)] = R::result(sum);
    }
}

// BLOCKS: so many at least on each multiprocessor, since what is read is waited for.
#define CT_REDUCTION_PART(name, part, suffix, R, BLOCKS)                     \
    extern "C" __global__ void __launch_bounds__(CT_REDUCE_THREADS, BLOCKS)  \
        name##_##part##_##suffix(const __grid_constant__ ct_cuda_reduce a) { \
        ct_reduce_##part<R>(a);                                              \
    }
#define CT_REDUCTION(name, suffix, R)                                      \
    CT_REDUCTION_PART(name, rows, suffix, R, 3)                            \
    CT_REDUCTION_PART(name, pieces, suffix, R, 4)                          \
    CT_REDUCTION_PART(name, dense, suffix, R, 4)                           \
    CT_REDUCTION_PART(name, columns, suffix, R, 1)                         \
    CT_REDUCTION_PART(name, flat, suffix, R, (ct_wide_columns<R>() ? 3 : 4)) \
    CT_REDUCTION_PART(name, parts, suffix, R, 1)

// bool is stored as u8.
#define CT_REDUCTION_OF_FLOATS(name, R) \
    CT_REDUCTION(name, f32, R<float>)   \
    CT_REDUCTION(name, f64, R<double>)  \
    CT_REDUCTION(name, f16, R<__half>)  \
    CT_REDUCTION(name, bf16, R<__nv_bfloat16>)
#define CT_REDUCTION_OF_INTEGERS(name, R) \
    CT_REDUCTION(name, i8, R<int8_t>)     \
    CT_REDUCTION(name, i16, R<int16_t>)   \
    CT_REDUCTION(name, i32, R<int32_t>)   \
    CT_REDUCTION(name, i64, R<int64_t>)   \
    CT_REDUCTION(name, u8, R<uint8_t>)
