"""Section D of the op list, indices; section C, order and counts."""
import torch
import torch.nn.functional as F

from refs import INF, NAN, Family, bools, distinct, ints, rnd, t

I = torch.int64


def along(f):
    x, i = rnd(3, 4), ints(2, 4, low=0, high=2)
    f.case("gather", [x, i], lambda u, j: u.gather(0, j), "axis=0")
    f.case("gather", [x, ints(3, 6, low=0, high=3, dtype=torch.int32)], lambda u, j: u.gather(-1, j.to(I)), "axis=-1")
    f.case("gather", [rnd(2, 3, 4), ints(2, 2, 3, low=0, high=2)], lambda u, j: u.gather(1, j), "axis=1")
    f.case("gather", [x, torch.zeros(0, 4, dtype=I)], lambda u, j: u.gather(0, j), "axis=0")
    f.case("gather", [ints(3, 4), i], lambda u, j: u.gather(0, j), "axis=0", grad=False)
    f.error("gather", [x, t([[3]], I)], "INDEX", "axis=0")
    f.error("gather", [x, t([[-1]], I)], "INDEX", "axis=0")
    f.error("gather", [x, t([0, 1], I)], "SHAPE", "axis=0")
    f.error("gather", [x, ints(3, 5, low=0, high=2)], "SHAPE", "axis=0")
    perm = torch.stack([torch.randperm(4), torch.randperm(4)])
    f.case("scatter", [x, perm, rnd(2, 4)], lambda u, j, s: u.scatter(1, j, s), "axis=1")
    # duplicates: the last in row-major order wins, and only its source gets gradient (PyTorch: undefined)
    f.case("scatter", [t([10.0, 20.0, 30.0]), t([1, 1, 0], I), t([1.0, 2.0, 3.0])], None, "axis=0", outs=[t([3.0, 2.0, 30.0])],
           grads=lambda a, c: [torch.stack([c[0][0] * 0, c[0][1] * 0, c[0][2]]), torch.stack([c[0][0] * 0, c[0][1], c[0][0]])])
    f.case("scatter_add", [x, ints(2, 4, low=0, high=2), rnd(2, 4)], lambda u, j, s: u.scatter_add(0, j, s), "axis=0")
    f.case("scatter_add", [x, ints(3, 6, low=0, high=3), rnd(3, 6)], lambda u, j, s: u.scatter_add(1, j, s), "axis=1")
    f.case("scatter_add", [ints(3), t([0, 0, 2], I), ints(3)], lambda u, j, s: u.scatter_add(0, j, s), "axis=0", grad=False)
    f.error("scatter_add", [x, t([[9]], I), rnd(1, 1)], "INDEX", "axis=0")
    for fold, name in (("sum", "sum"), ("mean", "mean"), ("prod", "prod"), ("max", "amax"), ("min", "amin")):
        for exclude in (False, True):
            attrs = "axis=1 reduce=%s" % fold + (" exclude_self=true" if exclude else "")
            f.case("scatter_reduce", [distinct(2, 3) + 1 / 32, ints(2, 5, low=0, high=2), distinct(2, 5)], lambda u, j, s: u.scatter_reduce(1, j, s, name, include_self=not exclude), attrs)
    f.case("scatter_reduce", [t([2.0, 3.0]), t([0, 0, 1], I), t([0.0, 5.0, 7.0])], lambda u, j, s: u.scatter_reduce(0, j, s, "prod"), "axis=0 reduce=prod")
    f.case("index_select", [rnd(3, 4), t([2, 0, 2], I)], lambda u, j: u.index_select(0, j), "axis=0")
    f.case("index_select", [rnd(3, 4), t([3, 3], torch.int32)], lambda u, j: u.index_select(-1, j.to(I)), "axis=-1")
    f.error("index_select", [rnd(3, 4), t([3], I)], "INDEX", "axis=0")
    f.error("index_select", [rnd(3, 4), t([[0]], I)], "SHAPE", "axis=0")
    f.case("index_add", [rnd(3, 4), t([2, 0, 2], I), rnd(3, 4)], lambda u, j, s: u.index_add(0, j, s), "axis=0")
    f.case("index_add", [rnd(3, 4), t([1, 1], I), rnd(3, 2)], lambda u, j, s: u.index_add(1, j, s, alpha=-2), "axis=1 alpha=-2")
    f.case("index_copy", [rnd(3, 4), t([2, 0], I), rnd(2, 4)], lambda u, j, s: u.index_copy(0, j, s), "axis=0")
    f.error("index_copy", [rnd(3, 4), t([2, 3], I), rnd(2, 4)], "INDEX", "axis=0")
    f.case("take", [rnd(3, 4), t([[0, 11], [5, 5]], I)], lambda u, j: u.take(j))
    f.error("take", [rnd(3, 4), t([12], I)], "INDEX")
    f.case("index_put", [rnd(3, 4), rnd(2), t([0, 2], I), t([1, 3], I)], lambda u, v, a, b: u.index_put((a, b), v))
    f.case("index_put", [rnd(3, 4), rnd(4), t([0, 0], I)], lambda u, v, a: u.index_put((a,), v.expand(2, 4), accumulate=True), "accumulate=true")
    f.case("index_put", [rnd(3, 4), rnd(), t([[0], [2]], I), t([1, 3], I)], lambda u, v, a, b: u.index_put((a, b), v))
    f.case("slice_assign", [rnd(7, 2), rnd(2, 2)], lambda u, s: u.slice_scatter(s, 0, 1, 5, 2), "axis=0 start=1 stop=5 step=2")
    f.case("slice_assign", [rnd(2, 4), rnd(2, 2)], lambda u, s: u.slice_scatter(s, 1, -2), "axis=1 start=-2")
    f.case("embedding", [rnd(5, 3), t([[1, 4], [0, 1]], I)], lambda w, j: F.embedding(j, w))
    f.case("embedding", [rnd(5, 3), t([[1, 4], [0, 1]], I)], lambda w, j: F.embedding(j, w, padding_idx=1), "padding_idx=1")
    f.case("embedding", [rnd(5, 3), t([0, 2], torch.int32)], lambda w, j: F.embedding(j.to(I), w, padding_idx=0), "padding_idx=0")
    f.error("embedding", [rnd(5, 3), t([5], I)], "INDEX")


