// index_add, index_select_grad, embedding_grad and scatter_add by rows: the places of index are sorted by the row that they name (by
// counting), and a thread makes each pack of the result from the rows of src that go there, so that it is written once. Within a row the
// sort leaves any order, and rows lie in any order: a few are put in order before they are added, sums of more are in fixed point
// (exact.cuh), which has none.
#include "ops/index/cuda/rows_sum.h"

#include "backends/cuda/convert.cuh"
#include "backends/cuda/nest.cuh"
#include "backends/cuda/wrong.cuh"
#include "backends/cuda/exact.cuh"

// ---- The sort ----

// AT_ONCE: what a thread has under way, since each index is a chain of accesses.
enum : uint32_t { LEFT_OUT = 0xffffffffu, AT_ONCE = 4 };

extern "C" __global__ void sort_clear(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t v = ct_first(); v < a.rows + CT_ROWS_TOTALS; v += step) a.counts[v] = 0;
    const uint4 none = {LEFT_OUT, LEFT_OUT, LEFT_OUT, LEFT_OUT};
    for (int64_t i = ct_first(); a.slots && i < a.rows * (CT_ROWS_FEW / 4); i += step) ((uint4 *)a.slots)[i] = none;
}

CT_DEVICE int64_t index_at(const ct_cuda_rows_sort &a, int64_t e) {
    int64_t at[1];
    ct_nest_place(a.nest, e, at);
    return ct_index_at(a.index, a.wide, at[0]);
}

// The same, read once: what is counted and the slots are to stay in the cache.
CT_DEVICE int64_t index_once(const ct_cuda_rows_sort &a, int64_t e) {
    int64_t at[1];
    ct_nest_place(a.nest, e, at);
    return a.wide ? __ldcs((const long long *)a.index + at[0]) : __ldcs((const int *)a.index + at[0]);
}

extern "C" __global__ void sort_count(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t first = ct_first(); first < a.nest.total; first += AT_ONCE * step) {
        int64_t v[AT_ONCE];
        uint32_t rank[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) v[u] = first + u * step < a.nest.total ? index_once(a, first + u * step) : a.skip;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            rank[u] = LEFT_OUT;
            if ((uint64_t)v[u] < (uint64_t)a.rows && v[u] != a.skip && first + u * step < a.nest.total)
                rank[u] = atomicAdd(&a.counts[v[u]], 1u);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t e = first + u * step;
            if (e >= a.nest.total) break;
            if (!a.slots) a.ranks[e] = rank[u];
            else if (rank[u] < CT_ROWS_FEW) a.slots[v[u] * CT_ROWS_FEW + rank[u]] = (uint32_t)e;
            else if (rank[u] != LEFT_OUT) {
                const uint32_t place = atomicAdd(&a.counts[a.rows + 3], 1u);
                a.late[place] = (uint32_t)e, a.ranks[place] = rank[u];
            }
            if ((uint64_t)v[u] >= (uint64_t)a.rows) ct_wrong_index(a.head, a.argument, e * a.place, v[u], a.rows);
        }
    }
}

// The sum of all lanes up to this one, and of all.
CT_DEVICE uint32_t block_scan(uint32_t count, uint32_t *warps, uint32_t &all) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = count;
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += before;
    }
    __syncthreads(); // what was there before has been read
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    all = 0;
    for (int i = 0; i < CT_ROWS_THREADS / 32; i++) {
        if (i < warp) sum += warps[i];
        all += warps[i];
    }
    return sum;
}

// Every row that is named gets its part of the order, as blocks come.
extern "C" __global__ void sort_starts(const __grid_constant__ ct_cuda_rows_sort a) {
    __shared__ uint32_t warps[CT_ROWS_THREADS / 32], base[2];
    if (ct_does_nothing(a.head)) return;
    uint32_t *totals = a.counts + a.rows;
    for (int64_t first = (int64_t)blockIdx.x * CT_ROWS_THREADS; first < a.rows; first += ct_step()) {
        const int64_t v = first + threadIdx.x;
        const uint32_t count = v < a.rows ? a.counts[v] : 0;
        const uint32_t listed = a.named && count > (a.slots ? CT_ROWS_FEW : 0) && count <= CT_ROWS_MANY;
        const uint32_t ordered = !a.slots ? count : count > CT_ROWS_FEW ? count - CT_ROWS_FEW : 0;
        uint32_t all, all_listed = 0, place = 0;
        const uint32_t end = block_scan(ordered, warps, all);
        if (a.named) place = block_scan(listed, warps, all_listed);
        if (threadIdx.x == 0) {
            base[0] = all ? atomicAdd(&totals[0], all) : 0;
            base[1] = all_listed ? atomicAdd(&totals[2], all_listed) : 0;
        }
        __syncthreads();
        if (v < a.rows) ((uint2 *)a.spans)[v] = make_uint2(base[0] + end - ordered, count);
        if (listed) a.named[base[1] + place - 1] = (uint32_t)v;
        if (count > CT_ROWS_MANY) a.crowded[atomicAdd(&totals[1], 1u)] = (uint32_t)v;
    }
}

