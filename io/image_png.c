/* PNG by libpng's simplified interface, which returns errors (the other one jumps). */
#include "io/foreign.h"
#include "io/image.h"

#include <stdlib.h>

#ifdef CT_HAVE_LIBPNG
#include <png.h>

#define LIBPNG(X) \
    X(png_image_begin_read_from_memory) X(png_image_finish_read) X(png_image_write_to_memory) X(png_image_free)
FOREIGN(libpng, LIBPNG, "libpng", "libpng16-16", "libpng16.so.16", "libpng16.so")

static const png_uint_32 formats[5] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};

bool ct__png_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels) {
    if (!foreign_libpng("image")) return false;
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0, 0, 0};
    bool good = libpng.png_image_begin_read_from_memory(&image, bytes, size) != 0;
    if (!good) ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", path, image.message);
    if (good && channels == 0)
        channels = (image.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1) + (image.format & PNG_FORMAT_FLAG_ALPHA ? 1 : 0);
    /* A pixel has at least one bit, and deflate packs no better than 1032 to 1: less cannot be a picture of that size. */
    const uint64_t least = (uint64_t)image.width * image.height / 8 / 1032;
    if (good && least > size)
        good = ct_fail(CT_ERR_IO, "image", "%s: %u x %u pixels cannot be in %zu bytes", path, (unsigned)image.width,
                       (unsigned)image.height, size);
    good = good && ct__pixels_allocate(pixels, image.width, image.height, channels, path);
    if (good) {
        image.format = formats[channels];
        image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits are 8 with more digits, not another scale */
        good = libpng.png_image_finish_read(&image, &black, pixels->data, 0, NULL) != 0;
        if (!good) ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", path, image.message);
    }
    libpng.png_image_free(&image);
    return good;
}

bool ct__png_encode(const ct__pixels *pixels, const char *path, void **bytes, size_t *size) {
    if (!foreign_libpng("image")) return false;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)pixels->width,
                       .height = (png_uint_32)pixels->height,
                       .format = formats[pixels->channels]};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *memory = malloc(room);
    bool good =
        memory || ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", path, (size_t)room);
    if (good && !libpng.png_image_write_to_memory(&image, memory, &room, 0, pixels->data, 0, NULL))
        good = ct_fail(CT_ERR_IO, "image", "%s: cannot be made: %s", path, image.message);
    libpng.png_image_free(&image);
    if (!good) {
        free(memory);
        return false;
    }
    void *fitting = realloc(memory, room);
    *bytes = fitting ? fitting : memory;
    *size = room;
    return true;
}
#else
bool ct__png_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels) {
    (void)bytes, (void)size, (void)channels, (void)path, (void)pixels;
    return ct__foreign_absent("image", "libpng", "libpng-dev");
}

bool ct__png_encode(const ct__pixels *pixels, const char *path, void **bytes, size_t *size) {
    (void)pixels, (void)path, (void)bytes, (void)size;
    return ct__foreign_absent("image", "libpng", "libpng-dev");
}
#endif