def masks(f):
    f.case("masked_fill", [rnd(3, 4), bools(3, 4)], lambda u, m: u.masked_fill(m, 1.5), "value=1.5")
    f.case("masked_fill", [rnd(3, 4), bools(4)], lambda u, m: u.masked_fill(m, -INF), "value=-inf", grad=False)
    f.case("masked_select", [rnd(3, 4), bools(3, 4)], lambda u, m: u.masked_select(m))
    f.case("masked_select", [rnd(3, 1), bools(4)], lambda u, m: u.masked_select(m))
    f.case("masked_select", [rnd(3), t([False] * 3, torch.bool)], lambda u, m: u.masked_select(m))
    f.case("nonzero", [t([[1.0, 0.0, NAN], [0.0, -0.0, 2.0]])], lambda u: u.nonzero(), grad=False)
    f.case("nonzero", [torch.zeros(2, 3)], lambda u: u.nonzero(), grad=False)
    f.case("nonzero", [bools(2, 2, 3)], lambda u: u.nonzero(), grad=False)


def order(f):
    x = distinct(3, 6)
    ties = ints(2, 9, low=0, high=3).to(torch.float64)
    special = t([[1.0, NAN, -INF, 3.0, NAN, INF, 0.0]])
    for descending in (False, True):
        attrs = " descending=true" if descending else ""
        for axis in (0, -1):
            f.case("sort", [x], lambda u: tuple(u.sort(dim=axis, descending=descending, stable=True)), "axis=%d" % axis + attrs)
            f.case("argsort", [x], lambda u: u.argsort(dim=axis, descending=descending, stable=True), "axis=%d" % axis + attrs, grad=False)
        f.case("sort", [ties], lambda u: tuple(u.sort(dim=1, descending=descending, stable=True)), "axis=1" + attrs)
        # NaN counts as greater than every number: last ascending, first descending
        f.case("sort", [special], lambda u: tuple(u.sort(dim=1, descending=descending, stable=True)), "axis=1" + attrs, grad=False)
        f.case("sort", [ints(2, 7, dtype=torch.int8)], lambda u: tuple(u.sort(dim=1, descending=descending, stable=True)), "axis=1" + attrs, grad=False)
        f.case("sort", [bools(9)], lambda u: tuple(u.sort(dim=0, descending=descending, stable=True)), "axis=0" + attrs, grad=False)
        f.case("sort", [torch.zeros(2, 0)], lambda u: tuple(u.sort(dim=1)), "axis=1" + attrs)
    for k in (1, 3, 6):
        f.case("topk", [x], lambda u: tuple(u.topk(k, 1)), "k=%d axis=1" % k)
        f.case("topk", [x], lambda u: tuple(u.topk(k, 1, largest=False)), "k=%d axis=1 smallest=true" % k)
        f.case("kthvalue", [x], lambda u: tuple(u.kthvalue(k, 1)), "k=%d axis=1" % k)
    f.case("topk", [x], lambda u: tuple(u.topk(2, 0)), "k=2 axis=0")
    f.case("topk", [special], lambda u: (u.topk(3, 1)[0], None), "k=3 axis=1", grad=False)
    f.case("kthvalue", [x], lambda u: tuple(u.kthvalue(2, 0, True)), "k=2 axis=0 keepdim=true")
    f.case("median", [x], lambda u: tuple(u.median(1)), "axis=1")
    f.case("median", [distinct(2, 7)], lambda u: tuple(u.median(-1, True)), "axis=-1 keepdim=true")
    f.case("median", [t([[1.0, NAN, 2.0], [3.0, 1.0, 2.0]])], lambda u: (u.median(1)[0], None), "axis=1", grad=False)
    f.error("topk", [x], "VALUE", "k=7 axis=1")
    f.error("kthvalue", [x], "VALUE", "k=0 axis=1")
    f.error("kthvalue", [x], "VALUE", "k=7 axis=1")