extern "C" __global__ void sort_place(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    if (a.slots) {
        const uint32_t n = a.counts[a.rows + 3];
        for (int64_t i = ct_first(); i < n; i += step) {
            const uint32_t e = a.late[i];
            a.order[a.spans[2 * index_at(a, e)] + a.ranks[i] - CT_ROWS_FEW] = e;
        }
        return;
    }
    for (int64_t first = ct_first(); first < a.nest.total; first += AT_ONCE * step) {
        uint32_t rank[AT_ONCE], start[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t e = first + u * step;
            rank[u] = e < a.nest.total ? a.ranks[e] : LEFT_OUT;
            start[u] = rank[u] != LEFT_OUT ? (uint32_t)index_at(a, e) : 0;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (rank[u] != LEFT_OUT) start[u] = a.spans[2 * (int64_t)start[u]];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (rank[u] != LEFT_OUT) a.order[start[u] + rank[u]] = (uint32_t)(first + u * step);
    }
}

// ---- Elements ----

template <typename S, int V> struct alignas(sizeof(S) * V) pack_of {
    S v[V];
};

// What is read or written once does not take the cache from what is found by chance.
template <typename P> CT_DEVICE P read_once(const P *at) {
    P x;
    if constexpr (sizeof(P) == 16) *(uint4 *)&x = __ldcs((const uint4 *)at);
    else if constexpr (sizeof(P) == 8) *(uint2 *)&x = __ldcs((const uint2 *)at);
    else x = *at;
    return x;
}
template <typename P> CT_DEVICE void write_once(P *at, const P &x) {
    if constexpr (sizeof(P) == 16) __stcs((uint4 *)at, *(const uint4 *)&x);
    else if constexpr (sizeof(P) == 8) __stcs((uint2 *)at, *(const uint2 *)&x);
    else *at = x;
}

// Sums in any order, of floats: what the largest exponent is, then fixed point relative to it.
template <int D> struct real_sum {
    typedef typename ct_of_dtype<D>::type S;
    typedef typename ct_of_dtype<D>::wide C;
    typedef ct_exact<C> exact;
    typedef uint32_t Mark; // an exponent, with flags of what is not finite
    struct Sum {
        int64_t limbs[exact::LIMBS];
    };
    static constexpr bool MARKED = true;
    CT_DEVICE static C times(double alpha) { return (C)alpha; }
    CT_DEVICE static Mark mark(S x) { return exact::exponent(ct_of_dtype<D>::load(x)); }
    CT_DEVICE static Mark mark(C alpha, S x) { return exact::exponent(alpha * ct_of_dtype<D>::load(x)); }
    CT_DEVICE static void merge(Mark &m, Mark other) {
        const uint32_t flags = (m | other) & CT_NOT_FINITE, mine = m & ~CT_NOT_FINITE, its = other & ~CT_NOT_FINITE;
        m = flags | (mine > its ? mine : its);
    }
    CT_DEVICE static Sum begin(S x, Mark m, int growth) {
        Sum s;
        exact::split(ct_of_dtype<D>::load(x), m & ~CT_NOT_FINITE, growth, s.limbs);
        return s;
    }
    CT_DEVICE static void add(Sum &s, C alpha, S x, Mark m, int growth) {
        int64_t limbs[exact::LIMBS];
        exact::split(alpha * ct_of_dtype<D>::load(x), m & ~CT_NOT_FINITE, growth, limbs);
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) s.limbs[l] += limbs[l];
    }
    CT_DEVICE static void merge(Sum &s, const Sum &other) {
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) s.limbs[l] += other.limbs[l];
    }
    CT_DEVICE static S end(const Sum &s, Mark m, int growth) {
        if (m & CT_NOT_FINITE) return ct_of_dtype<D>::store(ct_not_finite<C>(m));
        return ct_of_dtype<D>::store(exact::join(s.limbs, m, growth));
    }
    typedef C Plain;
    CT_DEVICE static C plain(S x) { return ct_of_dtype<D>::load(x); }
    CT_DEVICE static S rounded(C x) { return ct_of_dtype<D>::store(x); }
};

