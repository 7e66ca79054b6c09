"""Section B of the op list: elementwise ops and activations."""
import numpy as np
import torch
from scipy import special
import torch.nn.functional as F

from refs import INF, NAN, Family, bools, ints, rnd, t

EDGES = t([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 100.0, -100.0])


def trigamma(x):
    """SciPy's zeta gives it for positive numbers; the others by reflection. PyTorch's is right to ten digits only."""
    positive = np.where(x > 0, x, 1 - x)
    value = special.zeta(2, positive)
    return np.where(x > 0, value, (np.pi / np.sin(np.pi * x)) ** 2 - value)


def unary(f):
    anywhere = dict(neg=torch.neg, square=torch.square, exp=torch.exp, exp2=torch.exp2, expm1=torch.expm1, sin=torch.sin,
                    cos=torch.cos, tan=torch.tan, atan=torch.atan, sinh=torch.sinh, cosh=torch.cosh, tanh=torch.tanh,
                    asinh=torch.asinh, erf=torch.erf, erfc=torch.erfc, ndtr=torch.special.ndtr, floor=torch.floor, ceil=torch.ceil,
                    round=torch.round, trunc=torch.trunc, frac=torch.frac, abs=torch.abs, sign=torch.sign,
                    relu=torch.relu, sigmoid=torch.sigmoid)
    positive = dict(sqrt=torch.sqrt, rsqrt=torch.rsqrt, log=torch.log, log2=torch.log2, log10=torch.log10,
                    log1p=torch.log1p, lgamma=torch.lgamma)
    inside = dict(asin=torch.asin, acos=torch.acos, atanh=torch.atanh, erfinv=torch.erfinv)
    for name, fn in anywhere.items():
        f.case(name, [rnd(3, 7)], fn)
        # NaN gradients at infinities are PyTorch's business; values there are compared
        f.case(name, [EDGES], fn if name != "sign" else lambda x: torch.where(x.isnan(), x, x.sign()), grad=False)  # sign(NaN) is NaN
    for name, fn in positive.items():
        f.case(name, [rnd(3, 7, low=0.125, high=4)], fn)
        f.case(name, [t([0.0, INF, NAN, 1.0, 1000.0, 0.5])], fn, grad=False)
    for name, fn in inside.items():
        f.case(name, [rnd(3, 7, low=-0.9, high=0.9)], fn)
        f.case(name, [t([-1.0, 1.0, 0.0, 2.0, -2.0, NAN])], fn, grad=False)
    f.case("acosh", [rnd(3, 7, low=1.25, high=4)], torch.acosh)
    f.case("acosh", [t([1.0, 0.5, INF, NAN])], torch.acosh, grad=False)
    f.case("recip", [rnd(3, 7, low=0.25, high=3)], torch.reciprocal)
    f.case("recip", [t([0.0, -0.0, INF, -INF, NAN])], torch.reciprocal, grad=False)
    # PyTorch has no cbrt: sign(x) |x|^(1/3)
    f.case("cbrt", [rnd(3, 7, low=0.25, high=3)], lambda x: x.pow(1 / 3))
    f.case("cbrt", [t([-8.0, -1.0, 0.0, 27.0, INF, -INF, NAN])], None, outs=[t([-2.0, -1.0, 0.0, 3.0, INF, -INF, NAN])], grad=False)
    f.case("lgamma", [t([-0.5, -1.5, -2.5, 20.0, 170.0])], torch.lgamma)
    for x in (rnd(3, 7, low=0.125, high=4), t([-0.5, -1.5, -2.5, 20.0])):
        f.case("digamma", [x], torch.digamma, grads=lambda i, c: [c[0] * torch.from_numpy(trigamma(i[0].numpy()))])
    f.case("digamma", [t([INF, NAN, 1.0, 1000.0, 0.5])], torch.digamma, grad=False)
    for n in (0, 1, 2, 3):
        # SciPy: PyTorch's polygamma is right to ten digits only
        x = rnd(3, 5, low=0.25, high=4)
        f.case("polygamma", [x], None, "n=%d" % n, outs=[torch.from_numpy(special.polygamma(n, x.numpy()))],
               grads=lambda i, c: [c[0] * torch.from_numpy(special.polygamma(n + 1, i[0].numpy()))])
    for name, fn in dict(isnan=torch.isnan, isinf=torch.isinf, isfinite=torch.isfinite, logical_not=torch.logical_not).items():
        f.case(name, [EDGES], fn, grad=False)
        f.case(name, [ints(7)], fn, grad=False)
    # kinks: relu'(0) = 0, abs'(0) = 0, sqrt'(0) = inf
    f.case("relu", [t([0.0, -0.0, 1.0, -1.0])], torch.relu)
    f.case("abs", [t([0.0, -1.5, 1.5])], torch.abs)
    f.case("sqrt", [t([0.0, 4.0])], torch.sqrt)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        x = t([0, 1, 5, 127] if dtype == torch.uint8 else [0, 1, -5, -128], dtype)
        for name, fn in dict(neg=torch.neg, abs=torch.abs, sign=torch.sign, square=lambda v: v * v, bitwise_not=torch.bitwise_not,
                             floor=lambda v: v, round=lambda v: v).items():
            f.case(name, [x], fn, grad=False)
    f.case("bitwise_not", [t([True, False], torch.bool)], torch.bitwise_not, grad=False)
    for name, fn in dict(exp=torch.exp, sin=torch.sin, sqrt=torch.sqrt, sigmoid=torch.sigmoid, tanh=torch.tanh).items():
        # float functions of integers give f32
        f.case(name, [t([0, 1, 2, 3], torch.int32)], lambda x, fn=fn: fn(x.to(torch.float32)), grad=False)
        f.case(name, [t([False, True], torch.bool)], lambda x, fn=fn: fn(x.to(torch.float32)), grad=False)
    for name, fn in dict(exp=torch.exp, neg=torch.neg, sqrt=torch.sqrt).items():
        f.case(name, [torch.zeros(0, 3)], fn)
        f.case(name, [rnd(low=0.5, high=2)], fn)


