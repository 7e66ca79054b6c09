/* Views, versions, changes in place (recorded or refused), and destinations for results (ct_into). */
#include <math.h>
#include <string.h>

#include "tests/harness.h"

TEST(a_change_through_a_view_is_seen_by_all_views) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3)), *column = ct_select(x, 1, 1);
    CHECK(ct_fill(column, 5) == column);
    CHECK_VALUES(x, CT_DIMS(2, 3), 0, 0, 5, 0, 0, 5, 0);
    ct_add_(ct_t(x), F32(CT_DIMS(3, 1), 1, 2, 3));
    CHECK_VALUES(x, CT_DIMS(2, 3), 0, 1, 7, 3, 1, 7, 3);
    CHECK_VALUES(column, CT_DIMS(2), 0, 7, 7);
}

TEST(in_place_ops_return_their_argument_and_broadcast) {
    ct_tensor *x = F32(CT_DIMS(2, 2), 1, 2, 3, 4);
    CHECK(ct_add_(x, F32(CT_DIMS(2), 10, 20)) == x);
    CHECK_VALUES(x, CT_DIMS(2, 2), 0, 11, 22, 13, 24);
    CHECK(ct_sub_(x, ct_scalar(1, CT_F32)) == x);
    CHECK(ct_mul_(x, ct_scalar(2, CT_F32)) == x);
    CHECK(ct_div_(x, F32(CT_DIMS(2, 1), 2, 4)) == x);
    CHECK_VALUES(x, CT_DIMS(2, 2), 0, 10, 21, 6, 11.5);
    CHECK(ct_assign(x, F64(CT_DIMS(2), 5, 6)) == x); /* casts and broadcasts */
    CHECK_VALUES(x, CT_DIMS(2, 2), 0, 5, 6, 5, 6);
    CHECK(ct_zero(x) == x);
    CHECK_VALUES(x, CT_DIMS(2, 2), 0, 0, 0, 0, 0);
    CHECK(ct_add_(x, ct_ones(CT_DIMS(3))) == NULL);
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
}

TEST(a_tensor_may_be_its_own_operand) {
    ct_tensor *x = F32(CT_DIMS(3), 1, 2, 3);
    CHECK(ct_add_(x, x) == x);
    CHECK_VALUES(x, CT_DIMS(3), 0, 2, 4, 6);
    CHECK(ct_mul_(x, x) == x);
    CHECK_VALUES(x, CT_DIMS(3), 0, 4, 16, 36);
    ct_tensor *m = F32(CT_DIMS(2, 2), 1, 2, 3, 4);
    CHECK(ct_add_(m, ct_t(m)) == m); /* overlapping in another order: as if the operand had been copied */
    CHECK_VALUES(m, CT_DIMS(2, 2), 0, 2, 5, 5, 8);
    ct_tensor *row = F32(CT_DIMS(4), 1, 2, 3, 4);
    CHECK(ct_assign(ct_narrow(row, 0, 1, 3), ct_narrow(row, 0, 0, 3)) != NULL);
    CHECK_VALUES(row, CT_DIMS(4), 0, 1, 1, 2, 3);
}

TEST(changes_in_place_are_recorded) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *y = ct_mul(w, w);
    ct_tensor *doubled = ct_mul_s(w, 2);
    ct_add_(doubled, y); /* 2w + w^2 */
    ct_mul_(doubled, F64(CT_DIMS(2), 1, 10));
    CHECK(ct_backward(ct_sum(doubled)));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(2), 1e-12, 2 + 6, 10 * (2 + 10));
}

TEST(overwriting_with_a_constant_cuts_the_gradient) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *y = ct_mul_s(w, 4);
    ct_fill(y, 1);
    CHECK(!ct_requires_grad(y));
    CHECK_VALUES(y, CT_DIMS(2), 0, 1, 1);
}

TEST(a_leaf_that_requires_grad_is_changed_only_under_no_grad) {
    ct_tensor *w = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true);
    CHECK(ct_add_(w, ct_ones(CT_DIMS(2))) == NULL);
    CHECK_ERROR(CT_ERR_GRAD,
                "add_: a leaf that requires grad cannot be changed in place while recording; put it into ct_no_grad");
    CHECK_VALUES(w, CT_DIMS(2), 0, 1, 2);
    ct_no_grad {
        CHECK(ct_add_(w, ct_ones(CT_DIMS(2))) == w);
    }
    CHECK_VALUES(w, CT_DIMS(2), 0, 2, 3);
    CHECK(ct_requires_grad(w) && ct_is_leaf(w));
}

