/* Tensors made of nothing: of one value, of a line of values, or of whatever is there. */
#include "ops/create/cuda/create.h"

#include <string.h>

#include "backends/cuda/cuda.h"

#include "gen/create.attrs.h"

CT_CUDA_UNIT(create_create);

static ct_cuda_create arguments_of(const ct_view *y) {
    ct_cuda_create a;
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(y);
    a.dtype = y->dtype;
    a.packs = ct_cuda_is_dense(y) && (uintptr_t)a.to % 16 == 0;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < y->ndim; d++)
        ct_cuda_nest_add(&a.nest, y->dims[d], (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], 0, 0, 0});
    ct_cuda_nest_end(&a.nest);
    return a;
}

/* ---- One value ---- */

static bool fill(const ct_call *call, ct_cuda_create *a) {
    static ct_cuda_function fills[] = {CT_CUDA_FUNCTION("fill_1"), CT_CUDA_FUNCTION("fill_2"),
                                       CT_CUDA_FUNCTION("fill_4"), CT_CUDA_FUNCTION("fill_8")};
    if (a->nest.total == 0) return true;
    const int64_t size = (int64_t)ct_cuda_dtype_size((ct_dtype)a->dtype), each = a->packs ? 16 / size : 1;
    ct_cuda_function *function = &fills[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
    const unsigned blocks = ct_cuda_blocks(call, (a->nest.total + each - 1) / each, 256);
    return ct_cuda_launch(call, function, (ct_cuda_shape){.grid = blocks, .block = 256}, a);
}

static bool fill_with(const ct_call *call, double value) {
    ct_cuda_create a = arguments_of(call->out[0]);
    a.start = value;
    return fill(call, &a);
}

static bool run_zeros(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 0);
}

static bool run_ones(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, 1);
}

static bool run_full(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_attrs *)call->attrs)->value);
}

static bool run_full_like(const ct_call *call, ct_stream *stream) {
    (void)stream;
    return fill_with(call, ((const full_like_attrs *)call->attrs)->value);
}

static bool run_full_i64(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_create a = arguments_of(call->out[0]);
    a.whole = 1;
    a.whole_start = ((const full_i64_attrs *)call->attrs)->value;
    return fill(call, &a);
}

static bool run_empty(const ct_call *call, ct_stream *stream) {
    (void)call, (void)stream;
    return true;
}

/* ---- A line ---- */

static bool line(const ct_call *call, ct_cuda_create *a) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("line");
    if (a->nest.total == 0) return true;
    return ct_cuda_launch(call, &function,
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, a->nest.total, 256), .block = 256}, a);
}

static bool run_arange(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const arange_attrs *attrs = call->attrs;
    ct_cuda_create a = arguments_of(call->out[0]);
    a.start = attrs->start;
    a.step = attrs->step;
    return line(call, &a);
}

static bool run_arange_i64(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const arange_i64_attrs *attrs = call->attrs;
    ct_cuda_create a = arguments_of(call->out[0]);
    a.whole = 1;
    a.whole_start = attrs->start;
    a.whole_step = attrs->step;
    return line(call, &a);
}

CT_CUDA_KERNELS(create_create) = {
    CT_CANDIDATES(zeros, {"fill", NULL, NULL, run_zeros}),
    CT_CANDIDATES(ones, {"fill", NULL, NULL, run_ones}),
    CT_CANDIDATES(full, {"fill", NULL, NULL, run_full}),
    CT_CANDIDATES(full_i64, {"fill", NULL, NULL, run_full_i64}),
    CT_CANDIDATES(empty, {"leave", NULL, NULL, run_empty}),
    CT_CANDIDATES(zeros_like, {"fill", NULL, NULL, run_zeros}),
    CT_CANDIDATES(ones_like, {"fill", NULL, NULL, run_ones}),
    CT_CANDIDATES(full_like, {"fill", NULL, NULL, run_full_like}),
    CT_CANDIDATES(empty_like, {"leave", NULL, NULL, run_empty}),
    CT_CANDIDATES(arange, {"line", NULL, NULL, run_arange}),
    CT_CANDIDATES(arange_i64, {"line", NULL, NULL, run_arange_i64}),
    {0},
};
