/* gather, take, index_select and embedding: the same kernel, over an index that is expanded to rows for the last two. */
#include "ops/index/cuda/gather.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/index.attrs.h"

CT_CUDA_UNIT(index_gather);

static int resolved(int64_t axis, const ct_view *x) { return (int)(axis < 0 ? axis + (x->ndim ? x->ndim : 1) : axis); }

static ct_cuda_gather arguments_of(const ct_call *call, const ct_view *x, int axis) {
    const ct_view *index = call->in[1];
    ct_cuda_gather a;
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(call->out[0]);
    a.from = ct_cuda_address(x);
    a.index = ct_cuda_address(index);
    a.bound = x->ndim ? x->dims[axis] : 1;
    a.along = a.bound > 1 ? x->strides[axis] : 0;
    a.wide = index->dtype == CT_I64;
    a.argument = 1;
    ct_cuda_nest_begin(&a.nest);
    return a;
}

static void row_major(const ct_view *view, int64_t strides[CT_CUDA_DIMS]) {
    int64_t stride = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= view->dims[d];
    }
}

/* Elements twice as wide, where the last dimension is dense in both and one index serves all of it. */
static bool widen(ct_cuda_gather *a, size_t size) {
    ct_cuda_nest *nest = &a->nest;
    const int last = nest->ndim - 1;
    if (last < 0 || nest->strides[0][last] != 1 || nest->strides[1][last] != 1 || nest->strides[2][last] != 0)
        return false;
    if (nest->sizes[last] % 2 || a->along % 2 || (uintptr_t)a->to % (2 * size) || (uintptr_t)a->from % (2 * size))
        return false;
    for (int d = 0; d < last; d++)
        if (nest->strides[0][d] % 2 || nest->strides[1][d] % 2) return false;
    for (int d = 0; d < last; d++) nest->strides[0][d] /= 2, nest->strides[1][d] /= 2;
    nest->sizes[last] /= 2;
    nest->total /= 2;
    nest->strides[3][last] *= 2;
    a->along /= 2;
    return true;
}

static bool launch(const ct_call *call, ct_cuda_gather *a, size_t size) {
    static ct_cuda_function functions[] = {CT_CUDA_FUNCTION("gather_1"), CT_CUDA_FUNCTION("gather_2"),
                                           CT_CUDA_FUNCTION("gather_4"), CT_CUDA_FUNCTION("gather_8"),
                                           CT_CUDA_FUNCTION("gather_16")};
    if (a->nest.total == 0) return true;
    int level = 0;
    while ((size_t)1 << level < size) level++;
    while (level < 4 && widen(a, size)) size *= 2, level++;
    ct_cuda_nest_end(&a->nest);
    return ct_cuda_launch(call, &functions[level],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, a->nest.total, 256), .block = 256}, a);
}

/* y[...] = x[..., index[...], ...] */
static bool gather(const ct_call *call, const ct_view *x, int axis) {
    const ct_view *index = call->in[1], *y = call->out[0];
    ct_cuda_gather a = arguments_of(call, x, axis);
    int64_t places[CT_CUDA_DIMS];
    row_major(index, places);
    for (int d = 0; d < index->ndim; d++) {
        const int64_t from = d == axis || d >= x->ndim ? 0 : x->strides[d];
        ct_cuda_nest_add(&a.nest, index->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], from, index->strides[d], places[d]});
    }
    return launch(call, &a, ct_cuda_dtype_size(x->dtype));
}

static bool run_gather(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return gather(call, call->in[0], resolved(((const gather_attrs *)call->attrs)->axis, call->in[0]));
}

/* x as one vector, where its strides allow that. */
static bool as_vector(const ct_view *x, ct_view *flat) {
    *flat = *x;
    flat->ndim = 1;
    flat->dims[0] = flat->strides[0] = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (x->dims[d] == 1) continue;
        if (flat->dims[0] != 1 && x->strides[d] != flat->dims[0] * flat->strides[0]) return false;
        if (flat->dims[0] == 1) flat->strides[0] = x->strides[d];
        flat->dims[0] *= x->dims[d];
    }
    return true;
}

static const char *can_take(const ct_call *call) {
    ct_view flat;
    return as_vector(call->in[0], &flat) ? NULL : "x is not one vector in memory";
}

static bool run_take(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_view flat;
    as_vector(call->in[0], &flat);
    return gather(call, &flat, 0);
}

/* Indices that choose nothing, of rows without elements, have to be in range all the same. */
static bool look(const ct_call *call, ct_cuda_gather *a) {
    const ct_view *index = call->in[1];
    int64_t places[CT_CUDA_DIMS];
    row_major(index, places);
    a->to = NULL;
    ct_cuda_nest_begin(&a->nest);
    for (int d = 0; d < index->ndim; d++)
        ct_cuda_nest_add(&a->nest, index->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){0, 0, index->strides[d], places[d]});
    return launch(call, a, 1);
}

/* y[o..., i..., r...] = x[o..., index[i...], r...]; index takes the place of the axis. */
static bool select_rows(const ct_call *call, int axis) {
    const ct_view *x = call->in[0], *index = call->in[1], *y = call->out[0];
    ct_cuda_gather a = arguments_of(call, x, axis);
    int64_t places[CT_CUDA_DIMS], outer = 1;
    row_major(index, places);
    /* an index_select with a scalar index keeps the axis, with size 1 */
    const int instead = y->ndim - (x->ndim ? x->ndim - 1 : 0), rank = index->ndim < instead ? index->ndim : instead;
    for (int d = 0; d < axis; d++) {
        outer *= x->dims[d];
        ct_cuda_nest_add(&a.nest, x->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], x->strides[d], 0, 0});
    }
    for (int d = 0; d < rank; d++)
        ct_cuda_nest_add(&a.nest, index->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[axis + d], 0, index->strides[d], places[d]});
    for (int d = axis + 1; d < x->ndim; d++)
        ct_cuda_nest_add(&a.nest, x->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d - 1 + instead], x->strides[d], 0, 0});
    if (a.nest.total == 0 && outer > 0) return look(call, &a);
    return launch(call, &a, ct_cuda_dtype_size(x->dtype));
}

static bool run_select(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return select_rows(call, resolved(((const index_select_attrs *)call->attrs)->axis, call->in[0]));
}

static bool run_embedding(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return select_rows(call, 0);
}

CT_CUDA_KERNELS(index_gather) = {
    CT_CANDIDATES(gather, {"gather_elements", NULL, NULL, run_gather}),
    CT_CANDIDATES(take, {"take_elements", can_take, NULL, run_take}),
    CT_CANDIDATES(index_select, {"index_select_rows", NULL, NULL, run_select}),
    CT_CANDIDATES(embedding, {"embedding_rows", NULL, NULL, run_embedding}),
    {0},
};
