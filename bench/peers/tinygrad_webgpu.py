"""tinygrad's WebGPU backend on products, a convolution and training steps: medians in ms as JSON lines, under the names of bench/device.c.
Every function is jitted, so what is measured is its kernels and their submission; times are by the clock, of many calls and one wait, or
with BENCH_CPU=1 the processor time of all threads.

    pip install tinygrad dawn-python numpy
    DEV=WEBGPU WEBGPU_PATH=.../site-packages/pydawn/lib/libwebgpu_dawn_x86_64.so python3 tinygrad_webgpu.py OUT.jsonl [PART OF A NAME]...
    python3 compare_gpu.py OURS.jsonl OUT.jsonl"""
import json
import os
import statistics
import sys
import time

os.environ.setdefault("DEV", "WEBGPU")
from tinygrad import Context, Device, Tensor, TinyJit, dtypes, nn  # noqa: E402

out = open(sys.argv[1], "a")
parts = sys.argv[2:]
device = Device[Device.DEFAULT]
now = time.process_time if os.environ.get("BENCH_CPU") else time.perf_counter


def batch(f, calls):
    start = now()
    for _ in range(calls):
        f()
    device.synchronize()
    return (now() - start) * 1e3 / calls


def report(name, make, flops=None):
    if parts and not any(part in name for part in parts):
        return
    try:
        f = make()
        for _ in range(3):  # the first runs, the second records, the third is the recording
            batch(f, 1)
        began, once = now(), batch(f, 2)
        calls = 1 if once > 20 else 100 if once < 0.2 else int(20 / once)
        times = []
        while len(times) < 30 and (len(times) < 5 or now() - began < 1):
            times.append(batch(f, calls))
        row = {"name": name, "ms": round(statistics.median(times), 5), "peak_mib": 0}
        if flops:
            row["tflops"] = round(flops / row["ms"] / 1e9, 3)
    except Exception as error:  # a device without f16, a kernel that it refuses
        row = {"name": name, "error": repr(error)[:200]}
    out.write(json.dumps(row) + "\n")
    out.flush()
    print(row, flush=True)


def product(n, dtype):
    def make():
        a, b = (Tensor.randn(n, n).cast(dtype).realize() for _ in range(2))
        return TinyJit(lambda: a.matmul(b, dtype=dtypes.float32).realize())
    return make


def convolution(n, channels, side, backward):
    def make():
        x = Tensor.randn(n, channels, side, side).realize()
        w, b = Tensor.randn(channels, channels, 3, 3).realize(), Tensor.randn(channels).realize()
        c = Tensor.randn(n, channels, side, side).realize()
        if not backward:
            return TinyJit(lambda: x.conv2d(w, b, padding=1).realize())

        def both():
            y = x.conv2d(w, b, padding=1)
            return Tensor.realize(y, *(y * c).sum().gradient(x, w, b))
        return TinyJit(both)
    return make


class Mlp:
    def __init__(self):
        self.layers = [nn.Linear(784, 512), Tensor.relu, nn.Linear(512, 512), Tensor.relu, nn.Linear(512, 10)]

    def __call__(self, x):
        return x.sequential(self.layers)


class Cnn:
    def __init__(self):
        self.layers = [nn.Conv2d(1, 32, 3), Tensor.relu, nn.Conv2d(32, 64, 3), Tensor.relu, Tensor.max_pool2d,
                       lambda x: x.flatten(1), nn.Linear(9216, 128), Tensor.relu, nn.Linear(128, 10)]

    def __call__(self, x):
        return x.sequential(self.layers)


def training(network, shape, optimizer):
    def make():
        net = network()
        steps = optimizer(nn.state.get_parameters(net))
        x, y = Tensor.randn(*shape).realize(), Tensor.randint(shape[0], high=10).realize()

        @TinyJit
        def step():
            with Context(TRAINING=1):
                steps.zero_grad()
                loss = net(x).sparse_categorical_crossentropy(y).backward()
                return loss.realize(*steps.schedule_step())
        return step
    return make


for size in (512, 2048, 4096):
    report(f"matmul/{size}/f32-ieee", product(size, dtypes.float32), flops=2 * size**3)
    report(f"matmul/{size}/f16", product(size, dtypes.float16), flops=2 * size**3)
flops = 2 * 16 * 64 * 64 * 9 * 56 * 56
report("conv/3x3-64-56-N16/tf32/fwd", convolution(16, 64, 56, False), flops=flops)
report("conv/3x3-64-56-N16/tf32/fwdbwd", convolution(16, 64, 56, True), flops=3 * flops)
report("train/mlp-784-512-512-10/B64/f32", training(Mlp, (64, 784), lambda p: nn.optim.SGD(p, 0.01, momentum=0.9)))
report("train/mnist-cnn/B64/tf32", training(Cnn, (64, 1, 28, 28), lambda p: nn.optim.Adam(p, 1e-3)))
