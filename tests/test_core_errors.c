/* Errors: NULL travels through calls, the first error is kept, and nothing lasting changes while one is pending. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/threads.h"
#include "tests/harness.h"

TEST(without_an_error_there_is_none) {
    CHECK(ct_ok());
    CHECK(ct_error_code() == CT_OK);
    CHECK_TEXT(ct_error(), "");
    CHECK_TEXT(ct_error_op(), "");
    ct_error_clear();
    CHECK(ct_ok());
}

TEST(every_code_has_a_text) {
    CHECK_TEXT(ct_code_text(CT_OK), "ok");
    for (int code = CT_OK; code <= CT_ERR_STATE; code++) CHECK(ct_code_text((ct_code)code)[0] != 0);
    CHECK_TEXT(ct_code_text((ct_code)999), "unknown error code");
}

TEST(a_required_null_is_an_error_that_names_the_argument) {
    CHECK(ct_add(NULL, ct_ones(CT_DIMS(2))) == NULL);
    CHECK_TEXT(ct_error_op(), "add");
    CHECK_ERROR(CT_ERR_NULL, "add: argument a is NULL");
    CHECK(ct_add(ct_ones(CT_DIMS(2)), NULL) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "add: argument b is NULL");
    CHECK(ct_matmul(NULL, NULL) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "matmul: argument a is NULL");
}

TEST(calls_nest_and_the_first_error_is_the_one_that_is_kept) {
    ct_tensor *a = ct_ones(CT_DIMS(2, 3)), *b = ct_ones(CT_DIMS(4, 5));
    ct_tensor *product = ct_matmul(a, b); /* C does not say in which order arguments are computed */
    CHECK(ct_exp(ct_sum(ct_mul(product, ct_add(a, NULL)))) == NULL);
    CHECK_TEXT(ct_error_op(), "matmul");
    ct_fail(CT_ERR_IO, "later", "something else");
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    CHECK_ERROR(CT_ERR_SHAPE, "matmul: inner dimensions differ: a is f32[2,3], b is f32[4,5] (3 vs 4)");
}

TEST(the_error_of_a_matmul_suggests_the_transpose_where_that_would_fit) {
    CHECK(ct_matmul(ct_ones(CT_DIMS(64, 784)), ct_ones(CT_DIMS(128, 784))) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "matmul: inner dimensions differ: a is f32[64,784], b is f32[128,784] (784 vs 128); did "
                              "you mean ct_matmul(a, ct_t(b))?");
}

TEST(a_null_is_no_new_error_while_one_is_pending) {
    ct_fail(CT_ERR_VALUE, "mine", "first");
    CHECK(ct_neg(NULL) == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "mine: first");
}

TEST(user_code_raises_errors_like_the_library) {
    CHECK(!ct_fail(CT_ERR_VALUE, "loader", "file %d of %d", 3, 7));
    CHECK_TEXT(ct_error_op(), "loader");
    CHECK_ERROR(CT_ERR_VALUE, "loader: file 3 of 7");
    ct_fail(CT_ERR_IO, NULL, "no op");
    CHECK_ERROR(CT_ERR_IO, "no op");
}

