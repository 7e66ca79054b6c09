/* index_add, index_select_grad, embedding_grad, and scatter_add where its index names rows: the host side. Where few rows are named very
 * often, there would be too few threads to sum them, and sums go by atomics (scatter.c). */
#include "ops/index/cuda/rows_sum.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/move.h"

#include "gen/index.attrs.h"

CT_CUDA_UNIT(index_rows_sum);

typedef struct sum_call {
    const ct_view *x, *src, *y; /* x NULL: zeros */
    ct_view index;
    int axis, argument;
    int64_t skip;  /* an index that is left out; -1: none */
    int64_t place; /* of errors: from one index to the next */
    double alpha;
} sum_call;

static int resolved(int64_t axis, const ct_view *y) { return (int)(axis < 0 ? axis + (y->ndim ? y->ndim : 1) : axis); }

static sum_call add_call(const ct_call *call) {
    const index_add_attrs *at = call->attrs;
    return (sum_call){.x = call->in[0],
                      .index = *call->in[1],
                      .src = call->in[2],
                      .y = call->out[0],
                      .axis = resolved(at->axis, call->out[0]),
                      .argument = 1,
                      .skip = -1,
                      .place = 1,
                      .alpha = at->alpha};
}

static sum_call select_grad_call(const ct_call *call) {
    return (sum_call){.index = *call->in[1],
                      .src = call->in[0],
                      .y = call->out[0],
                      .axis = resolved(((const index_select_grad_attrs *)call->attrs)->axis, call->out[0]),
                      .argument = 1,
                      .skip = -1,
                      .place = 1,
                      .alpha = 1};
}

static sum_call embedding_grad_call(const ct_call *call) {
    const embedding_grad_attrs *at = call->attrs;
    return (sum_call){.index = *call->in[1],
                      .src = call->in[0],
                      .y = call->out[0],
                      .argument = 1,
                      .skip = at->padding_idx.set ? (int64_t)at->padding_idx.value : -1,
                      .place = 1,
                      .alpha = 1};
}

/* An index that is the same for whole rows, as expanding a vector gives it, with rows as long as those of y. */
static bool names_rows(const ct_view *index, const ct_view *y, int axis) {
    if (y->ndim == 0 || index->ndim != y->ndim) return false;
    for (int d = 0; d < y->ndim; d++)
        if (d != axis && (index->dims[d] != y->dims[d] || (index->dims[d] != 1 && index->strides[d] != 0)))
            return false;
    return true;
}

/* Only of an index that names rows: of it one element for each. */
static sum_call scatter_add_call(const ct_call *call) {
    const ct_view *index = call->in[1], *y = call->out[0];
    sum_call s = {.x = call->in[0],
                  .index = *index,
                  .src = call->in[2],
                  .y = y,
                  .axis = resolved(((const scatter_add_attrs *)call->attrs)->axis, y),
                  .argument = 1,
                  .skip = -1,
                  .place = 1,
                  .alpha = 1};
    s.index.ndim = 1;
    s.index.dims[0] = index->dims[s.axis];
    s.index.strides[0] = index->strides[s.axis];
    for (int d = s.axis + 1; d < y->ndim; d++) s.place *= index->dims[d];
    return s;
}

static int64_t rows_of(const sum_call *s) { return s->y->ndim ? s->y->dims[s->axis] : 1; }
/* Dimensions of src in the place of the axis. */
static int lead_of(const sum_call *s) { return s->y->ndim ? s->src->ndim - (s->y->ndim - 1) : 0; }

/* The stride from one row of src to the next, in the order of index; false where there is none. */
static bool row_stride(const sum_call *s, int64_t *stride) {
    const int lead = lead_of(s);
    int64_t length = 1;
    *stride = 0;
    for (int d = lead - 1; d >= 0; d--) {
        const int64_t size = s->src->dims[s->axis + d], step = s->src->strides[s->axis + d];
        if (size == 1) continue;
        if (length != 1 && step != length * *stride) return false;
        if (length == 1) *stride = step;
        length *= size;
    }
    return true;
}

static const char *can(const sum_call *s) {
    const int64_t n = ct_cuda_count(&s->index), rows = rows_of(s), results = ct_cuda_count(s->y);
    int64_t stride;
    if (s->y->dtype > CT_BOOL) return "there is no arithmetic on it";
    if (!row_stride(s, &stride)) return "the rows of src are not one after the other";
    if (n >= INT32_MAX || rows >= 1 << 26) return "there are more rows than it counts";
    return n > 64 * rows || (results < 1 << 12 && n > 256) ? "few rows are named often" : NULL;
}

