/* Depthwise convolution plane by plane, for one element type: T (DTYPE), V (its vectors), VL (their lanes), VF(op) and
 * NAME(x). Included by depthwise_planes.c once per type; no include guard.
 *
 * A band of source rows is copied into scratch with its padding around it, columns sorted by their remainder modulo `up`;
 * then every tap is an offset into it, and vectors run along the row whatever stride and dilation are. The target's
 * columns are likewise sorted by their remainder modulo `down` until they are stored. */

typedef struct NAME(band) {
    const depthwise_pass *p;
    int64_t left, length;      /* of a sorted source row: the first index, and how many a remainder */
    int64_t source_row;        /* elements of a source row: up * length */
    int64_t lanes;             /* of the target a remainder, whole vectors */
    int64_t target_row;        /* down * lanes */
    int64_t rows, source_rows; /* of a band */
    int64_t planes, chunk;     /* in all, and of a chunk */
    bool dense;                /* rows of T without epilogue: stored where they belong, or */
    bool stream;               /* in whole planes past the caches */
    bool direct;               /* 3x3 and stride 1, from where the source lies */
    int64_t *offsets;          /* (remainders modulo down, taps of a row), as depthwise_offset gives them */
    T *workers;
    int64_t worker; /* elements of scratch: weights, offsets of taps, source and target rows */
} NAME(band);

/* Elements that the offsets take at the begin of the scratch. */
static int64_t NAME(offset_room)(const NAME(band) * b) {
    return depthwise_up(b->p->w.down * b->p->w.taps * (int64_t)sizeof(int64_t) / (int64_t)sizeof(T), 16);
}
static T *NAME(list_offsets)(NAME(band) * b, void *scratch) {
    const depthwise_axis *w = &b->p->w;
    b->offsets = scratch;
    for (int64_t i = 0; i < w->down * w->taps; i++)
        b->offsets[i] = depthwise_offset(w, i / w->taps, i % w->taps, b->left, b->length);
    return (T *)scratch + NAME(offset_room)(b);
}

static void NAME(plan)(NAME(band) * b, const depthwise_pass *p) {
    *b = (NAME(band)){.p = p};
    const depthwise_axis *h = &p->h, *w = &p->w;
    b->lanes = depthwise_up((w->target + w->down - 1) / w->down, VL);
    b->target_row = w->down * b->lanes;
    depthwise_extent(w, b->lanes, &b->left, &b->length);
    b->left = -depthwise_up(-b->left, VL); /* rows begin on a line */
    b->length = depthwise_up(b->length + VL, VL);
    b->source_row = w->up * b->length;
    b->rows = h->target;
    while (b->rows > 8 &&
           (depthwise_rows(h, b->rows) * b->source_row + b->rows * b->target_row) * (int64_t)sizeof(T) > 24 << 10)
        b->rows = (b->rows + 1) / 2;
    b->rows = depthwise_up(ct__max64(b->rows, 1), 4); /* blocks of four rows write whole blocks */
    b->source_rows = depthwise_rows(h, b->rows);
    b->planes = p->batch * p->target_channels;
    const depthwise_image *y = &p->target;
    b->dense = p->dtype == DTYPE && y->w == 1 && p->sources == 1 && !p->residual && !p->activate;
    b->stream =
        b->dense && y->h == w->target && b->planes * h->target * w->target * (int64_t)sizeof(T) >= DEPTHWISE_STREAM;
#if CT_ISA_LEVEL >= 2
    b->direct = p->dtype == DTYPE && p->sources == 1 && p->source.w == 1 && h->up == 1 && h->down == 1 && w->up == 1 &&
                w->down == 1 && h->step == 1 && w->step == 1 && h->taps == 3 && w->taps == 3;
#endif
    const int64_t work = ct__max64(1, h->target * w->target);
    b->chunk = ct__max64(1, ct__grain(16384) / work);
    b->worker = depthwise_up(h->taps * w->taps + h->taps * w->taps * (int64_t)(sizeof(void *) / sizeof(T) + 1), 16) +
                depthwise_up(b->source_rows * b->source_row + VL, 16) + depthwise_up(b->rows * b->target_row + VL, 16) +
                32;
}

