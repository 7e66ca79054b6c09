/* A template: softmax, log_softmax and their gradients for one floating dtype, along rows (the axis is contiguous) and along columns (the
 * lines are neighbours). Included once for every dtype, with FOLD_D its short name, which it undefines. */
#include "ops/reduce/elements.h"

#define T ELEMENT(FOLD_D)
#define S SCALAR(FOLD_D)
#define V VECTOR(FOLD_D)
#define DO(part) ELEMENT_PASTE(FOLD_D, part)
#define FN(part) ELEMENT_PASTE(ELEMENT_PASTE(FOLD_D, _), part)
#define SET1 DO(_set1)
#define ADD DO(_add)
#define SUB DO(_sub)
#define MUL DO(_mul)
#define LOAD DO(_load)
#define LOAD_N DO(_load_n)

/* ---- Rows ---- */

static inline S FN(row_max)(const T *x /* (n) */, int64_t n) {
    enum { L = LANES(FOLD_D) };
    V a = DO(_load_repeated)(x, n < L ? (int)n : L), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        a = DO(_max)(a, LOAD(x + i));
        b = DO(_max)(b, LOAD(x + i + L));
        c = DO(_max)(c, LOAD(x + i + 2 * L));
        d = DO(_max)(d, LOAD(x + i + 3 * L));
    }
    for (; i + L <= n; i += L) a = DO(_max)(a, LOAD(x + i));
    if (i < n) a = DO(_max)(a, DO(_load_repeated)(x + i, (int)(n - i)));
    return DO(_hmax)(DO(_max)(DO(_max)(a, b), DO(_max)(c, d)));
}

/* The sum of exp(x - top), and those terms in e unless that is NULL. */
static inline S FN(row_exp)(const T *x /* (n) */, int64_t n, S top, S *e /* (n) */) {
    enum { L = LANES(FOLD_D) };
    const V m = SET1(top);
    V a = SET1(0), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        V p = DO(_exp)(SUB(LOAD(x + i), m)), q = DO(_exp)(SUB(LOAD(x + i + L), m));
        V r = DO(_exp)(SUB(LOAD(x + i + 2 * L), m)), s = DO(_exp)(SUB(LOAD(x + i + 3 * L), m));
        if (e) {
            DO(_put)(e + i, p);
            DO(_put)(e + i + L, q);
            DO(_put)(e + i + 2 * L, r);
            DO(_put)(e + i + 3 * L, s);
        }
        a = ADD(a, p);
        b = ADD(b, q);
        c = ADD(c, r);
        d = ADD(d, s);
    }
    for (; i < n; i += L) {
        int k = n - i < L ? (int)(n - i) : L;
        V p = DO(_exp)(SUB(LOAD_N(x + i, k), m));
        S lane[L];
        DO(_put)(lane, p);
        if (e) DO(_put_n)(e + i, p, k);
        a = ADD(a, DO(_get_n)(lane, k));
    }
    return DO(_hsum)(ADD(ADD(a, b), ADD(c, d)));
}

static void FN(softmax_row)(T *y /* (n) */, const T *x /* (n) */, int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    _Alignas(64) S e[ROW_BUFFER];
    S top = FN(row_max)(x, n);
    bool buffered = n <= ROW_BUFFER;
    S sum = FN(row_exp)(x, n, top, buffered ? e : NULL);
    const V scale = SET1(1 / sum), m = SET1(top);
    int64_t i = 0;
    if (buffered) {
        if (streams)
            for (; i + L <= n; i += L) DO(_stream)(y + i, MUL(DO(_get)(e + i), scale));
        for (; i + L <= n; i += L) DO(_store)(y + i, MUL(DO(_get)(e + i), scale));
        if (i < n) DO(_store_n)(y + i, MUL(DO(_get_n)(e + i, (int)(n - i)), scale), (int)(n - i));
    } else {
        for (; i + L <= n; i += L) DO(_store)(y + i, MUL(DO(_exp)(SUB(LOAD(x + i), m)), scale));
        if (i < n) DO(_store_n)(y + i, MUL(DO(_exp)(SUB(LOAD_N(x + i, (int)(n - i)), m)), scale), (int)(n - i));
    }
}