/* Most rows are not named: the others are listed. Otherwise, where packs are summed, rows have slots for their first indices. */
static bool names_few(const sum_call *s) { return ct_cuda_count(&s->index) < rows_of(s) / 2; }

static size_t scratch(const sum_call *s) {
    const int64_t rows = rows_of(s), n = ct_cuda_count(&s->index);
    const int64_t slots = names_few(s) ? 0 : CT_ROWS_FEW * rows + n / CT_ROWS_FEW + 1;
    return (size_t)(slots + 3 * rows + CT_ROWS_TOTALS + 1 + 3 * n + n / CT_ROWS_MANY + 1) * sizeof(uint32_t);
}

/* ---- The sort ---- */

static bool sort(const ct_call *call, const sum_call *s, bool packed, ct_cuda_rows_sort *a) {
    static ct_cuda_function clear = CT_CUDA_FUNCTION("sort_clear"), count = CT_CUDA_FUNCTION("sort_count"),
                            starts = CT_CUDA_FUNCTION("sort_starts"), place = CT_CUDA_FUNCTION("sort_place");
    const ct_view *index = &s->index;
    memset(a, 0, sizeof *a);
    ct_cuda_nest_begin(&a->nest);
    for (int d = 0; d < index->ndim; d++)
        ct_cuda_nest_add(&a->nest, index->dims[d], (const int64_t[CT_CUDA_NEST_OPERANDS]){index->strides[d], 0, 0, 0});
    ct_cuda_nest_end(&a->nest);
    a->index = ct_cuda_address(index);
    a->rows = rows_of(s);
    const int64_t n = a->nest.total;
    uint32_t *all = (uint32_t *)(void *)ct_cuda_scratch(call);
    const bool few = packed && names_few(s);
    a->slots = packed && !few ? all : NULL; /* by fours, so first, and then what comes in pairs */
    a->spans = all + (a->slots ? CT_ROWS_FEW * a->rows : 0);
    a->counts = a->spans + 2 * a->rows;
    a->ranks = a->counts + a->rows + CT_ROWS_TOTALS;
    a->order = a->ranks + n;
    a->crowded = a->order + n;
    uint32_t *const rest = a->crowded + n / CT_ROWS_MANY + 1;
    a->late = a->slots ? rest : NULL;
    a->named = few ? rest : a->slots ? rest + n : NULL;
    a->skip = s->skip;
    a->place = s->place;
    a->wide = index->dtype == CT_I64;
    a->argument = s->argument;
    const ct_cuda_shape over_rows = {.grid = ct_cuda_blocks(call, a->rows + CT_ROWS_TOTALS, CT_ROWS_THREADS),
                                     .block = CT_ROWS_THREADS},
                        over_index = {.grid = ct_cuda_blocks(call, a->nest.total, CT_ROWS_THREADS),
                                      .block = CT_ROWS_THREADS};
    const bool any = n > 0;
    return ct_cuda_launch(call, &clear, over_rows, a) && (!any || ct_cuda_launch(call, &count, over_index, a)) &&
           ct_cuda_launch(call, &starts, over_rows, a) && (!any || ct_cuda_launch(call, &place, over_index, a));
}

/* ---- The sums ---- */

/* A dimension of the result, with the strides of to, from and src. */
typedef struct dimension {
    int64_t size, strides[3];
    bool axis;
} dimension;

static int dimensions_of(const sum_call *s, dimension *dims) {
    const ct_view *y = s->y, *src = s->src;
    const int lead = lead_of(s);
    for (int d = 0; d < y->ndim; d++) {
        const bool axis = d == s->axis;
        const int64_t from = axis ? 0 : src->strides[d < s->axis ? d : d + lead - 1];
        dims[d] = (dimension){y->dims[d], {y->strides[d], s->x ? s->x->strides[d] : 0, from}, axis};
    }
    return y->ndim;
}

