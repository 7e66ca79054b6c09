/* Attention backward, as in FlashAttention-2 (Dao, 2023): the scores are computed again, block by block, from lse. A
 * chunk is a range of keys of one head of K and V with all the queries that look at it, so dK and dV are its own; dQ
 * is summed over the ranges in their order.
 *     P = exp(S - lse)   dV = P^T g   dP = g V^T   dS = P (dP - delta)   dQ = scale dS K   dK = scale dS^T Q
 * with delta = sum(g * y) - g_lse in each row; dropout multiplies P in dV, and dP. */
#include "ops/attention/cpu/sdpa.h"

enum {
    RANGE_KEYS = 2 * SDPA_KEYS, /* shortest range of keys worth a chunk of its own */
    CHUNKS = 8,                 /* ranges are made until there are that many chunks */
};

typedef struct backward {
    sdpa s;
    const ct_view *y, *lse, *g, *g_lse;  /* (B,H,Tq,Dv) (B,H,Tq) (B,H,Tq,Dv) (B,H,Tq) or NULL */
    const ct_view *dq, *dk, *dv, *dmask; /* NULL: not wanted */
    int64_t ranges, range_keys;
    bool dq_in_place; /* dQ is summed where the result lies */
    int64_t row_bytes, sum_bytes;
    char *dq_sums;          /* (ranges,B,H,Tq,D) */
    char *delta, *lse_rows; /* (ranges,B,H,Tq) */
    char *workers;
    size_t room;
} backward;

/* Whether sums may lie where the result does. */
static bool in_place(const sdpa *s, const ct_view *x) {
    return x && x->dtype == (s->wide ? CT_F64 : CT_F32) && (x->strides[3] == 1 || x->dims[3] <= 1);
}

static void cut_ranges(backward *w) {
    const sdpa *s = &w->s;
    const int64_t pairs = ct__max64(1, s->batch * s->kv_heads), normal = ct__ceil_div(CHUNKS, pairs),
                  most = ct__max64(1, s->tk / ct__min64(RANGE_KEYS, ct__grain(RANGE_KEYS) * 64));
    const int64_t count = ct__min64(normal, most);
    w->range_keys = ct__max64(1, ct__round_up(ct__ceil_div(s->tk, count), 32));
    w->ranges = ct__max64(1, ct__ceil_div(s->tk, w->range_keys));
    w->dq_in_place = w->ranges == 1 && in_place(s, w->dq);
}

/* Query rows whose P and dS are kept for the products over queries, at most. Under a causal mask those products run over zeros
 * at the edge, the more the higher the block. */
static int64_t block_rows(const sdpa *s) { return (s->causal ? 10 : 20) * SDPA_TILE; }

static size_t worker_room(const backward *w) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, keys = sdpa_room_keys(s), rows = block_rows(s),
                  tiles = rows * ct__max64(SDPA_LD, s->dv) * size;
    return 3 * ct__room(keys * s->d * size) + 3 * ct__room(keys * s->dv * size) + ct__room(rows * s->d * size) +
           ct__room(rows * s->dv * size) + 2 * ct__room(tiles);
}

/* ---- delta ---- */

