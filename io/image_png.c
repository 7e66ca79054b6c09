/* PNG by libpng's simplified interface, which returns errors (the other one jumps); plain files by image_png_plain.c. */
#include "io/image.h"
#include "support/foreign.h"

#include <inttypes.h>
#include <stdlib.h>

#ifdef CT_HAVE_LIBPNG
#include <png.h>

#define LIBPNG(X) \
    X(png_image_begin_read_from_memory) X(png_image_finish_read) X(png_image_write_to_memory) X(png_image_free)
FOREIGN(libpng, LIBPNG, "libpng", "libpng16-16", "libpng16.so.16", "libpng16.so")

static const png_uint_32 formats[5] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};

/* A pixel has at least one bit, and deflate packs no better than 1032 to 1: less cannot be a picture of that size. */
static bool fits(uint64_t width, uint64_t height, size_t size, const char *path) {
    return width * height / 8 / 1032 <= size ||
           ct_fail(CT_ERR_IO, "image", "%s: %" PRIu64 " x %" PRIu64 " pixels cannot be in %zu bytes", path, width,
                   height, size);
}

/* Whole, with everything that libpng knows of transparency and color. */
static bool decode(png_image *image, ct__canvas *canvas) {
    const png_color black = {0, 0, 0};
    int channels = canvas->channels;
    if (channels == 0)
        channels = (image->format & PNG_FORMAT_FLAG_COLOR ? 3 : 1) + (image->format & PNG_FORMAT_FLAG_ALPHA ? 1 : 0);
    const size_t room = (size_t)image->width * image->height * (size_t)channels;
    uint8_t *pixels = ct_malloc(room);
    if (!pixels)
        return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", canvas->path, room);
    image->format = formats[channels];
    image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits are 8 with more digits, not another scale */
    const bool good = (libpng.png_image_finish_read(image, &black, pixels, 0, NULL) != 0 ||
                       ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", canvas->path, image->message)) &&
                      ct__canvas_begin(canvas, image->width, image->height, channels);
    if (good) ct__canvas_rows(canvas, pixels);
    ct_free(pixels);
    return good;
}

bool ct__png_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    if (!foreign_libpng("image")) return false;
    png_image image = {.version = PNG_IMAGE_VERSION};
    bool good = libpng.png_image_begin_read_from_memory(&image, bytes, size) != 0 ||
                ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", canvas->path, image.message);
    good = good && fits(image.width, image.height, size, canvas->path) &&
           ct__canvas_admits(canvas, image.width, image.height);
    if (good && ct__png_is_plain(bytes, size, canvas->channels)) good = ct__png_decode_plain(bytes, size, canvas);
    else good = good && decode(&image, canvas);
    libpng.png_image_free(&image);
    return good;
}

bool ct__png_encode(const uint8_t *pixels, int64_t width, int64_t height, int channels, const char *path, void **bytes,
                    size_t *size) {
    if (!foreign_libpng("image")) return false;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = formats[channels]};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *memory = ct_malloc(room);
    bool good =
        memory || ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", path, (size_t)room);
    if (good && !libpng.png_image_write_to_memory(&image, memory, &room, 0, pixels, 0, NULL))
        good = ct_fail(CT_ERR_IO, "image", "%s: cannot be made: %s", path, image.message);
    libpng.png_image_free(&image);
    if (!good) {
        ct_free(memory);
        return false;
    }
    void *fitting = ct_realloc(memory, room);
    *bytes = fitting ? fitting : memory;
    *size = room;
    return true;
}
#else
bool ct__png_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    (void)bytes, (void)size, (void)canvas;
    return ct__foreign_absent("image", "libpng", "libpng-dev");
}

bool ct__png_encode(const uint8_t *pixels, int64_t width, int64_t height, int channels, const char *path, void **bytes,
                    size_t *size) {
    (void)pixels, (void)width, (void)height, (void)channels, (void)path, (void)bytes, (void)size;
    return ct__foreign_absent("image", "libpng", "libpng-dev");
}
#endif
