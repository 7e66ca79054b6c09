/* What convolutions promise beyond their values: errors with their texts, padding, what no window touches, the adjoint, the
 * same bits at any number of threads, infinities that stay where they belong, the switch to exact algorithms. */
#include <math.h>
#include <string.h>

#include "core/threads.h"
#include "tests/harness.h"

static ct_tensor *image(ct_dims shape) { return ct_rand(shape, .dtype = CT_F64); }

/* ---- Errors ---- */

TEST(shapes_that_do_not_fit_are_errors_with_both_shapes) {
    ct_tensor *x = ct_zeros(CT_DIMS(2, 4, 5, 6)), *w = ct_zeros(CT_DIMS(6, 2, 3, 3));
    CHECK(!ct_conv2d(x, w));
    CHECK_ERROR(CT_ERR_SHAPE,
                "conv2d: channels differ: x is f32[2,4,5,6] with 4 channels, w is f32[6,2,3,3], which with "
                "groups 1 takes 2");
    CHECK(!ct_conv2d(x, w, .groups = 3));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: groups is 3, which does not divide the 4 channels of x f32[2,4,5,6]");
    CHECK(!ct_conv2d(x, ct_zeros(CT_DIMS(5, 2, 3, 3)), .groups = 2));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: groups is 2, which does not divide the 5 output channels of w f32[5,2,3,3]");
    CHECK(!ct_conv2d(x, w, .groups = 2, .bias = ct_zeros(CT_DIMS(4))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: bias is f32[4]; it has to be [6], one number an output channel");
    CHECK(!ct_conv2d(x, w, .groups = 2, .residual = ct_zeros(CT_DIMS(2, 6, 3, 3))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: residual is f32[2,6,3,3]; it has to be f32[2,6,3,4], as the result");
    CHECK(!ct_conv2d(ct_zeros(CT_DIMS(4, 5, 6)), w, .groups = 2));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: x is f32[4,5,6]; it has to be [N,C,H,W]");
    CHECK(!ct_conv1d(ct_zeros(CT_DIMS(4, 5)), w, .channels_last = true));
    CHECK_ERROR(CT_ERR_SHAPE, "conv1d: x is f32[4,5]; it has to be [N,L,C]");
    CHECK(!ct_conv3d(ct_zeros(CT_DIMS(1, 2, 3, 4, 5)), w));
    CHECK_ERROR(CT_ERR_SHAPE,
                "conv3d: w is f32[6,2,3,3]; for x f32[1,2,3,4,5] it needs 5 dimensions, [out, in / groups, "
                "kernel...]");
    CHECK(!ct_depthwise_conv2d(x, w));
    CHECK_ERROR(CT_ERR_SHAPE, "depthwise_conv2d: w is f32[6,2,3,3]; for the 4 channels of x f32[2,4,5,6] it has to be "
                              "[channels * multiplier, 1, kh, kw]");
    CHECK(!ct_conv_transpose2d(x, w));
    CHECK_ERROR(CT_ERR_SHAPE,
                "conv_transpose2d: channels differ: x is f32[2,4,5,6] with 4 channels, w is f32[6,2,3,3], "
                "which takes 6; a transposed weight is [in, out / groups, kernel...]");
}

TEST(a_kernel_longer_than_the_padded_input_is_an_error) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 1, 4, 9)), *w = ct_zeros(CT_DIMS(1, 1, 3, 3));
    CHECK(!ct_conv2d(x, w, .dilations = CT_DIMS(3, 1), .pads = CT_DIMS(1, 1, 0, 0)));
    CHECK_ERROR(CT_ERR_SHAPE, "conv2d: the kernel's height is 7 (size 3, dilation 3), more than the padded input's 6 "
                              "(size 4, pads 1 and 1)");
    CHECK(ct_conv2d(x, w, .dilations = CT_DIMS(3, 1), .pads = CT_DIMS(1, 2, 0, 0)) != NULL);
    CHECK(!ct_conv1d(ct_zeros(CT_DIMS(1, 1, 2)), ct_zeros(CT_DIMS(1, 1, 3)), .pad_mode = CT_VALID));
    CHECK_ERROR(CT_ERR_SHAPE, "conv1d: the kernel's length is 3 (size 3, dilation 1), more than the padded input's 2 "
                              "(size 2, pads 0 and 0)");
    CHECK(!ct_conv1d(ct_zeros(CT_DIMS(1, 1, 2)), ct_zeros(CT_DIMS(1, 1, 0))));
    CHECK_ERROR(CT_ERR_SHAPE, "conv1d: the kernel has length 0; it has to be at least 1 and below 2^31");
}

TEST(options_that_cannot_be_are_errors) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 2, 6, 6)), *w = ct_zeros(CT_DIMS(2, 2, 3, 3));
    CHECK(!ct_conv2d(x, w, .strides = CT_DIMS(0, 1)));
    CHECK_ERROR(CT_ERR_VALUE,
                "conv2d: stride 0 is not possible; it has to be at least 1 and below 2^31 (strides is [0,1])");
    CHECK(!ct_conv2d(x, w, .dilation = -1));
    CHECK_ERROR(CT_ERR_VALUE,
                "conv2d: dilation -1 is not possible; it has to be at least 1 and below 2^31 (dilations is [-1])");
    CHECK(!ct_conv2d(x, w, .strides = CT_DIMS(1, 1, 1)));
    CHECK_ERROR(CT_ERR_VALUE, "conv2d: strides is [1,1,1]; it takes 1 number or one for each of the 2 spatial axes");
    CHECK(!ct_conv2d(x, w, .pads = CT_DIMS(1, 1, 1)));
    CHECK_ERROR(CT_ERR_VALUE,
                "conv2d: pads is [1,1,1]; it takes 1 number, 2 (each axis, both sides) or 4 (before and after "
                "for each axis)");
    CHECK(!ct_conv2d(x, w, .pad = -1));
    CHECK_ERROR(CT_ERR_VALUE, "conv2d: pad -1 is not possible; it has to be from 0 to 2^31 - 1 (pads is [-1])");
    CHECK(!ct_conv2d(x, w, .pad = 1, .pad_mode = CT_SAME));
    CHECK_ERROR(CT_ERR_VALUE, "conv2d: pads is [1], but pad_mode same makes its own padding; give one of them");
    CHECK(!ct_conv2d(x, w, .groups = -2));
    CHECK_ERROR(CT_ERR_VALUE, "conv2d: groups is -2; it has to be at least 1");
    CHECK(!ct_conv_transpose2d(x, w, .stride = 2, .dilation = 3, .output_padding = 3));
    CHECK_ERROR(CT_ERR_VALUE,
                "conv_transpose2d: output_padding 3 has to be below the stride or the dilation (2 and 3)");
    CHECK(!ct_conv_transpose2d(x, w, .stride = 2, .output_padding = 1, .pad_mode = CT_SAME));
    CHECK_ERROR(CT_ERR_VALUE, "conv_transpose2d: output_padding 1 does not go with pad_mode same, whose size is given");
    CHECK(!ct_conv_transpose2d(ct_zeros(CT_DIMS(1, 2, 1, 1)), w, .pad = 2));
    CHECK_ERROR(CT_ERR_SHAPE,
                "conv_transpose2d: the result's height would be -1: size 1, stride 1, kernel 3, dilation 1, "
                "pads 2 and 2, output_padding 0");
}