enum { CHAINS = 4 };
#if SIMD_HAS_FMA
static inline float f32_chain(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double f64_chain(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline float f32_chain(float a, float b, float c) { return a * b + c; }
static inline double f64_chain(double a, double b, double c) { return a * b + c; }
#endif
#define R f32
#define T float
#include "ops/attention/cpu/sdpa_delta.h"
#define R f64
#define T double
#include "ops/attention/cpu/sdpa_delta.h"

/* ---- A block of queries against a block of keys ---- */

typedef struct key_block {
    int64_t chunk, range, b, hk, j0, n, end; /* end: of the range */
    bool first;                              /* of its range */
    sdpa_rows k;                             /* (n,D) */
    char *k_panels, *v_panels;               /* (D,n) (Dv,n) */
    char *dk, *dv;                           /* sums, (n,D) (n,Dv) */
    int64_t dk_ld, dv_ld;
} key_block;

typedef struct query_block {
    int64_t h, i0, rows;
    sdpa_rows q, g; /* (rows,D) (rows,Dv) */
    char *dq;       /* sums */
    int64_t dq_ld;
    char *p, *ds; /* (rows,n), SDPA_LD apart */
    bool first;   /* that looks at these keys: dK and dV begin with it, unless they were zeroed */
} query_block;

/* The additive mask's gradient is dS before the scale. */
static void put_mask_rows(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows,
                          char *ds, int64_t n) {
    const sdpa *s = &w->s;
    for (int64_t i = 0; i < rows; i++) {
        void *row = ds + i * SDPA_LD * s->size;
        sdpa_put(s, row, 1, w->dmask, kb->b, qb->h, qb->i0 + r + i, kb->j0, n);
        if (s->wide)
            for (int64_t j = 0; j < n; j++) ((double *)row)[j] *= s->scale;
        else
            for (int64_t j = 0; j < n; j++) ((float *)row)[j] *= (float)s->scale;
    }
}

#define GRAD_TILE(R, T)                                                                                                \
    static void R##_tile(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows,       \
                         char *p, char *ds, int64_t n) {                                                               \
        const sdpa *s = &w->s;                                                                                         \
        const int64_t at = ((kb->range * s->batch + kb->b) * s->heads + qb->h) * s->tq + qb->i0 + r;                   \
        R##_prepare(s, kb->b, qb->h, qb->i0 + r, rows, kb->j0, n, (T *)(void *)p);                                     \
        const int64_t lanes = (int64_t)(sizeof(v##R) / sizeof(T)), whole = (n + lanes - 1) / lanes * lanes;            \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int64_t j = n; j < whole; j++) ((T *)(void *)ds)[i * SDPA_LD + j] = 0;                                \
        R##_softmax_grad(s, kb->b, qb->h, qb->i0 + r, rows, kb->j0, n, (T *)(void *)p, (T *)(void *)ds, R##_factor(s), \
                         (const T *)(const void *)w->lse_rows + at, (const T *)(const void *)w->delta + at,            \
                         w->dmask ? 1 : (T)s->scale);                                                                  \
    }
GRAD_TILE(f32, float)
GRAD_TILE(f64, double)

enum { LISTS = 3 };

/* The share of rows r.. of the block in what comes after it: the next queries; after the last the next keys of the
 * range, or the first of the next chunk, since a thread's chunks follow one another. Returns how many lists. */
static int64_t wanted_next(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows,
                           ct__spans *list) {
    const sdpa *s = &w->s;
    const int64_t next = qb->i0 + qb->rows;
    if (next < s->tq) {
        const int64_t n = ct__min64(rows, s->tq - next - r);
        list[0] = sdpa_soon(s->q, kb->b, qb->h, next + r, n);
        list[1] = sdpa_soon(w->g, kb->b, qb->h, next + r, n);
        if (kb->first) list[2] = sdpa_soon(w->y, kb->b, qb->h, next + r, n);
        return kb->first ? 3 : 2;
    }
    int64_t b = kb->b, hk = kb->hk, j = kb->j0 + kb->n;
    if (j >= kb->end) {
        const int64_t chunk = kb->chunk + 1, pair = chunk / w->ranges;
        if (pair >= s->batch * s->kv_heads) return 0;
        b = pair / s->kv_heads, hk = pair % s->kv_heads, j = chunk % w->ranges * w->range_keys;
    }
    const int64_t n = ct__min64(SDPA_KEYS, s->tk - j), first = n * r / qb->rows,
                  more = n * (r + rows) / qb->rows - first;
    list[0] = sdpa_soon(s->k, b, hk, j + first, more);
    list[1] = sdpa_soon(s->v, b, hk, j + first, more);
    return 2;
}

/* P and dS of the tile of queries r.. and the block's first n keys. */
static void scores_of_strip(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows,
                            int64_t n) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, width = ct__panel_width(s->kernel), ld = SDPA_LD * size;
    char *p = qb->p + r * ld, *ds = qb->ds + r * ld;
    ct__spans soon[LISTS];
    const int64_t lists = wanted_next(w, kb, qb, r, rows, soon);
    const ct__block score = {.a = qb->q.at + r * qb->q.ld,
                             .a_row = qb->q.ld,
                             .a_step = size,
                             .b = kb->k_panels,
                             .b_step = width * size,
                             .panel = width * size * s->d,
                             .c = p,
                             .c_row = ld,
                             .m = rows,
                             .n = n,
                             .k = s->d,
                             .ahead = soon,
                             .lists = lists};
    ct__block_multiply(s->kernel, &score);
    const ct__block dp = {.a = qb->g.at + r * qb->g.ld,
                          .a_row = qb->g.ld,
                          .a_step = size,
                          .b = kb->v_panels,
                          .b_step = width * size,
                          .panel = width * size * s->dv,
                          .c = ds,
                          .c_row = ld,
                          .m = rows,
                          .n = n,
                          .k = s->dv};
    if (w->dq || w->dk || w->dmask) ct__block_multiply(s->kernel, &dp);
    else
        for (int64_t i = 0; i < rows; i++) memset(ds + i * ld, 0, (size_t)(n * size));
    if (s->wide) f64_tile(w, kb, qb, r, rows, p, ds, n);
    else f32_tile(w, kb, qb, r, rows, p, ds, n);
    if (w->dmask) put_mask_rows(w, kb, qb, r, rows, ds, n);
}

static void query_against_keys(const backward *w, const key_block *kb, const query_block *qb) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, width = ct__panel_width(s->kernel), ld = SDPA_LD * size,
                  tile = ct__ceil_div(qb->rows, ct__ceil_div(qb->rows, s->tile));
    /* What the block's last row sees, and below the same for each tile: the rest of a causal mask is not computed. */
    const int64_t most = ct__min64(kb->n, sdpa_seen(s, qb->i0 + qb->rows - 1) - kb->j0);
    for (int64_t r = 0; r < qb->rows; r += tile) {
        const int64_t rows = ct__min64(tile, qb->rows - r);
        char *p = qb->p + r * ld, *ds = qb->ds + r * ld;
        const int64_t n = ct__max64(0, ct__min64(most, sdpa_seen(s, qb->i0 + r + rows - 1) - kb->j0));
        for (int64_t i = 0; n < most && i < rows; i++) {
            memset(p + i * ld + n * size, 0, (size_t)((most - n) * size));
            memset(ds + i * ld + n * size, 0, (size_t)((most - n) * size));
        }
        if (n == 0) continue;
        scores_of_strip(w, kb, qb, r, rows, n);
        if (!w->dq) continue;
        const ct__block dq = {.a = ds,
                              .a_row = ld,
                              .a_step = size,
                              .b = kb->k.at,
                              .b_step = kb->k.ld,
                              .panel = width * size,
                              .c = qb->dq + r * qb->dq_ld,
                              .c_row = qb->dq_ld,
                              .m = rows,
                              .n = s->d,
                              .k = n,
                              .accumulate = s->causal || !kb->first,
                              .far_c = true};
        ct__block_multiply(s->kernel, &dq);
    }
    ct__block over_queries = {.a_row = size,
                              .a_step = ld,
                              .panel = width * size,
                              .m = most,
                              .k = qb->rows,
                              .accumulate = !qb->first,
                              .far_c = qb->first};
    if (w->dv) {
        over_queries.a = qb->p, over_queries.b = qb->g.at, over_queries.b_step = qb->g.ld;
        over_queries.c = kb->dv, over_queries.c_row = kb->dv_ld, over_queries.n = s->dv;
        ct__block_multiply(s->kernel, &over_queries);
    }
    if (w->dk) {
        over_queries.a = qb->ds, over_queries.b = qb->q.at, over_queries.b_step = qb->q.ld;
        over_queries.c = kb->dk, over_queries.c_row = kb->dk_ld, over_queries.n = s->d;
        ct__block_multiply(s->kernel, &over_queries);
    }
}

