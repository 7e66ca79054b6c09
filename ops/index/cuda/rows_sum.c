/* index_add, index_select_grad and embedding_grad: the host side. Where few rows are named very often, a thread of its own for each
 * element of the result would have long to sum, and index_add goes by atomics (scatter.c). */
#include "ops/index/cuda/rows_sum.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/index.attrs.h"

CT_CUDA_UNIT(index_rows_sum);
enum { THREADS = 256 };

typedef struct sum_call {
    const ct_view *x, *index, *src, *y; /* x NULL: zeros */
    int axis, argument;
    int64_t skip; /* an index that is left out; -1: none */
    double alpha;
} sum_call;

static int resolved(int64_t axis, const ct_view *y) { return (int)(axis < 0 ? axis + (y->ndim ? y->ndim : 1) : axis); }

static sum_call add_call(const ct_call *call) {
    const index_add_attrs *at = call->attrs;
    return (sum_call){.x = call->in[0],
                      .index = call->in[1],
                      .src = call->in[2],
                      .y = call->out[0],
                      .axis = resolved(at->axis, call->out[0]),
                      .argument = 1,
                      .skip = -1,
                      .alpha = at->alpha};
}

static sum_call select_grad_call(const ct_call *call) {
    return (sum_call){.index = call->in[1],
                      .src = call->in[0],
                      .y = call->out[0],
                      .axis = resolved(((const index_select_grad_attrs *)call->attrs)->axis, call->out[0]),
                      .argument = 1,
                      .skip = -1,
                      .alpha = 1};
}

static sum_call embedding_grad_call(const ct_call *call) {
    const embedding_grad_attrs *at = call->attrs;
    return (sum_call){.index = call->in[1],
                      .src = call->in[0],
                      .y = call->out[0],
                      .argument = 1,
                      .skip = at->padding_idx.set ? (int64_t)at->padding_idx.value : -1,
                      .alpha = 1};
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
    const int64_t n = ct_cuda_count(s->index), rows = rows_of(s), results = ct_cuda_count(s->y);
    int64_t stride;
    if (s->y->dtype > CT_BOOL) return "there is no arithmetic on it";
    if (!row_stride(s, &stride)) return "the rows of src are not one after the other";
    if (n >= INT32_MAX || rows >= 1 << 26) return "there are more rows than it counts";
    return n > 64 * rows || (results < 1 << 12 && n > 256) ? "few rows are named often" : NULL;
}

static size_t scratch(const sum_call *s) {
    return (size_t)(2 * rows_of(s) + 1 + ct_cuda_count(s->index)) * sizeof(uint32_t);
}

static bool run(const ct_call *call, const sum_call *s) {
    static ct_cuda_function clear = CT_CUDA_FUNCTION("sort_clear"), count = CT_CUDA_FUNCTION("sort_count"),
                            scan = CT_CUDA_FUNCTION("sort_scan"), place = CT_CUDA_FUNCTION("sort_place"),
                            sums[CT_BOOL + 1] = {
                                [CT_F32] = CT_CUDA_FUNCTION("sum_f32"), [CT_F64] = CT_CUDA_FUNCTION("sum_f64"),
                                [CT_F16] = CT_CUDA_FUNCTION("sum_f16"), [CT_BF16] = CT_CUDA_FUNCTION("sum_bf16"),
                                [CT_I8] = CT_CUDA_FUNCTION("sum_i8"),   [CT_I16] = CT_CUDA_FUNCTION("sum_i16"),
                                [CT_I32] = CT_CUDA_FUNCTION("sum_i32"), [CT_I64] = CT_CUDA_FUNCTION("sum_i64"),
                                [CT_U8] = CT_CUDA_FUNCTION("sum_u8"),   [CT_BOOL] = CT_CUDA_FUNCTION("sum_bool")};
    const ct_view *y = s->y, *index = s->index, *src = s->src;
    const int lead = lead_of(s);
    ct_cuda_rows_sum a;
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(y);
    a.from = s->x ? ct_cuda_address(s->x) : NULL;
    a.src = ct_cuda_address(src);
    a.index = ct_cuda_address(index);
    a.rows = rows_of(s);
    a.starts = (uint32_t *)(void *)ct_cuda_scratch(call);
    a.next = a.starts + a.rows + 1;
    a.order = a.next + a.rows;
    row_stride(s, &a.src_row);
    a.skip = s->skip;
    a.alpha = s->alpha;
    a.wide = index->dtype == CT_I64;
    a.dtype = y->dtype;
    a.argument = s->argument;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < index->ndim; d++)
        ct_cuda_nest_add(&a.nest, index->dims[d], (const int64_t[CT_CUDA_NEST_OPERANDS]){index->strides[d], 0, 0, 0});
    ct_cuda_nest_end(&a.nest);
    const ct_cuda_shape over_rows = {.grid = ct_cuda_blocks(call, a.rows + 1, THREADS), .block = THREADS},
                        over_index = {.grid = ct_cuda_blocks(call, a.nest.total, THREADS), .block = THREADS},
                        one = {.grid = 1, .block = CT_CUDA_SCAN_THREADS};
    if (!ct_cuda_launch(call, &clear, over_rows, &a) || !ct_cuda_launch(call, &count, over_index, &a) ||
        !ct_cuda_launch(call, &scan, one, &a) || !ct_cuda_launch(call, &place, over_index, &a))
        return false;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < y->ndim; d++) {
        const bool axis = d == s->axis;
        const int64_t from = axis ? 0 : src->strides[d < s->axis ? d : d + lead - 1];
        ct_cuda_nest_add(
            &a.nest, y->dims[d],
            (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], s->x ? s->x->strides[d] : 0, from, axis});
    }
    ct_cuda_nest_end(&a.nest);
    if (a.nest.total == 0) return true;
    const ct_cuda_shape all = {.grid = ct_cuda_blocks(call, a.nest.total, THREADS), .block = THREADS};
    return ct_cuda_launch(call, &sums[y->dtype], all, &a);
}

/* ---- The three ops ---- */

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

CT_CUDA_KERNELS(index_rows_sum) = {
    CT_CANDIDATES(index_add, {"index_add_rows", can_add, add_scratch, run_add},
                  {"index_add_exact", NULL, ct_cuda_index_add_scratch, ct_cuda_index_add}),
    CT_CANDIDATES(index_select_grad, {"index_sum_rows", can_select_grad, select_grad_scratch, run_select_grad}),
    CT_CANDIDATES(embedding_grad,
                  {"embedding_sum_rows", can_embedding_grad, embedding_grad_scratch, run_embedding_grad}),
    {0},
};
