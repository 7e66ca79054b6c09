/* One row of a sum of rows, a template: D names it, T is the type of an element, SUM that of a sum, ALPHA that of
 * the factor, STORE how a sum is stored. Included by rows_sum.c. */
#define OF(x) CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)

static void OF(row)(const job *j, const row *r) {
    const SUM alpha = (SUM)(ALPHA)j->alpha;
    for (int64_t first = 0; first < j->width; first += BLOCK) {
        const int64_t n = ct__min64(BLOCK, j->width - first);
        SUM sum[BLOCK];
        if (r->x) {
            const T *x = (const T *)(const void *)r->x + first * j->x_width;
            for (int64_t i = 0; i < n; i++) sum[i] = (SUM)x[i * j->x_width];
        } else {
            for (int64_t i = 0; i < n; i++) sum[i] = 0;
        }
        for (int64_t k = 0; k < r->count; k++) {
            const T *s =
                (const T *)(const void *)r->src + lead_place(j, j->lead_from, r->hits[k]) + first * j->from_width;
            if (alpha == 1 && j->from_width == 1)
                for (int64_t i = 0; i < n; i++) sum[i] += (SUM)s[i];
            else
                for (int64_t i = 0; i < n; i++) sum[i] += alpha * (SUM)s[i * j->from_width];
        }
        T *to = (T *)(void *)r->to + first * j->to_width;
        if (j->stream && sizeof(T) == sizeof(SUM)) ct__stream_run(to, sum, n, sizeof(T));
        else if (j->to_width == 1)
            for (int64_t i = 0; i < n; i++) STORE(to + i, sum[i]);
        else
            for (int64_t i = 0; i < n; i++) STORE(to + i * j->to_width, sum[i]);
    }
}

#undef OF
#undef D
#undef T
#undef SUM
#undef ALPHA
#undef STORE
