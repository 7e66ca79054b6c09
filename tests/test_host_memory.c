/* The host's memory as a tensor, with strides of any kind, and the address and strides of a tensor's; what is not to be written;
 * pointers that tensors carry. */
#include <stdint.h>
#include <string.h>

#include "tests/fail_everywhere.h"
#include "tests/harness.h"

static int released;
static void *released_data, *released_context;
static void note(void *context, void *data) {
    released++;
    released_data = data;
    released_context = context;
}

/* ---- Addresses ---- */

TEST(a_contiguous_tensor_has_an_address_and_another_one_says_what_it_lacks) {
    ct_tensor *x = F32(CT_DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    CHECK(((const float *)ct_data(x))[4] == 4);
    CHECK(ct_data(ct_t(x)) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "data: x is f32[3,2] with gaps or another order in memory; use ct_contiguous first, or "
                              "ct_data_strided");
    CHECK(ct_data_mut(ct_t(x)) == NULL && ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    CHECK(ct_data(NULL) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "data: argument x is NULL");
}

TEST(any_layout_has_an_address_and_strides) {
    ct_tensor *x = F32(CT_DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    ct_tensor *layouts[] = {x, ct_t(x), ct_flip(x, CT_DIMS(1)), ct_slice(x, 1, 1, .stop = CT_SET(3)),
                            ct_expand(ct_slice(x, 0, 1, .stop = CT_SET(2)), CT_DIMS(4, 3))};
    for (int k = 0; k < 5; k++) {
        ct_dims strides = {.n = -1};
        const float *data = ct_data_strided(layouts[k], &strides);
        REQUIRE(data != NULL && strides.n == 2);
        for (int64_t i = 0; i < ct_dim(layouts[k], 0); i++)
            for (int64_t j = 0; j < ct_dim(layouts[k], 1); j++)
                CHECK((double)data[i * strides.d[0] + j * strides.d[1]] ==
                      harness_at(layouts[k], i * ct_dim(layouts[k], 1) + j));
        CHECK(ct_data_strided(layouts[k], NULL) == data);
    }
    ct_dims strides;
    float *column = ct_data_strided_mut(ct_slice(x, 1, 2, .stop = CT_SET(3)), &strides);
    REQUIRE(column != NULL);
    column[strides.d[0]] = 50;
    CHECK_VALUES(x, CT_DIMS(2, 3), 0, 0, 1, 2, 3, 4, 50);
    CHECK(!ct_data_strided_mut(layouts[4], &strides) && ct_error_code() == CT_ERR_SHAPE); /* rows that share memory */
    ct_error_clear();
}

TEST(autograd_hears_of_a_change_through_an_address) {
    ct_tensor *w = ct_set_requires_grad(F32(CT_DIMS(2), 1, 2), true), *x = F32(CT_DIMS(2), 3, 4),
              *y = ct_sum(ct_mul(w, x));
    CHECK(ct_data_strided_mut(x, NULL) != NULL);
    CHECK(!ct_backward(y) && ct_error_code() == CT_ERR_GRAD);
    ct_error_clear();
}

/* ---- Wrapping ---- */

TEST(memory_is_wrapped_with_any_strides) {
    float memory[12];
    for (int i = 0; i < 12; i++) memory[i] = (float)i;
    released = 0;
    ct_scope {
        ct_tensor *columns = ct_wrap(memory, CT_DIMS(3, 4), CT_F32, .strides = CT_DIMS(1, 3));
        CHECK_VALUES(columns, CT_DIMS(3, 4), 0, 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11);
        int here;
        ct_tensor *backward =
            ct_wrap(memory + 11, CT_DIMS(2, 3), CT_F32, .strides = CT_DIMS(-6, -2), .release = note, .context = &here);
        CHECK_VALUES(backward, CT_DIMS(2, 3), 0, 11, 9, 7, 5, 3, 1);
        CHECK(ct_data_strided(backward, NULL) == memory + 11);
        CHECK_VALUES(ct_add(backward, ct_flip(backward, CT_DIMS(0, 1))), CT_DIMS(2, 3), 0, 12, 12, 12, 12, 12, 12);
        ct_tensor *rows = ct_wrap(memory + 1, CT_DIMS(2, 2), CT_F32, .strides = CT_DIMS(0, 1));
        CHECK_VALUES(rows, CT_DIMS(2, 2), 0, 1, 2, 1, 2);
        CHECK(!ct_fill(rows, 0) && ct_error_code() == CT_ERR_SHAPE);
        ct_error_clear();
        CHECK(ct_fill(columns, 1) && memory[0] == 1 && memory[11] == 1);
        CHECK(ct_numel(ct_wrap(memory, CT_DIMS(0, 4), CT_F32, .strides = CT_DIMS(1 << 20, -5))) == 0);
        CHECK(ct_item(ct_wrap(memory, CT_DIMS0, CT_F32)) == 1);
        CHECK(released == 0);
        ct_scope_end((ct_scope_mark){1});
        CHECK(released == 1 && released_data == memory + 11 && released_context == &here);
    }
}

TEST(strides_that_cannot_be_are_refused_and_the_memory_is_given_back) {
    static float memory[4];
    const struct {
        ct_dims shape, strides;
    } cases[] = {
        {CT_DIMS(2, 2), CT_DIMS(1)},
        {CT_DIMS(2), CT_DIMS(1, 2)},
        {CT_DIMS(3), CT_DIMS(INT64_MAX)},
        {CT_DIMS(3), CT_DIMS(INT64_MIN)},
        {CT_DIMS(2), CT_DIMS(INT64_MIN)},
        {CT_DIMS(2, 2), CT_DIMS(INT64_MAX, INT64_MIN + 1)},
        {CT_DIMS(2, 2), CT_DIMS(INT64_MAX, INT64_MAX)},
        {CT_DIMS(2), CT_DIMS(INT64_MAX / 4)},
        {CT_DIMS(2), CT_DIMS(INT64_MIN / 4)},
        {CT_DIMS(2), CT_DIMS(-((int64_t)1 << 60))},
        {CT_DIMS(1LL << 40, 1LL << 40), CT_DIMS(0, 0)},
        {{.n = 9}, {.n = 9}},
        {CT_DIMS(2), {.n = -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        released = 0;
        ct_tensor *x = ct_wrap(memory, cases[i].shape, CT_F32, .strides = cases[i].strides, .release = note);
        harness_check(x == NULL && ct_error_code() == CT_ERR_SHAPE && released == 1 && released_data == memory,
                      __FILE__, __LINE__, "case %zu: %s", i, ct_error());
        ct_error_clear();
    }
    CHECK(!ct_wrap(memory, CT_DIMS(2), CT_F32, .strides = CT_DIMS(-((int64_t)1 << 59))));
    CHECK_ERROR(CT_ERR_SHAPE,
                "wrap: with the strides [-576460752303423488], f32[2] reaches beyond what can be addressed");
}

TEST(read_only_memory_is_read_and_not_written) {
    static const float memory[4] = {1, 2, 3, 4};
    ct_tensor *x = ct_wrap((void *)(uintptr_t)memory, CT_DIMS(4), CT_F32, .read_only = true),
              *view = ct_slice(x, 0, 1, .stop = CT_SET(3));
    CHECK_VALUES(ct_mul_s(view, 2), CT_DIMS(2), 0, 4, 6);
    CHECK(ct_data(x) == memory);
    CHECK(!ct_fill(x, 0));
    CHECK_ERROR(CT_ERR_STATE,
                "fill: x, f32[4], lies in memory that was wrapped as read-only, so it cannot be written; take "
                "a ct_clone of it");
    CHECK(!ct_add_(view, view) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK(!ct_into(view) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK(!ct_data_mut(x) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK(!ct_data_strided_mut(view, NULL) && ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    ct_tensor *statistics[] = {ct_wrap((void *)(uintptr_t)memory, CT_DIMS(4), CT_F32, .read_only = true),
                               ct_ones(CT_DIMS(4))};
    CHECK(!ct_batch_norm(ct_ones(CT_DIMS(2, 4)), .running_mean = statistics[0], .running_var = statistics[1],
                         .training = true));
    CHECK(ct_error_code() == CT_ERR_STATE);
    ct_error_clear();
    CHECK(ct_fill(ct_clone(x), 0) != NULL && memory[0] == 1);
}

/* ---- The user's pointer ---- */

static int user_releases;
static void user_release(void *pointer) {
    user_releases++;
    *(int *)pointer += 1;
}

TEST(a_tensor_carries_a_pointer_until_it_dies) {
    int first = 0, second = 0;
    user_releases = 0;
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(2));
        CHECK(ct_user(x) == NULL);
        CHECK(ct_set_user(x, &first, user_release) && ct_user(x) == &first);
        CHECK(ct_user(ct_reshape(x, CT_DIMS(2, 1))) == NULL && ct_user(ct_detach(x)) == NULL && ct_ok());
        CHECK(ct_set_user(x, &second, user_release) && ct_user(x) == &second && first == 1 && second == 0);
        ct_tensor *kept = ct_keep(x);
        ct_drop(kept);
        CHECK(second == 0);
    }
    CHECK(first == 1 && second == 1 && user_releases == 2);
    ct_scope {
        ct_tensor *x = ct_ones(CT_DIMS(2));
        CHECK(ct_set_user(x, &first, NULL) && ct_user(x) == &first);
        CHECK(ct_set_user(x, &second, user_release) && ct_set_user(x, NULL, NULL) && ct_user(x) == NULL && second == 2);
    }
    CHECK(first == 1 && second == 2);
    CHECK(!ct_set_user(NULL, &first, user_release) && first == 2); /* it was given away all the same */
    CHECK_ERROR(CT_ERR_NULL, "set_user: argument x is NULL");
    CHECK(ct_user(NULL) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "user: argument x is NULL");
}

/* ---- Without memory ---- */

static bool wrapped_and_carrying(void) {
    static float memory[4];
    int given = 0;
    bool ok = false;
    released = user_releases = 0;
    ct_scope {
        ct_tensor *x = ct_wrap(memory, CT_DIMS(2, 2), CT_F32, .strides = CT_DIMS(1, 2), .release = note);
        ct_tensor *y = x ? ct_full_i64(CT_DIMS(3), 5) : NULL;
        ok = y && ct_fill_i64(y, 6) && ct_scalar_i64(7, CT_I64) && ct_arange_i64(1, 9, 2);
        if (x) ok = ct_set_user(x, &given, user_release) && ok;
        else user_releases++;
    }
    return CHECK(released == 1 && user_releases == 1) && ok; /* whatever failed, what was given away is let go once */
}

TEST(nothing_is_lost_where_memory_is_short) { CHECK(FAIL_EVERYWHERE(wrapped_and_carrying) > 8); }
