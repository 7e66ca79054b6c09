"""Section K of the op list: losses."""
import torch
import torch.nn.functional as F

from refs import Family, ints, rnd, t

REDUCTIONS = ("mean", "sum", "none")


def reduced(y, reduction):
    return y.mean() if reduction == "mean" else y.sum() if reduction == "sum" else y


def pairs(f):
    for r in REDUCTIONS:
        text = "reduction=" + r
        for shape in ((5,), (2, 3)):
            xs = lambda: [rnd(*shape), rnd(*shape)]
            away = lambda: [rnd(*shape), rnd(*shape) + t(1 / 32)]  # not at the kinks
            unit = lambda: [rnd(*shape, low=0.0625, high=0.9375), rnd(*shape, low=0, high=1)]
            f.case("mse_loss", xs(), lambda x, y: F.mse_loss(x, y, reduction=r), text)
            f.case("l1_loss", away(), lambda x, y: F.l1_loss(x, y, reduction=r), text)
            f.case("smooth_l1_loss", away(), lambda x, y: F.smooth_l1_loss(x, y, reduction=r, beta=0.7), text + " beta=0.7")
            f.case("huber_loss", away(), lambda x, y: F.huber_loss(x, y, reduction=r, delta=0.7), text + " delta=0.7")
            f.case("bce_loss", unit() + [None], lambda x, y, w: F.binary_cross_entropy(x, y, reduction=r), text)
            f.case("bce_loss", unit() + [rnd(shape[-1])], lambda x, y, w: reduced(w * F.binary_cross_entropy(x, y, reduction="none"), r), text)
            f.case("bce_with_logits_loss", xs() + [None, None], lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, reduction=r), text)
            f.case("bce_with_logits_loss", [rnd(*shape), rnd(*shape, low=0, high=1), rnd(*shape), rnd(shape[-1], low=0.5)],
                   lambda x, y, w, p: reduced(-w * (p * y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x)), r), text)
            f.case("kl_div_loss", [rnd(*shape), rnd(*shape, low=0.125)], lambda x, y: F.kl_div(x, y, reduction=r), text)
            f.case("kl_div_loss", xs(), lambda x, y: F.kl_div(x, y, reduction=r, log_target=True), text + " log_target=true")
            f.case("poisson_nll_loss", xs(), lambda x, y: F.poisson_nll_loss(x, y, reduction=r), text)
            f.case("poisson_nll_loss", [rnd(*shape, low=0.25), rnd(*shape, low=0.5, high=4) + t(1 / 32)],
                   lambda x, y: F.poisson_nll_loss(x, y, log_input=False, full=True, reduction=r), text + " rates=true full=true")
            f.case("gaussian_nll_loss", xs() + [rnd(*shape, low=0.25)], lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction=r), text)
            f.case("gaussian_nll_loss", xs() + [rnd(*shape, low=0.25)], lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True, reduction=r), text + " full=true")
            sign = lambda: ints(*shape, low=0, high=1) * 2 - 1
            f.case("hinge_loss", [rnd(*shape) + t(1 / 32), sign()], lambda x, y: reduced(torch.relu(1 - y * x), r), text)
            f.case("hinge_embedding_loss", [rnd(*shape) + t(1 / 32), sign()], lambda x, y: F.hinge_embedding_loss(x, y, margin=0.5, reduction=r), text + " margin=0.5")
            f.case("margin_ranking_loss", [rnd(*shape) + t(1 / 32), rnd(*shape), sign()], lambda a, b, y: F.margin_ranking_loss(a, b, y, margin=0.25, reduction=r), text + " margin=0.25")
            f.case("focal_loss", [rnd(*shape), ints(*shape, low=0, high=1)], lambda x, y: focal(x, y.double(), 0.25, 2, r), text)
            f.case("focal_loss", [rnd(*shape), ints(*shape, low=0, high=1)], lambda x, y: focal(x, y.double(), -1, 1.5, r), text + " alpha=-1 gamma=1.5")
    f.case("bce_with_logits_loss", [t([1e4, -1e4, 1e4, -1e4]), t([1.0, 1, 0, 0]), None, None], lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, reduction="none"), "reduction=none")
    f.case("mse_loss", [rnd(2, 3), rnd(3)], lambda x, y: ((x - y) ** 2).mean())
    f.error("mse_loss", [rnd(0, 3), rnd(0, 3)], "SHAPE")
    f.error("huber_loss", [rnd(3), rnd(3)], "VALUE", "delta=-1")
    f.error("smooth_l1_loss", [rnd(3), rnd(3)], "VALUE", "beta=-1")


