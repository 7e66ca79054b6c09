/* Transforms: against torchvision where the meaning is the same (tests/refs/transforms.inc), what the random ones may
 * and may not do, and the table. Colors are in 0 .. 1 in f32: a few roundings of 6e-8 each. */
#include "tests/harness.h"

#include <cotangent/data.h>

#include <math.h>
#include <string.h>

#include "tests/refs/transforms.inc"

enum { CHANNELS = 3, HEIGHT = 7, WIDTH = 9, PLANE = HEIGHT * WIDTH };

/* The picture, or its first channel. */
static ct_tensor *pixels(int64_t channels, ct_dtype dtype) {
    ct_tensor *x = harness_tensor(CT_U8, CT_DIMS(channels, HEIGHT, WIDTH), picture, (int)(channels * PLANE));
    return dtype == CT_U8 ? x : ct_mul_s(ct_cast(x, CT_F32), 1.0 / 255);
}

/* Applies the transform, which is given away, to an item. */
static ct_tensor *apply(ct_transform *transform, ct_tensor *x, int64_t item) {
    ct_tensor *fields[1] = {x};
    const bool ok = transform && ct_transform_apply(transform, fields, 1, false, 0, 1, 0, item);
    ct_transform_free(transform);
    return ok ? fields[0] : NULL;
}

static void check_values(int line, ct_tensor *y, ct_dims shape, const double *expected, double tolerance) {
    int count = 1;
    for (int i = 0; i < shape.n; i++) count *= (int)shape.d[i];
    harness_values(__FILE__, line, "the transform", y, shape, expected, count, tolerance);
}
#define CHECK_PICTURE(transform, channels, shape, expected, tolerance)                                     \
    do {                                                                                                   \
        check_values(__LINE__, apply(transform, pixels(channels, CT_U8), 0), shape, expected, tolerance);  \
        check_values(__LINE__, apply(transform, pixels(channels, CT_F32), 0), shape, expected, tolerance); \
    } while (0)

TEST(normalizing_agrees_with_torchvision) {
    /* values of up to 6, from a division by 0.1: 1e-6 is a few units in their last place */
    CHECK_PICTURE(ct_transform_normalize((double[]){0.5, 0.25, 0.4}, (double[]){0.2, 0.3, 0.1}, 3), 3,
                  CT_DIMS(3, HEIGHT, WIDTH), picture_normalized, 2e-6);
}

TEST(resizing_agrees_with_torchvision) {
    CHECK_PICTURE(ct_transform_resize(3, 5), 3, CT_DIMS(3, 3, 5), picture_shrunk, 1e-6);
    CHECK_PICTURE(ct_transform_resize(10, 12), 1, CT_DIMS(1, 10, 12), picture_grown, 1e-6);
}

TEST(rotating_agrees_with_torchvision) {
    /* torchvision computes the places in f32: about 1e-6 of a pixel, times differences of neighbors up to 1 */
    CHECK_PICTURE(ct_transform_rotate(30, false), 3, CT_DIMS(3, HEIGHT, WIDTH), picture_turned, 1e-5);
    CHECK_PICTURE(ct_transform_rotate(-107, false), 1, CT_DIMS(1, HEIGHT, WIDTH), picture_turned_back, 1e-5);
    CHECK_PICTURE(ct_transform_rotate(35, true), 1, CT_DIMS(1, HEIGHT, WIDTH), picture_turned_nearest, 1e-6);
}

TEST(colors_agree_with_torchvision) {
    const ct_dims shape = CT_DIMS(3, HEIGHT, WIDTH), one = CT_DIMS(1, HEIGHT, WIDTH);
    CHECK_PICTURE(ct_transform_gray(1), 3, one, picture_gray, 1e-6);
    CHECK_PICTURE(ct_transform_color(1.4, 1, 1, 0), 3, shape, picture_bright, 1e-6);
    CHECK_PICTURE(ct_transform_color(1, 0.6, 1, 0), 3, shape, picture_contrast, 1e-6);
    CHECK_PICTURE(ct_transform_color(1, 1.7, 1, 0), 1, one, picture_contrast_gray, 1e-6);
    CHECK_PICTURE(ct_transform_color(1, 1, 1.8, 0), 3, shape, picture_saturation, 1e-6);
    CHECK_PICTURE(ct_transform_color(1, 1, 1, 0.2), 3, shape, picture_hue, 2e-6);
    CHECK_PICTURE(ct_transform_color(1, 1, 1, -0.35), 3, shape, picture_hue_back, 2e-6);
}

