#!/usr/bin/env python3
"""numpy_refs.py FOLDER: writes FOLDER/distinct.txt and FOLDER/crop.txt, cases that NumPy alone answers; see README.md.

    venv/bin/python tools/refs/numpy_refs.py tests/refs
"""
import sys

import numpy as np

NAMES = {"float64": "float", "int64": "i64", "int32": "i32", "uint8": "u8", "bool": "bool"}
rng = np.random.default_rng(20)


def rnd(*shape, low=-2, high=2):
    """Random multiples of 1/16, exact in f32."""
    return rng.integers(low * 16, high * 16 + 1, shape) / 16


def number(v):
    if isinstance(v, (bool, np.bool_)):
        return "1" if v else "0"
    return "%.12g" % v


def tensor(x):
    x = np.asarray(x)
    return "[" + ",".join(map(str, x.shape)) + "]" + "".join(" " + number(v) for v in x.reshape(-1).tolist())


class Family:
    def __init__(self, folder, name, about):
        self.file = open("%s/%s.txt" % (folder, name), "w")
        print("#", about, file=self.file)

    def case(self, op, attrs, inputs, outputs, cot=None, grads=()):
        print(("case %s %s" % (op, attrs)).rstrip(), file=self.file)
        for x in inputs:
            print("in -" if x is None else "in %s %s" % (NAMES[np.asarray(x).dtype.name], tensor(x)), file=self.file)
        for y in outputs:
            print("out %s %s" % (NAMES[np.asarray(y).dtype.name], tensor(y)), file=self.file)
        if cot is not None:
            print("cot", tensor(cot), file=self.file)
            for g in grads:
                print("grad", tensor(g), file=self.file)

    def error(self, op, attrs, inputs, code):
        print(("case %s %s" % (op, attrs)).rstrip(), file=self.file)
        for x in inputs:
            print("in -" if x is None else "in %s %s" % (NAMES[np.asarray(x).dtype.name], tensor(x)), file=self.file)
        print("error", code, file=self.file)


def unique(f):
    def along(x, axis, attrs):
        values, inverse, counts = np.unique(x, axis=axis, return_inverse=True, return_counts=True)
        f.case("unique", attrs, [x], [values, inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)])

    along(rng.integers(0, 2, (9, 2)), 0, "axis=0")
    along(rng.integers(0, 2, (3, 8)), 1, "axis=1")
    along(rng.integers(0, 2, (2, 7, 2)), 1, "axis=-2")
    along(rng.integers(0, 2, (2, 3, 9)), 2, "axis=2")
    along(rnd(8, 2, low=0, high=0) + rng.integers(0, 3, (8, 2)) / 2, 0, "axis=0")
    along(rng.integers(0, 2, (7, 3)).astype(bool), 0, "axis=0")
    along(rng.integers(-2, 2, (8,)), 0, "axis=0")
    f.error("unique", "axis=2", [rng.integers(0, 2, (3, 3))], "SHAPE")
    f.error("unique", "axis=-3", [rng.integers(0, 2, (3, 3))], "SHAPE")


def place(x, edges):
    """The part of each element, and whether there is one."""
    k = np.minimum(np.searchsorted(edges, x, side="right") - 1, len(edges) - 2)
    return np.maximum(k, 0), (x >= edges[0]) & (x <= edges[-1])


def weight_grads(x, edges, cot):
    k, inside = place(x, edges)
    return np.where(inside, cot[k], 0)


def histogram(f):
    for x, bins, lo, hi in ((rnd(7), 4, -2.0, 2.0), (rnd(3, 5), 3, -1.0, 1.5), (np.array([0, 0.5, 1, 2, 3.9375, 4, -1, 5]), 4, 0.0, 4.0)):
        w, cot = rnd(*x.shape), rnd(bins)
        edges = np.linspace(lo, hi, bins + 1)
        attrs = "bins=%d lo=%g hi=%g" % (bins, lo, hi)
        f.case("histogram", attrs, [x, w], [np.histogram(x, bins, (lo, hi), weights=w)[0]], cot, [0 * x, weight_grads(x, edges, cot)])
        f.case("histogram", attrs, [x, None], [np.histogram(x, bins, (lo, hi))[0]])
    f.error("histogram", "bins=2 lo=0 hi=1", [rnd(3), rnd(2)], "SHAPE")
    for x, edges in ((rnd(9), np.array([-2.0, -0.5, 0, 1.25, 2])), (rnd(3, 5), np.array([-1.0, 1])), (rnd(6), np.array([-1.0, -1, 0, 0, 2])),
                     (np.array([0.0, 1, 2, 3]), np.array([1.0, 2]))):
        w, cot = rnd(*x.shape), rnd(len(edges) - 1)
        # an empty part (equal edges) has its elements in the part behind it, as searchsorted on the right says
        f.case("histogram_edges", "", [x, edges, w], [np.histogram(x, edges, weights=w)[0]], cot,
               [0 * x, 0 * edges, weight_grads(x, edges, cot)])
        f.case("histogram_edges", "", [x, edges, None], [np.histogram(x, edges)[0]])
    ints = rng.integers(-3, 4, (11,))
    f.case("histogram_edges", "", [ints, np.array([-2, 0, 3]), ints], [np.histogram(ints, [-2, 0, 3], weights=ints)[0]])
    f.error("histogram_edges", "", [rnd(3), rnd(2, 2), None], "SHAPE")
    f.error("histogram_edges", "", [rnd(3), rnd(2), rnd(4)], "SHAPE")


