/* A template: the passes of channel_norm over parts of lines, for one dtype. Included with FOLD_D its short name and FOLD_IN that
 * of the dtype that it is computed in, which coefficients are of; it undefines both. */
#define T      ELEMENT(FOLD_D)
#define S      SCALAR(FOLD_D)
#define V      VECTOR(FOLD_D)
#define DO(op) ELEMENT_PASTE(FOLD_D, op)
#define L      LANES(FOLD_D)
#define OF(k)  ELEMENT_PASTE(FOLD_IN, _coefficients)(j, k, item)
/* One copy for all that is wanted, which is asked at each vector, where speed counts for less than size. */
#define ONE_COPY (sizeof(T) != 4 || CT_ISA_LEVEL == 0)
#define STREAMS  (sizeof(T) >= 4 && j->streams) /* halves do not go past the caches */

/* ---- relu ---- */

/* x where y is above 0, or NaN: relu of y, or its gradient. */
SIMD_INLINE V DO(_passed)(V y, V x) { return DO(_select)(DO(_le)(y, DO(_set1)(0)), DO(_set1)(0), x); }

/* ---- Lines that are contiguous ---- */

static void DO(_first)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    norm_moments m =
        DO(_line_moments)((const T *)j->x + place_of(j, item, channel, part), places_of(j, part), true, NULL);
    const int64_t at = sum_at(j, item, channel, part);
    j->sums.a[at] = m.count, j->sums.b[at] = m.mean, j->sums.c[at] = m.square;
}

/* What follows x - m of a result; r: the residual. */
SIMD_INLINE V DO(_result)(result_kind kind, V apart, V scale, V shift, V r) {
    V y = DO(_fma)(apart, scale, shift);
    if (kind == RELU_OF_SUM) y = DO(_add)(y, r);
    return kind == PLAIN ? y : DO(_passed)(y, y);
}

SIMD_INLINE void DO(_second_as)(const channel_job *j, result_kind kind, int64_t item, int64_t channel, int64_t part) {
    const int64_t at = place_of(j, item, channel, part), n = places_of(j, part);
    const T *x = (const T *)j->x + at, *r = kind == RELU_OF_SUM ? (const T *)j->other + at : x; /* (n) */
    T *y = (T *)j->y + at;
    const V m = DO(_set1)(OF(0)[channel]), scale = DO(_set1)(OF(1)[channel]), shift = DO(_set1)(OF(2)[channel]);
#define Y(LOAD) DO(_result)(kind, DO(_sub)(LOAD(x), m), scale, shift, kind == RELU_OF_SUM ? LOAD(r) : m)
#define ALL(p)  DO(_load)(p + i)
#define NEXT(p) DO(_load)(p + i + L)
#define SOME(p) DO(_load_n)(p + i, (int)(n - i))
    int64_t i = 0;
    if (STREAMS)
        for (; i + L <= n; i += L) DO(_stream)(y + i, Y(ALL));
    for (; i + L <= n; i += L) DO(_store)(y + i, Y(ALL));
    if (i < n) DO(_store_n)(y + i, Y(SOME), (int)(n - i));
#undef Y
}

static void DO(_second)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    const result_kind kind = !j->relu ? PLAIN : j->other ? RELU_OF_SUM : RELU_OF_RESULT;
    if (!j->y) return;
    if (ONE_COPY) DO(_second_as)(j, kind, item, channel, part);
    else if (kind == PLAIN) DO(_second_as)(j, PLAIN, item, channel, part);
    else if (kind == RELU_OF_SUM) DO(_second_as)(j, RELU_OF_SUM, item, channel, part);
    else DO(_second_as)(j, RELU_OF_RESULT, item, channel, part);
}

