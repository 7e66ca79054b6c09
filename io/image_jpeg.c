/* JPEG by TurboJPEG. */
#include "io/foreign.h"
#include "io/image.h"

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

/* The alpha of an opaque picture, beside each grey. From the end, since it is done where the greys are. */
static void add_alpha(ct__pixels *pixels) {
    for (int64_t i = pixels->width * pixels->height - 1; i >= 0; i--) {
        pixels->data[2 * i] = pixels->data[i];
        pixels->data[2 * i + 1] = 255;
    }
}

static bool decode(tjhandle handle, const uint8_t *bytes, size_t size, int channels, const char *path,
                   ct__pixels *pixels) {
    static const int formats[5] = {0, TJPF_GRAY, TJPF_GRAY, TJPF_RGB, TJPF_RGBA};
    int width = 0, height = 0, sampling = 0, space = 0;
    if (turbojpeg.tjDecompressHeader3(handle, bytes, (unsigned long)size, &width, &height, &sampling, &space) != 0)
        return damaged(handle, path);
    if (space == TJCS_CMYK || space == TJCS_YCCK)
        return ct_fail(CT_ERR_IO, "image", "%s: its colours are CMYK, which is not supported", path);
    if (channels == 0) channels = space == TJCS_GRAY ? 1 : 3;
    if (!ct__pixels_allocate(pixels, width, height, channels, path)) return false;
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
    if (turbojpeg.tjDecompress2(handle, bytes, (unsigned long)size, pixels->data, width, 0, height, formats[channels],
                                flags) != 0)
        return damaged(handle, path);
    if (channels == 2) add_alpha(pixels);
    return true;
}

bool ct__jpeg_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels) {
    if (!foreign_turbojpeg("image")) return false;
    tjhandle handle = turbojpeg.tjInitDecompress();
    if (!handle) return ct_fail(CT_ERR_MEMORY, "image", "%s: out of memory", path);
    const bool good = decode(handle, bytes, size, channels, path, pixels);
    turbojpeg.tjDestroy(handle);
    return good;
}
#else
bool ct__jpeg_decode(const uint8_t *bytes, size_t size, int channels, const char *path, ct__pixels *pixels) {
    (void)bytes, (void)size, (void)channels, (void)path, (void)pixels;
    return ct__foreign_absent("image", "TurboJPEG", "libturbojpeg0-dev");
}
#endif