TEST(crops_of_the_middle_agree_with_torchvision) {
    check_values(__LINE__, apply(ct_transform_center_crop(4, 4), pixels(3, CT_U8), 0), CT_DIMS(3, 4, 4), picture_center,
                 0);
    check_values(__LINE__, apply(ct_transform_center_crop(10, 12), pixels(1, CT_U8), 0), CT_DIMS(1, 10, 12),
                 picture_center_large, 0);
}

TEST(flips_and_pads_move_pixels_of_any_dtype) {
    static const ct_dtype dtypes[] = {CT_U8, CT_F32, CT_I64, CT_F64, CT_I16};
    for (int d = 0; d < 5; d++) {
        ct_tensor *x = TENSOR(dtypes[d], CT_DIMS(1, 2, 3), 1, 2, 3, 4, 5, 6);
        ct_tensor *flipped = apply(ct_transform_flip(1), x, 0), *down = apply(ct_transform_flip_vertical(1), x, 0);
        CHECK(ct_dtype_of(flipped) == dtypes[d]);
        CHECK_VALUES(flipped, CT_DIMS(1, 2, 3), 0, 3, 2, 1, 6, 5, 4);
        CHECK_VALUES(down, CT_DIMS(1, 2, 3), 0, 4, 5, 6, 1, 2, 3);
        CHECK_VALUES(apply(ct_transform_pad(1, 0), x, 0), CT_DIMS(1, 4, 5), 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6,
                     0, 0, 0, 0, 0, 0);
        CHECK(apply(ct_transform_flip(0), x, 0) == x);
    }
    CHECK_VALUES(apply(ct_transform_pad(1, 0.2), TENSOR(CT_U8, CT_DIMS(1, 1, 1), 9), 0), CT_DIMS(1, 3, 3), 0, 51, 51,
                 51, 51, 9, 51, 51, 51, 51);
    ct_tensor *turned = ct_transpose(F32(CT_DIMS(1, 3, 2), 1, 4, 2, 5, 3, 6), 1, 2); /* not contiguous */
    CHECK_VALUES(apply(ct_transform_flip(1), turned, 0), CT_DIMS(1, 2, 3), 0, 3, 2, 1, 6, 5, 4);
}

TEST(a_random_crop_is_a_part_of_the_padded_picture_and_reaches_every_place) {
    ct_tensor *x = TENSOR(CT_U8, CT_DIMS(1, 2, 2), 1, 2, 3, 4);
    int seen[9] = {0};
    for (int item = 0; item < 300; item++) {
        ct_tensor *y = apply(ct_transform_random_crop(2, 2, 1), x, item);
        /* 3 x 3 places of a 2 x 2 window in the padded 4 x 4 picture */
        int place = -1;
        for (int p = 0; p < 9; p++) {
            bool same = true;
            for (int i = 0; i < 4; i++) {
                const int row = p / 3 + i / 2 - 1, column = p % 3 + i % 2 - 1;
                const double expected = row < 0 || row > 1 || column < 0 || column > 1 ? 0 : 2 * row + column + 1;
                same = same && harness_at(y, i) == expected;
            }
            if (same) place = p;
        }
        REQUIRE(place >= 0);
        seen[place]++;
    }
    for (int p = 0; p < 9; p++) CHECK_NEAR(seen[p], 300.0 / 9, 5 * sqrt(300.0 / 9));
}

TEST(random_transforms_depend_on_the_item_and_on_nothing_else) {
    ct_transform *list =
        ct_transform_chain(ct_transform_random_resized_crop(5, 5, 0.2, 1), ct_transform_flip(0.5),
                           ct_transform_color_jitter(0.4, 0.4, 0.4, 0.1), ct_transform_erase(0.5, 0.1, 0.4, 0.5));
    int same = 0;
    ct_tensor *before = NULL;
    for (int item = 0; item < 10; item++) {
        ct_tensor *a = apply(ct_transform_keep(list), pixels(3, CT_U8), item);
        ct_tensor *b = apply(ct_transform_keep(list), pixels(3, CT_U8), item);
        REQUIRE(a && b);
        CHECK(harness_same_bits(a, b) && ct_dim(a, 1) == 5);
        same += before && harness_same_bits(a, before);
        before = a;
        for (int64_t i = 0; i < ct_numel(a); i++) CHECK(harness_at(a, i) >= 0 && harness_at(a, i) <= 1);
    }
    CHECK(same == 0);
    ct_transform_free(list);
}

TEST(chances_are_what_they_say) {
    ct_tensor *x = F32(CT_DIMS(1, 1, 2), 1, 2);
    int flipped = 0;
    for (int item = 0; item < 1000; item++) flipped += harness_at(apply(ct_transform_flip(0.3), x, item), 0) == 2;
    CHECK_NEAR(flipped, 300, 5 * sqrt(1000 * 0.3 * 0.7));
}

