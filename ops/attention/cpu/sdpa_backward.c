/* Attention backward, as in FlashAttention-2 (Dao, 2023): the scores are computed again, block by block, from lse. A
 * chunk is a range of keys of one head of K and V with all the queries that look at it, so dK and dV are its own; dQ
 * is summed over the ranges in their order.
 *     P = exp(S - lse)   dV = P^T g   dP = g V^T   dS = P (dP - delta)   dQ = scale dS K   dK = scale dS^T Q
 * with delta = sum(g * y) - g_lse in each row; dropout multiplies P in dV, and dP. */
#include "ops/attention/cpu/sdpa_terms.h"

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

/* Query rows whose P and dS are kept for the products over queries, at most. Under a causal mask a lower block leaves more of the
 * second cache to what is prefetched and costs nothing: tiles of keys skip the queries that do not see them. In matrix registers
 * those products run over zeros at the edge, the more the higher the block. */
static int64_t block_rows(const sdpa *s) {
    return s->in_registers ? 4 * SDPA_TILE : (s->causal ? 10 : 20) * CT__TILE_ROWS_MAX;
}

/* What matrix registers want instead of rows: the terms of a tile, and of a block in pairs; K in panels; queries and
 * their cotangents, transposed; and dK and dV, which are summed transposed. */
typedef struct terms {
    char *ds, *k_panels, *q, *g; /* (tile,n) (n,D) (D,rows) (Dv,rows) */
    sdpa_pairs p_pairs, ds_pairs;
    char *dk, *dv; /* (D,n) (Dv,n), SDPA_LD apart */
} terms;

static int64_t pairs_bytes(const sdpa *s) { return CT__TERMS * sdpa_pairs_bytes(s, block_rows(s)); }
static int64_t transposed_ld(const sdpa *s) { return block_rows(s) * 2 + 64; } /* bytes; not a power of two */

static size_t terms_room(const sdpa *s) {
    if (!s->in_registers) return 0;
    return ct__room(CT__TERMS * SDPA_TERM) + ct__room(sdpa_key_panels_bytes(s, s->d)) +
           ct__room(s->d * transposed_ld(s)) + ct__room(s->dv * transposed_ld(s)) + 2 * ct__room(pairs_bytes(s)) +
           ct__room(s->d * SDPA_LD * 4) + ct__room(s->dv * SDPA_LD * 4);
}

static void claim_terms(const sdpa *s, char **at, terms *t) {
    if (!s->in_registers) return;
    t->ds = ct__claim(at, CT__TERMS * SDPA_TERM);
    t->k_panels = ct__claim(at, sdpa_key_panels_bytes(s, s->d));
    t->q = ct__claim(at, s->d * transposed_ld(s)), t->g = ct__claim(at, s->dv * transposed_ld(s));
    t->p_pairs = t->ds_pairs =
        (sdpa_pairs){.panel = ct__panel_bytes(s->inputs, block_rows(s)), .term = sdpa_pairs_bytes(s, block_rows(s))};
    t->p_pairs.at = ct__claim(at, pairs_bytes(s)), t->ds_pairs.at = ct__claim(at, pairs_bytes(s));
    t->dk = ct__claim(at, s->d * SDPA_LD * 4), t->dv = ct__claim(at, s->dv * SDPA_LD * 4);
}

/* Sums of dK or dV of a block of keys; of transposed ones the panels that they become. */
static int64_t sums_bytes(const sdpa *s, int64_t cols) {
    return sdpa_room_keys(s) * (s->in_registers ? ct__round_up(cols, ct__panel_width(s->kernel)) : cols) * s->size;
}

/* Queries or cotangents of a block as the scores read them, where that is not as they are summed. */
static int64_t given_bytes(const sdpa *s, int64_t cols) {
    const int64_t ld = ct__round_up(cols, s->inputs->group);
    return s->inputs == s->kernel ? 0 : block_rows(s) * ld * ct__type_size(s->inputs->packed);
}

static size_t worker_room(const backward *w) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, keys = sdpa_room_keys(s), rows = block_rows(s),
                  tiles = rows * ct__max64(SDPA_LD, s->dv) * size;
    return 2 * ct__room(keys * s->d * size) + ct__room(keys * s->dv * size) + ct__room(sums_bytes(s, s->d)) +
           ct__room(sums_bytes(s, s->dv)) + ct__room(rows * s->d * size) + ct__room(rows * s->dv * size) +
           2 * ct__room(tiles) + ct__room(given_bytes(s, s->d)) + ct__room(given_bytes(s, s->dv)) + terms_room(s);
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
    sdpa_rows k;                             /* (n,D); not where there are terms */
    terms *terms;
    char *k_panels, *v_panels; /* (D,n) (Dv,n) */
    char *dk, *dv;             /* sums, (n,D) (n,Dv) */
    int64_t dk_ld, dv_ld;
} key_block;

