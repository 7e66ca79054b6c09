// Attention forward and backward for heads of up to 128 halves by products of warpgroups, for compute capability 9.0: the kernels of forward.cu
// and backward.cu with the same parts in registers, and B of every product in tiles that the hardware reads. Without a mask or dropout.
#include "backends/cuda/wgmma.cuh"
#include "ops/attention/cuda/tiles.cuh"

// Three stages, so that the products of one step may run on into the next. A head of D = 128 columns takes two tiles of 64 columns, one behind
// the other: a block.
enum { STAGES = 3, STEP = CT_SDPA_STEP, ROWS = CT_SDPA_ROWS, TILE = 64 * 64, N = STEP / 8, HALF = STEP / 2 };
template <int D> CT_DEVICE constexpr int block_of() { return D / 64 * TILE; }              // 64 rows
template <int D> CT_DEVICE constexpr int stage_rows() { return D > 64 ? STEP : 2 * STEP; } // between two barriers

// Rows of a head on their way into tiles of 64, each time the next ones; what lies outside is zero. A thread copies 16 bytes of every 32nd row.
template <typename S, int D> struct source {
    const S *at;
    int row, rows; // the next one of this thread, and all there are
    int columns;
    CT_DEVICE source(const ct_cuda_heads &x, const S *head, int first, int count, int width)
        : at(head + (first + (int)threadIdx.x / 8) * x.strides[2] + threadIdx.x % 8 * 8), row(first + threadIdx.x / 8),
          rows(count), columns(width - (int)threadIdx.x % 8 * 8) {}
    CT_DEVICE void take(S *block, const ct_cuda_heads &x) {
        S *const to = block + ct_wgmma_place(threadIdx.x / 8, threadIdx.x % 8 * 8);
#pragma unroll
        for (int c = 0; c < D; c += 64) {
            ct_async_copy<16>(to + c * 64, at + c, c < columns && row < rows);
            ct_async_copy<16>(to + c * 64 + 32 * 64, at + c + 32 * x.strides[2], c < columns && row + 32 < rows);
        }
        at += 64 * x.strides[2];
        row += 64;
    }
    // Those of a stage.
    CT_DEVICE void take_stage(S *blocks, const ct_cuda_heads &x) {
#pragma unroll
        for (int r = 0; r < stage_rows<D>(); r += 64) take(blocks + r / 64 * block_of<D>(), x);
    }
};

// All that was taken is there, for threads and for products.
CT_DEVICE void meet() {
    ct_async_wait();
    ct_wgmma_show();
    __syncthreads();
}

// The 16 rows of this warp, in two blocks of 64, as first operands.
template <typename S, int K> CT_DEVICE void take_operands(uint32_t (&a)[K][4], const S *blocks) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const S *const block = blocks + warp / 4 * block_of<16 * K>();
#pragma unroll
    for (int k = 0; k < K; k++)
        ct_load_matrices(a[k],
                         block + k / 4 * TILE + ct_wgmma_place(warp % 4 * 16 + lane % 16, k % 4 * 16 + lane / 16 * 8));
}

// What a step of 16 columns adds to the description of a block.
CT_DEVICE constexpr int column_step(int k) { return k / 4 * (TILE * 2 >> 4) + k % 4 * CT_WGMMA_COLUMNS; }

// s = a x^T, for as many rows of x as s has columns.
template <typename S, int M, int K>
CT_DEVICE void multiply_rows(float (&s)[M][4], const uint32_t (&a)[K][4], const S *x) {
    const uint64_t block = ct_wgmma_tile(x);
    ct_wgmma<S, true>::begin(s, a[0], block);
#pragma unroll
    for (int k = 1; k < K; k++) ct_wgmma<S, true>::add(s, a[k], block + column_step(k));
}
// The same with the 64 rows of a in shared memory.
template <typename S, int K, int M> CT_DEVICE void multiply_blocks(float (&s)[M][4], const S *a, const S *x) {
    const uint64_t rows = ct_wgmma_tile(a), block = ct_wgmma_tile(x);
    ct_wgmma<S, true>::begin(s, rows, block);
#pragma unroll
    for (int k = 1; k < K; k++) ct_wgmma<S, true>::add(s, rows + column_step(k), block + column_step(k));
}
// sum += a x, a being K steps of 16 rows of x.
template <typename S, int C, int K>
CT_DEVICE void multiply_columns(float (&sum)[C][4], const uint32_t (&a)[K][4], const S *x) {
#pragma unroll
    for (int c = 0; c < C; c += 8) {
        const uint64_t tile = ct_wgmma_tile(x + c / 8 * TILE);
#pragma unroll
        for (int k = 0; k < K; k++) ct_wgmma<S, false>::add(*(float(*)[8][4]) & sum[c], a[k], tile + k * CT_WGMMA_ROWS);
    }
}

