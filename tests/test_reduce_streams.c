/* Long rows and wide columns, whose kernels read memory in more than one way: the same bits in each, at every level. */
#include "tests/harness.h"

#include "backends/cpu/gemm/caches.h"

typedef ct_tensor *reduction(ct_tensor *x, int axis);
static ct_tensor *sum(ct_tensor *x, int axis) { return ct_sum(x, .axes = CT_DIMS(axis)); }
static ct_tensor *greatest(ct_tensor *x, int axis) { return ct_amax(x, .axes = CT_DIMS(axis)); }
static ct_tensor *least(ct_tensor *x, int axis) { return ct_amin(x, .axes = CT_DIMS(axis)); }

/* The reduction as a processor computes it that does, or does not, prefetch by itself what kernels read. */
static ct_tensor *reduce_as(reduction *op, ct_tensor *x, int axis, bool reads_ahead) {
    ct_caches *caches = (ct_caches *)ct__caches();
    const bool here = caches->reads_ahead;
    caches->reads_ahead = reads_ahead;
    ct_tensor *y = op(x, axis);
    caches->reads_ahead = here;
    return y;
}

static void check_reductions(ct_tensor *x, double rounding) {
    ct_tensor *exact = ct_cast(x, CT_F64);
    for (int axis = 0; axis < 2; axis++) {
        ct_tensor *y = reduce_as(sum, x, axis, false);
        CHECK(harness_same_bits(y, reduce_as(sum, x, axis, true)));
        /* no partial sum exceeds 6 n, and random signs keep it far below: all roundings together are less than one of that */
        const double n = (double)ct_dim(x, axis),
                     far = ct_item(ct_amax(ct_abs(ct_sub(ct_cast(y, CT_F64), sum(exact, axis)))));
        CHECK_NEAR(far, 0, 6 * n * rounding);
        reduction *extrema[] = {greatest, least};
        for (int i = 0; i < 2; i++) {
            y = reduce_as(extrema[i], x, axis, false);
            CHECK(harness_same_bits(y, reduce_as(extrema[i], x, axis, true)));
            CHECK(harness_same_bits(ct_cast(y, CT_F64), extrema[i](exact, axis)));
        }
    }
}

TEST(reductions_have_the_same_bits_however_memory_is_read) {
    const char *levels[] = {"base", "avx2", "avx512", "neon"}, *best = ct_isa();
    const struct {
        ct_dtype dtype;
        double rounding;
    } dtypes[] = {{CT_F64, 0x1p-53}, {CT_F32, 0x1p-24}, {CT_F16, 0x1p-11}, {CT_BF16, 0x1p-8}};
    const int64_t shapes[][2] = {{77, 275}, {3, 9001}, {521, 69}, {8, 64}, {16, 4100}};
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!ct_set_isa(levels[l])) {
            ct_error_clear();
            continue;
        }
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                ct_scope {
                    ct_tensor *x = ct_cast(ct_clamp(harness_randn(CT_DIMS(shapes[s][0], shapes[s][1] + 3)),
                                                    .min = CT_SET(-6), .max = CT_SET(6)),
                                           dtypes[d].dtype);
                    check_reductions(x, dtypes[d].rounding);
                    check_reductions(ct_slice(x, 1, 3), dtypes[d].rounding); /* rows apart, in the middle of a line */
                }
    }
    CHECK(ct_set_isa(best));
}