SIMD_INLINE void DO(_grad_first_as)(const channel_job *j, bool relu, int64_t item, int64_t channel, int64_t part) {
    const int64_t at = place_of(j, item, channel, part), n = places_of(j, part);
    const T *x = (const T *)j->x + at, *g = (const T *)j->g + at, *y = relu ? (const T *)j->other + at : g; /* (n) */
    T *passed = relu && j->passed_first ? (T *)j->passed + at : NULL;
    const V m = DO(_set1)(OF(0)[channel]), zero = DO(_set1)(0);
    double sum = 0, product = 0, rest = 0;
    for (int64_t from = 0, end; from < n; from = end) {
        end = ct__min64(from + NORM_BLOCK, n);
        V s0 = zero, s1 = zero, p0 = zero, p1 = zero, d0 = zero, d1 = zero;
        int64_t i = from;
#define G(LOAD) (relu ? DO(_passed)(LOAD(y), LOAD(g)) : LOAD(g))
        for (; i + 2 * L <= end; i += 2 * L) {
            PREFETCH(x + i, 2 * L);
            PREFETCH(g + i, 2 * L);
            if (relu) PREFETCH(y + i, 2 * L);
            V a = DO(_sub)(ALL(x), m), b = DO(_sub)(NEXT(x), m), c = G(ALL), d = G(NEXT);
            if (passed) {
                DO(_store)(passed + i, c);
                DO(_store)(passed + i + L, d);
            }
            s0 = DO(_add)(s0, c), s1 = DO(_add)(s1, d);
            p0 = DO(_fma)(a, c, p0), p1 = DO(_fma)(b, d, p1);
            d0 = DO(_add)(d0, a), d1 = DO(_add)(d1, b);
        }
        for (; i + L <= end; i += L) {
            V a = DO(_sub)(ALL(x), m), c = G(ALL);
            if (passed) DO(_store)(passed + i, c);
            s1 = DO(_add)(s1, c), p1 = DO(_fma)(a, c, p1), d1 = DO(_add)(d1, a);
        }
        if (i < end) {
            const int k = (int)(end - i);
            S lane[L];
            DO(_put)(lane, DO(_sub)(SOME(x), m));
            V a = DO(_get_n)(lane, k), c = G(SOME);
            if (passed) DO(_store_n)(passed + i, c, k);
            s0 = DO(_add)(s0, c), p0 = DO(_fma)(a, c, p0), d0 = DO(_add)(d0, a);
        }
        sum += (double)DO(_hsum)(DO(_add)(s0, s1));
        product += (double)DO(_hsum)(DO(_add)(p0, p1));
        rest += (double)DO(_hsum)(DO(_add)(d0, d1));
    }
    const int64_t to = sum_at(j, item, channel, part);
    j->sums.a[to] = sum, j->sums.b[to] = product, j->sums.c[to] = rest;
}

static void DO(_grad_first)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    if (ONE_COPY) DO(_grad_first_as)(j, j->relu, item, channel, part);
    else if (j->relu) DO(_grad_first_as)(j, true, item, channel, part);
    else DO(_grad_first_as)(j, false, item, channel, part);
}

/* dx of the vectors that LOAD gives of x, g and y; c is what relu let pass of g. */
#define DX(LOAD) (c = G(LOAD), DO(_fma)(DO(_sub)(c, by[4]), by[1], DO(_fma)(DO(_sub)(LOAD(x), by[0]), by[2], by[3])))

SIMD_INLINE void DO(_grad_second_as)(const channel_job *j, bool relu, int64_t item, int64_t channel, int64_t part) {
    const int64_t at = place_of(j, item, channel, part), n = places_of(j, part);
    const T *x = (const T *)j->x + at, *g = (const T *)(j->passed_first ? j->passed : j->g) + at,
            *y = relu ? (const T *)j->other + at : g; /* (n) */
    T *dx = (T *)j->y + at, *passed = relu && j->passed ? (T *)j->passed + at : NULL;
    V by[5], c;
    for (int k = 0; k < 5; k++) by[k] = DO(_set1)(OF(k)[channel]);
    int64_t i = 0;
    if (STREAMS && !passed)
        for (; i + L <= n; i += L) DO(_stream)(dx + i, DX(ALL));
    for (; i + L <= n; i += L) {
        DO(_store)(dx + i, DX(ALL));
        if (passed) DO(_store)(passed + i, c);
    }
    if (i < n) {
        DO(_store_n)(dx + i, DX(SOME), (int)(n - i));
        if (passed) DO(_store_n)(passed + i, c, (int)(n - i));
    }
}

