#!/usr/bin/env python3
"""PyTorch on the CPU, on the workloads of `cotangent bench`: one JSON line a workload.

  python3 torch_bench.py --threads 1 [--only REGEX] [--min-time 0.6] [--list] [--serve]

--serve reads names from standard input and answers each with its line, so that compare.py can alternate libraries.

Fields: name, threads, median_ms, min_ms, iqr_pct (noise), reps and gflops or gb_s where meaningful.
gflops: mathematical flops (2*MAC; backward data + backward weight each equal forward).
gb_s: compulsory traffic only (each input read once, each output written once).
"""
import argparse, os, sys, json, time, re, math
ap = argparse.ArgumentParser()
ap.add_argument('--threads', type=int, default=1)
ap.add_argument('--only', default='')
ap.add_argument('--min-time', type=float, default=0.6)
ap.add_argument('--list', action='store_true')
ap.add_argument('--serve', action='store_true')
a = ap.parse_args()
for v in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'BLIS_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ[v] = str(a.threads)
os.environ.setdefault('OMP_PROC_BIND', 'false')
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.set_num_threads(a.threads)
torch.manual_seed(0)
SDPA = getattr(F, 'scaled_dot_product_attention', None)  # the fused kernel where this PyTorch has one
W = []


def reg(name, setup, flops=None, bytes_=None):
    W.append((name, setup, flops, bytes_))


