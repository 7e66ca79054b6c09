// channel_norm and its gradients of sets that fit into the shared memory of the blocks of a cluster (of one block before Hopper): memory is
// read once. Each block takes some lines of the set and keeps them; sums go round the cluster; then results are made of what was kept. A
// line is gone along by a team of warps, always the same one, so nobody reads what another thread keeps. Only for lines that lie in whole
// packs, channels first.
#include "ops/norm/cuda/channel_norm.cuh"

enum { UNROLLED = 4 };

// ---- Shared memory ----

// In this order: sums of warps, three of the block for its cluster, two of each line for each warp of its team, coefficients, elements.
template <typename S> struct kept {
    typedef typename ct_number<S>::type C;
    double *warps, *block, *lines;
    C *coefficients; // (5, lines)
    char *x, *g;
};
template <typename S> CT_DEVICE kept<S> kept_in(const ct_cuda_channels &a, char *memory) {
    typedef typename ct_number<S>::type C;
    kept<S> k;
    k.warps = (double *)memory;
    k.block = k.warps + 96;
    k.lines = k.block + 4;
    k.coefficients = (C *)(memory + CT_CHANNEL_FIXED + 16 * a.line_sums);
    k.x = memory + a.elements_at;
    k.g = k.x + a.block_lines * a.places * (int64_t)sizeof(S);
    return k;
}

// ---- Clusters ----

template <int BLOCKS> CT_DEVICE void cluster_wait() {
    if (BLOCKS == 1) {
        __syncthreads();
        return;
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}
// What block `rank` of the cluster has where this one has *mine.
template <int BLOCKS> CT_DEVICE double of_block(const double *mine, int rank) {
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) {
        uint32_t there;
        double x;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(there)
                     : "r"((uint32_t)__cvta_generic_to_shared(mine)), "r"(rank));
        asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(there) : "memory");
        return x;
    }
#endif
    return *mine;
}

// Sums of all threads of the block, in all of them.
template <int N> CT_DEVICE void block_sums(double *warps, double (&x)[N]) {
    __syncthreads(); // what was there before has been read
    for (int i = 0; i < N; i++) {
        const double sum = ct_lane_sum(x[i]);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32 * N + i] = sum;
    }
    __syncthreads();
    for (int i = 0; i < N; i++) {
        x[i] = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++) x[i] += warps[w * N + i];
    }
}

// ---- Lines ----

// The lines of a block and the team that a thread is in.
struct share {
    int64_t set, first, start; // the first line, and where it begins
    int lines, team, teams, lane, lanes;
};
template <int BLOCKS> CT_DEVICE share share_of(const ct_cuda_channels &a) {
    share s;
    const int rank = (int)(blockIdx.x % BLOCKS), warps = blockDim.x / 32, warp = threadIdx.x / 32;
    s.set = blockIdx.x / BLOCKS;
    s.first = rank * a.block_lines;
    s.lines = (int)max((int64_t)0, min(a.block_lines, a.lines - s.first));
    s.start = s.set * (a.batch ? a.places : a.members * a.places) + s.first * a.line_step;
    s.teams = (int)min((int64_t)warps, a.block_lines);
    const int wide = warps / s.teams;
    s.team = warp / wide;
    s.lane = warp % wide * 32 + (threadIdx.x & 31);
    s.lanes = wide * 32;
    if (s.team >= s.teams) s.lines = 0; // a warp too many
    return s;
}
CT_DEVICE int64_t channel_of(const ct_cuda_channels &a, const share &s, int line) {
    return a.batch ? s.set : s.set % a.groups * a.members + s.first + line;
}

