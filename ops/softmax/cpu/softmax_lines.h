/* A template: softmax, log_softmax and their gradients for one floating dtype, along rows (the axis is contiguous)
 * and along columns (the lines are neighbors). Included once for every dtype, with FOLD_D its short name, which it
 * undefines. */
#include "ops/reduce/cpu/elements.h"

#define T        ELEMENT(FOLD_D)
#define S        SCALAR(FOLD_D)
#define V        VECTOR(FOLD_D)
#define DO(part) ELEMENT_PASTE(FOLD_D, part)
#define FN(part) ELEMENT_PASTE(ELEMENT_PASTE(FOLD_D, _), part)
#define SET1     DO(_set1)
#define ADD      DO(_add)
#define SUB      DO(_sub)
#define MUL      DO(_mul)
#define LOAD     DO(_load)
#define LOAD_N   DO(_load_n)

/* ---- Rows ---- */

/* The greatest number. A NaN is passed over: it comes back in the sum of exponentials, and so in every result. */
static inline S FN(row_max)(const T *x /* (n) */, int64_t n) {
    enum { L = LANES(FOLD_D) };
    V a = SET1((S)-INFINITY), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        a = DO(_max_number)(a, LOAD(x + i));
        b = DO(_max_number)(b, LOAD(x + i + L));
        c = DO(_max_number)(c, LOAD(x + i + 2 * L));
        d = DO(_max_number)(d, LOAD(x + i + 3 * L));
    }
    for (; i + L <= n; i += L) a = DO(_max_number)(a, LOAD(x + i));
    if (i < n) a = DO(_max_number)(a, DO(_load_repeated)(x + i, (int)(n - i)));
    return DO(_hmax_number)(DO(_max_number)(DO(_max_number)(a, b), DO(_max_number)(c, d)));
}

/* The sum of exp(x - top), and those terms in e unless that is NULL. */
static inline S FN(row_exp)(const T *x /* (n) */, int64_t n, S top, S *e /* (n) */) {
    enum { L = LANES(FOLD_D) };
    const V m = SET1(top);
    V a = SET1(0), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
        V p = DO(_exp_below)(SUB(LOAD(x + i), m)), q = DO(_exp_below)(SUB(LOAD(x + i + L), m));
        V r = DO(_exp_below)(SUB(LOAD(x + i + 2 * L), m)), s = DO(_exp_below)(SUB(LOAD(x + i + 3 * L), m));
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
        V p = DO(_exp_below)(SUB(LOAD_N(x + i, k), m));
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
        for (; i + L <= n; i += L) DO(_store)(y + i, MUL(DO(_exp_below)(SUB(LOAD(x + i), m)), scale));
        if (i < n) DO(_store_n)(y + i, MUL(DO(_exp_below)(SUB(LOAD_N(x + i, (int)(n - i)), m)), scale), (int)(n - i));
    }
}

/* Rows that follow each other, three at a time in one sweep: the greatest of the next, the exponentials of this, the
 * results of the one before. Each alone leaves most of the processor idle. Softmax keeps the exponentials of two
 * rows, log_softmax reads the row before again; RESULT makes its result from those or that. */
#define PIPELINE    (PIPELINE_BYTES / (int)sizeof(S))
#define ROWS        softmax_rows
#define KEEP_TERMS  1
#define RESULT      MUL(DO(_get)(done + i), f)
#define RESULT_SOME MUL(DO(_get_n)(done + i, k), f)
#define FINISH      1 / total
#include "ops/softmax/cpu/softmax_pipeline.h"
#define ROWS        log_softmax_rows
#define KEEP_TERMS  0
#define RESULT      SUB(SUB(LOAD(before + i), m_before), f)
#define RESULT_SOME SUB(SUB(LOAD_N(before + i, k), m_before), f)
#define FINISH      (S) log((double)total)
#include "ops/softmax/cpu/softmax_pipeline.h"

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

/* dx = y (g - sum g y / sum y). With y rounded to a half type, its sum is not 1: without the division the gradient of a
 * constant g would not be 0, and that of an element near 1 would be lost. */
