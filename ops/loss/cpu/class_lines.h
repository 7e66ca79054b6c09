/* A template: log-likelihoods of classes and their gradients for one dtype, rows and columns. Included with FOLD_D its short
 * name, which it undefines. */
#define T      ELEMENT(FOLD_D)
#define V      VECTOR(FOLD_D)
#define DO(op) ELEMENT_PASTE(FOLD_D, op)
#define L      LANES(FOLD_D)

/* Of one row: the greatest logit and the sum of exp(x - greatest), whose terms go to kept where there is room. */
typedef struct DO(_line) {
    T top;
    double sum;
} DO(_line);

/* A NaN may be passed over here: it comes back with the exponentials. */
static inline T DO(_greatest)(const T *x /* (n) */, int64_t n) {
    V a = DO(_load_repeated)(x, (int)ct__min64(n, L)), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        a = DO(_max_number)(a, DO(_load)(x + i));
        b = DO(_max_number)(b, DO(_load)(x + i + L));
        c = DO(_max_number)(c, DO(_load)(x + i + 2 * L));
        d = DO(_max_number)(d, DO(_load)(x + i + 3 * L));
    }
    for (; i < n; i += L) a = DO(_max_number)(a, DO(_load_repeated)(x + i, (int)ct__min64(n - i, L)));
    return DO(_hmax_number)(DO(_max_number)(DO(_max_number)(a, b), DO(_max_number)(c, d)));
}

static DO(_line) DO(_line_of)(const T *x /* (n) */, int64_t n, T *kept) {
    DO(_line) line = {DO(_greatest)(x, n), 0};
    const V top = DO(_set1)(line.top);
    const int64_t ahead = ct__max64(ct__min64(n, KEPT), 768); /* the next row is fetched meanwhile */
    for (int64_t from = 0, end; from < n; from = end) {       /* sums of many go on in f64 */
        end = ct__min64(from + KEPT, n);
        V s = DO(_set1)(0), t = s;
        int64_t i = from;
        for (; i + 2 * L <= end; i += 2 * L) {
            NORM_PREFETCH(x + i + ahead, 2 * L);
            V e = DO(_exp)(DO(_sub)(DO(_load)(x + i), top)), f = DO(_exp)(DO(_sub)(DO(_load)(x + i + L), top));
            if (kept) {
                DO(_put)(kept + i, e);
                DO(_put)(kept + i + L, f);
            }
            s = DO(_add)(s, e), t = DO(_add)(t, f);
        }
        for (; i < end; i += L) {
            const int k = (int)ct__min64(end - i, L);
            T lane[L];
            DO(_put)(lane, DO(_exp)(DO(_sub)(DO(_load_n)(x + i, k), top)));
            V e = DO(_get_n)(lane, k);
            if (kept) DO(_put_n)(kept + i, e, k);
            s = DO(_add)(s, e);
        }
        line.sum += (double)DO(_hsum)(DO(_add)(s, t));
    }
    return line;
}

static void DO(_nll_row)(const class_job *j, int64_t row) {
    const T *x = (const T *)j->x + row * j->classes, *w = j->weight;
    const int64_t t = target_at(j->target, row);
    T *nll = j->nll, *smooth = j->smooth, *level = j->level;
    if (t == j->ignored) {
        if (nll) nll[row] = 0;
        if (smooth) smooth[row] = 0;
        if (level) level[row] = level[j->items + row] = 0;
        return;
    }
    const DO(_line) line = DO(_line_of)(x, j->classes, NULL);
    const double log_sum = log(line.sum);
    if (nll) nll[row] = (T)(log_sum - ((double)x[t] - (double)line.top));
    if (level) level[row] = line.top, level[j->items + row] = (T)log_sum;
    if (!smooth) return;
    double below = 0; /* sum w (x - top) */
    for (int64_t c = 0; c < j->classes; c++) below += ((double)x[c] - (double)line.top) * (w ? (double)w[c] : 1);
    smooth[row] = (T)(j->weights * log_sum - below);
}

/* dx = factor exp(x - top) - g' w, and less g at the target. */
static void DO(_nll_grad_row)(const class_job *j, int64_t row) {
    const int64_t n = j->classes, t = target_at(j->target, row);
    const T *x = (const T *)j->x + row * n, *w = j->weight;
    T *dx = (T *)j->dx + row * n, kept[KEPT];
    if (t == j->ignored) {
        memset(dx, 0, (size_t)n * sizeof(T));
        return;
    }
    const bool keeps = n <= KEPT;
    const DO(_line) line = DO(_line_of)(x, n, keeps ? kept : NULL);
    const double g = (double)((const T *)j->g)[row], spread = j->g_smooth ? (double)((const T *)j->g_smooth)[row] : 0;
    const V factor = DO(_set1)((T)((g + spread * j->weights) / line.sum)), less = DO(_set1)((T)-spread),
            top = DO(_set1)(line.top), one = DO(_set1)(1);
    const T at_target =
        (T)((g + spread * j->weights) / line.sum * (double)(keeps ? kept[t] : (T)exp((double)x[t] - (double)line.top)) -
            spread * (w ? (double)w[t] : 1) - g);
    for (int64_t i = 0; i < n; i += L) {
        const int k = (int)ct__min64(n - i, L);
        V e = keeps ? k < L ? DO(_get_n)(kept + i, k) : DO(_get)(kept + i)
                    : DO(_exp)(DO(_sub)(k < L ? DO(_load_n)(x + i, k) : DO(_load)(x + i), top));
        V d = DO(_mul)(e, factor);
        if (j->g_smooth) d = DO(_fma)(!w ? one : k < L ? DO(_load_n)(w + i, k) : DO(_load)(w + i), less, d);
        if (j->streams && t >= i && t < i + L) { /* the element at the target goes with its vector */
            T lane[L];
            DO(_put)(lane, d);
            lane[t - i] = at_target;
            d = DO(_get)(lane);
        }
        if (k < L) DO(_store_n)(dx + i, d, k);
        else if (j->streams) DO(_stream)(dx + i, d);
        else DO(_store)(dx + i, d);
    }
    if (!j->streams) dx[t] = at_target;
}

