/* row_norm and its gradients over chunks of rows, a template: D is f32 or f64, T its type, V its vector. Included by
 * row_norm.c. */
#define OF(x) CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

/* xhat = ((x - centre) - rest) scale, with centre + rest the mean to more digits than the dtype has. */
typedef struct OF(row) {
    V centre, rest, scale;
} OF(row);
static inline OF(row) OF(row_of)(const row_job *j, const T *x /* (n) */, double *rstd) {
    norm_moments m = OF(line_moments)(x, j->n, !j->rms, j->n <= NORM_BLOCK ? x + j->n : NULL);
    T centre = (T)m.mean;
    *rstd = 1 / sqrt(m.square / (double)j->n + j->eps);
    return (OF(row)){OF(set1)(centre), OF(set1)((T)((m.mean - (double)centre) * *rstd)), OF(set1)((T)*rstd)};
}
SIMD_INLINE V OF(hat)(OF(row) r, V x) { return OF(sub)(OF(mul)(OF(sub)(x, r.centre), r.scale), r.rest); }
static void OF(rows)(void *ctx, int64_t chunk, int worker) {
    enum { L = OF(lanes) };
    (void)worker;
    const row_job *j = ctx;
    const T *w = j->weight, *b = j->bias;
    const int64_t n = j->n, end = ct__min64((chunk + 1) * j->part, j->rows);
    for (int64_t row = chunk * j->part; row < end; row++) {
        const T *x = (const T *)j->x + (row - j->begin) * n;
        T *y = (T *)j->y + (row - j->begin) * n;
        double rstd;
        const OF(row) r = OF(row_of)(j, x, &rstd);
        int64_t i = 0;
        for (; i + L <= n; i += L) {
            V v = OF(hat)(r, OF(load)(x + i));
            if (w) v = OF(mul)(v, OF(load)(w + i));
            if (b) v = OF(add)(v, OF(load)(b + i));
            if (j->streams) OF(stream)(y + i, v);
            else OF(store)(y + i, v);
        }
        if (i < n) {
            const int k = (int)(n - i);
            V v = OF(hat)(r, OF(load_n)(x + i, k));
            if (w) v = OF(mul)(v, OF(load_n)(w + i, k));
            if (b) v = OF(add)(v, OF(load_n)(b + i, k));
            OF(store_n)(y + i, v, k);
        }
    }
    if (j->streams) simd_fence();
}
/* Rows first to end - 1, which belong to one chunk. */
static void OF(grads_of)(const row_job *j, int64_t first, int64_t end) {
    enum { L = OF(lanes) };
    const T *w = j->weight;
    const int64_t n = j->n, chunk = first / j->part;
    const bool fresh = first % j->part == 0;
    T *dw = j->dweight ? (T *)j->sums + chunk * 2 * n : NULL,
      *db = j->dbias ? (T *)j->sums + (chunk * 2 + 1) * n : NULL;
    if (dw && fresh) memset(dw, 0, (size_t)n * sizeof(T));
    if (db && fresh) memset(db, 0, (size_t)n * sizeof(T));
    const V one = OF(set1)(1);
    for (int64_t row = first; row < end; row++) {
        const T *x = (const T *)j->x + (row - j->begin) * n, *g = (const T *)j->g + (row - j->begin) * n;
        double rstd;
        const OF(row) r = OF(row_of)(j, x, &rstd);
        V s0 = OF(set1)(0), s1 = s0, p0 = s0, p1 = s0;
        int64_t i = 0;
        for (; i + 2 * L <= n; i += 2 * L) {
            NORM_PREFETCH(g + i + j->ahead, 2 * L);
            V g0 = OF(load)(g + i), g1 = OF(load)(g + i + L);
            V h0 = OF(hat)(r, OF(load)(x + i)), h1 = OF(hat)(r, OF(load)(x + i + L));
            if (dw) {
                OF(store)(dw + i, OF(fma)(g0, h0, OF(load)(dw + i)));
                OF(store)(dw + i + L, OF(fma)(g1, h1, OF(load)(dw + i + L)));
            }
            if (db) {
                OF(store)(db + i, OF(add)(g0, OF(load)(db + i)));
                OF(store)(db + i + L, OF(add)(g1, OF(load)(db + i + L)));
            }
            if (w) g0 = OF(mul)(g0, OF(load)(w + i)), g1 = OF(mul)(g1, OF(load)(w + i + L));
            s0 = OF(add)(s0, g0), s1 = OF(add)(s1, g1);
            p0 = OF(fma)(g0, h0, p0), p1 = OF(fma)(g1, h1, p1);
        }
        for (; i < n; i += L) { /* lanes beyond the end have g = 0 */
            const int k = (int)ct__min64(n - i, L);
            V g0 = OF(load_n)(g + i, k), h0 = OF(hat)(r, OF(load_n)(x + i, k));
            if (dw) OF(store_n)(dw + i, OF(fma)(g0, h0, OF(load_n)(dw + i, k)), k);
            if (db) OF(store_n)(db + i, OF(add)(g0, OF(load_n)(db + i, k)), k);
            if (w) g0 = OF(mul)(g0, OF(load_n)(w + i, k));
            s0 = OF(add)(s0, g0);
            p0 = OF(fma)(g0, h0, p0);
        }
        if (!j->y) continue;
        T *dx = (T *)j->y + (row - j->begin) * n;
        if (j->rms && n == 1) { /* 1 - xhat^2 = eps rstd^2, of which a difference would leave nothing */
            dx[0] = (T)((double)g[0] * (w ? (double)w[0] : 1) * j->eps * rstd * rstd * rstd);
            continue;
        }
        const double mean = j->rms ? 0 : (double)OF(hsum)(OF(add)(s0, s1)) / (double)n;
        const V middle = OF(set1)((T)mean),
                minus_projection = OF(set1)((T)(-(double)OF(hsum)(OF(add)(p0, p1)) / (double)n));
        for (i = 0; i < n; i += L) { /* differences first: rstd may be large, and rounded is not itself */
            const int k = (int)ct__min64(n - i, L);
            V gi = k == L ? OF(load)(g + i) : OF(load_n)(g + i, k);
            V xi = k == L ? OF(load)(x + i) : OF(load_n)(x + i, k);
            V wi = !w ? one : k == L ? OF(load)(w + i) : OF(load_n)(w + i, k);
            V d = OF(mul)(OF(fma)(OF(hat)(r, xi), minus_projection, OF(sub)(OF(mul)(gi, wi), middle)), r.scale);
            if (k < L) OF(store_n)(dx + i, d, k);
            else if (j->streams) OF(stream)(dx + i, d);
            else OF(store)(dx + i, d);
        }
    }
    if (j->streams) simd_fence();
}
static void OF(row_grads)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const row_job *j = ctx;
    OF(grads_of)(j, chunk * j->part, ct__min64((chunk + 1) * j->part, j->rows));
}
/* The chunks' sums, in order. */
static void OF(columns)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const row_job *j = ctx;
    const int64_t parts = (j->rows + j->part - 1) / j->part, first = chunk * COLUMNS,
                  end = ct__min64(first + COLUMNS, j->n);
    for (int which = 0; which < 2; which++) {
        T *to = which ? j->dbias : j->dweight;
        if (!to) continue;
        memset(to + first, 0, (size_t)(end - first) * sizeof(T));
        for (int64_t p = 0; p < parts; p++) {
            const T *from = (const T *)j->sums + (p * 2 + which) * j->n;
            for (int64_t i = first; i < end; i++) to[i] += from[i];
        }
    }
}

#undef OF
#undef D
#undef T
#undef V
