/* Patches as operands of the matrix engine, sampled while it packs them, a template over POINT_D. Included by deform.c. */

/* to = sum of weight * pixel over n channels at point k; x: the first of the channels at the image's first pixel. */
SIMD_INLINE void POINT(line)(const POINT_T *x, int64_t step, const POINT_T *zeros, const POINT(points) * s, int k,
                             int64_t n, POINT_T *to) {
    POINT_V w[4];
    const POINT_T *pixel[4];
    for (int c = 0; c < 4; c++) {
        w[c] = POINT(set1)(s->weight[c][k]);
        pixel[c] = s->at[c][k] < 0 ? zeros : x + s->at[c][k] * step;
    }
#define POINT_BLEND(LOAD, PUT)                                                                      \
    {                                                                                               \
        POINT_V a = POINT(mul)(w[0], LOAD(pixel[0] + i)), b = POINT(mul)(w[2], LOAD(pixel[2] + i)); \
        a = POINT(fma)(w[1], LOAD(pixel[1] + i), a);                                                \
        b = POINT(fma)(w[3], LOAD(pixel[3] + i), b);                                                \
        PUT(to + i, POINT(add)(a, b));                                                              \
    }
    POINT_EACH(n, POINT_BLEND)
#undef POINT_BLEND
}

/* The patches as the rows of a left operand: (pixels, taps * channels of a group). */
static void POINT(pack_rows)(const void *context, int64_t batch, void *dst, int64_t ld, int64_t row0, int64_t rows,
                             int64_t k0, int64_t depth) {
    const ct__patches *j = context;
    const ct_deform *d = &j->t.d;
    const int64_t image = batch / d->groups, group = batch % d->groups, step = j->x_s.s[2];
    const int64_t each = d->channels / d->groups, shared = d->channels / d->offset_groups;
    POINT(pixels) pixels;
    POINT(points) points[RUNS];
    struct {
        const POINT_T *x;
        int64_t n, to;
    } runs[RUNS];
    for (int64_t row = 0; row < rows; row += POINTS) {
        const int n = (int)ct__min64(POINTS, rows - row);
        POINT(pixels_from)(&j->t, row0 + row, &pixels);
        for (int64_t k = 0; k < depth;) {
            int count = 0;
            for (int64_t run; count < RUNS && k < depth; count++, k += run) {
                const int64_t tap = (k0 + k) / each, at = (k0 + k) % each, channel = group * each + at;
                const int64_t of = channel / shared;
                run = ct__min64(ct__min64(each - at, (of + 1) * shared - channel), depth - k);
                runs[count].x = (const POINT_T *)j->x + (j->image + image) * j->x_s.n + channel;
                runs[count].n = run, runs[count].to = k;
                POINT(find)(&j->t, j->image + image, of, tap, &pixels, points + count);
            }
            /* the taps of one pixel after those of its neighbor: they look at almost the same pixels of x */
            for (int i = 0; i < n; i++)
                for (int c = 0; c < count; c++) POINT(line)
            (runs[c].x, step, (const POINT_T *)j->zeros, points + c, i, runs[c].n,
             (POINT_T *)dst + (row + i) * ld + runs[c].to);
        }
    }
}

#undef POINT_D