// Integers wrap, in any order; truth values are true where one is.
template <int D> struct whole_sum {
    typedef typename ct_of_dtype<D>::type S;
    typedef uint64_t C, Sum;
    typedef uint32_t Mark;
    static constexpr bool MARKED = false;
    CT_DEVICE static C times(double alpha) { return (uint64_t)(int64_t)alpha; }
    CT_DEVICE static Mark mark(S) { return 0; }
    CT_DEVICE static Mark mark(C, S) { return 0; }
    CT_DEVICE static void merge(Mark &, Mark) {}
    CT_DEVICE static Sum begin(S x, Mark, int) { return (uint64_t)ct_of_dtype<D>::load(x); }
    CT_DEVICE static void add(Sum &s, C alpha, S x, Mark, int) { s += alpha * (uint64_t)ct_of_dtype<D>::load(x); }
    CT_DEVICE static void merge(Sum &s, Sum other) { s += other; }
    CT_DEVICE static S end(Sum s, Mark, int) { return ct_of_dtype<D>::store((int64_t)s); }
    typedef uint64_t Plain;
    CT_DEVICE static C plain(S x) { return (uint64_t)ct_of_dtype<D>::load(x); }
    CT_DEVICE static S rounded(C x) { return ct_of_dtype<D>::store((int64_t)x); }
};

CT_DEVICE int growth_of(uint32_t n) { return 33 - __clz(n); } // of n and the own one

