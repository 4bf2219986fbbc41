"""Loops over numbers out of tensors: Python code with other values in each turn is executed as it is, and nothing is given up for it."""

import itertools
import signal
import threading
import warnings

import pytest
import torch
from torch import nn

import magneto
from support import counts

LETTERS = "-abcdefgh"


def greedy(lin, h):
    best, z = lin(h).argmax(-1), torch.sin(lin(h)).sum()
    out = []
    for row in best:
        last, s = None, []
        for p in row.tolist():
            if p != last and p != 0:
                s.append(LETTERS[p])
            last = p
        out.append("".join(s))
    return out, z


def grouped(lin, h):
    best, z = lin(h).argmax(-1), torch.cos(h).sum()
    out = ["".join(LETTERS[k] for k, _ in itertools.groupby(r.tolist()) if k) for r in best]
    return out, z


def early(lin, h):
    total = torch.zeros(())
    for p in lin(h).argmax(-1).flatten().tolist():
        if p == 0:
            break
        if p % 2:
            continue
        total = total + lin(h)[0, 0, p] * p
    return total.exp()


def raising(lin, h):
    n = 0
    for p in lin(h).argmax(-1).flatten().tolist():
        try:
            n += len(LETTERS[p - 4 :]) // (p - 3)
        except ZeroDivisionError:
            n += 100
        finally:
            n += 1
    return h.sum() * n


@pytest.mark.parametrize("f", [greedy, grouped, early, raising])
def test_decoding(f):
    lin = nn.Linear(8, 9)
    c = magneto.compile(f)
    stats = []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for i in range(8):
            h = torch.randn(3, 12, 8)
            a, b = c(lin, h), f(lin, h)
            for x, y in zip(a, b) if isinstance(a, tuple) else [(a, b)]:
                assert torch.allclose(x, y, atol=1e-5, rtol=1e-4) if isinstance(x, torch.Tensor) else x == y
            stats.append(counts())
    assert not stats[-1].fallbacks and (f is early or stats[-1].graphs <= stats[2].graphs)


def test_results_that_differ_behind_a_break():
    def g(x):
        z = torch.sin(x)
        names = [LETTERS[int(p)] for p in (z * 4 + 4).tolist()]
        return "".join(names), z

    c = magneto.compile(g)
    for i in range(20):
        x = torch.randn(5)
        a, b = c(x), g(x)
        assert a[0] == b[0] and torch.allclose(a[1], b[1], atol=1e-6)
    assert not counts().fallbacks


def test_modules_of_a_loop_with_a_break():
    """Each turn has a module of its own: that is no reason to give the frame up."""
    layers = nn.ModuleList(nn.Linear(3, 3) if i % 3 else nn.Identity() for i in range(20))

    def g(x):
        for m in layers:
            x = m(x).tanh()
            magneto.graph_break()
            x = x + 1
        return x * 2

    c = magneto.compile(g)
    graphs = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            x = torch.randn(2, 3)
            assert torch.allclose(c(x), g(x), atol=1e-5)
            graphs.append(counts().graphs)
    assert not counts().fallbacks and graphs[0] == graphs[2]


def test_a_waiting_loop_inside_sees_signals():
    def f(x, numbers, flag):
        out = []
        for n in numbers:
            magneto.graph_break()
            out.append(str(n * 3))
            k = 0
            while n == 99 and not flag:
                k += 1
            magneto.graph_break()
        return x, out

    def late(signum, frame):
        raise KeyError(signum)

    c = magneto.compile(f)
    x = torch.ones(2)
    for i in range(4):
        assert (
            c(x, [1 + i, 2 + i, 3 * i, 4, 5, 6, 7, 8], [])[1]
            == f(x, [1 + i, 2 + i, 3 * i, 4, 5, 6, 7, 8], [])[1]
        )
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyError):
            c(x, [1, 99], [])
    finally:
        signal.signal(signal.SIGALRM, before)
    flag = []
    threading.Timer(0.1, flag.append, (1,)).start()
    assert c(x, [1, 99], flag)[1] == ["3", "297"]
