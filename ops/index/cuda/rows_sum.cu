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

extern "C" __global__ void sort_clear(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t v = ct_first(); v < a.rows + 2; v += step) a.counts[v] = 0;
}

enum : uint32_t { LEFT_OUT = 0xffffffffu };

extern "C" __global__ void sort_count(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        const int64_t v = ct_index_at(a.index, a.wide, at[0]);
        uint32_t rank = LEFT_OUT;
        if ((uint64_t)v >= (uint64_t)a.rows) ct_wrong_index(a.head, a.argument, e * a.place, v, a.rows);
        else if (v != a.skip) rank = atomicAdd(&a.counts[v], 1u);
        a.ranks[e] = rank;
    }
}

// Every row that is named gets its part of the order, as blocks come; counts[rows] is what has been given away, counts[rows + 1] the
// number of crowded rows.
extern "C" __global__ void sort_starts(const __grid_constant__ ct_cuda_rows_sort a) {
    __shared__ uint32_t warps[CT_ROWS_THREADS / 32], base;
    if (ct_does_nothing(a.head)) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t first = (int64_t)blockIdx.x * CT_ROWS_THREADS; first < a.rows; first += ct_step()) {
        const int64_t v = first + threadIdx.x;
        const uint32_t count = v < a.rows ? a.counts[v] : 0;
        uint32_t sum = count; // of the lanes up to this one
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t before = __shfl_up_sync(0xffffffffu, sum, distance);
            if (lane >= distance) sum += before;
        }
        __syncthreads(); // what was there before has been read
        if (lane == 31) warps[warp] = sum;
        __syncthreads();
        uint32_t others = 0, all = 0;
        for (int i = 0; i < CT_ROWS_THREADS / 32; i++) {
            if (i < warp) others += warps[i];
            all += warps[i];
        }
        if (threadIdx.x == 0) base = all ? atomicAdd(&a.counts[a.rows], all) : 0;
        __syncthreads();
        if (v < a.rows) a.starts[v] = base + others + sum - count;
        if (count > CT_ROWS_MANY) a.crowded[atomicAdd(&a.counts[a.rows + 1], 1u)] = (uint32_t)v;
    }
}

extern "C" __global__ void sort_place(const __grid_constant__ ct_cuda_rows_sort a) {
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t e = ct_first(); e < a.nest.total; e += step) {
        const uint32_t rank = a.ranks[e];
        if (rank == LEFT_OUT) continue;
        int64_t at[1];
        ct_nest_place(a.nest, e, at);
        a.order[a.starts[ct_index_at(a.index, a.wide, at[0])] + rank] = (uint32_t)e;
    }
}

// ---- Elements ----

template <typename S, int V> struct alignas(sizeof(S) * V) pack_of {
    S v[V];
};

// Sums in any order, of floats: what the largest exponent is, then fixed point relative to it.
template <int D> struct real_sum {
    typedef typename ct_stored<D>::type S;
    typedef typename ct_stored<D>::wide C;
    typedef ct_exact<C> exact;
    typedef uint32_t Mark; // an exponent, with flags of what is not finite
    struct Sum {
        int64_t limbs[exact::LIMBS];
    };
    static constexpr bool MARKED = true;
    CT_DEVICE static C times(double alpha) { return (C)alpha; }
    CT_DEVICE static Mark mark(S x) { return exact::exponent(ct_stored<D>::load(x)); }
    CT_DEVICE static Mark mark(C alpha, S x) { return exact::exponent(alpha * ct_stored<D>::load(x)); }
    CT_DEVICE static void merge(Mark &m, Mark other) {
        const uint32_t flags = (m | other) & CT_NOT_FINITE, mine = m & ~CT_NOT_FINITE, its = other & ~CT_NOT_FINITE;
        m = flags | (mine > its ? mine : its);
    }
    CT_DEVICE static Sum begin(S x, Mark m, int growth) {
        Sum s;
        exact::split(ct_stored<D>::load(x), m & ~CT_NOT_FINITE, growth, s.limbs);
        return s;
    }
    CT_DEVICE static void add(Sum &s, C alpha, S x, Mark m, int growth) {
        int64_t limbs[exact::LIMBS];
        exact::split(alpha * ct_stored<D>::load(x), m & ~CT_NOT_FINITE, growth, limbs);
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) s.limbs[l] += limbs[l];
    }
    CT_DEVICE static void merge(Sum &s, const Sum &other) {
#pragma unroll
        for (int l = 0; l < exact::LIMBS; l++) s.limbs[l] += other.limbs[l];
    }
    CT_DEVICE static S end(const Sum &s, Mark m, int growth) {
        if (m & CT_NOT_FINITE) return ct_stored<D>::store(ct_not_finite<C>(m));
        return ct_stored<D>::store(exact::join(s.limbs, m, growth));
    }
    typedef C Plain;
    CT_DEVICE static C plain(S x) { return ct_stored<D>::load(x); }
    CT_DEVICE static S rounded(C x) { return ct_stored<D>::store(x); }
};