/* Columns first to first + width - 1 of an item: top and sum of each. */
static void DO(_columns_of)(const class_job *j, const T *x /* (classes, places) */, int64_t width, T *top, T *sum) {
    for (int64_t s = 0; s < width; s += L) {
        const int k = (int)ct__min64(width - s, L);
        V best = DO(_load_n)(x + s, k), total = DO(_set1)(0);
        for (int64_t c = 1; c < j->classes; c++) best = DO(_max)(best, DO(_load_n)(x + c * j->places + s, k));
        for (int64_t c = 0; c < j->classes; c++)
            total = DO(_add)(total, DO(_exp)(DO(_sub)(DO(_load_n)(x + c * j->places + s, k), best)));
        DO(_put)(top + s, best);
        DO(_put)(sum + s, total);
    }
}

static void DO(_nll_columns)(const class_job *j, int64_t item, int64_t first) {
    const int64_t width = ct__min64(j->places - first, WIDTH);
    const T *x = (const T *)j->x + item * j->classes * j->places + first, *w = j->weight;
    T top[WIDTH + L], sum[WIDTH + L], *nll = j->nll, *smooth = j->smooth, *level = j->level;
    if (j->classes) DO(_columns_of)(j, x, width, top, sum);
    for (int64_t s = 0; s < width; s++) {
        const int64_t at = item * j->places + first + s, t = target_at(j->target, at);
        const bool counts = t != j->ignored;
        const double log_sum = counts ? log((double)sum[s]) : 0;
        if (nll) nll[at] = counts ? (T)(log_sum - ((double)x[t * j->places + s] - (double)top[s])) : 0;
        if (level) level[at] = counts ? top[s] : 0, level[j->items * j->places + at] = (T)log_sum;
        if (!smooth) continue;
        double below = 0;
        for (int64_t c = 0; counts && c < j->classes; c++)
            below += ((double)x[c * j->places + s] - (double)top[s]) * (w ? (double)w[c] : 1);
        smooth[at] = counts ? (T)(j->weights * log_sum - below) : 0;
    }
}

static void DO(_nll_grad_columns)(const class_job *j, int64_t item, int64_t first) {
    const int64_t width = ct__min64(j->places - first, WIDTH), base = item * j->classes * j->places + first;
    const T *x = (const T *)j->x + base, *w = j->weight;
    T top[WIDTH + L], sum[WIDTH + L], spread[WIDTH + L], *dx = (T *)j->dx + base;
    if (!j->classes) return;
    DO(_columns_of)(j, x, width, top, sum);
    for (int64_t s = 0; s < width; s++) { /* sum becomes the factor of the exponentials */
        const int64_t at = item * j->places + first + s;
        const bool counts = target_at(j->target, at) != j->ignored;
        const double g = (double)((const T *)j->g)[at], more = j->g_smooth ? (double)((const T *)j->g_smooth)[at] : 0;
        sum[s] = counts ? (T)((g + more * j->weights) / (double)sum[s]) : 0;
        spread[s] = counts ? (T)-more : 0;
        if (!counts) top[s] = 0;
    }
    for (int64_t c = 0; c < j->classes; c++)
        for (int64_t s = 0; s < width; s += L) {
            const int k = (int)ct__min64(width - s, L);
            V e = DO(_exp)(DO(_sub)(DO(_load_n)(x + c * j->places + s, k), DO(_get)(top + s)));
            V d = DO(_mul)(e, DO(_get)(sum + s));
            if (j->g_smooth) d = DO(_fma)(DO(_set1)(w ? w[c] : 1), DO(_get)(spread + s), d);
            DO(_store_n)(dx + c * j->places + s, d, k);
        }
    for (int64_t s = 0; s < width; s++) {
        const int64_t at = item * j->places + first + s, t = target_at(j->target, at);
        if (t != j->ignored) {
            dx[t * j->places + s] -= ((const T *)j->g)[at];
            continue;
        }
        for (int64_t c = 0; c < j->classes; c++) dx[c * j->places + s] = 0;
    }
}

static void DO(_nll_task)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const class_job *j = ctx;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->items * j->blocks);
    for (int64_t u = chunk * j->chunk; u < end; u++)
        if (j->places == 1) DO(_nll_row)(j, u);
        else DO(_nll_columns)(j, u / j->blocks, u % j->blocks * WIDTH);
}

static void DO(_nll_grad_task)(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    const class_job *j = ctx;
    const int64_t end = ct__min64((chunk + 1) * j->chunk, j->items * j->blocks);
    for (int64_t u = chunk * j->chunk; u < end; u++)
        if (j->places == 1) DO(_nll_grad_row)(j, u);
        else DO(_nll_grad_columns)(j, u / j->blocks, u % j->blocks * WIDTH);
    if (j->streams) simd_fence();
}

#undef FOLD_D
#undef T
#undef V
#undef DO
#undef L
