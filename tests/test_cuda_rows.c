/* Sums of rows that an index names, on an NVIDIA device against the CPU: rows that nothing names, rows that many name, indices that are
 * expanded, and errors. Without a device all of it is skipped, and says why. */

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* n indices below rows; one in three is 5, some twice or a few times, most rows are not named. */
static ct_tensor *crowded_index(int64_t n, int64_t rows) {
    ct_seed(3);
    ct_tensor *any = ct_randint(CT_DIMS(n), 0, rows), *third = ct_randint(CT_DIMS(n), 0, 3);
    return ct_where(ct_eq_s(third, 0), ct_full(CT_DIMS(n), 5, .dtype = CT_I64), any);
}

static ct_tensor *rows_of(int64_t n, int64_t width, ct_dtype dtype) {
    ct_seed(4);
    return ct_cast(ct_dtype_is_float(dtype) ? ct_randn(CT_DIMS(n, width)) : ct_randint(CT_DIMS(n, width), -9, 10),
                   dtype);
}

/* The CPU's sums of floats round in its order: as far apart as a sum of n numbers of size 1 can be. */
static bool near(ct_tensor *there, ct_tensor *here, int64_t n) {
    const ct_dtype dtype = ct_dtype_of(here);
    if (!ct_dtype_is_float(dtype)) return harness_same_bits(ct_to(there, cpu), here);
    const double eps = dtype == CT_BF16 ? 0x1p-8 : dtype == CT_F16 ? 0x1p-11 : dtype == CT_F64 ? 0x1p-52 : 0x1p-23;
    ct_tensor *a = ct_cast(ct_to(there, cpu), CT_F64), *b = ct_cast(here, CT_F64);
    ct_tensor *apart =
        ct_sub(ct_abs(ct_sub(a, b)), ct_mul_s(ct_add_s(ct_abs(b), dtype <= CT_F64 ? (double)n : 1), 2 * eps));
    return ct_ok() && ct_item(ct_amax(apart)) <= 0;
}

static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16, CT_I32, CT_I64, CT_U8};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, N = 4000 };
static const int64_t all_rows[] = {700, 9001}; /* most of them named, and few */
static const int64_t widths[] = {1, 3, 8, 36, 132};

TEST_LIMIT(crowded_and_empty_rows_are_summed_as_on_the_cpu, 240) {
    CUDA(d);
    for (int k = 0; k < 2 * DTYPES; k++)
        for (int w = 0; w < 5; w++)
            ct_scope {
                const ct_dtype dtype = dtypes[k / 2];
                const int64_t rows = all_rows[k % 2];
                ct_tensor *index = crowded_index(N, rows), *src = rows_of(N, widths[w], dtype);
                ct_tensor *x = ct_mul_s(rows_of(rows, widths[w], dtype), 2), *on = ct_to(index, d),
                          *from = ct_to(src, d);
                ct_tensor *here = ct_index_add(x, 0, index, src), *there = ct_index_add(ct_to(x, d), 0, on, from);
                CHECK(near(there, here, N));
                CHECK(harness_same_bits(ct_to(there, cpu), ct_to(ct_index_add(ct_to(x, d), 0, on, from), cpu)));
                ct_tensor *wide = ct_expand(ct_reshape(index, CT_DIMS(N, 1)), CT_DIMS(N, widths[w]));
                ct_tensor *there_wide = ct_expand(ct_reshape(on, CT_DIMS(N, 1)), CT_DIMS(N, widths[w]));
                here = ct_scatter_add(x, 0, wide, src);
                there = ct_scatter_add(ct_to(x, d), 0, there_wide, from);
                CHECK(near(there, here, N));
                here = ct_scatter_add(ct_t(x), 1, ct_t(wide), ct_t(src));
                there = ct_scatter_add(ct_t(ct_to(x, d)), 1, ct_t(there_wide), ct_t(from));
                CHECK(near(there, here, N));
            }
}

TEST_LIMIT(gradients_of_embeddings_are_those_of_the_cpu, 240) {
    CUDA(d);
    for (int k = 0; k < 2 * 4; k++)
        for (int w = 0; w < 5; w++)
            ct_scope {
                const ct_dtype dtype = dtypes[k / 2];
                const int64_t rows = all_rows[k % 2];
                ct_tensor *index = ct_reshape(crowded_index(N, rows), CT_DIMS(8, N / 8)), *grads[2];
                for (int i = 0; i < 2; i++) {
                    const ct_device on = i ? d : cpu;
                    ct_tensor *weight = ct_set_requires_grad(ct_to(rows_of(rows, widths[w], dtype), on), true);
                    ct_tensor *g = ct_to(ct_reshape(rows_of(N, widths[w], dtype), CT_DIMS(8, N / 8, widths[w])), on);
                    CHECK(ct_backward_from(ct_embedding(weight, ct_to(index, on), .padding_idx = CT_SET(7)), g, 0));
                    grads[i] = ct_grad_of(weight);
                }
                CHECK(grads[0] && grads[1] && near(grads[1], grads[0], N));
            }
}

TEST(an_index_out_of_range_is_named_as_on_the_cpu) {
    CUDA(d);
    char text[2][512];
    for (int i = 0; i < 2; i++)
        ct_scope {
            const ct_device on = i ? d : cpu;
            int64_t values[] = {0, 3, 9, 1};
            ct_tensor *index = ct_zeros(CT_DIMS(4, 1), .dtype = CT_I64);
            CHECK(ct_write(index, values, sizeof values));
            ct_tensor *x = ct_zeros(CT_DIMS(5, 6), .device = on), *src = ct_ones(CT_DIMS(4, 6), .device = on);
            ct_tensor *y = ct_scatter_add(x, 0, ct_expand(ct_to(index, on), CT_DIMS(4, 6)), src);
            if (y) ct_synchronize(on);
            snprintf(text[i], sizeof text[i], "%s", ct_ok() ? "" : ct_error());
            CHECK(ct_error_code() == CT_ERR_INDEX);
            ct_error_clear();
        }
    CHECK_TEXT(text[1], text[0]);
}