// Integers wrap, in any order; truth values are true where one is.
template <int D> struct whole_sum {
    typedef typename ct_stored<D>::type S;
    typedef uint64_t C, Sum;
    typedef uint32_t Mark;
    static constexpr bool MARKED = false;
    CT_DEVICE static C times(double alpha) { return (uint64_t)(int64_t)alpha; }
    CT_DEVICE static Mark mark(S) { return 0; }
    CT_DEVICE static Mark mark(C, S) { return 0; }
    CT_DEVICE static void merge(Mark &, Mark) {}
    CT_DEVICE static Sum begin(S x, Mark, int) { return (uint64_t)ct_stored<D>::load(x); }
    CT_DEVICE static void add(Sum &s, C alpha, S x, Mark, int) { s += alpha * (uint64_t)ct_stored<D>::load(x); }
    CT_DEVICE static void merge(Sum &s, Sum other) { s += other; }
    CT_DEVICE static S end(Sum s, Mark, int) { return ct_stored<D>::store((int64_t)s); }
    typedef uint64_t Plain;
    CT_DEVICE static C plain(S x) { return (uint64_t)ct_stored<D>::load(x); }
    CT_DEVICE static S rounded(C x) { return ct_stored<D>::store((int64_t)x); }
};

CT_DEVICE int growth_of(uint32_t n) { return 33 - __clz(n); } // of n and the own one

