/* Rotary position embedding of rows, a template: R is f32 or f64, T its type. Included by rope.c. */
#define OF(x) CT_SIMD_PASTE(R, CT_SIMD_PASTE(_, x))

static void OF(table)(void *ctx, int64_t t, int worker) {
    const rotation *r = (const rotation *)ctx;
    const int64_t half = r->dims / 2;
    T *c = (T *)r->table + t * r->dims, *s = c + half;
    (void)worker;
    for (int64_t i = 0; i < half; i++) {
        const double w = position_of(r, t) * exp((double)i * (-2 * log(r->a->base) / (double)r->dims));
        c[i] = (T)cos(w);
        s[i] = (T)(r->a->inverse ? -sin(w) : sin(w));
    }
}
static void OF(chunk)(void *ctx, int64_t chunk, int worker) {
    const rotation *r = (const rotation *)ctx;
    const int64_t half = r->dims / 2, sx = r->x->strides[r->x->ndim - 1], sy = r->y->strides[r->y->ndim - 1],
                  end = ct__min64((chunk + 1) * r->chunk, r->rows);
    (void)worker;
    for (int64_t row = chunk * r->chunk; row < end; row++) {
        const T *x = CT_AT(const T, r->x) + row_of(r->x, row);
        T *y = CT_AT(T, r->y) + row_of(r->y, row);
        const T *c = (const T *)r->table + row % r->t * r->dims, *s = c + half;
        const int64_t apart = r->a->interleaved ? 1 : half, step = r->a->interleaved ? 2 : 1;
        if (sx == 1 && sy == 1 && step == 1)
            for (int64_t i = 0; i < half; i++) {
                const T a = x[i], b = x[i + half];
                y[i] = a * c[i] - b * s[i];
                y[i + half] = b * c[i] + a * s[i];
            }
        else
            for (int64_t i = 0; i < half; i++) {
                const T a = x[i * step * sx], b = x[(i * step + apart) * sx];
                y[i * step * sy] = a * c[i] - b * s[i];
                y[(i * step + apart) * sy] = b * c[i] + a * s[i];
            }
        for (int64_t i = r->dims; i < r->d; i++) y[i * sy] = x[i * sx];
    }
}

#undef OF
#undef R
#undef T
