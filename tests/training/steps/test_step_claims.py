"""PYTEST_DONT_REWRITE: the assertions of the programs are what is tested.

Whole steps that ask whether numbers are finite: one graph, whose answer is looked at before anything is written.  A run that
finds the other answer leaves everything as it was, and the step runs with the graph broken at the question."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import magneto
from support import counts

CLIP = nn.utils.clip_grad_norm_


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.2), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 4)
    ).double()


def asserts(loss, m, opt):
    assert torch.isfinite(loss), "not finite"
    loss.backward()
    opt.step()


def raises(loss, m, opt):
    loss.backward()
    if torch.isnan(loss) or torch.isinf(loss):
        raise ValueError("not finite")
    opt.step()


def skips(loss, m, opt):
    loss.backward()
    if not math.isfinite(loss.item()):
        opt.zero_grad()
        return
    opt.step()


def asks_each_gradient(loss, m, opt):
    loss.backward()
    if (
        not any(torch.isnan(p.grad).any() for p in m.parameters())
        and sum(p.grad.isinf().sum().item() for p in m.parameters()) == 0
    ):
        opt.step()


def clips(loss, m, opt):
    loss.backward()
    CLIP(m.parameters(), 0.5, error_if_nonfinite=True)
    opt.step()


def compares(loss, m, opt):
    value = loss.item()
    if value != value:
        return
    loss.backward()
    opt.step()


def run(way, compiled, bad, sizes=(6,), n=7):
    m = net()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.mse_loss(m(x), y)
        way(loss, m, opt)
        return loss

    f = magneto.compile(step) if compiled else step
    g = torch.Generator().manual_seed(1)
    results, breaks = [], []
    for i in range(n):
        x, y = (torch.randn(sizes[i % len(sizes)], k, generator=g, dtype=torch.float64) for k in (8, 4))
        if i in bad:
            x[0, 0] = math.nan
        try:
            results.append(f(x, y).item())
        except (AssertionError, ValueError, RuntimeError) as e:
            results.append((type(e).__name__, str(e).split("\n")[0]))
        breaks.append(counts().breaks)
    state = [*m.state_dict().values(), *(b for s in opt.state.values() for b in s.values())]
    return (
        results,
        [t.detach() for t in state],
        [p._version for p in m.parameters()] + [torch.rand(1).item()],
        breaks,
    )


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()


def same(a, b):
    assert len(a[0]) == len(b[0])
    for p, q in zip(a[0], b[0]):
        assert p == q if isinstance(p, tuple) else math.isclose(p, q, rel_tol=1e-9) or (p != p and q != q), (
            p,
            q,
        )
    for p, q in zip(a[1], b[1]):
        torch.testing.assert_close(q, p, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert a[2] == b[2]


@pytest.mark.parametrize("way", [asserts, raises, skips, asks_each_gradient, clips, compares])
def test_answers_are_looked_at_before_writes(way):
    ours = run(way, True, (4, 5))
    same(run(way, False, (4, 5)), ours)
    assert not ours[3][3] and ours[3][4] and counts().recompiles <= 3


def test_sizes_that_change(way=clips):
    ours = run(way, True, (5,), (6, 6, 5, 7))
    same(run(way, False, (5,), (6, 6, 5, 7)), ours)
    assert not ours[3][4]


@pytest.mark.parametrize(
    "cls, clip, foreach",
    [(torch.optim.SGD, False, False), (torch.optim.Adam, True, True), (torch.optim.AdamW, False, True)],
)
def test_grad_scaler(cls, clip, foreach):
    def train(compiled):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double()
        opt = cls(m.parameters(), lr=0.01, foreach=foreach)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)

        def step(x):
            opt.zero_grad()
            loss = m(x).square().mean()
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(opt)
                CLIP(m.parameters(), 0.1)
            scaler.step(opt)
            scaler.update()
            return loss

        f = magneto.compile(step) if compiled else step
        g = torch.Generator().manual_seed(1)
        seen = []
        for i in range(14):
            x = torch.randn(6, 8, generator=g, dtype=torch.float64)
            if i in (5, 8, 9):
                x[0, 0] = math.inf
            f(x)
            seen.append((scaler.get_scale(), scaler._get_growth_tracker(), compiled and counts().breaks))
        return [
            *m.parameters(),
            *(b for s in opt.state.values() for b in s.values() if torch.is_tensor(b)),
        ], seen

    (a, eager), (b, ours) = train(False), train(True)
    for p, q in zip(a, b):
        torch.testing.assert_close(q, p, rtol=1e-9, atol=1e-12)
    assert [s[:2] for s in ours] == [s[:2] for s in eager]
    assert ours[4][2] == 0 and ours[-1][2] == 1, ours  # the step that is skipped breaks, once and for all


def test_answers_that_are_always_wrong_are_rarely_tried():
    def f(x, w):
        w.add_(1)
        if not torch.isfinite(x).all():
            return x + 1
        return x - 1

    x, w, g = torch.tensor([math.nan, 1.0]), torch.zeros(2), magneto.compile(f)
    attempts = []
    for i in range(150):
        assert torch.equal(g(x, w)[1:], x[1:] + 1) and w[0] == i + 1
        attempts.append(counts().attempts)
    assert attempts[-1] == attempts[2]
    assert torch.equal(g(torch.ones(2), w), torch.zeros(2)) and w[0] == 151


def test_results_that_are_asked_for_early():
    def f(x, w, n):
        ok = torch.isfinite(x).all()
        assert ok and n.item() < 5
        n.add_(ok)
        w.mul_(ok.to(w.dtype) + 1)
        return ok, ok.view(1), torch.stack([ok, ~ok]), n

    g = magneto.compile(f, fullgraph=True)
    state = [[torch.ones(3), torch.tensor(0)] for _ in range(2)]
    for i in range(7):
        x, res = torch.full((2,), math.nan if i == 2 else 1.0), []
        for fn, (w, n) in zip((f, g), state):
            try:
                res.append([t.clone() for t in fn(x, w, n)] + [w.clone(), n._version, w._version])
            except AssertionError:
                res.append([n.clone(), w.clone(), n._version, w._version])
        assert len(res[0]) == len(res[1]) and all(
            torch.equal(a, b) if torch.is_tensor(a) else a == b for a, b in zip(*res)
        )