// Of one pack: the rows of src that go there and what is there.
template <typename R, int V> struct summing {
    typedef typename R::S S;
    typedef pack_of<S, V> pack;
    const pack *src; // the pack of row 0
    const uint32_t *order;
    int64_t src_row;
    typename R::C alpha;
    typename R::Mark marks[V];
    typename R::Sum sums[V];

    enum { AT_ONCE = 4 };
    CT_DEVICE pack row(uint32_t i) const { return src[(int64_t)order[i] * src_row]; }
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
    enum { FEW = 8 };
    CT_DEVICE pack few(const pack &own, uint32_t n) const {
        uint32_t places[FEW];
#pragma unroll
        for (int u = 0; u < FEW; u++) places[u] = u < n ? order[u] : 0xffffffffu;
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
            if (u < n) rows[u] = src[(int64_t)places[u] * src_row];
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

template <typename R, int V>
CT_DEVICE summing<R, V> summing_of(const ct_cuda_rows_sum &a, int64_t row, int64_t src) {
    summing<R, V> s;
    s.src = (const pack_of<typename R::S, V> *)a.src + src;
    s.order = a.order + a.starts[row];
    s.src_row = a.src_row;
    s.alpha = R::times(a.alpha);
    return s;
}

// Crowded rows: threads side by side take packs, and groups of them every so-manieth row of src. What they find meets in shared memory.
template <typename R, int V> __device__ void sum_crowded(const ct_cuda_rows_sum &a) {
    typedef pack_of<typename R::S, V> pack;
    __shared__ typename R::Mark marks[CT_ROWS_THREADS][V];
    __shared__ typename R::Sum sums[CT_ROWS_THREADS][V];
    int side = 1;
    while (side < 32 && side < a.lanes.total) side *= 2;
    const int groups = CT_ROWS_THREADS / side, group = threadIdx.x / side, t = threadIdx.x;
    const int64_t tiles = (a.lanes.total + side - 1) / side, jobs = tiles * a.counts[a.rows + 1];
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64_t which = job / tiles, lane = (job - which * tiles) * side + t % side, row = a.crowded[which];
        const bool inside = lane < a.lanes.total;
        const uint32_t n = a.counts[row];
        const int growth = growth_of(n);
        int64_t at[3];
        ct_nest_place(a.lanes, inside ? lane : 0, at);
        summing<R, V> s = summing_of<R, V>(a, row, at[2]);
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

// One pack whose row is named.
template <typename R, int V> CT_DEVICE void sum_pack(const ct_cuda_rows_sum &a, int64_t e) {
    typedef pack_of<typename R::S, V> pack;
    int64_t at[4];
    ct_nest_place(a.nest, e, at);
    const uint32_t n = a.counts[at[3]];
    if (n > CT_ROWS_MANY) return;
    pack own = {};
    if (a.from) own = ((const pack *)a.from)[at[1]];
    summing<R, V> s = summing_of<R, V>(a, at[3], at[2]);
    ((pack *)a.to)[at[0]] = n <= summing<R, V>::FEW ? s.few(own, n) : s.all(own, n);
}

// AT_ONCE packs as far as their rows are not named, which is quick where most are not.
template <typename R, int V, int AT_ONCE> CT_DEVICE void rows_sum(const ct_cuda_rows_sum &a) {
    typedef pack_of<typename R::S, V> pack;
    if (ct_does_nothing(a.head)) return;
    const int64_t step = ct_step();
    for (int64_t first = ct_first(); first < a.nest.total; first += AT_ONCE * step) {
        int64_t at[AT_ONCE][4];
        uint32_t n[AT_ONCE];
        pack own[AT_ONCE] = {};
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            n[u] = 1;
            if (first + u * step >= a.nest.total) continue;
            ct_nest_place(a.nest, first + u * step, at[u]);
            n[u] = a.counts[at[u][3]];
        }
        if (a.from) {
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (n[u] == 0) own[u] = ((const pack *)a.from)[at[u][1]];
        }
        int named = 0;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (n[u] == 0) ((pack *)a.to)[at[u][0]] = own[u];
            else if (first + u * step < a.nest.total) named |= 1 << u;
        }
        for (; named; named &= named - 1) sum_pack<R, V>(a, first + (__ffs(named) - 1) * step);
    }
    sum_crowded<R, V>(a);
}

#define SUM(name, R, V, AT_ONCE, BLOCKS)                          \
    extern "C" __global__ void __launch_bounds__(CT_ROWS_THREADS, BLOCKS) \
        sum_##name(const __grid_constant__ ct_cuda_rows_sum a) {  \
        rows_sum<R, V, AT_ONCE>(a);                               \
    }
#define SUMS(name, R, V)             \
    SUM(name, R, 1, 1, 2)            \
    SUM(name##_packed, R, V, 1, 3)   \
    SUM(name##_sparse, R, V, 4, 2)
SUMS(f32, real_sum<CT_F32>, 4)
SUMS(f64, real_sum<CT_F64>, 2)
SUMS(f16, real_sum<CT_F16>, 4)
SUMS(bf16, real_sum<CT_BF16>, 4)
SUM(i8, whole_sum<CT_I8>, 1, 1, 2)
SUM(i16, whole_sum<CT_I16>, 1, 1, 2)
SUM(i32, whole_sum<CT_I32>, 1, 1, 2)
SUM(i64, whole_sum<CT_I64>, 1, 1, 2)
SUM(u8, whole_sum<CT_U8>, 1, 1, 2)
SUM(bool, whole_sum<CT_BOOL>, 1, 1, 2)
