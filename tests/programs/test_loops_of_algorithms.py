"""Loops as programs write them: matching by Sinkhorn, experts with a capacity, WKV, iterators of itertools."""

import functools
import itertools
import operator

import pytest
import torch
import torch.nn.functional as F

import magneto
from support import assert_calls_same


def sinkhorn(x, y, eps=0.1, most=20, enough=1e-3):
    cost = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().pow(2).sum(-1)
    n, m = cost.shape[-2:]
    mu, nu = torch.empty(n).fill_(1.0 / n).squeeze(), torch.empty(m).fill_(1.0 / m)
    u, v, steps = torch.zeros_like(mu), torch.zeros_like(nu), 0

    def scaled(u, v):
        return (-cost + u.unsqueeze(-1) + v.unsqueeze(-2)) / eps

    for _ in range(most):
        before = u
        u = eps * (torch.log(mu + 1e-8) - torch.logsumexp(scaled(u, v), dim=-1)) + u
        v = eps * (torch.log(nu + 1e-8) - torch.logsumexp(scaled(u, v).transpose(-2, -1), dim=-1)) + v
        steps += 1
        if (u - before).abs().sum(-1).mean().item() < enough:
            break
    plan = torch.exp(scaled(u, v))
    return (plan * cost).sum(), plan, steps


def experts_with_capacity(x, logits, capacity, k):
    experts = logits.shape[1]
    gate, chosen = logits.softmax(-1).topk(k, -1)
    one = F.one_hot(chosen, experts).int()
    place = one.view(-1, experts).cumsum(0).view(-1, k, experts) * one - 1
    keep = (place < capacity) & (place >= 0)
    gate = gate * keep.any(-1)
    slot = F.one_hot((place * one).sum(-1).clamp(0, capacity - 1), capacity).to(gate.dtype)
    combine = torch.einsum("tk,tke,tkc->tec", gate, keep.to(gate.dtype), slot)
    inside = torch.einsum("tec,td->ecd", combine.bool().to(x.dtype), x)
    inside = torch.tanh(inside) * torch.arange(1, experts + 1).view(experts, 1, 1)
    return torch.einsum("tec,ecd->td", combine, inside), combine.bool().sum()


def wkv(w, u, k, v, state=None):
    b, t, c = k.shape
    a, d, p = state or (k.new_zeros(b, c), k.new_zeros(b, c), torch.full((b, c), -1e38))
    out = []
    for i in range(t):
        q = torch.maximum(p, u + k[:, i])
        old, new = torch.exp(p - q), torch.exp(u + k[:, i] - q)
        out.append((old * a + new * v[:, i]) / (old * d + new))
        q = torch.maximum(w + p, k[:, i])
        old, new = torch.exp(w + p - q), torch.exp(k[:, i] - q)
        a, d, p = old * a + new * v[:, i], old * d + new, q
    return torch.stack(out, 1), (a, d, p)


def chunks(x, n):
    for i in range(0, x.shape[0], n):
        yield x[i : i + n]


def running_sum():
    total = 0.0
    while True:
        total = total + (yield total).sum()


def iterators(x, n):
    sums = [c.sum() for c in chunks(x, n)]
    adder = running_sum()
    next(adder)
    sent = [adder.send(row) for row in itertools.islice(x, 2)]
    adder.close()
    scaled = [p * q for p, q in zip(x, itertools.cycle([1.0, 2.0]))]
    last = list(itertools.accumulate(x.unbind(), torch.add))[-1]
    product = functools.reduce(operator.mul, x.unbind(0))
    groups = {k: list(g) for k, g in itertools.groupby([1, 1, n, n + 1])}
    return sums, sent, scaled, last, product, groups, "-".join(map(str, [n, n + 1]))


CALLS = {
    sinkhorn: [(torch.rand(n, 2), torch.rand(m, 2)) for n, m in ((5, 6), (5, 6), (7, 4))],
    experts_with_capacity: [
        (torch.randn(t, 4), torch.randn(t, 3), c, k)
        for t, k, c in ((6, 1, 2), (6, 2, 2), (9, 2, 3), (9, 1, 5))
    ],
    wkv: [
        (-torch.rand(8), torch.rand(8), *torch.randn(2, b, t, 8)) for b, t in ((2, 5), (2, 5), (1, 7), (2, 6))
    ],
    iterators: [(torch.randn(k, 3), n) for k, n in ((4, 2), (4, 2), (5, 2), (6, 3), (4, 2))],
}


@pytest.mark.parametrize("f", CALLS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_loop(f, dynamic):
    assert_calls_same(magneto.compile(f, dynamic=dynamic), f, CALLS[f], times=2, rtol=1e-4, atol=1e-5)
