/* logcumsumexp of a bundle of lines, a template: D is the dtype by its short name, S the type that is computed in,
 * EXP and LOG its functions. Included by scan.c. */
#define BY(x) CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)
#define OF(x) CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))

/* log(sum of exp) in the scalar type; m is the greatest so far, r the sum of exp(x - m), so that the result is m +
 * log r. An infinite m is its own result. */
static void BY(logcumsumexp)(void *ctx, const ct_bundle *b) {
    const scan *s = ctx;
    S greatest[SIDE_BY_SIDE], rest[SIDE_BY_SIDE];
    for (int64_t j = 0; j < b->width; j++) {
        greatest[j] = (S)-INFINITY;
        rest[j] = 0;
    }
    SCAN_FOR(i, s) {
        const OF(element) *x = (const OF(element) *)(const void *)b->at[0] + i * b->step[0];
        OF(element) *y = (OF(element) *)(void *)b->at[1] + i * b->step[1];
        for (int64_t j = 0; j < b->width; j++) {
            S v = OF(value)(x[j * b->line[0]]), m = greatest[j];
            if (v <= m) {
                if (m < (S)INFINITY && v > (S)-INFINITY) rest[j] += EXP(v - m);
            } else { /* greater, or NaN */
                rest[j] = m > (S)-INFINITY && m == m ? rest[j] * EXP(m - v) + 1 : 1;
                greatest[j] = m != m ? m : v;
            }
            m = greatest[j];
            y[j * b->line[1]] = OF(round)(rest[j] == 1 || m == (S)INFINITY || m == (S)-INFINITY ? m : m + LOG(rest[j]));
        }
    }
}

#undef BY
#undef OF
#undef D
#undef S
#undef EXP
#undef LOG
