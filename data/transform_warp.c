/* Transforms that compute new pixels between the old ones: resize, random resized crop, rotate. They give f32. */
#include "data/image.h"

#include <math.h>

/* ---- Resize ---- */

typedef struct target {
    int64_t height, width;
    double min_area, max_area;
} target;

static bool resize_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n, (void)draw;
    const target *to = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open_pixels("transform_resize", fields[0], &image)) return false;
    if (image.height < 1 || image.width < 1)
        return ct_fail(CT_ERR_SHAPE, "transform_resize", "the image has no pixels");
    fields[0] =
        ct__image_resize_part("transform_resize", &image, 0, 0, image.height, image.width, to->height, to->width);
    return fields[0] != NULL;
}

static bool random_resized_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n;
    const target *to = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open_pixels("transform_random_resized_crop", fields[0], &image)) return false;
    if (image.height < 1 || image.width < 1)
        return ct_fail(CT_ERR_SHAPE, "transform_random_resized_crop", "the image has no pixels");
    const double low = log(3.0 / 4), high = log(4.0 / 3);
    int64_t h = 0, w = 0, top = 0, left = 0;
    for (int attempt = 0; attempt < 10 && h == 0; attempt++) {
        const double area = (to->min_area + (to->max_area - to->min_area) * ct_draw_uniform(draw)) *
                            (double)(image.height * image.width);
        const double proportion = exp(low + (high - low) * ct_draw_uniform(draw));
        const int64_t a = (int64_t)rint(sqrt(area / proportion)), b = (int64_t)rint(sqrt(area * proportion));
        if (a < 1 || b < 1 || a > image.height || b > image.width) continue;
        h = a;
        w = b;
        top = ct_draw_below(draw, image.height - h + 1);
        left = ct_draw_below(draw, image.width - w + 1);
    }
    if (h == 0) { /* none fitted: the middle, as large as the proportions allow */
        h = image.height;
        w = image.width;
        if (3 * w > 4 * h) w = (int64_t)rint((double)h * 4 / 3);
        else if (4 * w < 3 * h) h = (int64_t)rint((double)w * 4 / 3);
        top = (image.height - h) / 2;
        left = (image.width - w) / 2;
    }
    fields[0] = ct__image_resize_part("transform_random_resized_crop", &image, top, left, h, w, to->height, to->width);
    return fields[0] != NULL;
}

static const ct_transform_class resize_class = {
    sizeof(ct_transform_class), "transform_resize", sizeof(target), resize_item, NULL, NULL};
static const ct_transform_class random_resized_class = {
    sizeof(ct_transform_class), "transform_random_resized_crop", sizeof(target), random_resized_item, NULL, NULL};

static ct_transform *new_resize(const ct_transform_class *type, target to) {
    if (to.height < 1 || to.width < 1 || to.height > 1 << 16 || to.width > 1 << 16) {
        ct_fail(CT_ERR_VALUE, type->name, "to %lld x %lld; expected 1 to 65536", (long long)to.height,
                (long long)to.width);
        return NULL;
    }
    if (!(to.min_area > 0 && to.min_area <= to.max_area && to.max_area <= 1)) {
        ct_fail(CT_ERR_VALUE, type->name, "areas %g to %g; expected fractions in order", to.min_area, to.max_area);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(type);
    if (transform) *(target *)ct_transform_data(transform) = to;
    return transform;
}

ct_transform *ct_transform_resize(int64_t height, int64_t width) {
    return new_resize(&resize_class, (target){height, width, 1, 1});
}
ct_transform *ct_transform_random_resized_crop(int64_t height, int64_t width, double min_area, double max_area) {
    return new_resize(&random_resized_class, (target){height, width, min_area, max_area});
}

/* ---- Rotate ---- */

typedef struct rotation {
    double degrees;
    bool random, nearest;
} rotation;

static float pixel(const float *plane, const ct__image *image, int64_t row, int64_t column) {
    return row < 0 || row >= image->height || column < 0 || column >= image->width ? 0
                                                                                   : plane[row * image->width + column];
}

/* Between four neighbors; those outside are 0. */
static float between(const float *plane, const ct__image *image, int64_t row, int64_t column, float right, float down) {
    float a, b, c, d;
    if (row >= 0 && row + 1 < image->height && column >= 0 && column + 1 < image->width) {
        const float *at = plane + row * image->width + column;
        a = at[0], b = at[1], c = at[image->width], d = at[image->width + 1];
    } else {
        a = pixel(plane, image, row, column), b = pixel(plane, image, row, column + 1);
        c = pixel(plane, image, row + 1, column), d = pixel(plane, image, row + 1, column + 1);
    }
    return (a * (1 - right) + b * right) * (1 - down) + (c * (1 - right) + d * right) * down;
}

/* floor, for numbers of the size of a picture: without a call on processors that lack the instruction. */
static int64_t floor_of(double x) {
    const int64_t whole = (int64_t)x;
    return whole - (x < (double)whole);
}

/* Each pixel of the result looks up where it came from: turned the other way about the middle. */
static bool rotate(ct_tensor **fields, double degrees, bool nearest) {
    ct__image image;
    void *out;
    if (!ct__image_open_float("transform_rotate", fields[0], &image)) return false;
    ct_tensor *y = ct__blank(CT_DIMS(image.channels, image.height, image.width), CT_F32, &out);
    if (!y) return false;
    const double angle = degrees * 3.14159265358979323846 / 180, c = cos(angle), s = sin(angle);
    const double middle_x = (double)image.width / 2, middle_y = (double)image.height / 2;
    const int64_t plane = image.height * image.width;
    float *to = out;
    for (int64_t i = 0; i < image.height; i++)
        for (int64_t j = 0; j < image.width; j++, to++) {
            const double dx = (double)j + 0.5 - middle_x, dy = (double)i + 0.5 - middle_y;
            const double x = c * dx - s * dy + middle_x - 0.5, z = s * dx + c * dy + middle_y - 0.5;
            const int64_t column = nearest ? (int64_t)rint(x) : floor_of(x),
                          row = nearest ? (int64_t)rint(z) : floor_of(z);
            const float right = (float)(x - (double)column), down = (float)(z - (double)row);
            for (int64_t k = 0; k < image.channels; k++) {
                const float *from = (const float *)image.data + k * plane;
                to[k * plane] =
                    nearest ? pixel(from, &image, row, column) : between(from, &image, row, column, right, down);
            }
        }
    fields[0] = y;
    return true;
}

static bool rotate_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n;
    const rotation *how = ct_transform_data(self);
    return rotate(fields, how->random ? (2 * ct_draw_uniform(draw) - 1) * how->degrees : how->degrees, how->nearest);
}

static const ct_transform_class rotate_class = {
    sizeof(ct_transform_class), "transform_rotate", sizeof(rotation), rotate_item, NULL, NULL};

static ct_transform *new_rotation(rotation how) {
    if (!isfinite(how.degrees)) {
        ct_fail(CT_ERR_VALUE, "transform_rotate", "%g degrees", how.degrees);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(&rotate_class);
    if (transform) *(rotation *)ct_transform_data(transform) = how;
    return transform;
}
ct_transform *ct_transform_rotate(double degrees, bool nearest) {
    return new_rotation((rotation){degrees, false, nearest});
}
ct_transform *ct_transform_random_rotate(double degrees, bool nearest) {
    return new_rotation((rotation){degrees, true, nearest});
}
