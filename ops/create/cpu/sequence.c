/* Kernels whose elements follow from their index. Values are made in f64 and converted. */
#include <math.h>

#include "backends/cpu/kernel.h"
#include "core/dtype.h"
#include "ops/create/cpu/generate.h"

#include "gen/create.attrs.h"

/* start + i * step for i <= middle, stop - (n - 1 - i) * step after it, so that linspace meets both its ends. */
typedef struct line_spec {
    ct_dtype dtype;
    double start, stop, step;
    int64_t middle, n;
} line_spec;

static void make_line(const void *spec, int64_t first, int n, void *to) {
    const line_spec *s = spec;
    double values[GENERATE_BLOCK];
    for (int i = 0; i < n; i++) {
        int64_t at = first + i;
        values[i] = at <= s->middle ? s->start + (double)at * s->step : s->stop - (double)(s->n - 1 - at) * s->step;
    }
    size_t size = ct_dtype_size(s->dtype);
    bool small = fabs(values[0]) < 0x1p31 && n > 0 && fabs(values[n - 1]) < 0x1p31; /* and all between */
    if (s->dtype == CT_F32)
        for (int i = 0; i < n; i++) ((float *)to)[i] = (float)values[i];
    else if (s->dtype == CT_I64 && small)
        for (int i = 0; i < n; i++) ((int64_t *)to)[i] = (int64_t)values[i];
    else
        for (int i = 0; i < n; i++) ct__dtype_put(s->dtype, (char *)to + (size_t)i * size, values[i]);
}

static bool run_arange(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const arange_attrs *a = call->attrs;
    line_spec s = {.dtype = a->dtype, .start = a->start, .step = a->step, .middle = INT64_MAX};
    return generate(call->out[0], make_line, &s);
}

static bool run_linspace(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const linspace_attrs *a = call->attrs;
    line_spec s = {
        .dtype = a->dtype, .start = a->start, .stop = a->stop, .n = a->n, .middle = a->n > 1 ? (a->n - 1) / 2 : 0};
    s.step = a->n > 1 ? (a->stop - a->start) / (double)(a->n - 1) : 0;
    return generate(call->out[0], make_line, &s);
}

typedef struct matrix_spec {
    ct_dtype dtype;
    int64_t columns, diagonal;
    uint64_t one;
    size_t size;
} matrix_spec;

static void make_eye(const void *spec, int64_t first, int n, void *to) {
    const matrix_spec *s = spec;
    memset(to, 0, (size_t)n * s->size);
    int64_t period = s->columns + 1, next = (first + period - 1) / period * period;
    for (; next < first + n; next += period)
        if (next / period < s->columns) memcpy((char *)to + (size_t)(next - first) * s->size, &s->one, s->size);
}

static void make_tril(const void *spec, int64_t first, int n, void *to) {
    const matrix_spec *s = spec;
    int64_t row = first / s->columns, column = first % s->columns;
    for (int i = 0; i < n; i++) {
        ((uint8_t *)to)[i] = column - row <= s->diagonal; /* which may be any number */
        if (++column == s->columns) {
            column = 0;
            row++;
        }
    }
}

static bool run_eye(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *y = call->out[0];
    matrix_spec s = {.dtype = y->dtype, .columns = y->dims[1], .size = ct_dtype_size(y->dtype)};
    ct__dtype_put(y->dtype, &s.one, 1);
    return generate(y, make_eye, &s);
}

static bool run_tril_mask(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const tril_mask_attrs *a = call->attrs;
    matrix_spec s = {.columns = call->out[0]->dims[1], .diagonal = a->diagonal};
    return generate(call->out[0], make_tril, &s);
}

/* The last dimension is written whole; the others are walked with the indices. */
static bool run_one_hot(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0], *y = call->out[0];
    int64_t classes = y->dims[x->ndim], step = y->strides[x->ndim];
    ct_view outer = *y;
    outer.ndim = x->ndim;
    rows all = rows_of(&outer, x);
    for (int64_t first = 0; first < all.count;) {
        rows_run run = rows_at(&all, first, all.count);
        for (int64_t i = 0; i < run.n; i++) {
            int64_t at = run.at[1] + i * run.step[1];
            int64_t index = x->dtype == CT_I64 ? CT_AT(int64_t, x)[at] : CT_AT(int32_t, x)[at];
            int64_t *to = CT_AT(int64_t, y) + run.at[0] + i * run.step[0];
            if (index < 0 || index >= classes) return ct__wrong_index(call, 0, first + i, index, classes);
            for (int64_t c = 0; c < classes; c++) to[c * step] = c == index;
        }
        first += run.n;
    }
    return true;
}

CT_KERNELS(create_sequence) = {
    CT_CANDIDATES(arange, {"line", NULL, NULL, run_arange}),
    CT_CANDIDATES(linspace, {"line", NULL, NULL, run_linspace}),
    CT_CANDIDATES(eye, {"diagonal", NULL, NULL, run_eye}),
    CT_CANDIDATES(tril_mask, {"rows", NULL, NULL, run_tril_mask}),
    CT_CANDIDATES(one_hot, {"rows", NULL, NULL, run_one_hot}),
    {0},
};
