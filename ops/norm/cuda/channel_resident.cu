// channel_norm and its gradients with the channels first, in one reading: all blocks run at one time and go through the chunks of all sets in
// rounds, a chunk to a block. In round r a block has its r-th chunk in shared memory, sets out to fetch the next one, sums its own up and tells
// the sums to whoever waits for that set; then it makes the results of the chunk before, which it has kept. A set has no more chunks than there are blocks, so what a block
// waits for is done in the same round or was done in the one before, ahead of any waiting: nobody waits for ever. Which sums are put
// together, and in which order, depends on sizes alone.
//
// A chunk is some lines, or a part of one. A line is gone along by a team of warps, always the same one, so nobody reads what another
// thread keeps. Lines lie in whole packs.
#include "backends/cuda/lanes.cuh"
#include "ops/norm/cuda/channel_norm.cuh"

enum { WARPS = CT_CHANNEL_THREADS / 32, BUFFERS = 3 };

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
    int number, teams, lane, lanes;
};
CT_DEVICE team team_of(const ct_cuda_channels &a) {
    team t;
    const int warp = threadIdx.x / 32;
    t.teams = (int)min((int64_t)WARPS, a.chunk_lines);
    const int wide = WARPS / t.teams;
    t.number = warp / wide; // a warp too many has no line
    t.lane = warp % wide * 32 + (threadIdx.x & 31);
    t.lanes = wide * 32;
    return t;
}

// ---- Fetching ----

CT_DEVICE void fetch_pack(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
CT_DEVICE void end_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
CT_DEVICE void await_all_but_last() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// Of x, and of g where it is given.
template <typename S>
CT_DEVICE void fetch(const ct_cuda_channels &a, const chunk &c, const team &t, const char *g, char *kept) {
    typedef ct_neighbors<S, 16 / sizeof(S)> pack;
    pack *xs = (pack *)kept, *gs = xs + a.chunk_packs;
    for (int line = t.number; line < c.lines; line += t.teams) {
        const int64_t at = c.start + line * a.line_step;
        const pack *from = (const pack *)((const S *)a.x + at), *from_g = (const pack *)((const S *)g + at);
        for (int i = t.lane; i < c.packs; i += t.lanes) {
            fetch_pack(xs + line * c.packs + i, from + i);
            if (g) fetch_pack(gs + line * c.packs + i, from_g + i);
        }
    }
}

// ---- Sums ----

// Shared memory: sums of warps, pairs of sums of lines by warp, coefficients by line, then three chunks.
template <typename C> struct room {
    double *warps, *lines;
    C *coefficients; // (lines, 4)
    char *chunks;
};
template <typename C> CT_DEVICE room<C> room_in(const ct_cuda_channels &a, char *memory) {
    room<C> r;
    r.warps = (double *)memory;
    r.lines = r.warps + 4 * WARPS;
    r.coefficients = (C *)(r.lines + 2 * a.line_sums);
    r.chunks = memory + a.elements_at;
    return r;
}

// The sums of a block go to the chunk's place among the partial sums; the last to do so completes the set.
template <int N, typename C> CT_DEVICE void publish(const ct_cuda_channels &a, const chunk &c, double *warps, const C (&x)[N]) {
    __syncthreads(); // what was there before has been read
#pragma unroll
    for (int i = 0; i < N; i++) {
        const C sum = ct_sum_group(x[i], 32);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32 * N + i] = (double)sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int w = 0; w < WARPS; w++) sum += warps[w * N + i];
            a.partial[c.number * CT_CHANNEL_PARTIAL + i] = sum;
        }
        __threadfence();
        atomicAdd(&a.arrived[c.set], 1u);
    }
}