TEST(changing_what_backward_needs_is_an_error_that_names_op_and_argument) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *x = F64(CT_DIMS(2), 1, 2);
    ct_tensor *y = ct_sum(ct_mul(w, x));
    ct_fill(x, 7);
    CHECK(!ct_backward(y));
    CHECK_ERROR(CT_ERR_GRAD, "mul: argument b was changed in place after the op ran, and its gradient needs the old "
                             "values; clone it first, or change it out of place");
    CHECK(ct_grad_of(w) == NULL);
}

TEST(changing_a_result_that_backward_needs_names_the_result) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *y = ct_exp(w), *z = ct_sum(y);
    ct_no_grad {
        ct_fill(y, 7);
    }
    CHECK(!ct_backward(z));
    CHECK_ERROR(CT_ERR_GRAD, "exp: result y was changed in place after the op ran, and its gradient needs the old "
                             "values; clone it first, or change it out of place");
}

TEST(changing_something_that_backward_does_not_need_is_fine) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *x = F64(CT_DIMS(2), 1, 2);
    ct_tensor *y = ct_sum(ct_add(w, x));
    ct_fill(x, 7); /* the gradient of a sum needs neither */
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(2), 0, 1, 1);
}

TEST(a_change_through_a_view_counts_as_well) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2, 2), 1, 2, 3, 4), true), *x = F64(CT_DIMS(2, 2), 1, 2, 3, 4);
    ct_tensor *y = ct_sum(ct_mul(w, x));
    ct_fill(ct_select(x, 0, 1), 0);
    CHECK(!ct_backward(y));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(data_mut_tells_autograd_and_data_does_not) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(1), 3), true), *x = F64(CT_DIMS(1), 2), *y = ct_mul(w, x),
              *z = ct_mul(w, x);
    CHECK(*(const double *)ct_data(x) == 2);
    CHECK(ct_backward(y));
    *(double *)ct_data_mut(x) = 10;
    CHECK(!ct_backward(z));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(a_view_of_memory_that_was_changed_in_place_has_the_right_gradient) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *x = F64(CT_DIMS(2), 1, 2),
              *view = ct_narrow(x, 0, 0, 1);
    REQUIRE(ct_add_(x, w) == x);
    CHECK_VALUES(view, CT_DIMS(1), 0, 4);
    CHECK(ct_backward(ct_mul_s(view, 7)));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(2), 0, 7, 0);
}

TEST(a_change_of_a_view_is_recorded_for_the_whole) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(1), 3), true),
              *v = ct_set_requires_grad(F64(CT_DIMS(2), 1, 2), true), *x = ct_mul_s(v, 10),
              *view = ct_narrow(x, 0, 1, 1);
    REQUIRE(ct_add_(view, w) == view);
    CHECK_VALUES(x, CT_DIMS(2), 0, 10, 23);
    ct_tensor *other = ct_narrow(x, 0, 0, 2), *y = ct_sum(ct_mul(other, F64(CT_DIMS(2), 10, 100)));
    CHECK(ct_backward(y));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(1), 0, 100);
    CHECK_VALUES(ct_grad_of(v), CT_DIMS(2), 0, 100, 1000);
}

TEST(rows_that_are_filled_in_turn_each_get_their_gradient) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(3), 1, 2, 3), true),
              *table = ct_zeros(CT_DIMS(4, 3), .dtype = CT_F64);
    for (int i = 0; i < 4; i++) REQUIRE(ct_assign(ct_select(table, 0, i), ct_mul_s(w, i + 1)) != NULL);
    CHECK(ct_backward(ct_sum(ct_mul(table, table))));
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(3), 1e-12, 2 * 30, 4 * 30, 6 * 30);
}

TEST(changes_in_place_can_be_differentiated_twice) {
    ct_tensor *w = ct_set_requires_grad(F64(CT_DIMS(2), 3, 5), true), *x = ct_mul(w, w), *g, *h;
    REQUIRE(ct_add_(ct_narrow(x, 0, 0, 1), ct_narrow(ct_exp(w), 0, 0, 1)) != NULL);
    ct_tensor *y = ct_sum(ct_mul(x, w)); /* w^3, and w e^w for the first */
    REQUIRE(ct_grad(&y, 1, NULL, &w, 1, &g, CT_CREATE_GRAPH));
    CHECK_VALUES(g, CT_DIMS(2), 1e-9, 27 + 4 * exp(3), 75);
    y = ct_sum(g);
    REQUIRE(ct_grad(&y, 1, NULL, &w, 1, &h, 0));
    CHECK_VALUES(h, CT_DIMS(2), 1e-9, 18 + 5 * exp(3), 30);
}

TEST(into_gives_the_next_result_a_home) {
    ct_tensor *home = ct_zeros(CT_DIMS(3)), *a = F32(CT_DIMS(3), 1, 2, 3);
    int64_t before = ct_live_objects();
    CHECK(ct_into(home));
    CHECK(ct_add(a, a) == home);
    CHECK(ct_live_objects() == before);
    CHECK_VALUES(home, CT_DIMS(3), 0, 2, 4, 6);
    CHECK(ct_add(a, a) != home); /* only the next one */
}

