/* Norms by channels and pooling on an NVIDIA device: sizes beyond one block, one cluster and one pass, both layouts, halves, bits that stay
 * the same, and statistics that a bad value does not reach. Without a device all of it is skipped, and says why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cotangent.h>

#include "tests/cuda_device.h"

static const ct_device cpu = {CT_CPU, 0};

/* |got - expected| / |expected|, on the CPU in f64. */
static double distance(ct_tensor *got, ct_tensor *expected) {
    if (!got || !expected) return INFINITY;
    ct_tensor *a = ct_cast(ct_to(got, cpu), CT_F64), *b = ct_cast(ct_to(expected, cpu), CT_F64);
    return sqrt(ct_item(ct_sum(ct_square(ct_sub(a, b)))) / (ct_item(ct_sum(ct_square(b))) + 1e-300));
}

/* ---- Norms ---- */

typedef struct norm_case {
    ct_dims shape; /* channels first */
    int64_t groups;
    bool relu, residual;
} norm_case;

static const norm_case norm_cases[] = {
    {{4, {3, 5, 7, 9}}, 0, false, false},       /* small, and no whole packs */
    {{4, {16, 24, 56, 56}}, 0, false, false},   /* a channel in one block or a few */
    {{4, {33, 6, 80, 96}}, 0, true, true},      /* in a cluster of several, unevenly */
    {{4, {8, 2, 512, 512}}, 0, true, false},    /* more than a cluster holds */
    {{4, {2, 64, 40, 40}}, 8, false, false},    /* groups in one block */
    {{4, {2, 64, 128, 128}}, 2, false, false},  /* in a cluster */
    {{4, {1, 16, 400, 400}}, 1, false, false},  /* more than a cluster holds */
    {{3, {128, 200, 33}}, 0, false, false},     /* lines without whole packs */
    {{4, {5, 256, 14, 14}}, 256, false, false}, /* small sets */
    {{2, {3000, 40}}, 0, true, false},          /* no places */
};
enum { NORM_CASES = sizeof norm_cases / sizeof *norm_cases };

static ct_dims to_last(const ct_dims *shape) {
    ct_dims order = {.n = shape->n};
    for (int i = 0; i < shape->n; i++) order.d[i] = i == 0 ? 0 : i + 1 < shape->n ? i + 1 : 1;
    return order;
}
static ct_dims from_last(const ct_dims *shape) {
    ct_dims order = {.n = shape->n};
    for (int i = 0; i < shape->n; i++) order.d[i] = i == 0 ? 0 : i == 1 ? shape->n - 1 : i - 1;
    return order;
}

enum { LEAVES = 4, RESULTS = 7 }; /* y, four gradients, the running statistics */

/* The case on a device, in one layout; all results channels first. */
static void run_norm(const norm_case *c, ct_device d, ct_dtype dtype, bool last, ct_tensor **results) {
    const int64_t channels = c->shape.d[1];
    const ct_dims order = to_last(&c->shape), back = from_last(&c->shape), one = CT_DIMS(channels);
    const ct_dtype params = dtype == CT_F64 ? CT_F64 : CT_F32;
    ct_tensor *leaves[LEAVES], *g, *grads[LEAVES], *mean, *var, *y;
    ct_seed(5);
    const ct_dims shapes[LEAVES + 1] = {c->shape, one, one, c->shape, c->shape};
    ct_tensor *made[LEAVES + 1];
    for (int i = 0; i <= LEAVES; i++) {
        const bool image = i == 0 || i >= 3;
        /* halves are the same numbers on both sides */
        ct_tensor *x = ct_randn(shapes[i]);
        x = image ? ct_add_s(x, i == 0 ? 0.7 : 0) : ct_add_s(ct_mul_s(x, 0.3), i == 1);
        if (image) x = ct_cast(x, CT_BF16);
        x = ct_to(ct_cast(x, image ? dtype : params), d);
        if (image && last) x = ct_contiguous(ct_permute(x, order));
        made[i] = x;
    }
    for (int i = 0; i < LEAVES; i++) leaves[i] = ct_set_requires_grad(made[i], true);
    g = made[LEAVES];
    mean = ct_zeros(one, .dtype = params, .device = d);
    var = ct_ones(one, .dtype = params, .device = d);
    if (c->groups)
        y = ct_group_norm(leaves[0], c->groups, .weight = leaves[1], .bias = leaves[2], .channels_last = last);
    else
        y = ct_batch_norm(leaves[0], .running_mean = mean, .running_var = var, .weight = leaves[1], .bias = leaves[2],
                          .residual = c->residual ? leaves[3] : NULL, .training = true, .relu = c->relu,
                          .channels_last = last);
    CHECK(y && ct_grad(&y, 1, (ct_tensor *[]){ct_cast(g, ct_dtype_of(y))}, leaves, LEAVES, grads, 0));
    results[0] = y;
    for (int i = 0; i < LEAVES; i++) results[1 + i] = grads[i];
    for (int i = 0; i < 5 && last && y; i++)
        if (i == 0 || i == 1 || i == 4) results[i] = ct_permute(results[i], back);
    results[5] = mean, results[6] = var;
}