/* Whether packs of `each` elements can be read and written: neighbours along the last dimension that is any, all else in whole packs. */
static bool is_packed(const ct_cuda_rows_sum *a, const dimension *dims, int n, int64_t each, size_t size) {
    int last = n - 1;
    while (last >= 0 && dims[last].size == 1) last--;
    if (last < 0 || dims[last].axis || dims[last].size % each || a->src_row % each) return false;
    if (dims[last].strides[0] != 1 || (a->from && dims[last].strides[1] != 1) || dims[last].strides[2] != 1)
        return false;
    for (int d = 0; d < last; d++)
        for (int k = 0; k < 3; k++)
            if (dims[d].size != 1 && dims[d].strides[k] % each) return false;
    const uintptr_t all = (uintptr_t)a->to | (uintptr_t)a->from | (uintptr_t)a->src;
    return all % ((size_t)each * size) == 0;
}

static void nest_of(ct_cuda_nest *nest, const dimension *dims, int n, int64_t each, bool axis) {
    int last = n - 1;
    while (last >= 0 && dims[last].size == 1) last--;
    ct_cuda_nest_begin(nest);
    for (int d = 0; d < n; d++) {
        const dimension *m = &dims[d];
        const int64_t by = d == last ? 1 : each;
        if (m->axis && !axis) continue;
        ct_cuda_nest_add(nest, d == last ? m->size / each : m->size,
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){m->strides[0] / by, m->strides[1] / by,
                                                                m->strides[2] / by, m->axis});
    }
    ct_cuda_nest_end(nest);
}

/* What the rows are that nothing is added to. */
static bool put_others(const ct_call *call, const sum_call *s, const ct_cuda_rows_sum *a, const dimension *dims, int n,
                       int64_t each) {
    static ct_cuda_function clear_8 = CT_CUDA_FUNCTION("rows_clear_8"), clear_16 = CT_CUDA_FUNCTION("rows_clear_16");
    if (s->x) return ct_cuda_copy(call, s->y, s->x);
    ct_cuda_rows_sum clear = *a;
    dimension alone[CT_CUDA_DIMS]; /* of the result alone, so that dimensions join */
    for (int d = 0; d < n; d++) alone[d] = (dimension){dims[d].size, {dims[d].strides[0], 0, 0}, false};
    nest_of(&clear.nest, alone, n, each, true);
    const size_t bytes = (size_t)each * ct_cuda_dtype_size(s->y->dtype);
    const ct_cuda_shape all = {.grid = ct_cuda_blocks(call, clear.nest.total, CT_ROWS_THREADS),
                               .block = CT_ROWS_THREADS};
    return ct_cuda_launch(call, bytes == 16 ? &clear_16 : &clear_8, all, &clear);
}

