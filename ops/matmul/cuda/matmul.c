/* matmul on CUDA: views become strides and batches, for cuBLASLt where its layouts allow it, else for tiles of our own. */
#include "backends/cuda/aside.h"
#include "backends/cuda/product.h"

#include "gen/matmul.attrs.h"

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
    ct_cuda_product_fold(&p);
    return p;
}

/* The library takes one dimension of batches: the products of the others are enqueued one by one, if they are few. Takes away all but the
 * last; returns how many products there are. */
enum { MOST_PRODUCTS = 64 };
static int64_t split(ct_cuda_product *p, ct_cuda_product *one) {
    const int last = p->batch_dims - 1;
    *one = *p;
    if (last < 1) return 1;
    one->batch_dims = 1;
    one->batch[0] = one->batches = p->batch[last];
    one->a_batch[0] = p->a_batch[last];
    one->b_batch[0] = p->b_batch[last];
    one->c_batch[0] = p->c_batch[last];
    return one->batches ? p->batches / one->batches : 0;
}

static bool blas_problem(const ct_call *call, ct_cuda_product *p, int64_t *products, ct_cuda_blas_product *blas) {
    ct_cuda_product one;
    *p = problem(call);
    *products = split(p, &one);
    return *products <= MOST_PRODUCTS && ct_cuda_product_to_blas(call, &one, call->in[0]->dtype, blas);
}

static const char *blas_can(const ct_call *call) {
    ct_cuda_blas_product blas;
    ct_cuda_product p;
    int64_t products;
    if (call->flags & CT_CALL_LASTING) return "it could not stop for an error";
    if (!ct_cuda_blas_there()) return "there is no cuBLASLt";
    return blas_problem(call, &p, &products, &blas) ? NULL : "its strides or dtype";
}

static size_t blas_scratch(const ct_call *call) {
    ct_cuda_blas_product blas;
    ct_cuda_product p;
    int64_t products;
    size_t workspace = 0;
    if (blas_problem(call, &p, &products, &blas)) ct_cuda_blas_takes(call, &blas, &workspace);
    return workspace;
}

static const char *tiles_can(const ct_call *call) {
    return call->in[0]->dtype <= CT_U8 ? NULL : "there is no product of this dtype";
}

static bool tiles_run(const ct_call *call, ct_stream *stream) {
    (void)stream;
    ct_cuda_product p = problem(call);
    return ct_cuda_product_tiles(call, &p, call->in[0]->dtype);
}

static bool blas_run(const ct_call *call, ct_stream *stream) {
    ct_cuda_blas_product blas;
    ct_cuda_product p;
    int64_t products;
    bool refused = !blas_problem(call, &p, &products, &blas), ok = true;
    const int64_t size = (int64_t)ct_cuda_dtype_size(blas.dtype);
    for (int64_t i = 0; i < products && ok && !refused; i++) {
        int64_t rest = i, a = 0, b = 0, c = 0;
        for (int d = p.batch_dims - 2; d >= 0; d--) {
            const int64_t at = rest % p.batch[d];
            rest /= p.batch[d];
            a += at * p.a_batch[d];
            b += at * p.b_batch[d];
            c += at * p.c_batch[d];
        }
        ct_cuda_blas_product one = blas;
        one.a += a * size;
        one.b += b * size;
        one.c += c * size;
        ok = ct_cuda_blas_multiply(call, &one, ct_cuda_scratch(call), call->scratch.bytes, &refused);
    }
    return refused ? tiles_run(call, stream) : ok; /* all of them anew */
}

/* Where the result has strides that the library does not take, or its memory is not to be touched after an error. */
static const char *aside_can(const ct_call *call) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return blas_can(&aside.call);
}

static size_t aside_scratch(const ct_call *call) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return aside.bytes + blas_scratch(&aside.call);
}

static bool aside_run(const ct_call *call, ct_stream *stream) {
    ct_cuda_aside aside;
    ct_cuda_aside_begin(call, &aside);
    return blas_run(&aside.call, stream) && ct_cuda_aside_end(call, &aside);
}

CT_CUDA_KERNELS(matmul_matmul) = {
    CT_CANDIDATES(matmul, {"cublaslt", blas_can, blas_scratch, blas_run},
                  {"cublaslt_aside", aside_can, aside_scratch, aside_run}, {"tiles", tiles_can, NULL, tiles_run}),
    {0},
};
