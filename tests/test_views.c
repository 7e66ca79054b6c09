/* What views promise: no copy where strides allow, in every dtype; the graph kept on identity paths; Python's slices;
 * errors with shapes. */
#include "tests/harness.h"

/* This error is pending, whatever its text; it is cleared. */
#define CHECK_CODE(code)                  \
    do {                                  \
        CHECK(ct_error_code() == (code)); \
        ct_error_clear();                 \
    } while (0)

TEST(reshape_is_a_view_where_strides_allow_in_half_types_too) {
    const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_I8, CT_BOOL, CT_I64};
    for (int i = 0; i < 6; i++) {
        ct_tensor *x = ct_zeros(CT_DIMS(4, 6), .dtype = dtypes[i]);
        const void *data = ct_data(x);
        CHECK(ct_data(ct_reshape(x, CT_DIMS(2, 12))) == data);
        CHECK(ct_data(ct_flatten(x)) == data);
        CHECK(ct_data(ct_contiguous(x)) == data);
        CHECK(ct_data(ct_unsqueeze(x, 1)) == data);
        CHECK(ct_data(ct_slice(x, 0, 0)) == data);
        CHECK(ct_data(ct_as_strided(x, CT_DIMS(24), CT_DIMS(1), 0)) == data);
        CHECK(ct_data(ct_reshape(ct_t(x), CT_DIMS(24))) != data);
        CHECK(ct_dtype_of(ct_reshape(ct_t(x), CT_DIMS(24))) == dtypes[i]);
    }
    ct_tensor *x = ct_zeros(CT_DIMS(4, 6));
    CHECK(ct_data(ct_reshape(ct_narrow(x, 0, 1, 2), CT_DIMS(12))) == (const float *)ct_data(x) + 6);
    CHECK(ct_is_contiguous(ct_reshape(ct_expand(x, CT_DIMS(3, 4, 6)), CT_DIMS(12, 6))));
    /* only the last axis is cut, so the strides of the others stay */
    ct_dims strides = ct_strides(ct_reshape(ct_transpose(ct_zeros(CT_DIMS(2, 3, 4)), 0, 1), CT_DIMS(3, 2, 2, 2)));
    CHECK(strides.d[0] == 4 && strides.d[1] == 12 && strides.d[2] == 2 && strides.d[3] == 1);
}

TEST(a_view_keeps_what_it_shows) {
    ct_ones(CT_DIMS(1)); /* the scope has its memory now */
    const int64_t live = ct_live_objects();
    const int64_t used = harness_memory().in_use;
    ct_tensor *view = NULL;
    ct_scope {
        ct_tensor *x = ct_arange(0, 6, 1);
        view = ct_keep(ct_t(ct_reshape(ct_reshape(x, CT_DIMS(3, 2)), CT_DIMS(2, -1)))); /* a view of a view */
    }
    ct_scope {
        CHECK_VALUES(view, CT_DIMS(3, 2), 0, 0, 3, 1, 4, 2, 5);
    }
    CHECK(ct_live_objects() > live);
    ct_drop(view);
    CHECK(ct_live_objects() == live);
    CHECK_NEAR((double)harness_memory().in_use, (double)used, (double)harness_buried());
}

/* Where something is to be done besides making a handle, it is done. */
TEST(reshape_can_be_written_and_recorded) {
    ct_tensor *x = ct_arange(0, 6, 1), *dst = ct_zeros(CT_DIMS(2, 3));
    CHECK(ct_into(dst) && ct_reshape(x, CT_DIMS(2, 3)) == dst);
    CHECK_VALUES(dst, CT_DIMS(2, 3), 0, 0, 1, 2, 3, 4, 5);
    CHECK(ct_data(dst) != ct_data(x));
    ct_tensor *leaf = ct_set_requires_grad(ct_arange(0, 4, 1), true), *y = ct_reshape(leaf, CT_DIMS(2, 2));
    CHECK(ct_requires_grad(y) && ct_backward(ct_sum(ct_mul(y, y))));
    CHECK_VALUES(ct_grad_of(leaf), CT_DIMS(4), 0, 0, 2, 4, 6);
    ct_no_grad {
        CHECK(!ct_requires_grad(ct_reshape(leaf, CT_DIMS(2, 2))));
    }
    CHECK(!ct_reshape(x, CT_DIMS(INT64_MAX, 3)));
    CHECK_CODE(CT_ERR_SHAPE);
}

