"""Section G of the op list: resizing, pixel shuffles, sampling by a grid."""
import torch
import torch.nn.functional as F

from pool import both_layouts
from refs import Family, rnd


def sizes(f):
    shapes = {1: (2, 2, 5), 2: (1, 2, 3, 4), 3: (1, 2, 2, 3, 2)}
    modes = {1: ["nearest", "nearest-exact", "linear", "area"], 2: ["nearest", "nearest-exact", "bilinear", "bicubic", "area"],
             3: ["nearest", "nearest-exact", "trilinear", "area"]}
    targets = {1: [8, 3], 2: [(5, 3), (2, 7)], 3: [(3, 2, 4)]}
    for n in (1, 2, 3):
        for mode in modes[n]:
            name = mode.replace("-", "_")
            smooth = mode in ("linear", "bilinear", "bicubic", "trilinear")
            for size in targets[n]:
                text = ",".join(map(str, size)) if isinstance(size, tuple) else str(size)
                for align in (False, True) if smooth else (None,):
                    both_layouts(f, "interpolate", rnd(*shapes[n]), lambda u: F.interpolate(u, size, mode=mode, align_corners=align),
                                 "output_size=%s mode=%s%s" % (text, name, " align_corners=true" if align else ""))
            for scale in (1.5,) if n > 1 else (2, 1.5):
                both_layouts(f, "interpolate", rnd(*shapes[n]), lambda u: F.interpolate(u, scale_factor=scale, mode=mode), "scale=%g mode=%s" % (scale, name))
    both_layouts(f, "upsample_nearest", rnd(2, 3, 3, 4), lambda u: F.interpolate(u, scale_factor=2), "scale=2")
    f.error("interpolate", [rnd(2, 3, 4)], "VALUE")
    f.error("interpolate", [rnd(2, 3, 4)], "VALUE", "output_size=3 scale=2")
    f.error("interpolate", [rnd(2, 3, 4)], "SHAPE", "output_size=3 mode=bilinear")
    f.error("interpolate", [rnd(2, 3, 4)], "VALUE", "output_size=3 align_corners=true")
    both_layouts(f, "pixel_shuffle", rnd(2, 12, 2, 3), lambda u: F.pixel_shuffle(u, 2), "factor=2")
    both_layouts(f, "pixel_unshuffle", rnd(2, 3, 4, 6), lambda u: F.pixel_unshuffle(u, 2), "factor=2")
    f.error("pixel_shuffle", [rnd(2, 6, 2, 2)], "SHAPE", "factor=2")


def grids(f):
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                attrs = "mode=%s padding=%s%s" % (mode, padding, " align_corners=true" if align else "")
                x, g = rnd(2, 2, 3, 4), rnd(2, 1, 3, 2, low=-1.5, high=1.5) + 1 / 64
                f.case("grid_sample", [x, g], lambda u, v: F.grid_sample(u, v, mode, padding, align), attrs)
                f.case("grid_sample", [x.movedim(1, -1).contiguous(), g],
                       lambda u, v: F.grid_sample(u.movedim(-1, 1), v, mode, padding, align).movedim(1, -1).contiguous(), attrs + " channels_last=true")
                if mode != "bicubic":
                    x, g = rnd(1, 2, 2, 3, 4), rnd(1, 1, 2, 2, 3, low=-1.5, high=1.5) + 1 / 64
                    f.case("grid_sample", [x, g], lambda u, v: F.grid_sample(u, v, mode, padding, align), attrs)
    f.error("grid_sample", [rnd(2, 2, 3, 4), rnd(1, 3, 2, 2)], "SHAPE")
    f.error("grid_sample", [rnd(1, 1, 2, 2, 2), rnd(1, 1, 1, 1, 3)], "VALUE", "mode=bicubic")


def write(folder):
    for name, about, cases in (("resize", "Resizing.", sizes), ("grid", "Sampling by a grid.", grids)):
        f = Family(folder, name, about)
        cases(f)
        yield name, f.close()
