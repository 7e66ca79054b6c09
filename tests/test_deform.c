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
    ct_tensor *x = ct_set_requires_grad(ct_full(CT_DIMS(1, 2, 3, 3), 7, .dtype = CT_F64), true);
    ct_tensor *w = ct_ones(CT_DIMS(1, 2, 1, 1), .dtype = CT_F64);
    ct_tensor *offset = ct_set_requires_grad(ct_full(CT_DIMS(1, 2, 3, 3), 100, .dtype = CT_F64), true);
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

/* ---- Gradients against plain loops ---- */

typedef struct shape {
    int n, c, h, w, out, k, stride, groups, offset_groups;
    bool masked;
} shape;

enum { X, OFFSET, WEIGHT, MASK, G, TENSORS };

/* All four gradients of one case in double; the arrays are in the order of the tensors, channels first. */
static void plain_gradients(const shape *s, int oh, int ow, double *const *at, double *const *grad) {
    const int taps = s->k * s->k, each = s->c / s->groups, shared = s->c / s->offset_groups, plane = s->h * s->w;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < oh; oy++)
            for (int ox = 0; ox < ow; ox++)
                for (int c = 0; c < s->c; c++)
                    for (int t = 0; t < taps; t++) {
                        const int group = c / each, spot = c / shared * taps + t, outs = s->out / s->groups;
                        const int move = ((n * 2 * s->offset_groups * taps + 2 * spot) * oh + oy) * ow + ox;
                        const int masked = ((n * s->offset_groups * taps + spot) * oh + oy) * ow + ox;
                        const double m = s->masked ? at[MASK][masked] : 1;
                        const double y = oy * s->stride - 1 + t / s->k + at[OFFSET][move];
                        const double x = ox * s->stride - 1 + t % s->k + at[OFFSET][move + oh * ow];
                        const double *image = at[X] + (n * s->c + c) * plane, value = read_at(image, s->h, s->w, y, x);
                        double column = 0; /* gradient of the sample times its mask */
                        for (int o = group * outs; o < (group + 1) * outs; o++) {
                            const double g = at[G][((n * s->out + o) * oh + oy) * ow + ox];
                            const int w = (o * each + c % each) * taps + t;
                            column += g * at[WEIGHT][w];
                            grad[WEIGHT][w] += g * value * m;
                        }
                        if (s->masked) grad[MASK][masked] += column * value;
                        for (int a = 0; a < 2; a++)
                            for (int b = 0; b < 2; b++) {
                                const double v = floor(y) + a, u = floor(x) + b, py = y - floor(y), px = x - floor(x);
                                if (v < 0 || v >= s->h || u < 0 || u >= s->w) continue;
                                const int pixel = (int)v * s->w + (int)u;
                                const double wy = a ? py : 1 - py, wx = b ? px : 1 - px, e = column * m * image[pixel];
                                grad[X][(n * s->c + c) * plane + pixel] += column * m * wy * wx;
                                grad[OFFSET][move] += (a ? e : -e) * wx;
                                grad[OFFSET][move + oh * ow] += (b ? e : -e) * wy;
                            }
                    }
}

static ct_tensor *turned(ct_tensor *image, bool last) {
    return last ? ct_contiguous(ct_permute(image, CT_DIMS(0, 2, 3, 1))) : image;
}

