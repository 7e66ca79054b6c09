/* log(sum of exp) of rows and of columns, a template: D is the dtype by its short name, V its vector. Included by
 * logsumexp.c. */
#define ROWS_OF(a, b) CT_SIMD_PASTE(CT_SIMD_PASTE(a, _), CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, b)))
#define TO(x)         CT_SIMD_PASTE(CT_SIMD_PASTE(x, _), D)
#define OF(x)         CT_SIMD_PASTE(D, CT_SIMD_PASTE(_, x))
#define DO(x)         CT_SIMD_PASTE(V, CT_SIMD_PASTE(_, x))

/* A block's greatest element, then its sum, both from the first cache. Columns: eight rows at a time raise the
 * greatest once and scale the sum before it is added to. An infinite level is replaced by 0: there is no inf - inf. */
SIMD_INLINE V OF(level)(V top) { return OF(select)(DO(isinf)(top), OF(set1)(0), top); }
static inline log_sum OF(block)(const OF(element) * x /* (n) */, int64_t n) {
    enum { L = OF(lanes) };
    int64_t i = 0;
    V a = OF(load_repeated)(x, (int)ct__min64(n, L)), b = a;
    for (; i + 2 * L <= n; i += 2 * L) {
        a = OF(max)(a, OF(load)(x + i));
        b = OF(max)(b, OF(load)(x + i + L));
    }
    for (; i < n; i += L) a = OF(max)(a, OF(load_repeated)(x + i, (int)ct__min64(n - i, L)));
    log_sum block = {(double)OF(hmax)(OF(max)(a, b)), 0};
    const V level = OF(set1)(isinf(block.top) ? 0 : (OF(scalar))block.top);
    V c = OF(set1)(0), d = c;
    a = b = c;
    for (i = 0; i + 4 * L <= n; i += 4 * L) {
        a = OF(add)(a, DO(exp)(OF(sub)(OF(load)(x + i), level)));
        b = OF(add)(b, DO(exp)(OF(sub)(OF(load)(x + i + L), level)));
        c = OF(add)(c, DO(exp)(OF(sub)(OF(load)(x + i + 2 * L), level)));
        d = OF(add)(d, DO(exp)(OF(sub)(OF(load)(x + i + 3 * L), level)));
    }
    for (; i < n; i += L) {
        OF(scalar) lane[L];
        int k = (int)ct__min64(n - i, L);
        OF(put)(lane, DO(exp)(OF(sub)(OF(load_n)(x + i, k), level)));
        a = OF(add)(a, OF(get_n)(lane, k));
    }
    block.sum = (double)OF(hsum)(OF(add)(OF(add)(a, b), OF(add)(c, d)));
    return block;
}

static void ROWS_OF(logsumexp, rows)(void *acc, const void *from, int64_t rows, int64_t step, int64_t n, int64_t base) {
    enum { BLOCK = 2048 };
    (void)base;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < n; at += BLOCK) {
            log_sum block = OF(block)((const OF(element) *)from + r * step + at, ct__min64(n - at, BLOCK));
            log_sum_merge((log_sum *)acc + r, &block);
        }
}

static void ROWS_OF(logsumexp, columns)(void *acc, const void *from, int64_t n, int64_t rows, int64_t step,
                                        int64_t base) {
    enum { L = OF(lanes), GROUP = 8 };
    (void)base;
    const OF(element) *x = from; /* (rows, n) */
    OF(scalar) tops[LOG_SUM_COLUMNS], sums[LOG_SUM_COLUMNS];
    for (int64_t j = 0; j < n; j += L) {
        OF(put)(tops + j, OF(set1)((OF(scalar)) - INFINITY));
        OF(put)(sums + j, OF(set1)(0));
    }
    for (int64_t r = 0, m; r < rows; r += m, x += m * step) {
        m = ct__min64(rows - r, GROUP);
        for (int64_t j = 0; j < n; j += L) {
            int k = (int)ct__min64(n - j, L);
            V before = OF(get)(tops + j), top = before, sum;
            for (int64_t i = 0; i < m; i++) top = OF(max)(top, OF(load_n)(x + i * step + j, k));
            V level = OF(level)(top);
            sum = OF(mul)(OF(get)(sums + j), DO(exp)(OF(sub)(before, level)));
            for (int64_t i = 0; i < m; i++)
                sum = OF(add)(sum, DO(exp)(OF(sub)(OF(load_n)(x + i * step + j, k), level)));
            OF(put)(tops + j, top);
            OF(put)(sums + j, sum);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        log_sum column = {(double)tops[j], (double)sums[j]};
        log_sum_merge((log_sum *)acc + j, &column);
    }
}

#undef ROWS_OF
#undef TO
#undef OF
#undef DO
#undef D
#undef V
