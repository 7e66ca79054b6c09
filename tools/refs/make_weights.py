"""Writes tests/files/torch: state dicts of small networks as PyTorch and torchvision name and lay them out, and what those
networks make of an input in eval mode.

    python3 -m venv venv && venv/bin/pip install torch torchvision safetensors numpy
    venv/bin/python tools/refs/make_weights.py tests/files/torch

NAME.safetensors is the state dict, as safetensors.torch.save_file writes it; expected.safetensors holds NAME.input (and
NAME.input1, ...) and NAME.output (...), computed in f64 from the weights as they are stored. tests/test_load.c reads them.
"""
import os
import sys

import torch
import torch.nn as nn
import torchvision
from safetensors.torch import save_file
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

folder = sys.argv[1]
expected = {}


class NarrowResNet(ResNet):
    """torchvision's own, with channels divided: its __init__ begins with 64 and asks _make_layer for 64, 128, ..."""

    def __init__(self, block, layers, divisor, classes):
        self.__dict__["divisor"] = divisor
        super().__init__(block, layers, num_classes=classes)
        self.fc = nn.Linear(512 // divisor * block.expansion, classes)

    def __setattr__(self, name, value):
        if name == "inplanes" and "inplanes" not in self.__dict__:
            value //= self.divisor
        super().__setattr__(name, value)

    def _make_layer(self, block, planes, *rest, **more):
        return super()._make_layer(block, planes // self.divisor, *rest, **more)


def narrow_vgg(divisor, classes):
    """The eleven layers of torchvision's vgg11_bn with fewer channels; its classifier likewise."""
    plan = [v if v == "M" else max(1, v // divisor) for v in torchvision.models.vgg.cfgs["A"]]
    last, inside = 512 // divisor, 4096 // divisor
    m = torchvision.models.VGG(torchvision.models.vgg.make_layers(plan, batch_norm=True), num_classes=classes)
    m.classifier = nn.Sequential(nn.Linear(last * 49, inside), nn.ReLU(), nn.Dropout(), nn.Linear(inside, inside), nn.ReLU(),
                                 nn.Dropout(), nn.Linear(inside, classes))
    return m


def settle(m):
    """Weights and statistics that are not those of the start, so that one in the wrong place shows."""
    for name, x in list(m.named_parameters()) + list(m.named_buffers()):
        if not x.dtype.is_floating_point:
            x.fill_(17)  # num_batches_tracked
        elif name.endswith("running_var"):
            x.data = 0.5 + torch.rand_like(x)
        elif x.dim() < 2:
            x.data = x + 0.3 * torch.randn_like(x)


def tensors(value):
    return [x for v in value for x in tensors(v)] if isinstance(value, tuple) else [value]


def case(name, m, *inputs, call=None, dtype=torch.float32):
    settle(m)
    state = {n: x.to(dtype) if x.dtype.is_floating_point else x for n, x in m.state_dict().items()}
    save_file({n: x.clone().contiguous() for n, x in state.items()}, os.path.join(folder, name + ".safetensors"))
    m = m.double().eval()
    m.load_state_dict({n: x.double() if x.dtype.is_floating_point else x for n, x in state.items()})
    inputs = [x.half() for x in inputs]  # exact, and small
    with torch.no_grad():
        wide = [x.double() for x in inputs]
        results = call(m, *wide) if call else m(*wide)
    for i, x in enumerate(inputs):
        expected["%s.input%s" % (name, i or "")] = x
    for i, y in enumerate(tensors(results)):
        expected["%s.output%s" % (name, i or "")] = y.contiguous()


def wave(*shape):
    n = torch.Size(shape).numel()
    return torch.sin(0.9 * torch.arange(n, dtype=torch.float64) + 0.5).reshape(shape)


def write():
    torch.manual_seed(0)
    os.makedirs(folder, exist_ok=True)
    image = wave(2, 3, 32, 32)
    case("resnet18", NarrowResNet(BasicBlock, [2, 2, 2, 2], 32, 5), image)
    case("resnet50", NarrowResNet(Bottleneck, [3, 4, 6, 3], 64, 5), image)
    case("vgg11_bn", narrow_vgg(128, 5), image)
    # a byte for each weight: it has 1280 channels at its end, whatever the width
    case("mobilenet_v2", torchvision.models.mobilenet_v2(num_classes=3, width_mult=0.01), image, dtype=torch.float8_e4m3fn)
    case("vit", torchvision.models.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=5), wave(2, 3, 16, 16))
    case("lstm", nn.LSTM(5, 6, 2, bidirectional=True), wave(4, 3, 5))
    case("gru", nn.GRU(5, 6, 2, bidirectional=True, batch_first=True), wave(4, 3, 5))
    case("rnn", nn.RNN(5, 6, 2, nonlinearity="relu", bias=False), wave(4, 3, 5))
    layer = dict(dim_feedforward=12, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **layer), 2, nn.LayerNorm(8), enable_nested_tensor=False)
    case("transformer_encoder", encoder, wave(2, 5, 8))
    case("transformer_decoder", nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, norm_first=True, **layer), 2), wave(2, 5, 8),
         wave(2, 7, 8))
    case("multihead_attention", nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=4), wave(2, 5, 8), wave(2, 7, 6),
         wave(2, 7, 4), call=lambda m, q, k, v: m(q, k, v, need_weights=False)[0])
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU(4), nn.ConvTranspose2d(4, 6, (3, 2), groups=2),
                           nn.GroupNorm(2, 6), nn.Conv2d(6, 6, 3, groups=3), nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
                           nn.Flatten(2), nn.Conv1d(6, 3, 5), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(204, 8), nn.LayerNorm(8),
                           nn.RMSNorm(8, eps=1e-6))
    case("layers", layers, wave(2, 3, 10, 12))
    case("mlp", nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), wave(2, 6))
    # every shape of a weight fits both layouts: 3 channels to 3, kernels of 3 x 3
    case("square", nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3)), wave(2, 3, 6, 5))
    save_file(expected, os.path.join(folder, "expected.safetensors"))


write()