// Waits until the set is complete. Of the first warp alone.
CT_DEVICE void await(const ct_cuda_channels &a, int64_t set) {
    if (threadIdx.x == 0)
        while (*(volatile uint32_t *)&a.arrived[set] < (uint32_t)a.pieces) __nanosleep(32);
    __syncwarp();
    __threadfence();
}
CT_DEVICE double partial_of(const ct_cuda_channels &a, int64_t set, int64_t piece, int i) {
    return __ldcg(&a.partial[(set * a.pieces + piece) * CT_CHANNEL_PARTIAL + i]);
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
    await_all_but_last();
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
    if (threadIdx.x == 0) a.partial[c.number * CT_CHANNEL_PARTIAL + 2] = (double)shift;
    publish(a, c, r.warps, sums);
}

// Sums of deviations from a shift as mean and squared deviations from it.
CT_DEVICE void moments_of(const ct_cuda_channels &a, int64_t set, int64_t piece, double n, double &mean, double &square) {
    const double sum = partial_of(a, set, piece, 0), rest = sum / n;
    mean = partial_of(a, set, piece, 2) + rest;
    square = fmax(partial_of(a, set, piece, 1) - rest * sum, 0.0);
}

template <typename C> CT_DEVICE void forward_settle(const ct_cuda_channels &a, const room<C> &r, const chunk &c) {
    enum { NEAR = 2 }; // chunks of a lane that stay in registers
    await(a, c.set);
    double total = 0, square = 0, mean[NEAR], squares[NEAR], n[NEAR], far, far_squares;
#pragma unroll
    for (int k = 0; k < NEAR; k++) {
        const int64_t piece = threadIdx.x + 32 * k;
        n[k] = 0;
        if (piece >= a.pieces) continue;
        n[k] = count_of(a, piece);
        moments_of(a, c.set, piece, n[k], mean[k], squares[k]);
        total += mean[k] * n[k];
    }
    for (int64_t piece = threadIdx.x + 32 * NEAR; piece < a.pieces; piece += 32) {
        const double many = count_of(a, piece);
        moments_of(a, c.set, piece, many, far, far_squares);
        total += far * many;
    }
    const double middle = ct_lane_sum(total) / a.count;
#pragma unroll
    for (int k = 0; k < NEAR; k++)
        if (n[k] > 0) square += squares[k] + (mean[k] - middle) * (mean[k] - middle) * n[k];
    for (int64_t piece = threadIdx.x + 32 * NEAR; piece < a.pieces; piece += 32) {
        const double many = count_of(a, piece);
        moments_of(a, c.set, piece, many, far, far_squares);
        square += far_squares + (far - middle) * (far - middle) * many;
    }
    const double var = ct_lane_sum(square) / a.count, rstd = 1 / sqrt(var + a.eps);
    if (threadIdx.x == 0 && c.number == c.set * a.pieces) {
        ct_vector_set(a.mean, c.set, middle);
        ct_vector_set(a.var, c.set, var);
    }
    for (int line = threadIdx.x; line < c.lines; line += 32) {
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
    __syncthreads(); // the coefficients of the chunk before have been read
    if (threadIdx.x < 32) forward_settle<C>(a, r, c);
    __syncthreads();
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
    await_all_but_last();
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
            double *to = r.lines + 2 * (line * (t.lanes / 32) + t.lane / 32);
            if (t.lane % 32 == 0) to[0] = g_of_warp, to[1] = product_of_warp;
        }
    }
    publish(a, c, r.warps, all);
    if (a.batch) return;
    // the sums of lines, for dweight and dbias
    const int wide = t.lanes / 32;
    for (int line = threadIdx.x; line < c.lines; line += CT_CHANNEL_THREADS) {
        double g = 0, product = 0;
        for (int i = 0; i < wide; i++) g += r.lines[2 * (line * wide + i)], product += r.lines[2 * (line * wide + i) + 1];
        const int64_t to = (c.item * a.channels + c.channel + line) * a.parts + c.part;
        a.sums[to] = g;
        a.sums[a.items * a.channels * a.parts + to] = product;
    }
    __syncthreads(); // before the next chunk's are there
}