static bool run(const ct_call *call, const sum_call *s) {
    static ct_cuda_function sums[CT_BOOL + 1] = {
        [CT_F32] = CT_CUDA_FUNCTION("sum_f32"), [CT_F64] = CT_CUDA_FUNCTION("sum_f64"),
        [CT_F16] = CT_CUDA_FUNCTION("sum_f16"), [CT_BF16] = CT_CUDA_FUNCTION("sum_bf16"),
        [CT_I8] = CT_CUDA_FUNCTION("sum_i8"),   [CT_I16] = CT_CUDA_FUNCTION("sum_i16"),
        [CT_I32] = CT_CUDA_FUNCTION("sum_i32"), [CT_I64] = CT_CUDA_FUNCTION("sum_i64"),
        [CT_U8] = CT_CUDA_FUNCTION("sum_u8"),   [CT_BOOL] = CT_CUDA_FUNCTION("sum_bool")};
    static ct_cuda_function packed[CT_BF16 + 1] = {[CT_F32] = CT_CUDA_FUNCTION("sum_f32_packed"),
                                                   [CT_F64] = CT_CUDA_FUNCTION("sum_f64_packed"),
                                                   [CT_F16] = CT_CUDA_FUNCTION("sum_f16_packed"),
                                                   [CT_BF16] = CT_CUDA_FUNCTION("sum_bf16_packed")};
    static ct_cuda_function named[CT_BF16 + 1] = {[CT_F32] = CT_CUDA_FUNCTION("sum_f32_named"),
                                                  [CT_F64] = CT_CUDA_FUNCTION("sum_f64_named"),
                                                  [CT_F16] = CT_CUDA_FUNCTION("sum_f16_named"),
                                                  [CT_BF16] = CT_CUDA_FUNCTION("sum_bf16_named")};
    const ct_dtype dtype = s->y->dtype;
    ct_cuda_rows_sort sorted;
    ct_cuda_rows_sum a;
    dimension dims[CT_CUDA_DIMS];
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(s->y);
    a.from = s->x ? ct_cuda_address(s->x) : NULL;
    a.src = ct_cuda_address(s->src);
    a.rows = rows_of(s);
    a.alpha = s->alpha;
    row_stride(s, &a.src_row);
    const int n = dimensions_of(s, dims);
    const int64_t indices = ct_cuda_count(&s->index);
    int64_t each = dtype == CT_F64 ? 2 : 4;
    if (dtype > CT_BF16 || !is_packed(&a, dims, n, each, ct_cuda_dtype_size(dtype))) each = 1;
    const bool few = each > 1 && names_few(s);
    if (!sort(call, s, each > 1, &sorted)) return false;
    a.totals = sorted.counts + a.rows;
    a.spans = sorted.spans, a.slots = sorted.slots, a.order = sorted.order;
    a.crowded = sorted.crowded, a.named = sorted.named;
    a.src_row /= each;
    for (int d = 0; d < n; d++)
        if (dims[d].axis) a.to_axis = dims[d].strides[0] / each, a.from_axis = dims[d].strides[1] / each;
    nest_of(&a.nest, dims, n, each, true);
    nest_of(&a.lanes, dims, n, each, false);
    if (a.nest.total == 0) return true;
    if (few && !put_others(call, s, &a, dims, n, each)) return false;
    const int64_t packs = few ? indices * a.lanes.total : a.nest.total;
    const ct_cuda_shape all = {.grid = ct_cuda_all_blocks(call, packs, CT_ROWS_THREADS), .block = CT_ROWS_THREADS};
    return ct_cuda_launch(call, each == 1 ? &sums[dtype] : few ? &named[dtype] : &packed[dtype], all, &a);
}

/* ---- The ops ---- */

static const char *can_add(const ct_call *call) {
    const sum_call s = add_call(call);
    return can(&s);
}
static size_t add_scratch(const ct_call *call) {
    const sum_call s = add_call(call);
    return scratch(&s);
}
static bool run_add(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sum_call s = add_call(call);
    return run(call, &s);
}

static const char *can_select_grad(const ct_call *call) {
    const sum_call s = select_grad_call(call);
    return can(&s);
}
static size_t select_grad_scratch(const ct_call *call) {
    const sum_call s = select_grad_call(call);
    return scratch(&s);
}
static bool run_select_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sum_call s = select_grad_call(call);
    return run(call, &s);
}

static const char *can_embedding_grad(const ct_call *call) {
    const sum_call s = embedding_grad_call(call);
    return can(&s);
}
static size_t embedding_grad_scratch(const ct_call *call) {
    const sum_call s = embedding_grad_call(call);
    return scratch(&s);
}
static bool run_embedding_grad(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sum_call s = embedding_grad_call(call);
    return run(call, &s);
}

static const char *can_scatter_add(const ct_call *call) {
    const int axis = resolved(((const scatter_add_attrs *)call->attrs)->axis, call->out[0]);
    if (!names_rows(call->in[1], call->out[0], axis)) return "the index does not name whole rows";
    const sum_call s = scatter_add_call(call);
    return can(&s);
}
static size_t scatter_add_scratch(const ct_call *call) {
    const sum_call s = scatter_add_call(call);
    return scratch(&s);
}
static bool run_scatter_add(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const sum_call s = scatter_add_call(call);
    return run(call, &s);
}

CT_CUDA_KERNELS(index_rows_sum) = {
    CT_CANDIDATES(scatter_add, {"scatter_add_rows", can_scatter_add, scatter_add_scratch, run_scatter_add},
                  {"scatter_add_exact", NULL, ct_cuda_scatter_add_scratch, ct_cuda_scatter_add}),
    CT_CANDIDATES(index_add, {"index_add_rows", can_add, add_scratch, run_add},
                  {"index_add_exact", NULL, ct_cuda_index_add_scratch, ct_cuda_index_add}),
    CT_CANDIDATES(index_select_grad, {"index_sum_rows", can_select_grad, select_grad_scratch, run_select_grad}),
    CT_CANDIDATES(embedding_grad,
                  {"embedding_sum_rows", can_embedding_grad, embedding_grad_scratch, run_embedding_grad}),
    {0},
};
