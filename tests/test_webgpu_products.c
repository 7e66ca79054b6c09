/* Products on WebGPU at sizes that reach every shape of tile and sums in parts. What every sample of the ops gives is
 * compared with the CPU by `cotangent check --device webgpu`. Without a device all of it is skipped, and says why. */
#include <math.h>
#include <stdlib.h>

#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* Small integers: their sums are exact in f32, in whatever order, and a half result is rounded once. */
static ct_tensor *numbers(ct_dims shape) { return ct_cast(ct_randint(shape, -3, 4), CT_F32); }

static ct_tensor *operand(int64_t batch, int64_t rows, int64_t columns, bool transposed) {
    const int64_t r = transposed ? columns : rows, c = transposed ? rows : columns;
    return numbers(batch > 1 ? CT_DIMS(batch, r, c) : CT_DIMS(r, c));
}

static ct_tensor *turned(ct_tensor *x, bool transposed) { return transposed ? ct_transpose(x, -2, -1) : x; }

static void check_product(ct_device d, ct_dtype dtype, int64_t batch, int64_t m, int64_t k, int64_t n, int layout) {
    ct_scope {
        const bool ta = layout & 1, tb = layout & 2;
        ct_tensor *a = ct_cast(operand(batch, m, k, ta), dtype), *b = ct_cast(operand(batch, k, n, tb), dtype);
        ct_tensor *expected = ct_matmul(turned(a, ta), turned(b, tb));
        ct_tensor *there[] = {ct_to(a, d), ct_to(b, d)};
        ct_tensor *got = ct_to(ct_matmul(turned(there[0], ta), turned(there[1], tb)), cpu);
        harness_check(got && harness_same_bits(got, expected), __FILE__, __LINE__,
                      "%s %lld x [%lld,%lld] [%lld,%lld] layout %d: %s", ct_dtype_name(dtype), (long long)batch,
                      (long long)m, (long long)k, (long long)k, (long long)n, layout, ct_error());
        ct_error_clear();
    }
}

TEST_LIMIT(products_are_the_cpus_in_every_shape_of_tile, 300) {
    static const struct {
        int64_t batch, m, k, n;
    } sizes[] = {{1, 2100, 24, 2052}, /* tiles of 128 x 128 */
                 {1, 1030, 40, 1028}, {1, 64, 24, 20001}, {1, 20003, 24, 60},
                 {1, 130, 4000, 66}, /* in parts from here on */
                 {3, 36, 5000, 24},   {1, 3, 20000, 5},   {20, 70, 70, 70}};
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        check_product(d, CT_F32, sizes[s].batch, sizes[s].m, sizes[s].k, sizes[s].n, (int)s % 4);
}

static void check_layouts(ct_device d) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_I32, CT_I16, CT_I8, CT_U8, CT_I64};
    for (int i = 0; i < 8; i++)
        for (int layout = i % 2; layout < 4; layout += i ? 2 : 1)
            check_product(d, dtypes[i], 1, layout % 2 ? 68 : 72, 100, 72, layout);
    for (int i = 0; i < 8; i++) check_product(d, dtypes[i], 2, 33, 515, 35, i % 4);
}

TEST_LIMIT(products_are_the_cpus_in_every_layout_and_dtype, 300) {
    WEBGPU(d);
    check_layouts(d);
}

TEST_LIMIT(tiles_are_the_cpus_in_every_layout_and_dtype, 300) {
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    check_layouts(d);
    for (int layout = 0; layout < 4; layout++) /* large enough for the largest tiles */
        check_product(d, layout % 2 ? CT_I32 : CT_F32, 1, 1985 + 3 * (layout & 2), 17, 2001 + layout, layout);
}

TEST_LIMIT(narrow_operands_of_large_tiles_are_the_cpus_whether_tiles_end_with_them_or_not, 300) {
    static const ct_dtype dtypes[] = {CT_F16, CT_BF16, CT_I16, CT_U8};
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    for (int i = 0; i < 4; i++) {
        check_product(d, dtypes[i], 1, 1920, 32, 2048, i); /* 15 by 16 tiles of 128 */
        check_product(d, dtypes[i], 1, 2000, 20, 2004, 3 - i);
    }
}

