/* Depthwise convolution of channels-last images, for one element type: vectors run along the channels, so every tap is a
 * whole line and padding is skipped. T, V, VL, VF(op) and NAME(x) as in depthwise_planes.h; multiplier 1. */

typedef struct NAME(lines) {
    const depthwise_pass *p;
    const depthwise_gradient *g;
    int64_t rows, row_chunks; /* target rows of a chunk */
    int64_t first_rows;       /* source rows that a chunk may need */
    bool widen;               /* halves: lines are converted into scratch */
    bool stream;              /* the result is too large for the caches */
    T *weights;               /* (taps, channels) */
    T *bias;                  /* (channels), or NULL */
    T *parts;                 /* weight gradient: (chunks, taps + 1, channels) */
    T *workers;
    int64_t worker;
} NAME(lines);

enum { NAME(BLOCK) = 4 }; /* positions computed together */

/* Source rows as T: where they lie, or widened. */
typedef struct NAME(rows) {
    const T *data;
    int64_t first, h, w;
} NAME(rows);

static NAME(rows) NAME(take_rows)(const depthwise_image *s, ct_dtype dtype, bool widen, int64_t channels, int64_t width,
                                  int64_t image, int64_t first, int64_t end, T *scratch) {
    if (!widen) return (NAME(rows)){(const T *)s->data + image * s->n, 0, s->h, s->w};
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < width; j++) NAME(depthwise_read)
    (scratch + ((i - first) * width + j) * channels, dtype, s->data, image * s->n + i * s->h + j * s->w, 1, channels);
    return (NAME(rows)){scratch, first, width * channels, channels};
}

/* `count` targets, whose sources are `step` apart, from taps at the given places: sum over taps of source times weight. */
SIMD_INLINE void NAME(positions)(T *dst, int64_t dst_step, const T *const *from, const T *const *w, int64_t taps,
                                 int64_t step, const T *bias, int64_t channels, const int count, const bool stream) {
    for (int64_t c = 0; c < channels; c += VL) {
        const int n = (int)ct__min64(VL, channels - c);
        V sum[4];
        if (n == VL) {
            const V start = bias ? VF(load)(bias + c) : VF(set1)(0);
#pragma GCC unroll 4
            for (int q = 0; q < count; q++) sum[q] = start;
            if (count > 1) /* the last tap is the one that memory has not been read at yet */
#pragma GCC unroll 4
                for (int q = 0; q < count; q++) __builtin_prefetch(from[taps - 1] + c + (q + 2 * count) * step, 0, 2);
            for (int64_t t = 0; t < taps; t++) {
                const V x = VF(load)(w[t] + c);
                const T *at = from[t] + c;
#pragma GCC unroll 4
                for (int q = 0; q < count; q++) sum[q] = VF(fma)(VF(load)(at + q * step), x, sum[q]);
            }
#pragma GCC unroll 4
            for (int q = 0; q < count; q++)
                if (stream) VF(stream)(dst + q * dst_step + c, sum[q]);
                else VF(store)(dst + q * dst_step + c, sum[q]);
            continue;
        }
        for (int q = 0; q < count; q++) {
            V s = bias ? VF(load_n)(bias + c, n) : VF(set1)(0);
            for (int64_t t = 0; t < taps; t++)
                s = VF(fma)(VF(load_n)(from[t] + q * step + c, n), VF(load_n)(w[t] + c, n), s);
            VF(store_n)(dst + q * dst_step + c, s, n);
        }
    }
}
static __attribute__((noinline)) void NAME(four)(T *dst, int64_t dst_step, const T *const *from, const T *const *w,
                                                 int64_t taps, int64_t step, const T *bias, int64_t channels) {
    NAME(positions)(dst, dst_step, from, w, taps, step, bias, channels, 4, false);
}
/* Past the caches: all lines are whole. */
static __attribute__((noinline)) void NAME(four_streamed)(T *dst, int64_t dst_step, const T *const *from,
                                                          const T *const *w, int64_t taps, int64_t step, const T *bias,
                                                          int64_t channels) {
    NAME(positions)(dst, dst_step, from, w, taps, step, bias, channels, 4, true);
}
static __attribute__((noinline)) void NAME(one)(T *dst, const T *const *from, const T *const *w, int64_t taps,
                                                const T *bias, int64_t channels) {
    NAME(positions)(dst, 0, from, w, taps, 0, bias, channels, 1, false);
}

