"""Section C of the op list: reductions, scans, order."""
import torch

from refs import INF, NAN, Family, bools, distinct, ints, rnd, t


def axes_of(axes):
    return "axes=" + ",".join(str(a) for a in axes)


def reductions(f):
    x = rnd(3, 4, 5)
    choices = [(), (1,), (-1,), (0, 2), (-3, -1), (0, 1, 2)]

    def over(fn, axes, keepdim, v):
        return fn(v, list(axes) if axes else list(range(v.dim())), keepdim)

    sums = dict(sum=lambda v, a, k: v.sum(a, k), mean=lambda v, a, k: v.mean(a, k), var=lambda v, a, k: v.var(a, keepdim=k),
                std=lambda v, a, k: v.std(a, keepdim=k), amax=lambda v, a, k: v.amax(a, k), amin=lambda v, a, k: v.amin(a, k),
                norm=lambda v, a, k: torch.linalg.vector_norm(v, 2, a, k), logsumexp=lambda v, a, k: v.logsumexp(a, k))
    for name, fn in sums.items():
        if name == "logsumexp":
            continue  # one axis: below
        v = distinct(3, 4, 5) if name in ("amax", "amin") else x
        for axes in choices:
            for keep in (False, True):
                attrs = (axes_of(axes) if axes else "") + (" keepdim=true" if keep else "")
                f.case(name, [v], lambda u: over(fn, axes, keep, u), attrs.strip())
        f.case(name, [rnd(1)], lambda u: over(fn, (), False, u)) if name not in ("var", "std") else None
        f.case(name, [rnd()], lambda u: u + 0 if name not in ("norm",) else u.abs()) if name in ("sum", "mean", "amax", "amin", "norm") else None
    for c in (0, 1, 2):
        f.case("var", [x], lambda u: u.var((0, 2), correction=c), "axes=0,2 correction=%d" % c)
        f.case("std", [x], lambda u: u.std((1,), correction=c), "axes=1 correction=%d" % c)
    f.case("std", [t([3.0])], lambda u: u.std(0, correction=1), "axes=0", grad=False)  # NaN
    f.case("var", [t([3.0])], lambda u: u.var(0, correction=0), "axes=0 correction=0")
    # stable for large offsets
    f.case("var", [rnd(50) + 4096], lambda u: u.var(0), "axes=0")
    f.case("std", [rnd(50) + 4096], lambda u: u.std(0), "axes=0")
    for p in (1, 2, 3, 0, INF, -INF, 0.5):
        v = (distinct(3, 7) + 2) * t([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0])  # no |x| twice
        f.case("norm", [v], lambda u: torch.linalg.vector_norm(u, p, 1), "p=%s axes=1" % p)
    f.case("norm", [t([[0.0, 0.0], [3.0, 4.0]])], lambda u: torch.linalg.vector_norm(u, 2, 1), "axes=1")  # norm'(0) = 0
    # prod, right with zeros
    for v in (x[:, :2, 0], t([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 4.0]])):
        f.case("prod", [v], lambda u: u.prod(1), "axes=1")
        f.case("prod", [v], lambda u: u.prod())
        f.case("prod", [v], lambda u: u.prod(0, True), "axes=0 keepdim=true")
    # ties: the first winner in row-major order gets the gradient (PyTorch shares it)
    first = t([[1.0, 3.0, 3.0], [3.0, 0.0, 0.0]])
    f.case("amax", [first], lambda u: u.amax(1), "axes=1", grads=lambda i, c: [t([[0.0, 1, 0], [1.0, 0, 0]]) * c[0][:, None]])
    f.case("amax", [first], lambda u: u.amax(), grads=lambda i, c: [t([[0.0, 1, 0], [0.0, 0, 0]]) * c[0]])
    f.case("amin", [first], lambda u: u.amin(), grads=lambda i, c: [t([[0.0, 0, 0], [0.0, 1, 0]]) * c[0]])
    nans = t([[1.0, NAN, 3.0], [NAN, NAN, 0.0], [1.0, 2.0, -INF]])
    for name in ("sum", "mean", "amax", "amin"):
        f.case(name, [nans], lambda u: getattr(torch, name)(u, 1), "axes=1", grad=False)
    f.case("prod", [nans], lambda u: u.prod(1), "axes=1", grad=False)
    # nothing
    f.case("sum", [torch.zeros(0, 3)], lambda u: u.sum(0), "axes=0")
    f.case("sum", [torch.zeros(2, 0)], lambda u: u.sum())
    f.case("prod", [torch.zeros(2, 0)], lambda u: u.prod(1), "axes=1")
    f.case("mean", [torch.zeros(2, 0)], lambda u: u.mean(1), "axes=1")
    f.case("sum", [torch.zeros(2, 0)], lambda u: u.sum(0), "axes=0")
    f.case("amax", [torch.zeros(2, 0)], lambda u: u.amax(0), "axes=0")
    for name in ("amax", "amin"):
        f.error(name, [torch.zeros(2, 0)], "SHAPE", "axes=1")
    f.error("sum", [x], "SHAPE", "axes=3")
    f.error("sum", [x], "SHAPE", "axes=1,-2")
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool):
        v = bools(2, 9) if dtype == torch.bool else ints(2, 9, low=0 if dtype == torch.uint8 else -9, high=9, dtype=dtype)
        f.case("sum", [v], lambda u: u.sum(1), "axes=1", grad=False)
        f.case("prod", [v], lambda u: u.prod(1), "axes=1", grad=False)
        f.case("mean", [v], lambda u: u.to(torch.float32).mean(1), "axes=1", grad=False)
        f.case("amax", [v], lambda u: u.amax(1), "axes=1", grad=False)
        f.case("amin", [v], lambda u: u.amin(1), "axes=1", grad=False)
        f.case("any", [v], lambda u: u.to(torch.bool).any(1), "axes=1", grad=False)
        f.case("all", [v], lambda u: u.to(torch.bool).all(1), "axes=1", grad=False)
        f.case("count_nonzero", [v], lambda u: u.count_nonzero(1), "axes=1", grad=False)
    f.case("sum", [torch.full((3, 100), 127, dtype=torch.int8)], lambda u: u.sum(1), "axes=1", grad=False)
    v = t([[0.0, NAN, 0.0], [0.0, -0.0, 0.0], [1.0, 2.0, NAN]])
    for name, fn in dict(any=lambda u: u.any(1), all=lambda u: u.all(1), count_nonzero=lambda u: u.count_nonzero(1)).items():
        f.case(name, [v], fn, "axes=1", grad=False)
    f.case("any", [torch.zeros(2, 0)], lambda u: u.any(1), "axes=1", grad=False)
    f.case("all", [torch.zeros(2, 0)], lambda u: u.all(1), "axes=1", grad=False)


