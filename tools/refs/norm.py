"""Section H of the op list: normalization."""
import torch
import torch.nn.functional as F

from refs import Family, rnd


def to_first(x):
    return x.movedim(-1, 1)


def to_last(x):
    return x.movedim(1, -1)


def last(fn):
    """fn, which has its channels first, for x with its channels last."""
    return lambda x, *rest: to_last(fn(to_first(x), *rest))


def rows(f):
    for shape, size in (((3, 7), (7,)), ((2, 2, 3), (2, 3)), ((2, 17), (17,))):
        text = "shape=" + ",".join(str(d) for d in size)
        f.case("layer_norm", [rnd(*shape), rnd(*size), rnd(*size)], lambda x, w, b: F.layer_norm(x, size, w, b), text)
        f.case("layer_norm", [rnd(*shape), None, None], lambda x, w, b: F.layer_norm(x, size), text)
        f.case("layer_norm", [rnd(*shape), rnd(*size), None], lambda x, w, b: F.layer_norm(x, size, w, eps=0.1), text + " eps=0.1")
        f.case("rms_norm", [rnd(*shape), rnd(*size)], lambda x, w: F.rms_norm(x, size, w, eps=1e-5), text + " eps=1e-5")
        f.case("rms_norm", [rnd(*shape), None], lambda x, w: F.rms_norm(x, size, eps=0.1), text + " eps=0.1")
    f.case("layer_norm", [rnd(0, 4), rnd(4), rnd(4)], lambda x, w, b: F.layer_norm(x, (4,), w, b), "shape=4")
    f.error("layer_norm", [rnd(3, 4), None, None], "SHAPE", "shape=3")
    f.error("layer_norm", [rnd(3, 4), rnd(3), None], "SHAPE", "shape=4")
    f.error("layer_norm", [rnd(3, 4), None, None], "VALUE", "shape=4 eps=-1")


def channels(f):
    for shape, groups in (((2, 6, 3), 3), ((2, 4, 2, 2), 2), ((3, 6), 2), ((2, 4, 3), 1)):
        c, text = shape[1], "groups=%d" % groups
        norm = lambda x, w, b: F.group_norm(x, groups, w, b)
        f.case("group_norm", [rnd(*shape), rnd(c), rnd(c)], norm, text)
        f.case("group_norm", [to_last(rnd(*shape)).contiguous(), rnd(c), rnd(c)], last(norm), text + " channels_last=true")
        f.case("group_norm", [rnd(*shape), None, None], lambda x, w, b: F.group_norm(x, groups, eps=0.1), text + " eps=0.1")
    for shape in ((2, 3, 4), (2, 2, 3, 2)):
        c = shape[1]
        norm = lambda x, m, v, w, b: F.instance_norm(x, weight=w, bias=b)
        running = lambda x, m, v, w, b: F.instance_norm(x, m.double(), v.double(), w, b, use_input_stats=False)
        f.case("instance_norm", [rnd(*shape), None, None, rnd(c), rnd(c)], norm)
        f.case("instance_norm", [to_last(rnd(*shape)).contiguous(), None, None, rnd(c), rnd(c)], last(norm), "channels_last=true")
        f.case("instance_norm", [rnd(*shape), None, None, None, None], lambda x, m, v, w, b: F.instance_norm(x, eps=0.1), "eps=0.1")
        f.case("instance_norm", [rnd(*shape), rnd(c).float(), rnd(c, low=0.5).float(), rnd(c), rnd(c)], running, "use_running=true")
    f.error("group_norm", [rnd(2, 6, 3), None, None], "VALUE", "groups=4")
    f.error("group_norm", [rnd(2, 6, 3), rnd(3), None], "SHAPE", "groups=2")
    f.error("instance_norm", [rnd(2, 6, 1), None, None, None, None], "SHAPE")


def batches(f):
    # running statistics in f32, which asks for no gradient
    for shape in ((4, 3), (2, 3, 4), (2, 3, 2, 2)):
        c = shape[1]
        mean, var = rnd(c).float(), rnd(c, low=0.25, high=2).float()
        train = lambda x, m, v, w, b, r: F.batch_norm(x, m.double(), v.double(), w, b, training=True)
        infer = lambda x, m, v, w, b, r: F.batch_norm(x, m.double(), v.double(), w, b, training=False)
        f.case("batch_norm", [rnd(*shape), mean, var, rnd(c), rnd(c), None], train, "training=true")
        f.case("batch_norm", [to_last(rnd(*shape)).contiguous(), mean, var, rnd(c), rnd(c), None], last(train), "training=true channels_last=true")
        f.case("batch_norm", [rnd(*shape), mean, var, rnd(c), rnd(c), None], infer)
        f.case("batch_norm", [to_last(rnd(*shape)).contiguous(), mean, var, rnd(c), rnd(c), None], last(infer), "channels_last=true")
        f.case("batch_norm", [rnd(*shape), None, None, None, None, None], lambda x, m, v, w, b, r: F.batch_norm(x, None, None, training=True, eps=0.1), "training=true eps=0.1")
        f.case("batch_norm", [rnd(*shape), mean, var, None, None, None], lambda x, m, v, w, b, r: F.batch_norm(x, m.double(), v.double(), eps=0.1), "eps=0.1")
    f.error("batch_norm", [rnd(1, 3), None, None, None, None, None], "SHAPE", "training=true")
    f.error("batch_norm", [rnd(2, 3), None, None, None, None, None], "VALUE")


def others(f):
    for shape, axis in (((3, 5), 1), ((2, 4, 3), 1), ((2, 4, 3), 0), ((7,), 0)):
        f.case("l2_normalize", [rnd(*shape)], lambda x: F.normalize(x, dim=axis), "axis=%d" % axis)
        f.case("l2_normalize", [rnd(*shape)], lambda x: F.normalize(x, p=3, dim=axis, eps=2), "axis=%d p=3 eps=2" % axis)
    for shape, size in (((2, 7, 2), 5), ((2, 4, 2, 2), 3), ((2, 5, 2), 4), ((2, 3, 1, 2, 1), 2)):
        norm = lambda x: F.local_response_norm(x, size, alpha=0.5, beta=0.6, k=2)
        f.case("local_response_norm", [rnd(*shape)], lambda x: F.local_response_norm(x, size), "size=%d" % size)
        f.case("local_response_norm", [rnd(*shape)], norm, "size=%d alpha=0.5 beta=0.6 k=2" % size)
        f.case("local_response_norm", [to_last(rnd(*shape)).contiguous()], last(norm), "size=%d alpha=0.5 beta=0.6 k=2 channels_last=true" % size)
    f.case("weight_norm", [rnd(3, 5), rnd(3, 1)], lambda v, g: torch._weight_norm(v, g, 0))
    f.case("weight_norm", [rnd(4, 3, 2, 2), rnd(4, 1, 1, 1)], lambda v, g: torch._weight_norm(v, g, 0))
    f.case("weight_norm", [rnd(3, 5), rnd(1, 5)], lambda v, g: torch._weight_norm(v, g, 1), "axis=1")
    f.case("weight_norm", [rnd(3, 5), rnd()], lambda v, g: v * (g / v.norm()), "whole=true")
    f.error("weight_norm", [rnd(3, 5), rnd(5)], "SHAPE")


def write(folder):
    f = Family(folder, "norm", "Normalization: PyTorch.")
    for part in (rows, channels, batches, others):
        part(f)
    return [("norm", f.close())]
