/* cummax and cummin of a bundle of lines, a template: D is the dtype by its short name, S the type that it is
 * compared in. Views are x, values, indices. Of equals, and of NaNs, the last is taken. Included by scan.c. */
#define OF(x) CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))
#define BY(x) CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)

SIMD_INLINE void BY(extreme_scan)(const scan *s, const ct_bundle *b, bool greatest) {
    OF(element) best[SIDE_BY_SIDE] = {0};
    int64_t place[SIDE_BY_SIDE] = {0};
    for (int64_t i = 0; i < s->n; i++) {
        const OF(element) *x = (const OF(element) *)(const void *)b->at[0] + i * b->step[0];
        OF(element) *y = (OF(element) *)(void *)b->at[1] + i * b->step[1];
        int64_t *p = b->at[2] ? (int64_t *)(void *)b->at[2] + i * b->step[2] : NULL;
        for (int64_t j = 0; j < b->width; j++) {
            const OF(element) e = x[j * b->line[0]];
            const S v = OF(value)(e), m = OF(value)(best[j]);
            const bool is_nan = v != OF(value)(e), was_nan = m != OF(value)(best[j]);
            const bool take = i == 0 || is_nan || (!was_nan && (greatest ? v >= m : v <= m));
            best[j] = take ? e : best[j];
            place[j] = take ? i : place[j];
            if (b->at[1]) y[j * b->line[1]] = best[j];
            if (p) p[j * b->line[2]] = place[j];
        }
    }
}

static void BY(cummax)(void *ctx, const ct_bundle *b) { BY(extreme_scan)(ctx, b, true); }
static void BY(cummin)(void *ctx, const ct_bundle *b) { BY(extreme_scan)(ctx, b, false); }

#undef OF
#undef BY
#undef D
#undef S
