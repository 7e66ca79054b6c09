/* Where decoded rows go: into planes of channels, or through a resampler into smaller ones, so that a picture that will be
 * small is never held whole. */
#include "io/image.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool ct__canvas_admits(const ct__canvas *canvas, int64_t width, int64_t height) {
    if (width <= 0 || height <= 0)
        return ct_fail(CT_ERR_IO, "image", "%s: %" PRId64 " x %" PRId64 " pixels are none", canvas->path, width,
                       height);
    if (width <= canvas->most_pixels / height) return true;
    return ct_fail(CT_ERR_IO, "image",
                   "%s: %" PRId64 " x %" PRId64 " pixels are more than the %" PRId64 " that max_pixels allows",
                   canvas->path, width, height, canvas->most_pixels);
}

/* Elements of planes of that many channels, or 0 when they cannot be counted. */
static size_t elements(const ct__canvas *canvas, int channels) {
    size_t count;
    if (__builtin_mul_overflow((size_t)canvas->height, (size_t)canvas->width, &count) ||
        __builtin_mul_overflow(count, (size_t)channels * sizeof(float), &count))
        return 0;
    return count / sizeof(float);
}

bool ct__canvas_begin(ct__canvas *canvas, int64_t width, int64_t height, int decoded) {
    if (canvas->channels == 0) canvas->channels = decoded;
    canvas->decoded = decoded;
    canvas->from_height = height;
    canvas->from_width = width;
    if (canvas->height == 0) {
        canvas->height = height;
        canvas->width = width;
    }
    canvas->resized = canvas->height != height || canvas->width != width;
    const size_t size = elements(canvas, canvas->channels), sums = elements(canvas, decoded);
    canvas->planes = size ? ct_malloc(size) : NULL;
    bool good = canvas->planes != NULL;
    if (good && canvas->resized) {
        canvas->row = ct_calloc((size_t)width, sizeof *canvas->row);
        canvas->sums = ct_calloc(sums, sizeof *canvas->sums);
        good = canvas->row && canvas->sums;
    }
    if (!good)
        return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", canvas->path, size);
    return !canvas->resized ||
           ct__resampler_begin(&canvas->resampler, height, width, canvas->height, canvas->width, "image");
}

void ct__canvas_row(ct__canvas *canvas, const uint8_t *pixels) {
    const int64_t plane = canvas->height * canvas->width, y = canvas->y++;
    if (y >= canvas->from_height) return;
    for (int c = 0; c < canvas->decoded; c++) {
        if (canvas->resized) {
            ct__pixels_to_floats(canvas->row, pixels + c, canvas->from_width, canvas->decoded);
            ct__resampler_add(&canvas->resampler, y, canvas->row, canvas->sums + c * plane);
        } else {
            uint8_t *to = canvas->planes + c * plane + y * canvas->width;
            for (int64_t x = 0; x < canvas->width; x++) to[x] = pixels[x * canvas->decoded + c];
        }
    }
}

void ct__canvas_rows(ct__canvas *canvas, const uint8_t *pixels) {
    for (int64_t y = 0; y < canvas->from_height; y++)
        ct__canvas_row(canvas, pixels + y * canvas->from_width * canvas->decoded);
}

void ct__canvas_end(ct__canvas *canvas) {
    const int64_t plane = canvas->height * canvas->width;
    if (canvas->resized) ct__floats_to_pixels(canvas->planes, canvas->sums, plane * canvas->decoded);
    const int colors = canvas->channels <= 2 ? 1 : 3; /* then an alpha, where there is one more */
    for (int c = canvas->decoded; c < colors; c++) memcpy(canvas->planes + c * plane, canvas->planes, (size_t)plane);
    if (canvas->decoded <= colors && canvas->channels > colors)
        memset(canvas->planes + colors * plane, 255, (size_t)plane);
}

void ct__canvas_free(ct__canvas *canvas) {
    ct_free(canvas->planes);
    ct_free(canvas->row);
    ct_free(canvas->sums);
    ct__resampler_end(&canvas->resampler);
    canvas->planes = NULL;
    canvas->row = canvas->sums = NULL;
}
