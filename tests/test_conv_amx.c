/* Convolutions and their gradients in bf16 on kernels in matrix registers (amx_level.h): as near to f64 as bf16 can be,
 * the same bits at any number of threads. */
#include <stdio.h>

#include "tests/harness.h"

#include "tests/amx_level.h"

typedef struct sizes {
    const char *name;
    int64_t x[5], w[5];
    int ndim, stride, dilation, pad, groups;
    bool last;
} sizes;

static const sizes cases[] = {
    {"3x3", {2, 20, 9, 12}, {40, 20, 3, 3}, 4, 1, 1, 1, 1, false},
    {"3x3, odd lines", {3, 33, 7, 7}, {16, 33, 3, 3}, 4, 1, 1, 1, 1, false},
    {"3x3, channels last", {2, 9, 12, 20}, {3, 3, 20, 40}, 4, 1, 1, 1, 1, true},
    {"stride 2", {2, 18, 11, 13}, {35, 18, 3, 3}, 4, 2, 1, 1, 1, false},
    {"few channels, channels last", {2, 9, 12, 3}, {3, 3, 3, 24}, 4, 1, 1, 1, 1, true},
    {"small images, channels last", {3, 4, 4, 48}, {3, 3, 48, 40}, 4, 1, 1, 1, 1, true},
    {"small images, odd sizes, channels last", {5, 7, 3, 50}, {3, 5, 50, 37}, 4, 1, 1, 2, 1, true},
    {"small images, groups, channels last", {4, 5, 4, 64}, {3, 3, 32, 64}, 4, 1, 1, 1, 2, true},
    {"small images, stride 2, channels last", {4, 8, 8, 32}, {3, 3, 32, 64}, 4, 2, 1, 1, 1, true},
    {"small images, dilation, channels last", {4, 6, 6, 32}, {3, 3, 32, 48}, 4, 1, 2, 2, 1, true},
    {"small volumes, channels last", {3, 3, 4, 4, 32}, {2, 3, 3, 32, 40}, 5, 1, 1, 1, 1, true},
    {"stride 2, channels last", {2, 11, 13, 18}, {3, 3, 18, 35}, 4, 2, 1, 1, 1, true},
    {"dilation", {2, 16, 10, 9}, {16, 16, 3, 3}, 4, 1, 2, 2, 1, false},
    {"1x1", {4, 24, 8, 8}, {33, 24, 1, 1}, 4, 1, 1, 0, 1, false},
    {"1x1, stride 2", {4, 24, 8, 8}, {33, 24, 1, 1}, 4, 2, 1, 0, 1, false},
    {"no padding", {2, 16, 12, 10}, {32, 16, 5, 3}, 4, 1, 1, 0, 1, false},
    {"groups", {2, 32, 9, 8}, {32, 16, 3, 3}, 4, 1, 1, 1, 2, false},
    {"one axis", {3, 17, 70}, {20, 17, 5}, 3, 1, 1, 2, 1, false},
    {"three axes", {1, 16, 4, 5, 6}, {18, 16, 3, 3, 3}, 5, 1, 1, 1, 1, false},
};

#define OPTIONS                                                                                     \
    .bias = bias, .stride = c->stride, .dilation = c->dilation, .pad = c->pad, .groups = c->groups, \
    .channels_last = c->last

static ct_tensor *convolve(const sizes *c, ct_tensor *x, ct_tensor *w, ct_tensor *bias) {
    return c->ndim == 3 ? ct_conv1d(x, w, OPTIONS) : c->ndim == 5 ? ct_conv3d(x, w, OPTIONS) : ct_conv2d(x, w, OPTIONS);
}

static ct_tensor *some(const int64_t *shape, int n, ct_dtype dtype) {
    ct_dims dims = {.n = n};
    for (int i = 0; i < n; i++) dims.d[i] = shape[i];
    return ct_cast(ct_cast(ct_randn(dims), CT_BF16), dtype); /* what bf16 can hold */
}

enum { RESULTS = 4 }; /* y, and the gradients of x, w and bias */

static bool compute(const sizes *c, ct_dtype dtype, ct_tensor *out[RESULTS]) {
    ct_seed(7);
    const int64_t outs = c->w[c->last ? c->ndim - 1 : 0];
    ct_tensor *in[3] = {some(c->x, c->ndim, dtype), some(c->w, c->ndim, dtype), some(&outs, 1, dtype)};
    for (int i = 0; i < 3; i++) ct_set_requires_grad(in[i], true);
    out[0] = convolve(c, in[0], in[1], in[2]);
    if (!out[0]) return false;
    int64_t shape[CT_MAX_DIMS];
    for (int i = 0; i < c->ndim; i++) shape[i] = ct_dim(out[0], i);
    ct_tensor *g = some(shape, c->ndim, dtype);
    return ct_grad(&out[0], 1, &g, in, 3, out + 1, 0);
}

TEST(bf16_is_as_near_to_f64_as_it_can_be) {
    ops_use_amx();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_tensor *got[RESULTS], *expected[RESULTS];
        REQUIRE(compute(&cases[i], CT_F64, expected));
        REQUIRE(compute(&cases[i], CT_BF16, got));
        for (int k = 0; k < RESULTS; k++) {
            ct_tensor *error = ct_abs(ct_sub(ct_cast(got[k], CT_F64), expected[k])), *size = ct_abs(expected[k]);
            const double most = ct_item(ct_amax(size));
            const double worst = ct_item(ct_amax(ct_sub(error, ct_add_s(ct_mul_s(size, 0.004), 2e-5 * most))));
            if (!(worst <= 0))
                printf("%s, result %d: off by %g beyond rounding, of %g\n", cases[i].name, k, worst, most);
            CHECK(worst <= 0);
        }
    }
    ops_use_what_there_is();
}

TEST(forward_and_both_gradients_are_computed_in_them) {
    ops_use_amx();
    const sizes *c = &cases[0];
    ct_tensor *in[2] = {some(c->x, c->ndim, CT_BF16), some(c->w, c->ndim, CT_BF16)}, *grad;
    for (int i = 0; i < 2; i++) ct_set_requires_grad(in[i], true);
    int64_t before = blocks_done;
    ct_tensor *y = convolve(c, in[0], in[1], NULL), *g = ct_ones_like(y);
    CHECK(blocks_done > before);
    for (int i = 0; i < 2; i++) {
        before = blocks_done;
        REQUIRE(ct_grad(&y, 1, &g, in + i, 1, &grad, CT_RETAIN_GRAPH));
        CHECK(blocks_done > before);
    }
    ops_use_what_there_is();
}

TEST(the_same_bits_at_any_number_of_threads) {
    ops_use_amx();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_tensor *first[RESULTS], *now[RESULTS];
        for (int threads = 1; threads <= 7; threads += 3) {
            REQUIRE(ct_set_threads(threads) && compute(&cases[i], CT_BF16, threads == 1 ? first : now));
            for (int k = 0; k < RESULTS && threads > 1; k++) CHECK(harness_same_bits(first[k], now[k]));
        }
    }
    ct_set_threads(0);
    ops_use_what_there_is();
}
