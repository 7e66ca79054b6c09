/* Resizing by weighted means along rows, then along columns. The weights are a triangle about the place of each result;
 * it is one pixel of the input wide where the image grows (bilinear) and wider where it shrinks, so that every pixel
 * counts. */
#include "data/image.h"

#include <math.h>

/* For each result: the first input, and count weights. */
typedef struct weights {
    int64_t most;   /* weights of the largest count */
    int64_t *first; /* (size) */
    int64_t *count; /* (size) */
    float *weight;  /* (size, most) */
} weights;

static void free_weights(weights *w) {
    free(w->first);
    free(w->count);
    free(w->weight);
}

static double tent(double distance, double reach) {
    const double height = 1 - fabs(distance) / reach;
    return height > 0 ? height : 0;
}

static bool make_weights(weights *w, int64_t from, int64_t to) {
    const double scale = (double)from / (double)to, reach = scale > 1 ? scale : 1;
    w->most = 2 * (int64_t)ceil(reach) + 1;
    w->first = ct__zeroed("transform_resize", to, sizeof *w->first);
    w->count = w->first ? ct__zeroed("transform_resize", to, sizeof *w->count) : NULL;
    w->weight = w->count ? ct__zeroed("transform_resize", to * w->most, sizeof *w->weight) : NULL;
    if (!w->weight) return false;
    for (int64_t i = 0; i < to; i++) {
        const double center = ((double)i + 0.5) * scale;
        int64_t begin = (int64_t)(center - reach + 0.5), end = (int64_t)(center + reach + 0.5);
        if (begin < 0) begin = 0;
        if (end > from) end = from;
        if (end - begin > w->most) end = begin + w->most;
        double total = 0;
        for (int64_t k = begin; k < end; k++) total += tent((double)k + 0.5 - center, reach);
        for (int64_t k = begin; k < end; k++)
            w->weight[i * w->most + k - begin] = (float)(tent((double)k + 0.5 - center, reach) / total);
        w->first[i] = begin;
        w->count[i] = end - begin;
    }
    return true;
}

ct_tensor *ct__image_resize_part(const ct__image *image, int64_t top, int64_t left, int64_t h, int64_t w,
                                 int64_t height, int64_t width) {
    void *out;
    ct_tensor *result = ct__blank(CT_DIMS(image->channels, height, width), CT_F32, &out);
    weights rows = {0}, columns = {0};
    float *wide = result ? ct__zeroed("transform_resize", h * width, sizeof *wide) : NULL; /* (h, width) */
    if (wide && make_weights(&rows, h, height) && make_weights(&columns, w, width)) {
        for (int64_t c = 0; c < image->channels; c++) {
            const float *plane = (const float *)image->data + c * image->height * image->width;
            for (int64_t i = 0; i < h; i++)
                for (int64_t j = 0; j < width; j++) {
                    const float *from = plane + (top + i) * image->width + left + columns.first[j];
                    const float *by = columns.weight + j * columns.most;
                    float sum = 0;
                    for (int64_t k = 0; k < columns.count[j]; k++) sum += by[k] * from[k];
                    wide[i * width + j] = sum;
                }
            float *to = (float *)out + c * height * width;
            for (int64_t i = 0; i < height; i++) {
                const float *by = rows.weight + i * rows.most;
                for (int64_t j = 0; j < width; j++) to[i * width + j] = 0;
                for (int64_t k = 0; k < rows.count[i]; k++) {
                    const float *from = wide + (rows.first[i] + k) * width;
                    for (int64_t j = 0; j < width; j++) to[i * width + j] += by[k] * from[j];
                }
            }
        }
    } else {
        result = NULL;
    }
    free(wide);
    free_weights(&rows);
    free_weights(&columns);
    return result;
}

ct_tensor *ct__image_resize(ct_tensor *x, int64_t height, int64_t width) {
    ct__image image;
    const ct_dtype dtype = x ? ct_dtype_of(x) : CT_F32;
    if (!ct__image_open_float("transform_resize", x, &image)) return NULL;
    if (image.height < 1 || image.width < 1) {
        ct_fail(CT_ERR_SHAPE, "transform_resize", "the image has no pixels");
        return NULL;
    }
    ct_tensor *y = ct__image_resize_part(&image, 0, 0, image.height, image.width, height, width);
    if (!y || dtype != CT_U8) return y;
    void *bytes;
    ct_tensor *rounded = ct__blank(CT_DIMS(image.channels, height, width), CT_U8, &bytes);
    const float *from = ct_data(y);
    for (int64_t i = 0; rounded && i < image.channels * height * width; i++) {
        const float value = from[i] * 255 + 0.5f;
        ((uint8_t *)bytes)[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    return rounded;
}
