// channel_norm and its gradients with the channels first, in one reading: all blocks run at one time and go through the chunks of all sets in
// rounds, a chunk to a block. In round r the warps of a block that compute have their r-th chunk in shared memory, set out to fetch the next one,
// sum their own up, and make the results of the chunk before, which they have kept. Two more warps work beside them: one tells the sums of the
// block to all others, the other one waits for those of the set of the chunk before and makes coefficients of them. A set has no more chunks than
// there are blocks, so what is waited for is told in the same round or was told in the one before, and telling waits for nothing: nobody
// waits for ever. Which sums are put together, and in which order, depends on sizes alone.
//
// A chunk is some lines, or a part of one. A line is gone along by a team of warps, always the same one, so nobody reads what another
// thread keeps. Lines lie in whole packs.
#include "backends/cuda/mma.cuh"
#include "ops/norm/cuda/channel_norm.cuh"

enum { WARPS = CT_CHANNEL_THREADS / 32, BUFFERS = 3, SUMMED = 1, SETTLED = 2 };

// A barrier of the warps that compute and one more.
CT_DEVICE void meet(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(CT_CHANNEL_THREADS + 32) : "memory");
}

// ---- Chunks ----

struct chunk {
    int64_t number, set, start; // where it begins in x
    int64_t channel, item;      // of its first line, and in group norms its item
    int lines, packs, part;     // packs of each line; which part of a line
};
template <int V> CT_DEVICE chunk chunk_of(const ct_cuda_channels &a, int64_t number) {
    chunk c;
    c.number = number;
    c.set = number / a.pieces;
    const int64_t piece = number - c.set * a.pieces;
    const int64_t line = a.parts > 1 ? piece / a.parts : piece * a.chunk_lines;
    c.part = a.parts > 1 ? (int)(piece - line * a.parts) : 0;
    c.lines = a.parts > 1 ? 1 : (int)min(a.chunk_lines, a.lines - line);
    c.packs = (int)(min(a.part, a.places - c.part * a.part) / V);
    c.item = a.batch ? 0 : c.set / a.groups;
    c.channel = a.batch ? c.set : (c.set - c.item * a.groups) * a.members + line;
    c.start = c.set * (a.batch ? a.places : a.members * a.places) + line * a.line_step + c.part * a.part;
    return c;
}
CT_DEVICE int64_t channel_of(const ct_cuda_channels &a, const chunk &c, int line) {
    return a.batch ? c.channel : c.channel + line;
}
CT_DEVICE double count_of(const ct_cuda_channels &a, int64_t piece) {
    if (a.parts > 1) return (double)min(a.part, a.places - piece % a.parts * a.part);
    return (double)min(a.chunk_lines, a.lines - piece * a.chunk_lines) * (double)a.places;
}

// The warps of a team go along a line together.
struct team {
    int number, teams, lane, lanes, wide; // wide: its warps
};
CT_DEVICE team team_of(const ct_cuda_channels &a) {
    team t;
    const int warp = threadIdx.x / 32;
    t.teams = (int)min((int64_t)WARPS, a.chunk_lines);
    t.wide = WARPS / t.teams;
    t.number = warp / t.wide; // a warp too many has no line
    t.lane = warp % t.wide * 32 + (threadIdx.x & 31);
    t.lanes = t.wide * 32;
    return t;
}

// ---- Fetching ----

// Of x, and of g where it is given.
template <typename S>
CT_DEVICE void fetch(const ct_cuda_channels &a, const chunk &c, const team &t, const char *g, char *kept) {
    typedef ct_neighbors<S, 16 / sizeof(S)> pack;
    pack *xs = (pack *)kept, *gs = xs + a.chunk_packs;
    for (int line = t.number; line < c.lines; line += t.teams) {
        const int64_t at = c.start + line * a.line_step;
        const pack *from = (const pack *)((const S *)a.x + at), *from_g = (const pack *)((const S *)g + at);
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            ct_async_copy<16>(xs + line * c.packs + i, from + i, true);
            if (g) ct_async_copy<16>(gs + line * c.packs + i, from_g + i, true);
        }
    }
}

// ---- Sums ----

