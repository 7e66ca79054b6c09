/* Elementwise results of more than 16 MiB, which are written past the caches block by block: the same bits as those of small parts, which
 * are not. */
#include "tests/harness.h"

enum { PART = 100003 }; /* elements: parts begin anywhere in a cache line */

typedef ct_tensor *binary(ct_tensor *a, ct_tensor *b);
static ct_tensor *plus(ct_tensor *a, ct_tensor *b) { return ct_add(a, b); }
static ct_tensor *greater(ct_tensor *a, ct_tensor *b) { return ct_gt(a, b); }
static ct_tensor *negated(ct_tensor *a, ct_tensor *b) { return (void)b, ct_neg(a); }
static ct_tensor *chosen(ct_tensor *a, ct_tensor *b) { return ct_where(ct_gt(a, b), a, b); }

static void check_parts(binary *op, ct_tensor *a, ct_tensor *b, ct_tensor *whole) {
    const int64_t n = ct_dim(a, 0);
    for (int64_t at = 0; at < n; at += 7 * PART)
        ct_scope {
            const ct_opt stop = CT_SET(at + PART < n ? at + PART : n);
            ct_tensor *part = op(ct_slice(a, 0, at, .stop = stop), ct_slice(b, 0, at, .stop = stop));
            CHECK(harness_same_bits(part, ct_contiguous(ct_slice(whole, 0, at, .stop = stop))));
        }
}

TEST(large_results_have_the_bits_of_small_ones) {
    const int64_t n = (1 << 22) + 17; /* 16 MiB of f32 */
    const struct {
        binary *op;
        ct_dtype dtype;
        int64_t n;
    } cases[] = {
        {plus, CT_F32, n}, {plus, CT_F64, n / 2}, {negated, CT_F32, n}, {chosen, CT_F32, n}, {greater, CT_F32, 4 * n}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 7; threads += 6)
            ct_scope {
                CHECK(ct_set_threads(threads));
                ct_tensor *a = ct_cast(ct_randn(CT_DIMS(cases[i].n)), cases[i].dtype),
                          *b = ct_cast(ct_randn(CT_DIMS(cases[i].n)), cases[i].dtype);
                check_parts(cases[i].op, a, b, cases[i].op(a, b));
                /* inputs and result that begin in the middle of a line */
                ct_tensor *later = ct_slice(a, 0, 1), *other = ct_slice(b, 0, 3, .stop = CT_SET(cases[i].n)),
                          *less = ct_slice(later, 0, 0, .stop = CT_SET(cases[i].n - 3)),
                          *whole = cases[i].op(less, other);
                check_parts(cases[i].op, less, other, whole);
            }
    ct_set_threads(0);
}

TEST(large_results_of_a_row_for_all_have_the_bits_of_small_ones) {
    ct_tensor *x = ct_randn(CT_DIMS(1100, 4099)), *row = ct_randn(CT_DIMS(4099)), *y = ct_add(x, row);
    for (int64_t i = 0; i < 1100; i += 99)
        CHECK(harness_same_bits(ct_contiguous(ct_select(y, 0, i)), ct_add(ct_contiguous(ct_select(x, 0, i)), row)));
}

TEST(a_destination_in_the_middle_of_a_line_is_written_whole) {
    const int64_t n = (1 << 22) + 17;
    ct_tensor *a = ct_randn(CT_DIMS(n)), *b = ct_randn(CT_DIMS(n)), *room = ct_full(CT_DIMS(n + 2), 7);
    ct_tensor *into = ct_slice(room, 0, 1, .stop = CT_SET(n + 1));
    REQUIRE(ct_into(into));
    CHECK(ct_add(a, b) == into);
    CHECK(harness_same_bits(ct_contiguous(into), ct_add(a, b)));
    CHECK(harness_at(room, 0) == 7 && harness_at(room, n + 1) == 7);
}