template <typename S, int M> CT_DEVICE void to_operands(uint32_t (&a)[M / 2][4], const float (&s)[M][4]) {
#pragma unroll
    for (int k = 0; k < M / 2; k++) ct_sums_to_operand<S>(a[k], s[2 * k], s[2 * k + 1]);
}

CT_DEVICE float of_four(float x, bool highest) {
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, d);
        x = highest ? fmaxf(x, other) : x + other;
    }
    return x;
}

template <typename T, T V> struct ct_constant { static constexpr T value = V; };

CT_DEVICE int next(int stage) { return stage + 1 == STAGES ? 0 : stage + 1; }

// Dynamic shared memory begins at a multiple of 16 bytes; tiles at one of 1024.
CT_DEVICE char *first_tile(char *shared) {
    return shared + (1024 - (uint32_t)__cvta_generic_to_shared(shared) % 1024) % 1024;
}

// ---- Forward ----

template <typename S, int D> __device__ void forward(const ct_cuda_sdpa &p) {
    extern __shared__ __align__(16) char shared[];
    constexpr int BLOCK = block_of<D>(), LONG = stage_rows<D>(),
                  STAGE = LONG / 64 * BLOCK;   // of keys, and as many values
    S *const buffer = (S *)first_tile(shared); // two tiles of queries, then stages of keys and values, then the result
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = first + 16 * warp, my_row = row + lane / 4;
    const int last = first + ROWS < p.tq ? first + ROWS : p.tq, end = ct_sdpa_seen(p, last - 1);
    const int most = ct_sdpa_seen(p, first); // keys that all rows see
    const float factor = (float)(p.scale * CT_LOG2E);

    uint32_t q[D / 16][4];
    source<S, D> query(p.q, ct_sdpa_head<S>(p.q, b, h), first, p.tq, p.d);
    query.take(buffer, p.q);
    query.take(buffer + BLOCK, p.q);
    meet();
    take_operands(q, buffer);
    __syncthreads();
    source<S, D> keys(p.k, ct_sdpa_head<S>(p.k, b, h / p.group), 0, p.tk, p.d),
        values(p.v, ct_sdpa_head<S>(p.v, b, h / p.group), 0, p.tk, p.d_v);
    auto take = [&](int stage) {
        keys.take_stage(buffer + 2 * stage * STAGE, p.k);
        values.take_stage(buffer + (2 * stage + 1) * STAGE, p.v);
    };
    float o[D / 8][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    uint32_t a[N / 2][4];
    ct_clear(o);
    if (end > 0) take(0);
    int j0 = 0, stage = 0;
    // A block of keys; EDGE: some of them are not seen by some of the rows.
    auto part = [&](auto edge_of, const S *key, const S *value) {
        constexpr bool EDGE = decltype(edge_of)::value;
        float s[N][4];
        ct_wgmma_begin();
        multiply_rows(s, q, key);
        ct_wgmma_end();
        ct_wgmma_wait<0>(); // the last step's product with V has ended too
        ct_wgmma_hold(s);
        ct_wgmma_hold(o);
        if (EDGE) {
            const int seen[2] = {ct_sdpa_seen(p, my_row), ct_sdpa_seen(p, my_row + 8)};
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (j0 + 8 * n + lane % 4 * 2 + e % 2 >= seen[e / 2]) s[n][e] = -INFINITY;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float now = top[r];
#pragma unroll
            for (int n = 0; n < N; n++) now = fmaxf(now, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
            now = of_four(now, true);
            const float level = now == -INFINITY ? 0 : now * factor, down = ct_fast_exp2(fmaf(top[r], factor, -level));
            top[r] = now;
            sum[r] *= down;
#pragma unroll
            for (int n = 0; n < D / 8; n++) o[n][2 * r] *= down, o[n][2 * r + 1] *= down;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    s[n][e] = ct_fast_exp2(fmaf(s[n][e], factor, -level));
                    sum[r] += s[n][e];
                }
        }
        to_operands<S>(a, s);
        ct_wgmma_hold(a);
        ct_wgmma_hold(o);
        ct_wgmma_begin();
        multiply_columns(o, a, value);
        ct_wgmma_end();
        if (EDGE) {
            ct_wgmma_wait<0>();
            ct_wgmma_hold(o);
        }
        j0 += STEP;
    };
    auto step = [&](auto edge_of) {
        const S *key = buffer + 2 * stage * STAGE;
        meet(); // these have come, and nobody reads the next stage any more
        stage = next(stage);
        if (j0 + LONG < end) take(stage);
#pragma unroll 1
        for (int r = 0; r < LONG; r += STEP, key += BLOCK) part(edge_of, key, key + STAGE);
    };
#pragma unroll 1
    while (j0 + LONG <= most) step(ct_constant<bool, false>());
    ct_wgmma_wait<0>();
    ct_wgmma_hold(o);
#pragma unroll 1
    while (j0 < end) step(ct_constant<bool, true>());
    __syncthreads(); // the result takes the place of keys and values
    float share[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float total = of_four(sum[r], false);
        share[r] = total == 0 ? 0 : 1 / total;
        const int i = my_row + 8 * r;
        if (p.lse.data && lane % 4 == 0 && i < p.tq)
            ct_sdpa_head<float>(p.lse, b, h)[i * p.lse.strides[2]] =
                total == 0 ? (float)INFINITY : fmaf(top[r] * factor, (float)CT_LN2, logf(total));
    }
    ct_put_rows<S, D>(p.y, ct_sdpa_head<S>(p.y, b, h), buffer + 16 * warp * ct_row<D>(), o, share[0], share[1], row,
                      p.tq, p.d_v);
}

// ---- dK and dV ----

// Of heads of 64 columns a warp keeps its keys and values in registers; those of 128 stay in shared memory, and half as many queries are taken at a
// time, since dK and dV fill the registers.
template <typename S, int D> __device__ void keys_backward(const ct_cuda_sdpa &p) {
    constexpr int BLOCK = block_of<D>(), LONG = stage_rows<D>(), STAGE = LONG / 64 * BLOCK;
    constexpr int AT_ONCE = D > 64 ? HALF : STEP, M = AT_ONCE / 8;
    constexpr bool STAYS = D > 64;
    extern __shared__ __align__(16) char shared[];
    S *const kept = (S *)first_tile(shared);                        // two blocks of keys and two of values
    S *const buffer = STAYS ? kept + 4 * BLOCK : kept;              // stages of queries and g
    float2 *const levels = (float2 *)(buffer + STAGES * 2 * STAGE); // as many of lse and delta
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.kv_heads, p.blocks, false);
    const int64_t b = place.b;
    const int hk = place.h, first = place.block * ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = first + 16 * warp; // of keys
    // The first query that sees any of these keys, at a multiple of a stage's.
    const int64_t earliest = p.causal && first > p.ahead ? first - p.ahead : 0;
    const int begin = earliest < p.tq ? (int)(earliest / LONG * LONG) : p.tq;
    const float scale = (float)(p.scale * CT_LOG2E);

    source<S, D> key(p.k, ct_sdpa_head<S>(p.k, b, hk), first, p.tk, p.d),
        value(p.v, ct_sdpa_head<S>(p.v, b, hk), first, p.tk, p.d_v);
    key.take(kept, p.k);
    key.take(kept + BLOCK, p.k);
    value.take(kept + 2 * BLOCK, p.v);
    value.take(kept + 3 * BLOCK, p.v);
    meet();
    uint32_t k[STAYS ? 1 : D / 16][4], v[STAYS ? 1 : D / 16][4];
    const S *const my_keys = kept + warp / 4 * BLOCK, *const my_values = my_keys + 2 * BLOCK;
    if constexpr (!STAYS) {
        take_operands(k, kept);
        take_operands(v, kept + 2 * BLOCK);
    }
    __syncthreads();
    float dk[D / 8][4], dv[D / 8][4];
    uint32_t a[M / 2][4], da[M / 2][4];
    ct_clear(dk);
    ct_clear(dv);
    int stage = 0;
#pragma unroll 1
    for (int h = hk * p.group; h < (hk + 1) * p.group; h++) {
        source<S, D> queries(p.q, ct_sdpa_head<S>(p.q, b, h), begin, p.tq, p.d),
            cotangents(p.g, ct_sdpa_head<S>(p.g, b, h), begin, p.tq, p.d_v);
        const float2 *level_of = (const float2 *)p.rows + (b * p.heads + h) * p.tq + begin + threadIdx.x;
        auto take = [&](int i0, int to) {
            queries.take_stage(buffer + 2 * to * STAGE, p.q);
            cotangents.take_stage(buffer + (2 * to + 1) * STAGE, p.g);
            if (threadIdx.x < LONG)
                ct_async_copy<8>(levels + to * LONG + threadIdx.x, level_of, i0 + (int)threadIdx.x < p.tq);
            level_of += LONG;
        };
        // Queries i0.. of a stage; EDGE: some of the keys are not seen by some of them.
        auto part = [&](auto edge_of, int i0, const S *query, const S *cotangent, const float4 *level) {
            constexpr bool EDGE = decltype(edge_of)::value;
            float s[M][4], ds[M][4];
            ct_wgmma_begin();
            if constexpr (STAYS) multiply_blocks<S, D / 16>(s, my_keys, query);
            else multiply_rows(s, k, query);
            ct_wgmma_end();
            if constexpr (STAYS) multiply_blocks<S, D / 16>(ds, my_values, cotangent);
            else multiply_rows(ds, v, cotangent);
            ct_wgmma_end();
            ct_wgmma_wait<1>(); // s is there, and the products before have ended
            ct_wgmma_hold(s);
            ct_wgmma_hold(dk);
            ct_wgmma_hold(dv);
#pragma unroll
            for (int n = 0; n < M; n++) {
                const float4 l = level[4 * n];
#pragma unroll
                for (int e = 0; e < 4; e++) s[n][e] = ct_fast_exp2(fmaf(s[n][e], scale, -(e % 2 ? l.z : l.x)));
            }
            if (EDGE) {
                // key row + lane / 4 + e / 2 * 8 comes after the last one that query i0 + 8 n + lane % 4 * 2 + e % 2 sees
                const int64_t far = i0 + p.ahead + lane % 4 * 2 - row - lane / 4;
                const int limit = far > 2 * STEP ? 2 * STEP : far < -2 * ROWS ? -2 * ROWS : (int)far;
#pragma unroll
                for (int n = 0; n < M; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (e / 2 * 8 - 8 * n - e % 2 > limit) s[n][e] = 0;
            }
            to_operands<S>(a, s);
            ct_wgmma_wait<0>(); // and ds
            ct_wgmma_hold(ds);
            ct_wgmma_hold(a);
            ct_wgmma_begin();
            multiply_columns(dv, a, cotangent);
            ct_wgmma_end();
#pragma unroll
            for (int n = 0; n < M; n++) {
                const float4 l = level[4 * n];
#pragma unroll
                for (int e = 0; e < 4; e++) ds[n][e] = s[n][e] * (ds[n][e] - (e % 2 ? l.w : l.y));
            }
            to_operands<S>(da, ds);
            ct_wgmma_hold(da);
            ct_wgmma_begin();
            multiply_columns(dk, da, query);
            ct_wgmma_end();
        };
        int i0 = begin;
        auto step = [&](auto edge_of) {
            const S *query =
                buffer + 2 * stage * STAGE; // AT_ONCE rows of a tile, which for a stage of several blocks is all of it
            const float4 *level = (const float4 *)(levels + stage * LONG + lane % 4 * 2);
            meet();
            stage = next(stage);
            if (i0 + LONG < p.tq) take(i0 + LONG, stage);
#pragma unroll 1
            for (int r = 0; r < LONG; r += AT_ONCE, query += AT_ONCE * 64, level += AT_ONCE / 2)
                part(edge_of, i0 + r, query, query + STAGE, level);
            i0 += LONG;
        };
        ct_wgmma_wait<0>();
        __syncthreads(); // nobody reads what is left of another head
        if (begin < p.tq) take(begin, stage);
#pragma unroll 1
        while (i0 < p.tq && p.causal && first + ROWS - 1 > i0 + p.ahead) step(ct_constant<bool, true>());
#pragma unroll 1
        while (i0 < p.tq) step(ct_constant<bool, false>());
    }
    ct_wgmma_wait<0>();
    ct_wgmma_hold(dk);
    ct_wgmma_hold(dv);
    ct_async_wait();
    __syncthreads(); // the results take the place of queries
    S *const mine = buffer + 16 * warp * ct_row<D>();
    const float out = (float)p.scale;
    if (p.dk.data) ct_put_rows<S, D>(p.dk, ct_sdpa_head<S>(p.dk, b, hk), mine, dk, out, out, row, p.tk, p.d);
    if (p.dv.data) ct_put_rows<S, D>(p.dv, ct_sdpa_head<S>(p.dv, b, hk), mine, dv, 1, 1, row, p.tk, p.d_v);
}

// ---- dQ ----

// lse and delta = sum(g y) - g_lse of two rows, for this kernel and, in p.rows, for that of the keys.
template <typename S, int K>
CT_DEVICE void make_levels(const ct_cuda_sdpa &p, int64_t b, int h, int my_row, const uint32_t (&g)[K][4],
                           const S *results, float (&lse)[2], float (&delta)[2]) {
    uint32_t y[K][4];
    take_operands(y, results);
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 u = ct_unpair<S>(g[k][e]), v = ct_unpair<S>(y[k][e]);
            delta[e % 2] = fmaf(u.x, v.x, fmaf(u.y, v.y, delta[e % 2]));
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = my_row + 8 * r;
        delta[r] = of_four(delta[r], false);
        if (i >= p.tq) continue;
        lse[r] = ct_sdpa_head<float>(p.lse, b, h)[i * p.lse.strides[2]] * (float)CT_LOG2E;
        if (p.g_lse.data) delta[r] -= ct_sdpa_head<float>(p.g_lse, b, h)[i * p.g_lse.strides[2]];
        if (threadIdx.x % 4 == 0) ((float2 *)p.rows)[(b * p.heads + h) * p.tq + i] = make_float2(lse[r], delta[r]);
    }
}

