"""autograd.Function.apply: keywords, defaults and transforms are eager's, in one graph (C code since torch 2.14)."""

import pytest
import torch
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves as leaves

import magneto


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, by=2.0):
        return x * by

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.by * 10, None


def gradient(f, x):
    y = f(x)
    return y, *torch.autograd.grad(y.sum(), x)


def without_gradients(f, x):
    with torch.no_grad():
        return f(x)


@pytest.mark.parametrize("around", [lambda f, x: f(x), gradient, without_gradients])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: Scaled.apply(x),
        lambda x: Scaled.apply(x, by=3.0),
        lambda x: Scaled.apply(by=4.0, x=x),
        lambda x: vmap(Scaled.apply)(x),
        lambda x: vmap(lambda row: Scaled.apply(row, by=3.0))(x),
        lambda x: vmap(grad(lambda row: Scaled.apply(row).sin().sum()))(x),
    ],
)
def test_arguments_of_functions(f, around):
    x = torch.randn(3, 4, requires_grad=True)
    compiled = magneto.compile(lambda x: around(f, x), fullgraph=True)
    for _ in range(2):
        assert all(map(torch.allclose, leaves(compiled(x)), leaves(around(f, x))))


def test_another_default_is_another_graph():
    x, compiled = torch.randn(3), magneto.compile(lambda x: Scaled.apply(x), fullgraph=True)
    before = Scaled.forward.__defaults__
    try:
        for by in 2.0, 5.0, 2.0:
            Scaled.forward.__defaults__ = (by,)
            assert torch.equal(compiled(x), x * by)
    finally:
        Scaled.forward.__defaults__ = before


def test_transforms_of_a_function_without_setup_context():
    class Old(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        try:
            return vmap(Old.apply)(x)
        except RuntimeError as e:
            assert "setup_context" in str(e)
            return x + 1

    x = torch.randn(3)
    assert torch.equal(magneto.compile(f)(x), x + 1)
