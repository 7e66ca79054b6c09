#!/usr/bin/env python3
"""transforms.py FILE: writes what torchvision makes of one small picture, as C arrays, for tests/test_transforms.c.

    venv/bin/pip install torch torchvision && venv/bin/python tools/refs/transforms.py tests/refs/transforms.inc
"""
import sys

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

generator = torch.Generator().manual_seed(7)
picture = torch.randint(0, 256, (3, 7, 9), generator=generator, dtype=torch.uint8)
picture[:, 2, 3] = 120  # a gray pixel, which has no hue
x = picture.to(torch.float64) / 255
out = ["/* Written by tools/refs/transforms.py: results of torchvision. */"]


def put(name, values, text="%.9g"):
    flat = values.reshape(-1).tolist()
    texts = [text % v for v in flat]
    lines = [", ".join(texts[i:i + 10]) for i in range(0, len(texts), 10)]
    out.append("static const double %s[] = {\n    %s};" % (name, ",\n    ".join(lines)))


put("picture", picture, "%d")
put("picture_normalized", F.normalize(x, [0.5, 0.25, 0.4], [0.2, 0.3, 0.1]))
put("picture_gray", F.rgb_to_grayscale(x))
put("picture_shrunk", F.resize(x, [3, 5], antialias=True))
put("picture_grown", F.resize(x[:1], [10, 12], antialias=True))
put("picture_turned", F.rotate(x, 30, InterpolationMode.BILINEAR))
put("picture_turned_back", F.rotate(x[:1], -107, InterpolationMode.BILINEAR))
# 35 degrees: no pixel comes from the middle between two
put("picture_turned_nearest", F.rotate(x[:1], 35, InterpolationMode.NEAREST))
put("picture_bright", F.adjust_brightness(x, 1.4))
put("picture_contrast", F.adjust_contrast(x, 0.6))
put("picture_contrast_gray", F.adjust_contrast(x[:1], 1.7))
put("picture_saturation", F.adjust_saturation(x, 1.8))
put("picture_hue", F.adjust_hue(x, 0.2))
put("picture_hue_back", F.adjust_hue(x, -0.35))
put("picture_center", F.center_crop(picture, [4, 4]), "%d")
put("picture_center_large", F.center_crop(picture[:1], [10, 12]), "%d")
open(sys.argv[1] if len(sys.argv) > 1 else "tests/refs/transforms.inc", "w").write("\n".join(out) + "\n")
