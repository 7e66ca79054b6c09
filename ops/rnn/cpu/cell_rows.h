/* The cells themselves, a row of hidden units at a time, forward and backward. One text for f32 and f64;
 * recurrence.h includes it twice. All pointers are at the first of m hidden units of one sequence; what belongs to
 * the next gate lies `h` further, in products `width` further. */

typedef struct CELL(forward_row) {
    const CELL_T *gx;      /* (gates,h) */
    const CELL_T *product; /* (gates,width) h W_hh^T */
    const CELL_T *bias;    /* (gates,h) */
    const CELL_T *h_before, *c_before;
    CELL_T *y;
    CELL_T *kept; /* (kept,h) */
    int64_t h, width;
} CELL(forward_row);

/* k is CELL_LANES, known to the compiler, but for the last vector of a row: masked stores are slow. */
#define CELL_PUT(p, v) (k == CELL_LANES ? CELL_V(store)((p), (v)) : CELL_V(store_n)((p), (v), k))
#define CELL_GET(p)    (k == CELL_LANES ? CELL_V(load)((p)) : CELL_V(load_n)((p), k))
#define CELL_EACH(at)                                                        \
    int64_t j = 0;                                                           \
    for (; j + CELL_LANES <= m; j += CELL_LANES) CELL(at)(r, j, CELL_LANES); \
    if (j < m) CELL(at)(r, j, (int)(m - j));

/* x W_ih^T and h W_hh^T + b_hh of gate g. */
SIMD_INLINE CELL_VEC CELL(from_h)(const CELL(forward_row) * r, int g, int64_t j, int k) {
    return CELL_V(add)(CELL_GET(r->product + g * r->width + j), CELL_GET(r->bias + g * r->h + j));
}
SIMD_INLINE CELL_VEC CELL(sum)(const CELL(forward_row) * r, int g, int64_t j, int k) {
    return CELL_V(add)(CELL_GET(r->gx + g * r->h + j), CELL(from_h)(r, g, j, k));
}

SIMD_INLINE void CELL(lstm_at)(const CELL(forward_row) * r, int64_t j, int k) {
    const CELL_VEC i = CELL_V(sigmoid)(CELL(sum)(r, 0, j, k)), f = CELL_V(sigmoid)(CELL(sum)(r, 1, j, k)),
                   g = CELL_V(tanh)(CELL(sum)(r, 2, j, k)), o = CELL_V(sigmoid)(CELL(sum)(r, 3, j, k));
    const CELL_VEC c = CELL_V(fma)(f, CELL_GET(r->c_before + j), CELL_V(mul)(i, g));
    CELL_PUT(r->kept + j, i);
    CELL_PUT(r->kept + r->h + j, f);
    CELL_PUT(r->kept + 2 * r->h + j, g);
    CELL_PUT(r->kept + 3 * r->h + j, o);
    CELL_PUT(r->kept + 4 * r->h + j, c);
    CELL_PUT(r->y + j, CELL_V(mul)(o, CELL_V(tanh)(c)));
}
SIMD_INLINE void CELL(lstm)(const CELL(forward_row) * r, int64_t m){CELL_EACH(lstm_at)}

SIMD_INLINE void CELL(gru_at)(const CELL(forward_row) * r, int64_t j, int k) {
    const CELL_VEC reset = CELL_V(sigmoid)(CELL(sum)(r, 0, j, k)), z = CELL_V(sigmoid)(CELL(sum)(r, 1, j, k)),
                   hn = CELL(from_h)(r, 2, j, k);
    const CELL_VEC n = CELL_V(tanh)(CELL_V(fma)(reset, hn, CELL_GET(r->gx + 2 * r->h + j)));
    CELL_PUT(r->kept + j, reset);
    CELL_PUT(r->kept + r->h + j, z);
    CELL_PUT(r->kept + 2 * r->h + j, n);
    CELL_PUT(r->kept + 3 * r->h + j, hn);
    /* (1 - z) n + z h = n + z (h - n) */
    CELL_PUT(r->y + j, CELL_V(fma)(z, CELL_V(sub)(CELL_GET(r->h_before + j), n), n));
}
SIMD_INLINE void CELL(gru)(const CELL(forward_row) * r, int64_t m){CELL_EACH(gru_at)}