TEST(dtypes_have_to_be_floats_and_agree) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 2, 6)), *w = ct_zeros(CT_DIMS(2, 2, 3));
    CHECK(!ct_conv1d(ct_cast(x, CT_I32), ct_cast(w, CT_I32)));
    CHECK_ERROR(CT_ERR_DTYPE, "conv1d: x is i32[1,2,6]; convolutions take floats, cast it first");
    CHECK(!ct_conv1d(x, ct_cast(w, CT_F64)));
    CHECK_ERROR(CT_ERR_DTYPE, "conv1d: x is f32[1,2,6], w is f64[2,2,3]; they need the same dtype, cast one of them");
    CHECK(!ct_conv1d(x, w, .bias = ct_zeros(CT_DIMS(2), .dtype = CT_F64)));
    CHECK_ERROR(CT_ERR_DTYPE, "conv1d: x is f32[1,2,6], bias is f64[2]; they need the same dtype, cast one of them");
}

/* ---- Meaning ---- */

TEST(same_padding_puts_the_odd_element_at_the_end) {
    ct_tensor *x = F64(CT_DIMS(1, 1, 4), 1, 2, 3, 4), *w = F64(CT_DIMS(1, 1, 2), 1, 10);
    CHECK_VALUES(ct_conv1d(x, w, .pad_mode = CT_SAME), CT_DIMS(1, 1, 4), 0, 21, 32, 43, 4);
    CHECK_VALUES(ct_conv1d(x, w, .pads = CT_DIMS(1, 0)), CT_DIMS(1, 1, 4), 0, 10, 21, 32, 43);
    CHECK_VALUES(ct_conv1d(x, w, .pad_mode = CT_SAME, .stride = 3), CT_DIMS(1, 1, 2), 0, 21, 4);
    CHECK_VALUES(
        ct_conv_transpose1d(F64(CT_DIMS(1, 1, 2), 1, 2), F64(CT_DIMS(1, 1, 1), 3), .stride = 3, .pad_mode = CT_SAME),
        CT_DIMS(1, 1, 6), 0, 3, 0, 0, 6, 0, 0);
}

