// Attention without Tensor Cores, forward and backward, for every float, any head size and any strides: the same sums as forward.cu and
// backward.cu by tiles of 64 x 64 with 4 x 4 sums per thread. A block makes 64 columns of its result; where a head has more, others
// compute the same scores for the rest. And lse and delta of each row, for both ways.
#include "ops/attention/cuda/sdpa.cuh"

enum { TILE = CT_SDPA_TILE, DEPTH = CT_SDPA_DEPTH, EACH = 4, APART = TILE / EACH };

// What one load takes from shared memory, neighbors along k.
template <typename C> struct __align__(16) pack {
    static constexpr int SIZE = 16 / sizeof(C);
    C of[SIZE];
};

template <typename C> struct memory {
    C a[TILE][DEPTH + pack<C>::SIZE],
        b[TILE][DEPTH + pack<C>::SIZE]; // (i,k) and (j,k); packs of eight rows lie in different banks
    C scores[TILE][TILE + 1];
};

CT_DEVICE int row_of(int r) { return threadIdx.x / APART + r * APART; }
CT_DEVICE int column_of(int c) { return threadIdx.x % APART + c * APART; }

template <typename C> CT_DEVICE void clear(C (&x)[EACH][EACH]) {
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) x[r][c] = 0;
}

// sum(i, j) += a(i, k) b(k, j) over n. Neighbors along k lie next to each other in a, and in b where ALONG.
template <bool ALONG, typename C, typename A, typename B>
CT_DEVICE void multiply(C (&sum)[EACH][EACH], memory<C> &m, int n, A a, B b) {
#pragma unroll 1
    for (int k0 = 0; k0 < n; k0 += DEPTH) {
        __syncthreads();
#pragma unroll 4
        for (int x = 0; x < TILE * DEPTH / CT_SDPA_THREADS; x++) {
            const int e = threadIdx.x + x * CT_SDPA_THREADS, k = e % DEPTH, i = e / DEPTH;
            m.a[i][k] = k0 + k < n ? a(i, k0 + k) : C(0);
            const int bk = ALONG ? k : e / TILE, j = ALONG ? i : e % TILE;
            m.b[j][bk] = k0 + bk < n ? b(k0 + bk, j) : C(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k += pack<C>::SIZE) {
            pack<C> x[EACH], y[EACH];
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                x[r] = *(const pack<C> *)&m.a[row_of(r)][k];
                y[r] = *(const pack<C> *)&m.b[column_of(r)][k];
            }
#pragma unroll
            for (int e = 0; e < pack<C>::SIZE; e++)
#pragma unroll
                for (int r = 0; r < EACH; r++)
#pragma unroll
                    for (int c = 0; c < EACH; c++) sum[r][c] = ct_fma(x[r].of[e], y[c].of[e], sum[r][c]);
        }
    }
}

// Element (i, c) of a head, 0 outside.
template <typename S, typename C> struct matrix {
    const S *data;
    int64_t row, column;
    int rows, columns;
    CT_DEVICE matrix(const ct_cuda_heads &x, int64_t b, int64_t h, int n, int m)
        : data(ct_sdpa_head<S>(x, b, h)), row(x.strides[2]), column(x.strides[3]), rows(n), columns(m) {}
    CT_DEVICE C operator()(int i, int c) const {
        return i < rows && c < columns ? ct_load<C>(data[i * row + c * column]) : C(0);
    }
};

template <typename S, typename C>
CT_DEVICE void put(const ct_cuda_heads &x, int64_t b, int64_t h, int i, int c, int rows, int columns, C value) {
    if (i < rows && c < columns) ct_sdpa_head<S>(x, b, h)[i * x.strides[2] + c * x.strides[3]] = ct_store<S>(value);
}