template <typename S, int D> __device__ void queries_backward(const ct_cuda_sdpa &p) {
    extern __shared__ __align__(16) char shared[];
    constexpr int BLOCK = block_of<D>(), LONG = stage_rows<D>(),
                  STAGE = LONG / 64 * BLOCK;   // of keys, and as many values
    S *const buffer = (S *)first_tile(shared); // queries and g, then stages of keys and values, then the result
    if (ct_does_nothing(p.head)) return;
    const ct_sdpa_place place = ct_sdpa_find(blockIdx.x, p.batch, p.heads, p.blocks, true);
    const int64_t b = place.b;
    const int h = place.h, first = place.block * ROWS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = first + 16 * warp, my_row = row + lane / 4;
    const int last = first + ROWS < p.tq ? first + ROWS : p.tq, end = ct_sdpa_seen(p, last - 1);
    const int most = ct_sdpa_seen(p, first); // keys that all rows see
    const float scale = (float)(p.scale * CT_LOG2E);

    uint32_t q[D / 16][4], g[D / 16][4];
    source<S, D> query(p.q, ct_sdpa_head<S>(p.q, b, h), first, p.tq, p.d),
        cotangent(p.g, ct_sdpa_head<S>(p.g, b, h), first, p.tq, p.d_v),
        result(p.y, ct_sdpa_head<S>(p.y, b, h), first, p.tq, p.d_v);
    query.take(buffer, p.q);
    query.take(buffer + BLOCK, p.q);
    cotangent.take(buffer + 2 * BLOCK, p.g);
    cotangent.take(buffer + 3 * BLOCK, p.g);
    result.take(buffer + 4 * BLOCK, p.y);
    result.take(buffer + 5 * BLOCK, p.y);
    meet();
    take_operands(q, buffer);
    take_operands(g, buffer + 2 * BLOCK);
    float lse[2] = {0, 0}, delta[2] = {0, 0};
    make_levels(p, b, h, my_row, g, buffer + 4 * BLOCK, lse, delta);
    __syncthreads();
    source<S, D> keys(p.k, ct_sdpa_head<S>(p.k, b, h / p.group), 0, p.tk, p.d),
        values(p.v, ct_sdpa_head<S>(p.v, b, h / p.group), 0, p.tk, p.d_v);
    auto take = [&](int stage) {
        keys.take_stage(buffer + 2 * stage * STAGE, p.k);
        values.take_stage(buffer + (2 * stage + 1) * STAGE, p.v);
    };
    float dq[D / 8][4];
    ct_clear(dq);
    if (end > 0) take(0);
    int j0 = 0, stage = 0;
    auto step = [&](auto edge_of) {
        constexpr bool EDGE = decltype(edge_of)::value;
        const S *key = buffer + 2 * stage * STAGE;
        meet();
        stage = next(stage);
        if (j0 + LONG < end) take(stage);
#pragma unroll 1
        for (int part = 0; part < LONG;
             part += HALF, key += HALF * 64) { // for a stage of several blocks they are tiles
            float s[HALF / 8][4], ds[HALF / 8][4];
            ct_wgmma_begin();
            multiply_rows(s, q, key);
            ct_wgmma_end();
            multiply_rows(ds, g, key + STAGE);
            ct_wgmma_end();
            ct_wgmma_wait<1>();
            ct_wgmma_hold(s);
#pragma unroll
            for (int n = 0; n < HALF / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[n][e] = ct_fast_exp2(fmaf(s[n][e], scale, -lse[e / 2]));
            if (EDGE) {
                const int seen[2] = {ct_sdpa_seen(p, my_row), ct_sdpa_seen(p, my_row + 8)};
#pragma unroll
                for (int n = 0; n < HALF / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (j0 + part + 8 * n + lane % 4 * 2 + e % 2 >= seen[e / 2]) s[n][e] = 0;
            }
            ct_wgmma_wait<0>();
            ct_wgmma_hold(ds);
#pragma unroll
            for (int n = 0; n < HALF / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) ds[n][e] = s[n][e] * (ds[n][e] - delta[e / 2]);
            uint32_t a[HALF / 16][4];
            to_operands<S>(a, ds);
            ct_wgmma_hold(a);
            ct_wgmma_hold(dq);
            ct_wgmma_begin();
            multiply_columns(dq, a, key);
            ct_wgmma_end();
            ct_wgmma_wait<0>();
            ct_wgmma_hold(dq);
        }
        j0 += LONG;
    };
#pragma unroll 1
    while (j0 + LONG <= most) step(ct_constant<bool, false>());
#pragma unroll 1
    while (j0 < end) step(ct_constant<bool, true>());
    __syncthreads();
    const float out = (float)p.scale;
    ct_put_rows<S, D>(p.dq, ct_sdpa_head<S>(p.dq, b, h), buffer + 16 * warp * ct_row<D>(), dq, out, out, row, p.tq,
                      p.d);
}

#define KERNELS(name, S, D, BLOCKS)                                       \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) \
        sdpa_hopper_forward_##name##_##D(const ct_cuda_sdpa p) {          \
        forward<S, D>(p);                                                 \
    }                                                                     \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, 1)      \
        sdpa_hopper_keys_##name##_##D(const ct_cuda_sdpa p) {             \
        keys_backward<S, D>(p);                                           \
    }                                                                     \
    extern "C" __global__ void __launch_bounds__(CT_SDPA_THREADS, BLOCKS) \
        sdpa_hopper_queries_##name##_##D(const ct_cuda_sdpa p) {          \
        queries_backward<S, D>(p);                                        \
    }
KERNELS(f16, __half, 64, 2)
KERNELS(f16, __half, 128, 1)
KERNELS(bf16, __nv_bfloat16, 64, 2)
KERNELS(bf16, __nv_bfloat16, 128, 1)
