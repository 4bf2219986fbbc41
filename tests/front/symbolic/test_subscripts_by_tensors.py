"""Subscripts that are 0-dim tensors of integers: the graph has the number, whatever it is."""

import pytest
import torch

import magneto
from support import assert_same, counts


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def row(x, i):
    return (x * 2)[i].sin()


def column(x, i):
    return (x * 2)[:, i].sin()


def element(x, i):
    y = x + 1
    return y[i, 0] * 2, y[1:, i], y[0][i]


def of_an_input(x, i):
    return x[i], x[:, i] + 1


def chosen_inside(x, i):
    y = x * 2
    return y[:, y.sum(0).argmax()] + i


def best(x, i):
    y = x * 2
    _, k = y.sum(0).topk(3)
    return torch.stack([y[:, k[n]] for n in range(3)])


def schedule(x, i):
    betas = torch.linspace(0.1, 0.9, 6)
    alphas = (1 - betas).cumprod(0)
    return x * alphas[i].sqrt() + alphas[i - 1]


def written(x, i):
    y = x * 2
    y[:, i].add_(1)
    y[i].mul_(3)
    return y


PROGRAMS = [row, column, element, of_an_input, chosen_inside, best, schedule, written]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_numbers_that_change(f, grad):
    g = magneto.compile(f)
    for k in (1, 3, 2, 0, -1, 3, 2):
        x, i = torch.randn(4, 6), torch.tensor(k)
        with torch.set_grad_enabled(grad):
            assert_same(g(x.clone(), i), f(x.clone(), i), rtol=1e-5, atol=1e-6)
    s = counts()
    assert s.graphs <= 2 and s.breaks == 0, s


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(f):
    def call(f, x, i):
        leaf = x.clone().requires_grad_()
        result = f(leaf * 1, i)
        parts = result if isinstance(result, tuple) else (result,)
        return torch.autograd.grad(sum(p.sum() for p in parts), leaf)

    g = magneto.compile(f)
    for k in (1, 3, 2, 0, 3):
        x, i = torch.randn(4, 6), torch.tensor(k)
        assert_same(call(g, x, i), call(f, x, i), rtol=1e-5, atol=1e-6)


def test_results_are_views_of_an_input():
    def f(x, i):
        return x[i], x[:, i]

    g = magneto.compile(f)
    with torch.no_grad():
        for k in (1, 2, 0):
            x, y = torch.zeros(4, 6), torch.zeros(4, 6)
            for h, t in ((g, x), (f, y)):
                a, b = h(t, torch.tensor(k))
                a.add_(1)
                b.add_(2)
            assert_same(x, y)


def test_an_index_that_is_out_of_range():
    def f(x, i):
        return (x * 2)[:, i] + 1

    g = magneto.compile(f)
    with torch.no_grad():
        for k in (1, 2, 9, 3, -7):
            x, i = torch.randn(4, 6), torch.tensor(k)
            try:
                want = f(x, i)
            except IndexError as e:
                with pytest.raises(IndexError) as raised:
                    g(x, i)
                assert str(raised.value) == str(e)
                continue
            assert_same(g(x, i), want)


@pytest.mark.parametrize(
    "index", [torch.tensor(True), torch.tensor([1]), torch.tensor([True, False, True, True])]
)
def test_other_tensors_are_what_they_were(index):
    def f(x, i):
        return (x * 2)[i] + 1, (x * 2)[i, ..., None]

    g = magneto.compile(f)
    with torch.no_grad():
        x = torch.randn(4, 6)
        for _ in range(2):
            assert_same(g(x, index), f(x, index))