/* Residual, activation and the store of one row of results that is still in scratch, or already in its place. */
static void NAME(finish_row)(const NAME(lines) * l, T *row, int64_t step, int64_t image, int64_t i, bool placed) {
    const depthwise_pass *p = l->p;
    const ct_image_strides *s = &p->residual_step;
    for (int64_t j = 0; j < p->w.target; j++, row += step) {
        if (p->residual)
            for (int64_t c = 0; c < p->channels; c += VL) {
                T more[VL];
                const int64_t n = ct__min64(VL, p->channels - c);
                NAME(depthwise_read)
                (more, p->dtype, p->residual, image * s->n + i * s->s[1] + j * s->s[2] + c * s->c, s->c, n);
                VF(store_n)(row + c, VF(add)(VF(load_n)(row + c, (int)n), VF(load_n)(more, (int)n)), (int)n);
            }
        if (p->activate) p->activate(NULL, row, p->channels);
        if (!placed) NAME(depthwise_write)
        (row, p->dtype, p->target.data, image * p->target.n + i * p->target.h + j * p->target.w, 1, p->channels);
    }
}

static void NAME(lines_chunk)(void *ctx, int64_t chunk, int worker) {
    const NAME(lines) *l = ctx;
    const depthwise_pass *p = l->p;
    const depthwise_axis *h = &p->h, *w = &p->w;
    const int64_t image = chunk / l->row_chunks, row0 = chunk % l->row_chunks * l->rows;
    const int64_t row1 = ct__min64(row0 + l->rows, h->target), all = h->taps * w->taps;
    const T **from = (const T **)(void *)(l->workers + worker * l->worker), **weight = from + all;
    T *line = (T *)(void *)(((uintptr_t)(weight + all) + 63) & ~(uintptr_t)63);
    const int64_t low = ct__max64(0, depthwise_floor(row0 * h->up + h->first, h->down));
    const int64_t high = ct__min64(h->source, ((row1 - 1) * h->up + h->first + (h->taps - 1) * h->step) / h->down + 1);
    const NAME(rows) x = NAME(take_rows)(&p->source, p->dtype, l->widen, p->channels, w->source, image, low, high,
                                         line + depthwise_up(l->widen ? w->target * p->channels : 0, 16));
    for (int64_t i = row0; i < row1; i++) {
        const int64_t step = l->widen ? p->channels : p->target.w;
        T *dst = l->widen ? line : (T *)p->target.data + image * p->target.n + i * p->target.h;
        /* Positions of one remainder modulo `down` have the same taps; those at the edges lack some. */
        for (int64_t r = 0; r < w->down; r++)
            for (int64_t j = r; j < w->target;) {
                int64_t taps = 0, inside = NAME(BLOCK);
                for (int64_t t = 0; t < w->taps; t++) {
                    const int64_t at = depthwise_at(w, j, t);
                    if (!depthwise_alike(w, j, j + (NAME(BLOCK) - 1) * w->down, t)) inside = 1;
                    for (int64_t k = 0; k < h->taps && at >= 0; k++) {
                        const int64_t row = depthwise_at(h, i, k);
                        if (row < 0) continue;
                        from[taps] = x.data + (row - x.first) * x.h + at * x.w;
                        weight[taps++] = l->weights + (k * w->taps + t) * p->channels;
                    }
                }
                if (j + (NAME(BLOCK) - 1) * w->down >= w->target) inside = 1;
                if (inside == 1) NAME(one)(dst + j * step, from, weight, taps, l->bias, p->channels);
                /* The rest of the inner positions need no new look at the edges. */
                for (; inside > 1; j += NAME(BLOCK) * w->down) {
                    (l->stream ? NAME(four_streamed) : NAME(four))(dst + j * step, w->down * step, from, weight, taps,
                                                                   w->up * x.w, l->bias, p->channels);
                    const int64_t next = j + NAME(BLOCK) * w->down, last = next + (NAME(BLOCK) - 1) * w->down;
                    bool same = last < w->target;
                    for (int64_t t = 0; t < w->taps && same; t++) same = depthwise_alike(w, j, last, t);
                    if (!same) {
                        j = next;
                        break;
                    }
                    for (int64_t t = 0; t < taps; t++) from[t] += NAME(BLOCK) * w->up * x.w;
                }
                if (inside == 1) j += w->down;
            }
        if (l->widen || p->residual || p->activate) NAME(finish_row)(l, dst, step, image, i, !l->widen);
    }
    if (l->stream) simd_fence();
}

