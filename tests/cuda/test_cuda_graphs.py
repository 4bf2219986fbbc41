"""Compiled plans on a GPU: kernels of ours, library calls, CUDA graphs. Every result as eager's."""

import contextlib
import copy
import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magneto
from support.gpu import close, rnd

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("compiled_kernels"),
]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


def columns(x):
    return x.sum(0), x.mean((0, 1)), x.amax(0), x.var(0)


def rows(x):
    return x.softmax(-1), x.log_softmax(-1), F.layer_norm(x, x.shape[-1:]), x.sum(-1), x.amin(-1)


def turns(x):
    return (
        x.transpose(-1, -2).contiguous() + 1,
        x.flip(0),
        torch.cat([x, x * 2], -1),
        F.pad(x, (1, 2), value=3.0),
    )


def halves(x):
    return F.silu(x.bfloat16()), torch.tanh(x.half()) * 2, x.bfloat16().sum(-1)


def whole(x):
    return x.sum(), x.max(), x.isnan().any(), (x > 0).all()


def windows(x):
    y = x.reshape(1, -1, 16, 16)
    return F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 2), F.interpolate(y, scale_factor=2)


def finds(x):
    return x.argmax(-1), x.cumsum(-1), x.sort(-1)[0], torch.zeros_like(x).scatter_add(-1, x.argsort(-1), x)


def calls_without_device_forms(x):
    return torch.erfc(x), torch.lgamma(x.abs() + 1), torch.atan2(x, x + 3), torch.fmod(x, 0.7), x.asinh() + 1


def numbers_of_the_cpu(x):
    return x * torch.tensor(2.5) + torch.tensor(3), (x > 0).float() * torch.tensor(True)


@pytest.mark.parametrize("size", [(8, 32, 64), (3, 5, 7), (2, 8, 1024), (1, 1, 1), (4, 4, 8192)], ids=str)
@pytest.mark.parametrize(
    "program", [columns, rows, turns, halves, whole, finds, calls_without_device_forms, numbers_of_the_cpu]
)
def test_program(program, size):
    compiled = magneto.compile(program)
    for _ in range(4):
        x = rnd(*size)
        close(compiled(x), program(x))


def test_windows():
    compiled = magneto.compile(windows)
    for _ in range(3):
        x = rnd(4, 2, 256)
        close(compiled(x), windows(x))


def test_arguments_that_are_not_aligned():
    def f(x, y):
        return x * y + 1, (x + y).sum(-1)

    compiled = magneto.compile(f)
    base = rnd(1025)
    for _ in range(4):
        for at in (0, 1):
            x, y = base[at : at + 1024].view(8, 128), rnd(8, 128)
            close(compiled(x, y), f(x, y))


def test_results_stay_valid_after_later_calls(replays):
    model = nn.Sequential(Block(), Block(), nn.Linear(64, 64)).cuda()
    compiled = magneto.compile(model)
    with torch.no_grad():
        x = [rnd(16, 64) for _ in range(100)]
        got = [compiled(t) for t in x]
        for t, y in zip(x, got, strict=True):
            close(y, model(t))
        assert len({y.data_ptr() for y in got}) == 100
    assert replays() >= 90


def test_inputs_that_move(replays):
    model = Block().cuda()
    compiled = magneto.compile(model)
    with torch.no_grad():
        keep = [rnd(4, 64) for _ in range(20)]
        for t in keep + keep[::-1] + [keep[0]] * 5:
            close(compiled(t), model(t))
    assert replays() >= 30


def test_parameters_that_are_replaced_or_written(replays):
    model = Block().cuda()
    compiled = magneto.compile(model)
    x = rnd(4, 64)
    with torch.no_grad():
        for k in range(12):
            if k % 3 == 1:
                model.a.weight.mul_(1.1)
            if k % 3 == 2:
                model.b.weight.data = rnd(64, 256)
            close(compiled(x), model(x))
    assert replays() >= 3


def test_settings_that_calls_depend_on(replays):
    a = rnd(256, 256)

    def f(x):
        return (x @ x + 1) @ x

    compiled = magneto.compile(f)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for _ in range(3):
            for tf32 in (False, True):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                for _ in range(4):
                    torch.testing.assert_close(compiled(a), f(a), rtol=1e-6, atol=1e-3)
        assert replays() >= 6
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_streams(replays):
    model = Block().cuda()
    compiled = magneto.compile(model)
    x = rnd(64, 64)
    with torch.no_grad():
        want = model(x)
        for _ in range(4):
            close(compiled(x), want)
        assert replays() >= 2
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        got = []
        for _ in range(10):
            for s in streams:
                with torch.cuda.stream(s):
                    got.append(compiled(x))
        torch.cuda.synchronize()
        for y in got:
            close(y, want)


