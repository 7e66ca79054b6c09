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

/* Places of one tap, for PIXELS pixels of the result: the four pixels around each (number within the image, -1 outside), their
 * weights, how far it is beyond the lower ones, and the mask. Each field by itself, so that they are computed in vectors. */
typedef struct SAMPLE(spots) {
    int32_t at[4][PIXELS];
    SAMPLE_T weight[4][PIXELS], part[2][PIXELS], mask[PIXELS];
} SAMPLE(spots);

/* Those of tap t (of all groups of offsets) around a pixel, which is number pixel % PIXELS there. */
SIMD_INLINE const SAMPLE(spots) * SAMPLE(spots_of)(const job *j, int64_t t, int64_t pixel) {
    return (const SAMPLE(spots) *)j->spots + t * j->blocks + pixel / PIXELS;
}

/* Where tap t lies for n pixels from first on, and the masks: y and x go into part. */
SIMD_INLINE void SAMPLE(places)(const job *j, int64_t t, int64_t first, int64_t n, SAMPLE(spots) * s) {
    const ct_window *w = &j->d.w;
    const int64_t tap = t % j->d.taps, ky = tap / w->kernel[2], kx = tap % w->kernel[2];
    const int64_t top = ky * w->dilation[1] - w->before[1], left = kx * w->dilation[2] - w->before[2];
    const SAMPLE_T *offset = (const SAMPLE_T *)j->offset + j->image * j->offset_s.n + 2 * t * j->offset_s.c;
    const SAMPLE_T *mask = (const SAMPLE_T *)j->mask + j->image * j->mask_s.n + t * j->mask_s.c;
    int64_t oy = first / w->out[2], ox = first % w->out[2];
    for (int64_t i = 0; i < n; i++) {
        const SAMPLE_T *move = offset + oy * j->offset_s.s[1] + ox * j->offset_s.s[2];
        s->part[0][i] = move[0] + (SAMPLE_T)(oy * w->stride[1] + top);
        s->part[1][i] = move[j->offset_s.c] + (SAMPLE_T)(ox * w->stride[2] + left);
        s->mask[i] = j->mask ? mask[oy * j->mask_s.s[1] + ox * j->mask_s.s[2]] : 1;
        if (++ox == w->out[2]) ox = 0, oy++;
    }
}

/* All spots of a block of pixels. No branches, and no constant that the compiler could make one of. */
static void SAMPLE(find_spots)(const job *j, int64_t block) {
    const int32_t height = (int32_t)j->d.w.in[1], width = (int32_t)j->d.w.in[2];
    const SAMPLE_T above = -(SAMPLE_T)height - 1, beside = -(SAMPLE_T)width - 1;
    const int64_t first = block * PIXELS, n = ct__min64(PIXELS, j->d.pixels - first);
    for (int64_t t = 0; t < j->d.offset_groups * j->d.taps; t++) {
        SAMPLE(spots) *s = (SAMPLE(spots) *)j->spots + t * j->blocks + block;
        SAMPLE(places)(j, t, first, n, s);
        for (int64_t i = 0; i < n; i++) {
            /* what is not near x may be no integer at all: it goes where all four pixels are outside */
            const SAMPLE_T y = s->part[0][i], x = s->part[1][i];
            const SAMPLE_T v0 = y >= -1 ? y : above, u0 = x >= -1 ? x : beside;
            const SAMPLE_T v = v0 < (SAMPLE_T)height ? v0 : above, u = u0 < (SAMPLE_T)width ? u0 : beside;
            const int32_t vi = (int32_t)v, ui = (int32_t)u;
            const int32_t low_y = (SAMPLE_T)vi > v ? vi - 1 : vi, low_x = (SAMPLE_T)ui > u ? ui - 1 : ui;
            const SAMPLE_T py = v - (SAMPLE_T)low_y, px = u - (SAMPLE_T)low_x;
            const SAMPLE_T a = (1 - py) * (1 - px), b = (1 - py) * px, c = py * (1 - px), d = py * px;
            /* whether the rows and the columns lie inside x: all bits or none */
            const int32_t up = low_y >= 0 ? -1 : 0, left = low_x >= 0 ? -1 : 0;
            const int32_t down = (low_y >= -1 ? -1 : 0) & (low_y < height - 1 ? -1 : 0);
            const int32_t right = (low_x >= -1 ? -1 : 0) & (low_x < width - 1 ? -1 : 0);
            const uint32_t corner = (uint32_t)low_y * (uint32_t)width + (uint32_t)low_x,
                           under = corner + (uint32_t)width;
            s->part[0][i] = py, s->part[1][i] = px;
            s->at[0][i] = (int32_t)corner | ~(up & left), s->weight[0][i] = up & left ? a : 0;
            s->at[1][i] = (int32_t)(corner + 1) | ~(up & right), s->weight[1][i] = up & right ? b : 0;
            s->at[2][i] = (int32_t)under | ~(down & left), s->weight[2][i] = down & left ? c : 0;
            s->at[3][i] = (int32_t)(under + 1) | ~(down & right), s->weight[3][i] = down & right ? d : 0;
        }
    }
}

