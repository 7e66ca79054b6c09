/* Softmax of a tile of scores and the end of a row, a template: R is f32 or f64, T its type. Included by sdpa_forward.c. */
#define OF(x) CT_SIMD_PASTE(R, CT_SIMD_PASTE(_, x))

static void OF(tile)(const sdpa *s, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t n, char *scores,
                     char *o, void *states) {
    T *tile = (T *)(void *)scores;
    OF(prepare)(s, b, h, i0, rows, j0, n, tile);
    OF(softmax)(tile, rows, n, OF(factor)(s), (OF(state) *)states, (T *)(void *)o, s->dv);
    if (!s->drops) return;
    for (int64_t r = 0; r < rows; r++) {
        T kept[SDPA_KEYS];
        OF(kept)(s, b, h, i0 + r, j0, n, kept);
        for (int64_t j = 0; j < n; j++) tile[r * SDPA_LD + j] *= kept[j];
    }
}
static void OF(start)(void *states, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) ((OF(state) *)states)[r] = (OF(state)){(T)-INFINITY, 0};
}
/* y = o / sum, and the logarithm of the sum, +inf for a row without keys: then exp(score - lse) is 0 */
static void OF(finish)(const forward *f, int64_t b, int64_t h, int64_t i0, int64_t rows, const char *o,
                       const void *states) {
    for (int64_t r = 0; r < rows; r++) {
        const OF(state) at = ((const OF(state) *)states)[r];
        const bool none = at.sum == 0;
        sdpa_put(&f->s, o + r * f->s.dv * (int64_t)sizeof(T), none ? 0 : (double)(1 / at.sum), f->y, b, h, i0 + r, 0,
                 f->s.dv);
        if (!f->lse) continue;
        const int64_t *st = f->lse->strides;
        CT_AT(T, f->lse)
        [b * st[0] + h * st[1] + (i0 + r) * st[2]] =
            none ? (T)INFINITY : at.top * OF(factor)(&f->s) + OF(log_of)(at.sum);
    }
}

#undef OF
#undef R
#undef T
