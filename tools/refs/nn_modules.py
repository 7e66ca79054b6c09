"""Layers and models of nn/ against PyTorch's: nn.txt.

Parameters, buffers and inputs are not stored: both sides fill them by the same formula of name and place. A case is

    case NAME train|eval
    in float|i64 [shape] (limit)   inputs, by formula; tokens are below the limit
    out [shape] DOT NORM           a result: its product with a pattern, and its norm
    grad NAME DOT NORM             of a parameter, where the loss is the sum of pattern * results
    xgrad K DOT NORM               of the K-th input
    buffer NAME DOT NORM           as it is after the forward

in f64 throughout; tests/test_nn_refs.c builds the module of that name, and reads the rest from here.
"""
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def pattern(n):
    return torch.cos(0.61 * torch.arange(n, dtype=torch.float64) + 0.2)


def fill(x, name):
    n = x.numel()
    phase = (sum(name.encode()) % 97) * 0.31
    wave = torch.sin(0.73 * torch.arange(n, dtype=torch.float64) + 1 + phase)
    if x.dim() > 1:
        wave = wave / math.sqrt(n / x.shape[0])
    elif name.endswith(("weight", "running_var")):
        wave = 1 + 0.3 * wave
    else:
        wave = 0.3 * wave
    with torch.no_grad():
        x.copy_(wave.reshape(x.shape))


def summary(x):
    x = x.detach().double().reshape(-1)
    return "%.15g %.15g" % ((x * pattern(x.numel())).sum().item(), x.norm().item())


class Cases:
    def __init__(self):
        self.lines, self.count = [], 0

    def add(self, name, module, inputs, train=True, rename=lambda n: n):
        """inputs: shapes, or (shape, limit) for tokens. rename: PyTorch's name of a parameter to ours."""
        module = module.double()
        module.train(train)
        for n, p in list(module.named_parameters()) + list(module.named_buffers()):
            if p.dtype.is_floating_point:
                fill(p, rename(n))
        self.lines.append("case %s %s" % (name, "train" if train else "eval"))
        self.count += 1
        xs = []
        for k, shape in enumerate(inputs):
            if isinstance(shape[0], tuple):
                shape, limit = shape
                n = math.prod(shape)
                x = ((torch.arange(n) * 7 + 3 + k) % limit).reshape(shape)
                self.lines.append("in i64 [%s] %d" % (",".join(map(str, shape)), limit))
            else:
                n = math.prod(shape)
                x = torch.sin(0.9 * torch.arange(n, dtype=torch.float64) + 0.5 + k).reshape(shape).requires_grad_()
                self.lines.append("in float [%s]" % ",".join(map(str, shape)))
            xs.append(x)
        ys = module(*xs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        loss = sum((y.reshape(-1) * pattern(y.numel())).sum() for y in ys)
        loss.backward()
        for y in ys:
            self.lines.append("out [%s] %s" % (",".join(map(str, y.shape)), summary(y)))
        for n, p in module.named_parameters():
            self.lines.append("grad %s %s" % (rename(n), summary(p.grad)))
        for k, x in enumerate(xs):
            if x.dtype.is_floating_point and x.grad is not None:
                self.lines.append("xgrad %d %s" % (k, summary(x.grad)))
        for n, b in module.named_buffers():
            if b.dtype.is_floating_point:
                self.lines.append("buffer %s %s" % (rename(n), summary(b)))


class Call(nn.Module):
    """A module that is called in a way of its own."""

    def __init__(self, inner, call):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, *xs):
        return self.call(self.inner, *xs)


def inner(name):
    return name.removeprefix("inner.")


class Deform(nn.Module):
    def __init__(self, modulated):
        super().__init__()
        self.modulated = modulated
        d = torchvision.ops.DeformConv2d(4, 6, 3, padding=1)
        self.weight, self.bias = d.weight, d.bias
        self.offset = nn.Conv2d(4, 27 if modulated else 18, 3, padding=1)

    def forward(self, x):
        o = self.offset(x)
        mask = torch.sigmoid(o[:, 18:]) if self.modulated else None
        return torchvision.ops.deform_conv2d(x, o[:, :18], self.weight, self.bias, padding=1, mask=mask)