def searchsorted(f):
    a, v = rnd(9), rnd(2, 5)
    sorter = np.argsort(a, kind="stable")
    for right in (False, True):
        f.case("searchsorted", "right=true" if right else "", [a, v, sorter],
               [np.searchsorted(a, v, side="right" if right else "left", sorter=sorter)])
    f.error("searchsorted", "", [a, v, sorter[:-1]], "SHAPE")
    f.error("searchsorted", "", [a, v, sorter + 1], "INDEX")


def masked_fill(f):
    for x, mask, value in ((rnd(3, 4), rng.integers(0, 2, (3, 4)).astype(bool), np.array(1.5)),
                           (rnd(3, 4), rng.integers(0, 2, (4,)).astype(bool), rnd(3, 1)),
                           (rnd(4), rng.integers(0, 2, (2, 4)).astype(bool), np.array(-0.25))):
        y = np.where(mask, value, x)
        cot = rnd(*y.shape)
        full = np.broadcast_to(mask, y.shape)

        def reduced(g, shape):
            g = g.sum(axis=tuple(range(g.ndim - len(shape))))
            for i, n in enumerate(shape):
                if n == 1:
                    g = g.sum(axis=i, keepdims=True)
            return g

        f.case("masked_fill_tensor", "", [x, mask, value], [y], cot,
               [reduced(np.where(full, 0, cot), x.shape), reduced(np.where(full, cot, 0), value.shape)])
    f.case("masked_fill_tensor", "", [np.arange(4), np.array([True, False, True, False]), np.array(7)], [np.array([7, 1, 7, 3])])
    f.error("masked_fill_tensor", "", [np.arange(4), np.array([True] * 4), np.array(0.5)], "DTYPE")


def truth(f):
    """bool is treated as u8."""
    x = np.array([True, False, True])
    for op, attrs, fn in (("sign", "", np.sign), ("square", "", np.square), ("clamp", "min=0 max=1", lambda v: np.clip(v, 0, 1)),
                          ("clamp", "min=1", lambda v: np.maximum(v, 1)), ("clamp", "max=0", lambda v: np.minimum(v, 0)),
                          ("clamp", "min=-3 max=5", lambda v: v)):
        f.case(op, attrs, [x], [fn(x.astype(np.uint8)).astype(bool)])
    f.case("clamp_tensor", "", [x, np.array([False, True, False]), np.array(True)], [np.array([True, True, True])])


def sources(n, before, after, mode):
    """Which of n elements stands at each place of the padded axis."""
    if mode == "circular":  # the cut comes first
        kept = np.arange(n)[max(-before, 0):n - max(-after, 0)]
        return np.pad(kept, (max(before, 0), max(after, 0)), "wrap")
    grown = np.pad(np.arange(n), (max(before, 0), max(after, 0)), {"reflect": "reflect", "replicate": "edge"}[mode])
    return grown[max(-before, 0):len(grown) - max(-after, 0)]


def crop(f):
    for mode in ("reflect", "replicate", "circular"):
        for shape, pads in (((6,), (-2, 3)), ((6,), (3, -2)), ((6,), (-1, -2)), ((4, 5), (-1, 2, 2, -3)), ((2, 3, 4), (1, -1, -2, 2)), ((5,), (-5, 0)),
                            ((5,), (-3, 4) if mode != "circular" else (-3, 2))):
            x = rnd(*shape)
            n = len(pads) // 2
            index = [np.arange(d) for d in shape]
            for i in range(n):
                axis = len(shape) - n + i
                index[axis] = sources(shape[axis], pads[2 * i], pads[2 * i + 1], mode)
            grid = np.ix_(*index)
            y = x[grid]
            cot, g = rnd(*y.shape), np.zeros_like(x)
            np.add.at(g, grid, cot)
            f.case("pad", "pads=%s mode=%s" % (",".join(map(str, pads)), mode), [x], [y], cot, [g])
        f.error("pad", "pads=-3,-3 mode=" + mode, [rnd(5)], "SHAPE")
    f.error("pad", "pads=-3,3 mode=circular", [rnd(5)], "SHAPE")
    f.error("pad", "pads=-1,5 mode=reflect", [rnd(5)], "SHAPE")


folder = sys.argv[1] if len(sys.argv) > 1 else "tests/refs"
family = Family(folder, "distinct", "unique along an axis, histograms with weights and edges, searchsorted with a sorter, fills, bool.")
for write in (unique, histogram, searchsorted, masked_fill, truth):
    write(family)
crop(Family(folder, "crop", "Negative pads, alone and beside positive ones."))
