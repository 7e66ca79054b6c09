/* Pictures to tensors and back: which format it is, the order of channels, how it lies. */
#include "io/image.h"

#include "support/bytes.h"
#include "support/files.h"
#include "support/options.h"

#include <cotangent/op.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_SIDE = 1 << 16 };

static void release(void *context, void *data) {
    (void)context;
    ct_free(data);
}

/* ---- Reading ---- */

/* Where out[y][x] of an oriented picture comes from: rows and columns swapped from 5 on, then either counted from the end. */
static const struct {
    bool rows_back, columns_back;
} orientations[9] = {[2] = {false, true}, [3] = {true, true}, [4] = {true, false},
                     [6] = {true, false}, [7] = {true, true}, [8] = {false, true}};

static void orient_plane(uint8_t *to, const uint8_t *from, int64_t height, int64_t width, int orientation) {
    const bool swapped = orientation >= 5;
    const int64_t rows = swapped ? width : height, columns = swapped ? height : width;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++) {
            const int64_t row = swapped ? x : y, column = swapped ? y : x;
            to[y * columns + x] = from[(orientations[orientation].rows_back ? height - 1 - row : row) * width +
                                       (orientations[orientation].columns_back ? width - 1 - column : column)];
        }
}

/* The canvas's picture the way up that the camera noted. */
static bool orient(ct__canvas *canvas, int orientation) {
    if (orientation == 1) return true;
    const int64_t plane = canvas->height * canvas->width;
    uint8_t *oriented = ct_malloc((size_t)(plane * canvas->channels));
    if (!oriented) return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", canvas->path);
    for (int c = 0; c < canvas->channels; c++)
        orient_plane(oriented + c * plane, canvas->planes + c * plane, canvas->height, canvas->width, orientation);
    ct_free(canvas->planes);
    canvas->planes = oriented;
    if (orientation >= 5) {
        const int64_t height = canvas->height;
        canvas->height = canvas->width;
        canvas->width = height;
    }
    return true;
}

static bool check_options(const ct_image_options *o, int channels, const char *path) {
    if (channels < 0 || channels > 4)
        return ct_fail(CT_ERR_VALUE, "image", "%s: channels = %d is not from 0 to 4", path, channels);
    if (!o->height != !o->width || o->height < 0 || o->width < 0 || o->height > LARGEST_SIDE || o->width > LARGEST_SIDE)
        return ct_fail(CT_ERR_VALUE, "image",
                       "%s: height = %" PRId64 ", width = %" PRId64 "; expected 1 to %d for both, or neither", path,
                       o->height, o->width, LARGEST_SIDE);
    if (o->max_pixels < 0)
        return ct_fail(CT_ERR_VALUE, "image", "%s: max_pixels = %" PRId64 " is below 0", path, o->max_pixels);
    return true;
}

ct_tensor *ct__image_parse(const uint8_t *bytes, size_t size, int channels, const char *path,
                           const ct_image_options *options) {
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, jpeg[3] = {0xff, 0xd8, 0xff};
    TAKE_OPTIONS(ct_image_options, o, options);
    if (!check_options(&o, channels, path)) return NULL;
    const int orientation = o.as_stored ? 1 : ct__exif_orientation(bytes, size);
    ct__canvas canvas = {.path = path,
                         .channels = channels,
                         .height = orientation >= 5 ? o.width : o.height,
                         .width = orientation >= 5 ? o.height : o.width,
                         .most_pixels = o.max_pixels ? o.max_pixels : CT__IMAGE_DEFAULT_PIXELS};
    bool good;
    if (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0) good = ct__png_decode(bytes, size, &canvas);
    else if (size >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0) good = ct__jpeg_decode(bytes, size, &canvas);
    else good = ct_fail(CT_ERR_IO, "image", "%s: is neither a PNG nor a JPEG file", path);
    if (good) ct__canvas_end(&canvas);
    if (good && orient(&canvas, orientation)) {
        uint8_t *planes = canvas.planes;
        canvas.planes = NULL;
        ct__canvas_free(&canvas);
        return ct_wrap(planes, CT_DIMS(canvas.channels, canvas.height, canvas.width), CT_U8, .release = release);
    }
    ct__canvas_free(&canvas);
    return NULL;
}

ct_tensor *ct_image_load_p(const char *path, int channels, const ct_image_options *options) {
    size_t size = 0;
    uint8_t *bytes = ct__bytes_load_raw(path, "image", 0, &size);
    ct_tensor *x = bytes ? ct__image_parse(bytes, size, channels, path, options) : NULL;
    ct_free(bytes);
    return x;
}

ct_tensor *ct_image_decode_p(const void *bytes, size_t size, int channels, const ct_image_options *options) {
    if (!bytes) {
        ct_fail(CT_ERR_NULL, "image", "argument bytes is NULL");
        return NULL;
    }
    return ct__image_parse(bytes, size, channels, "(memory)", options);
}

/* ---- Writing ---- */

static bool encode(ct_tensor *x, const char *path, void **bytes, size_t *size) {
    const int n = ct_ndim(x);
    if (ct_dtype_of(x) != CT_U8)
        return ct_fail(CT_ERR_DTYPE, "image", "%s: x is %s%s, expected u8 [H,W] or [C,H,W]", path,
                       ct_dtype_name(ct_dtype_of(x)), ct_dims_text(ct_shape(x)));
    if ((n != 2 && n != 3) || (n == 3 && (ct_dim(x, 0) < 1 || ct_dim(x, 0) > 4)))
        return ct_fail(CT_ERR_SHAPE, "image", "%s: x is u8%s, expected [H,W], or [C,H,W] with 1 to 4 channels", path,
                       ct_dims_text(ct_shape(x)));
    const ct__canvas limit = {.path = path, .most_pixels = CT__IMAGE_DEFAULT_PIXELS};
    if (!ct__canvas_admits(&limit, ct_dim(x, -1), ct_dim(x, -2))) return false;
    const size_t channels = n == 3 ? (size_t)ct_dim(x, 0) : 1;
    const size_t count = (size_t)(ct_dim(x, -1) * ct_dim(x, -2)), total = count * channels;
    uint8_t *planes = ct_malloc(total), *pixels = channels > 1 ? ct_malloc(total) : planes;
    bool good = (planes && pixels) || ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", path);
    good = good && ct_read(x, planes, total);
    for (size_t c = 0; good && channels > 1 && c < channels; c++)
        for (size_t i = 0; i < count; i++) pixels[i * channels + c] = planes[c * count + i];
    good = good && ct__png_encode(pixels, ct_dim(x, -1), ct_dim(x, -2), (int)channels, path, bytes, size);
    if (pixels != planes) ct_free(pixels);
    ct_free(planes);
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
    ct_free(bytes);
    return good;
}