TEST(identity_paths_keep_the_graph) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(2, 3)), true);
    CHECK(ct_reshape(x, CT_DIMS(2, 3)) == x);
    CHECK(ct_contiguous(x) == x);
    ct_tensor *y = ct_mul_s(x, 2);
    CHECK(ct_requires_grad(ct_reshape(y, CT_DIMS(2, -1))));
    CHECK(ct_requires_grad(ct_pad(y, CT_DIMS(0, 0))));
    CHECK(ct_requires_grad(ct_repeat(y, CT_DIMS(1, 1))));
    CHECK(ct_backward(ct_sum(ct_contiguous(ct_reshape(y, CT_DIMS(2, 3))))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(2, 3), 0, 2, 2, 2, 2, 2, 2);
}

TEST(slices_follow_python) {
    ct_tensor *x = ct_arange(0, 7, 1, .dtype = CT_F64);
    CHECK_VALUES(ct_slice(x, 0, 2), CT_DIMS(5), 0, 2, 3, 4, 5, 6);
    CHECK_VALUES(ct_slice(x, 0, -3), CT_DIMS(3), 0, 4, 5, 6);
    CHECK_VALUES(ct_slice(x, 0, 1, .stop = CT_SET(-1), .step = 2), CT_DIMS(3), 0, 1, 3, 5);
    CHECK_VALUES(ct_slice(x, 0, -100, .stop = CT_SET(2)), CT_DIMS(2), 0, 0, 1);
    CHECK_VALUES(ct_slice(x, 0, -1, .step = -1), CT_DIMS(7), 0, 6, 5, 4, 3, 2, 1, 0);
    CHECK_VALUES(ct_slice(x, 0, 5, .stop = CT_SET(1), .step = -2), CT_DIMS(2), 0, 5, 3);
    CHECK_VALUES(ct_slice(x, 0, 100, .stop = CT_SET(-100), .step = -3), CT_DIMS(3), 0, 6, 3, 0);
    CHECK(ct_numel(ct_slice(x, 0, 5, .stop = CT_SET(2))) == 0);
    CHECK(ct_numel(ct_slice(x, 0, 3, .stop = CT_SET(0))) == 0);
    CHECK(ct_numel(ct_slice(x, 0, 2, .stop = CT_SET(5), .step = -1)) == 0);
    CHECK_VALUES(ct_slice_assign(x, F64(CT_DIMS(2), -1, -2), 0, 6, .stop = CT_SET(2), .step = -2), CT_DIMS(7), 0, 0, 1,
                 2, 3, -2, 5, -1);
    CHECK_VALUES(ct_slice_assign(x, ct_scalar(9, CT_F32), 0, 1, .step = 3), CT_DIMS(7), 0, 0, 9, 2, 3, 9, 5, 6);
}

TEST(split_and_chunk_are_views_that_make_up_the_axis) {
    ct_tensor *x = ct_set_requires_grad(ct_reshape(ct_arange(0, 14, 1, .dtype = CT_F64), CT_DIMS(7, 2)), true),
              *parts[4];
    REQUIRE(ct_split(x, 0, CT_DIMS(3), parts, 3));
    CHECK_VALUES(parts[2], CT_DIMS(1, 2), 0, 12, 13);
    REQUIRE(ct_split(x, 0, CT_DIMS(1, 4, 2), parts, 3));
    CHECK_VALUES(parts[2], CT_DIMS(2, 2), 0, 10, 11, 12, 13);
    CHECK(ct_data(parts[1]) == (const double *)ct_data(x) + 2);
    CHECK(!ct_split(x, 0, CT_DIMS(3), parts, 2));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_split(x, 0, CT_DIMS(3, 3), parts, 2));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_split(x, 0, CT_DIMS(3), parts, 4));
    CHECK_CODE(CT_ERR_SHAPE);
    REQUIRE(ct_chunk(x, 0, parts, 4)); /* 2 2 2 1 */
    CHECK(ct_dim(parts[0], 0) == 2 && ct_dim(parts[3], 0) == 1);
    CHECK(ct_backward(ct_sum(ct_mul_s(parts[1], 3)))); /* the others get zeros */
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(7, 2), 0, 0, 0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0);
}

