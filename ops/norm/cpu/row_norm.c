/* Kernels of row_norm and of its gradients: a row comes from memory once and is gone over in the first cache. The
 * gradients of weight and bias are summed by chunks of rows, then over the chunks. */
#include "backends/cpu/kernel.h"
#include "backends/cpu/step.h"
#include "ops/norm/cpu/moments.h"

#include "gen/norm.attrs.h"

enum { PARTS = 32, COLUMNS = 512 };

#define D f32
#define T float
#define V vf32
#include "ops/norm/cpu/line_moments.h"
#define D f64
#define T double
#define V vf64
#include "ops/norm/cpu/line_moments.h"

typedef struct row_job {
    const void *x, *g, *weight, *bias; /* (rows, n), (rows, n), (n), (n) */
    void *y, *dweight, *dbias;
    void *sums;                   /* (parts, 2, n): of dweight and of dbias */
    int64_t rows, n, part, ahead; /* ahead: how far g is fetched before it is read */
    int64_t begin;                /* the row that x, g and y begin with */
    double eps;
    bool rms, streams;
} row_job;

#define D f32
#define T float
#define V vf32
#include "ops/norm/cpu/row_norm_rows.h"
#define D f64
#define T double
#define V vf64
#include "ops/norm/cpu/row_norm_rows.h"

static const char *can_rows(const ct_call *call) { return norm_can(call, call->in[0]->dtype); }

static bool run_row_norm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_attrs *a = call->attrs;
    const ct_view *x = call->in[0], *y = call->out[0];
    const size_t size = ct_dtype_size(x->dtype);
    row_job j = {.x = ct__address(x, size), .y = ct__address(y, size), .rows = x->dims[0], .n = x->dims[1]};
    if (j.rows == 0 || j.n == 0) return true;
    if (call->in[1]) j.weight = ct__address(call->in[1], size);
    if (call->in[2]) j.bias = ct__address(call->in[2], size);
    j.eps = a->eps, j.rms = a->rms;
    j.streams = norm_streams(j.y, j.n * (int64_t)size, j.rows * j.n * (int64_t)size);
    j.part = ct__max64(ct__grain(32768) / j.n, 1);
    ct__parallel((j.rows + j.part - 1) / j.part, x->dtype == CT_F32 ? f32_rows : f64_rows, &j);
    return true;
}

/* Rows of a chunk: few chunks, since each has sums of its own. */
static int64_t rows_a_part(int64_t rows) { return ct__max64(ct__grain((rows + PARTS - 1) / PARTS), 1); }

static size_t grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const int64_t part = rows_a_part(x->dims[0]);
    return (size_t)((x->dims[0] + part - 1) / part * 2 * x->dims[1]) * ct_dtype_size(x->dtype);
}

static bool run_row_norm_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[1];
    const size_t size = ct_dtype_size(x->dtype);
    row_job j = {.x = ct__address(x, size), .g = ct__address(call->in[0], size), .rows = x->dims[0], .n = x->dims[1]};
    if (call->in[2]) j.weight = ct__address(call->in[2], size);
    void **to[] = {&j.y, &j.dweight, &j.dbias};
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i]) *to[i] = ct__address(call->out[i], size);
    j.sums = ct__scratch(call);
    j.eps = a->eps, j.rms = a->rms;
    j.streams = j.y && norm_streams(j.y, j.n * (int64_t)size, j.rows * j.n * (int64_t)size);
    j.part = rows_a_part(j.rows);
    j.ahead = ct__max64(ct__min64(j.n, NORM_BLOCK), 768);
    if (j.n == 0) return true;
    const bool f32 = x->dtype == CT_F32;
    ct__parallel((j.rows + j.part - 1) / j.part, f32 ? f32_row_grads : f64_row_grads, &j);
    if (j.dweight || j.dbias) ct__parallel((j.n + COLUMNS - 1) / COLUMNS, f32 ? f32_columns : f64_columns, &j);
    return true;
}

/* ---- As steps of fused calls ---- */

static int64_t row_of(const ct_call *call) { return call->in[0]->dims[1]; }

static void row_norm_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    const row_norm_attrs *a = call->attrs;
    const int64_t row = row_of(call);
    row_job j = {
        .x = ptr[0], .weight = ptr[1], .bias = ptr[2], .y = ptr[3], .rows = n / row, .part = n / row, .n = row};
    (void)first;
    j.eps = a->eps, j.rms = a->rms;
    (call->in[0]->dtype == CT_F32 ? f32_rows : f64_rows)(&j, 0, 0);
}

static int64_t grad_chunk(const ct_call *call) { return rows_a_part(call->in[1]->dims[0]); }

static row_job grad_job(const ct_call *call) {
    const row_norm_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[1];
    return (row_job){.rows = x->dims[0],
                     .n = x->dims[1],
                     .sums = ct__scratch(call),
                     .eps = a->eps,
                     .rms = a->rms,
                     .part = rows_a_part(x->dims[0])};
}

static void grad_part(const ct_call *call, int64_t first, int64_t n, char *const *ptr) {
    row_job j = grad_job(call);
    j.g = ptr[0], j.x = ptr[1], j.weight = ptr[2], j.y = ptr[3];
    j.dweight = call->n_out > 1 ? ptr[4] : NULL; /* not written yet, but wanted */
    j.dbias = call->n_out > 2 ? ptr[5] : NULL;
    j.begin = first / j.n;
    (call->in[1]->dtype == CT_F32 ? f32_grads_of : f64_grads_of)(&j, j.begin, j.begin + n / j.n);
}

static void grad_end(const ct_call *call, char *const *ptr) {
    row_job j = grad_job(call);
    j.dweight = call->n_out > 1 ? ptr[4] : NULL;
    j.dbias = call->n_out > 2 ? ptr[5] : NULL;
    if (!j.dweight && !j.dbias) return;
    ct__parallel((j.n + COLUMNS - 1) / COLUMNS, call->in[1]->dtype == CT_F32 ? f32_columns : f64_columns, &j);
}

static const ct_cpu_step_more row_norm_more = {.row = row_of};
static const ct_cpu_step row_norm_step = {
    .part = row_norm_part, .more = &row_norm_more, .whole = 1 << 1 | 1 << 2, .cost = 8};
static const ct_cpu_step_more row_norm_grad_more = {.row = row_of, .end = grad_end, .chunk = grad_chunk};
static const ct_cpu_step row_norm_grad_step = {
    .part = grad_part, .more = &row_norm_grad_more, .whole = 1 << 2 | 1 << 4 | 1 << 5, .cost = 12};

CT_KERNELS(norm_row_norm) = {
    CT_CANDIDATES_STEP(row_norm, &row_norm_step, {"rows", can_rows, NULL, run_row_norm}),
    CT_CANDIDATES_STEP(row_norm_grad, &row_norm_grad_step, {"rows", can_rows, grad_scratch, run_row_norm_grad}),
    {0},
};