template <typename C> CT_DEVICE void backward_settle(const ct_cuda_channels &a, const room<C> &r, const chunk &c) {
    await(a, c.set);
    double total[3] = {0, 0, 0};
    for (int64_t piece = threadIdx.x; piece < a.pieces; piece += 32)
#pragma unroll
        for (int i = 0; i < 3; i++) total[i] += partial_of(a, c.set, piece, i);
    const double g = ct_lane_sum(total[0]), product = ct_lane_sum(total[1]), rest = ct_lane_sum(total[2]);
    const double w = a.batch ? ct_vector_at(a.weight, c.set, 1) : 1; // a channel is a set: its weight comes in here
    ct_set_sums s = {g * w, product * w, rest, ct_rstd_of(a, c.set), 0, 0};
    ct_settle_sums(a, c.set, s);
    if (threadIdx.x == 0 && c.number == c.set * a.pieces) {
        if (a.batch) {
            ct_vector_set(a.dweight, c.set, (product - s.rest * g) * s.rstd);
            ct_vector_set(a.dbias, c.set, g);
        } else {
            a.rest[c.set] = s.rest;
            a.rest[a.items * a.groups + c.set] = s.rstd;
        }
    }
    const C m = (C)ct_vector_at(a.mean, c.set, 0);
    for (int line = threadIdx.x; line < c.lines; line += 32) {
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
    __syncthreads(); // the coefficients of the chunk before have been read
    if (threadIdx.x < 32) backward_settle<C>(a, r, c);
    __syncthreads();
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

template <typename S, bool BACKWARD> CT_DEVICE void rounds(const ct_cuda_channels &a, char *memory) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    const int64_t sets = a.batch ? a.channels : a.items * a.groups, chunks = a.pieces * sets;
    if (a.arrived[sets]) return;
    const room<C> r = room_in<C>(a, memory);
    const team t = team_of(a);
    const int64_t bytes = a.chunk_packs * 16 * (BACKWARD ? 2 : 1);
    const char *g = BACKWARD ? a.g : NULL;
    chunk before = {}, now = chunk_of<V>(a, blockIdx.x), next = {};
    char *kept[BUFFERS] = {r.chunks, r.chunks + bytes, r.chunks + 2 * bytes}; // of now, next and before
    fetch<S>(a, now, t, g, kept[0]);
    end_fetches();
    for (int64_t number = blockIdx.x;; number += gridDim.x) {
        if (number + gridDim.x < chunks) {
            next = chunk_of<V>(a, number + gridDim.x);
            fetch<S>(a, next, t, g, kept[1]);
        }
        end_fetches();
        if (number < chunks) {
            if (BACKWARD) backward_first<S>(a, r, now, t, kept[0]);
            else forward_first<S>(a, r, now, t, kept[0]);
        }
        if (number >= gridDim.x) {
            if (BACKWARD) backward_second<S>(a, r, before, t, kept[2]);
            else forward_second<S>(a, r, before, t, kept[2]);
        }
        if (number >= chunks) break;
        before = now, now = next;
        char *const free = kept[2];
        kept[2] = kept[0], kept[0] = kept[1], kept[1] = free;
    }
}

extern "C" __global__ void __launch_bounds__(CT_CHANNEL_THREADS)
    channel_begin_rounds(const __grid_constant__ ct_cuda_channels a) {
    const int64_t sets = a.batch ? a.channels : a.items * a.groups;
    for (int64_t i = ct_first(); i < sets; i += ct_step()) a.arrived[i] = 0;
    // one answer for all blocks: some would wait for ever for others that do nothing
    if (ct_first() == 0) a.arrived[sets] = ct_does_nothing(a.head);
}

#define KERNEL(name, backward, suffix, S)                                              \
    extern "C" __global__ void __launch_bounds__(CT_CHANNEL_THREADS, CT_CHANNEL_ROOMS) \
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
