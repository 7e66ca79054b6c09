"""Trajectories of optimizers and schedules from PyTorch, for tests/test_optim.c and tests/test_schedule.c.

They have a form of their own: `case NAME DTYPE setting=value ...`, then lines `STEP values`; `case NAME setting=value ...`, then
`lr values` and perhaps `momentum values`.

What PyTorch lacks (LAMB, LARS, Lion, Lookahead) is computed here from the formulas of the papers. The gradients are made of
the parameters and the step by a formula that the tests repeat, so that only settings and results have to be stored.
"""
import os

import torch

STEPS = 24
SHOWN = (1, 2, 3, 6, 12, 24)
SHAPES = ((3,), (2, 2))


def parameters(dtype):
    return [torch.tensor([0.5 * i - 0.75 for i in range(3)], dtype=dtype, requires_grad=True),
            torch.tensor([[1.0, -2.0], [0.25, 3.0]], dtype=dtype, requires_grad=True)]


def gradient(p, which, t):
    """0.3 p + ((7 t + 13 i + 5 which) mod 17 - 8) / 8, rounded once to the dtype."""
    wave = torch.tensor([((7 * t + 13 * i + 5 * which) % 17 - 8) / 8 for i in range(p.numel())], dtype=torch.float64)
    return (0.3 * p.detach().double() + wave.reshape(p.shape)).to(p.dtype)


# ---- What PyTorch lacks: an object with step(), on parameters with .grad ----

class Lamb:
    def __init__(self, ps, lr, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=1e-2):
        self.ps, self.s = ps, (lr, beta1, beta2, eps, weight_decay)
        self.m, self.v, self.t = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps], 0

    def step(self):
        lr, b1, b2, eps, decay = self.s
        self.t += 1
        for p, m, v in zip(self.ps, self.m, self.v):
            m.mul_(b1).add_((1 - b1) * p.grad)
            v.mul_(b2).add_((1 - b2) * p.grad ** 2)
            u = (m / (1 - b1 ** self.t)) / ((v / (1 - b2 ** self.t)).sqrt() + eps) + decay * p.data
            weight, length = p.data.norm(), u.norm()
            p.data -= lr * (weight / length if weight > 0 and length > 0 else 1) * u


class Lars:
    def __init__(self, ps, lr, momentum=0.9, weight_decay=1e-4, trust=1e-3, eps=1e-8, nesterov=0):
        self.ps, self.s = ps, (lr, momentum, weight_decay, trust, eps, nesterov)
        self.b = [torch.zeros_like(p) for p in ps]

    def step(self):
        lr, momentum, decay, trust, eps, nesterov = self.s
        for p, b in zip(self.ps, self.b):
            weight, length = p.data.norm(), p.grad.norm()
            r = trust * weight / (length + decay * weight + eps) if weight > 0 and length > 0 else 1
            u = lr * r * (p.grad + decay * p.data)
            b.mul_(momentum).add_(u)
            p.data -= momentum * b + u if nesterov else b


class Lion:
    def __init__(self, ps, lr, beta1=0.9, beta2=0.99, weight_decay=0.0):
        self.ps, self.s = ps, (lr, beta1, beta2, weight_decay)
        self.m = [torch.zeros_like(p) for p in ps]

    def step(self):
        lr, b1, b2, decay = self.s
        for p, m in zip(self.ps, self.m):
            c = b1 * m + (1 - b1) * p.grad
            p.data -= lr * (c.sign() + decay * p.data)
            m.mul_(b2).add_((1 - b2) * p.grad)


class Lookahead:
    def __init__(self, inner, ps, alpha, k):
        self.inner, self.ps, self.alpha, self.k, self.t = inner, ps, alpha, k, 0
        self.slow = [p.detach().clone() for p in ps]

    def step(self):
        self.inner.step()
        self.t += 1
        if self.t % self.k == 0:
            for p, slow in zip(self.ps, self.slow):
                slow += self.alpha * (p.data - slow)
                p.data.copy_(slow)


