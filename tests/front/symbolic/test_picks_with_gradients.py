"""Rows that a number out of a tensor picks, where gradients are wanted: one graph, whatever the number is."""

import pytest
import torch

import magneto
from support import assert_counts, assert_same


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def column(x, i):
    return (x * 2)[:, i].sin()


def from_the_end(x, i):
    return (x * 3)[i - 5, 1:].sin()


def by_method(x, i):
    y = x * 2
    return y.select(-1, int(i)) + torch.select(y, dim=1, index=int(i) - 5)


def rolled(x, i):
    y = x * 2
    return y.roll(shifts=-int(i), dims=1) * y


def rolled_far(x, i):
    return torch.roll(x * 2, int(i) * 7 - 30, -1).cos() + (x * 3).roll((int(i),), (0,))


def best(x, i):
    y = x * 2
    _, k = y.sum(0).topk(3)
    return torch.stack([y[:, k[n]] for n in range(3)]) + i


PROGRAMS = [column, from_the_end, by_method, rolled, rolled_far, best]


def step(f, x, i):
    x = x.clone().requires_grad_()
    y = f(x, i)
    y.sin().sum().backward()
    return y, x.grad


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_whatever_the_number_is(f):
    compiled = magneto.compile(f)
    for i in (1, 3, 0, 4):
        x = torch.randn(6, 6)
        assert_same(step(compiled, x, torch.tensor(i)), step(f, x, torch.tensor(i)))
    assert_counts(graphs=1, joint_graphs=1, recompiles=0, breaks=0)


def test_sizes_that_change_are_symbols_of_a_roll():
    compiled = magneto.compile(rolled, dynamic=True)
    for n in (5, 7, 9):
        x = torch.randn(4, n)
        assert_same(step(compiled, x, torch.tensor(2)), step(rolled, x, torch.tensor(2)))
    assert_counts(recompiles=0, breaks=0)


def test_a_number_out_of_range_raises_as_eager_does():
    compiled = magneto.compile(column)
    x = torch.randn(6, 6)
    step(compiled, x, torch.tensor(1))
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        step(compiled, x, torch.tensor(6))


def is_written(x, i):
    y = x * 2
    z = y[:, i]
    z.add_(1)
    return y * 2


def was_picked_from(x, i):
    y = x * 2
    z = y[:, i]
    y.mul_(3)
    return z * 2


def leaves(x, i):
    y = x * 2
    return y, y[i]


@pytest.mark.parametrize("f", [is_written, was_picked_from], ids=lambda f: f.__name__)
def test_what_is_written_later_is_a_view(f):
    compiled = magneto.compile(f)
    for i in (1, 3, 0):
        x = torch.randn(6, 6)
        assert_same(step(compiled, x, torch.tensor(i)), step(f, x, torch.tensor(i)))


def test_a_result_is_a_view():
    x = torch.randn(6, 6, requires_grad=True)
    for i in (1, 3):
        y, row = magneto.compile(leaves)(x, torch.tensor(i))
        assert row.data_ptr() == y[i].data_ptr() and row._is_view()
