"""Whole steps with sizes that depend on data under gradients: masked losses, rows that are chosen, experts that get the tokens
routed to them.  One graph, whose run asks for the sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magneto
from support import counts


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.expert = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))
        self.gate = nn.Linear(8, 3)

    def forward(self, x):
        weight, index = F.softmax(self.gate(x), -1).topk(2, -1)
        out = torch.zeros(len(x), 4, dtype=x.dtype)
        for i, expert in enumerate(self.expert):
            row, k = torch.where(index == i)
            out.index_add_(0, row, expert(x[row]) * weight[row, k, None])
        return out


def masked_mean(m, x, y):
    return (m(x) - y).square()[y > 0].mean()


def rows(m, x, y):
    keep = (y.sum(1) > 0).nonzero().squeeze(1)
    return F.mse_loss(m(x)[keep], y[keep], reduction="sum") / (keep.numel() + 1)


def rows_before(m, x, y):
    keep = y.sum(1) > 0
    return (m(x[keep]) - y[keep]).abs().sum()


def masked_write(m, x, y):
    out, keep = m(x), y > 0.3
    z = torch.zeros_like(out)
    z[keep] = out[keep] * 2
    return (z - y).square().mean()


def experts(m, x, y):
    return F.mse_loss(m(x), y)


def run(loss_of, compiled, sizes, n=9):
    torch.manual_seed(0)
    m = (
        Experts() if loss_of is experts else nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    ).double()
    opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = loss_of(m, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss

    f = magneto.compile(step) if compiled else step
    g = torch.Generator().manual_seed(1)
    losses = []
    for i in range(n):
        x, y = (torch.randn(sizes[i % len(sizes)], k, generator=g, dtype=torch.float64) for k in (8, 4))
        if i % 4:  # all are chosen, none, one
            y = y.abs() * (1 if i % 4 == 1 else -1)
            y[0, 0] = 9.0 if i % 4 == 3 else y[0, 0]
        if loss_of is masked_mean and i % 4 == 2:
            continue  # the mean of nothing
        losses.append(f(x, y).detach())
    return losses, [p.detach() for p in m.parameters()]


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()


@pytest.mark.parametrize("loss_of", [masked_mean, rows, rows_before, masked_write, experts])
def test_chosen_rows(loss_of):
    ours = run(loss_of, True, (6,))
    stats = counts()
    assert not stats.reasons and stats.graphs == 2, stats
    torch.testing.assert_close(ours, run(loss_of, False, (6,)), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss_of", [masked_mean, masked_write])
def test_with_batches_of_many_sizes(loss_of):
    ours = run(loss_of, True, (6, 5, 4, 7))
    assert not counts().reasons
    torch.testing.assert_close(ours, run(loss_of, False, (6, 5, 4, 7)), rtol=1e-9, atol=1e-11)


def test_a_module_breaks_where_its_results_want_gradients():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            h = self.a(x)
            return self.b(h[h.sum(1) > 0])

    torch.manual_seed(0)
    m = Masked().double()
    f, x = magneto.compile(m), torch.randn(6, 8, dtype=torch.float64)
    grads = []
    for g in (m, f, f):
        m.zero_grad()
        g(x).square().sum().backward()
        grads.append([p.grad.clone() for p in m.parameters()])
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[0], grads[2])
    breaks = counts().reasons
    with torch.no_grad():  # whose graph does not
        torch.testing.assert_close(f(x), m(x))
    assert counts().reasons == breaks


def test_a_size_is_known_before_what_has_it_is_made():
    def run(compiled):
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(5, 6, dtype=torch.float64))
        opt = torch.optim.Adam([w], 0.01)

        def step(z, at):
            opt.zero_grad()
            h = w[z]
            loss = h.new_zeros(int(at.max()) + 1, 6).index_add_(0, at, h).square().mean()
            loss.backward()
            opt.step()
            return loss.detach()

        f = magneto.compile(step) if compiled else step
        return [f(torch.arange(n) % 5, torch.arange(n) // 2) for n in (7, 9, 6)], w.detach()

    torch.testing.assert_close(run(True), run(False))


def test_rows_found_late_in_a_step():
    def f(x, y):
        x = x * 2
        a = x[y > 0]
        b = a.sum() + x.sum()
        rows = (x > b).nonzero()
        return torch.zeros(rows.shape[0], 3).add_(1), rows

    c = magneto.compile(f)
    for n in (5, 8):
        x, y = torch.linspace(-9, 4, n), torch.linspace(-1, 1, n)
        torch.testing.assert_close(c(x, y), f(x, y))


@pytest.mark.parametrize("kind", ["tensor", "list", "joined"])
@pytest.mark.parametrize("train", [True, False])
def test_ctc_loss(kind, train):
    """Lengths are data: how much is kept for backward is known to the op alone."""

    def run(compiled):
        torch.manual_seed(2)
        m = nn.Linear(4, 6)

        def step(x, target, inputs, lengths):
            m.zero_grad()
            loss = F.ctc_loss(m(x).log_softmax(-1), target, inputs, lengths, zero_infinity=True)
            if train:
                loss.backward()
            return loss.detach(), m.weight.grad

        f = magneto.compile(step, fullgraph=True) if compiled else step
        out = []
        with torch.set_grad_enabled(train):
            for k in range(4):
                x, target, inputs, lengths = (
                    torch.randn(8, 2, 4),
                    torch.randint(1, 6, (2, 3)),
                    [8, 7 - k],
                    [2, 2 + (k == 3)],
                )
                target = target.flatten()[: sum(lengths)] if kind == "joined" else target
                args = (inputs, lengths) if kind == "list" else (torch.tensor(inputs), torch.tensor(lengths))
                loss, grad = f(x, target, *args)
                out.append((loss, None if grad is None else grad.clone()))
        return out

    torch.testing.assert_close(run(True), run(False))
    s = counts()
    assert not s.reasons and s.graphs <= 3, s