TEST(positions_that_no_window_touches_get_zero) {
    /* stride 3, kernel 1: columns 1, 2, 4, 5 and the last are never looked at */
    ct_tensor *x = ct_set_requires_grad(ct_ones(CT_DIMS(2, 3, 8)), true), *w = ct_ones(CT_DIMS(4, 3, 1));
    CHECK(ct_backward(ct_sum(ct_conv1d(x, w, .stride = 3))));
    for (int64_t i = 0; i < 48; i++) CHECK(harness_at(ct_grad_of(x), i) == (i % 8 % 3 == 0 ? 4 : 0));
    ct_tensor *z = ct_set_requires_grad(ct_ones(CT_DIMS(1, 7, 9, 2)), true);
    CHECK(ct_backward(ct_sum(ct_conv2d(z, ct_ones(CT_DIMS(2, 2, 2, 3)), .stride = 4, .channels_last = true))));
    for (int64_t i = 0; i < 126; i++)
        CHECK(harness_at(ct_grad_of(z), i) == ((i / 18 % 4 < 2 && i / 2 % 9 % 4 < 2 && i / 2 % 9 < 8) ? 3 : 0));
    /* and a transposed one fills what it does not reach with the bias */
    ct_tensor *y = ct_conv_transpose1d(F32(CT_DIMS(1, 1, 2), 1, 1), F32(CT_DIMS(1, 1, 1), 2), .stride = 3,
                                       .output_padding = 2, .bias = F32(CT_DIMS(1), 5));
    CHECK_VALUES(y, CT_DIMS(1, 1, 6), 0, 7, 5, 5, 7, 5, 5);
}

static double inner(ct_tensor *a, ct_tensor *b) { return ct_item(ct_sum(ct_mul(a, b))); }