TEST_LIMIT(destinations_are_written_whatever_their_strides, 120) {
    WEBGPU(d);
    ct_scope {
        ct_tensor *a = numbers(CT_DIMS(1030, 24)), *b = numbers(CT_DIMS(24, 1028)), *expected = ct_matmul(a, b);
        ct_tensor *whole = ct_to(ct_zeros(CT_DIMS(1030, 1100)), d), *columns = ct_to(ct_zeros(CT_DIMS(1028, 1030)), d);
        ct_tensor *into[] = {ct_slice(whole, 1, 4, .stop = CT_SET(1032)), ct_transpose(columns, 0, 1)};
        ct_tensor *there[] = {ct_to(a, d), ct_to(b, d)};
        for (int i = 0; i < 2; i++) {
            CHECK(ct_into(into[i]) && ct_matmul(there[0], there[1]));
            ct_tensor *got = ct_contiguous(ct_to(into[i], cpu));
            CHECK(got && harness_same_bits(got, expected));
        }
        CHECK(ct_item(ct_sum(ct_abs(ct_to(ct_slice(whole, 1, 1032), cpu)))) == 0);
    }
}

/* ---- linear ---- */

/* The largest distance of elements, over the largest element of b. */
static double distance(ct_tensor *a, ct_tensor *b) {
    a = ct_cast(ct_to(a, cpu), CT_F64);
    b = ct_cast(b, CT_F64);
    return ct_item(ct_amax(ct_abs(ct_sub(a, b)))) / (1e-30 + ct_item(ct_amax(ct_abs(b))));
}

/* y and the gradients of all three on a device. */
static bool run_layer(ct_tensor *const *exact, ct_dtype dtype, ct_device d, ct_activation activation,
                      ct_tensor *made[4]) {
    ct_tensor *in[4];
    for (int i = 0; i < 4; i++) in[i] = ct_set_requires_grad(ct_to(ct_cast(exact[i], dtype), d), i < 3);
    made[0] = ct_linear(in[0], in[1], .bias = in[2], .activation = activation);
    return ct_grad(&made[0], 1, &in[3], in, 3, made + 1, 0);
}

TEST_LIMIT(linear_and_its_gradients_are_the_cpus_at_sizes_that_fill_tiles, 300) {
    static const struct { int64_t rows, in, out; } sizes[] = {{64, 784, 128}, {130, 67, 33}, {257, 64, 132}};
    WEBGPU(d);
    for (int i = 0; i < 12; i++)
        ct_scope {
            const int64_t rows = sizes[i % 3].rows, in = sizes[i % 3].in, out = sizes[i % 3].out;
            const ct_dtype dtype = i % 4 == 3 ? CT_BF16 : CT_F32;
            const ct_activation activation = (ct_activation)(i / 2);
            ct_tensor *exact[4] = {numbers(CT_DIMS(rows, in)), ct_mul_s(numbers(CT_DIMS(out, in)), 0x1p-6),
                                   numbers(CT_DIMS(out)), numbers(CT_DIMS(rows, out))};
            ct_tensor *here[4] = {0}, *there[4] = {0};
            REQUIRE(run_layer(exact, CT_F64, cpu, activation, here) && run_layer(exact, dtype, d, activation, there));
            /* A sum of up to n products, operands that activations have rounded, and the result. */
            const double n = (double)(rows > in ? rows : in), unit = dtype == CT_F32 ? 0x1p-24 : 0x1p-8;
            for (int k = 0; k < 4; k++) CHECK_NEAR(distance(there[k], here[k]), 0, 4 * unit + 8 * sqrt(n) * 0x1p-24);
        }
}

TEST_LIMIT(products_have_the_same_bits_at_every_run, 120) {
    webgpu_as_for_a_gpu();
    WEBGPU(d);
    ct_scope {
        ct_tensor *a = ct_to(harness_randn(CT_DIMS(65, 3000)), d), *b = ct_to(harness_randn(CT_DIMS(3000, 70)), d);
        ct_tensor *first = ct_to(ct_matmul(a, b), cpu);
        for (int i = 0; i < 3; i++) CHECK(harness_same_bits(first, ct_to(ct_matmul(a, b), cpu)));
    }
}
