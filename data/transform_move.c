/* Transforms that only move pixels or put a number in their place: pad, crop, flip, erase. They keep the dtype. */
#include "data/image.h"

#include <math.h>

bool ct__image_open(const char *op, ct_tensor *x, ct__image *image) {
    if (!x) return ct__null(op, "image");
    const ct_dims shape = ct_shape(x);
    if (shape.n != 3)
        return ct_fail(CT_ERR_SHAPE, op, "an image is [channels, height, width]; field 0 has %d dimensions", shape.n);
    image->channels = shape.d[0];
    image->height = shape.d[1];
    image->width = shape.d[2];
    image->dtype = ct_dtype_of(x);
    image->data = ct__dense(x, &image->holder);
    return image->data || (ct_numel(x) == 0 && ct_ok());
}

static bool has_pixels(const char *op, const ct_tensor *x) {
    if (!x) return ct__null(op, "image");
    const ct_dtype dtype = ct_dtype_of(x);
    return dtype == CT_U8 || dtype == CT_F32 ||
           ct_fail(CT_ERR_DTYPE, op, "field 0 is %s; expected u8 or f32", ct_dtype_name(dtype));
}

bool ct__image_open_pixels(const char *op, ct_tensor *x, ct__image *image) {
    return has_pixels(op, x) && ct__image_open(op, x, image);
}

bool ct__image_open_float(const char *op, ct_tensor *x, ct__image *image) {
    if (!has_pixels(op, x)) return false;
    ct_tensor *numbers = ct__normalize(x, NULL);
    return numbers && ct__image_open(op, numbers, image);
}

/* Writes value n times: as a gray of 0 .. 1 where the elements are u8. Other dtypes than u8 and f32 get zeros. */
static void fill(char *to, ct_dtype dtype, int64_t n, double value) {
    if (dtype == CT_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)(void *)to)[i] = (float)value;
        return;
    }
    const double gray = value * 255 + 0.5;
    const int byte = dtype == CT_U8 ? (int)(gray < 0 ? 0 : gray > 255 ? 255 : gray) : 0;
    memset(to, byte, (size_t)n * ct_dtype_size(dtype));
}

/* Rows top .. top + height and columns left .. left + width, which may lie outside. */
static ct_tensor *cut(const ct__image *image, int64_t top, int64_t left, int64_t height, int64_t width, double value) {
    void *out;
    ct_tensor *y = ct__blank(CT_DIMS(image->channels, height, width), image->dtype, &out);
    if (!y) return NULL;
    const size_t each = ct_dtype_size(image->dtype);
    const int64_t first = left < 0 ? -left : 0; /* columns of the result that lie inside */
    int64_t last = image->width - left;
    if (last > width) last = width;
    char *to = out;
    const bool within = top >= 0 && top + height <= image->height && first == 0 && last == width;
    if (!within) fill(to, image->dtype, image->channels * height * width, value);
    if (last <= first) return y;
    for (int64_t c = 0; c < image->channels; c++)
        for (int64_t i = 0; i < height; i++, to += (size_t)width * each) {
            const int64_t row = top + i;
            if (row < 0 || row >= image->height) continue;
            const char *from = (const char *)image->data + (size_t)((c * image->height + row) * image->width) * each;
            memcpy(to + (size_t)first * each, from + (size_t)(left + first) * each, (size_t)(last - first) * each);
        }
    return y;
}

/* Where field 1 is the class of each pixel of the image: that, as an image of one channel. */
static bool open_mask(ct_tensor **fields, int n, const ct__image *image, ct__image *mask) {
    if (n < 2 || !fields[1] || ct_ndim(fields[1]) != 2 || !ct_dtype_is_int(ct_dtype_of(fields[1])) ||
        ct_dim(fields[1], 0) != image->height || ct_dim(fields[1], 1) != image->width)
        return false;
    return ct__image_open("transform", ct_unsqueeze(fields[1], 0), mask);
}

/* Both by the same cut. */
static bool cut_item(ct_tensor **fields, int n, const ct__image *image, int64_t top, int64_t left, int64_t height,
                     int64_t width, double value) {
    ct__image mask;
    if (open_mask(fields, n, image, &mask))
        fields[1] = ct_squeeze(cut(&mask, top, left, height, width, 0), .axes = CT_DIMS(0));
    fields[0] = cut(image, top, left, height, width, value);
    return fields[0] && ct_ok();
}

/* ---- Pad and crop: one struct for all ---- */

typedef struct crop {
    int64_t height, width, pad;
    double value;
} crop;

static bool pad_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)draw;
    const crop *how = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open("transform_pad", fields[0], &image)) return false;
    const int64_t p = how->pad;
    return cut_item(fields, n, &image, -p, -p, image.height + 2 * p, image.width + 2 * p, how->value);
}