TEST(a_transposed_convolution_is_the_adjoint) {
    /* sizes such that every position of x is counted by output_padding */
    for (int stride = 1; stride <= 3; stride++)
        for (int dilation = 1; dilation <= 3; dilation++)
            for (int last = 0; last < 2; last++)
                for (int groups = 1; groups <= 2; groups++) {
                    const int in = 4, out = 6, size = 11, kernel = 3, span = dilation * (kernel - 1) + 1;
                    const int result = (size + 1 - span) / stride + 1, more = (size + 1 - span) % stride;
                    ct_tensor *x = image(last ? CT_DIMS(2, size, in) : CT_DIMS(2, in, size)),
                              *w = image(last ? CT_DIMS(kernel, in / groups, out) : CT_DIMS(out, in / groups, kernel)),
                              *y = image(last ? CT_DIMS(2, result, out) : CT_DIMS(2, out, result));
                    ct_tensor *forward = ct_conv1d(x, w, .stride = stride, .dilation = dilation, .groups = groups,
                                                   .pads = CT_DIMS(1, 0), .channels_last = last);
                    ct_tensor *back =
                        ct_conv_transpose1d(y, w, .stride = stride, .dilation = dilation, .groups = groups,
                                            .pads = CT_DIMS(1, 0), .output_padding = more, .channels_last = last);
                    REQUIRE(forward && back);
                    const double a = inner(forward, y), b = inner(x, back);
                    CHECK_NEAR(a, b, 1e-13 * fabs(a));
                }
    /* output_padding of the stride and more, below the dilation */
    ct_tensor *y = ct_conv_transpose1d(F64(CT_DIMS(1, 1, 2), 1, 2), F64(CT_DIMS(1, 1, 2), 1, 10), .dilation = 3,
                                       .output_padding = 2);
    CHECK_VALUES(y, CT_DIMS(1, 1, 7), 0, 1, 2, 0, 10, 20, 0, 0);
}

TEST(depthwise_takes_channel_c_to_channels_c_m_and_on) {
    ct_tensor *x = F32(CT_DIMS(1, 2, 1, 2), 1, 2, 3, 4), *w = F32(CT_DIMS(4, 1, 1, 1), 1, 10, 100, 1000);
    CHECK_VALUES(ct_depthwise_conv2d(x, w), CT_DIMS(1, 4, 1, 2), 0, 1, 2, 10, 20, 300, 400, 3000, 4000);
    ct_tensor *z = F32(CT_DIMS(1, 1, 2, 2), 1, 3, 2, 4), *v = F32(CT_DIMS(1, 1, 1, 4), 1, 10, 100, 1000);
    CHECK_VALUES(ct_depthwise_conv2d(z, v, .channels_last = true), CT_DIMS(1, 1, 2, 4), 0, 1, 10, 300, 3000, 2, 20, 400,
                 4000);
}

TEST(an_empty_batch_flows_through_and_back) {
    ct_tensor *x = ct_set_requires_grad(ct_zeros(CT_DIMS(0, 4, 5, 5)), true),
              *w = ct_set_requires_grad(ct_ones(CT_DIMS(6, 4, 3, 3)), true),
              *b = ct_set_requires_grad(ct_ones(CT_DIMS(6)), true);
    ct_tensor *y = ct_conv2d(x, w, .bias = b, .pad = 1);
    CHECK(ct_dim(y, 0) == 0 && ct_dim(y, 1) == 6 && ct_dim(y, 3) == 5);
    CHECK(ct_backward(ct_sum(y)));
    CHECK(ct_numel(ct_grad_of(x)) == 0 && ct_item(ct_sum(ct_grad_of(w))) == 0 && ct_item(ct_sum(ct_grad_of(b))) == 0);
    CHECK_VALUES(ct_conv1d(ct_zeros(CT_DIMS(1, 0, 3)), ct_zeros(CT_DIMS(2, 0, 1)), .bias = F32(CT_DIMS(2), 1, 2)),
                 CT_DIMS(1, 2, 3), 0, 1, 1, 1, 2, 2, 2);
    CHECK(ct_dim(ct_conv1d(ct_zeros(CT_DIMS(1, 2, 0)), ct_zeros(CT_DIMS(3, 2, 3)), .pad_mode = CT_SAME), 2) == 0);
}

TEST(an_image_and_itself) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1, 1, 2), 2, 3), true);
    ct_tensor *y = ct_conv1d(x, x);
    CHECK_VALUES(y, CT_DIMS(1, 1, 1), 0, 13);
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1, 1, 2), 0, 4, 6);
}

