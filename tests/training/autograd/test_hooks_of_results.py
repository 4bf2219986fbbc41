"""Hooks that a compiled function registers on tensors which it makes, with gradients wanted outside of it."""

import warnings

import pytest
import torch

import magneto
from support import assert_same, counts


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def twice(g):
    return g * 2


def nothing(g):
    return None


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3.0
        self.inner = torch.nn.Linear(4, 4)

    def scaled(self, g):
        return g * self.scale

    def forward(self, x):
        y = self.inner(x)
        y.register_hook(self.scaled)
        return y.tanh()


def with_function(x, w):
    y = x @ w
    y.register_hook(twice)
    return y.sin()


def with_lambda(x, w):
    y = x @ w
    y.register_hook(lambda g: -(g * 0.5 + g.double().float() / 4))
    return y.sin()


def bent(x, w):
    y = x @ w
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    return y.sin()


def constant(x, w):
    y = x @ w
    y.register_hook(lambda g: torch.ones_like(g))
    return y.sin()


def with_two(x, w):
    y = x @ w
    y.register_hook(twice)
    y.register_hook(lambda g: g - 3 * g)
    z = y.sin()
    z.register_hook(nothing)
    z.register_hook(lambda g: g / 4)
    handle2 = z.register_hook(twice)
    handle2.remove()
    return z * y * 1.5


def with_closure(x, w, factor=0.5):
    name = "unused"
    y = (x @ w).relu()
    y.register_hook(lambda g, more=2: g * factor * more if name else g)
    return (y @ w).relu()


def removed(x, w):
    y = x @ w
    handle = y.register_hook(twice)
    z = y.sin()
    handle.remove()
    return z


PROGRAMS = [with_function, with_lambda, with_two, with_closure, removed]


def inputs(n=3):
    return torch.randn(n, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def gradients(f, x, w):
    x, w = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
    result = f(x, w)
    result.square().sum().backward()
    return result.detach(), x.grad, w.grad


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_hooks_are_part_of_the_gradient_graph(f):
    g = magneto.compile(f)
    for n in (3, 3, 5, 6):
        x, w = inputs(n)
        assert_same(gradients(g, x, w), gradients(f, x, w), rtol=1e-4, atol=1e-5)
    s = counts()
    assert s.breaks == 0 and s.graphs == s.joint_graphs == 2, s  # the second one is for all sizes


def test_a_number_that_the_hook_reads():
    block = Block()
    g = magneto.compile(block)
    for scale in (3.0, 2.0, -1.0, 0.5):
        block.scale = scale
        x = torch.randn(3, 4, requires_grad=True)
        got = torch.autograd.grad(g(x).sum(), [x, block.inner.weight])
        assert_same(got, torch.autograd.grad(block(x).sum(), [x, block.inner.weight]), rtol=1e-4, atol=1e-5)
    assert counts().breaks == 0


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_second_derivatives(f):
    second_derivatives(f)


@pytest.mark.parametrize("f", [bent, constant], ids=lambda f: f.__name__)
def test_hooks_that_are_not_linear_break_the_graph(f):
    """Second derivatives reach the tensor in two passes of the engine."""
    second_derivatives(f)
    assert counts().breaks


def second_derivatives(f):
    def second(f, x, w):
        (first,) = torch.autograd.grad(f(x, w).square().sum(), x, create_graph=True)
        return first.detach(), *torch.autograd.grad((first.square() + x).sum(), [x, w], allow_unused=True)

    g = magneto.compile(f)
    for _ in range(2):
        x, w = inputs()
        assert_same(second(g, x, w), second(f, x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_anomaly_mode(f):
    g = magneto.compile(f)
    x, w = inputs()
    want = gradients(f, x, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            assert_same(gradients(g, x, w), want, rtol=1e-4, atol=1e-5)


def test_a_hook_with_a_side_effect_is_called_once_for_each_pass():
    seen = []

    def f(x, w):
        y = x @ w
        y.register_hook(lambda g: seen.append(tuple(g.shape)))
        return y.sin()

    g = magneto.compile(f)
    for _ in range(3):
        x, w = inputs()
        got = gradients(g, x, w)
        assert_same(got, gradients(f, x, w), rtol=1e-4, atol=1e-5)
    assert seen == [(3, 4)] * 6


def test_a_hook_is_not_called_where_no_gradient_reaches_its_tensor():
    def f(x, w):
        y = x @ w
        y.register_hook(lambda g: g + 1)
        return y.sin(), x.cos()

    def second(f, x, w):
        return torch.autograd.grad(f(x, w)[1].sum(), [x, w], allow_unused=True)

    g = magneto.compile(f)
    for _ in range(2):
        x, w = inputs()
        assert_same(second(g, x, w), second(f, x, w), rtol=1e-4, atol=1e-5)


def test_a_hook_that_holds_a_tensor_of_the_function():
    def f(x, w):
        y = x @ w
        z = y.detach() * 2
        y.register_hook(lambda g: g * z)
        return y.sin()

    g = magneto.compile(f)
    for _ in range(2):
        x, w = inputs()
        assert_same(gradients(g, x, w), gradients(f, x, w), rtol=1e-4, atol=1e-5)


def test_a_handle_that_is_kept_removes_the_hook():
    def f(x, w):
        y = x @ w
        return y.sin(), y.register_hook(twice)

    def call(f, remove, x, w):
        result, handle = f(x, w)
        if remove:
            handle.remove()
        return torch.autograd.grad(result.sum(), [x, w])

    g = magneto.compile(f)
    for remove in (False, True, False):
        x, w = inputs()
        assert_same(call(g, remove, x, w), call(f, remove, x, w), rtol=1e-4, atol=1e-5)


def test_a_hook_that_raises():
    def fail(g):
        raise ValueError("no gradient, please")

    def f(x, w):
        y = x @ w
        y.register_hook(fail)
        return y.sin()

    g = magneto.compile(f)
    for _ in range(2):
        result = g(*inputs())
        with pytest.raises(ValueError, match="no gradient, please"):
            result.sum().backward()


def test_what_a_hook_reads_may_change_after_a_break():
    def f(x, w, factor):
        y = x @ w
        y.register_hook(lambda g: g * factor)
        z = y.sin()
        torch._dynamo.graph_break()
        factor = 10.0
        return z * factor

    g = magneto.compile(f)
    for factor in (2.0, 3.0):
        x, w = inputs()
        got = gradients(lambda x, w: g(x, w, factor), x, w)
        assert_same(got, gradients(lambda x, w: f(x, w, factor), x, w), rtol=1e-4, atol=1e-5)


def test_no_grad_calls_register_nothing_wrong():
    g = magneto.compile(with_function)
    x, w = inputs()
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="doesn't require gradient"):
            g(x, w)
    assert_same(gradients(g, x, w), gradients(with_function, x, w), rtol=1e-4, atol=1e-5)