// The score of (i, j) from its product; -inf where the key takes no part.
template <typename S, typename C> CT_DEVICE C score(const ct_cuda_sdpa &p, C product, int64_t b, int h, int i, int j) {
    if (i >= p.tq || j >= ct_sdpa_seen(p, i)) return -(C)INFINITY;
    const C s = product * (C)p.scale;
    return p.mask_kind ? s + ct_sdpa_mask<S, C>(p, b, h, i, j) : s;
}

template <typename C> CT_DEVICE C other_lane(C x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }

template <typename S, typename C> __device__ void forward(const ct_cuda_sdpa &p) {
    extern __shared__ __align__(16) char shared[];
    memory<C> &m = *(memory<C> *)shared;
    if (ct_does_nothing(p.head)) return;
    const int chunks = p.d_v > TILE ? (p.d_v + TILE - 1) / TILE : 1, chunk = blockIdx.x % chunks;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x / chunks, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * TILE, last = first + TILE < p.tq ? first + TILE : p.tq;
    const matrix<S, C> q(p.q, b, h, p.tq, p.d), key(p.k, b, h / p.group, p.tk, p.d),
        value(p.v, b, h / p.group, p.tk, p.d_v);
    const ct_position position = ct_sdpa_position(p);
    C o[EACH][EACH], top[EACH], sum[EACH];
    clear(o);
#pragma unroll
    for (int r = 0; r < EACH; r++) top[r] = -(C)INFINITY, sum[r] = 0;
    const int end = ct_sdpa_seen(p, last - 1);
#pragma unroll 1
    for (int j0 = 0; j0 < end; j0 += TILE) {
        C s[EACH][EACH];
        clear(s);
        multiply<true>(
            s, m, p.d, [&](int i, int k) { return q(first + i, k); }, [&](int k, int j) { return key(j0 + j, k); });
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            const int i = first + row_of(r);
            C now = top[r];
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                s[r][c] = score<S, C>(p, s[r][c], b, h, i, j0 + column_of(c));
                now = ct_fmax(now, s[r][c]);
            }
#pragma unroll
            for (int d = 1; d < APART; d *= 2) now = ct_fmax(now, other_lane(now, d));
            const C level = now == -(C)INFINITY ? 0 : now, down = ct_exp(top[r] - level);
            top[r] = now;
            sum[r] *= down;
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                const C e = ct_exp(s[r][c] - level);
                sum[r] += e;
                o[r][c] *= down;
                m.scores[row_of(r)][column_of(c)] =
                    p.drops ? e * ct_sdpa_factor<C>(p, position, b, h, i, j0 + column_of(c)) : e;
            }
        }
        multiply<false>(
            o, m, TILE, [&](int i, int k) { return m.scores[i][k]; },
            [&](int k, int j) { return value(j0 + k, chunk * TILE + j); });
    }
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int i = first + row_of(r);
#pragma unroll
        for (int d = 1; d < APART; d *= 2) sum[r] += other_lane(sum[r], d);
        const C share = sum[r] == 0 ? 0 : 1 / sum[r];
#pragma unroll
        for (int c = 0; c < EACH; c++)
            put<S, C>(p.y, b, h, i, chunk * TILE + column_of(c), p.tq, p.d_v, o[r][c] * share);
        if (p.lse.data && chunk == 0 && threadIdx.x % APART == 0 && i < p.tq)
            ct_sdpa_head<C>(p.lse, b, h)[i * p.lse.strides[2]] = sum[r] == 0 ? (C)INFINITY : top[r] + ct_log(sum[r]);
    }
}

// ---- Backward ----

