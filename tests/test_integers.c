/* Integers beyond 2^53, which a double does not hold, go in and out to the last bit. */
#include <math.h>
#include <string.h>

#include "tests/harness.h"

static const int64_t odd = 9007199254740993; /* 2^53 + 1 */

static int64_t at(ct_tensor *x, int64_t i) {
    int64_t all[64] = {0};
    const int64_t n = ct_numel(x);
    if (n > 64 || ct_dtype_of(x) != CT_I64 || !ct_read(x, all, (size_t)n * sizeof *all)) return -1;
    return all[i];
}

TEST(a_scalar_keeps_every_i64) {
    static const int64_t values[] = {0, 1, -1, 9007199254740993, -9007199254740993, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 7; i++) CHECK(ct_item_i64(ct_scalar_i64(values[i], CT_I64)) == values[i]);
    CHECK(ct_item_i64(ct_scalar_i64(odd, CT_U64)) == odd);
    CHECK(ct_item_i64(ct_scalar((double)odd, CT_I64)) == odd - 1); /* what a double does to it */
}

TEST(a_scalar_of_another_dtype_is_what_a_cast_gives_or_an_error_where_that_is_another_number) {
    static const int64_t values[] = {0, 1, 5, -5, 300, -300, 70000, 16777217, 9007199254740993, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 11; i++)
        for (int d = 0; d < CT_DTYPE_COUNT; d++) {
            const ct_dtype dtype = (ct_dtype)d;
            ct_tensor *cast = ct_cast(ct_scalar_i64(values[i], CT_I64), dtype), *made = ct_scalar_i64(values[i], dtype);
            const bool integer = ct_dtype_is_int(dtype) || dtype == CT_BOOL || (dtype >= CT_U16 && dtype <= CT_U64);
            ct_error_clear();
            /* a cast to a narrower integer keeps the low bits: it then comes back as another number */
            const bool fits =
                !integer || (ct_item_i64(ct_cast(cast, CT_I64)) == values[i] && !(dtype == CT_U64 && values[i] < 0));
            harness_check(made ? fits && harness_same_bits(cast, made) : !fits, __FILE__, __LINE__, "%lld as %s",
                          (long long)values[i], ct_dtype_name(dtype));
        }
    CHECK(!ct_scalar_i64(300, CT_U8));
    CHECK_ERROR(CT_ERR_VALUE, "scalar_i64: 300 is no u8");
    CHECK(!ct_scalar_i64(1, (ct_dtype)99));
    CHECK_ERROR(CT_ERR_DTYPE, "scalar_i64: 99 is not a dtype");
}

TEST(an_item_that_is_no_integer_is_an_error) {
    CHECK(ct_item_i64(ct_scalar(-3, CT_F32)) == -3 && ct_item_i64(ct_scalar(1, CT_BOOL)) == 1);
    CHECK(ct_item_i64(ct_scalar(2.5, CT_F64)) == INT64_MIN);
    CHECK_ERROR(CT_ERR_VALUE, "item_i64: x, f64[], is 2.5, which no i64 is");
    CHECK(ct_item_i64(ct_scalar(NAN, CT_F32)) == INT64_MIN && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_item_i64(ct_scalar(0x1p63, CT_F64)) == INT64_MIN && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_item_i64(ct_scalar(-0x1p63, CT_F64)) == INT64_MIN && ct_ok());
    const uint64_t large = UINT64_MAX;
    CHECK(ct_item_i64(ct_from_data(&large, CT_DIMS0, CT_U64)) == INT64_MIN && ct_error_code() == CT_ERR_VALUE);
    ct_error_clear();
    CHECK(ct_item_i64(ct_zeros(CT_DIMS(2))) == INT64_MIN);
    CHECK_ERROR(CT_ERR_SHAPE, "item_i64: x is f32[2]; only a tensor of one element has an item");
    CHECK(ct_item_i64(NULL) == INT64_MIN);
    CHECK_ERROR(CT_ERR_NULL, "item_i64: argument x is NULL");
}

TEST(full_and_fill_keep_every_i64) {
    ct_tensor *x = ct_full_i64(CT_DIMS(2, 3), odd);
    CHECK(ct_dtype_of(x) == CT_I64 && ct_ndim(x) == 2 && ct_is_contiguous(x));
    for (int64_t i = 0; i < 6; i++) CHECK(at(x, i) == odd);
    CHECK(ct_fill_i64(ct_slice(x, 1, 1, .stop = CT_SET(2)), -odd) != NULL); /* a column */
    for (int64_t i = 0; i < 6; i++) CHECK(at(x, i) == (i % 3 == 1 ? -odd : odd));
    ct_tensor *small = ct_zeros(CT_DIMS(1), .dtype = CT_I8);
    CHECK(ct_fill_i64(small, -128) && ct_item_i64(small) == -128 && !ct_fill_i64(small, 1000));
    CHECK_ERROR(CT_ERR_VALUE, "fill_i64: 1000 is no i8");
    CHECK(!ct_fill_i64(ct_expand(small, CT_DIMS(2)), 1) && ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    CHECK(ct_numel(ct_full_i64(CT_DIMS(0, 4), 1)) == 0 && at(ct_full_i64(CT_DIMS0, INT64_MIN), 0) == INT64_MIN);
    /* what is made belongs to whoever made it */
    ct_tensor *one = ct_full_i64(CT_DIMS(1), 5);
    CHECK(ct_fill_i64(one, 6) && at(ct_full_i64(CT_DIMS(1), 5), 0) == 5);
}

TEST(arange_keeps_every_i64) {
    ct_tensor *x = ct_arange_i64(odd, odd + 7, 2);
    CHECK(ct_numel(x) == 4 && ct_dtype_of(x) == CT_I64);
    for (int64_t i = 0; i < 4; i++) CHECK(at(x, i) == odd + 2 * i);
    x = ct_arange_i64(INT64_MIN, INT64_MAX, INT64_MAX);
    CHECK(ct_numel(x) == 3 && at(x, 0) == INT64_MIN && at(x, 1) == -1 && at(x, 2) == INT64_MAX - 1);
    x = ct_arange_i64(INT64_MAX, INT64_MIN, INT64_MIN);
    CHECK(ct_numel(x) == 2 && at(x, 0) == INT64_MAX && at(x, 1) == -1);
    x = ct_arange_i64(3, -4, -3);
    CHECK(ct_numel(x) == 3 && at(x, 0) == 3 && at(x, 1) == 0 && at(x, 2) == -3);
    CHECK(ct_numel(ct_arange_i64(5, 5, 1)) == 0);
    CHECK(!ct_arange_i64(0, 5, 0));
    CHECK_ERROR(CT_ERR_VALUE, "arange_i64: step is 0");
    CHECK(!ct_arange_i64(0, 5, -1));
    CHECK_ERROR(CT_ERR_VALUE, "arange_i64: step -1 does not lead from start 0 to stop 5");
    CHECK(!ct_arange_i64(INT64_MIN, INT64_MAX, 1) && ct_error_code() != CT_OK); /* no memory holds it */
    ct_error_clear();
}

TEST(the_library_reads_integers_as_integers) {
    /* the largest value is what says how many there are to count: its message has it exactly */
    CHECK(!ct_bincount(ct_full_i64(CT_DIMS(1), 4611686018427387905)));
    CHECK(strstr(ct_error(), "4611686018427387906") != NULL);
    ct_error_clear();
}
