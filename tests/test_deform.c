/* What deformable convolution promises beyond values at samples: without moves it is a convolution; moves by whole pixels; places
 * outside; a larger case against a plain loop; errors. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

/* The largest difference of two tensors. */
static double apart(ct_tensor *a, ct_tensor *b) { return ct_item(ct_cast(ct_amax(ct_abs(ct_sub(a, b))), CT_F64)); }

TEST(without_moves_it_is_a_convolution) {
    ct_tensor *x = ct_uniform(CT_DIMS(2, 6, 9, 8), -1, 1, .dtype = CT_F64),
              *w = ct_uniform(CT_DIMS(4, 3, 3, 3), -1, 1, .dtype = CT_F64), *b = F64(CT_DIMS(4), 1, 2, 3, 4);
    ct_tensor *still = ct_zeros(CT_DIMS(2, 36, 5, 4), .dtype = CT_F64);
    ct_tensor *y = ct_deform_conv2d(x, still, w, .bias = b, .stride = 2, .pad = 1, .groups = 2, .offset_groups = 2);
    CHECK(apart(y, ct_conv2d(x, w, .bias = b, .stride = 2, .pad = 1, .groups = 2)) < 1e-13);
    ct_tensor *last = ct_permute(x, CT_DIMS(0, 2, 3, 1)), *wl = ct_permute(w, CT_DIMS(2, 3, 1, 0));
    ct_tensor *yl = ct_deform_conv2d(last, ct_zeros(CT_DIMS(2, 5, 4, 36), .dtype = CT_F64), wl, .bias = b, .stride = 2,
                                     .pad = 1, .groups = 2, .offset_groups = 2, .channels_last = true);
    CHECK(apart(ct_permute(yl, CT_DIMS(0, 3, 1, 2)), y) < 1e-13);
}

TEST(places_outside_read_zero_and_pass_no_gradient) {
    ct_tensor *x = ct_require_grad(ct_full(CT_DIMS(1, 2, 3, 3), 7, .dtype = CT_F64));
    ct_tensor *w = ct_ones(CT_DIMS(1, 2, 1, 1), .dtype = CT_F64);
    ct_tensor *offset = ct_require_grad(ct_full(CT_DIMS(1, 2, 3, 3), 100, .dtype = CT_F64));
    ct_tensor *y = ct_deform_conv2d(x, offset, w);
    CHECK(ct_item(ct_amax(ct_abs(y))) == 0 && ct_backward(ct_sum(y)));
    CHECK(ct_item(ct_amax(ct_abs(ct_grad_of(x)))) == 0 && ct_item(ct_amax(ct_abs(ct_grad_of(offset)))) == 0);
    ct_tensor *nowhere = ct_full(CT_DIMS(1, 2, 3, 3), NAN, .dtype = CT_F64);
    CHECK(ct_item(ct_amax(ct_abs(ct_deform_conv2d(x, nowhere, w)))) == 0);
    /* an infinity beside the image is not read, not even with weight 0 */
    ct_tensor *odd =
        ct_cat((ct_tensor *[]){ct_full(CT_DIMS(1, 1, 1, 1), INFINITY), ct_ones(CT_DIMS(1, 1, 1, 2))}, 2, 3);
    ct_tensor *move = ct_cat((ct_tensor *[]){ct_zeros(CT_DIMS(1, 1, 1, 3)), ct_full(CT_DIMS(1, 1, 1, 3), 1.5)}, 2, 1);
    CHECK_VALUES(ct_cast(ct_deform_conv2d(odd, move, ct_ones(CT_DIMS(1, 1, 1, 1))), CT_F64), CT_DIMS(1, 1, 1, 3), 0, 1,
                 0.5, 0);
}

/* Bilinear, 0 outside. */
static double read_at(const double *plane, int h, int w, double y, double x) {
    const double ly = floor(y), lx = floor(x);
    double sum = 0;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            const double v = ly + a, u = lx + b;
            if (v < 0 || v >= h || u < 0 || u >= w) continue;
            sum += plane[(int)v * w + (int)u] * (a ? y - ly : 1 - (y - ly)) * (b ? x - lx : 1 - (x - lx));
        }
    return sum;
}