static void FN(log_softmax_row)(T *y /* (n) */, const T *x /* (n) */, int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    S top = FN(row_max)(x, n);
    const V m = SET1(top), rest = SET1((S)log((double)FN(row_exp)(x, n, top, NULL)));
    int64_t i = 0;
    if (streams)
        for (; i + L <= n; i += L) DO(_stream)(y + i, SUB(SUB(LOAD(x + i), m), rest));
    for (; i + L <= n; i += L) DO(_store)(y + i, SUB(SUB(LOAD(x + i), m), rest));
    if (i < n) DO(_store_n)(y + i, SUB(SUB(LOAD_N(x + i, (int)(n - i)), m), rest), (int)(n - i));
}

/* dx = y (g - sum g y) */
static void FN(softmax_grad_row)(T *dx /* (n) */, const T *g /* (n) */, const T *y /* (n) */, int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    V a = SET1(0), b = a;
    int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
        a = DO(_fma)(LOAD(g + i), LOAD(y + i), a);
        b = DO(_fma)(LOAD(g + i + L), LOAD(y + i + L), b);
    }
    for (; i + L <= n; i += L) a = DO(_fma)(LOAD(g + i), LOAD(y + i), a);
    if (i < n) a = DO(_fma)(LOAD_N(g + i, (int)(n - i)), LOAD_N(y + i, (int)(n - i)), a);
    const V dot = SET1(DO(_hsum)(ADD(a, b)));
    i = 0;
    if (streams)
        for (; i + L <= n; i += L) DO(_stream)(dx + i, MUL(LOAD(y + i), SUB(LOAD(g + i), dot)));
    for (; i + L <= n; i += L) DO(_store)(dx + i, MUL(LOAD(y + i), SUB(LOAD(g + i), dot)));
    if (i < n) DO(_store_n)(dx + i, MUL(LOAD_N(y + i, (int)(n - i)), SUB(LOAD_N(g + i, (int)(n - i)), dot)), (int)(n - i));
}

/* dx = g - exp(y) sum g */
static void FN(log_softmax_grad_row)(T *dx /* (n) */, const T *g /* (n) */, const T *y /* (n) */, int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    V a = SET1(0), b = a;
    int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
        a = ADD(a, LOAD(g + i));
        b = ADD(b, LOAD(g + i + L));
    }
    for (; i + L <= n; i += L) a = ADD(a, LOAD(g + i));
    if (i < n) a = ADD(a, LOAD_N(g + i, (int)(n - i)));
    const V total = SET1(-DO(_hsum)(ADD(a, b)));
    i = 0;
    if (streams)
        for (; i + L <= n; i += L) DO(_stream)(dx + i, DO(_fma)(DO(_exp)(LOAD(y + i)), total, LOAD(g + i)));
    for (; i + L <= n; i += L) DO(_store)(dx + i, DO(_fma)(DO(_exp)(LOAD(y + i)), total, LOAD(g + i)));
    if (i < n)
        DO(_store_n)(dx + i, DO(_fma)(DO(_exp)(LOAD_N(y + i, (int)(n - i))), total, LOAD_N(g + i, (int)(n - i))), (int)(n - i));
}

/* ---- Columns: k neighbouring lines, at most a vector of them ---- */

#define SOME(p) (k == L ? LOAD(p) : LOAD_N(p, k))
#define KEEP(p, v)                 \
    do {                           \
        if (k == L)                \
            DO(_store)(p, v);      \
        else                       \
            DO(_store_n)(p, v, k); \
    } while (0)

static inline V FN(column_max)(const T *x /* (n, k) */, int64_t step, int64_t n, int k) {
    enum { L = LANES(FOLD_D) };
    V m = SOME(x);
    for (int64_t i = 1; i < n; i++) m = DO(_max)(m, SOME(x + i * step));
    return m;
}

static inline V FN(column_exp)(const T *x /* (n, k) */, int64_t step, int64_t n, int k, V m) {
    enum { L = LANES(FOLD_D) };
    V sum = SET1(0);
    for (int64_t i = 0; i < n; i++) sum = ADD(sum, DO(_exp)(SUB(SOME(x + i * step), m)));
    return sum;
}

static void FN(softmax_columns)(T *y /* (n, k) */, int64_t y_step, const T *x /* (n, k) */, int64_t step, int64_t n, int k) {
    enum { L = LANES(FOLD_D) };
    V m = FN(column_max)(x, step, n, k), scale = DO(_div)(SET1(1), FN(column_exp)(x, step, n, k, m));
    for (int64_t i = 0; i < n; i++) KEEP(y + i * y_step, MUL(DO(_exp)(SUB(SOME(x + i * step), m)), scale));
}

