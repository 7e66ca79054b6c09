"""Writes the small pictures under tests/files that try turning (EXIF), inks (CMYK) and rows of few bits, and beside each what
Pillow makes of it, as raw bytes.

    python3 -m venv venv && venv/bin/pip install numpy pillow
    venv/bin/python tools/refs/make_pictures.py tests/files
"""
import ctypes
import ctypes.util
import sys

import numpy
from PIL import Image, ImageOps

folder = sys.argv[1] + "/"


def keep(name, picture):
    numpy.asarray(picture).tofile(folder + name)


y, x = numpy.mgrid[0:10, 0:14]
smooth = numpy.stack([15 * x, 20 * y, 200 - 6 * x - 5 * y], axis=-1).clip(0, 255).astype("uint8")

# One picture held in the eight ways that a camera can be held: JPEG for odd numbers and 6, PNG for the others.
for turned in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = turned
    name = f"turned_{turned}.{'jpg' if turned % 2 or turned == 6 else 'png'}"
    options = {"quality": 90, "subsampling": 0} if name.endswith("jpg") else {}
    Image.fromarray(smooth).save(folder + name, exif=exif, **options)
    keep(f"turned_{turned}.raw", ImageOps.exif_transpose(Image.open(folder + name)).convert("RGB"))

# Inks as Pillow writes them (CMYK), and as TurboJPEG compresses them (YCCK).
inks = numpy.concatenate([smooth, (8 * x + 4 * y)[..., None].astype("uint8")], axis=-1)
Image.fromarray(inks, "CMYK").save(folder + "cmyk.jpg", quality=90)
turbo = ctypes.CDLL(ctypes.util.find_library("turbojpeg"))
turbo.tjInitCompress.restype = ctypes.c_void_p
compressor = ctypes.c_void_p(turbo.tjInitCompress())
out, size = ctypes.POINTER(ctypes.c_ubyte)(), ctypes.c_ulong(0)
inverted = numpy.ascontiguousarray(255 - inks)
TJPF_CMYK, TJSAMP_444 = 11, 0
assert turbo.tjCompress2(compressor, inverted.ctypes.data_as(ctypes.c_void_p), inks.shape[1], 0, inks.shape[0], TJPF_CMYK,
                         ctypes.byref(out), ctypes.byref(size), TJSAMP_444, 90, 0) == 0
open(folder + "ycck.jpg", "wb").write(ctypes.string_at(out, size.value))
for name in "cmyk", "ycck":
    keep(name + ".raw", Image.open(folder + name + ".jpg").convert("RGB"))
    keep(name + "_gray.raw", Image.open(folder + name + ".jpg").convert("RGB").convert("L"))

# Rows of few bits, whose last byte is not full; and every filter, which Pillow's compressor chooses among.
bits = ((x * 5 + y * 3) % 7 < 3)
Image.fromarray(bits).save(folder + "bits.png")
keep("bits.raw", (bits * 255).astype("uint8"))
noise = numpy.random.default_rng(1).integers(0, 40, (10, 14, 3))
filters = (smooth // 2 + noise).astype("uint8")
Image.fromarray(filters).save(folder + "filters.png")
keep("filters.raw", filters)
for colors, name in (2, "two"), (4, "four"), (16, "sixteen"):
    picture = Image.fromarray(smooth).quantize(colors)
    picture.save(folder + name + ".png")
    keep(name + ".raw", picture.convert("RGB"))

# Large pictures in few bytes. One quarter is black; made smaller by Pillow, the JPEG in its cosine transform at first.
large = numpy.full((8192, 8192), True)
large[4096:, 4096:] = False
Image.fromarray(large).save(folder + "large.png", optimize=True)
y, x = numpy.mgrid[0:400, 0:512]
waves = numpy.stack([128 + 100 * numpy.sin(x / 40), y / 2, 128 + 60 * numpy.cos((x + y) / 60)], axis=-1)
Image.fromarray(waves.clip(0, 255).astype("uint8")).save(folder + "waves.jpg", quality=30)
picture = Image.open(folder + "waves.jpg")
picture.draft("RGB", (64, 50))
assert picture.size == (64, 50)
keep("waves.raw", picture.resize((30, 24), Image.Resampling.BILINEAR))
