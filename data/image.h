/* Pictures as arrays of floats, for the transforms that compute: [channels, height, width], u8 taken as 0 .. 1. */
#ifndef COTANGENT_DATA_IMAGE_H
#define COTANGENT_DATA_IMAGE_H

#include "data/data.h"

/* What a transform is given: checks that x is an image of u8 or f32, and says how large it is. */
typedef struct ct__image {
    int64_t channels, height, width;
    ct_dtype dtype;
    ct_tensor *holder; /* dense */
    const void *data;
} ct__image;
bool ct__image_open(const char *op, ct_tensor *x, ct__image *image);       /* any dtype */
bool ct__image_open_float(const char *op, ct_tensor *x, ct__image *image); /* f32 after it; u8 is divided by 255 */

/* The same without a conversion: u8 or f32, as x is. */
bool ct__image_open_pixels(const char *op, ct_tensor *x, ct__image *image);

/* Resizes a part of an image of u8 or f32: rows top .. top + h, columns left .. left + w. Bilinear, smoothed where it
 * shrinks. A new f32 image in the current scope, of 0 .. 1 where the pixels were u8. */
ct_tensor *ct__image_resize_part(const char *op, const ct__image *image, int64_t top, int64_t left, int64_t h,
                                 int64_t w, int64_t height, int64_t width);

#endif
