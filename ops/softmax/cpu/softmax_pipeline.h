/* Rows in flight, a template within softmax_lines.h: ROWS is the name of the function, KEEP_TERMS whether
 * exponentials are kept (1 or 0), RESULT the result from them or from the row before, RESULT_SOME that of the last k
 * elements, FINISH what it needs of the sum. */
#define SWEEP(STORE)                                  \
    for (; i < whole; i += L) {                       \
        V v = DO(_exp_below)(SUB(LOAD(here + i), m)); \
        PREFETCH(next + i, L);                        \
        best = DO(_max_number)(best, LOAD(next + i)); \
        STORE(to + i, RESULT);                        \
        if (KEEP_TERMS) DO(_put)(e + i, v);           \
        sum = ADD(sum, v);                            \
    }

static void FN(ROWS)(T *y /* (rows, n) */, int64_t y_line, const T *x /* (rows, n) */, int64_t line, int64_t rows,
                     int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    _Alignas(64) S terms[KEEP_TERMS ? 2 : 1][KEEP_TERMS ? PIPELINE : 1];
    T unused[PIPELINE]; /* what would be the results of row -1 */
    const int64_t whole = n - n % L;
    S top = FN(row_max)(x, n), top_before = 0, rest = 0;
    if (KEEP_TERMS) memset(terms[KEEP_TERMS], 0, (size_t)n * sizeof(S));
    for (int64_t r = 0; r <= rows; r++) {
        const T *here = x + (r < rows ? r : rows - 1) * line, *next = r + 1 < rows ? here + line : here;
        const T *before = r > 0 ? x + (r - 1) * line : here;
        T *to = r > 0 ? y + (r - 1) * y_line : unused;
        S *e = terms[KEEP_TERMS ? r % 2 : 0], total = 0;
        const S *done = terms[KEEP_TERMS ? (r + 1) % 2 : 0];
        const V m = SET1(top), m_before = SET1(top_before), f = SET1(rest);
        V best = SET1((S)-INFINITY), sum = SET1(0);
        int64_t i = 0;
        (void)before, (void)m_before, (void)e, (void)done;
        if (r == rows) {
            for (; i < whole; i += L) DO(_store)(to + i, RESULT);
        } else if (streams && r > 0) {
            SWEEP(DO(_stream))
        } else {
            SWEEP(DO(_store))
        }
        if (i < n) {
            const int k = (int)(n - i);
            S lane[L];
            V v = DO(_exp_below)(SUB(LOAD_N(here + i, k), m));
            best = DO(_max_number)(best, DO(_load_repeated)(next + i, k));
            DO(_store_n)(to + i, RESULT_SOME, k);
            if (KEEP_TERMS) DO(_put_n)(e + i, v, k);
            DO(_put)(lane, v);
            for (int j = 0; j < k; j++) total += lane[j];
        }
        total += DO(_hsum)(sum);
        top_before = top;
        rest = FINISH;
        top = DO(_hmax_number)(best);
    }
}

#undef SWEEP
#undef ROWS
#undef KEEP_TERMS
#undef RESULT
#undef RESULT_SOME
#undef FINISH