def activations(f):
    for name, fn, attrs in [
        ("relu6", F.relu6, ""), ("leaky_relu", lambda x: F.leaky_relu(x, 0.1), "slope=0.1"),
        ("leaky_relu", lambda x: F.leaky_relu(x, 0.0), "slope=0"), ("elu", F.elu, ""), ("elu", lambda x: F.elu(x, 0.5), "alpha=0.5"),
        ("selu", F.selu, ""), ("celu", F.celu, ""), ("celu", lambda x: F.celu(x, 0.5), "alpha=0.5"),
        ("hard_sigmoid", F.hardsigmoid, ""), ("log_sigmoid", F.logsigmoid, ""), ("softplus", F.softplus, ""),
        ("softplus", lambda x: F.softplus(x, 2.0, 3.0), "beta=2 threshold=3"), ("softsign", F.softsign, ""), ("gelu", F.gelu, ""),
        ("gelu", lambda x: F.gelu(x, approximate="tanh"), "form=tanh"),
        ("gelu", lambda x: x * torch.sigmoid(1.702 * x), "form=sigmoid"), ("silu", F.silu, ""), ("mish", F.mish, ""),
        ("hard_swish", F.hardswish, ""), ("threshold", lambda x: F.threshold(x, 0.5, -7.0), "threshold=0.5 value=-7"),
    ]:
        # PyTorch's own gradient of hardsigmoid takes 1/6 in f32
        grads = (lambda i, c: [c[0] / 6 * (i[0].abs() < 3)]) if name == "hard_sigmoid" else None
        f.case(name, [rnd(4, 9, low=-7, high=7)], fn, attrs, grads=grads)
        f.case(name, [t([60.0, -60.0, 8.0, -8.0])], fn, attrs)
        f.case(name, [t([NAN])], fn, attrs, grad=False)


def pow_grads(inputs, cots):
    """x^0 has gradient 0 everywhere; the exponent's gradient is 0 where the base is 0."""
    a, b = inputs
    y = a.pow(b)
    da = torch.where(b == 0, torch.zeros_like(y), b * a.pow(b - 1))
    db = torch.where(a == 0, torch.zeros_like(y), y * torch.log(torch.where(a == 0, torch.ones_like(a), a)))
    return [cots[0] * da, cots[0] * db]