/* A row of T: whole vectors, then the rest. */
SIMD_INLINE void NAME(copy_row)(T *dst, const T *src, int64_t count) {
    int64_t j = 0;
    for (; j + VL <= count; j += VL) {
        __builtin_prefetch(src + j + 3072 / sizeof(T), 0, 2); /* 3 KiB further: most often the plane goes on there */
        VF(store)(dst + j, VF(load)(src + j));
    }
    if (j < count) VF(store_n)(dst + j, VF(load_n)(src + j, (int)(count - j)), (int)(count - j));
}

/* Copies source rows [row, row + count) of a plane. Rows outside are zero; the padding of columns is not written, it stays zero
 * from the start. */
static void NAME(copy)(const NAME(band) * b, T *dst, int64_t image, int64_t channel, int64_t row, int64_t count) {
    const depthwise_pass *p = b->p;
    const depthwise_image *s = &p->source;
    const int64_t up = p->w.up, width = p->w.source, height = p->h.source, source_row = b->source_row;
    const int64_t at = image * s->n + channel * s->c + row * s->h, room = b->length + b->left;
    if (p->dtype == DTYPE && up == 1 && s->w == 1) {
        const int64_t have = ct__min64(width, room), step = s->h;
        const T *src = (const T *)s->data + at;
        dst -= b->left;
        for (int64_t i = row; i < row + count; i++, dst += source_row, src += step)
            if (i < 0 || i >= height) memset(dst, 0, (size_t)have * sizeof *dst);
            else NAME(copy_row)(dst, src, have);
        return;
    }
    for (int64_t i = 0; i < count; i++, dst += source_row) {
        if (row + i < 0 || row + i >= height) {
            memset(dst, 0, (size_t)source_row * sizeof *dst);
            continue;
        }
        for (int64_t r = 0; r < up; r++) {
            const int64_t have = ct__max64(0, ct__min64((width - r + up - 1) / up, room));
            NAME(depthwise_read)
            (dst + r * b->length - b->left, p->dtype, s->data, at + i * s->h + r * s->w, up * s->w, have);
        }
    }
}