// Shared memory: of two rounds each sums of warps, pairs of sums of lines by warp, and coefficients by line; then three chunks.
template <typename C> struct room {
    double *warps, *lines;
    C *coefficients; // (lines, 4)
};
template <typename C> CT_DEVICE room<C> room_in(const ct_cuda_channels &a, char *memory, int parity) {
    room<C> r;
    r.warps = (double *)(memory + parity * (a.elements_at / 2));
    r.lines = r.warps + 4 * WARPS;
    r.coefficients = (C *)(r.lines + 2 * a.line_sums);
    return r;
}

template <int N, typename C> CT_DEVICE void put_sums(double *warps, const C (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const C sum = ct_sum_group(x[i], 32);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32 * 4 + i] = (double)sum;
    }
}

// A number and whether it is there: two words of 8 bytes, which are stored at once, each with half of it and a flag.
CT_DEVICE void tell(uint64_t *to, double x) {
    const uint64_t bits = (uint64_t)__double_as_longlong(x), flag = (uint64_t)1 << 32, low = (bits & 0xffffffffu) | flag,
                   high = bits >> 32 | flag;
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(low), "l"(high) : "memory");
}
CT_DEVICE bool told(const uint64_t *from, double &x) {
    uint64_t low, high;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from) : "memory");
    x = __longlong_as_double((int64_t)(high << 32 | (low & 0xffffffffu)));
    return low >> 32 && high >> 32;
}
// What a chunk told, once it has.
CT_DEVICE void hear(const ct_cuda_channels &a, int64_t set, int64_t piece, double (&x)[CT_CHANNEL_PARTIAL]) {
    const uint64_t *from = a.partial + 2 * (set * a.pieces + piece) * CT_CHANNEL_PARTIAL;
    for (;;) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < CT_CHANNEL_PARTIAL; i++) all &= told(from + 2 * i, x[i]);
        if (all) return;
        __nanosleep(20);
    }
}

// The warp that tells: N sums, and of a gradient of groups those of its lines.
template <typename C, int N> CT_DEVICE void tell_sums(const ct_cuda_channels &a, const room<C> &r, const chunk &c, const team &t) {
    const int lane = threadIdx.x & 31;
    if (lane < CT_CHANNEL_PARTIAL) {
        double sum = lane < N ? 0 : r.warps[3]; // the third number of moments is where deviations are from
        for (int w = 0; w < WARPS && lane < N; w++) sum += r.warps[4 * w + lane];
        tell(a.partial + 2 * (c.number * CT_CHANNEL_PARTIAL + lane), sum);
    }
    if (N < 3 || a.batch) return;
    for (int line = lane; line < c.lines; line += 32) { // for dweight and dbias
        double g = 0, product = 0;
        for (int i = 0; i < t.wide; i++)
            g += r.lines[2 * (line * t.wide + i)], product += r.lines[2 * (line * t.wide + i) + 1];
        const int64_t to = (c.item * a.channels + c.channel + line) * a.parts + c.part;
        a.sums[to] = g;
        a.sums[a.items * a.channels * a.parts + to] = product;
    }
}

// ---- Forward ----

template <typename S> CT_DEVICE void forward_first(const ct_cuda_channels &a, const room<typename ct_number<S>::type> &r,
                                                   const chunk &c, const team &t, const char *kept) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    typedef ct_neighbors<S, V> pack;
    // Deviations from the median of three elements, as in the passes.
    const S *x = (const S *)a.x + c.start;
    const C first = ct_number_of(x[0]), half = ct_number_of(x[c.packs / 2 * V]), end = ct_number_of(x[c.packs * V - 1]);
    const C shift = max(min(first, half), min(max(first, half), end));
    C sums[2] = {0, 0};
    ct_async_wait_but<1>();
    for (int line = t.number; line < c.lines; line += t.teams)
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            C n[V];
            ((const pack *)kept)[line * c.packs + i].numbers(n);
#pragma unroll
            for (int q = 0; q < V; q++) {
                const C apart = n[q] - shift;
                sums[0] += apart;
                sums[1] = ct_fma(apart, apart, sums[1]);
            }
        }
    if (threadIdx.x == 0) r.warps[3] = (double)shift;
    put_sums(r.warps, sums);
}

