/* rope, rotary position embedding (Su and others, RoFormer, 2021): sines and cosines of all positions once, then
 * every row of x in one pass. */
#include <math.h>

#include "backends/cpu/kernel.h"

#include "gen/attention.attrs.h"

typedef struct rotation {
    const ct_view *x, *positions, *y;
    const rope_attrs *a;
    int64_t t, d, dims, rows, chunk;
    void *table; /* (T,dims) in the type of x: dims / 2 cosines, then as many sines */
} rotation;

static double position_of(const rotation *r, int64_t t) {
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

#define R f32
#define T float
#include "ops/attention/cpu/rope_rows.h"
#define R f64
#define T double
#include "ops/attention/cpu/rope_rows.h"

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
    rotation r = {.x = x, .positions = call->in[1], .y = call->out[0], .a = call->attrs, .table = ct__scratch(call)};
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
