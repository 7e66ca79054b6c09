/* A convolution of one tap, stride 1 and no padding, of images that lie packed with channels last, is a product of matrices: with P the
 * pixels of all images, y [P,K] = x [P,C] w [C,K], x' = y' w', w' = x' y'. It takes the filter as it lies. */
#include "ops/conv/cuda/dnn/plan.h"

#ifdef CT_CUDA_DNN
#include <string.h>

/* A matrix whose rows, or where it is transposed whose columns, are dense. */
static bool operand(int64_t rows, int64_t columns, int64_t row, int64_t column, bool *transposed, int64_t *leading) {
    *transposed = !(column == 1 || columns == 1);
    if (!*transposed) *leading = rows > 1 ? row : columns;
    else if (row == 1 || rows == 1) *leading = columns > 1 ? column : rows;
    else return false;
    return *leading >= (*transposed ? rows : columns);
}

static bool is_plain(const ct_conv_problem *p, const ct_conv_key *k) {
    const ct_view *w = &p->views[CT_CONV_W];
    for (int d = 0; d < p->rank; d++)
        if (w->dims[2 + d] != 1 || p->stride[d] != 1 || p->before[d] || p->after[d]) return false;
    if ((uintptr_t)ct_cuda_address(w) % CT_DNN_ALIGNMENT) return false;
    /* cuBLASLt may round a half result before it adds the bias */
    if (ct_conv_is_half(w->dtype) && ct_conv_has_more(p)) return false;
    return k->lies[1][CT_CONV_X] && k->lies[1][CT_CONV_Y] && !k->lasting && w->dims[1] == p->views[CT_CONV_X].dims[1];
}

bool ct_conv_product(const ct_conv_problem *p, const ct_conv_key *k, ct_cuda_blas_product *b) {
    const ct_view *x = &p->views[CT_CONV_X], *w = &p->views[CT_CONV_W], *y = &p->views[CT_CONV_Y];
    const int64_t in = w->dims[1], out = w->dims[0], pixels = ct_cuda_count(x) / in, w_in = w->strides[1],
                  w_out = w->strides[0];
    bool transposed;
    if (!is_plain(p, k) || p->has_residual || p->activation > CT_ACT_RELU || (p->bias && !k->packed_bias)) return false;
    memset(b, 0, sizeof *b);
    b->dtype = b->c_dtype = x->dtype;
    b->tf32 = k->tf32 != 0;
    b->epilogue = p->bias         ? p->activation ? CT_CUDA_BIAS_RELU : CT_CUDA_BIAS
                  : p->activation ? CT_CUDA_RELU
                                  : CT_CUDA_PLAIN;
    b->bias = p->bias ? ct_cuda_address(p->bias) : NULL;
    b->batches = 1;
    if (p->kind == CT_CONV_WEIGHT_GRAD) {
        b->a_transposed = true, b->k = pixels, b->c = ct_cuda_address(w);
        if (operand(in, out, w_in, w_out, &transposed, &b->c_leading) && !transposed) {
            b->m = in, b->a = ct_cuda_address(x), b->a_leading = in;
            b->n = out, b->b = ct_cuda_address(y), b->b_leading = out;
            return true;
        }
        b->m = out, b->a = ct_cuda_address(y), b->a_leading = out;
        b->n = in, b->b = ct_cuda_address(x), b->b_leading = in;
        return operand(out, in, w_out, w_in, &transposed, &b->c_leading) && !transposed;
    }
    const bool forward = p->kind == CT_CONV_FORWARD;
    const ct_view *from = forward ? x : y, *to = forward ? y : x;
    b->m = pixels, b->k = forward ? in : out, b->n = forward ? out : in;
    b->a = ct_cuda_address(from), b->a_leading = b->k;
    b->c = ct_cuda_address(to), b->c_leading = b->n;
    b->b = ct_cuda_address(w);
    return operand(b->k, b->n, forward ? w_in : w_out, forward ? w_out : w_in, &b->b_transposed, &b->b_leading);
}
#endif
