"""Custom operators that write their arguments: compiled graphs call them on copies, which become the new values."""

import pytest
import torch
from torch.library import custom_op

import magneto


@custom_op("magneto_test::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(y)


@custom_op("magneto_test::two_", mutates_args={"x", "z"})
def two_(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    z.mul_(3)
    return x + y + z


@two_.register_fake
def _(x, y, z):
    return torch.empty_like(x)


library = torch.library.Library("magneto_test", "FRAGMENT")
library.define("plus_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
library.define("maybe_(Tensor x, Tensor(a!)? y, *, Scalar k=1) -> Tensor")
library.define("each_(Tensor(a!)[] xs, Tensor y) -> ()")
library.impl("plus_", lambda x, y: x.add_(y), "CPU")
library.impl("plus_", lambda x, y: x, "Meta")
library.impl("maybe_", lambda x, y, *, k=1: x * k if y is None else y.add_(1) * k, "CPU")
library.impl("maybe_", lambda x, y, *, k=1: torch.empty_like(x), "Meta")
library.impl("each_", lambda xs, y: [x.add_(y) for x in xs] and None, "CPU")
library.impl("each_", lambda xs, y: None, "Meta")


def intermediate(x, y):
    t = x * 2
    scale_(t, y)
    u = t + 1
    r = two_(t, y, u)
    v = torch.ops.magneto_test.plus_(u, y)
    return t, u, r, v * 2


def through_a_view(x, y):
    scale_(x[1:], y[1:])
    return x + 1


def an_input(x, y):
    a = x + y
    scale_(x, y)
    return a, x * 2


def a_list(x, y):
    t = x + 1
    torch.ops.magneto_test.each_([t, x], y)
    return t * x


def nothing_to_write(x, y):
    return torch.ops.magneto_test.maybe_(x.sin(), None, k=2), torch.ops.magneto_test.maybe_(x, y, k=2)


@pytest.mark.parametrize(
    "fn", [intermediate, through_a_view, an_input, a_list, nothing_to_write], ids=lambda f: f.__name__
)
def test_mutable_custom_op(fn):
    want_in = [torch.randn(4, 5), torch.randn(4, 5)]
    compiled = magneto.compile(fn)
    for _ in range(2):
        got_in = [t.clone() for t in want_in]
        want, got = fn(*want_in), compiled(*got_in)
        want, got = (r if isinstance(r, tuple) else (r,) for r in (want, got))
        for w, g in zip([*want, *want_in], [*got, *got_in], strict=True):
            torch.testing.assert_close(g, w)


calls = []


@custom_op("magneto_test::count", mutates_args=())
def count(x: torch.Tensor) -> torch.Tensor:
    calls.append(len(x))
    return x.clone()


count.register_fake(torch.empty_like)


def test_a_call_is_made_although_nobody_reads_its_result():
    def fn(x):
        count(x)
        count(x[1:])
        return x * 2

    compiled = magneto.compile(fn, fullgraph=True)
    for _ in range(3):
        calls.clear()
        compiled(torch.ones(4))
        assert calls == [4, 3]


def test_second_derivatives_write_statistics_once():
    def fn(x, mean, var):
        return torch._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)[0]

    def run(f):
        torch.manual_seed(0)
        x, mean, var = torch.randn(4, 3, 5).requires_grad_(), torch.zeros(3), torch.ones(3)
        (g,) = torch.autograd.grad(f(x, mean, var).sin().sum(), x, create_graph=True)
        return mean, var, torch.autograd.grad(g.square().sum(), x)[0]

    for got, want in zip(run(magneto.compile(fn)), run(fn)):
        torch.testing.assert_close(got, want)
