/* JPEG by TurboJPEG. */
#include "io/image.h"
#include "support/foreign.h"

#include <stdlib.h>

#ifdef CT_HAVE_TURBOJPEG
#include <turbojpeg.h>

#define TURBOJPEG(X) X(tjInitDecompress) X(tjDecompressHeader3) X(tjDecompress2) X(tjGetErrorStr2) X(tjDestroy)
FOREIGN(turbojpeg, TURBOJPEG, "TurboJPEG", "libturbojpeg0", "libturbojpeg.so.0", "libturbojpeg.so")

#ifndef TJFLAG_LIMITSCANS /* before 2.1: a picture of thousands of scans is then slow, and nothing worse */
#define TJFLAG_LIMITSCANS 0
#endif

static bool damaged(tjhandle handle, const char *path) {
    return ct_fail(CT_ERR_IO, "image", "%s: is damaged: %s", path, turbojpeg.tjGetErrorStr2(handle));
}

/* What a side can be divided by while the blocks are transformed, so that twice the side that is wanted is left for the
 * resampler: the cosine transform's own means are cruder. */
static int find_divisor(const ct__canvas *canvas, int width, int height) {
    int divisor = 1;
    if (canvas->height == 0) return 1;
    while (divisor < 8 && width / (2 * divisor) >= 2 * canvas->width && height / (2 * divisor) >= 2 * canvas->height)
        divisor *= 2;
    return divisor;
}

/* Inks to light, where the pixels are. Files have them inverted, 255 for no ink: Photoshop began it, and every reader takes
 * them so. */
static void mix_inks(uint8_t *pixels, size_t count, int channels) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *from = pixels + 4 * i;
        const unsigned black = from[3];
        const unsigned rgb[3] = {(from[0] * black + 127) / 255, (from[1] * black + 127) / 255,
                                 (from[2] * black + 127) / 255};
        if (channels == 1) pixels[i] = (uint8_t)((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
        else
            for (int c = 0; c < 3; c++) pixels[3 * i + (size_t)c] = (uint8_t)rgb[c];
    }
}

static bool decode(tjhandle handle, const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    int width = 0, height = 0, sampling = 0, space = 0;
    if (turbojpeg.tjDecompressHeader3(handle, bytes, (unsigned long)size, &width, &height, &sampling, &space) != 0)
        return damaged(handle, canvas->path);
    if (!ct__canvas_admits(canvas, width, height)) return false;
    const bool inks = space == TJCS_CMYK || space == TJCS_YCCK;
    const bool gray = canvas->channels == 0 ? space == TJCS_GRAY : canvas->channels <= 2 || space == TJCS_GRAY;
    const int channels = gray ? 1 : 3, divisor = find_divisor(canvas, width, height);
    width = (width + divisor - 1) / divisor;
    height = (height + divisor - 1) / divisor;

    const size_t count = (size_t)width * (size_t)height, room = count * (size_t)(inks ? 4 : channels);
    uint8_t *pixels = ct_malloc(room);
    if (!pixels)
        return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory: %zu bytes could not be had", canvas->path, room);
    const int format = inks ? TJPF_CMYK : gray ? TJPF_GRAY : TJPF_RGB;
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    bool good =
        turbojpeg.tjDecompress2(handle, bytes, (unsigned long)size, pixels, width, 0, height, format, flags) == 0 ||
        damaged(handle, canvas->path);
    if (good && inks) mix_inks(pixels, count, channels);
    good = good && ct__canvas_begin(canvas, width, height, channels);
    if (good) ct__canvas_rows(canvas, pixels);
    ct_free(pixels);
    return good;
}

bool ct__jpeg_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    if (!foreign_turbojpeg("image")) return false;
    tjhandle handle = turbojpeg.tjInitDecompress();
    if (!handle) return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", canvas->path);
    const bool good = decode(handle, bytes, size, canvas);
    turbojpeg.tjDestroy(handle);
    return good;
}
#else
bool ct__jpeg_decode(const uint8_t *bytes, size_t size, ct__canvas *canvas) {
    (void)bytes, (void)size, (void)canvas;
    return ct__foreign_absent("image", "TurboJPEG", "libturbojpeg0-dev");
}
#endif