// Of one pack: the rows of src that go there and what is there.
// SLOTS: the first ones are in slots (rows_sum.h).
template <typename R, int V, bool SLOTS> struct summing {
    typedef typename R::S S;
    typedef pack_of<S, V> pack;
    const pack *src; // the pack of row 0
    alignas(16) uint32_t slots[CT_ROWS_FEW]; // what is in them, which is there before anybody knows how many there are
    const uint32_t *held, *order; // where the slots are, and order[i] for those that are not there
    int64_t src_row;
    typename R::C alpha;
    typename R::Mark marks[V];
    typename R::Sum sums[V];

    CT_DEVICE pack row(uint32_t i) const {
        return src[(int64_t)(SLOTS && i < CT_ROWS_FEW ? held[i] : order[i]) * src_row];
    }
    // Rows first, first + step, ... below end.
    template <typename F> CT_DEVICE void each(uint32_t first, uint32_t end, uint32_t step, F use) {
        for (uint32_t i = first; i < end; i += AT_ONCE * step) {
            pack loaded[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (u == 0 || i + u * step < end) loaded[u] = row(i + u * step);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (u == 0 || i + u * step < end) use(loaded[u]);
        }
    }
    CT_DEVICE void mark(const pack &x) {
#pragma unroll
        for (int k = 0; k < V; k++) R::merge(marks[k], R::mark(alpha, x.v[k]));
    }
    CT_DEVICE void add(const pack &x, int growth) {
#pragma unroll
        for (int k = 0; k < V; k++) R::add(sums[k], alpha, x.v[k], marks[k], growth);
    }
    CT_DEVICE void begin(const pack &own, bool with, int growth) {
#pragma unroll
        for (int k = 0; k < V; k++) sums[k] = R::begin(with ? own.v[k] : S{}, marks[k], growth);
    }
    CT_DEVICE pack end(int growth) const {
        pack y;
#pragma unroll
        for (int k = 0; k < V; k++) y.v[k] = R::end(sums[k], marks[k], growth);
        return y;
    }

    // Few rows, in the order of index, as the CPU adds them: their places are sorted by a network (Batcher's), and all of them are
    // under way at once.
    enum { FEW = CT_ROWS_FEW };
    CT_DEVICE pack few(const pack &own, uint32_t n) const {
        uint32_t places[FEW];
#pragma unroll
        for (int u = 0; u < FEW; u++) places[u] = SLOTS ? slots[u] : u < n ? order[u] : LEFT_OUT;
#pragma unroll
        for (int size = 1; size < FEW; size *= 2)
#pragma unroll
            for (int distance = size; distance; distance /= 2)
#pragma unroll
                for (int u = distance % size; u + distance < FEW; u++)
                    if ((u - distance % size) / distance % 2 == 0 && u / (2 * size) == (u + distance) / (2 * size)) {
                        const uint32_t low = min(places[u], places[u + distance]);
                        places[u + distance] = max(places[u], places[u + distance]);
                        places[u] = low;
                    }
        pack rows[FEW], y = own;
#pragma unroll
        for (int u = 0; u < FEW; u++)
            if (u < n) rows[u] = read_once(&src[(int64_t)places[u] * src_row]);
        typename R::Plain sum[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = R::plain(own.v[k]);
#pragma unroll
        for (int u = 0; u < FEW; u++) {
            if (u >= n) break;
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] = sum[k] + alpha * R::plain(rows[u].v[k]);
        }
#pragma unroll
        for (int k = 0; k < V; k++) y.v[k] = R::rounded(sum[k]);
        return y;
    }

    // More of them, by this thread: in two passes, for the exponents and for the sums.
    CT_DEVICE pack all(const pack &own, uint32_t n) {
        const int growth = growth_of(n);
#pragma unroll
        for (int k = 0; k < V; k++) marks[k] = R::mark(own.v[k]);
        if (R::MARKED) each(0, n, 1, [&](const pack &x) { mark(x); });
        begin(own, true, growth);
        each(0, n, 1, [&](const pack &x) { add(x, growth); });
        return end(growth);
    }
};

// ---- The sums ----

// Of a row, before its span is known.
template <typename R, int V, bool SLOTS>
CT_DEVICE summing<R, V, SLOTS> summing_of(const ct_cuda_rows_sum &a, int64_t row, int64_t src) {
    summing<R, V, SLOTS> s;
    s.src = (const pack_of<typename R::S, V> *)a.src + src;
    s.held = a.slots + row * CT_ROWS_FEW;
    if (SLOTS) {
        *(uint4 *)&s.slots[0] = ((const uint4 *)s.held)[0];
        *(uint4 *)&s.slots[4] = ((const uint4 *)s.held)[1];
    }
    s.src_row = a.src_row;
    s.alpha = R::times(a.alpha);
    return s;
}

// Crowded rows: threads side by side take packs, and groups of them every so-manieth row of src. What they find meets in shared memory.
// A function by itself, as it is rare, to leave its registers to the others.
template <typename R, int V, bool SLOTS> __device__ __noinline__ void sum_crowded(const ct_cuda_rows_sum &a) {
    typedef pack_of<typename R::S, V> pack;
    __shared__ typename R::Mark marks[CT_ROWS_THREADS][V];
    __shared__ typename R::Sum sums[CT_ROWS_THREADS][V];
    int side = 1;
    while (side < 32 && side < a.lanes.total) side *= 2;
    const int groups = CT_ROWS_THREADS / side, group = threadIdx.x / side, t = threadIdx.x;
    const int64_t tiles = (a.lanes.total + side - 1) / side, jobs = tiles * a.totals[1];
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64_t which = job / tiles, lane = (job - which * tiles) * side + t % side, row = a.crowded[which];
        const bool inside = lane < a.lanes.total;
        const uint2 span = ((const uint2 *)a.spans)[row];
        const uint32_t n = span.y;
        const int growth = growth_of(n);
        int64_t at[3];
        ct_nest_place(a.lanes, inside ? lane : 0, at);
        summing<R, V, SLOTS> s = summing_of<R, V, SLOTS>(a, row, at[2]);
        s.order = a.order + span.x - (SLOTS ? CT_ROWS_FEW : 0);
        pack own = {};
        if (a.from) own = ((const pack *)a.from)[at[1] + row * a.from_axis];
#pragma unroll
        for (int k = 0; k < V; k++) s.marks[k] = R::mark(own.v[k]);
        if (inside && R::MARKED) s.each(group, n, groups, [&](const pack &x) { s.mark(x); });
        __syncthreads(); // what was there before has been read
#pragma unroll
        for (int k = 0; k < V; k++) marks[t][k] = s.marks[k];
        __syncthreads();
        for (int g = 0; g < groups; g++)
#pragma unroll
            for (int k = 0; k < V; k++) R::merge(s.marks[k], marks[g * side + t % side][k]);
        s.begin(own, group == 0, growth);
        if (inside) s.each(group, n, groups, [&](const pack &x) { s.add(x, growth); });
#pragma unroll
        for (int k = 0; k < V; k++) sums[t][k] = s.sums[k];
        __syncthreads();
        for (int half = groups / 2; half; half /= 2) {
            if (group < half) {
#pragma unroll
                for (int k = 0; k < V; k++) R::merge(sums[t][k], sums[t + half * side][k]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < V; k++) s.sums[k] = sums[t][k];
        if (group == 0 && inside) ((pack *)a.to)[at[0] + row * a.to_axis] = s.end(growth);
    }
}

// One pack. ONLY_FEW: rows that are named more often are left to others.
template <typename R, int V, bool SLOTS, bool ONLY_FEW>
CT_DEVICE void sum_pack(const ct_cuda_rows_sum &a, int64_t row, int64_t to, int64_t from, int64_t src) {
    typedef pack_of<typename R::S, V> pack;
    summing<R, V, SLOTS> s = summing_of<R, V, SLOTS>(a, row, src);
    const uint2 span = ((const uint2 *)a.spans)[row];
    pack own = {};
    if (a.from) own = read_once((const pack *)a.from + from);
    if (span.y > (ONLY_FEW ? CT_ROWS_FEW : CT_ROWS_MANY)) return;
    s.order = a.order + span.x - (SLOTS ? CT_ROWS_FEW : 0);
    if (span.y) own = ONLY_FEW || span.y <= CT_ROWS_FEW ? s.few(own, span.y) : s.all(own, span.y);
    write_once((pack *)a.to + to, own);
}

// The rows that are listed.
template <typename R, int V, bool SLOTS> CT_DEVICE void sum_named(const ct_cuda_rows_sum &a) {
    const int64_t step = ct_step(), total = a.totals[2] * a.lanes.total;
    for (int64_t e = ct_first(); e < total; e += step) {
        const int64_t which = total < INT32_MAX ? (uint32_t)e / (uint32_t)a.lanes.total : e / a.lanes.total;
        const int64_t row = a.named[which];
        int64_t at[3];
        ct_nest_place(a.lanes, e - which * a.lanes.total, at);
        sum_pack<R, V, SLOTS, false>(a, row, at[0] + row * a.to_axis, at[1] + row * a.from_axis, at[2]);
    }
}

// With slots these are the rows that have more than fit there. By themselves, since they take several times as long: a warp
// that had one of them would keep the place of a block from others. And a function by itself, as are crowded rows.
template <typename R, int V, bool SLOTS> __device__ __noinline__ void sum_longer(const ct_cuda_rows_sum &a) {
    sum_named<R, V, SLOTS>(a);
}

// All of the result.
template <typename R, int V, bool SLOTS> CT_DEVICE void rows_sum(const ct_cuda_rows_sum &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[4];
        ct_nest_place(a.nest, e, at);
        sum_pack<R, V, SLOTS, SLOTS>(a, at[3], at[0], at[1], at[2]);
    }
    if (SLOTS && a.totals[2]) sum_longer<R, V, SLOTS>(a);
    if (a.totals[1]) sum_crowded<R, V, SLOTS>(a);
}

// The rows that are named, where the others are there already.
template <typename R, int V, bool SLOTS> CT_DEVICE void named_sum(const ct_cuda_rows_sum &a) {
    if (ct_does_nothing(a.head)) return;
    sum_named<R, V, SLOTS>(a);
    if (a.totals[1]) sum_crowded<R, V, SLOTS>(a);
}

// Zeros; the nest is over packs of T.
template <typename T> CT_DEVICE void clear(const ct_cuda_rows_sum &a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        ((T *)a.to)[at[0]] = T{};
    }
}
extern "C" __global__ void rows_clear_8(const __grid_constant__ ct_cuda_rows_sum a) { clear<uint2>(a); }
extern "C" __global__ void rows_clear_16(const __grid_constant__ ct_cuda_rows_sum a) { clear<uint4>(a); }