typedef struct query_block {
    int64_t h, i0, rows;
    sdpa_rows q, g;             /* (rows,D) (rows,Dv), for the products over queries; not where there are terms */
    sdpa_rows q_given, g_given; /* the same as they are given, for the scores and dP */
    char *dq;                   /* sums */
    int64_t dq_ld;
    char *p, *ds; /* (rows,n), SDPA_LD apart */
    /* The first head that looks at these keys: dK and dV begin with the first block of it that does. Where there are terms, the
     * first block, unless they were zeroed. */
    bool first;
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

/* The first query that sees key j; past the last one: none does. */
static int64_t first_query(const sdpa *s, int64_t j) { return s->causal ? ct__max64(0, j - s->ahead) : 0; }

enum { LISTS = 5 };

/* The share of rows r.. of the block in what comes after it: the next queries; after the last the next keys of the
 * range, or the first of the next chunk with its first queries, since a thread's chunks follow one another. Returns how many
 * lists. */
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
    const bool new_chunk = j >= kb->end;
    if (new_chunk) {
        const int64_t chunk = kb->chunk + 1, pair = chunk / w->ranges;
        if (pair >= s->batch * s->kv_heads) return 0;
        b = pair / s->kv_heads, hk = pair % s->kv_heads, j = chunk % w->ranges * w->range_keys;
    }
    const int64_t n = ct__min64(SDPA_KEYS, s->tk - j), first = n * r / qb->rows,
                  more = n * (r + rows) / qb->rows - first;
    list[0] = sdpa_soon(s->k, b, hk, j + first, more);
    list[1] = sdpa_soon(s->v, b, hk, j + first, more);
    if (!new_chunk || first_query(s, j) > 0) return 2;
    const int64_t n_queries = ct__min64(rows, s->tq - r);
    list[2] = sdpa_soon(s->q, b, hk * s->group, r, n_queries);
    list[3] = sdpa_soon(w->g, b, hk * s->group, r, n_queries);
    list[4] = sdpa_soon(w->y, b, hk * s->group, r, n_queries);
    return 5;
}

/* Rows r.. of P or dS: as terms they are only needed for a tile. */
static char *scores_at(const sdpa *s, char *block, int64_t r) {
    return block + (s->in_registers ? 0 : r * SDPA_LD * s->size);
}

/* P and dS of the tile of queries r.. and the block's first n keys. */
static void scores_of_strip(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows,
                            int64_t n) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, ld = SDPA_LD * size;
    char *p = scores_at(s, qb->p, r), *ds = scores_at(s, qb->ds, r);
    ct__spans soon[LISTS];
    ct__block score = sdpa_scores(s, &qb->q_given, r, kb->k_panels, s->d, p, rows, n);
    score.lists = wanted_next(w, kb, qb, r, rows, soon);
    score.ahead = soon;
    ct__block_multiply(s->inputs, &score);
    const ct__block dp = sdpa_scores(s, &qb->g_given, r, kb->v_panels, s->dv, ds, rows, n);
    if (w->dq || w->dk || w->dmask) ct__block_multiply(s->inputs, &dp);
    else
        for (int64_t i = 0; i < rows; i++) memset(ds + i * ld, 0, (size_t)(n * size));
    if (s->wide) f64_tile(w, kb, qb, r, rows, p, ds, n);
    else f32_tile(w, kb, qb, r, rows, p, ds, n);
    if (w->dmask) put_mask_rows(w, kb, qb, r, rows, ds, n);
}

