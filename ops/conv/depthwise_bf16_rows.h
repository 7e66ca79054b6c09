/* Rows of depthwise results from rows of bf16, for one width of vectors: ROWS (the name), V and VI (vectors of float and int), MASK
 * (a bit for each half), WIDE (halves) and R(op) (an operation). Included by depthwise_bf16.cpu.c once a width; no include
 * guard.
 *
 * A vector of halves holds columns of even and of odd number, which become two vectors of floats; their neighbours are in the
 * vectors that begin two columns before and after:
 *     y[2c] = w0 x[2c - 1] + w1 x[2c] + w2 x[2c + 1],  y[2c + 1] = w0 x[2c] + w1 x[2c + 1] + w2 x[2c + 2] */

/* Results of columns [first, end) and BLOCK rows, of which `rows` are stored, from two more rows of x. The middle tap of column 0 looks
 * at column `shift` of x, which has columns [0, width). */
static __attribute__((noinline)) DEPTHWISE_BF16 void ROWS(uint16_t *dst, int64_t dst_row, int64_t rows, int64_t first,
                                                          int64_t end, const uint16_t *const *src, int64_t shift,
                                                          int64_t width, const float *w) {
    const VI odds = R(set1_epi32)((int)0xffff0000);
    V weight[9], even[BLOCK], odd[BLOCK];
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) {
        weight[i] = R(set1_ps)(w[i]);
        DEPTHWISE_KEEP(weight[i]);
    }
    for (int64_t j = first; j < end; j += WIDE) {
        const int64_t at = j + shift;
        const MASK there = (MASK)columns(0, end - j), here = (MASK)columns(-at, width - at);
        const MASK before = (MASK)columns(2 - at, width + 2 - at), after = (MASK)columns(-2 - at, width - 2 - at);
#pragma GCC unroll 8
        for (int q = 0; q < BLOCK; q++) even[q] = odd[q] = R(set1_ps)(w[9]);
#pragma GCC unroll 10
        for (int r = 0; r < BLOCK + 2; r++) {
            const uint16_t *x = src[r] + at;
            const VI middle = R(maskz_loadu_epi16)(here, x);
            V v[4] = {(V)(R(maskz_loadu_epi16)(before, x - 2) & odds), (V)R(slli_epi32)(middle, 16), (V)(middle & odds),
                      (V)R(slli_epi32)(R(maskz_loadu_epi16)(after, x + 2), 16)};
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) DEPTHWISE_KEEP(v[i]);
#pragma GCC unroll 8
            for (int q = 0; q < BLOCK; q++)
#pragma GCC unroll 3
                for (int t = 0; t < 3; t++)
                    if (r - q >= 0 && r - q < 3) {
                        even[q] = R(fmadd_ps)(v[t], weight[(r - q) * 3 + t], even[q]);
                        odd[q] = R(fmadd_ps)(v[t + 1], weight[(r - q) * 3 + t], odd[q]);
                    }
        }
        /* Rounded, the even ones below the odd ones, and brought into their order. */
        const VI order = R(loadu_epi16)(WIDE == LINE ? interleaved : interleaved_16);
#pragma GCC unroll 8
        for (int q = 0; q < BLOCK; q++) {
            if (q >= rows) break;
            const VI both = (VI)R(cvtne2ps_pbh)(odd[q], even[q]);
            R(mask_storeu_epi16)(dst + q * dst_row + j, there, R(permutexvar_epi16)(order, both));
        }
    }
}

#undef ROWS
#undef V
#undef VI
#undef MASK
#undef WIDE
#undef R
