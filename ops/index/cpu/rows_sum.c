/* index_select_grad, index_add and embedding_grad: rows of src summed into the rows that index names. The places are
 * sorted first (by counting, which keeps their order), so that every row of the result is made by one thread, in the
 * order of index, and written once. Where rows are too short for that and there is enough before the axis, every slab
 * before the axis is worked off by itself instead. */
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/copy.h"
#include "ops/index/cpu/half_rows.h"
#include "ops/index/cpu/walk.h"

#include "gen/index.attrs.h"

enum { BLOCK = 256, CHUNK = 32 << 10 };

typedef struct job {
    const ct_call *call;
    const ct_view *index, *y;
    int64_t n, rows, width; /* indices; rows of the result along the axis; elements of a row */
    int64_t to_axis, x_axis, to_width, x_width, from_width;
    int lead; /* the dimensions of index, merged */
    int64_t lead_dims[CT_MAX_DIMS], lead_at[CT_MAX_DIMS], lead_from[CT_MAX_DIMS];
    int outer; /* all dimensions besides the axis and the row */
    int64_t outer_dims[CT_MAX_DIMS], outer_to[CT_MAX_DIMS], outer_x[CT_MAX_DIMS], outer_from[CT_MAX_DIMS], combinations;
    char *dst;
    const char *x, *src, *at; /* x NULL: zeros */
    size_t size;
    bool stream;
    double alpha;
    uint32_t *start, *order; /* the indices that name row v are order[start[v]] to order[start[v + 1] - 1] */
    int64_t rows_a_chunk;
    _Atomic bool failed;
} job;

static int64_t lead_place(const job *j, const int64_t *strides, int64_t i) {
    if (j->lead == 1) return i * strides[0];
    int64_t at = 0;
    for (int d = j->lead - 1; d >= 0; d--) {
        at += i % j->lead_dims[d] * strides[d];
        i /= j->lead_dims[d];
    }
    return at;
}

/* ---- Rows ---- */

/* One row: what x has there, and every named row of src. */
typedef struct row {
    char *to;
    const char *x;
    const char *src; /* of the first index */
    const uint32_t *hits;
    int64_t count;
} row;
typedef void (*row_fn)(const job *j, const row *r);

#define STORE_PLAIN(p, value) (*(p) = (__typeof__(*(p)))(value))
#define STORE_BOOL(p, value)  (*(p) = (value) != 0)

#define D     f32
#define T     float
#define SUM   float
#define ALPHA float
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     f64
#define T     double
#define SUM   double
#define ALPHA double
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     8
#define T     int8_t
#define SUM   uint64_t
#define ALPHA int64_t
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     16
#define T     int16_t
#define SUM   uint64_t
#define ALPHA int64_t
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     32
#define T     int32_t
#define SUM   uint64_t
#define ALPHA int64_t
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     64
#define T     int64_t
#define SUM   uint64_t
#define ALPHA int64_t
#define STORE STORE_PLAIN
#include "ops/index/cpu/rows_sum_row.h"
#define D     truth
#define T     uint8_t
#define SUM   uint64_t
#define ALPHA int64_t
#define STORE STORE_BOOL
#include "ops/index/cpu/rows_sum_row.h"

/* Half types are summed in f32 and rounded once. */
static void row_half(const job *j, const row *r) {
    const bool bf16 = j->y->dtype == CT_BF16;
    const float alpha = (float)j->alpha;
    float sum[BLOCK], part[BLOCK];
    for (int64_t first = 0; first < j->width; first += BLOCK) {
        const int64_t n = ct__min64(BLOCK, j->width - first);
        if (r->x) half_load(sum, (const uint16_t *)(const void *)r->x + first * j->x_width, j->x_width, n, bf16);
        else memset(sum, 0, sizeof sum);
        for (int64_t k = 0; k < r->count; k++) {
            half_load(part,
                      (const uint16_t *)(const void *)r->src + lead_place(j, j->lead_from, r->hits[k]) +
                          first * j->from_width,
                      j->from_width, n, bf16);
            for (int64_t i = 0; i < n; i++) sum[i] += alpha * part[i];
        }
        half_store((uint16_t *)(void *)r->to + first * j->to_width, j->to_width, sum, n, bf16);
    }
}

