/* The plain kind of PNG, row by row: gray or palette of up to 8 bits, or RGB of 8, not interlaced, with neither transparency
 * nor a color space of its own. Almost every file is of this kind. libpng's simplified interface, which image_png.c uses for
 * the rest, only gives whole pictures, and its other one jumps out of errors; this one holds two rows. The format is that of
 * the specification, https://www.w3.org/TR/png/, sections 7, 9 and 10. */
#include "io/image.h"
#include "support/foreign.h"

#include <stdlib.h>
#include <string.h>

#ifdef CT_HAVE_ZLIB
#include <zlib.h>

#define ZLIB(X) X(inflateInit_) X(inflate) X(inflateEnd) X(crc32)
FOREIGN(zlib, ZLIB, "zlib", "zlib1g", "libz.so.1", "libz.so", "libz.dylib")

enum { GRAY = 0, RGB = 2, PALETTE = 3, LONGEST_SIDE = 1000000 };

typedef struct chunk {
    const uint8_t *name, *data;
    uint32_t length;
} chunk;

typedef struct png_file {
    const uint8_t *bytes;
    size_t size, at;
    uint32_t width, height;
    int depth, color;
    uint8_t palette[256][3]; /* what it lacks is black */
} png_file;

static uint32_t number(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The next chunk, with its checksum still to be compared; false where the file ends inside it. */
static bool next_chunk(png_file *f, chunk *c) {
    if (f->size - f->at < 12) return false;
    *c = (chunk){f->bytes + f->at + 4, f->bytes + f->at + 8, number(f->bytes + f->at)};
    if (c->length > f->size - f->at - 12) return false;
    f->at += 12 + (size_t)c->length;
    return true;
}

static bool is(const chunk *c, const char *name) { return memcmp(c->name, name, 4) == 0; }

static bool read_header(png_file *f) {
    chunk c;
    f->at = 8;
    if (f->size < 8 || !next_chunk(f, &c) || !is(&c, "IHDR") || c.length != 13) return false;
    f->width = number(c.data);
    f->height = number(c.data + 4);
    f->depth = c.data[8];
    f->color = c.data[9];
    if (f->width < 1 || f->height < 1 || f->width > LONGEST_SIDE || f->height > LONGEST_SIDE) return false;
    if (c.data[10] || c.data[11] || c.data[12]) return false; /* other methods, or interlaced */
    return f->color == RGB ? f->depth == 8
                           : (f->color == GRAY || f->color == PALETTE) &&
                                 (f->depth == 1 || f->depth == 2 || f->depth == 4 || f->depth == 8);
}

bool ct__png_is_plain(const uint8_t *bytes, size_t size, int channels) {
    static const char *const other[] = {"tRNS", "gAMA", "cHRM", "iCCP", "cICP"};
    png_file f = {.bytes = bytes, .size = size};
    if (!read_header(&f) || (f.color != GRAY && channels != 0 && channels < 3)) return false;
    bool palette = false;
    for (chunk c; next_chunk(&f, &c);) {
        if (is(&c, "IDAT")) return palette || f.color != PALETTE;
        if (is(&c, "PLTE")) palette = c.length >= 3 && c.length % 3 == 0 && c.length <= 768;
        else if (!(c.name[0] & 0x20)) return false; /* it says that it has to be understood */
        for (size_t i = 0; i < sizeof other / sizeof *other; i++)
            if (is(&c, other[i])) return false;
    }
    return false;
}

/* ---- Rows ---- */

/* Undoes a row's filter; before: the row above. step: bytes of a pixel, at least 1. */
static bool unfilter(uint8_t *row, const uint8_t *above, size_t n, size_t step, int filter) {
    switch (filter) {
    case 0: return true;
    case 1:
        for (size_t i = step; i < n; i++) row[i] = (uint8_t)(row[i] + row[i - step]);
        return true;
    case 2:
        for (size_t i = 0; i < n; i++) row[i] = (uint8_t)(row[i] + above[i]);
        return true;
    case 3:
        for (size_t i = 0; i < n; i++) row[i] = (uint8_t)(row[i] + ((i < step ? 0 : row[i - step]) + above[i]) / 2);
        return true;
    case 4:
        for (size_t i = 0; i < n;
             i++) { /* Paeth: whichever of the three neighbors a plane through them is nearest to */
            const int left = i < step ? 0 : row[i - step], up = above[i], corner = i < step ? 0 : above[i - step];
            const int from_left = abs(up - corner), from_up = abs(left - corner),
                      from_corner = abs(left + up - 2 * corner);
            const int best = from_left <= from_up && from_left <= from_corner ? left
                             : from_up <= from_corner                         ? up
                                                                              : corner;
            row[i] = (uint8_t)(row[i] + best);
        }
        return true;
    default: return false;
    }
}

/* Bits to pixels of 0 to 255, or of the palette. */
static void expand(const png_file *f, const uint8_t *row, uint8_t *pixels) {
    const unsigned most = (1u << f->depth) - 1;
    for (uint32_t x = 0; x < f->width; x++) {
        const size_t bit = (size_t)x * (size_t)f->depth;
        const unsigned value = row[bit / 8] >> (8 - (size_t)f->depth - bit % 8) & most;
        if (f->color == GRAY) pixels[x] = (uint8_t)(value * (255 / most));
        else memcpy(pixels + 3 * (size_t)x, f->palette[value], 3);
    }
}

typedef struct reading {
    png_file file;
    const char *path;
    z_stream stream;
    uint8_t *rows[2], *pixels;
    size_t row_size;
} reading;

static bool damaged(const reading *r, const char *what) {
    return ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", r->path, what);
}

static bool is_sound(const reading *r, const chunk *c) {
    const uLong crc = zlib.crc32(zlib.crc32(0, NULL, 0), c->name, c->length + 4);
    return crc == number(c->data + c->length) || damaged(r, "a checksum differs");
}

/* The next chunk of compressed data to the stream. */
static bool feed(reading *r) {
    chunk c;
    if (!next_chunk(&r->file, &c) || !is(&c, "IDAT")) return damaged(r, "its picture ends too early");
    if (!is_sound(r, &c)) return false;
    r->stream.next_in = (z_const Bytef *)c.data;
    r->stream.avail_in = c.length;
    return true;
}

static bool fill(reading *r, uint8_t *to, size_t n) {
    r->stream.next_out = to;
    r->stream.avail_out = (uInt)n;
    while (r->stream.avail_out > 0) {
        if (r->stream.avail_in == 0 && !feed(r)) return false;
        const int status = zlib.inflate(&r->stream, Z_NO_FLUSH);
        if (status == Z_STREAM_END && r->stream.avail_out > 0) return damaged(r, "its picture ends too early");
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return damaged(r, r->stream.msg ? r->stream.msg : "its data cannot be unpacked");
    }
    return true;
}

static bool read_rows(reading *r, ct__canvas *canvas) {
    const png_file *f = &r->file;
    const bool ready = f->depth == 8 && f->color != PALETTE;
    for (uint32_t y = 0; y < f->height; y++) {
        uint8_t *row = r->rows[y % 2], *above = r->rows[(y + 1) % 2], filter;
        if (!fill(r, &filter, 1) || !fill(r, row, r->row_size)) return false;
        if (!unfilter(row, above, r->row_size, f->color == RGB ? 3 : 1, filter)) return damaged(r, "an unknown filter");
        if (!ready) expand(f, row, r->pixels);
        ct__canvas_row(canvas, ready ? row : r->pixels);
    }
    return true;
}

/* What follows the rows in the stream has to be whole, though nothing of it is wanted. */
static bool check_rest(reading *r) {
    for (chunk c;;) {
        if (!next_chunk(&r->file, &c)) return true;
        if (!is(&c, "IDAT")) return true;
        if (!is_sound(r, &c)) return false;
    }
}

/* From behind the header to the first chunk of the picture, which is not taken. */
static bool read_palette(reading *r) {
    chunk c;
    for (size_t before = r->file.at; next_chunk(&r->file, &c); before = r->file.at) {
        if (is(&c, "IDAT")) {
            r->file.at = before;
            return true;
        }
        if (!is(&c, "PLTE") || r->file.color != PALETTE) continue;
        if (!is_sound(r, &c)) return false;
        memcpy(r->file.palette, c.data, c.length);
    }
    return damaged(r, "it has no picture");
}

bool ct__png_decode_plain(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    reading r = {.file = {.bytes = bytes, .size = size}, .path = canvas->path};
    if (!foreign_zlib("image")) return false;
    if (!read_header(&r.file)) return damaged(&r, "its header");
    const chunk header = {bytes + 12, bytes + 16, 13};
    if (!is_sound(&r, &header)) return false;
    const int channels = r.file.color == GRAY ? 1 : 3;
    const size_t bits = (size_t)r.file.depth * (r.file.color == RGB ? 3 : 1);
    r.row_size = ((size_t)r.file.width * bits + 7) / 8;
    r.rows[0] = ct_calloc(2, r.row_size);
    r.pixels = ct_calloc(r.file.width, (size_t)channels);
    bool good = (r.rows[0] && r.pixels) || ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", canvas->path);
    if (good) r.rows[1] = r.rows[0] + r.row_size;
    good = good && ct__canvas_begin(canvas, r.file.width, r.file.height, channels) && read_palette(&r);
    if (good) {
        good = zlib.inflateInit_(&r.stream, ZLIB_VERSION, (int)sizeof r.stream) == Z_OK ||
               ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", canvas->path);
        if (good) {
            good = read_rows(&r, canvas) && check_rest(&r);
            zlib.inflateEnd(&r.stream);
        }
    }
    ct_free(r.rows[0]);
    ct_free(r.pixels);
    return good;
}
#else
bool ct__png_is_plain(const uint8_t *bytes, size_t size, int channels) {
    (void)bytes, (void)size, (void)channels;
    return false;
}

bool ct__png_decode_plain(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    (void)bytes, (void)size, (void)canvas;
    return ct__foreign_absent("image", "zlib", "zlib1g-dev");
}
#endif
