/* Images in memory, so that a fuzzer can reach everything; each format in its own file. A decoder hands a picture over row by
 * row, to a canvas that keeps it or makes it smaller on the way. */
#ifndef COTANGENT_IO_IMAGE_H
#define COTANGENT_IO_IMAGE_H

#include <cotangent/io.h>

#include "support/resample.h"

enum { CT__IMAGE_DEFAULT_PIXELS = 1 << 28 };

/* What is asked of a file, and where its rows go. */
typedef struct ct__canvas {
    const char *path;      /* for error texts */
    int channels;          /* 1 to 4, or 0 until the decoder says how many the file has */
    int64_t height, width; /* of the result, as the file's rows lie; 0: as large as the file's picture */
    int64_t most_pixels;

    /* set by ct__canvas_begin: */
    int64_t from_height, from_width, y; /* y: rows that have come */
    int decoded;                        /* channels of the rows */
    uint8_t *planes;                    /* (channels, height, width), from malloc */
    ct__resampler resampler;            /* used where sizes differ */
    bool resized;
    float *row, *sums; /* (from_width) and (decoded, height, width) */
} ct__canvas;

/* Whether a picture of that size is allowed: not empty, and of no more pixels than most_pixels. An error if not. Asked
 * before anything is decoded. */
bool ct__canvas_admits(const ct__canvas *canvas, int64_t width, int64_t height);
/* Room for a picture of that size. Its rows have `decoded` channels (one gray, three RGB, or as many as were asked for); a
 * gray one fills three, and an alpha that it lacks is opaque. */
bool ct__canvas_begin(ct__canvas *canvas, int64_t width, int64_t height, int decoded);
void ct__canvas_row(ct__canvas *canvas, const uint8_t *pixels);  /* the next row, channels innermost */
void ct__canvas_rows(ct__canvas *canvas, const uint8_t *pixels); /* all of them */
void ct__canvas_end(ct__canvas *canvas);                         /* the rows have come, or never will */
void ct__canvas_free(ct__canvas *canvas);

/* Decoders: ct__canvas_admits, ct__canvas_begin and every row, or false with an error. */
bool ct__png_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas);
bool ct__jpeg_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas);

/* PNG files that need neither interlacing, transparency nor color management, row by row in little memory. */
bool ct__png_is_plain(const uint8_t *bytes, size_t size, int channels);
bool ct__png_decode_plain(const uint8_t *bytes, size_t size, ct__canvas *canvas);

/* The bytes of a PNG file for the caller to ct_free(). pixels: (height, width, channels). */
bool ct__png_encode(const uint8_t *pixels, int64_t width, int64_t height, int channels, const char *path, void **bytes,
                    size_t *size);

/* How the picture in a file is to be turned, 1 to 8 as in TIFF and EXIF; 1, as it lies, where nothing sound is said. */
int ct__exif_orientation(const uint8_t *bytes, size_t size);

ct_tensor *ct__image_parse(const uint8_t *bytes, size_t size, int channels, const char *path,
                           const ct_image_options *options);

#endif
