/* Sampling patches for a deformable convolution, a template over the type: define SAMPLE_D as f32 or f64. x lies with its
 * channels last, so that a line is the channels of one place. Included by deform.cpu.c. */
#define SAMPLE_T  ELEMENT(SAMPLE_D)
#define SAMPLE_V  VECTOR(SAMPLE_D)
#define SAMPLE(x) ELEMENT_PASTE(SAMPLE_D, ELEMENT_PASTE(_, x))
/* body over i in steps of a vector, with LOAD and STORE whole but for the last one: what is stored under a mask cannot be
 * forwarded to the next load of it */
#define SAMPLE_EACH(n, body)                                       \
    {                                                              \
        int64_t i = 0;                                             \
        for (; i + LANES(SAMPLE_D) <= (n); i += LANES(SAMPLE_D)) { \
            body(SAMPLE_WHOLE, SAMPLE_PUT);                        \
        }                                                          \
        const int lanes = (int)((n)-i);                            \
        if (lanes > 0) {                                           \
            body(SAMPLE_SOME, SAMPLE_PUT_SOME);                    \
        }                                                          \
    }
#define SAMPLE_WHOLE(p)       SAMPLE(load)(p)
#define SAMPLE_SOME(p)        SAMPLE(load_n)(p, lanes)
#define SAMPLE_PUT(p, v)      SAMPLE(store)(p, v)
#define SAMPLE_PUT_SOME(p, v) SAMPLE(store_n)(p, v, lanes)

/* A place of a tap: the four pixels around it (number within the image, -1 outside), their weights, how far it is beyond the
 * lower ones, and the mask. */
typedef struct SAMPLE(spot) {
    int32_t at[4];
    SAMPLE_T weight[4], part[2], mask;
} SAMPLE(spot);

/* The spots of all groups of offsets and taps at one pixel of the result. */
static void SAMPLE(find_spots)(const job *j, int64_t pixel) {
    const ct_window *w = &j->d.w;
    const int64_t n = j->image, oy = pixel / w->out[2], ox = pixel % w->out[2], taps = j->d.offset_groups * j->d.taps;
    const SAMPLE_T *offset =
        (const SAMPLE_T *)j->offset + n * j->offset_s.n + oy * j->offset_s.s[1] + ox * j->offset_s.s[2];
    const SAMPLE_T *mask = (const SAMPLE_T *)j->mask + n * j->mask_s.n + oy * j->mask_s.s[1] + ox * j->mask_s.s[2];
    SAMPLE(spot) *s = (SAMPLE(spot) *)j->spots + pixel * taps;
    int64_t ky = 0, kx = 0;
    for (int64_t t = 0; t < taps; t++, s++) {
        const SAMPLE_T y =
            offset[2 * t * j->offset_s.c] + (SAMPLE_T)(oy * w->stride[1] - w->before[1] + ky * w->dilation[1]);
        const SAMPLE_T x =
            offset[(2 * t + 1) * j->offset_s.c] + (SAMPLE_T)(ox * w->stride[2] - w->before[2] + kx * w->dilation[2]);
        if (++kx == w->kernel[2]) kx = 0, ky++;
        if (ky == w->kernel[1]) ky = 0;
        const bool near = y >= -1 && y < (SAMPLE_T)w->in[1] && x >= -1 && x < (SAMPLE_T)w->in[2];
        *s = (SAMPLE(spot)){.at = {-1, -1, -1, -1}, .mask = j->mask ? mask[t * j->mask_s.c] : 1};
        if (!near) continue;
        const int64_t low_y = (int64_t)y - ((SAMPLE_T)(int64_t)y > y), low_x = (int64_t)x - ((SAMPLE_T)(int64_t)x > x);
        s->part[0] = y - (SAMPLE_T)low_y;
        s->part[1] = x - (SAMPLE_T)low_x;
        const SAMPLE_T wy[2] = {1 - s->part[0], s->part[0]}, wx[2] = {1 - s->part[1], s->part[1]};
        const int32_t corner = (int32_t)(low_y * w->in[2] + low_x);
        const bool in_y[2] = {low_y >= 0, low_y + 1 < w->in[1]}, in_x[2] = {low_x >= 0, low_x + 1 < w->in[2]};
        for (int c = 0; c < 4; c++) {
            const bool inside = in_y[c / 2] && in_x[c % 2];
            s->at[c] = inside ? corner + (int32_t)(c / 2 * w->in[2] + c % 2) : -1;
            s->weight[c] = inside ? wy[c / 2] * wx[c % 2] : 0;
        }
    }
}