#define SUM(name, WHAT, R, V, SLOTS, BLOCKS)                                   \
    extern "C" __global__ void __launch_bounds__(CT_ROWS_THREADS, BLOCKS) \
        sum_##name(const __grid_constant__ ct_cuda_rows_sum a) {          \
        WHAT<R, V, SLOTS>(a);                                                  \
    }
#define SUMS(name, R, V)                  \
    SUM(name, rows_sum, R, 1, false, 2)          \
    SUM(name##_packed, rows_sum, R, V, true, 4)  \
    SUM(name##_named, named_sum, R, V, false, 3)
SUMS(f32, real_sum<CT_F32>, 4)
SUMS(f64, real_sum<CT_F64>, 2)
SUMS(f16, real_sum<CT_F16>, 4)
SUMS(bf16, real_sum<CT_BF16>, 4)
SUM(i8, rows_sum, whole_sum<CT_I8>, 1, false, 2)
SUM(i16, rows_sum, whole_sum<CT_I16>, 1, false, 2)
SUM(i32, rows_sum, whole_sum<CT_I32>, 1, false, 2)
SUM(i64, rows_sum, whole_sum<CT_I64>, 1, false, 2)
SUM(u8, rows_sum, whole_sum<CT_U8>, 1, false, 2)
SUM(bool, rows_sum, whole_sum<CT_BOOL>, 1, false, 2)