def extrema(f):
    x = distinct(3, 5, 4)
    for name in ("max", "min"):
        fn = getattr(torch, name)
        for axis in (0, 1, -1):
            f.case(name, [x], lambda u: tuple(fn(u, axis)), "axis=%d" % axis)
        f.case(name, [x], lambda u: tuple(fn(u, 1, True)), "axis=1 keepdim=true")
        f.case(name, [t([[1.0, NAN, 3.0, NAN], [2.0, 5.0, -INF, INF]])], lambda u: tuple(fn(u, 1)), "axis=1", grad=False)
        f.case(name, [rnd()], lambda u: tuple(fn(u, 0)), "axis=0")
        f.case(name, [ints(3, 6)], lambda u: (fn(u, 1)[0], None), "axis=1", grad=False)
        f.error(name, [torch.zeros(2, 0)], "SHAPE", "axis=1")
        f.error(name, [x], "SHAPE", "axis=3")
        arg = getattr(torch, "arg" + name)
        f.case("arg" + name, [x], lambda u: arg(u), grad=False)
        f.case("arg" + name, [x], lambda u: arg(u, 1), "axis=1", grad=False)
        f.case("arg" + name, [x], lambda u: arg(u, -1, True), "axis=-1 keepdim=true", grad=False)
        f.case("arg" + name, [t([[1.0, NAN, 3.0, NAN], [2.0, 5.0, 5.0, 2.0]])], None, "axis=1", outs=[t([1, 1] if name == "max" else [1, 0], torch.int64)], grad=False)
        f.error("arg" + name, [torch.zeros(0)], "SHAPE")
    # ties: the first
    ties = t([[2.0, 1.0, 2.0], [0.0, 0.0, -1.0]])
    f.case("max", [ties], None, "axis=1", outs=[t([2.0, 0.0]), t([0, 0], torch.int64)], grads=lambda i, c: [t([[1.0, 0, 0], [1.0, 0, 0]]) * c[0][:, None]])
    f.case("min", [ties], None, "axis=1", outs=[t([1.0, -1.0]), t([1, 2], torch.int64)], grads=lambda i, c: [t([[0.0, 1, 0], [0.0, 0, 1]]) * c[0][:, None]])