// Of each row lse, in the unit of the exponentials, and delta = sum(g y) - g_lse. A warp per row.
template <typename S, typename C> __device__ void rows(const ct_cuda_sdpa &p) {
    if (ct_does_nothing(p.head)) return;
    const int64_t all = p.batch * p.heads * p.tq;
    const int lane = threadIdx.x % 32;
    for (int64_t row = ct_first() / 32; row < all; row += ct_step() / 32) {
        const int64_t i = row % p.tq, h = row / p.tq % p.heads, b = row / p.tq / p.heads;
        const S *const y = ct_sdpa_head<S>(p.y, b, h) + i * p.y.strides[2], *const g = ct_sdpa_head<S>(p.g, b, h) +
                                                                                       i * p.g.strides[2];
        C sum = 0;
        for (int c = lane; c < p.d_v; c += 32)
            sum = ct_fma(ct_load<C>(y[c * p.y.strides[3]]), ct_load<C>(g[c * p.g.strides[3]]), sum);
        for (int d = 16; d > 0; d /= 2) sum += other_lane(sum, d);
        if (lane != 0) continue;
        auto number = [&](const ct_cuda_heads &x, bool narrow) {
            const int64_t at = b * x.strides[0] + h * x.strides[1] + i * x.strides[2];
            return narrow ? ct_load<C>(((const S *)x.data)[at]) : ((const C *)x.data)[at];
        };
        if (p.g_lse.data) sum -= number(p.g_lse, p.g_lse_narrow);
        ((C *)p.rows)[2 * row] = number(p.lse, p.lse_narrow) * (C)p.unit;
        ((C *)p.rows)[2 * row + 1] = sum;
    }
}

// P and dP of queries i0.. and keys j0.. become P with dropout, and dS.
template <typename S, typename C>
CT_DEVICE void gradients(const ct_cuda_sdpa &p, memory<C> &m, const ct_position &position, int64_t b, int h, int i0,
                         int j0, C (&s)[EACH][EACH], C (&ds)[EACH][EACH]) {
    const matrix<S, C> q(p.q, b, h, p.tq, p.d), g(p.g, b, h, p.tq, p.d_v), key(p.k, b, h / p.group, p.tk, p.d),
        value(p.v, b, h / p.group, p.tk, p.d_v);
    clear(s);
    clear(ds);
    multiply<true>(
        s, m, p.d, [&](int i, int k) { return q(i0 + i, k); }, [&](int k, int j) { return key(j0 + j, k); });
    multiply<true>(
        ds, m, p.d_v, [&](int i, int k) { return g(i0 + i, k); }, [&](int k, int j) { return value(j0 + j, k); });
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int i = i0 + row_of(r);
        const C *const level = (const C *)p.rows + 2 * ((b * p.heads + h) * p.tq + (i < p.tq ? i : 0));
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const int j = j0 + column_of(c);
            const bool there = i < p.tq && j < ct_sdpa_seen(p, i);
            const C w = there ? ct_exp(score<S, C>(p, s[r][c], b, h, i, j) - level[0]) : C(0);
            const C kept = p.drops && there ? ct_sdpa_factor<C>(p, position, b, h, i, j) : C(1);
            ds[r][c] = there ? w * (ds[r][c] * kept - level[1]) : C(0);
            s[r][c] = w * kept;
        }
    }
}

template <typename C> CT_DEVICE void keep(memory<C> &m, const C (&x)[EACH][EACH]) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) m.scores[row_of(r)][column_of(c)] = x[r][c];
}

template <typename S, typename C> __device__ void queries_backward(const ct_cuda_sdpa &p) {
    extern __shared__ __align__(16) char shared[];
    memory<C> &m = *(memory<C> *)shared;
    if (ct_does_nothing(p.head)) return;
    const int chunks = p.d > TILE ? (p.d + TILE - 1) / TILE : 1, chunk = blockIdx.x % chunks;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x / chunks, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * TILE, last = first + TILE < p.tq ? first + TILE : p.tq;
    const bool mask = p.dmask.data && chunk == 0; // its gradient is written everywhere
    const matrix<S, C> key(p.k, b, h / p.group, p.tk, p.d);
    const ct_position position = ct_sdpa_position(p);
    C dq[EACH][EACH];
    clear(dq);
    const int end = mask ? p.tk : ct_sdpa_seen(p, last - 1);
#pragma unroll 1
    for (int j0 = 0; j0 < end; j0 += TILE) {
        C s[EACH][EACH], ds[EACH][EACH];
        gradients<S, C>(p, m, position, b, h, first, j0, s, ds);
        if (mask) {
#pragma unroll
            for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    put<S, C>(p.dmask, b, h, first + row_of(r), j0 + column_of(c), p.tq, p.tk, ds[r][c]);
        }
        keep(m, ds);
        multiply<false>(
            dq, m, TILE, [&](int i, int k) { return m.scores[i][k]; },
            [&](int k, int j) { return key(j0 + k, chunk * TILE + j); });
    }
    if (!p.dq.data) return;
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            put<S, C>(p.dq, b, h, first + row_of(r), chunk * TILE + column_of(c), p.tq, p.d, dq[r][c] * (C)p.scale);
}