/* Rounding of half results, and where relu's input is near 0 some of them on the other side. */
static double tolerance_of(ct_dtype dtype, int result) {
    if (dtype == CT_F64) return 1e-10;
    if (dtype == CT_F32) return 2e-5;
    return result >= 5 ? 1e-5 : dtype == CT_F16 ? 4e-3 : 2e-2;
}

TEST_LIMIT(norms_agree_with_the_cpu_in_f64_in_both_layouts, 300) {
    CUDA(d);
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_F16, CT_BF16};
    for (int k = 0; k < NORM_CASES; k++)
        for (int t = 0; t < 4; t++)
            ct_scope {
                ct_tensor *expected[RESULTS], *got[RESULTS];
                run_norm(&norm_cases[k], cpu, CT_F64, false, expected);
                for (int last = 0; last < 2; last++) {
                    run_norm(&norm_cases[k], d, dtypes[t], last, got);
                    for (int i = 0; i < RESULTS; i++) {
                        if (i == 4 && !norm_cases[k].residual) continue;
                        const double apart = distance(got[i], expected[i]);
                        harness_check(apart <= tolerance_of(dtypes[t], i), __FILE__, __LINE__,
                                      "case %d, dtype %d, last %d, result %d: %g apart", k, dtypes[t], last, i, apart);
                    }
                }
            }
}

TEST_LIMIT(norms_have_the_same_bits_every_time, 120) {
    CUDA(d);
    for (int k = 0; k < NORM_CASES; k++)
        ct_scope {
            ct_tensor *first[RESULTS], *again[RESULTS];
            run_norm(&norm_cases[k], d, CT_F32, k % 2, first);
            run_norm(&norm_cases[k], d, CT_F32, k % 2, again);
            for (int i = 0; i < RESULTS; i++) CHECK(harness_same_bits(ct_to(first[i], cpu), ct_to(again[i], cpu)));
        }
}

TEST_LIMIT(an_element_far_from_the_others_costs_no_digits, 120) {
    CUDA(d);
    static const ct_dims shapes[] = {{4, {4, 3, 50, 50}}, {4, {2, 2, 1024, 1024}}};
    for (int k = 0; k < 2; k++)
        ct_scope {
            ct_tensor *x = ct_mul_s(ct_randn(shapes[k]), 1e-3);
            ct_assign(ct_slice(ct_reshape(x, CT_DIMS(-1)), 0, 0, .stop = CT_SET(1)), ct_full(CT_DIMS(1), 100));
            ct_tensor *expected = ct_batch_norm(ct_cast(x, CT_F64), .training = true, .eps = CT_SET(1e-12)),
                      *got = ct_batch_norm(ct_to(x, d), .training = true, .eps = CT_SET(1e-12));
            CHECK(distance(got, expected) < 1e-5);
        }
}

TEST_LIMIT(running_statistics_stay_as_they_were_after_a_bad_value, 120) {
    CUDA(d);
    ct_tensor *x = ct_to(harness_randn(CT_DIMS(8, 3, 4, 4)), d), *mean = ct_zeros(CT_DIMS(3), .device = d),
              *var = ct_ones(CT_DIMS(3), .device = d);
    CHECK(ct_synchronize(d));
    ct_embedding(ct_ones(CT_DIMS(4, 2), .device = d), ct_full(CT_DIMS(1), 9, .dtype = CT_I64, .device = d));
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true);
    ct_instance_norm(x, .running_mean = mean, .running_var = var);
    CHECK(!ct_synchronize(d));
    CHECK(ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK_VALUES(ct_to(mean, cpu), CT_DIMS(3), 0, 0, 0, 0);
    CHECK_VALUES(ct_to(var, cpu), CT_DIMS(3), 0, 1, 1, 1);
    ct_batch_norm(x, .running_mean = mean, .running_var = var, .training = true);
    CHECK(harness_at(ct_to(mean, cpu), 0) != 0);
}

/* ---- Pooling ---- */

typedef struct pool_case {
    int rank;
    ct_dims shape; /* channels first */
    ct_dims kernel, stride, pad, dilation;
    bool ceil_mode, exclude_pad;
} pool_case;

static const pool_case pool_cases[] = {
    {2, {4, {4, 16, 112, 112}}, {1, {3}}, {1, {2}}, {1, {1}}, {1, {1}}, false, false},
    {2, {4, {4, 16, 112, 112}}, {1, {2}}, {1, {2}}, {1, {0}}, {1, {1}}, false, false},
    {2, {4, {3, 10, 57, 63}}, {2, {5, 4}}, {2, {2, 3}}, {2, {2, 1}}, {2, {1, 2}}, true, true},
    {1, {3, {3, 24, 5000}}, {1, {9}}, {1, {4}}, {1, {4}}, {1, {1}}, false, false},
    {3, {5, {2, 8, 20, 24, 28}}, {3, {3, 2, 3}}, {3, {2, 2, 1}}, {3, {1, 0, 1}}, {1, {1}}, false, true},
    {2, {4, {2, 8, 90, 90}}, {1, {17}}, {1, {3}}, {1, {8}}, {1, {1}}, false, false}, /* winners of 32 bits */
};
enum { POOL_CASES = sizeof pool_cases / sizeof *pool_cases };