static row_fn choose_row(ct_dtype dtype) {
    switch (dtype) {
    case CT_F32: return row_f32;
    case CT_F64: return row_f64;
    case CT_F16:
    case CT_BF16: return row_half;
    case CT_I16: return row_16;
    case CT_I32: return row_32;
    case CT_I64: return row_64;
    case CT_BOOL: return row_truth;
    default: return row_8;
    }
}

static void outer_place(const job *j, int64_t i, int64_t *to, int64_t *x, int64_t *from) {
    *to = *x = *from = 0;
    for (int d = j->outer - 1; d >= 0; d--) {
        const int64_t k = i % j->outer_dims[d];
        i /= j->outer_dims[d];
        *to += k * j->outer_to[d];
        *x += k * j->outer_x[d];
        *from += k * j->outer_from[d];
    }
}

static void copy_row(const job *j, char *to, const char *from, int64_t stride) {
    if (j->stream && stride == 1) ct__stream_run(to, from, j->width, j->size);
    else ct__copy_run(to, j->to_width, from, stride, j->width, j->size);
}

static void row_chunk(void *context, int64_t chunk, int worker) {
    static const uint64_t zero;
    const job *j = context;
    const row_fn fn = choose_row(j->y->dtype);
    const int64_t size = (int64_t)j->size, end = ct__min64((chunk + 1) * j->rows_a_chunk, j->combinations * j->rows);
    (void)worker;
    int64_t to = 0, x = 0, from = 0, last = -1;
    for (int64_t i = chunk * j->rows_a_chunk; i < end; i++) {
        const int64_t outer = i / j->rows, v = i % j->rows;
        if (outer != last) outer_place(j, last = outer, &to, &x, &from);
        const row r = {.to = j->dst + (to + v * j->to_axis) * size,
                       .x = j->x ? j->x + (x + v * j->x_axis) * size : NULL,
                       .src = j->src + from * size,
                       .hits = j->order + j->start[v],
                       .count = (int64_t)j->start[v + 1] - j->start[v]};
        if (r.count == 1 && !r.x && j->alpha == 1)
            copy_row(j, r.to, r.src + lead_place(j, j->lead_from, r.hits[0]) * size, j->from_width);
        else if (r.count) fn(j, &r);
        else if (r.x) copy_row(j, r.to, r.x, j->x_width);
        else if (j->stream) ct__stream_fill_run(r.to, j->width, &zero, j->size);
        else ct__fill_run(r.to, j->to_width, j->width, &zero, j->size);
    }
    if (j->stream) ct__stream_end();
}

/* Sorts the indices by row; false after an error. Those equal to skip are left out. */
static bool sort_rows(job *j, int64_t skip) {
    memset(j->start, 0, (size_t)(j->rows + 2) * sizeof *j->start);
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t v = index_value(j->index, j->at, lead_place(j, j->lead_at, i));
        if ((uint64_t)v >= (uint64_t)j->rows) return index_fail(j->call, j->index, i, v, j->rows);
        if (v != skip) j->start[v + 1]++;
    }
    for (int64_t v = 0; v < j->rows; v++) j->start[v + 1] += j->start[v];
    j->start[j->rows + 1] = j->start[j->rows];
    for (int64_t i = j->n - 1; i >= 0;
         i--) { /* from the last, so that the end of each row comes down to its beginning */
        const int64_t v = index_value(j->index, j->at, lead_place(j, j->lead_at, i));
        if (v != skip) j->order[--j->start[v + 1]] = (uint32_t)i;
    }
    j->start++;
    return true;
}

/* ---- Slabs: one number a row, many slabs ---- */

#define SLAB_FN(type, T, SUM)                                                                         \
    static bool slab_##type(job *j, int64_t to, int64_t from) {                                       \
        const SUM alpha = (SUM)j->alpha;                                                              \
        T *y = (T *)(void *)j->dst + to;                                                              \
        const T *src = (const T *)(const void *)j->src + from;                                        \
        for (int64_t i = 0; i < j->n; i++) {                                                          \
            const int64_t v = index_value(j->index, j->at, i * j->lead_at[0]);                        \
            if (__builtin_expect((uint64_t)v >= (uint64_t)j->rows, 0)) {                              \
                if (!atomic_exchange(&j->failed, true)) index_fail(j->call, j->index, i, v, j->rows); \
                return false;                                                                         \
            }                                                                                         \
            T *at = y + v * j->to_axis;                                                               \
            *at = (T)((SUM)*at + alpha * (SUM)src[i * j->lead_from[0]]);                              \
        }                                                                                             \
        return true;                                                                                  \
    }