/* The middle: halves are rounded to even, and to the inside where the image is the smaller. */
static int64_t middle(int64_t whole, int64_t part) {
    return whole >= part ? (int64_t)rint((double)(whole - part) / 2) : -((part - whole) / 2);
}

static bool center_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)draw;
    const crop *how = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open("transform_center_crop", fields[0], &image)) return false;
    return cut_item(fields, n, &image, middle(image.height, how->height), middle(image.width, how->width), how->height,
                    how->width, 0);
}

static bool random_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    const crop *how = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open("transform_random_crop", fields[0], &image)) return false;
    const int64_t down = image.height + 2 * how->pad - how->height, right = image.width + 2 * how->pad - how->width;
    if (down < 0 || right < 0)
        return ct_fail(CT_ERR_SHAPE, "transform_random_crop", "%lld x %lld of an image of %lld x %lld padded by %lld",
                       (long long)how->height, (long long)how->width, (long long)image.height, (long long)image.width,
                       (long long)how->pad);
    const int64_t top = ct_draw_below(draw, down + 1), left = ct_draw_below(draw, right + 1);
    return cut_item(fields, n, &image, top - how->pad, left - how->pad, how->height, how->width, 0);
}

static const ct_transform_class pad_class = {
    sizeof(ct_transform_class), "transform_pad", sizeof(crop), pad_item, NULL, NULL};
static const ct_transform_class center_class = {
    sizeof(ct_transform_class), "transform_center_crop", sizeof(crop), center_item, NULL, NULL};
static const ct_transform_class random_class = {
    sizeof(ct_transform_class), "transform_random_crop", sizeof(crop), random_item, NULL, NULL};

enum { MOST_PIXELS = 1 << 16 };

static ct_transform *new_crop(const ct_transform_class *type, crop how) {
    if (how.height < 1 || how.width < 1 || how.height > MOST_PIXELS || how.width > MOST_PIXELS || how.pad < 0 ||
        how.pad > MOST_PIXELS) {
        ct_fail(CT_ERR_VALUE, type->name,
                "height %lld, width %lld, pad %lld; expected 1 to 65536, and a pad of 0 or more", (long long)how.height,
                (long long)how.width, (long long)how.pad);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(type);
    if (transform) *(crop *)ct_transform_data(transform) = how;
    return transform;
}

ct_transform *ct_transform_pad(int64_t pixels, double value) {
    return new_crop(&pad_class, (crop){1, 1, pixels, value});
}
ct_transform *ct_transform_center_crop(int64_t height, int64_t width) {
    return new_crop(&center_class, (crop){height, width, 0, 0});
}
ct_transform *ct_transform_random_crop(int64_t height, int64_t width, int64_t pad) {
    return new_crop(&random_class, (crop){height, width, pad, 0});
}

/* ---- Flips ---- */

static ct_tensor *flipped(const ct__image *image, bool vertical) {
    void *out;
    ct_tensor *y = ct__blank(CT_DIMS(image->channels, image->height, image->width), image->dtype, &out);
    if (!y) return NULL;
    const size_t each = ct_dtype_size(image->dtype), row = (size_t)image->width * each;
    for (int64_t r = 0; r < image->channels * image->height; r++) {
        const int64_t within = r % image->height;
        const char *from =
            (const char *)image->data + (size_t)(vertical ? r - within + image->height - 1 - within : r) * row;
        char *to = (char *)out + (size_t)r * row;
        if (vertical) memcpy(to, from, row);
        else if (each == 1)
            for (size_t j = 0; j < row; j++) to[j] = from[row - 1 - j];
        else
            for (size_t j = 0; j < row; j += each) memcpy(to + j, from + row - each - j, each);
    }
    return y;
}

static bool flip(ct_tensor **fields, int n, bool vertical) {
    ct__image image, mask;
    if (!ct__image_open("transform_flip", fields[0], &image)) return false;
    if (open_mask(fields, n, &image, &mask)) fields[1] = ct_squeeze(flipped(&mask, vertical), .axes = CT_DIMS(0));
    fields[0] = flipped(&image, vertical);
    return fields[0] && ct_ok();
}

static bool flip_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    return ct_draw_uniform(draw) >= *(double *)ct_transform_data(self) || flip(fields, n, false);
}
static bool flip_vertical_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    return ct_draw_uniform(draw) >= *(double *)ct_transform_data(self) || flip(fields, n, true);
}

static const ct_transform_class flip_class = {
    sizeof(ct_transform_class), "transform_flip", sizeof(double), flip_item, NULL, NULL};
