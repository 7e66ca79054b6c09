/* Rows of scores: masks, the streaming softmax, its gradient. One text for f32 and f64; sdpa.h includes it twice.
 * A tile is a few rows of at most SDPA_KEYS scores, SDPA_LD apart, filled up to whole vectors. */

/* mask[j0 + j] of one row as numbers to add. */
static inline void ROWS(mask_row)(const sdpa *s, int64_t at, int64_t n, ROWS_T *to) {
    const ct_view *m = s->mask;
    const int64_t step = m->strides[3];
    if (m->dtype == CT_BOOL) {
        const uint8_t *x = CT_AT(const uint8_t, m) + at;
        if (step == 1)
            for (int64_t j = 0; j < n; j++) to[j] = x[j] ? 0 : (ROWS_T)-INFINITY;
        else
            for (int64_t j = 0; j < n; j++) to[j] = x[j * step] ? 0 : (ROWS_T)-INFINITY;
    } else if (m->dtype == CT_F32) {
        const float *x = CT_AT(const float, m) + at;
        if (step == 1)
            for (int64_t j = 0; j < n; j++) to[j] = (ROWS_T)x[j];
        else
            for (int64_t j = 0; j < n; j++) to[j] = (ROWS_T)x[j * step];
    } else if (m->dtype == CT_F64) {
        const double *x = CT_AT(const double, m) + at;
        for (int64_t j = 0; j < n; j++) to[j] = (ROWS_T)x[j * step];
    } else {
        for (int64_t j = 0; j < n; j++) to[j] = (ROWS_T)sdpa_number(m, at + j * step);
    }
}

/* Whether prepare scales the scores, so that no factor is left; else it is positive and the same for every block. */
static inline bool ROWS(scales)(const sdpa *s) { return s->mask || !(s->scale > 0); }
static inline ROWS_T ROWS(factor)(const sdpa *s) { return ROWS(scales)(s) ? 1 : (ROWS_T)s->scale; }

/* Adds the mask to the scores of rows i0.. and keys j0.., where there is one; what takes no part, and the rest of the last
 * vector, becomes -inf. */
static inline void ROWS(prepare)(const sdpa *s, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t n,
                                 ROWS_T *tile) {
    const int64_t whole = (n + ROWS_LANES - 1) / ROWS_LANES * ROWS_LANES;
    if (ROWS(scales)(s)) {
        const ROWS_T scale = (ROWS_T)s->scale;
        ROWS_T add[SDPA_KEYS] = {0};
        for (int64_t r = 0; r < rows; r++) {
            ROWS_T *x = tile + r * SDPA_LD;
            if (s->mask) {
                const int64_t *st = s->mask->strides;
                ROWS(mask_row)(s, b * st[0] + h * st[1] + (i0 + r) * st[2] + j0 * st[3], n, add);
            }
            for (int64_t j = 0; j < n; j++) x[j] = x[j] * scale + add[j];
        }
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = ct__max64(0, ct__min64(n, sdpa_seen(s, i0 + r) - j0)); j < whole; j++)
            tile[r * SDPA_LD + j] = (ROWS_T)-INFINITY;
}

/* What dropout multiplies row i by: 0 or 1/(1-p). Element (b,h,i,j) takes the word of its own number. */
static inline void ROWS(kept)(const sdpa *s, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, ROWS_T *to) {
    uint32_t words[SDPA_KEYS + 4 + PHILOX_BATCH];
    const uint64_t first = (uint64_t)((b * s->heads + h) * s->tq + i) * (uint64_t)s->tk + (uint64_t)j0,
                   aligned = first & ~(uint64_t)3;
    const int skip = (int)(first - aligned);
    const ROWS_T keep = (ROWS_T)(s->dropout < 1 ? 1 / (1 - s->dropout) : 0);
    CT_ISA_FN(ct__philox_fill)(s->random, aligned, (int)n + skip, words);
    for (int64_t j = 0; j < n; j++) to[j] = words[j + skip] >= s->threshold ? keep : 0;
}

/* The state of the streaming softmax of a row: the greatest score so far, without the factor, and the sum of
 * exp(factor * (score - greatest)). The difference is taken first: the greatest counts exactly 1. */
typedef struct ROWS(state) {
    ROWS_T top, sum;
} ROWS(state);

/* The greatest lane, without branches; a NaN may be overlooked, since its exponential shows it anyway. */
static inline ROWS_T ROWS(highest)(ROWS_VEC v) {
    ROWS_T lane[ROWS_LANES];
    ROWS_V(store)(lane, v);
#pragma GCC unroll 4
    for (int width = ROWS_LANES / 2; width; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; i++) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
    return lane[0];
}

/* Turns scores into exp(factor * (score - top)) and brings the states up to date; rows of o (dv) that were summed under a
 * lower top are scaled down. */
