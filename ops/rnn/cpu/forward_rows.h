/* A step of some rows and hidden units, a template: R is f32 or f64, T its type. Included by recurrence.c. */
#define OF(x) CT_SIMD_PASTE(R, CT_SIMD_PASTE(_, x))

static void OF(rows)(const forward *f, int64_t t, const char *before, int64_t r0, int64_t rows, int64_t j0, int64_t m,
                     const char *products) {
    const recurrence *p = &f->p;
    const int64_t h = p->h, last = p->reverse ? t + 1 : t - 1;
    for (int64_t i = r0; i < r0 + ct__min64(AHEAD, rows); i++) prefetch_row(f, t, before, i, j0, m);
    for (int64_t i = r0; i < r0 + rows; i++) {
        T *y = (T *)(void *)f->y + (t * p->n + i) * h + j0;
        T *kept = (T *)(void *)f->kept + (t * p->n + i) * p->kept * h + j0;
        const T *h_before = (const T *)(const void *)before + i * h + j0;
        T *held = f->held[0] ? (T *)(void *)f->held[f->step & 1] + i * h + j0 : NULL;
        if (t >= f->lengths[i]) {
            for (int64_t j = 0; j < m; j++) y[j] = 0, held[j] = h_before[j];
            for (int64_t k = 0; k < p->kept; k++)
                for (int64_t j = 0; j < m; j++) kept[k * h + j] = 0;
            OF(keep)(f, i, j0, h_before, m);
            continue;
        }
        if (i + AHEAD < r0 + rows) prefetch_row(f, t, before, i + AHEAD, j0, m);
        const bool first = p->reverse ? last >= f->lengths[i] : last < 0;
        const OF(forward_row)
            row = {.gx = (const T *)(const void *)f->gx + (t * p->n + i) * p->gates * h + j0,
                   .product = (const T *)(const void *)products + (i - r0) * p->gates * p->width,
                   .bias = (const T *)(const void *)f->b_hh + j0,
                   .h_before = h_before,
                   .c_before = first ? (const T *)(const void *)f->c0 + i * h + j0
                                     : (const T *)(const void *)f->kept + ((last * p->n + i) * p->kept + 4) * h + j0,
                   .y = y,
                   .kept = kept,
                   .h = h,
                   .width = p->width};
        if (p->cell == CT_CELL_LSTM) OF(lstm)(&row, m);
        else if (p->cell == CT_CELL_GRU) OF(gru)(&row, m);
        else OF(plain)(&row, m, p->cell == CT_CELL_RELU);
        if (held)
            for (int64_t j = 0; j < m; j++) held[j] = y[j];
        OF(keep)(f, i, j0, y, m);
    }
}

#undef OF
#undef R
#undef T