def test_threads(replays):
    model = Block().cuda()
    compiled = magneto.compile(model)
    bad = []

    def work():
        with torch.no_grad():
            for _ in range(20):
                x = rnd(8, 64)
                if not torch.allclose(compiled(x), model(x), rtol=2e-3, atol=2e-3):
                    bad.append(1)

    with torch.no_grad():
        compiled(rnd(8, 64))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad
    assert replays() >= 20


def test_inside_of_a_capture_of_the_program():
    model = Block().cuda()
    compiled = magneto.compile(model)
    x = rnd(8, 64)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x)
        for _ in range(3):
            x.copy_(rnd(8, 64))
            graph.replay()
            close(y, model(x))


def test_results_that_library_calls_read(replays):
    w = rnd(64, 64)

    def f(x):
        y = torch.relu(x) + 1
        return y, y @ w, (y @ w).t(), y[2:]

    compiled = magneto.compile(f)
    kept = []
    for _ in range(12):
        x = rnd(16, 64)
        kept.append((x, compiled(x)))
    for x, got in kept:
        for a, b in zip(got, f(x), strict=True):
            close(a, b)
    assert replays() >= 8


def test_views_of_inputs_are_views():
    def f(x):
        return x.view(-1)[3:], x + 1, (x @ x).t()

    compiled = magneto.compile(f)
    for _ in range(4):
        x = rnd(8, 8)
        v, _, _ = compiled(x)
        assert v.data_ptr() == x.data_ptr() + 12
        close(compiled(x), f(x))


def test_memory_is_flat_and_given_back(replays):
    model = nn.Sequential(Block(), Block()).cuda()
    compiled = magneto.compile(model)
    x = rnd(512, 64)
    with torch.no_grad():
        for _ in range(5):
            compiled(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(200):
            compiled(x)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == before
    assert replays() >= 200
    del compiled
    magneto.reset()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before


def test_gradients_of_overlapping_calls(replays):
    """What forward saves is lent by a CUDA graph: nothing of it is written while a backward may read it."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).cuda()
    other = copy.deepcopy(model)
    compiled = magneto.compile(other)

    def passes(f, m, x, together, again):
        m.zero_grad()
        losses = [f(t).square().mean() for t in x] if together else None
        for i, t in enumerate(x):
            loss = losses[i] if together else f(t).square().mean()
            loss.backward(retain_graph=again)
            if again:
                loss.backward()
        return [p.grad.clone() for p in m.parameters()]

    for k in range(24):
        x = [rnd(16, 64) for _ in range(3)]
        how = (k % 3 == 1, k % 4 == 1)
        for a, b in zip(passes(compiled, other, x, *how), passes(model, model, x, *how), strict=True):
            close(a, b)
    assert replays() >= 60


@pytest.mark.parametrize(
    "make", [torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop, torch.optim.NAdam]
)
def test_whole_steps_of_optimizers_that_count(make, replays):
    """Step counts are numbers of the CPU: kernels take what follows from them, the counts themselves are written."""
    torch.manual_seed(0)
    model = Block().cuda()
    other = copy.deepcopy(model)
    first, second = make(model.parameters(), lr=1e-3), make(other.parameters(), lr=1e-3)

    def step(m, optimizer, x):
        optimizer.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = magneto.compile(lambda x: step(other, second, x))
    for _ in range(12):
        x = rnd(16, 64)
        close(compiled(x), step(model, first, x))
    for a, b in zip(other.parameters(), model.parameters(), strict=True):
        close(a, b)
    for a, b in zip(second.state.values(), first.state.values(), strict=True):
        assert a.keys() == b.keys()
        for k in a:
            assert a[k].device == b[k].device
            close(a[k], b[k])
    assert replays() >= 6


def test_numbers_of_the_host(replays):
    def f(x, n, k):
        m = (n + 1) * 3 - k
        r = torch.where(m > 4, m.sqrt(), -m)
        n.add_(1)
        return x * r + m, (x - m).sum(-1), m, n * 2

    compiled = magneto.compile(f)
    n, k = torch.tensor(0.5), torch.tensor(2)
    for i in range(10):
        x, old = rnd(8, 64), n.clone()
        k = torch.tensor(i)
        got = compiled(x, n, k)
        close(got, f(x, old, k))
        close(n, old)
        assert [t.device.type for t in got] == ["cuda", "cuda", "cpu", "cpu"]
    assert replays() >= 7


@pytest.mark.parametrize("vocabulary", [1031, 1024])
def test_odd_vocabularies(vocabulary):
    """Logits of odd rows are computed by columns, and so are their gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.Linear(1024, vocabulary, bias=False)).cuda()
    other = copy.deepcopy(model)

    def loss(m, x, target):
        logits = m(x)
        return logits, F.cross_entropy(logits.view(-1, vocabulary), target.view(-1))

    compiled = magneto.compile(lambda x, target: loss(other, x, target))
    for _ in range(4):
        x, target = rnd(16, 64, 64), torch.randint(0, vocabulary, (16, 64), device="cuda")
        got, want = compiled(x, target), loss(model, x, target)
        assert got[0].stride() == want[0].stride()
        for m, r in ((other, got), (model, want)):
            m.zero_grad()
            r[1].backward()
        close(got, want)
        for a, b in zip(other.parameters(), model.parameters(), strict=True):
            close(a.grad, b.grad)


