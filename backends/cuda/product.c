/* Products on the host's side: strides and batches, and tiles of our own. */
#include "backends/cuda/product.h"

#include "backends/cuda/tune.h"

CT_CUDA_UNIT(backend_product);

void ct_cuda_product_fold(ct_cuda_product *p) {
    while (p->batch_dims > 0) {
        const int i = p->batch_dims - 1;
        const bool fits = p->b_batch[i] == 0 && p->a_batch[i] == p->m * p->a_row && p->c_batch[i] == p->m * p->c_row;
        if (p->batch[i] != 1 && !fits) break;
        p->m *= p->batch[i];
        p->batch_dims--;
    }
    int kept = 0;
    p->batches = 1;
    for (int i = 0; i < p->batch_dims; i++) {
        const int64_t size = p->batch[i], last = kept - 1;
        p->batches *= size;
        if (size == 1) continue;
        const bool joins = kept && p->a_batch[last] == p->a_batch[i] * size &&
                           p->b_batch[last] == p->b_batch[i] * size && p->c_batch[last] == p->c_batch[i] * size;
        const int at = joins ? (int)last : kept++;
        p->batch[at] = joins ? p->batch[at] * size : size;
        p->a_batch[at] = p->a_batch[i];
        p->b_batch[at] = p->b_batch[i];
        p->c_batch[at] = p->c_batch[i];
    }
    p->batch_dims = kept;
}

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

bool ct_cuda_product_to_blas(const ct_call *call, const ct_cuda_product *p, ct_dtype dtype,
                             ct_cuda_blas_product *blas) {
    bool c_transposed;
    if (dtype > CT_BF16 || p->batch_dims > 1 || p->m < 1 || p->n < 1 || p->k < 1 || p->batches < 1) return false;
    if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->batches > INT32_MAX) return false;
    *blas = (ct_cuda_blas_product){.dtype = dtype,
                                   .c_dtype = p->wide ? CT_F32 : dtype,
                                   .tf32 = dtype == CT_F32 && ct_cuda_tf32(call),
                                   .a = p->a,
                                   .b = p->b,
                                   .c = p->c,
                                   .m = p->m,
                                   .n = p->n,
                                   .k = p->k,
                                   .batches = p->batches};
    if (p->batch_dims) {
        blas->a_batch = p->a_batch[0];
        blas->b_batch = p->b_batch[0];
        blas->c_batch = p->c_batch[0];
    }
    if (blas->a_batch < 0 || blas->b_batch < 0 || blas->c_batch < 0) return false;
    return lies_well(p->m, p->k, p->a_row, p->a_col, &blas->a_transposed, &blas->a_leading) &&
           lies_well(p->k, p->n, p->b_row, p->b_col, &blas->b_transposed, &blas->b_leading) &&
           lies_well(p->m, p->n, p->c_row, p->c_col, &c_transposed, &blas->c_leading) && !c_transposed;
}

static ct_cuda_function functions[] = {
    [CT_F32] = CT_CUDA_FUNCTION("product_f32"), [CT_F64] = CT_CUDA_FUNCTION("product_f64"),
    [CT_F16] = CT_CUDA_FUNCTION("product_f16"), [CT_BF16] = CT_CUDA_FUNCTION("product_bf16"),
    [CT_I8] = CT_CUDA_FUNCTION("product_i8"),   [CT_I16] = CT_CUDA_FUNCTION("product_i16"),
    [CT_I32] = CT_CUDA_FUNCTION("product_i32"), [CT_I64] = CT_CUDA_FUNCTION("product_i64"),
    [CT_U8] = CT_CUDA_FUNCTION("product_u8"),
};

bool ct_cuda_product_tiles(const ct_call *call, ct_cuda_product *p, ct_dtype dtype) {
    if (p->m == 0 || p->n == 0 || p->batches == 0) return true;
    const int64_t tiles = (p->m + CT_CUDA_PRODUCT_TILE - 1) / CT_CUDA_PRODUCT_TILE *
                          ((p->n + CT_CUDA_PRODUCT_TILE - 1) / CT_CUDA_PRODUCT_TILE);
    const ct_cuda_shape shape = {.grid = ct_cuda_blocks(call, tiles * p->batches * 256, 256), .block = 256};
    return ct_cuda_launch(call, &functions[dtype], shape, p);
}
