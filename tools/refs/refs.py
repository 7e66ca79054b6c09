"""Writes cases for tests/test_refs.c. Inputs are multiples of 1/16, so they are exact in f32; results come in f64."""
import math
import zlib

import torch

torch.set_default_dtype(torch.float64)
NAMES = {torch.float32: "f32", torch.float64: "float", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
         torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}
NAN, INF = math.nan, math.inf
_generator = torch.Generator()


def rnd(*shape, low=-2.0, high=2.0):
    """Random multiples of 1/16 in [low, high]."""
    steps = torch.randint(math.ceil(low * 16), math.floor(high * 16) + 1, shape, generator=_generator)
    return steps.to(torch.float64) / 16


def distinct(*shape):
    """Distinct multiples of 1/16 in random order."""
    n = math.prod(shape)
    return ((torch.randperm(n, generator=_generator) - n // 2).to(torch.float64) / 16).reshape(shape)


def ints(*shape, low=-5, high=5, dtype=torch.int64):
    return torch.randint(low, high + 1, shape, generator=_generator).to(dtype)


def bools(*shape):
    return torch.randint(0, 2, shape, generator=_generator).to(torch.bool)


def t(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def _number(v):
    if isinstance(v, bool):
        return "1" if v else "0"
    if isinstance(v, int):
        return str(v)
    if math.isnan(v):
        return "nan"
    if math.isinf(v):
        return "inf" if v > 0 else "-inf"
    if v == 0:
        return "-0" if math.copysign(1, v) < 0 else "0"
    short = "%.12g" % v
    return "%.17g" % v if float("%.12g" % v) != v and abs(v) * 16 == int(abs(v) * 16) and abs(v) < 1e6 else short


def _tensor(x):
    shape = "[" + ",".join(str(d) for d in x.shape) + "]"
    return shape + "".join(" " + _number(v) for v in x.detach().reshape(-1).tolist())


class Family:
    """One file of cases. Its random inputs do not depend on other files."""

    def __init__(self, folder, name, about):
        _generator.manual_seed(zlib.crc32(name.encode()))
        self.file = open("%s/%s.txt" % (folder, name), "w")
        self.file.write("# %s\n" % about)
        self.count = 0

    def _line(self, *words):
        self.file.write(" ".join(words) + "\n")

    def _head(self, op, attrs, inputs):
        self.count += 1
        self._line(("case " + op + " " + attrs).rstrip())
        for x in inputs:
            self._line("in -" if x is None else "in %s %s" % (NAMES[x.dtype], _tensor(x)))

    def case(self, op, inputs, fn, attrs="", grad=True, grads=None, outs=None):
        """fn(*inputs) gives the result or a tuple of them (None: not compared). grads replaces PyTorch's gradients
        where the meaning differs: a function (inputs, cotangents) -> list; outs replaces its results."""
        inputs = list(inputs)
        floats = [x for x in inputs if x is not None and x.dtype == torch.float64]
        leaves = [x.clone().requires_grad_(grad) if x is not None and x.dtype == torch.float64 else x for x in inputs]
        result = fn(*leaves) if fn else outs
        result = list(result) if isinstance(result, (tuple, list)) else [result]
        self._head(op, attrs, inputs)
        for y in result:
            self._line("out -" if y is None else "out %s %s" % (NAMES[y.dtype], _tensor(y)))
        if not grad or not floats:
            return
        wanted = [y for y in result if y is not None and y.dtype == torch.float64]
        cots = [rnd(*y.shape, low=-1, high=1) for y in wanted]
        if grads:
            found = grads(inputs, cots)
        else:
            live = [(y, c) for y, c in zip(wanted, cots) if y.requires_grad]
            xs = [x for x in leaves if x is not None and x.dtype == torch.float64]
            if not live:
                return
            found = torch.autograd.grad([y for y, _ in live], xs, [c for _, c in live], allow_unused=True)
            found = [torch.zeros_like(x) if g is None else g for g, x in zip(found, xs)]
        for c in cots:
            self._line("cot", _tensor(c))
        for g in found:
            self._line("grad", _tensor(g))

    def error(self, op, inputs, code, attrs=""):
        self._head(op, attrs, inputs)
        self._line("error", code)

    def close(self):
        self.file.close()
        return self.count