/* ---- Weight gradient ---- */

/* sums[t] += over `count` positions of g times the sources of four taps of a row. */
SIMD_INLINE void NAME(add_line)(T *sums, const T *const *from, int64_t step, const T *g, int64_t g_step, int64_t count,
                                int64_t channels, const int taps) {
    for (int64_t c = 0; c < channels; c += VL) {
        const int n = (int)ct__min64(VL, channels - c);
        V s[4];
#pragma GCC unroll 4
        for (int t = 0; t < taps; t++) s[t] = VF(load_n)(sums + t * channels + c, n);
        if (n == VL)
            for (int64_t q = 0; q < count; q++) {
                const V y = VF(load)(g + q * g_step + c);
#pragma GCC unroll 4
                for (int t = 0; t < taps; t++) s[t] = VF(fma)(y, VF(load)(from[t] + q * step + c), s[t]);
            }
        else
            for (int64_t q = 0; q < count; q++) {
                const V y = VF(load_n)(g + q * g_step + c, n);
#pragma GCC unroll 4
                for (int t = 0; t < taps; t++) s[t] = VF(fma)(y, VF(load_n)(from[t] + q * step + c, n), s[t]);
            }
#pragma GCC unroll 4
        for (int t = 0; t < taps; t++) VF(store_n)(sums + t * channels + c, s[t], n);
    }
}
static __attribute__((noinline)) void NAME(add_three)(T *sums, const T *const *from, int64_t step, const T *g,
                                                      int64_t g_step, int64_t count, int64_t channels) {
    NAME(add_line)(sums, from, step, g, g_step, count, channels, 3);
}
static __attribute__((noinline)) void NAME(add_one)(T *sums, const T *const *from, int64_t step, const T *g,
                                                    int64_t g_step, int64_t count, int64_t channels) {
    NAME(add_line)(sums, from, step, g, g_step, count, channels, 1);
}

/* sums += line */
static __attribute__((noinline)) void NAME(add_to)(T *sums, const T *line, int64_t channels) {
    for (int64_t c = 0; c < channels; c += VL) {
        const int n = (int)ct__min64(VL, channels - c);
        VF(store_n)(sums + c, VF(add)(VF(load_n)(sums + c, n), VF(load_n)(line + c, n)), n);
    }
}

/* Lines of `count` positions, to be read soon. */
static void NAME(prefetch)(const T *at, int64_t step, int64_t count, int64_t channels) {
    for (int64_t q = 0; q < count; q++, at += step)
        for (int64_t c = 0; c < channels; c += 64 / (int64_t)sizeof(T)) __builtin_prefetch(at + c, 0, 2);
}