/* Four rows of the target, stride 1, rows of taps next to each other: each vector that is loaded serves up to TAPS rows. */
SIMD_INLINE void NAME(four_rows)(T *dst, int64_t dst_row, int64_t width, const T *src, int64_t src_row, const T *w,
                                 int64_t step, const int TAPS, T start, bool add) {
    V weight[25];
#pragma GCC unroll 25
    for (int i = 0; i < TAPS * TAPS; i++) weight[i] = VF(set1)(w[i]);
    for (int64_t j = 0; j < width; j += VL) {
        V sum[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) sum[q] = add ? VF(load)(dst + q * dst_row + j) : VF(set1)(start);
#pragma GCC unroll 5
        for (int k = 0; k < TAPS; k++) {
            const T *at = src + j + k * step;
#pragma GCC unroll 8
            for (int r = 0; r < TAPS + 3; r++) {
                V v = VF(load)(at + r * src_row);
                DEPTHWISE_KEEP(v);
#pragma GCC unroll 4
                for (int q = 0; q < 4; q++)
                    if (r - q >= 0 && r - q < TAPS) sum[q] = VF(fma)(v, weight[(r - q) * TAPS + k], sum[q]);
            }
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            if (j + VL <= width) VF(store)(dst + q * dst_row + j, sum[q]);
            else VF(store_n)(dst + q * dst_row + j, sum[q], (int)(width - j));
    }
}
static __attribute__((noinline)) void NAME(four_rows_3)(T *dst, int64_t dst_row, int64_t width, const T *src,
                                                        int64_t src_row, const T *w, int64_t step, T start, bool add) {
    NAME(four_rows)(dst, dst_row, width, src, src_row, w, step, 3, start, add);
}
static __attribute__((noinline)) void NAME(four_rows_5)(T *dst, int64_t dst_row, int64_t width, const T *src,
                                                        int64_t src_row, const T *w, int64_t step, T start, bool add) {
    NAME(four_rows)(dst, dst_row, width, src, src_row, w, step, 5, start, add);
}

/* Any taps, as a list of places and weights. */
static void NAME(any_row)(T *dst, int64_t lanes, const T *const *from, const T *w, int64_t taps, T start, bool add) {
    int64_t j = 0;
    for (; j + 4 * VL <= lanes; j += 4 * VL) {
        V s0 = VF(set1)(start), s1 = s0, s2 = s0, s3 = s0;
        if (add)
            s0 = VF(load)(dst + j), s1 = VF(load)(dst + j + VL), s2 = VF(load)(dst + j + 2 * VL),
            s3 = VF(load)(dst + j + 3 * VL);
        for (int64_t t = 0; t < taps; t++) {
            const V x = VF(set1)(w[t]);
            const T *at = from[t] + j;
            s0 = VF(fma)(VF(load)(at), x, s0), s1 = VF(fma)(VF(load)(at + VL), x, s1);
            s2 = VF(fma)(VF(load)(at + 2 * VL), x, s2), s3 = VF(fma)(VF(load)(at + 3 * VL), x, s3);
        }
        VF(store)(dst + j, s0), VF(store)(dst + j + VL, s1);
        VF(store)(dst + j + 2 * VL, s2), VF(store)(dst + j + 3 * VL, s3);
    }
    for (; j < lanes; j += VL) {
        V s = add ? VF(load)(dst + j) : VF(set1)(start);
        for (int64_t t = 0; t < taps; t++) s = VF(fma)(VF(load)(from[t] + j), VF(set1)(w[t]), s);
        VF(store)(dst + j, s);
    }
}

/* Residual, activation, and the columns back in their order. */
static void NAME(finish)(const NAME(band) * b, T *rows, int64_t image, int64_t channel, int64_t row, int64_t count) {
    const depthwise_pass *p = b->p;
    const depthwise_image *y = &p->target;
    const int64_t down = p->w.down, width = p->w.target;
    for (int64_t i = row; i < row + count; i++, rows += b->target_row)
        for (int64_t r = 0; r < down && r < width; r++) {
            T *line = rows + r * b->lanes;
            const int64_t have = (width - r + down - 1) / down;
            if (p->residual) {
                const ct_image_strides *s = &p->residual_step;
                const int64_t at = image * s->n + channel * s->c + i * s->s[1] + r * s->s[2];
                for (int64_t j = 0; j < have; j += VL) {
                    T more[VL];
                    const int64_t n = ct__min64(VL, have - j);
                    NAME(depthwise_read)(more, p->dtype, p->residual, at + j * down * s->s[2], down * s->s[2], n);
                    VF(store_n)(line + j, VF(add)(VF(load_n)(line + j, (int)n), VF(load_n)(more, (int)n)), (int)n);
                }
            }
            if (p->activate) p->activate(NULL, line, have);
            NAME(depthwise_write)
            (line, p->dtype, y->data, image * y->n + channel * y->c + i * y->h + r * y->w, down * y->w, have);
        }
}

/* Past the caches: whole lines, and what is left at both ends as usual. */
static void NAME(stream_out)(T *dst, const T *src, int64_t count) {
    const int64_t line = 64 / (int64_t)sizeof(T);
    int64_t i = ct__min64(count, (int64_t)(-(uintptr_t)dst % 64 / sizeof(T)));
    memcpy(dst, src, (size_t)i * sizeof *dst);
    for (; i + line <= count; i += line)
#pragma GCC unroll 4
        for (int64_t j = i; j < i + line; j += VL) VF(stream)(dst + j, VF(load)(src + j));
    memcpy(dst + i, src + i, (size_t)(count - i) * sizeof *dst);
}

/* Stride 1 and square kernels of 3 or 5: rows [row, row + rows) of a plane, four at a time. The source rows of the next four
 * are copied before these are computed: the processor waits for memory and computes at once. */
static void NAME(plain_rows)(const NAME(band) * b, int64_t image, int64_t channel, int64_t other, int64_t row,
                             int64_t rows, T *source, T *target, const T *weight, T start, bool add) {
    const depthwise_pass *p = b->p;
    const depthwise_axis *h = &p->h, *w = &p->w;
    const depthwise_image *y = &p->target;
    const int64_t target_row = b->dense ? w->target : b->target_row, edge = h->taps - 1, first = row + h->first;
    const int64_t all = depthwise_up(rows, 4) + edge;
    T *place = (T *)y->data;
    if (b->dense) place += image * y->n + channel * y->c + row * y->h;
    const T *from = source + depthwise_offset(w, 0, 0, b->left, b->length);
    int64_t sent = 0; /* of a result that goes past the caches: whole lines, as soon as they are there */
    NAME(copy)(b, source, image, other, first, 4 + edge);
    for (int64_t i = 0; i < rows; i += 4) {
        const bool direct = b->dense && !b->stream && i + 4 <= rows;
        const int64_t have = i + 4 + edge;
        if (have < all) NAME(copy)(b, source + have * b->source_row, image, other, first + have, 4);
        (h->taps == 3 ? NAME(four_rows_3) : NAME(four_rows_5))(
            direct ? place + i * y->h : target + i * target_row, direct ? y->h : target_row, w->target,
            from + i * b->source_row, b->source_row, weight, w->step, start, add);
        if (b->stream) {
            int64_t end = ct__min64(i + 4, rows) * w->target;
            if (i + 4 < rows) end -= (int64_t)((uintptr_t)(place + end) % 64 / sizeof(T));
            if (end > sent) {
                NAME(stream_out)(place + sent, target + sent, end - sent);
                sent = end;
            }
        }
        if (b->dense && !direct && !b->stream)
            for (int64_t q = i; q < rows; q++)
                memcpy(place + q * y->h, target + q * target_row, (size_t)w->target * sizeof(T));
    }
}

#if CT_ISA_LEVEL >= 2
/* Where loads can leave out lanes, 3x3 needs no copy: eight rows of results from ten of the source, which are read
 * where they lie. The first tap of column 0 looks at column `shift` of the source, which has `have` of them. */
static __attribute__((noinline)) void NAME(eight_rows)(T *dst, int64_t dst_row, int64_t rows, int64_t width,
                                                       const T *const *src, int64_t shift, int64_t have, const T *w,
                                                       T start) {
    V weight[9];
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) {
        weight[i] = VF(set1)(w[i]);
        DEPTHWISE_KEEP(weight[i]);
    }
    for (int64_t j = 0; j < width; j += VL) {
        const unsigned lanes = depthwise_lanes(0, width - j, VL);
        unsigned there[3];
        V sum[8];
#pragma GCC unroll 3
        for (int k = 0; k < 3; k++) there[k] = depthwise_lanes(-(j + k + shift), have - (j + k + shift), VL);
#pragma GCC unroll 8
        for (int q = 0; q < 8; q++) sum[q] = VF(set1)(start);
#pragma GCC unroll 10
        for (int r = 0; r < 10; r++) {
            const T *at = src[r] + j + shift;
#pragma GCC unroll 3
            for (int k = 0; k < 3; k++) {
                V v = LOAD_LANES(there[k], at + k);
                DEPTHWISE_KEEP(v);
#pragma GCC unroll 8
                for (int q = 0; q < 8; q++)
                    if (r - q >= 0 && r - q < 3) sum[q] = VF(fma)(v, weight[(r - q) * 3 + k], sum[q]);
            }
        }
#pragma GCC unroll 8
        for (int q = 0; q < 8; q++) {
            if (q >= rows) break;
            STORE_LANES(dst + q * dst_row + j, lanes, sum[q]);
        }
    }
}