static void check_gradients(const shape *s, ct_dtype dtype, bool last) {
    const int oh = (s->h + 2 - s->k) / s->stride + 1, ow = (s->w + 2 - s->k) / s->stride + 1, taps = s->k * s->k;
    /* places are thirty-seconds, so that f32 finds exactly the same ones */
    ct_tensor *steps = ct_round(ct_uniform(CT_DIMS(s->n, 2 * s->offset_groups * taps, oh, ow), -40, 40));
    ct_tensor *all[TENSORS] = {ct_uniform(CT_DIMS(s->n, s->c, s->h, s->w), -1, 1), ct_div_s(ct_add_s(steps, 0.5), 16),
                               ct_uniform(CT_DIMS(s->out, s->c / s->groups, s->k, s->k), -1, 1),
                               ct_rand(CT_DIMS(s->n, s->offset_groups * taps, oh, ow)),
                               ct_uniform(CT_DIMS(s->n, s->out, oh, ow), -1, 1)};
    double *at[TENSORS], *grad[TENSORS];
    ct_tensor *in[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = (size_t)ct_numel(all[i]) * sizeof(double);
        at[i] = malloc(bytes);
        grad[i] = calloc(1, bytes);
        CHECK(ct_read(ct_cast(all[i], CT_F64), at[i], bytes));
        const bool weight = i == WEIGHT;
        in[i] = ct_cast(weight && last ? ct_contiguous(ct_permute(all[i], CT_DIMS(2, 3, 1, 0)))
                                       : turned(all[i], last && !weight),
                        dtype);
        if (i != G) in[i] = ct_set_requires_grad(in[i], true);
    }
    plain_gradients(s, oh, ow, at, grad);
    ct_tensor *y = ct_deform_conv2d(in[X], in[OFFSET], in[WEIGHT], .mask = s->masked ? in[MASK] : NULL, .pad = 1,
                                    .stride = s->stride, .groups = s->groups, .offset_groups = s->offset_groups,
                                    .channels_last = last);
    CHECK(ct_backward(ct_sum(ct_mul(y, in[G]))));
    for (int i = 0; i < G; i++) {
        if (i == MASK && !s->masked) continue;
        ct_tensor *got = ct_cast(ct_grad_of(in[i]), CT_F64);
        if (last) got = ct_contiguous(ct_permute(got, i == WEIGHT ? CT_DIMS(3, 2, 0, 1) : CT_DIMS(0, 3, 1, 2)));
        double *value = malloc((size_t)ct_numel(got) * sizeof(double)), worst = 0, largest = 1;
        CHECK(ct_numel(got) == ct_numel(all[i]) && ct_read(got, value, (size_t)ct_numel(got) * sizeof(double)));
        for (int64_t k = 0; k < ct_numel(got); k++) {
            const double d = fabs(value[k] - grad[i][k]);
            if (!(d <= worst)) worst = d;
            largest = fmax(largest, fabs(grad[i][k]));
        }
        /* sums of at most a few thousand terms, of which the largest gradient is one */
        CHECK(worst <= (dtype == CT_F64 ? 0x1p-52 : 0x1p-23) * 64 * largest);
        free(value);
    }
    for (int i = 0; i < TENSORS; i++) free(at[i]), free(grad[i]);
}

TEST(gradients_agree_with_plain_loops) {
    static const shape shapes[] = {
        {2, 64, 12, 13, 20, 3, 1, 1, 1, true}, /* several blocks of pixels, whole vectors */
        {1, 37, 13, 11, 5, 3, 1, 1, 1, true},  /* slices of one image, off the lanes */
        {4, 132, 6, 5, 3, 2, 1, 1, 1, false},  /* several slices, no mask */
        {2, 24, 9, 7, 6, 3, 2, 3, 2, true},    /* groups that cross those of offsets */
        {1, 40, 8, 9, 10, 3, 1, 10, 1, true},  /* groups smaller than a vector */
        {1, 48, 7, 8, 4, 1, 1, 1, 16, false},  /* many groups of offsets */
        {19, 5, 5, 4, 3, 3, 1, 1, 1, true},    /* more images than are done at a time */
        {2, 16, 1, 9, 4, 3, 3, 1, 1, true},    /* one row */
        {1, 20, 19, 6, 4, 3, 1, 1, 1, true},   /* bands of rows */
        {1, 70, 33, 3, 2, 3, 1, 1, 1, false},  /* the same, four of them */
        {3, 18, 35, 4, 2, 3, 2, 1, 1, true},   /* the same of several images */
        {1, 6, 16, 16, 4, 3, 1, 1, 1, true},   /* planes a power of two apart */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int last = 0; last < 2; last++) {
            check_gradients(&shapes[i], CT_F32, last);
            check_gradients(&shapes[i], CT_F64, last);
        }
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
    ct_tensor *offset = ct_set_requires_grad(ct_ones(CT_DIMS(1, 18, 2, 2)), true), *bias = ct_ones(CT_DIMS(2));
    ct_tensor *y = ct_deform_conv2d(ct_zeros(CT_DIMS(1, 0, 4, 4)), offset, ct_zeros(CT_DIMS(2, 0, 3, 3)), .bias = bias);
    CHECK(ct_item(ct_amin(y)) == 1 && ct_item(ct_amax(y)) == 1);
    CHECK(ct_backward(ct_sum(y)));
    CHECK(ct_item(ct_amax(ct_abs(ct_grad_of(offset)))) == 0);
}
