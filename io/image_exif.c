/* The one thing of EXIF that changes what a picture shows: which way up it is. A JPEG file has it in a segment APP1, a PNG
 * file in a chunk eXIf; in both lies a TIFF header with a directory of tags. Whatever does not fit its place is passed over:
 * a picture is not refused for what a camera wrote about it. */
#include "io/image.h"

#include <string.h>

typedef struct block {
    const uint8_t *bytes;
    size_t size;
    bool big; /* the order of bytes in a number */
} block;

static bool number(const block *b, size_t at, size_t width, uint32_t *value) {
    if (width > b->size || at > b->size - width) return false;
    *value = 0;
    for (size_t i = 0; i < width; i++) *value = *value << 8 | b->bytes[at + (b->big ? i : width - 1 - i)];
    return true;
}

/* The tag 0x0112 of the first directory. */
static int orientation_of(block tiff) {
    uint32_t at, count, tag, type, values, orientation;
    if (tiff.size < 8 || (memcmp(tiff.bytes, "II*\0", 4) != 0 && memcmp(tiff.bytes, "MM\0*", 4) != 0)) return 1;
    tiff.big = tiff.bytes[0] == 'M';
    if (!number(&tiff, 4, 4, &at) || !number(&tiff, at, 2, &count)) return 1;
    for (uint32_t i = 0; i < count; i++) {
        const size_t entry = (size_t)at + 2 + 12 * (size_t)i;
        if (!number(&tiff, entry, 2, &tag)) return 1;
        if (tag != 0x0112) continue;
        const bool sound = number(&tiff, entry + 2, 2, &type) && number(&tiff, entry + 4, 4, &values) &&
                           number(&tiff, entry + 8, 2, &orientation);
        return sound && type == 3 && values == 1 && orientation >= 1 && orientation <= 8 ? (int)orientation : 1;
    }
    return 1;
}

static int in_jpeg(const block *file) {
    for (size_t at = 2; at + 4 <= file->size && file->bytes[at] == 0xff;) {
        const uint8_t kind = file->bytes[at + 1];
        uint32_t length;
        if (kind == 0xff) { /* filling */
            at++;
            continue;
        }
        if (kind == 0xda || kind == 0xd9) return 1; /* the picture itself begins */
        if (!number(file, at + 2, 2, &length) || length < 2 || length > file->size - at - 2) return 1;
        const uint8_t *content = file->bytes + at + 4;
        if (kind == 0xe1 && length >= 8 && memcmp(content, "Exif\0", 6) == 0)
            return orientation_of((block){content + 6, length - 8, false});
        at += 2 + (size_t)length;
    }
    return 1;
}

static int in_png(const block *file) {
    uint32_t length;
    for (size_t at = 8; number(file, at, 4, &length) && file->size - at >= 12 && length <= file->size - at - 12;
         at += 12 + (size_t)length)
        if (memcmp(file->bytes + at + 4, "eXIf", 4) == 0)
            return orientation_of((block){file->bytes + at + 8, length, false});
    return 1;
}

int ct__exif_orientation(const uint8_t *bytes, size_t size) {
    const block file = {bytes, size, true};
    if (size < 8) return 1;
    return bytes[0] == 0xff ? in_jpeg(&file) : in_png(&file);
}