def measure(fn):
    t0 = time.perf_counter(); fn(); fn(); fn()
    warm = (time.perf_counter() - t0) / 3
    inner = max(1, int(2e-4 / max(warm, 1e-9)))
    ts = []
    end = time.perf_counter() + a.min_time
    while (time.perf_counter() < end and len(ts) < 2000) or len(ts) < 5:
        t = time.perf_counter()
        for _ in range(inner):
            fn()
        ts.append((time.perf_counter() - t) / inner)
    ts.sort()
    n = len(ts)
    return ts[n // 2], ts[0], (ts[(3 * n) // 4] - ts[n // 4]) / ts[n // 2] * 100, n * inner


# ---------------------------------------------------------------- matmul
for dt, nm, sizes in ((torch.float32, 'f32', (256, 512, 1024, 2048)), (torch.float64, 'f64', (256, 512, 1024, 2048)),
                      (torch.bfloat16, 'bf16', (512, 1024, 2048, 4096))):
    for n in sizes:
        for tr in ('', '_nt', '_tn', '_tt'):
            def s(n=n, dt=dt, tr=tr):
                x, y, o = torch.randn(n, n, dtype=dt), torch.randn(n, n, dtype=dt), torch.empty(n, n, dtype=dt)
                x, y = (x.t() if tr[1:2] == 't' else x), (y.t() if tr[2:3] == 't' else y)
                return lambda: torch.mm(x, y, out=o)
            reg(f'matmul_{nm}_{n}{tr}', s, 2 * n ** 3)


def s():
    x, y = torch.randn(64, 4096), torch.randn(4096, 1024)
    return lambda: x @ y
reg('matmul_f32_64x1024_k4096', s, 2 * 64 * 1024 * 4096)


def s():
    x = torch.randn(64, 784); l = nn.Linear(784, 512)
    return lambda: l(x).detach()
reg('linear_fwd_64x784x512', s, 2 * 64 * 784 * 512)


def s():
    x, y = torch.randn(64, 128, 64), torch.randn(64, 64, 128)
    return lambda: torch.bmm(x, y)
reg('bmm_64x128x64x128', s, 2 * 64 * 128 * 64 * 128)


for n in (8, 16, 32, 48, 64):
    def s(n=n):
        x, y, o = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        return lambda: torch.mm(x, y, out=o)
    reg(f'gemm_f32_{n}', s, 2 * n ** 3)
for n in (8, 16, 32, 64):
    def s(n=n):
        x, y, o = torch.randn(1000, n, n), torch.randn(1000, n, n), torch.empty(1000, n, n)
        return lambda: torch.bmm(x, y, out=o)
    reg(f'bmm_1000x{n}x{n}x{n}', s, 2000 * n ** 3)

# ---------------------------------------------------------------- convolutions
CONVS = [  # name, dims, N, IC, OC, spatial, k, stride, pad, dil, groups, input grad
    ('res64_3x3_56_n16', 2, 16, 64, 64, (56, 56), 3, 1, 1, 1, 1, True),
    ('res256_3x3_14_n16', 2, 16, 256, 256, (14, 14), 3, 1, 1, 1, 1, True),
    ('pw256to64_1x1_56_n16', 2, 16, 256, 64, (56, 56), 1, 1, 0, 1, 1, True),
    ('stem3to64_7x7s2_224_n8', 2, 8, 3, 64, (224, 224), 7, 2, 3, 1, 1, False),
    ('dw128_3x3_56_n16', 2, 16, 128, 128, (56, 56), 3, 1, 1, 1, 128, True),
    ('dil2_64_3x3_56_n8', 2, 8, 64, 64, (56, 56), 3, 1, 2, 2, 1, True),
    ('grp32_256_3x3_14_n16', 2, 16, 256, 256, (14, 14), 3, 1, 1, 1, 32, True),
    ('conv1d_64to128_k9_L4096_n8', 1, 8, 64, 128, (4096,), 9, 1, 4, 1, 1, True),
    ('conv3d_16to32_k3_16x56x56_n2', 3, 2, 16, 32, (16, 56, 56), 3, 1, 1, 1, 1, True),
]


def conv_setup(c, bwd, cl, dtype=torch.float32):
    name, d, N, IC, OC, sp, k, st, p, dil, g, ig = c

    def s():
        m = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[d - 1](IC, OC, k, st, p, dil, g, bias=False).to(dtype)
        x = torch.randn(N, IC, *sp, dtype=dtype)
        if cl:
            mf = torch.channels_last if d == 2 else torch.channels_last_3d
            x = x.to(memory_format=mf); m = m.to(memory_format=mf)
        if not bwd:
            def f():
                with torch.no_grad():
                    m(x)
            return f
        x.requires_grad_(ig)
        gy = torch.randn_like(m(x).detach())

        def f():
            m.weight.grad = None; x.grad = None
            m(x).backward(gy)
        return f
    return s


for c in CONVS:
    name, d, N, IC, OC, sp, k, st, p, dil, g, ig = c
    out = [(v + 2 * p - dil * (k - 1) - 1) // st + 1 for v in sp]
    fl = 2 * N * OC * math.prod(out) * (IC // g) * k ** d
    for cl in ((False, True) if d >= 2 else (False,)):
        t = '_cl' if cl else ''
        reg(f'conv_fwd_{name}{t}', conv_setup(c, False, cl), fl)
        reg(f'conv_fwdbwd_{name}{t}', conv_setup(c, True, cl), fl * (3 if ig else 2))
reg('conv_fwd_res64_3x3_56_n16_bf16_cl', conv_setup(CONVS[0], False, True, torch.bfloat16), 2 * 16 * 64 * 56 * 56 * 64 * 9)


def ct(bwd):
    def s():
        m = nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False)
        x = torch.randn(16, 64, 28, 28)
        if not bwd:
            def f():
                with torch.no_grad():
                    m(x)
            return f
        x.requires_grad_()
        gy = torch.randn(16, 32, 56, 56)

        def f():
            m.weight.grad = None; x.grad = None
            m(x).backward(gy)
        return f
    return s
fl = 2 * 16 * 64 * 28 * 28 * 32 * 16
reg('convT_fwd_64to32_k4s2_28_n16', ct(False), fl)
reg('convT_fwdbwd_64to32_k4s2_28_n16', ct(True), fl * 3)

# ---------------------------------------------------------------- deformable convolution
try:
    from torchvision.ops import deform_conv2d as tv_deform
except ImportError:
    tv_deform = None


def gather_deform(x, offset, w, mask):
    """3x3, stride 1, pad 1, with PyTorch's own ops: four gathers and a product."""
    N, C, H, Wd = x.shape
    K = w.shape[2] * w.shape[3]
    o = offset.view(N, K, 2, H * Wd)
    ky, kx = torch.meshgrid(torch.arange(3), torch.arange(3), indexing='ij')
    by = (torch.arange(H).view(1, H, 1) + ky.reshape(K, 1, 1) - 1).expand(K, H, Wd).reshape(K, H * Wd)
    bx = (torch.arange(Wd).view(1, 1, Wd) + kx.reshape(K, 1, 1) - 1).expand(K, H, Wd).reshape(K, H * Wd)
    py, px = o[:, :, 0] + by, o[:, :, 1] + bx
    ly, lx = py.detach().floor(), px.detach().floor()
    fy, fx = py - ly, px - lx
    flat, cols = x.view(N, C, H * Wd), 0
    for dy in (0, 1):
        for dx in (0, 1):
            y, v = ly + dy, lx + dx
            ok = (y >= 0) & (y < H) & (v >= 0) & (v < Wd)
            at = (y.clamp(0, H - 1) * Wd + v.clamp(0, Wd - 1)).long().view(N, 1, -1).expand(N, C, K * H * Wd)
            wt = (fy if dy else 1 - fy) * (fx if dx else 1 - fx) * ok * mask.view(N, K, -1)
            cols = cols + flat.gather(2, at) * wt.view(N, 1, -1)
    return (w.view(w.shape[0], -1) @ cols.view(N, C * K, H * Wd)).view(N, -1, H, Wd)


def deform(fn, bwd):
    def s():
        x, o = torch.randn(4, 64, 56, 56), torch.randn(4, 18, 56, 56)
        w, m = torch.randn(64, 64, 3, 3), torch.randn(4, 9, 56, 56)
        if not bwd:
            def f():
                with torch.no_grad():
                    fn(x, o, w, m)
            return f
        leaves = [v.requires_grad_() for v in (x, o, w, m)]
        gy = torch.randn(4, 64, 56, 56)

        def f():
            for v in leaves:
                v.grad = None
            fn(*leaves).backward(gy)
        return f
    return s


for bwd in (False, True):
    name = 'deform_%s_64_3x3_56_n4' % ('fwdbwd' if bwd else 'fwd')
    fl = 2 * 4 * 64 * 56 * 56 * 64 * 9 * (3 if bwd else 1)
    reg(name + '_gather', deform(gather_deform, bwd), fl)
    if tv_deform:
        for t in ('', '_cl'):  # torchvision has one layout
            reg(name + t, deform(lambda x, o, w, m: tv_deform(x, o, w, padding=1, mask=m), bwd), fl)

# ---------------------------------------------------------------- pooling, norms


def unary_fb(make_x, op, cl=False, bwd=True, params=()):
    def s():
        x = make_x()
        if cl:
            x = x.to(memory_format=torch.channels_last)
        f0 = op()
        if not bwd:
            def f():
                with torch.no_grad():
                    f0(x)
            return f
        x.requires_grad_()
        gy = torch.randn_like(f0(x).detach())

        def f():
            x.grad = None
            if isinstance(f0, nn.Module):
                for p in f0.parameters():
                    p.grad = None
            f0(x).backward(gy)
        return f
    return s


P = lambda: torch.randn(16, 64, 112, 112)
pb = 16 * 64 * 112 * 112 * 4
for cl in (False, True):
    t = '_cl' if cl else ''
    reg('maxpool3x3s2_fwd_64x112_n16' + t, unary_fb(P, lambda: nn.MaxPool2d(3, 2, 1), cl, False), None, pb * 1.25)
    reg('maxpool3x3s2_fwdbwd_64x112_n16' + t, unary_fb(P, lambda: nn.MaxPool2d(3, 2, 1), cl), None, pb * 2.5)
    reg('avgpool2x2_fwd_64x112_n16' + t, unary_fb(P, lambda: nn.AvgPool2d(2), cl, False), None, pb * 1.25)
    reg('avgpool2x2_fwdbwd_64x112_n16' + t, unary_fb(P, lambda: nn.AvgPool2d(2), cl), None, pb * 2.5)
B = lambda: torch.randn(16, 64, 56, 56)
bb = 16 * 64 * 56 * 56 * 4
for cl in (False, True):
    t = '_cl' if cl else ''
    reg('batchnorm_train_fwdbwd_64x56_n16' + t, unary_fb(B, lambda: nn.BatchNorm2d(64), cl), None, bb * 5)
    reg('groupnorm8_fwdbwd_64x56_n16' + t, unary_fb(B, lambda: nn.GroupNorm(8, 64), cl), None, bb * 5)
L = lambda: torch.randn(4096, 1024)
lb = 4096 * 1024 * 4
reg('layernorm_fwd_4096x1024', unary_fb(L, lambda: nn.LayerNorm(1024), bwd=False), None, lb * 2)
reg('layernorm_fwdbwd_4096x1024', unary_fb(L, lambda: nn.LayerNorm(1024)), None, lb * 5)
reg('softmax_fwd_4096x1024', unary_fb(L, lambda: nn.Softmax(-1), bwd=False), None, lb * 2)
reg('softmax_fwdbwd_4096x1024', unary_fb(L, lambda: nn.Softmax(-1)), None, lb * 5)


def s():
    x = torch.randn(4096, 1024, requires_grad=True); y = torch.randint(0, 1024, (4096,))

    def f():
        x.grad = None
        F.cross_entropy(x, y).backward()
    return f
reg('cross_entropy_fwdbwd_4096x1024', s, None, lb * 4)

# ---------------------------------------------------------------- element-wise, 16M elements
E = 16 * 1024 * 1024
for nm, fn in (('gelu', F.gelu), ('sigmoid', torch.sigmoid), ('tanh', torch.tanh), ('exp', torch.exp), ('relu', torch.relu), ('silu', F.silu)):
    def s(fn=fn):
        x = torch.randn(E)
        return lambda: fn(x)
    reg(f'{nm}_16M_alloc', s, None, E * 8)
for nm, fn in (('sigmoid', torch.sigmoid), ('tanh', torch.tanh), ('exp', torch.exp)):
    def s(fn=fn):
        x, o = torch.randn(E), torch.empty(E)
        return lambda: fn(x, out=o)
    reg(f'{nm}_16M_out', s, None, E * 8)
    def s(fn=fn):
        x, o = torch.randn(65536), torch.empty(65536)
        return lambda: fn(x, out=o)
    reg(f'{nm}_64K_out', s, None, 65536 * 8)


def s():
    x, o = torch.randn(65536), torch.empty(65536)
    return lambda: torch._C._nn.gelu(x, out=o)
reg('gelu_64K_out', s, None, 65536 * 8)


def s():
    x, y, o = torch.randn(E), torch.randn(E), torch.empty(E)
    return lambda: torch.add(x, y, out=o)
reg('add_16M_out', s, None, E * 12)


def s():
    x, y = torch.randn(E), torch.randn(E)
    return lambda: x + y
reg('add_16M_alloc', s, None, E * 12)


def s():
    c, x, y = torch.rand(E) < 0.5, torch.randn(E), torch.randn(E)
    return lambda: torch.where(c, x, y)
reg('where_16M_alloc', s, None, E * 13)
for nm, sh in (('row', (1, 4096)), ('col', (4096, 1))):
    def s(sh=sh):
        x, y = torch.randn(4096, 4096), torch.randn(*sh)
        return lambda: x + y
    reg(f'add_bcast_{nm}_4096x4096_alloc', s, None, E * 8)
for nm, src, dst, by in (('f32_bf16', torch.float32, torch.bfloat16, 6), ('f32_f64', torch.float32, torch.float64, 12), ('i64_f32', torch.int64, torch.float32, 12)):
    def s(src=src, dst=dst):
        x = torch.randn(E) if src.is_floating_point else torch.randint(0, 1000, (E,))
        return lambda: x.to(dst)
    reg(f'cast_{nm}_16M_alloc', s, None, E * by)


def reg_graph(name, setup):
    """What is captured there: beside ordinary calls here (_graph), and beside what the compiler makes of them (_compiled)."""
    reg(name, lambda: setup(lambda f: f))
    reg(name + '_graph', lambda: setup(lambda f: f))
    reg(name + '_compiled', lambda: setup(torch.compile))


for nm, n in (('1M', 1 << 20), ('16M', 1 << 24)):
    def s(compiled, n=n):
        x, p, q, gy = torch.randn(n, requires_grad=True), torch.randn(n), torch.randn(n), torch.randn(n)

        def chain(x, p, q):
            h = torch.tanh(x * p + q)
            h = torch.sigmoid(h * p) + q
            return F.silu(torch.relu(h) * p) - q
        chain = compiled(chain)

        def f():
            x.grad = None
            chain(x, p, q).backward(gy)
        return f
    reg_graph(f'chain10_{nm}_fwdbwd', s)


def s(compiled, rows=2048, width=768):
    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((rows, width), (rows, width), (width,), (width,), (width,))]
    gy = torch.randn(rows, width)

    def block(x, residual, bias, weight, shift):
        return F.layer_norm(F.dropout(F.gelu(x + bias), 0.1) + residual, (width,), weight, shift)
    block = compiled(block)

    def f():
        for leaf in leaves: leaf.grad = None
        block(*leaves).backward(gy)
    return f
reg_graph('block_2048x768_fwdbwd', s)
reg('zeros_16M', lambda: lambda: torch.zeros(E), None, E * 4)
reg('rand_16M', lambda: lambda: torch.rand(E), None, E * 4)
reg('randn_16M', lambda: lambda: torch.randn(E), None, E * 4)
reg('randperm_1M', lambda: lambda: torch.randperm(1000000))
for nm, sh in (('row', (1, 4096)), ('col', (4096, 1))):
    def s(sh=sh):
        x, y, o = torch.randn(4096, 4096), torch.randn(*sh), torch.empty(4096, 4096)
        return lambda: torch.add(x, y, out=o)
    reg(f'add_bcast_{nm}_4096x4096_out', s, None, E * 8)


def s():
    x, y, o = torch.randn(16, 64, 56, 56), torch.randn(64, 1, 1), torch.empty(16, 64, 56, 56)
    return lambda: torch.add(x, y, out=o)
reg('add_bcast_chan_16x64x56x56_out', s, None, bb * 2)


def s():
    x, o = torch.randn(4096, 4096), torch.empty(4096, 4096)
    return lambda: o.copy_(x.t())
reg('transpose_copy_4096x4096', s, None, E * 8)
for nm, fn in (('sum', torch.sum), ('mean', torch.mean), ('var', torch.var), ('amax', torch.amax)):
    for ax in (None, 0, 1):
        def s(fn=fn, ax=ax):
            x = torch.randn(4096, 4096)
            return (lambda: fn(x)) if ax is None else (lambda: fn(x, ax))
        reg(f'{nm}_{"all" if ax is None else "axis%d" % ax}_4096x4096', s, None, E * 4)
for ax in (0, 1):
    def s(ax=ax):
        x = torch.randn(4096, 4096)
        return lambda: torch.max(x, ax)
    reg(f'max_axis{ax}_4096x4096', s, None, E * 4)

# ---------------------------------------------------------------- indexing
for ax, sh in ((0, (2048, 4096)), (1, (4096, 2048))):
    def s(ax=ax, sh=sh):
        x, y = torch.randn(*sh), torch.randn(*sh)
        return lambda: torch.cat((x, y), ax)
    reg(f'cat_axis{ax}_2x{sh[0]}x{sh[1]}', s, None, E * 8)


def s():
    x = torch.randn(1000000)
    return lambda: torch.sort(x)
reg('sort_1M', s)


def s():
    x = torch.randn(4096, 1024); i = torch.randint(0, 1024, (4096, 1024))
    return lambda: torch.gather(x, 1, i)
reg('gather_axis1_4096x1024', s, None, lb * 4)


def s():
    x = torch.randn(4096, 1024); i = torch.randint(0, 1024, (4096, 1024)); o = torch.zeros(4096, 1024)
    return lambda: o.scatter_add_(1, i, x)
reg('scatter_add_axis1_4096x1024', s, None, lb * 5)


def s():
    x = torch.randn(32768, 256); i = torch.randint(0, 32768, (16384,)); 
    return lambda: torch.index_select(x, 0, i)
reg('index_select_16384_rows_of_256', s, None, 16384 * 256 * 8)


def s():
    m = nn.Embedding(32768, 256); i = torch.randint(0, 32768, (32, 512)); gy = torch.randn(32, 512, 256)

    def f():
        m.weight.grad = None
        m(i).backward(gy)
    return f
reg('embedding_fwdbwd_32kx256_16384', s, None, 16384 * 256 * 4 * 3 + 32768 * 256 * 4)

# ---------------------------------------------------------------- recurrent, attention


def rnn(cls, gates):
    def s():
        m = cls(256, 256); x = torch.randn(64, 32, 256); gy = torch.randn(64, 32, 256)

        def f():
            m.zero_grad(set_to_none=True)
            y, _ = m(x)
            y.backward(gy)
        return f
    return s, 64 * 32 * gates * 2 * 256 * (256 * 2) + 64 * 32 * gates * 2 * 256 * (256 * 3)


s_, f_ = rnn(nn.LSTM, 4); reg('lstm_fwdbwd_B32_T64_I256_H256', s_, f_)
s_, f_ = rnn(nn.GRU, 3); reg('gru_fwdbwd_B32_T64_I256_H256', s_, f_)


def sdpa(bwd):
    def s():
        q, k, v = (torch.randn(4, 8, 512, 64, requires_grad=bwd) for _ in range(3))
        gy = torch.randn(4, 8, 512, 64)

        def f():
            w = SDPA(q, k, v) if SDPA else torch.softmax((q @ k.transpose(-2, -1)) * 0.125, -1) @ v
            if bwd:
                q.grad = k.grad = v.grad = None
                w.backward(gy)
        return f
    return s
fl = 4 * 4 * 8 * 512 * 512 * 64
reg('sdpa_fwd_B4_H8_T512_D64', sdpa(False), fl)
reg('sdpa_fwdbwd_B4_H8_T512_D64', sdpa(True), fl * 3)

# ---------------------------------------------------------------- training steps


def train(make, data, mkopt, cl=False, autocast=False):
    def s():
        m = make(); x, y = data()
        if cl:
            m = m.to(memory_format=torch.channels_last); x = x.contiguous(memory_format=torch.channels_last)
        opt = mkopt(m.parameters())

        def f():
            opt.zero_grad(set_to_none=True)
            with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
                o = m(x)
                loss = F.cross_entropy(o.reshape(-1, o.shape[-1]), y.reshape(-1))
            loss.backward()
            opt.step()
        return f
    return s


mlp = lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
md = lambda: (torch.randn(64, 784), torch.randint(0, 10, (64,)))
fl = 64 * 2 * (784 * 512 * 2 + 512 * 512 * 3 + 512 * 10 * 3)
reg('train_mlp_784_512_512_10_b64_sgd', train(mlp, md, lambda p: torch.optim.SGD(p, 0.01)), fl)
small = lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
sd = lambda: (torch.randn(1, 16), torch.randint(0, 4, (1,)))
reg('train_mlp_16_32_32_4_b1_sgd', train(small, sd, lambda p: torch.optim.SGD(p, 0.01)))
lenet = lambda: nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 10))
ld = lambda: (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
fl = 64 * 2 * (32 * 784 * 25 * 2 + 64 * 196 * 32 * 25 * 3 + 3136 * 256 * 3 + 2560 * 3)
for cl in (False, True):
    reg('train_lenet_28_b64_adam' + ('_cl' if cl else ''), train(lenet, ld, lambda p: torch.optim.Adam(p, 1e-3), cl), fl)


class Block(nn.Module):
    def __init__(s, i, o, st):
        super().__init__()
        s.c1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.b1 = nn.BatchNorm2d(o)
        s.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.b2 = nn.BatchNorm2d(o)
        s.sc = nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o)) if st != 1 or i != o else nn.Identity()

    def forward(s, x):
        return F.relu(s.b2(s.c2(F.relu(s.b1(s.c1(x))))) + s.sc(x))


