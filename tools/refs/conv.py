"""Section F of the op list: convolutions, in both layouts."""
import torch

from refs import Family, rnd

F = torch.nn.functional
ACTS = dict(none=lambda y: y, relu=torch.relu, sigmoid=torch.sigmoid, tanh=torch.tanh, gelu=F.gelu, silu=F.silu)


def image_last(x):
    """[N,C,...] to [N,...,C]."""
    return x.movedim(1, -1)


def image_first(x):
    return x.movedim(-1, 1)


def weight_last(w):
    """[out,in,k...] to [k...,in,out]."""
    return w.permute(*range(2, w.dim()), 1, 0)


def weight_first(w):
    return w.permute(w.dim() - 1, w.dim() - 2, *range(w.dim() - 2))


def text(values):
    return ",".join(str(v) for v in values)


def both(f, op, x, w, b, r, fn, attrs):
    """The case in channels first and last; fn takes and gives channels first. r: the residual, or None."""
    f.case(op, [x, w, b, r], fn, attrs)
    last = [image_last(x).contiguous(), weight_last(w).contiguous(), b, None if r is None else image_last(r).contiguous()]
    f.case(op, last, lambda x, w, b, r: image_last(fn(image_first(x), weight_first(w), b, None if r is None else image_first(r))),
           attrs + " channels_last=true")


def conv(rank, pads, **options):
    def fn(x, w, b, r):
        flat = [v for before, after in reversed(pads) for v in (before, after)]
        y = (F.conv1d, F.conv2d, F.conv3d)[rank - 1](F.pad(x, flat), w, b, options["stride"], 0, options["dilation"], options["groups"])
        return ACTS[options["activation"]](y if r is None else y + r)
    return fn


def same_pads(sizes, kernel, stride, dilation):
    pads = []
    for n, k, s, d in zip(sizes, kernel, stride, dilation):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return pads


