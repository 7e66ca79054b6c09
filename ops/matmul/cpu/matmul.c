/* matmul and linear on the packed engine: views become strides, batches and epilogues. */
#include "backends/cpu/activate.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/kernel.h"
#include "core/sized.h"

#include "gen/matmul.attrs.h"

static bool gemm_type(ct_dtype dtype, ct_gemm_type *type) {
    static const signed char types[CT_DTYPE_COUNT] = {
        [CT_F32] = CT_GEMM_F32, [CT_F64] = CT_GEMM_F64, [CT_F16] = CT_GEMM_F16, [CT_BF16] = CT_GEMM_BF16,
        [CT_I8] = CT_GEMM_I8,   [CT_I16] = CT_GEMM_I16, [CT_I32] = CT_GEMM_I32, [CT_I64] = CT_GEMM_I64,
        [CT_U8] = CT_GEMM_U8,   [CT_BOOL] = -1,         [CT_U16] = -1,          [CT_U32] = -1,
        [CT_U64] = -1,          [CT_F8E4M3] = -1,       [CT_F8E5M2] = -1,       [CT_COMPLEX64] = -1,
    };
    if (types[dtype] < 0) return false;
    *type = (ct_gemm_type)types[dtype];
    return true;
}

/* Folds batch dimension i into the rows when b and the bias are the same for all of it and rows follow each other at
 * one distance. */
static void fold_batches(ct_gemm *g) {
    while (g->batch_dims > 0) {
        int i = g->batch_dims - 1;
        bool fits = g->b_batch[i] == 0 && g->a_batch[i] == g->m * g->a_row && g->c_batch[i] == g->m * g->c_row;
        if (g->batch[i] != 1 && !fits) return;
        g->m *= g->batch[i];
        g->batch_dims--;
    }
}

static bool matmul_problem(const ct_call *call, ct_gemm *g) {
    const ct_view *a = call->in[0], *b = call->in[1], *y = call->out[0];
    ct__clear(g, sizeof *g);
    if (!gemm_type(a->dtype, &g->a_type) || !gemm_type(b->dtype, &g->b_type) || !gemm_type(y->dtype, &g->c_type))
        return false;
    size_t size = ct_dtype_size(a->dtype);
    g->a = ct__address(a, size);
    g->b = ct__address(b, size);
    g->c = ct__address(y, size);
    bool a_row = a->ndim == 1, b_column = b->ndim == 1;
    g->m = a_row ? 1 : a->dims[a->ndim - 2];
    g->k = a->dims[a->ndim - 1];
    g->n = b_column ? 1 : b->dims[b->ndim - 1];
    g->a_row = a_row ? 0 : a->strides[a->ndim - 2];
    g->a_col = a->strides[a->ndim - 1];
    g->b_row = b->strides[b_column ? 0 : b->ndim - 2];
    g->b_col = b_column ? 0 : b->strides[b->ndim - 1];
    int matrix = !a_row + !b_column, batch = y->ndim - matrix;
    g->c_row = a_row ? g->n : y->strides[batch];
    g->c_col = b_column ? 1 : y->strides[y->ndim - 1];
    int a_first = batch - (a->ndim - 2), b_first = batch - (b->ndim - 2);
    for (int i = 0; i < batch; i++) {
        int ia = i - a_first, ib = i - b_first;
        g->batch[i] = y->dims[i];
        g->c_batch[i] = y->strides[i];
        g->a_batch[i] = a->ndim > 2 && ia >= 0 && a->dims[ia] != 1 ? a->strides[ia] : 0;
        g->b_batch[i] = b->ndim > 2 && ib >= 0 && b->dims[ib] != 1 ? b->strides[ib] : 0;
    }
    g->batch_dims = batch;
    fold_batches(g);
    return true;
}

static const char *matmul_can(const ct_call *call) {
    ct_gemm g;
    return matmul_problem(call, &g) ? NULL : "the engine has no product of this dtype";
}

static size_t matmul_scratch(const ct_call *call) {
    ct_gemm g;
    return matmul_problem(call, &g) ? ct__gemm_scratch(&g) : 0;
}

static bool matmul_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_gemm g;
    return matmul_problem(call, &g) && ct__gemm(&g, ct__scratch(call));
}

/* ---- linear ---- */

static bool linear_problem(const ct_call *call, ct_gemm *g) {
    const linear_fused_attrs *attrs = call->attrs;
    const ct_view *x = call->in[0], *w = call->in[1], *bias = call->in[2], *y = call->out[0];
    ct__clear(g, sizeof *g);
    if (!gemm_type(x->dtype, &g->a_type)) return false;
    if (bias && bias->dims[0] > 1 && bias->strides[0] != 1) return false;
    g->b_type = g->c_type = g->bias_type = g->a_type;
    size_t size = ct_dtype_size(x->dtype);
    g->a = ct__address(x, size); /* (..., in) */
    g->b = ct__address(w, size); /* (out, in), read as its transpose */
    g->c = ct__address(y, size);
    g->bias_col = bias ? ct__address(bias, size) : NULL;
    int last = x->ndim - 1;
    g->k = x->dims[last];
    g->n = w->dims[0];
    g->m = last ? x->dims[last - 1] : 1;
    g->a_col = x->strides[last];
    g->a_row = last ? x->strides[last - 1] : 0;
    g->b_row = w->strides[1];
    g->b_col = w->strides[0];
    g->c_col = y->strides[last];
    g->c_row = last ? y->strides[last - 1] : g->n;
    for (int i = 0; i < last - 1; i++) {
        g->batch[i] = x->dims[i];
        g->a_batch[i] = x->strides[i];
        g->c_batch[i] = y->strides[i];
    }
    g->batch_dims = last > 1 ? last - 1 : 0;
    g->activate = CT_ISA_FN(ct__activation)(x->dtype, (int)attrs->activation);
    fold_batches(g);
    return g->batch_dims <= CT_GEMM_BATCH_DIMS;
}

static const char *linear_can(const ct_call *call) {
    ct_gemm g;
    return linear_problem(call, &g) ? NULL : "the bias is not contiguous, or there are too many batch dimensions";
}

static size_t linear_scratch(const ct_call *call) {
    ct_gemm g;
    return linear_problem(call, &g) ? ct__gemm_scratch(&g) : 0;
}

static bool linear_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_gemm g;
    return linear_problem(call, &g) && ct__gemm(&g, ct__scratch(call));
}

CT_KERNELS(matmul_matmul) = {
    CT_CANDIDATES(matmul, {"gemm", matmul_can, matmul_scratch, matmul_run}),
    CT_CANDIDATES(linear_fused, {"gemm_epilogue", linear_can, linear_scratch, linear_run}),
    {0},
};