def binary(f):
    a, b = rnd(3, 5), rnd(3, 5)
    away = torch.where(b.abs() < 0.25, torch.full_like(b, 0.75), b)
    ordinary = dict(add=torch.add, sub=torch.sub, mul=torch.mul, maximum=torch.maximum, minimum=torch.minimum, fmax=torch.fmax,
                    fmin=torch.fmin, logaddexp=torch.logaddexp)
    for name, fn in ordinary.items():
        f.case(name, [a, b], fn)
        f.case(name, [rnd(2, 1, 4), rnd(3, 1)], fn)
        f.case(name, [rnd(), rnd(2, 2)], fn)
        f.case(name, [torch.zeros(0, 3), rnd(3)], fn)
        f.case(name, [t([NAN, 1.0, INF, -INF, INF]), t([1.0, NAN, INF, INF, -INF])], fn, grad=False)
    for name, fn in dict(div=torch.div, atan2=torch.atan2, hypot=torch.hypot, copysign=torch.copysign, remainder=torch.remainder,
                         fmod=torch.fmod).items():
        f.case(name, [a + 1 / 32, away], fn)
        f.case(name, [rnd(2, 1, 4, low=0.5, high=3), rnd(3, 1, low=0.5, high=2) + 1 / 32], fn)
    f.case("floor_div", [a, away], torch.floor_divide, grads=lambda i, c: [torch.zeros_like(x) for x in i])
    f.case("div", [t([1.0, -1.0, 0.0, INF]), t([0.0, 0.0, 0.0, INF])], torch.div, grad=False)
    f.case("remainder", [t([5.0, -5.0, 5.0, -5.0, 1.0]), t([3.0, 3.0, -3.0, -3.0, 0.0])], torch.remainder, grad=False)
    f.case("fmod", [t([5.0, -5.0, 5.0, -5.0, 1.0]), t([3.0, 3.0, -3.0, -3.0, 0.0])], torch.fmod, grad=False)
    f.case("floor_div", [t([5.0, -5.0, 5.0, -5.0, 1.0]), t([3.0, 3.0, -3.0, -3.0, 0.0])], torch.floor_divide, grad=False)
    f.case("copysign", [t([1.0, -1.0, 0.0, 2.0]), t([-0.0, 0.0, -3.0, NAN])], torch.copysign, grad=False)
    f.case("atan2", [t([0.0, -0.0, 0.0, -0.0, 1.0]), t([1.0, 1.0, -1.0, -1.0, 0.0])], torch.atan2, grad=False)
    # equal values share the gradient, as in PyTorch
    f.case("maximum", [t([1.0, 2.0]), t([1.0, 3.0])], torch.maximum)
    f.case("minimum", [t([1.0, 2.0]), t([1.0, 3.0])], torch.minimum)
    # pow
    f.case("pow", [rnd(3, 5, low=0.25, high=2), rnd(3, 5)], torch.pow)
    f.case("pow", [t([-2.0, -2.0, -0.5, -1.0]), t([3.0, -2.0, 2.0, 5.0])], torch.pow, grad=False)
    f.case("pow", [t([-2.0, 0.0, 0.0, 0.0, 2.0, INF]), t([0.5, 0.0, 2.0, -1.0, 0.0, 0.0])], torch.pow, grad=False)
    f.case("pow", [t([0.0, 0.0, 2.0, 0.0, 0.0]), t([0.0, 2.0, 0.0, 1.0, 0.5])], torch.pow, grads=pow_grads)
    # comparisons
    x, y = t([1.0, 2.0, NAN, INF, -0.0, 3.0]), t([1.0, 1.0, NAN, INF, 0.0, 4.0])
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        f.case(name, [x, y], getattr(torch, name), grad=False)
        f.case(name, [ints(4, 1), ints(3)], getattr(torch, name), grad=False)
        f.case(name, [bools(4), bools(4)], getattr(torch, name), grad=False)
        # an integer with a float is compared as that float
        f.case(name, [ints(4), t([1.5, -1.0, 0.0, 2.0])], getattr(torch, name), grad=False)
    for name in ("logical_and", "logical_or", "logical_xor"):
        f.case(name, [t([0.0, 1.0, NAN, 0.0]), t([0.0, 0.0, 1.0, 2.0])], getattr(torch, name), grad=False)
        f.case(name, [bools(5), bools(5)], getattr(torch, name), grad=False)