// What a chunk told as its mean and squared deviations from it.
CT_DEVICE void hear_moments(const ct_cuda_channels &a, int64_t set, int64_t piece, double n, double &mean, double &square) {
    double x[CT_CHANNEL_PARTIAL];
    hear(a, set, piece, x);
    const double rest = x[0] / n;
    mean = x[2] + rest;
    square = fmax(x[1] - rest * x[0], 0.0);
}

// The warp that makes coefficients.
template <typename C> CT_DEVICE void forward_settle(const ct_cuda_channels &a, const room<C> &r, const chunk &c) {
    enum { NEAR = 2 }; // chunks of a lane that stay in registers
    const int lane = threadIdx.x & 31;
    double total = 0, square = 0, mean[NEAR], squares[NEAR], n[NEAR], far, far_squares;
#pragma unroll
    for (int k = 0; k < NEAR; k++) {
        const int64_t piece = lane + 32 * k;
        n[k] = 0;
        if (piece >= a.pieces) continue;
        n[k] = count_of(a, piece);
        hear_moments(a, c.set, piece, n[k], mean[k], squares[k]);
        total += mean[k] * n[k];
    }
    for (int64_t piece = lane + 32 * NEAR; piece < a.pieces; piece += 32) {
        const double many = count_of(a, piece);
        hear_moments(a, c.set, piece, many, far, far_squares);
        total += far * many;
    }
    __syncwarp();
    const double middle = ct_sum_group(total, 32) / a.count;
#pragma unroll
    for (int k = 0; k < NEAR; k++)
        if (n[k] > 0) square += squares[k] + (mean[k] - middle) * (mean[k] - middle) * n[k];
    for (int64_t piece = lane + 32 * NEAR; piece < a.pieces; piece += 32) {
        const double many = count_of(a, piece);
        hear_moments(a, c.set, piece, many, far, far_squares);
        square += far_squares + (far - middle) * (far - middle) * many;
    }
    const double var = ct_sum_group(square, 32) / a.count, rstd = 1 / sqrt(var + a.eps);
    if (lane == 0 && c.number == c.set * a.pieces) {
        ct_vector_set(a.mean, c.set, middle);
        ct_vector_set(a.var, c.set, var);
    }
    for (int line = lane; line < c.lines; line += 32) {
        const ct_forward_coefficients<C> by = ct_forward_of<C>(a, middle, rstd, channel_of(a, c, line));
        r.coefficients[4 * line] = by.m;
        r.coefficients[4 * line + 1] = by.scale;
        r.coefficients[4 * line + 2] = by.shift;
    }
}

template <typename S> CT_DEVICE void forward_second(const ct_cuda_channels &a, const room<typename ct_number<S>::type> &r,
                                                    const chunk &c, const team &t, const char *kept) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    typedef ct_neighbors<S, V> pack;
    if (!a.y) return;
    for (int line = t.number; line < c.lines; line += t.teams) {
        const C m = r.coefficients[4 * line], scale = r.coefficients[4 * line + 1], shift = r.coefficients[4 * line + 2];
        const int64_t at = c.start + line * a.line_step;
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            pack result;
            C n[V], other[V];
            ((const pack *)kept)[line * c.packs + i].numbers(n);
            if (a.other) ((const pack *)((const S *)a.other + at))[i].numbers(other);
#pragma unroll
            for (int q = 0; q < V; q++) {
                n[q] = ct_fma(n[q] - m, scale, shift);
                if (a.other) n[q] += other[q];
                if (a.relu) n[q] = ct_relu_of(n[q]);
            }
            result.store(n);
            ((pack *)((S *)a.y + at))[i] = result;
        }
    }
}

// ---- Gradients ----