def forward(f):
    table = [  # rank, x, out, kernel, stride, dilation, groups, pads (None: same), bias, residual, activation
        (1, (2, 4, 9), 6, (3,), (1,), (1,), 2, ((0, 0),), True, False, "none"),
        (1, (2, 3, 10), 4, (4,), (2,), (1,), 1, ((2, 1),), True, True, "relu"),
        (1, (1, 4, 8), 4, (3,), (3,), (2,), 4, None, False, False, "gelu"),
        (1, (2, 5, 7), 3, (2,), (1,), (3,), 1, ((0, 3),), True, False, "tanh"),
        (2, (2, 4, 5, 6), 6, (3, 3), (1, 1), (1, 1), 2, ((1, 1), (1, 1)), True, True, "silu"),
        (2, (2, 3, 6, 5), 4, (3, 2), (2, 1), (1, 2), 1, ((1, 0), (2, 1)), True, False, "none"),
        (2, (1, 6, 5, 5), 4, (2, 3), (2, 2), (1, 1), 2, None, True, False, "sigmoid"),
        (2, (2, 5, 4, 3), 7, (1, 1), (1, 1), (1, 1), 1, ((0, 0), (0, 0)), True, True, "relu"),
        (2, (2, 4, 5, 5), 2, (1, 1), (2, 2), (1, 1), 2, ((0, 0), (0, 0)), False, False, "none"),
        (2, (1, 3, 9, 9), 4, (7, 7), (2, 2), (1, 1), 1, ((3, 3), (3, 3)), False, False, "none"),
        (2, (0, 4, 5, 5), 6, (3, 3), (1, 1), (1, 1), 2, ((1, 1), (1, 1)), True, False, "relu"),
        (3, (2, 4, 3, 4, 4), 4, (2, 3, 2), (1, 1, 1), (1, 1, 1), 2, ((0, 1), (1, 1), (0, 0)), True, False, "none"),
        (3, (1, 2, 4, 5, 4), 3, (3, 2, 3), (2, 1, 2), (1, 2, 1), 1, ((1, 1), (0, 2), (1, 0)), True, True, "tanh"),
        (3, (1, 4, 3, 3, 4), 4, (3, 3, 3), (2, 2, 2), (1, 1, 1), 4, None, False, False, "none"),
    ]
    for rank, shape, out, kernel, stride, dilation, groups, pads, bias, residual, activation in table:
        resolved = pads or same_pads(shape[2:], kernel, stride, dilation)
        fn = conv(rank, resolved, stride=stride, dilation=dilation, groups=groups, activation=activation)
        x, w, b = rnd(*shape), rnd(out, shape[1] // groups, *kernel, low=-1, high=1), rnd(out) if bias else None
        r = rnd(*fn(x, w, b, None).shape) if residual else None
        attrs = "strides=%s dilations=%s groups=%d" % (text(stride), text(dilation), groups)
        attrs += " pads=" + text(v for p in pads for v in p) if pads else " pad_mode=same"
        both(f, "conv%dd" % rank, x, w, b, r, fn, attrs + " activation=" + activation)
    # a multiplier of 2: channel c * 2 + j
    for stride, pad, m in ((1, 1, 2), (2, 0, 1), (2, 2, 3)):
        fn = conv(2, ((pad, pad), (pad, pad)), stride=stride, dilation=1, groups=3, activation="none")
        both(f, "depthwise_conv2d", rnd(2, 3, 6, 5), rnd(3 * m, 1, 3, 3), rnd(3 * m), None, fn, "stride=%d pad=%d" % (stride, pad))


def transposed(f):
    table = [  # rank, x, out, kernel, stride, dilation, groups, pad, output_padding
        (1, (2, 4, 5), 6, (3,), (2,), (1,), 2, (1,), (1,)),
        (1, (2, 3, 6), 4, (4,), (1,), (2,), 1, (0,), (1,)),
        (2, (2, 4, 3, 4), 6, (3, 3), (2, 2), (1, 1), 2, (1, 1), (1, 0)),
        (2, (1, 4, 4, 3), 3, (4, 4), (2, 2), (1, 1), 1, (1, 1), (0, 0)),
        (2, (2, 6, 3, 3), 4, (2, 3), (3, 1), (1, 2), 2, (0, 2), (2, 1)),
        (2, (1, 2, 2, 3), 3, (1, 2), (3, 3), (1, 1), 1, (0, 0), (2, 1)),
        (3, (1, 4, 2, 3, 2), 4, (3, 2, 3), (2, 1, 2), (1, 1, 1), 2, (1, 0, 1), (1, 0, 0)),
        (3, (2, 2, 2, 2, 3), 3, (2, 3, 2), (1, 2, 2), (2, 1, 1), 1, (0, 1, 0), (1, 1, 0)),
    ]
    for rank, shape, out, kernel, stride, dilation, groups, pad, more in table:
        call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]

        def fn(x, w, b, r):
            return call(x, w, b, stride, pad, more, groups, dilation)
        attrs = "strides=%s dilations=%s groups=%d pads=%s output_paddings=%s" % (text(stride), text(dilation), groups, text(pad), text(more))
        both(f, "conv_transpose%dd" % rank, rnd(*shape), rnd(shape[1], out // groups, *kernel, low=-1, high=1), rnd(out), None, fn, attrs)
    for activation in ("relu", "gelu"):
        def act(x, w, b, r):
            return ACTS[activation](F.conv_transpose2d(x, w, b, 2, 1) + r)
        both(f, "conv_transpose2d", rnd(1, 2, 3, 3), rnd(2, 3, 3, 3), rnd(3), rnd(1, 3, 5, 5), act, "stride=2 pad=1 activation=" + activation)


def errors(f):
    x, w = rnd(2, 4, 5, 5), rnd(6, 2, 3, 3)
    f.error("conv2d", [x, rnd(6, 3, 3, 3), None, None], "SHAPE", "groups=2")
    f.error("conv2d", [x, w, rnd(4), None], "SHAPE", "groups=2")
    f.error("conv2d", [x, rnd(6, 4, 7, 3), None, None], "SHAPE")
    f.error("conv2d", [x, w, None, None], "VALUE", "groups=2 strides=0,1")
    f.error("conv2d", [x.to(torch.int32), w.to(torch.int32), None, None], "DTYPE", "groups=2")
    f.error("conv1d", [x, w, None, None], "SHAPE")
    f.error("conv_transpose2d", [x, rnd(4, 3, 3, 3), None, None], "VALUE", "stride=2 output_padding=2")


def write(folder):
    for name, about, fill in (("conv", "Convolutions", forward), ("conv_transpose", "Transposed convolutions", transposed),
                              ("conv_errors", "Convolutions that are refused", errors)):
        f = Family(folder, name, about)
        fill(f)
        yield name, f.close()