TEST(exact_convolutions_keep_an_infinity_in_its_windows) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 16, 12, 12));
    ((float *)ct_data_mut(x))[5 * 12 + 5] = INFINITY;
    ct_tensor *y = ct_conv2d(x, ct_ones(CT_DIMS(16, 16, 3, 3)), .pad = 1, .exact = true);
    int count = 0;
    for (int64_t i = 0; i < 144; i++) count += isinf(harness_at(y, i));
    CHECK(count == 9);
    CHECK(!ct_set_exact_conv(true));
    ct_tensor *z = ct_conv2d(x, ct_ones(CT_DIMS(16, 16, 3, 3)), .pad = 1);
    CHECK(ct_set_exact_conv(false));
    CHECK(harness_same_bits(y, z));
}

/* ---- Threads ---- */

/* Of one convolution and its gradients. */
static void check_bits(int64_t batch, int64_t ins, int64_t size, int64_t outs, int64_t kernel, int stride, bool last) {
    const int threads[] = {1, 2, 7, 16};
    ct_tensor *x = ct_rand(last ? CT_DIMS(batch, size, size + 1, ins) : CT_DIMS(batch, ins, size, size + 1)),
              *w = ct_rand(last ? CT_DIMS(kernel, kernel, ins, outs) : CT_DIMS(outs, ins, kernel, kernel)),
              *b = ct_rand(CT_DIMS(outs));
    ct_tensor *first[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        REQUIRE(ct_set_threads(threads[i]));
        ct_tensor *in[3] = {ct_set_requires_grad(ct_clone(x), true), ct_set_requires_grad(ct_clone(w), true),
                            ct_set_requires_grad(ct_clone(b), true)};
        ct_tensor *y = ct_conv2d(in[0], in[1], .bias = in[2], .stride = stride, .pad = 1, .channels_last = last);
        ct_tensor *g = ct_sin(y), *grads[3];
        REQUIRE(ct_grad(&y, 1, &g, in, 3, grads, 0));
        ct_tensor *now[4] = {y, grads[0], grads[1], grads[2]};
        for (int j = 0; j < 4; j++) {
            if (i == 0) first[j] = now[j];
            else CHECK(harness_same_bits(first[j], now[j]));
        }
    }
}

TEST(the_same_bits_at_any_number_of_threads) {
    for (int last = 0; last < 2; last++) {
        check_bits(3, 17, 20, 40, 3, 2, last);
        check_bits(9, 40, 5, 130, 3, 2, last);  /* several images to a block of the weight gradient, shared by panels */
        check_bits(5, 3, 24, 40, 7, 2, last);   /* planes that it interleaves */
        check_bits(4, 128, 6, 512, 3, 2, last); /* a weight of which each of many threads keeps a part */
        check_bits(16, 64, 4, 64, 3, 1, last);  /* few of Winograd's tiles, shared by channels */
        check_bits(16, 64, 7, 96, 3, 2, last);  /* lines so short that patches are gathered */
        check_bits(8, 96, 20, 130, 3, 1, last); /* weights that are transformed by the slice */
    }
    ct_set_threads(0);
}

