/* matmul on WebGPU: views become strides and batches. */
#include "backends/webgpu/product.h"

#include "gen/matmul.attrs.h"

CT_WGPU_UNIT(matmul_wide);

static ct_wgpu_product problem(const ct_call *call) {
    const ct_view *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const bool a_vector = a->ndim == 1, b_vector = b->ndim == 1;
    const int batch = y->ndim - !a_vector - !b_vector, a_first = batch - (a->ndim - 2), b_first = batch - (b->ndim - 2);
    ct_wgpu_product p = {.a = a, .b = b, .c = y, .batch_dims = batch};
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
    ct_wgpu_product_fold(&p);
    return p;
}

static const char *tiles_can(const ct_call *call) {
    const ct_wgpu_product p = problem(call);
    const char *reason = ct_wgpu_refuses(call);
    return reason ? reason : ct_wgpu_product_refuses(&p);
}

static size_t tiles_scratch(const ct_call *call) {
    const ct_wgpu_product p = problem(call);
    return ct_wgpu_product_scratch(&p);
}

static bool tiles_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_product p = problem(call);
    return ct_wgpu_product_run(call, &p, 0);
}

/* ---- Pairs of words: an invocation computes an element ---- */

typedef struct wide_params {
    uint32_t m, n, k, batches, batch_dims, a_row, a_col, b_row, b_col, c_row, c_col, pad;
    uint32_t batch[CT_WGPU_DIMS], a_batch[CT_WGPU_DIMS], b_batch[CT_WGPU_DIMS], c_batch[CT_WGPU_DIMS];
} wide_params;

static const char *wide_can(const ct_call *call) {
    const char *reason = ct_wgpu_refuses(call);
    return reason ? reason : call->in[0]->dtype == CT_I64 ? NULL : "it is for i64";
}

static bool wide_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    const ct_wgpu_product p = problem(call);
    wide_params s = {.m = (uint32_t)p.m,
                     .n = (uint32_t)p.n,
                     .k = (uint32_t)p.k,
                     .batches = (uint32_t)p.batches,
                     .batch_dims = (uint32_t)p.batch_dims,
                     .a_row = (uint32_t)p.a_row,
                     .a_col = (uint32_t)p.a_col,
                     .b_row = (uint32_t)p.b_row,
                     .b_col = (uint32_t)p.b_col,
                     .c_row = (uint32_t)p.c_row,
                     .c_col = (uint32_t)p.c_col};
    for (int i = 0; i < p.batch_dims; i++) {
        s.batch[i] = (uint32_t)p.batch[i];
        s.a_batch[i] = (uint32_t)p.a_batch[i];
        s.b_batch[i] = (uint32_t)p.b_batch[i];
        s.c_batch[i] = (uint32_t)p.c_batch[i];
    }
    ct_wgpu_launch launch = ct_wgpu_begin(&unit, "product", 256);
    ct_wgpu_in(&launch, "a", p.a);
    ct_wgpu_in(&launch, "b", p.b);
    ct_wgpu_out(&launch, "c", p.c);
    return ct_wgpu_enqueue(call, &launch, ct_wgpu_groups(p.m * p.n * p.batches, 256), &s, sizeof s);
}

CT_WGPU_KERNELS(matmul_matmul) = {
    CT_CANDIDATES(matmul, {"tiles", tiles_can, tiles_scratch, tiles_run}, {"wide", wide_can, NULL, wide_run}),
    {0},
};