static void NAME(direct_plane)(const NAME(band) * b, int64_t image, int64_t channel, const T *plane, T *zeros,
                               T *target, const T *weight, T start) {
    const depthwise_pass *p = b->p;
    const depthwise_image *y = &p->target, *x = &p->source;
    const int64_t width = p->w.target, height = p->h.target;
    T *place = (T *)y->data + image * y->n + channel * y->c;
    int64_t sent = 0, had = 0; /* of a result that goes past the caches: whole lines, as soon as they are there */
    for (int64_t i = 0; i < height; i += 8) {
        const T *rows[10];
        for (int r = 0; r < 10; r++) {
            const int64_t row = p->h.first + i + r;
            const bool there = row >= 0 && row < p->h.source;
            rows[r] = there ? plane + row * x->h : zeros;
            for (int64_t j = 0; there && r < 8 && j < p->w.source; j += 64 / (int64_t)sizeof(T)) /* what follows it */
                __builtin_prefetch(rows[r] + j + 16 * x->h, 0, 2);
        }
        const int64_t count = ct__min64(8, height - i);
        const bool placed = b->dense && !b->stream;
        NAME(eight_rows)
        (placed ? place + i * y->h : target + had - sent,
         placed     ? y->h
         : b->dense ? width
                    : b->target_row,
         count, width, rows, p->w.first, p->w.source, weight, start);
        if (!b->dense) NAME(finish)(b, target, image, channel, i, count);
        if (!b->stream) continue;
        had += count * width;
        int64_t end = had;
        if (i + 8 < height) end -= (int64_t)((uintptr_t)(place + end) % 64 / sizeof(T));
        if (end <= sent) continue;
        NAME(stream_out)(place + sent, target, end - sent);
        memmove(target, target + end - sent, (size_t)(had - end) * sizeof *target);
        sent = end;
    }
}
#endif