/* The channels of pixel c of a spot, from `first` on; zeros outside. */
#define SAMPLE_PIXEL(s, c, first)                \
    ((s)->at[c] < 0 ? (const SAMPLE_T *)j->zeros \
                    : (const SAMPLE_T *)j->x + j->image * j->x_s.n + (s)->at[c] * j->x_s.s[2] + (first))

/* to = sum of weight * pixel * mask over n channels from first on, of one group of offsets. */
static inline void SAMPLE(line)(const job *j, const SAMPLE(spot) * s, int64_t first, int64_t n, SAMPLE_T *to) {
    SAMPLE_V w[4];
    const SAMPLE_T *pixel[4];
    for (int c = 0; c < 4; c++) {
        w[c] = SAMPLE(set1)(s->weight[c] * s->mask);
        pixel[c] = SAMPLE_PIXEL(s, c, first);
    }
#define SAMPLE_BLEND(LOAD, PUT)                                                                        \
    {                                                                                                  \
        SAMPLE_V a = SAMPLE(mul)(w[0], LOAD(pixel[0] + i)), b = SAMPLE(mul)(w[2], LOAD(pixel[2] + i)); \
        a = SAMPLE(fma)(w[1], LOAD(pixel[1] + i), a);                                                  \
        b = SAMPLE(fma)(w[3], LOAD(pixel[3] + i), b);                                                  \
        PUT(to + i, SAMPLE(add)(a, b));                                                                \
    }
    SAMPLE_EACH(n, SAMPLE_BLEND)
}

/* Columns k0 to k0 + n - 1 of the patch of a pixel for one group of the convolution: taps, and within them channels. */
static void SAMPLE(patch)(const job *j, int64_t group, int64_t pixel, int64_t k0, int64_t n, SAMPLE_T *to) {
    const int64_t each = j->d.channels / j->d.groups, shared = j->d.channels / j->d.offset_groups;
    const SAMPLE(spot) *spots = (const SAMPLE(spot) *)j->spots + pixel * j->d.offset_groups * j->d.taps;
    int64_t tap = k0 / each, at = k0 % each;
    while (n > 0) {
        const int64_t channel = group * each + at, of = j->d.offset_groups == 1 ? 0 : channel / shared;
        const int64_t run = ct__min64(ct__min64(each - at, (of + 1) * shared - channel), n);
        SAMPLE(line)(j, spots + of * j->d.taps + tap, channel, run, to);
        to += run;
        n -= run;
        at += run;
        if (at == each) at = 0, tap++;
    }
}

/* The patches as the rows of a left operand: (pixels, taps * channels). */
static void SAMPLE(pack_rows)(const void *context, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows,
                              int64_t k0, int64_t depth) {
    for (int64_t i = 0; i < rows; i++) SAMPLE(patch)(context, batch, row0 + i, k0, depth, (SAMPLE_T *)dst + i * ld);
}

/* The patches as a right operand, a panel of `width` columns: (pixels, taps * channels). */
static void SAMPLE(pack_panel)(const void *context, int64_t batch, void *dst, int64_t k0, int64_t depth, int64_t col0,
                               int64_t cols) {
    const job *j = context;
    for (int64_t p = 0; p < depth; p++) SAMPLE(patch)(j, batch, k0 + p, col0, cols, (SAMPLE_T *)dst + p * j->width);
}

/* Gradients of offset and mask at one pixel: with e_c = <dc, pixel c> and dc the gradient of the column,
 *     d place_y = mask ((e_2 - e_0)(1 - part_x) + (e_3 - e_1) part_x), and so on. */