TEST(a_larger_case_agrees_with_a_plain_loop) {
    enum { N = 2, C = 36, H = 13, W = 17, O = 40, K = 3 };
    ct_tensor *x = ct_uniform(CT_DIMS(N, C, H, W), -1, 1), *w = ct_uniform(CT_DIMS(O, C, K, K), -1, 1);
    ct_tensor *offset = ct_uniform(CT_DIMS(N, 2 * K * K, H, W), -4, 4), *mask = ct_rand(CT_DIMS(N, K * K, H, W));
    ct_tensor *y = ct_cast(ct_deform_conv2d(x, offset, w, .mask = mask, .pad = 1), CT_F64);
    ct_tensor *all[] = {ct_cast(x, CT_F64), ct_cast(w, CT_F64), ct_cast(offset, CT_F64), ct_cast(mask, CT_F64), y};
    double *at[5];
    for (int i = 0; i < 5; i++) {
        at[i] = malloc((size_t)ct_numel(all[i]) * sizeof(double));
        CHECK(ct_read(all[i], at[i], (size_t)ct_numel(all[i]) * sizeof(double)));
    }
    double worst = 0;
    for (int n = 0; n < N; n++)
        for (int oy = 0; oy < H; oy++)
            for (int ox = 0; ox < W; ox++)
                for (int o = 0; o < O; o += 13) {
                    double sum = 0;
                    for (int t = 0; t < K * K; t++) {
                        const double *move = at[2] + ((n * 2 * K * K + 2 * t) * H + oy) * W + ox;
                        const double py = oy - 1 + t / K + move[0], px = ox - 1 + t % K + move[H * W];
                        const double m = at[3][((n * K * K + t) * H + oy) * W + ox];
                        for (int c = 0; c < C; c++)
                            sum +=
                                at[1][(o * C + c) * K * K + t] * m * read_at(at[0] + (n * C + c) * H * W, H, W, py, px);
                    }
                    const double d = fabs(sum - at[4][((n * O + o) * H + oy) * W + ox]);
                    if (!(d <= worst)) worst = d;
                }
    /* 324 terms below 1, and places of up to 17 whose fractions are rounded in f32 */
    CHECK(worst < 8 * sqrt(324) * 17 * 0x1p-23);
    for (int i = 0; i < 5; i++) free(at[i]);
}

TEST(deformable_convolution_says_what_is_wrong) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 2, 4, 4)), *w = ct_zeros(CT_DIMS(3, 2, 2, 2));
    CHECK(!ct_deform_conv2d(x, ct_zeros(CT_DIMS(1, 9, 3, 3)), w));
    CHECK_ERROR(CT_ERR_SHAPE,
                "deform_conv2d: offset is f32[1,9,3,3]; it has to be [1,8,3,3], for 4 taps and offset_groups 1");
    ct_tensor *offset = ct_zeros(CT_DIMS(1, 8, 3, 3));
    CHECK(!ct_deform_conv2d(x, offset, w, .mask = ct_zeros(CT_DIMS(1, 8, 3, 3))));
    CHECK_ERROR(CT_ERR_SHAPE,
                "deform_conv2d: mask is f32[1,8,3,3]; it has to be [1,4,3,3], for 4 taps and offset_groups 1");
    CHECK(!ct_deform_conv2d(x, offset, w, .bias = ct_zeros(CT_DIMS(2))));
    CHECK_ERROR(CT_ERR_SHAPE, "deform_conv2d: bias is f32[2]; it has to be [3], one number an output channel");
    CHECK(!ct_deform_conv2d(x, offset, w, .offset_groups = 3));
    CHECK_ERROR(CT_ERR_SHAPE,
                "deform_conv2d: groups 1 and offset_groups 3 have to divide the 2 channels of x, f32[1,2,4,4]");
}

TEST(without_channels_there_is_the_bias_and_no_gradient_of_the_offsets) {
    ct_tensor *offset = ct_require_grad(ct_ones(CT_DIMS(1, 18, 2, 2))), *bias = ct_ones(CT_DIMS(2));
    ct_tensor *y = ct_deform_conv2d(ct_zeros(CT_DIMS(1, 0, 4, 4)), offset, ct_zeros(CT_DIMS(2, 0, 3, 3)), .bias = bias);
    CHECK(ct_item(ct_amin(y)) == 1 && ct_item(ct_amax(y)) == 1);
    CHECK(ct_backward(ct_sum(y)));
    CHECK(ct_item(ct_amax(ct_abs(ct_grad_of(offset)))) == 0);
}
