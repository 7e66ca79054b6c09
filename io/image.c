/* Pictures to tensors and back: which format it is, and the order of channels. */
#include "io/image.h"

#include "io/bytes.h"
#include "io/files.h"

#include <cotangent/op.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOG2_MOST_PIXELS = 28 };

bool ct__pixels_allocate(ct__pixels *pixels, int64_t width, int64_t height, int channels, const char *path) {
    if (width <= 0 || height <= 0 || width > ((int64_t)1 << LOG2_MOST_PIXELS) / height)
        return ct_fail(CT_ERR_IO, "image", "%s: %" PRId64 " x %" PRId64 " pixels are none or more than 2^%d", path,
                       width, height, LOG2_MOST_PIXELS);
    const size_t size = (size_t)width * (size_t)height * (size_t)channels;
    *pixels = (ct__pixels){malloc(size), width, height, channels};
    if (!pixels->data)
        return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", path, size);
    return true;
}

static void release(void *context, void *data) {
    (void)context;
    free(data);
}

/* [H,W,C] to [C,H,W] and, with `back`, the other way. */
static void turn(uint8_t *to, const uint8_t *from, size_t count, size_t channels, bool back) {
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < count; i++) {
            if (back) to[i * channels + c] = from[c * count + i];
            else to[c * count + i] = from[i * channels + c];
        }
}

ct_tensor *ct__image_parse(const uint8_t *bytes, size_t size, int channels, const char *path) {
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, jpeg[3] = {0xff, 0xd8, 0xff};
    if (channels < 0 || channels > 4) {
        ct_fail(CT_ERR_VALUE, "image", "%s: channels = %d is not from 0 to 4", path, channels);
        return NULL;
    }
    ct__pixels pixels = {0};
    bool good;
    if (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        good = ct__png_decode(bytes, size, channels, path, &pixels);
    else if (size >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        good = ct__jpeg_decode(bytes, size, channels, path, &pixels);
    else good = ct_fail(CT_ERR_IO, "image", "%s: is neither a PNG nor a JPEG file", path);
    if (good && pixels.channels > 1) {
        const size_t count = (size_t)(pixels.width * pixels.height);
        uint8_t *planes = malloc(count * (size_t)pixels.channels);
        if (planes) turn(planes, pixels.data, count, (size_t)pixels.channels, false);
        else good = ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", path);
        free(pixels.data);
        pixels.data = planes;
    }
    if (!good) {
        free(pixels.data);
        return NULL;
    }
    return ct_wrap(pixels.data, CT_DIMS(pixels.channels, pixels.height, pixels.width), CT_U8, release, NULL);
}

ct_tensor *ct_image_load(const char *path, int channels) {
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load_raw(path, "image", 0, &size);
    ct_tensor *x = bytes ? ct__image_parse(bytes, size, channels, path) : NULL;
    free(bytes);
    return x;
}

ct_tensor *ct_image_decode(const void *bytes, size_t size, int channels) {
    if (!bytes) {
        ct_fail(CT_ERR_NULL, "image", "argument bytes is NULL");
        return NULL;
    }
    return ct__image_parse(bytes, size, channels, "(memory)");
}

static bool encode(ct_tensor *x, const char *path, void **bytes, size_t *size) {
    const int n = ct_ndim(x);
    if (ct_dtype_of(x) != CT_U8)
        return ct_fail(CT_ERR_DTYPE, "image", "%s: x is %s%s, expected u8 [H,W] or [C,H,W]", path,
                       ct_dtype_name(ct_dtype_of(x)), ct_dims_text(ct_shape(x)));
    if ((n != 2 && n != 3) || (n == 3 && (ct_dim(x, 0) < 1 || ct_dim(x, 0) > 4)))
        return ct_fail(CT_ERR_SHAPE, "image", "%s: x is u8%s, expected [H,W], or [C,H,W] with 1 to 4 channels", path,
                       ct_dims_text(ct_shape(x)));
    const int channels = n == 3 ? (int)ct_dim(x, 0) : 1;
    ct__pixels pixels;
    if (!ct__pixels_allocate(&pixels, ct_dim(x, -1), ct_dim(x, -2), channels, path)) return false;
    const size_t count = (size_t)(pixels.width * pixels.height), total = count * (size_t)channels;
    uint8_t *planes = channels > 1 ? malloc(total) : pixels.data;
    bool good = planes || ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", path);
    good = good && ct_read(x, planes, total);
    if (good && channels > 1) turn(pixels.data, planes, count, (size_t)channels, true);
    good = good && ct__png_encode(&pixels, path, bytes, size);
    if (channels > 1) free(planes);
    free(pixels.data);
    return good;
}

bool ct_image_encode_png(ct_tensor *x, void **bytes, size_t *size) {
    if (!ct_ok()) return false;
    if (!x || !bytes || !size)
        return ct_fail(CT_ERR_NULL, "image", "argument %s is NULL", !x ? "x" : !bytes ? "bytes" : "size");
    *bytes = NULL;
    *size = 0;
    return encode(x, "(memory)", bytes, size);
}

bool ct_image_save(const char *path, ct_tensor *x) {
    if (!ct_ok()) return false; /* after an error the values are not what the caller meant to keep */
    if (!path) return ct_fail(CT_ERR_NULL, "image", "argument path is NULL");
    if (!x) return ct_fail(CT_ERR_NULL, "image", "argument x is NULL (for %s)", path);
    void *bytes = NULL;
    size_t size = 0;
    ct__output output;
    bool good = encode(x, path, &bytes, &size) && ct__output_open(&output, path, false, "image");
    if (good) good = ct__output_close(&output, ct__output_write(&output, bytes, size));
    free(bytes);
    return good;
}