class Convolutions(nn.Module):
    """What follows a convolution's format, and what cannot."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.a, self.b = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.groups = nn.Conv2d(32, 32, 3, groups=32)
        self.up = nn.ConvTranspose2d(32, 8, 2, 2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = self.stem(x)
        z = F.relu(self.norm(self.b(self.a(y))) + y)
        z = self.up(self.groups(torch.cat([y, z], 1)))
        return self.head(z.mean((2, 3))), z


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("size", [(4, 3, 32, 32), (1, 3, 20, 12)])
def test_convolutions(train, size):
    torch.manual_seed(0)
    model = Convolutions().cuda().train(train)
    other = copy.deepcopy(model)
    compiled = magneto.compile(other)
    for _ in range(4):
        x = rnd(*size).requires_grad_(train)
        y = x.detach().clone().requires_grad_(train)
        with torch.set_grad_enabled(train):
            got, want = compiled(x), model(y)
        close(got, want)
        assert [t.stride() for t in got] == [t.stride() for t in want]
        if train:
            for m, r in ((other, got), (model, want)):
                m.zero_grad()
                (r[0].square().mean() + r[1].square().mean()).backward()
            close(x.grad, y.grad)
            for a, b in zip(other.parameters(), model.parameters(), strict=True):
                close(a.grad, b.grad)
                assert a.grad.stride() == b.grad.stride()


def test_concatenations_that_grow():
    layers = nn.ModuleList(nn.Conv2d(8 + 8 * k, 8, 3, padding=1) for k in range(6)).cuda()

    def f(x):
        parts = [x]
        for m in layers:
            parts.append(F.relu(m(torch.cat(parts, 1))))
        return torch.cat(parts, 1).sin()

    compiled = magneto.compile(f)
    with torch.no_grad():
        for _ in range(4):
            x = rnd(2, 8, 9, 9)
            close(compiled(x), f(x))


def test_saved_tensors_that_hooks_keep(replays):
    model = nn.Sequential(Block(), Block()).cuda()
    compiled = magneto.compile(model)
    kept, seen = [], []

    def pack(t):
        kept.append(t)
        seen.append(t.clone())
        return t

    for k in range(10):
        x = rnd(16, 64)
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t) if k % 2 else contextlib.nullcontext()
        ):
            compiled(x).sum().backward()
        model.zero_grad()
    for t, was in zip(kept, seen, strict=True):
        close(t, was)


def test_a_failing_index_is_checked_on_the_device():
    """Only that the check is there: a device assert would end this process."""

    def f(w, i):
        return F.embedding(i, w) * 2

    compiled = magneto.compile(f)
    w, i = rnd(10, 16), torch.tensor([1, 9, 0], device="cuda")
    for _ in range(3):
        close(compiled(w, i), f(w, i))


def grads(model, x):
    for p in model.parameters():
        p.grad = None
    model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(Block(), Block()),
        lambda: nn.Sequential(
            nn.Unflatten(-1, (1, 8, 8)),
            nn.Conv2d(1, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ),
        lambda: nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=False),
    ],
    ids=["mlp", "convolutions", "attention"],
)
def test_gradients(make):
    torch.manual_seed(0)
    model = make().cuda()
    other = copy.deepcopy(model)
    compiled = magneto.compile(other)
    for _ in range(4):
        x = rnd(16, 64)
        want = grads(model, x)
        for p in other.parameters():
            p.grad = None
        compiled(x).square().mean().backward()
        for p, g in zip(other.parameters(), want, strict=True):
            close(p.grad, g)
