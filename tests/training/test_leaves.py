"""Leaves of autograd that a compiled function makes, and gradients that it assigns."""
import pytest
import torch

import magneto

MAKERS = {
    "ones": lambda: torch.ones(3, requires_grad=True),
    "tensor": lambda: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "rand": lambda: torch.rand(3, requires_grad=True),
    "zeros_like": lambda: torch.zeros_like(torch.ones(3), requires_grad=True),
    "eye": lambda: torch.eye(3, requires_grad=True),
}


@pytest.mark.parametrize("backend", ["magneto", "aten", "eager", "aot_eager"])
@pytest.mark.parametrize("name", MAKERS)
def test_factory_with_requires_grad(name, backend):
    def f(x):
        leaf = MAKERS[name]()
        return leaf, (leaf * x).sum()

    x = torch.tensor([2.0, 3.0, 4.0])
    c = magneto.compile(f, backend=backend)
    for seed in range(2):
        torch.manual_seed(seed)
        leaf, out = f(x)
        torch.manual_seed(seed)
        leaf2, out2 = c(x)
        assert leaf2.requires_grad and leaf2.is_leaf
        out.backward()
        out2.backward()
        torch.testing.assert_close(out2, out)
        torch.testing.assert_close(leaf2.grad, leaf.grad)


def test_gradient_inside_of_a_leaf_made_inside():
    def f(x):
        leaf = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad((leaf.sin() * x).sum(), leaf)
        return g

    x = torch.rand(3)
    torch.testing.assert_close(magneto.compile(f)(x), f(x))


def test_both_names_of_grad():
    def f(x, y):
        x._grad = y + 1
        y.grad = x + 2
        return x.grad.data, y._grad.data

    c = magneto.compile(f)
    for _ in range(2):
        pairs = [(torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)) for _ in range(2)]
        want, got = f(*pairs[0]), c(*pairs[1])
        torch.testing.assert_close(got, want)
        for a, b in zip(*pairs):
            torch.testing.assert_close(b.grad, a.grad)
            a.grad = b.grad = None  # they refer to each other


def test_whether_an_input_is_a_leaf_is_guarded_when_it_matters():
    def ask(x):
        return x + 1, x.is_leaf, x.grad_fn is None

    def step(x):
        y = (x * 2).sum()
        y.backward()
        return y.detach()

    for order in ("leaf inner", "inner leaf"):
        asks, steps = magneto.compile(ask), magneto.compile(step)
        for kind in order.split():
            base = torch.ones(3, requires_grad=True)
            x = base * 3 if kind == "inner" else base
            assert asks(x)[1:] == ask(x)[1:]
            steps(x)
            assert base.grad.tolist() == [6.0 if kind == "inner" else 2.0] * 3