template <typename S, int BLOCKS> CT_DEVICE void forward(const ct_cuda_channels &a, char *memory) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S) };
    typedef ct_neighbors<S, V> pack;
    if (ct_does_nothing(a.head)) return;
    const share s = share_of<BLOCKS>(a);
    const kept<S> k = kept_in<S>(a, memory);
    const int packs = (int)(a.places / V);
    const S *x = (const S *)a.x + s.start;
    pack *mine = (pack *)k.x;

    C sum = 0;
    for (int line = s.team; line < s.lines; line += s.teams) {
        const pack *from = (const pack *)(x + line * a.line_step);
        pack *to = mine + line * packs;
        for (int i = s.lane; i < packs; i += UNROLLED * s.lanes) {
            pack loaded[UNROLLED];
#pragma unroll
            for (int u = 0; u < UNROLLED; u++)
                if (i + u * s.lanes < packs) loaded[u] = from[i + u * s.lanes];
#pragma unroll
            for (int u = 0; u < UNROLLED; u++)
                if (i + u * s.lanes < packs) {
                    C n[V];
                    loaded[u].numbers(n);
                    to[i + u * s.lanes] = loaded[u];
#pragma unroll
                    for (int q = 0; q < V; q++) sum += n[q];
                }
        }
    }
    // The block's own mean, then the deviations from it: what rounding left in that mean shows in their own sum.
    const int64_t lines = max((int64_t)0, min(a.block_lines, a.lines - s.first));
    const double count = (double)lines * (double)a.places;
    double sums[1] = {(double)sum};
    block_sums(k.warps, sums);
    const C middle = count > 0 ? (C)(sums[0] / count) : (C)0;
    C rest = 0, square = 0;
    for (int line = s.team; line < s.lines; line += s.teams)
        for (int i = s.lane; i < packs; i += s.lanes) {
            C n[V];
            mine[line * packs + i].numbers(n);
#pragma unroll
            for (int q = 0; q < V; q++) {
                const C apart = n[q] - middle;
                rest += apart;
                square = ct_fma(apart, apart, square);
            }
        }
    double moments[2] = {(double)rest, (double)square};
    block_sums(k.warps, moments);
    if (threadIdx.x == 0) {
        const double off = count > 0 ? moments[0] / count : 0;
        k.block[0] = (double)middle + off;
        k.block[1] = fmax(moments[1] - off * moments[0], 0.0);
    }
    cluster_wait<BLOCKS>();
    double mean = 0, var = 0;
    for (int b = 0; b < BLOCKS; b++)
        mean += of_block<BLOCKS>(k.block, b) * (double)max((int64_t)0, min(a.block_lines, a.lines - b * a.block_lines));
    mean *= (double)a.places / a.count;
    for (int b = 0; b < BLOCKS; b++) {
        const double apart = of_block<BLOCKS>(k.block, b) - mean;
        const double n = (double)max((int64_t)0, min(a.block_lines, a.lines - b * a.block_lines)) * (double)a.places;
        if (n > 0) var += of_block<BLOCKS>(k.block + 1, b) + apart * apart * n;
    }
    var /= a.count;
    if (BLOCKS > 1) cluster_wait<BLOCKS>(); // nobody reads this block's sums any more, so it may end
    if (blockIdx.x % BLOCKS == 0 && threadIdx.x == 0) {
        ct_vector_set(a.mean, s.set, mean);
        ct_vector_set(a.var, s.set, var);
    }
    if (!a.y) return;
    const double rstd = 1 / sqrt(var + a.eps);
    for (int line = s.team; line < s.lines; line += s.teams) {
        const ct_forward_coefficients<C> by = ct_forward_of<C>(a, mean, rstd, channel_of(a, s, line));
        const int64_t at = s.start + line * a.line_step;
        for (int i = s.lane; i < packs; i += s.lanes) {
            pack result;
            C n[V], other[V];
            mine[line * packs + i].numbers(n);
            if (a.other) ((const pack *)((const S *)a.other + at))[i].numbers(other);
#pragma unroll
            for (int q = 0; q < V; q++) {
                n[q] = ct_fma(n[q] - by.m, by.scale, by.shift);
                if (a.other) n[q] += other[q];
                if (a.relu) n[q] = ct_relu_of(n[q]);
            }
            result.store(n);
            ((pack *)((S *)a.y + at))[i] = result;
        }
    }
}