TEST(a_text_that_is_too_long_is_cut) {
    char longer[4000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    ct_fail(CT_ERR_VALUE, longer, "%s", longer);
    CHECK(strlen(ct_error()) < 1100 && strlen(ct_error()) > 100);
    ct_error_clear();
}

TEST(pure_ops_still_run_while_an_error_is_pending) {
    ct_tensor *x = F32(CT_DIMS(2), 1, 2);
    ct_fail(CT_ERR_VALUE, "mine", "pending");
    ct_tensor *y = ct_add(x, x);
    CHECK(y != NULL);
    CHECK(ct_item(ct_sum(y)) == 6);
    CHECK_ERROR(CT_ERR_VALUE, "mine: pending");
}

TEST(while_an_error_is_pending_nothing_lasting_changes) {
    ct_tensor *x = F32(CT_DIMS(2), 1, 2), *w = ct_set_requires_grad(F32(CT_DIMS(2), 3, 4), true),
              *loss = ct_sum(ct_mul(w, w));
    ct_rng *rng = ct_rng_new(1, 0);
    ct_fail(CT_ERR_VALUE, "mine", "pending");
    CHECK(ct_fill(x, 9) == NULL);
    CHECK(ct_zero(x) == NULL);
    CHECK(ct_assign(x, x) == NULL);
    CHECK(ct_add_(x, x) == NULL);
    CHECK(ct_sub_(x, x) == NULL);
    CHECK(ct_mul_(x, x) == NULL);
    CHECK(ct_div_(x, x) == NULL);
    CHECK(!ct_into(x));
    CHECK(!ct_backward(loss));
    CHECK(!ct_set_grad(w, x));
    CHECK(!ct_rng_set_position(rng, 5));
    ct_tensor *g = NULL;
    CHECK(!ct_grad(&loss, 1, NULL, &w, 1, &g, 0) && g == NULL);
    CHECK(ct_grad_of(w) == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "mine: pending");
    CHECK(ct_rng_position(rng) == 0);
    CHECK_VALUES(x, CT_DIMS(2), 0, 1, 2);
    CHECK(ct_backward(loss)); /* and now it goes on as if nothing had been */
    CHECK_VALUES(ct_grad_of(w), CT_DIMS(2), 0, 6, 8);
    ct_rng_free(rng);
}

TEST(every_free_accepts_null) {
    ct_drop(NULL);
    ct_rng_free(NULL);
    ct_scope_end(ct_scope_begin());
    CHECK(ct_ok());
}

TEST(item_of_null_is_nan_and_no_error) {
    CHECK(isnan(ct_item(NULL)));
    CHECK(ct_ok());
}

TEST(reading_functions_name_themselves) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 3));
    float room[6];
    CHECK(isnan(ct_item(x)));
    CHECK_ERROR(CT_ERR_SHAPE, "item: x is f32[2,3]; only a tensor of one element has an item");
    CHECK(!ct_read(x, room, 20));
    CHECK_ERROR(CT_ERR_SHAPE, "read: x is f32[2,3], which takes 24 bytes, not 20");
    CHECK(!ct_read(x, NULL, 24));
    CHECK_ERROR(CT_ERR_NULL, "read: argument data is NULL");
    CHECK(ct_dim(x, 2) == 0);
    CHECK_ERROR(CT_ERR_SHAPE, "dim: axis 2 is out of range for f32[2,3]");
    CHECK(ct_dim(x, -2) == 2);
    CHECK(ct_data(ct_t(x)) == NULL);
    CHECK_ERROR(
        CT_ERR_SHAPE,
        "data: x is f32[3,2] with gaps or another order in memory; use ct_contiguous first, or ct_data_strided");
    CHECK(ct_ndim(NULL) == 0);
    CHECK_ERROR(CT_ERR_NULL, "ndim: argument x is NULL");
    CHECK(ct_numel(NULL) == 0);
    CHECK_ERROR(CT_ERR_NULL, "numel: argument x is NULL");
    CHECK(ct_read(x, room, 24));
}

TEST(impossible_shapes_are_errors) {
    float one = 1;
    CHECK(ct_from_data(&one, CT_DIMS(-1), CT_F32) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "from_data: size -1 of dimension 0 is negative");
    CHECK(ct_from_data(&one, CT_DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), CT_F32) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "from_data: the shape has more than 8 dimensions");
    CHECK(ct_from_data(&one, CT_DIMS(1), (ct_dtype)77) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE, "from_data: 77 is not a dtype");
    CHECK(ct_from_data(NULL, CT_DIMS(1), CT_F32) == NULL);
    CHECK_ERROR(CT_ERR_NULL, "from_data: argument data is NULL");
    CHECK(ct_from_data(NULL, CT_DIMS(0), CT_F32) != NULL); /* nothing to read */
    CHECK(ct_zeros((ct_dims){.n = 17}) == NULL);
    CHECK_ERROR(CT_ERR_VALUE, "zeros: shape: a list holds at most 16 numbers");
    CHECK(ct_zeros((ct_dims){.n = -1}) == NULL); /* what CT_DIMS makes of more than it can hold */
    CHECK(!ct_ok());
    ct_error_clear();
    CHECK(ct_zeros(CT_DIMS(-3)) == NULL);
    CHECK(ct_error_code() == CT_ERR_SHAPE || ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
}