def counts(f):
    v = t([3.0, 1.0, 2.0, 1.0, 3.0, 3.0])
    f.case("unique", [v], lambda u: tuple(u.unique(return_inverse=True, return_counts=True)), grad=False)
    f.case("unique", [ints(3, 5)], lambda u: tuple(u.unique(return_inverse=True, return_counts=True)), grad=False)
    f.case("unique", [torch.zeros(0)], lambda u: tuple(u.unique(return_inverse=True, return_counts=True)), grad=False)
    f.case("bincount", [t([0, 3, 3, 1], I), None], lambda u, w: u.bincount(), grad=False)
    f.case("bincount", [t([0, 3, 3, 1], I), None], lambda u, w: u.bincount(minlength=6), "minlength=6", grad=False)
    f.case("bincount", [t([0, 3, 3, 1], I), t([0.5, 1.0, 2.0, 4.0])], lambda u, w: u.bincount(w), grad=False)
    f.case("bincount", [t([], I), None], lambda u, w: u.bincount(minlength=2), "minlength=2", grad=False)
    f.error("bincount", [t([1, -1], I), None], "INDEX")
    h = t([0.0, 0.5, 1.0, 2.0, 3.9375, 4.0, -1.0, 5.0, NAN])
    f.case("histogram", [h, None], None, "bins=4 lo=0 hi=4", outs=[torch.histc(h[:-1], 4, 0, 4).to(I)], grad=False)
    edges = t([1.0, 2.0, 2.0, 4.0])
    q = t([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, INF, -INF]])
    f.case("searchsorted", [edges, q, None], lambda e, u, s: torch.searchsorted(e, u), grad=False)
    f.case("searchsorted", [edges, q, None], lambda e, u, s: torch.searchsorted(e, u, right=True), "right=true", grad=False)
    rows = rnd(2, 5).sort(dim=1)[0]
    f.case("searchsorted", [rows, rnd(2, 3), None], lambda e, u, s: torch.searchsorted(e, u), grad=False)


def gates(f):
    for axis in (0, -1):
        f.case("glu", [rnd(4, 6)], lambda u: F.glu(u, axis), "axis=%d" % axis)
    f.error("glu", [rnd(3, 4)], "SHAPE", "axis=0")
    f.case("prelu", [rnd(2, 3, 4), rnd(3)], F.prelu)
    f.case("prelu", [rnd(2, 3, 4), rnd(1)], F.prelu)
    f.case("prelu", [rnd(5), rnd(1)], F.prelu)
    f.error("prelu", [rnd(2, 3, 4), rnd(2)], "SHAPE")
    for axes in ((1,), (0, 2), ()):
        f.case("logsumexp", [rnd(3, 4, 2)], lambda u: u.logsumexp(axes or (0, 1, 2)), "axes=" + ",".join(map(str, axes)))
    f.case("logsumexp", [t([[-INF, -INF], [INF, 0.0], [1000.0, 1000.0], [NAN, 0.0]])], lambda u: u.logsumexp(1), "axes=1", grad=False)
    f.case("logsumexp", [rnd(3, 4)], lambda u: u.logsumexp(1, True), "axes=1 keepdim=true")


def write(folder):
    families = []
    for name, fn, about in (("index", along, "Elements chosen and put by indices."), ("mask", masks, "Masks."), ("order", order, "Sorting."),
                            ("count", counts, "Distinct values and counts."), ("gate", gates, "glu, prelu, logsumexp.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