static void NAME(plane)(const NAME(band) * b, int64_t image, int64_t channel, T *scratch) {
    const depthwise_pass *p = b->p;
    const depthwise_axis *h = &p->h, *w = &p->w;
    const int64_t all = h->taps * w->taps;
    T *weight = scratch, *list = weight + all;
    const T **from = (const T **)(void *)(((uintptr_t)(list + all) + 15) & ~(uintptr_t)15);
    T *source = (T *)(void *)(((uintptr_t)(from + all) + 63) & ~(uintptr_t)63);
    T *target = source + depthwise_up(b->source_rows * b->source_row + VL, 16);
    T start = 0;
    if (p->bias) NAME(depthwise_read)(&start, p->dtype, p->bias, channel * p->bias_step, 1, 1);
    const bool plain = h->up == 1 && h->down == 1 && w->up == 1 && w->down == 1 && h->step == 1 && h->taps == w->taps &&
                       (h->taps == 3 || h->taps == 5);
    for (int64_t row = 0; row < h->target; row += b->rows) {
        const int64_t rows = ct__min64(b->rows, h->target - row);
        const int64_t first = depthwise_floor(row * h->up + h->first, h->down);
        for (int64_t s = 0; s < p->sources; s++) {
            const int64_t other = p->forward ? channel / p->multiplier : channel * p->multiplier + s;
            const int64_t o = p->forward ? channel : other;
            for (int64_t k = 0; k < h->taps; k++) NAME(depthwise_read)
            (weight + k * w->taps, p->dtype, p->weight, o * p->w_o + k * p->w_h, p->w_w, w->taps);
#if CT_ISA_LEVEL >= 2
            if (b->direct) {
                const T *data = (const T *)p->source.data + image * p->source.n + other * p->source.c;
                NAME(direct_plane)(b, image, channel, data, source, target, weight, start);
                return;
            }
#endif
            if (plain) {
                NAME(plain_rows)(b, image, channel, other, row, rows, source, target, weight, start, s > 0);
                continue;
            }
            NAME(copy)(b, source, image, other, first, depthwise_rows(h, rows));
            for (int64_t i = 0; i < rows; i++)
                for (int64_t r = 0; r < w->down; r++) {
                    int64_t taps = 0;
                    for (int64_t k = 0; k < h->taps; k++) {
                        const int64_t at = depthwise_at(h, row + i, k);
                        for (int64_t t = 0; t < w->taps && at >= 0; t++) {
                            const int64_t offset = b->offsets[r * w->taps + t];
                            if (offset < 0) continue;
                            from[taps] = source + (at - first) * b->source_row + offset;
                            list[taps++] = weight[k * w->taps + t];
                        }
                    }
                    NAME(any_row)(target + i * b->target_row + r * b->lanes, b->lanes, from, list, taps, start, s > 0);
                }
        }
        if (!plain || !b->dense) NAME(finish)(b, target, image, channel, row, rows);
    }
}

static void NAME(planes_chunk)(void *ctx, int64_t chunk, int worker) {
    const NAME(band) *b = ctx;
    const int64_t end = ct__min64((chunk + 1) * b->chunk, b->planes);
    for (int64_t i = chunk * b->chunk; i < end; i++)
        NAME(plane)(b, i / b->p->target_channels, i % b->p->target_channels, b->workers + worker * b->worker);
    if (b->stream) simd_fence();
}

/* ---- Weight gradient: sums over the positions of each plane, then over images ---- */

typedef struct NAME(sums) {
    NAME(band) band;
    const depthwise_gradient *g;
    T *parts; /* (planes, taps + 1): of every plane, the last for the bias */
} NAME(sums);

