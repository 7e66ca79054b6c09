"""Section G of the op list: pooling, and windows as columns."""
import torch
import torch.nn.functional as F

from refs import INF, NAN, Family, distinct, ints, rnd, t

I = torch.int64


def both_layouts(f, op, x, fn, attrs, grad=True, more=()):
    """The case with channels first, and the same with channels last."""
    f.case(op, [x, *more], fn, attrs, grad)

    def last(u, *rest):
        y = fn(u.movedim(-1, 1), *[r.movedim(-1, 1) for r in rest])
        return tuple(v.movedim(1, -1).contiguous() for v in y) if isinstance(y, tuple) else y.movedim(1, -1).contiguous()

    turned = [v.movedim(1, -1).contiguous() for v in (x, *more)]
    f.case(op, turned, last, (attrs + " channels_last=true").strip(), grad)


def maxima(f):
    pools = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
    shapes = {1: (2, 2, 9), 2: (2, 2, 5, 6), 3: (1, 2, 4, 4, 5)}
    options = [("kernel=2", dict(kernel_size=2)), ("kernel=3 stride=2 pad=1", dict(kernel_size=3, stride=2, padding=1)),
               ("kernel=3 stride=1 dilation=2 pad=1", dict(kernel_size=2, stride=1, dilation=2, padding=1)),
               ("kernel=2 stride=3 ceil_mode=true", dict(kernel_size=2, stride=3, ceil_mode=True)),
               ("kernel=3 stride=2 pad=1 ceil_mode=true", dict(kernel_size=3, stride=2, padding=1, ceil_mode=True))]
    options[2] = ("kernel=2 stride=1 dilation=2 pad=1", options[2][1])
    for n in (1, 2, 3):
        for attrs, how in options:
            both_layouts(f, "max_pool%dd" % n, distinct(*shapes[n]), lambda u: pools[n](u, return_indices=True, **how), attrs)
    both_layouts(f, "max_pool2d", distinct(2, 2, 6, 7), lambda u: F.max_pool2d(u, (3, 2), (1, 2), (1, 0), (1, 2), return_indices=True),
                 "kernel=3,2 strides=1,2 pads=1,0 dilations=1,2")
    # ties take the first, NaN wins (one a window: PyTorch takes the last of several), and padding never does
    f.case("max_pool2d", [torch.ones(1, 2, 4, 4)], lambda u: F.max_pool2d(u, 3, 1, 1, return_indices=True), "kernel=3 stride=1 pad=1")
    f.case("max_pool2d", [torch.full((1, 1, 3, 4), -INF)], lambda u: F.max_pool2d(u, 3, 2, 1, return_indices=True), "kernel=3 stride=2 pad=1", grad=False)
    x = distinct(2, 2, 4, 6)
    x[0, 1, 1, 2] = NAN
    x[1, 0, 3, 5] = NAN
    both_layouts(f, "max_pool2d", x, lambda u: F.max_pool2d(u, 2, return_indices=True), "kernel=2", grad=False)
    both_layouts(f, "max_pool2d", x, lambda u: F.max_pool2d(u, 3, 2, 1, return_indices=True), "kernel=3 stride=2 pad=1", grad=False)
    f.error("max_pool2d", [x], "VALUE", "kernel=2 pad=2")
    f.error("max_pool2d", [x], "VALUE", "kernel=2,2,2")
    f.error("max_pool2d", [x], "SHAPE", "kernel=9")
    f.error("max_pool1d", [x], "SHAPE", "kernel=2")
    for n, shape, size in ((1, (2, 2, 7), 3), (1, (2, 2, 6), 3), (2, (2, 2, 5, 6), (3, 4)), (2, (2, 2, 3, 4), 1), (2, (1, 2, 3, 2), (5, 4)),
                           (3, (1, 2, 3, 4, 5), (2, 3, 2)), (3, (1, 2, 4, 4, 4), 2)):
        fn = getattr(F, "adaptive_max_pool%dd" % n)
        text = ",".join(map(str, size)) if isinstance(size, tuple) else str(size)
        both_layouts(f, "adaptive_max_pool%dd" % n, distinct(*shape), lambda u: fn(u, size, return_indices=True), "output_size=" + text)
    for n, shape, attrs, how in ((1, (2, 3, 8), "kernel=2", dict(kernel_size=2)), (2, (2, 3, 6, 8), "kernel=2", dict(kernel_size=2)),
                                 (2, (2, 2, 7, 7), "kernel=3 stride=2 output_size=7,7", dict(kernel_size=3, stride=2)),
                                 (3, (1, 2, 4, 4, 6), "kernel=2", dict(kernel_size=2))):
        x = distinct(*shape)
        y, i = getattr(F, "max_pool%dd" % n)(x, return_indices=True, **how)
        if "output_size" in attrs:  # windows that do not overlap, so that no place is named twice
            i = torch.randperm(49)[:9].reshape(1, 1, 3, 3).expand(2, 2, 3, 3).contiguous()
            how = dict(how, output_size=(7, 7))
        both_layouts(f, "max_unpool%dd" % n, y.clone(), lambda u, k: getattr(F, "max_unpool%dd" % n)(u, k, **how), attrs, more=(i,))
    f.error("max_unpool1d", [rnd(1, 1, 2), t([[[0, 4]]], I)], "INDEX", "kernel=2")
    f.error("max_unpool1d", [rnd(1, 1, 2), t([[[0, 1]]], I)], "VALUE", "kernel=2 output_size=9")


