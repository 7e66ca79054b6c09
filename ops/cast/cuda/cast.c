/* Conversion between dtypes: the host side. To its own dtype it is a copy. */
#include "ops/cast/cuda/cast.h"

#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/move.h"

#include "gen/cast.attrs.h"

CT_CUDA_OVERLAPPING_UNIT(cast_cast);
static ct_cuda_function functions[CT_DTYPE_COUNT] = {
    [CT_F32] = CT_CUDA_FUNCTION("convert_f32"),       [CT_F64] = CT_CUDA_FUNCTION("convert_f64"),
    [CT_F16] = CT_CUDA_FUNCTION("convert_f16"),       [CT_BF16] = CT_CUDA_FUNCTION("convert_bf16"),
    [CT_I8] = CT_CUDA_FUNCTION("convert_i8"),         [CT_I16] = CT_CUDA_FUNCTION("convert_i16"),
    [CT_I32] = CT_CUDA_FUNCTION("convert_i32"),       [CT_I64] = CT_CUDA_FUNCTION("convert_i64"),
    [CT_U8] = CT_CUDA_FUNCTION("convert_u8"),         [CT_BOOL] = CT_CUDA_FUNCTION("convert_u8"),
    [CT_U16] = CT_CUDA_FUNCTION("convert_u16"),       [CT_U32] = CT_CUDA_FUNCTION("convert_u32"),
    [CT_U64] = CT_CUDA_FUNCTION("convert_u64"),       [CT_F8E4M3] = CT_CUDA_FUNCTION("convert_f8e4m3"),
    [CT_F8E5M2] = CT_CUDA_FUNCTION("convert_f8e5m2"), [CT_COMPLEX64] = CT_CUDA_FUNCTION("convert_complex64"),
};

static bool run_convert(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_view *x = call->in[0], *y = call->out[0];
    if (x->dtype == y->dtype) return ct_cuda_copy(call, y, x);
    ct_cuda_convert a;
    memset(&a, 0, sizeof a);
    a.to = ct_cuda_address(y);
    a.from = ct_cuda_address(x);
    a.dtype = y->dtype;
    a.packs = ct_cuda_is_dense(x) && ct_cuda_is_dense(y) && (uintptr_t)a.to % 16 == 0 && (uintptr_t)a.from % 16 == 0;
    ct_cuda_nest_begin(&a.nest);
    for (int d = 0; d < y->ndim; d++)
        ct_cuda_nest_add(&a.nest, y->dims[d],
                         (const int64_t[CT_CUDA_NEST_OPERANDS]){y->strides[d], x->strides[d], 0, 0});
    ct_cuda_nest_end(&a.nest);
    if (a.nest.total == 0) return true;
    const int64_t items = a.packs ? (a.nest.total + 3) / 4 : a.nest.total;
    return ct_cuda_launch(call, &functions[x->dtype],
                          (ct_cuda_shape){.grid = ct_cuda_blocks(call, items, 256), .block = 256}, &a);
}

/* To its own dtype the lowering hands x on; half types it would run in f32, so a copy is cheaper there. */
static const char *can_cast(const ct_call *call) {
    const ct_dtype from = call->in[0]->dtype;
    if (from != call->out[0]->dtype || from == CT_F16 || from == CT_BF16) return NULL;
    return "x has the dtype already";
}

CT_CUDA_KERNELS(cast_cast) = {
    CT_CANDIDATES(cast, {"convert", can_cast, NULL, run_convert}),
    CT_CANDIDATES(convert, {"convert", NULL, NULL, run_convert}),
    {0},
};