template <typename S> CT_DEVICE void backward_first(const ct_cuda_channels &a, const room<typename ct_number<S>::type> &r,
                                                    const chunk &c, const team &t, char *kept) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    typedef ct_neighbors<S, V> pack;
    pack *xs = (pack *)kept, *gs = xs + a.chunk_packs;
    const C m = (C)ct_vector_at(a.mean, c.set, 0);
    const bool recomputes = a.relu && !a.other;
    const double rstd = recomputes ? ct_rstd_of(a, c.set) : 0;
    C all[3] = {0, 0, 0}; // of h, of h (x - m), of x - m; where a channel is a set, without its weight
    ct_async_wait_but<1>();
    for (int line = t.number; line < c.lines; line += t.teams) {
        const int64_t at = c.start + line * a.line_step, channel = channel_of(a, c, line);
        const double w = ct_vector_at(a.weight, channel, 1);
        const C scale = (C)(rstd * w), shift = recomputes ? (C)ct_vector_at(a.bias, channel, 0) : (C)0;
        C sum = 0, product = 0;
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            C x[V], g[V], y[V];
            if (a.other) ((const pack *)((const S *)a.other + at))[i].numbers(y);
            xs[line * c.packs + i].numbers(x);
            gs[line * c.packs + i].numbers(g);
#pragma unroll
            for (int q = 0; q < V; q++) {
                const C apart = x[q] - m;
                if (a.relu) g[q] = (a.other ? y[q] : ct_fma(apart, scale, shift)) <= 0 ? (C)0 : g[q];
                sum += g[q];
                product = ct_fma(apart, g[q], product);
                all[2] += apart;
            }
            if (!a.relu) continue;
            pack passed;
            passed.store(g);
            gs[line * c.packs + i] = passed;
            if (a.passed) ((pack *)((S *)a.passed + at))[i] = passed;
        }
        all[0] = a.batch ? all[0] + sum : ct_fma((C)w, sum, all[0]);
        all[1] = a.batch ? all[1] + product : ct_fma((C)w, product, all[1]);
        if (!a.batch) {
            const double g_of_warp = ct_sum_group((double)sum, 32), product_of_warp = ct_sum_group((double)product, 32);
            double *to = r.lines + 2 * (line * t.wide + t.lane / 32);
            if (t.lane % 32 == 0) to[0] = g_of_warp, to[1] = product_of_warp;
        }
    }
    put_sums(r.warps, all);
}

template <typename C> CT_DEVICE void backward_settle(const ct_cuda_channels &a, const room<C> &r, const chunk &c) {
    const int lane = threadIdx.x & 31;
    double total[3] = {0, 0, 0};
    for (int64_t piece = lane; piece < a.pieces; piece += 32) {
        double x[CT_CHANNEL_PARTIAL];
        hear(a, c.set, piece, x);
#pragma unroll
        for (int i = 0; i < 3; i++) total[i] += x[i];
    }
    __syncwarp();
    const double g = ct_sum_group(total[0], 32), product = ct_sum_group(total[1], 32), rest = ct_sum_group(total[2], 32);
    const double w = a.batch ? ct_vector_at(a.weight, c.set, 1) : 1; // a channel is a set: its weight comes in here
    ct_set_sums s = {g * w, product * w, rest, ct_rstd_of(a, c.set), 0, 0};
    ct_settle_sums(a, c.set, s);
    if (lane == 0 && c.number == c.set * a.pieces) {
        if (a.batch) {
            ct_vector_set(a.dweight, c.set, (product - s.rest * g) * s.rstd);
            ct_vector_set(a.dbias, c.set, g);
        } else {
            a.rest[c.set] = s.rest;
            a.rest[a.items * a.groups + c.set] = s.rstd;
        }
    }
    const C m = (C)ct_vector_at(a.mean, c.set, 0);
    for (int line = lane; line < c.lines; line += 32) {
        const ct_backward_coefficients<C> by = ct_backward_of<C>(a, s, m, channel_of(a, c, line));
        r.coefficients[4 * line] = by.of_g;
        r.coefficients[4 * line + 1] = by.of_x;
        r.coefficients[4 * line + 2] = by.of_1;
        r.coefficients[4 * line + 3] = by.middle;
    }
}

template <typename S> CT_DEVICE void backward_second(const ct_cuda_channels &a, const room<typename ct_number<S>::type> &r,
                                                     const chunk &c, const team &t, const char *kept) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    typedef ct_neighbors<S, V> pack;
    if (!a.y) return;
    const pack *xs = (const pack *)kept, *gs = xs + a.chunk_packs;
    const C m = (C)ct_vector_at(a.mean, c.set, 0);
    for (int line = t.number; line < c.lines; line += t.teams) {
        const C of_g = r.coefficients[4 * line], of_x = r.coefficients[4 * line + 1], of_1 = r.coefficients[4 * line + 2],
                middle = r.coefficients[4 * line + 3];
        S *to = (S *)a.y + c.start + line * a.line_step;
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            pack result;
            C xn[V], gn[V];
            xs[line * c.packs + i].numbers(xn);
            gs[line * c.packs + i].numbers(gn);
#pragma unroll
            for (int q = 0; q < V; q++) xn[q] = ct_fma(gn[q] - middle, of_g, ct_fma(xn[q] - m, of_x, of_1));
            result.store(xn);
            ((pack *)to)[i] = result;
        }
    }
}

