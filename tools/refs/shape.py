"""Section D of the op list: views, copies, indices."""
import numpy as np
import torch
import torch.nn.functional as F

from refs import Family, bools, ints, rnd, t


def csv(values):
    return ",".join(str(v) for v in values)


def views(f):
    x = rnd(2, 3, 4)
    for shape in ((6, 4), (2, -1), (24,), (2, 3, 4), (1, 24, 1), (-1,)):
        f.case("reshape", [x], lambda u: u.reshape(shape), "shape=" + csv(shape))
    f.case("reshape", [torch.zeros(0, 3)], lambda u: u.reshape(3, 0, 2), "shape=3,0,2")
    f.case("reshape", [rnd(1)], lambda u: u.reshape(()), "shape=")
    for shape in ((5, 5), (-1, -1), (7, -1), (2, -2)):
        f.error("reshape", [x], "SHAPE", "shape=" + csv(shape))
    f.case("flatten", [x], lambda u: u.flatten())
    f.case("flatten", [x], lambda u: u.flatten(1), "start=1")
    f.case("flatten", [x], lambda u: u.flatten(0, 1), "start=0 end=1")
    f.case("flatten", [rnd()], lambda u: u.flatten())
    f.case("squeeze", [rnd(1, 3, 1)], lambda u: u.squeeze())
    f.case("squeeze", [rnd(1, 3, 1)], lambda u: u.squeeze(0), "axes=0")
    f.case("squeeze", [rnd(1, 3, 1)], lambda u: u.squeeze((1, 2)), "axes=1,-1")
    for axis in (0, 1, -1, 3):
        f.case("unsqueeze", [x], lambda u: u.unsqueeze(axis), "axis=%d" % axis)
    f.error("unsqueeze", [x], "SHAPE", "axis=4")
    f.case("transpose", [x], lambda u: u.transpose(0, 2), "a=0 b=2")
    f.case("transpose", [x], lambda u: u.transpose(-1, 1), "a=-1 b=1")
    f.case("permute", [x], lambda u: u.permute(2, 0, 1), "axes=2,0,1")
    f.case("permute", [x], lambda u: u.permute(-1, -3, -2), "axes=-1,-3,-2")
    for axes in ((0, 1), (0, 1, 1), (0, 1, 3)):
        f.error("permute", [x], "SHAPE", "axes=" + csv(axes))
    f.case("t", [rnd(2, 3)], lambda u: u.t())
    f.case("t", [rnd(3)], lambda u: u.t())
    f.error("t", [x], "SHAPE")
    f.case("movedim", [x], lambda u: u.movedim(0, -1), "source=0 destination=-1")
    f.case("movedim", [x], lambda u: u.movedim((0, 1), (2, 0)), "source=0,1 destination=2,0")
    f.case("expand", [rnd(3, 1)], lambda u: u.expand(2, 3, 4), "shape=2,3,4")
    f.case("expand", [rnd(3, 1)], lambda u: u.expand(-1, 4), "shape=-1,4")
    f.case("expand", [rnd()], lambda u: u.expand(2, 2), "shape=2,2")
    f.case("expand", [rnd(1, 3)], lambda u: u.expand(0, 3), "shape=0,3")
    f.error("expand", [rnd(3, 2)], "SHAPE", "shape=3,4")
    f.case("narrow", [x], lambda u: u.narrow(1, 1, 2), "axis=1 start=1 length=2")
    f.case("narrow", [x], lambda u: u.narrow(-1, -3, 2), "axis=-1 start=-3 length=2")
    f.case("narrow", [x], lambda u: u.narrow(0, 0, 0), "axis=0 start=0 length=0")
    f.error("narrow", [x], "SHAPE", "axis=1 start=2 length=2")
    f.case("select", [x], lambda u: u.select(1, 2), "axis=1 index=2")
    f.case("select", [x], lambda u: u.select(-1, -1), "axis=-1 index=-1")
    f.error("select", [x], "INDEX", "axis=1 index=3")
    v = rnd(7, 2)
    for start, stop, step in ((1, 5, 2), (0, None, 3), (-3, None, 1), (2, -1, 1), (5, 2, 1), (-100, 100, 2), (6, None, -1), (5, 1, -2), (-1, -5, -1), (10, None, -3)):
        attrs = "axis=0 start=%d" % start + ("" if stop is None else " stop=%d" % stop) + " step=%d" % step
        rows = list(range(7))[slice(start, stop, step)]
        f.case("slice", [v], lambda u: u[torch.tensor(rows, dtype=torch.int64)], attrs)
    for offset, a1, a2 in ((0, 0, 1), (1, 0, 1), (-1, 0, 2), (0, -2, -1)):
        f.case("diagonal", [x], lambda u: u.diagonal(offset, a1, a2), "offset=%d axis1=%d axis2=%d" % (offset, a1, a2))
    f.case("unfold", [rnd(2, 7)], lambda u: u.unfold(1, 3, 2), "axis=1 size=3 step=2")
    f.case("unfold", [rnd(2, 7)], lambda u: u.unfold(-1, 3, 1), "axis=-1 size=3 step=1")
    f.case("unfold", [rnd(7, 2)], lambda u: u.unfold(0, 7, 1), "axis=0 size=7 step=1")
    f.error("unfold", [rnd(2, 7)], "SHAPE", "axis=1 size=8 step=1")
    f.case("as_strided", [rnd(12)], lambda u: u.as_strided((3, 4), (2, 1), 1), "shape=3,4 strides=2,1 offset=1")
    f.case("as_strided", [rnd(12)], lambda u: u.as_strided((2, 3), (0, 2), 0), "shape=2,3 strides=0,2 offset=0")
    f.error("as_strided", [rnd(12)], "SHAPE", "shape=3,4 strides=4,2 offset=0")
    f.case("split", [rnd(2, 7)], lambda u: u.split(3, 1), "axis=1 sizes=3")
    f.case("split", [rnd(5, 2)], lambda u: u.split([1, 0, 4]), "axis=0 sizes=1,0,4")
    f.case("chunk", [rnd(7, 2)], lambda u: u.chunk(3), "axis=0")


