/* Convolutions with groups: what the random sweep does not reach. Fused epilogues, any number of threads, and results so large
 * that they are written past the caches. */
#include <math.h>

#include "tests/harness.h"

/* Groups of 8 go by Winograd, of 4 directly, one channel a group plane by plane or pixel by pixel. */
static const int channels_each[] = {8, 4, 1};
enum { CHANNELS = 32, HEIGHT = 14, WIDTH = 13 };

static ct_tensor *image(int batch, bool last, ct_dtype dtype) {
    return ct_cast(ct_randn(last ? CT_DIMS(batch, HEIGHT, WIDTH, CHANNELS) : CT_DIMS(batch, CHANNELS, HEIGHT, WIDTH)),
                   dtype);
}
static ct_tensor *taps(int each, bool last, ct_dtype dtype) {
    return ct_cast(ct_randn(last ? CT_DIMS(3, 3, each, CHANNELS) : CT_DIMS(CHANNELS, each, 3, 3)), dtype);
}

TEST(residual_and_activation_are_what_they_are_apart) {
    for (int last = 0; last < 2; last++)
        for (int e = 0; e < 3; e++) {
            const int groups = CHANNELS / channels_each[e];
            ct_tensor *x = image(2, last, CT_F32), *r = image(2, last, CT_F32);
            ct_tensor *w = taps(channels_each[e], last, CT_F32), *b = ct_randn(CT_DIMS(CHANNELS));
            ct_tensor *plain = ct_conv2d(x, w, .bias = b, .groups = groups, .pad = 1, .channels_last = last);
            CHECK(harness_same_bits(ct_conv2d(x, w, .bias = b, .groups = groups, .pad = 1, .channels_last = last,
                                              .residual = r, .activation = CT_ACT_RELU),
                                    ct_relu(ct_add(plain, r))));
        }
}

TEST(the_same_bits_at_any_number_of_threads) {
    const ct_dtype dtypes[] = {CT_F32, CT_BF16};
    const int threads[] = {1, 2, 5};
    for (int d = 0; d < 2; d++)
        for (int last = 0; last < 2; last++)
            for (int e = 0; e < 3; e++) {
                ct_tensor *x = image(5, last, dtypes[d]), *w = taps(channels_each[e], last, dtypes[d]),
                          *b = ct_cast(ct_randn(CT_DIMS(CHANNELS)), dtypes[d]), *first[4] = {NULL};
                for (int i = 0; i < 3; i++) {
                    REQUIRE(ct_set_threads(threads[i]));
                    ct_tensor *in[3] = {ct_set_requires_grad(ct_clone(x), true),
                                        ct_set_requires_grad(ct_clone(w), true),
                                        ct_set_requires_grad(ct_clone(b), true)};
                    ct_tensor *y = ct_conv2d(in[0], in[1], .bias = in[2], .groups = CHANNELS / channels_each[e],
                                             .pad = 1, .channels_last = last);
                    ct_tensor *g = ct_sin(y), *grads[3];
                    REQUIRE(ct_grad(&y, 1, &g, in, 3, grads, 0));
                    ct_tensor *now[4] = {y, grads[0], grads[1], grads[2]};
                    for (int j = 0; j < 4; j++) {
                        if (i == 0) first[j] = now[j];
                        else CHECK(harness_same_bits(first[j], now[j]));
                    }
                }
            }
    ct_set_threads(0);
}