static void DO(_grad_second)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    if (!j->y) return;
    const bool relu = j->relu && !j->passed_first;
    if (ONE_COPY) DO(_grad_second_as)(j, relu, item, channel, part);
    else if (relu) DO(_grad_second_as)(j, true, item, channel, part);
    else DO(_grad_second_as)(j, false, item, channel, part);
}

/* ---- Lines side by side ---- */

/* Moments of the columns of a few rows: sums, then deviations from the means that they give, `width` vectors at a time;
 * merged with those of `before` rows at to. */
SIMD_INLINE void DO(_column_moments)(part_sums to, double before, const T *x /* (rows, step) */, int64_t rows,
                                     int64_t step, int width, int last) {
    V sum[4], square[4], middle[4];
    const V share = DO(_set1)((S)1 / (S)rows);
#define AT(p, r, q) \
    (q == width - 1 && last < L ? DO(_load_n)((p) + (r)*step + q * L, last) : DO(_load)((p) + (r)*step + q * L))
    for (int q = 0; q < width; q++) sum[q] = square[q] = DO(_set1)(0);
    for (int64_t r = 0; r < rows; r++)
        for (int q = 0; q < width; q++) sum[q] = DO(_add)(sum[q], AT(x, r, q));
    for (int q = 0; q < width; q++) middle[q] = DO(_mul)(sum[q], share), sum[q] = DO(_set1)(0);
    for (int64_t r = 0; r < rows; r++)
        for (int q = 0; q < width; q++) {
            NORM_PREFETCH(x + (r + rows) * step + q * L, L); /* the rows after these */
            const V apart = DO(_sub)(AT(x, r, q), middle[q]);
            sum[q] = DO(_add)(sum[q], apart);
            square[q] = DO(_fma)(apart, apart, square[q]);
        }
    S lanes[3][L];
    double b[L], c[L];
    const double count = (double)rows, one = 1 / count, part = count / (before + count), both = before * part;
    for (int q = 0; q < width; q++) {
        const size_t bytes = (size_t)(q == width - 1 ? last : L) * sizeof(double);
        DO(_put)(lanes[0], middle[q]);
        DO(_put)(lanes[1], sum[q]);
        DO(_put)(lanes[2], square[q]);
        memcpy(b, to.b + q * L, bytes);
        memcpy(c, to.c + q * L, bytes);
        for (int i = 0; i < L; i++) {
            const double rest = (double)lanes[1][i] * one, apart = (double)lanes[0][i] + rest - b[i];
            b[i] += apart * part;
            c[i] += (double)lanes[2][i] - rest * rest * count + apart * apart * both;
        }
        memcpy(to.b + q * L, b, bytes);
        memcpy(to.c + q * L, c, bytes);
    }
}

/* The sums of a part from channel c on. */
static inline part_sums DO(_sums_from)(const channel_job *j, int64_t at) {
    return (part_sums){j->sums.a + at, j->sums.b + at, j->sums.c + at};
}

static void DO(_last_first)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    const int64_t n = span_of(j, channel), step = j->channels, rows = places_of(j, part),
                  at = sum_at(j, item, channel, part);
    const T *x = (const T *)j->x + place_of(j, item, channel, part); /* (rows, n) of (rows, step) */
    for (int64_t c = 0; c < n; c++) j->sums.a[at + c] = (double)rows, j->sums.b[at + c] = j->sums.c[at + c] = 0;
    for (int64_t r = 0; r < rows; r += ROWS) {
        const int64_t m = ct__min64(rows - r, ROWS);
        const T *from = x + r * step;
        int64_t c = 0;
        for (; c + 4 * L <= n; c += 4 * L)
            DO(_column_moments)(DO(_sums_from)(j, at + c), (double)r, from + c, m, step, 4, L);
        for (; c < n; c += L) DO(_column_moments)
        (DO(_sums_from)(j, at + c), (double)r, from + c, m, step, 1, (int)ct__min64(n - c, L));
    }
}