/* Large ones go two ways, of which the faster one is found by taking both some times. */
TEST(weight_gradients_have_the_same_bits_whichever_way_they_are_shared) {
    static const struct {
        int64_t batch, in, out, size, kernel;
    } cases[] = {{12, 64, 64, 28, 3}, {9, 20, 70, 30, 5}, {40, 33, 17, 15, 3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t n = cases[c].batch, size = cases[c].size, k = cases[c].kernel;
        ct_tensor *x = harness_randn(CT_DIMS(n, cases[c].in, size, size)),
                  *g = harness_randn(CT_DIMS(n, cases[c].out, size, size));
        ct_tensor *leaves[2] = {ct_set_requires_grad(ct_zeros(CT_DIMS(cases[c].out, cases[c].in, k, k)), true),
                                ct_set_requires_grad(ct_zeros(CT_DIMS(cases[c].out)), true)};
        ct_tensor *first[2];
        for (int i = 0; i < 1 + 2 * 9; i++) {
            REQUIRE(ct_set_threads(i == 0 ? 1 : i < 10 ? 2 : 7));
            ct_scope {
                ct_tensor *y = ct_conv2d(x, leaves[0], .bias = leaves[1], .pad = (int)k / 2), *now[2];
                REQUIRE(ct_grad(&y, 1, &g, leaves, 2, now, 0));
                for (int j = 0; j < 2; j++)
                    if (i == 0) first[j] = ct_pass(now[j]);
                    else CHECK(harness_same_bits(first[j], now[j]));
            }
        }
    }
    ct_set_threads(0);
}

TEST(options_far_beyond_the_input_cost_nothing) {
    ct_tensor *x = ct_reshape(ct_arange(0, 16, 1), CT_DIMS(1, 1, 4, 4)), *w = ct_ones(CT_DIMS(1, 1, 3, 3));
    /* only the middle tap looks at x */
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(ct_conv2d(x, w, .dilation = 1000000000, .pad = 1000000000), x)))) == 0);
    /* one window, over 0 1 2, 4 5 6 and 8 9 10 */
    CHECK(ct_item(ct_conv2d(x, w, .stride = 2147483647)) == 45);
    CHECK(ct_item(ct_conv2d(x, w, .stride = 2147483647, .pad = 100000000)) == 0);
}

/* How much scratch a kernel asks for has to know of the activation: without a bias it alone takes the other way. */
TEST(an_activation_without_a_bias_has_its_scratch) {
    const ct_dtype dtypes[] = {CT_F32, CT_F64, CT_BF16};
    for (int d = 0; d < 3; d++) {
        ct_tensor *line = ct_cast(ct_randn(CT_DIMS(2, 12, 2)), dtypes[d]),
                  *taps = ct_cast(ct_randn(CT_DIMS(1, 2, 17)), dtypes[d]);
        CHECK(harness_same_bits(ct_conv1d(line, taps, .stride = 3, .channels_last = true, .activation = CT_ACT_RELU),
                                ct_relu(ct_conv1d(line, taps, .stride = 3, .channels_last = true))));
        ct_tensor *x = ct_cast(ct_randn(CT_DIMS(2, 64, 5, 2)), dtypes[d]),
                  *w = ct_cast(ct_randn(CT_DIMS(8, 64, 1, 1)), dtypes[d]);
        CHECK(harness_same_bits(ct_conv2d(x, w, .activation = CT_ACT_RELU), ct_relu(ct_conv2d(x, w))));
    }
}

/* What follows a convolution may be a sum, whose cotangent is one number everywhere, and x may be one number too. */
TEST(one_number_everywhere_gives_the_gradients_of_its_copies) {
    static const int64_t shapes[][7] = {{32, 64, 64, 32, 3, 2, 1}, /* batch, in, out, side, kernel, stride, pad */
                                        {64, 3, 32, 32, 3, 1, 1},
                                        {16, 256, 64, 28, 1, 1, 0}};
    for (int i = 0; i < 2 * 3; i++)
        ct_scope {
            const int64_t *s = shapes[i % 3];
            const bool last = i >= 3;
            ct_tensor *w = ct_randn(last ? CT_DIMS(s[4], s[4], s[1], s[2]) : CT_DIMS(s[2], s[1], s[4], s[4]));
            const ct_dims shape = last ? CT_DIMS(s[0], s[3], s[3], s[1]) : CT_DIMS(s[0], s[1], s[3], s[3]);
            for (int expand = 0; expand < 2; expand++) {
                ct_tensor *x = expand ? ct_expand(ct_full(CT_DIMS(1), 0.5), shape) : ct_randn(shape), *dw[2];
                ct_set_requires_grad(w, true);
                for (int copied = 0; copied < 2; copied++) {
                    ct_tensor *y = ct_conv2d(copied ? ct_contiguous(x) : x, w, .stride = s[5], .pad = s[6],
                                             .channels_last = last, .exact = true);
                    ct_tensor *g = ct_expand(ct_full(CT_DIMS(1), 0.25), ct_shape(y));
                    if (copied) g = ct_contiguous(g);
                    REQUIRE(ct_grad(&y, 1, &g, &w, 1, &dw[copied], 0));
                }
                /* sums of a batch of pixels each way, in whatever order */
                const double terms = (double)(s[0] * s[3] * s[3]);
                CHECK(ct_item(ct_amax(ct_abs(ct_sub(dw[0], dw[1])))) <= 1e-6 * sqrt(terms) * 0.25 * 4);
            }
        }
}

