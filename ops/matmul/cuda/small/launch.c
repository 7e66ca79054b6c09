/* Small products on the host's side: which they are, and their launches. A product whose time is that of a launch is best off with one: the
 * library takes two or three (parts of k and their sum, sums of columns), with what lies between them. */
#include "ops/matmul/cuda/small.h"

#include "backends/cuda/cuda.h"

CT_CUDA_OVERLAPPING_UNIT(matmul_small);

enum {
    NARROW = 16,
    LARGE = 64,       /* sides of tiles */
    MOST_TILES = 300, /* about two for each multiprocessor of a large device, which run at one time */
    NARROW_DEPTH = 1024,
    LARGE_DEPTH = 128 /* k at most */
};

static int64_t tiles_of(const ct_cuda_product *p, int64_t side) {
    return ct_cuda_ceil_div(p->m, side) * ct_cuda_ceil_div(p->n, side);
}

/* Lines of `length` elements, in packs of four. */
static bool is_packed(const void *at, int64_t step, int64_t length) {
    return ct_cuda_is_aligned(at) && step % 4 == 0 && length % 4 == 0;
}

bool ct_small_product_of(const ct_call *call, const ct_cuda_product *p, const char *y, bool a_by_k, bool b_by_k,
                         ct_small_product *small) {
    const ct_cuda_device *d = ct_cuda_device_at(call->device.index);
    const bool narrow =
                   p->m < INT32_MAX && p->n < INT32_MAX && p->k <= NARROW_DEPTH && tiles_of(p, NARROW) <= MOST_TILES,
               large = p->k <= LARGE_DEPTH && tiles_of(p, LARGE) <= MOST_TILES;
    if (p->m < 1 || p->n < 1 || p->k < 1) return false;
    if (!d || d->shared_limit < CT_SMALL_SHARED || p->batches != 1 || p->batch_dims || (!narrow && !large))
        return false;
    if ((a_by_k ? p->a_col : p->a_row) != 1 || (b_by_k ? p->b_row : p->b_col) != 1 || p->c_col != 1) return false;
    *small = (ct_small_product){.a = (const float *)(const void *)p->a,
                                .b = (const float *)(const void *)p->b,
                                .y = (const float *)(const void *)y,
                                .bias = (const float *)(const void *)p->bias,
                                .c = (float *)(void *)p->c,
                                .a_step = a_by_k ? p->a_row : p->a_col,
                                .b_step = b_by_k ? p->b_col : p->b_row,
                                .c_step = p->c_row,
                                .m = (int32_t)p->m,
                                .n = (int32_t)p->n,
                                .k = (int32_t)p->k,
                                .large = !narrow,
                                .activation = p->activation};
    const int64_t side = narrow ? NARROW : LARGE;
    small->tiles = (int32_t)tiles_of(p, side);
    small->tiles_across = (int32_t)ct_cuda_ceil_div(p->n, side);
    small->a_packed = is_packed(small->a, small->a_step, a_by_k ? p->k : p->m) && (!y || ct_cuda_is_aligned(y));
    small->b_packed = is_packed(small->b, small->b_step, b_by_k ? p->k : p->n);
    small->c_packed = is_packed(small->c, small->c_step, p->n);
    return true;
}

static bool launch(const ct_call *call, ct_cuda_function *function, ct_linear_small *a) {
    const ct_cuda_shape shape = {.grid = (unsigned)(a->products[0].tiles + a->products[1].tiles),
                                 .block = CT_SMALL_THREADS,
                                 .shared = CT_SMALL_SHARED};
    return ct_cuda_launch(call, function, shape, a);
}

bool ct_small_forward(const ct_call *call, const ct_small_product *product) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("small_forward");
    ct_linear_small a = {.products = {*product}};
    return launch(call, &function, &a);
}

bool ct_small_gradients(const ct_call *call, const ct_small_product *dx, const ct_small_product *dw) {
    static ct_cuda_function function = CT_CUDA_FUNCTION("small_gradients");
    ct_linear_small a = {.head = {0}};
    if (dx) a.products[0] = *dx;
    if (dw) a.products[1] = *dw;
    return launch(call, &function, &a);
}