static void NAME(parts_chunk)(void *ctx, int64_t chunk, int worker) {
    const NAME(lines) *l = ctx;
    const depthwise_gradient *g = l->g;
    const depthwise_axis *h = &g->h, *w = &g->w;
    const int64_t image = chunk / l->row_chunks, row0 = chunk % l->row_chunks * l->rows, all = h->taps * w->taps;
    const int64_t row1 = ct__min64(row0 + l->rows, h->target), channels = g->channels;
    T *sums = l->parts + chunk * (all + 1) * channels;
    memset(sums, 0, (size_t)((all + 1) * channels) * sizeof *sums);
    T *scratch = l->workers + worker * l->worker;
    const int64_t low = ct__max64(0, row0 * h->up + h->first);
    const int64_t high = ct__min64(h->source, (row1 - 1) * h->up + h->first + (h->taps - 1) * h->step + 1);
    const NAME(rows) x = NAME(take_rows)(&g->x, g->dtype, l->widen, channels, w->source, image, low, high, scratch);
    const NAME(rows) y =
        NAME(take_rows)(&g->g, g->dtype, l->widen, channels, w->target, image, row0, row1,
                        scratch + depthwise_up(l->widen ? l->first_rows * w->source * channels : 0, 16));
    enum { SPAN = 8 }; /* positions whose lines stay in L1 for all taps */
    /* Positions [inner, outer) have all their taps inside. */
    int64_t inner = 0, outer = w->target;
    while (inner < outer && inner * w->up + w->first < 0) inner++;
    while (inner < outer && (outer - 1) * w->up + w->first + (w->taps - 1) * w->step >= w->source) outer--;
    for (int64_t i = row0; i < row1; i++)
        for (int64_t j0 = 0, j1; j0 < w->target; j0 = j1) {
            j1 = j0 < inner ? inner : j0 < outer ? ct__min64(j0 + SPAN, outer) : w->target;
            const bool inside = j0 >= inner && j1 <= outer;
            const T *gy = y.data + (i - y.first) * y.h;
            if (g->bias)
                for (int64_t j = j0; j < j1; j++) NAME(add_to)(sums + all * channels, gy + j * y.w, channels);
            for (int64_t k = 0; k < h->taps; k++) {
                const int64_t row = depthwise_at(h, i, k);
                if (row < 0) continue;
                const T *src = x.data + (row - x.first) * x.h, *from[3];
                /* What the next positions will be the first to read: g, and the last row of x. */
                if (inside && !l->widen && k == 0) NAME(prefetch)(gy + (j1 + SPAN) * y.w, y.w, j1 - j0, channels);
                if (inside && !l->widen && k == h->taps - 1) NAME(prefetch)
                (src + ((j1 + SPAN) * w->up + w->first + (w->taps - 1) * w->step) * x.w, w->up * x.w, j1 - j0,
                 channels);
                for (int64_t t = 0; t < w->taps; t++) {
                    const int64_t shift = w->first + t * w->step;
                    T *to = sums + (k * w->taps + t) * channels;
                    if (inside && t + 2 < w->taps) {
                        for (int q = 0; q < 3; q++) from[q] = src + (j0 * w->up + shift + q * w->step) * x.w;
                        NAME(add_three)(to, from, w->up * x.w, gy + j0 * y.w, y.w, j1 - j0, channels);
                        t += 2;
                        continue;
                    }
                    int64_t a = j0, b = j1;
                    while (a < b && a * w->up + shift < 0) a++;
                    while (a < b && (b - 1) * w->up + shift >= w->source) b--;
                    if (a == b) continue;
                    from[0] = src + (a * w->up + shift) * x.w;
                    NAME(add_one)(to, from, w->up * x.w, gy + a * y.w, y.w, b - a, channels);
                }
            }
        }
}

/* The parts of all chunks, in their order. */
static void NAME(join_parts)(void *ctx, int64_t tap, int worker) {
    const NAME(lines) *l = ctx;
    const depthwise_gradient *g = l->g;
    const int64_t all = g->h.taps * g->w.taps, channels = g->channels, chunks = g->batch * l->row_chunks;
    T *sum = l->parts + tap * channels;
    (void)worker;
    for (int64_t i = 1; i < chunks; i++) NAME(add_to)(sum, sum + i * (all + 1) * channels, channels);
    if (tap == all) {
        if (g->bias) NAME(depthwise_write)(sum, g->dtype, g->bias, 0, 1, channels);
        return;
    }
    NAME(depthwise_write)
    (sum, g->dtype, g->weight, tap / g->w.taps * g->w_h + tap % g->w.taps * g->w_w, g->w_o, channels);
}