TEST(into_takes_a_strided_home) {
    ct_tensor *table = ct_zeros(CT_DIMS(2, 3)), *a = F32(CT_DIMS(2), 1, 2), *b = F32(CT_DIMS(2, 2), 1, 2, 3, 4);
    CHECK(ct_into(ct_select(table, 1, 2)));
    CHECK(ct_mul(a, a) != NULL);
    CHECK_VALUES(table, CT_DIMS(2, 3), 0, 0, 0, 1, 0, 0, 4);
    CHECK(ct_into(ct_select(table, 1, 0)));
    CHECK(ct_sum(b, .axes = CT_DIMS(1)) != NULL);
    CHECK_VALUES(table, CT_DIMS(2, 3), 0, 3, 0, 1, 7, 0, 4);
}

/* They are other words for matmul, which writes where it is told to. */
TEST(batched_products_go_into_their_destination_without_a_copy) {
    ct_seed(5);
    ct_tensor *a = ct_randn(CT_DIMS(200, 16, 9)), *b = ct_randn(CT_DIMS(200, 9, 16)), *y = ct_bmm(a, b);
    ct_tensor *to = ct_zeros(CT_DIMS(200, 16, 16));
    harness_reset_peak();
    const int64_t before = harness_memory().in_use;
    CHECK(ct_into(to) && ct_bmm(a, b) == to);
    CHECK(harness_memory().peak - before < 200 * 16 * 16 * 4);
    CHECK(harness_same_bits(to, y));
    ct_tensor *u = F32(CT_DIMS(2), 3, 4), *sum = ct_zeros(CT_DIMS0);
    CHECK(ct_into(sum) && ct_dot(u, u) == sum);
    CHECK_VALUES(sum, CT_DIMS0, 0, 25);
}

TEST(into_a_home_that_the_op_reads_is_safe) {
    ct_tensor *a = F32(CT_DIMS(2, 2), 1, 2, 3, 4);
    CHECK(ct_into(a));
    CHECK(ct_matmul(a, a) == a);
    CHECK_VALUES(a, CT_DIMS(2, 2), 0, 7, 10, 15, 22);
    ct_tensor *b = F32(CT_DIMS(2, 2), 1, 2, 3, 4), *turned = ct_t(b);
    CHECK(ct_into(b));
    CHECK(ct_add(turned, b) == b);
    CHECK_VALUES(b, CT_DIMS(2, 2), 0, 2, 5, 5, 8);
}

TEST(into_a_destination_that_does_not_fit_is_an_error_and_forgotten) {
    ct_tensor *home = ct_zeros(CT_DIMS(4)), *a = ct_ones(CT_DIMS(3));
    CHECK(ct_into(home));
    CHECK(ct_add(a, a) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "add: the result is f32[3] and does not fit into dst, which is f32[4]");
    CHECK(ct_add(a, a) != NULL);
    CHECK(ct_into(ct_zeros(CT_DIMS(3), .dtype = CT_F64)));
    CHECK(ct_add(a, a) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "add: the result is f32[3] and does not fit into dst, which is f64[3]");
    CHECK(!ct_into(NULL));
    CHECK_ERROR(CT_ERR_NULL, "into: argument dst is NULL");
}

