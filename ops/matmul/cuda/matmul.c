/* matmul on CUDA: views become strides and batches, for cuBLASLt where its layouts allow it, else for tiles of our own. */
#include "ops/matmul/cuda/matmul.h"

#include "backends/cuda/blas.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/tune.h"

#include "gen/matmul.attrs.h"

CT_CUDA_UNIT(matmul_matmul);

/* Folds the last batch dimension into the rows when b is the same for all of it and rows follow each other at one distance. */
static void fold_batches(ct_cuda_product *p) {
    while (p->batch_dims > 0) {
        const int i = p->batch_dims - 1;
        const bool fits = p->b_batch[i] == 0 && p->a_batch[i] == p->m * p->a_row && p->c_batch[i] == p->m * p->c_row;
        if (p->batch[i] != 1 && !fits) return;
        if (p->batch[i] != 1) p->m *= p->batch[i];
        p->batch_dims--;
    }
}

static ct_cuda_product problem(const ct_call *call) {
    const ct_view *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const bool a_vector = a->ndim == 1, b_vector = b->ndim == 1;
    const int batch = y->ndim - !a_vector - !b_vector, a_first = batch - (a->ndim - 2), b_first = batch - (b->ndim - 2);
    ct_cuda_product p = {
        .a = ct_cuda_address(a), .b = ct_cuda_address(b), .c = ct_cuda_address(y), .batch_dims = batch};
    p.m = a_vector ? 1 : a->dims[a->ndim - 2];
    p.k = a->dims[a->ndim - 1];
    p.n = b_vector ? 1 : b->dims[b->ndim - 1];
    p.a_row = a_vector ? p.k : a->strides[a->ndim - 2];
    p.a_col = a->strides[a->ndim - 1];
    p.b_row = b->strides[b_vector ? 0 : b->ndim - 2];
    p.b_col = b_vector ? 1 : b->strides[b->ndim - 1];
    p.c_row = a_vector ? p.n : y->strides[batch];
    p.c_col = b_vector ? 1 : y->strides[y->ndim - 1];
    for (int i = 0; i < batch; i++) {
        const int ia = i - a_first, ib = i - b_first;
        p.batch[i] = y->dims[i];
        p.c_batch[i] = y->strides[i];
        p.a_batch[i] = a->ndim > 2 && ia >= 0 && a->dims[ia] != 1 ? a->strides[ia] : 0;
        p.b_batch[i] = b->ndim > 2 && ib >= 0 && b->dims[ib] != 1 ? b->strides[ib] : 0;
    }
    fold_batches(&p);
    p.batches = 1;
    for (int i = 0; i < p.batch_dims; i++) p.batches *= p.batch[i];
    return p;
}

/* ---- cuBLASLt ---- */

/* An operand whose rows or columns are dense: transposed says that columns are. */
static bool lies_well(int64_t rows, int64_t columns, int64_t row, int64_t col, bool *transposed, int64_t *leading) {
    if (col == 1 || columns == 1) {
        *transposed = false;
        *leading = rows > 1 ? row : columns;
        if (*leading >= columns) return true;
    }
    if (row == 1 || rows == 1) {
        *transposed = true;
        *leading = columns > 1 ? col : rows;
        return *leading >= rows;
    }
    return false;
}

static bool blas_problem(const ct_call *call, ct_cuda_blas_product *blas) {
    const ct_cuda_product p = problem(call);
    const ct_dtype dtype = call->in[0]->dtype;
    bool c_transposed;
    if (dtype > CT_BF16 || p.batch_dims > 1 || p.m < 1 || p.n < 1 || p.k < 1 || p.batches < 1) return false;
    if (p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX || p.batches > INT32_MAX) return false;
    *blas = (ct_cuda_blas_product){.dtype = dtype, .a = p.a, .b = p.b, .c = p.c, .m = p.m, .n = p.n, .k = p.k};
    blas->batches = p.batches;
    blas->tf32 = ct_cuda_tf32(call);
    if (p.batch_dims) blas->a_batch = p.a_batch[0], blas->b_batch = p.b_batch[0], blas->c_batch = p.c_batch[0];
    if (blas->a_batch < 0 || blas->b_batch < 0 || blas->c_batch < 0) return false;
    return lies_well(p.m, p.k, p.a_row, p.a_col, &blas->a_transposed, &blas->a_leading) &&
           lies_well(p.k, p.n, p.b_row, p.b_col, &blas->b_transposed, &blas->b_leading) &&
           lies_well(p.m, p.n, p.c_row, p.c_col, &c_transposed, &blas->c_leading) && !c_transposed;
}

static const char *blas_can(const ct_call *call) {
    ct_cuda_blas_product blas;
    if (call->flags & CT_CALL_LASTING) return "it could not stop for an error";
    if (!ct_cuda_blas_there()) return "there is no cuBLASLt";
    return blas_problem(call, &blas) ? NULL : "its strides or dtype";
}

static size_t blas_scratch(const ct_call *call) {
    (void)call;
    return CT_CUDA_BLAS_WORKSPACE;
}

static bool tiled_run(const ct_call *call, ct_stream *stream);

static bool blas_run(const ct_call *call, ct_stream *stream) {
    ct_cuda_blas_product blas;
    bool refused = !blas_problem(call, &blas);
    const bool ok = !refused && ct_cuda_blas_multiply(call, &blas, &refused);
    return refused ? tiled_run(call, stream) : ok;
}

/* ---- Tiles ---- */

static ct_cuda_function functions[] = {
    [CT_F32] = CT_CUDA_FUNCTION("matmul_f32"), [CT_F64] = CT_CUDA_FUNCTION("matmul_f64"),
    [CT_F16] = CT_CUDA_FUNCTION("matmul_f16"), [CT_BF16] = CT_CUDA_FUNCTION("matmul_bf16"),
    [CT_I8] = CT_CUDA_FUNCTION("matmul_i8"),   [CT_I16] = CT_CUDA_FUNCTION("matmul_i16"),
    [CT_I32] = CT_CUDA_FUNCTION("matmul_i32"), [CT_I64] = CT_CUDA_FUNCTION("matmul_i64"),
    [CT_U8] = CT_CUDA_FUNCTION("matmul_u8"),
};

static const char *tiled_can(const ct_call *call) {
    return call->in[0]->dtype <= CT_U8 ? NULL : "there is no product of this dtype";
}

static bool tiled_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_product p = problem(call);
    if (p.m == 0 || p.n == 0 || p.batches == 0) return true;
    const int64_t tiles = (p.m + CT_CUDA_TILE - 1) / CT_CUDA_TILE * ((p.n + CT_CUDA_TILE - 1) / CT_CUDA_TILE);
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, tiles * p.batches * 256, 256), .block = 256};
    return ct_cuda_launch(call, &functions[call->in[0]->dtype], shape, &p);
}

CT_CUDA_KERNELS(matmul_matmul) = {
    CT_CANDIDATES(matmul, {"cublaslt", blas_can, blas_scratch, blas_run}, {"tiles", tiled_can, NULL, tiled_run}),
    {0},
};