def scans(f):
    x = rnd(3, 5)
    for axis in (0, 1, -1):
        f.case("cumsum", [x], lambda u: u.cumsum(axis), "axis=%d" % axis)
        f.case("cumprod", [x], lambda u: u.cumprod(axis), "axis=%d" % axis)
        f.case("logcumsumexp", [x], lambda u: u.logcumsumexp(axis), "axis=%d" % axis)
        f.case("cummax", [distinct(3, 5)], lambda u: tuple(u.cummax(axis)), "axis=%d" % axis)
        f.case("cummin", [distinct(3, 5)], lambda u: tuple(u.cummin(axis)), "axis=%d" % axis)
    f.case("cumprod", [t([[2.0, 0.0, 3.0, 4.0], [0.0, 5.0, 0.0, 2.0]])], lambda u: u.cumprod(1), "axis=1")
    f.case("cumsum", [t([1.0, NAN, 2.0])], lambda u: u.cumsum(0), "axis=0", grad=False)
    f.case("cummax", [t([1.0, NAN, 2.0, 5.0])], lambda u: (u.cummax(0)[0], None), "axis=0", grad=False)
    f.case("cummin", [t([1.0, 3.0, NAN, 0.0])], lambda u: (u.cummin(0)[0], None), "axis=0", grad=False)
    f.case("logcumsumexp", [t([-INF, -INF, 0.0, 700.0, 710.0, -5.0])], lambda u: u.logcumsumexp(0), "axis=0", grad=False)
    f.case("cumsum", [torch.zeros(2, 0)], lambda u: u.cumsum(1), "axis=1")
    f.case("cumsum", [rnd()], lambda u: u.cumsum(0), "axis=0")
    for dtype in (torch.int8, torch.bool, torch.uint8):
        v = bools(2, 6) if dtype == torch.bool else ints(2, 6, low=0, high=100, dtype=dtype)
        f.case("cumsum", [v], lambda u: u.cumsum(1), "axis=1", grad=False)
        f.case("cumprod", [v], lambda u: u.cumprod(1), "axis=1", grad=False)
    f.error("cumsum", [x], "SHAPE", "axis=2")


def softmaxes(f):
    x = rnd(3, 4, 5, low=-4, high=4)
    for axis in (0, 1, -1):
        f.case("softmax", [x], lambda u: u.softmax(axis), "axis=%d" % axis)
        f.case("log_softmax", [x], lambda u: u.log_softmax(axis), "axis=%d" % axis)
    for name in ("softmax", "log_softmax"):
        fn = getattr(torch, name)
        f.case(name, [t([[1000.0, 0.0, -1000.0], [-INF, 0.0, 1.0], [INF, 0.0, 1.0], [-INF, -INF, -INF], [NAN, 0.0, 0.0]])],
               lambda u: fn(u, 1), "axis=1", grad=False)
        f.case(name, [torch.zeros(0, 3)], lambda u: fn(u, 1), "axis=1")
        f.case(name, [torch.zeros(3, 0)], lambda u: fn(u, 1), "axis=1")
        f.case(name, [rnd()], lambda u: fn(u, 0), "axis=0")
        f.error(name, [x], "SHAPE", "axis=3")


def write(folder):
    families = []
    for name, fn, about in (("reduction", reductions, "Reductions over lists of axes."), ("extremum", extrema, "max, min and their places."),
                            ("scan", scans, "Scans along an axis."), ("softmax", softmaxes, "softmax and log_softmax.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