static void FN(log_softmax_columns)(T *y /* (n, k) */, int64_t y_step, const T *x /* (n, k) */, int64_t step, int64_t n, int k) {
    enum { L = LANES(FOLD_D) };
    V m = FN(column_max)(x, step, n, k), rest = DO(_log)(FN(column_exp)(x, step, n, k, m));
    for (int64_t i = 0; i < n; i++) KEEP(y + i * y_step, SUB(SUB(SOME(x + i * step), m), rest));
}

static void FN(softmax_grad_columns)(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *y, int64_t y_step, int64_t n, int k) {
    enum { L = LANES(FOLD_D) };
    V dot = SET1(0);
    for (int64_t i = 0; i < n; i++) dot = DO(_fma)(SOME(g + i * g_step), SOME(y + i * y_step), dot);
    for (int64_t i = 0; i < n; i++) KEEP(dx + i * dx_step, MUL(SOME(y + i * y_step), SUB(SOME(g + i * g_step), dot)));
}

static void FN(log_softmax_grad_columns)(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *y, int64_t y_step, int64_t n, int k) {
    enum { L = LANES(FOLD_D) };
    V total = SET1(0);
    for (int64_t i = 0; i < n; i++) total = SUB(total, SOME(g + i * g_step));
    for (int64_t i = 0; i < n; i++) KEEP(dx + i * dx_step, DO(_fma)(DO(_exp)(SOME(y + i * y_step)), total, SOME(g + i * g_step)));
}

/* ---- Bundles: views x, y for the first two, g, dx, y for the gradients ---- */

#define BUNDLE_OF_TWO(op)                                                                                                     \
    static void FN(op##_bundle)(void *ctx, const ct_bundle *b) {                                                              \
        const softmax_call *s = ctx;                                                                                          \
        const T *x = (const T *)(const void *)b->at[0];                                                                       \
        T *y = (T *)(void *)b->at[1];                                                                                         \
        if (s->rows) {                                                                                                        \
            for (int64_t j = 0; j < b->width; j++) FN(op##_row)(y + j * b->line[1], x + j * b->line[0], s->n, s->streams);    \
            if (s->streams) simd_fence();                                                                                     \
        } else {                                                                                                              \
            for (int64_t j = 0; j < b->width; j += LANES(FOLD_D))                                                             \
                FN(op##_columns)(y + j, b->step[1], x + j, b->step[0], s->n, (int)ct__min64(b->width - j, LANES(FOLD_D)));    \
        }                                                                                                                     \
    }
#define BUNDLE_OF_THREE(op)                                                                                                   \
    static void FN(op##_bundle)(void *ctx, const ct_bundle *b) {                                                              \
        const softmax_call *s = ctx;                                                                                          \
        const T *g = (const T *)(const void *)b->at[0], *y = (const T *)(const void *)b->at[2];                               \
        T *dx = (T *)(void *)b->at[1];                                                                                        \
        if (s->rows) {                                                                                                        \
            for (int64_t j = 0; j < b->width; j++)                                                                            \
                FN(op##_row)(dx + j * b->line[1], g + j * b->line[0], y + j * b->line[2], s->n, s->streams);                  \
            if (s->streams) simd_fence();                                                                                     \
        } else {                                                                                                              \
            for (int64_t j = 0; j < b->width; j += LANES(FOLD_D))                                                             \
                FN(op##_columns)(dx + j, b->step[1], g + j, b->step[0], y + j, b->step[2], s->n,                              \
                                 (int)ct__min64(b->width - j, LANES(FOLD_D)));                                                \
        }                                                                                                                     \
    }
BUNDLE_OF_TWO(softmax)
BUNDLE_OF_TWO(log_softmax)
BUNDLE_OF_THREE(softmax_grad)
BUNDLE_OF_THREE(log_softmax_grad)

#undef FOLD_D
#undef T
#undef S
#undef V
#undef DO
#undef FN
#undef SET1
#undef ADD
#undef SUB
#undef MUL
#undef LOAD
#undef LOAD_N
#undef SOME
#undef KEEP
#undef BUNDLE_OF_TWO
#undef BUNDLE_OF_THREE