SLAB_FN(f32, float, float)
SLAB_FN(f64, double, double)

static bool has_slab(ct_dtype dtype) { return dtype == CT_F32 || dtype == CT_F64; }

static void slab_chunk(void *context, int64_t chunk, int worker) {
    static const uint64_t zero;
    job *j = context;
    const int64_t size = (int64_t)j->size, end = ct__min64((chunk + 1) * j->rows_a_chunk, j->combinations);
    (void)worker;
    for (int64_t i = chunk * j->rows_a_chunk; i < end && !atomic_load_explicit(&j->failed, memory_order_relaxed); i++) {
        int64_t to, x, from;
        outer_place(j, i, &to, &x, &from);
        if (j->x) ct__copy_run(j->dst + to * size, j->to_axis, j->x + x * size, j->x_axis, j->rows, j->size);
        else ct__fill_run(j->dst + to * size, j->to_axis, j->rows, &zero, j->size);
        if (j->y->dtype == CT_F32) slab_f32(j, to, from);
        else slab_f64(j, to, from);
    }
}

/* ---- The three ops ---- */

typedef struct sum_call {
    const ct_view *x, *index, *src; /* x NULL: zeros */
    int axis;
    double alpha;
    int64_t skip; /* an index that is left out; -1: none */
} sum_call;

/* src has the dimensions of index in the place of the axis. */
static bool run(const ct_call *call, const sum_call *s) {
    const ct_view *y = call->out[0], *index = s->index, *src = s->src;
    job j = {.call = call,
             .index = index,
             .y = y,
             .n = 1,
             .rows = 1,
             .width = 1,
             .combinations = 1,
             .size = ct_dtype_size(y->dtype),
             .alpha = s->alpha};
    const int axis = s->axis,
              lead = y->ndim ? src->ndim - (y->ndim - 1) : 0; /* dimensions of src in the place of the axis */
    if (y->ndim) j.rows = y->dims[axis], j.to_axis = y->strides[axis], j.x_axis = s->x ? s->x->strides[axis] : 0;
    for (int d = 0; d < index->ndim; d++) {
        const int64_t size = index->dims[d], from = d < lead ? src->strides[axis + d] : 0;
        j.n *= size;
        if (size == 1) continue;
        const int p = j.lead - 1;
        if (p >= 0 && j.lead_at[p] == size * index->strides[d] && j.lead_from[p] == size * from) j.lead_dims[p] *= size;
        else j.lead_dims[j.lead++] = size;
        j.lead_at[j.lead - 1] = index->strides[d], j.lead_from[j.lead - 1] = from;
    }
    if (j.lead == 0) j.lead = 1, j.lead_dims[0] = 1;
    /* the last dimension behind the axis is the row, and what merges with it */
    bool found = false;
    for (int d = y->ndim - 1; d >= 0; d--) {
        const int64_t size = y->dims[d], to = y->strides[d], xs = s->x ? s->x->strides[d] : 0,
                      from = src->strides[d > axis   ? d + lead - 1
                                          : d < axis ? d
                                                     : 0];
        if (d == axis || size == 1) continue;
        if (d > axis && !found) {
            found = true;
            j.width = size, j.to_width = to, j.x_width = xs, j.from_width = from;
        } else if (d > axis && j.outer == 0 && to == j.width * j.to_width && from == j.width * j.from_width &&
                   (!s->x || xs == j.width * j.x_width)) {
            j.width *= size;
        } else {
            j.combinations *= size;
            for (int k = j.outer++; k > 0; k--) {
                j.outer_dims[k] = j.outer_dims[k - 1];
                j.outer_to[k] = j.outer_to[k - 1], j.outer_x[k] = j.outer_x[k - 1],
                j.outer_from[k] = j.outer_from[k - 1];
            }
            j.outer_dims[0] = size, j.outer_to[0] = to, j.outer_x[0] = xs, j.outer_from[0] = from;
        }
    }
    j.dst = ct__address(y, j.size);
    j.x = s->x ? ct__address(s->x, j.size) : NULL;
    j.src = ct__address(src, j.size);
    j.at = ct__address(index, ct_dtype_size(index->dtype));
    if (!found && j.lead == 1 && j.combinations >= 8 && s->skip < 0 && has_slab(y->dtype)) {
        j.rows_a_chunk = ct__grain(1 + CHUNK / ct__max64(1, j.rows + j.n));
        ct__parallel((j.combinations + j.rows_a_chunk - 1) / j.rows_a_chunk, slab_chunk, &j);
        return !atomic_load(&j.failed);
    }
    j.start = ct__scratch(call);
    j.order = j.start + j.rows + 2;
    if (!sort_rows(&j, s->skip)) return false;
    j.rows_a_chunk = ct__grain(1 + CHUNK / ct__max64(1, j.width));
    const int64_t rows = j.combinations * j.rows, bytes = j.width * (int64_t)j.size;
    j.stream = j.to_width == 1 && bytes >= 512 && ct__stream_worth(rows * bytes);
    if (rows && j.width) ct__parallel((rows + j.rows_a_chunk - 1) / j.rows_a_chunk, row_chunk, &j);
    return true;
}

