"""Values that depend on constants and sizes only are computed while compiling, and nobody can tell."""

import re

import pytest
import torch

import magneto
from magneto import _magneto
from tests import graphs
from tests.ops import sweep

SIDE = 7
X = torch.linspace(-2, 2, SIDE * SIDE * 9).reshape(9, SIDE * SIDE)
TABLE = torch.linspace(-1, 1, (2 * SIDE - 1) ** 2)


def positions():
    """The index table of relative positions of window attention."""
    c = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None, :]).permute(1, 2, 0).contiguous()
    r[:, :, 0] += SIDE - 1
    r[:, :, 1] += SIDE - 1
    r[:, :, 0] *= 2 * SIDE - 1
    return r.sum(-1)


def windows():
    """The attention mask of shifted windows: regions are numbered by writes into slices."""
    m, n = torch.zeros(1, 2 * SIDE, 2 * SIDE, 1), 0
    for h in (slice(0, -SIDE), slice(-SIDE, -3), slice(-3, None)):
        for w in (slice(0, -SIDE), slice(-SIDE, -3), slice(-3, None)):
            m[:, h, w, :] = n
            n += 1
    m = m.view(1, 2, SIDE, 2, SIDE, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, SIDE * SIDE)
    d = m.unsqueeze(1) - m.unsqueeze(2)
    return d.masked_fill(d != 0, -100.0).masked_fill(d == 0, 0.0)


def folded(fn, *args):
    """The compiled graph of fn, its inputs, and its text: before folding and, when something was folded, after it."""
    text, inputs = graphs.graph_text(fn, *args)
    g = _magneto.Graph(text, dump=True)
    return g, inputs, [part for part in re.split(r"(?m)^ *return .*$", g.dump("simplified")) if part.strip()]


def test_a_table_is_an_input_that_the_plan_holds():
    def fn(x, t):
        return x[0, :SIDE, None] + t[positions().view(-1)].view(49, 49)[:SIDE]

    g, inputs, (before, after) = folded(fn, X, TABLE)
    assert g.info()["inputs"] == len(inputs) == 2
    assert "arange" in before and "select_scatter" in before
    assert "arange" not in after and "select_scatter" not in after
    for _ in range(2):
        assert torch.equal(g.run(*inputs)[0], fn(X, TABLE))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.where(torch.arange(49)[None] > torch.arange(9)[:, None], x, 0.0),
        lambda x: x.masked_fill(torch.ones(9, 49, dtype=torch.bool).tril(), 0.0),
        lambda x: torch.cat([torch.zeros(600, 2000), torch.ones(600, 2000)])[: x.shape[0], :49] + x,
    ],
    ids=["comparison", "tril", "large"],
)
def test_what_is_cheap_or_large_stays_in_the_kernels(fn):
    g, inputs, texts = folded(fn, X)
    assert len(texts) == 1
    assert torch.equal(g.run(*inputs)[0], fn(X))


def test_results_and_random_values_are_new_in_every_call():
    index = torch.arange(9).flip(0)
    cases = [
        lambda x: positions(),
        lambda x: (positions().float() + x[:1], positions()),
        lambda x: (windows()[0, 0] + x, windows()),
        lambda x: torch.rand(9)[torch.arange(9).roll(2)] + x[:, 0],
        lambda x: x[:, 0] + torch.randperm(9)[index],
    ]
    for fn in cases:
        compiled = magneto.compile(fn)
        sweep.check(fn, (X,), compiled=compiled)
        out = compiled(X)
        for t in out if isinstance(out, tuple) else (out,):
            t.zero_()  # the program may write to what it got
        sweep.check(fn, (X,), compiled=compiled)


def test_numbers_written_into_slices():
    for _ in range(2):
        assert not sweep.check(lambda x: x[:4, None] + windows(), (X,))


def test_masks_with_gradients_and_autocast():
    def fn(x, t):
        scores = x[:4, :, None] * x[:4, None] + windows() + t[positions().view(-1)].view(49, 49)
        return scores.softmax(-1).square().sum(-1)

    args = X.clone().requires_grad_(), TABLE.clone().requires_grad_()
    assert not sweep.check(fn, args, gradient=True)
    with torch.autocast("cpu", torch.bfloat16):
        magneto.reset()
        a, b = fn(*args), magneto.compile(fn)(*args)
    assert a.dtype == b.dtype and torch.allclose(a.float(), b.float(), rtol=2e-2, atol=2e-2)


def test_what_is_written_afterwards():
    def fn(x):
        p = positions()
        y = x[0] + p[0]
        p.add_(x[0].long())
        return y, p * 2

    assert not sweep.check(fn, (X,))