/* sum[k][t] += g[i - k][j] x[i][j + t * step] for `rows` rows i of x; g has zero rows around it. */
SIMD_INLINE void NAME(add_taps)(V *sums, const T *x, int64_t x_row, const T *g, int64_t g_row, int64_t rows,
                                int64_t lanes, int64_t step, const int TAPS, const int COLS) {
    V s[15];
#pragma GCC unroll 15
    for (int i = 0; i < TAPS * COLS; i++) s[i] = sums[i];
    for (int64_t i = 0; i < rows; i++, x += x_row, g += g_row)
        for (int64_t j = 0; j < lanes; j += VL) {
            V v[3];
#pragma GCC unroll 3
            for (int t = 0; t < COLS; t++) {
                v[t] = VF(load)(x + j + t * step);
                DEPTHWISE_KEEP(v[t]);
            }
#pragma GCC unroll 5
            for (int k = 0; k < TAPS; k++) {
                V y = VF(load)(g + j - k * g_row);
                DEPTHWISE_KEEP(y);
#pragma GCC unroll 3
                for (int t = 0; t < COLS; t++) s[k * COLS + t] = VF(fma)(y, v[t], s[k * COLS + t]);
            }
        }
#pragma GCC unroll 15
    for (int i = 0; i < TAPS * COLS; i++) sums[i] = s[i];
}
static __attribute__((noinline)) void NAME(add_3x3)(V *sums, const T *x, int64_t x_row, const T *g, int64_t g_row,
                                                    int64_t rows, int64_t lanes, int64_t step) {
    NAME(add_taps)(sums, x, x_row, g, g_row, rows, lanes, step, 3, 3);
}
static __attribute__((noinline)) void NAME(add_5x1)(V *sums, const T *x, int64_t x_row, const T *g, int64_t g_row,
                                                    int64_t rows, int64_t lanes, int64_t step) {
    NAME(add_taps)(sums, x, x_row, g, g_row, rows, lanes, step, 5, 1);
}

/* 3x3 with g read where it lies: x's row i meets g[i], g[i + 1] and g[i + 2], which are taps 2, 1 and 0. */
SIMD_INLINE void NAME(add_vector)(V *s, const T *x, int64_t step, V y0, V y1, V y2) {
#pragma GCC unroll 3
    for (int t = 0; t < 3; t++) {
        V v = VF(load)(x + t * step);
        DEPTHWISE_KEEP(v);
        s[t] = VF(fma)(y0, v, s[t]), s[3 + t] = VF(fma)(y1, v, s[3 + t]), s[6 + t] = VF(fma)(y2, v, s[6 + t]);
    }
}
static __attribute__((noinline)) void NAME(add_direct)(V *sums, const T *x, int64_t x_row, const T *const *g,
                                                       int64_t rows, int64_t width, int64_t step) {
    V s[9];
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) s[i] = sums[i];
    for (int64_t i = 0; i < rows; i++, x += x_row) {
        const T *g0 = g[i + 2], *g1 = g[i + 1], *g2 = g[i];
        int64_t j = 0;
        for (; j + VL <= width; j += VL) {
            __builtin_prefetch(g0 + j + 3072 / sizeof(T), 0, 2);
            V y0 = VF(load)(g0 + j), y1 = VF(load)(g1 + j), y2 = VF(load)(g2 + j);
            DEPTHWISE_KEEP(y0);
            DEPTHWISE_KEEP(y1);
            DEPTHWISE_KEEP(y2);
            NAME(add_vector)(s, x + j, step, y0, y1, y2);
        }
        const int n = (int)(width - j);
        if (n) NAME(add_vector)(s, x + j, step, VF(load_n)(g0 + j, n), VF(load_n)(g1 + j, n), VF(load_n)(g2 + j, n));
    }
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) sums[i] = s[i];
}

/* One row of g with one row of x: four taps share what is loaded of g. */
static void NAME(add_any)(V *sums, const T *const *x, const T *g, int64_t taps, int64_t lanes) {
    for (int64_t t = 0; t < taps; t += 4) {
        const int64_t left = taps - t;
        const T *x0 = x[t], *x1 = x[t + (left > 1 ? 1 : 0)], *x2 = x[t + (left > 2 ? 2 : 0)],
                *x3 = x[t + (left > 3 ? 3 : 0)];
        V s0 = sums[t], s1 = left > 1 ? sums[t + 1] : s0, s2 = left > 2 ? sums[t + 2] : s0,
          s3 = left > 3 ? sums[t + 3] : s0;
        for (int64_t j = 0; j < lanes; j += VL) {
            const V y = VF(load)(g + j);
            s0 = VF(fma)(y, VF(load)(x0 + j), s0), s1 = VF(fma)(y, VF(load)(x1 + j), s1);
            s2 = VF(fma)(y, VF(load)(x2 + j), s2), s3 = VF(fma)(y, VF(load)(x3 + j), s3);
        }
        sums[t] = s0;
        if (left > 1) sums[t + 1] = s1;
        if (left > 2) sums[t + 2] = s2;
        if (left > 3) sums[t + 3] = s3;
    }
}