static ct_tensor *pooled(const pool_case *c, ct_tensor *x, bool max, bool last, ct_tensor **indices) {
    if (c->rank == 1)
        return max ? ct_max_pool1d(x, c->kernel, .strides = c->stride, .pads = c->pad, .dilations = c->dilation,
                                   .ceil_mode = c->ceil_mode, .channels_last = last, .indices = indices)
                   : ct_avg_pool1d(x, c->kernel, .strides = c->stride, .pads = c->pad, .ceil_mode = c->ceil_mode,
                                   .exclude_pad = c->exclude_pad, .channels_last = last);
    if (c->rank == 2)
        return max ? ct_max_pool2d(x, c->kernel, .strides = c->stride, .pads = c->pad, .dilations = c->dilation,
                                   .ceil_mode = c->ceil_mode, .channels_last = last, .indices = indices)
                   : ct_avg_pool2d(x, c->kernel, .strides = c->stride, .pads = c->pad, .ceil_mode = c->ceil_mode,
                                   .exclude_pad = c->exclude_pad, .channels_last = last);
    return max ? ct_max_pool3d(x, c->kernel, .strides = c->stride, .pads = c->pad, .dilations = c->dilation,
                               .ceil_mode = c->ceil_mode, .channels_last = last, .indices = indices)
               : ct_avg_pool3d(x, c->kernel, .strides = c->stride, .pads = c->pad, .ceil_mode = c->ceil_mode,
                               .exclude_pad = c->exclude_pad, .channels_last = last);
}

/* y, dx and of max the places, all channels first. */
static void run_pool(const pool_case *c, ct_device d, ct_dtype dtype, bool max, bool last, ct_tensor **results) {
    const ct_dims order = to_last(&c->shape), back = from_last(&c->shape);
    ct_tensor *g, *y;
    ct_seed(3);
    ct_tensor *x = ct_to(ct_cast(ct_cast(ct_randn(c->shape), CT_BF16), dtype), d);
    if (last) x = ct_contiguous(ct_permute(x, order));
    ct_set_requires_grad(x, true);
    results[2] = NULL;
    y = pooled(c, x, max, last, max ? &results[2] : NULL);
    REQUIRE(y != NULL);
    results[0] = last ? ct_permute(y, back) : y;
    /* sums of whole numbers are exact in any order */
    g = ct_to(ct_cast(ct_floor(ct_mul_s(ct_rand(ct_shape(results[0])), 5)), dtype), d);
    if (last) g = ct_contiguous(ct_permute(g, order));
    CHECK(ct_grad(&y, 1, &g, &x, 1, &results[1], 0));
    if (last) results[1] = ct_permute(results[1], back);
    if (last && results[2]) results[2] = ct_permute(results[2], back);
}

TEST_LIMIT(pooling_agrees_with_the_cpu_in_both_layouts, 300) {
    CUDA(d);
    static const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_BF16};
    for (int k = 0; k < POOL_CASES; k++)
        for (int max = 0; max < 2; max++)
            for (int t = 0; t < 3; t++)
                ct_scope {
                    if (!max && pool_cases[k].dilation.d[pool_cases[k].dilation.n - 1] > 1) continue;
                    ct_tensor *expected[3], *got[3];
                    run_pool(&pool_cases[k], cpu, max ? dtypes[t] : CT_F64, max, false, expected);
                    for (int last = 0; last < 2; last++) {
                        run_pool(&pool_cases[k], d, dtypes[t], max, last, got);
                        for (int i = 0; i < (max ? 3 : 2); i++) {
                            const double apart = distance(got[i], expected[i]);
                            const double most = max                    ? 0
                                                : dtypes[t] == CT_BF16 ? 4e-3
                                                : dtypes[t] == CT_F32  ? 1e-6
                                                                       : 1e-14;
                            harness_check(apart <= most, __FILE__, __LINE__,
                                          "case %d, max %d, dtype %d, last %d, result %d: %g apart", k, max, dtypes[t],
                                          last, i, apart);
                        }
                    }
                }
}

TEST_LIMIT(winners_are_the_first_of_equals_and_nan_wins, 120) {
    CUDA(d);
    ct_tensor *x = ct_to(F32(CT_DIMS(1, 1, 2, 4), 3, 3, NAN, 7, 1, 3, 2, NAN), d), *indices = NULL;
    ct_tensor *y = ct_max_pool2d(x, CT_DIMS(2), .indices = &indices);
    REQUIRE(y != NULL);
    CHECK_VALUES(ct_to(indices, cpu), CT_DIMS(1, 1, 1, 2), 0, 0, 2);
    CHECK(harness_at(ct_to(y, cpu), 0) == 3 && isnan(harness_at(ct_to(y, cpu), 1)));
}
