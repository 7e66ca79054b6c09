/* Reductions on an NVIDIA device against the CPU, of sizes beyond one block: rows, columns and pieces of both, dense or out of line with
 * packs, in one part and in many. Elements are whole numbers of which every sum is exact, so the bits are the same. Without a device all of it
 * is skipped, and says why. */
#include <math.h>
#include <string.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};
static uint64_t state = 1;
static int64_t below(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static const ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F64, CT_F16, CT_I32, CT_U8, CT_I64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* The same numbers on both devices; now and then a part that begins out of line, or with its axes in the opposite order. */
static void make(ct_dims shape, ct_dtype dtype, ct_device d, ct_tensor *made[2]) {
    const int last = shape.n - 1, how = (int)below(4);
    const int64_t length = shape.d[last];
    if (how == 1) shape.d[last] += 4;
    made[0] = ct_cast(ct_sub_s(ct_randint(shape, 0, 100, .device = cpu), dtype == CT_U8 ? 0 : 50), dtype);
    made[1] = ct_to(made[0], d);
    for (int i = 0; i < 2 && how == 1; i++) made[i] = ct_narrow(made[i], last, 1 + 3 * (length % 2), length);
    for (int i = 0; i < 2 && how == 2; i++) {
        ct_dims back = {.n = shape.n};
        for (int k = 0; k < shape.n; k++) back.d[k] = shape.n - 1 - k;
        made[i] = ct_permute(ct_contiguous(ct_permute(made[i], back)), back);
    }
}

static void check(ct_dims shape, ct_dims axes, ct_dtype dtype, ct_device d) {
    ct_scope {
        ct_tensor *x[2];
        make(shape, dtype, d, x);
        ct_tensor *sums[2], *most[2], *places[2], *logs[2];
        for (int i = 0; i < 2; i++) {
            sums[i] = ct_sum(x[i], .axes = axes);
            most[i] = ct_amax(x[i], .axes = axes);
            places[i] = axes.n == 1 ? ct_argmax(x[i], .axis = CT_SET((double)axes.d[0])) : ct_argmax(x[i]);
            logs[i] = ct_dtype_is_float(dtype) ? ct_logsumexp(x[i], .axes = axes) : NULL;
        }
        const char *where = ct_dims_text(shape);
        CHECK(sums[0] && sums[1] && harness_same_bits(ct_to(sums[1], cpu), sums[0]));
        CHECK(most[0] && most[1] && harness_same_bits(ct_to(most[1], cpu), most[0]));
        CHECK(places[0] && places[1] && harness_same_bits(ct_to(places[1], cpu), places[0]));
        if (logs[0]) { /* two roundings of f32, or one of a half type */
            ct_tensor *got = ct_cast(ct_to(logs[1], cpu), CT_F64), *expected = ct_cast(logs[0], CT_F64);
            const double unit = dtype == CT_BF16 ? 0x1p-7 : dtype == CT_F16 ? 0x1p-10 : 0x1p-20;
            CHECK(ct_item(ct_amax(ct_abs(ct_sub(got, expected)))) <= unit * 64);
        }
        if (harness_failed()) printf("  of %s %s\n", ct_dtype_name(dtype), where);
    }
}

TEST_LIMIT(reductions_of_any_axes_agree_with_the_cpu, 120) {
    CUDA(d);
    for (int i = 0; i < 150 && !harness_failed(); i++) {
        ct_dims shape = {.n = 1 + (int)below(4)}, axes = {.n = 0};
        int64_t left = 200000;
        for (int k = 0; k < shape.n; k++) {
            const int64_t most = k == shape.n - 1 ? left : 1 + below(left < 600 ? left : 600), size = 1 + below(most);
            shape.d[k] = size > 64 && below(2) ? size / 16 * 16 : size;
            left /= shape.d[k];
            if (below(2)) axes.d[axes.n++] = k;
        }
        check(shape, axes, dtypes[i % DTYPES], d);
    }
}

/* Those that training has: biases of images, rows and columns of matrices, everything. */
TEST_LIMIT(reductions_that_training_has_agree_with_the_cpu, 120) {
    CUDA(d);
    for (int i = 0; i < DTYPES && !harness_failed(); i++) {
        check(CT_DIMS(40, 24, 12, 12), CT_DIMS(0, 2, 3), dtypes[i], d);
        check(CT_DIMS(40, 12, 12, 24), CT_DIMS(0, 1, 2), dtypes[i], d);
        check(CT_DIMS(5000, 40), CT_DIMS(1), dtypes[i], d);
        check(CT_DIMS(6000, 2100), CT_DIMS(1), dtypes[i], d);
        check(CT_DIMS(3000, 72), CT_DIMS(0), dtypes[i], d);
        check(CT_DIMS(3, 70000), CT_DIMS(1), dtypes[i], d);
        check(CT_DIMS(300001), CT_DIMS0, dtypes[i], d);
    }
}
