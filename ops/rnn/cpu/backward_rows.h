/* A step of some rows and hidden units, backward, a template: R is f32 or f64, T its type. Included by recurrence_grad.c. */
#define OF(x) CT_SIMD_PASTE(R, CT_SIMD_PASTE(_, x))

static void OF(rows)(const backward *w, int64_t t, int64_t r0, int64_t rows, int64_t j0, int64_t m,
                     const char *products) {
    const recurrence *p = &w->p;
    const int64_t h = p->h, last = p->reverse ? t + 1 : t - 1;
    for (int64_t i = r0; w->step >= 0 && i < r0 + ct__min64(AHEAD, rows); i++) prefetch_row(w, t, i, j0, m);
    for (int64_t i = r0; i < r0 + rows; i++) {
        const T *product = products ? (const T *)(const void *)products + (i - r0) * p->width : NULL;
        T *dh = (T *)(void *)w->dh + i * h + j0;
        if (w->step < 0) {
            for (int64_t j = 0; product && j < m; j++) dh[j] += product[j];
            continue;
        }
        if (i + AHEAD < r0 + rows) prefetch_row(w, t, i + AHEAD, j0, m);
        const bool first = p->reverse ? last >= w->lengths[i] : last < 0;
        const T *kept = (const T *)(const void *)w->kept;
        const OF(backward_row) row = {.product = product,
                                      .gy = (const T *)(const void *)w->gy + (t * p->n + i) * h + j0,
                                      .y = (const T *)(const void *)w->y + (t * p->n + i) * h + j0,
                                      .kept = kept + (t * p->n + i) * p->kept * h + j0,
                                      .h_before = first ? (const T *)(const void *)w->h0 + i * h + j0
                                                        : (const T *)(const void *)w->y + (last * p->n + i) * h + j0,
                                      .c_before = first ? (const T *)(const void *)w->c0 + i * h + j0
                                                        : kept + ((last * p->n + i) * p->kept + 4) * h + j0,
                                      .dgx = (T *)(void *)w->dgx + (t * p->n + i) * p->gates * h + j0,
                                      .dgh = w->dgh ? (T *)(void *)w->dgh + (t * p->n + i) * p->gates * h + j0 : NULL,
                                      .gates = (T *)(void *)(w->gates[w->step & 1] + i * w->gates_ld) + j0,
                                      .dh = dh,
                                      .dc = (T *)(void *)w->dc + i * h + j0,
                                      .h = h};
        if (t >= w->lengths[i]) OF(outside_back)(&row, m, p->gates);
        else if (p->cell == CT_CELL_LSTM) OF(lstm_back)(&row, m);
        else if (p->cell == CT_CELL_GRU) OF(gru_back)(&row, m);
        else OF(plain_back)(&row, m, p->cell == CT_CELL_RELU);
        OF(keep)(w, i, j0, row.gates, m);
    }
}

#undef OF
#undef R
#undef T
