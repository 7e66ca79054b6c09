/* What pooling promises beyond values at samples: who wins among equals, NaN and -inf, indices in both layouts, large planes
 * against a plain loop, the inverse, and its errors. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"

TEST(of_equals_the_first_wins_and_nan_wins_over_numbers) {
    ct_tensor *i = NULL;
    ct_tensor *y = ct_max_pool1d(F64(CT_DIMS(1, 1, 6), 3, 3, 1, 1, 2, 2), CT_DIMS(2), .indices = &i);
    CHECK_VALUES(y, CT_DIMS(1, 1, 3), 0, 3, 1, 2);
    CHECK_VALUES(ct_cast(i, CT_F64), CT_DIMS(1, 1, 3), 0, 0, 2, 4);
    /* the first of several NaN */
    y = ct_max_pool2d(F64(CT_DIMS(1, 1, 2, 4), 1, NAN, 5, 9, NAN, 2, 5, 9), CT_DIMS(2), .indices = &i);
    CHECK_VALUES(y, CT_DIMS(1, 1, 1, 2), 0, NAN, 9);
    CHECK_VALUES(ct_cast(i, CT_F64), CT_DIMS(1, 1, 1, 2), 0, 1, 3);
}

TEST(padding_never_wins_even_where_all_is_minus_infinity) {
    ct_tensor *i = NULL, *x = ct_full(CT_DIMS(1, 1, 3, 3), -INFINITY);
    ct_tensor *y = ct_max_pool2d(x, CT_DIMS(3), .stride = 2, .pad = 1, .indices = &i);
    CHECK_VALUES(y, CT_DIMS(1, 1, 2, 2), 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY);
    CHECK_VALUES(ct_cast(i, CT_F64), CT_DIMS(1, 1, 2, 2), 0, 0, 1, 3, 4);
    ct_tensor *last = ct_reshape(x, CT_DIMS(1, 3, 3, 1));
    ct_max_pool2d(last, CT_DIMS(3), .stride = 2, .pad = 1, .channels_last = true, .indices = &i);
    CHECK_VALUES(ct_cast(i, CT_F64), CT_DIMS(1, 2, 2, 1), 0, 0, 1, 3, 4);
}

/* ---- Against a plain loop ---- */

typedef struct plane_case {
    int64_t n, c, h, w, kernel, stride, pad;
    bool channels_last, odd; /* odd: some NaN and -inf */
} plane_case;

static int64_t place(const plane_case *p, int64_t n, int64_t c, int64_t y, int64_t x, int64_t h, int64_t w) {
    return p->channels_last ? ((n * h + y) * w + x) * p->c + c : ((n * p->c + c) * h + y) * w + x;
}

static ct_dims shape_of(const plane_case *p, int64_t h, int64_t w) {
    return p->channels_last ? CT_DIMS(p->n, h, w, p->c) : CT_DIMS(p->n, p->c, h, w);
}