def integers(f):
    low = {torch.int8: -128, torch.int16: -32768, torch.int32: -2 ** 31, torch.int64: -2 ** 63}
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool):
        if dtype == torch.bool:
            a, b = t([0, 0, 1, 1], dtype), t([0, 1, 0, 1], dtype)
        elif dtype == torch.uint8:
            a, b = t([7, 200, 100, 255], dtype), t([3, 100, 200, 1], dtype)
        else:
            a, b = t([7, -7, low[dtype], -low[dtype] - 1, -7, 7], dtype), t([3, 3, -1, 2, -3, -3], dtype)
        wrapping = dict(add=torch.add, mul=torch.mul, maximum=torch.maximum, minimum=torch.minimum, bitwise_and=torch.bitwise_and,
                        bitwise_or=torch.bitwise_or, bitwise_xor=torch.bitwise_xor)
        for name, fn in wrapping.items():
            f.case(name, [a, b], fn, grad=False)
        if dtype == torch.bool:
            continue
        f.case("sub", [a, b], torch.sub, grad=False)
        safe = a if dtype == torch.uint8 else a.clone()
        if dtype != torch.uint8:
            safe[2] = 100  # INT_MIN / -1 below
        f.case("floor_div", [safe, b], lambda x, y: torch.div(x, y, rounding_mode="floor"), grad=False)
        f.case("remainder", [safe, b], torch.remainder, grad=False)
        f.case("fmod", [safe, b], torch.fmod, grad=False)
        # division by zero gives 0; INT_MIN / -1 wraps (PyTorch: an error, and a trap)
        f.case("floor_div", [t([5, 0], dtype), t([0, 0], dtype)], None, outs=[t([0, 0], dtype)], grad=False)
        f.case("remainder", [t([5, 0], dtype), t([0, 0], dtype)], None, outs=[t([0, 0], dtype)], grad=False)
        f.case("fmod", [t([5, 0], dtype), t([0, 0], dtype)], None, outs=[t([0, 0], dtype)], grad=False)
        if dtype != torch.uint8:
            f.case("floor_div", [t([low[dtype]], dtype), t([-1], dtype)], None, outs=[t([low[dtype]], dtype)], grad=False)
            f.case("remainder", [t([low[dtype]], dtype), t([-1], dtype)], None, outs=[t([0], dtype)], grad=False)
        # true division gives f32
        f.case("div", [safe, b], lambda x, y: torch.div(x.to(torch.float32), y.to(torch.float32)), grad=False)
        # a shift outside [0, width) gives 0, or -1 for a negative value shifted right
        width = torch.iinfo(dtype).bits
        if dtype == torch.uint8:
            f.case("bitwise_left_shift", [t([1, 3, 255, 1], dtype), t([0, 2, 7, 8], dtype)], None, outs=[t([1, 12, 128, 0], dtype)], grad=False)
            f.case("bitwise_right_shift", [t([1, 200, 255, 255], dtype), t([0, 2, 7, 8], dtype)], None, outs=[t([1, 50, 1, 0], dtype)], grad=False)
        else:
            f.case("bitwise_left_shift", [t([1, 3, -1, 1, 1], dtype), t([0, 2, width - 1, width, -1], dtype)], None,
                   outs=[t([1, 12, low[dtype], 0, 0], dtype)], grad=False)
            f.case("bitwise_right_shift", [t([1, 100, -100, -1, 100, -100, 7], dtype), t([0, 2, 2, width - 1, width, width, -1], dtype)], None,
                   outs=[t([1, 25, -25, -1, 0, -1, 0], dtype)], grad=False)
    # promotion: the wider of two integers; u8 with i8 gives i16; an integer with a float gives that float
    f.case("add", [t([200], torch.uint8), t([-100], torch.int8)], torch.add, grad=False)
    f.case("add", [t([200], torch.uint8), t([-100], torch.int32)], torch.add, grad=False)
    f.case("add", [t([100], torch.int8), t([100], torch.int16)], torch.add, grad=False)
    f.case("mul", [t([True], torch.bool), t([5], torch.int8)], torch.mul, grad=False)
    f.case("add", [t([3], torch.int64), t([0.5], torch.float16)], torch.add, grad=False)
    f.case("add", [t([3], torch.int64), t([0.5], torch.bfloat16)], torch.add, grad=False)
    f.case("add", [t([1.0], torch.float16), t([0.5], torch.bfloat16)], torch.add, grad=False)
    # 0-d tensors promote like any other (PyTorch: they do not)
    f.case("add", [t([1.0], torch.float16), torch.tensor(2.0, dtype=torch.float32)], None, outs=[t([3.0], torch.float32)], grad=False)
    f.case("add", [t([1], torch.int8), torch.tensor(300, dtype=torch.int32)], None, outs=[t([301], torch.int32)], grad=False)
    f.case("pow", [t([2, -3, 5, 0], torch.int32), t([10, 3, 0, 0], torch.int32)], torch.pow, grad=False)