/* dQ of a tile from its dS. */
static void add_to_dq(const backward *w, const key_block *kb, const query_block *qb, int64_t r, int64_t rows, int64_t n,
                      const char *ds) {
    const sdpa *s = &w->s;
    const bool accumulate = !kb->first; /* a row that sees none of the first keys is zero already */
    char *to = qb->dq + r * qb->dq_ld;
    if (s->in_registers) {
        sdpa_terms_of_rows(ds, rows, n, kb->terms->ds);
        sdpa_over_keys(s, kb->terms->ds, rows, n, kb->terms->k_panels, kb->n, to, qb->dq_ld, s->d, accumulate);
        return;
    }
    const ct__block dq = {.a = ds,
                          .a_row = SDPA_LD * s->size,
                          .a_step = s->size,
                          .b = kb->k.at,
                          .b_step = kb->k.ld,
                          .panel = ct__panel_width(s->kernel) * s->size,
                          .c = to,
                          .c_row = qb->dq_ld,
                          .m = rows,
                          .n = s->d,
                          .k = n,
                          .accumulate = accumulate,
                          .far_c = true};
    ct__block_multiply(s->kernel, &dq);
}

/* dV and dK from P and dS of a block of queries and the first `most` keys. A tile of keys takes the queries from the first on that
 * sees one of them; the block that has it writes the sums, later ones add. */
static void add_to_dk_dv(const backward *w, const key_block *kb, const query_block *qb, int64_t most) {
    const sdpa *s = &w->s;
    const terms *t = kb->terms;
    if (s->in_registers) {
        const int64_t ld = transposed_ld(s);
        if (w->dv) sdpa_over_queries(s, t->g, ld, s->dv, &t->p_pairs, qb->rows, most, t->dv, !qb->first);
        if (w->dk) sdpa_over_queries(s, t->q, ld, s->d, &t->ds_pairs, qb->rows, most, t->dk, !qb->first);
        return;
    }
    ct__block over_queries = {
        .a_row = s->size, .a_step = SDPA_LD * s->size, .panel = ct__panel_width(s->kernel) * s->size};
    const int64_t tile = ct__even_rows(s->kernel, kb->n); /* the same for all blocks of queries */
    for (int64_t j = 0; j < most; j += tile) {
        const int64_t seen_from = first_query(s, kb->j0 + j), r = ct__max64(0, seen_from - qb->i0);
        over_queries.m = ct__min64(tile, kb->n - j);
        over_queries.k = qb->rows - r;
        over_queries.far_c = qb->first && seen_from >= qb->i0;
        over_queries.accumulate = !over_queries.far_c;
        if (w->dv) {
            over_queries.a = qb->p + (r * SDPA_LD + j) * s->size, over_queries.b = qb->g.at + r * qb->g.ld;
            over_queries.b_step = qb->g.ld, over_queries.n = s->dv;
            over_queries.c = kb->dv + j * kb->dv_ld, over_queries.c_row = kb->dv_ld;
            ct__block_multiply(s->kernel, &over_queries);
        }
        if (w->dk) {
            over_queries.a = qb->ds + (r * SDPA_LD + j) * s->size, over_queries.b = qb->q.at + r * qb->q.ld;
            over_queries.b_step = qb->q.ld, over_queries.n = s->d;
            over_queries.c = kb->dk + j * kb->dk_ld, over_queries.c_row = kb->dk_ld;
            ct__block_multiply(s->kernel, &over_queries);
        }
    }
}