static void check_plane(const plane_case *p) {
    const int64_t ho = (p->h + 2 * p->pad - p->kernel) / p->stride + 1,
                  wo = (p->w + 2 * p->pad - p->kernel) / p->stride + 1;
    const int64_t count = p->n * p->c * p->h * p->w, out = p->n * p->c * ho * wo;
    float *x = malloc((size_t)count * 4), *g = malloc((size_t)out * 4), *y = malloc((size_t)out * 4);
    float *dx = malloc((size_t)count * 4), *expected = calloc((size_t)count, 4), *mean = calloc((size_t)count, 4);
    int64_t *at = malloc((size_t)out * 8);
    uint32_t state = 7;
    for (int64_t i = 0; i < count + out; i++) {
        state = state * 1664525u + 1013904223u;
        const float v = (float)(state >> 20) / 256 - 8;
        if (i >= count) g[i - count] = v;
        else x[i] = p->odd && state % 61 == 0 ? NAN : p->odd && state % 5 == 0 ? -INFINITY : v;
    }
    ct_tensor *tx = ct_set_requires_grad(ct_from_data(x, shape_of(p, p->h, p->w), CT_F32), true), *ti = NULL;
    ct_tensor *tg = ct_from_data(g, shape_of(p, ho, wo), CT_F32);
    ct_tensor *ty = ct_max_pool2d(tx, CT_DIMS(p->kernel), .stride = p->stride, .pad = p->pad,
                                  .channels_last = p->channels_last, .indices = &ti);
    ct_tensor *plain = ct_max_pool2d(ct_detach(tx), CT_DIMS(p->kernel), .stride = p->stride, .pad = p->pad,
                                     .channels_last = p->channels_last);
    CHECK(ty && ct_backward_from(ty, tg, 0) && ct_read(ty, y, (size_t)out * 4) && ct_read(ti, at, (size_t)out * 8) &&
          ct_read(ct_grad_of(tx), dx, (size_t)count * 4));
    float *again = malloc((size_t)out * 4);
    CHECK(ct_read(plain, again, (size_t)out * 4));
    int64_t wrong = 0;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t c = 0; c < p->c; c++)
            for (int64_t oy = 0; oy < ho; oy++)
                for (int64_t ox = 0; ox < wo; ox++) {
                    float best = 0;
                    int64_t winner = -1, o = place(p, n, c, oy, ox, ho, wo);
                    for (int64_t ky = 0; ky < p->kernel; ky++)
                        for (int64_t kx = 0; kx < p->kernel; kx++) {
                            const int64_t v = oy * p->stride - p->pad + ky, u = ox * p->stride - p->pad + kx;
                            if (v < 0 || v >= p->h || u < 0 || u >= p->w) continue;
                            const int64_t i = place(p, n, c, v, u, p->h, p->w);
                            mean[i] += g[o] / (float)(p->kernel * p->kernel);
                            if (winner >= 0 && (isnan(best) || x[i] <= best)) continue;
                            best = x[i];
                            winner = v * p->w + u;
                        }
                    expected[place(p, n, c, winner / p->w, winner % p->w, p->h, p->w)] += g[o];
                    wrong += at[o] != winner || !(y[o] == best || (isnan(y[o]) && isnan(best))) ||
                             !(again[o] == best || (isnan(again[o]) && isnan(best)));
                }
    CHECK(wrong == 0);
    /* a sum of up to kernel^2 numbers below 8 */
    const double tolerance = 8.0 * (double)(p->kernel * p->kernel) * 0x1p-22;
    for (int64_t i = 0; i < count; i++) wrong += !(fabs((double)dx[i] - (double)expected[i]) <= tolerance);
    CHECK(wrong == 0);
    ct_tensor *leaf = ct_set_requires_grad(ct_detach(tx), true),
              *ta = ct_avg_pool2d(leaf, CT_DIMS(p->kernel), .stride = p->stride, .pad = p->pad,
                                  .channels_last = p->channels_last);
    CHECK(ct_backward_from(ta, tg, 0) && ct_read(ct_grad_of(leaf), dx, (size_t)count * 4));
    for (int64_t i = 0; i < count; i++) wrong += !(fabs((double)dx[i] - (double)mean[i]) <= tolerance);
    CHECK(wrong == 0);
    void *all[] = {x, g, y, dx, expected, mean, at, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

TEST(planes_of_many_sizes_agree_with_a_plain_loop) {
    static const int64_t kernels[][3] = {{3, 2, 1}, {2, 2, 0}, {3, 1, 1}, {5, 3, 2}, {2, 3, 1}, {1, 2, 0}};
    for (int last = 0; last < 2; last++)
        for (int odd = 0; odd < 2; odd++)
            for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
                for (int64_t w = 7; w < 80; w += 31)
                    ct_scope {
                        check_plane(&(plane_case){2, 3 + 14 * last, 9 + w % 5, w, kernels[k][0], kernels[k][1],
                                                  kernels[k][2], last, odd});
                    }
}

/* Windows two apart have loops of their own, for whole vectors and for what is left. */
TEST(windows_two_apart_agree_with_a_plain_loop_at_every_width) {
    static const int64_t kernels[][2] = {{2, 0}, {3, 0}, {3, 1}};
    for (int odd = 0; odd < 2; odd++)
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int64_t w = 3; w < 84; w++)
                ct_scope {
                    check_plane(&(plane_case){1, 2, 6 + w % 3, w, kernels[k][0], 2, kernels[k][1], false, odd});
                    if (w < 20)
                        check_plane(&(plane_case){2, w % 2 ? 16 : 48, 6 + w % 3, w, kernels[k][0], 2, kernels[k][1],
                                                  true, odd});
                }
}