/* ---- A range of keys ---- */

/* Rows from r on of a head of a result, in place, or else `otherwise`, dense; NULL: not wanted. */
static char *sums_of(const sdpa *s, const ct_view *x, int64_t b, int64_t h, int64_t r, char *otherwise, int64_t *ld) {
    if (!x) return NULL;
    *ld = (otherwise ? x->dims[3] : x->strides[2]) * s->size;
    return otherwise ? otherwise : (char *)(uintptr_t)sdpa_matrix(x, b, h, r).data;
}

/* Where dQ of a head is summed in this range. */
static char *dq_of(const backward *w, int64_t range, int64_t b, int64_t h, int64_t *ld) {
    const sdpa *s = &w->s;
    const int64_t head = (range * s->batch + b) * s->heads + h;
    return sums_of(s, w->dq, b, h, 0, w->dq_in_place ? NULL : w->dq_sums + head * s->tq * s->d * s->size, ld);
}

static void zero_rows(char *rows, int64_t ld, int64_t n, int64_t bytes) {
    for (int64_t i = 0; rows && i < n; i++) memset(rows + i * ld, 0, (size_t)bytes);
}

static void range_chunk(void *ctx, int64_t chunk, int worker) {
    const backward *w = (const backward *)ctx;
    const sdpa *s = &w->s;
    const int64_t size = s->size, range = chunk % w->ranges, pair = chunk / w->ranges, b = pair / s->kv_heads,
                  hk = pair % s->kv_heads, first = range * w->range_keys, end = ct__min64(s->tk, first + w->range_keys);
    char *at = w->workers + (size_t)worker * w->room;
    const int64_t room = sdpa_room_keys(s);
    char *keys = ct__claim(&at, room * s->d * size);
    key_block kb = {.chunk = chunk, .range = range, .b = b, .hk = hk, .end = end};
    kb.k_panels = ct__claim(&at, room * s->d * size), kb.v_panels = ct__claim(&at, room * s->dv * size);
    char *dk = ct__claim(&at, room * s->d * size), *dv = ct__claim(&at, room * s->dv * size);
    const bool dk_in_place = in_place(s, w->dk), dv_in_place = in_place(s, w->dv),
               zeroed = s->causal || s->tq * s->group == 0;
    query_block qb = {0};
    const int64_t most = block_rows(s), rows = ct__ceil_div(s->tq, ct__max64(1, ct__ceil_div(s->tq, most)));
    char *queries = ct__claim(&at, most * s->d * size), *cotangents = ct__claim(&at, most * s->dv * size);
    qb.p = ct__claim(&at, most * SDPA_LD * size);
    qb.ds = ct__claim(&at, most * ct__max64(SDPA_LD, s->dv) * size);
    /* Without a causal mask every row is written by the range's first block of keys. */
    for (int64_t h = hk * s->group; w->dq && (s->causal || first >= end) && h < (hk + 1) * s->group; h++) {
        int64_t ld = 0;
        char *dq = dq_of(w, range, b, h, &ld);
        zero_rows(dq, ld, s->tq, s->d * size);
    }
    for (kb.j0 = first; kb.j0 < end; kb.j0 += SDPA_KEYS) {
        kb.n = ct__min64(SDPA_KEYS, end - kb.j0);
        kb.first = kb.j0 == first;
        kb.k = sdpa_take(s, s->k, b, hk, kb.j0, kb.n, keys);
        sdpa_panels(s, s->k, b, hk, kb.j0, kb.n, kb.k_panels);
        sdpa_panels(s, s->v, b, hk, kb.j0, kb.n, kb.v_panels);
        kb.dk = sums_of(s, w->dk, b, hk, kb.j0, dk_in_place ? NULL : dk, &kb.dk_ld);
        kb.dv = sums_of(s, w->dv, b, hk, kb.j0, dv_in_place ? NULL : dv, &kb.dv_ld);
        if (zeroed) zero_rows(kb.dk, kb.dk_ld, kb.n, s->d * size), zero_rows(kb.dv, kb.dv_ld, kb.n, s->dv * size);
        for (int64_t h = hk * s->group; h < (hk + 1) * s->group; h++) {
            int64_t ld = 0;
            char *dq = dq_of(w, range, b, h, &ld);
            for (int64_t i0 = 0; i0 < s->tq; i0 += rows) {
                qb.h = h, qb.i0 = i0, qb.rows = ct__min64(rows, s->tq - i0);
                if (sdpa_seen(s, i0 + qb.rows - 1) <= kb.j0) continue;
                qb.q = sdpa_take(s, s->q, b, h, i0, qb.rows, queries);
                qb.g = sdpa_take(s, w->g, b, h, i0, qb.rows, cotangents);
                qb.dq = dq ? dq + i0 * ld : NULL, qb.dq_ld = ld;
                if (kb.j0 == first) { /* a block that sees none of the first keys sees none of the range */
                    const sdpa_rows y = sdpa_take(s, w->y, b, h, i0, qb.rows, qb.ds);
                    if (s->wide) f64_delta(w, range, b, h, &qb.g, &y, i0, qb.rows);
                    else f32_delta(w, range, b, h, &qb.g, &y, i0, qb.rows);
                }
                const int64_t part = ((h - hk * s->group) * s->tq + i0) / rows;
                qb.first = !zeroed && part == 0;
                query_against_keys(w, &kb, &qb);
            }
        }
        for (int64_t j = 0; j < kb.n; j++) {
            if (w->dk && !dk_in_place) sdpa_put(s, dk + j * s->d * size, 1, w->dk, b, hk, kb.j0 + j, 0, s->d);
            if (w->dv && !dv_in_place) sdpa_put(s, dv + j * s->dv * size, 1, w->dv, b, hk, kb.j0 + j, 0, s->dv);
        }
    }
}