static const ct_transform_class flip_vertical_class = {
    sizeof(ct_transform_class), "transform_flip_vertical", sizeof(double), flip_vertical_item, NULL, NULL};

static bool probability(const char *op, double p) {
    return (p >= 0 && p <= 1) || ct_fail(CT_ERR_VALUE, op, "p is %g; expected 0 to 1", p);
}

static ct_transform *new_flip(const ct_transform_class *type, double p) {
    ct_transform *transform = probability(type->name, p) ? ct_transform_new(type) : NULL;
    if (transform) *(double *)ct_transform_data(transform) = p;
    return transform;
}
ct_transform *ct_transform_flip(double p) { return new_flip(&flip_class, p); }
ct_transform *ct_transform_flip_vertical(double p) { return new_flip(&flip_vertical_class, p); }

/* ---- Something missing ---- */

typedef struct hole {
    int64_t size;
    double p, min_area, max_area, value;
} hole;

/* A copy with one rectangle of `value`; what of it lies outside is cut off. */
static bool blot(ct_tensor **fields, const ct__image *image, int64_t top, int64_t left, int64_t height, int64_t width,
                 double value) {
    ct_tensor *y = cut(image, 0, 0, image->height, image->width, 0);
    char *to = y ? ct_data_mut(y) : NULL;
    if (!to) return y && ct_numel(y) == 0;
    const size_t each = ct_dtype_size(image->dtype);
    const int64_t last_row = top + height < image->height ? top + height : image->height;
    const int64_t last = left + width < image->width ? left + width : image->width, first = left < 0 ? 0 : left;
    for (int64_t c = 0; c < image->channels; c++)
        for (int64_t i = top < 0 ? 0 : top; i < last_row; i++)
            if (last > first)
                fill(to + (size_t)((c * image->height + i) * image->width + first) * each, image->dtype, last - first,
                     value);
    fields[0] = y;
    return true;
}

static bool cutout_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n;
    const hole *how = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open("transform_cutout", fields[0], &image)) return false;
    const bool chosen = ct_draw_uniform(draw) < how->p;
    const int64_t top = ct_draw_below(draw, image.height) - how->size / 2;
    const int64_t left = ct_draw_below(draw, image.width) - how->size / 2;
    return !chosen || blot(fields, &image, top, left, how->size, how->size, 0);
}

static bool erase_item(ct_transform *self, ct_tensor **fields, int n, ct_draw *draw) {
    (void)n;
    const hole *how = ct_transform_data(self);
    ct__image image;
    if (!ct__image_open("transform_erase", fields[0], &image)) return false;
    if (ct_draw_uniform(draw) >= how->p) return true;
    for (int attempt = 0; attempt < 10; attempt++) { /* one that does not fit is drawn again; then nothing is erased */
        const double area = (how->min_area + (how->max_area - how->min_area) * ct_draw_uniform(draw)) *
                            (double)(image.height * image.width);
        const double proportion = exp(log(0.3) + (log(3.3) - log(0.3)) * ct_draw_uniform(draw));
        const int64_t h = (int64_t)rint(sqrt(area * proportion)), w = (int64_t)rint(sqrt(area / proportion));
        if (h < 1 || w < 1 || h >= image.height || w >= image.width) continue;
        const int64_t top = ct_draw_below(draw, image.height - h + 1), left = ct_draw_below(draw, image.width - w + 1);
        return blot(fields, &image, top, left, h, w, how->value);
    }
    return true;
}

static const ct_transform_class cutout_class = {
    sizeof(ct_transform_class), "transform_cutout", sizeof(hole), cutout_item, NULL, NULL};
static const ct_transform_class erase_class = {
    sizeof(ct_transform_class), "transform_erase", sizeof(hole), erase_item, NULL, NULL};

ct_transform *ct_transform_cutout(int64_t size, double p) {
    if (!probability("transform_cutout", p)) return NULL;
    if (size < 1 || size > MOST_PIXELS) {
        ct_fail(CT_ERR_VALUE, "transform_cutout", "size is %lld; expected 1 to 65536", (long long)size);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(&cutout_class);
    if (transform) *(hole *)ct_transform_data(transform) = (hole){.size = size, .p = p};
    return transform;
}

ct_transform *ct_transform_erase(double p, double min_area, double max_area, double value) {
    if (!probability("transform_erase", p)) return NULL;
    if (!(min_area > 0 && min_area <= max_area && max_area <= 1)) {
        ct_fail(CT_ERR_VALUE, "transform_erase", "areas %g to %g; expected fractions in order", min_area, max_area);
        return NULL;
    }
    ct_transform *transform = ct_transform_new(&erase_class);
    if (transform) *(hole *)ct_transform_data(transform) = (hole){0, p, min_area, max_area, value};
    return transform;
}