/* ---- Plans ---- */

/* Rows of a chunk: enough work for a worker, few enough chunks to join. */
static void NAME(cut)(NAME(lines) * l, const depthwise_axis *h, const depthwise_axis *w, int64_t channels,
                      int64_t normal) {
    const int64_t work = ct__max64(1, w->target * channels * h->taps * w->taps);
    const int64_t rows = ct__max64(1, ct__min64(h->target, ct__grain(normal) / work));
    l->row_chunks = (h->target + rows - 1) / rows;
    l->rows = (h->target + l->row_chunks - 1) / l->row_chunks;
    l->first_rows = ((l->rows - 1) * h->up + (h->taps - 1) * h->step) / h->down + 2;
}

static size_t NAME(pixels_pass)(const depthwise_pass *p, T *scratch) {
    const int64_t all = p->h.taps * p->w.taps, weights = depthwise_up(all * p->channels, 16);
    NAME(lines) l = {.p = p, .widen = p->dtype == CT_F16 || p->dtype == CT_BF16};
    NAME(cut)(&l, &p->h, &p->w, p->channels, 1 << 19);
    l.worker = depthwise_up(2 * all * (int64_t)(sizeof(void *) / sizeof(T)), 16) + 16;
    if (l.widen) l.worker += depthwise_up((p->w.target + l.first_rows * p->w.source) * p->channels + 16, 16);
    const int64_t bias = depthwise_up(p->channels, 16);
    const depthwise_image *y = &p->target;
    l.stream = !l.widen && !p->residual && !p->activate && y->w == p->channels && y->h == p->w.target * y->w &&
               p->channels % (64 / (int64_t)sizeof(T)) == 0 && (uintptr_t)y->data % 64 == 0 &&
               y->n * (int64_t)sizeof(T) % 64 == 0 &&
               p->batch * p->h.target * y->h * (int64_t)sizeof(T) >= DEPTHWISE_STREAM;
    if (!scratch) return (size_t)(weights + bias + ct__threads() * l.worker) * sizeof(T);
    l.weights = scratch;
    l.workers = scratch + weights + bias;
    for (int64_t t = 0; t < all; t++) NAME(depthwise_read)
    (l.weights + t * p->channels, p->dtype, p->weight, t / p->w.taps * p->w_h + t % p->w.taps * p->w_w, p->w_o,
     p->channels);
    if (p->bias) {
        l.bias = scratch + weights;
        NAME(depthwise_read)(l.bias, p->dtype, p->bias, 0, p->bias_step, p->channels);
    }
    ct__parallel(p->batch * l.row_chunks, NAME(lines_chunk), &l);
    return 0;
}

static size_t NAME(pixels_gradient)(const depthwise_gradient *g, T *scratch) {
    const int64_t all = g->h.taps * g->w.taps;
    NAME(lines) l = {.g = g, .widen = g->dtype == CT_F16 || g->dtype == CT_BF16};
    NAME(cut)(&l, &g->h, &g->w, g->channels, 1 << 20);
    const int64_t parts = depthwise_up(g->batch * l.row_chunks * (all + 1) * g->channels, 16);
    if (l.widen) l.worker = depthwise_up((l.first_rows * g->w.source + l.rows * g->w.target) * g->channels + 32, 16);
    if (!scratch) return (size_t)(parts + ct__threads() * l.worker) * sizeof(T);
    l.parts = scratch;
    l.workers = scratch + parts;
    ct__parallel(g->batch * l.row_chunks, NAME(parts_chunk), &l);
    ct__parallel(all + 1, NAME(join_parts), &l);
    return 0;
}