static size_t scratch_for(const ct_view *index, int64_t rows) {
    size_t n = 1;
    for (int d = 0; d < index->ndim; d++) n *= (size_t)index->dims[d];
    return (n + (size_t)rows + 2) * sizeof(uint32_t);
}

static int resolved(int64_t axis, const ct_view *y) { return (int)(axis < 0 ? axis + (y->ndim ? y->ndim : 1) : axis); }

static const char *can(const ct_call *call) {
    const ct_view *index = call->in[1];
    int64_t n = 1;
    for (int d = 0; d < index->ndim; d++) n *= index->dims[d];
    return n < UINT32_MAX ? NULL : "more indices than 32 bits count";
}

static size_t select_grad_scratch(const ct_call *call) {
    const ct_view *y = call->out[0];
    return scratch_for(call->in[1],
                       y->ndim ? y->dims[resolved(((const index_select_grad_attrs *)call->attrs)->axis, y)] : 1);
}

static bool run_select_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sum_call s = {.index = call->in[1],
                        .src = call->in[0],
                        .axis = resolved(((const index_select_grad_attrs *)call->attrs)->axis, call->out[0]),
                        .alpha = 1,
                        .skip = -1};
    return run(call, &s);
}

static size_t add_scratch(const ct_call *call) {
    const ct_view *y = call->out[0];
    return scratch_for(call->in[1], y->ndim ? y->dims[resolved(((const index_add_attrs *)call->attrs)->axis, y)] : 1);
}

static bool run_add(const ct_call *call, ct_stream *stream) {
    const index_add_attrs *at = call->attrs;
    (void)stream;
    const sum_call s = {.x = call->in[0],
                        .index = call->in[1],
                        .src = call->in[2],
                        .axis = resolved(at->axis, call->out[0]),
                        .alpha = at->alpha,
                        .skip = -1};
    return run(call, &s);
}

static size_t embedding_scratch(const ct_call *call) { return scratch_for(call->in[1], call->out[0]->dims[0]); }

static bool run_embedding_grad(const ct_call *call, ct_stream *stream) {
    const embedding_grad_attrs *at = call->attrs;
    (void)stream;
    const sum_call s = {.index = call->in[1],
                        .src = call->in[0],
                        .axis = 0,
                        .alpha = 1,
                        .skip = at->padding_idx.set ? (int64_t)at->padding_idx.value : -1};
    return run(call, &s);
}

CT_KERNELS(index_rows_sum) = {
    CT_CANDIDATES(index_select_grad, {"index_sum_rows", can, select_grad_scratch, run_select_grad}),
    CT_CANDIDATES(index_add, {"index_add_rows", can, add_scratch, run_add}),
    CT_CANDIDATES(embedding_grad, {"embedding_sum_rows", can, embedding_scratch, run_embedding_grad}),
    {0},
};