/* ---- A few numbers ---- */

static int small_calls;

static void count_small(void *context, const char *line) {
    (void)context;
    small_calls += strstr(line, "conv_small") && !strstr(line, "conv_small:"); /* which says why it refused */
}

/* As in f64, which the general kernels take: with groups, in both layouts, with bias, dilation and padding, of views with steps. */
TEST(a_few_numbers_are_convolved_as_many_are) {
    static const int64_t cases[][7] = {
        {1, 1, 1, 3, 2, 1, 0}, /* images, channels and results per group, side, kernel, step, pad */
        {2, 2, 1, 4, 3, 1, 1}, {1, 3, 2, 4, 2, 2, 0}, {1, 2, 2, 5, 2, 2, 2},
        {1, 1, 3, 1, 1, 1, 0}, {1, 1, 2, 2, 3, 1, 3}};
    small_calls = 0;
    ct_set_log_sink(count_small, NULL);
    CHECK(ct_set_log("dispatch"));
    for (int i = 0; i < 6 * 16; i++)
        ct_scope {
            const int64_t *c = cases[i / 16], groups = i & 1 ? 2 : 1, ins = c[1] * groups, outs = c[2] * groups;
            const bool last = i & 2, stepped = i & 8;
            const int64_t dilation = c[6] ? 2 : 1;
            ct_tensor *x = ct_randn(last ? CT_DIMS(c[0], c[3], 2 * c[3], ins) : CT_DIMS(c[0], ins, c[3], 2 * c[3]));
            ct_tensor *w = ct_randn(last ? CT_DIMS(c[4], c[4], c[1], outs) : CT_DIMS(outs, c[1], c[4], c[4]));
            ct_tensor *bias = i & 4 ? ct_randn(CT_DIMS(outs)) : NULL;
            if (stepped) x = ct_slice(x, last ? 2 : 3, 0, .step = 2);
            const ct_dims strides = CT_DIMS(c[5], 1), dilations = CT_DIMS(1, dilation),
                          pads = CT_DIMS(c[6], 0, c[6], 1);
            ct_tensor *of[3][3] = {{x, w, bias}}, *y[3];
            /* in f32; in f64; and of the absolute values, which bound the rounding */
            for (int k = 0; k < 3; k++) {
                for (int t = 0; k && t < 3; t++) of[k][t] = of[0][t] ? ct_cast(of[0][t], CT_F64) : NULL;
                for (int t = 0; k == 2 && t < 3; t++) of[k][t] = of[k][t] ? ct_abs(of[k][t]) : NULL;
                y[k] = ct_conv2d(of[k][0], of[k][1], .bias = of[k][2], .groups = groups, .channels_last = last,
                                 .strides = strides, .dilations = dilations, .pads = pads);
            }
            REQUIRE(y[0] && y[1] && y[2]);
            const double terms = (double)(c[1] * c[4] * c[4] + 1);
            ct_tensor *off = ct_abs(ct_sub(ct_cast(y[0], CT_F64), y[1]));
            CHECK(ct_item(ct_amax(ct_sub(off, ct_mul_s(y[2], terms * 0x1p-24)))) <= 0);
        }
    CHECK(ct_set_log(NULL));
    ct_set_log_sink(NULL, NULL);
    CHECK(small_calls > 48); /* half of them at least: the largest have more products */
}