static void query_against_keys(const backward *w, const key_block *kb, const query_block *qb) {
    const sdpa *s = &w->s;
    const int64_t size = s->size, ld = SDPA_LD * size, tile = sdpa_tile_rows(s, qb->rows);
    /* What the block's last row sees, and below the same for each tile: the rest of a causal mask is not computed. */
    const int64_t most = ct__min64(kb->n, sdpa_seen(s, qb->i0 + qb->rows - 1) - kb->j0);
    for (int64_t r = 0; r < qb->rows; r += tile) {
        const int64_t rows = ct__min64(tile, qb->rows - r);
        char *p = scores_at(s, qb->p, r), *ds = scores_at(s, qb->ds, r);
        const int64_t n = ct__max64(0, ct__min64(most, sdpa_seen(s, qb->i0 + r + rows - 1) - kb->j0));
        if (n > 0) scores_of_strip(w, kb, qb, r, rows, n);
        if (n > 0 && w->dq) add_to_dq(w, kb, qb, r, rows, n, ds);
        /* A tile of keys reads rows from the first on that sees one of them; terms are of all keys. */
        const int64_t zeros = (s->in_registers ? most : ct__min64(kb->n, n + s->kernel->rows)) - n;
        for (int64_t i = 0; zeros > 0 && i < rows; i++) {
            memset(p + i * ld + n * size, 0, (size_t)(zeros * size));
            memset(ds + i * ld + n * size, 0, (size_t)(zeros * size));
        }
        if (s->in_registers && w->dv) sdpa_terms_in_pairs(s, p, r, rows, most, &kb->terms->p_pairs);
        if (s->in_registers && w->dk) sdpa_terms_in_pairs(s, ds, r, rows, most, &kb->terms->ds_pairs);
    }
    add_to_dk_dv(w, kb, qb, most);
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

/* Sums of a block of keys to their rows of dK or dV, x: rows, or columns where they are transposed, which go through
 * `rows`. */
static void put_sums(const backward *w, const key_block *kb, const ct_view *x, const char *transposed, char *rows) {
    const sdpa *s = &w->s;
    const int64_t cols = x->dims[3], width = s->in_registers ? ct__panel_width(s->kernel) : cols;
    const ct__matrix m = {transposed, CT_GEMM_F32, 1, SDPA_LD};
    if (s->in_registers) ct__gemm_isa->pack_b(s->kernel, &m, rows, kb->n, cols);
    for (int64_t c = 0; c < cols; c += width)
        for (int64_t j = 0; j < kb->n; j++)
            sdpa_put(s, rows + (c * kb->n + j * width) * s->size, 1, x, kb->b, kb->hk, kb->j0 + j, c,
                     ct__min64(width, cols - c));
}

/* A worker's scratch besides what the blocks point at. */
typedef struct scratch {
    char *keys, *queries, *cotangents, *q_given, *g_given, *dk, *dv;
} scratch;

static scratch claim_scratch(const sdpa *s, char *at, key_block *kb, query_block *qb) {
    const int64_t size = s->size, room = sdpa_room_keys(s), rows = block_rows(s);
    scratch c;
    c.keys = ct__claim(&at, room * s->d * size);
    kb->k_panels = ct__claim(&at, room * s->d * size), kb->v_panels = ct__claim(&at, room * s->dv * size);
    c.dk = ct__claim(&at, sums_bytes(s, s->d)), c.dv = ct__claim(&at, sums_bytes(s, s->dv));
    c.queries = ct__claim(&at, rows * s->d * size), c.cotangents = ct__claim(&at, rows * s->dv * size);
    c.q_given = ct__claim(&at, given_bytes(s, s->d)), c.g_given = ct__claim(&at, given_bytes(s, s->dv));
    qb->p = ct__claim(&at, rows * SDPA_LD * size);
    qb->ds = ct__claim(&at, rows * ct__max64(SDPA_LD, s->dv) * size);
    claim_terms(s, &at, kb->terms);
    return c;
}

/* Queries and cotangents of a block in the forms that its products take; with those of the first keys delta. */
static void take_queries(const backward *w, const key_block *kb, query_block *qb, const scratch *c) {
    const sdpa *s = &w->s;
    const terms *t = kb->terms;
    const int64_t b = kb->b, h = qb->h, i0 = qb->i0, rows = qb->rows;
    if (!s->in_registers) qb->q = sdpa_take(s->kernel, s->q, b, h, i0, rows, c->queries);
    if (!s->in_registers || kb->first) qb->g = sdpa_take(s->kernel, w->g, b, h, i0, rows, c->cotangents);
    qb->q_given = qb->q, qb->g_given = qb->g;
    if (s->inputs != s->kernel) {
        qb->q_given = sdpa_take(s->inputs, s->q, b, h, i0, rows, c->q_given);
        qb->g_given = sdpa_take(s->inputs, w->g, b, h, i0, rows, c->g_given);
    }
    if (s->in_registers) {
        const ct__matrix q = sdpa_matrix(s->q, b, h, i0), g = sdpa_matrix(w->g, b, h, i0);
        const ct__matrix columns[] = {{q.data, q.type, q.col, q.row}, {g.data, g.type, g.col, g.row}};
        const int64_t ld = transposed_ld(s) / 2;
        if (w->dk) ct__gemm_isa->pack_a(s->inputs, &columns[0], t->q, ld, 0, s->d, rows);
        if (w->dv) ct__gemm_isa->pack_a(s->inputs, &columns[1], t->g, ld, 0, s->dv, rows);
    }
    if (!kb->first) return; /* a block that sees none of the first keys sees none of the range */
    const sdpa_rows y = sdpa_take(s->kernel, w->y, b, h, i0, rows, qb->ds);
    if (s->wide) f64_delta(w, kb->range, b, h, &qb->g, &y, i0, rows);
    else f32_delta(w, kb->range, b, h, &qb->g, &y, i0, rows);
}

/* A block of keys in the forms that its products take, and where its dK and dV are summed. */
static void take_keys(const backward *w, key_block *kb, const scratch *c, bool zeroed) {
    const sdpa *s = &w->s;
    const int64_t size = s->size;
    if (s->in_registers) sdpa_key_panels(s, s->k, kb->b, kb->hk, kb->j0, kb->n, kb->terms->k_panels);
    else kb->k = sdpa_take(s->kernel, s->k, kb->b, kb->hk, kb->j0, kb->n, c->keys);
    sdpa_panels(s, s->k, kb->b, kb->hk, kb->j0, kb->n, kb->k_panels);
    sdpa_panels(s, s->v, kb->b, kb->hk, kb->j0, kb->n, kb->v_panels);
    kb->dk = sums_of(s, w->dk, kb->b, kb->hk, kb->j0, in_place(s, w->dk) ? NULL : c->dk, &kb->dk_ld);
    kb->dv = sums_of(s, w->dv, kb->b, kb->hk, kb->j0, in_place(s, w->dv) ? NULL : c->dv, &kb->dv_ld);
    if (s->in_registers && zeroed) {
        memset(kb->terms->dk, 0, (size_t)(s->d * SDPA_LD * size));
        memset(kb->terms->dv, 0, (size_t)(s->dv * SDPA_LD * size));
    }
    if (s->in_registers) return;
    int64_t seen = s->group ? kb->n : 0; /* by some query */
    while (seen > 0 && first_query(s, kb->j0 + seen - 1) >= s->tq) seen--;
    if (kb->dk) zero_rows(kb->dk + seen * kb->dk_ld, kb->dk_ld, kb->n - seen, s->d * size);
    if (kb->dv) zero_rows(kb->dv + seen * kb->dv_ld, kb->dv_ld, kb->n - seen, s->dv * size);
}

static void range_chunk(void *ctx, int64_t chunk, int worker) {
    const backward *w = (const backward *)ctx;
    const sdpa *s = &w->s;
    const int64_t range = chunk % w->ranges, pair = chunk / w->ranges, b = pair / s->kv_heads, hk = pair % s->kv_heads,
                  first = range * w->range_keys, end = ct__min64(s->tk, first + w->range_keys);
    terms t = {0};
    key_block kb = {.chunk = chunk, .range = range, .b = b, .hk = hk, .end = end, .terms = &t};
    query_block qb = {0};
    const scratch c = claim_scratch(s, w->workers + (size_t)worker * w->room, &kb, &qb);
    const bool zeroed = s->causal || s->tq * s->group == 0;
    const int64_t rows = ct__ceil_div(s->tq, ct__max64(1, ct__ceil_div(s->tq, block_rows(s))));
    /* Rows that see keys of the range are written by its first block of them. */
    const int64_t unseeing = first >= end ? s->tq : ct__min64(s->tq, first_query(s, first));
    for (int64_t h = hk * s->group; w->dq && h < (hk + 1) * s->group; h++) {
        int64_t ld = 0;
        char *dq = dq_of(w, range, b, h, &ld);
        zero_rows(dq, ld, unseeing, s->d * s->size);
    }
    sdpa_enter(s);
    for (kb.j0 = first; kb.j0 < end; kb.j0 += SDPA_KEYS) {
        kb.n = ct__min64(SDPA_KEYS, end - kb.j0);
        kb.first = kb.j0 == first;
        take_keys(w, &kb, &c, zeroed);
        for (int64_t h = hk * s->group; h < (hk + 1) * s->group; h++) {
            int64_t ld = 0;
            char *dq = dq_of(w, range, b, h, &ld);
            for (int64_t i0 = 0; i0 < s->tq; i0 += rows) {
                qb.h = h, qb.i0 = i0, qb.rows = ct__min64(rows, s->tq - i0);
                if (sdpa_seen(s, i0 + qb.rows - 1) <= kb.j0) continue;
                qb.dq = dq ? dq + i0 * ld : NULL, qb.dq_ld = ld;
                take_queries(w, &kb, &qb, &c);
                const int64_t part = ((h - hk * s->group) * s->tq + i0) / rows;
                qb.first = s->in_registers ? !zeroed && part == 0 : h == hk * s->group;
                query_against_keys(w, &kb, &qb);
            }
        }
        if (w->dk && !in_place(s, w->dk)) put_sums(w, &kb, w->dk, t.dk, c.dk);
        if (w->dv && !in_place(s, w->dv)) put_sums(w, &kb, w->dv, t.dv, c.dv);
    }
    sdpa_leave(s);
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