/* Depthwise results of more than 16 MiB are written past the caches, in lines that do not end where rows do. */
static void check_large_depthwise(bool last) {
    const int n = 2, c = 32, h = 259, w = 261;
    ct_tensor *x = ct_randn(last ? CT_DIMS(n, h, w, c) : CT_DIMS(n, c, h, w));
    ct_tensor *k = ct_randn(last ? CT_DIMS(3, 3, 1, c) : CT_DIMS(c, 1, 3, 3));
    ct_tensor *y = ct_depthwise_conv2d(x, k, .pad = 1, .channels_last = last);
    REQUIRE(y != NULL);
    const float *a = ct_data(x), *b = ct_data(k), *got = ct_data(y);
    int wrong = 0;
    for (int image = 0; image < n; image++)
        for (int channel = 0; channel < c; channel++)
            for (int i = 0; i < h; i++)
                for (int j = 0; j < w; j++) {
                    double sum = 0, size = 0;
                    for (int q = 0; q < 9; q++) {
                        const int row = i + q / 3 - 1, col = j + q % 3 - 1;
                        if (row < 0 || row >= h || col < 0 || col >= w) continue;
                        const double one = (double)(last ? a[((image * h + row) * w + col) * c + channel]
                                                         : a[((image * c + channel) * h + row) * w + col]) *
                                           (last ? b[q * c + channel] : b[channel * 9 + q]);
                        sum += one, size += fabs(one);
                    }
                    const double value = last ? got[((image * h + i) * w + j) * c + channel]
                                              : got[((image * c + channel) * h + i) * w + j];
                    wrong += !(fabs(value - sum) <= 9 * 0x1p-24 * size);
                }
    CHECK(wrong == 0);
}
TEST(large_depthwise_results_are_whole) {
    check_large_depthwise(false);
    check_large_depthwise(true);
}

/* Together they are too large for the caches, each alone is not. */
TEST(large_bf16_depthwise_results_are_those_of_their_images) {
    for (int last = 0; last < 2; last++) {
        ct_tensor *x = ct_cast(ct_randn(last ? CT_DIMS(2, 182, 182, 64) : CT_DIMS(2, 64, 182, 182)), CT_BF16);
        ct_tensor *w = ct_cast(ct_randn(last ? CT_DIMS(3, 3, 1, 64) : CT_DIMS(64, 1, 3, 3)), CT_BF16);
        ct_tensor *all = ct_conv2d(x, w, .groups = 64, .pad = 1, .channels_last = last);
        for (int i = 0; i < 2; i++)
            CHECK(harness_same_bits(
                ct_contiguous(ct_narrow(all, 0, i, 1)),
                ct_conv2d(ct_contiguous(ct_narrow(x, 0, i, 1)), w, .groups = 64, .pad = 1, .channels_last = last)));
    }
}

/* The bound of ops/conv/cpu/winograd/winograd_lines.h for weight gradients, with all tiles of all images for C. */
TEST(weight_gradients_of_many_tiles_keep_the_bound_of_winograd) {
    static const int64_t shapes[][3] = {{16, 64, 28}, {1, 16, 290}, {128, 64, 14}}; /* batch, groups, side */
    for (int i = 0; i < 2 * 3; i++)
        ct_scope {
            const int64_t *s = shapes[i % 3], c = 8 * s[1];
            const bool last = i >= 3;
            const ct_dims shape = last ? CT_DIMS(s[0], s[2], s[2], c) : CT_DIMS(s[0], c, s[2], s[2]);
            ct_tensor *x = ct_randn(shape), *g = ct_randn(shape), *dw[2];
            ct_tensor *w = ct_randn(last ? CT_DIMS(3, 3, 8, c) : CT_DIMS(c, 8, 3, 3));
            for (int wide = 0; wide < 2; wide++) {
                const ct_dtype dtype = wide ? CT_F64 : CT_F32;
                ct_tensor *in = ct_set_requires_grad(ct_cast(w, dtype), true), *cot = ct_cast(g, dtype);
                ct_tensor *y = ct_conv2d(ct_cast(x, dtype), in, .groups = s[1], .pad = 1, .channels_last = last);
                REQUIRE(ct_grad(&y, 1, &cot, &in, 1, &dw[wide], 0));
            }
            const double size = ct_item(ct_mean(ct_square(dw[1])));
            const double error = ct_item(ct_mean(ct_square(ct_sub(ct_cast(dw[0], CT_F64), dw[1]))));
            const double tiles = (double)s[0] * ceil((double)s[2] / 4) * ceil((double)s[2] / 4);
            CHECK(sqrt(error / size) <= 4.5e-7 + 7e-8 * sqrt(tiles));
        }
}