TEST(a_smaller_grain_has_scratch_of_its_own) {
    ct_tensor *x = ct_randn(CT_DIMS(2, 9, 10, 8)), *w = ct_set_requires_grad(ct_randn(CT_DIMS(3, 3, 1, 8)), true),
              *dw[2];
    for (int grain = 0; grain < 2; grain++) {
        CHECK(ct_set_grain(grain));
        ct_tensor *y = ct_conv2d(x, w, .groups = 8, .channels_last = true), *g = ct_ones(ct_shape(y));
        REQUIRE(ct_grad(&y, 1, &g, &w, 1, &dw[grain], 0));
    }
    CHECK(ct_set_grain(0));
    CHECK(ct_item(ct_amax(ct_abs(ct_sub(dw[0], dw[1])))) < 1e-4);
}

/* Many equal values: each is rounded the same way when it is added to a sum that has grown large. */
TEST(bias_gradients_of_many_pixels_do_not_drift) {
    for (int i = 0; i < 4; i++)
        ct_scope {
            const bool last = i & 1;
            const int64_t k = i & 2 ? 3 : 1, side = 181;
            ct_tensor *x = ct_randn(last ? CT_DIMS(4, side, side, 8) : CT_DIMS(4, 8, side, side));
            ct_tensor *w = ct_set_requires_grad(ct_randn(last ? CT_DIMS(k, k, 8, 24) : CT_DIMS(24, 8, k, k)), true);
            ct_tensor *b = ct_set_requires_grad(ct_zeros(CT_DIMS(24)), true), *in[] = {w, b}, *grads[2];
            ct_tensor *y = ct_conv2d(x, w, .bias = b, .stride = k - k / 2, .channels_last = last);
            ct_tensor *g = ct_full(ct_shape(y), 0.1);
            REQUIRE(ct_grad(&y, 1, &g, in, 2, grads, 0));
            const double right = (double)0.1f * (double)(ct_numel(y) / 24);
            CHECK(fabs(ct_item(ct_amax(grads[1])) - right) <= 2e-5 * right);
            CHECK(fabs(ct_item(ct_amin(grads[1])) - right) <= 2e-5 * right);
        }
}

/* Their bias gradients are not for the implicit product: windows of thousands of taps, and taps that look far beyond x. */
TEST(gradients_of_bf16_with_very_long_and_very_wide_windows) {
    const struct {
        ct_dims x, w, pads;
        int64_t dilation;
    } cases[] = {{CT_DIMS(1, 2, 2100), CT_DIMS(2, 2, 2060), CT_DIMS(0), 1},
                 {CT_DIMS(2, 16, 5), CT_DIMS(24, 16, 2), CT_DIMS(1 << 28, 20), 1 << 28}};
    for (int i = 0; i < 2; i++) {
        ct_tensor *grads[2][2];
        for (int wide = 0; wide < 2; wide++) {
            const ct_dtype dtype = wide ? CT_F64 : CT_BF16;
            ct_seed(5);
            ct_tensor *x = ct_cast(ct_cast(ct_randn(cases[i].x), CT_BF16), dtype),
                      *in[2] = {ct_cast(ct_cast(ct_randn(cases[i].w), CT_BF16), dtype),
                                ct_zeros(CT_DIMS(cases[i].w.d[0]), .dtype = dtype)};
            for (int k = 0; k < 2; k++) ct_set_requires_grad(in[k], true);
            ct_tensor *y = ct_conv1d(x, in[0], .bias = in[1], .pads = cases[i].pads, .dilation = cases[i].dilation);
            ct_tensor *g = ct_ones_like(y);
            REQUIRE(ct_grad(&y, 1, &g, in, 2, grads[wide], 0));
        }
        for (int k = 0; k < 2; k++) {
            ct_tensor *off = ct_abs(ct_sub(ct_cast(grads[0][k], CT_F64), grads[1][k]));
            CHECK(ct_item(ct_amax(off)) <= 0x1p-8 * ct_item(ct_amax(ct_abs(grads[1][k]))));
        }
    }
}