def means(f):
    shapes = {1: (2, 2, 9), 2: (2, 2, 5, 6), 3: (1, 2, 4, 4, 5)}
    options = [("kernel=2", dict(kernel_size=2)), ("kernel=3 stride=2 pad=1", dict(kernel_size=3, stride=2, padding=1)),
               ("kernel=3 stride=2 pad=1 exclude_pad=true", dict(kernel_size=3, stride=2, padding=1, count_include_pad=False)),
               ("kernel=3 stride=2 pad=1 ceil_mode=true", dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)),
               ("kernel=2 stride=3 ceil_mode=true exclude_pad=true", dict(kernel_size=2, stride=3, ceil_mode=True, count_include_pad=False))]
    for n in (1, 2, 3):
        fn = getattr(F, "avg_pool%dd" % n)
        for attrs, how in options:
            both_layouts(f, "avg_pool%dd" % n, rnd(*shapes[n]), lambda u: fn(u, **how), attrs)
    both_layouts(f, "avg_pool2d", rnd(2, 3, 6, 7), lambda u: F.avg_pool2d(u, (3, 2), (1, 2), (1, 0), divisor_override=5), "kernel=3,2 strides=1,2 pads=1,0 divisor_override=5")
    for n, shape, size in ((1, (2, 2, 7), 3), (2, (2, 2, 5, 6), (3, 4)), (2, (2, 2, 4, 6), 2), (2, (2, 2, 5, 5), 1), (2, (1, 2, 3, 2), (5, 4)),
                           (3, (1, 2, 3, 4, 5), (2, 3, 2)), (3, (1, 2, 4, 4, 4), 1)):
        fn = getattr(F, "adaptive_avg_pool%dd" % n)
        text = ",".join(map(str, size)) if isinstance(size, tuple) else str(size)
        both_layouts(f, "adaptive_avg_pool%dd" % n, rnd(*shape), lambda u: fn(u, size), "output_size=" + text)
    for n, p, attrs, how in ((1, 2, "kernel=3 stride=2", dict(kernel_size=3, stride=2)), (2, 3, "kernel=2", dict(kernel_size=2)),
                             (2, 1.5, "kernel=3 stride=2 ceil_mode=true", dict(kernel_size=3, stride=2, ceil_mode=True)), (3, 2, "kernel=2", dict(kernel_size=2))):
        fn = getattr(F, "lp_pool%dd" % n)
        both_layouts(f, "lp_pool%dd" % n, rnd(*shapes[n], low=0.25, high=2), lambda u: fn(u, p, **how), "p=%s %s" % (p, attrs))


def columns(f):
    for attrs, how in (("kernel=2", dict(kernel_size=2)), ("kernel=3,2 stride=2 pad=1", dict(kernel_size=(3, 2), stride=2, padding=1)),
                       ("kernel=2 dilations=2,1 pads=1,0", dict(kernel_size=2, dilation=(2, 1), padding=(1, 0)))):
        x = rnd(2, 3, 5, 6)
        f.case("im2col", [x], lambda u: F.unfold(u, **how), attrs)
        y = rnd(*F.unfold(x, **how).shape)
        f.case("col2im", [y], lambda u: F.fold(u, (5, 6), **how), "output_size=5,6 " + attrs)
    f.error("col2im", [rnd(2, 7, 9)], "SHAPE", "output_size=4,4 kernel=2")


def write(folder):
    for name, about, cases in (("max_pool", "Max pooling.", maxima), ("avg_pool", "Average pooling.", means), ("columns", "Windows as columns.", columns)):
        f = Family(folder, name, about)
        cases(f)
        yield name, f.close()