/* dQ of a head: the ranges' sums, added in their order. */
static void dq_chunk(void *ctx, int64_t head, int worker) {
    const backward *w = (const backward *)ctx;
    const sdpa *s = &w->s;
    const int64_t b = head / s->heads, h = head % s->heads, count = s->tq * s->d;
    int64_t ld = 0;
    (void)worker;
    char *sum = dq_of(w, 0, b, h, &ld);
    for (int64_t range = 1; range < w->ranges; range++) {
        const char *more = dq_of(w, range, b, h, &ld);
        if (s->wide)
            for (int64_t i = 0; i < count; i++) ((double *)(void *)sum)[i] += ((const double *)(const void *)more)[i];
        else
            for (int64_t i = 0; i < count; i++) ((float *)(void *)sum)[i] += ((const float *)(const void *)more)[i];
    }
    for (int64_t i = 0; i < s->tq; i++) sdpa_put(s, sum + i * ld, 1, w->dq, b, h, i, 0, s->d);
}

/* Elements of dmask that no block visits. */
static void mask_chunk(void *ctx, int64_t head, int worker) {
    const backward *w = (const backward *)ctx;
    const sdpa *s = &w->s;
    static const double zeros[64];
    (void)worker;
    for (int64_t i = 0; i < s->tq; i++)
        for (int64_t j = 0; j < s->tk; j += 64)
            sdpa_put(s, zeros, 1, w->dmask, head / s->heads, head % s->heads, i, j, ct__min64(64, s->tk - j));
}

