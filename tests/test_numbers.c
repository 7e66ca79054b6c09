/* Numbers as arguments of ops, and operands that broadcast: no tensor is made for either unless a gradient needs it. */
#include "tests/harness.h"

static ct_tensor *grad_of(ct_tensor *y, ct_tensor *x, unsigned flags) {
    ct_tensor *g = NULL, *sum = ct_sum(y);
    return ct_grad(&sum, 1, NULL, &x, 1, &g, flags) ? g : NULL;
}

TEST(a_number_makes_no_tensor_beside_the_result) {
    ct_tensor *x = F32(CT_DIMS(2, 2), 1, 2, 3, 4), *row = F32(CT_DIMS(2), 10, 20);
    ct_add(x, x); /* the scope has room from here on */
    const int64_t before = ct_live_objects();
    ct_tensor *y = ct_rsub_s(x, 10);
    CHECK(ct_live_objects() == before + 1);
    ct_tensor *z = ct_add(x, row);
    CHECK(ct_live_objects() == before + 2);
    CHECK_VALUES(y, CT_DIMS(2, 2), 0, 9, 8, 7, 6);
    CHECK_VALUES(z, CT_DIMS(2, 2), 0, 11, 22, 13, 24);
}

static ct_tensor *scaled(ct_tensor *x, double by) { return ct_mul_s(x, by); } /* whose stack is gone afterwards */

TEST(a_graph_keeps_the_numbers_that_its_gradients_read) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true);
    ct_tensor *y = ct_mul(scaled(x, 7), scaled(x, 2)), *first = grad_of(y, x, CT_CREATE_GRAPH);
    scaled(x, 1000); /* other numbers where those were */
    CHECK_VALUES(first, CT_DIMS(2), 1e-12, 84, 140);
    CHECK_VALUES(grad_of(first, x, 0), CT_DIMS(2), 1e-12, 28, 28);
}

TEST(a_smaller_operand_without_a_gradient_is_saved_as_it_is) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, 3, 4), true), *row = F64(CT_DIMS(2), 10, 20);
    ct_tensor *y = ct_pow(x, ct_div(ct_add_s(row, 10), F64(CT_DIMS(2, 1), 10, 10)));
    CHECK_VALUES(grad_of(y, x, 0), CT_DIMS(2, 2), 1e-12, 2, 12, 6, 48);
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true);
    CHECK_VALUES(grad_of(ct_mul(x, w), w, 0), CT_DIMS(2), 1e-12, 4, 6); /* what wants a gradient is summed */
    CHECK_VALUES(grad_of(ct_mul(row, ct_mul(x, w)), w, 0), CT_DIMS(2), 1e-12, 40, 120);
}

static bool squares(void *context, ct_tensor *const *in, int n, ct_tensor **out, int m) {
    (void)context, (void)n, (void)m;
    out[0] = ct_mul(ct_mul_s(in[0], 3), ct_add_s(in[0], 1));
    return out[0] != NULL;
}

TEST(a_checkpoint_computes_numbers_again) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(2), 2, 4), true), *y = NULL;
    CHECK(ct_checkpoint(squares, NULL, NULL, &x, 1, &y, 1));
    ct_tensor *first = grad_of(y, x, CT_CREATE_GRAPH); /* 6 x + 3 */
    CHECK_VALUES(first, CT_DIMS(2), 1e-12, 15, 27);
    CHECK_VALUES(grad_of(first, x, 0), CT_DIMS(2), 1e-12, 6, 6);
}

TEST(a_number_has_the_dtype_of_its_tensor) {
    ct_tensor *half = ct_cast(F32(CT_DIMS(2), 1, 2), CT_F16);
    CHECK(ct_dtype_of(ct_add_s(half, 0.5)) == CT_F16);
    CHECK_VALUES(ct_cast(ct_add_s(half, 0.5), CT_F32), CT_DIMS(2), 0, 1.5, 2.5);
    ct_tensor *whole = ct_cast(F32(CT_DIMS(2), 1, 2), CT_I64);
    CHECK(ct_add_s(whole, 0.5) == NULL && ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
    CHECK(ct_dtype_of(ct_add_s(whole, 4)) == CT_I64);
    CHECK_VALUES(ct_cast(ct_div_s(whole, 4), CT_F32), CT_DIMS(2), 0, 0.25,
                 0.5); /* integers become f32, the number too */
    const ct_dtype before = ct_set_autocast(CT_BF16);
    CHECK_VALUES(ct_mul_s(F32(CT_DIMS(2), 1, 2), 0.1), CT_DIMS(2), 1e-7, 0.1, 0.2);
    ct_set_autocast(before);
}

TEST(a_leaf_that_is_filled_is_named_by_fill) {
    ct_tensor *w = ct_set_requires_grad(ct_ones(CT_DIMS(2)), true);
    CHECK(ct_fill(w, 1) == NULL);
    CHECK_TEXT(ct_error_op(), "fill");
    ct_error_clear();
}
