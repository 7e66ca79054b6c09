"""Section E of the op list: products."""
import torch

from refs import Family, ints, rnd, t


def products(f):
    for a, b in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
                 ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((1, 1), (1, 1)), ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((2, 0, 3), (3, 1)),
                 ((1, 17), (17, 1)), ((2, 9), (9, 33))):
        f.case("matmul", [rnd(*a), rnd(*b)], torch.matmul)
    f.case("matmul", [ints(3, 4, dtype=torch.int32), ints(4, 2, dtype=torch.int32)], torch.matmul, grad=False)
    f.case("matmul", [ints(3, 4, dtype=torch.int8), ints(4, 2, dtype=torch.int8)], torch.matmul, grad=False)
    f.case("matmul", [t([[1e300, 1.0]]) if False else t([[float("inf"), 1.0]]), t([[0.0], [1.0]])], torch.matmul, grad=False)
    for a, b in (((3, 4), (3, 4)), ((3,), (4,)), ((2, 3, 4), (3, 4, 5))):
        f.error("matmul", [rnd(*a), rnd(*b)], "SHAPE")
    f.error("matmul", [rnd(), rnd(3)], "SHAPE")
    f.case("bmm", [rnd(2, 3, 4), rnd(2, 4, 5)], torch.bmm)
    f.case("bmm", [rnd(0, 3, 4), rnd(0, 4, 5)], torch.bmm)
    f.error("bmm", [rnd(2, 3, 4), rnd(1, 4, 5)], "SHAPE")
    f.error("bmm", [rnd(3, 4), rnd(4, 5)], "SHAPE")
    f.case("dot", [rnd(7), rnd(7)], torch.dot)
    f.case("dot", [rnd(0), rnd(0)], torch.dot)
    f.error("dot", [rnd(7), rnd(6)], "SHAPE")
    f.case("outer", [rnd(3), rnd(5)], torch.outer)
    f.error("outer", [rnd(3, 1), rnd(5)], "SHAPE")
    for shape in ((3, 5), (5,), (3, 1), ()):
        f.case("addmm", [rnd(*shape), rnd(3, 4), rnd(4, 5)], lambda x, a, b: torch.addmm(x.expand(3, 5), a, b, beta=0.5, alpha=-2), "beta=0.5 alpha=-2")
    f.case("addmm", [rnd(3, 5), rnd(3, 4), rnd(4, 5)], torch.addmm)
    f.case("addmm", [t([[float("nan")]]), rnd(1, 2), rnd(2, 1)], lambda x, a, b: torch.addmm(x, a, b, beta=0), "beta=0", grad=False)


def layers(f):
    F = torch.nn.functional
    acts = dict(none=lambda y: y, relu=torch.relu, sigmoid=torch.sigmoid, tanh=torch.tanh, gelu=F.gelu, silu=F.silu)
    for name, act in acts.items():
        f.case("linear", [rnd(3, 4), rnd(5, 4), rnd(5)], lambda x, w, b: act(F.linear(x, w, b)), "activation=" + name)
    f.case("linear", [rnd(2, 3, 4), rnd(5, 4), None], lambda x, w, b: F.linear(x, w))
    f.case("linear", [rnd(4), rnd(5, 4), rnd(5)], F.linear)
    f.case("linear", [rnd(0, 4), rnd(5, 4), rnd(5)], F.linear)
    f.case("linear", [rnd(2, 3, 4), rnd(5, 4), rnd(5)], lambda x, w, b: torch.relu(F.linear(x, w, b)), "activation=relu")
    f.error("linear", [rnd(3, 4), rnd(4, 5), rnd(5)], "SHAPE")
    f.error("linear", [rnd(3, 4), rnd(5, 4), rnd(4)], "SHAPE")


def sums_of_products(f):
    for text, shapes in (("ij,jk->ik", ((3, 4), (4, 5))), ("ij,jk", ((3, 4), (4, 5))), ("ij->ji", ((3, 4),)), ("ij->", ((3, 4),)), ("ii->i", ((4, 4),)),
                         ("ii", ((4, 4),)), ("ij,ij->i", ((3, 4), (3, 4))), ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))), ("...i,i", ((2, 3, 4), (4,))),
                         ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))), ("i,j->ij", ((3,), (4,))), ("i,i->", ((5,), (5,))), ("ijk,jil->kl", ((2, 3, 4), (3, 2, 5))),
                         ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 5))), ("a,b,c->abc", ((2,), (3,), (4,))), ("iij,j->i", ((3, 3, 4), (4,))), ("ij,j->ij", ((3, 4), (4,))),
                         ("b...,b...->...", ((2, 3), (2, 3))), ("ba", ((2, 3),)), ("Ab,bC->CA", ((2, 3), (3, 4))), ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4)))):
        f.case("einsum", [rnd(*s) for s in shapes], lambda *xs: torch.einsum(text, *xs), "subscripts=" + text)
    f.error("einsum", [rnd(3, 4), rnd(5, 6)], "SHAPE", "subscripts=ij,jk->ik")
    f.error("einsum", [rnd(3, 4)], "VALUE", "subscripts=ij->ik")
    f.error("einsum", [rnd(3, 4)], "SHAPE", "subscripts=ijk->i")


def matrices(f):
    f.case("trace", [rnd(4, 4)], torch.trace)
    f.case("trace", [rnd(3, 5)], torch.trace)
    f.error("trace", [rnd(2, 3, 4)], "SHAPE")
    for k in (0, 1, -2):
        f.case("diag", [rnd(3)], lambda x: torch.diag(x, k), "diagonal=%d" % k)
        f.case("diag", [rnd(4, 3)], lambda x: torch.diag(x, k), "diagonal=%d" % k)
    for axis in (0, -1):
        f.case("cross", [rnd(3, 4, 3), rnd(3, 4, 3)], lambda a, b: torch.linalg.cross(a, b, dim=axis), "axis=%d" % axis)
    f.case("cross", [rnd(4, 1, 3), rnd(2, 3)], lambda a, b: torch.linalg.cross(a, b.expand(4, 2, 3) if b.dim() == 2 else b, dim=-1), "axis=-1")
    f.error("cross", [rnd(4, 2), rnd(4, 2)], "SHAPE", "axis=-1")
    f.case("kron", [rnd(2, 3), rnd(3, 2)], torch.kron)
    f.case("kron", [rnd(3), rnd(2, 2)], torch.kron)
    f.case("kron", [rnd(), rnd(2, 2)], torch.kron)


def write(folder):
    families = []
    for name, fn, about in (("product", products, "Matrix products."), ("linear", layers, "Dense layers."), ("einsum", sums_of_products, "Einstein sums."),
                            ("matrix", matrices, "Small ops on matrices.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
