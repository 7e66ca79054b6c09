"""Section A of the op list: tensors made from nothing, and cast."""
import math

import numpy as np
import torch

from refs import INF, NAN, Family, rnd, t


def making(f):
    names = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}

    def made(op, y, attrs):
        y32 = y.to(torch.float32) if y.dtype == torch.float64 else y
        if y.dtype == torch.float64:
            f.case(op, [], None, attrs, outs=[y32], grad=False)
        else:
            f.case(op, [], None, attrs + " dtype=" + names[y.dtype], outs=[y], grad=False)

    made("zeros", torch.zeros(2, 3), "shape=2,3")
    made("ones", torch.ones(2, 0), "shape=2,0")
    made("full", torch.full((3,), 2.5), "shape=3 value=2.5")
    made("full", torch.full((3,), -7, dtype=torch.int32), "shape=3 value=-7")
    made("full", torch.full((2,), True, dtype=torch.bool), "shape=2 value=3")
    for start, stop, step in ((0, 5, 1), (1, 2, 0.25), (5, 0, -2), (0, 1, 0.3), (3, 3, 1)):
        made("arange", torch.arange(start, stop, step, dtype=torch.float64), "start=%g stop=%g step=%g" % (start, stop, step))
    made("arange", torch.arange(-3, 4, 2, dtype=torch.int64), "start=-3 stop=4 step=2")
    f.error("arange", [], "VALUE", "start=0 stop=5 step=0")
    f.error("arange", [], "VALUE", "start=0 stop=5 step=-1")
    for start, stop, n in ((0, 1, 5), (-2, 3, 1), (3, 1, 4), (0, 1, 0)):
        made("linspace", torch.linspace(start, stop, n, dtype=torch.float64), "start=%g stop=%g n=%d" % (start, stop, n))
    made("eye", torch.eye(3), "n=3")
    made("eye", torch.eye(2, 4, dtype=torch.int32), "n=2 m=4")
    for d in (0, 1, -1):
        f.case("tril_mask", [], None, "n=3 m=4 diagonal=%d" % d, outs=[torch.ones(3, 4).tril(d).to(torch.bool)], grad=False)
    f.case("one_hot", [t([[0, 2], [1, 1]], torch.int64)], lambda i: torch.nn.functional.one_hot(i, 3), "classes=3", grad=False)
    f.case("one_hot", [t([], torch.int64)], None, "classes=3", outs=[torch.zeros(0, 3, dtype=torch.int64)], grad=False)
    f.error("one_hot", [t([0, 3], torch.int64)], "INDEX", "classes=3")
    f.error("one_hot", [t([0, -1], torch.int64)], "INDEX", "classes=3")
    f.case("meshgrid", [rnd(2), rnd(3)], lambda a, b: torch.meshgrid(a, b, indexing="ij"))
    f.case("meshgrid", [rnd(2), rnd(3), rnd(4)], lambda a, b, c: torch.meshgrid(a, b, c, indexing="xy"), "xy=true")
    f.case("zeros_like", [rnd(2, 3)], torch.zeros_like, grad=False)
    f.case("ones_like", [t([1, 2], torch.int8)], torch.ones_like, grad=False)
    f.case("full_like", [rnd(2, 3)], lambda x: torch.full_like(x, 2.5), "value=2.5", grad=False)


def casts(f):
    kinds = {"i8": (torch.int8, -128, 127), "i16": (torch.int16, -2 ** 15, 2 ** 15 - 1), "i32": (torch.int32, -2 ** 31, 2 ** 31 - 1),
             "u8": (torch.uint8, 0, 255), "i64": (torch.int64, -2 ** 63, 2 ** 63 - 1)}
    values = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.9375, 126.5, 127.5, -128.5, 300.0, -300.0, 70000.0, -70000.0, 1e10, -1e10, 1e30, -1e30, INF, -INF, NAN]
    values = [float(np.float32(v)) for v in values]
    for name, (dtype, low, high) in kinds.items():
        # truncates and saturates, NaN gives 0 (PyTorch: undefined)
        whole = [0 if math.isnan(v) else max(low, min(high, int(v) if math.isfinite(v) else (high if v > 0 else low))) for v in values]
        f.case("cast", [t(values)], None, "to=" + name, outs=[t(whole, dtype)], grad=False)
    f.case("cast", [t(values)], lambda x: x != 0, "to=bool", grad=False)
    # integers wrap
    for name, (dtype, low, high) in kinds.items():
        f.case("cast", [t([0, 1, -1, 127, 128, 255, 256, -129, 65535, 2 ** 31, -2 ** 31 - 1], torch.int64)], lambda x: x.to(dtype), "to=" + name, grad=False)
    f.case("cast", [t([0, 1, -3], torch.int32)], lambda x: x != 0, "to=bool", grad=False)
    f.case("cast", [t([True, False], torch.bool)], lambda x: x.to(torch.float32), "to=f32", grad=False)
    # halves: to nearest, ties to even
    halves = [1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 65504.0, 65519.0, 65520.0, 2.0 ** -24, 2.0 ** -25, 3 * 2.0 ** -25, 1e-8, NAN, INF, -INF, -0.0]
    f.case("cast", [t([float(np.float32(v)) for v in halves])], lambda x: x.to(torch.float16), "to=f16", grad=False)
    halves = [1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 3.3895e38, 1e-39, NAN, INF, -0.0, 0.1]
    f.case("cast", [t([float(np.float32(v)) for v in halves])], lambda x: x.to(torch.bfloat16), "to=bf16", grad=False)
    f.case("cast", [rnd(3, 4)], lambda x: x.to(torch.float16).to(torch.float16), "to=f16", grad=False)


def write(folder):
    families = []
    for name, fn, about in (("making", making, "Tensors made from nothing or like others."), ("cast", casts, "Casts.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