SIMD_INLINE void CELL(plain_at)(const CELL(forward_row) * r, int64_t j, int k, bool relu) {
    const CELL_VEC x = CELL(sum)(r, 0, j, k);
    CELL_PUT(r->y + j, relu ? CELL_V(maxb)(CELL_V(zero)(), x) : CELL_V(tanh)(x));
}
SIMD_INLINE void CELL(plain)(const CELL(forward_row) * r, int64_t m, bool relu) {
    int64_t j = 0;
    for (; j + CELL_LANES <= m; j += CELL_LANES) CELL(plain_at)(r, j, CELL_LANES, relu);
    if (j < m) CELL(plain_at)(r, j, (int)(m - j), relu);
}

typedef struct CELL(backward_row) {
    const CELL_T *product; /* dgh W_hh of the step that came after, or NULL */
    const CELL_T *gy, *y, *kept, *h_before, *c_before;
    CELL_T *dgx, *dgh, *gates; /* (gates,h); dgh may be NULL; gates: a copy of dgh (dgx where there is no difference) */
    CELL_T *dh, *dc;           /* in: what the step after passed on; out: what goes on, but for dgh W_hh */
    int64_t h;
} CELL(backward_row);

/* The gradient of gate k, with respect to both sums. */
SIMD_INLINE void CELL(put_gate)(const CELL(backward_row) * r, int64_t at, int k, CELL_VEC x, CELL_VEC from_h) {
    CELL_PUT(r->dgx + at, x);
    CELL_PUT(r->gates + at, from_h);
    if (r->dgh) CELL_PUT(r->dgh + at, from_h);
}
#define CELL_GATE(g, v) CELL(put_gate)(r, (g)*r->h + j, k, (v), (v))

/* The gradient of the step's result. */
SIMD_INLINE CELL_VEC CELL(arrived)(const CELL(backward_row) * r, int64_t j, int k) {
    const CELL_VEC g = CELL_V(add)(CELL_GET(r->gy + j), CELL_GET(r->dh + j));
    return r->product ? CELL_V(add)(g, CELL_GET(r->product + j)) : g;
}
SIMD_INLINE CELL_VEC CELL(one_minus)(CELL_VEC x) { return CELL_V(sub)(CELL_V(set1)(1), x); }
SIMD_INLINE CELL_VEC CELL(slope_sigmoid)(CELL_VEC y) { return CELL_V(mul)(y, CELL(one_minus)(y)); }
SIMD_INLINE CELL_VEC CELL(slope_tanh)(CELL_VEC y) { return CELL(one_minus)(CELL_V(mul)(y, y)); }

SIMD_INLINE void CELL(lstm_back_at)(const CELL(backward_row) * r, int64_t j, int k) {
    const CELL_VEC dh = CELL(arrived)(r, j, k), i = CELL_GET(r->kept + j), f = CELL_GET(r->kept + r->h + j),
                   g = CELL_GET(r->kept + 2 * r->h + j), o = CELL_GET(r->kept + 3 * r->h + j),
                   tc = CELL_V(tanh)(CELL_GET(r->kept + 4 * r->h + j));
    const CELL_VEC dc = CELL_V(fma)(CELL_V(mul)(dh, o), CELL(slope_tanh)(tc), CELL_GET(r->dc + j));
    CELL_GATE(0, CELL_V(mul)(CELL_V(mul)(dc, g), CELL(slope_sigmoid)(i)));
    CELL_GATE(1, CELL_V(mul)(CELL_V(mul)(dc, CELL_GET(r->c_before + j)), CELL(slope_sigmoid)(f)));
    CELL_GATE(2, CELL_V(mul)(CELL_V(mul)(dc, i), CELL(slope_tanh)(g)));
    CELL_GATE(3, CELL_V(mul)(CELL_V(mul)(dh, tc), CELL(slope_sigmoid)(o)));
    CELL_PUT(r->dc + j, CELL_V(mul)(dc, f));
    CELL_PUT(r->dh + j, CELL_V(zero)());
}
SIMD_INLINE void CELL(lstm_back)(const CELL(backward_row) * r, int64_t m){CELL_EACH(lstm_back_at)}