template <typename S, typename C> __device__ void keys_backward(const ct_cuda_sdpa &p) {
    extern __shared__ __align__(16) char shared[];
    memory<C> &m = *(memory<C> *)shared;
    if (ct_does_nothing(p.head)) return;
    const int widest = p.d > p.d_v ? p.d : p.d_v, chunks = widest > TILE ? (widest + TILE - 1) / TILE : 1,
              chunk = blockIdx.x % chunks;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x / chunks, p.batch, p.kv_heads, p.blocks, false);
    const int64_t b = place.b, earliest = p.causal && place.block * (int64_t)TILE > p.ahead
                                              ? place.block * (int64_t)TILE - p.ahead
                                              : 0;
    const int hk = place.h, first = place.block * TILE, begin = earliest < p.tq ? (int)(earliest / TILE * TILE) : p.tq;
    const ct_position position = ct_sdpa_position(p);
    C dk[EACH][EACH], dv[EACH][EACH];
    clear(dk);
    clear(dv);
#pragma unroll 1
    for (int h = hk * p.group; h < (hk + 1) * p.group; h++) {
        const matrix<S, C> q(p.q, b, h, p.tq, p.d), g(p.g, b, h, p.tq, p.d_v);
#pragma unroll 1
        for (int i0 = begin; i0 < p.tq; i0 += TILE) {
            C s[EACH][EACH], ds[EACH][EACH];
            gradients<S, C>(p, m, position, b, h, i0, first, s, ds);
            keep(m, s);
            multiply<false>(
                dv, m, TILE, [&](int j, int k) { return m.scores[k][j]; },
                [&](int k, int c) { return g(i0 + k, chunk * TILE + c); });
            keep(m, ds);
            multiply<false>(
                dk, m, TILE, [&](int j, int k) { return m.scores[k][j]; },
                [&](int k, int c) { return q(i0 + k, chunk * TILE + c); });
        }
    }
#pragma unroll
    for (int r = 0; r < EACH; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const int j = first + row_of(r), column = chunk * TILE + column_of(c);
            if (p.dk.data) put<S, C>(p.dk, b, hk, j, column, p.tk, p.d, dk[r][c] * (C)p.scale);
            if (p.dv.data) put<S, C>(p.dv, b, hk, j, column, p.tk, p.d_v, dv[r][c]);
        }
}

#define KERNEL(what, name, S, C, BLOCKS)                                  \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) \
        sdpa_plain_##what##_##name(const ct_cuda_sdpa p) {                \
        what<S, C>(p);                                                    \
    }
#define KERNELS(name, S, C, BLOCKS)              \
    KERNEL(forward, name, S, C, BLOCKS)          \
    KERNEL(rows, name, S, C, BLOCKS)             \
    KERNEL(queries_backward, name, S, C, BLOCKS) \
    KERNEL(keys_backward, name, S, C, BLOCKS)
KERNELS(f32, float, float, 2)
KERNELS(f64, double, double, 1)
KERNELS(f16, __half, float, 2)
KERNELS(bf16, __nv_bfloat16, float, 2)
