"""Recurrent networks: PyTorch's modules and single cells."""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from refs import Family, ints, rnd, t

I, H, T, N = 3, 2, 4, 3
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
MODULES = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


def small(*shape):
    return rnd(*shape, low=-1, high=1)


def weights(kind, layers, directions, each):
    """In PyTorch's flat order; each: 2 without biases, 3 with one, 4 with both."""
    rows, result = GATES[kind] * H, []
    for layer in range(layers):
        for _ in range(directions):
            result += [small(rows, H * directions if layer else I), small(rows, H)] + [small(rows) for _ in range(each - 2)]
    return result


def network(kind, layers=1, bidirectional=False, each=4, batch_first=False, no_bias_ih=False, **more):
    """The module as a function of x, h0 (c0), lengths and weights."""
    directions = 2 if bidirectional else 1
    module = MODULES[kind](I, H, layers, bias=each > 2, batch_first=batch_first, bidirectional=bidirectional, **more)
    names = [n for n, _ in module.named_parameters()]

    def run(x, *rest):
        states, rest = (rest[:2], rest[2:]) if kind == "lstm" else (rest[:1], rest[1:])
        lengths, given = rest[0], list(rest[1:])
        if each == 3:  # the bias that is left out is zero
            full = []
            for i in range(0, len(given), 3):
                b = given[i + 2]
                full += given[i:i + 2] + ([torch.zeros_like(b), b] if no_bias_ih else [b, torch.zeros_like(b)])
            given = full
        batched = x.dim() == 3
        n = (x.shape[0 if batch_first else 1],) if batched else ()
        zero = torch.zeros(layers * directions, *n, H)
        states = [zero if s is None else s for s in states]
        hx = tuple(states) if kind == "lstm" else states[0]
        into = x if lengths is None else pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        y, h = torch.func.functional_call(module, dict(zip(names, given)), (into, hx))
        if lengths is not None:
            y, _ = pad_packed_sequence(y, batch_first, total_length=x.shape[1 if batch_first else 0])
        return (y,) + (tuple(h) if kind == "lstm" else (h,))

    return run


def cases(f, kind):
    def add(attrs="", lengths=None, start=True, x=None, unbatched=False, **options):
        layers, directions = options.get("layers", 1), 2 if options.get("bidirectional") else 1
        batch = () if unbatched else (N,)
        state = [small(layers * directions, *batch, H) if start else None for _ in range(2 if kind == "lstm" else 1)]
        shape = (T, I) if unbatched else (N, T, I) if options.get("batch_first") else (T, N, I)
        given = weights(kind, layers, directions, options.get("each", 4))
        f.case(kind, [small(*shape)] + state + [lengths] + given, network(kind, **options), attrs)

    lengths = t([2, 4, 1], torch.int64)
    add()
    add(start=False)
    add(each=2)
    add(each=3)
    add("no_bias_ih=true", each=3, no_bias_ih=True)
    add("bidirectional=true", bidirectional=True)
    add("layers=2", layers=2)
    add("layers=2 bidirectional=true batch_first=true", layers=2, bidirectional=True, batch_first=True)
    add(lengths=lengths)
    add("bidirectional=true", lengths=lengths, bidirectional=True, each=2)
    add("layers=2 bidirectional=true batch_first=true", lengths=lengths, layers=2, bidirectional=True, batch_first=True)
    add(unbatched=True)
    add("batch_first=true bidirectional=true", unbatched=True, batch_first=True, bidirectional=True)
    if kind == "rnn":
        add("relu=true", nonlinearity="relu")
        add("relu=true bidirectional=true", lengths=lengths, bidirectional=True, nonlinearity="relu")

    none = [None] * (2 if kind == "lstm" else 1)
    w = weights(kind, 1, 1, 4)
    x = small(T, N, I)
    f.error(kind, [small(T, N, 4)] + none + [None] + w, "SHAPE")
    f.error(kind, [small(I)] + none + [None] + w, "SHAPE")
    f.error(kind, [x] + none + [None] + w[:3] + [small(GATES[kind] * H + 1)], "SHAPE")
    f.error(kind, [x] + none + [None] + w, "VALUE", "layers=3")
    f.error(kind, [x] + none + [None] + w, "VALUE", "no_bias_ih=true")
    f.error(kind, [x] + none + [None] + w, "VALUE", "dropout=2")
    f.error(kind, [x, small(1, N, H + 1)] + none[1:] + [None] + w, "SHAPE")
    f.error(kind, [x] + none + [ints(N + 1, low=1, high=T)] + w, "SHAPE")
    f.error(kind, [x] + none + [t([1, T + 1, 2], torch.int64)] + w, "INDEX")
    f.error(kind, [x] + none + [t([1, -1, 2], torch.int64)] + w, "INDEX")


def cells(f):
    for kind in GATES:
        rows = GATES[kind] * H
        for batch in ((N,), ()):
            for biases in ((True, True), (False, False), (True, False), (False, True)):
                b = [small(rows) if given else None for given in biases]
                x, h, c = small(*batch, I), small(*batch, H), small(*batch, H)
                w = [small(rows, I), small(rows, H)]

                def step(x, w_ih, w_hh, b_ih, b_hh, h, c=None, fn=None):
                    # PyTorch takes both biases or neither
                    if (b_ih is None) != (b_hh is None):
                        b_ih = torch.zeros(rows) if b_ih is None else b_ih
                        b_hh = torch.zeros(rows) if b_hh is None else b_hh
                    one = x.dim() == 1  # PyTorch's functions take a batch
                    x, h, c = (v if v is None or not one else v[None] for v in (x, h, c))
                    y = fn(x, h if c is None else (h, c), w_ih, w_hh, b_ih, b_hh)
                    return y if not one else y[0] if c is None else tuple(v[0] for v in y)

                if kind == "lstm":
                    f.case("lstm_cell", [x] + w + b + [h, c], lambda *a: step(*a, fn=torch.lstm_cell))
                elif kind == "gru":
                    f.case("gru_cell", [x] + w + b + [h], lambda *a: step(*a, fn=torch.gru_cell))
                else:
                    f.case("rnn_cell", [x] + w + b + [h], lambda *a: step(*a, fn=torch.rnn_tanh_cell))
                    f.case("rnn_cell", [x] + w + b + [h], lambda *a: step(*a, fn=torch.rnn_relu_cell), "relu=true")
        rest = [None] * (4 if kind == "lstm" else 3)
        f.error(kind + "_cell", [small(N, I), small(rows, I + 1), small(rows, H)] + rest, "SHAPE")
        f.error(kind + "_cell", [small(N, I), small(rows, I), small(rows, H + 1)] + rest, "SHAPE")
        f.error(kind + "_cell", [small(N, I), small(rows, I), small(rows, H), None, None, small(N + 1, H)] + rest[3:], "SHAPE")


def write(folder):
    families = []
    for name, fn, about in (("rnn", lambda f: cases(f, "rnn"), "Recurrent networks."), ("rnn_lstm", lambda f: cases(f, "lstm"), "Long short-term memory."),
                            ("rnn_gru", lambda f: cases(f, "gru"), "Gated recurrent units."), ("rnn_cell", cells, "Single recurrent steps.")):
        f = Family(folder, name, about)
        fn(f)
        families.append((name, f.close()))
    return families