/* ---- The call ---- */

/* views: room for those of y, g and the gradients. */
static backward backward_of(const ct_call *call, ct_view views[5]) {
    const sdpa_grad_attrs *a = call->attrs;
    backward w = {.s = sdpa_problem(call->in[0], call->in[1], call->in[2], call->in[3], call->in[4], a->scale,
                                    a->causal, a->bottom_right, a->dropout),
                  .y = sdpa_heads_first(call->in[5], a->rows_first, &views[3]),
                  .lse = call->in[6],
                  .g = sdpa_heads_first(call->in[7], a->rows_first, &views[4]),
                  .g_lse = call->in[8]};
    const ct_view **wanted[] = {&w.dq, &w.dk, &w.dv, &w.dmask};
    const ct_view *outputs[4] = {NULL};
    for (int i = 0; i < call->n_out; i++) outputs[i] = call->out[i];
    ct_view parts[3];
    for (int i = 0; a->together && i < 3; i++) {
        sdpa_part(call->out[0], i == 0 ? 0 : w.s.heads + (i - 1) * w.s.kv_heads, i == 0 ? w.s.heads : w.s.kv_heads,
                  &parts[i]);
        outputs[i] = &parts[i];
    }
    for (int i = 0; i < 4; i++)
        *wanted[i] = i < 3 ? sdpa_heads_first(outputs[i], a->rows_first, &views[i]) : outputs[i];
    cut_ranges(&w);
    w.room = worker_room(&w);
    w.row_bytes = w.s.batch * w.s.heads * w.s.tq * w.s.size;
    w.sum_bytes = w.dq && !w.dq_in_place ? w.ranges * w.row_bytes * w.s.d : 0;
    return w;
}

static size_t backward_scratch(const ct_call *call) {
    ct_view views[5];
    const backward w = backward_of(call, views);
    return ct__near_scratch(2 * ct__room(w.ranges * w.row_bytes) + ct__room(w.sum_bytes) +
                            w.room * (size_t)ct__threads());
}

static bool backward_run(const ct_call *call, ct_stream *stream) {
    ct_view views[5];
    backward w = backward_of(call, views);
    const int64_t heads = w.s.batch * w.s.heads;
    char *at = ct__scratch(call);
    (void)stream;
    sdpa_start(&w.s, call->in[4]);
    w.delta = ct__claim(&at, w.ranges * w.row_bytes);
    w.lse_rows = ct__claim(&at, w.ranges * w.row_bytes);
    w.dq_sums = ct__claim(&at, w.sum_bytes);
    w.workers = at;
    if (w.dmask && w.s.causal) ct__parallel(heads, mask_chunk, &w);
    if (w.s.batch * w.s.kv_heads > 0) ct__parallel(w.s.batch * w.s.kv_heads * w.ranges, range_chunk, &w);
    if (w.dq && !w.dq_in_place && heads > 0) ct__parallel(heads, dq_chunk, &w);
    return true;
}

CT_KERNELS(attention_sdpa_backward) = {
    CT_CANDIDATES(sdpa_grad, {"sdpa_grad_streaming", NULL, backward_scratch, backward_run}),
    {0},
};
