/* How operands lie in the bindings of a WebGPU device: tensors above the limit of one binding, views of one storage in one dispatch, and
 * elements narrower than a word beside others. Bit for bit against the CPU; without a device all of it is skipped, and says why. */

#include "tests/webgpu_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* 128 MiB is the least that a device may have as its limit, and what the software driver of Mesa has. */
TEST_LIMIT(tensors_above_the_limit_of_a_binding_are_bound_in_windows, 120) {
    WEBGPU(d);
    ct_scope {
        const int64_t rows = 17, columns = (40 << 20) / rows / 4 * 4;
        ct_tensor *x = ct_reshape(ct_arange(0, (double)(rows * columns), 1, .dtype = CT_I32), CT_DIMS(rows, columns));
        ct_tensor *there = ct_to(x, d);
        ct_tensor *y = ct_sub_s(ct_add(there, there), 7), *expected = ct_sub_s(ct_add(x, x), 7);
        CHECK(y && harness_same_bits(ct_to(y, cpu), expected));
        ct_tensor *columns_of = ct_narrow(there, 1, columns / 2, 5); /* across all windows */
        CHECK(harness_same_bits(ct_to(ct_contiguous(columns_of), cpu), ct_contiguous(ct_narrow(x, 1, columns / 2, 5))));
        ct_tensor *bytes = ct_cast(there, CT_U8); /* within one */
        CHECK(bytes && harness_same_bits(ct_to(bytes, cpu), ct_cast(x, CT_U8)));
        CHECK(ct_ok());
    }
}

static const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_I8, CT_I16, CT_I32, CT_I64, CT_U8, CT_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* x[to ...] op= x[from ...] within one storage, at every place in a word. */
TEST_LIMIT(views_of_one_storage_are_read_and_written_in_one_dispatch, 120) {
    WEBGPU(d);
    for (int k = 0; k < DTYPES; k++)
        for (int64_t start = 0; start < 5; start++)
            ct_scope {
                ct_tensor *x[2];
                x[0] = ct_cast(ct_remainder_s(ct_arange(0, 64, 1, .dtype = CT_I32), 11), dtypes[k]);
                x[1] = ct_to(x[0], d);
                for (int i = 0; i < 2; i++) {
                    CHECK(ct_add_(ct_narrow(x[i], 0, start, 13), ct_narrow(x[i], 0, 30 + start / 2, 13)));
                    CHECK(ct_assign(ct_slice(x[i], 0, start, .stop = CT_SET(start + 24), .step = 3),
                                    ct_narrow(x[i], 0, 50, 8)));
                }
                CHECK(harness_same_bits(ct_to(x[1], cpu), x[0]));
            }
}

TEST_LIMIT(stores_into_part_of_a_word_keep_its_neighbours, 120) {
    WEBGPU(d);
    for (int k = 0; k < DTYPES; k++)
        ct_scope {
            ct_tensor *x[2];
            x[0] = ct_cast(ct_remainder_s(ct_arange(0, 1003, 1, .dtype = CT_I32), 2), dtypes[k]);
            x[1] = ct_to(x[0], d);
            for (int i = 0; i < 2; i++) {
                CHECK(ct_fill(ct_narrow(x[i], 0, 3, 995), 1));
                CHECK(ct_zero(ct_slice(x[i], 0, 1, .stop = CT_SET(1002), .step = 7)));
                CHECK(ct_zero(ct_narrow(x[i], 0, 501, 1)));
            }
            CHECK(harness_same_bits(ct_to(x[1], cpu), x[0]));
        }
}