TEST(cutout_and_erase_take_a_rectangle_away) {
    ct_tensor *x = ct_full(CT_DIMS(2, 12, 12), 1.0);
    for (int item = 0; item < 40; item++) {
        ct_tensor *y = apply(ct_transform_cutout(4, 1), x, item);
        const double gone = 288 - ct_item(ct_sum(y));
        CHECK(gone >= 2 * 4 && gone <= 2 * 16 && fmod(gone, 2) == 0);
        ct_tensor *z = apply(ct_transform_erase(1, 0.1, 0.3, 0.25), x, item);
        const double erased = (288 - ct_item(ct_sum(z))) / 0.75 / 288;
        CHECK(erased > 0.05 && erased < 0.4);
    }
    CHECK(ct_item(ct_sum(x)) == 288); /* the item itself is untouched */
}

TEST(mixup_and_cutmix_mix_items_and_labels_alike) {
    /* item i is full of i, so a mean of pixels is a mean of numbers, and so is that of the labels */
    for (int cut = 0; cut < 2; cut++)
        for (int batch = 0; batch < 20; batch++) {
            ct_tensor *x = ct_empty(CT_DIMS(4, 1, 8, 8));
            float *data = ct_data_mut(x);
            for (int i = 0; i < 4 * 64; i++) data[i] = (float)(i / 64);
            ct_tensor *fields[2] = {x, I64(CT_DIMS(4), 0, 1, 2, 3)};
            ct_transform *mix = cut ? ct_transform_cutmix(1, 1) : ct_transform_mixup(1, 1);
            REQUIRE(ct_transform_apply(mix, fields, 2, true, 4, 3, 0, batch));
            ct_transform_free(mix);
            for (int i = 0; i < 4; i++) {
                double pixel = 0, label = 0, sum = 0;
                for (int j = 0; j < 64; j++) pixel += harness_at(fields[0], 64 * i + j) / 64;
                for (int c = 0; c < 4; c++) {
                    label += c * harness_at(fields[1], 4 * i + c);
                    sum += harness_at(fields[1], 4 * i + c);
                }
                CHECK_NEAR(sum, 1, 1e-6);
                CHECK_NEAR(pixel, label, 1e-5);
            }
        }
}

TEST(every_entry_of_the_table_builds) {
    int n = 0;
    for (const ct_transform_info *info; (info = ct_transform_at(n)); n++) {
        double values[16];
        CHECK(ct_transform_find(info->name) == info && info->doc[0] && info->count <= 16);
        bool needed = false;
        for (int i = 0; i < info->count; i++) {
            CHECK(info->settings[i].name[0] && info->settings[i].doc[0]);
            values[i] = info->settings[i].value;
            needed |= isnan(values[i]);
            if (isnan(values[i])) values[i] = 4;
        }
        ct_transform *transform = ct_transform_build(info, values);
        CHECK(transform != NULL && ct_ok());
        ct_transform_free(transform);
        transform = ct_transform_build(info, NULL);
        CHECK((transform == NULL) == needed);
        ct_transform_free(transform);
        ct_error_clear();
    }
    CHECK(n >= 16 && !ct_transform_find("nothing") && !ct_transform_find(NULL) && !ct_transform_at(-1));
    CHECK(!ct_transform_build(ct_transform_find("rotate"), NULL));
    CHECK_ERROR(CT_ERR_VALUE, "transform_build: rotate: degrees has to be given");
    CHECK(!ct_transform_build(ct_transform_find("cutout"), (double[]){1.5, 1}));
    CHECK_ERROR(CT_ERR_VALUE, "transform_build: cutout: size is 1.5; it has to be a whole number");
    CHECK(!ct_transform_build(ct_transform_find("rotate"), (double[]){10, 2}));
    CHECK_ERROR(CT_ERR_VALUE, "transform_build: rotate: nearest is 2; it has to be 0 or 1");
    /* by color */
    double values[6] = {0.5, 0.2, 0.25, 0.3, 0.4, 0.1};
    check_values(__LINE__, apply(ct_transform_build(ct_transform_find("normalize"), values), pixels(3, CT_U8), 0),
                 CT_DIMS(3, HEIGHT, WIDTH), picture_normalized, 2e-6);
}

static bool half(void *context, ct_tensor **fields, int n, ct_draw *draw) {
    if (*(int *)context) return false;
    fields[0] = ct_add_s(ct_mul_s(fields[0], 0.5), ct_draw_uniform(draw) * 0);
    fields[0] = ct_add(fields[0], ct_mul_s(ct_rand(CT_DIMS(1), .rng = ct_draw_rng(draw)), 0));
    return n == 1 && fields[0];
}

