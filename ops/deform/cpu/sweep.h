/* What becomes of the gradient of the columns, a template over POINT_D; POINT_FAST: whether whole vectors have loops of their
 * own. Included by deform.c. */

/* One pixel of the result and one tap: column, the gradient of its samples, goes to the four pixels of dx by their weights,
 * <column, pixel> of each into dots, and column becomes the samples. whole: one run, of whole vectors. */
SIMD_INLINE void POINT(sweep_tap)(const ct__deform_slice *s, const POINT(points) * points, int k, int64_t tap,
                                  POINT_T *columns, POINT_T *dots, const bool whole) {
    const POINT_T *from[4];
    POINT_T *to[4];
    for (int c = 0; c < 4; c++) {
        const int64_t at = points->at[c][k];
        from[c] = at < 0 ? (const POINT_T *)s->zeros : (const POINT_T *)s->x + at * s->x_step;
        to[c] = at < 0 ? (POINT_T *)s->sink : (POINT_T *)s->dx + at * s->dx_step;
    }
    const POINT_V w0 = POINT(set1)(points->weight[0][k]), w1 = POINT(set1)(points->weight[1][k]);
    const POINT_V w2 = POINT(set1)(points->weight[2][k]), w3 = POINT(set1)(points->weight[3][k]);
    POINT_V e0 = POINT(set1)(0), e1 = e0, e2 = e0, e3 = e0;
#define POINT_SWEEP(LOAD, PUT)                                                        \
    {                                                                                 \
        POINT_V d = LOAD(column + i), p0 = LOAD(from[0] + i), p1 = LOAD(from[1] + i); \
        POINT_V p2 = LOAD(from[2] + i), p3 = LOAD(from[3] + i);                       \
        IN_REGISTERS(p0, p1, p2, p3);                                                 \
        PUT(to[0] + i, POINT(fma)(w0, d, LOAD(to[0] + i)));                           \
        PUT(to[1] + i, POINT(fma)(w1, d, LOAD(to[1] + i)));                           \
        PUT(to[2] + i, POINT(fma)(w2, d, LOAD(to[2] + i)));                           \
        PUT(to[3] + i, POINT(fma)(w3, d, LOAD(to[3] + i)));                           \
        e0 = POINT(fma)(d, p0, e0), e1 = POINT(fma)(d, p1, e1);                       \
        e2 = POINT(fma)(d, p2, e2), e3 = POINT(fma)(d, p3, e3);                       \
        p0 = POINT(fma)(w1, p1, POINT(mul)(w0, p0));                                  \
        PUT(column + i, POINT(add)(p0, POINT(fma)(w3, p3, POINT(mul)(w2, p2))));      \
    }
    if (whole) {
        const int64_t n = s->n;
        POINT_T *column = columns + tap * n;
        for (int64_t i = 0; i < n; i += LANES(POINT_D)) POINT_SWEEP(POINT_WHOLE, POINT_PUT)
    } else
        for (int64_t at = 0, run; at < s->n; at += run) {
            run = run_of(s, at);
            POINT_T *column = columns + at * s->t->d.taps + tap * run;
            POINT_EACH(run, POINT_SWEEP)
            for (int c = 0; c < 4; c++) from[c] += run, to[c] += run;
        }
#undef POINT_SWEEP
    POINT(sums)(e0, e1, e2, e3, dots);
}

/* Pixel k of those whose points are at hand, all taps. */
static __attribute__((noinline)) void POINT(sweep_pixel)(const ct__deform_slice *s, int k, POINT_T *columns,
                                                         bool whole) {
    const POINT(points) *points = s->points;
    const int64_t taps = s->t->d.taps;
    POINT_T(*dots)[POINTS][4] = s->dots;
    if (POINT_FAST && whole)
        for (int64_t i = 0; i < taps; i++) POINT(sweep_tap)(s, points + i, k, i, columns, dots[i][k], true);
    else
        for (int64_t i = 0; i < taps; i++) POINT(sweep_tap)(s, points + i, k, i, columns, dots[i][k], false);
}

/* n pixels of the result from first on. */
static void POINT(sweep)(const ct__deform_slice *s, int64_t first, int64_t n) {
    const int64_t taps = s->t->d.taps;
    POINT(points) *points = s->points;
    const POINT_T(*dots)[POINTS][4] = s->dots;
    POINT_T moves[3][POINTS];
    POINT(pixels) pixels;
    const bool whole = s->n % LANES(POINT_D) == 0 && run_of(s, 0) == s->n;
    for (int64_t p = 0; p < n; p += POINTS) {
        const int count = (int)ct__min64(POINTS, n - p);
        POINT_T *columns = (POINT_T *)s->columns + p * s->row;
        POINT(pixels_from)(s->t, first + p, &pixels);
        for (int64_t k = 0; k < taps; k++) POINT(find)(s->t, s->image, s->group, k, &pixels, points + k);
        for (int i = 0; i < count; i++) POINT(sweep_pixel)(s, i, columns + i * s->row, whole);
        for (int64_t k = 0; k < taps; k++) {
            POINT(moves)(points + k, dots[k], moves);
            ct__deform_put_moves(s, k, first + p, count, moves);
        }
    }
}

static void POINT(add_all)(void *sum, const void *part, int64_t n) {
    POINT_T *restrict to = sum;
    const POINT_T *restrict from = part;
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void POINT(range)(const void *from, int64_t step, int64_t n, double *least, double *most) {
    const POINT_T *p = from;
    POINT_T low[POINTS], high[POINTS];
    for (int i = 0; i < POINTS; i++) low[i] = (POINT_T)*least, high[i] = (POINT_T)*most;
    int64_t k = 0;
    for (; k + POINTS <= n && step == 1; k += POINTS)
        for (int i = 0; i < POINTS; i++) {
            low[i] = p[k + i] < low[i] ? p[k + i] : low[i];
            high[i] = p[k + i] > high[i] ? p[k + i] : high[i];
        }
    for (; k < n; k++) {
        low[0] = p[k * step] < low[0] ? p[k * step] : low[0];
        high[0] = p[k * step] > high[0] ? p[k * step] : high[0];
    }
    for (int i = 0; i < POINTS; i++) {
        *least = low[i] < *least ? low[i] : *least;
        *most = high[i] > *most ? high[i] : *most;
    }
}

#undef POINT_FAST
#undef POINT_D