// ---- Rounds ----

template <typename S, bool BACKWARD> CT_DEVICE void compute(const ct_cuda_channels &a, char *memory, int64_t chunks) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    const team t = team_of(a);
    const int64_t bytes = a.chunk_packs * 16 * (BACKWARD ? 2 : 1);
    const char *g = BACKWARD ? a.g : NULL;
    char *chunk_memory = memory + a.elements_at;
    chunk before = {}, now = chunk_of<V>(a, blockIdx.x), next = {};
    char *kept[BUFFERS] = {chunk_memory, chunk_memory + bytes, chunk_memory + 2 * bytes}; // of now, next and before
    fetch<S>(a, now, t, g, kept[0]);
    ct_async_end_group();
    int parity = 0;
    for (int64_t number = blockIdx.x;; number += gridDim.x, parity ^= 1) {
        const room<C> r = room_in<C>(a, memory, parity), last = room_in<C>(a, memory, parity ^ 1);
        if (number + gridDim.x < chunks) {
            next = chunk_of<V>(a, number + gridDim.x);
            fetch<S>(a, next, t, g, kept[1]);
        }
        ct_async_end_group();
        if (number < chunks) {
            if (BACKWARD) backward_first<S>(a, r, now, t, kept[0]);
            else forward_first<S>(a, r, now, t, kept[0]);
            meet(SUMMED);
        }
        if (number >= gridDim.x) {
            meet(SETTLED);
            if (BACKWARD) backward_second<S>(a, last, before, t, kept[2]);
            else forward_second<S>(a, last, before, t, kept[2]);
        }
        if (number >= chunks) break;
        before = now, now = next;
        char *const free = kept[2];
        kept[2] = kept[0], kept[0] = kept[1], kept[1] = free;
    }
}

template <typename S, bool BACKWARD> CT_DEVICE void rounds(const ct_cuda_channels &a, char *memory) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    const int64_t chunks = a.pieces * (a.batch ? a.channels : a.items * a.groups);
    if (a.nothing[0]) return;
    if (threadIdx.x < CT_CHANNEL_THREADS) {
        compute<S, BACKWARD>(a, memory, chunks);
        return;
    }
    const bool tells = threadIdx.x < CT_CHANNEL_THREADS + 32;
    const team t = team_of(a);
    int parity = 0;
    for (int64_t number = blockIdx.x; number < chunks; number += gridDim.x, parity ^= 1) {
        const room<C> r = room_in<C>(a, memory, parity);
        const chunk c = chunk_of<V>(a, number);
        if (tells) {
            meet(SUMMED);
            tell_sums<C, BACKWARD ? 3 : 2>(a, r, c, t);
        } else {
            if (BACKWARD) backward_settle<C>(a, r, c);
            else forward_settle<C>(a, r, c);
            meet(SETTLED);
        }
    }
}

extern "C" __global__ void __launch_bounds__(CT_CHANNEL_THREADS)
    channel_begin_rounds(const __grid_constant__ ct_cuda_channels a) {
    const int64_t words = 2 * a.pieces * (a.batch ? a.channels : a.items * a.groups) * CT_CHANNEL_PARTIAL;
    for (int64_t i = ct_first(); i < words; i += ct_step()) a.partial[i] = 0;
    // one answer for all blocks: some would wait for ever for others that do nothing
    if (ct_first() == 0) a.nothing[0] = ct_does_nothing(a.head);
}

#define KERNEL(name, backward, suffix, S)                                              \
    extern "C" __global__ void __launch_bounds__(CT_CHANNEL_THREADS + 64, CT_CHANNEL_ROOMS) \
        channel_##name##_##suffix(const __grid_constant__ ct_cuda_channels a) {        \
        extern __shared__ __align__(16) char memory[];                                 \
        rounds<S, backward>(a, memory);                                                \
    }
#define KERNELS(suffix, S)             \
    KERNEL(forward, false, suffix, S)  \
    KERNEL(backward, true, suffix, S)
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