def copies(f):
    x = rnd(2, 3)
    f.case("clone", [x], lambda u: u.clone())
    f.case("contiguous", [x], lambda u: u.contiguous())
    for axis in (0, 1, -1):
        f.case("cat", [rnd(2, 3), rnd(2, 3)], lambda *u: torch.cat(u, axis), "axis=%d" % axis)
        f.case("stack", [rnd(2, 3), rnd(2, 3)], lambda *u: torch.stack(u, axis), "axis=%d" % axis)
    f.case("cat", [rnd(1, 2), rnd(0, 2), rnd(3, 2)], lambda *u: torch.cat(u, 0), "axis=0")
    f.case("cat", [rnd(2)], lambda *u: torch.cat(u, 0), "axis=0")
    f.case("cat", [ints(2, dtype=torch.int8), ints(3, dtype=torch.int64)], lambda *u: torch.cat(u, 0), "axis=0", grad=False)
    f.error("cat", [rnd(2, 3), rnd(2, 4)], "SHAPE", "axis=0")
    f.error("cat", [rnd(2, 3), rnd(2)], "SHAPE", "axis=0")
    f.error("stack", [rnd(2, 3), rnd(2, 4)], "SHAPE", "axis=0")
    for counts in ((2, 1), (2, 3), (2, 1, 2), (0, 1)):
        f.case("repeat", [x], lambda u: u.repeat(*counts), "counts=" + csv(counts))
    f.error("repeat", [x], "SHAPE", "counts=2")
    for counts in ((2,), (2, 3), (2, 1, 2)):
        f.case("tile", [x], lambda u: u.tile(counts), "counts=" + csv(counts))
    f.case("repeat_interleave", [x, None], lambda u, r: u.repeat_interleave(2, 1), "count=2 axis=1")
    f.case("repeat_interleave", [x, t([2, 0, 1], torch.int64)], lambda u, r: u.repeat_interleave(r, 1), "count=0 axis=1")
    for mode in ("constant", "reflect", "replicate", "circular"):
        v = rnd(2, 3, 4)
        f.case("pad", [v], lambda u: F.pad(u, (2, 1), mode=mode), "pads=2,1 mode=" + mode)
        v = rnd(2, 3, 4, 3)
        # PyTorch's pads begin with the last axis, ours go in the order of the axes
        f.case("pad", [v], lambda u: F.pad(u, (1, 2, 2, 1), mode=mode), "pads=2,1,1,2 mode=" + mode)
    f.case("pad", [x], lambda u: F.pad(u, (1, 0, 0, 2), value=1.5), "pads=0,2,1,0 value=1.5")
    f.case("pad", [rnd(4, 5)], lambda u: F.pad(u, (-1, 2, 1, -2)), "pads=1,-2,-1,2")
    f.error("pad", [rnd(2, 3, 4)], "SHAPE", "pads=4,1 mode=reflect")
    f.case("flip", [rnd(2, 3, 4)], lambda u: u.flip(0, -1), "axes=0,-1")
    f.case("roll", [rnd(3, 4)], lambda u: u.roll(5), "shifts=5")
    f.case("roll", [rnd(3, 4)], lambda u: u.roll((1, -1), (0, 1)), "shifts=1,-1 axes=0,1")
    for k in (-1, 0, 1, 2, 3, 5):
        f.case("rot90", [rnd(2, 3)], lambda u: u.rot90(k), "k=%d" % k)
    f.case("rot90", [rnd(2, 3, 2)], lambda u: u.rot90(1, (2, 0)), "k=1 axes=2,0")
    for d in (0, 1, -1, 9, -9):
        f.case("tril", [rnd(2, 3, 4)], lambda u: u.tril(d), "diagonal=%d" % d)
        f.case("triu", [rnd(4, 3)], lambda u: u.triu(d), "diagonal=%d" % d)


def write(folder):
    families = []
    for name, fn, about in (("view", views, "Views."), ("copy", copies, "Copies.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
