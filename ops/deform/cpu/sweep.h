/* What becomes of the gradient of the columns, a template over SPOT_D; SPOT_FAST: whether whole vectors have loops of their
 * own. Included by deform.c. */

/* One pixel of the result and one tap: column, the gradient of its samples, goes to the four pixels of dx by their weights,
 * <column, pixel> of each into dots, and column becomes the samples. whole: one run, of whole vectors. */
SIMD_INLINE void SPOT(sweep_tap)(const ct__deform_slice *s, const SPOT(spots) * spots, int k, int64_t tap,
                                 SPOT_T *columns, SPOT_T *dots, const bool whole) {
    const SPOT_T *from[4];
    SPOT_T *to[4];
    for (int c = 0; c < 4; c++) {
        const int64_t at = spots->at[c][k];
        from[c] = at < 0 ? (const SPOT_T *)s->zeros : (const SPOT_T *)s->x + at * s->x_step;
        to[c] = at < 0 ? (SPOT_T *)s->sink : (SPOT_T *)s->dx + at * s->dx_step;
    }
    const SPOT_V w0 = SPOT(set1)(spots->weight[0][k]), w1 = SPOT(set1)(spots->weight[1][k]);
    const SPOT_V w2 = SPOT(set1)(spots->weight[2][k]), w3 = SPOT(set1)(spots->weight[3][k]);
    SPOT_V e0 = SPOT(set1)(0), e1 = e0, e2 = e0, e3 = e0;
#define SPOT_SWEEP(LOAD, PUT)                                                        \
    {                                                                                \
        SPOT_V d = LOAD(column + i), p0 = LOAD(from[0] + i), p1 = LOAD(from[1] + i); \
        SPOT_V p2 = LOAD(from[2] + i), p3 = LOAD(from[3] + i);                       \
        IN_REGISTERS(p0, p1, p2, p3);                                                \
        PUT(to[0] + i, SPOT(fma)(w0, d, LOAD(to[0] + i)));                           \
        PUT(to[1] + i, SPOT(fma)(w1, d, LOAD(to[1] + i)));                           \
        PUT(to[2] + i, SPOT(fma)(w2, d, LOAD(to[2] + i)));                           \
        PUT(to[3] + i, SPOT(fma)(w3, d, LOAD(to[3] + i)));                           \
        e0 = SPOT(fma)(d, p0, e0), e1 = SPOT(fma)(d, p1, e1);                        \
        e2 = SPOT(fma)(d, p2, e2), e3 = SPOT(fma)(d, p3, e3);                        \
        p0 = SPOT(fma)(w1, p1, SPOT(mul)(w0, p0));                                   \
        PUT(column + i, SPOT(add)(p0, SPOT(fma)(w3, p3, SPOT(mul)(w2, p2))));        \
    }
    if (whole) {
        const int64_t n = s->n;
        SPOT_T *column = columns + tap * n;
        for (int64_t i = 0; i < n; i += LANES(SPOT_D)) SPOT_SWEEP(SPOT_WHOLE, SPOT_PUT)
    } else
        for (int64_t at = 0, run; at < s->n; at += run) {
            run = run_of(s, at);
            SPOT_T *column = columns + at * s->t->d.taps + tap * run;
            SPOT_EACH(run, SPOT_SWEEP)
            for (int c = 0; c < 4; c++) from[c] += run, to[c] += run;
        }
#undef SPOT_SWEEP
    SPOT(sums)(e0, e1, e2, e3, dots);
}

/* Pixel k of those whose spots are at hand, all taps. */
static __attribute__((noinline)) void SPOT(sweep_pixel)(const ct__deform_slice *s, int k, SPOT_T *columns, bool whole) {
    const SPOT(spots) *spots = s->spots;
    const int64_t taps = s->t->d.taps;
    SPOT_T(*dots)[SPOTS][4] = s->dots;
    if (SPOT_FAST && whole)
        for (int64_t i = 0; i < taps; i++) SPOT(sweep_tap)(s, spots + i, k, i, columns, dots[i][k], true);
    else
        for (int64_t i = 0; i < taps; i++) SPOT(sweep_tap)(s, spots + i, k, i, columns, dots[i][k], false);
}

/* n pixels of the result from first on. */
static void SPOT(sweep)(const ct__deform_slice *s, int64_t first, int64_t n) {
    const int64_t taps = s->t->d.taps;
    SPOT(spots) *spots = s->spots;
    const SPOT_T(*dots)[SPOTS][4] = s->dots;
    SPOT_T moves[3][SPOTS];
    SPOT(pixels) pixels;
    const bool whole = s->n % LANES(SPOT_D) == 0 && run_of(s, 0) == s->n;
    for (int64_t p = 0; p < n; p += SPOTS) {
        const int count = (int)ct__min64(SPOTS, n - p);
        SPOT_T *columns = (SPOT_T *)s->columns + p * s->row;
        SPOT(pixels_from)(s->t, first + p, &pixels);
        for (int64_t k = 0; k < taps; k++) SPOT(find)(s->t, s->image, s->group, k, &pixels, spots + k);
        for (int i = 0; i < count; i++) SPOT(sweep_pixel)(s, i, columns + i * s->row, whole);
        for (int64_t k = 0; k < taps; k++) {
            SPOT(moves)(spots + k, dots[k], moves);
            ct__deform_put_moves(s, k, first + p, count, moves);
        }
    }
}

static void SPOT(add_all)(void *sum, const void *part, int64_t n) {
    SPOT_T *restrict to = sum;
    const SPOT_T *restrict from = part;
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void SPOT(range)(const void *from, int64_t step, int64_t n, double *least, double *most) {
    const SPOT_T *p = from;
    SPOT_T low[SPOTS], high[SPOTS];
    for (int i = 0; i < SPOTS; i++) low[i] = (SPOT_T)*least, high[i] = (SPOT_T)*most;
    int64_t k = 0;
    for (; k + SPOTS <= n && step == 1; k += SPOTS)
        for (int i = 0; i < SPOTS; i++) {
            low[i] = p[k + i] < low[i] ? p[k + i] : low[i];
            high[i] = p[k + i] > high[i] ? p[k + i] : high[i];
        }
    for (; k < n; k++) {
        low[0] = p[k * step] < low[0] ? p[k * step] : low[0];
        high[0] = p[k * step] > high[0] ? p[k * step] : high[0];
    }
    for (int i = 0; i < SPOTS; i++) {
        *least = low[i] < *least ? low[i] : *least;
        *most = high[i] > *most ? high[i] : *most;
    }
}

#undef SPOT_FAST
#undef SPOT_D