static inline void ROWS(softmax)(ROWS_T *tile, int64_t rows, int64_t n, ROWS_T factor, ROWS(state) * states, ROWS_T *o,
                                 int64_t dv) {
    const ROWS_VEC f = ROWS_V(set1)(factor * ROWS_UNIT);
    ROWS_T highest[SDPA_TILE]; /* of all rows first: one row's greatest would be waited for */
    for (int64_t r = 0; r < rows; r++) {
        const ROWS_T *x = tile + r * SDPA_LD;
        ROWS_VEC a = ROWS_V(load)(x), c = a;
        int64_t j = ROWS_LANES;
        for (; j + ROWS_LANES < n; j += 2 * ROWS_LANES) {
            a = ROWS_V(maxb)(ROWS_V(load)(x + j), a);
            c = ROWS_V(maxb)(ROWS_V(load)(x + j + ROWS_LANES), c);
        }
        if (j < n) a = ROWS_V(maxb)(ROWS_V(load)(x + j), a);
        highest[r] = ROWS(highest)(ROWS_V(maxb)(a, c));
    }
    for (int64_t r = 0; r < rows; r++, tile += SDPA_LD, o += dv) {
        const ROWS_T before = states[r].top,
                     top = highest[r] > before || highest[r] != highest[r] ? highest[r] : before;
        int64_t j;
        if (top == (ROWS_T)-INFINITY) { /* nothing takes part yet */
            for (j = 0; j < n; j += ROWS_LANES) ROWS_V(store)(tile + j, ROWS_V(zero)());
            continue;
        }
        const ROWS_VEC level = ROWS_V(set1)(top);
        ROWS_VEC sum = ROWS_V(zero)(), other = sum;
        for (j = 0; j + ROWS_LANES < n; j += 2 * ROWS_LANES) {
            const ROWS_VEC x = ROWS_V(mul)(ROWS_V(sub)(ROWS_V(load)(tile + j), level), f),
                           y = ROWS_V(mul)(ROWS_V(sub)(ROWS_V(load)(tile + j + ROWS_LANES), level), f);
            const ROWS_VEC p = ROWS(power)(x), q = ROWS(power)(y);
            ROWS_V(store)(tile + j, p);
            ROWS_V(store)(tile + j + ROWS_LANES, q);
            sum = ROWS_V(add)(sum, p);
            other = ROWS_V(add)(other, q);
        }
        if (j < n) {
            const ROWS_VEC x = ROWS_V(mul)(ROWS_V(sub)(ROWS_V(load)(tile + j), level), f);
            const ROWS_VEC p = ROWS(power)(x);
            ROWS_V(store)(tile + j, p);
            sum = ROWS_V(add)(sum, p);
        }
        const ROWS_T more = ROWS_V(hsum)(ROWS_V(add)(sum, other));
        if (before == top) {
            states[r].sum += more;
        } else {
            states[r].top = top;
            if (before == (ROWS_T)-INFINITY) { /* nothing is in o yet */
                states[r].sum = more;
                continue;
            }
            const ROWS_T down = ROWS_EXP((before - top) * factor);
            states[r].sum = states[r].sum * down + more;
            for (int64_t c0 = 0; c0 < dv; c0++) o[c0] *= down;
        }
    }
}

/* Scores and dP = g V^T of a tile become what the products need: P (dropped) and dS = P (dP - delta), times out. */
static inline void ROWS(softmax_grad)(const sdpa *s, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0,
                                      int64_t n, ROWS_T *score, ROWS_T *dp, ROWS_T factor, const ROWS_T *lse,
                                      const ROWS_T *delta, ROWS_T out) {
    const ROWS_VEC f = ROWS_V(set1)(factor * ROWS_UNIT), scale = ROWS_V(set1)(out);
    for (int64_t r = 0; r < rows; r++, score += SDPA_LD, dp += SDPA_LD) {
        const ROWS_VEC level = ROWS_V(set1)(-lse[r] * ROWS_UNIT), down = ROWS_V(set1)(-delta[r]);
        if (!s->drops) {
            for (int64_t j = 0; j < n; j += ROWS_LANES) {
                const ROWS_VEC x = ROWS_V(fma)(ROWS_V(load)(score + j), f, level), p = ROWS(power)(x);
                ROWS_V(store)(score + j, p);
                ROWS_V(store)
                (dp + j, ROWS_V(mul)(ROWS_V(mul)(p, scale), ROWS_V(add)(ROWS_V(load)(dp + j), down)));
            }
            continue;
        }
        ROWS_T kept[SDPA_KEYS + ROWS_LANES];
        ROWS(kept)(s, b, h, i0 + r, j0, n, kept);
        for (int64_t j = n; j < n + ROWS_LANES; j++) kept[j] = 0;
        for (int64_t j = 0; j < n; j += ROWS_LANES) {
            const ROWS_VEC x = ROWS_V(fma)(ROWS_V(load)(score + j), f, level), keep = ROWS_V(load)(kept + j),
                           p = ROWS(power)(x);
            ROWS_V(store)(score + j, ROWS_V(mul)(p, keep));
            ROWS_V(store)
            (dp + j, ROWS_V(mul)(ROWS_V(mul)(p, scale), ROWS_V(fma)(ROWS_V(load)(dp + j), keep, down)));
        }
    }
}

#undef ROWS
#undef ROWS_T
#undef ROWS_V
#undef ROWS_VEC
#undef ROWS_LANES
#undef ROWS_UNIT
#undef ROWS_EXP