/* Rows of g, zero up to whole vectors, and their sum. */
static V NAME(copy_g)(const NAME(sums) * s, T *to, int64_t image, int64_t o, int64_t row, int64_t rows, V total) {
    const depthwise_gradient *g = s->g;
    const int64_t width = g->w.target, lanes = s->band.lanes;
    for (int64_t i = 0; i < rows; i++, to += lanes) {
        const int64_t at = image * g->g.n + o * g->g.c + (row + i) * g->g.h;
        if (g->dtype == DTYPE && g->g.w == 1) NAME(copy_row)(to, (const T *)g->g.data + at, width);
        else NAME(depthwise_read)(to, g->dtype, g->g.data, at, g->g.w, width);
        for (int64_t j = 0; g->bias && j < lanes; j += VL) total = VF(add)(total, VF(load)(to + j));
    }
    return total;
}

static void NAME(sum_plane)(const NAME(sums) * s, int64_t plane, T *scratch) {
    const depthwise_gradient *g = s->g;
    const NAME(band) *b = &s->band;
    const depthwise_axis *h = &g->h, *w = &g->w;
    const int64_t outs = g->channels * g->multiplier, image = plane / outs, o = plane % outs;
    const int64_t all = h->taps * w->taps, channel = o / g->multiplier, edge = h->taps - 1;
    V *sum = (V *)(void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    const T **from = (const T **)(void *)(sum + all + 1);
    T *x = (T *)(void *)(((uintptr_t)(from + w->taps) + 63) & ~(uintptr_t)63);
    T *y = x + depthwise_up((b->source_rows + edge) * b->source_row + VL, 16);
    const bool plain = h->up == 1 && w->up == 1 && h->step == 1 && h->taps == w->taps && (h->taps == 3 || h->taps == 5);
    V total = VF(set1)(0);
    for (int64_t i = 0; i < all; i++) sum[i] = total;
    const int64_t border = plain ? edge : 0; /* zero rows around those of g */
    for (int64_t row = 0; row < h->target; row += b->rows) {
        const int64_t rows = ct__min64(b->rows, h->target - row), first = row * h->up + h->first;
        T *to = y + border * b->lanes;
        if (plain && h->taps == 3 && g->dtype == DTYPE && g->g.w == 1) {
            const T *at = x + depthwise_offset(w, 0, 0, b->left, b->length);
            const T *plane_g = (const T *)g->g.data + image * g->g.n + o * g->g.c + row * g->g.h;
            NAME(copy)(b, x, image, channel, first, ct__min64(4, rows + edge));
            for (int64_t i = 0; i < rows + edge; i += 4) {
                const int64_t n = ct__min64(4, rows + edge - i);
                const T *lines[6];
                for (int64_t q = 0; q < n + 2; q++) /* rows that are not there: zeros */
                    lines[q] = i + q < 2 || i + q - 2 >= rows ? y : plane_g + (i + q - 2) * g->g.h;
                if (i + 4 < rows + edge) NAME(copy)
                (b, x + (i + 4) * b->source_row, image, channel, first + i + 4, ct__min64(4, rows + edge - i - 4));
                NAME(add_direct)(sum, at + i * b->source_row, b->source_row, lines, n, w->target, w->step);
            }
            for (int64_t i = 0; g->bias && i < rows; i++)
                for (int64_t j = 0; j < w->target; j += VL)
                    total = VF(add)(total, VF(load_n)(plane_g + i * g->g.h + j, (int)ct__min64(VL, w->target - j)));
            continue;
        }
        if (plain) {
            /* As in plain_rows: the next rows are copied before these are added. */
            const T *at = x + depthwise_offset(w, 0, 0, b->left, b->length);
            const int64_t have = rows + edge;
            for (int64_t i = -4; i < have; i += 4) {
                const int64_t next = i + 4;
                NAME(copy)
                (b, x + next * b->source_row, image, channel, first + next, ct__max64(0, ct__min64(4, have - next)));
                total = NAME(copy_g)(s, to + next * b->lanes, image, o, row + next, ct__min64(4, rows - next), total);
                if (next >= rows)
                    memset(to + next * b->lanes, 0,
                           (size_t)(ct__max64(0, ct__min64(4, have - next)) * b->lanes) * sizeof *to);
                else if (next + 4 > rows)
                    memset(to + rows * b->lanes, 0, (size_t)((next + 4 - rows) * b->lanes) * sizeof *to);
                if (i < 0) continue;
                const int64_t n = ct__min64(4, have - i);
                const T *xi = at + i * b->source_row, *gi = to + i * b->lanes;
                if (h->taps == 3) NAME(add_3x3)(sum, xi, b->source_row, gi, b->lanes, n, b->lanes, w->step);
                for (int64_t t = 0; h->taps == 5 && t < 5; t++)
                    NAME(add_5x1)(sum + t * 5, xi + t * w->step, b->source_row, gi, b->lanes, n, b->lanes, 0);
            }
            continue;
        }
        total = NAME(copy_g)(s, to, image, o, row, rows, total);
        NAME(copy)(b, x, image, channel, first, depthwise_rows(h, rows) - 1);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = 0; k < h->taps; k++) {
                const int64_t at = depthwise_at(h, row + i, k);
                if (at < 0) continue;
                for (int64_t t = 0; t < w->taps; t++) from[t] = x + (at - first) * b->source_row + b->offsets[t];
                NAME(add_any)(sum + k * w->taps, from, y + i * b->lanes, w->taps, b->lanes);
            }
    }
    T *part = s->parts + plane * (all + 1);
    for (int64_t k = 0; k < h->taps; k++)
        for (int64_t t = 0; t < w->taps; t++)
            part[k * w->taps + t] = VF(hsum)(sum[plain && h->taps == 5 ? t * 5 + k : k * w->taps + t]);
    part[all] = VF(hsum)(total);
}

