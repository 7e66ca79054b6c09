/* Images in memory, so that a fuzzer can reach everything; each format in its own file. */
#ifndef COTANGENT_IO_IMAGE_H
#define COTANGENT_IO_IMAGE_H

#include <cotangent/io.h>

/* Pixels side by side, channels innermost, as the libraries give them. */
typedef struct ct__pixels {
    uint8_t *data; /* from malloc */
    int64_t width, height;
    int channels;
} ct__pixels;

/* Decodes, with channels as in ct_image_load. path is for error texts. */
bool ct__png_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels);
bool ct__jpeg_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels);
/* The bytes of a PNG file for the caller to free(). */
bool ct__png_encode(const ct__pixels *pixels, const char *path, void **bytes, size_t *size);

/* Room for a picture of that size, or an error when it has more pixels than are allowed or there is no memory. */
bool ct__pixels_allocate(ct__pixels *pixels, int64_t width, int64_t height, int channels, const char *path);

ct_tensor *ct__image_parse(const uint8_t *bytes, size_t size, int channels, const char *path);

#endif
