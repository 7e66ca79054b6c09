"""Attention: PyTorch's fused op, its multi-head attention, and formulas for rope and alibi."""
import math

import torch
import torch.nn.functional as F

from refs import INF, Family, bools, ints, rnd, t


def attend(q, k, v, mask=None, scale=None, causal=False, bottom_right=False):
    """The formula, with a softmax that gives zeros where nothing takes part (PyTorch's own versions differ in that)."""
    heads, kv = (q.shape[-3], k.shape[-3]) if q.dim() > 2 else (1, 1)
    if heads != kv:
        k, v = (x.repeat_interleave(heads // kv, dim=-3) for x in (k, v))
    s = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    tq, tk = s.shape[-2:]
    keep = torch.ones(s.shape, dtype=torch.bool)
    if mask is not None and mask.dtype == torch.bool:
        keep = keep & mask
    elif mask is not None:
        s = s + mask
    if causal:
        keep = keep & torch.ones(tq, tk, dtype=torch.bool).tril(tk - tq if bottom_right else 0)
    empty = ~keep.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(~keep & ~empty, -INF), -1).masked_fill(empty, 0.0)
    return p @ v


def sdpa(f):
    def given(inputs):
        return inputs + [None] * (4 - len(inputs))

    name, fused = "scaled_dot_product_attention", F.scaled_dot_product_attention
    q, k, v = rnd(2, 2, 4, 3), rnd(2, 2, 5, 3), rnd(2, 2, 5, 2)
    f.case(name, given([q, k, v]), fused)
    f.case(name, given([q, k, v]), lambda a, b, c, _: fused(a, b, c, scale=0.25), "scale=0.25")
    f.case(name, given([q, k, v]), lambda a, b, c, _: fused(a, b, c, is_causal=True), "causal=true")
    f.case(name, given([q, k, v]), lambda a, b, c, _: attend(a, b, c, causal=True, bottom_right=True), "causal=true bottom_right=true")
    f.case(name, given([k, q, rnd(2, 2, 4, 2)]), lambda a, b, c, _: attend(a, b, c, causal=True, bottom_right=True), "causal=true bottom_right=true")
    f.case(name, given([rnd(3, 4), rnd(6, 4), rnd(6, 5)]), lambda a, b, c, _: fused(a[None], b[None], c[None])[0])
    f.case(name, given([rnd(2, 1, 2, 3, 2), rnd(2, 1, 2, 4, 2), rnd(2, 1, 2, 4, 2)]), lambda a, b, c, _: attend(a, b, c))
    mask = bools(4, 5)
    mask[:, 0] = True
    f.case(name, given([q, k, v, mask]), lambda a, b, c, m: fused(a, b, c, attn_mask=m))
    f.case(name, given([q, k, v, rnd(2, 1, 4, 5)]), lambda a, b, c, m: fused(a, b, c, attn_mask=m))
    f.case(name, given([q, k, v, rnd(5)]), lambda a, b, c, m: fused(a, b, c, attn_mask=m.expand(4, 5)))
    mask[2] = False
    f.case(name, given([q, k, v, mask]), lambda a, b, c, m: attend(a, b, c, m))
    f.case(name, given([q, k, v, mask]), lambda a, b, c, m: attend(a, b, c, m, causal=True, scale=-0.5), "causal=true scale=-0.5")
    many, few = rnd(2, 6, 4, 3), rnd(2, 2, 5, 3)
    f.case(name, given([many, few, rnd(2, 2, 5, 2)]), lambda a, b, c, _: fused(a, b, c, enable_gqa=True))
    f.case(name, given([many, few, rnd(2, 2, 5, 2), rnd(6, 4, 5)]), lambda a, b, c, m: attend(a, b, c, m, causal=True), "causal=true")
    f.case(name, given([rnd(1, 1, 17, 3), rnd(1, 1, 34, 3), rnd(1, 1, 34, 2)]), fused)
    f.case(name, given([q, k, v, t([[0.0] * 4 + [-INF]] * 4)]), lambda a, b, c, m: fused(a, b, c, attn_mask=m), grad=False)
    f.error(name, given([q, k, v[:, :, :4].contiguous()]), "SHAPE")
    f.error(name, given([q, rnd(2, 2, 5, 4), v]), "SHAPE")
    f.error(name, given([rnd(2, 3, 4, 3), k, v]), "SHAPE")
    f.error(name, given([q, k, v, rnd(4, 4)]), "SHAPE")
    f.error(name, given([q, k, v, ints(4, 5)]), "DTYPE")
    f.error(name, given([q, k, v]), "VALUE", "bottom_right=true")
    f.error(name, given([q, k, v]), "VALUE", "dropout=1.5")


def multi_head(f):
    name, e, heads = "multi_head_attention", 6, 2

    def torch_mha(q, k, v, wq, wk, wv, wo, bq=None, bk=None, bv=None, bo=None, mask=None, causal=False):
        biases = [torch.zeros(e) if b is None else b for b in (bq, bk, bv)]
        m = None if mask is None else ~mask if mask.dtype == torch.bool else mask
        if causal:
            m = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1)
        y, _ = F.multi_head_attention_forward(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), e, heads, None, torch.cat(biases), None, None,
                                              False, 0.0, wo, bo, need_weights=False, attn_mask=m, use_separate_proj_weight=True,
                                              q_proj_weight=wq, k_proj_weight=wk, v_proj_weight=wv)
        return y.transpose(0, 1)

    def given(inputs):
        return inputs + [None] * (12 - len(inputs))

    x, memory = rnd(2, 4, e, low=-1, high=1), rnd(2, 5, e, low=-1, high=1)
    w = [rnd(e, e, low=-0.5, high=0.5) for _ in range(4)]
    b = [rnd(e, low=-0.5, high=0.5) for _ in range(4)]
    f.case(name, given([x, memory, memory] + w + b), torch_mha, "heads=2")
    f.case(name, given([x, x, x] + w), torch_mha, "heads=2")
    f.case(name, given([x, x, x] + w), lambda *a: torch_mha(*a, causal=True), "heads=2 causal=true")
    mask = bools(4, 5)
    mask[:, 1] = True
    f.case(name, given([x, memory, memory] + w + b + [mask]), torch_mha, "heads=2")
    f.case(name, given([x, memory, memory] + w + b + [rnd(4, 5)]), torch_mha, "heads=2")
    f.error(name, given([x, memory, memory] + w), "SHAPE", "heads=4")
    f.error(name, given([x, memory, memory] + w), "VALUE", "heads=0")
    f.error(name, given([x, memory, memory] + w + [rnd(5)]), "SHAPE", "heads=2")