/* Four rows at a time. */
SIMD_INLINE void DO(_last_second_as)(const channel_job *j, result_kind kind, int64_t item, int64_t channel,
                                     int64_t part) {
    const int64_t n = span_of(j, channel), step = j->channels, rows = places_of(j, part),
                  at = place_of(j, item, channel, part);
    const T *x = (const T *)j->x + at,
            *r = kind == RELU_OF_SUM ? (const T *)j->other + at : x; /* (rows, n) of (rows, step) */
    T *y = (T *)j->y + at;
    const S *m = OF(0) + channel, *scale = OF(1) + channel, *shift = OF(2) + channel;
#define Y(LOAD) DO(_result)(kind, DO(_sub)(LOAD(x), a), b, s, kind == RELU_OF_SUM ? LOAD(r) : a)
#define LESS(p) DO(_load_n)(p + i, k)
    const int64_t whole = n - n % L;
    for (int64_t row = 0; row < rows; row += 4) {
        const int many = (int)ct__min64(rows - row, 4);
        for (int64_t c = 0; c < n; c += L) {
            const int k = c < whole ? L : (int)(n - whole);
            const int64_t from = row * step + c;
            const V a = DO(_get_n)(m + c, k), b = DO(_get_n)(scale + c, k), s = DO(_get_n)(shift + c, k);
            if (k < L || many < 4)
                for (int64_t i = from; i < from + many * step; i += step) DO(_store_n)(y + i, Y(LESS), k);
            else if (STREAMS)
                for (int64_t i = from; i < from + 4 * step; i += step) DO(_stream)(y + i, Y(ALL));
            else
                for (int64_t i = from; i < from + 4 * step; i += step) DO(_store)(y + i, Y(ALL));
        }
    }
#undef Y
}

static void DO(_last_second)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    const result_kind kind = !j->relu ? PLAIN : j->other ? RELU_OF_SUM : RELU_OF_RESULT;
    if (!j->y) return;
    if (ONE_COPY) DO(_last_second_as)(j, kind, item, channel, part);
    else if (kind == PLAIN) DO(_last_second_as)(j, PLAIN, item, channel, part);
    else if (kind == RELU_OF_SUM) DO(_last_second_as)(j, RELU_OF_SUM, item, channel, part);
    else DO(_last_second_as)(j, RELU_OF_RESULT, item, channel, part);
}

SIMD_INLINE void DO(_column_sums)(part_sums to, bool relu, const T *x, const T *g, const T *y,
                                  T *passed /* (rows, step) */, const S *means, int64_t rows, int64_t step, int width,
                                  int last) {
    V s[2], p[2], d[2], m[2];
    for (int q = 0; q < width; q++) m[q] = DO(_get_n)(means + q * L, q == width - 1 ? last : L);
    for (int q = 0; q < width; q++) s[q] = p[q] = d[q] = DO(_set1)(0);
    for (int64_t r = 0; r < rows; r++)
        for (int q = 0; q < width; q++) {
            NORM_PREFETCH(x + (r + rows) * step + q * L, L);
            NORM_PREFETCH(g + (r + rows) * step + q * L, L);
            if (relu) NORM_PREFETCH(y + (r + rows) * step + q * L, L);
            const V apart = DO(_sub)(AT(x, r, q), m[q]);
            const V c = relu ? DO(_passed)(AT(y, r, q), AT(g, r, q)) : AT(g, r, q);
            if (relu && passed) {
                if (q == width - 1 && last < L) DO(_store_n)(passed + r * step + q * L, c, last);
                else DO(_store)(passed + r * step + q * L, c);
            }
            s[q] = DO(_add)(s[q], c);
            p[q] = DO(_fma)(apart, c, p[q]);
            d[q] = DO(_add)(d[q], apart);
        }
    S lanes[L];
    double all[L];
    for (int k = 0; k < 3; k++) {
        double *at = k == 0 ? to.a : k == 1 ? to.b : to.c;
        const V *from = k == 0 ? s : k == 1 ? p : d;
        for (int q = 0; q < width; q++) {
            const size_t bytes = (size_t)(q == width - 1 ? last : L) * sizeof(double);
            DO(_put)(lanes, from[q]);
            memcpy(all, at + q * L, bytes);
            for (int i = 0; i < L; i++) all[i] += (double)lanes[i];
            memcpy(at + q * L, all, bytes);
        }
    }
}

