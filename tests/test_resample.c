/* What resizing and sampling promise beyond values at samples: positions, identities, places that are no numbers, errors. */
#include <math.h>

#include "tests/harness.h"

TEST(nearest_takes_the_floor_in_whole_numbers) {
    ct_tensor *x = F64(CT_DIMS(1, 1, 10), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    ct_tensor *y = ct_interpolate(x, .output_size = CT_DIMS(3));
    CHECK_VALUES(y, CT_DIMS(1, 1, 3), 0, 0, 3, 6);
    CHECK_VALUES(ct_interpolate(x, .output_size = CT_DIMS(3), .mode = CT_NEAREST_EXACT), CT_DIMS(1, 1, 3), 0, 1, 5, 8);
    CHECK_VALUES(ct_upsample_nearest(ct_narrow(x, 2, 0, 2), .scale = 2), CT_DIMS(1, 1, 4), 0, 0, 0, 1, 1);
}

TEST(resizing_to_the_same_size_keeps_values_and_graph) {
    ct_tensor *x = ct_set_requires_grad(F64(CT_DIMS(1, 1, 2, 2), 1, 2, 3, 4), true);
    static const ct_resize_mode modes[] = {CT_NEAREST, CT_BILINEAR, CT_BICUBIC, CT_AREA};
    for (int k = 0; k < 4; k++) {
        ct_tensor *y = ct_interpolate(x, .output_size = CT_DIMS(2), .mode = modes[k]);
        CHECK_VALUES(y, CT_DIMS(1, 1, 2, 2), 0, 1, 2, 3, 4);
        CHECK(ct_requires_grad(y));
    }
}

TEST(corners_stay_in_place_when_they_are_aligned) {
    ct_tensor *x = F64(CT_DIMS(1, 1, 3), 0, 1, 4);
    ct_tensor *y = ct_interpolate(x, .output_size = CT_DIMS(5), .mode = CT_LINEAR, .align_corners = true);
    CHECK_VALUES(y, CT_DIMS(1, 1, 5), 1e-15, 0, 0.5, 1, 2.5, 4);
}

TEST(pixels_come_back_from_their_shuffle) {
    ct_tensor *x = ct_rand(CT_DIMS(2, 12, 3, 5));
    CHECK(ct_item(ct_all(ct_eq(ct_pixel_unshuffle(ct_pixel_shuffle(x, 2), 2), x))) == 1);
    ct_tensor *last = ct_permute(x, CT_DIMS(0, 2, 3, 1)), *y = ct_pixel_shuffle(last, 2, .channels_last = true);
    CHECK(ct_item(ct_all(ct_eq(ct_permute(y, CT_DIMS(0, 3, 1, 2)), ct_pixel_shuffle(x, 2)))) == 1);
}

TEST(places_that_are_no_numbers_read_zero) {
    ct_tensor *x = ct_full(CT_DIMS(1, 1, 2, 2), 5), *grid = F64(CT_DIMS(1, 1, 3, 2), NAN, 0, INFINITY, 0, 0, 0);
    ct_tensor *y = ct_grid_sample(x, ct_cast(grid, CT_F32));
    CHECK_VALUES(ct_cast(y, CT_F64), CT_DIMS(1, 1, 1, 3), 0, 0, 0, 5);
}

TEST(an_identity_grid_reads_the_image) {
    ct_tensor *x = ct_rand(CT_DIMS(2, 3, 4, 5), .dtype = CT_F64);
    double grid[2 * 4 * 5 * 2];
    for (int i = 0; i < 2 * 4 * 5; i++) {
        grid[2 * i] = 2.0 * (i % 5) / 4 - 1;
        grid[2 * i + 1] = 2.0 * (i / 5 % 4) / 3 - 1;
    }
    ct_tensor *g = ct_from_data(grid, CT_DIMS(2, 4, 5, 2), CT_F64);
    for (int mode = 0; mode < 3; mode++) {
        ct_tensor *y =
            ct_grid_sample(x, g, .mode = (ct_grid_mode)mode, .padding = CT_GRID_BORDER, .align_corners = true);
        CHECK(ct_item(ct_amax(ct_abs(ct_sub(x, y)))) < 1e-14);
    }
}

TEST(resampling_says_what_is_wrong) {
    ct_tensor *x = ct_zeros(CT_DIMS(1, 2, 4));
    CHECK(!ct_interpolate(x));
    CHECK_ERROR(CT_ERR_VALUE, "interpolate: neither output_size nor scale is given; give one of them");
    CHECK(!ct_interpolate(x, .output_size = CT_DIMS(3), .scale = 2));
    CHECK_ERROR(CT_ERR_VALUE, "interpolate: both output_size and scale are given; give one of them");
    CHECK(!ct_interpolate(x, .output_size = CT_DIMS(3), .mode = CT_BILINEAR));
    CHECK_ERROR(CT_ERR_SHAPE, "interpolate: mode bilinear is for 2 spatial axes; x is f32[1,2,4] and has 1");
    CHECK(!ct_interpolate(x, .output_size = CT_DIMS(3), .align_corners = true));
    CHECK_ERROR(CT_ERR_VALUE, "interpolate: align_corners is for the modes linear, bilinear, trilinear and bicubic");
    CHECK(!ct_interpolate(x, .scale = 0.1));
    CHECK_ERROR(CT_ERR_SHAPE,
                "interpolate: axis 2 would go from 4 to 0 elements; x is f32[1,2,4] and lengths have to be positive");
    CHECK(!ct_pixel_shuffle(ct_zeros(CT_DIMS(1, 6, 2, 2)), 2));
    CHECK_ERROR(CT_ERR_SHAPE,
                "pixel_shuffle: the 6 channels of x, f32[1,6,2,2], are not a multiple of factor * factor, 4");
    CHECK(!ct_grid_sample(ct_zeros(CT_DIMS(2, 3, 4, 5)), ct_zeros(CT_DIMS(1, 2, 2, 2))));
    CHECK_ERROR(CT_ERR_SHAPE, "grid_sample: grid is f32[1,2,2,2]; for x of f32[2,3,4,5] it has to be [2,Ho,Wo,2]");
}