static void FN(softmax_grad_row)(T *dx /* (n) */, const T *g /* (n) */, const T *y /* (n) */, int64_t n, bool streams) {
    enum { L = LANES(FOLD_D) };
    V a = SET1(0), b = a, p = a, q = a;
    int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
        V y0 = LOAD(y + i), y1 = LOAD(y + i + L);
        a = DO(_fma)(LOAD(g + i), y0, a);
        b = DO(_fma)(LOAD(g + i + L), y1, b);
        p = ADD(p, y0);
        q = ADD(q, y1);
    }
    for (; i < n; i += L) {
        const int k = n - i < L ? (int)(n - i) : L;
        V y0 = LOAD_N(y + i, k);
        a = DO(_fma)(LOAD_N(g + i, k), y0, a);
        p = ADD(p, y0);
    }
    const V dot = SET1(DO(_hsum)(ADD(a, b)) / DO(_hsum)(ADD(p, q)));
    i = 0;
    if (streams)
        for (; i + L <= n; i += L) DO(_stream)(dx + i, MUL(LOAD(y + i), SUB(LOAD(g + i), dot)));
    for (; i + L <= n; i += L) DO(_store)(dx + i, MUL(LOAD(y + i), SUB(LOAD(g + i), dot)));
    if (i < n)
        DO(_store_n)(dx + i, MUL(LOAD_N(y + i, (int)(n - i)), SUB(LOAD_N(g + i, (int)(n - i)), dot)), (int)(n - i));
}

/* dx = g - exp(y) sum g */
static void FN(log_softmax_grad_row)(T *dx /* (n) */, const T *g /* (n) */, const T *y /* (n) */, int64_t n,
                                     bool streams) {
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
    if (i < n) DO(_store_n)
    (dx + i, DO(_fma)(DO(_exp)(LOAD_N(y + i, (int)(n - i))), total, LOAD_N(g + i, (int)(n - i))), (int)(n - i));
}

/* ---- Columns: up to COLUMNS neighboring lines, read row by row, so that memory is walked in long runs ---- */

#define EACH_VECTOR(j, k, width)                                          \
    for (int64_t j = 0, k = ct__min64(width, LANES(FOLD_D)); j < (width); \
         j += LANES(FOLD_D), k = ct__min64((width)-j, LANES(FOLD_D)))
#define SOME(p, k) ((k) == LANES(FOLD_D) ? LOAD(p) : LOAD_N(p, (int)(k)))
#define KEEP(p, v, k)                               \
    do {                                            \
        if ((k) == LANES(FOLD_D)) DO(_store)(p, v); \
        else DO(_store_n)(p, v, (int)(k));          \
    } while (0)

/* top: the greatest number of each line; sum: of exp(x - top). A group of rows raises top once and scales the sum
 * before it is added. A line of nothing but -inf keeps the sum 0 and becomes NaN later, from -inf - -inf. */
static inline void FN(column_sums)(S *top /* (width) */, S *sum /* (width) */, const T *x /* (n, width) */,
                                   int64_t step, int64_t n, int64_t width) {
    enum { GROUP = 8 };
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) {
        DO(_put)(top + j, SET1((S)-INFINITY));
        DO(_put)(sum + j, SET1(0));
    }
    for (int64_t i = 0; i < n; i += GROUP, x += GROUP * step) {
        int64_t m = ct__min64(n - i, GROUP);
        EACH_VECTOR(j, k, width) {
            V before = DO(_get)(top + j), now = before;
            for (int64_t r = 0; r < m; r++) now = DO(_max_number)(now, SOME(x + r * step + j, k));
            V level = DO(_select)(DO(_equal)(now, SET1((S)-INFINITY)), SET1(0), now); /* no -inf - -inf */
            V s = MUL(DO(_get)(sum + j), DO(_exp_below)(SUB(before, level)));
            for (int64_t r = 0; r < m; r++) s = ADD(s, DO(_exp_below)(SUB(SOME(x + r * step + j, k), level)));
            DO(_put)(top + j, now);
            DO(_put)(sum + j, s);
        }
    }
}

static void FN(softmax_columns)(T *y /* (n, width) */, int64_t y_step, const T *x /* (n, width) */, int64_t step,
                                int64_t n, int64_t width) {
    S top[COLUMNS], scale[COLUMNS];
    FN(column_sums)(top, scale, x, step, n, width);
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) DO(_put)(scale + j, DO(_div)(SET1(1), DO(_get)(scale + j)));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width) {
            V e = DO(_exp_below)(SUB(SOME(x + i * step + j, k), DO(_get)(top + j)));
            KEEP(y + i * y_step + j, MUL(e, DO(_get)(scale + j)), k);
        }
}