OWN = {"lamb": Lamb, "lars": Lars, "lion": Lion}
TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam,
         "nadam": torch.optim.NAdam, "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad,
         "adadelta": torch.optim.Adadelta}


def make(name, ps, settings, group):
    given = dict(settings)
    if name in OWN:
        return OWN[name](ps, **given)
    if "beta1" in given or "beta2" in given:
        given["betas"] = (given.pop("beta1", 0.9), given.pop("beta2", 0.999))
    for flag in ("nesterov", "amsgrad", "maximize", "centered", "decoupled_weight_decay"):
        if flag in given:
            given[flag] = bool(given[flag])
    groups = [{"params": ps}] if not group else [{"params": ps[:1]}, {"params": ps[1:], **group}]
    return TORCH[name](groups, **given, foreach=False)


CASES = [
    ("sgd", dict(lr=0.1)), ("sgd", dict(lr=0.1, weight_decay=0.1)), ("sgd", dict(lr=0.05, momentum=0.9)),
    ("sgd", dict(lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.05)),
    ("sgd", dict(lr=0.05, momentum=0.9, nesterov=1, weight_decay=0.01)), ("sgd", dict(lr=0.01, momentum=0.9, maximize=1)),
    ("adam", dict(lr=0.05)), ("adam", dict(lr=0.05, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1)),
    ("adam", dict(lr=0.05, beta2=0.6, amsgrad=1)), ("adam", dict(lr=0.05, maximize=1)), ("adam", dict(lr=0.05, beta1=0.0)),
    ("adamw", dict(lr=0.05)), ("adamw", dict(lr=0.05, weight_decay=0.5, amsgrad=1, beta2=0.7)),
    ("adamw", dict(lr=0.05, maximize=1)),
    ("radam", dict(lr=0.05)), ("radam", dict(lr=0.05, beta2=0.9, weight_decay=0.1)),
    ("radam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=1)), ("radam", dict(lr=0.05, maximize=1)),
    ("nadam", dict(lr=0.05)), ("nadam", dict(lr=0.05, weight_decay=0.1, momentum_decay=0.1)),
    ("nadam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=1, maximize=1)),
    ("rmsprop", dict(lr=0.02)), ("rmsprop", dict(lr=0.02, alpha=0.8, eps=1e-3, weight_decay=0.1)),
    ("rmsprop", dict(lr=0.02, momentum=0.9)), ("rmsprop", dict(lr=0.02, centered=1)),
    ("rmsprop", dict(lr=0.02, centered=1, momentum=0.5, maximize=1)),
    ("adagrad", dict(lr=0.1)), ("adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.1)),
    ("adagrad", dict(lr=0.1, initial_accumulator_value=0.5, eps=1e-3)), ("adagrad", dict(lr=0.1, maximize=1)),
    ("adadelta", dict(lr=1.0)), ("adadelta", dict(lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.1)),
    ("adadelta", dict(lr=1.0, maximize=1)),
    ("lamb", dict(lr=0.05)), ("lamb", dict(lr=0.05, beta1=0.8, beta2=0.9, weight_decay=0.2)),
    ("lars", dict(lr=1.0, trust=0.1)), ("lars", dict(lr=1.0, trust=0.1, weight_decay=0.1, nesterov=1)),
    ("lion", dict(lr=0.02)), ("lion", dict(lr=0.02, beta1=0.7, beta2=0.9, weight_decay=0.3)),
]
GROUPED = [("sgd", dict(lr=0.1, momentum=0.9, weight_decay=0.1), dict(lr=0.01, weight_decay=0.0)),
           ("adamw", dict(lr=0.05, weight_decay=0.1), dict(lr=0.2, weight_decay=0.0))]


def run(out, name, settings, dtype, group=None, lookahead=None):
    ps = parameters(dtype)
    opt = make(name, ps, settings, group)
    if lookahead:
        opt = Lookahead(opt, ps, lookahead["alpha"], lookahead["k"])
    words = [f"{key}={value!r}" for key, value in settings.items()]
    words += [f"group.{key}={value!r}" for key, value in (group or {}).items()]
    words += [f"lookahead.{key}={value!r}" for key, value in (lookahead or {}).items()]
    out.append(f"case {name} {'f64' if dtype == torch.float64 else 'f32'} {' '.join(words)}")
    digits = 17 if dtype == torch.float64 else 9
    for t in range(1, STEPS + 1):
        for which, p in enumerate(ps):
            p.grad = gradient(p, which, t)
        opt.step()
        if t in SHOWN:
            values = torch.cat([p.detach().reshape(-1) for p in ps]).tolist()
            out.append(f"{t} " + " ".join(f"{v:.{digits}g}" for v in values))


def bowl(x):
    """A convex function of four variables that is not a quadratic."""
    c = torch.tensor([1.0, 2.0, 5.0, 10.0], dtype=x.dtype)
    b = torch.tensor([1.0, -1.0, 2.0, 0.5], dtype=x.dtype)
    return (c * (x - b) ** 2).sum() + 0.1 * (x ** 4).sum()


def run_lbfgs(out, settings):
    x = torch.tensor([0.5, 0.25, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    given = dict(settings)
    wolfe = given.pop("strong_wolfe", 0)
    opt = torch.optim.LBFGS([x], **given, line_search_fn="strong_wolfe" if wolfe else None)

    def closure():
        opt.zero_grad()
        loss = bowl(x)
        loss.backward()
        return loss

    out.append("case lbfgs f64 " + " ".join(f"{key}={value!r}" for key, value in settings.items()))
    for t in range(1, 9):
        opt.step(closure)
        out.append(f"{t} " + " ".join(f"{v:.17g}" for v in x.tolist()))


def optimizers(folder):
    torch.set_default_dtype(torch.float64)  # in which NAdam keeps its product of momenta
    out = ["# written by tools/refs/make_refs.py"]
    for dtype in (torch.float64, torch.float32):
        for name, settings in CASES:
            run(out, name, settings, dtype)
    for name, settings, group in GROUPED:
        run(out, name, settings, torch.float64, group=group)
    run(out, "sgd", dict(lr=0.1, momentum=0.9), torch.float64, lookahead=dict(alpha=0.5, k=5))
    run(out, "adam", dict(lr=0.1), torch.float64, lookahead=dict(alpha=0.8, k=3))
    run_lbfgs(out, dict(lr=0.05, max_iter=2))
    run_lbfgs(out, dict(lr=0.05, max_iter=3, history_size=2))
    run_lbfgs(out, dict(lr=1.0, max_iter=2, strong_wolfe=1))
    with open(os.path.join(folder, "optim.txt"), "w") as f:
        f.write("\n".join(out) + "\n")
    torch.set_default_dtype(torch.float32)
    return sum(line.startswith("case") for line in out)


# ---- Schedules ----

BASE = 0.4
S = torch.optim.lr_scheduler


def trajectory(out, header, build, steps=30, metric=None, momentum=False):
    p = torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([p], lr=BASE, momentum=0.9)
    schedule = build(opt)
    rates, momenta = [], []
    for t in range(steps):
        rates.append(opt.param_groups[0]["lr"])
        momenta.append(opt.param_groups[0]["momentum"])
        opt.step()
        if t == steps - 1:
            break
        schedule.step(metric(t)) if metric else schedule.step()
    out.append("case " + header)
    out.append("lr " + " ".join(f"{v:.17g}" for v in rates))
    if momentum:
        out.append("momentum " + " ".join(f"{v:.17g}" for v in momenta))


def metric(t):
    """Better for a while, then worse and worse."""
    return 1.0 / (t + 1) if t < 6 else 0.2 + 0.01 * ((t * 7) % 5)


def schedules(folder):
    out = ["# written by tools/refs/make_refs.py"]
    add = lambda *a, **k: trajectory(out, *a, **k)
    add("step_decay every=7 gamma=0.5", lambda o: S.StepLR(o, 7, 0.5))
    add("multi_step milestone1=3 milestone2=10 milestone3=20 gamma=0.3", lambda o: S.MultiStepLR(o, [3, 10, 20], 0.3))
    add("exponential gamma=0.9", lambda o: S.ExponentialLR(o, 0.9))
    add("cosine steps=29", lambda o: S.CosineAnnealingLR(o, 29))
    add("cosine steps=12 min_lr=0.05", lambda o: S.CosineAnnealingLR(o, 12, eta_min=0.05))
    add("cosine_restarts first=7", lambda o: S.CosineAnnealingWarmRestarts(o, 7))
    add("cosine_restarts first=4 multiply=2 min_lr=0.01", lambda o: S.CosineAnnealingWarmRestarts(o, 4, 2, 0.01))
    add("linear steps=20 end=0.1", lambda o: S.LinearLR(o, 1.0, 0.1, 20))
    add("polynomial steps=20 power=2", lambda o: S.PolynomialLR(o, 20, 2.0))
    add("polynomial steps=25", lambda o: S.PolynomialLR(o, 25))
    add("one_cycle steps=30 max_lr=1", lambda o: S.OneCycleLR(o, 1.0, total_steps=30), momentum=True)
    add("one_cycle steps=30 max_lr=0.5 pct_start=0.4 linear=1 div_factor=10 final_div_factor=100",
        lambda o: S.OneCycleLR(o, 0.5, total_steps=30, pct_start=0.4, anneal_strategy="linear", div_factor=10,
                               final_div_factor=100), momentum=True)
    add("one_cycle steps=30 max_lr=1 three_phase=1 keep_momentum=1",
        lambda o: S.OneCycleLR(o, 1.0, total_steps=30, three_phase=True, cycle_momentum=False), momentum=True)
    for mode, name in enumerate(("triangular", "triangular2", "exp_range")):
        add(f"cyclic base_lr=0.1 max_lr=0.5 up=4 down=6 mode={mode} gamma=0.95",
            lambda o: S.CyclicLR(o, 0.1, 0.5, step_size_up=4, step_size_down=6, mode=name, gamma=0.95,
                                 cycle_momentum=False))
    add("plateau factor=0.5 patience=2", lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=2), metric=metric)
    add("plateau factor=0.5 patience=1 cooldown=3 threshold=0.1 min_lr=0.05",
        lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=3, threshold=0.1, min_lr=0.05), metric=metric)
    add("plateau maximize=1 factor=0.3 patience=3",
        lambda o: S.ReduceLROnPlateau(o, mode="max", factor=0.3, patience=3), metric=metric)
    # these are made by the test itself, by their functions
    add("!warmup steps=10", lambda o: S.LinearLR(o, total_iters=10))
    add("!constant factor=0.25 steps=5", lambda o: S.ConstantLR(o, 0.25, 5))
    add("!lambda", lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.5 * t)))
    add("!chain", lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 8), S.ExponentialLR(o, 0.9)]))
    add("!sequence", lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 5), S.CosineAnnealingLR(o, 10),
                                                  S.ExponentialLR(o, 0.8)], [5, 15]))
    add("!cyclic_momentum", lambda o: S.CyclicLR(o, 0.1, 0.5, step_size_up=5, cycle_momentum=True), momentum=True)
    with open(os.path.join(folder, "schedule.txt"), "w") as f:
        f.write("\n".join(out) + "\n")
    return sum(line.startswith("case") for line in out)


def write(folder):
    return [("optim", optimizers(folder)), ("schedule", schedules(folder))]
