/* Patches as operands of the matrix engine, sampled while it packs them, a template over SPOT_D. Included by deform.c. */

/* to = sum of weight * pixel over n channels at spot k; x: the first of the channels at the image's first pixel. */
SIMD_INLINE void SPOT(line)(const SPOT_T *x, int64_t step, const SPOT_T *zeros, const SPOT(spots) * s, int k, int64_t n,
                            SPOT_T *to) {
    SPOT_V w[4];
    const SPOT_T *pixel[4];
    for (int c = 0; c < 4; c++) {
        w[c] = SPOT(set1)(s->weight[c][k]);
        pixel[c] = s->at[c][k] < 0 ? zeros : x + s->at[c][k] * step;
    }
#define SPOT_BLEND(LOAD, PUT)                                                                    \
    {                                                                                            \
        SPOT_V a = SPOT(mul)(w[0], LOAD(pixel[0] + i)), b = SPOT(mul)(w[2], LOAD(pixel[2] + i)); \
        a = SPOT(fma)(w[1], LOAD(pixel[1] + i), a);                                              \
        b = SPOT(fma)(w[3], LOAD(pixel[3] + i), b);                                              \
        PUT(to + i, SPOT(add)(a, b));                                                            \
    }
    SPOT_EACH(n, SPOT_BLEND)
#undef SPOT_BLEND
}

/* The patches as the rows of a left operand: (pixels, taps * channels of a group). */
static void SPOT(pack_rows)(const void *context, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows,
                            int64_t k0, int64_t depth) {
    const ct__patches *j = context;
    const ct_deform *d = &j->t.d;
    const int64_t image = batch / d->groups, group = batch % d->groups, step = j->x_s.s[2];
    const int64_t each = d->channels / d->groups, shared = d->channels / d->offset_groups;
    SPOT(pixels) pixels;
    SPOT(spots) spots[PIECES];
    struct {
        const SPOT_T *x;
        int64_t n, to;
    } pieces[PIECES];
    for (int64_t row = 0; row < rows; row += SPOTS) {
        const int n = (int)ct__min64(SPOTS, rows - row);
        SPOT(pixels_from)(&j->t, row0 + row, &pixels);
        for (int64_t k = 0; k < depth;) {
            int count = 0;
            for (int64_t run; count < PIECES && k < depth; count++, k += run) {
                const int64_t tap = (k0 + k) / each, at = (k0 + k) % each, channel = group * each + at;
                const int64_t of = channel / shared;
                run = ct__min64(ct__min64(each - at, (of + 1) * shared - channel), depth - k);
                pieces[count].x = (const SPOT_T *)j->x + (j->image + image) * j->x_s.n + channel;
                pieces[count].n = run, pieces[count].to = k;
                SPOT(find)(&j->t, j->image + image, of, tap, &pixels, spots + count);
            }
            /* the taps of one pixel after those of its neighbor: they look at almost the same pixels of x */
            for (int i = 0; i < n; i++)
                for (int c = 0; c < count; c++) SPOT(line)
            (pieces[c].x, step, (const SPOT_T *)j->zeros, spots + c, i, pieces[c].n,
             (SPOT_T *)dst + (row + i) * ld + pieces[c].to);
        }
    }
}

#undef SPOT_D