static void SAMPLE(moves_of_pixel)(const job *j, int64_t pixel) {
    const ct_window *w = &j->d.w;
    const int64_t each = j->d.channels / j->d.groups, shared = j->d.channels / j->d.offset_groups, n = j->image;
    const int64_t oy = pixel / w->out[2], ox = pixel % w->out[2];
    const SAMPLE_T *column = (const SAMPLE_T *)j->columns + pixel * j->d.taps * j->d.channels;
    const SAMPLE(spot) *s = (const SAMPLE(spot) *)j->spots + pixel * j->d.offset_groups * j->d.taps;
    for (int64_t of = 0; of < j->d.offset_groups; of++)
        for (int64_t tap = 0; tap < j->d.taps; tap++, s++) {
            SAMPLE_V e[4];
            for (int c = 0; c < 4; c++) e[c] = SAMPLE(set1)(0);
            for (int64_t at = of * shared, run; at < (of + 1) * shared; at += run) {
                const int64_t group = j->d.groups == 1 ? 0 : at / each;
                run = ct__min64((group + 1) * each, (of + 1) * shared) - at;
                const SAMPLE_T *dc = column + (group * j->d.taps + tap) * each + at - group * each;
                const SAMPLE_T *p[4];
                for (int c = 0; c < 4; c++) p[c] = SAMPLE_PIXEL(s, c, at);
#define SAMPLE_DOTS(LOAD, PUT)                                                   \
    {                                                                            \
        const SAMPLE_V d = LOAD(dc + i);                                         \
        for (int c = 0; c < 4; c++) e[c] = SAMPLE(fma)(d, LOAD(p[c] + i), e[c]); \
    }
                SAMPLE_EACH(run, SAMPLE_DOTS)
            }
            SAMPLE_T h[4], weighed = 0;
            for (int c = 0; c < 4; c++) {
                h[c] = s->at[c] < 0 ? 0 : SAMPLE(hsum)(e[c]);
                weighed += s->weight[c] * h[c];
            }
            const SAMPLE_T move[2] = {s->mask * ((h[2] - h[0]) * (1 - s->part[1]) + (h[3] - h[1]) * s->part[1]),
                                      s->mask * ((h[1] - h[0]) * (1 - s->part[0]) + (h[3] - h[2]) * s->part[0])};
            const int64_t channel = of * j->d.taps + tap;
            for (int a = 0; a < 2 && j->doffset; a++)
                ((SAMPLE_T *)j->doffset)[n * j->doffset_s.n + (2 * channel + a) * j->doffset_s.c +
                                         oy * j->doffset_s.s[1] + ox * j->doffset_s.s[2]] = move[a];
            if (j->dmask)
                ((SAMPLE_T *)j
                     ->dmask)[n * j->dmask_s.n + channel * j->dmask_s.c + oy * j->dmask_s.s[1] + ox * j->dmask_s.s[2]] =
                    weighed;
        }
}

/* The gradient of x, channels first to end of one image, into dx, (pixels of x, channels). */
static void SAMPLE(spread_channels)(const job *j, int64_t first, int64_t end) {
    const ct_window *w = &j->d.w;
    const int64_t each = j->d.channels / j->d.groups, shared = j->d.channels / j->d.offset_groups;
    SAMPLE_T *dx = (SAMPLE_T *)j->dx;
    for (int64_t i = 0; i < w->in[1] * w->in[2]; i++)
        memset(dx + i * j->d.channels + first, 0, (size_t)(end - first) * sizeof *dx);
    const SAMPLE(spot) *spots = (const SAMPLE(spot) *)j->spots;
    for (int64_t pixel = 0; pixel < j->d.pixels; pixel++, spots += j->d.offset_groups * j->d.taps) {
        const SAMPLE_T *column = (const SAMPLE_T *)j->columns + pixel * j->d.taps * j->d.channels;
        for (int64_t channel = first, run; channel < end; channel += run) {
            const int64_t group = channel / each, of = channel / shared;
            run = ct__min64(ct__min64((group + 1) * each, (of + 1) * shared), end) - channel;
            const SAMPLE(spot) *s = spots + of * j->d.taps;
            const SAMPLE_T *dc = column + group * j->d.taps * each + channel - group * each;
            for (int64_t tap = 0; tap < j->d.taps; tap++, s++, dc += each)
                for (int c = 0; c < 4; c++) {
                    if (s->at[c] < 0) continue;
                    const SAMPLE_V weight = SAMPLE(set1)(s->weight[c] * s->mask);
                    SAMPLE_T *to = dx + s->at[c] * j->d.channels + channel;
#define SAMPLE_ADD(LOAD, PUT) PUT(to + i, SAMPLE(fma)(weight, LOAD(dc + i), LOAD(to + i)));
                    SAMPLE_EACH(run, SAMPLE_ADD)
                }
        }
    }
}

#undef SAMPLE_T
#undef SAMPLE_V
#undef SAMPLE_PIXEL
#undef SAMPLE_EACH
#undef SAMPLE_WHOLE
#undef SAMPLE_SOME
#undef SAMPLE_PUT
#undef SAMPLE_PUT_SOME
#undef SAMPLE_BLEND
#undef SAMPLE_DOTS
#undef SAMPLE_ADD
#undef SAMPLE
#undef SAMPLE_D