static void FN(log_softmax_columns)(T *y /* (n, width) */, int64_t y_step, const T *x /* (n, width) */, int64_t step,
                                    int64_t n, int64_t width) {
    S top[COLUMNS], rest[COLUMNS];
    FN(column_sums)(top, rest, x, step, n, width);
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) DO(_put)(rest + j, DO(_log)(DO(_get)(rest + j)));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width)
    KEEP(y + i * y_step + j, SUB(SUB(SOME(x + i * step + j, k), DO(_get)(top + j)), DO(_get)(rest + j)), k);
}

static void FN(softmax_grad_columns)(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *y, int64_t y_step,
                                     int64_t n, int64_t width) {
    S dot[COLUMNS], sum[COLUMNS];
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) DO(_put)(dot + j, SET1(0)), DO(_put)(sum + j, SET1(0));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width) {
            V y0 = SOME(y + i * y_step + j, k);
            DO(_put)(dot + j, DO(_fma)(SOME(g + i * g_step + j, k), y0, DO(_get)(dot + j)));
            DO(_put)(sum + j, ADD(y0, DO(_get)(sum + j)));
        }
    for (int64_t j = 0; j < width; j += LANES(FOLD_D))
        DO(_put)(dot + j, DO(_div)(DO(_get)(dot + j), DO(_get)(sum + j)));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width)
    KEEP(dx + i * dx_step + j, MUL(SOME(y + i * y_step + j, k), SUB(SOME(g + i * g_step + j, k), DO(_get)(dot + j))),
         k);
}

static void FN(log_softmax_grad_columns)(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *y, int64_t y_step,
                                         int64_t n, int64_t width) {
    S total[COLUMNS];
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) DO(_put)(total + j, SET1(0));
    for (int64_t i = 0; i < n; i++)
        EACH_VECTOR(j, k, width) DO(_put)(total + j, SUB(DO(_get)(total + j), SOME(g + i * g_step + j, k)));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width)
    KEEP(dx + i * dx_step + j,
         DO(_fma)(DO(_exp)(SOME(y + i * y_step + j, k)), DO(_get)(total + j), SOME(g + i * g_step + j, k)), k);
}

/* ---- From the argument, where the result has too few digits: dx = g - exp(x - top) / sum exp(x - top) sum g ---- */

static void FN(log_softmax_half_grad_row)(T *dx /* (n) */, const T *g /* (n) */, const T *x /* (n) */, int64_t n,
                                          bool streams) {
    const S top = FN(row_max)(x, n), sum = FN(row_exp)(x, n, top, NULL);
    V a = SET1(0);
    (void)streams;
    EACH_VECTOR(i, k, n) a = ADD(a, SOME(g + i, k));
    const V share = SET1(-DO(_hsum)(a) / sum), m = SET1(top);
    EACH_VECTOR(i, k, n)
    KEEP(dx + i, DO(_fma)(DO(_exp_below)(SUB(SOME(x + i, k), m)), share, SOME(g + i, k)), k);
}

static void FN(log_softmax_half_grad_columns)(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *x,
                                              int64_t step, int64_t n, int64_t width) {
    S top[COLUMNS], share[COLUMNS], total[COLUMNS];
    FN(column_sums)(top, share, x, step, n, width);
    for (int64_t j = 0; j < width; j += LANES(FOLD_D)) DO(_put)(total + j, SET1(0));
    for (int64_t i = 0; i < n; i++)
        EACH_VECTOR(j, k, width) DO(_put)(total + j, SUB(DO(_get)(total + j), SOME(g + i * g_step + j, k)));
    for (int64_t j = 0; j < width; j += LANES(FOLD_D))
        DO(_put)(share + j, DO(_div)(DO(_get)(total + j), DO(_get)(share + j)));
    for (int64_t i = 0; i < n; i++) EACH_VECTOR(j, k, width) {
            V e = DO(_exp_below)(SUB(SOME(x + i * step + j, k), DO(_get)(top + j)));
            KEEP(dx + i * dx_step + j, DO(_fma)(e, DO(_get)(share + j), SOME(g + i * g_step + j, k)), k);
        }
}

/* ---- Bundles: views x, y for the first two; g, dx, y (or x) for the gradients ---- */

/* Lines that are short, or lie anyhow, as neighbors in a buffer and back. */
__attribute__((noinline)) static void FN(pack)(T *to /* (n, PACKED) */, const T *x, int64_t step, int64_t line,
                                               int64_t n, int64_t width) {
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < n; i++) to[i * PACKED + j] = x[j * line + i * step];
}
static inline void FN(unpack)(T *y, int64_t step, int64_t line, const T *from /* (n, PACKED) */, int64_t n,
                              int64_t width) {
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < n; i++) y[j * line + i * step] = from[i * PACKED + j];
}

