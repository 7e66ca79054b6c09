/* delta of rows, a template: R is f32 or f64, T its type. Included by sdpa_backward.c. */
#define OF(x) CT_SIMD_PASTE(R, CT_SIMD_PASTE(_, x))

/* g y of a row is summed as the tile sums g V^T, in one chain: where one key has all the weight, dP - delta is exactly 0
 * (in pairs of bf16, whose sums have an order of their own, to the rounding of f32). Four rows go side by side, since a
 * chain alone waits for itself. */
static void OF(delta)(const backward *w, int64_t range, int64_t b, int64_t h, const sdpa_rows *g, const sdpa_rows *y,
                      int64_t i0, int64_t rows) {
    const sdpa *s = &w->s;
    T *delta = (T *)(void *)w->delta, *level = (T *)(void *)w->lse_rows;
    for (int64_t r = 0; r < rows; r += CHAINS) {
        const int64_t n = ct__min64(CHAINS, rows - r), r1 = r + (n > 1), r2 = r1 + (n > 2), r3 = r2 + (n > 3);
        const T *x0 = (const T *)(const void *)(g->at + r * g->ld), *z0 = (const T *)(const void *)(y->at + r * y->ld);
        const T *x1 = (const T *)(const void *)(g->at + r1 * g->ld),
                *z1 = (const T *)(const void *)(y->at + r1 * y->ld);
        const T *x2 = (const T *)(const void *)(g->at + r2 * g->ld),
                *z2 = (const T *)(const void *)(y->at + r2 * y->ld);
        const T *x3 = (const T *)(const void *)(g->at + r3 * g->ld),
                *z3 = (const T *)(const void *)(y->at + r3 * y->ld);
        T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int64_t c = 0; c < s->dv; c++) {
            s0 = OF(chain)(x0[c], z0[c], s0);
            s1 = OF(chain)(x1[c], z1[c], s1);
            s2 = OF(chain)(x2[c], z2[c], s2);
            s3 = OF(chain)(x3[c], z3[c], s3);
        }
        volatile T sum[CHAINS]; /* else the compiler makes a vector of the four and takes it apart again */
        sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = i0 + r + k, at = ((range * s->batch + b) * s->heads + h) * s->tq + i;
            T value = sum[k];
            if (w->g_lse) {
                const int64_t *st = w->g_lse->strides;
                value -= (T)sdpa_number(w->g_lse, b * st[0] + h * st[1] + i * st[2]);
            }
            const int64_t *st = w->lse->strides;
            delta[at] = value;
            level[at] = (T)sdpa_number(w->lse, b * st[0] + h * st[1] + i * st[2]);
        }
    }
}

#undef OF
#undef R
#undef T
