/* rope: sines and cosines of all positions once, then every row of x in one pass. */
#include <math.h>

#include "backends/cpu/kernel.h"

#include "gen/attention.attrs.h"

typedef struct turn {
    const ct_view *x, *positions, *y;
    const rope_attrs *a;
    int64_t t, d, dims, rows, chunk;
    void *table; /* (T,dims) in the type of x: dims / 2 cosines, then as many sines */
} turn;

static double position_of(const turn *r, int64_t t) {
    if (!r->positions) return (double)r->a->offset + (double)t;
    const int64_t at = t * r->positions->strides[0];
    return (double)r->a->offset + (double)(r->positions->dtype == CT_I64 ? CT_AT(const int64_t, r->positions)[at]
                                                                         : CT_AT(const int32_t, r->positions)[at]);
}

/* Where row `row` of a view begins. */
static int64_t row_of(const ct_view *v, int64_t row) {
    int64_t at = 0;
    for (int d = v->ndim - 2; d >= 0; d--) {
        at += row % v->dims[d] * v->strides[d];
        row /= v->dims[d];
    }
    return at;
}

#define ROPE(R, T)                                                                                                \
    static void R##_table(void *ctx, int64_t t, int worker) {                                                     \
        const turn *r = (const turn *)ctx;                                                                        \
        const int64_t half = r->dims / 2;                                                                         \
        T *c = (T *)r->table + t * r->dims, *s = c + half;                                                        \
        (void)worker;                                                                                             \
        for (int64_t i = 0; i < half; i++) {                                                                      \
            const double w = position_of(r, t) * exp((double)i * (-2 * log(r->a->base) / (double)r->dims));       \
            c[i] = (T)cos(w);                                                                                     \
            s[i] = (T)(r->a->inverse ? -sin(w) : sin(w));                                                         \
        }                                                                                                         \
    }                                                                                                             \
    static void R##_chunk(void *ctx, int64_t chunk, int worker) {                                                 \
        const turn *r = (const turn *)ctx;                                                                        \
        const int64_t half = r->dims / 2, sx = r->x->strides[r->x->ndim - 1], sy = r->y->strides[r->y->ndim - 1], \
                      end = ct__min64((chunk + 1) * r->chunk, r->rows);                                           \
        (void)worker;                                                                                             \
        for (int64_t row = chunk * r->chunk; row < end; row++) {                                                  \
            const T *x = CT_AT(const T, r->x) + row_of(r->x, row);                                                \
            T *y = CT_AT(T, r->y) + row_of(r->y, row);                                                            \
            const T *c = (const T *)r->table + row % r->t * r->dims, *s = c + half;                               \
            const int64_t apart = r->a->interleaved ? 1 : half, step = r->a->interleaved ? 2 : 1;                 \
            if (sx == 1 && sy == 1 && step == 1)                                                                  \
                for (int64_t i = 0; i < half; i++) {                                                              \
                    const T a = x[i], b = x[i + half];                                                            \
                    y[i] = a * c[i] - b * s[i];                                                                   \
                    y[i + half] = b * c[i] + a * s[i];                                                            \
                }                                                                                                 \
            else                                                                                                  \
                for (int64_t i = 0; i < half; i++) {                                                              \
                    const T a = x[i * step * sx], b = x[(i * step + apart) * sx];                                 \
                    y[i * step * sy] = a * c[i] - b * s[i];                                                       \
                    y[(i * step + apart) * sy] = b * c[i] + a * s[i];                                             \
                }                                                                                                 \
            for (int64_t i = r->dims; i < r->d; i++) y[i * sy] = x[i * sx];                                       \
        }                                                                                                         \
    }
ROPE(f32, float)
ROPE(f64, double)

static int64_t dims_of(const ct_call *call) {
    const rope_attrs *a = call->attrs;
    return a->dims ? a->dims : call->in[0]->dims[call->in[0]->ndim - 1];
}

static const char *rope_can(const ct_call *call) {
    return call->in[0]->dtype == CT_F32 || call->in[0]->dtype == CT_F64 ? NULL : "a half type";
}

static size_t rope_scratch(const ct_call *call) {
    return (size_t)(call->in[0]->dims[call->in[0]->ndim - 2] * dims_of(call)) * ct_dtype_size(call->in[0]->dtype);
}

static bool rope_run(const ct_call *call, ct_stream *stream) {
    const ct_view *x = call->in[0];
    turn r = {.x = x, .positions = call->in[1], .y = call->out[0], .a = call->attrs, .table = ct__scratch(call)};
    (void)stream;
    r.t = x->dims[x->ndim - 2], r.d = x->dims[x->ndim - 1], r.dims = dims_of(call), r.rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) r.rows *= x->dims[i];
    if (r.rows * r.d == 0) return true;
    r.chunk = ct__grain(ct__max64(1, 16384 / r.d));
    ct__parallel(r.t, x->dtype == CT_F64 ? f64_table : f32_table, &r);
    ct__parallel((r.rows + r.chunk - 1) / r.chunk, x->dtype == CT_F64 ? f64_chunk : f32_chunk, &r);
    return true;
}

CT_KERNELS(attention_rope) = {
    CT_CANDIDATES(rope, {"rope_rows", rope_can, rope_scratch, rope_run}),
    {0},
};