SIMD_INLINE void CELL(gru_back_at)(const CELL(backward_row) * r, int64_t j, int k) {
    const CELL_VEC dh = CELL(arrived)(r, j, k), reset = CELL_GET(r->kept + j), z = CELL_GET(r->kept + r->h + j),
                   n = CELL_GET(r->kept + 2 * r->h + j), hn = CELL_GET(r->kept + 3 * r->h + j);
    const CELL_VEC dn = CELL_V(mul)(CELL_V(mul)(dh, CELL(one_minus)(z)), CELL(slope_tanh)(n));
    const CELL_VEC dr = CELL_V(mul)(CELL_V(mul)(dn, hn), CELL(slope_sigmoid)(reset));
    const CELL_VEC dz = CELL_V(mul)(CELL_V(mul)(dh, CELL_V(sub)(CELL_GET(r->h_before + j), n)), CELL(slope_sigmoid)(z));
    CELL_GATE(0, dr);
    CELL_GATE(1, dz);
    CELL(put_gate)(r, 2 * r->h + j, k, dn, CELL_V(mul)(dn, reset));
    CELL_PUT(r->dh + j, CELL_V(mul)(dh, z));
}
SIMD_INLINE void CELL(gru_back)(const CELL(backward_row) * r, int64_t m){CELL_EACH(gru_back_at)}

SIMD_INLINE void CELL(plain_back_at)(const CELL(backward_row) * r, int64_t j, int k, bool relu) {
    const CELL_VEC dh = CELL(arrived)(r, j, k), y = CELL_GET(r->y + j), zero = CELL_V(zero)();
    CELL_GATE(0, relu ? CELL_V(select)(CELL_V(gt)(y, zero), dh, zero) : CELL_V(mul)(dh, CELL(slope_tanh)(y)));
    CELL_PUT(r->dh + j, zero);
}
SIMD_INLINE void CELL(plain_back)(const CELL(backward_row) * r, int64_t m, bool relu) {
    int64_t j = 0;
    for (; j + CELL_LANES <= m; j += CELL_LANES) CELL(plain_back_at)(r, j, CELL_LANES, relu);
    if (j < m) CELL(plain_back_at)(r, j, (int)(m - j), relu);
}

/* A step outside its sequence passes the gradient on as it is. */
SIMD_INLINE void CELL(outside_back_at)(const CELL(backward_row) * r, int64_t j, int k, int64_t gates) {
    if (r->product) CELL_PUT(r->dh + j, CELL_V(add)(CELL_GET(r->dh + j), CELL_GET(r->product + j)));
    for (int64_t g = 0; g < gates; g++) CELL_GATE(g, CELL_V(zero)());
}
SIMD_INLINE void CELL(outside_back)(const CELL(backward_row) * r, int64_t m, int64_t gates) {
    int64_t j = 0;
    for (; j + CELL_LANES <= m; j += CELL_LANES) CELL(outside_back_at)(r, j, CELL_LANES, gates);
    if (j < m) CELL(outside_back_at)(r, j, (int)(m - j), gates);
}

#undef CELL
#undef CELL_T
#undef CELL_V
#undef CELL_VEC
#undef CELL_LANES
#undef CELL_PUT
#undef CELL_GET
#undef CELL_EACH
#undef CELL_GATE