def resnet18():
    L, i = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for o, st in ((64, 1), (128, 2), (256, 2), (512, 2)):
        L += [Block(i, o, st), Block(o, o, 1)]; i = o
    return nn.Sequential(*L, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def resnet_flops(n):
    f = 2 * 3 * 64 * 9 * 1024 * 2; i, h = 64, 32   # stem: no input gradient
    for o, st in ((64, 1), (128, 2), (256, 2), (512, 2)):
        h //= st
        f += 3 * 2 * h * h * (i * o * 9 + 3 * o * o * 9 + (i * o if st != 1 else 0)); i = o
    return n * (f + 3 * 2 * 5120)


rd = lambda: (torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,)))
for cl in (False, True):
    reg('train_resnet18_cifar_b32_sgdm' + ('_cl' if cl else ''), train(resnet18, rd, lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=5e-4), cl), resnet_flops(32))


class GB(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h; s.l1 = nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.o = nn.Linear(d, d); s.l2 = nn.LayerNorm(d)
        s.f1 = nn.Linear(d, 4 * d); s.f2 = nn.Linear(4 * d, d)

    def forward(s, x, mask):
        B, T, D = x.shape
        q, k, v = s.qkv(s.l1(x)).view(B, T, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        if SDPA:
            w = SDPA(q, k, v, is_causal=True)
        else:
            w = (q @ k.transpose(-2, -1)) * (D // s.h) ** -0.5
            w = torch.softmax(w.masked_fill(mask, float('-inf')), -1) @ v
        x = x + s.o(w.transpose(1, 2).reshape(B, T, D))
        return x + s.f2(F.gelu(s.f1(s.l2(x))))


class GPT(nn.Module):
    def __init__(s, V=512, T=256, d=384, h=6, n=6):
        super().__init__()
        s.te = nn.Embedding(V, d); s.pe = nn.Parameter(torch.randn(T, d) * 0.02); s.b = nn.ModuleList(GB(d, h) for _ in range(n))
        s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
        s.register_buffer('mask', torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(s, i):
        x = s.te(i) + s.pe
        for b in s.b:
            x = b(x, s.mask)
        return s.head(s.ln(x))


gd = lambda: (torch.randint(0, 512, (4, 256)), torch.randint(0, 512, (4, 256)))
fl = 3 * 2 * 1024 * (6 * 12 * 384 * 384 + 384 * 512) + 3 * 6 * 4 * 4 * 256 * 256 * 384
reg('train_gpt6x384_T256_B4_adamw', train(GPT, gd, lambda p: torch.optim.AdamW(p, 3e-4)), fl)


for w in [w for w in W if w[0].startswith('train_')]: # captured there; of two memory formats, the faster one here
    if not w[0].endswith('_cl'): reg(w[0] + '_graph', *w[1:])
    elif 'resnet' in w[0]: reg(w[0][:-3] + '_graph_cl', *w[1:])


for cl in (False, True):
    reg('train_resnet18_cifar_b32_sgdm_bf16' + ('_cl' if cl else ''), train(resnet18, rd, lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=5e-4), cl, True), resnet_flops(32))
reg('train_gpt6x384_T256_B4_adamw_bf16', train(GPT, gd, lambda p: torch.optim.AdamW(p, 3e-4), False, True), fl)


# ---------------------------------------------------------------- the cost of a call, on four elements
CALLS = 1000


def turn_empty():
    t0 = time.perf_counter()
    for _ in range(CALLS): torch.empty(4)
    return time.perf_counter() - t0


def turn_inplace():
    x, y = torch.ones(4), torch.zeros(4); t0 = time.perf_counter()
    for _ in range(CALLS): y.add_(x)
    return time.perf_counter() - t0


def turn_nograd():
    with torch.no_grad():
        x = y = torch.ones(4); t0 = time.perf_counter()
        for _ in range(CALLS): y = y + x
        return time.perf_counter() - t0


def turn_recorded():
    x, y = torch.ones(4), torch.zeros(4).requires_grad_(); t0 = time.perf_counter()
    for _ in range(CALLS): y = y + x
    return time.perf_counter() - t0


def turn_backward():
    x, y = torch.ones(4), torch.zeros(4).requires_grad_()
    for _ in range(CALLS): y = y + x
    t0 = time.perf_counter(); y.backward(x)
    return time.perf_counter() - t0


def turn_calls(call):
    def turn():
        with torch.no_grad():
            t0 = time.perf_counter()
            for _ in range(CALLS): call()
            return time.perf_counter() - t0
    return turn


ONES = [torch.ones(shape) for shape in ((4,), (2, 2), (2,), (1, 1, 3, 3), (1, 1, 2, 2))]
OVERHEADS = {'overhead_add4_number_nograd': turn_calls(lambda: ONES[0] + 2.0),
             'overhead_add2x2_broadcast_nograd': turn_calls(lambda: ONES[1] + ONES[2]),
             'overhead_reshape4_nograd': turn_calls(lambda: ONES[0].reshape(2, 2)),
             'overhead_linear2x2_nograd': turn_calls(lambda: torch.nn.functional.linear(ONES[1], ONES[1])),
             'overhead_conv3x3_nograd': turn_calls(lambda: torch.nn.functional.conv2d(ONES[3], ONES[4])),
             'overhead_empty4': turn_empty, 'overhead_add_inplace4_nograd': turn_inplace, 'overhead_add4_nograd': turn_nograd,
             'overhead_add4_recorded_fwd': turn_recorded, 'overhead_add4_bwd_per_node': turn_backward}


def resident(field):
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def run(name, setup, fl, by):
    try:
        torch.manual_seed(0)
        with open('/proc/self/clear_refs', 'w') as peak:
            peak.write('5')
        before = resident('VmRSS')
        fn = setup()
        m, mn, iqr, n = measure(fn)
        peak_mb = resident('VmHWM') - before
    except Exception as e:  # report and go on
        return dict(name=name, threads=a.threads, error=str(e)[:200])
    r = dict(name=name, threads=a.threads, median_ms=round(m * 1e3, 6), min_ms=round(mn * 1e3, 6), iqr_pct=round(iqr, 1), reps=n, peak_mb=round(peak_mb, 1))
    if fl: r['gflops'] = round(fl / m / 1e9, 1)
    if by: r['gb_s'] = round(by / m / 1e9, 2)
    return r


def run_overhead(name):
    f = OVERHEADS[name]
    for _ in range(5): f()
    v = sorted(f() for _ in range(61))
    return dict(name=name, threads=a.threads, ns=round(v[len(v) // 2] / CALLS * 1e9, 1))


def answer(name):
    if name in OVERHEADS: return run_overhead(name)
    for w in W:
        if w[0] == name: return run(*w)
    return dict(name=name, threads=a.threads, missing=True)


names = [w[0] for w in W] + list(OVERHEADS)
if a.serve:
    for line in sys.stdin:
        print(json.dumps(answer(line.strip())), flush=True)
else:
    for name in names:
        if a.only and not re.search(a.only, name): continue
        print(name if a.list else json.dumps(answer(name)), flush=True)