TEST(detach_shares_memory_and_cuts_the_graph) {
    ct_tensor *w = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *y = ct_mul_s(w, 3), *d = ct_detach(y);
    CHECK(!ct_requires_grad(d) && ct_is_leaf(d));
    CHECK(ct_data(d) == ct_data(y));
    CHECK(!ct_backward(ct_sum(d)));
    CHECK(ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

TEST(tensors_whose_elements_share_memory_are_not_written) {
    ct_tensor *row = F32(CT_DIMS(3), 1, 2, 3), *wide = ct_expand(row, CT_DIMS(2, 3)), *one = ct_ones(CT_DIMS(2, 3));
    CHECK(!ct_add_(wide, one));
    CHECK_ERROR(CT_ERR_SHAPE, "add_: x is f32[2,3] with strides [0,1]: some of its elements share memory, so it cannot "
                              "be written; take a ct_clone of it");
    CHECK(!ct_assign(wide, one));
    CHECK(strncmp(ct_error(), "assign: x is", 12) == 0);
    ct_error_clear();
    CHECK(!ct_fill(wide, 1));
    CHECK(strncmp(ct_error(), "fill: x is", 10) == 0);
    ct_error_clear();
    CHECK(!ct_into(wide));
    CHECK(strncmp(ct_error(), "into: dst is", 12) == 0);
    ct_error_clear();
    ct_tensor *windows = ct_unfold(row, 0, 2, 1); /* [2,2], the middle twice */
    CHECK(!ct_mul_(windows, windows));
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    ct_tensor *parameter = ct_set_requires_grad(ct_clone(wide), true);
    ct_tensor *running = ct_expand(ct_zeros(CT_DIMS(1)), CT_DIMS(3));
    CHECK(!ct_batch_norm(parameter, .running_mean = running, .running_var = ct_ones(CT_DIMS(3))));
    CHECK(strncmp(ct_error(), "batch_norm: running_mean is f32[3] with strides [0]", 51) == 0);
    ct_error_clear();
    CHECK_VALUES(row, CT_DIMS(3), 0, 1, 2, 3);
}

TEST(views_in_any_order_are_written_when_no_two_elements_meet) {
    /* strides 3 and 2 of 2 x 3: the offsets 0 2 4 3 5 7 interleave and never meet */
    ct_tensor *x = ct_zeros(CT_DIMS(8)), *woven = ct_as_strided(x, CT_DIMS(2, 3), CT_DIMS(3, 2), 0);
    CHECK(ct_fill(woven, 1) == woven);
    CHECK_VALUES(x, CT_DIMS(8), 0, 1, 0, 1, 1, 1, 1, 0, 1);
    CHECK(!ct_fill(ct_as_strided(x, CT_DIMS(2, 4), CT_DIMS(2, 1), 0), 1)); /* 2 and 3 twice */
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    ct_tensor *flat = ct_expand(ct_zeros(CT_DIMS(1)), CT_DIMS(1)), *none = ct_expand(flat, CT_DIMS(0, 1));
    CHECK(ct_fill(flat, 1) == flat && ct_fill(none, 1) == none && ct_fill(ct_t(ct_zeros(CT_DIMS(3, 5))), 1));
}

TEST(a_recorded_change_of_what_its_gradient_needs_leaves_nothing_behind) {
    const int64_t before = ct_live_objects();
    ct_scope {
        ct_tensor *x = ct_rand(CT_DIMS(3)), *y = ct_set_requires_grad(ct_rand(CT_DIMS(3)), true);
        CHECK(ct_mul_(x, y) == x && ct_requires_grad(x)); /* the gradient of y reads the x of before, which is gone */
        CHECK(!ct_backward(ct_sum(x)) && ct_error_code() == CT_ERR_GRAD);
        ct_error_clear();
        x = ct_ones(CT_DIMS(3));
        CHECK(ct_div_(x, y) == x);
    }
    CHECK(ct_live_objects() == before);
}

TEST(a_destination_may_be_released_before_the_call_that_writes_into_it) {
    ct_tensor *a = F32(CT_DIMS(2), 1, 2);
    ct_scope {
        CHECK(ct_into(ct_zeros(CT_DIMS(2))));
    }
    CHECK_VALUES(ct_add(a, a), CT_DIMS(2), 0, 2, 4);
    ct_scope {
        CHECK(ct_into(ct_zeros(CT_DIMS(2))) && ct_into(ct_zeros(CT_DIMS(2))));
    }
    CHECK_VALUES(ct_mul(a, a), CT_DIMS(2), 0, 1, 4);
}

TEST(a_destination_is_forgotten_when_the_call_it_was_for_fails) {
    ct_tensor *a = F32(CT_DIMS(2), 1, 2), *b = F32(CT_DIMS(2), 3, 4), *list[] = {b, b};
    CHECK(ct_into(a) && !ct_einsum(NULL, list, 2)); /* it fails before the op is reached */
    ct_error_clear();
    ct_tensor *c = ct_add(b, b);
    CHECK(c != a);
    CHECK_VALUES(a, CT_DIMS(2), 0, 1, 2);
    CHECK(ct_into(a) && !ct_gelu(b, .form = (ct_gelu_form)99));
    ct_error_clear();
    CHECK(ct_mul(b, b) != a);
    CHECK_VALUES(a, CT_DIMS(2), 0, 1, 2);
}

TEST(activations_in_place_have_gradients_in_every_float_type) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};
    for (int i = 0; i < 4; i++) {
        ct_tensor *x = ct_set_requires_grad(TENSOR(dtypes[i], CT_DIMS(2), 0.5, -1), true), *y = ct_mul_s(x, 2);
        CHECK(ct_into(y) && ct_tanh(y) == y);
        CHECK(ct_backward(ct_sum(y)));
        const double exact = 2 * (1 - 0.7615941559557649 * 0.7615941559557649); /* 2 (1 - tanh(1)^2) */
        CHECK_NEAR(harness_at(ct_grad_of(x), 0), exact, i < 2 ? 1e-6 : 0.05);
    }
}
