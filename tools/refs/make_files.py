"""Writes the small files under tests/files that other programs made: safetensors, NumPy archives, images.

    python3 -m venv venv && venv/bin/pip install torch safetensors numpy pillow
    venv/bin/python tools/refs/make_files.py tests/files
"""
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file

folder = sys.argv[1] + "/"


def ramp(dtype, *shape):
    """0, 1, 2, ... as that dtype; bool alternates; complex numbers count in both parts."""
    count = int(numpy.prod(shape))
    values = torch.arange(count, dtype=torch.float32)
    if dtype == torch.bool:
        return (values % 2 == 1).reshape(shape)
    if dtype == torch.complex64:
        return torch.complex(values, -values).reshape(shape)
    return values.to(dtype).reshape(shape)


dtypes = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u64": torch.uint64, "u32": torch.uint32,
    "u16": torch.uint16, "u8": torch.uint8, "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2, "complex64": torch.complex64,
}
tensors = {name: ramp(dtype, 2, 3) for name, dtype in dtypes.items()}
tensors["scalar"] = torch.tensor(2.5)
tensors["empty"] = torch.zeros(0, 4)
tensors['a "quoted\\" näme\n'] = ramp(torch.float32, 5)
save_file(tensors, folder + "all.safetensors", metadata={"author": "someone \"else\"", "empty": ""})
save_file({}, folder + "nothing.safetensors")
save_file({"x": torch.zeros(4, dtype=torch.float8_e8m0fnu)}, folder + "unknown_dtype.safetensors")

arrays = {
    "a": numpy.arange(6, dtype="<f4").reshape(2, 3), "fortran": numpy.asfortranarray(numpy.arange(6, dtype=">i8").reshape(2, 3)),
    "scalar": numpy.array(2.5), "empty": numpy.zeros((0, 4), "u1"), "zeros": numpy.zeros(10000, "f4"),
}
numpy.savez_compressed(folder + "compressed.npz", **arrays)
del arrays["zeros"]
numpy.savez(folder + "stored.npz", **arrays)

# Images of 5 columns and 3 rows: value = 20 * column + 60 * row + 7 * channel
h, w = 3, 5
base = numpy.add.outer(60 * numpy.arange(h), 20 * numpy.arange(w))
for channels, mode in (1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA"):
    pixels = numpy.stack([base + 7 * c for c in range(channels)], axis=-1).astype("uint8")
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode).save(folder + mode.lower() + ".png")
    if channels == 3:
        palette = Image.fromarray(pixels, mode).quantize(16)
        palette.save(folder + "palette.png")
        numpy.asarray(palette.convert("RGB")).tofile(folder + "palette.raw")
Image.fromarray((base * 257).astype("uint16")).save(folder + "deep.png")
# JPEG loses: what Pillow (libjpeg-turbo) decodes is kept beside it.
y, x = numpy.mgrid[0:13, 0:18]
smooth = numpy.stack([12 * x, 15 * y, 100 + 5 * x - 6 * y], axis=-1).clip(0, 255).astype("uint8")
Image.fromarray(smooth).save(folder + "rgb.jpg", quality=90)
Image.fromarray(smooth[..., 0]).save(folder + "gray.jpg", quality=90)
for name in "rgb", "gray":
    numpy.asarray(Image.open(folder + name + ".jpg")).tofile(folder + name + ".raw")