/* Results beyond the caches are written past them, and planes of many rows in bands. */
TEST_LIMIT(large_planes_agree_with_a_plain_loop, 120) {
    ct_scope {
        check_plane(&(plane_case){6, 64, 112, 112, 3, 2, 1, false, false});
    }
    ct_scope {
        check_plane(&(plane_case){4, 64, 112, 112, 3, 2, 1, true, false});
    }
    ct_scope { /* pixels that are no whole lines of the cache at every level */
        check_plane(&(plane_case){4, 24, 200, 180, 3, 2, 1, true, false});
    }
    ct_scope {
        check_plane(&(plane_case){6, 64, 112, 112, 2, 2, 0, true, true});
    }
    ct_scope {
        check_plane(&(plane_case){2, 3, 700, 1300, 2, 2, 0, false, true});
    }
    ct_scope {
        check_plane(&(plane_case){2, 3, 700, 1300, 3, 2, 1, false, true});
    }
}

/* ---- The inverse, options, errors ---- */

TEST(unpooling_puts_the_maxima_back) {
    ct_tensor *i = NULL, *x = ct_uniform(CT_DIMS(2, 3, 8, 6), 1, 2);
    ct_tensor *y = ct_max_pool2d(x, CT_DIMS(2), .indices = &i), *back = ct_max_unpool2d(y, i, CT_DIMS(2));
    CHECK(ct_item(ct_all(ct_logical_or(ct_eq(back, x), ct_eq_s(back, 0)))) == 1);
    CHECK_NEAR(ct_item(ct_sum(back)), ct_item(ct_sum(y)), 1e-3);
}

TEST(pooling_to_a_size_is_the_mean_or_the_greatest_of_windows_that_cover_the_axis) {
    ct_tensor *x = F64(CT_DIMS(1, 1, 5), 1, 2, 3, 4, 10), *i = NULL;
    CHECK_VALUES(ct_adaptive_avg_pool1d(x, CT_DIMS(2)), CT_DIMS(1, 1, 2), 1e-15, 2, 17.0 / 3);
    CHECK_VALUES(ct_adaptive_max_pool1d(x, CT_DIMS(3), .indices = &i), CT_DIMS(1, 1, 3), 0, 2, 4, 10);
    CHECK_VALUES(ct_cast(i, CT_F64), CT_DIMS(1, 1, 3), 0, 1, 3, 4);
}

TEST(a_window_of_zeros_has_no_slope_in_power_pooling) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1, 1, 4), 0, 0, 3, 4), true), *y = ct_lp_pool1d(x, 2, CT_DIMS(2));
    CHECK_VALUES(y, CT_DIMS(1, 1, 2), 1e-15, 0, 5);
    CHECK(ct_backward(ct_sum(y)));
    CHECK_VALUES(ct_grad_of(x), CT_DIMS(1, 1, 4), 1e-15, 0, 0, 0.6, 0.8);
}