TEST(sizes_beyond_all_memory_are_errors_not_crashes) {
    CHECK(ct_zeros(CT_DIMS(1ll << 40, 1ll << 40)) == NULL);
    CHECK(!ct_ok());
    ct_error_clear();
    CHECK(ct_zeros(CT_DIMS(1ll << 50)) == NULL);
    CHECK(ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_zeros(CT_DIMS(INT64_MAX)) == NULL);
    CHECK(!ct_ok());
    ct_error_clear();
    ct_tensor *wide = ct_expand(ct_ones(CT_DIMS(1)), CT_DIMS(1ll << 45));
    CHECK(wide != NULL);
    CHECK(ct_add(wide, wide) == NULL);
    CHECK(ct_error_code() == CT_ERR_MEMORY);
    ct_error_clear();
    CHECK(ct_ones(CT_DIMS(3)) != NULL); /* and there is still memory for others */
}

static int releases;
static void release(void *context, void *data) {
    (void)context;
    (void)data;
    releases++;
}

TEST(wrap_owns_its_memory_even_when_it_fails) {
    float data[4] = {1, 2, 3, 4};
    CHECK(ct_wrap(data, CT_DIMS(-1), CT_F32, .release = release) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "wrap: size -1 of dimension 0 is negative");
    CHECK(releases == 1);
    CHECK(ct_wrap((char *)data + 1, CT_DIMS(2), CT_F32, .release = release) == NULL);
    CHECK(ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(releases == 2);
    ct_scope {
        ct_tensor *x = ct_wrap(data, CT_DIMS(2, 2), CT_F32, .release = release);
        REQUIRE(x != NULL);
        CHECK(ct_data(x) == data);
        CHECK(ct_item(ct_sum(x)) == 10);
        ct_tensor *row = ct_keep(ct_narrow(x, 0, 0, 1)); /* a view keeps the memory */
        CHECK(releases == 2);
        ct_drop(row);
    }
    CHECK(releases == 3);
}

TEST(elementwise_errors_carry_shapes_and_dtypes) {
    ct_tensor *a = ct_zeros(CT_DIMS(2, 3)), *b = ct_zeros(CT_DIMS(4)), *i = ct_zeros(CT_DIMS(2, 3), .dtype = CT_I32);
    CHECK(ct_add(a, b) == NULL);
    CHECK_ERROR(CT_ERR_SHAPE, "add: shapes do not broadcast: a is f32[2,3], b is f32[4] (3 vs 4)");
    CHECK(ct_add_s(i, 0.5) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE,
                "add: the scalar 0.5 does not fit the dtype of x, i32[2,3]; convert it first: ct_cast(x, CT_F32)");
    CHECK(ct_add_s(i, 2) != NULL);
    CHECK(ct_where(a, a, a) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE, "where: c is f32[2,3]; it has to be bool");
    CHECK(ct_set_requires_grad(i, true) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE, "set_requires_grad: x is i32[2,3]; only floating tensors have gradients");
    CHECK(ct_bitwise_and(a, a) == NULL);
    CHECK(ct_error_code() == CT_ERR_DTYPE);
    ct_error_clear();
}

TEST(stored_dtypes_have_no_arithmetic) {
    uint16_t bits[2] = {1, 2};
    ct_tensor *x = ct_from_data(bits, CT_DIMS(2), CT_U16);
    CHECK(ct_add(x, x) == NULL);
    CHECK(ct_error_code() == CT_ERR_DTYPE || ct_error_code() == CT_ERR_UNSUPPORTED);
    ct_error_clear();
    CHECK(ct_exp(x) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE, "exp: x is u16[2]; there is no arithmetic on u16, cast it first");
    CHECK(ct_item(ct_sum(ct_cast(x, CT_I64))) == 3);
}

TEST(an_index_out_of_range_gives_value_position_and_bound) {
    ct_tensor *x = ct_zeros(CT_DIMS(3, 4)), *i = I64(CT_DIMS(2, 2), 0, 3, 4, 1);
    CHECK(ct_gather(x, 1, i) == NULL);
    CHECK(ct_error_code() == CT_ERR_INDEX);
    CHECK(strstr(ct_error(), "gather: ") == ct_error() && strstr(ct_error(), "4") != NULL);
    ct_error_clear();
    CHECK(ct_gather(x, 1, I64(CT_DIMS(1, 1), -1)) == NULL); /* negative values are out of range too */
    CHECK(ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK(ct_gather(x, 1, x) == NULL);
    CHECK_ERROR(CT_ERR_DTYPE, "gather: index is f32[3,4]; indices are i32 or i64");
}

static void failing_task(void *ctx, int64_t chunk, int worker) {
    (void)worker;
    if (chunk % 7 == 3) ct_fail(CT_ERR_INDEX, "task", "chunk %lld of %s", (long long)chunk, (const char *)ctx);
    usleep(200); /* so that other threads take part */
}

TEST(an_error_of_a_worker_thread_reaches_the_caller) {
    ct_set_threads(4);
    for (int turn = 0; turn < 20; turn++) {
        ct__parallel(50, failing_task, "the work");
        CHECK(ct_error_code() == CT_ERR_INDEX);
        CHECK(strncmp(ct_error(), "task: chunk ", 12) == 0);
        ct_error_clear();
    }
    ct__parallel(3, failing_task, "nothing wrong");
    CHECK(ct_ok());
}

TEST(apply_checks_what_it_is_given) {
    const ct_op *add = ct_op_find("add");
    ct_tensor *x = ct_ones(CT_DIMS(2)), *in[3] = {x, x, x}, *out[2];
    CHECK(!ct_apply(NULL, in, 2, NULL, out, 1));
    CHECK_ERROR(CT_ERR_NULL, "apply: argument op is NULL");
    CHECK(!ct_apply(add, in, 3, NULL, out, 1));
    CHECK_ERROR(CT_ERR_VALUE, "add: takes 2 inputs, not 3");
    CHECK(!ct_apply(add, in, 2, NULL, NULL, 1));
    CHECK_ERROR(CT_ERR_NULL, "add: argument outputs is NULL");
    CHECK(!ct_apply(add, in, 2, NULL, out, 2));
    CHECK_ERROR(CT_ERR_VALUE, "add: has 1 results, not 2");
    CHECK(ct_op_find("no such op") == NULL && ct_op_find(NULL) == NULL && ct_op_at(-1) == NULL &&
          ct_op_at(ct_op_count()) == NULL);
    CHECK(ct_ok());
}

TEST(attributes_from_text_are_checked) {
    const ct_op *op = ct_op_find("sum");
    REQUIRE(op != NULL);
    char attrs[512];
    CHECK(op->attr_size <= sizeof attrs);
    ct_attrs_default(op, attrs);
    CHECK(ct_attrs_set(op, attrs, "axes", "0,-1"));
    CHECK(!ct_attrs_set(op, attrs, "axes", "0,x"));
    CHECK_ERROR(CT_ERR_VALUE, "sum: axes = \"0,x\" is not a list of at most 16 integers such as 2,1");
    CHECK(!ct_attrs_set(op, attrs, "keepdim", "maybe"));
    CHECK_ERROR(CT_ERR_VALUE, "sum: keepdim = \"maybe\" is not true or false");
    CHECK(!ct_attrs_set(op, attrs, "color", "1"));
    CHECK_ERROR(CT_ERR_VALUE, "sum: has no option named color");
}

TEST(shapes_of_more_elements_than_can_be_counted_are_refused) {
    static char byte;
    CHECK(!ct_wrap(&byte, CT_DIMS(1LL << 62, 8), CT_U8));
    CHECK_ERROR(CT_ERR_SHAPE, "wrap: the shape is [4611686018427387904,8]: more elements than can be counted");
    CHECK(!ct_wrap(&byte, CT_DIMS(1LL << 62, 0, 8), CT_U8)); /* its strides could not be counted */
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    CHECK(!ct_from_data(&byte, CT_DIMS(1LL << 40, 1LL << 40), CT_U8));
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    CHECK(!ct_expand(ct_zeros(CT_DIMS(1, 1)), CT_DIMS(1LL << 40, 1LL << 40)));
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    CHECK(ct_numel(ct_expand(ct_zeros(CT_DIMS(1, 1)), CT_DIMS(1LL << 30, 1LL << 20))) == 1LL << 50);
}

TEST(a_pending_error_makes_a_missing_option_a_failed_one) {
    ct_tensor *x = ct_ones(CT_DIMS(2, 3)), *bad = ct_add(x, ct_ones(CT_DIMS(4)));
    CHECK(!bad && !ct_ok());
    CHECK(ct_add(x, x));                               /* pure ops still run */
    CHECK(!ct_layer_norm(x, CT_DIMS(3), .bias = bad)); /* and do not take what failed for what was left out */
    ct_error_clear();
    CHECK(ct_layer_norm(x, CT_DIMS(3)));
}

TEST(memory_errors_name_the_op_that_was_called) {
    CHECK(!ct_softmax(ct_expand(ct_zeros(CT_DIMS(1, 1)), CT_DIMS(1LL << 30, 1LL << 22)), 1));
    CHECK_ERROR(CT_ERR_MEMORY, "softmax: out of memory: 18014398509481984 bytes could not be had");
}