class Separable(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, 2, 1, groups=4, bias=False)
        self.pointwise = nn.Conv2d(4, 6, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        self.shortcut = nn.Linear(6, 6)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.l1, self.qkv, self.o = h, nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.l2, self.f1, self.f2 = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.l1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        w = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(w.transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.l2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, dim, heads, layers, tied):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(context, dim))
        self.tokens = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, i):
        x = self.tokens(i) + self.position[:i.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def gpt_name(n):
    for ours, theirs in (("norm1", "l1"), ("self_attn.in_proj_weight", "qkv.weight"), ("self_attn.in_proj_bias", "qkv.bias"),
                         ("self_attn.out_proj", "o"), ("norm2", "l2"), ("linear1", "f1"), ("linear2", "f2")):
        parts = n.split(".", 2)
        if parts[0] == "layers" and (parts[2] == theirs or parts[2].startswith(theirs + ".")):
            return ".".join(parts[:2]) + "." + ours + parts[2][len(theirs):]
    return n


class LstmLm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(11, 6), nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 11)

    def forward(self, i, h, c):
        y, (h, c) = self.lstm(self.tokens(i), (h, c))
        return self.head(y), h, c


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Up(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.widen, self.join = nn.ConvTranspose2d(i, i // 2, 2, 2), double_conv(i, i // 2)


class Unet(nn.Module):
    def __init__(self, levels, base, channels, classes):
        super().__init__()
        self.down = nn.ModuleList(double_conv(base << (i - 1) if i else channels, base << i) for i in range(levels))
        self.bottom = double_conv(base << (levels - 1), base << levels)
        self.up = nn.ModuleList(Up(base << (levels - i)) for i in range(levels))
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        skips = []
        for d in self.down:
            x = d(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for u in self.up:
            x = u.join(torch.cat([skips.pop(), u.widen(x)], 1))
        return self.head(x)


def vit_name(n):
    n = n.replace("encoder.pos_embedding", "position").replace("conv_proj", "patch").replace("heads.head", "head")
    n = n.replace("encoder.layers.encoder_layer_", "layers.").replace("encoder.ln", "norm")
    n = n.replace("ln_1", "norm1").replace("ln_2", "norm2").replace("self_attention", "self_attn")
    return n.replace("mlp.0", "linear1").replace("mlp.3", "linear2")


def small_resnet(m):
    m.conv1, m.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return m


def layers(c):
    image, line, volume = (2, 4, 9, 8), (2, 4, 11), (2, 4, 5, 6, 4)
    c.add("linear", nn.Linear(5, 7), [(2, 3, 5)])
    c.add("linear_no_bias", nn.Linear(5, 7, bias=False), [(3, 5)])
    c.add("conv1d", nn.Conv1d(4, 6, 3, 2, 1, 2, 2), [line])
    c.add("conv2d", nn.Conv2d(4, 6, (3, 2), 2, 1, 1, 2), [image])
    c.add("conv2d_reflect", nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect", bias=False), [image])
    c.add("conv2d_circular", nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), [image])
    c.add("conv2d_same", nn.Conv2d(4, 6, 3, padding="same"), [image])
    c.add("conv3d", nn.Conv3d(4, 6, 3, 1, 1), [volume])
    c.add("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2), [line])
    c.add("conv_transpose2d", nn.ConvTranspose2d(4, 6, 4, 2, 1), [image])
    c.add("conv_transpose3d", nn.ConvTranspose3d(4, 6, 2, 2, bias=False), [volume])
    c.add("depthwise_conv2d", nn.Conv2d(4, 8, 3, 1, 1, groups=4), [image])
    c.add("separable_conv2d", Separable(), [image])
    c.add("deform_conv2d", Deform(False), [image])
    c.add("deform_conv2d_modulated", Deform(True), [image])
    for d, shape in ((1, line), (2, image), (3, volume)):
        c.add("max_pool%dd" % d, getattr(nn, "MaxPool%dd" % d)(3, 2, 1), [shape])
        c.add("avg_pool%dd" % d, getattr(nn, "AvgPool%dd" % d)(2, ceil_mode=True), [shape])
        c.add("lp_pool%dd" % d, getattr(nn, "LPPool%dd" % d)(2.0, 2), [shape])
        c.add("adaptive_avg_pool%dd" % d, getattr(nn, "AdaptiveAvgPool%dd" % d)(3), [shape])
        c.add("adaptive_max_pool%dd" % d, getattr(nn, "AdaptiveMaxPool%dd" % d)(2), [shape])
    c.add("batch_norm_train", nn.BatchNorm2d(4), [image])
    c.add("batch_norm_eval", nn.BatchNorm2d(4), [image], train=False)
    c.add("batch_norm_1d", nn.BatchNorm1d(6, momentum=0.3, eps=1e-3), [(5, 6)])
    c.add("batch_norm_no_running", nn.BatchNorm2d(4, track_running_stats=False), [image], train=False)
    c.add("group_norm", nn.GroupNorm(2, 4), [image])
    c.add("instance_norm", nn.InstanceNorm2d(4), [image])
    c.add("instance_norm_running", nn.InstanceNorm2d(4, affine=True, track_running_stats=True), [image])
    c.add("instance_norm_eval", nn.InstanceNorm2d(4, affine=True, track_running_stats=True), [image], train=False)
    c.add("layer_norm", nn.LayerNorm(6), [(2, 5, 6)])
    c.add("layer_norm_shape", nn.LayerNorm([5, 6]), [(2, 5, 6)])
    c.add("rms_norm", nn.RMSNorm(6, eps=1e-6), [(2, 5, 6)])
    c.add("local_response_norm", nn.LocalResponseNorm(3, alpha=0.1, beta=0.6, k=2), [image])
    c.add("embedding", nn.Embedding(9, 4), [((3, 5), 9)])
    c.add("embedding_padding", nn.Embedding(9, 4, padding_idx=2), [((3, 5), 9)])
    for k in ("relu", "tanh"):
        c.add("rnn_" + k, Call(nn.RNN(5, 6, 1, nonlinearity=k), lambda m, x: m(x)), [(4, 3, 5)], rename=inner)
    c.add("lstm", Call(nn.LSTM(5, 6, 2, bidirectional=True), lambda m, x, h, k: (lambda r: (r[0], *r[1]))(m(x, (h, k)))),
          [(4, 3, 5), (4, 3, 6), (4, 3, 6)], rename=inner)
    c.add("lstm_batch_first", Call(nn.LSTM(5, 6, 1, batch_first=True, bias=False), lambda m, x: m(x)[0]), [(4, 3, 5)],
          rename=inner)
    c.add("gru", Call(nn.GRU(5, 6, 2, bidirectional=True, batch_first=True), lambda m, x, h: m(x, h)),
          [(4, 3, 5), (4, 4, 6)], rename=inner)
    packed = lambda m, x, lengths, h, first: (lambda r: (pad_packed_sequence(r[0], first, total_length=8)[0], *(
        r[1] if isinstance(r[1], tuple) else (r[1],))))(m(pack_padded_sequence(x, lengths, first, enforce_sorted=False), h))
    c.add("lstm_lengths", Call(nn.LSTM(5, 6, 2, bidirectional=True), lambda m, x, h, k, n: packed(m, x, n, (h, k), False)),
          [(8, 3, 5), (4, 3, 6), (4, 3, 6), ((3,), 9)], rename=inner)
    c.add("gru_lengths", Call(nn.GRU(5, 6, 2, bidirectional=True, batch_first=True), lambda m, x, h, n: packed(m, x, n, h, True)),
          [(3, 8, 5), (4, 3, 6), ((3,), 9)], rename=inner)
    c.add("rnn_lengths", Call(nn.RNN(5, 6), lambda m, x, h, n: packed(m, x, n, h, False)), [(8, 3, 5), (1, 3, 6), ((3,), 9)],
          rename=inner)
    c.add("rnn_cell", nn.RNNCell(5, 6), [(3, 5), (3, 6)])
    c.add("lstm_cell", Call(nn.LSTMCell(5, 6), lambda m, x, h, k: m(x, (h, k))), [(3, 5), (3, 6), (3, 6)], rename=inner)
    c.add("gru_cell", nn.GRUCell(5, 6), [(3, 5), (3, 6)])
    x, m = (2, 5, 8), (2, 7, 8)
    c.add("attention_self", Call(nn.MultiheadAttention(8, 2, batch_first=True), lambda a, q: a(q, q, q)[0]), [x], rename=inner)
    c.add("attention_cross", Call(nn.MultiheadAttention(8, 2, batch_first=True), lambda a, q, k, v: a(q, k, v)[0]), [x, m, m],
          rename=inner)
    c.add("attention_dims", Call(nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=4), lambda a, q, k, v: a(q, k, v)[0]),
          [x, (2, 7, 6), (2, 7, 4)], rename=inner)
    causal = torch.ones(5, 5).triu(1).bool()
    c.add("attention_causal", Call(nn.MultiheadAttention(8, 2, batch_first=True, bias=False),
                                   lambda a, q: a(q, q, q, attn_mask=causal)[0]), [x], rename=inner)
    c.add("attention_mask", Call(nn.MultiheadAttention(8, 2, batch_first=True), lambda a, q, k: a(q, q, q, attn_mask=k)[0]),
          [x, (5, 5)], rename=inner)
    for form in ("post", "pre"):
        o = dict(dim_feedforward=12, dropout=0.0, batch_first=True, norm_first=form == "pre",
                 activation="gelu" if form == "pre" else "relu")
        c.add("encoder_layer_" + form, nn.TransformerEncoderLayer(8, 2, **o), [x])
        c.add("decoder_layer_" + form, nn.TransformerDecoderLayer(8, 2, **o), [x, m])
        e, d = nn.TransformerEncoderLayer(8, 2, **o), nn.TransformerDecoderLayer(8, 2, **o)
        c.add("encoder_" + form, nn.TransformerEncoder(e, 2, nn.LayerNorm(8), enable_nested_tensor=False), [x])
        c.add("decoder_" + form, Call(nn.TransformerDecoder(d, 2), lambda a, t, k: a(t, k, tgt_mask=causal)), [x, m],
              rename=inner)
    one = (3, 8)
    for name, act in (("relu", nn.ReLU()), ("relu6", nn.ReLU6()), ("selu", nn.SELU()), ("sigmoid", nn.Sigmoid()),
                      ("hard_sigmoid", nn.Hardsigmoid()), ("log_sigmoid", nn.LogSigmoid()), ("tanh", nn.Tanh()),
                      ("softsign", nn.Softsign()), ("silu", nn.SiLU()), ("mish", nn.Mish()), ("hard_swish", nn.Hardswish()),
                      ("gelu", nn.GELU()), ("gelu_tanh", nn.GELU("tanh")), ("leaky_relu", nn.LeakyReLU(0.2)), ("elu", nn.ELU(0.7)),
                      ("celu", nn.CELU(0.75)), ("softplus", nn.Softplus(2, 0.9)), ("threshold", nn.Threshold(0.1, 0.3)),
                      ("softmax", nn.Softmax(1)), ("log_softmax", nn.LogSoftmax(1)), ("glu", nn.GLU(1)), ("prelu", nn.PReLU(8))):
        c.add(name, act, [one])
    c.add("upsample", nn.Upsample(scale_factor=2, mode="bilinear"), [image])
    c.add("upsample_size", nn.Upsample((7, 13), mode="nearest"), [image])
    c.add("pixel_shuffle", nn.PixelShuffle(2), [image])
    c.add("pixel_unshuffle", nn.PixelUnshuffle(2), [(2, 4, 6, 8)])
    c.add("flatten", nn.Flatten(), [image])
    c.add("flatten_axes", nn.Flatten(0, 2), [image])
    c.add("unflatten", nn.Unflatten(1, (2, -1)), [image])
    c.add("pad", nn.ReflectionPad2d((1, 2, 3, 1)), [image])
    c.add("residual", Residual(), [(3, 6)])
    c.add("sequential", nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Sigmoid(), nn.Flatten(),
                                      nn.Linear(80, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3), nn.Tanh()), [image])


def models(c):
    lenet = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 10))
    names = {"0": "conv1", "3": "conv2", "7": "fc1", "9": "fc2"}
    first = lambda n: names[n.split(".")[0]] + "." + n.split(".", 1)[1]
    c.add("model_lenet", lenet, [(2, 1, 28, 28)], rename=first)
    mlp = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    dense = {"0": "0", "2": "1", "4": "2"}
    c.add("model_mlp", mlp, [(4, 12)], rename=lambda n: dense[n[0]] + n[1:])
    v = torchvision.models
    c.add("model_resnet18", small_resnet(v.resnet18(num_classes=10)), [(2, 3, 16, 16)])
    c.add("model_resnet50_imagenet", v.resnet50(num_classes=7), [(2, 3, 64, 64)], train=False)
    c.add("model_vgg11_bn", nn.Sequential(v.vgg11_bn().features, nn.Flatten(), nn.Linear(512, 10)), [(2, 3, 32, 32)], train=False,
          rename=lambda n: n.replace("0.", "features.", 1) if n.startswith("0.") else n.replace("2.", "classifier.1.", 1))
    mobile = v.mobilenet_v2(num_classes=10, dropout=0.0)
    c.add("model_mobilenet_v2_imagenet", mobile, [(2, 3, 64, 64)], train=False)
    c.add("model_unet", Unet(2, 4, 3, 2), [(2, 3, 8, 12)])
    c.add("model_vit", v.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=5), [(2, 3, 16, 16)], rename=vit_name)
    c.add("model_gpt", Gpt(11, 8, 12, 3, 2, False), [((2, 6), 11)], rename=gpt_name)
    c.add("model_gpt_tied", Gpt(11, 8, 12, 3, 2, True), [((2, 8), 11)], rename=gpt_name)
    c.add("model_lstm", LstmLm(), [((2, 5), 11), (2, 2, 8), (2, 2, 8)])


def write(folder):
    torch.manual_seed(0)
    cases = Cases()
    layers(cases)
    models(cases)
    with open(os.path.join(folder, "nn.txt"), "w") as f:
        f.write("\n".join(cases.lines) + "\n")
    return [("nn", cases.count)]


if __name__ == "__main__":
    import sys
    print(write(sys.argv[1] if len(sys.argv) > 1 else "tests/refs"))