def focal(x, y, alpha, gamma, reduction):
    """As torchvision.ops.sigmoid_focal_loss."""
    p = torch.sigmoid(x)
    miss = 1 - (p * y + (1 - p) * (1 - y))
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none") * miss ** gamma
    if alpha >= 0:
        loss = (alpha * y + (1 - alpha) * (1 - y)) * loss
    return reduced(loss, reduction)


def classes(f):
    for r in REDUCTIONS:
        for shape in ((5,), (4, 6), (2, 4, 3)) + (((2, 3, 2, 2),) if r == "mean" else ()):
            c = shape[1] if len(shape) > 1 else shape[0]
            rest = shape[:1] + shape[2:] if len(shape) > 1 else ()
            target, text = (lambda: ints(*rest, low=0, high=c - 1)), "reduction=" + r
            weight = rnd(c, low=0.25).float()  # fixed: PyTorch has no gradient for it
            f.case("cross_entropy_loss", [rnd(*shape), target(), None], lambda x, y, w: F.cross_entropy(x, y, reduction=r), text)
            f.case("cross_entropy_loss", [rnd(*shape), target(), weight], lambda x, y, w: F.cross_entropy(x, y, w.double(), reduction=r), text)
            if len(shape) > 1:
                f.case("cross_entropy_loss", [rnd(*shape), target(), weight],
                       lambda x, y, w: F.cross_entropy(x, y, w.double(), reduction=r, ignore_index=1, label_smoothing=0.2), text + " ignore_index=1 label_smoothing=0.2")
            f.case("cross_entropy_loss", [rnd(*shape), target().int(), None], lambda x, y, w: F.cross_entropy(x, y.long(), reduction=r, label_smoothing=0.1), text + " label_smoothing=0.1")
            f.case("cross_entropy_loss", [rnd(*shape), rnd(*shape, low=0, high=1), None], lambda x, y, w: F.cross_entropy(x, y, reduction=r), text)
            f.case("cross_entropy_loss", [rnd(*shape), rnd(*shape, low=0, high=1), weight], lambda x, y, w: F.cross_entropy(x, y, w.double(), reduction=r, label_smoothing=0.2), text + " label_smoothing=0.2")
            f.case("nll_loss", [rnd(*shape), target(), None], lambda x, y, w: F.nll_loss(x, y, reduction=r), text)
            f.case("nll_loss", [rnd(*shape), target(), weight], lambda x, y, w: F.nll_loss(x, y, w.double(), reduction=r), text)
            if len(shape) > 1:
                f.case("nll_loss", [rnd(*shape), target(), weight], lambda x, y, w: F.nll_loss(x, y, w.double(), reduction=r, ignore_index=1), text + " ignore_index=1")
    huge = t([[1e4, -1e4, 0.0], [-1e4, -1e4, 1e4]])
    f.case("cross_entropy_loss", [huge, t([1, 2], torch.int64), None], lambda x, y, w: F.cross_entropy(x, y, reduction="none"), "reduction=none")
    # all targets ignored: PyTorch's mean is NaN, here 0 with no gradient
    f.case("cross_entropy_loss", [rnd(2, 3), t([-100, -100], torch.int64), None], None, outs=t(0.0), grads=lambda i, c: [torch.zeros(2, 3)])
    f.case("nll_loss", [rnd(2, 3), t([1, 1], torch.int64), None], None, "ignore_index=1", outs=t(0.0), grads=lambda i, c: [torch.zeros(2, 3)])
    f.error("cross_entropy_loss", [rnd(2, 3), t([1, 3], torch.int64), None], "INDEX")
    f.error("cross_entropy_loss", [rnd(2, 3), t([-1, 0], torch.int64), None], "INDEX")
    f.error("nll_loss", [rnd(2, 3), t([1, 3], torch.int64), None], "INDEX")
    f.error("cross_entropy_loss", [rnd(0, 3), ints(0), None], "SHAPE")
    f.error("cross_entropy_loss", [rnd(2, 3), ints(3, low=0, high=1), None], "SHAPE")
    f.error("cross_entropy_loss", [rnd(2, 3), ints(2, low=0, high=1), rnd(2)], "SHAPE")
    f.error("cross_entropy_loss", [rnd(2, 3), ints(2, low=0, high=1), None], "VALUE", "label_smoothing=2")