static void NAME(sums_chunk)(void *ctx, int64_t chunk, int worker) {
    const NAME(sums) *s = ctx;
    const int64_t end = ct__min64((chunk + 1) * s->band.chunk, s->band.planes);
    for (int64_t i = chunk * s->band.chunk; i < end; i++)
        NAME(sum_plane)(s, i, s->band.workers + worker * s->band.worker);
}

/* The parts of all images, in their order. */
static void NAME(join_chunk)(void *ctx, int64_t o, int worker) {
    const NAME(sums) *s = ctx;
    const depthwise_gradient *g = s->g;
    const int64_t outs = g->channels * g->multiplier, all = g->h.taps * g->w.taps;
    T *sum = s->parts + o * (all + 1);
    (void)worker;
    for (int64_t image = 1; image < g->batch; image++)
        for (int64_t t = 0; t <= all; t++) sum[t] += sum[image * outs * (all + 1) + t];
    for (int64_t k = 0; k < g->h.taps; k++)
        for (int64_t t = 0; t < g->w.taps; t++) NAME(depthwise_write)
    (sum + k * g->w.taps + t, g->dtype, g->weight, o * g->w_o + k * g->w_h + t * g->w_w, 1, 1);
    if (g->bias) NAME(depthwise_write)(sum + all, g->dtype, g->bias, o, 1, 1);
}

static void NAME(plan_sums)(NAME(sums) * s, depthwise_pass *pass, const depthwise_gradient *g) {
    *pass = (depthwise_pass){.h = g->h,
                             .w = g->w,
                             .batch = g->batch,
                             .target_channels = g->channels * g->multiplier,
                             .dtype = g->dtype,
                             .source = g->x};
    NAME(plan)(&s->band, pass);
    s->g = g;
    NAME(band) *b = &s->band;
    const int64_t edge = g->h.taps - 1;
    b->worker =
        depthwise_up((g->h.taps * g->w.taps + 1) * VL + g->w.taps * (int64_t)(sizeof(void *) / sizeof(T) + 1), 16) +
        depthwise_up((b->source_rows + edge) * b->source_row + VL, 16) +
        depthwise_up((b->rows + 2 * edge) * b->lanes, 16) + 48;
}
