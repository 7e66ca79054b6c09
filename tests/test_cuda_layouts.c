/* Layouts on an NVIDIA device against the CPU, bit for bit: transposes of any sizes, rows that broadcast, parts out of line with packs.
 * Without a device all of it is skipped, and says why. */

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};
static uint64_t state = 1;
static int64_t below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_BF16, CT_F16, CT_U8, CT_I64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Any size up to most; every other time a multiple of 16. */
static int64_t size_up_to(int64_t most) {
    const int64_t n = 1 + below(most);
    return below(2) ? (n + 15) / 16 * 16 : n;
}

/* The same numbers on both devices: a part of something with longer rows, that begins in or out of line. */
static void make(ct_dims shape, ct_dtype dtype, ct_device d, ct_tensor *made[2]) {
    const int last = shape.n - 1;
    const int64_t length = shape.d[last], start = below(3) ? 4 * below(2) : below(5);
    shape.d[last] += 4;
    made[0] = ct_cast(ct_sub_s(ct_randint(shape, 0, 100), 50), dtype);
    made[1] = ct_to(made[0], d);
    for (int i = 0; i < 2; i++) made[i] = ct_narrow(made[i], last, start, length);
    if (below(5) == 0) made[0] = ct_contiguous(made[0]), made[1] = ct_contiguous(made[1]);
}

TEST_LIMIT(transposes_are_copied_bit_for_bit, 120) {
    CUDA(d);
    const ct_dims orders[] = {CT_DIMS(2, 0, 1), CT_DIMS(0, 2, 1), CT_DIMS(2, 1, 0), CT_DIMS(1, 0, 2)};
    for (int i = 0; i < 300; i++)
        ct_scope {
            ct_tensor *x[2], *y[2];
            const ct_dims shape = CT_DIMS(1 + below(3), size_up_to(150), size_up_to(150)), order = orders[below(4)];
            make(shape, dtypes[below(DTYPES)], d, x);
            for (int k = 0; k < 2; k++) y[k] = ct_contiguous(ct_permute(x[k], order));
            CHECK(y[0] && y[1] && harness_same_bits(ct_to(y[1], cpu), y[0]));
        }
}

TEST_LIMIT(operands_that_broadcast_along_rows_are_computed_bit_for_bit, 120) {
    CUDA(d);
    for (int i = 0; i < 500; i++)
        ct_scope {
            const int64_t sizes[] = {1 + below(4), 1 + below(9), size_up_to(40)};
            const ct_dtype dtype = dtypes[below(DTYPES)];
            ct_tensor *in[3][2], *out[2];
            for (int k = 0; k < 3; k++) {
                ct_dims shape = CT_DIMS(sizes[0], sizes[1], sizes[2]);
                for (int n = 0; n < 3; n++)
                    if (below(3) == 0) shape.d[n] = 1;
                make(shape, k == 2 ? CT_BOOL : dtype, d, in[k]);
            }
            const int64_t what = below(3);
            for (int k = 0; k < 2; k++)
                out[k] = what == 0   ? ct_add(in[0][k], in[1][k])
                         : what == 1 ? ct_gt(in[0][k], in[1][k])
                                     : ct_where(in[2][k], in[0][k], in[1][k]);
            CHECK(out[0] && out[1] && harness_same_bits(ct_to(out[1], cpu), out[0]));
        }
}

/* Threads of long formulas take two packs each: every element up to the last is computed, by the kernel for dense operands and by that of
 * any strides alike. */
TEST_LIMIT(long_formulas_reach_every_element_with_the_same_bits_in_any_layout, 120) {
    CUDA(d);
    static const int64_t lengths[] = {1, 3, 4, 8, 255, 1023, 1024, 1028, 2047, 2048, 2049, 4096, 4100, 8191, 100003};
    static const ct_dtype floats[] = {CT_F32, CT_BF16, CT_F16, CT_F64};
    CHECK(ct_set_device(d));
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++)
        for (int t = 0; t < 4; t++)
            ct_scope {
                const int64_t n = lengths[i];
                ct_tensor *wide = ct_cast(ct_randn(CT_DIMS(n, 2)), floats[t]);
                ct_tensor *apart[2], *dense[2], *results[2][3];
                for (int k = 0; k < 2; k++) {
                    apart[k] = ct_select(wide, 1, k);
                    dense[k] = ct_contiguous(apart[k]);
                }
                for (int k = 0; k < 2; k++) {
                    ct_tensor **in = k ? apart : dense;
                    results[k][0] = ct_gelu(in[0]);
                    results[k][1] = ct_remainder(in[0], in[1]);
                    results[k][2] = ct_expm1(in[0]);
                }
                for (int r = 0; r < 3; r++)
                    harness_check(harness_same_bits(ct_to(results[0][r], cpu), ct_to(results[1][r], cpu)), __FILE__,
                                  __LINE__, "%lld of %s: result %d has other bits", (long long)n,
                                  ct_dtype_name(floats[t]), r);
            }
    CHECK(ct_set_device(cpu) && ct_ok());
}

TEST_LIMIT(one_value_that_is_expanded_is_computed_for_every_element, 60) {
    CUDA(d);
    for (int i = 0; i < 60; i++)
        ct_scope {
            const int64_t rows = 1 + below(40), columns = size_up_to(90);
            ct_tensor *x[2], *y[2];
            make(CT_DIMS(1, 1), dtypes[below(DTYPES)], d, x);
            for (int k = 0; k < 2; k++) y[k] = ct_square(i % 2 ? ct_expand(x[k], CT_DIMS(rows, columns)) : x[k]);
            CHECK(y[0] && y[1] && harness_same_bits(ct_to(y[1], cpu), y[0]));
        }
}