def vectors(f):
    for r in REDUCTIONS:
        text = "reduction=" + r
        for shape in ((5, 4), (3, 7)):
            xs = lambda n: [rnd(*shape) + t(i / 32) for i in range(n)]
            f.case("triplet_margin_loss", xs(3), lambda a, p, n: F.triplet_margin_loss(a, p, n, reduction=r), text)
            f.case("triplet_margin_loss", xs(3), lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=2, p=3, swap=True, reduction=r), text + " margin=2 p=3 swap=true")
            sign = ints(shape[0], low=0, high=1) * 2 - 1
            f.case("cosine_embedding_loss", xs(2) + [sign], lambda a, b, y: F.cosine_embedding_loss(a, b, y, reduction=r), text)
            f.case("cosine_embedding_loss", xs(2) + [sign], lambda a, b, y: F.cosine_embedding_loss(a, b, y, margin=0.3, reduction=r), text + " margin=0.3")
    f.error("cosine_embedding_loss", [rnd(3, 4), rnd(3, 4), ints(4)], "SHAPE")


def sequences(f):
    logs = lambda *s: torch.log_softmax(rnd(*s), -1).mul(16).round().div(16)

    def case(x, y, n, m, r, text="", **options):
        """PyTorch's gradient is that of logits before log_softmax, which adds exp(x) for every step that counts; not here."""
        def grads(inputs, cots):
            leaf = inputs[0].clone().requires_grad_()
            found, = torch.autograd.grad(F.ctc_loss(leaf, y, n, m, reduction=r, **options), leaf, cots[0])
            each = F.ctc_loss(x, y, n, m, reduction="none", **options)
            c = cots[0].expand(each.shape) / (1 if r != "mean" else m.clamp(min=1) * max(each.numel(), 1))
            c = torch.where(F.ctc_loss(x, y, n, m, reduction="none").isinf(), 0, c)
            counts = (torch.arange(x.shape[0])[:, None] < n.reshape(1, -1)).double().reshape(x.shape[:-1] + (1,))
            return [found - x.exp() * counts * c.reshape(c.shape + (1,))]
        f.case("ctc_loss", [x, y, n, m], lambda *a: F.ctc_loss(*a, reduction=r, **options), "reduction=" + r + text, grads=grads)

    i = lambda *v: t(list(v), torch.int64)
    for r in REDUCTIONS:
        case(logs(6, 3, 5), ints(3, 3, low=1, high=4), i(6, 5, 6), i(3, 2, 1), r)
        case(logs(7, 2, 4), i(1, 1, 2, 3, 3), i(7, 6), i(3, 2), r)
        case(logs(6, 2, 5), ints(2, 3, low=0, high=3), i(6, 6), i(3, 0), r, " blank=4", blank=4)
        case(logs(2, 2, 5), ints(2, 3, low=1, high=4), i(2, 2), i(3, 1), r, " zero_infinity=true", zero_infinity=True)
        case(logs(6, 5), ints(3, low=1, high=4), t(6, torch.int64), t(3, torch.int64), r)
    f.case("ctc_loss", [logs(2, 2, 5), ints(2, 3, low=1, high=4), i(2, 2), i(3, 1)], lambda *a: F.ctc_loss(*a, reduction="none"), "reduction=none", grad=False)
    labels = ints(2, 3, low=1, high=4)
    f.error("ctc_loss", [logs(6, 2, 5), labels + 4, i(6, 6), i(3, 1)], "INDEX")
    f.error("ctc_loss", [logs(6, 2, 5), labels, i(7, 6), i(3, 1)], "VALUE")
    f.error("ctc_loss", [logs(6, 2, 5), labels, i(6, 6), i(4, 1)], "VALUE")
    f.error("ctc_loss", [logs(6, 2, 5), labels, i(6, 6, 6), i(3, 1)], "SHAPE")
    f.error("ctc_loss", [logs(6, 2, 5), labels, i(6, 6), i(3, 1)], "VALUE", "blank=5")


def write(folder):
    f = Family(folder, "loss", "Losses: PyTorch.")
    for part in (pairs, classes, vectors):
        part(f)
    done = [("loss", f.close())]
    f = Family(folder, "loss_sequence", "Losses of sequences: PyTorch.")
    sequences(f)
    return done + [("loss_sequence", f.close())]