typedef void (*FN(two_rows))(T *y, int64_t y_line, const T *x, int64_t line, int64_t rows, int64_t n, bool streams);
typedef void (*FN(two_row))(T *y, const T *x, int64_t n, bool streams);
typedef void (*FN(two_columns))(T *y, int64_t y_step, const T *x, int64_t step, int64_t n, int64_t width);

SIMD_INLINE void FN(bundle_of_two)(const softmax_call *s, const ct_bundle *b, FN(two_rows) several, FN(two_row) row,
                                   FN(two_columns) columns) {
    const T *x = (const T *)(const void *)b->at[0];
    T *y = (T *)(void *)b->at[1];
    if (s->way == BY_ROWS) {
        /* by the length alone, so that a row has the same bits whatever lies beside it */
        if (s->n <= PIPELINE) several(y, b->line[1], x, b->line[0], b->width, s->n, s->streams);
        else
            for (int64_t j = 0; j < b->width; j++) row(y + j * b->line[1], x + j * b->line[0], s->n, s->streams);
        if (s->streams) simd_fence();
    } else if (s->way == BY_COLUMNS) {
        columns(y, b->step[1], x, b->step[0], s->n, b->width);
    } else {
        T in[PACK_ROOM], out[PACK_ROOM];
        FN(pack)(in, x, b->step[0], b->line[0], s->n, b->width);
        columns(out, PACKED, in, PACKED, s->n, b->width);
        FN(unpack)(y, b->step[1], b->line[1], out, s->n, b->width);
    }
}

typedef void (*FN(three_row))(T *dx, const T *g, const T *y, int64_t n, bool streams);
typedef void (*FN(three_columns))(T *dx, int64_t dx_step, const T *g, int64_t g_step, const T *y, int64_t step,
                                  int64_t n, int64_t width);

SIMD_INLINE void FN(bundle_of_three)(const softmax_call *s, const ct_bundle *b, FN(three_row) row,
                                     FN(three_columns) columns) {
    const T *g = (const T *)(const void *)b->at[0], *y = (const T *)(const void *)b->at[2];
    T *dx = (T *)(void *)b->at[1];
    if (s->way == BY_ROWS) {
        for (int64_t j = 0; j < b->width; j++)
            row(dx + j * b->line[1], g + j * b->line[0], y + j * b->line[2], s->n, s->streams);
        if (s->streams) simd_fence();
    } else if (s->way == BY_COLUMNS) {
        columns(dx, b->step[1], g, b->step[0], y, b->step[2], s->n, b->width);
    } else {
        T in[PACK_ROOM], in2[PACK_ROOM], out[PACK_ROOM];
        FN(pack)(in, g, b->step[0], b->line[0], s->n, b->width);
        FN(pack)(in2, y, b->step[2], b->line[2], s->n, b->width);
        columns(out, PACKED, in, PACKED, in2, PACKED, s->n, b->width);
        FN(unpack)(dx, b->step[1], b->line[1], out, s->n, b->width);
    }
}

static void FN(softmax_bundle)(void *ctx, const ct_bundle *b) {
    FN(bundle_of_two)(ctx, b, FN(softmax_rows), FN(softmax_row), FN(softmax_columns));
}
static void FN(log_softmax_bundle)(void *ctx, const ct_bundle *b) {
    FN(bundle_of_two)(ctx, b, FN(log_softmax_rows), FN(log_softmax_row), FN(log_softmax_columns));
}
static void FN(softmax_grad_bundle)(void *ctx, const ct_bundle *b) {
    FN(bundle_of_three)(ctx, b, FN(softmax_grad_row), FN(softmax_grad_columns));
}
static void FN(log_softmax_grad_bundle)(void *ctx, const ct_bundle *b) {
    FN(bundle_of_three)(ctx, b, FN(log_softmax_grad_row), FN(log_softmax_grad_columns));
}
static void FN(log_softmax_half_grad_bundle)(void *ctx, const ct_bundle *b) {
    FN(bundle_of_three)(ctx, b, FN(log_softmax_half_grad_row), FN(log_softmax_half_grad_columns));
}

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
#undef PIPELINE
#undef EACH_VECTOR
#undef KEEP
