/* Rows of depthwise results from rows of bf16, for one width of vectors: ROWS (the name), V, VI and VH (vectors of
 * float, int and bf16), MASK (a bit for each half), WIDE (halves) and R(op) (an operation). Included by
 * depthwise_bf16.c once per width; no include guard.
 *
 * A vector of halves holds pairs of an even and an odd column, of which a dot product takes two taps at once; the
 * third is in the vectors that begin two columns before and after:
 *     y[2c] = w0 x[2c - 1] + (w1, w2) . (x[2c], x[2c + 1]),  y[2c + 1] = (w0, w1) . (x[2c], x[2c + 1]) + w2 x[2c + 2] */

/* Results of columns [first, end) and BLOCK rows, of which `rows` are stored, from two more rows of x. The middle
 * tap of column 0 looks at column `shift` of x, which has columns [0, width). */
static __attribute__((noinline)) DEPTHWISE_BF16 void ROWS(uint16_t *dst, int64_t dst_row, int64_t rows, int64_t first,
                                                          int64_t end, const uint16_t *const *src, int64_t shift,
                                                          int64_t width, const float *w) {
    const VI odds = R(set1_epi32)((int)0xffff0000);
    VI for_even[3], for_odd[3];
    V left[3], right[3], even[BLOCK], odd[BLOCK];
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
        for_even[k] = R(set1_epi32)(pair_of(w[3 * k + 1], w[3 * k + 2]));
        for_odd[k] = R(set1_epi32)(pair_of(w[3 * k], w[3 * k + 1]));
        left[k] = R(set1_ps)(w[3 * k]), right[k] = R(set1_ps)(w[3 * k + 2]);
        DEPTHWISE_KEEP(for_even[k]);
        DEPTHWISE_KEEP(for_odd[k]);
    }
    for (int64_t j = first; j < end; j += WIDE) {
        const int64_t at = j + shift;
        const MASK there = (MASK)depthwise_lanes(0, end - j, WIDE), here = (MASK)depthwise_lanes(-at, width - at, WIDE);
        const MASK before = (MASK)depthwise_lanes(2 - at, width + 2 - at, WIDE),
                   after = (MASK)depthwise_lanes(-2 - at, width - 2 - at, WIDE);
#pragma GCC unroll 8
        for (int q = 0; q < BLOCK; q++) even[q] = odd[q] = R(set1_ps)(w[9]);
#pragma GCC unroll 10
        for (int r = 0; r < BLOCK + 2; r++) {
            const uint16_t *x = src[r] + at;
            VI pairs = R(maskz_loadu_epi16)(here, x);
            V low = (V)(R(maskz_loadu_epi16)(before, x - 2) & odds);
            V high = (V)R(slli_epi32)(R(maskz_loadu_epi16)(after, x + 2), 16);
            DEPTHWISE_KEEP(pairs);
            DEPTHWISE_KEEP(low);
            DEPTHWISE_KEEP(high);
#pragma GCC unroll 8
            for (int q = 0; q < BLOCK; q++)
                if (r - q >= 0 && r - q < 3) {
                    even[q] = R(dpbf16_ps)(R(fmadd_ps)(low, left[r - q], even[q]), (VH)pairs, (VH)for_even[r - q]);
                    odd[q] = R(dpbf16_ps)(R(fmadd_ps)(high, right[r - q], odd[q]), (VH)pairs, (VH)for_odd[r - q]);
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
#undef VH
#undef MASK
#undef WIDE
#undef R