TEST(a_function_of_the_user_is_a_transform) {
    int fails = 0;
    ct_tensor *x = F32(CT_DIMS(1, 1, 2), 2, 4);
    CHECK_VALUES(apply(ct_transform_call(half, &fails, NULL), x, 0), CT_DIMS(1, 1, 2), 0, 1, 2);
    fails = 1;
    CHECK(!apply(ct_transform_call(half, &fails, NULL), x, 0));
    CHECK_ERROR(CT_ERR_VALUE, "transform_call: failed without a reason given");
}

TEST(what_does_not_fit_is_refused) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 4, 4));
    CHECK(!apply(ct_transform_random_crop(8, 8, 1), x, 0));
    CHECK_ERROR(CT_ERR_SHAPE, "transform_random_crop: 8 x 8 of an image of 4 x 4 padded by 1");
    CHECK(!apply(ct_transform_flip(1), ct_zeros(CT_DIMS(4, 4)), 0));
    CHECK_ERROR(CT_ERR_SHAPE, "transform_flip: an image is [channels, height, width]; field 0 has 2 dimensions");
    CHECK(!apply(ct_transform_rotate(3, false), ct_cast(x, CT_I64), 0));
    CHECK_ERROR(CT_ERR_DTYPE, "transform_rotate: field 0 is i64; expected u8 or f32");
    CHECK(!apply(ct_transform_color_jitter(0, 0, 0.5, 0), x, 0));
    CHECK_ERROR(CT_ERR_SHAPE, "transform_color_jitter: saturation and hue want 3 channels; the image has 1");
    CHECK(!apply(ct_transform_normalize((double[]){1, 2, 3}, (double[]){1, 1, 1}, 3), x, 0));
    CHECK_ERROR(CT_ERR_SHAPE, "transform_normalize: 3 means for an image of 1 channels");
    CHECK(!ct_transform_normalize((double[]){1}, (double[]){0}, 1));
    CHECK_ERROR(CT_ERR_VALUE, "transform_normalize: channel 0 has mean 1 and std 0; std has to be above 0");
    CHECK(!ct_transform_flip(1.5));
    CHECK_ERROR(CT_ERR_VALUE, "transform_flip: p is 1.5; expected 0 to 1");
    CHECK(!ct_transform_chain(ct_transform_flip(0.5), ct_transform_gray(2), ct_transform_float()));
    CHECK_ERROR(CT_ERR_VALUE, "transform_gray: 2 channels; expected 1 or 3");
    ct_transform_free(NULL);
}

/* An image whose pixels are their own numbers, and a mask of the same numbers: whatever moves one has to move the other. */
static bool moves_along(ct_transform *transform, int64_t item) {
    bool same = false;
    ct_scope {
        ct_tensor *fields[2] = {ct_cast(ct_reshape(ct_arange(0, 30, 1), CT_DIMS(1, 5, 6)), CT_U8),
                                ct_cast(ct_reshape(ct_arange(0, 30, 1), CT_DIMS(5, 6)), CT_I64)};
        same = ct_transform_apply(transform, fields, 2, false, 30, 1, 0, item) && ct_ndim(fields[1]) == 2 &&
               ct_dtype_of(fields[1]) == CT_I64 && ct_dim(fields[0], 1) == ct_dim(fields[1], 0) &&
               ct_dim(fields[0], 2) == ct_dim(fields[1], 1) &&
               ct_item(ct_sum(ct_abs(ct_sub(ct_cast(fields[0], CT_F32), ct_cast(fields[1], CT_F32))))) == 0;
    }
    ct_transform_free(transform);
    return same;
}

TEST(masks_are_moved_along_with_their_images) {
    for (int64_t i = 0; i < 8; i++) {
        CHECK(moves_along(ct_transform_flip(0.5), i));
        CHECK(moves_along(ct_transform_flip_vertical(0.5), i));
        CHECK(moves_along(ct_transform_random_crop(4, 5, 2), i));
    }
    CHECK(moves_along(ct_transform_pad(2, 0), 0));
    CHECK(moves_along(ct_transform_center_crop(3, 2), 0));
    CHECK(moves_along(ct_transform_center_crop(9, 9), 0));
    /* a label is none, and stays */
    ct_tensor *fields[2] = {ct_zeros(CT_DIMS(1, 5, 6)), ct_full(CT_DIMS0, 3, .dtype = CT_I64)};
    ct_transform *flip = ct_transform_flip(1);
    CHECK(ct_transform_apply(flip, fields, 2, false, 10, 1, 0, 0) && ct_ndim(fields[1]) == 0 &&
          ct_item(fields[1]) == 3);
    ct_transform_free(flip);
}
