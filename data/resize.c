/* Resizing images that are tensors; the arithmetic is support/resample.h's. */
#include "data/image.h"

#include "support/resample.h"

ct_tensor *ct__image_resize_part(const char *op, const ct__image *image, int64_t top, int64_t left, int64_t h,
                                 int64_t w, int64_t height, int64_t width) {
    void *out;
    ct_tensor *result = ct__blank(CT_DIMS(image->channels, height, width), CT_F32, &out);
    const bool bytes = image->dtype == CT_U8;
    float *converted = result && bytes ? ct__zeroed(op, w, sizeof *converted) : NULL; /* a row of u8 as numbers */
    ct__resampler r = {0};
    const bool ok = result && (converted || !bytes) && ct__resampler_begin(&r, h, w, height, width, op);
    for (int64_t c = 0; ok && c < image->channels; c++) {
        float *plane = (float *)out + c * height * width;
        memset(plane, 0, (size_t)(height * width) * sizeof *plane);
        for (int64_t y = 0; y < h; y++) {
            const int64_t at = (c * image->height + top + y) * image->width + left;
            if (bytes) ct__pixels_to_floats(converted, (const uint8_t *)image->data + at, w, 1);
            ct__resampler_add(&r, y, bytes ? converted : (const float *)image->data + at, plane);
        }
    }
    ct__resampler_end(&r);
    ct_free(converted);
    return ok ? result : NULL;
}
