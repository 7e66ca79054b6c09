/* Resampling a bundle of lines, a template: D is the dtype by its short name, V its vector. Included by resample.c. */
#define OF(x) CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

/* y[r][j] = sum of weight * x[at][j]: vectors across lines that are neighbors in memory, else one sum at a time. */
static void OF(bundle)(void *context, const ct_bundle *b) {
    enum { L = OF(lanes) };
    const sparse *s = context;
    const OF(element) *x = (const OF(element) *)(const void *)b->at[0];
    OF(element) *y = (OF(element) *)(void *)b->at[1];
    const bool across = b->line[0] == 1 && b->line[1] == 1;
    for (int64_t r = 0; r < s->rows && across; r++)
        for (int64_t j = 0; j < b->width; j += L) {
            const int n = (int)ct__min64(L, b->width - j);
            V sum = OF(set1)(0);
            for (int64_t e = s->start[r]; e < s->start[r + 1]; e++)
                sum = OF(fma)(OF(set1)((OF(scalar))s->weight[e]), OF(load_n)(x + s->at[e] * b->step[0] + j, n), sum);
            OF(store_n)(y + r * b->step[1] + j, sum, n);
        }
    for (int64_t j = 0; j < b->width && !across; j++)
        for (int64_t r = 0; r < s->rows; r++) {
            OF(scalar) sum = 0;
            for (int64_t e = s->start[r]; e < s->start[r + 1]; e++)
                sum += (OF(scalar))s->weight[e] * OF(value)(x[s->at[e] * b->step[0] + j * b->line[0]]);
            y[r * b->step[1] + j * b->line[1]] = OF(round)(sum);
        }
}

#undef OF
#undef D
#undef V
