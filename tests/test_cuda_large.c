/* Tensors of more than 2^31 elements on an NVIDIA device: what counts or addresses them in 32 bits goes wrong at their end. Elements are mostly
 * zero, so that sums say exactly what has been touched. */
#include <string.h>

#include "tests/cuda_device.h"

static const int64_t n = ((int64_t)1 << 31) + 5;

static bool has_room(ct_device d, double gib) {
    ct_device_info info = {.size = sizeof info};
    return ct_device_describe(d, &info) && (double)info.memory_free > gib * 0x1p30;
}
#define LARGE(device, gib) \
    CUDA(device);          \
    if (!has_room(device, gib)) SKIP("the device has less than %g GiB left", (double)(gib))

static ct_tensor *part(ct_tensor *x, int axis, int64_t from, int64_t to) {
    return ct_slice(x, axis, from, .stop = CT_SET((double)to));
}

/* Zeros with the last elements 1, 2, 3. */
static ct_tensor *marked(ct_dtype dtype, ct_device d) {
    ct_tensor *x = ct_zeros(CT_DIMS(n), .dtype = dtype, .device = d);
    for (int i = 0; x && i < 3; i++) ct_fill(part(x, 0, n - 3 + i, n - 2 + i), i + 1);
    return x;
}

static double last(ct_tensor *x, int64_t from_end) {
    const int64_t size = ct_dim(x, 0);
    return ct_item(ct_cast(ct_reshape(part(x, 0, size - from_end, size - from_end + 1), CT_DIMS0), CT_F64));
}

TEST_LIMIT(elementwise_ops_and_sums_reach_the_end, 300) {
    LARGE(d, 30);
    ct_tensor *x = marked(CT_I8, d);
    REQUIRE(x);
    CHECK(ct_item(ct_cast(ct_sum(x), CT_F64)) == 6 && last(x, 1) == 3 && last(x, 3) == 1);
    ct_tensor *y = ct_add(x, x);
    CHECK(y && last(y, 1) == 6 && last(y, 2) == 4 && ct_item(ct_cast(ct_sum(y), CT_F64)) == 12);
    CHECK(ct_item(ct_cast(ct_sum(ct_cast(ct_gt_s(x, 1), CT_I8)), CT_F64)) == 2);
    CHECK(ct_item(ct_cast(ct_amax(x), CT_F64)) == 3 && ct_item_i64(ct_argmax(x)) == n - 1);
    CHECK(last(ct_clone(x), 2) == 2 && last(ct_flip(x, CT_DIMS(0)), n) == 3);
}

TEST_LIMIT(half_floats_of_that_size_are_computed_with, 300) {
    LARGE(d, 40);
    ct_tensor *x = marked(CT_BF16, d);
    REQUIRE(x);
    ct_scope {
        ct_tensor *y = ct_exp(x);
        CHECK(y && last(y, n) == 1 && last(y, 4) == 1 && last(y, 1) == 20.125); /* e^3 in bf16 */
    }
    ct_scope {
        ct_tensor *y = ct_cast(x, CT_F32);
        CHECK(y && last(y, 1) == 3 && ct_item(ct_sum(y)) == 6);
    }
    CHECK(ct_item(ct_cast(ct_sum(x), CT_F64)) == 6);
    ct_tensor *mean = ct_mean(ct_ones(CT_DIMS(n), .dtype = CT_BF16, .device = d));
    CHECK(mean && ct_item(ct_cast(mean, CT_F64)) == 1);
}

TEST_LIMIT(rows_and_columns_of_that_many_elements, 300) {
    LARGE(d, 60);
    enum { ROWS = 65537, COLUMNS = 32769 };
    ct_tensor *x = ct_zeros(CT_DIMS(ROWS, COLUMNS), .dtype = CT_BF16, .device = d);
    ct_tensor *row = x ? part(x, 0, ROWS - 1, ROWS) : NULL;
    REQUIRE(row && ct_fill(part(row, 1, COLUMNS - 1, COLUMNS), 4));
    ct_scope {
        ct_tensor *sums = ct_sum(x, .axes = CT_DIMS(1)), *columns = ct_sum(x, .axes = CT_DIMS(0));
        CHECK(sums && columns && last(sums, 1) == 4 && last(sums, 2) == 0 && last(columns, 1) == 4 &&
              last(columns, 2) == 0);
    }
    ct_scope {
        ct_tensor *t = ct_contiguous(ct_t(x));
        CHECK(t && last(ct_reshape(t, CT_DIMS(-1)), 1) == 4 && last(ct_reshape(t, CT_DIMS(-1)), 2) == 0);
    }
    ct_scope {
        ct_tensor *y = ct_softmax(x, 1), *p = y ? ct_cast(part(y, 0, ROWS - 1, ROWS), CT_F32) : NULL;
        const double e = 54.598150033144236, all = e + COLUMNS - 1; /* e^4 */
        CHECK(p && y);
        if (p) CHECK_NEAR(last(ct_reshape(p, CT_DIMS(-1)), 1), e / all, 0.01 * e / all);
    }
    ct_scope {
        ct_tensor *y = ct_add(x, ct_ones(CT_DIMS(COLUMNS), .dtype = CT_BF16, .device = d));
        CHECK(y && last(ct_reshape(y, CT_DIMS(-1)), 1) == 5 && last(ct_reshape(y, CT_DIMS(-1)), 2) == 1);
    }
}

TEST_LIMIT(elements_are_found_by_indices_beyond_32_bits, 300) {
    LARGE(d, 30);
    ct_tensor *x = marked(CT_I8, d), *index = ct_to(I64(CT_DIMS(4), n - 1, 0, n - 3, (double)((int64_t)1 << 31)), d);
    REQUIRE(x && index);
    CHECK_VALUES(ct_cast(ct_to(ct_index_select(x, 0, index), (ct_device){CT_CPU, 0}), CT_F32), CT_DIMS(4), 0, 3, 0, 1,
                 0);
    CHECK_VALUES(ct_cast(ct_to(ct_gather(x, 0, index), (ct_device){CT_CPU, 0}), CT_F32), CT_DIMS(4), 0, 3, 0, 1, 0);
    ct_tensor *y = ct_scatter(x, 0, index, ct_full(CT_DIMS(4), 9, .dtype = CT_I8, .device = d));
    CHECK(y && last(y, 1) == 9 && last(y, 2) == 2 && last(y, 3) == 9 && last(y, 5) == 9);
    ct_tensor *joined = ct_cat((ct_tensor *[]){x, x}, 2, 0);
    CHECK(joined && last(joined, 1) == 3 && last(joined, n + 1) == 3 && last(joined, 4) == 0);
}
