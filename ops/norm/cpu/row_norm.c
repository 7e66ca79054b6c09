/* Kernels of row_norm and of its gradients: a row comes from memory once and is gone over in the first cache. The
 * gradients of weight and bias are summed by chunks of rows, then over the chunks. */
#include "backends/cpu/kernel.h"
#include "ops/index/cpu/half_rows.h"
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

/* ---- Half types: chunks of rows as floats, in the scratch of a worker ---- */

typedef struct half_rows {
    row_job wide; /* in floats */
    const uint16_t *x, *g;
    uint16_t *y;
    float *room; /* of each worker (3, part, n): x, g and y */
    bool bf16;
} half_rows;

/* The chunk as a job of its own. */
static row_job widened_chunk(const half_rows *h, int64_t chunk, int worker) {
    row_job j = h->wide;
    const int64_t all = j.part * j.n, first = chunk * j.part * j.n;
    j.rows = ct__min64(j.part, j.rows - chunk * j.part);
    float *room = h->room + worker * 3 * all;
    half_load(room, h->x + first, 1, j.rows * j.n, h->bf16);
    if (h->g) half_load(room + all, h->g + first, 1, j.rows * j.n, h->bf16);
    j.x = room, j.g = room + all, j.y = h->y ? room + 2 * all : NULL;
    if (j.sums) j.sums = (float *)j.sums + chunk * 2 * j.n;
    return j;
}
static void round_chunk(const half_rows *h, const row_job *j, int64_t chunk) {
    if (h->y) half_store(h->y + chunk * j->part * j->n, 1, j->y, j->rows * j->n, h->bf16);
}
static void half_row_norms(void *ctx, int64_t chunk, int worker) {
    row_job j = widened_chunk(ctx, chunk, worker);
    f32_rows(&j, 0, worker);
    round_chunk(ctx, &j, chunk);
}
static void half_row_grads(void *ctx, int64_t chunk, int worker) {
    row_job j = widened_chunk(ctx, chunk, worker);
    f32_row_grads(&j, 0, worker);
    round_chunk(ctx, &j, chunk);
}

/* The first `rows` inputs, and result 0, are halves, everything else f32. */
static const char *can_halves(const ct_call *call, int rows) {
    const ct_dtype dtype = call->in[0]->dtype;
    if (!is_half(dtype)) return "f16 and bf16 only";
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        if (call->in[i]->dtype != (i < rows ? dtype : CT_F32)) return "mixed dtypes";
        if (!ct__view_is_dense(call->in[i])) return "an input is not dense";
    }
    return norm_can_results(call);
}
static const char *can_half_rows(const ct_call *call) { return can_halves(call, 1); }
static const char *can_half_grads(const ct_call *call) { return can_halves(call, 2); }

static int64_t half_part(int64_t n) { return ct__max64(ct__grain(32768) / ct__max64(n, 1), 1); }
static size_t half_room(int64_t part, int64_t n) { return (size_t)(3 * part * n * ct__threads()) * sizeof(float); }

static size_t half_scratch(const ct_call *call) {
    const int64_t n = call->in[0]->dims[1];
    return half_room(half_part(n), n);
}

static bool run_half_row_norm(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_attrs *a = call->attrs;
    const ct_view *x = call->in[0];
    half_rows h = {.x = CT_AT(const uint16_t, x), .y = CT_AT(uint16_t, call->out[0]), .room = ct__scratch(call)};
    row_job *j = &h.wide;
    j->rows = x->dims[0], j->n = x->dims[1], j->part = half_part(j->n);
    if (j->rows == 0 || j->n == 0) return true;
    if (call->in[1]) j->weight = CT_AT(const float, call->in[1]);
    if (call->in[2]) j->bias = CT_AT(const float, call->in[2]);
    j->eps = a->eps, j->rms = a->rms;
    h.bf16 = x->dtype == CT_BF16;
    ct__parallel((j->rows + j->part - 1) / j->part, half_row_norms, &h);
    return true;
}

static size_t half_grad_scratch(const ct_call *call) {
    const ct_view *x = call->in[1];
    const int64_t n = x->dims[1], part = rows_a_part(x->dims[0]), parts = (x->dims[0] + part - 1) / part;
    return (size_t)(2 * parts * n) * sizeof(float) + half_room(part, n);
}

static bool run_half_row_norm_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const row_norm_grad_attrs *a = call->attrs;
    const ct_view *x = call->in[1];
    half_rows h = {.x = CT_AT(const uint16_t, x), .g = CT_AT(const uint16_t, call->in[0])};
    row_job *j = &h.wide;
    j->rows = x->dims[0], j->n = x->dims[1], j->part = rows_a_part(j->rows);
    if (j->n == 0) return true;
    if (call->in[2]) j->weight = CT_AT(const float, call->in[2]);
    if (call->out[0]) h.y = CT_AT(uint16_t, call->out[0]);
    if (call->n_out > 1 && call->out[1]) j->dweight = CT_AT(float, call->out[1]);
    if (call->n_out > 2 && call->out[2]) j->dbias = CT_AT(float, call->out[2]);
    const int64_t parts = (j->rows + j->part - 1) / j->part;
    j->sums = ct__scratch(call);
    h.room = (float *)j->sums + 2 * parts * j->n;
    h.bf16 = x->dtype == CT_BF16;
    j->eps = a->eps, j->rms = a->rms;
    j->ahead = ct__max64(ct__min64(j->n, NORM_BLOCK), 768);
    ct__parallel(parts, half_row_grads, &h);
    if (j->dweight || j->dbias) ct__parallel((j->n + COLUMNS - 1) / COLUMNS, f32_columns, j);
    return true;
}

CT_KERNELS(norm_row_norm) = {
    CT_CANDIDATES(row_norm, {"rows", can_rows, NULL, run_row_norm},
                  {"half_rows", can_half_rows, half_scratch, run_half_row_norm}),
    CT_CANDIDATES(row_norm_grad, {"rows", can_rows, grad_scratch, run_row_norm_grad},
                  {"half_rows", can_half_grads, half_grad_scratch, run_half_row_norm_grad}),
    {0},
};