TEST(pooling_says_what_is_wrong) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 2, 4, 5));
    CHECK(!ct_max_pool2d(x, CT_DIMS(2), .pad = 2));
    CHECK_ERROR(CT_ERR_VALUE, "max_pool2d: pad 2 is more than half of the kernel's extent, 2 (size 2, dilation 1)");
    CHECK(!ct_max_pool1d(x, CT_DIMS(2)));
    CHECK_ERROR(CT_ERR_SHAPE, "max_pool1d: x is f32[1,2,4,5]; it has to be [N,C,L]");
    CHECK(!ct_avg_pool2d(x, CT_DIMS(2, 2, 2)));
    CHECK_ERROR(CT_ERR_VALUE, "avg_pool2d: kernel is [2,2,2]; it takes 1 number or one for each of the 2 spatial axes");
    CHECK(!ct_avg_pool2d(x, CT_DIMS(2), .divisor_override = -1));
    CHECK_ERROR(CT_ERR_VALUE, "avg_pool2d: divisor_override is -1; it has to be positive");
    CHECK(!ct_max_pool1d(ct_zeros(CT_DIMS(1, 1, 1)), CT_DIMS(2), .pad = 1, .dilation = 2));
    CHECK_ERROR(CT_ERR_SHAPE, "max_pool1d: window 0 (size 2, dilation 2, pad 1) has no element of x, f32[1,1,1]");
    CHECK(!ct_lp_pool2d(x, 0, CT_DIMS(2)));
    CHECK_ERROR(CT_ERR_VALUE, "lp_pool2d: p is 0; it has to be a number other than 0");
    CHECK(!ct_adaptive_avg_pool2d(x, CT_DIMS(0)));
    CHECK_ERROR(CT_ERR_VALUE, "adaptive_avg_pool2d: output_size is [0]; it has to be positive");
    CHECK(!ct_max_unpool1d(ct_zeros(CT_DIMS(1, 1, 2)), I64(CT_DIMS(1, 1, 2), 0, 4), CT_DIMS(2)));
    CHECK(ct_error_code() == CT_ERR_INDEX);
    ct_error_clear();
    CHECK(!ct_col2im(ct_zeros(CT_DIMS(2, 7, 9)), CT_DIMS(4, 4), CT_DIMS(2)));
    CHECK_ERROR(
        CT_ERR_SHAPE,
        "col2im: x is f32[2,7,9]; an image of 4 by 4 has 9 windows of 4 elements per channel, so x has to have 9 "
        "columns of a multiple of 4 elements");
}

TEST(windows_that_no_list_holds_and_windows_of_another_image_are_errors) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 1, 4, 4)), *y = NULL;
    CHECK(!ct_max_pool2d(x, CT_DIMS(100000), .pad = 50000));
    CHECK_ERROR(CT_ERR_VALUE, "max_pool2d: kernel is [100000], more than 2^24 taps; x is f32[1,1,4,4]");
    const ct_op *op = ct_op_find("avg_pool_grad");
    REQUIRE(op);
    void *attrs = calloc(1, op->attr_size);
    REQUIRE(attrs);
    ct_attrs_default(op, attrs);
    CHECK(ct_attrs_set(op, attrs, "sizes", "800,800") && ct_attrs_set(op, attrs, "kernel", "2,2") &&
          ct_attrs_set(op, attrs, "strides", "2,2") && ct_attrs_set(op, attrs, "pads", "0,0,0,0"));
    CHECK(!ct_apply(op, &x, 1, attrs, &y, 1));
    CHECK_ERROR(CT_ERR_SHAPE,
                "avg_pool_grad: f32[1,1,4,4] has 4 along spatial axis 0; with sizes [800,800] there are 400");
    free(attrs);
}

TEST(with_ceil_mode_a_window_may_be_longer_than_the_padded_input_by_less_than_a_stride) {
    ct_tensor *x = F32(CT_DIMS(1, 1, 3), 1, 2, 3);
    CHECK_VALUES(ct_max_pool1d(ct_narrow(x, 2, 0, 2), CT_DIMS(3), .stride = 2, .ceil_mode = true), CT_DIMS(1, 1, 1), 0,
                 2);
    CHECK_VALUES(ct_avg_pool1d(ct_narrow(x, 2, 0, 2), CT_DIMS(3), .stride = 2, .ceil_mode = true), CT_DIMS(1, 1, 1), 0,
                 1.5);
    CHECK_VALUES(ct_avg_pool1d(x, CT_DIMS(5), .stride = 3, .pad = 1, .ceil_mode = true), CT_DIMS(1, 1, 1), 1e-6, 1.2);
    CHECK(!ct_max_pool1d(ct_narrow(x, 2, 0, 2), CT_DIMS(4), .stride = 2, .ceil_mode = true));
    CHECK(ct_error_code() == CT_ERR_SHAPE);
    ct_error_clear();
    ct_tensor *leaf = ct_set_requires_grad(ct_mul_s(x, 2), true),
              *y = ct_sum(ct_max_pool1d(leaf, CT_DIMS(5), .stride = 3, .ceil_mode = true)), *g;
    CHECK(ct_grad(&y, 1, NULL, &leaf, 1, &g, 0));
    CHECK_VALUES(g, CT_DIMS(1, 1, 3), 0, 0, 0, 1);
}
