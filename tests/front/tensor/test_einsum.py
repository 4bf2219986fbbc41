"""torch.einsum of three and more operands, with opt_einsum's search for the best order where that is installed."""

import sys
import types

import pytest
import torch
import torch.backends.opt_einsum as settings

import magneto
from support import counts


@pytest.fixture
def search(monkeypatch):
    """A stand-in for opt_einsum whose contract_path is recorded no better than the real one's, with its own counters."""
    from decimal import Decimal

    module = types.ModuleType("opt_einsum.contract")
    module.asked = []

    def contract_path(subscripts, *operands, optimize="auto", shapes=False, **kwargs):
        sizes = [tuple(o) if shapes else tuple(o.shape) for o in operands]
        if len({len(s) for s in sizes}) > 3:
            raise ValueError("shapes")
        module.asked.append(sizes)
        cost = Decimal(sum(sizes[0])) / max(Decimal(sizes[0][0]), Decimal(1))
        n = len(operands)
        return [(n - 1 - i - 1, n - 1 - i) for i in range(n - 1)], cost

    contract_path.__module__ = module.__name__
    module.contract_path = contract_path
    monkeypatch.setitem(sys.modules, "opt_einsum.contract", module)
    inner = sys.modules["torch.backends.opt_einsum"].m
    monkeypatch.setattr(inner, "_opt_einsum", module)
    monkeypatch.setattr(inner, "enabled", True)
    monkeypatch.setattr(inner, "strategy", "auto")
    settings.is_available.cache_clear()
    yield module
    settings.is_available.cache_clear()


def test_an_einsum_of_three_operands_is_one_graph(search):
    def f(a):
        return torch.einsum("ij,kj,kl->il", a + 1, a, a * 2).sin()

    c, x = magneto.compile(f, fullgraph=True), torch.rand(4, 8)
    for _ in range(3):
        torch.testing.assert_close(c(x), f(x))
    assert counts().graphs == 1


def test_sizes_of_an_einsum_may_change(search):
    def f(a, b, c):
        return torch.einsum("bld,bln,bd->bn", a, b, c) + 1

    c = magneto.compile(f, fullgraph=True)
    for n in (5, 5, 6, 7, 9):
        args = torch.rand(2, n, 4), torch.rand(2, n, 3), torch.rand(2, 4)
        torch.testing.assert_close(c(*args), f(*args))
    assert counts().graphs == 2
    assert all(type(n) is int for sizes in search.asked for s in sizes for n in s)


def test_an_einsum_trains(search):
    def f(a, b, c):
        return torch.einsum("ij,jk,kl->il", a, b, c).square().sum()

    args = [torch.rand(n, m, requires_grad=True) for n, m in ((2, 3), (3, 4), (4, 5))]
    want = torch.autograd.grad(f(*args), args)
    torch.testing.assert_close(torch.autograd.grad(magneto.compile(f, fullgraph=True)(*args), args), want)


def test_what_the_search_raises_is_raised(search):
    def f(a, b, c, d):
        return torch.einsum("i,ij,ijk,ijkl->l", a, b, c, d)

    args = [torch.rand(*[2] * n) for n in (1, 2, 3, 4)]
    for call in (f, magneto.compile(f)):
        with pytest.raises(ValueError, match="shapes"):
            call(*args)