/* The channels of pixel c of spot k, from `first` on; zeros outside. */
#define SAMPLE_PIXEL(s, k, c, first)                \
    ((s)->at[c][k] < 0 ? (const SAMPLE_T *)j->zeros \
                       : (const SAMPLE_T *)j->x + j->image * j->x_s.n + (s)->at[c][k] * j->x_s.s[2] + (first))

/* to = sum of weight * pixel * mask over n channels from first on, of one group of offsets. */
SIMD_INLINE void SAMPLE(line)(const job *j, const SAMPLE(spots) * s, int64_t k, int64_t first, int64_t n,
                              SAMPLE_T *to) {
    SAMPLE_V w[4];
    const SAMPLE_T *pixel[4];
    for (int c = 0; c < 4; c++) {
        w[c] = SAMPLE(set1)(s->weight[c][k] * s->mask[k]);
        pixel[c] = SAMPLE_PIXEL(s, k, c, first);
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

/* n columns of the patch of a pixel for one group of the convolution, from channel `at` of the group and a tap on: taps, and
 * within them channels. */
static void SAMPLE(patch)(const job *j, int64_t group, int64_t each, int64_t pixel, int64_t tap, int64_t at, int64_t n,
                          SAMPLE_T *to) {
    const int64_t shared = j->d.offset_groups == 1 ? j->d.channels : j->d.channels / j->d.offset_groups;
    while (n > 0) {
        const int64_t channel = group * each + at, of = j->d.offset_groups == 1 ? 0 : channel / shared;
        const int64_t run = ct__min64(ct__min64(each - at, (of + 1) * shared - channel), n);
        SAMPLE(line)(j, SAMPLE(spots_of)(j, of * j->d.taps + tap, pixel), pixel % PIXELS, channel, run, to);
        to += run;
        n -= run;
        at += run;
        if (at == each) at = 0, tap++;
    }
}

/* The patches as the rows of a left operand: (pixels, taps * channels). */
static void SAMPLE(pack_rows)(const void *context, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows,
                              int64_t k0, int64_t depth) {
    const job *j = context;
    const int64_t each = j->d.channels / j->d.groups, tap = k0 / each, at = k0 % each;
    for (int64_t i = 0; i < rows; i++)
        SAMPLE(patch)(j, batch, each, row0 + i, tap, at, depth, (SAMPLE_T *)dst + i * ld);
}

/* The patches as a right operand, a panel of `width` columns: (pixels, taps * channels). */
static void SAMPLE(pack_panel)(const void *context, int64_t batch, void *dst, int64_t k0, int64_t depth, int64_t col0,
                               int64_t cols) {
    const job *j = context;
    const int64_t each = j->d.channels / j->d.groups, tap = col0 / each, at = col0 % each;
    for (int64_t p = 0; p < depth; p++)
        SAMPLE(patch)(j, batch, each, k0 + p, tap, at, cols, (SAMPLE_T *)dst + p * j->width);
}

/* Asks for the columns of a later tap: there are more of them than the second cache holds. */
#define SAMPLE_ASK(dc, each, n) \
    for (int64_t i = 0; i < (n); i += 64 / (int64_t)sizeof *(dc)) __builtin_prefetch((dc) + AHEAD * (each) + i);

/* Gradients of offset and mask at one pixel: with e_c = <dc, pixel c> and dc the gradient of the column,
 *     d place_y = mask ((e_2 - e_0)(1 - part_x) + (e_3 - e_1) part_x), and so on. */
static void SAMPLE(moves_of_pixel)(const job *j, int64_t pixel) {
    const ct_window *w = &j->d.w;
    const int64_t each = j->d.channels / j->d.groups, shared = j->d.channels / j->d.offset_groups, n = j->image;
    const int64_t oy = pixel / w->out[2], ox = pixel % w->out[2], k = pixel % PIXELS;
    const SAMPLE_T *column = (const SAMPLE_T *)j->columns + pixel * j->d.taps * j->d.channels;
    for (int64_t of = 0; of < j->d.offset_groups; of++)
        for (int64_t tap = 0; tap < j->d.taps; tap++) {
            const SAMPLE(spots) *s = SAMPLE(spots_of)(j, of * j->d.taps + tap, pixel);
            SAMPLE_V e[4];
            for (int c = 0; c < 4; c++) e[c] = SAMPLE(set1)(0);
            for (int64_t at = of * shared, run; at < (of + 1) * shared; at += run) {
                const int64_t group = j->d.groups == 1 ? 0 : at / each;
                run = ct__min64((group + 1) * each, (of + 1) * shared) - at;
                const SAMPLE_T *dc = column + (group * j->d.taps + tap) * each + at - group * each;
                const SAMPLE_T *p[4];
                for (int c = 0; c < 4; c++) p[c] = SAMPLE_PIXEL(s, k, c, at);
                SAMPLE_ASK(dc, each, run)
#define SAMPLE_DOTS(LOAD, PUT)                                                   \
    {                                                                            \
        const SAMPLE_V d = LOAD(dc + i);                                         \
        for (int c = 0; c < 4; c++) e[c] = SAMPLE(fma)(d, LOAD(p[c] + i), e[c]); \
    }
                SAMPLE_EACH(run, SAMPLE_DOTS)
            }
            SAMPLE_T h[4], weighed = 0;
            for (int c = 0; c < 4; c++) {
                h[c] = s->at[c][k] < 0 ? 0 : SAMPLE(hsum)(e[c]);
                weighed += s->weight[c][k] * h[c];
            }
            const SAMPLE_T py = s->part[0][k], px = s->part[1][k], mask = s->mask[k];
            const SAMPLE_T move[2] = {mask * ((h[2] - h[0]) * (1 - px) + (h[3] - h[1]) * px),
                                      mask * ((h[1] - h[0]) * (1 - py) + (h[3] - h[2]) * py)};
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
    for (int64_t pixel = 0; pixel < j->d.pixels; pixel++) {
        const SAMPLE_T *column = (const SAMPLE_T *)j->columns + pixel * j->d.taps * j->d.channels;
        for (int64_t channel = first, run; channel < end; channel += run) {
            const int64_t group = channel / each, of = channel / shared;
            run = ct__min64(ct__min64((group + 1) * each, (of + 1) * shared), end) - channel;
            const SAMPLE_T *dc = column + group * j->d.taps * each + channel - group * each;
            for (int64_t tap = 0; tap < j->d.taps; tap++, dc += each) {
                const SAMPLE(spots) *s = SAMPLE(spots_of)(j, of * j->d.taps + tap, pixel);
                const int64_t k = pixel % PIXELS;
                SAMPLE_ASK(dc, each, run)
                SAMPLE_V weight[4];
                SAMPLE_T *to[4];
                for (int c = 0; c < 4; c++) {
                    weight[c] = SAMPLE(set1)(s->weight[c][k] * s->mask[k]);
                    to[c] = (s->at[c][k] < 0 ? (SAMPLE_T *)j->sink : dx + s->at[c][k] * j->d.channels) + channel;
                }
#define SAMPLE_ADD(LOAD, PUT)                                                                   \
    {                                                                                           \
        const SAMPLE_V d = LOAD(dc + i);                                                        \
        for (int c = 0; c < 4; c++) PUT(to[c] + i, SAMPLE(fma)(weight[c], d, LOAD(to[c] + i))); \
    }
                SAMPLE_EACH(run, SAMPLE_ADD)
            }
        }
    }
}

#undef SAMPLE_T
#undef SAMPLE_V
#undef SAMPLE_PIXEL
#undef SAMPLE_ASK
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