def ternary(f):
    c = bools(3, 5)
    f.case("where", [c, rnd(3, 5), rnd(3, 5)], torch.where)
    f.case("where", [bools(3, 1), rnd(5), rnd(1, 1)], torch.where)
    f.case("where", [c, ints(3, 5), ints(3, 5)], torch.where, grad=False)
    f.case("where", [t([True, False], torch.bool), t([1.0, NAN]), t([NAN, 2.0])], torch.where)
    def inside(low, high):  # the gradient is 1 at the bounds (PyTorch: 0)
        def grads(inputs, cots):
            x = inputs[0]
            keep = torch.ones_like(x, dtype=torch.bool)
            keep &= (x >= low) if low is not None else keep
            keep &= (x <= high) if high is not None else keep
            return [cots[0] * keep]
        return grads

    for attrs, low, high in (("min=-1 max=1", -1, 1), ("min=-0.5", -0.5, None), ("max=0.5", None, 0.5), ("min=1 max=-1", 1, -1)):
        f.case("clamp", [rnd(3, 7)], lambda x: torch.clamp(x, low, high), attrs, grads=inside(low, high))
    f.case("clamp", [t([-1.0, 1.0, 0.0, 2.0])], lambda x: torch.clamp(x, -1, 1), "min=-1 max=1", grads=inside(-1, 1))
    x, low, high = rnd(3, 5), rnd(5, low=-1, high=0) + 1 / 32, rnd(3, 1, low=0, high=1) + 1 / 32
    f.case("clamp_tensor", [x, low, high], torch.clamp)
    f.case("clamp_tensor", [x, low, None], lambda u, a, b: torch.clamp(u, a))
    f.case("clamp_tensor", [x, None, high], lambda u, a, b: torch.clamp(u, max=b))
    f.case("clamp_tensor", [t([1.0, NAN]), t([3.0, 0.0]), t([2.0, 1.0])], torch.clamp, grad=False)
    f.error("clamp_tensor", [x, None, None], "NULL")
    f.case("clamp_min", [x, low], torch.maximum)
    f.case("clamp_max", [x, high], torch.minimum)
    f.case("clamp", [t([NAN, INF, -INF])], lambda x: torch.clamp(x, -1, 1), "min=-1 max=1", grad=False)
    f.case("clamp", [ints(9)], lambda x: torch.clamp(x, -2, 3), "min=-2 max=3", grad=False)
    f.case("lerp", [rnd(3, 5), rnd(3, 5), rnd(3, 5)], torch.lerp)
    f.case("lerp", [rnd(3, 5), rnd(5), rnd(3, 1)], torch.lerp)
    f.case("fma", [rnd(3, 5), rnd(5), rnd(3, 1)], lambda a, b, c: a * b + c)
    f.case("addcmul", [rnd(3, 5), rnd(5), rnd(3, 1)], lambda x, a, b: torch.addcmul(x, a, b, value=-2), "value=-2")
    f.case("addcmul", [rnd(4), rnd(4), rnd(4)], torch.addcmul)
    f.case("addcdiv", [rnd(3, 5), rnd(5), rnd(3, 1, low=0.5, high=2)], lambda x, a, b: torch.addcdiv(x, a, b, value=0.5), "value=0.5")
    f.case("addcdiv", [rnd(4), rnd(4), rnd(4, low=0.5, high=2)], torch.addcdiv)
    bad = t([NAN, INF, -INF, 1.0])
    f.case("nan_to_num", [bad], lambda x: torch.nan_to_num(x, 0.5, 3.0, -4.0), "nan=0.5 posinf=3 neginf=-4")
    f.case("nan_to_num", [rnd(3, 4)], torch.nan_to_num)


def write(folder):
    families = []
    for name, fn, about in (("unary", unary, "Functions of one number."), ("activation", activations, "Activations."),
                            ("binary", binary, "Functions of two numbers, comparisons, logic."),
                            ("integer", integers, "Integers: wrapping, division, shifts, promotion."),
                            ("ternary", ternary, "Choices, bounds, sums of products.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