def rotate(x, positions, base=10000.0, dims=None, interleaved=False):
    """As complex numbers: each pair times e^(i p w)."""
    d = dims or x.shape[-1]
    a, rest = x[..., :d], x[..., d:]
    w = positions.to(torch.float64)[:, None] * base ** (-2 * torch.arange(d // 2) / d)
    z = torch.view_as_complex(a.reshape(*a.shape[:-1], d // 2, 2)) if interleaved else torch.complex(a[..., :d // 2], a[..., d // 2:])
    z = z * torch.polar(torch.ones_like(w), w)
    y = torch.view_as_real(z).flatten(-2) if interleaved else torch.cat([z.real, z.imag], -1)
    return torch.cat([y, rest], -1)


def positions(f):
    x = rnd(2, 5, 8)
    at = torch.arange(5)
    f.case("rope", [x, None], lambda a, p: rotate(a, at))
    f.case("rope", [x, None], lambda a, p: rotate(a, at + 1000), "offset=1000")
    f.case("rope", [x, None], lambda a, p: rotate(a, at, interleaved=True), "interleaved=true")
    f.case("rope", [x, None], lambda a, p: rotate(a, at, 100.0, 4), "base=100 dims=4")
    f.case("rope", [x, None], lambda a, p: rotate(a, at, 100.0, 6, True), "base=100 dims=6 interleaved=true")
    f.case("rope", [x, None], lambda a, p: rotate(a, -at), "inverse=true")
    f.case("rope", [x, t([7, 0, 3, 3, 90], torch.int64)], rotate)
    f.error("rope", [rnd(3, 5), None], "VALUE")
    f.error("rope", [rnd(4), None], "SHAPE")
    f.error("rope", [rnd(3, 4), ints(4)], "SHAPE")
    f.error("rope", [rnd(3, 4), None], "VALUE", "dims=6")
    f.error("rope", [rnd(3, 4), None], "VALUE", "base=-1")

    def slopes(n):
        if math.log2(n).is_integer():
            return [2.0 ** (-(2.0 ** -(math.log2(n) - 3)) * (i + 1)) for i in range(n)]
        m = 2 ** math.floor(math.log2(n))
        return slopes(m) + slopes(2 * m)[0::2][:n - m]

    for n in (1, 4, 8, 6, 12):
        f.case("alibi_slopes", [], None, "heads=%d" % n, outs=[t(slopes(n)).float()], grad=False)
    bias = -t(slopes(6))[:, None, None] * (torch.arange(3)[:, None] + 2 - torch.arange(5)).abs()
    f.case("alibi", [], None, "heads=6 queries=3 keys=5", outs=[bias.float()], grad=False)
    f.error("alibi", [], "VALUE", "heads=0 queries=2")
    f.error("alibi_slopes", [], "VALUE", "heads=0")


def write(folder):
    families = []
    for name, fn, about in (("attention", sdpa, "Scaled dot-product attention."), ("attention_heads", multi_head, "Attention with several heads."),
                            ("attention_positions", positions, "rope and alibi.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