SIMD_INLINE void DO(_last_grad_first_as)(const channel_job *j, bool relu, int64_t item, int64_t channel, int64_t part) {
    const int64_t n = span_of(j, channel), step = j->channels, rows = places_of(j, part),
                  at = place_of(j, item, channel, part), first = sum_at(j, item, channel, part);
    const T *x = (const T *)j->x + at, *g = (const T *)j->g + at,
            *y = relu ? (const T *)j->other + at : g; /* (rows, n) of (rows, step) */
    T *passed = relu && j->passed_first ? (T *)j->passed + at : NULL;
    const S *m = OF(0) + channel;
    for (int64_t c = first; c < first + n; c++) j->sums.a[c] = j->sums.b[c] = j->sums.c[c] = 0;
    for (int64_t r = 0; r < rows; r += ROWS) {
        const int64_t some = ct__min64(rows - r, ROWS);
        int64_t c = 0;
#define SUMS(width, last)                                                                      \
    DO(_column_sums)                                                                           \
    (DO(_sums_from)(j, first + c), relu, x + r * step + c, g + r * step + c, y + r * step + c, \
     passed ? passed + r * step + c : NULL, m + c, some, step, width, last)
        for (; c + 2 * L <= n; c += 2 * L) SUMS(2, L);
        for (; c < n; c += L) SUMS(1, (int)ct__min64(n - c, L));
#undef SUMS
    }
}

static void DO(_last_grad_first)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    if (ONE_COPY) DO(_last_grad_first_as)(j, j->relu, item, channel, part);
    else if (j->relu) DO(_last_grad_first_as)(j, true, item, channel, part);
    else DO(_last_grad_first_as)(j, false, item, channel, part);
}

/* Not in fused calls: `passed` was written by the first pass. */
SIMD_INLINE void DO(_last_grad_second_as)(const channel_job *j, bool relu, int64_t item, int64_t channel,
                                          int64_t part) {
    const int64_t n = span_of(j, channel), step = j->channels, rows = places_of(j, part),
                  at = place_of(j, item, channel, part);
    const T *x = (const T *)j->x + at, *g = (const T *)(j->passed_first ? j->passed : j->g) + at,
            *y = relu ? (const T *)j->other + at : g; /* (rows, n) of (rows, step) */
    T *dx = (T *)j->y + at;
    const int64_t whole = n - n % L;
    for (int64_t r = 0; r < rows; r += 4) {
        const int many = (int)ct__min64(rows - r, 4);
        for (int64_t column = 0; column < n; column += L) {
            const int k = column < whole ? L : (int)(n - whole);
            const int64_t to = r * step + column;
            V by[5], c;
            for (int q = 0; q < 5; q++) by[q] = DO(_get_n)(OF(q) + channel + column, k);
            if (k < L || many < 4)
                for (int64_t i = to; i < to + many * step; i += step) DO(_store_n)(dx + i, DX(LESS), k);
            else if (STREAMS)
                for (int64_t i = to; i < to + 4 * step; i += step) DO(_stream)(dx + i, DX(ALL));
            else
                for (int64_t i = to; i < to + 4 * step; i += step) DO(_store)(dx + i, DX(ALL));
        }
    }
}

static void DO(_last_grad_second)(const channel_job *j, int64_t item, int64_t channel, int64_t part) {
    if (!j->y) return;
    const bool relu = j->relu && !j->passed_first;
    if (ONE_COPY) DO(_last_grad_second_as)(j, relu, item, channel, part);
    else if (relu) DO(_last_grad_second_as)(j, true, item, channel, part);
    else DO(_last_grad_second_as)(j, false, item, channel, part);
}

#undef AT
#undef G
#undef DX
#undef ALL
#undef NEXT
#undef SOME
#undef LESS
#undef FOLD_D
#undef FOLD_IN
#undef OF
#undef STREAMS
#undef ONE_COPY
#undef T
#undef S
#undef V
#undef DO
#undef L