TEST(overlapping_views_sum_their_gradients) {
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(5), .dtype = CT_F64), true);
    CHECK(ct_backward(ct_sum(ct_unfold(x, 0, 3, 1))));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(5), 0, 1, 2, 3, 2, 1);
    ct_tensor *z = ct_set_requires_grad(ct_ones(CT_DIMS(4), .dtype = CT_F64), true);
    CHECK(ct_backward(ct_sum(ct_as_strided(z, CT_DIMS(3, 2), CT_DIMS(0, 2), 1))));
    CHECK_VALUES(ct_grad_of(z), CT_DIMS(4), 0, 0, 3, 0, 3);
    /* a sum made in f16 would stop at 2048, where 1 is less than half a unit */
    ct_tensor *h = ct_set_requires_grad(ct_ones(CT_DIMS(1), .dtype = CT_F16), true);
    CHECK(ct_backward_from(ct_as_strided(h, CT_DIMS(4096), CT_DIMS(0), 0), ct_ones(CT_DIMS(4096), .dtype = CT_F16), 0));
    CHECK(ct_item(ct_grad_of(h)) == 4096);
}

TEST(errors_of_views_carry_shapes) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3));
    CHECK(!ct_reshape(x, CT_DIMS(4, -1)));
    CHECK_ERROR(CT_ERR_SHAPE,
                "reshape: x is f32[2,3] (6 elements); no size in place of the -1 makes that the shape [4,-1]");
    CHECK(!ct_reshape(x, CT_DIMS(5)));
    CHECK_ERROR(CT_ERR_SHAPE, "reshape: x is f32[2,3] (6 elements), the shape [5] has 5");
    CHECK(!ct_reshape(x, CT_DIMS(-1, -1)));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_expand(x, CT_DIMS(4, 3)));
    CHECK_ERROR(CT_ERR_SHAPE, "expand: x is f32[2,3] and cannot be expanded to [4,3]: dimension 0 is 2, not 1 or 4");
    CHECK(!ct_narrow(x, 1, 2, 2));
    CHECK_ERROR(CT_ERR_SHAPE, "narrow: start 2 and length 2 leave axis 1 of x, which is f32[2,3]");
    CHECK(!ct_select(x, 0, 2));
    CHECK_CODE(CT_ERR_INDEX);
    CHECK(!ct_as_strided(x, CT_DIMS(3, 2), CT_DIMS(3, 1), 0));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_as_strided(x, CT_DIMS(2), CT_DIMS(INT64_MAX), 1));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_permute(x, CT_DIMS(0, 0)));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_pad(x, CT_DIMS(3, 0), .mode = CT_PAD_REFLECT));
    CHECK_CODE(CT_ERR_SHAPE);
    CHECK(!ct_pad(ct_cast(x, CT_I32), CT_DIMS(1, 1), .value = 0.5));
    CHECK_CODE(CT_ERR_DTYPE);
    ct_tensor *pair[] = {x, ct_zeros(CT_DIMS(2, 4))};
    CHECK(!ct_cat(pair, 2, 0));
    CHECK_ERROR(CT_ERR_SHAPE, "cat: xs[1] is f32[2,4] and xs[0] f32[2,3]: they have to agree but for axis 0");
    CHECK(!ct_stack(pair, 2, 0));
    CHECK_CODE(CT_ERR_SHAPE);
}