template <typename S, int BLOCKS> CT_DEVICE void backward(const ct_cuda_channels &a, char *memory) {
    typedef typename ct_number<S>::type C;
    enum { V = 16 / sizeof(S), TOGETHER = UNROLLED / 2 };
    typedef ct_neighbors<S, V> pack;
    if (ct_does_nothing(a.head)) return;
    const share s = share_of<BLOCKS>(a);
    const kept<S> k = kept_in<S>(a, memory);
    const int packs = (int)(a.places / V), wide = s.lanes / 32;
    pack *xs = (pack *)k.x, *gs = (pack *)k.g;
    const C m = (C)ct_vector_at(a.mean, s.set, 0);
    const double rstd = ct_rstd_of(a, s.set);
    const bool recomputes = a.relu && !a.other;

    double all[3] = {0, 0, 0}; // of h, of h (x - m), of x - m
    for (int line = s.team; line < s.lines; line += s.teams) {
        const int64_t at = s.start + line * a.line_step, channel = channel_of(a, s, line);
        const double w = ct_vector_at(a.weight, channel, 1);
        const C scale = (C)(rstd * w), shift = recomputes ? (C)ct_vector_at(a.bias, channel, 0) : (C)0;
        C sum = 0, product = 0, rest = 0;
        for (int i = s.lane; i < packs; i += TOGETHER * s.lanes) {
            pack x[TOGETHER], g[TOGETHER], y[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; u++)
                if (i + u * s.lanes < packs) {
                    x[u] = ((const pack *)((const S *)a.x + at))[i + u * s.lanes];
                    g[u] = ((const pack *)((const S *)a.g + at))[i + u * s.lanes];
                    if (a.other) y[u] = ((const pack *)((const S *)a.other + at))[i + u * s.lanes];
                }
#pragma unroll
            for (int u = 0; u < TOGETHER; u++)
                if (i + u * s.lanes < packs) {
                    const int place = i + u * s.lanes;
                    C xn[V], gn[V], yn[V];
                    x[u].numbers(xn);
                    g[u].numbers(gn);
                    if (a.other) y[u].numbers(yn);
#pragma unroll
                    for (int q = 0; q < V; q++) {
                        const C apart = xn[q] - m;
                        if (a.relu) gn[q] = (a.other ? yn[q] : ct_fma(apart, scale, shift)) <= 0 ? (C)0 : gn[q];
                        sum += gn[q];
                        product = ct_fma(apart, gn[q], product);
                        rest += apart;
                    }
                    if (a.relu) g[u].store(gn);
                    xs[line * packs + place] = x[u];
                    gs[line * packs + place] = g[u];
                    if (a.passed) ((pack *)((S *)a.passed + at))[place] = g[u];
                }
        }
        all[0] += (a.batch ? 1 : w) * (double)sum;
        all[1] += (a.batch ? 1 : w) * (double)product;
        all[2] += (double)rest;
        if (!a.batch) {
            const double g_of_warp = ct_lane_sum((double)sum), product_of_warp = ct_lane_sum((double)product);
            double *to = k.lines + 2 * (line * wide + s.lane / 32);
            if (s.lane % 32 == 0) to[0] = g_of_warp, to[1] = product_of_warp;
        }
    }
    block_sums(k.warps, all);
    if (threadIdx.x == 0)
        for (int i = 0; i < 3; i++) k.block[i] = all[i];
    cluster_wait<BLOCKS>();
    ct_set_sums sums = {0, 0, 0, rstd, 0, 0};
    for (int b = 0; b < BLOCKS; b++) {
        sums.g += of_block<BLOCKS>(k.block, b);
        sums.product += of_block<BLOCKS>(k.block + 1, b);
        sums.rest += of_block<BLOCKS>(k.block + 2, b);
    }
    if (BLOCKS > 1) cluster_wait<BLOCKS>(); // as above
    const double g = sums.g, product = sums.product;
    if (a.batch) { // a channel is a set: weight comes in here
        const double w = ct_vector_at(a.weight, s.set, 1);
        sums.g *= w, sums.product *= w;
    }
    ct_settle_sums(a, s.set, sums);
    const int64_t lines = max((int64_t)0, min(a.block_lines, a.lines - s.first));
    const bool first = blockIdx.x % BLOCKS == 0 && threadIdx.x == 0;
    if (a.batch && first) {
        ct_vector_set(a.dweight, s.set, (product - sums.rest * g) * rstd);
        ct_vector_set(a.dbias, s.set, g);
    }
    if (!a.batch) {
        if (first) a.rest[s.set] = sums.rest, a.rest[a.items * a.groups + s.set] = rstd;
        const int64_t item = s.set / a.groups, everything = a.items * a.channels;
        for (int64_t line = threadIdx.x; line < lines; line += blockDim.x) {
            const int64_t to = item * a.channels + channel_of(a, s, (int)line);
            double g_of_line = 0, product_of_line = 0;
            for (int i = 0; i < wide; i++) {
                g_of_line += k.lines[2 * (line * wide + i)];
                product_of_line += k.lines[2 * (line * wide + i) + 1];
            }
            a.sums[to] = g_of_line;
            a.sums[everything + to] = product_of_line;
        }
    }
    if (!a.y) return;
    for (int64_t line = threadIdx.x; line < lines; line += blockDim.x) {
        const ct_backward_coefficients<C> by = ct_backward_of<C>(a, sums, m, channel_of(a, s, (int)line));
        k.coefficients[4 * line] = by.of_g;
        k.coefficients[4 * line + 1] = by.of_x;
        k.coefficients[4 * line + 2] = by.of_1;
        k.coefficients[4 * line + 3] = by.middle;
    }
    __syncthreads();
    for (int line = s.team; line < s.lines; line += s.teams) {
        const C of_g = k.coefficients[4 * line], of_x = k.coefficients[4 * line + 1], of_1 = k.coefficients[4 * line + 2],
                middle = k.coefficients[4 * line + 3];
        S *to = (S *)a.y + s.start + line * a.line_step;
        for (int i = s.lane; i < packs; i += s.lanes) {
            pack result;
            C xn[V], gn[V];
            xs[line * packs + i].numbers(xn);
            gs[line * packs + i].numbers(gn);
#pragma unroll
            for (int q = 0; q < V; q++) xn[q] = ct_fma(gn[q] - middle, of_g, ct_fma(xn[q] - m, of_x, of_1));
            result.store(xn);
            ((pack *)to)[i] = result;
        }
    }
}

#if __CUDA_ARCH__ >= 900
#define CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define CLUSTER(blocks)
#endif
#define KERNEL(way, blocks, suffix, S)                                                                             \
    extern "C" __global__ void CLUSTER(blocks) __launch_bounds__(CT_CHANNEL_RESIDENT, 2)                             \
        channel_##way##_##blocks##_##suffix(const __grid_constant__ ct_cuda_channels a) {                          \
        extern __shared__ __align__(16) char memory[];                                                             \
        way<S, blocks>(a, memory);                                                                                 \
    }
#define WAYS(blocks, suffix, S)        \
    KERNEL(forward, blocks, suffix, S) \
    KERNEL(backward, blocks, suffix, S)
#define KERNELS(suffix, S) WAYS(1, suffix, S) WAYS(2, suffix, S) WAYS(4, suffix, S) WAYS(8, suffix, S)
KERNELS(f32, float)
KERNELS(f64, double)
KERNELS(f16, __half)
KERNELS(bf16, __nv_bfloat16)
