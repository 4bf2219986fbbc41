"""Numbers out of small tensors of integers: one graph, as long as the tensor holds the same numbers."""

import pytest
import torch

import magneto
from support import assert_counts, assert_same, counts


def length(x, n):
    for _ in range(int(n[0])):
        x = x.sin()
    return x


def total(x, n):
    return [x.sin() * i for i in range(n.sum())]


def chosen(x, n):
    return (torch.sin, torch.cos, torch.tan, torch.exp)[n[1]](x)


def row(x, n):
    return x.sin()[n[0]]


def listed(x, n):
    for i in n.tolist():
        for _ in range(i):
            x = x.cos()
    return x


def of_a_mask(x, n):
    rows = (n > 1).long().sum(0)
    return [x.sin() for _ in range(rows)]


def named(x, n):
    return x * getattr(torch, f"float{32 * n[0]}").itemsize


def asked(x, n):
    return x.sin() if n[0] > 1 else x.cos()


PROGRAMS = [length, total, chosen, row, listed, of_a_mask, named, asked]
VALUES = [[2, 1], [1, 3], [2, 1], [2, 2]]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_the_first_call_takes_one_graph(f, dtype):
    c, x = magneto.compile(f), torch.randn(5, 3)
    for i, value in enumerate(VALUES):
        n = torch.tensor(value, dtype=dtype)
        assert_same(c(x, n), f(x, n))
        if not i:
            assert_counts(graphs=1, breaks=0)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_fullgraph_takes_them(f):
    c, x, n = magneto.compile(f, fullgraph=True), torch.randn(5, 3), torch.tensor([2, 1])
    assert_same(c(x, n), f(x, n))


def test_numbers_that_are_written_between_calls_are_seen():
    c, x, n = magneto.compile(length), torch.randn(5), torch.tensor([1, 0])
    for i in (1, 3, 1):
        n[0] = i
        assert_same(c(x, n), length(x, n))


def test_numbers_that_the_function_has_written_are_no_guarded_ones():
    def f(x, n):
        n += 1
        return [x.sin() for _ in range(n[0])]

    c, x = magneto.compile(f), torch.randn(5)
    for i in range(3):
        a, b = torch.tensor([i, 0]), torch.tensor([i, 0])
        assert_same((c(x, a), a), (f(x, b), b))


@pytest.mark.filterwarnings("ignore:.*runs eagerly from here on")
def test_numbers_that_change_often_are_not_guarded_any_more():
    c, x = magneto.compile(length), torch.randn(5)
    for i in range(6):
        n = torch.tensor([i, 0])
        assert_same(c(x, n), length(x, n))
    since = counts()
    for i in range(6, 26):
        n = torch.tensor([i, 0])
        assert_same(c(x, n), length(x, n))
    assert counts(since).graphs <= 4, "the rest of the loop is recorded by its position"


def test_numbers_that_are_only_computed_with_are_not_guarded():
    c, x = magneto.compile(lambda x, n: x * n[0].item() + n.tolist()[1]), torch.randn(5)
    for i in range(5):
        n = torch.tensor([i, 2 * i])
        assert_same(c(x, n), x * n[0].item() + n.tolist()[1])
    assert_counts(graphs=1, breaks=0)


@pytest.mark.parametrize("n", [torch.arange(100), torch.arange(4)[::2], torch.tensor([1.0, 2.0])], ids=str)
def test_other_tensors_break_the_graph(n):
    c, x = magneto.compile(lambda x, n: [x.sin() for _ in range(int(n[1]))]), torch.randn(5)
    assert_same(c(x, n), [x.sin() for _ in range(int(n[1]))])
    assert counts().breaks