TEST(pad_reads_its_list_for_the_last_axes) {
    ct_tensor *x = F64(CT_DIMS(2, 3), 1, 2, 3, 4, 5, 6);
    CHECK_VALUES(ct_pad(x, CT_DIMS(1, 0)), CT_DIMS(2, 4), 0, 0, 1, 2, 3, 0, 4, 5, 6);
    CHECK_VALUES(ct_pad(x, CT_DIMS(1)), CT_DIMS(2, 5), 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0);
    CHECK_VALUES(ct_pad(x, CT_DIMS(1, 0, 0, -1), .value = 9), CT_DIMS(3, 2), 0, 9, 9, 1, 2, 4, 5);
    CHECK_VALUES(ct_pad(x, CT_DIMS(1, 2), .mode = CT_PAD_REFLECT), CT_DIMS(2, 6), 0, 2, 1, 2, 3, 2, 1, 5, 4, 5, 6, 5,
                 4);
    CHECK_VALUES(ct_pad(x, CT_DIMS(1, 0, 2, 0), .mode = CT_PAD_REPLICATE), CT_DIMS(3, 5), 0, 1, 1, 1, 2, 3, 1, 1, 1, 2,
                 3, 4, 4, 4, 5, 6);
    CHECK_VALUES(ct_pad(x, CT_DIMS(2, 1), .mode = CT_PAD_CIRCULAR), CT_DIMS(2, 6), 0, 2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6,
                 4);
}

/* Lines beside each other along one dimension, and one and the same along another. */
TEST(softmax_of_an_expanded_batch_is_that_of_its_copy) {
    const ct_dims whole[] = {CT_DIMS(3, 4, 70), CT_DIMS(3, 5, 4, 2), CT_DIMS(2, 80, 3)};
    for (int i = 0; i < 3; i++) {
        ct_dims one = whole[i];
        one.d[0] = 1;
        ct_tensor *x = ct_expand(ct_randn(one), whole[i]), *copy = ct_clone(x);
        for (int axis = 1; axis < whole[i].n; axis++) {
            CHECK(harness_same_bits(ct_softmax(x, axis), ct_softmax(copy, axis)));
            CHECK(harness_same_bits(ct_log_softmax(x, axis), ct_log_softmax(copy, axis)));
        }
    }
}

/* Distances that an int64 just holds. */
TEST(the_longest_steps_and_offsets_are_ordinary_numbers) {
    ct_tensor *x = F64(CT_DIMS(5), 1, 2, 3, 4, 5), *m = F64(CT_DIMS(2, 2), 1, 2, 3, 4);
    CHECK_VALUES(ct_slice(x, 0, 1, .step = INT64_MAX), CT_DIMS(1), 0, 2);
    CHECK_VALUES(ct_slice(x, 0, 3, .step = -INT64_MAX), CT_DIMS(1), 0, 4);
    CHECK(ct_slice(x, 0, 1, .step = INT64_MIN) == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "slice: step -9223372036854775808 is too far");
    CHECK(ct_numel(ct_diagonal(m, .offset = INT64_MIN)) == 0);
    CHECK(ct_numel(ct_diagonal(m, .offset = INT64_MAX)) == 0);
}

/* From text a zero reaches the op as it is: in C it means the default. */
TEST(a_step_of_zero_is_an_error) {
    const ct_op *op = ct_op_find("slice");
    char attrs[512];
    REQUIRE(op && op->attr_size <= sizeof attrs);
    ct_attrs_default(op, attrs);
    REQUIRE(ct_attrs_set(op, attrs, "axis", "0") && ct_attrs_set(op, attrs, "start", "0") &&
            ct_attrs_set(op, attrs, "step", "0"));
    ct_tensor *x = F64(CT_DIMS(3), 1, 2, 3), *y = NULL;
    CHECK(!ct_apply(op, &x, 1, attrs, &y, 1));
    CHECK_ERROR(CT_ERR_VALUE, "slice: step is 0; it is how far to go, forwards or backwards");
}
