"""Gradients that do not depend on those of results: which of them exist, and what they are, is as in eager."""

import pytest
import torch

import magneto
from support import assert_counts, assert_same


class Made(torch.autograd.Function):
    """Its gradient is made up, as in losses that compute it in forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return torch.full((3,), 5.0)


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g + 1


def of_an_input(a, b, x):
    return a.sin(), torch.copysign(x, a)


def of_a_result(a, b, x):
    v = a.sin()
    return v, torch.copysign(x, v)


def of_the_only_way(a, b, x):
    return torch.copysign(x, a), b * 2


def of_one_of_two(a, b, x):
    return torch.copysign(x, a) + b, b * 2


def behind_a_break(a, b, x):
    v = a.relu()
    w = torch.copysign(x, v.nan_to_num())
    print(end="")
    x.logical_not()
    return w, b.exp()


def rounded(a, b, x):
    return a.sin(), x * a.floor() + b


def made_up(a, b, x):
    return a.sin(), Made.apply(a)


def made_up_inside(a, b, x):
    return a.sin(), Made.apply(a.cos()) * x


def made_up_twice(a, b, x):
    return a.exp() * Made.apply(a), Made.apply(b) + a


def added(a, b, x):
    return a.sin(), Added.apply(a) * b


def gradients(f, results):
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, generator=g).requires_grad_() for _ in range(2))
    out = f(a, b, torch.randn(3, 3, generator=g))
    torch.autograd.backward([out[k] for k in results], [torch.ones_like(out[k]) for k in results])
    return a.grad, b.grad


ATEN = [of_an_input, of_a_result, of_the_only_way, of_one_of_two, behind_a_break, rounded]
PROGRAM = [made_up, made_up_inside, made_up_twice, added]


@pytest.mark.parametrize("f", ATEN + PROGRAM)
@pytest.mark.parametrize("results", [[0], [1], [0, 1]])
def test_gradients_of_each_set_of_results(f, results):
    compiled = magneto.compile(f)
    for _ in range(2):
        assert_same(gradients(compiled, results), gradients(f, results))


@pytest.mark.parametrize("f", [of_an_input, of_a_result, of_the_only_way])
def test_zeros_of_torch_stay_compiled(f):
    magneto.reset()
    gradients(magneto.compile(f), [0, 1])
    assert_counts(graphs=1, joint_graphs=1)
