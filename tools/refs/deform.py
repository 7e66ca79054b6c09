"""Section F of the op list: deformable convolution, from torchvision."""
import torch
from torchvision.ops import deform_conv2d

from refs import Family, rnd


def write(folder):
    f = Family(folder, "deform", "Deformable convolution.")
    for n, c, h, w, out, kh, kw, stride, pad, dilation, groups, moving, biased, masked in (
            (2, 2, 4, 5, 3, 2, 2, 1, 0, 1, 1, 1, False, False), (1, 4, 5, 5, 4, 3, 3, 2, 1, 1, 2, 2, True, True),
            (2, 4, 4, 5, 2, 3, 2, (1, 2), (2, 1), (2, 1), 1, 4, True, False), (1, 6, 3, 4, 6, 1, 2, 1, (0, 1), 1, 3, 2, False, True)):
        pair = lambda v: v if isinstance(v, tuple) else (v, v)
        s, p, d = pair(stride), pair(pad), pair(dilation)
        ho, wo = (h + 2 * p[0] - d[0] * (kh - 1) - 1) // s[0] + 1, (w + 2 * p[1] - d[1] * (kw - 1) - 1) // s[1] + 1
        x, weight = rnd(n, c, h, w), rnd(out, c // groups, kh, kw)
        # places away from the borders between cells, inside and outside of x
        offset = rnd(n, 2 * moving * kh * kw, ho, wo, low=-3, high=3).floor() + rnd(n, 2 * moving * kh * kw, ho, wo, low=0.125, high=0.875)
        bias, mask = rnd(out) if biased else None, rnd(n, moving * kh * kw, ho, wo, low=0, high=1) if masked else None
        attrs = "strides=%d,%d pads=%d,%d dilations=%d,%d groups=%d offset_groups=%d" % (*s, *p, *d, groups, moving)

        def first(u, o, k, *rest):
            rest = list(rest)
            b = rest.pop(0) if rest else None
            m = rest.pop(0) if rest else None
            return deform_conv2d(u, o, k, b, s, p, d, m)

        f.case("deform_conv2d", [x, offset, weight, bias, mask], first, attrs)

        def last(u, o, k, b, m):
            turn = lambda v: None if v is None else v.movedim(-1, 1)
            return first(turn(u), turn(o), k.permute(3, 2, 0, 1), b, turn(m)).movedim(1, -1).contiguous()

        turned = [None if v is None else v.movedim(1, -1).contiguous() for v in (x, offset, mask)]
        f.case("deform_conv2d", [turned[0], turned[1], weight.permute(2, 3, 1, 0).contiguous(), bias, turned[2]], last, attrs + " channels_last=true")
    f.error("deform_conv2d", [rnd(1, 2, 4, 4), rnd(1, 9, 3, 3), rnd(2, 2, 2, 2), None, None], "SHAPE")
    f.error("deform_conv2d", [rnd(1, 2, 4, 4), rnd(1, 8, 3, 3), rnd(2, 2, 2, 2), rnd(3), None], "SHAPE")
    f.error("deform_conv2d", [rnd(1, 3, 4, 4), rnd(1, 8, 3, 3), rnd(2, 1, 2, 2), None, None], "SHAPE", "groups=2")
    yield "deform", f.close()
